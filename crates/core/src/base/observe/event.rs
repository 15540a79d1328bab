//! What can happen, as plain data.

use std::panic::Location;

use crate::base::id::JobId;
use crate::base::kind::JobKind;
use crate::base::reason::ReasonKind;

/// The states of a job, as observers see them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum JobState {
    /// Not polled yet.
    New,
    /// Its body runs or waits.
    Active,
    /// Its body is over; children live.
    Completing,
    /// Cancelled, and not yet over.
    Cancelling,
    /// Ended well.
    Completed,
    /// Ended with a failure.
    Failed,
    /// Ended by cancellation.
    Cancelled,
}

impl JobState {
    /// True for the three in which a job ends.
    pub fn is_terminal(self) -> bool {
        matches!(
            self,
            JobState::Completed | JobState::Failed | JobState::Cancelled
        )
    }
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind {
    /// `JOB_CREATE`: a job was made.
    Create {
        /// Its kind.
        kind: JobKind,
        /// Where it was spawned or opened.
        site: &'static Location<'static>,
    },
    /// `JOB_CHILD_ATTACH`: it was linked below this parent.
    Attach {
        /// The parent.
        parent: JobId,
    },
    /// `JOB_STATE`: it moved.
    State {
        /// Where to.
        to: JobState,
    },
    /// `JOB_CANCEL_REQ`: a cancel entered the tree at this job.
    CancelRequest {
        /// Why.
        reason: ReasonKind,
    },
    /// `JOB_WAIT_REGISTER`: a job waits for its end.
    WaitRegister,
    /// `JOB_WAIT_WAKE`: its end woke a waiter.
    WaitWake,
    /// `JOB_SHIELD_LIFTED`: this shield or clean-up lets the cancel in that it
    /// has held back, because its time is up or a shutdown's grace is over.
    ShieldLifted {
        /// Where it was entered.
        site: &'static Location<'static>,
    },
    /// `JOB_FINALIZE`: it has ended and leaves the tree.
    Finalize,
    /// `TASK_SCHEDULED`: it was given to the host to be polled. Only for
    /// sinks that want it.
    Scheduled,
    /// `TASK_POLL_BEGIN`: a turn begins. Only for sinks that want it.
    PollBegin,
    /// `TASK_POLL_END`: the turn is over. Only for sinks that want it.
    PollEnd,
}

/// One event: which job, when, what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The job it happened to.
    pub job: JobId,
    /// Milliseconds since the tree began.
    pub at: u32,
    /// What happened.
    pub kind: EventKind,
}
