//! Shows what a tree of jobs does: records of its events, traces, findings and text.

mod causes;
mod diff;
mod examine;
mod findings;
mod json;
#[cfg(feature = "metrics")]
mod measures;
mod perfetto;
mod record;
mod recorded;
mod recorder;
mod sinks;
#[cfg(feature = "tracing")]
mod spans;

pub use causes::{
    CancelEntry, CancelTrace, Causes, Held, ShutdownWaterfall, TracedHop, TracedJob, WaterfallRow,
};
pub use diff::{GrowthKeeper, JobGrowth, TreeDiff};
pub use examine::Examine;
pub use findings::{Finding, FindingLevel, FindingRule, Findings, Rules};
pub use json::{JSON_FORMAT, JSON_SCHEMA, WriteJson};
#[cfg(feature = "metrics")]
pub use measures::Measures;
pub use perfetto::{PerfettoBuilder, PerfettoSink};
pub use record::JobLabel;
pub use recorder::{RecordedEvent, Recorder, RecorderBuilder, Recording};
pub use sinks::Sinks;
#[cfg(feature = "tracing")]
pub use spans::JobSpans;
