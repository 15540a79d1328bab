//! Sockets: which of them listen and where, which connections wait to be
//! accepted, and messages.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use socket2::{Domain, Type};

use super::addr::Addr;
use super::disk::{Errno, Number};
use super::network::own_address;
use super::wires::WireId;

/// The number of a socket.
pub(crate) type SocketId = u64;

/// The first port for sockets that do not choose one.
const PORTS: u16 = 40_000;

/// How many messages wait at a socket; more are lost, as UDP allows.
const MESSAGES: usize = 1024;

/// How many messages wait within a machine; then a sender waits. As on Linux.
const LOCAL_MESSAGES: usize = 11;

/// The longest message over the network.
const LONGEST: usize = 65_507;

pub(crate) enum SocketStage {
    /// Made, and perhaps bound.
    Fresh,
    Listening {
        waiting: VecDeque<Pair>,
        most: usize,
    },
    Connected {
        input: WireId,
        output: WireId,
    },
    /// Messages: those that have come, and the peer, if connected.
    Messages {
        inbox: VecDeque<(Addr, Vec<u8>)>,
        to: Option<Addr>,
        /// The error that the next operation of its owner returns, once.
        error: Option<Errno>,
    },
}

/// The receiver of a message.
#[derive(Clone)]
pub(crate) enum Target {
    /// The socket that has this address.
    At(Addr),
    /// The socket that has this name on the disk.
    Named(Number),
}

/// A message on its way.
#[derive(Clone)]
pub(crate) struct Datagram {
    pub(crate) sender: SocketId,
    pub(crate) source: Addr,
    pub(crate) target: Target,
    pub(crate) bytes: Vec<u8>,
}

/// The result of sending a message.
pub(crate) enum Sent {
    To(SocketId),
    /// There is no room for it yet.
    Full(SocketId),
    ToNobody,
}

/// A connection that waits to be accepted, as its listener will see it.
pub(crate) struct Pair {
    pub(crate) input: WireId,
    pub(crate) output: WireId,
    pub(crate) local: Addr,
    pub(crate) peer: Addr,
}

pub(crate) struct SimSocket {
    pub(crate) domain: Domain,
    pub(crate) stage: SocketStage,
    pub(crate) local: Option<Addr>,
    pub(crate) peer: Option<Addr>,
    /// The socket's name on the disk.
    pub(crate) named: Option<Number>,
    /// The address of the socket's machine.
    pub(crate) machine: Option<IpAddr>,
}

/// All sockets.
#[derive(Default)]
pub(crate) struct Sockets {
    /// Each boxed: a node of the map would be some kilobytes long.
    all: BTreeMap<SocketId, Box<SimSocket>>,
    next: SocketId,
    ports: u16,
}

impl Sockets {
    pub(crate) fn make(&mut self, domain: Domain, kind: Type, machine: Option<IpAddr>) -> SocketId {
        let stage = match kind == Type::DGRAM {
            true => SocketStage::Messages {
                inbox: VecDeque::new(),
                to: None,
                error: None,
            },
            false => SocketStage::Fresh,
        };
        self.add(SimSocket {
            domain,
            stage,
            local: None,
            peer: None,
            named: None,
            machine,
        })
    }

    pub(crate) fn add(&mut self, socket: SimSocket) -> SocketId {
        self.next += 1;
        self.all.insert(self.next, Box::new(socket));
        self.next
    }

    pub(crate) fn get(&mut self, id: SocketId) -> &mut SimSocket {
        self.all.get_mut(&id).expect("an open socket is there")
    }

    pub(crate) fn remove(&mut self, id: SocketId) -> Option<SimSocket> {
        self.all.remove(&id).map(|socket| *socket)
    }

    /// The next free port.
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

