//! [`Socket`]: what all kinds of sockets have in common.

use std::fmt;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::SocketAddr as UnixAddr;
use std::panic::Location;

use socket2::{Domain, SockAddr, Type};

use crate::io::{
    BufferPool, Fd, IoBuf, IoBufMut, IoHandle, Op, Operation, SeriesKind, SeriesStream,
    SocketOption, ops,
};

/// How many connections may wait to be accepted; the system may allow fewer.
const BACKLOG: i32 = 4096;

/// A socket.
pub struct Socket {
    fd: Fd,
}

impl Socket {
    pub(super) fn new(fd: Fd) -> Socket {
        Socket { fd }
    }

    /// A socket of the handle of the job that asks.
    pub(super) fn make(domain: Domain, kind: Type) -> io::Result<Socket> {
        let handle = IoHandle::current()?;
        let raw = handle
            .system()
            .socket(domain, kind, None, handle.nonblocking()?)?;
        Ok(Socket::new(Fd::new(raw, handle)))
    }

    /// As above, at this address.
    pub(super) fn bound(kind: Type, addr: &SockAddr) -> io::Result<Socket> {
        let socket = Socket::make(addr.domain(), kind)?;
        socket.bind(addr)?;
        Ok(socket)
    }

    /// Two that are connected with each other.
    pub(super) fn pair(kind: Type) -> io::Result<(Socket, Socket)> {
        let handle = IoHandle::current()?;
        let (one, two) = handle.system().socket_pair(kind, handle.nonblocking()?)?;
        let one = Socket::new(Fd::new(one, handle.clone()));
        Ok((one, Socket::new(Fd::new(two, handle))))
    }

    /// One that comes from elsewhere.
    pub(super) fn adopt(file: impl Into<OwnedFd>) -> io::Result<Socket> {
        Ok(Socket::new(Fd::adopt(file.into())?))
    }

    /// It goes elsewhere.
    pub(super) fn into_std<T: From<OwnedFd>>(self) -> io::Result<T> {
        let fd = self.fd.clone();
        drop(self);
        let (raw, handle) = fd.into_raw().map_err(|_used| {
            io::Error::new(
                io::ErrorKind::ResourceBusy,
                "an operation on this socket is still under way, or data has arrived that was not received",
            )
        })?;
        if let Err(error) = handle.system().adopt(raw, false) {
            handle.system().close(raw);
            return Err(error);
        }
        // SAFETY: a file of the system, which has just said so, and ours alone.
        Ok(T::from(unsafe { OwnedFd::from_raw_fd(raw) }))
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        let handle = self.fd.handle();
        let raw = self.fd.raw();
        let adopted = handle
            .nonblocking()
            .and_then(|nonblocking| handle.system().adopt(raw, nonblocking));
        // It stays as it was; but a system that has no such files says so.
        if let Err(error) = adopted {
            panic!("this socket has no file descriptor: {error}");
        }
        // SAFETY: open as long as we are borrowed.
        unsafe { BorrowedFd::borrow_raw(raw) }
    }

    pub(super) fn bind(&self, addr: &SockAddr) -> io::Result<()> {
        self.fd.handle().system().bind(self.fd.raw(), addr)
    }

    pub(super) fn listen(&self) -> io::Result<()> {
        self.fd.handle().system().listen(self.fd.raw(), BACKLOG)
    }

    pub(super) fn set(&self, option: SocketOption) -> io::Result<()> {
        self.fd.handle().system().set_option(self.fd.raw(), option)
    }

    pub(super) fn local_addr(&self) -> io::Result<SockAddr> {
        self.fd.handle().system().local_addr(self.fd.raw())
    }

    pub(super) fn peer_addr(&self) -> io::Result<SockAddr> {
        self.fd.handle().system().peer_addr(self.fd.raw())
    }

    #[track_caller]
    fn op<T: Operation>(&self, operation: T) -> Op<T> {
        Op::new(Some(self.fd.handle().clone()), operation)
    }

    #[track_caller]
    pub(super) fn accept(&self) -> Op<ops::Accept> {
        self.op(ops::Accept::new(self.fd.clone()))
    }

    /// Its connections, one after the other.
    #[track_caller]
    pub(super) fn incoming(&self) -> SeriesStream {
        SeriesStream::new(self.fd.clone(), SeriesKind::Connections)
    }

    /// What is received, in buffers of a pool.
    #[track_caller]
    pub(super) fn chunks(&self, pool: &BufferPool) -> SeriesStream {
        SeriesStream::new(self.fd.clone(), SeriesKind::Bytes(pool.clone()))
    }

    #[track_caller]
    pub(super) fn connect(&self, addr: SockAddr) -> Op<ops::Connect> {
        self.op(ops::Connect::this(self.fd.clone(), addr))
    }

    #[track_caller]
    pub(super) fn recv<B: IoBufMut>(&self, buf: B) -> Op<ops::Recv<B>> {
        Op::new(None, ops::Recv::new(self.fd.clone(), buf))
    }

    #[track_caller]
    pub(super) fn send<B: IoBuf>(&self, buf: B) -> Op<ops::Send<B>> {
        Op::new(None, ops::Send::new(self.fd.clone(), buf))
    }

    /// As above; what does not fit at once is sent on by the driver, if it can.
    #[track_caller]
    pub(super) fn send_whole<B: IoBuf>(&self, buf: B) -> Op<ops::Send<B>> {
        Op::new(None, ops::Send::all(self.fd.clone(), buf))
    }

