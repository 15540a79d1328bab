//! Errors of the user's own type: what [`scope_as`](crate::scope_as) and
//! [`ScopeBuilder::run_as`](crate::ScopeBuilder::run_as) return.
//!
//! While the scope waits for its children, the body's error is carried by an
//! [`Error`] like any other failure, and a second hand is kept on it here. If
//! nothing joins it, it goes to the caller as the author returned it.
//!
//! The two files below have one shape: one knows `anyhow`, the other does not.
//! Both are safe code, and so ask for `'static` where a type is recognised.

#[cfg(feature = "anyhow")]
mod with_anyhow;
#[cfg(not(feature = "anyhow"))]
mod without_anyhow;

#[cfg(feature = "anyhow")]
pub(crate) use with_anyhow::{beneath, beside};
#[cfg(not(feature = "anyhow"))]
pub(crate) use without_anyhow::{beneath, beside};

use std::any::Any;
use std::error::Error as StdError;
use std::sync::Arc;

#[cfg(feature = "anyhow")]
use with_anyhow::from_other;
#[cfg(not(feature = "anyhow"))]
use without_anyhow::from_other;

use crate::base::error::{BoxError, Cancelled, Error};
use crate::base::unwind::Contained;

/// An error type of your own that a scope can return; see
/// [`scope_as`](crate::scope_as).
///
/// Every `std::error::Error + Send + Sync + 'static` that is
/// `From<kinfolk::Error>` is one; with the feature `anyhow`, `anyhow::Error`
/// too. There is nothing to implement.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the error of a scope",
    note = "it needs `std::error::Error + Send + Sync + 'static` and `From<kinfolk::Error>`",
    note = "`anyhow::Error` is one with the feature `anyhow`"
)]
pub trait OwnError: From<Error> + 'static {
    /// How an [`Error`] carries it.
    #[doc(hidden)]
    type Shared: StdError + Send + Sync + 'static;

    #[doc(hidden)]
    fn share(self) -> Self::Shared;

    /// The inverse, if there is one.
    #[doc(hidden)]
    fn unshare(shared: Self::Shared) -> Result<Self, Self::Shared>;
}

/// Any error as ours. One of ours, or a Cancelled, is not boxed for it.
pub(crate) fn from_any<E: Into<BoxError> + 'static>(error: E) -> Error {
    match cast::<E, Error>(error) {
        Ok(ours) => ours,
        Err(error) => match cast::<E, Cancelled>(error) {
            Ok(told) => Error::from(told),
            Err(error) => from_other(error),
        },
    }
}

/// Our second hand on a body's error.
pub(crate) struct Kept<E: OwnError> {
    own: Contained<Arc<E::Shared>>,
    serial: u64,
}

/// A body's error as ours, and what is kept to give it back. Runs `source` of
/// other people's errors.
pub(crate) fn take_in<E: OwnError>(own: E) -> (Error, Option<Kept<E>>) {
    let own = match cast::<E, Error>(own) {
        Ok(ours) => return (ours, None),
        Err(own) => Arc::new(own.share()),
    };
    let error = Error::carrying(own.clone());
    let serial = error.serial();
    let own = Contained::new(own);
    (error, Some(Kept { own, serial }))
}

/// What the caller gets: exactly what the body returned if that alone is
/// `error`, else `error` as an `E`. Runs the user's `From`.
pub(crate) fn give_back<E: OwnError>(error: Error, kept: Option<Kept<E>>) -> E {
    let Some(kept) = kept else {
        return E::from(error);
    };
    let alone = error.serial() == kept.serial && error.suppressed_count() == 0;
    // With this error gone, ours is the only hand left.
    let ours = error.is_unshared() && Arc::strong_count(&kept.own) == 2;
    if !(alone && ours) {
        drop(kept);
        return E::from(error);
    }
    drop(error);
    let own = match Arc::try_unwrap(kept.own.into_inner()) {
        Ok(own) => own,
        // The other hand goes later: this is called while many errors are dropped.
        Err(shared) => return E::from(Error::carrying(shared)),
    };
    E::unshare(own).unwrap_or_else(|shared| E::from(Error::carrying(Arc::new(shared))))
}

/// `a` as a `B`, if that is what it is.
fn cast<A: 'static, B: 'static>(a: A) -> Result<B, A> {
    let mut a = Some(a);
    let b = (&mut a as &mut dyn Any)
        .downcast_mut::<Option<B>>()
        .and_then(Option::take);
    match b {
        Some(b) => Ok(b),
        None => Err(a.unwrap_or_else(|| unreachable!("taken only as a B"))),
    }
}
