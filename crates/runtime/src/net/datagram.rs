//! What sockets for messages have in common, whatever their addresses are.

use std::io;
use std::net;
use std::os::unix::net as unix_net;

use super::socket::{inet, unix};
use super::{UdpSocket, UnixDatagram};
use crate::io::{IoBuf, IoBufMut};

/// For each kind of socket: what an address is, and what makes one of the system's.
macro_rules! datagrams {
    ($($name:ident: $addr:ty = $made_by:path),* $(,)?) => {$(
        impl $name {
            /// Receives a message into `buf` and returns how many bytes it has, and its sender.
            ///
            /// # Cancellation
            /// A *point*. If it returns `Cancelled`, no message was taken. The buffer comes
            /// back either way.
            #[track_caller]
            pub fn recv_from<B: IoBufMut>(
                &self,
                buf: B,
            ) -> impl Future<Output = (io::Result<(usize, $addr)>, B)> + Send + use<B> {
                self.socket.recv_from(buf, $made_by)
            }

            /// Sends `buf` as a message to the address to which it is
            /// [connected](Self::connect).
            ///
            /// # Cancellation
            /// A *point*. If it returns `Cancelled`, nothing was sent. The buffer comes back
            /// either way.
            #[track_caller]
            pub fn send<B: IoBuf>(
                &self,
                buf: B,
            ) -> impl Future<Output = (io::Result<usize>, B)> + Send + use<B> {
                self.socket.send(buf)
            }

            /// Receives a message into `buf` and returns how many bytes it has.
            ///
            /// # Cancellation
            /// A *point*. If it returns `Cancelled`, no message was taken. The buffer comes
            /// back either way.
            #[track_caller]
            pub fn recv<B: IoBufMut>(
                &self,
                buf: B,
            ) -> impl Future<Output = (io::Result<usize>, B)> + Send + use<B> {
                self.socket.recv(buf)
            }

            /// Returns the address of this side.
            ///
            /// # Errors
            /// Those of the system.
            pub fn local_addr(&self) -> io::Result<$addr> {
                $made_by(&self.socket.local_addr()?)
            }
        }
    )*};
}

datagrams!(UdpSocket: net::SocketAddr = inet, UnixDatagram: unix_net::SocketAddr = unix);
