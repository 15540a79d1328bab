//! TCP: listeners, and streams of bytes between two.

use std::io;
use std::net::SocketAddr;
use std::panic::Location;

use kinfolk_core::checkpoint;
use socket2::{SockAddr, Type};

use super::addr::{ToSocketAddrs, is_final, no_address};
use super::bind::first_of;
use super::socket::{Socket, entered, files, inet};
use crate::io::{Op, SocketOption, ops};

/// A listener that accepts TCP connections.
///
/// ```
/// use kinfolk_core::{Error, scope};
/// use kinfolk_runtime::Runtime;
/// use kinfolk_runtime::net::{TcpListener, TcpStream};
///
/// Runtime::new()?.block_on(scope(async |s| {
///     let listener = TcpListener::bind("127.0.0.1:0").await?;
///     let addr = listener.local_addr()?;
///     s.launch(async move {
///         let (stream, _peer) = listener.accept().await?;
///         let (read, buf) = stream.read(Vec::with_capacity(64)).await;
///         read?;
///         stream.write_all(buf).await.0?;
///         Ok::<_, Error>(())
///     });
///     let stream = TcpStream::connect(addr).await?;
///     stream.write_all("hello").await.0?;
///     let (read, buf) = stream.read_exact([0; 5]).await;
///     read?;
///     assert_eq!(&buf, b"hello");
///     Ok(())
/// }))?;
/// # Ok::<_, Error>(())
/// ```
pub struct TcpListener {
    pub(super) socket: Socket,
}

impl TcpListener {
    /// Listens at the first of the given addresses that is available. Port 0 means any free
    /// port; [`local_addr`](TcpListener::local_addr) returns it.
    ///
    /// The system may take some milliseconds to release the port of a process that was
    /// killed. So if no address is available and one is in use, `bind` tries again for a
    /// tenth of a second.
    ///
    /// # Cancellation
    /// A *point*. If it returns `Cancelled`, there is no listener.
    ///
    /// # Errors
    /// The error of the last address, if none is available.
    #[track_caller]
    pub fn bind<A: ToSocketAddrs>(
        addr: A,
    ) -> impl Future<Output = io::Result<TcpListener>> + Send + use<A> {
        let (addrs, point, site) = (addr.to_addrs(), checkpoint(), Location::caller());
        async move {
            entered(point).await?;
            let addrs = addrs.resolve(site).await?;
            first_of(site, &addrs, listen).await.map(TcpListener::new)
        }
    }

    /// Waits for a connection.
    ///
    /// # Cancellation
    /// A *point*. A connection that was accepted before the cancel took effect is returned,
    /// and the next point reports the cancel. If the future was dropped, the connection is
    /// closed. Connections that a dropped `incoming` has accepted come first.
    ///
    /// # Errors
    /// Errors of the system, after which `accept` can be called again; if the process has no
    /// file descriptors left (`EMFILE`), the connection waits until it has.
    #[track_caller]
    pub fn accept(
        &self,
    ) -> impl Future<Output = io::Result<(TcpStream, SocketAddr)>> + Send + use<> {
        let accept = self.socket.accept();
        async move {
            let (fd, addr) = accept.await?;
            let stream = TcpStream::new(Socket::new(fd));
            Ok((stream, inet(&addr)?))
        }
    }

    /// Returns the address at which it listens.
    ///
    /// # Errors
    /// Those of the system.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        inet(&self.socket.local_addr()?)
    }
}

fn listen(addr: &SockAddr) -> io::Result<Socket> {
    let socket = Socket::make(addr.domain(), Type::STREAM)?;
    // Connections of a server that is gone linger, and must not be in the way
    // of the next.
    socket.set(SocketOption::ReuseAddress(true))?;
    socket.bind(addr)?;
    socket.listen()?;
    Ok(socket)
}

/// A TCP connection.
///
/// Several jobs may read and write through `&TcpStream`. Each read gets bytes of its own, and
/// each write sends its bytes together; several reads or writes that belong together should
/// be made by one job.
///
/// A dropped stream is closed as soon as no operation uses it. Bytes that were written by
/// then still reach the other side, unless received bytes were left unread.
pub struct TcpStream {
    pub(super) socket: Socket,
}

impl TcpStream {
    /// Connects to the first of the given addresses that answers.
    ///
    /// # Cancellation
    /// A *point*. If it returns `Cancelled`, there is no connection, and no further address is
    /// tried.
    ///
    /// # Errors
    /// The error of the last address, if none answers.
    #[track_caller]
    pub fn connect<A: ToSocketAddrs>(
        addr: A,
    ) -> impl Future<Output = io::Result<TcpStream>> + Send + use<A> {
        let (addrs, site) = (addr.to_addrs(), Location::caller());
        async move {
            let mut last = no_address();
            for addr in addrs.resolve(site).await? {
                let attempt = ops::Connect::new(SockAddr::from(addr), Type::STREAM);
                match Op::new(None, attempt).at(site).await {
                    Ok(fd) => return Ok(TcpStream::new(Socket::new(fd))),
                    Err(error) if is_final(&error) => return Err(error),
                    Err(error) => last = error,
                }
            }
            Err(last)
        }
    }

    /// Sets `TCP_NODELAY`: sends small writes at once, without waiting for more.
    ///
    /// # Errors
    /// Those of the system.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.socket.set(SocketOption::NoDelay(nodelay))
    }
}

files!(TcpListener: std::net::TcpListener, TcpStream: std::net::TcpStream);
