//! [`File`]: reading and writing at offsets.

use std::fmt;
use std::io;
use std::panic::Location;
use std::path::Path;

use super::OpenOptions;
use crate::io::ops::{Close, Fsync, Read, Write};
use crate::io::{Fd, IoBuf, IoBufMut, IoOp, Offset, Op, start};

/// An open file.
///
/// Each operation takes a buffer by value and returns it with its result, whether it
/// succeeds, fails or is cancelled.
///
/// ```
/// use kinfolk_runtime::{Runtime, fs::File};
///
/// # let dir = std::env::temp_dir().join(format!("kinfolk-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir)?;
/// # let path = dir.join("greeting");
/// Runtime::new()?.block_on(async {
///     let file = File::create(&path).await?;
///     let (written, _) = file.write_all_at("hello", 0).await;
///     written?;
///     file.sync_data().await?;
///     let (read, buf) = file.read_at(Vec::with_capacity(64), 0).await;
///     assert_eq!(read?, 5);
///     assert_eq!(buf, b"hello");
///     file.close().await?;
///     Ok::<_, kinfolk_core::Error>(())
/// })?;
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok::<_, kinfolk_core::Error>(())
/// ```
///
/// A dropped file is closed as soon as no operation uses it.
pub struct File {
    pub(super) fd: Fd,
}

impl File {
    pub(crate) fn new(fd: Fd) -> File {
        File { fd }
    }

    /// Opens a file for reading.
    ///
    /// # Cancellation
    /// A *point*; see [`OpenOptions::open`].
    #[track_caller]
    pub fn open<P: AsRef<Path>>(path: P) -> impl Future<Output = io::Result<File>> + Send + use<P> {
        OpenOptions::new().read(true).open(path)
    }

