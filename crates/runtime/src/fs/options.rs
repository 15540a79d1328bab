//! [`OpenOptions`]: how a file is opened.

use std::io;
use std::panic::Location;
use std::path::Path;

use super::{DirectFile, File};
use crate::io::Op;
use crate::io::ops::OpenAt;
use crate::linux::DIRECT;

/// How a file is opened, as in `std`: `OpenOptions::new().read(true)`.
#[derive(Clone, Debug)]
#[must_use = "call `open`"]
pub struct OpenOptions {
    read: bool,
    write: bool,
    append: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
    mode: u32,
    custom: i32,
}

impl OpenOptions {
    /// Makes options with nothing set.
    #[expect(clippy::new_without_default, reason = "as in std")]
    pub fn new() -> OpenOptions {
        OpenOptions {
            read: false,
            write: false,
            append: false,
            truncate: false,
            create: false,
            create_new: false,
            mode: 0o666,
            custom: 0,
        }
    }

    /// Opens for reading.
    pub fn read(mut self, read: bool) -> Self {
        self.read = read;
        self
    }

    /// Opens for writing.
    pub fn write(mut self, write: bool) -> Self {
        self.write = write;
        self
    }

    /// Appends: every write goes to the end of the file.
    pub fn append(mut self, append: bool) -> Self {
        self.append = append;
        self
    }

    /// Truncates the file.
    pub fn truncate(mut self, truncate: bool) -> Self {
        self.truncate = truncate;
        self
    }

    /// Creates the file if it does not exist.
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Creates the file; fails if it exists.
    pub fn create_new(mut self, create_new: bool) -> Self {
        self.create_new = create_new;
        self
    }

    /// Sets the permission bits of a created file.
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    /// Sets further flags of `open(2)`; for `O_DIRECT` see
    /// [`open_direct`](OpenOptions::open_direct).
    pub fn custom_flags(mut self, flags: i32) -> Self {
        self.custom = flags;
        self
    }

    fn flags(&self) -> io::Result<i32> {
        let wrong = |words| Err(io::Error::new(io::ErrorKind::InvalidInput, words));
        let access = match (self.read, self.write, self.append) {
            (true, false, false) => libc::O_RDONLY,
            (false, true, false) => libc::O_WRONLY,
            (true, true, false) => libc::O_RDWR,
            (false, _, true) => libc::O_WRONLY | libc::O_APPEND,
            (true, _, true) => libc::O_RDWR | libc::O_APPEND,
            (false, false, false) => {
                return wrong("a file must be opened for reading, writing or appending");
            }
        };
        let makes = self.create || self.create_new;
        if (makes || self.truncate) && !self.write && !self.append {
            return wrong(
                "a file can be created or truncated only if it is opened for writing or appending",
            );
        }
        let creation = match (self.create, self.truncate, self.create_new) {
            (_, _, true) => libc::O_CREAT | libc::O_EXCL,
            (true, true, _) => libc::O_CREAT | libc::O_TRUNC,
            (true, false, _) => libc::O_CREAT,
            (false, true, _) => libc::O_TRUNC,
            (false, false, _) => 0,
        };
        Ok(access | creation | (self.custom & !libc::O_ACCMODE))
    }

    /// Opens the file.
    ///
    /// # Cancellation
    /// A *point*. A file that is opened after the waiting job was cancelled is closed again.
    ///
    /// # Errors
    /// Errors of the system; also if the options contradict each other.
    #[track_caller]
    pub fn open<P: AsRef<Path>>(
        &self,
        path: P,
    ) -> impl Future<Output = io::Result<File>> + Send + use<P> {
        self.open_for(Location::caller(), path.as_ref())
    }

    /// As above; snapshots and reports name `site`.
    pub(super) fn open_for(
        &self,
        site: &'static Location<'static>,
        path: &Path,
    ) -> impl Future<Output = io::Result<File>> + Send + use<> {
        let begun = self
            .flags()
            .and_then(|flags| OpenAt::new(path, flags, self.mode))
            .map(|open| Op::new(None, open).at(site));
        async move { Ok(File::new(begun?.await?)) }
    }

    /// Opens the file for direct i/o, past the page cache.
    ///
    /// # Cancellation
    /// A *point*, as [`open`](OpenOptions::open).
    ///
    /// # Errors
    /// As [`open`](OpenOptions::open), and where the file system has no direct
    /// i/o.
    #[track_caller]
    pub fn open_direct<P: AsRef<Path>>(
        &self,
        path: P,
    ) -> impl Future<Output = io::Result<DirectFile>> + Send + use<P> {
        let mut options = self.clone();
        options.custom |= DIRECT;
        let open = options.open(path);
        async move { Ok(DirectFile::new(open.await?)) }
    }
}
