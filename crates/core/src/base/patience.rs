//! How long a cancelled job may stay idle before its future is dropped.

use std::time::Duration;

/// How long a cancelled job may stay idle before its future is dropped.
///
/// *Idle* means parked, with no wait of Kinfolk's pending. A job in such a wait is never
/// dropped for being slow. A job that wakes itself without pause is never parked, hence
/// never idle, and patience does not apply to it, even if it awaits no cancellation point.
/// A shutdown drops such a job a second after the grace, and its report names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// For a job that has not been told yet, because it awaits a future that is not a
    /// cancellation point. `Duration::MAX`: never dropped, strictly cooperative.
    /// `Duration::ZERO`: dropped at once.
    pub unaware: Duration,
    /// For a job that has been told and awaits a foreign future while it cleans up, and for a
    /// scope that it opens meanwhile (a timeout, or a branch of a combinator such as `race`,
    /// uses `unaware`); also the budget of [`cleanup`](crate::cleanup). `Duration::MAX`:
    /// never dropped.
    pub cleanup: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Patience {
            unaware: Duration::from_secs(1),
            cleanup: Duration::from_secs(30),
        }
    }
}