    #[track_caller]
    pub(super) fn send_vectored<B: IoBuf>(&self, bufs: Vec<B>) -> Op<ops::SendVectored<B>> {
        self.op(ops::SendVectored::new(self.fd.clone(), bufs))
    }

    /// And from whom, as `made_by` says it.
    #[track_caller]
    pub(super) fn recv_from<B: IoBufMut, A>(
        &self,
        buf: B,
        made_by: fn(&SockAddr) -> io::Result<A>,
    ) -> impl Future<Output = (io::Result<(usize, A)>, B)> + Send + use<B, A> {
        let receive = self.op(ops::RecvFrom::new(self.fd.clone(), buf));
        async move {
            let (received, buf) = receive.await;
            let received = received.and_then(|(bytes, addr)| Ok((bytes, made_by(&addr)?)));
            (received, buf)
        }
    }

    #[track_caller]
    pub(super) fn send_to<B: IoBuf>(&self, buf: B, addr: SockAddr) -> Op<ops::SendTo<B>> {
        self.op(ops::SendTo::new(self.fd.clone(), buf, addr))
    }

    #[track_caller]
    pub(super) fn shutdown(&self, how: Shutdown) -> Op<ops::ShutdownSocket> {
        self.op(ops::ShutdownSocket::new(self.fd.clone(), how))
    }

    /// Fills all of `buf`. Snapshots and reports name `site`.
    pub(super) async fn recv_exact<B: IoBufMut>(
        &self,
        site: &'static Location<'static>,
        buf: B,
    ) -> (io::Result<()>, B) {
        let (mut buf, mut done) = (buf, 0);
        let all = buf.room();
        while done < all {
            let (received, part) = self.recv(buf.slice(done..)).at(site).await;
            buf = part.into_inner();
            match received {
                Ok(0) => return (Err(io::ErrorKind::UnexpectedEof.into()), buf),
                Ok(bytes) => done += bytes,
                Err(error) => return (Err(error), buf),
            }
        }
        (Ok(()), buf)
    }

    /// Sends all of `buf`. Snapshots and reports name `site`.
    pub(super) async fn send_all<B: IoBuf>(
        &self,
        site: &'static Location<'static>,
        buf: B,
    ) -> (io::Result<()>, B) {
        let (mut buf, mut done) = (buf, 0);
        while done < buf.filled() {
            let (sent, part) = self.send_whole(buf.slice(done..)).at(site).await;
            buf = part.into_inner();
            match sent {
                Ok(0) => return (Err(io::ErrorKind::WriteZero.into()), buf),
                Ok(bytes) => done += bytes,
                Err(error) => return (Err(error), buf),
            }
        }
        (Ok(()), buf)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // The series keeps the file open until the system has let go of it.
        let queue = self.fd.known_series_queue();
        if queue.is_some_and(|queue| queue.is_accepting()) {
            self.fd.handle().system().stop_listening(self.fd.raw());
        }
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fd.fmt(f)
    }
}

/// An address of the internet.
pub(super) fn inet(addr: &SockAddr) -> io::Result<SocketAddr> {
    addr.as_socket().ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "the address of this socket is not an IP address",
        )
    })
}

/// An address of this machine; one without a name if the system says none.
pub(super) fn unix(addr: &SockAddr) -> io::Result<UnixAddr> {
    match addr.as_unix() {
        Some(addr) => Ok(addr),
        None => UnixAddr::from_pathname(""),
    }
}

/// The conversions that every kind of socket has.
macro_rules! files {
    ($($name:ident: $std:ty),* $(,)?) => {$(
        impl $name {
            fn new(socket: Socket) -> $name {
                $name { socket }
            }

            /// Converts the socket into the type of std, for other code, which may block on it.
            ///
            /// # Errors
            /// If an operation on the socket is under way, even one that no task awaits any
            /// more, and if a stream of it was dropped with data left to give. The socket
            /// is closed then. Also in a simulation, whose sockets are not files of this
            /// machine.
            pub fn into_std(self) -> std::io::Result<$std> {
                self.socket.into_std()
            }
        }

        impl TryFrom<$std> for $name {
            type Error = std::io::Error;

            /// Takes over a socket of other code, inside a job: its operations
            /// are carried out by the host of that job.
            fn try_from(socket: $std) -> std::io::Result<$name> {
                Socket::adopt(socket).map($name::new)
            }
        }

        impl TryFrom<std::os::fd::OwnedFd> for $name {
            type Error = std::io::Error;

            /// As from std's type. The kind of the socket is not checked: operations
            /// fail on a socket of another kind.
            fn try_from(file: std::os::fd::OwnedFd) -> std::io::Result<$name> {
                Socket::adopt(file).map($name::new)
            }
        }

        impl std::os::fd::AsFd for $name {
            /// # Panics
            /// In a simulation, whose sockets are not files of this machine.
            fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
                self.socket.as_fd()
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!(stringify!($name), "({:?})"), self.socket)
            }
        }
    )*};
}

pub(super) use files;

/// What is done at once is a point too: a job that is told does not begin it.
pub(super) async fn entered(point: kinfolk_core::Checkpoint) -> io::Result<()> {
    point.await.map_err(crate::io::cancelled)
}
