//! A sequencer: steps that may only be taken in order, for tests whose order of
//! events must not depend on chance.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

#[derive(Debug, Default)]
struct State {
    next: usize,
    wakers: Vec<Waker>,
}

/// Steps 0, 1, 2 …: each waits for the one before it.
#[derive(Clone, Debug, Default)]
pub struct Sequencer(Arc<Mutex<State>>);

impl Sequencer {
    /// The next step is 0.
    pub fn new() -> Sequencer {
        Sequencer::default()
    }

    /// Waits until `step` is the next one, and takes it. *Not a point.*
    pub fn step(&self, step: usize) -> Step {
        Step {
            sequencer: self.clone(),
            step,
        }
    }

    /// How many steps have been taken.
    pub fn taken(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).next
    }
}

/// The future of [`Sequencer::step`].
#[must_use = "futures do nothing unless awaited"]
#[derive(Debug)]
pub struct Step {
    sequencer: Sequencer,
    step: usize,
}

impl Future for Step {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let wakers = {
            let mut state = self
                .sequencer
                .0
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            if state.next < self.step {
                state.wakers.push(cx.waker().clone());
                return Poll::Pending;
            }
            assert_eq!(state.next, self.step, "step {} was taken twice", self.step);
            state.next += 1;
            std::mem::take(&mut state.wakers)
        };
        for waker in wakers {
            kinfolk_core::host::wake(waker);
        }
        Poll::Ready(())
    }
}
