//! Waiting on a thread: the blocking forms of channels and locks.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use kinfolk_core::kit;

/// Unparks the thread that waits.
struct Unpark {
    thread: Thread,
    woken: AtomicBool,
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Pairs with the Acquire of `block_on`.
        if !self.woken.swap(true, Ordering::Release) {
            self.thread.unpark();
        }
    }
}

/// Polls `future` on this thread until it is ready.
///
/// # Panics
/// Inside a job: the thread belongs to its host, and others wait for it.
#[track_caller]
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    assert!(
        kit::current_id().is_none(),
        "a blocking form of a channel or lock was called inside a Kinfolk job, whose thread \
         others need: await it, or call it inside `kinfolk::blocking`"
    );
    let mut future = pin!(future);
    // The first look costs no waker.
    if let Poll::Ready(ready) = future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        return ready;
    }
    let unpark = Arc::new(Unpark {
        thread: std::thread::current(),
        woken: AtomicBool::new(false),
    });
    let waker = Waker::from(unpark.clone());
    let mut cx = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(ready) = future.as_mut().poll(&mut cx) {
            return ready;
        }
        while !unpark.woken.swap(false, Ordering::Acquire) {
            std::thread::park();
        }
    }
}
