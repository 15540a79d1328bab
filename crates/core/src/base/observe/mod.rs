//! Seeing: events as plain data, counters that balance, and where they go.
//! Any module may report to it; it calls only the sink.

mod counters;
mod event;
mod gauges;
pub(crate) mod node;
mod outlet;
mod ring;
mod sink;

pub(crate) use counters::{Count, Numbered, ThreadCounts};
pub use counters::{Counters, CountersSnapshot};
pub use event::{Event, EventKind, JobState};
pub use gauges::{Gauges, IoGauges};
pub(crate) use outlet::Outlet;
pub use ring::RingSink;
pub use sink::{Interests, Sink};
