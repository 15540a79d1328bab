//! Between addresses: how long the way is, and whether there is one.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use kinfolk_core::{IntoOutcome, Local, Result};

use super::addr::Addr;

/// From whom to whom.
pub(crate) type Path = (IpAddr, IpAddr);

/// How long a system tries to connect before it gives up, as Linux does.
pub(crate) const CONNECTING: Duration = Duration::from_secs(127);

/// After how long it tries again.
pub(crate) const AGAIN: Duration = Duration::from_secs(1);

/// The way between two addresses.
#[derive(Clone, Copy, Default)]
struct Way {
    latency: Duration,
    cut: bool,
}

/// All ways that are not short and open, each direction by itself.
#[derive(Default)]
pub(crate) struct Network(BTreeMap<Path, Way>);

/// The other direction.
pub(crate) fn back((from, to): Path) -> Path {
    (to, from)
}

/// The two ends of a way, if a network is between them.
pub(crate) fn path(from: &Addr, to: &Addr) -> Option<Path> {
    match (from, to) {
        (Addr::Inet(from), Addr::Inet(to)) => Some((from.ip(), to.ip())),
        _ => None,
    }
}

impl Network {
    pub(crate) fn set_latency(&mut self, path: Path, latency: Duration) {
        for path in [path, back(path)] {
            self.0.entry(path).or_default().latency = latency;
        }
    }

    pub(crate) fn cut(&mut self, path: Path, cut: bool) {
        self.0.entry(path).or_default().cut = cut;
    }

    /// How long something takes; none if nothing gets through.
    pub(crate) fn delay(&self, path: Option<Path>) -> Option<Duration> {
        match path.and_then(|path| self.0.get(&path)) {
            None => Some(Duration::ZERO),
            Some(way) => (!way.cut).then_some(way.latency),
        }
    }

    /// How long it takes there and back; none if nothing comes back.
    pub(crate) fn round(&self, path: Option<Path>) -> Option<Duration> {
        let back = self.delay(path.map(back))?;
        Some(self.delay(path)?.saturating_add(back))
    }
}

/// The address of the machine that the current job stands for.
static MACHINE: Local<IpAddr> = Local::new();

pub(crate) fn machine() -> Option<IpAddr> {
    MACHINE.get()
}

/// The address that a socket of this machine has, where it does not say which.
pub(crate) fn own_address(machine: Option<IpAddr>, v6: bool) -> IpAddr {
    match machine {
        Some(machine) if machine.is_ipv6() == v6 => machine,
        _ if v6 => IpAddr::V6(Ipv6Addr::LOCALHOST),
        _ => IpAddr::V4(Ipv4Addr::LOCALHOST),
    }
}

/// Runs a future as a machine with an address of its own, inside a simulation: what it
/// and its children connect to sees that address, and what they listen at everywhere
/// (`0.0.0.0`) is there. So a test has several machines, whose ways
/// [`SimKernel::partition`](super::SimKernel::partition) and
/// [`latency`](super::SimKernel::latency) name.
///
/// They share the disk, and `127.0.0.1`.
///
/// ```
/// use kinfolk_core::{Error, spawn};
/// use kinfolk_runtime::net::{TcpListener, TcpStream};
/// use kinfolk_testkit::{Sim, io::machine_at};
///
/// let mut sim = Sim::seeded(7);
/// sim.run(async {
///     let (server, client) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
///     let listener = machine_at(server, async {
///         Ok::<_, Error>(TcpListener::bind("0.0.0.0:80").await?)
///     }).await?;
///     let _stream = machine_at(client, async {
///         Ok::<_, Error>(TcpStream::connect("10.0.0.1:80").await?)
///     }).await?;
///     let (_stream, from) = listener.accept().await?;
///     assert_eq!(from.ip(), client);
///     Ok::<_, Error>(())
/// }).unwrap();
/// sim.finish();
/// ```
///
/// # Cancellation
/// As `kinfolk::scope`.
///
/// # Errors
/// Those of the future.
pub fn machine_at<B>(
    address: IpAddr,
    future: B,
) -> impl Future<Output = Result<<B::Output as IntoOutcome>::Value>>
where
    B: Future<Output: IntoOutcome>,
{
    MACHINE.scope(address, future)
}
