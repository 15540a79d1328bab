//! What goes wrong, by rate and by script.

use std::time::Duration;

use kinfolk_runtime::io::Request;

use crate::rng::Rng;

/// What can go wrong with an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// Fewer bytes than there are, or than there is room for; one at least.
    Short,
    /// `EINTR`: a signal came first. The operation is begun again unseen.
    Interrupted,
    /// `EAGAIN`: not now.
    WouldBlock,
    /// `ENOSPC`: the disk is full.
    NoSpace,
    /// `ECONNRESET`: the connection is gone, for both sides.
    Reset,
    /// `EMFILE`: there are too many open files.
    TooManyFiles,
    /// `ENOMEM`: the system did not even take the request.
    NotTaken,
    /// `EIO`: the device is broken.
    Broken,
    /// It is over so much later.
    Late(Duration),
    /// A cancel comes too late: the operation succeeds all the same, if it can.
    CancelTooLate,
    /// A cancel is heard only so much later.
    SlowCancel(Duration),
}

impl Fault {
    /// The error that it is.
    fn errno(self) -> Option<i32> {
        match self {
            Fault::Interrupted => Some(libc::EINTR),
            Fault::WouldBlock => Some(libc::EAGAIN),
            Fault::NoSpace => Some(libc::ENOSPC),
            Fault::Reset => Some(libc::ECONNRESET),
            Fault::TooManyFiles => Some(libc::EMFILE),
            Fault::NotTaken => Some(libc::ENOMEM),
            Fault::Broken => Some(libc::EIO),
            Fault::Short | Fault::Late(_) | Fault::CancelTooLate | Fault::SlowCancel(_) => None,
        }
    }

    /// Whether chance may do this to an operation of that kind. A script may do
    /// anything to any.
    fn befalls(self, kind: OpKind, on: On) -> bool {
        use OpKind::{Accept, Open, Read, Write};
        match self {
            Fault::Short => matches!(kind, Read | Write) && on != On::Datagrams,
            Fault::Interrupted => matches!(kind, Read | Write | Accept | Open),
            Fault::WouldBlock => matches!(kind, Read | Write) && on != On::Disk,
            Fault::NoSpace => kind == Write && on == On::Disk,
            Fault::Reset => matches!(kind, Read | Write) && on == On::Connection,
            Fault::TooManyFiles => matches!(kind, Open | Accept),
            Fault::NotTaken => kind != OpKind::Close,
            Fault::Broken => matches!(kind, Read | Write | OpKind::Sync) && on == On::Disk,
            Fault::Late(_) | Fault::CancelTooLate | Fault::SlowCancel(_) => true,
        }
    }
}

/// What an operation does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum OpKind {
    /// Reads or receives.
    Read,
    /// Writes or sends.
    Write,
    /// Opens a file, or makes a pipe or a socket.
    Open,
    /// Closes a file.
    Close,
    /// Brings what was written to the disk.
    Sync,
    /// Accepts a connection.
    Accept,
    /// Connects.
    Connect,
    /// Anything else.
    Other,
}

impl OpKind {
    pub(crate) fn of(request: &Request) -> OpKind {
        match request {
            Request::Read { .. }
            | Request::ReadVectored { .. }
            | Request::Recv { .. }
            | Request::RecvMany { .. }
            | Request::RecvMsg { .. } => OpKind::Read,
            Request::Write { .. }
            | Request::WriteVectored { .. }
            | Request::WriteThenSync { .. }
            | Request::Send { .. }
            | Request::SendMsg { .. } => OpKind::Write,
            Request::Open { .. } => OpKind::Open,
            Request::Close { .. } => OpKind::Close,
            Request::Sync { .. } | Request::SyncRange { .. } => OpKind::Sync,
            Request::Accept { .. } | Request::AcceptMany { .. } => OpKind::Accept,
            Request::Connect { .. } => OpKind::Connect,
            _ => OpKind::Other,
        }
    }
}

/// What an operation works on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum On {
    Disk,
    Pipe,
    Connection,
    Datagrams,
    Nothing,
}

