//! Reports for people: which tasks do not end, each once, and what to do about it. Reports
//! are made from snapshots, by reading.

pub(crate) mod cycles;
mod shutdown_report;
pub(crate) mod snapshot;

mod still_there;
mod stuck;
mod text;

pub use shutdown_report::ShutdownReport;
pub(crate) use shutdown_report::in_the_way;
pub use still_there::StillThere;
pub use stuck::{StuckJob, StuckReport};
pub use text::TreeText;
