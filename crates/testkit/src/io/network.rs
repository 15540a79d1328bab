//! The network between addresses: its latencies and its cuts.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use kinfolk_core::{IntoOutcome, Local, Result};

use super::addr::Addr;

/// From one address to another.
pub(crate) type Path = (IpAddr, IpAddr);

/// How long a system tries to connect before it gives up, as Linux does.
pub(crate) const CONNECTING: Duration = Duration::from_secs(127);

/// After this time it tries again.
pub(crate) const AGAIN: Duration = Duration::from_secs(1);

/// The way between two addresses.
#[derive(Clone, Copy, Default)]
struct Way {
    latency: Duration,
    cut: bool,
}

/// All ways that have a latency or are cut, for each direction separately.
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

    /// How long data takes; none if the way is cut.
    pub(crate) fn delay(&self, path: Option<Path>) -> Option<Duration> {
        match path.and_then(|path| self.0.get(&path)) {
            None => Some(Duration::ZERO),
            Some(way) => (!way.cut).then_some(way.latency),
        }
    }

    /// How long it takes there and back; none if one of the ways is cut.
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

/// The address of a socket of this machine that does not say which one it has.
pub(crate) fn own_address(machine: Option<IpAddr>, v6: bool) -> IpAddr {
    match machine {
        Some(machine) if machine.is_ipv6() == v6 => machine,
        _ if v6 => IpAddr::V6(Ipv6Addr::LOCALHOST),
        _ => IpAddr::V4(Ipv4Addr::LOCALHOST),
    }
}

/// Runs a future as a machine with an address of its own, inside a simulation:
/// connections made by the future and its children come from that address, and their
/// listeners at every address (`0.0.0.0`) listen there. So a test has several
/// machines, for which [`SimKernel::partition`](super::SimKernel::partition) and
/// [`latency`](super::SimKernel::latency) change the ways between them.
///
/// The machines share the disk, and `127.0.0.1`.
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
/// The panics of the future.
pub fn machine_at<B>(
    address: IpAddr,
    future: B,
) -> impl Future<Output = Result<<B::Output as IntoOutcome>::Value>>
where
    B: Future<Output: IntoOutcome>,
{
    MACHINE.scope(address, future)
}
