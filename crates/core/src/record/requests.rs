//! What a task has been asked, as its cold part knows it. What it means is in
//! [`engine::interrupts`](crate::engine::interrupts).

use std::sync::Arc;

use crate::base::numbers::Numbers;
use crate::base::reason::ReasonData;
use crate::record::header::JobRef;

/// What a task has been asked, in its cold part.
#[derive(Default)]
pub(crate) struct Requests {
    /// Interrupts that were not taken back.
    pub(crate) count: u32,
    /// How many awaits the latest has come through.
    pub(crate) hops: u32,
    /// The latest, delivered or not.
    pub(crate) latest: Option<Arc<ReasonData>>,
    /// The number of the latest: they count from one.
    pub(crate) number: u64,
    /// Those that wait for a point: some if the task shows INTERRUPTED, else
    /// none.
    pub(crate) pending: Numbers,
    /// Those that the last point took.
    pub(crate) taken: Numbers,
    /// Those that a body has returned and that the call around it has not: they
    /// are [on their way](crate::engine::on_its_way).
    pub(crate) on_their_way: Numbers,
    /// Up to here all were taken back: what a point took of them does not return.
    pub(crate) forgotten: u64,
    /// Those that awaits have taken and passed on. What is in none of these
    /// was heard, or taken back.
    pub(crate) away: Vec<Away>,
}

/// Requests of a task that one of its awaits has passed on. There is one note
/// for each target, since a task has one handle to await it by.
pub(crate) struct Away {
    pub(crate) to: JobRef,
    /// Their numbers here.
    pub(crate) numbers: Numbers,
    /// The number of the latest there; none while it is being passed on.
    pub(crate) there: Option<u64>,
}
