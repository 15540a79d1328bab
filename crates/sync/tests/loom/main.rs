//! Models of channels and locks, under loom: `scripts/loom`.
//!
//! Each is named after the race it checks. Jobs are run on the small host of core's own
//! models; two threads each.

#![cfg(loom)]

#[path = "../../../core/tests/loom/host.rs"]
#[allow(dead_code, reason = "core's models use all of it")]
mod host;

mod channels;
mod locks;

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use loom::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// Counts its wakes.
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// A future, and how often it was woken.
struct Polled<F> {
    future: Pin<Box<F>>,
    woken: Arc<Woken>,
    /// As often as it was when it was polled last.
    seen: usize,
}

fn polled<F: Future>(future: F) -> Polled<F> {
    Polled {
        future: Box::pin(future),
        woken: Arc::new(Woken(AtomicUsize::new(0))),
        seen: 0,
    }
}

impl<F: Future> Polled<F> {
    fn poll(&mut self) -> Option<F::Output> {
        self.seen = self.woken.0.load(SeqCst);
        let waker = Waker::from(self.woken.clone());
        match self.future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    /// It was pending, and what it waits for is there: it must have been woken, and is
    /// ready.
    fn finish(mut self, before: Option<F::Output>) -> F::Output {
        if let Some(output) = before {
            return output;
        }
        assert!(self.woken.0.load(SeqCst) > self.seen, "a lost wake");
        self.poll().expect("it was woken for this")
    }
}

fn now_or_never<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}
