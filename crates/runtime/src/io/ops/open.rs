use std::ffi::CString;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use crate::io::{Fd, IoHandle, Operation, Request};

/// Opens a file. Opened for nobody, it is closed again.
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
        Request::Open {
            path: self.path.as_ptr(),
            flags: self.flags,
            mode: self.mode,
        }
    }

    fn finish(self, result: io::Result<u32>) -> io::Result<Fd> {
        let raw = result?;
        let handle = self.handle.expect("what was opened was asked for");
        Ok(Fd::new(raw as RawFd, handle))
    }
}
