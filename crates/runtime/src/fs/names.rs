//! The names of files.

use std::io;
use std::panic::Location;
use std::path::Path;

use crate::io::ops::{Rename, Unlink};
use crate::io::{Op, Operation};

/// An operation of the job that begins it, if its paths are ones.
#[track_caller]
pub(super) fn begin<T, R>(
    operation: io::Result<T>,
) -> impl Future<Output = io::Result<R>> + Send + use<T, R>
where
    T: Operation<Output = io::Result<R>>,
{
    begin_for(Location::caller(), operation)
}

/// As above; snapshots and reports name `site`.
pub(super) fn begin_for<T, R>(
    site: &'static Location<'static>,
    operation: io::Result<T>,
) -> impl Future<Output = io::Result<R>> + Send + use<T, R>
where
    T: Operation<Output = io::Result<R>>,
{
    let op = match operation {
        Ok(operation) => Ok(Op::new(None, operation).at(site)),
        Err(error) => Err(error),
    };
    async move { op?.await }
}

/// Renames a file or directory. A file that has the new name already is replaced in one
/// step: at any time the name leads to one of the two.
///
/// # Cancellation
/// A *point*. If it returns `Cancelled`, the file has one of the two names.
///
/// # Errors
/// Those of the system, `CrossesDevices` among them.
#[track_caller]
pub fn rename<P: AsRef<Path>, Q: AsRef<Path>>(
    from: P,
    to: Q,
) -> impl Future<Output = io::Result<()>> + Send + use<P, Q> {
    begin(Rename::new(from.as_ref(), to.as_ref()))
}

/// Removes a name of a file. The file is deleted when it has no other name and is open
/// nowhere.
///
/// # Cancellation
/// A *point*. If it returns `Cancelled`, the file may have been removed.
///
/// # Errors
/// Those of the system.
#[track_caller]
pub fn remove_file<P: AsRef<Path>>(
    path: P,
) -> impl Future<Output = io::Result<()>> + Send + use<P> {
    begin(Unlink::new(path.as_ref(), false))
}
