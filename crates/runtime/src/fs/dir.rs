//! Directories.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::vec;

use kinfolk_core::placed::blocking_at;

use super::FileKind;
use super::metadata::metadata_for;
use super::names::{begin, begin_for};
use crate::blocking::{For, on_threads};
use crate::io::IoHandle;
use crate::io::ops::{MakeDir, Unlink};

/// Creates a directory.
///
/// # Cancellation
/// A *point*. If it returns `Cancelled`, the directory may have been made.
///
/// # Errors
/// `AlreadyExists`; `NotFound` if the parent directory does not exist; other errors of the
/// system.
#[track_caller]
pub fn create_dir<P: AsRef<Path>>(path: P) -> impl Future<Output = io::Result<()>> + Send + use<P> {
    begin(MakeDir::new(path.as_ref()))
}

/// Creates a directory and its missing parent directories.
///
/// # Cancellation
/// A *point*. Told, some of them may be there.
///
/// # Errors
/// Errors of the system; also if a path exists that is not a directory.
#[track_caller]
pub fn create_dir_all<P: AsRef<Path>>(
    path: P,
) -> impl Future<Output = io::Result<()>> + Send + use<P> {
    make_all(Location::caller(), path.as_ref().to_path_buf())
}

/// Snapshots and reports name `site`.
async fn make_all(site: &'static Location<'static>, path: PathBuf) -> io::Result<()> {
    // From the inside out, until one can be made; and back.
    let mut missing = Vec::new();
    for at in path.ancestors() {
        if at.as_os_str().is_empty() {
            break;
        }
        match make_or_find(site, at).await {
            Ok(()) => break,
            Err(error) if error.kind() == io::ErrorKind::NotFound => missing.push(at),
            Err(error) => return Err(error),
        }
    }
    for at in missing.into_iter().rev() {
        make_or_find(site, at).await?;
    }
    Ok(())
}

/// One that is there will do.
async fn make_or_find(site: &'static Location<'static>, path: &Path) -> io::Result<()> {
    match begin_for(site, MakeDir::new(path)).await {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            match metadata_for(site, path).await?.is_dir() {
                true => Ok(()),
                false => Err(error),
            }
        }
        made => made,
    }
}

/// Removes an empty directory.
///
/// # Cancellation
/// A *point*. If it returns `Cancelled`, it may have been removed.
///
/// # Errors
/// `DirectoryNotEmpty`; those of the system.
#[track_caller]
pub fn remove_dir<P: AsRef<Path>>(path: P) -> impl Future<Output = io::Result<()>> + Send + use<P> {
    begin(Unlink::new(path.as_ref(), true))
}

/// Lists a directory, in no order. All names are read before this returns, on a thread of
/// the blocking pool.
///
/// # Cancellation
/// A *point* until it has begun, like [`blocking`](kinfolk_core::blocking).
///
/// # Errors
/// Those of the system.
#[track_caller]
pub fn read_dir<P: AsRef<Path>>(
    path: P,
) -> impl Future<Output = io::Result<ReadDir>> + Send + use<P> {
    read_names(Location::caller(), path.as_ref().to_path_buf())
}

/// Snapshots and reports name `site`.
async fn read_names(site: &'static Location<'static>, dir: PathBuf) -> io::Result<ReadDir> {
    let handle = IoHandle::current()?;
    let names = {
        let dir = dir.clone();
        let call = blocking_at(site, move |_| handle.system().read_dir(&dir));
        on_threads(For::Files, call).await
    };
    let names = names.map_err(io::Error::other)??;
    Ok(ReadDir {
        dir,
        names: names.into_iter(),
    })
}

/// The entries of a directory; made by [`read_dir`].
pub struct ReadDir {
    dir: PathBuf,
    names: vec::IntoIter<(OsString, u32)>,
}

impl Iterator for ReadDir {
    type Item = DirEntry;

    fn next(&mut self) -> Option<DirEntry> {
        let (name, mode) = self.names.next()?;
        Some(DirEntry {
            path: self.dir.join(&name),
            name,
            kind: (mode != 0).then(|| FileKind::of_mode(mode)),
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.names.size_hint()
    }
}

impl ExactSizeIterator for ReadDir {}

impl fmt::Debug for ReadDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReadDir({:?}, {} left)", self.dir, self.len())
    }
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    path: PathBuf,
    name: OsString,
    kind: Option<FileKind>,
}

impl DirEntry {
    /// Returns the path: that of the directory, and the name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the name alone.
    pub fn file_name(&self) -> &OsStr {
        &self.name
    }

    /// Returns what it is; `None` if the file system does not store that in the directory:
    /// then ask [`symlink_metadata`](super::symlink_metadata).
    pub fn kind(&self) -> Option<FileKind> {
        self.kind
    }
}
