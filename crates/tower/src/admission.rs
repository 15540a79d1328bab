//! [`Admission`]: so many at a time, so many in line, and no more.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};

use kinfolk_core::{OrFail, Result};
use kinfolk_sync::{Acquire, OwnedSemaphorePermit, Semaphore};

/// A limit for requests or connections.
#[derive(Debug)]
pub(crate) struct Admission {
    semaphore: Arc<Semaphore>,
    /// How many stand in line.
    waiting: AtomicUsize,
    most_waiting: usize,
}

/// A place, or one in the line.
pub(crate) enum Ticket {
    Now(OwnedSemaphorePermit),
    Waits(Pin<Box<Acquire<Arc<Semaphore>>>>, InLine),
}

/// Counted among those that stand in line, until it is dropped.
pub(crate) struct InLine(Arc<Admission>);

impl Drop for InLine {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Relaxed);
    }
}

impl Admission {
    pub(crate) fn new(at_once: usize, most_waiting: usize, name: &'static str) -> Arc<Admission> {
        Arc::new(Admission {
            semaphore: Arc::new(Semaphore::new(at_once.min(Semaphore::MAX_PERMITS)).named(name)),
            waiting: AtomicUsize::new(0),
            most_waiting,
        })
    }

    /// A ticket in the order of the calls; none if the line is full.
    pub(crate) fn enter(self: &Arc<Self>) -> Option<Ticket> {
        if let Ok(permit) = self.semaphore.clone().try_acquire_owned() {
            return Some(Ticket::Now(permit));
        }
        let room = |n: usize| (n < self.most_waiting).then_some(n + 1);
        self.waiting.fetch_update(Relaxed, Relaxed, room).ok()?;
        let in_line = InLine(self.clone());
        let mut wait = Box::pin(self.semaphore.clone().acquire_owned());
        // Its place in line is that of this call, and not that of the first turn of a job.
        match wait.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(permit)) => Some(Ticket::Now(permit)),
            Poll::Ready(Err(_)) => None,
            Poll::Pending => Some(Ticket::Waits(wait, in_line)),
        }
    }
}

impl Ticket {
    /// Waits for the place.
    ///
    /// # Cancellation
    /// A *point*: told, it has left the line.
    pub(crate) async fn wait(self) -> Result<OwnedSemaphorePermit> {
        match self {
            Ticket::Now(permit) => Ok(permit),
            Ticket::Waits(mut wait, _in_line) => {
                let got = poll_fn(|cx| wait.as_mut().poll(cx)).await;
                got.or_fail()
            }
        }
    }
}
