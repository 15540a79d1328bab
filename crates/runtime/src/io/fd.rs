//! [`Fd`]: a file that stays open as long as an operation uses it.

use std::fmt;
use std::os::fd::RawFd;
use std::sync::Arc;

use super::hub::Hub;

struct Inner {
    raw: RawFd,
    hub: Arc<Hub>,
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
        Fd(Arc::new(Inner { raw, hub }))
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.0.raw
    }

    pub(crate) fn hub(&self) -> &Arc<Hub> {
        &self.0.hub
    }

    /// The file itself, if no operation uses it: whoever gets it closes it.
    pub(crate) fn into_raw(self) -> Result<(RawFd, Arc<Hub>), Fd> {
        let mut inner = Arc::try_unwrap(self.0).map_err(Fd)?;
        let raw = std::mem::replace(&mut inner.raw, -1);
        Ok((raw, inner.hub.clone()))
    }
}

impl fmt::Debug for Fd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.raw())
    }
}
