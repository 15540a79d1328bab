//! How long a cancelled job may stay idle before its future is dropped.

use std::time::Duration;

/// How long a cancelled job may stay idle before its future is dropped.
///
/// *Idle*: parked, with no wait of ours pending in it. A job in a wait of ours
/// is never dropped for being slow. One that wakes itself without pause is never
/// parked, and so never idle: however deaf it is, patience does not reach it. A
/// shutdown drops it a second after the grace, and its report names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// For a job that no point has told yet: it sits in a foreign await and
    /// cannot hear. `Duration::MAX`: never dropped, strictly cooperative.
    /// `Duration::ZERO`: at once.
    pub unaware: Duration,
    /// For a job that has been told and sits in a foreign await while it
    /// cleans up, and for a scope that it opens meanwhile (a timeout or a branch
    /// of `any`, `race` and their like has `unaware`); also the budget of [`cleanup`](crate::cleanup).
    /// `Duration::MAX`: never.
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
