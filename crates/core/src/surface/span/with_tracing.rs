//! Spans of `tracing`.

use tracing::Span;
use tracing::instrument::{Instrument, Instrumented};

use crate::base::kind::JobKind;
use crate::engine::context;
use crate::record::header::Header;

/// A future with the span it is polled and dropped in.
pub(crate) type Spanned<F> = Instrumented<F>;

/// `future`, about to be spawned below `parent`, in the caller's span.
pub(crate) fn inherit<F>(parent: &Header, future: F) -> Spanned<F> {
    future.instrument(if is_detached(parent) {
        Span::none()
    } else {
        Span::current()
    })
}

/// The future without its span.
pub(crate) fn bare<F>(spanned: Spanned<F>) -> F {
    spanned.into_inner()
}

/// True if a child of `parent` hangs from the root, and not from the job that spawns it.
/// Outside any job there is no job from which it could be detached.
fn is_detached(parent: &Header) -> bool {
    parent.kind() == JobKind::Root && context::current_id().is_some()
}
