//! A registered hook, which the job lists and the guard holds. What a hook does is
//! in [`engine::hook`](crate::engine::hook).

use std::sync::Arc;

use crate::base::list::Key;
use crate::base::reason::Reason;
use crate::base::sync::Mutex;
use crate::base::unwind::Nested;
use crate::record::header::JobRef;

/// The callback may own the guard of another hook, whose callback owns the
/// next.
pub(crate) type Callback = Nested<Box<dyn FnOnce(Option<&Reason>) + Send>>;

pub(crate) struct HookCell {
    pub(crate) callback: Mutex<Option<Callback>>,
    /// Also called, with no reason, when the job ends uncancelled.
    pub(crate) at_end: bool,
    /// Called only after the end: such hooks have a list of their own.
    pub(crate) after_end: bool,
    /// Where the hook is listed. Set under the lock of that job.
    pub(crate) place: Mutex<Option<HookPlace>>,
}

/// Where a hook is listed.
#[derive(Clone)]
pub(crate) enum HookPlace {
    Job(JobRef, Key),
    /// At the job to which the whole list moves.
    Moving(Arc<HookHome>, Key),
}

/// The job that has the list of hooks that began in a shield: at the shield's exit the
/// list moves to the enclosing job as a whole, however many hooks it has.
pub(crate) struct HookHome(pub(crate) Mutex<JobRef>);
