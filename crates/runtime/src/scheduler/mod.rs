//! Who runs what next, and who sleeps.

pub(crate) mod pace;
pub(crate) mod worker;
