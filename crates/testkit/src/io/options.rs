//! [`SimIo`]: what a simulated kernel is made with.

use std::time::Duration;

use kinfolk_runtime::io::IN_FLIGHT;

use super::faults::{Fault, FaultOwner, Faults, OpKind};
use super::power_cut::SavedDisk;

/// The options of a simulated kernel: `Sim::builder(7).io(SimIo::rough())`.
///
/// By default there are no faults and operations take no time; the order in
/// which they complete comes from the seed.
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
    /// The operations to which the next rates apply.
    whose: FaultOwner,
    pub(crate) in_flight: usize,
    /// None: an empty disk.
    pub(crate) disk: Option<SavedDisk>,
}

impl SimIo {
    /// A kernel without faults.
    pub fn new() -> SimIo {
        SimIo {
            faults: Faults::default(),
            whose: FaultOwner::All,
            in_flight: IN_FLIGHT,
            disk: None,
        }
    }

    /// Faults that every program must cope with: short reads and writes,
    /// interrupts, operations that are late, cancels that come too late or take
    /// effect later. None of them is an error.
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

    /// The rates that `set` sets apply to files and directories, and take
    /// precedence over those for all operations.
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

    /// The rates that `set` sets apply to sockets and pipes, and take precedence
    /// over those for all operations.
    pub fn for_sockets(self, set: impl FnOnce(SimIo) -> SimIo) -> Self {
        self.only(FaultOwner::Sockets, set)
    }

    /// How often fewer bytes are moved than possible.
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

    /// How often a pipe or a socket answers `EAGAIN`.
    pub fn would_block(self, rate: f64) -> Self {
        self.rate(Fault::WouldBlock, rate)
    }

    /// How often the disk is full: a write takes some of its bytes, and the next one
    /// fails; or it fails at once.
    pub fn no_space(self, rate: f64) -> Self {
        self.rate(Fault::NoSpace, rate)
    }

    /// How often a connection is gone for both sides. The other side may still read some
    /// of the data sent before, and then gets the error.
    pub fn resets(self, rate: f64) -> Self {
        self.rate(Fault::Reset, rate)
    }

    /// How often an operation on a file or a directory fails with `EIO`: reads, writes,
    /// syncs, and opening, renaming, removing, resizing and closing. If a sync or close
    /// of a file fails so, data that was not on the disk may never reach it, though a
    /// later sync succeeds: a program that goes on must write the data again, or give the
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
    /// `ConnectionAborted`, and can be called again.
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

    /// How often a UDP message arrives later than possible, and by how much at most:
    /// messages sent meanwhile arrive before it.
    pub fn overtaken(self, rate: f64, longest: Duration) -> Self {
        self.rate(Fault::Overtaken(longest), rate)
    }

    /// How often there are too many open files.
    pub fn too_many_files(self, rate: f64) -> Self {
        self.rate(Fault::TooManyFiles, rate)
    }

    /// How often the system does not accept a request.
    pub fn not_taken(self, rate: f64) -> Self {
        self.rate(Fault::NotTaken, rate)
    }

    /// How often an operation completes later than possible, and by how much at
    /// most.
    pub fn late(self, rate: f64, longest: Duration) -> Self {
        self.rate(Fault::Late(longest), rate)
    }

    /// How often a file does not answer: the operation completes when it is
    /// cancelled.
    pub fn stuck(self, rate: f64) -> Self {
        self.rate(Fault::Stuck, rate)
    }

    /// How often a cancel comes too late, so that the operation succeeds.
    pub fn cancels_too_late(self, rate: f64) -> Self {
        self.rate(Fault::CancelTooLate, rate)
    }

    /// How often a cancel takes effect only after a while, and after how long
    /// at most.
    pub fn slow_cancels(self, rate: f64, longest: Duration) -> Self {
        self.rate(Fault::SlowCancel(longest), rate)
    }

    /// Makes `fault` happen to the `nth` operation of a kind, counted from 1. If there are not
    /// so many, [`Sim::finish`](crate::Sim::finish) panics.
    ///
    /// # Panics
    /// If `nth` is 0.
    pub fn fault(mut self, kind: OpKind, nth: u64, fault: Fault) -> Self {
        assert!(nth > 0, "operations are counted from 1");
        self.faults.script(kind, nth - 1, fault);
        self
    }

    /// How many operations the kernel carries out at once; more wait. Operations
    /// that wait for another side do not count.
    pub fn in_flight(mut self, most: usize) -> Self {
        self.in_flight = most;
        self
    }

    /// The kernel begins with this disk: the one that [a power
    /// cut](super::SimKernel::power_cut) has left of another.
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
