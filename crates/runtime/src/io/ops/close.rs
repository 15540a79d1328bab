use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use crate::io::{Hub, Operation, Request};

/// Closes a file. If it is never begun the file is closed all the same, and
/// only the answer is missing.
pub(crate) struct Close {
    raw: RawFd,
    hub: Arc<Hub>,
    begun: bool,
}

impl Close {
    /// Owns `raw` from now on.
    pub(crate) fn new(raw: RawFd, hub: Arc<Hub>) -> Close {
        Close {
            raw,
            hub,
            begun: false,
        }
    }
}

impl Operation for Close {
    type Output = io::Result<()>;

    fn request(&mut self, _hub: &Arc<Hub>) -> Request {
        self.begun = true;
        Request::Close { fd: self.raw }
    }

    fn finish(mut self, result: io::Result<u32>) -> io::Result<()> {
        if let Err(error) = &result
            && matches!(error.raw_os_error(), Some(libc::ECANCELED))
        {
            self.begun = false;
        }
        result.map(drop)
    }
}

impl Drop for Close {
    fn drop(&mut self) {
        if !self.begun {
            self.hub.system().close(self.raw);
        }
    }
}
