//! [`Metadata`]: size, kind, permissions and times of a file.

use std::io;
use std::panic::Location;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::File;
use super::names::{begin, begin_for};
use crate::io::ops::Stat;
use crate::linux::{Facts, TimeSpec, mode};

/// The kind of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Link,
    /// A socket, a pipe, a device.
    Other,
}

impl FileKind {
    /// As `st_mode` says it.
    pub(super) fn of_mode(mode: u32) -> FileKind {
        match mode & mode::KIND {
            mode::FILE => FileKind::File,
            mode::DIR => FileKind::Dir,
            mode::LINK => FileKind::Link,
            _ => FileKind::Other,
        }
    }
}

/// Size, kind, permissions and times of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata(Facts);

fn time((seconds, nanos): TimeSpec) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let second = match seconds < 0 {
        true => UNIX_EPOCH - whole,
        false => UNIX_EPOCH + whole,
    };
    second + Duration::from_nanos(u64::from(nanos))
}

#[expect(clippy::len_without_is_empty, reason = "as in std")]
impl Metadata {
    /// Returns the size in bytes.
    pub fn len(&self) -> u64 {
        self.0.len
    }

    /// Returns the kind of the file.
    pub fn kind(&self) -> FileKind {
        FileKind::of_mode(self.0.mode)
    }

    /// Returns true for a regular file.
    pub fn is_file(&self) -> bool {
        self.kind() == FileKind::File
    }

    /// Returns true for a directory.
    pub fn is_dir(&self) -> bool {
        self.kind() == FileKind::Dir
    }

    /// Returns true for a symbolic link.
    pub fn is_link(&self) -> bool {
        self.kind() == FileKind::Link
    }

    /// Returns the permission bits, as in `chmod`.
    pub fn mode(&self) -> u32 {
        self.0.mode & 0o7777
    }

    /// Returns the user id of the owner.
    pub fn user(&self) -> u32 {
        self.0.user
    }

    /// Returns the group id.
    pub fn group(&self) -> u32 {
        self.0.group
    }

    /// Returns the number of hard links.
    pub fn links(&self) -> u64 {
        self.0.links
    }

    /// Returns the inode number. Two paths with the same inode and
    /// [`device`](Metadata::device) are the same file.
    pub fn inode(&self) -> u64 {
        self.0.inode
    }

    /// Returns the device that the file is on: major and minor number.
    pub fn device(&self) -> (u32, u32) {
        self.0.device
    }

    /// Returns when the file was last written.
    pub fn modified(&self) -> SystemTime {
        time(self.0.modified)
    }

    /// Returns when the file was last read, as far as the file system records that.
    pub fn accessed(&self) -> SystemTime {
        time(self.0.accessed)
    }

    /// Returns when the contents or the metadata last changed.
    pub fn changed(&self) -> SystemTime {
        time(self.0.changed)
    }

    /// Returns when the file was created; not every file system records that.
    pub fn created(&self) -> Option<SystemTime> {
        self.0.created.map(time)
    }
}

impl File {
    /// Reads the metadata of the file.
    ///
    /// # Cancellation
    /// A *point*.
    ///
    /// # Errors
    /// Those of the system.
    #[track_caller]
    pub fn metadata(&self) -> impl Future<Output = io::Result<Metadata>> + Send + use<> {
        self.metadata_for(Location::caller())
    }

    /// As above; snapshots and reports name `site`.
    pub(super) fn metadata_for(
        &self,
        site: &'static Location<'static>,
    ) -> impl Future<Output = io::Result<Metadata>> + Send + use<> {
        let op = self.op(Stat::of_file(self.fd.clone())).at(site);
        async move { op.await.map(Metadata) }
    }
}

/// Reads the metadata of the file at `path`, following symbolic links.
///
/// # Cancellation
/// A *point*.
///
/// # Errors
/// Those of the system.
#[track_caller]
pub fn metadata<P: AsRef<Path>>(
    path: P,
) -> impl Future<Output = io::Result<Metadata>> + Send + use<P> {
    metadata_for(Location::caller(), path.as_ref())
}

/// As above; snapshots and reports name `site`.
pub(super) fn metadata_for(
    site: &'static Location<'static>,
    path: &Path,
) -> impl Future<Output = io::Result<Metadata>> + Send + use<> {
    let op = begin_for(site, Stat::of_path(path, true));
    async move { op.await.map(Metadata) }
}

/// Returns the metadata like [`metadata`], but does not follow a symbolic link at `path`.
///
/// # Cancellation
/// A *point*.
///
/// # Errors
/// Those of the system.
#[track_caller]
pub fn symlink_metadata<P: AsRef<Path>>(
    path: P,
) -> impl Future<Output = io::Result<Metadata>> + Send + use<P> {
    let op = begin(Stat::of_path(path.as_ref(), false));
    async move { op.await.map(Metadata) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_are_times() {
        let half = Duration::from_millis(500);
        assert_eq!(time((0, 0)), UNIX_EPOCH);
        assert_eq!(time((1, 500_000_000)), UNIX_EPOCH + 3 * half);
        assert_eq!(time((-1, 500_000_000)), UNIX_EPOCH - half);
    }
}
