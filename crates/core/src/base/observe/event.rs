//! What can happen, as plain data.

use std::panic::Location;

use crate::base::id::JobId;
use crate::base::kind::JobKind;
use crate::base::lane::Lane;
use crate::base::reason::ReasonKind;
use crate::base::wait_kind::WaitKind;

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
///
/// Every sink gets the first eight. The others come only to a sink that has asked for
/// them: [`Interests`](crate::Interests) says which belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind {
    /// `JOB_CREATE`: a job was made.
    Create {
        /// Its kind.
        kind: JobKind,
        /// Where it was spawned or opened.
        site: &'static Location<'static>,
        /// Where it is polled.
        lane: Lane,
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
        /// The place in the code that asked: the call of `cancel`; of a deadline where its
        /// scope was opened, of a failure where the job that failed was spawned.
        site: &'static Location<'static>,
        /// The job that asked, in whose poll the call was made; of a failure the job that
        /// failed. None if that was outside every job: in a timer or a hook, say.
        by: Option<JobId>,
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
    Finalize {
        /// True if a cancel had come to it, whatever its outcome is. The thread that
        /// cancelled may tell its `CancelRequest` or `CancelHop` only after this event: a sink
        /// that forgets jobs here keeps this one a little longer.
        cancelled: bool,
    },
    /// `JOB_CANCEL_HOP`: a cancel has come to this job from its parent. With
    /// [`Interests::CAUSES`](crate::Interests::CAUSES).
    CancelHop {
        /// The parent.
        from: JobId,
    },
    /// `JOB_CANCEL_HELD`: a cancel has come to this shield or clean-up from its parent, and
    /// is held back by it. With [`Interests::CAUSES`](crate::Interests::CAUSES).
    CancelHeld {
        /// The parent.
        from: JobId,
    },
    /// `JOB_TOLD`: a point has returned `Cancelled` to the body of this job. With
    /// [`Interests::CAUSES`](crate::Interests::CAUSES).
    Told {
        /// The point. A release build knows it of points that wait for something of
        /// ours, and not of [`checkpoint`](crate::checkpoint), [`yield_now`](crate::yield_now)
        /// and [`or_cancel`](crate::OrCancel).
        site: Option<&'static Location<'static>>,
    },
    /// `JOB_GUARD_ENTER`: its body holds cancels back with
    /// [`ignore_cancellation`](crate::ignore_cancellation). A shield is a job of its own.
    /// With [`Interests::CAUSES`](crate::Interests::CAUSES).
    GuardEntered {
        /// Where.
        site: &'static Location<'static>,
    },
    /// `JOB_GUARD_LEAVE`: one of its guards is gone; with the last of them a cancel
    /// takes effect that was held back. With
    /// [`Interests::CAUSES`](crate::Interests::CAUSES).
    GuardLeft,
    /// `JOB_DROPPED`: its future was dropped before it was done. With
    /// [`Interests::CAUSES`](crate::Interests::CAUSES).
    Dropped,
    /// `TASK_WAIT_BEGIN`: a turn has left this job waiting. It is the task of the turn, or the
    /// innermost of its scopes. With [`Interests::WAITS`](crate::Interests::WAITS).
    WaitBegin {
        /// What for.
        kind: WaitKind,
        /// Where; none of a foreign await.
        site: Option<&'static Location<'static>>,
    },
    /// `TASK_WAIT_END`: the task has a turn again, and what it or one of its scopes waited
    /// for may be there. With [`Interests::WAITS`](crate::Interests::WAITS).
    WaitEnd,
    /// `TASK_SCHEDULED`: it was given to the host to be polled. With
    /// [`Interests::TURNS`](crate::Interests::TURNS).
    Scheduled {
        /// The job that has woken it: the one in whose poll the wake was made, or the one
        /// whose end it was; itself, if it has asked for another turn. None if that was
        /// outside every job: in a timer, or on a thread of the program's own.
        by: Option<JobId>,
    },
    /// `TASK_POLL_BEGIN`: a turn begins. With [`Interests::TURNS`](crate::Interests::TURNS).
    PollBegin,
    /// `TASK_POLL_END`: the turn is over. With [`Interests::TURNS`](crate::Interests::TURNS).
    PollEnd,
}

/// One event: which job, when, on which thread, what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// The job it happened to.
    pub job: JobId,
    /// Nanoseconds since the tree began, of a clock that never goes back: the system's, or
    /// the virtual one in a simulation and wherever time is virtual. A cancel has the time just
    /// before it took effect, so that nothing it brought about is older.
    pub at: u64,
    /// The number of the thread it happened on. Numbers of threads are never given twice in
    /// a process; a replay of a seed may run on a thread of another number.
    pub thread: u64,
    /// Which of the host's workers that thread is; none if it is none of them.
    pub worker: Option<u32>,
    /// What happened.
    pub kind: EventKind,
}

impl Event {
    /// An event outside every worker: for tests of sinks.
    pub fn new(job: JobId, at: u64, kind: EventKind) -> Event {
        Event {
            job,
            at,
            thread: 0,
            worker: None,
            kind,
        }
    }
}
