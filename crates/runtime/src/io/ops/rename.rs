use std::ffi::CString;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::c_path;
use crate::io::{IoHandle, Operation, Request};

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
        Request::Rename {
            from: self.from.as_ptr(),
            to: self.to.as_ptr(),
        }
    }

    fn finish(self, result: io::Result<u32>) -> io::Result<()> {
        result.map(drop)
    }
}
