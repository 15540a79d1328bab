//! Who runs what next, and who sleeps.

#[path = "../../../queue/src/idle.rs"]
pub(crate) mod idle;
#[path = "../../../queue/src/injector.rs"]
pub(crate) mod injector;
pub(crate) mod pace;
#[path = "../../../queue/src/ring.rs"]
pub(crate) mod ring;
#[path = "../../../queue/src/slot.rs"]
pub(crate) mod slot;
pub(crate) mod worker;
