//! Sockets: TCP, UDP and Unix sockets.
//!
//! Each operation takes a buffer by value and returns it with its result, whether it
//! succeeds, fails or is cancelled. Methods take `&self`: several jobs may use a socket at
//! once, by reference or in an `Arc`.
//!
//! With the feature `stream` the connections of a listener are a `Stream`. What implements the
//! traits of futures-io, tokio and hyper stands in `kinfolk-adapters`, on `by_hand.rs`.
//!
//! Time limits are scopes: `timeout(limit, TcpStream::connect(addr))`.

mod addr;
mod bind;
#[doc(hidden)]
pub mod by_hand;
mod chunks;
mod datagram;
mod incoming;
mod names;
mod socket;
mod stream;
mod tcp;
mod udp;
mod unix;

pub use addr::ToSocketAddrs;
pub use chunks::Chunks;
pub use incoming::Incoming;
pub use names::lookup_host;
pub use std::net::Shutdown;
pub use tcp::{TcpListener, TcpStream};
pub use udp::UdpSocket;
pub use unix::{UnixDatagram, UnixListener, UnixStream};
