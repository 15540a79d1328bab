use std::ffi::CString;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::c_path;
use crate::io::{IoHandle, Operation, Request};

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
        Request::Unlink {
            path: self.path.as_ptr(),
            dir: self.dir,
        }
    }

    fn finish(self, result: io::Result<u32>) -> io::Result<()> {
        result.map(drop)
    }
}
