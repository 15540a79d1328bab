//! Addresses of sockets.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;

use socket2::{Domain, SockAddr};

/// The address of a socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Addr {
    Inet(SocketAddr),
    /// A path, or a name that begins with a zero; empty if it has none.
    Unix(Vec<u8>),
}

impl Addr {
    pub(crate) fn from_system(addr: &SockAddr) -> Option<Addr> {
        if let Some(addr) = addr.as_socket() {
            return Some(Addr::Inet(addr));
        }
        if !addr.is_unix() {
            return None;
        }
        if let Some(name) = addr.as_abstract_namespace() {
            return Some(Addr::Unix([b"\0", name].concat()));
        }
        let path = addr.as_pathname().map(|path| path.as_os_str().as_bytes());
        Some(Addr::Unix(path.unwrap_or_default().to_vec()))
    }

    pub(crate) fn to_system(&self) -> SockAddr {
        match self {
            Addr::Inet(addr) => SockAddr::from(*addr),
            Addr::Unix(path) => SockAddr::unix(OsStr::from_bytes(path))
                .expect("it came from an address, and so it is short enough"),
        }
    }

    /// The address of a socket that has none.
    pub(crate) fn none(domain: Domain) -> Addr {
        if domain == Domain::UNIX {
            return Addr::Unix(Vec::new());
        }
        match domain == Domain::IPV6 {
            true => Addr::Inet(SocketAddr::from(([0_u16; 8], 0))),
            false => Addr::Inet(SocketAddr::from(([0_u8; 4], 0))),
        }
    }

    /// True if a message to `to` reaches a socket that has this address.
    pub(crate) fn takes(&self, to: &Addr) -> bool {
        match (self, to) {
            (Addr::Inet(own), Addr::Inet(to)) => {
                own.port() == to.port()
                    && (own.ip() == to.ip()
                        || own.ip().is_unspecified()
                        || to.ip().is_unspecified())
            }
            (own, to) => own == to,
        }
    }
}