/// What will go wrong with one operation.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Fate {
    pub(crate) short: bool,
    pub(crate) errno: Option<i32>,
    pub(crate) late: Duration,
    pub(crate) cancel_too_late: bool,
    pub(crate) slow_cancel: Option<Duration>,
}

impl Fate {
    fn add(&mut self, fault: Fault, rng: &mut Rng, scripted: bool) {
        // Chance has a longest delay, a script the delay itself.
        let mut delay = |longest: Duration| match scripted {
            true => longest,
            false => part_of(longest, rng),
        };
        match fault {
            Fault::Short => self.short = true,
            Fault::Late(by) => self.late = delay(by),
            Fault::CancelTooLate => self.cancel_too_late = true,
            Fault::SlowCancel(by) => self.slow_cancel = Some(delay(by)),
            _ => self.errno = fault.errno(),
        }
    }
}

fn part_of(longest: Duration, rng: &mut Rng) -> Duration {
    let nanos = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(1 + rng.next_u64() % nanos.max(1))
}

#[derive(Clone, Debug)]
struct Line {
    kind: OpKind,
    /// How many of that kind go before.
    before: u64,
    fault: Fault,
}

/// What goes wrong, by rate and by script.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    rates: Vec<(Fault, f64)>,
    script: Vec<Line>,
}

impl Faults {
    pub(crate) fn set_rate(&mut self, fault: Fault, rate: f64) {
        assert!(
            (0.0..=1.0).contains(&rate),
            "a rate of {rate}: it lies between 0 and 1"
        );
        let same = std::mem::discriminant(&fault);
        self.rates
            .retain(|(other, _)| std::mem::discriminant(other) != same);
        self.rates.push((fault, rate));
    }

    pub(crate) fn script(&mut self, kind: OpKind, before: u64, fault: Fault) {
        self.script.push(Line {
            kind,
            before,
            fault,
        });
    }

    /// What will go wrong with the next operation of that kind.
    pub(crate) fn next(&mut self, kind: OpKind, on: On, rng: &mut Rng) -> Fate {
        let mut fate = Fate::default();
        for &(fault, rate) in &self.rates {
            if rng.chance(rate) && fault.befalls(kind, on) {
                fate.add(fault, rng, false);
            }
        }
        self.script.retain_mut(|line| {
            if line.kind != kind {
                return true;
            }
            if line.before > 0 {
                line.before -= 1;
                return true;
            }
            fate.add(line.fault, rng, true);
            false
        });
        fate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_counts_the_operations_of_its_kind() {
        let (mut faults, mut rng) = (Faults::default(), Rng::new(1));
        faults.script(OpKind::Write, 1, Fault::NoSpace);
        let mut next = |kind| faults.next(kind, On::Disk, &mut rng).errno;
        assert_eq!(next(OpKind::Write), None);
        assert_eq!(next(OpKind::Read), None);
        assert_eq!(next(OpKind::Write), Some(libc::ENOSPC));
        assert_eq!(next(OpKind::Write), None);
    }

    #[test]
    fn rates_hit_what_they_are_for() {
        let (mut faults, mut rng) = (Faults::default(), Rng::new(1));
        faults.set_rate(Fault::Reset, 0.5);
        let hits = |faults: &mut Faults, rng: &mut Rng, on| {
            (0..1000)
                .filter(|_| faults.next(OpKind::Read, on, rng).errno.is_some())
                .count()
        };
        let hit = hits(&mut faults, &mut rng, On::Connection);
        assert!((400..600).contains(&hit), "{hit}");
        assert_eq!(hits(&mut faults, &mut rng, On::Pipe), 0);
        faults.set_rate(Fault::Reset, 0.0);
        assert_eq!(hits(&mut faults, &mut rng, On::Connection), 0);
    }

    #[test]
    #[should_panic(expected = "it lies between 0 and 1")]
    fn a_rate_is_a_probability() {
        Faults::default().set_rate(Fault::Short, 20.0);
    }
}
