//! The two sides of a factory timer: the [`TimerToken`] that its user holds, on
//! any thread, and the driver that waits for the next run. Whether the cancel
//! or the run comes first is decided under one small lock.
//!
//! ```text
//!             begin               ended
//! Waiting ───────────► Running ───────────► Waiting
//!    │                    │
//!    │ begin, the last    │ ended, cancelled
//!    ▼ run                ▼
//!   Over ◄──────────────  Over      from everywhere: the driver is gone
//! ```
//!
//! `cancel` sets a flag beside the phase and wakes a driver that waits. It is
//! refused when the timer is over: no run is left that it could stop.
//!
//! Two claims, each a loom model of that name:
//!
//! - `token_vs_run`: `begin` and `cancel` take the same lock, so the first of
//!   them decides, and the second sees that.
//! - `token_vs_sleep`: the driver leaves its waker under the lock in which it
//!   saw no cancel, so a later cancel finds it.

use std::fmt;
use std::sync::{Arc, PoisonError};
use std::task::Waker;

use crate::base::sync::{AtomicU64, Mutex, MutexGuard, Ordering};
use crate::base::unwind::{KeptWaker, wake};
use crate::surface::handle::Job;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TokenPhase {
    /// No run is in progress; one is to come.
    Waiting,
    /// A run is in progress; others are to come.
    Running,
    /// No run is to come. The last one may be in progress.
    Over,
}

struct State {
    phase: TokenPhase,
    cancelled: bool,
    /// The driver's waker, while it waits.
    waker: Option<KeptWaker>,
}

/// What the driver must do next.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextRun {
    /// Go on: run, or wait for the next one.
    Go,
    /// No run is to come.
    Stop,
}

/// What a token and its driver share.
pub(crate) struct Signal {
    state: Mutex<State>,
    skipped: AtomicU64,
}

impl Signal {
    pub(crate) fn new() -> Signal {
        Signal {
            state: Mutex::new(State {
                phase: TokenPhase::Waiting,
                cancelled: false,
                waker: None,
            }),
            skipped: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops what is to come. True if this call did.
    fn cancel(&self) -> bool {
        let waker = {
            let mut state = self.lock();
            if state.cancelled || state.phase == TokenPhase::Over {
                return false;
            }
            state.cancelled = true;
            state.waker.take()
        };
        if let Some(waker) = waker {
            wake(waker.into_inner());
        }
        true
    }

    fn is_cancelled(&self) -> bool {
        self.lock().cancelled
    }

    /// The driver waits, and is woken by a cancel.
    pub(crate) fn wait(&self, waker: &Waker) -> NextRun {
        // Cloned and dropped outside the lock.
        let new = KeptWaker::new(waker.clone());
        let mut state = self.lock();
        if state.cancelled {
            drop(state);
            return NextRun::Stop;
        }
        let old = state.waker.replace(new);
        drop(state);
        drop(old);
        NextRun::Go
    }

    /// A run is due. Go: it won against every cancel, and happens.
    pub(crate) fn begin(&self, last: bool) -> NextRun {
        let mut state = self.lock();
        let waker = state.waker.take();
        let next = if state.cancelled {
            NextRun::Stop
        } else {
            state.phase = if last {
                TokenPhase::Over
            } else {
                TokenPhase::Running
            };
            NextRun::Go
        };
        drop(state);
        drop(waker);
        next
    }

    /// The run has ended.
    pub(crate) fn ended(&self) -> NextRun {
        let mut state = self.lock();
        if state.cancelled || state.phase == TokenPhase::Over {
            state.phase = TokenPhase::Over;
            return NextRun::Stop;
        }
        state.phase = TokenPhase::Waiting;
        NextRun::Go
    }

    pub(crate) fn set_skipped(&self, ticks: u64) {
        self.skipped.store(ticks, Ordering::Relaxed);
    }

    /// The driver is gone. Runs that were still to come are cancelled.
    fn over(&self) {
        let mut state = self.lock();
        let waker = state.waker.take();
        if state.phase != TokenPhase::Over {
            state.phase = TokenPhase::Over;
            state.cancelled = true;
        }
        drop(state);
        drop(waker);
    }
}

/// The driver's side; dropped with the driver's future.
pub(crate) struct FactoryDriver(pub(crate) Arc<Signal>);

impl Drop for FactoryDriver {
    fn drop(&mut self) {
        self.0.over();
    }
}

/// A handle to a factory timer.
///
/// Dropping the token cancels the runs that are still to come, but not the one in progress.
/// [`keep`](TimerToken::keep) gives the token up without stopping the timer. The token may
/// outlive its timer, and may be used on any thread.
#[must_use = "dropping the token cancels the timer: use `keep` to let it go on"]
pub struct TimerToken {
    signal: Arc<Signal>,
    job: Job,
    kept: bool,
}

impl TimerToken {
    pub(crate) fn new(signal: Arc<Signal>, job: Job) -> TimerToken {
        TimerToken {
            signal,
            job,
            kept: false,
        }
    }

    /// Cancels the runs that are still to come. The run in progress goes on, and its scope
    /// waits for it. Returns true if this call stopped the timer.
    pub fn cancel(&self) -> bool {
        self.signal.cancel()
    }

    /// Returns true if runs that were still to come have been cancelled, by the token or with
    /// the scope.
    pub fn is_cancelled(&self) -> bool {
        self.signal.is_cancelled()
    }

    /// Returns true if no run is in progress and none is to come.
    pub fn is_finished(&self) -> bool {
        self.job.is_ended()
    }

    /// Returns how many ticks of an interval were skipped, because a run was still in progress
    /// or the host was late.
    pub fn skipped(&self) -> u64 {
        self.signal.skipped.load(Ordering::Relaxed)
    }

    /// Returns the job of the timer, whose children are the runs: for observing and joining
    /// it, or for cancelling it together with the run in progress.
    pub fn job(&self) -> Job {
        self.job.clone()
    }

    /// Gives the token up without stopping the timer.
    pub fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for TimerToken {
    fn drop(&mut self) {
        if !self.kept {
            self.signal.cancel();
        }
    }
}

impl fmt::Debug for TimerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimerToken")
            .field("job", &self.job)
            .field("cancelled", &self.is_cancelled())
            .field("finished", &self.is_finished())
            .finish()
    }
}
