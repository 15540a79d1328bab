//! [`Watched`]: a file of others, and when it can be read or written.

use std::fmt;
use std::io;
use std::ops::{BitOr, Deref};
use std::os::fd::AsFd;
use std::sync::Arc;

use super::ops::Poll;
use super::{IoHandle, Op};

/// What is waited for: `Interest::READABLE | Interest::WRITABLE`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interest(u32);

impl Interest {
    /// There is something to read, or the other side is gone.
    pub const READABLE: Interest = Interest(libc::POLLIN as u32);
    /// There is room to write, or the other side is gone.
    pub const WRITABLE: Interest = Interest(libc::POLLOUT as u32);
}

impl BitOr for Interest {
    type Output = Interest;

    fn bitor(self, other: Interest) -> Interest {
        Interest(self.0 | other.0)
    }
}

/// The readiness of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Readiness(u32);

impl Readiness {
    fn has(self, events: libc::c_short) -> bool {
        self.0 & (events as u32) != 0
    }

    /// Returns true if there is something to read, which may be the end.
    pub fn is_readable(self) -> bool {
        self.has(libc::POLLIN | libc::POLLHUP | libc::POLLERR)
    }

    /// Returns true if there is room to write; the write may return an error.
    pub fn is_writable(self) -> bool {
        self.has(libc::POLLOUT | libc::POLLERR)
    }

    /// Returns true if the other side is gone or the file has an error, which a read or write
    /// returns.
    pub fn is_closed(self) -> bool {
        self.has(libc::POLLHUP | libc::POLLERR)
    }
}

/// A foreign file, such as the socket of a library, with a way to wait until it can be read
/// or written. The waiting code then reads or writes it, without blocking.
///
/// ```
/// use std::io::{Read, Write};
/// use std::os::unix::net::UnixStream;
/// use kinfolk_runtime::{Runtime, io::{Interest, Watched}};
///
/// Runtime::new()?.block_on(async {
///     let (a, mut b) = UnixStream::pair()?;
///     let watched = Watched::new(a)?;
///     b.write_all(b"x")?;
///     let ready = watched.ready(Interest::READABLE).await?;
///     assert!(ready.is_readable());
///     let mut byte = [0];
///     (&*watched).read_exact(&mut byte)?;
///     Ok::<_, kinfolk_core::Error>(())
/// })?;
/// # Ok::<_, kinfolk_core::Error>(())
/// ```
///
/// When a `Watched` is dropped, the file is dropped as soon as the system no longer watches
/// it.
pub struct Watched<T> {
    file: Arc<T>,
    handle: Arc<IoHandle>,
}

impl<T: AsFd + Send + Sync + 'static> Watched<T> {
    /// Watches `file` with the driver of the current job's thread.
    ///
    /// # Errors
    /// Outside every job, and in a simulation.
    pub fn new(file: T) -> io::Result<Watched<T>> {
        let handle = IoHandle::current()?;
        handle.must_be_real("files of others")?;
        Ok(Watched {
            file: Arc::new(file),
            handle,
        })
    }

    /// Waits until the file can be read or written, as asked.
    ///
    /// # Cancellation
    /// A *point*. It takes nothing from the file.
    ///
    /// # Errors
    /// Those of the system.
    #[track_caller]
    pub fn ready(
        &self,
        interest: Interest,
    ) -> impl Future<Output = io::Result<Readiness>> + Send + use<T> {
        let poll = Poll::new(self.file.clone(), interest.0);
        let op = Op::new(Some(self.handle.clone()), poll);
        async move { op.await.map(Readiness) }
    }

    /// Returns the file, if no abandoned wait still watches it.
    ///
    /// # Errors
    /// The watched file, if one does.
    pub fn into_inner(self) -> Result<T, Watched<T>> {
        let handle = self.handle;
        Arc::try_unwrap(self.file).map_err(|file| Watched { file, handle })
    }
}

impl<T> Deref for Watched<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.file
    }
}

impl<T: fmt::Debug> fmt::Debug for Watched<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watched").field(&self.file).finish()
    }
}
