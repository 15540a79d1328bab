use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::Arc;

use super::c_path;
use super::{Class, Fallback, RequestArgs};
use crate::io::readiness::calls::again;
use crate::io::{Fd, IoHandle, Operation, Request, StatBuf};
use crate::linux;
use crate::linux::on_ring;
use crate::linux::{EMPTY_PATH, Facts};

/// What it is about.
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
        Request::Stat(StatArgs {
            fd,
            path: self.path.as_ptr(),
            flags,
            out: self.out.as_mut_ptr(),
        })
    }

    fn finish(self, result: io::Result<u32>) -> io::Result<Facts> {
        result?;
        // SAFETY: plain numbers, zeroed before the system wrote them.
        Ok(Facts::of(unsafe { self.out.assume_init_ref() }))
    }
}

/// Asks about a file.
#[derive(Clone, Copy, Debug)]
pub struct StatArgs {
    /// The file itself if the path is empty; `AT_FDCWD` for a path.
    pub fd: RawFd,
    /// The path, with its closing zero.
    pub path: *const libc::c_char,
    /// As for `statx`.
    pub flags: i32,
    /// Where the answer goes.
    pub out: *mut StatBuf,
}

impl RequestArgs for StatArgs {
    fn class(&self) -> Class {
        Class::Bounded
    }

    fn fd(&self) -> Option<RawFd> {
        (self.fd >= 0).then_some(self.fd)
    }

    fn fallback(&self) -> Fallback {
        Fallback::Offload
    }

    unsafe fn call(&self) -> i32 {
        // SAFETY: as the caller says.
        again(|| unsafe { linux::stat(self.fd, self.path, self.flags, self.out) } as isize)
    }
}

on_ring! {
    impl Sqe for StatArgs {
        const CODE: u8 = opcode::Statx::CODE;

        #[inline]
        fn sqe(&self) -> Entry {
            opcode::Statx::new(RingFd(self.fd), self.path, self.out.cast())
                .flags(self.flags)
                .mask(libc::STATX_BASIC_STATS | libc::STATX_BTIME)
                .build()
        }
    }
}
