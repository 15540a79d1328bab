//! For authors: waits of your own that are points.
//!
//! Most need one pair, [`completion`]: the wait is a point, and the
//! [`Completer`] goes to whoever brings the value, on any thread, from a
//! callback too.
//!
//! ```
//! # use kinfolk_core as kinfolk;
//! use kinfolk::{Result, checkpoint, kit};
//! # mod library {
//! #     pub fn start(done: impl FnOnce(Vec<u8>) + Send + 'static) -> u32 { done(vec![1]); 7 }
//! #     pub fn stop(_: u32) -> bool { true }
//! # }
//!
//! async fn read() -> Result<Vec<u8>> {
//!     checkpoint().await?; // told already: it never begins
//!     let (wait, completer) = kit::completion();
//!     let id = library::start(move |bytes| {
//!         completer.complete(bytes);
//!     });
//!     wait.begun().abort_with(move || match library::stop(id) {
//!         true => kit::Abort::Done,
//!         false => kit::Abort::NotNow, // it is waited for
//!     })
//!     .await
//! }
//! ```
//!
//! - Told before the value came: [`abort_with`](Completion::abort_with) asks the
//!   operation to stop, and it may answer that it cannot.
//! - An operation that [has begun](Completion::begun) before it is waited for may be
//!   over by then: what it brings is returned, and the next point tells.
//! - A value for nobody goes to [`on_undelivered`](Completion::on_undelivered).
//! - What is to happen at the moment of the cancel, on the canceller's thread,
//!   is a hook: [`on_cancel`](crate::on_cancel).
//!
//! Who writes a future by hand, over a queue or a list of wakers of their own,
//! makes a point of it with a [`Point`]. What goes on beside the body of a job,
//! and must not outlive it, is [`Work`]. A thread of a library's own that is about to
//! answer holds the virtual clock of a test with a [`HeldClock`].

mod completion;
mod held_clock;
mod point;
pub(crate) mod resource;
pub(crate) mod work;

pub use crate::base::error::cancelled_in;
#[doc(hidden)]
pub use completion::completion_at;
pub use completion::{Abort, Completer, Completion, NeverCompleted, completion};
pub use held_clock::{HeldClock, hold_clock};
pub use point::Point;
pub use resource::{Holder, LastGuard, Listed, Resource, ResourceLook, current_id};
pub use work::{Reap, Work, cancelled_here};
