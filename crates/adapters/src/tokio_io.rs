//! [`Polled`] behind the traits of tokio.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use kinfolk_runtime::net::by_hand::Streaming;

use crate::polled::{Polled, writes};

impl<S: Streaming + Unpin> AsyncRead for Polled<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let room = buf.remaining();
        let read = (self.get_mut()).poll_take(cx, room, |bytes| buf.put_slice(bytes));
        read.map_ok(drop)
    }
}

writes!(
    AsyncWrite,
    poll_shutdown,
    fn is_write_vectored(&self) -> bool {
        true
    }
);
