//! Who runs what next, and who sleeps.

pub(crate) mod own_lane;
pub(crate) mod pace;
pub(crate) mod worker;
