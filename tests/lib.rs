//! The suites that run across Kinfolk's crates. Here is what the programs in `ui/`
//! are compiled against.

pub use {kinfolk_core, kinfolk_runtime};
