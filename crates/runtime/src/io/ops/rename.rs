use std::ffi::CString;
use std::io;
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::Arc;

use super::c_path;
use super::{Class, Fallback, RequestArgs};
use crate::io::readiness::calls::again;
use crate::io::{IoHandle, Operation, Request};
use crate::linux::on_ring;

/// Gives a file another name.
pub(crate) struct Rename {
    from: CString,
    to: CString,
}

impl Rename {
    /// # Errors
    /// If there is a zero in a path.
    pub(crate) fn new(from: &Path, to: &Path) -> io::Result<Rename> {
        Ok(Rename {
            from: c_path(from)?,
            to: c_path(to)?,
        })
    }
}

impl Operation for Rename {
    type Output = io::Result<()>;

    fn request(&mut self, _handle: &Arc<IoHandle>) -> Request {
        Request::Rename(RenameArgs {
            from: self.from.as_ptr(),
            to: self.to.as_ptr(),
        })
    }

    fn finish(self, result: io::Result<u32>) -> io::Result<()> {
        result.map(drop)
    }
}

/// Gives a file another name.
#[derive(Clone, Copy, Debug)]
pub struct RenameArgs {
    /// The path it has.
    pub from: *const libc::c_char,
    /// The path it gets.
    pub to: *const libc::c_char,
}

impl RequestArgs for RenameArgs {
    fn class(&self) -> Class {
        Class::Bounded
    }

    fn fd(&self) -> Option<RawFd> {
        None
    }

    fn fallback(&self) -> Fallback {
        Fallback::Offload
    }

    unsafe fn call(&self) -> i32 {
        // SAFETY: as the caller says.
        again(|| unsafe { libc::rename(self.from, self.to) } as isize)
    }
}

on_ring! {
    impl Sqe for RenameArgs {
        const CODE: u8 = opcode::RenameAt::CODE;

        #[inline]
        fn sqe(&self) -> Entry {
            let here = RingFd(libc::AT_FDCWD);
            opcode::RenameAt::new(here, self.from, RingFd(libc::AT_FDCWD), self.to)
                .build()
        }
    }
}
