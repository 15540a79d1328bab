//! Reports for people: who is in the way, each task once, in words that say
//! what to do about it. Made of snapshots, by reading.

mod entry;
mod shutdown;
mod stuck;

pub use entry::StillThere;
pub use shutdown::ShutdownReport;
pub(crate) use shutdown::{MOST_NAMED, in_the_way};
pub use stuck::{StuckJob, StuckReport};