    /// Creates a file for reading and writing; an existing file is truncated.
    ///
    /// # Cancellation
    /// A *point*; see [`OpenOptions::open`].
    #[track_caller]
    pub fn create<P: AsRef<Path>>(
        path: P,
    ) -> impl Future<Output = io::Result<File>> + Send + use<P> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)
    }

    #[track_caller]
    pub(super) fn op<T: crate::io::Operation>(&self, operation: T) -> Op<T> {
        Op::new(Some(self.fd.handle().clone()), operation)
    }

    /// Reads into `buf`, up to its capacity. Returns how many bytes were read: 0 at the end of
    /// the file.
    ///
    /// # Cancellation
    /// A *point*. The buffer comes back either way.
    #[track_caller]
    pub fn read_at<B: IoBufMut>(
        &self,
        buf: B,
        at: u64,
    ) -> impl Future<Output = (io::Result<usize>, B)> + Send + use<B> {
        Op::new(None, Read::new(self.fd.clone(), buf, Offset::At(at)))
    }

    /// Writes the bytes of `buf`. Returns how many were written.
    ///
    /// # Cancellation
    /// A *point*. The buffer comes back either way.
    #[track_caller]
    pub fn write_at<B: IoBuf>(
        &self,
        buf: B,
        at: u64,
    ) -> impl Future<Output = (io::Result<usize>, B)> + Send + use<B> {
        Op::new(None, Write::new(self.fd.clone(), buf, Offset::At(at)))
    }

    /// Begins [`read_at`](File::read_at) without waiting for it.
    #[track_caller]
    pub fn start_read_at<B: IoBufMut>(&self, buf: B, at: u64) -> IoOp<(io::Result<usize>, B)> {
        let read = Read::new(self.fd.clone(), buf, Offset::At(at));
        start(self.fd.handle(), read)
    }

    /// Begins [`write_at`](File::write_at) without waiting for it.
    #[track_caller]
    pub fn start_write_at<B: IoBuf>(&self, buf: B, at: u64) -> IoOp<(io::Result<usize>, B)> {
        let write = Write::new(self.fd.clone(), buf, Offset::At(at));
        start(self.fd.handle(), write)
    }

    /// Begins [`sync_data`](File::sync_data) without waiting for it.
    #[track_caller]
    pub fn start_sync_data(&self) -> IoOp<io::Result<()>> {
        start(self.fd.handle(), Fsync::new(self.fd.clone(), true))
    }

    /// Fills all of `buf`.
    ///
    /// # Cancellation
    /// A *point*. If it returns `Cancelled`, a part of the buffer may have been filled.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file ends before.
    #[track_caller]
    pub fn read_exact_at<B: IoBufMut>(
        &self,
        buf: B,
        at: u64,
    ) -> impl Future<Output = (io::Result<()>, B)> + Send {
        let site = Location::caller();
        async move {
            let (mut buf, mut done) = (buf, 0);
            let all = buf.room();
            while done < all {
                let rest = Offset::At(at + done as u64);
                let read = Read::new(self.fd.clone(), buf.slice(done..), rest);
                let (read, part) = Op::new(None, read).at(site).await;
                buf = part.into_inner();
                match read {
                    Ok(0) => return (Err(io::ErrorKind::UnexpectedEof.into()), buf),
                    Ok(bytes) => done += bytes,
                    Err(error) => return (Err(error), buf),
                }
            }
            (Ok(()), buf)
        }
    }

    /// Writes all of `buf`.
    ///
    /// # Cancellation
    /// A *point*. If it returns `Cancelled`, a part of `buf` may have been written.
    ///
    /// # Errors
    /// `WriteZero` if the system accepts no more bytes.
    #[track_caller]
    pub fn write_all_at<B: IoBuf>(
        &self,
        buf: B,
        at: u64,
    ) -> impl Future<Output = (io::Result<()>, B)> + Send {
        self.write_all_for(Location::caller(), buf, at)
    }

    /// As above; snapshots and reports name `site`.
    pub(super) async fn write_all_for<B: IoBuf>(
        &self,
        site: &'static Location<'static>,
        buf: B,
        at: u64,
    ) -> (io::Result<()>, B) {
        let (mut buf, mut done) = (buf, 0);
        while done < buf.filled() {
            let rest = Offset::At(at + done as u64);
            let write = Write::new(self.fd.clone(), buf.slice(done..), rest);
            let (written, part) = Op::new(None, write).at(site).await;
            buf = part.into_inner();
            match written {
                Ok(0) => return (Err(io::ErrorKind::WriteZero.into()), buf),
                Ok(bytes) => done += bytes,
                Err(error) => return (Err(error), buf),
            }
        }
        (Ok(()), buf)
    }

    /// Calls `fsync`: waits until everything that was written is on the disk, metadata
    /// included.
    ///
    /// # Cancellation
    /// A *point*.
    #[track_caller]
    pub fn sync_all(&self) -> impl Future<Output = io::Result<()>> + Send + use<> {
        self.op(Fsync::new(self.fd.clone(), false))
    }

    /// Calls `fdatasync`: waits until everything that was written is on the disk, without
    /// metadata such as times.
    ///
    /// # Cancellation
    /// A *point*.
    #[track_caller]
    pub fn sync_data(&self) -> impl Future<Output = io::Result<()>> + Send + use<> {
        self.op(Fsync::new(self.fd.clone(), true))
    }

    /// Closes the file, and returns the system's error if closing fails. If an abandoned
    /// operation still uses the file, it is closed when that operation is over.
    ///
    /// # Cancellation
    /// A *point*. If it returns `Cancelled`, the file is closed too.
    #[track_caller]
    pub fn close(self) -> impl Future<Output = io::Result<()>> + Send + use<> {
        self.close_for(Location::caller())
    }

    /// As above; snapshots and reports name `site`.
    pub(super) fn close_for(
        self,
        site: &'static Location<'static>,
    ) -> impl Future<Output = io::Result<()>> + Send + use<> {
        let op = match self.fd.into_raw() {
            Ok((raw, handle)) => {
                Some(Op::new(Some(handle.clone()), Close::new(raw, handle)).at(site))
            }
            Err(_used) => None,
        };
        async move {
            match op {
                Some(op) => op.await,
                None => Ok(()),
            }
        }
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "File({:?})", self.fd)
    }
}
