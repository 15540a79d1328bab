//! [`Builder`]: the options of a runtime.

use std::any::Any;
use std::fmt;
use std::io;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use kinfolk_core::{
    Clock, Error, FailureHook, ForcedHook, Patience, Result, Sink, SystemClock, Tree, TreeOptions,
};
use kinfolk_signals::{MainSignals, Manner};

use crate::blocking::BlockingPool;
use crate::io::driver::Driver;
use crate::io::{ClockEvent, IN_FLIGHT, IoDriver, IoHandle, Real};
use crate::machine::{Machine, Native};
use crate::main_lane::Cause;
use crate::quiet::Quiet;
use crate::runtime::{Handle, Runtime};

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
    hook: Option<crate::WakeHook>,
    blocking: usize,
    io: IoDriver,
    in_flight: usize,
    wrap_io: Option<WrapDriver>,
    /// The line that asked for signals.
    listen: Option<&'static Location<'static>>,
    pub(crate) watch: Option<Watching>,
    manner: Manner,
}

/// Begins to wait for a signal that asks the runtime to show its jobs, and goes on until the
/// returned value is dropped.
pub(crate) type Watching = Box<dyn FnOnce(&Handle) -> io::Result<Box<dyn Any>>>;

/// Wraps each driver when it is made.
type WrapDriver = Box<dyn Fn(Box<dyn Driver>) -> Box<dyn Driver> + Send + Sync>;

impl Builder {
    pub(crate) fn new() -> Builder {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Builder {
            options: TreeOptions::default(),
            clock: Arc::new(SystemClock),
            workers: processors.saturating_sub(1).max(1),
            name: "kinfolk".into(),
            hook: None,
            blocking: BLOCKING,
            io: IoDriver::default(),
            in_flight: IN_FLIGHT,
            wrap_io: None,
            listen: None,
            watch: None,
            manner: Manner::default(),
        }
    }

    /// Sets the number of worker threads. With zero the main thread runs the tasks of the pool
    /// too. The default is one less than there are processors, but at least one.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    /// Sets the name of the worker threads, which a number follows.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets how many blocking calls may run at once; further calls wait. Blocking calls of the
    /// runtime itself, such as looking up a host name, have threads of their own. The default
    /// is 64; at least one.
    pub fn blocking_threads(mut self, most: usize) -> Self {
        self.blocking = most.max(1);
        self
    }

    /// Chooses the i/o driver; the default is io_uring where that works, else readiness. If the
    /// chosen driver does not work here, the first operation returns an error.
    pub fn io(mut self, driver: IoDriver) -> Self {
        self.io = driver;
        self
    }

    /// Sets how many i/o operations each worker may have in flight; further operations wait, and
    /// can be cancelled while they wait. The default is 16,384; at least one.
    ///
    /// Only operations that end by themselves count, such as the read of a file. Operations
    /// that wait for another side do not: accept, connect, receive, send, reads and writes of a
    /// pipe, opening a file (which may be a FIFO), waiting for readiness. Their number is not
    /// limited; each costs a few hundred bytes here and in the kernel.
    pub fn io_in_flight(mut self, most: usize) -> Self {
        self.in_flight = most.max(1);
        self
    }

    /// Wraps every i/o driver when it is made, to count, check or break its operations: for
    /// tests.
    pub fn wrap_io(
        mut self,
        wrap: impl Fn(Box<dyn Driver>) -> Box<dyn Driver> + Send + Sync + 'static,
    ) -> Self {
        self.wrap_io = Some(Box::new(wrap));
        self
    }

    /// Sets whether the runtime handles Ctrl-C and SIGTERM, from [`build`](Builder::build) to its
    /// end. `false` by default; `#[kinfolk::main]` says `true`.
    ///
    /// The first signal shuts the runtime down, as
    /// [`Runtime::shutdown`](crate::Runtime::shutdown) does: every job is cancelled, with a
    /// reason that names the signal and the line of this call; after a second a report on
    /// standard error names the jobs that have not ended; after the [`grace`](Builder::grace)
    /// shields are lifted, and a second later the parked jobs are dropped. If the runtime has
    /// not ended a second after that (a poll or a blocking call does not return), a report names
    /// the jobs that are left, and the process exits with 128 plus the number of the signal. A
    /// second signal goes to the last step at once, a third aborts the process. A signal
    /// within 200 ms of the last one that counted does not count.
    ///
    /// A [`signal::Signals`](crate::signal::Signals) receives the same signals as well.
    #[track_caller]
    pub fn signals(mut self, hear: bool) -> Self {
        let site = Location::caller();
        self.listen = hear.then_some(site);
        self
    }

    /// Sets how long a shutdown waits before it lifts shields: after the first
    /// [signal](Builder::signals), in [`Runtime::run_main`], and when the runtime is
    /// dropped. A second later it drops the parked jobs. Ten seconds by default.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.manner.grace = grace;
        self
    }

    /// Sets whether the runtime keeps silent about [signals](Builder::signals) and about the
    /// jobs that delayed its shutdown. The error of [`Runtime::run_main`] is still printed, and
    /// so is what the hooks for failures and forced drops print.
    pub fn quiet(mut self, quiet: bool) -> Self {
        self.manner.quiet = quiet;
        self
    }

    /// Sets whether [`Runtime::run_main`] returns the exit code 128 plus the number of the signal
    /// after every signal, however main has ended. `false` by default.
    pub fn exit_by_signal(mut self, always: bool) -> Self {
        self.manner.exit_by_signal = always;
        self
    }

    /// Sets the clock; the default is the system's.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the sink for events.
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

    /// Sets how long a cancelled job may stay idle before it is dropped.
    pub fn patience(mut self, patience: Patience) -> Self {
        self.options.patience = patience;
        self
    }

    /// Sets a hook that is called when the main lane has work while the main thread is not
    /// running it: a host loop then calls [`Runtime::pump`]. The hook is called on any thread,
    /// and should only wake the host loop. With no workers it is not called for the end of an
    /// operation: see [`Pumped::under_way`](kinfolk_core::Pumped::under_way).
    pub fn on_wake(mut self, hook: impl Fn(Cause) + Send + Sync + 'static) -> Self {
        self.hook = Some(Box::new(hook));
        self
    }

    /// Builds the runtime. The calling thread becomes its main thread.
    ///
    /// # Errors
    /// If the system starts no more threads, if 4,095 roots live in the process, and if
    /// [signals](Builder::signals) or [SIGUSR1](Builder::dump_on_usr1) cannot be caught.
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
        let mut runtime = Runtime::unmanned(tree, machine, self.manner);
        for n in 0..self.workers {
            runtime.start_worker(n, &self.name).map_err(|error| {
                Error::msg(format!(
                    "worker {n} of {} could not be started: {error}: ask for fewer workers",
                    self.workers
                ))
            })?;
        }
        if let Some(site) = self.listen {
            let handle = runtime.handle().clone();
            let tree = handle.tree().clone();
            let real_grace = Box::new(move |grace| handle.real_grace(grace));
            let Manner { grace, quiet, .. } = self.manner;
            let heard = MainSignals::listen(tree, site, grace, quiet, real_grace);
            runtime.hear(heard.map_err(|error| {
                Error::msg(format!(
                    "cannot install handlers for SIGINT and SIGTERM: {error}"
                ))
            })?);
        }
        if let Some(watch) = self.watch {
            let watched = watch(runtime.handle());
            runtime.keep(
                watched.map_err(|error| Error::msg(format!("SIGUSR1 cannot be heard: {error}")))?,
            );
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
