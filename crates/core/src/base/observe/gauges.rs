//! What there is to do now, as plain data. Counters say what happened; these
//! say what stands.

use std::fmt;
use std::time::Duration;

/// What stands in a tree and at its host, from
/// [`Tree::gauges`](crate::Tree::gauges). Exact when nothing moves meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gauges {
    /// Jobs that have not ended, the root included.
    pub living: u64,
    /// Tasks that are queued for a turn or being polled, the one that asks
    /// included; none if the host does not count them.
    pub runnable: Option<usize>,
    /// How long until the host's first timer is due, zero if it is: that of a
    /// sleep, of a deadline, or one of the library's own.
    pub next_deadline_in: Option<Duration>,
    /// The host's queues and how much is in them.
    pub queues: Vec<(&'static str, usize)>,
    /// Its operations; none if it carries out none.
    pub io: Option<IoGauges>,
}

/// The operations of a host, as its drivers see them. In flight and waiting are
/// what was submitted and is not over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoGauges {
    /// What the driver is called; none before the first operation.
    pub driver: Option<&'static str>,
    /// Operations that were begun. One that was refused, because its job was told
    /// to stop or there is no driver, was not.
    pub submitted: u64,
    /// Of these, those that are over, whatever came of them.
    pub completed: u64,
    /// Of these, those that were ended early.
    pub cancelled: u64,
    /// Those that the system has: it works on them, or they wait there for another
    /// side.
    pub in_flight: usize,
    /// Those that lie before the driver: it has no room for them yet.
    pub waiting: usize,
}

impl Gauges {
    /// How much is in the queue of that name.
    pub fn queue(&self, name: &str) -> Option<usize> {
        let named = self.queues.iter().find(|(queue, _)| *queue == name);
        named.map(|(_, length)| *length)
    }
}

impl fmt::Display for Gauges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} living", self.living)?;
        if let Some(runnable) = self.runnable {
            write!(f, ", {runnable} runnable")?;
        }
        if let Some(left) = self.next_deadline_in {
            write!(f, ", next deadline in {left:?}")?;
        }
        for (queue, length) in &self.queues {
            write!(f, ", {length} in {queue}")?;
        }
        if let Some(io) = self.io
            && let Some(driver) = io.driver
        {
            let (in_flight, waiting) = (io.in_flight, io.waiting);
            write!(f, ", {in_flight} with {driver}, {waiting} before it")?;
        }
        Ok(())
    }
}
