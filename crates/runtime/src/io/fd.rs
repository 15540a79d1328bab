//! [`Fd`]: a file that stays open as long as an operation uses it.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::{Arc, OnceLock};

use super::handle::Hub;
use super::series::queue::Arrivals;

struct Inner {
    raw: RawFd,
    hub: Arc<Hub>,
    /// None before the first series.
    arrivals: OnceLock<Box<Arrivals>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.raw >= 0 {
            self.hub.system().close(self.raw);
        }
    }
}

/// A file that stays open as long as an operation uses it, and the hub that
/// carries out its operations.
#[derive(Clone)]
pub(crate) struct Fd(Arc<Inner>);

impl Fd {
    /// Owns `raw` from now on.
    pub(crate) fn new(raw: RawFd, hub: Arc<Hub>) -> Fd {
        Fd(Arc::new(Inner {
            raw,
            hub,
            arrivals: OnceLock::new(),
        }))
    }

    /// Takes over a file that comes from elsewhere, for the job that is polled
    /// here.
    ///
    /// # Errors
    /// Those of the system, outside every job, and in a simulation.
    pub(crate) fn adopt(file: OwnedFd) -> io::Result<Fd> {
        let hub = Hub::current()?;
        hub.system().adopt(file.as_raw_fd(), hub.nonblocking()?)?;
        Ok(Fd::new(file.into_raw_fd(), hub))
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.0.raw
    }

    pub(crate) fn hub(&self) -> &Arc<Hub> {
        &self.0.hub
    }

    /// What has arrived here and was not taken yet.
    pub(crate) fn arrivals(&self) -> &Arrivals {
        self.0.arrivals.get_or_init(Box::default)
    }

    /// As above; none if there was no series yet.
    pub(crate) fn known_arrivals(&self) -> Option<&Arrivals> {
        self.0.arrivals.get().map(|arrivals| &**arrivals)
    }

    /// The file itself, if no operation uses it and nothing lies here that
    /// nobody has taken: whoever gets it closes it.
    pub(crate) fn into_raw(self) -> Result<(RawFd, Arc<Hub>), Fd> {
        let mut inner = Arc::try_unwrap(self.0).map_err(Fd)?;
        // What lies here goes with the socket.
        if inner.arrivals.get().is_some_and(|left| !left.is_empty()) {
            return Err(Fd(Arc::new(inner)));
        }
        let raw = std::mem::replace(&mut inner.raw, -1);
        Ok((raw, inner.hub.clone()))
    }
}

impl fmt::Debug for Fd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.raw())
    }
}
