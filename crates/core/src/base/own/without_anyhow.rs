//! Without the feature `anyhow`: an error is what std says it is.

use std::error::Error as StdError;

use crate::base::error::{BoxError, Error};
use crate::base::own::OwnError;

impl<E> OwnError for E
where
    E: StdError + Send + Sync + From<Error> + 'static,
{
    type Shared = E;

    fn share(self) -> E {
        self
    }

    fn unshare(shared: E) -> Result<E, E> {
        Ok(shared)
    }
}

/// An error that is not one of ours as ours.
pub(crate) fn from_other<E: Into<BoxError> + 'static>(error: E) -> Error {
    Error::from_boxed(error.into())
}

/// A `T` that stands beside `error`, not among its sources.
pub(crate) fn beside<'a, T>(_: &'a (dyn StdError + 'static)) -> Option<&'a T> {
    None
}

/// What `error` is only the wrapping of.
pub(crate) fn beneath<'a>(_: &'a (dyn StdError + 'static)) -> Option<&'a (dyn StdError + 'static)> {
    None
}
