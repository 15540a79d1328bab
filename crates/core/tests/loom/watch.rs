//! One poll by hand, and something to wait for that is no point.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use loom::sync::Mutex;

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

/// Opened once; a wait for it is not a point.
#[derive(Clone, Default)]
pub struct Gate(Arc<Mutex<(bool, Option<Waker>)>>);

impl Gate {
    pub fn open(&self) {
        let waker = {
            let mut gate = self.0.lock().unwrap();
            gate.0 = true;
            gate.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub async fn wait(&self) {
        poll_fn(|cx| {
            let mut gate = self.0.lock().unwrap();
            if gate.0 {
                return Poll::Ready(());
            }
            gate.1 = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}
