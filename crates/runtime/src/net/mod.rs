//! Sockets: TCP, UDP and Unix sockets.
//!
//! Each operation takes a buffer by value and returns it with its result, whether it
//! succeeds, fails or is cancelled. Methods take `&self`: several jobs may use a socket at
//! once, by reference or in an `Arc`.
//!
//! With the features `futures-io`, `tokio-io` and `hyper` a stream can be wrapped
//! in `Polled`, which implements their traits; with `stream` the connections of a
//! listener are a `Stream`.
//!
//! Time limits are scopes: `timeout(limit, TcpStream::connect(addr))`.

mod addr;
mod bind;
mod chunks;
mod datagram;
#[cfg(feature = "futures-io")]
#[path = "../../../adapters/src/futures_io.rs"]
mod futures_io;
#[cfg(feature = "hyper")]
#[path = "../../../adapters/src/hyper.rs"]
pub mod hyper;
mod incoming;
mod names;
#[cfg(any(feature = "futures-io", feature = "tokio-io", feature = "hyper"))]
#[path = "../../../adapters/src/polled.rs"]
mod polled;
mod socket;
mod stream;
mod tcp;
#[cfg(feature = "tokio-io")]
#[path = "../../../adapters/src/tokio_io.rs"]
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
