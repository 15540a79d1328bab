//! A registered hook, as the job lists it and its guard holds it. What it does is in
//! [`engine::hook`](crate::engine::hook).

use std::sync::Arc;

use crate::base::list::Key;
use crate::base::reason::Reason;
use crate::base::sync::Mutex;
use crate::base::unwind::Nested;
use crate::record::header::JobRef;

/// It may own the guard of another hook, whose callback owns the next.
pub(crate) type Callback = Nested<Box<dyn FnOnce(Option<&Reason>) + Send>>;

pub(crate) struct HookCell {
    pub(crate) callback: Mutex<Option<Callback>>,
    /// Also called, with no reason, when the job ends uncancelled.
    pub(crate) at_end: bool,
    /// Called after the end alone: it is in a list of its own.
    pub(crate) after_end: bool,
    /// Where it is listed. Set under the lock of that job.
    pub(crate) place: Mutex<Option<HookPlace>>,
}

/// Where a hook is listed.
#[derive(Clone)]
pub(crate) enum HookPlace {
    Job(JobRef, Key),
    /// At the job that the list moves with.
    Moving(Arc<HookHome>, Key),
}

/// The job at which a list of hooks is that was made in a shield: at its exit the list
/// moves to the enclosing job as a whole, however many hooks it has.
pub(crate) struct HookHome(pub(crate) Mutex<JobRef>);
