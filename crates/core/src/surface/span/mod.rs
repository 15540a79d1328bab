//! The span of the `tracing` crate that a child inherits: the one in which it is
//! spawned. With the feature `tracing` its future is kept inside that span, polled
//! in it and dropped in it; so the span is let go when the body is over, whoever
//! still holds the job. The cold part of the job would be another place, but then
//! each poll would take the job's lock to find it.
//!
//! The two files below have one shape: one knows `tracing`, the other does not, and
//! costs nothing. Scopes and branches need none of it: they are polled inside
//! their task.

#[cfg(feature = "tracing")]
mod with_tracing;
#[cfg(not(feature = "tracing"))]
mod without_tracing;

#[cfg(feature = "tracing")]
pub(crate) use with_tracing::{Spanned, bare, inherit};
#[cfg(not(feature = "tracing"))]
pub(crate) use without_tracing::{Spanned, bare, inherit};
