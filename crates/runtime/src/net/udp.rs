//! UDP: messages that may be lost.

use std::io;
use std::net::SocketAddr;
use std::panic::Location;

use kinfolk_core::checkpoint;
use socket2::{SockAddr, Type};

use super::addr::{ToSocketAddrs, is_final, no_address};
use super::bind::first_of;
use super::socket::{Socket, entered, files, inet};
use crate::io::{IoBuf, SocketOption};

/// A UDP socket.
///
/// A message is received whole or, if the buffer is too small, cut off: the rest
/// of it is lost, not kept for the next.
pub struct UdpSocket {
    pub(super) socket: Socket,
}

impl UdpSocket {
    /// A socket at an address: the first of those that can be had.
    ///
    /// # Cancellation
    /// A *point*. Told, there is no socket.
    ///
    /// # Errors
    /// That of the last address, if none can be had.
    #[track_caller]
    pub fn bind<A: ToSocketAddrs>(
        addr: A,
    ) -> impl Future<Output = io::Result<UdpSocket>> + Send + use<A> {
        let (addrs, point, site) = (addr.to_addrs(), checkpoint(), Location::caller());
        async move {
            entered(point).await?;
            let addrs = addrs.resolve(site).await?;
            let bound = |addr: &SockAddr| Socket::bound(Type::DGRAM, addr);
            first_of(site, &addrs, bound).await.map(UdpSocket::new)
        }
    }

    /// From now on [`send`](UdpSocket::send) goes there, and only what comes from
    /// there is received.
    ///
    /// # Cancellation
    /// A *point*. Told, it is as before.
    ///
    /// # Errors
    /// That of the last address, if none can be had.
    #[track_caller]
    pub fn connect<A: ToSocketAddrs>(
        &self,
        addr: A,
    ) -> impl Future<Output = io::Result<()>> + Send {
        let (site, addrs) = (Location::caller(), addr.to_addrs());
        async move {
            let mut last = no_address();
            for addr in addrs.resolve(site).await? {
                match self.socket.connect(addr.into()).at(site).await {
                    Ok(_) => return Ok(()),
                    Err(error) if is_final(&error) => return Err(error),
                    Err(error) => last = error,
                }
            }
            Err(last)
        }
    }

    /// Sends `buf` as a message to `addr`; how many bytes.
    ///
    /// # Cancellation
    /// A *point*. Told, nothing was sent. The buffer comes back either way.
    #[track_caller]
    pub fn send_to<B: IoBuf>(
        &self,
        buf: B,
        addr: SocketAddr,
    ) -> impl Future<Output = (io::Result<usize>, B)> + Send + use<B> {
        self.socket.send_to(buf, addr.into())
    }

    /// Messages may go to everybody.
    ///
    /// # Errors
    /// Those of the system.
    pub fn set_broadcast(&self, broadcast: bool) -> io::Result<()> {
        self.socket.set(SocketOption::Broadcast(broadcast))
    }

    /// Whom it is [connected](UdpSocket::connect) to.
    ///
    /// # Errors
    /// Those of the system.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        inet(&self.socket.peer_addr()?)
    }
}

files!(UdpSocket: std::net::UdpSocket);
