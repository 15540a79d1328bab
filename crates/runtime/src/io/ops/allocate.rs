use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use super::{Class, Fallback, RequestArgs};
use crate::io::readiness::calls::again;
use crate::io::{Fd, IoHandle, Operation, Request};
use crate::linux;
use crate::linux::on_ring;

/// Room for a part of a file, or a hole in it.
pub(crate) struct Allocate {
    fd: Fd,
    mode: i32,
    at: u64,
    len: u64,
}

impl Allocate {
    pub(crate) fn new(fd: Fd, at: u64, len: u64) -> Allocate {
        let mode = 0;
        Allocate { fd, mode, at, len }
    }

    /// The opposite: the part takes no room, and reads as zeros.
    pub(crate) fn hole(fd: Fd, at: u64, len: u64) -> Allocate {
        let mode = linux::PUNCH_HOLE;
        Allocate { fd, mode, at, len }
    }
}

impl Operation for Allocate {
    type Output = io::Result<()>;

    fn request(&mut self, _handle: &Arc<IoHandle>) -> Request {
        Request::Allocate(AllocateArgs {
            fd: self.fd.raw(),
            mode: self.mode,
            at: self.at,
            len: self.len,
        })
    }

    fn finish(self, result: io::Result<u32>) -> io::Result<()> {
        result.map(drop)
    }
}

/// Room for a part of a file, or a hole in it.
#[derive(Clone, Copy, Debug)]
pub struct AllocateArgs {
    /// The file.
    pub fd: RawFd,
    /// As for `fallocate`.
    pub mode: i32,
    /// Where the part begins.
    pub at: u64,
    /// How long it is.
    pub len: u64,
}

impl RequestArgs for AllocateArgs {
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
        again(|| linux::allocate(self.fd, self.mode, self.at, self.len) as isize)
    }
}

on_ring! {
    impl Sqe for AllocateArgs {
        const CODE: u8 = opcode::Fallocate::CODE;

        #[inline]
        fn sqe(&self) -> Entry {
            opcode::Fallocate::new(RingFd(self.fd), self.len)
                .offset(self.at)
                .mode(self.mode)
                .build()
        }
    }
}
