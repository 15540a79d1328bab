//! [`Polled`] behind the traits of futures-io.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_io::{AsyncRead, AsyncWrite};

use kinfolk_runtime::net::by_hand::Streaming;

use crate::polled::{Polled, writes};

impl<S: Streaming + Unpin> AsyncRead for Polled<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let room = buf.len();
        let take = |bytes: &[u8]| buf[..bytes.len()].copy_from_slice(bytes);
        self.get_mut().poll_take(cx, room, take)
    }
}

writes!(AsyncWrite, poll_close);
