use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::Arc;

use super::c_path;
use crate::io::{Fd, IoHandle, Operation, Request, StatBuf};
use crate::linux::{EMPTY_PATH, Facts};

/// Whom it is about.
enum Whom {
    File(Fd),
    Path { follow: bool },
}

/// Asks about a file.
pub(crate) struct Stat {
    whom: Whom,
    path: CString,
    out: MaybeUninit<StatBuf>,
}

impl Stat {
    pub(crate) fn of_file(fd: Fd) -> Stat {
        Stat {
            whom: Whom::File(fd),
            path: CString::default(),
            out: MaybeUninit::zeroed(),
        }
    }

    /// `follow`: what a link leads to, not the link itself.
    ///
    /// # Errors
    /// If there is a zero in the path.
    pub(crate) fn of_path(path: &Path, follow: bool) -> io::Result<Stat> {
        Ok(Stat {
            whom: Whom::Path { follow },
            path: c_path(path)?,
            out: MaybeUninit::zeroed(),
        })
    }
}

impl Operation for Stat {
    type Output = io::Result<Facts>;

    fn request(&mut self, _handle: &Arc<IoHandle>) -> Request {
        let (fd, flags) = match &self.whom {
            Whom::File(fd) => (fd.raw(), EMPTY_PATH),
            Whom::Path { follow: true } => (libc::AT_FDCWD, 0),
            Whom::Path { follow: false } => (libc::AT_FDCWD, libc::AT_SYMLINK_NOFOLLOW),
        };
        Request::Stat {
            fd,
            path: self.path.as_ptr(),
            flags,
            out: self.out.as_mut_ptr(),
        }
    }

    fn finish(self, result: io::Result<u32>) -> io::Result<Facts> {
        result?;
        // SAFETY: plain numbers, zeroed before the system wrote them.
        Ok(Facts::of(unsafe { self.out.assume_init_ref() }))
    }
}
