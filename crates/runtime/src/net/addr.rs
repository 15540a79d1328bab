//! Addresses, and the names of hosts that lead to some.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::panic::Location;

use super::names::look_up;
use crate::io::told;

/// What can be resolved to socket addresses: a socket address, an ip address and a port,
/// several addresses, or the name of a host and a port, `"localhost:80"`.
///
/// A name is looked up on a thread that is not part of the pool for blocking calls; a job
/// that is told while it waits for the look-up returns at once.
pub trait ToSocketAddrs: sealed::Sealed {}

impl<T: sealed::Sealed + ?Sized> ToSocketAddrs for T {}

/// Socket addresses, or the name of a host to look up.
pub enum Addrs {
    Known(Vec<SocketAddr>),
    /// A name and a port in one string.
    Named(String),
    /// A name, and a port.
    NamedWith(String, u16),
}

impl Addrs {
    /// The addresses, in the order in which they are tried.
    /// Snapshots and reports name `site`.
    pub(super) async fn resolve(
        self,
        site: &'static Location<'static>,
    ) -> io::Result<Vec<SocketAddr>> {
        match self {
            Addrs::Known(addrs) => Ok(addrs),
            Addrs::NamedWith(host, port) => look_up(site, host, port).await,
            Addrs::Named(both) => {
                let Some((host, port)) = both.rsplit_once(':') else {
                    return Err(invalid("invalid socket address"));
                };
                let port = port.parse().map_err(|_| invalid("invalid port value"))?;
                look_up(site, host.to_owned(), port).await
            }
        }
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

/// True for the errors after which another address is not tried.
pub(super) fn is_final(error: &io::Error) -> bool {
    told(error).is_some()
}

/// There was none to try.
pub(super) fn no_address() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "no address to try")
}

mod sealed {
    use super::Addrs;

    pub trait Sealed {
        fn to_addrs(&self) -> Addrs;
    }
}

use sealed::Sealed;

/// What is an address already.
macro_rules! known {
    ($($name:ty),* $(,)?) => {$(
        impl Sealed for $name {
            fn to_addrs(&self) -> Addrs {
                Addrs::Known(vec![SocketAddr::from(*self)])
            }
        }
    )*};
}

known!(
    SocketAddr,
    SocketAddrV4,
    SocketAddrV6,
    (IpAddr, u16),
    (Ipv4Addr, u16),
    (Ipv6Addr, u16),
);

impl Sealed for [SocketAddr] {
    fn to_addrs(&self) -> Addrs {
        Addrs::Known(self.to_vec())
    }
}

impl Sealed for str {
    fn to_addrs(&self) -> Addrs {
        match self.parse() {
            Ok(addr) => Addrs::Known(vec![addr]),
            Err(_) => Addrs::Named(self.to_owned()),
        }
    }
}

impl Sealed for String {
    fn to_addrs(&self) -> Addrs {
        (**self).to_addrs()
    }
}

impl Sealed for (&str, u16) {
    fn to_addrs(&self) -> Addrs {
        match self.0.parse() {
            Ok(ip) => Addrs::Known(vec![SocketAddr::new(ip, self.1)]),
            Err(_) => Addrs::NamedWith(self.0.to_owned(), self.1),
        }
    }
}

impl Sealed for (String, u16) {
    fn to_addrs(&self) -> Addrs {
        (&*self.0, self.1).to_addrs()
    }
}

impl<T: Sealed + ?Sized> Sealed for &T {
    fn to_addrs(&self) -> Addrs {
        (**self).to_addrs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(said: impl Sealed) -> Vec<SocketAddr> {
        match said.to_addrs() {
            Addrs::Known(addrs) => addrs,
            Addrs::Named(_) | Addrs::NamedWith(..) => panic!("it had to be looked up"),
        }
    }

    #[test]
    fn what_is_an_address_is_not_looked_up() {
        let addr: SocketAddr = "127.0.0.1:80".parse().expect("an address");
        assert_eq!(known(addr), [addr]);
        assert_eq!(known("127.0.0.1:80"), [addr]);
        assert_eq!(known(("127.0.0.1", 80)), [addr]);
        assert_eq!(known((Ipv4Addr::LOCALHOST, 80)), [addr]);
        assert_eq!(known(&[addr, addr][..]), [addr, addr]);
        assert_eq!(known(String::from("[::1]:9"))[0].port(), 9);
        assert!(matches!("localhost:80".to_addrs(), Addrs::Named(name) if name == "localhost:80"));
        assert!(matches!(
            ("localhost", 80).to_addrs(),
            Addrs::NamedWith(_, 80)
        ));
    }
}
