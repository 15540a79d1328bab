use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use super::{Class, Fallback, RequestArgs};
use crate::io::in_flight::GONE;
use crate::io::readiness::calls::answer;
use crate::io::{IoHandle, Operation, Request};
use crate::linux::on_ring;

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
        Request::Close(CloseArgs { fd: self.raw })
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

/// Closes a file; the caller has given it up.
#[derive(Clone, Copy, Debug)]
pub struct CloseArgs {
    /// The file.
    pub fd: RawFd,
}

impl RequestArgs for CloseArgs {
    fn class(&self) -> Class {
        Class::Bounded
    }

    fn fd(&self) -> Option<RawFd> {
        Some(self.fd)
    }

    fn fallback(&self) -> Fallback {
        Fallback::Offload
    }

    unsafe fn call(&self) -> i32 {
        // SAFETY: no pointers.
        match answer(unsafe { libc::close(self.fd) } as isize) {
            // It is closed all the same, and must not be closed again.
            interrupted if interrupted == -libc::EINTR => 0,
            result => result,
        }
    }
}

on_ring! {
    impl Sqe for CloseArgs {
        const CODE: u8 = opcode::Close::CODE;

        #[inline]
        fn sqe(&self) -> Entry {
            opcode::Close::new(RingFd(self.fd)).build()
        }
    }
}
