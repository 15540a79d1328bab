//! The panic policy. Code of the user's is called through [`caught`]; what it
//! throws becomes an outcome or a report. No other file catches a panic.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a panic carried.
pub(crate) type Payload = Box<dyn Any + Send>;

/// Runs code of the user's. The state it may have left broken is its own: we
/// drop it and never look at it again, hence the assertion.
pub(crate) fn caught<R>(f: impl FnOnce() -> R) -> Result<R, Payload> {
    catch_unwind(AssertUnwindSafe(f))
}

/// Runs code whose panic has nowhere to go (a waker, a sink, a destructor of
/// something already decided). The panic hook has printed it; the work of the
/// caller goes on. True if it panicked.
pub fn contained(f: impl FnOnce()) -> bool {
    match caught(f) {
        Ok(()) => false,
        Err(payload) => {
            discard(payload);
            true
        }
    }
}

/// Drops a payload, whose own destructor may panic in turn.
pub(crate) fn discard(payload: Payload) {
    if let Err(second) = caught(move || drop(payload)) {
        // A payload that panics while it is dropped, twice: leak it.
        std::mem::forget(second);
    }
}

/// The words of a panic, where it has any.
pub(crate) fn message(payload: &(dyn Any + Send)) -> &str {
    if let Some(s) = payload.downcast_ref::<&'static str>() {
        s
    } else if let Some(s) = payload.downcast_ref::<String>() {
        s
    } else {
        "a panic without words"
    }
}
