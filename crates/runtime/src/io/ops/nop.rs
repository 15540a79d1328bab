use std::io;
use std::sync::Arc;

use crate::io::{IoHandle, Operation, Request};

/// Nothing: a trip to the driver and back.
pub(crate) struct Nop;

impl Operation for Nop {
    type Output = io::Result<()>;

    fn request(&mut self, _handle: &Arc<IoHandle>) -> Request {
        Request::Nop
    }

    fn finish(self, result: io::Result<u32>) -> io::Result<()> {
        result.map(drop)
    }
}
