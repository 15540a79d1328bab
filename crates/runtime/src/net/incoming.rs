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
/// With io_uring it is begun once and the system accepts by itself from then on.
/// What it has accepted and nobody has taken yet waits in the listener, 64
/// connections and what came with them; then the system is told to stop until
/// they were taken. They stay there if the stream is dropped: the next stream, or
/// the next `accept`, gets them. With the listener they are closed.
///
/// Two streams of one listener, or a stream and an `accept`, share what is
/// accepted. One that nobody polls is in nobody's way.
///
/// The system accepts all that wait at once, and each takes a file of the
/// process: a server that is short of files uses `accept`.
///
/// # Cancellation
/// A poll of it is a *point*: a `Cancelled` is an item. No connection is lost by
/// it, nor by a poll or a stream that is dropped. Told before it waits, nothing is
/// taken from the listener; told while it waits, a connection that came all the
/// same is returned, and the next point tells.
pub struct Incoming<'a, S> {
    next: SeriesStream,
    socket: &'a Socket,
    make: fn(Socket) -> S,
}

impl TcpListener {
    /// Its connections, one after the other; with the feature `stream` a
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
    /// Its connections, one after the other; with the feature `stream` a
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
    /// The next connection; there is always another.
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