    /// Gives a socket an address; the port is chosen if the address has none.
    pub(crate) fn bind(&mut self, id: SocketId, addr: Addr) -> Result<(), Errno> {
        if self.get(id).local.is_some() {
            return Err(libc::EINVAL);
        }
        let machine = self.get(id).machine;
        let addr = match (addr, machine) {
            // "Every address" is the one address of its machine.
            (Addr::Inet(addr), Some(machine)) if addr.ip().is_unspecified() => {
                let own = own_address(Some(machine), addr.is_ipv6());
                Addr::Inet(SocketAddr::new(own, addr.port()))
            }
            (addr, _) => addr,
        };
        let addr = match addr {
            Addr::Inet(addr) if addr.port() == 0 => {
                Addr::Inet(SocketAddr::new(addr.ip(), self.port()))
            }
            addr => addr,
        };
        let messages = matches!(self.get(id).stage, SocketStage::Messages { .. });
        let taken = self.all.values().any(|other| {
            matches!(other.stage, SocketStage::Messages { .. }) == messages
                && !matches!(other.stage, SocketStage::Connected { .. })
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
                    let own = own_address(self.get(id).machine, domain == Domain::IPV6);
                    Addr::Inet(SocketAddr::new(own, self.port()))
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

    /// The socket that listens under a name on the disk.
    pub(crate) fn listener_named(&self, name: Number) -> Option<SocketId> {
        let listens = |socket: &SimSocket| {
            matches!(socket.stage, SocketStage::Listening { .. }) && socket.named == Some(name)
        };
        let mut found = self.all.iter().filter(|(_, socket)| listens(socket));
        found.next().map(|(id, _)| *id)
    }

    /// The socket that listens at an address.
    pub(crate) fn listener(&self, to: &Addr) -> Option<SocketId> {
        let listens = |socket: &SimSocket| {
            matches!(socket.stage, SocketStage::Listening { .. })
                && socket.local.as_ref().is_some_and(|own| own.takes(to))
        };
        let mut found = self.all.iter().filter(|(_, socket)| listens(socket));
        found.next().map(|(id, _)| *id)
    }

    /// The socket that gets a message.
    pub(crate) fn receiver(&self, target: &Target) -> Option<SocketId> {
        let gets = |socket: &SimSocket| {
            let is_meant = match target {
                Target::At(to) => socket.local.as_ref().is_some_and(|own| own.takes(to)),
                Target::Named(name) => socket.named == Some(*name),
            };
            matches!(socket.stage, SocketStage::Messages { .. }) && is_meant
        };
        let mut found = self.all.iter().filter(|(_, socket)| gets(socket));
        found.next().map(|(id, _)| *id)
    }

    /// The error that the owner of a socket for messages has not got yet.
    pub(crate) fn take_error(&mut self, id: SocketId) -> Result<(), Errno> {
        match &mut self.get(id).stage {
            SocketStage::Messages { error, .. } => error.take().map_or(Ok(()), Err),
            _ => Ok(()),
        }
    }

    /// The receiver of a message that can be sent. `to` is none if the receiver is
    /// the peer to which the socket is connected.
    pub(crate) fn address(
        &mut self,
        sender: SocketId,
        to: Option<Target>,
        bytes: Vec<u8>,
    ) -> Result<Datagram, Errno> {
        self.take_error(sender)?;
        let socket = self.get(sender);
        let unix = socket.domain == Domain::UNIX;
        let SocketStage::Messages { to: connected, .. } = &socket.stage else {
            return Err(libc::ENOTCONN);
        };
        let none = if unix {
            libc::ENOTCONN
        } else {
            libc::EDESTADDRREQ
        };
        let connected = || connected.clone().map(Target::At);
        let target = to.or_else(connected).ok_or(none)?;
        if !unix && bytes.len() > LONGEST {
            return Err(libc::EMSGSIZE);
        }
        Ok(Datagram {
            sender,
            source: self.bind_any(sender),
            target,
            bytes,
        })
    }

    /// A message arrives.
    pub(crate) fn deliver(&mut self, message: &Datagram) -> Sent {
        let Some(receiver) = self.receiver(&message.target) else {
            return Sent::ToNobody;
        };
        let unix = self.get(receiver).domain == Domain::UNIX;
        if let SocketStage::Messages { inbox, to, .. } = &mut self.get(receiver).stage
            && to.as_ref().is_none_or(|peer| message.source.takes(peer))
        {
            if unix && inbox.len() >= LOCAL_MESSAGES {
                return Sent::Full(receiver);
            }
            if inbox.len() < MESSAGES {
                inbox.push_back((message.source.clone(), message.bytes.clone()));
            }
        }
        Sent::To(receiver)
    }

    /// A message over the network reached no socket. If the sender is connected to
    /// that address, its next operation returns the error.
    pub(crate) fn refused(&mut self, message: &Datagram) {
        if let Some(socket) = self.all.get_mut(&message.sender)
            && let SocketStage::Messages {
                to: Some(to),
                error,
                ..
            } = &mut socket.stage
            && let Target::At(target) = &message.target
            && to == target
        {
            *error = Some(libc::ECONNREFUSED);
        }
    }

    /// The peer of a socket within this machine is gone, and with it the messages
    /// that it sent.
    pub(crate) fn disconnect(&mut self, id: SocketId) {
        let socket = self.get(id);
        socket.peer = None;
        if let SocketStage::Messages { inbox, to, .. } = &mut socket.stage {
            *to = None;
            inbox.clear();
        }
    }
}
