//! Faults, by rate and by script.

use std::time::Duration;

use kinfolk_runtime::io::Request;

use crate::rng::{Chance, Rng};

/// What can go wrong with an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// Fewer bytes than there are, or than there is room for; at least one.
    Short,
    /// `EINTR`: a signal came first. The operation is begun again without the
    /// program.
    Interrupted,
    /// `EAGAIN`: try again later.
    WouldBlock,
    /// `ENOSPC`: the disk is full. By rate, a part of the data may fit first.
    NoSpace,
    /// `EDQUOT`: the quota is used up. Comes by script only.
    OverQuota,
    /// `ECONNRESET`: the connection is gone, for both sides.
    Reset,
    /// `EMFILE`: there are too many open files.
    TooManyFiles,
    /// `ENOMEM`: the system did not accept the request.
    NotTaken,
    /// `EIO`: the device is broken. If a sync or close of a file fails so, data that
    /// was not on the disk may never reach it, though a later sync succeeds.
    Broken,
    /// `ECONNREFUSED`: nothing listens there.
    Refused,
    /// `ETIMEDOUT`: the other side did not answer. The simulation returns it after
    /// two minutes of its own time.
    TimedOut,
    /// `ECONNABORTED`: the connection that was to be accepted is gone.
    Aborted,
    /// A message is lost on its way, without an error. In a simulation only.
    Lost,
    /// A message arrives twice. In a simulation only.
    Doubled,
    /// A message arrives this much later, and others before it. In a simulation
    /// only.
    Overtaken(Duration),
    /// The operation completes this much later.
    Late(Duration),
    /// The device does not answer: the operation completes when it is cancelled, and
    /// not before.
    Stuck,
    /// A cancel comes too late: the operation succeeds nevertheless, if it can.
    CancelTooLate,
    /// A cancel takes effect only this much later.
    SlowCancel(Duration),
}

impl Fault {
    /// The error number of the fault.
    fn errno(self) -> Option<i32> {
        match self {
            Fault::Interrupted => Some(libc::EINTR),
            Fault::WouldBlock => Some(libc::EAGAIN),
            Fault::NoSpace => Some(libc::ENOSPC),
            Fault::OverQuota => Some(libc::EDQUOT),
            Fault::Reset => Some(libc::ECONNRESET),
            Fault::TooManyFiles => Some(libc::EMFILE),
            Fault::NotTaken => Some(libc::ENOMEM),
            Fault::Broken => Some(libc::EIO),
            Fault::Refused => Some(libc::ECONNREFUSED),
            Fault::TimedOut => Some(libc::ETIMEDOUT),
            Fault::Aborted => Some(libc::ECONNABORTED),
            Fault::Lost
            | Fault::Doubled
            | Fault::Overtaken(_)
            | Fault::Short
            | Fault::Late(_)
            | Fault::Stuck
            | Fault::CancelTooLate
            | Fault::SlowCancel(_) => None,
        }
    }

    /// True if a rate may apply the fault to an operation of that kind. A
    /// script may apply any fault to any operation.
    fn befalls(self, kind: OpKind, on: On) -> bool {
        use OpKind::{Accept, Close, Connect, Name, Open, Read, Resize, Sync, Write};
        match self {
            Fault::Short => {
                matches!(kind, Read | Write) && !matches!(on, On::Datagrams | On::LocalMessages)
            }
            Fault::Interrupted => matches!(kind, Read | Write | Accept | Open),
            Fault::WouldBlock => matches!(kind, Read | Write) && on != On::Disk,
            Fault::NoSpace | Fault::OverQuota => matches!(kind, Write | Resize) && on == On::Disk,
            Fault::Reset => matches!(kind, Read | Write) && on == On::Connection,
            Fault::TooManyFiles => matches!(kind, Open | Accept),
            Fault::NotTaken => kind != Close,
            Fault::Broken => {
                matches!(kind, Read | Write | Sync | Open | Close | Name | Resize) && on == On::Disk
            }
            Fault::Stuck => matches!(kind, Read | Write | Sync) && on == On::Disk,
            Fault::Refused | Fault::TimedOut => kind == Connect && on == On::Connection,
            Fault::Aborted => kind == Accept,
            Fault::Lost | Fault::Doubled | Fault::Overtaken(_) => {
                kind == Write && on == On::Datagrams
            }
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
    /// Syncs data to the disk (`fsync`).
    Sync,
    /// Accepts a connection.
    Accept,
    /// Connects.
    Connect,
    /// Makes, changes or removes the name of a file or a directory.
    Name,
    /// Changes the length of a file, or allocates room for it.
    Resize,
    /// Anything else.
    Other,
}

impl OpKind {
    /// Its name, as in messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            OpKind::Read => "Read",
            OpKind::Write => "Write",
            OpKind::Open => "Open",
            OpKind::Close => "Close",
            OpKind::Sync => "Sync",
            OpKind::Accept => "Accept",
            OpKind::Connect => "Connect",
            OpKind::Name => "Name",
            OpKind::Resize => "Resize",
            OpKind::Other => "Other",
        }
    }

