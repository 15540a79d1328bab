use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use super::{Class, Fallback, RequestArgs};
use crate::io::{IoHandle, Operation, Request};
use crate::linux::on_ring;

/// Nothing: a trip to the driver and back.
pub(crate) struct Nop;

impl Operation for Nop {
    type Output = io::Result<()>;

    fn request(&mut self, _handle: &Arc<IoHandle>) -> Request {
        Request::Nop(NopArgs)
    }

    fn finish(self, result: io::Result<u32>) -> io::Result<()> {
        result.map(drop)
    }
}

/// Nothing, and say so.
#[derive(Clone, Copy, Debug)]
pub struct NopArgs;

impl RequestArgs for NopArgs {
    fn class(&self) -> Class {
        Class::Bounded
    }

    fn fd(&self) -> Option<RawFd> {
        None
    }

    fn fallback(&self) -> Fallback {
        Fallback::Now
    }

    unsafe fn call(&self) -> i32 {
        0
    }
}

on_ring! {
    impl Sqe for NopArgs {
        const CODE: u8 = opcode::Nop::CODE;

        #[inline]
        fn sqe(&self) -> Entry {
            opcode::Nop::new().build()
        }
    }
}
