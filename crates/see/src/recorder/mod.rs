//! The flight recorder: the latest events of each thread, kept in memory without a lock that
//! threads share, and written to a file when something goes wrong.

mod code;
mod flight;
mod in_text;
mod recording;
mod ring;

pub use code::RecordedEvent;
pub(crate) use flight::Drain;
pub use flight::{Recorder, RecorderBuilder};
pub use recording::Recording;
