//! A registered hook, as the job lists it and its guard holds it. What it does is in
//! [`engine::hook`](crate::engine::hook).

use crate::base::list::Key;
use crate::base::reason::Reason;
use crate::base::sync::Mutex;
use crate::base::unwind::Contained;
use crate::record::header::JobRef;

pub(crate) type Callback = Contained<Box<dyn FnOnce(Option<&Reason>) + Send>>;

pub(crate) struct HookCell {
    pub(crate) callback: Mutex<Option<Callback>>,
    /// Also called, with no reason, when the job ends uncancelled.
    pub(crate) at_end: bool,
    /// Called after the end alone: it is in a list of its own.
    pub(crate) after_end: bool,
    /// Where it is listed; a hook made in a shield moves at its exit.
    pub(crate) place: Mutex<Option<(JobRef, Key)>>,
}
