//! With the feature `anyhow`: `anyhow::Error` is not a std error, and boxing it
//! as one loses what can be downcast. So it is recognised by its type, and
//! carried in a wrapping of ours that the walks over sources see through.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use crate::base::error::{BoxError, Cancelled, Error, Familiar};
use crate::base::own::{OwnError, cast};

/// An `anyhow::Error` as a std error.
pub struct Wrapping(anyhow::Error);

impl fmt::Display for Wrapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Wrapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Its fields, as of any error; anyhow's own would print a report.
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl StdError for Wrapping {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        // Shown in our place by Display, so what comes next is its source.
        (*self.0).source()
    }
}

/// Wider than without the feature, never narrower: std errors go through
/// anyhow, which gives them back as they were.
impl<E> OwnError for E
where
    E: Into<anyhow::Error> + fmt::Display + fmt::Debug + Send + Sync + From<Error> + 'static,
{
    type Shared = Wrapping;

    fn share(self) -> Wrapping {
        Wrapping(self.into())
    }

    fn unshare(shared: Wrapping) -> Result<E, Wrapping> {
        cast::<anyhow::Error, E>(shared.0)
            .or_else(|anyhow| anyhow.downcast::<E>())
            .map_err(Wrapping)
    }
}

/// An error that is not one of ours as ours.
pub(crate) fn from_other<E: Into<BoxError> + 'static>(error: E) -> Error {
    match cast::<E, anyhow::Error>(error) {
        Ok(anyhow) => Error::from(anyhow),
        Err(error) => Error::from_boxed(error.into()),
    }
}

/// One of ours comes back as it was; one that has a [`Cancelled`] inside is of
/// kind `Cancelled`. What is inside can be downcast.
impl Familiar for anyhow::Error {
    fn into_error(self) -> Error {
        let error = self;
        // Only without context, which downcasting would throw away.
        if (*error).is::<Error>() || (*error).is::<Cancelled>() {
            return (error.downcast::<Error>())
                .or_else(|error| error.downcast::<Cancelled>().map(Error::from))
                .unwrap_or_else(|error| Error::carrying(Arc::new(Wrapping(error))));
        }
        Error::carrying(Arc::new(Wrapping(error)))
    }
}

/// A `T` that stands beside `error`, not among its sources: a context.
pub(crate) fn beside<'a, T>(error: &'a (dyn StdError + 'static)) -> Option<&'a T>
where
    T: fmt::Display + fmt::Debug + Send + Sync + 'static,
{
    error.downcast_ref::<Wrapping>()?.0.downcast_ref::<T>()
}

/// What `error` is only the wrapping of.
pub(crate) fn beneath<'a>(
    error: &'a (dyn StdError + 'static),
) -> Option<&'a (dyn StdError + 'static)> {
    let wrapping = error.downcast_ref::<Wrapping>()?;
    Some(&*wrapping.0)
}
