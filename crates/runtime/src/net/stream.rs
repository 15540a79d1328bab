//! What streams of bytes have in common, whatever their addresses are.

use std::io;
use std::net::{self, Shutdown};
use std::os::unix::net as unix_net;
use std::panic::Location;

use super::socket::{inet, unix};
use super::{Chunks, TcpStream, UnixStream};
use crate::io::{
    BufferPool, IoBuf, IoBufMut, ReadStream, Slice, StreamEnd, StreamRead, StreamWrite, WriteStream,
};

/// For each kind of stream: what an address is, and what makes one of the system's.
macro_rules! streams {
    ($($name:ident: $addr:ty = $made_by:path),* $(,)?) => {$(
        impl $name {
            /// Reads into `buf`, up to its capacity. Returns how many bytes were read: 0 once
            /// the other side has ended its direction.
            ///
            /// # Cancellation
            /// A *point*. The buffer comes back either way; bytes that were not read can be
            /// read later. If the future is dropped before it is over, bytes that are being
            /// read are lost with its buffer.
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
            /// A *point*. If it returns `Cancelled`, a part of the buffer may have been filled.
            ///
            /// # Errors
            /// `UnexpectedEof` if the other side ends before.
            #[track_caller]
            pub fn read_exact<B: IoBufMut>(
                &self,
                buf: B,
            ) -> impl Future<Output = (io::Result<()>, B)> + Send {
                self.socket.recv_exact(Location::caller(), buf)
            }

            /// Writes the bytes of `buf`. Returns how many were written, which may be fewer.
            ///
            /// # Cancellation
            /// A *point*. The buffer comes back either way. If the future was dropped
            /// half-way, it is not known how much was written.
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
            /// A *point*. If it returns `Cancelled`, a part of `buf` may have been written.
            ///
            /// # Errors
            /// Those of the system.
            #[track_caller]
            pub fn write_all<B: IoBuf>(
                &self,
                buf: B,
            ) -> impl Future<Output = (io::Result<()>, B)> + Send {
                self.socket.send_all(Location::caller(), buf)
            }

            /// As [`write`](Self::write), from several buffers in a row.
            ///
            /// # Cancellation
            /// A *point*; see [`write`](Self::write).
            #[track_caller]
            pub fn write_vectored<B: IoBuf>(
                &self,
                bufs: Vec<B>,
            ) -> impl Future<Output = (io::Result<usize>, Vec<B>)> + Send + use<B> {
                self.socket.send_vectored(bufs)
            }

            /// Shuts down one direction, or both: the other side reads what was sent, and then 0
            /// bytes. Reads and writes in flight end too.
            ///
            /// # Cancellation
            /// A *point*. If it returns `Cancelled`, nothing was shut down.
            #[track_caller]
            pub fn shutdown(
                &self,
                how: Shutdown,
            ) -> impl Future<Output = io::Result<()>> + Send + use<> {
                self.socket.shutdown(how)
            }

            /// Returns the received bytes as a stream of chunks, in buffers of `pool`.
            ///
            /// A read that is made at the same time takes a part of the bytes.
            #[track_caller]
            pub fn chunks(&self, pool: &BufferPool) -> Chunks {
                Chunks::new(self.socket.chunks(pool))
            }

            /// Returns the address of this side.
            ///
            /// # Errors
            /// Those of the system.
            pub fn local_addr(&self) -> io::Result<$addr> {
                $made_by(&self.socket.local_addr()?)
            }

            /// Returns the address of the other side.
            ///
            /// # Errors
            /// Those of the system.
            pub fn peer_addr(&self) -> io::Result<$addr> {
                $made_by(&self.socket.peer_addr()?)
            }
        }

        impl ReadStream for $name {
            #[track_caller]
            fn read_into(&self, buf: Vec<u8>) -> StreamRead {
                StreamRead::recv(self.socket.recv(buf))
            }
        }

        impl WriteStream for $name {
            #[track_caller]
            fn write_from(&self, buf: Slice<Vec<u8>>) -> StreamWrite {
                StreamWrite::send(self.socket.send_whole(buf))
            }

            #[track_caller]
            fn end(&self) -> StreamEnd {
                StreamEnd::shutdown(self.socket.shutdown(Shutdown::Write))
            }
        }
    )*};
}

streams!(TcpStream: net::SocketAddr = inet, UnixStream: unix_net::SocketAddr = unix);
