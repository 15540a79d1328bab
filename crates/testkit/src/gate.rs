//! A foreign awaitable: a gate that a test opens. It is no wait of Kinfolk's,
//! so a future inside it is not told of a cancel.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

#[derive(Debug, Default)]
struct State {
    open: bool,
    wakers: Vec<Waker>,
}

/// A gate. Waiting for it is a foreign await: *not a point*.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<Mutex<State>>);

impl Gate {
    /// A closed gate.
    pub fn new() -> Gate {
        Gate::default()
    }

    /// Opens the gate for good.
    pub fn open(&self) {
        let wakers = {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            state.open = true;
            std::mem::take(&mut state.wakers)
        };
        for waker in wakers {
            kinfolk_core::host::wake(waker);
        }
    }

    /// Waits until the gate is open.
    pub fn wait(&self) -> GateWait {
        GateWait(self.clone())
    }
}

/// The future of [`Gate::wait`].
#[must_use = "futures do nothing unless awaited"]
#[derive(Debug)]
pub struct GateWait(Gate);

impl Future for GateWait {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.open {
            return Poll::Ready(());
        }
        state.wakers.push(cx.waker().clone());
        Poll::Pending
    }
}
