use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use super::{Class, Fallback, RequestArgs};
use crate::io::readiness::calls::again;
use crate::io::{Fd, IoHandle, Operation, Request};
use crate::linux;
use crate::linux::on_ring;

/// What was written reaches the disk.
pub(crate) struct Fsync {
    fd: Fd,
    data_only: bool,
}

impl Fsync {
    pub(crate) fn new(fd: Fd, data_only: bool) -> Fsync {
        Fsync { fd, data_only }
    }
}

impl Operation for Fsync {
    type Output = io::Result<()>;

    fn request(&mut self, _handle: &Arc<IoHandle>) -> Request {
        Request::Sync(SyncArgs {
            fd: self.fd.raw(),
            data_only: self.data_only,
        })
    }

    fn finish(self, result: io::Result<u32>) -> io::Result<()> {
        result.map(drop)
    }
}

/// What was written reaches the disk.
#[derive(Clone, Copy, Debug)]
pub struct SyncArgs {
    /// The file.
    pub fd: RawFd,
    /// The bytes and their length only, not the times.
    pub data_only: bool,
}

impl RequestArgs for SyncArgs {
    fn class(&self) -> Class {
        Class::Bounded
    }

    fn fd(&self) -> Option<RawFd> {
        Some(self.fd)
    }

    fn fallback(&self) -> Fallback {
        Fallback::Offload
    }

    unsafe fn call(&self) -> i32 {
        match self.data_only {
            true => again(|| linux::sync_data(self.fd) as isize),
            // SAFETY: no pointers.
            false => again(|| unsafe { libc::fsync(self.fd) } as isize),
        }
    }
}

on_ring! {
    impl Sqe for SyncArgs {
        const CODE: u8 = opcode::Fsync::CODE;

        #[inline]
        fn sqe(&self) -> Entry {
            {
            let flags = match self.data_only {
                true => FsyncFlags::DATASYNC,
                false => FsyncFlags::empty(),
            };
            opcode::Fsync::new(RingFd(self.fd)).flags(flags).build()
        }
        }
    }
}
