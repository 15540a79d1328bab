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

/// Makes a directory.
pub(crate) struct MakeDir {
    path: CString,
}

impl MakeDir {
    /// # Errors
    /// If there is a zero in the path.
    pub(crate) fn new(path: &Path) -> io::Result<MakeDir> {
        Ok(MakeDir {
            path: c_path(path)?,
        })
    }
}

impl Operation for MakeDir {
    type Output = io::Result<()>;

    fn request(&mut self, _handle: &Arc<IoHandle>) -> Request {
        Request::MakeDir(MakeDirArgs {
            path: self.path.as_ptr(),
            mode: 0o777,
        })
    }

    fn finish(self, result: io::Result<u32>) -> io::Result<()> {
        result.map(drop)
    }
}

/// Makes a directory.
#[derive(Clone, Copy, Debug)]
pub struct MakeDirArgs {
    /// The path.
    pub path: *const libc::c_char,
    /// Who may do what with it.
    pub mode: u32,
}

impl RequestArgs for MakeDirArgs {
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
        again(|| unsafe { libc::mkdir(self.path, self.mode as libc::mode_t) } as isize)
    }
}

on_ring! {
    impl Sqe for MakeDirArgs {
        const CODE: u8 = opcode::MkDirAt::CODE;

        #[inline]
        fn sqe(&self) -> Entry {
            opcode::MkDirAt::new(RingFd(libc::AT_FDCWD), self.path)
                .mode(self.mode)
                .build()
        }
    }
}
