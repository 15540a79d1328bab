//! Why jobs were cancelled, hop by hop, and what a shutdown waited for.

mod book;
mod trace;
mod waterfall;

pub use book::Causes;
pub(crate) use trace::end_in_words;
pub use trace::{CancelEntry, CancelTrace, Held, TracedHop, TracedJob};
pub use waterfall::{ShutdownWaterfall, WaterfallRow};
