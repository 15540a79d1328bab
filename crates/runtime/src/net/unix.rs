//! Unix sockets, whose addresses are paths.

use std::io;
use std::os::unix::net::{self, SocketAddr};
use std::path::Path;

use kinfolk_core::checkpoint;
use socket2::{Domain, SockAddr, Type};

use super::socket::{Socket, entered, files, unix};
use crate::io::{IoBuf, Op, ops};

/// A listener that accepts Unix socket connections at a path.
///
/// Dropping the listener does not remove the path, and `bind` fails if the path exists:
/// remove it before or after.
pub struct UnixListener {
    pub(super) socket: Socket,
}

impl UnixListener {
    /// Listens at `path`.
    ///
    /// # Cancellation
    /// A *point*. If it returns `Cancelled`, nothing listens.
    ///
    /// # Errors
    /// Those of the system.
    #[track_caller]
    pub fn bind<P: AsRef<Path>>(
        path: P,
    ) -> impl Future<Output = io::Result<UnixListener>> + Send + use<P> {
        let (addr, point) = (SockAddr::unix(path), checkpoint());
        async move {
            entered(point).await?;
            let socket = Socket::bound(Type::STREAM, &addr?)?;
            socket.listen()?;
            Ok(UnixListener::new(socket))
        }
    }

    /// Waits for a connection. The address of the other side seldom has a path.
    ///
    /// # Cancellation
    /// A *point*. A connection that was accepted before the cancel took effect is returned, and
    /// the next point reports the cancel. If the future was dropped, the connection is closed.
    /// Connections that a dropped `incoming` has accepted come first.
    ///
    /// # Errors
    /// Those of the system.
    #[track_caller]
    pub fn accept(
        &self,
    ) -> impl Future<Output = io::Result<(UnixStream, SocketAddr)>> + Send + use<> {
        let accept = self.socket.accept();
        async move {
            let (fd, addr) = accept.await?;
            let stream = UnixStream::new(Socket::new(fd));
            Ok((stream, unix(&addr)?))
        }
    }

    /// Returns the address at which it listens.
    ///
    /// # Errors
    /// Those of the system.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        unix(&self.socket.local_addr()?)
    }
}

/// A Unix stream socket, connected with another one of this machine. See
/// [`TcpStream`](super::TcpStream) for what several jobs may do with one, and what its drop
/// does.
pub struct UnixStream {
    pub(super) socket: Socket,
}

impl UnixStream {
    /// Connects to the listener at `path`.
    ///
    /// # Cancellation
    /// A *point*. If it returns `Cancelled`, there is no connection.
    ///
    /// # Errors
    /// Those of the system.
    #[track_caller]
    pub fn connect<P: AsRef<Path>>(
        path: P,
    ) -> impl Future<Output = io::Result<UnixStream>> + Send + use<P> {
        let attempt =
            SockAddr::unix(path).map(|addr| Op::new(None, ops::Connect::new(addr, Type::STREAM)));
        async move {
            let socket = Socket::new(attempt?.await?);
            Ok(UnixStream::new(socket))
        }
    }

    /// Makes two streams that are connected with each other.
    ///
    /// # Errors
    /// Those of the system, and outside any job.
    pub fn pair() -> io::Result<(UnixStream, UnixStream)> {
        let (one, two) = Socket::pair(Type::STREAM)?;
        Ok((UnixStream::new(one), UnixStream::new(two)))
    }
}

/// A Unix datagram socket: messages arrive whole, in order, and are not lost.
pub struct UnixDatagram {
    pub(super) socket: Socket,
}

impl UnixDatagram {
    /// Binds a socket to `path`.
    ///
    /// # Cancellation
    /// A *point*. If it returns `Cancelled`, there is no socket.
    ///
    /// # Errors
    /// Those of the system.
    #[track_caller]
    pub fn bind<P: AsRef<Path>>(
        path: P,
    ) -> impl Future<Output = io::Result<UnixDatagram>> + Send + use<P> {
        let (addr, point) = (SockAddr::unix(path), checkpoint());
        async move {
            entered(point).await?;
            let socket = Socket::bound(Type::DGRAM, &addr?)?;
            Ok(UnixDatagram::new(socket))
        }
    }

    /// Makes a socket without an address: it can send, and cannot be answered.
    ///
    /// # Errors
    /// Those of the system, and outside any job.
    pub fn unbound() -> io::Result<UnixDatagram> {
        let socket = Socket::make(Domain::UNIX, Type::DGRAM)?;
        Ok(UnixDatagram::new(socket))
    }

    /// Makes two sockets that are connected with each other.
    ///
    /// # Errors
    /// Those of the system, and outside any job.
    pub fn pair() -> io::Result<(UnixDatagram, UnixDatagram)> {
        let (one, two) = Socket::pair(Type::DGRAM)?;
        Ok((UnixDatagram::new(one), UnixDatagram::new(two)))
    }

    /// Connects the socket: [`send`](UnixDatagram::send) goes to this path, and only messages
    /// from it are received.
    ///
    /// # Cancellation
    /// A *point*. If it returns `Cancelled`, the socket is as before.
    ///
    /// # Errors
    /// Those of the system.
    #[track_caller]
    pub fn connect<P: AsRef<Path>>(
        &self,
        path: P,
    ) -> impl Future<Output = io::Result<()>> + Send + use<P> {
        let connect = SockAddr::unix(path).map(|addr| self.socket.connect(addr));
        async move {
            connect?.await?;
            Ok(())
        }
    }

    /// Sends `buf` as a message to the socket at `path`. Returns how many bytes were sent.
    ///
    /// # Cancellation
    /// A *point*. If it returns `Cancelled`, nothing was sent. The buffer comes back either
    /// way.
    #[track_caller]
    pub fn send_to<B: IoBuf, P: AsRef<Path>>(
        &self,
        buf: B,
        path: P,
    ) -> impl Future<Output = (io::Result<usize>, B)> + Send + use<B, P> {
        let send = match SockAddr::unix(path) {
            Ok(addr) => Ok(self.socket.send_to(buf, addr)),
            Err(error) => Err((Err(error), buf)),
        };
        async move {
            match send {
                Ok(send) => send.await,
                Err(failed) => failed,
            }
        }
    }
}

files!(
    UnixListener: net::UnixListener,
    UnixStream: net::UnixStream,
    UnixDatagram: net::UnixDatagram,
);
