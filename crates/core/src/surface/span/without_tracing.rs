//! No spans.

use crate::record::header::Header;

/// The future itself.
pub(crate) type Spanned<F> = F;

pub(crate) fn inherit<F>(_: &Header, future: F) -> Spanned<F> {
    future
}

pub(crate) fn bare<F>(spanned: Spanned<F>) -> F {
    spanned
}
