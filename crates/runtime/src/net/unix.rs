//! Sockets of this machine, whose addresses are paths.

use std::io;
use std::net::Shutdown;
use std::os::unix::net::{self, SocketAddr};
use std::path::Path;

use kinfolk_core::checkpoint;
use socket2::{Domain, SockAddr, Type};

use super::socket::{Socket, entered, files, unix};
use crate::io::{IoBuf, IoBufMut, Op, ops};

/// Takes connections at a path.
///
/// The path is not removed when it is dropped, and one that is there already is
/// in the way of the next: remove it before or after.
pub struct UnixListener {
    pub(super) socket: Socket,
}

impl UnixListener {
    /// Listens at `path`.
    ///
    /// # Cancellation
    /// A *point*. Told, nothing listens.
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
    /// A *point*. A connection that was accepted all the same is returned, and
    /// the next point tells. If the future was dropped it is closed. What an
    /// `incoming` that is gone has accepted comes first.
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

    /// Where it listens.
    ///
    /// # Errors
    /// Those of the system.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        unix(&self.socket.local_addr()?)
    }
}

/// A connection between two on this machine. See [`TcpStream`](super::TcpStream)
/// for what several jobs may do with one, and what its drop does.
pub struct UnixStream {
    pub(super) socket: Socket,
}

impl UnixStream {
    /// Connects to who listens at `path`.
    ///
    /// # Cancellation
    /// A *point*. Told, there is no connection.
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

    /// Two that are connected with each other.
    ///
    /// # Errors
    /// Those of the system, and outside every job.
    pub fn pair() -> io::Result<(UnixStream, UnixStream)> {
        let (one, two) = Socket::pair(Type::STREAM)?;
        Ok((UnixStream::new(one), UnixStream::new(two)))
    }

    /// Reads into `buf`, up to its room; how many bytes, 0 once the other side
    /// has ended its direction.
    ///
    /// # Cancellation
    /// A *point*. The buffer comes back either way; what was not read can be
    /// read later. If the future was dropped half-way, what was being read is
    /// gone with its buffer.
    #[track_caller]
    pub fn read<B: IoBufMut>(
        &self,
        buf: B,
    ) -> impl Future<Output = (io::Result<usize>, B)> + Send + use<B> {
        self.socket.recv(buf)
    }

    /// Fills all of `buf`.
    ///
    /// # Cancellation
    /// A *point*. Told half-way, part of the buffer was read.
    ///
    /// # Errors
    /// `UnexpectedEof` if the other side ends before.
    pub async fn read_exact<B: IoBufMut>(&self, buf: B) -> (io::Result<()>, B) {
        self.socket.recv_exact(buf).await
    }

    /// Writes what is in `buf`; how many bytes were written, which may be fewer.
    ///
    /// # Cancellation
    /// A *point*. The buffer comes back either way. If the future was dropped
    /// half-way, nobody knows how much was written.
    #[track_caller]
    pub fn write<B: IoBuf>(
        &self,
        buf: B,
    ) -> impl Future<Output = (io::Result<usize>, B)> + Send + use<B> {
        self.socket.send(buf)
    }

    /// Writes all of `buf`.
    ///
    /// # Cancellation
    /// A *point*. Told half-way, part of it was written.
    ///
    /// # Errors
    /// Those of the system.
    pub async fn write_all<B: IoBuf>(&self, buf: B) -> (io::Result<()>, B) {
        self.socket.send_all(buf).await
    }

    /// As [`write`](UnixStream::write), from several buffers in a row.
    ///
    /// # Cancellation
    /// A *point*; see [`write`](UnixStream::write).
    #[track_caller]
    pub fn write_vectored<B: IoBuf>(
        &self,
        bufs: Vec<B>,
    ) -> impl Future<Output = (io::Result<usize>, Vec<B>)> + Send + use<B> {
        self.socket.send_vectored(bufs)
    }

    /// Ends one direction, or both: the other side reads to the end, and then 0
    /// bytes. Reads and writes under way end too.
    ///
    /// # Cancellation
    /// A *point*. Told, nothing has ended.
    #[track_caller]
    pub fn shutdown(&self, how: Shutdown) -> impl Future<Output = io::Result<()>> + Send + use<> {
        self.socket.shutdown(how)
    }

    /// The address of this side.
    ///
    /// # Errors
    /// Those of the system.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        unix(&self.socket.local_addr()?)
    }

    /// The address of the other side.
    ///
    /// # Errors
    /// Those of the system.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        unix(&self.socket.peer_addr()?)
    }
}

/// Messages between two on this machine: whole, in order, and not lost.
pub struct UnixDatagram {
    socket: Socket,
}

impl UnixDatagram {
    /// A socket at `path`.
    ///
    /// # Cancellation
    /// A *point*. Told, there is no socket.
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

    /// A socket that has no address: it can send, and nobody can answer.
    ///
    /// # Errors
    /// Those of the system, and outside every job.
    pub fn unbound() -> io::Result<UnixDatagram> {
        let socket = Socket::make(Domain::UNIX, Type::DGRAM)?;
        Ok(UnixDatagram::new(socket))
    }

    /// Two that are connected with each other.
    ///
    /// # Errors
    /// Those of the system, and outside every job.
    pub fn pair() -> io::Result<(UnixDatagram, UnixDatagram)> {
        let (one, two) = Socket::pair(Type::DGRAM)?;
        Ok((UnixDatagram::new(one), UnixDatagram::new(two)))
    }

    /// From now on [`send`](UnixDatagram::send) goes there, and only what comes
    /// from there is received.
    ///
    /// # Cancellation
    /// A *point*. Told, it is as before.
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

    /// Sends `buf` as a message to who is at `path`; how many bytes.
    ///
    /// # Cancellation
    /// A *point*. Told, nothing was sent. The buffer comes back either way.
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

    /// Receives a message into `buf`: how many bytes, and from whom.
    ///
    /// # Cancellation
    /// A *point*. Told, no message was taken. The buffer comes back either way.
    #[track_caller]
    pub fn recv_from<B: IoBufMut>(
        &self,
        buf: B,
    ) -> impl Future<Output = (io::Result<(usize, SocketAddr)>, B)> + Send + use<B> {
        let receive = self.socket.recv_from(buf);
        async move {
            let (received, buf) = receive.await;
            let received = received.and_then(|(bytes, addr)| Ok((bytes, unix(&addr)?)));
            (received, buf)
        }
    }

    /// Sends `buf` as a message to whom it is [connected](UnixDatagram::connect).
    ///
    /// # Cancellation
    /// A *point*. Told, nothing was sent. The buffer comes back either way.
    #[track_caller]
    pub fn send<B: IoBuf>(
        &self,
        buf: B,
    ) -> impl Future<Output = (io::Result<usize>, B)> + Send + use<B> {
        self.socket.send(buf)
    }

    /// Receives a message into `buf`; how many bytes.
    ///
    /// # Cancellation
    /// A *point*. Told, no message was taken. The buffer comes back either way.
    #[track_caller]
    pub fn recv<B: IoBufMut>(
        &self,
        buf: B,
    ) -> impl Future<Output = (io::Result<usize>, B)> + Send + use<B> {
        self.socket.recv(buf)
    }

    /// The address of this side.
    ///
    /// # Errors
    /// Those of the system.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        unix(&self.socket.local_addr()?)
    }
}

files!(
    UnixListener: net::UnixListener,
    UnixStream: net::UnixStream,
    UnixDatagram: net::UnixDatagram,
);
