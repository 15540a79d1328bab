//! The part of a job that most jobs never need: made on first use, reached
//! under the job's lock, freed with the cell.

use std::borrow::Cow;
use std::panic::Location;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::base::error::Error;
use crate::base::id::JobId;
use crate::base::list::List;
use crate::base::patience::Patience;
use crate::base::reason::{ReasonData, ReasonKind};
use crate::base::unwind::Contained;
use crate::engine::alarm::Alarm;
use crate::engine::hook::HookCell;
use crate::engine::interrupts::Requests;
use crate::engine::patience::SweepKey;
use crate::engine::tree::Tree;
use crate::engine::untaken::Home;
use crate::engine::waymark::Above;
use crate::more::kit::work::Works;
use crate::record::failures::Failures;
use crate::surface::local::Set;

/// One registered wait for the end of a job.
pub(crate) struct Joiner {
    pub(crate) waker: Contained<Waker>,
    /// The job that waits; none outside every job.
    pub(crate) job: Option<JobId>,
}

#[derive(Default)]
pub(crate) struct Cold {
    pub(crate) name: Option<Cow<'static, str>>,
    /// When the scope's own deadline passes.
    pub(crate) deadline: Option<Instant>,
    /// What the deadline's reason says.
    pub(crate) deadline_text: Option<Cow<'static, str>>,
    /// How long the deadline was when it was set.
    pub(crate) limit: Option<Duration>,
    /// The timer set for the deadline, or for a shield's budget.
    pub(crate) alarm: Option<Alarm>,
    /// A shield's budget, and since when it holds a cancel back.
    pub(crate) budget: Option<Duration>,
    pub(crate) held_since: Option<Instant>,
    /// Why, if the cancel entered here.
    pub(crate) reason: Option<Arc<ReasonData>>,
    /// Tasks: the interrupts.
    pub(crate) requests: Requests,
    /// What has failed so far: child tasks and the body.
    pub(crate) failures: Failures,
    /// The decided error of a job that ended failed.
    pub(crate) outcome: Option<Error>,
    /// Wakers of our leaves that are polled under wakers not the job's own.
    pub(crate) leaves: List<Contained<Waker>>,
    /// Observers that wait for the end.
    pub(crate) joiners: List<Joiner>,
    /// Callbacks for the cancel or the end.
    pub(crate) hooks: List<Arc<HookCell>>,
    /// Callbacks for when the job has ended.
    pub(crate) end_hooks: List<Arc<HookCell>>,
    /// How many ignore guards are held, and where the first was made, if that
    /// one still is.
    pub(crate) guards: u32,
    pub(crate) guarded_at: Option<&'static Location<'static>>,
    /// Linked children that do not hold the job open: services and lazy tasks
    /// that have not been started.
    pub(crate) loose: u32,
    /// Leases that count among the kids, and how often all were revoked.
    pub(crate) leases: u32,
    pub(crate) revocations: u32,
    /// A branch that has lost: its future is the handle of a task, which is waited
    /// for as long as nothing else is to be told.
    pub(crate) waits_for_task: bool,
    pub(crate) patience: Option<Patience>,
    /// When this cancel is looked at again, if it is on the sweeper's list.
    pub(crate) sweep: Option<SweepKey>,
    /// What goes on beside the body.
    pub(crate) works: Works,
    /// A value that everything below sees.
    pub(crate) local: Option<Set>,
    /// A waymark: what was found here and above.
    pub(crate) above: Option<Above>,
    /// A task whose failure goes to its handle alone.
    pub(crate) attempt: bool,
    /// For a failure whose report the handle owes: where to report it.
    pub(crate) reporter: Option<Tree>,
    /// A spawn that came after the end was reported.
    pub(crate) late_spawn_said: bool,
    /// Where an output of the main lane is dropped that the handle leaves.
    pub(crate) home: Option<Home>,
}

impl Cold {
    /// True if the cancel that entered here was a deadline's.
    pub(crate) fn entered_by_deadline(&self) -> bool {
        self.reason
            .as_ref()
            .is_some_and(|reason| reason.kind == ReasonKind::Deadline)
    }

    /// True if nobody has patience with a body of the same task that cannot
    /// hear of the cancel that entered here: a timeout fired, or a branch lost.
    pub(crate) fn entered_without_patience(&self) -> bool {
        self.reason.as_ref().is_some_and(|reason| {
            matches!(reason.kind, ReasonKind::Deadline | ReasonKind::RaceLost)
        })
    }
}
