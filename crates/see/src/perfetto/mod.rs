//! Trace files of Perfetto: <https://ui.perfetto.dev> opens them.

mod sink;
mod trace;
mod wire;

pub use sink::{PerfettoBuilder, PerfettoSink};
pub(crate) use trace::write_trace;
