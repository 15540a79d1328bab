//! [`Incoming`]: the connections of a listener, one after the other.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;

use super::socket::Socket;
use super::{TcpListener, TcpStream, UnixListener, UnixStream};
use crate::io::{Fd, Op, ops};

/// The connections of a listener, one after the other; made by `incoming`. It
/// never ends.
///
/// # Cancellation
/// A poll of it is a *point*: a `Cancelled` is an item. A poll that is dropped
/// loses no connection; with the whole stream one that was just accepted is
/// closed.
pub struct Incoming<'a, S> {
    socket: &'a Socket,
    accept: Option<Op<ops::Accept>>,
    make: fn(Socket) -> S,
}

impl TcpListener {
    /// Its connections as a `Stream`.
    pub fn incoming(&self) -> Incoming<'_, TcpStream> {
        Incoming {
            socket: &self.socket,
            accept: None,
            make: |socket| TcpStream { socket },
        }
    }
}

impl UnixListener {
    /// Its connections as a `Stream`.
    pub fn incoming(&self) -> Incoming<'_, UnixStream> {
        Incoming {
            socket: &self.socket,
            accept: None,
            make: |socket| UnixStream { socket },
        }
    }
}

impl<S> Incoming<'_, S> {
    fn accepted(&self, fd: Fd) -> S {
        (self.make)(Socket::new(fd))
    }
}

impl<S> Stream for Incoming<'_, S> {
    type Item = io::Result<S>;

    #[track_caller]
    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<S>>> {
        let this = self.get_mut();
        let accept = match &mut this.accept {
            Some(accept) => accept,
            none => none.insert(this.socket.accept()),
        };
        let accepted = ready!(Pin::new(accept).poll(cx));
        this.accept = None;
        Poll::Ready(Some(accepted.map(|(fd, _)| this.accepted(fd))))
    }
}

impl<S> fmt::Debug for Incoming<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Incoming({:?})", self.socket)
    }
}
