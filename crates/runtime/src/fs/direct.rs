//! [`DirectFile`]: direct i/o, past the page cache.

use std::fmt;
use std::io;

use super::{File, Metadata};
use crate::io::{IoBuf, IoBufMut};

/// A file opened for direct i/o (`O_DIRECT`): its bytes go between the buffer and the disk,
/// past the page cache. Opened with [`OpenOptions::open_direct`](super::OpenOptions::open_direct).
///
/// Offset, length and address must be multiples of [`ALIGN`](DirectFile::ALIGN); an
/// [`Aligned`](crate::io::Aligned) buffer ensures that for length and address. An operation
/// that is not aligned fails without a system call, because what the system would do differs
/// from machine to machine.
///
/// ```
/// use kinfolk_runtime::{Runtime, fs::OpenOptions, io::Aligned};
///
/// # let path = std::env::temp_dir().join(format!("kinfolk-direct-{}", std::process::id()));
/// Runtime::new()?.block_on(async {
///     let options = OpenOptions::new().read(true).write(true).create(true);
///     let file = match options.open_direct(&path).await {
///         Ok(file) => file,
///         // Not every file system can.
///         Err(_) => return Ok(()),
///     };
///     let page: Aligned = Aligned::zeroed(4096);
///     let (written, page) = file.write_then_sync(page, 0).await;
///     written?;
///     let (read, _) = file.read_at(page, 1).await;
///     assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
///     Ok::<_, kinfolk_core::Error>(())
/// })?;
/// # std::fs::remove_file(&path)?;
/// # Ok::<_, kinfolk_core::Error>(())
/// ```
pub struct DirectFile {
    file: File,
}

impl DirectFile {
    /// The alignment of offset, length and address.
    pub const ALIGN: usize = 4096;

    pub(super) fn new(file: File) -> DirectFile {
        DirectFile { file }
    }

    fn check(ptr: *const u8, len: usize, at: u64) -> io::Result<()> {
        let wrong = |what, is| {
            let align = DirectFile::ALIGN;
            let words = format!("direct i/o with {what} {is}: it must be a multiple of {align}");
            Err(io::Error::new(io::ErrorKind::InvalidInput, words))
        };
        if !ptr.addr().is_multiple_of(DirectFile::ALIGN) {
            return wrong("an address of", format!("{:#x}", ptr.addr()));
        }
        if len == 0 || !len.is_multiple_of(DirectFile::ALIGN) {
            return wrong("a length of", len.to_string());
        }
        if !at.is_multiple_of(DirectFile::ALIGN as u64) {
            return wrong("an offset of", at.to_string());
        }
        Ok(())
    }

    /// Reads into `buf`, up to its room; how many bytes, 0 at the end.
    ///
    /// # Cancellation
    /// A *point*. The buffer comes back either way.
    ///
    /// # Errors
    /// `InvalidInput` if it is not aligned.
    #[track_caller]
    pub fn read_at<B: IoBufMut>(
        &self,
        mut buf: B,
        at: u64,
    ) -> impl Future<Output = (io::Result<usize>, B)> + Send + use<B> {
        let begun = match DirectFile::check(buf.ptr_mut(), buf.room(), at) {
            Ok(()) => Ok(self.file.read_at(buf, at)),
            Err(error) => Err((Err(error), buf)),
        };
        unless_refused(begun)
    }

    /// Writes what is in `buf`; how many bytes were written.
    ///
    /// # Cancellation
    /// A *point*. The buffer comes back either way.
    ///
    /// # Errors
    /// `InvalidInput` if it is not aligned.
    #[track_caller]
    pub fn write_at<B: IoBuf>(
        &self,
        buf: B,
        at: u64,
    ) -> impl Future<Output = (io::Result<usize>, B)> + Send + use<B> {
        let begun = match DirectFile::check(buf.ptr(), buf.filled(), at) {
            Ok(()) => Ok(self.file.write_at(buf, at)),
            Err(error) => Err((Err(error), buf)),
        };
        unless_refused(begun)
    }

    /// Writes all of `buf` and waits for `fdatasync`; see
    /// [`File::write_then_sync`].
    ///
    /// # Cancellation
    /// A *point*, as there.
    ///
    /// # Errors
    /// `InvalidInput` if it is not aligned.
    #[track_caller]
    pub fn write_then_sync<B: IoBuf>(
        &self,
        buf: B,
        at: u64,
    ) -> impl Future<Output = (io::Result<()>, B)> + Send {
        let begun = match DirectFile::check(buf.ptr(), buf.filled(), at) {
            Ok(()) => Ok(self.file.write_then_sync(buf, at)),
            Err(error) => Err((Err(error), buf)),
        };
        unless_refused(begun)
    }

    /// Calls `fdatasync`: flushes what was written from the disk's own cache; see
    /// [`File::sync_data`].
    ///
    /// # Cancellation
    /// A *point*.
    #[track_caller]
    pub fn sync_data(&self) -> impl Future<Output = io::Result<()>> + Send + use<> {
        self.file.sync_data()
    }

    /// Allocates space for a part of the file; see [`File::allocate`].
    ///
    /// # Cancellation
    /// A *point*.
    #[track_caller]
    pub fn allocate(
        &self,
        at: u64,
        len: u64,
    ) -> impl Future<Output = io::Result<()>> + Send + use<> {
        self.file.allocate(at, len)
    }

    /// Returns the file's metadata; see [`File::metadata`].
    ///
    /// # Cancellation
    /// A *point*.
    #[track_caller]
    pub fn metadata(&self) -> impl Future<Output = io::Result<Metadata>> + Send + use<> {
        self.file.metadata()
    }

    /// Closes the file; see [`File::close`].
    ///
    /// # Cancellation
    /// A *point*. If it returns `Cancelled`, the file is closed too.
    #[track_caller]
    pub fn close(self) -> impl Future<Output = io::Result<()>> + Send + use<> {
        self.file.close()
    }
}

/// The operation, or what is returned because it never begins.
async fn unless_refused<F: Future>(begun: Result<F, F::Output>) -> F::Output {
    match begun {
        Ok(operation) => operation.await,
        Err(refused) => refused,
    }
}

impl fmt::Debug for DirectFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Direct{:?}", self.file)
    }
}
