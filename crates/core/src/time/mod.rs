//! Time, written once for every host: sleeping, deadlines, timers.

pub(crate) mod alarm;
pub(crate) mod clock;
pub(crate) mod queue;
pub(crate) mod sleep;
