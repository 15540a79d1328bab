//! [`Builder`]: the options of a runtime.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kinfolk_core::{
    Clock, Error, FailureHook, ForcedHook, GRACE, Patience, Result, Sink, SystemClock, Tree,
    TreeOptions,
};

use crate::blocking::BlockingPool;
use crate::io::driver::Driver;
use crate::io::{ClockEvent, IN_FLIGHT, IoDriver, IoHandle, Real};
use crate::machine::{Machine, Native};
use crate::main_lane::Cause;
use crate::quiet::Quiet;
use crate::runtime::Runtime;

/// How many threads may be in blocking calls.
const BLOCKING: usize = 64;

/// How many threads may be in calls of drivers: with readiness, those on files.
const IO_CALLS: usize = 64;

/// How many threads may look up names.
const LOOK_UPS: usize = 64;

/// A runtime with options; see [`Runtime::builder`].
#[must_use = "call `build`"]
pub struct Builder {
    options: TreeOptions,
    clock: Arc<dyn Clock>,
    workers: usize,
    name: String,
    grace: Duration,
    hook: Option<crate::WakeHook>,
    blocking: usize,
    io: IoDriver,
    in_flight: usize,
    wrap_io: Option<WrapDriver>,
}

/// What every driver goes through when it is made.
type WrapDriver = Box<dyn Fn(Box<dyn Driver>) -> Box<dyn Driver> + Send + Sync>;

impl Builder {
    pub(crate) fn new() -> Builder {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Builder {
            options: TreeOptions::default(),
            clock: Arc::new(SystemClock),
            workers: processors.saturating_sub(1).max(1),
            name: "kinfolk".into(),
            grace: GRACE,
            hook: None,
            blocking: BLOCKING,
            io: IoDriver::default(),
            in_flight: IN_FLIGHT,
            wrap_io: None,
        }
    }

    /// How many worker threads. Zero is fine: the main thread then turns the
    /// pool too. By default one less than there are processors, one at least.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    /// What worker threads are called; a number follows.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// How many threads may be in blocking calls at a time; more calls wait. What the
    /// runtime itself has to block for, as for the name of a host, is not among them and
    /// does not wait for them.
    /// 64 by default, one at least.
    pub fn blocking_threads(mut self, most: usize) -> Self {
        self.blocking = most.max(1);
        self
    }

    /// Which driver carries out i/o; the best there is by default. If one is
    /// demanded that does not work here, the first operation says so.
    pub fn io(mut self, driver: IoDriver) -> Self {
        self.io = driver;
        self
    }

    /// How many operations each worker has with the system at a time; more wait
    /// their turn, and can be cancelled there. 16,384 by default, one at least.
    ///
    /// Those count that end by themselves, such as the read of a file. What waits
    /// for another side does not: to accept, connect, receive or send, to read or
    /// write a pipe, to open a file, which may be a FIFO, to wait until one is
    /// ready. There are as many of these as the program begins; each costs a few
    /// hundred bytes here and with the system.
    pub fn io_in_flight(mut self, most: usize) -> Self {
        self.in_flight = most.max(1);
        self
    }

    /// What every i/o driver goes through when it is made, to be counted,
    /// checked or broken: for tests.
    pub fn wrap_io(
        mut self,
        wrap: impl Fn(Box<dyn Driver>) -> Box<dyn Driver> + Send + Sync + 'static,
    ) -> Self {
        self.wrap_io = Some(Box::new(wrap));
        self
    }

    /// How long the drop of the runtime waits before it forces; ten seconds by
    /// default.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// The clock; the system's by default.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Where events go.
    pub fn sink(mut self, sink: Arc<dyn Sink>) -> Self {
        self.options.sink = Some(sink);
        self
    }

    /// Sets the hook that receives every failure that no caller takes.
    pub fn on_failure(mut self, hook: FailureHook) -> Self {
        self.options.failure_hook = Some(hook);
        self
    }

    /// Sets the hook that receives every job whose future is dropped before it is done.
    pub fn on_forced(mut self, hook: ForcedHook) -> Self {
        self.options.forced_hook = Some(hook);
        self
    }

    /// How long a cancelled job may stay idle.
    pub fn patience(mut self, patience: Patience) -> Self {
        self.options.patience = patience;
        self
    }

    /// Told that the main thread has something to do while it is not turning:
    /// for host loops, which then call [`Runtime::pump`]. Called on any
    /// thread; it only passes the word on. With no workers it is not called for the end
    /// of an operation: see [`Pumped::under_way`](kinfolk_core::Pumped::under_way).
    pub fn on_wake(mut self, hook: impl Fn(Cause) + Send + Sync + 'static) -> Self {
        self.hook = Some(Box::new(hook));
        self
    }

    /// The runtime. This thread is its main thread.
    ///
    /// # Errors
    /// If the system starts no more threads, and if 4,095 roots live in the process.
    #[track_caller]
    pub fn build(self) -> Result<Runtime> {
        let blocking = BlockingPool::new(self.blocking, format!("{}-blocking", self.name));
        let io_calls = BlockingPool::new(IO_CALLS, format!("{}-io", self.name));
        let look_ups = BlockingPool::new(LOOK_UPS, format!("{}-names", self.name));
        let (workers, clock, hook) = (self.workers, self.clock, self.hook);
        let machine = Machine::new(workers, clock, hook, blocking, io_calls, look_ups);
        let machine = Arc::new(machine);
        let told = Arc::downgrade(&machine);
        let (io, calls) = (self.io, machine.io_calls.clone());
        let wrap = self.wrap_io.unwrap_or_else(|| Box::new(|driver| driver));
        machine.set_io(IoHandle::new(
            self.workers.max(1),
            Box::new(move |threads| {
                let drivers = io.make(threads, &calls)?;
                Ok(drivers.into_iter().map(&wrap).collect())
            }),
            Box::new(Real),
            self.in_flight,
            Box::new(move |n| {
                if let Some(machine) = told.upgrade() {
                    machine.io_word(n);
                }
            }),
        ));
        if machine.busy.counts()
            && let Some(io) = machine.io()
        {
            let counted = Arc::downgrade(&machine);
            let quiet = Arc::new(Quiet::new(self.workers.max(1)));
            machine.set_quiet(quiet.clone());
            io.count_with(Box::new(move |step| match (step, counted.upgrade()) {
                (ClockEvent::Stirred, _) => quiet.stir(),
                (ClockEvent::Begun, Some(machine)) => machine.busy.add(1),
                (ClockEvent::Over, Some(machine)) => machine.rested(),
                (_, None) => {}
            }));
        }
        let seen = Arc::downgrade(&machine);
        machine.clock.on_change(Box::new(move || {
            let machine = seen.upgrade();
            if let Some(machine) = &machine {
                machine.clock_changed();
            }
            machine.is_some()
        }));
        let tree = Tree::try_new(Box::new(Native(machine.clone())), self.options)?;
        let mut runtime = Runtime::unmanned(tree, machine, self.grace);
        for n in 0..self.workers {
            runtime.start_worker(n, &self.name).map_err(|error| {
                Error::msg(format!(
                    "worker {n} of {} could not be started: {error}: ask for fewer workers",
                    self.workers
                ))
            })?;
        }
        Ok(runtime)
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("workers", &self.workers)
            .finish_non_exhaustive()
    }
}
