use std::io;
use std::sync::Arc;

use super::message::MsgHeader;
use crate::io::request::SendMsgArgs;
use crate::io::{Fd, IoBuf, IoHandle, Operation, Request};

/// The most buffers that one operation takes: more than that the kernel refuses.
const MOST_PARTS: usize = 1024;

/// Bytes from several buffers to a socket.
pub(crate) struct SendVectored<B> {
    fd: Fd,
    bufs: Vec<B>,
    header: MsgHeader,
}

impl<B: IoBuf> SendVectored<B> {
    pub(crate) fn new(fd: Fd, bufs: Vec<B>) -> SendVectored<B> {
        SendVectored {
            fd,
            bufs,
            header: MsgHeader::new(),
        }
    }
}

impl<B: IoBuf> Operation for SendVectored<B> {
    type Output = (io::Result<usize>, Vec<B>);

    fn request(&mut self, _handle: &Arc<IoHandle>) -> Request {
        let parts = self.bufs.iter().take(MOST_PARTS);
        self.header
            .set_parts(parts.map(|buf| (buf.ptr().cast_mut(), buf.filled())));
        Request::SendMsg(SendMsgArgs {
            fd: self.fd.raw(),
            msg: self.header.as_mut_ptr(),
            flags: 0,
        })
    }

    fn finish(self, result: io::Result<u32>) -> Self::Output {
        (result.map(|bytes| bytes as usize), self.bufs)
    }
}
