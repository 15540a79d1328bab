//! The baton between a simulation and one of its blocking calls: one of the two goes on
//! at a time. The call passes it back when it has returned, and when it asks whether it
//! is cancelled.
//!
//! ```text
//!            1                3
//!   Goes ─────────▶ Asked    Goes ─────────▶ Over
//!     ▲               │
//!     └───────────────┘ 2
//! ```
//! 1: [`Baton::ask`], on the call's thread. 2: [`Baton::pass`]; or the call takes it, where
//! the simulation cannot pass it because one of its tasks blocks, perhaps in a lock that
//! the call holds. 3: [`Baton::over`].

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

use kinfolk_core::host::{Activity, Questions, ThreadFiles};

/// How often a call that waits for the baton looks at the simulation.
const LOOK: Duration = Duration::from_millis(2);

/// At so many looks in a row the simulation must be in the same sleep, until the call takes
/// the baton.
const SURE: u32 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// The call goes on, or waits in a way of its own.
    Goes,
    /// The call has asked, and waits for the baton.
    Asked,
    /// The call has returned.
    Over,
}

struct State {
    at: At,
    /// On which thread the call is. Other threads may ask too; they get their answer at
    /// once.
    thread: Option<ThreadId>,
    questions: Questions,
    /// The simulation is gone, and waits for nothing.
    alone: bool,
}

pub(crate) struct Baton {
    /// The thread of the simulation.
    simulation: Arc<ThreadFiles>,
    state: Mutex<State>,
    changed: Condvar,
}

impl Baton {
    /// In the hands of a call that is about to begin.
    pub(crate) fn new(simulation: Arc<ThreadFiles>) -> Baton {
        Baton {
            simulation,
            state: Mutex::new(State {
                at: At::Goes,
                thread: None,
                questions: Questions::default(),
                alone: false,
            }),
            changed: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The call begins, on this thread.
    pub(crate) fn begins(&self) {
        self.state().thread = Some(std::thread::current().id());
    }

    /// The call asks. While the simulation has nothing else to do it goes on at once, up
    /// to a bound. Else it waits until it has the baton again.
    pub(crate) fn ask(&self, idle: impl FnOnce() -> bool) {
        if self.state().thread != Some(std::thread::current().id()) {
            return;
        }
        let idle = idle();
        let mut state = self.state();
        if state.alone {
            return;
        }
        if !state.questions.asks() && idle {
            state.questions.counts();
            return;
        }
        state.at = At::Asked;
        self.changed.notify_all();
        self.await_it(state);
    }

    /// Waits for the baton. The simulation waits for a time only, unless a task of it
    /// blocks: then it will not pass the baton, and the call takes it.
    fn await_it<'a>(&'a self, mut state: MutexGuard<'a, State>) {
        let (mut before, mut times) = (Activity::Runs, 0);
        loop {
            let waits = |state: &mut State| state.at == At::Asked && !state.alone;
            let waited = self.changed.wait_timeout_while(state, LOOK, waits);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if !waits(&mut state) {
                break;
            }
            drop(state);
            let seen = self.simulation.look();
            times = match seen {
                Activity::Waits(_) if seen == before => times + 1,
                _ => 0,
            };
            before = seen;
            state = self.state();
            if times + 1 >= SURE && state.at == At::Asked {
                state.at = At::Goes;
            }
        }
        state.questions.waited();
    }

    /// The call has returned.
    pub(crate) fn over(&self) {
        self.state().at = At::Over;
        self.changed.notify_all();
    }

    /// The call that has asked goes on.
    pub(crate) fn pass(&self) {
        let mut state = self.state();
        if state.at != At::Asked {
            // It has taken the baton.
            return;
        }
        state.at = At::Goes;
        state.questions.begin_anew();
        self.changed.notify_all();
    }

    /// Where it is, once the call does not go on any more, or after `most`.
    pub(crate) fn wait(&self, most: Duration) -> At {
        let goes = |state: &mut State| state.at == At::Goes;
        let waited = self.changed.wait_timeout_while(self.state(), most, goes);
        waited.unwrap_or_else(PoisonError::into_inner).0.at
    }

    pub(crate) fn at(&self) -> At {
        self.state().at
    }

    /// The simulation is gone: the call goes on by itself.
    pub(crate) fn let_go(&self) {
        self.state().alone = true;
        self.changed.notify_all();
    }
}
