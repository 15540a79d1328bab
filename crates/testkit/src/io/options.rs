//! [`SimIo`]: what a simulated kernel is made with.

use std::time::Duration;

use kinfolk_runtime::io::IN_FLIGHT;

use super::faults::{Fault, FaultOwner, Faults, OpKind};
use super::power_cut::SavedDisk;

/// What a simulated kernel is made with: `Sim::builder(7).io(SimIo::rough())`.
///
/// By default nothing goes wrong and operations take no time; in which order
/// they are over comes from the seed all the same.
///
/// ```
/// use kinfolk_runtime::{fs::File, io};
/// use kinfolk_testkit::{Sim, io::{Fault, OpKind, SimIo}};
///
/// let fault_plan = SimIo::rough().fault(OpKind::Write, 1, Fault::NoSpace);
/// let mut sim = Sim::builder(7).io(fault_plan).build();
/// sim.io().put("/etc/motd", "hello");
/// sim.run(async {
///     let motd = File::open("/etc/motd").await?;
///     let (read, buf) = motd.read_exact_at(vec![0; 5], 0).await;
///     read?;
///     assert_eq!(buf, b"hello");
///     let log = File::create("/tmp/log").await?;
///     let (written, _) = log.write_at("some words", 0).await;
///     assert_eq!(written.unwrap_err().kind(), std::io::ErrorKind::StorageFull);
///     Ok::<_, kinfolk_core::Error>(())
/// }).unwrap();
/// sim.finish(); // every operation is over, every file closed
/// ```
#[derive(Clone, Debug)]
#[must_use = "give it to `Sim::builder(seed).io(…)`"]
pub struct SimIo {
    pub(crate) faults: Faults,
    /// To which operations the next rates belong.
    whose: FaultOwner,
    pub(crate) in_flight: usize,
    /// None: an empty one.
    pub(crate) disk: Option<SavedDisk>,
}

impl SimIo {
    /// Nothing goes wrong.
    pub fn new() -> SimIo {
        SimIo {
            faults: Faults::default(),
            whose: FaultOwner::All,
            in_flight: IN_FLIGHT,
            disk: None,
        }
    }

    /// What every program must bear: short reads and writes, interrupts,
    /// operations that are late, cancels that come too late or are heard
    /// later. None of it is an error.
    pub fn rough() -> SimIo {
        let moment = Duration::from_millis(1);
        SimIo::new()
            .short_reads_and_writes(0.5)
            .interrupted(0.1)
            .late(0.3, moment)
            .cancels_too_late(0.3)
            .slow_cancels(0.3, moment)
    }

    fn rate(mut self, fault: Fault, rate: f64) -> Self {
        self.faults.set_rate(fault, self.whose, rate);
        self
    }

    fn only(mut self, whose: FaultOwner, set: impl FnOnce(SimIo) -> SimIo) -> Self {
        let before = std::mem::replace(&mut self.whose, whose);
        let mut set = set(self);
        set.whose = before;
        set
    }

    /// The rates that `set` sets are those of files and directories, and go before
    /// those of everything.
    ///
    /// ```
    /// use kinfolk_testkit::io::SimIo;
    /// use std::time::Duration;
    ///
    /// // A slow disk, and a good network.
    /// let moment = Duration::from_millis(5);
    /// let fault_plan = SimIo::rough()
    ///     .for_files(|files| files.late(1.0, moment).no_space(0.1))
    ///     .for_sockets(|sockets| sockets.late(0.0, moment));
    /// # drop(fault_plan);
    /// ```
    pub fn for_files(self, set: impl FnOnce(SimIo) -> SimIo) -> Self {
        self.only(FaultOwner::Files, set)
    }

    /// The rates that `set` sets are those of sockets and pipes, and go before those
    /// of everything.
    pub fn for_sockets(self, set: impl FnOnce(SimIo) -> SimIo) -> Self {
        self.only(FaultOwner::Sockets, set)
    }

    /// How often fewer bytes are moved than could be.
    ///
    /// # Panics
    /// As for the other rates, if it does not lie between 0 and 1.
    pub fn short_reads_and_writes(self, rate: f64) -> Self {
        self.rate(Fault::Short, rate)
    }

    /// How often a signal comes first. The program does not see it: the operation is begun
    /// again.
    pub fn interrupted(self, rate: f64) -> Self {
        self.rate(Fault::Interrupted, rate)
    }

