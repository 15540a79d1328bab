//! Shows what a tree of jobs does: records of its events, traces, findings and text.

mod diff;
mod examine;
mod findings;
mod json;

pub use diff::{GrowthKeeper, JobGrowth, TreeDiff};
pub use examine::Examine;
pub use findings::{Finding, FindingLevel, FindingRule, Findings, Rules};
pub use json::{JSON_FORMAT, JSON_SCHEMA, WriteJson};
