//! Timers that make jobs, and tickers.

pub(crate) mod factory;
pub(crate) mod grid;
pub(crate) mod ticker;
pub(crate) mod token;
