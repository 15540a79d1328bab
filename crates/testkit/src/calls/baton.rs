//! The baton between a simulation and one of its blocking calls: only one of the two
//! runs at a time. The call passes the baton back when it has returned, and when it
//! asks whether it is cancelled.
//!
//! ```text
//!            1                3
//!   Goes ─────────▶ Asked    Goes ─────────▶ Over
//!     ▲               │
//!     └───────────────┘ 2
//! ```
//! 1: [`Baton::ask`], on the call's thread. 2: [`Baton::pass`]; or the call takes the
//! baton, if the simulation cannot pass it because one of its tasks blocks, perhaps in a
//! lock that the call holds. 3: [`Baton::over`].

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

use kinfolk_core::host::{Activity, Questions, ThreadFiles};

/// How often a call that waits for the baton looks at the simulation.
const LOOK: Duration = Duration::from_millis(2);

/// For so many looks in a row the simulation must be in the same sleep before the call
/// takes the baton.
const SURE: u32 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// The call runs, or waits in a way of its own.
    Goes,
    /// The call has asked, and waits for the baton.
    Asked,
    /// The call has returned.
    Over,
}

struct State {
    at: At,
    /// The thread of the call. Other threads may ask too, and get their answer at once.
    thread: Option<ThreadId>,
    questions: Questions,
    /// The simulation is gone: no side waits for the other any more.
    alone: bool,
}

pub(crate) struct Baton {
    /// The thread of the simulation.
    simulation: Arc<ThreadFiles>,
    state: Mutex<State>,
    changed: Condvar,
}

impl Baton {
    /// A baton that is held by a call which is about to begin.
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

    /// The call asks. While the simulation has nothing else to do the call runs on at
    /// once, up to a bound. Else it waits until it has the baton again.
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

    /// Waits for the baton. The simulation only sleeps for a time, unless one of its
    /// tasks blocks: then it will not pass the baton, and the call takes it.
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

    /// The call that has asked runs on.
    pub(crate) fn pass(&self) {
        let mut state = self.state();
        if state.at != At::Asked {
            // The call has taken the baton.
            return;
        }
        state.at = At::Goes;
        state.questions.begin_anew();
        self.changed.notify_all();
    }

    /// Where the baton is, once the call does not run any more, or after
    /// `most`.
    pub(crate) fn wait(&self, most: Duration) -> At {
        let goes = |state: &mut State| state.at == At::Goes;
        let waited = self.changed.wait_timeout_while(self.state(), most, goes);
        waited.unwrap_or_else(PoisonError::into_inner).0.at
    }

    pub(crate) fn at(&self) -> At {
        self.state().at
    }

    /// The simulation is gone: the call runs on without it.
    pub(crate) fn let_go(&self) {
        self.state().alone = true;
        self.changed.notify_all();
    }
}
