//! The span of the `tracing` crate that a child inherits: the one in which it is
//! spawned. With the feature `tracing` its future is kept inside that span, polled
//! in it and dropped in it; so the span is released when the body is over, even if
//! the job is kept. If the cold part of the job kept the span, each poll would
//! take the job's lock to find it.
//!
//! The two files below have one shape: one uses `tracing`, the other does not, and
//! costs nothing. Scopes and branches need no span: they are polled inside their
//! task.

#[cfg(feature = "tracing")]
mod with_tracing;
#[cfg(not(feature = "tracing"))]
mod without_tracing;

#[cfg(feature = "tracing")]
pub(crate) use with_tracing::{Spanned, bare, inherit};
#[cfg(not(feature = "tracing"))]
pub(crate) use without_tracing::{Spanned, bare, inherit};
