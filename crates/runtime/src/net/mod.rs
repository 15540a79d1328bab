//! Sockets: TCP, UDP, and those of this machine.
//!
//! A buffer is handed over with each operation and comes back with its result,
//! on success, on errors and on a cancel alike. Methods take `&self`: several
//! jobs may use a socket at once, by reference or in an `Arc`.
//!
//! With the features `futures-io`, `tokio-io` and `hyper` a stream can be wrapped
//! in `Polled`, which implements their traits; with `stream` the connections of a
//! listener are a `Stream`.
//!
//! A limit in time is that of the job: `timeout(limit, TcpStream::connect(addr))`.

mod addr;
mod bind;
mod chunks;
mod datagram;
#[cfg(feature = "futures-io")]
mod futures_io;
#[cfg(feature = "hyper")]
pub mod hyper;
mod incoming;
mod names;
#[cfg(any(feature = "futures-io", feature = "tokio-io", feature = "hyper"))]
mod polled;
mod socket;
mod stream;
mod tcp;
#[cfg(feature = "tokio-io")]
mod tokio_io;
mod udp;
mod unix;

pub use addr::ToSocketAddrs;
pub use chunks::Chunks;
pub use incoming::Incoming;
pub use names::lookup_host;
#[cfg(any(feature = "futures-io", feature = "tokio-io", feature = "hyper"))]
pub use polled::{Polled, Streaming};
pub use std::net::Shutdown;
pub use tcp::{TcpListener, TcpStream};
pub use udp::UdpSocket;
pub use unix::{UnixDatagram, UnixListener, UnixStream};
