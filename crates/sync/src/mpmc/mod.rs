//! Channels between many senders and many receivers: each value is received once.
//!
//! - [`channel`]: room for so many values; a sender that finds none waits.
//! - [`rendezvous`]: no room at all; a sender waits until its value is received.
//! - [`unbounded_channel`]: as much room as there is memory; sending never waits.
//!
//! ```
//! # async fn demo() -> kinfolk_core::Result<()> {
//! use kinfolk_sync::mpmc;
//!
//! let (tx, rx) = mpmc::channel(8);
//! tx.send("hello").await?;
//! drop(tx); // the last sender: what was sent is still received
//!
//! while let Some(word) = rx.recv().await? {
//!     assert_eq!(word, "hello");
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Nothing is lost. A send that is told to stop gives the value back, in its error. A
//! receive that is told, or dropped, has taken nothing. Closed from either side, a
//! channel takes no more values, gives those that wait to be sent back, and is received
//! from until it is empty.

mod buffer;
mod recv;
mod send;
mod shared;
#[cfg(feature = "stream")]
mod stream;

pub use recv::{Receiver, Recv};
pub use send::{Send, Sender, UnboundedSender};
#[cfg(feature = "stream")]
pub use stream::{ReceiverStream, SenderSink};

pub(crate) use buffer::with_room;
use shared::Shared;

/// A channel with room for `capacity` values. With a capacity of 0 it is a
/// [`rendezvous`].
///
/// Its memory is taken here: to send allocates nothing.
///
/// # Panics
/// If there is no memory for so many.
#[track_caller]
pub fn channel<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let shared = Shared::new(Some(capacity));
    (Sender::new(shared.clone()), Receiver::new(shared))
}

/// A channel without room: a value goes from the hand of a sender into that of a
/// receiver, and the send returns once it was received.
///
/// Only [`try_send`](Sender::try_send), which cannot wait for that, leaves the value for
/// the first receiver in line; should that one go before it has taken the value, the next
/// one finds it. The first value that is left takes memory, which is used again.
#[track_caller]
pub fn rendezvous<T>() -> (Sender<T>, Receiver<T>) {
    channel(0)
}

/// A channel without a limit. Sending never waits.
#[track_caller]
pub fn unbounded_channel<T>() -> (UnboundedSender<T>, Receiver<T>) {
    let shared = Shared::new(None);
    (UnboundedSender::new(shared.clone()), Receiver::new(shared))
}