    /// How often a pipe or a socket says: not now.
    pub fn would_block(self, rate: f64) -> Self {
        self.rate(Fault::WouldBlock, rate)
    }

    /// How often the disk is full: a write takes some of its bytes, and the next one
    /// fails; or it fails at once.
    pub fn no_space(self, rate: f64) -> Self {
        self.rate(Fault::NoSpace, rate)
    }

    /// How often a connection is gone for both sides. The other side may still read some
    /// of what was sent before, and is told then.
    pub fn resets(self, rate: f64) -> Self {
        self.rate(Fault::Reset, rate)
    }

    /// How often an operation on a file or a directory fails with `EIO`: reads, writes,
    /// syncs, and opening, renaming, removing, resizing and closing. Of a file whose sync
    /// or close fails so, what was not on the disk may never get there, though a later
    /// sync says it is fine: a program that goes on must write it again, or give the
    /// file up.
    pub fn broken(self, rate: f64) -> Self {
        self.rate(Fault::Broken, rate)
    }

    /// How often a connect is refused.
    pub fn refused(self, rate: f64) -> Self {
        self.rate(Fault::Refused, rate)
    }

    /// How often a connect is not answered: it fails after two minutes of the
    /// simulation's time.
    pub fn timed_out(self, rate: f64) -> Self {
        self.rate(Fault::TimedOut, rate)
    }

    /// How often a connection is gone before it was accepted: `accept` fails with
    /// `ConnectionAborted`, and can be asked again.
    pub fn aborted(self, rate: f64) -> Self {
        self.rate(Fault::Aborted, rate)
    }

    /// How often a UDP message is lost.
    pub fn lost(self, rate: f64) -> Self {
        self.rate(Fault::Lost, rate)
    }

    /// How often a UDP message arrives twice.
    pub fn doubled(self, rate: f64) -> Self {
        self.rate(Fault::Doubled, rate)
    }

    /// How often a UDP message arrives later than it could, and by how much at most:
    /// what is sent meanwhile arrives before it.
    pub fn overtaken(self, rate: f64, longest: Duration) -> Self {
        self.rate(Fault::Overtaken(longest), rate)
    }

    /// How often there are too many open files.
    pub fn too_many_files(self, rate: f64) -> Self {
        self.rate(Fault::TooManyFiles, rate)
    }

    /// How often the system does not even take a request.
    pub fn not_taken(self, rate: f64) -> Self {
        self.rate(Fault::NotTaken, rate)
    }

    /// How often an operation is over later than it could be, and by how much
    /// at most.
    pub fn late(self, rate: f64, longest: Duration) -> Self {
        self.rate(Fault::Late(longest), rate)
    }

    /// How often a file does not answer: the operation is over when it was cancelled.
    pub fn stuck(self, rate: f64) -> Self {
        self.rate(Fault::Stuck, rate)
    }

    /// How often a cancel comes too late, so that the operation succeeds.
    pub fn cancels_too_late(self, rate: f64) -> Self {
        self.rate(Fault::CancelTooLate, rate)
    }

    /// How often a cancel is heard only after a while, and how long at most.
    pub fn slow_cancels(self, rate: f64, longest: Duration) -> Self {
        self.rate(Fault::SlowCancel(longest), rate)
    }

    /// This happens to the `nth` operation of a kind, counted from 1. If there are not so many,
    /// [`Sim::finish`](crate::Sim::finish) panics.
    ///
    /// # Panics
    /// If `nth` is 0.
    pub fn fault(mut self, kind: OpKind, nth: u64, fault: Fault) -> Self {
        assert!(nth > 0, "operations are counted from 1");
        self.faults.script(kind, nth - 1, fault);
        self
    }

    /// How many operations the kernel is given at once; more wait. What waits for
    /// another side does not count.
    pub fn in_flight(mut self, most: usize) -> Self {
        self.in_flight = most;
        self
    }

    /// It begins with this disk: what [a power cut](super::SimKernel::power_cut)
    /// has left of another.
    pub fn on_disk(mut self, disk: SavedDisk) -> Self {
        self.disk = Some(disk);
        self
    }
}

impl Default for SimIo {
    fn default() -> Self {
        SimIo::new()
    }
}
