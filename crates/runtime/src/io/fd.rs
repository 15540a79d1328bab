//! [`Fd`]: a file that stays open as long as an operation uses it.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::{Arc, OnceLock};

use super::handle::IoHandle;
use super::series::queue::SeriesQueue;

struct Inner {
    raw: RawFd,
    handle: Arc<IoHandle>,
    /// None before the first series.
    queue: OnceLock<Box<SeriesQueue>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.raw >= 0 {
            self.handle.system().close(self.raw);
        }
    }
}

/// A file that stays open as long as an operation uses it, and the handle that
/// carries out its operations.
#[derive(Clone)]
pub(crate) struct Fd(Arc<Inner>);

impl Fd {
    /// Owns `raw` from now on.
    pub(crate) fn new(raw: RawFd, handle: Arc<IoHandle>) -> Fd {
        Fd(Arc::new(Inner {
            raw,
            handle,
            queue: OnceLock::new(),
        }))
    }

    /// Takes over a file that comes from elsewhere, for the job that is polled
    /// here.
    ///
    /// # Errors
    /// Those of the system, outside any job, and in a simulation.
    pub(crate) fn adopt(file: OwnedFd) -> io::Result<Fd> {
        let handle = IoHandle::current()?;
        handle
            .system()
            .adopt(file.as_raw_fd(), handle.nonblocking()?)?;
        Ok(Fd::new(file.into_raw_fd(), handle))
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.0.raw
    }

    pub(crate) fn handle(&self) -> &Arc<IoHandle> {
        &self.0.handle
    }

    /// What has arrived here and was not taken yet.
    pub(crate) fn series_queue(&self) -> &SeriesQueue {
        self.0.queue.get_or_init(Box::default)
    }

    /// As above; none if there was no series yet.
    pub(crate) fn known_series_queue(&self) -> Option<&SeriesQueue> {
        self.0.queue.get().map(|queue| &**queue)
    }

    /// The file itself, if no operation uses it and nothing lies here that
    /// nobody has taken: whoever gets it closes it.
    pub(crate) fn into_raw(self) -> Result<(RawFd, Arc<IoHandle>), Fd> {
        let mut inner = Arc::try_unwrap(self.0).map_err(Fd)?;
        // What lies here goes with the socket.
        if inner.queue.get().is_some_and(|left| !left.is_empty()) {
            return Err(Fd(Arc::new(inner)));
        }
        let raw = std::mem::replace(&mut inner.raw, -1);
        Ok((raw, inner.handle.clone()))
    }
}

impl fmt::Debug for Fd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.raw())
    }
}