    pub(crate) fn of(request: &Request) -> OpKind {
        match request {
            Request::Read(..)
            | Request::ReadVectored(..)
            | Request::Recv(..)
            | Request::RecvMany(..)
            | Request::RecvMsg(..) => OpKind::Read,
            Request::Write(..)
            | Request::WriteVectored(..)
            | Request::WriteThenSync(..)
            | Request::Send(..)
            | Request::SendMsg(..) => OpKind::Write,
            Request::Open(..) => OpKind::Open,
            Request::Close(..) => OpKind::Close,
            Request::Sync(..) | Request::SyncRange(..) => OpKind::Sync,
            Request::Accept(..) | Request::AcceptMany(..) => OpKind::Accept,
            Request::Connect(..) => OpKind::Connect,
            Request::Rename(..) | Request::Unlink(..) | Request::MakeDir(..) => OpKind::Name,
            Request::Allocate(..) => OpKind::Resize,
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
    /// Messages over a network.
    Datagrams,
    /// Messages within a machine, where none is lost.
    LocalMessages,
    Nothing,
}

/// The operations to which a rate applies.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum FaultOwner {
    #[default]
    All,
    /// Operations on files and directories.
    Files,
    /// Operations on sockets and pipes.
    Sockets,
}

impl On {
    fn whose(self) -> FaultOwner {
        match self {
            On::Disk => FaultOwner::Files,
            On::Pipe | On::Connection | On::Datagrams | On::LocalMessages => FaultOwner::Sockets,
            On::Nothing => FaultOwner::All,
        }
    }
}

/// What a request works on that names no open file.
pub(crate) fn on_path(request: &Request) -> On {
    match request {
        Request::Open(..)
        | Request::Stat(..)
        | Request::Rename(..)
        | Request::Unlink(..)
        | Request::MakeDir(..) => On::Disk,
        _ => On::Nothing,
    }
}

/// The faults of one operation.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Fate {
    pub(crate) short: bool,
    pub(crate) errno: Option<i32>,
    pub(crate) late: Duration,
    pub(crate) stuck: bool,
    /// The disk is full, after a part of the data or at once.
    pub(crate) full: bool,
    /// The next connection is gone.
    pub(crate) aborted: bool,
    pub(crate) lost: bool,
    pub(crate) doubled: bool,
    pub(crate) overtaken: Option<Duration>,
    pub(crate) cancel_too_late: bool,
    pub(crate) slow_cancel: Option<Duration>,
}

impl Fate {
    fn add(&mut self, fault: Fault, rng: &mut Rng, scripted: bool) {
        // A rate has a longest delay, a script the delay itself.
        let mut delay = |longest: Duration| match scripted {
            true => longest,
            false => part_of(longest, rng),
        };
        match fault {
            Fault::Short => self.short = true,
            Fault::Late(by) => self.late = delay(by),
            Fault::Stuck => (self.stuck, self.errno) = (true, None),
            Fault::CancelTooLate => self.cancel_too_late = true,
            Fault::SlowCancel(by) => self.slow_cancel = Some(delay(by)),
            Fault::NoSpace if !scripted => self.full = true,
            Fault::Aborted => self.aborted = true,
            Fault::Lost => self.lost = true,
            Fault::Doubled => self.doubled = true,
            Fault::Overtaken(by) => self.overtaken = Some(delay(by)),
            _ => self.errno = fault.errno(),
        }
    }
}

fn part_of(longest: Duration, rng: &mut Rng) -> Duration {
    let nanos = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(1 + rng.next_u64() % nanos.max(1))
}

#[derive(Clone, Debug)]
struct ScriptLine {
    kind: OpKind,
    /// How many operations of that kind come before.
    before: u64,
    fault: Fault,
    /// It is an error of the test if the fault never happens.
    must_come: bool,
}

/// Faults, by rate and by script.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    rates: Vec<(Fault, FaultOwner, Chance)>,
    /// There are rates for files or sockets alone.
    some_are_own: bool,
    script: Vec<ScriptLine>,
}

/// True for faults of one sort, whatever their delays are.
fn same_sort(one: Fault, other: Fault) -> bool {
    std::mem::discriminant(&one) == std::mem::discriminant(&other)
}

impl Faults {
    /// A rate for some operations takes precedence over one for all.
    pub(crate) fn set_rate(&mut self, fault: Fault, whose: FaultOwner, rate: f64) {
        assert!(
            (0.0..=1.0).contains(&rate),
            "a rate must lie between 0 and 1, not {rate}"
        );
        self.rates
            .retain(|(other, of, _)| !same_sort(*other, fault) || *of != whose);
        self.rates.push((fault, whose, Chance::new(rate)));
        self.some_are_own |= whose != FaultOwner::All;
    }

