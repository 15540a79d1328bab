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

/// Takes a name away from a file, or removes an empty directory.
pub(crate) struct Unlink {
    path: CString,
    dir: bool,
}

impl Unlink {
    /// # Errors
    /// If there is a zero in the path.
    pub(crate) fn new(path: &Path, dir: bool) -> io::Result<Unlink> {
        Ok(Unlink {
            path: c_path(path)?,
            dir,
        })
    }
}

impl Operation for Unlink {
    type Output = io::Result<()>;

    fn request(&mut self, _handle: &Arc<IoHandle>) -> Request {
        Request::Unlink(UnlinkArgs {
            path: self.path.as_ptr(),
            dir: self.dir,
        })
    }

    fn finish(self, result: io::Result<u32>) -> io::Result<()> {
        result.map(drop)
    }
}

/// Takes a name away from a file, or removes an empty directory.
#[derive(Clone, Copy, Debug)]
pub struct UnlinkArgs {
    /// The path.
    pub path: *const libc::c_char,
    /// It is a directory.
    pub dir: bool,
}

impl RequestArgs for UnlinkArgs {
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
        again(|| match self.dir {
            // SAFETY: as the caller says; here and below.
            true => unsafe { libc::rmdir(self.path) as isize },
            // SAFETY: as above.
            false => unsafe { libc::unlink(self.path) as isize },
        })
    }
}

on_ring! {
    impl Sqe for UnlinkArgs {
        const CODE: u8 = opcode::UnlinkAt::CODE;

        #[inline]
        fn sqe(&self) -> Entry {
            opcode::UnlinkAt::new(RingFd(libc::AT_FDCWD), self.path)
                .flags(if self.dir { libc::AT_REMOVEDIR } else { 0 })
                .build()
        }
    }
}
