//! The clock that a root has unless it is given another: tokio's.

use std::time::Instant;

use kinfolk_core::Clock;

/// Tokio's clock: the system's, unless a test has paused it. Outside every tokio
/// runtime it is the system's.
pub(crate) struct TokioClock;

impl Clock for TokioClock {
    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }
}
