use std::ffi::CString;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::c_path;
use crate::io::{IoHandle, Operation, Request};

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
        Request::MakeDir {
            path: self.path.as_ptr(),
            mode: 0o777,
        }
    }

    fn finish(self, result: io::Result<u32>) -> io::Result<()> {
        result.map(drop)
    }
}
