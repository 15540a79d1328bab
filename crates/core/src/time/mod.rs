//! Time, written once for every host: sleeping, deadlines, tickers, timers.

pub(crate) mod alarm;
pub(crate) mod clock;
pub(crate) mod factory;
pub(crate) mod grid;
pub(crate) mod queue;
pub(crate) mod sleep;
pub(crate) mod ticker;
pub(crate) mod token;
