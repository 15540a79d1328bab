//! For authors of libraries: cancellation points of your own.
//!
//! Most libraries need one pair, [`completion`]: the [`Completion`] is awaited and is a
//! cancellation point, and the [`Completer`] delivers the value from any thread, or from a
//! callback.
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
//! - An operation that [has begun](Completion::begun) before it is awaited may be
//!   over by then: its value is returned, and the next point reports the cancel.
//! - A value that no waiter takes goes to
//!   [`on_undelivered`](Completion::on_undelivered).
//! - Code that must run at the moment of the cancel, on the canceller's thread, is a hook:
//!   [`on_cancel`](crate::on_cancel).
//!
//! A future written by hand, over a queue or a list of wakers, becomes a cancellation point
//! with a [`Point`]. An activity that goes on beside the body of a job, and must not outlive
//! the job, is [`Work`]. A library's own thread that is about to answer holds the virtual
//! clock of a test with a [`HeldClock`].

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
