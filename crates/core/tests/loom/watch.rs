//! One poll by hand.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// The output, if one poll is enough.
pub fn now_or_never<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    match future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}
