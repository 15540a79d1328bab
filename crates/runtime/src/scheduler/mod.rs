//! Who runs what next, and who sleeps.

pub(crate) mod idle;
pub(crate) mod injector;
pub(crate) mod pace;
pub(crate) mod ring;
pub(crate) mod slot;
pub(crate) mod worker;
