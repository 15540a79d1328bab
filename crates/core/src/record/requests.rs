//! The interrupts of a task, as its cold part keeps them. What they mean is in
//! [`engine::interrupts`](crate::engine::interrupts).

use std::sync::Arc;

use crate::base::numbers::Numbers;
use crate::base::reason::ReasonData;
use crate::record::header::JobRef;

/// The interrupts of a task, in its cold part.
#[derive(Default)]
pub(crate) struct Requests {
    /// How many interrupts were not withdrawn.
    pub(crate) count: u32,
    /// Through how many awaits the latest interrupt has come.
    pub(crate) hops: u32,
    /// The latest interrupt, delivered or not.
    pub(crate) latest: Option<Arc<ReasonData>>,
    /// The number of the latest interrupt: numbers begin at one.
    pub(crate) number: u64,
    /// The interrupts that wait for a point: some if the task shows
    /// INTERRUPTED, else none.
    pub(crate) pending: Numbers,
    /// The interrupts that the last point took.
    pub(crate) taken: Numbers,
    /// The interrupts that a body has returned and that the call around it has
    /// not: they are [on their way](crate::engine::on_its_way).
    pub(crate) on_their_way: Numbers,
    /// All interrupts up to this number were withdrawn: if a point took one of
    /// them, it does not become pending again.
    pub(crate) forgotten: u64,
    /// The interrupts that awaits have taken and passed on. An interrupt in
    /// none of these sets was heard, or withdrawn.
    pub(crate) away: Vec<Away>,
}

/// Interrupts of a task that one of its awaits has passed on. There is one note
/// for each target, because a task has one handle with which to await it.
pub(crate) struct Away {
    pub(crate) to: JobRef,
    /// Their numbers in this task.
    pub(crate) numbers: Numbers,
    /// The number of the latest in the target; none while it is being passed
    /// on.
    pub(crate) there: Option<u64>,
}
