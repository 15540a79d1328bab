//! Doing something again: [`retry`](crate::retry) after a failure, [`forever`](crate::forever) round after round, and
//! children that [restart](crate::restarting) themselves. [`Backoff`](crate::Backoff) says how soon, and how often.

pub(crate) mod backoff;
pub(crate) mod forever;
pub(crate) mod restarting;
pub(crate) mod retry;
