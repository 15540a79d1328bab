use std::ffi::CString;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use super::{Class, Fallback, RequestArgs};
use crate::io::readiness::calls::again;
use crate::io::{Fd, IoHandle, Operation, Request};
use crate::linux::on_ring;

/// Opens a file. If its future was dropped, the file is closed again.
pub(crate) struct OpenAt {
    path: CString,
    flags: i32,
    mode: u32,
    handle: Option<Arc<IoHandle>>,
}

impl OpenAt {
    /// # Errors
    /// If there is a zero in the path.
    pub(crate) fn new(path: &Path, flags: i32, mode: u32) -> io::Result<OpenAt> {
        Ok(OpenAt {
            path: CString::new(path.as_os_str().as_bytes())?,
            flags: flags | libc::O_CLOEXEC,
            mode,
            handle: None,
        })
    }
}

impl Operation for OpenAt {
    type Output = io::Result<Fd>;

    fn request(&mut self, handle: &Arc<IoHandle>) -> Request {
        self.handle = Some(handle.clone());
        Request::Open(OpenArgs {
            path: self.path.as_ptr(),
            flags: self.flags,
            mode: self.mode,
        })
    }

    fn finish(self, result: io::Result<u32>) -> io::Result<Fd> {
        let raw = result?;
        let handle = self.handle.expect("what was opened was asked for");
        Ok(Fd::new(raw as RawFd, handle))
    }
}

/// Opens a file.
#[derive(Clone, Copy, Debug)]
pub struct OpenArgs {
    /// The path, with its closing zero.
    pub path: *const libc::c_char,
    /// As for `open`.
    pub flags: i32,
    /// As for `open`.
    pub mode: u32,
}

impl RequestArgs for OpenArgs {
    fn class(&self) -> Class {
        Class::MayBlock
    }

    fn fd(&self) -> Option<RawFd> {
        None
    }

    fn fallback(&self) -> Fallback {
        Fallback::Offload
    }

    unsafe fn call(&self) -> i32 {
        // SAFETY: as the caller says.
        again(|| unsafe { libc::open(self.path, self.flags, self.mode as libc::c_uint) } as isize)
    }
}

on_ring! {
    impl Sqe for OpenArgs {
        const CODE: u8 = opcode::OpenAt::CODE;

        #[inline]
        fn sqe(&self) -> Entry {
            opcode::OpenAt::new(RingFd(libc::AT_FDCWD), self.path)
                .flags(self.flags)
                .mode(self.mode)
                .build()
        }
    }
}