    pub(crate) fn script(&mut self, kind: OpKind, before: u64, fault: Fault) {
        self.script.push(ScriptLine {
            kind,
            before,
            fault,
            must_come: true,
        });
    }

    /// The fault happens to each of the next `count` operations of a kind; at least one of
    /// them must come.
    pub(crate) fn script_many(&mut self, kind: OpKind, count: u64, fault: Fault) {
        self.script.extend((0..count).map(|before| ScriptLine {
            kind,
            before,
            fault,
            must_come: before == 0,
        }));
    }

    /// The faults of the script that have not happened, in words.
    pub(crate) fn never_came(&self) -> Vec<String> {
        let late = self.script.iter().filter(|line| line.must_come);
        late.map(|line| {
            let (fault, kind, after) = (line.fault, line.kind, line.before);
            format!(
                "{fault:?} of a {kind:?}, for which {} more were needed",
                after + 1
            )
        })
        .collect()
    }

    /// True if those operations have a rate of their own. Called only if some have: else
    /// each operation would search all rates.
    fn has_own(&self, fault: Fault, whose: FaultOwner) -> bool {
        let own = |rate: &(Fault, FaultOwner, Chance)| same_sort(rate.0, fault) && rate.1 == whose;
        self.some_are_own && whose != FaultOwner::All && self.rates.iter().any(own)
    }

    /// The faults of the next operation of that kind.
    pub(crate) fn next(&mut self, kind: OpKind, on: On, rng: &mut Rng) -> Fate {
        let mut fate = Fate::default();
        for &(fault, whose, rate) in &self.rates {
            let counts = match whose {
                FaultOwner::All => !self.has_own(fault, on.whose()),
                whose => whose == on.whose(),
            };
            if counts && rng.hits(rate) && fault.befalls(kind, on) {
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
    fn what_a_script_says_and_never_comes_is_named() {
        let (mut faults, mut rng) = (Faults::default(), Rng::new(1));
        faults.script(OpKind::Write, 1, Fault::NoSpace);
        faults.script_many(OpKind::Read, 3, Fault::Broken);
        faults.next(OpKind::Write, On::Disk, &mut rng);
        assert_eq!(
            faults.never_came(),
            [
                "NoSpace of a Write, for which 1 more were needed",
                "Broken of a Read, for which 1 more were needed"
            ]
        );
        faults.next(OpKind::Write, On::Disk, &mut rng);
        faults.next(OpKind::Read, On::Disk, &mut rng);
        assert!(faults.never_came().is_empty(), "one of several is enough");
    }

    #[test]
    fn rates_hit_what_they_are_for() {
        let (mut faults, mut rng) = (Faults::default(), Rng::new(1));
        faults.set_rate(Fault::Reset, FaultOwner::All, 0.5);
        let hits = |faults: &mut Faults, rng: &mut Rng, on| {
            (0..1000)
                .filter(|_| faults.next(OpKind::Read, on, rng).errno.is_some())
                .count()
        };
        let hit = hits(&mut faults, &mut rng, On::Connection);
        assert!((400..600).contains(&hit), "{hit}");
        assert_eq!(hits(&mut faults, &mut rng, On::Pipe), 0);
        faults.set_rate(Fault::Reset, FaultOwner::All, 0.0);
        assert_eq!(hits(&mut faults, &mut rng, On::Connection), 0);
    }

    #[test]
    fn files_and_sockets_have_rates_of_their_own() {
        let (mut faults, mut rng) = (Faults::default(), Rng::new(1));
        let ms = Duration::from_millis;
        faults.set_rate(Fault::Late(ms(1)), FaultOwner::All, 1.0);
        faults.set_rate(Fault::Late(ms(9)), FaultOwner::Files, 0.0);
        faults.set_rate(Fault::NotTaken, FaultOwner::Sockets, 1.0);
        let mut next = |kind, on| {
            let fate = faults.next(kind, on, &mut rng);
            (fate.late > Duration::ZERO, fate.errno.is_some())
        };
        assert_eq!(next(OpKind::Read, On::Disk), (false, false));
        assert_eq!(next(OpKind::Read, On::Pipe), (true, true));
        assert_eq!(next(OpKind::Accept, On::Connection), (true, true));
        assert_eq!(next(OpKind::Other, On::Nothing), (true, false));
    }

    #[test]
    #[should_panic(expected = "must lie between 0 and 1")]
    fn a_rate_is_a_probability() {
        Faults::default().set_rate(Fault::Short, FaultOwner::All, 20.0);
    }
}
