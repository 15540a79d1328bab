//! Shows what a tree of jobs does: records of its events, traces, findings and text.

mod causes;
mod record;

pub use causes::{
    CancelEntry, CancelTrace, Causes, Held, ShutdownWaterfall, TracedHop, TracedJob, WaterfallRow,
};
pub use record::JobLabel;
