//! [`Streaming`]: the operations of a stream for wrappers whose users poll them. `Polled` of
//! `kinfolk-adapters` is written on it. No part of the public interface: it changes with that crate.

use std::io;
use std::net::Shutdown;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use kinfolk_core::Cancelled;

use super::socket::Socket;
use super::{TcpStream, UnixStream};
use crate::io::{IoBuf, Op, Slice, ops};

/// Converts a cancellation into an error of i/o, in which [`told`](crate::io::told) finds it.
pub fn cancelled(told: Cancelled) -> io::Error {
    crate::io::cancelled(told)
}

/// A TCP or Unix stream, whose operations a wrapper can keep and poll.
///
/// No [`at_most`](crate::io::at_most) counts these operations: they belong to the wrapper, may
/// outlive the job that began them, and would keep other operations waiting.
pub trait Streaming: sealed::Sealed {
    /// Receives into `buf`, from its beginning up to its capacity.
    #[track_caller]
    fn receive(&self, buf: Vec<u8>) -> ReceiveOp {
        ReceiveOp(self.socket().recv(buf).unlimited())
    }

    /// Sends what `buf` has from byte `from` on. What does not fit at once is sent on by the
    /// driver, if it can.
    #[track_caller]
    fn send_from(&self, buf: Vec<u8>, from: usize) -> SendOp {
        SendOp(self.socket().send_whole(buf.slice(from..)).unlimited())
    }

    /// Ends the direction in which this side sends.
    #[track_caller]
    fn end_sending(&self) -> EndOp {
        EndOp(self.socket().shutdown(Shutdown::Write).unlimited())
    }
}

impl Streaming for TcpStream {}
impl Streaming for UnixStream {}

mod sealed {
    use super::{Socket, TcpStream, UnixStream};

    pub trait Sealed {
        fn socket(&self) -> &Socket;
    }

    impl Sealed for TcpStream {
        fn socket(&self) -> &Socket {
            &self.socket
        }
    }

    impl Sealed for UnixStream {
        fn socket(&self) -> &Socket {
            &self.socket
        }
    }
}

/// A receive: returns the number of bytes, 0 at the end of the stream, and the buffer.
///
/// # Cancellation
/// A *point*, like every operation.
#[must_use = "futures do nothing unless awaited"]
pub struct ReceiveOp(Op<ops::Recv<Vec<u8>>>);

impl Future for ReceiveOp {
    type Output = (io::Result<usize>, Vec<u8>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx)
    }
}

/// A send: returns the number of bytes and the whole buffer.
#[must_use = "an operation does nothing unless it is polled"]
pub struct SendOp(Op<ops::Send<Slice<Vec<u8>>>>);

impl SendOp {
    /// Polls the send. Its completion wakes `waker`, not the waker of `cx`.
    ///
    /// # Cancellation
    /// *Not a point*: the send goes on when the job that polls it is told.
    pub fn poll_waking(
        &mut self,
        cx: &mut Context<'_>,
        waker: &Waker,
    ) -> Poll<(io::Result<usize>, Vec<u8>)> {
        let sent = self.0.poll_as(cx, Some(waker));
        sent.map(|(sent, part)| (sent, part.into_inner()))
    }
}

/// The end of a direction, for as long as the system takes to end it.
///
/// # Cancellation
/// A *point*, like every operation.
#[must_use = "futures do nothing unless awaited"]
pub struct EndOp(Op<ops::ShutdownSocket>);

impl Future for EndOp {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll(cx)
    }
}
