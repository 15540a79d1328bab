use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use super::length;
use super::write::WriteArgs;
use super::{Class, Fallback, RequestArgs};
use crate::io::readiness::calls::again;
use crate::io::{Fd, IoBuf, IoHandle, Offset, Operation, Request};
use crate::linux;
use crate::linux::on_ring;

/// Bytes from a buffer to a file, and if those were all, to the disk.
pub(crate) struct WriteThenSync<B> {
    fd: Fd,
    buf: B,
    at: u64,
}

impl<B: IoBuf> WriteThenSync<B> {
    pub(crate) fn new(fd: Fd, buf: B, at: u64) -> WriteThenSync<B> {
        WriteThenSync { fd, buf, at }
    }
}

impl<B: IoBuf> Operation for WriteThenSync<B> {
    type Output = (io::Result<usize>, B);

    fn request(&mut self, _handle: &Arc<IoHandle>) -> Request {
        Request::WriteThenSync(WriteThenSyncArgs {
            fd: self.fd.raw(),
            buf: self.buf.ptr(),
            len: length(self.buf.filled()),
            offset: Offset::At(self.at),
        })
    }

    fn finish(self, result: io::Result<u32>) -> Self::Output {
        (result.map(|bytes| bytes as usize), self.buf)
    }
}

/// Bytes to `fd`, and then to the disk: the second only if all of them were
/// written. The answer is how many were; fewer than asked for means that
/// they are not on the disk yet.
#[derive(Clone, Copy, Debug)]
pub struct WriteThenSyncArgs {
    /// The file.
    pub fd: RawFd,
    /// Where the bytes are.
    pub buf: *const u8,
    /// How many.
    pub len: u32,
    /// Where they go.
    pub offset: Offset,
}

impl RequestArgs for WriteThenSyncArgs {
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
        let write = self.write();
        // SAFETY: as the caller says.
        match unsafe { write.call() } {
            all if all >= 0 && all as u32 == self.len => {
                match again(|| linux::sync_data(self.fd) as isize) {
                    failed if failed < 0 => failed,
                    _ => all,
                }
            }
            short_or_failed => short_or_failed,
        }
    }
}

on_ring! {
    impl Sqe for WriteThenSyncArgs {
        const CODE: u8 = opcode::Fsync::CODE;

        #[inline]
        fn sqe(&self) -> Entry {
            opcode::Fsync::new(RingFd(self.fd))
                .flags(FsyncFlags::DATASYNC)
                .build()
        }
    }
}

impl WriteThenSyncArgs {
    /// The first half.
    pub(crate) fn write(&self) -> WriteArgs {
        WriteArgs {
            fd: self.fd,
            buf: self.buf,
            len: self.len,
            offset: self.offset,
        }
    }
}
