//! Sockets: TCP, UDP, and those of this machine.
//!
//! A buffer is handed over with each operation and comes back with its result,
//! on success, on errors and on a cancel alike. Methods take `&self`: several
//! jobs may use a socket at once, by reference or in an `Arc`.
//!
//! A limit in time is that of the job: `timeout(limit, TcpStream::connect(addr))`.

mod addr;
mod socket;
mod tcp;
mod udp;
mod unix;

pub use addr::ToSocketAddrs;
pub use std::net::Shutdown;
pub use tcp::{TcpListener, TcpStream};
pub use udp::UdpSocket;
pub use unix::{UnixDatagram, UnixListener, UnixStream};
