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
        Ok(())
    }
}
