//! [`Incoming`]: the connections of a listener, one after the other.

use std::fmt;
use std::io;
#[cfg(feature = "stream")]
use std::pin::Pin;
#[cfg(feature = "stream")]
use std::task::{Context, Poll};

use super::socket::Socket;
use super::{TcpListener, TcpStream, UnixListener, UnixStream};
use crate::io::{SeriesItem, SeriesStream, failure};

/// The connections of a listener, one after the other; made by `incoming`. It
/// never ends: an error is an item, and after it the listener can be asked again.
///
/// With io_uring, one request makes the kernel accept connections from then on.
/// Connections that were accepted and not taken yet wait in the listener, 64
/// connections and what came with them; then the system is told to stop until
/// they were taken. They stay there if the stream is dropped: the next stream, or
/// the next `accept`, gets them. With the listener they are closed.
///
/// Two streams of one listener, or a stream and an `accept`, share what is
/// accepted. A stream that is not polled hinders no other.
///
/// The kernel accepts all waiting connections at once, and each uses a file descriptor: a
/// server that is short of them should use `accept`.
///
/// # Cancellation
/// A poll is a *point*: a `Cancelled` is an item. No connection is lost by that, nor by
/// dropping a poll or the stream. If the job is told before the poll waits, nothing is taken
/// from the listener; if it is told while the poll waits, a connection that still came is
/// returned, and the next point reports the cancel.
pub struct Incoming<'a, S> {
    next: SeriesStream,
    socket: &'a Socket,
    make: fn(Socket) -> S,
}

impl TcpListener {
    /// Returns the connections that arrive, one after the other; with the feature `stream` a
    /// `Stream`.
    #[track_caller]
    pub fn incoming(&self) -> Incoming<'_, TcpStream> {
        Incoming {
            next: self.socket.incoming(),
            socket: &self.socket,
            make: |socket| TcpStream { socket },
        }
    }
}

impl UnixListener {
    /// Returns the connections that arrive, one after the other; with the feature `stream` a
    /// `Stream`.
    #[track_caller]
    pub fn incoming(&self) -> Incoming<'_, UnixStream> {
        Incoming {
            next: self.socket.incoming(),
            socket: &self.socket,
            make: |socket| UnixStream { socket },
        }
    }
}

impl<S> Incoming<'_, S> {
    /// Waits for the next connection; there is always another.
    ///
    /// # Cancellation
    /// A *point*: see [`Incoming`].
    pub async fn next(&mut self) -> Option<io::Result<S>> {
        let item = self.next.wait().await;
        Some(self.accepted(item))
    }

    fn accepted(&self, item: io::Result<SeriesItem>) -> io::Result<S> {
        match item {
            Ok(SeriesItem::Connection(fd)) => Ok((self.make)(Socket::new(fd))),
            Ok(SeriesItem::Failed { result, .. }) => Err(failure(result)),
            Ok(_) => Err(io::ErrorKind::InvalidData.into()),
            Err(error) => Err(error),
        }
    }
}

#[cfg(feature = "stream")]
impl<S> futures_core::Stream for Incoming<'_, S> {
    type Item = io::Result<S>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<S>>> {
        let this = self.get_mut();
        let item = this.next.poll(cx);
        item.map(|item| Some(this.accepted(item)))
    }
}

impl<S> fmt::Debug for Incoming<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Incoming({:?})", self.socket)
    }
}
