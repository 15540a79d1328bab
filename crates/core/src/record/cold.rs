//! The part of a job that most jobs never need: made on first use, reached
//! under the job's lock, freed with the cell.

use std::any::Any;
use std::borrow::Cow;
use std::panic::Location;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::base::error::Error;
use crate::base::id::JobId;
use crate::base::list::List;
use crate::base::patience::Patience;
use crate::base::reason::{ReasonData, ReasonKind};
use crate::base::unwind::{Contained, KeptWaker};
use crate::record::alarm::Alarm;
use crate::record::brake::Brake;
use crate::record::failures::Failures;
use crate::record::header::{Header, JobRef};
use crate::record::hook_cell::{HookCell, HookHome};
use crate::record::requests::Requests;
use crate::record::works::Works;

/// One registered wait for the end of a job.
pub(crate) struct Joiner {
    pub(crate) waker: KeptWaker,
    /// The job that waits; none outside every job.
    pub(crate) job: Option<JobId>,
}

/// What a job has, set by itself or by an ancestor.
#[derive(Clone, Copy)]
pub(crate) struct Above {
    pub(crate) patience: Option<Patience>,
    /// The nearest shield or service; null if there is none.
    pub(crate) barrier: *const Header,
    /// The nearest scope with a local; null if there is none.
    pub(crate) local: *const Header,
}

/// When to look at a cancel, and a number that orders equal instants.
pub(crate) type SweepKey = (Instant, u64);

/// Receives failures that no handle takes: the tree.
pub(crate) trait Reporter: Send + Sync {
    fn report(&self, error: &Error);
}

/// The way back to the main lane, for a job that may have left its tree.
pub(crate) struct Home {
    /// The tree.
    pub(crate) tree: Weak<dyn Any + Send + Sync>,
    /// The root, which is held open while a turn for the output is on its way.
    pub(crate) root: Option<JobRef>,
}

/// A value that is set at a scope, and visible to every job below it.
pub(crate) struct LocalValue {
    /// The number of its [`Local`](crate::Local).
    pub(crate) number: u64,
    pub(crate) value: LocalAny,
}

/// Dropped with the last job that has it: any of these jobs may have taken a
/// reference.
pub(crate) type LocalAny = Contained<Arc<dyn Any + Send + Sync>>;

#[derive(Default)]
pub(crate) struct Cold {
    pub(crate) name: Option<Cow<'static, str>>,
    /// When the scope's own deadline passes.
    pub(crate) deadline: Option<Instant>,
    /// The text of the deadline's reason.
    pub(crate) deadline_text: Option<Cow<'static, str>>,
    /// How long the deadline was when it was set.
    pub(crate) limit: Option<Duration>,
    /// The timer set for the deadline, or for a shield's budget.
    pub(crate) alarm: Option<Alarm>,
    /// The brake of a body that swallows Cancelled: its points wait for it before
    /// they fail.
    pub(crate) brake: Option<Box<Brake>>,
    /// A shield's budget, and since when it holds a cancel back.
    pub(crate) budget: Option<Duration>,
    pub(crate) held_since: Option<Instant>,
    /// The reason, if the cancel entered here.
    pub(crate) reason: Option<Arc<ReasonData>>,
    /// Tasks: the interrupts.
    pub(crate) requests: Requests,
    /// The failures so far, of child tasks and of the body.
    pub(crate) failures: Failures,
    /// The decided error of a job that ended failed.
    pub(crate) outcome: Option<Error>,
    /// Wakers of leaves that are polled under a waker other than the job's own.
    pub(crate) leaves: List<KeptWaker>,
    /// Observers that wait for the end.
    pub(crate) joiners: List<Joiner>,
    /// Callbacks for the cancel or the end.
    pub(crate) hooks: List<Arc<HookCell>>,
    /// The place of that list, if it was made in a shield.
    pub(crate) hook_home: Option<Arc<HookHome>>,
    /// Callbacks for when the job has ended.
    pub(crate) end_hooks: List<Arc<HookCell>>,
    /// How many ignore guards are held, and where the first was made, if that
    /// guard is still held.
    pub(crate) guards: u32,
    pub(crate) guarded_at: Option<&'static Location<'static>>,
    /// Linked children that do not hold the job open: services and lazy tasks
    /// that have not been started.
    pub(crate) loose: u32,
    /// Leases that have a share, and whether all leases were revoked: then there are
    /// no more.
    pub(crate) leases: u32,
    pub(crate) leases_revoked: bool,
    /// A branch that has lost: its future is the handle of a task, for which the
    /// branch waits while it contains no other wait that could be told.
    pub(crate) waits_for_task: bool,
    /// The weight of the Cancelleds returned here, beyond what the header counts.
    pub(crate) told_beyond: u16,
    pub(crate) patience: Option<Patience>,
    /// When to look at this cancel again, if it is on the sweeper's list.
    pub(crate) sweep: Option<SweepKey>,
    /// Work beside the body.
    pub(crate) works: Works,
    /// A value that is visible to every job below.
    pub(crate) local: Option<LocalValue>,
    /// A waymark: what this job and its ancestors set.
    pub(crate) above: Option<Above>,
    /// A task whose failure goes to its handle alone.
    pub(crate) attempt: bool,
    /// For a failure that the handle must report: where to report it.
    pub(crate) reporter: Option<Arc<dyn Reporter>>,
    /// A spawn after the end was reported.
    pub(crate) late_spawn_said: bool,
    /// Where to drop an output of a lane with one thread that the handle does
    /// not take.
    pub(crate) home: Option<Home>,
}

impl Cold {
    /// True if the cancel that entered here was a deadline's.
    pub(crate) fn entered_by_deadline(&self) -> bool {
        self.reason
            .as_ref()
            .is_some_and(|reason| reason.kind == ReasonKind::Deadline)
    }

    /// True if the patience is zero for a body of the same task that does not
    /// observe the cancel that entered here: a timeout fired, or a branch lost.
    pub(crate) fn entered_without_patience(&self) -> bool {
        self.reason.as_ref().is_some_and(|reason| {
            matches!(reason.kind, ReasonKind::Deadline | ReasonKind::RaceLost)
        })
    }
}

/// The scope is about to end, and all jobs below it have ended: no job reads its value
/// again.
pub(crate) fn clear_local(h: &Header) {
    let set = h.if_cold(|cold, _| cold.local.take()).flatten();
    drop(set);
}
