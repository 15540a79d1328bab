use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use crate::io::in_flight::GONE;
use crate::io::{IoHandle, Operation, Request};

/// Closes a file. If it is never begun the file is closed all the same, and
/// only the answer is missing.
pub(crate) struct Close {
    raw: RawFd,
    handle: Arc<IoHandle>,
    begun: bool,
}

impl Close {
    /// Owns `raw` from now on.
    pub(crate) fn new(raw: RawFd, handle: Arc<IoHandle>) -> Close {
        Close {
            raw,
            handle,
            begun: false,
        }
    }
}

impl Operation for Close {
    type Output = io::Result<()>;

    fn request(&mut self, _handle: &Arc<IoHandle>) -> Request {
        self.begun = true;
        Request::Close { fd: self.raw }
    }

    fn answered(&mut self, result: i32) -> bool {
        // These two never reached the file. Everything else has closed it,
        // errors too: to begin again would close somebody else's.
        if result == -libc::ECANCELED || result == GONE {
            self.begun = false;
        }
        !self.begun
    }

    fn finish(self, result: io::Result<u32>) -> io::Result<()> {
        result.map(drop)
    }
}

impl Drop for Close {
    fn drop(&mut self) {
        if !self.begun {
            self.handle.system().close(self.raw);
        }
    }
}
