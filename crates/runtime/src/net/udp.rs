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
/// A message that is longer than the buffer is truncated: the rest is lost, not kept for the
/// next receive.
pub struct UdpSocket {
    pub(super) socket: Socket,
}

impl UdpSocket {
    /// Binds a socket to the first of the given addresses that is available.
    ///
    /// # Cancellation
    /// A *point*. If it returns `Cancelled`, there is no socket.
    ///
    /// # Errors
    /// The error of the last address, if none is available.
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

    /// Connects the socket: [`send`](UdpSocket::send) goes to this address, and only messages
    /// from it are received.
    ///
    /// # Cancellation
    /// A *point*. If it returns `Cancelled`, the socket is unchanged.
    ///
    /// # Errors
    /// The error of the last address, if none is available.
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

    /// Sends `buf` as a message to `addr`. Returns how many bytes were sent.
    ///
    /// # Cancellation
    /// A *point*. If it returns `Cancelled`, nothing was sent. The buffer comes back either way.
    #[track_caller]
    pub fn send_to<B: IoBuf>(
        &self,
        buf: B,
        addr: SocketAddr,
    ) -> impl Future<Output = (io::Result<usize>, B)> + Send + use<B> {
        self.socket.send_to(buf, addr.into())
    }

    /// Sets whether messages may be sent to broadcast addresses.
    ///
    /// # Errors
    /// Those of the system.
    pub fn set_broadcast(&self, broadcast: bool) -> io::Result<()> {
        self.socket.set(SocketOption::Broadcast(broadcast))
    }

    /// Returns the address that it is [connected](UdpSocket::connect) to.
    ///
    /// # Errors
    /// Those of the system.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        inet(&self.socket.peer_addr()?)
    }
}

files!(UdpSocket: std::net::UdpSocket);
