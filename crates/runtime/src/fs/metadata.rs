//! [`Metadata`]: what the system knows of a file.

use std::io;
use std::panic::Location;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::File;
use super::names::{begin, begin_for};
use crate::io::ops::Stat;
use crate::linux::{Facts, Moment, mode};

/// What a file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum FileKind {
    /// A file with bytes in it.
    File,
    /// A directory.
    Dir,
    /// A link to another path.
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

/// What the system knows of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata(Facts);

fn time((seconds, nanos): Moment) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let second = match seconds < 0 {
        true => UNIX_EPOCH - whole,
        false => UNIX_EPOCH + whole,
    };
    second + Duration::from_nanos(u64::from(nanos))
}

#[expect(clippy::len_without_is_empty, reason = "as in std")]
impl Metadata {
    /// How many bytes it has.
    pub fn len(&self) -> u64 {
        self.0.len
    }

    /// What it is.
    pub fn kind(&self) -> FileKind {
        FileKind::of_mode(self.0.mode)
    }

    /// True for a file with bytes in it.
    pub fn is_file(&self) -> bool {
        self.kind() == FileKind::File
    }

    /// True for a directory.
    pub fn is_dir(&self) -> bool {
        self.kind() == FileKind::Dir
    }

    /// True for a link to another path.
    pub fn is_link(&self) -> bool {
        self.kind() == FileKind::Link
    }

    /// Who may do what with it, as in `chmod`.
    pub fn mode(&self) -> u32 {
        self.0.mode & 0o7777
    }

    /// Whose it is.
    pub fn user(&self) -> u32 {
        self.0.user
    }

    /// Whose group's it is.
    pub fn group(&self) -> u32 {
        self.0.group
    }

    /// How many names it has.
    pub fn links(&self) -> u64 {
        self.0.links
    }

    /// Its number on its device: with [`device`](Metadata::device) two paths can
    /// be found to be one file.
    pub fn inode(&self) -> u64 {
        self.0.inode
    }

    /// The device it lies on: major and minor number.
    pub fn device(&self) -> (u32, u32) {
        self.0.device
    }

    /// When it was last written.
    pub fn modified(&self) -> SystemTime {
        time(self.0.modified)
    }

    /// When it was last read, as far as the file system writes that down.
    pub fn accessed(&self) -> SystemTime {
        time(self.0.accessed)
    }

    /// When it or what is known of it last changed.
    pub fn changed(&self) -> SystemTime {
        time(self.0.changed)
    }

    /// When it was made; not every file system knows.
    pub fn created(&self) -> Option<SystemTime> {
        self.0.created.map(time)
    }
}

impl File {
    /// What the system knows of it.
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

/// What the system knows of the file at `path`, or at the end of the links that
/// lead from there.
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

/// As [`metadata`], of a link itself if `path` is one.
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
