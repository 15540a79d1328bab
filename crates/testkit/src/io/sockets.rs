//! Sockets: who listens where, which connections wait to be accepted, and
//! messages.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use socket2::{Domain, Type};

use super::addr::Addr;
use super::disk::Errno;
use super::wires::Wire;

/// The number of a socket.
pub(crate) type SocketId = u64;

/// The first port that is given to a socket that asks for none.
const PORTS: u16 = 40_000;

/// How many messages wait at a socket; more are lost, as is the way of messages.
const MESSAGES: usize = 1024;

pub(crate) enum Stage {
    /// Made, and perhaps bound.
    Fresh,
    Listening {
        waiting: VecDeque<Pair>,
        most: usize,
    },
    Connected {
        input: Wire,
        output: Wire,
    },
    /// Messages: those that came, and to whom it is connected.
    Messages {
        inbox: VecDeque<(Addr, Vec<u8>)>,
        to: Option<Addr>,
    },
}

/// A connection that waits to be accepted, as its listener will see it.
pub(crate) struct Pair {
    pub(crate) input: Wire,
    pub(crate) output: Wire,
    pub(crate) local: Addr,
    pub(crate) peer: Addr,
}

pub(crate) struct Socket {
    pub(crate) domain: Domain,
    pub(crate) stage: Stage,
    pub(crate) local: Option<Addr>,
    pub(crate) peer: Option<Addr>,
}

/// All sockets.
#[derive(Default)]
pub(crate) struct Sockets {
    all: BTreeMap<SocketId, Socket>,
    next: SocketId,
    ports: u16,
}

impl Sockets {
    pub(crate) fn make(&mut self, domain: Domain, kind: Type) -> SocketId {
        let stage = match kind == Type::DGRAM {
            true => Stage::Messages {
                inbox: VecDeque::new(),
                to: None,
            },
            false => Stage::Fresh,
        };
        self.add(Socket {
            domain,
            stage,
            local: None,
            peer: None,
        })
    }

    pub(crate) fn add(&mut self, socket: Socket) -> SocketId {
        self.next += 1;
        self.all.insert(self.next, socket);
        self.next
    }

    pub(crate) fn get(&mut self, id: SocketId) -> &mut Socket {
        self.all.get_mut(&id).expect("an open socket is there")
    }

    pub(crate) fn remove(&mut self, id: SocketId) -> Option<Socket> {
        self.all.remove(&id)
    }

    /// The next port that nobody has.
    fn port(&mut self) -> u16 {
        loop {
            let port = PORTS + self.ports % (u16::MAX - PORTS);
            self.ports = self.ports.wrapping_add(1);
            let taken = self.all.values().any(
                |socket| matches!(socket.local, Some(Addr::Inet(addr)) if addr.port() == port),
            );
            if !taken {
                return port;
            }
        }
    }

    /// Gives a socket an address; the port is chosen if none is asked for.
    pub(crate) fn bind(&mut self, id: SocketId, addr: Addr) -> Result<(), Errno> {
        if self.get(id).local.is_some() {
            return Err(libc::EINVAL);
        }
        let addr = match addr {
            Addr::Inet(addr) if addr.port() == 0 => {
                Addr::Inet(SocketAddr::new(addr.ip(), self.port()))
            }
            addr => addr,
        };
        let messages = matches!(self.get(id).stage, Stage::Messages { .. });
        let taken = self.all.values().any(|other| {
            matches!(other.stage, Stage::Messages { .. }) == messages
                && !matches!(other.stage, Stage::Connected { .. })
                && other.local.as_ref().is_some_and(|own| own.takes(&addr))
        });
        if taken {
            return Err(libc::EADDRINUSE);
        }
        self.get(id).local = Some(addr);
        Ok(())
    }

    /// A socket that sends before it is bound gets an address.
    pub(crate) fn bind_any(&mut self, id: SocketId) -> Addr {
        if self.get(id).local.is_none() {
            let domain = self.get(id).domain;
            let addr = match domain {
                Domain::UNIX => Addr::Unix(Vec::new()),
                _ => {
                    let loopback = match domain == Domain::IPV6 {
                        true => SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], self.port())),
                        false => SocketAddr::from(([127, 0, 0, 1], self.port())),
                    };
                    Addr::Inet(loopback)
                }
            };
            self.get(id).local = Some(addr);
        }
        self.local(id)
    }

    pub(crate) fn local(&mut self, id: SocketId) -> Addr {
        let socket = self.get(id);
        let none = || Addr::none(socket.domain);
        socket.local.clone().unwrap_or_else(none)
    }

    /// Who listens at an address.
    pub(crate) fn listener(&self, to: &Addr) -> Option<SocketId> {
        let listens = |socket: &Socket| {
            matches!(socket.stage, Stage::Listening { .. })
                && socket.local.as_ref().is_some_and(|own| own.takes(to))
        };
        let mut found = self.all.iter().filter(|(_, socket)| listens(socket));
        found.next().map(|(id, _)| *id)
    }

    /// Who gets the messages to an address.
    fn receiver(&self, to: &Addr) -> Option<SocketId> {
        let gets = |socket: &Socket| {
            matches!(socket.stage, Stage::Messages { .. })
                && socket.local.as_ref().is_some_and(|own| own.takes(to))
        };
        let mut found = self.all.iter().filter(|(_, socket)| gets(socket));
        found.next().map(|(id, _)| *id)
    }

    /// A message on its way; to whom it came.
    pub(crate) fn send(
        &mut self,
        from: SocketId,
        to: Option<Addr>,
        bytes: Vec<u8>,
    ) -> Result<Option<SocketId>, Errno> {
        let Stage::Messages { to: connected, .. } = &self.get(from).stage else {
            return Err(libc::ENOTCONN);
        };
        let to = to.or_else(|| connected.clone()).ok_or(libc::EDESTADDRREQ)?;
        let source = self.bind_any(from);
        let Some(receiver) = self.receiver(&to) else {
            // To nobody: on the network it is lost, on this machine it is known.
            return match to {
                Addr::Inet(_) => Ok(None),
                Addr::Unix(_) => Err(libc::ECONNREFUSED),
            };
        };
        if let Stage::Messages { inbox, to } = &mut self.get(receiver).stage
            && inbox.len() < MESSAGES
            && to.as_ref().is_none_or(|peer| source.takes(peer))
        {
            inbox.push_back((source, bytes));
        }
        Ok(Some(receiver))
    }
}
