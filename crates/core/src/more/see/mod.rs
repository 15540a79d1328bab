//! Reports for people: who is in the way, each task once, in words that say
//! what to do about it. Made of snapshots, by reading.

pub(crate) mod cycles;
mod shutdown_report;
pub(crate) mod snapshot;
mod still_there;
mod stuck;

pub use shutdown_report::ShutdownReport;
pub(crate) use shutdown_report::in_the_way;
pub use still_there::StillThere;
pub use stuck::{StuckJob, StuckReport};
