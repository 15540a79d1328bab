//! Seeing: events as plain data, counters that balance, and where they go.
//! The bottom layer: everybody may tell it things, it asks nothing of anybody.

mod counters;
mod event;
mod ring;
mod sink;

pub(crate) use counters::Count;
pub use counters::{Counters, CountersSnapshot};
pub use event::{Event, EventKind, JobState};
pub use ring::RingSink;
pub use sink::Sink;
