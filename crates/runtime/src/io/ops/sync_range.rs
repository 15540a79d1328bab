use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use super::{Class, Fallback, RequestArgs};
use crate::io::readiness::calls::again;
use crate::io::{Fd, IoHandle, Operation, Request};
use crate::linux;
use crate::linux::SYNC_RANGE;
use crate::linux::on_ring;

/// A part of what was written is written out.
pub(crate) struct SyncRange {
    fd: Fd,
    at: u64,
    len: u32,
}

impl SyncRange {
    pub(crate) fn new(fd: Fd, at: u64, len: u32) -> SyncRange {
        SyncRange { fd, at, len }
    }
}

impl Operation for SyncRange {
    type Output = io::Result<()>;

    fn request(&mut self, _handle: &Arc<IoHandle>) -> Request {
        Request::SyncRange(SyncRangeArgs {
            fd: self.fd.raw(),
            at: self.at,
            len: self.len,
            flags: SYNC_RANGE,
        })
    }

    fn finish(self, result: io::Result<u32>) -> io::Result<()> {
        result.map(drop)
    }
}

/// A part of what was written begins its way to the disk.
#[derive(Clone, Copy, Debug)]
pub struct SyncRangeArgs {
    /// The file.
    pub fd: RawFd,
    /// Where the part begins.
    pub at: u64,
    /// How long it is.
    pub len: u32,
    /// As for `sync_file_range`.
    pub flags: u32,
}

impl RequestArgs for SyncRangeArgs {
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
        again(|| linux::sync_range(self.fd, self.at, self.len, self.flags) as isize)
    }
}

on_ring! {
    impl Sqe for SyncRangeArgs {
        const CODE: u8 = opcode::SyncFileRange::CODE;

        #[inline]
        fn sqe(&self) -> Entry {
            opcode::SyncFileRange::new(RingFd(self.fd), self.len)
                .offset(self.at)
                .flags(self.flags)
                .build()
        }
    }
}
