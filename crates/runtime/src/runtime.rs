//! [`Runtime`], which stays on its main thread, and [`Handle`], for other threads.

use std::any::Any;
use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::pin::{Pin, pin};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use kinfolk_core::host::say::{MOMENT, Topic, abort, flush, say};
use kinfolk_core::host::{RealGrace, contained, look_again};
use kinfolk_core::{
    CountersSnapshot, Error, FORCE, Gauges, IntoOutcome, OnMain, ReasonKind, Result, Scope,
    ShutdownReport, Task, Timer, TimerToken, Tree, TreeSnapshot,
};
use kinfolk_signals::{MainSignals, Manner};

use crate::builder::Builder;
use crate::here::{self, Here, ThisThread};
use crate::io::{self, ThreadIo};
use crate::machine::Machine;
use crate::main_lane::{Cause, MainLocal, MainWaker};
use crate::scheduler::worker::Worker;

/// How long shutdown waits for worker threads to return once every job has ended.
const HOME: Duration = Duration::from_millis(500);

/// How many workers have returned.
#[derive(Default)]
struct Exits {
    home: Mutex<usize>,
    came: Condvar,
}

/// Dropped by a worker at its end.
struct ExitCount(Arc<Exits>);

impl Drop for ExitCount {
    fn drop(&mut self) {
        *self.0.home.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.came.notify_all();
    }
}

/// The worker threads of one runtime.
#[derive(Default)]
struct WorkerThreads {
    threads: Vec<JoinHandle<()>>,
    exits: Arc<Exits>,
}

/// Wakes a thread that waits for a future.
struct UnparkMain(Thread);

impl Wake for UnparkMain {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The native runtime: worker threads, timers, i/o, and the main lane of the thread that built
/// it. A `Runtime` stays on that thread; other threads use a [`Handle`].
///
/// ```
/// # mod kinfolk { pub use {kinfolk_core::*, kinfolk_runtime::Runtime, kinfolk_runtime as runtime}; }
/// use kinfolk::Runtime;
///
/// let rt = Runtime::new()?;
/// let sum = rt.block_on(kinfolk::scope(async |s| {
///     let a = s.spawn(async { 20 });
///     let b = s.spawn(async { 22 });
///     Ok(a.await? + b.await?)
/// }))?;
/// assert_eq!(sum, 42);
/// # Ok::<_, kinfolk::Error>(())
/// ```
///
/// Dropping a runtime shuts it down, with a grace of ten seconds. A drop inside a job, of this
/// runtime or of another, cannot wait: every job of the runtime is cancelled at once, a thread
/// made for that carries out the other steps of the shutdown while the workers go on, and the
/// main lane no longer runs. With no workers no turn runs any more.
///
/// A process can have 4,095 runtimes and other roots at once; one more is an error.
///
/// # Panics in tasks
/// A panic in a task is caught and becomes the task's failure. Before that the program's panic
/// hook prints it, on the worker thread. The default hook blocks until standard error accepts
/// the message: if standard error is a pipe that no process reads, the worker blocks there,
/// and so do its tasks. Such a program should set a hook that does not block, with
/// [`std::panic::set_hook`].
pub struct Runtime {
    handle: Handle,
    pub(crate) own: Box<MainLocal>,
    workers: WorkerThreads,
    pub(crate) manner: Manner,
    hears: Option<MainSignals>,
    /// What lives as long as the runtime does.
    kept: Option<Box<dyn Any>>,
    turning: Cell<bool>,
    over: Cell<bool>,
    /// It stays where it was built.
    stays: PhantomData<*const ()>,
}

/// The main thread turns; leaving the scope it goes back to its host loop.
pub(crate) struct Turning<'a> {
    rt: &'a Runtime,
    /// Asks the host to pump if something is left.
    pub(crate) tells: bool,
    _here: here::EnteredThread,
    _thread_io: Option<io::ThreadIoGuard>,
}

impl Drop for Turning<'_> {
    fn drop(&mut self) {
        self.rt.turning.set(false);
        let machine = self.rt.machine();
        // A pump that unwinds comes by here.
        self.rt.turn_unwound();
        machine.main.leave(machine);
        // What came while we were turning has called no hook.
        if self.tells && self.rt.has_more() {
            machine.main.tell(machine, Cause::Task);
        }
    }
}

impl Runtime {
    /// Makes a runtime with the default options.
    ///
    /// # Errors
    /// As [`Builder::build`].
    #[track_caller]
    pub fn new() -> Result<Runtime> {
        Runtime::builder().build()
    }

    /// Begins a runtime with options.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// A runtime that has no workers yet. This thread is its main thread.
    pub(crate) fn unmanned(tree: Tree, machine: Arc<Machine>, manner: Manner) -> Runtime {
        Runtime {
            own: {
                let handle = machine.io().filter(|_| machine.workers.is_empty());
                let thread_io = handle.map(|handle| ThreadIo::new(handle.clone(), 0));
                Box::new(MainLocal::new(machine.main.load.clone(), thread_io))
            },
            workers: WorkerThreads::default(),
            handle: Handle { tree, machine },
            manner,
            hears: None,
            kept: None,
            turning: Cell::new(false),
            over: Cell::new(false),
            stays: PhantomData,
        }
    }

    pub(crate) fn start_worker(&mut self, n: usize, name: &str) -> std::io::Result<()> {
        let worker = Worker::new(self.machine().clone(), n);
        let exit = ExitCount(self.workers.exits.clone());
        let thread = std::thread::Builder::new()
            .name(format!("{name}-{n}"))
            .spawn(move || {
                let _exit = exit;
                // What it has in its queues and its driver would never be served,
                // and the process would hang.
                let abort = AbortOnUnwind("a worker panicked outside any job");
                worker.run();
                std::mem::forget(abort);
            })?;
        self.workers.threads.push(thread);
        Ok(())
    }

    /// Keeps what handles signals for the runtime.
    pub(crate) fn hear(&mut self, hears: MainSignals) {
        self.hears = Some(hears);
    }

    /// Keeps a value until the runtime is dropped.
    pub(crate) fn keep(&mut self, kept: Box<dyn Any>) {
        self.kept = Some(kept);
    }

    /// The first signal that the runtime has received.
    pub(crate) fn first_signal(&self) -> Option<i32> {
        self.hears.as_ref()?.first()
    }

    pub(crate) fn machine(&self) -> &Arc<Machine> {
        &self.handle.machine
    }

    /// Returns a handle for other threads.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Returns evidence that this is the main thread.
    pub fn on_main(&self) -> OnMain {
        self.handle
            .tree
            .on_main()
            .expect("a runtime stays on the thread that built it")
    }

    /// Begins to turn, or says why not.
    pub(crate) fn begin(&self, verb: &str) -> Result<Turning<'_>> {
        if kinfolk_core::current_job().is_some() || self.turning.get() {
            return Err(Error::msg(format!(
                "{verb} was called inside a job, whose thread it would block: await there instead, \
                 or hand the work to another lane with `on`"
            )));
        }
        if matches!(here::local(self.machine()), ThisThread::Worker(_)) {
            return Err(Error::msg(format!(
                "{verb} was called on a worker, which it would block"
            )));
        }
        // SAFETY: both live as long as `self`, which outlives the answer.
        let entered = unsafe {
            here::enter(Here::Main(
                Arc::as_ptr(self.machine()),
                &raw const *self.own,
            ))
        };
        // SAFETY: as above; a runtime stays on its thread.
        let thread_io = self
            .own
            .thread_io()
            .map(|thread_io| unsafe { thread_io.enter() });
        self.turning.set(true);
        self.machine().main.begin(self.machine());
        look_again();
        self.own.came_in();
        Ok(Turning {
            rt: self,
            tells: true,
            _here: entered,
            _thread_io: thread_io,
        })
    }

    /// True if the main thread has something to do.
    pub(crate) fn has_more(&self) -> bool {
        !self.own.is_empty() || !self.machine().nothing_for_main() || self.own.has_io_word()
    }

    /// Takes one turn; false if there is none.
    #[inline]
    pub(crate) fn turn_once(&self) -> bool {
        let machine = self.machine();
        let Some(turn) = self.own.take(machine) else {
            return false;
        };
        machine.main.load.set_in_turn(true);
        let again = turn.run();
        machine.main.load.set_in_turn(false);
        if let Some(again) = again {
            machine.busy.add(1);
            match again.is_preferred() {
                false => self.own.put_back(again),
                true => machine.put_back_preferred(again),
            }
        }
        machine.rested();
        true
    }

    /// Polls `future` outside any job, turning the main lane meanwhile, until
    /// it is done.
    fn drive<F: Future>(&self, _turning: &Turning<'_>, mut future: Pin<&mut F>) -> F::Output {
        let machine = self.machine();
        if machine.workers.is_empty() {
            // Then this thread keeps the timers.
            crate::linux::precise_timers();
        }
        let woken = MainWaker::new(machine);
        let waker = Waker::from(woken.clone());
        let mut cx = Context::from_waker(&waker);
        loop {
            if woken.take()
                && let Poll::Ready(output) = future.as_mut().poll(&mut cx)
            {
                // What its last turn has ended early, say: nobody comes by here
                // for a while.
                self.own.hand_over_io();
                return output;
            }
            // As in `Worker::run`: what unwinds out of a turn is our bug, and
            // costs a job, not the program. What it polls itself may panic.
            // At least one round in between: a future that wakes itself leaves the
            // lane its turns.
            let unwound = contained(|| {
                loop {
                    self.turn_or_sleep(&woken);
                    if woken.is_woken() {
                        return;
                    }
                }
            });
            if unwound && !self.turn_unwound() {
                // As there: it would unwind again and again.
                drop(AbortOnUnwind("the main thread panicked outside any job"));
            }
        }
    }

    /// One turn of the lane, or what else there is to do; or sleeps until there is.
    #[inline(always)]
    fn turn_or_sleep(&self, woken: &MainWaker) {
        let machine = self.machine();
        if self.own.take_looked() && machine.main_looks_at_timers() {
            machine.fire_due();
            self.own.glance_at_io();
        }
        let busy = self.turn_once()
            || (machine.workers.is_empty()
                && (machine.fire_due() > 0 || machine.is_asked(0) && self.own.look_at_io()))
            || self.own.settle_io();
        if busy {
            return;
        }
        machine.main.park(machine, self.own.thread_io(), || {
            !woken.is_woken() && !self.has_more()
        });
        self.own.slept();
    }

    /// What [`turn_once`](Runtime::turn_once) does after a turn. False if there was
    /// none.
    fn turn_unwound(&self) -> bool {
        let in_turn = self.machine().main.load.turn_unwound();
        if in_turn {
            self.machine().rested();
        }
        in_turn
    }

    /// Polls `future` outside any job, and runs turns of the main lane, until the future is
    /// ready: for a host that waits for a task that it holds. Queued turns run even if the
    /// calls are short; a future that is ready at its first poll runs none.
    ///
    /// # Errors
    /// If called inside a job.
    pub fn wait_for<F: Future>(&self, future: F) -> Result<F::Output> {
        let turning = self.begin("wait_for")?;
        Ok(self.drive(&turning, pin!(future)))
    }

    /// Waits like [`wait_for`](Runtime::wait_for), and lends `world` to the tasks of the main
    /// lane meanwhile; see [`with_world`](kinfolk_core::with_world).
    ///
    /// # Errors
    /// As [`wait_for`](Runtime::wait_for).
    pub fn wait_for_with<W: 'static, F: Future>(
        &self,
        world: &mut W,
        future: F,
    ) -> Result<F::Output> {
        self.tree().lend(world, || self.wait_for(future))
    }

    /// Runs a future like [`block_on`](Runtime::block_on), and lends `world` to `future` and
    /// the other tasks of the main lane meanwhile.
    ///
    /// # Errors
    /// As [`block_on`](Runtime::block_on).
    #[track_caller]
    pub fn block_on_with<W: 'static, F>(
        &self,
        world: &mut W,
        future: F,
    ) -> Result<<F::Output as IntoOutcome>::Value>
    where
        F: Future<Output: IntoOutcome>,
    {
        self.tree().lend(world, || self.block_on(future))
    }

    /// Runs `future` as a task of the main lane, and blocks this thread, which runs the lane,
    /// until the task and everything that it started have ended. With no workers this thread
    /// runs the pool too. A panic of the task is resumed here.
    ///
    /// # Errors
    /// The error of the task; also if called inside a job.
    #[track_caller]
    pub fn block_on<F>(&self, future: F) -> Result<<F::Output as IntoOutcome>::Value>
    where
        F: Future<Output: IntoOutcome>,
    {
        let result = self.block_on_task(future, |task| task)?;
        result.map_err(Error::resume)
    }

    /// Runs `future` as [`block_on`](Runtime::block_on) does; what comes out is what
    /// `wait` makes of its handle.
    #[track_caller]
    pub(crate) fn block_on_task<F, W>(
        &self,
        future: F,
        wait: impl FnOnce(Task<<F::Output as IntoOutcome>::Value>) -> W,
    ) -> Result<W::Output>
    where
        F: Future<Output: IntoOutcome>,
        W: Future,
    {
        let turning = self.begin("block_on")?;
        let spawner = self.handle.scope().task("main").on(self.on_main());
        // SAFETY: it stays on this thread, and we do not return before the job
        // has ended and its value was taken: `drive` ends with its outcome, and
        // a panic in our own loop aborts.
        let task = unsafe { spawner.spawn_unchecked(future) };
        let abort = AbortOnUnwind("the main loop panicked while a borrowed future was running");
        let result = self.drive(&turning, pin!(wait(task)));
        std::mem::forget(abort);
        drop(turning);
        Ok(result)
    }

    /// Shuts the runtime down: cancels every job and waits; at `grace` lifts shields and guards
    /// and revokes leases; a second later drops every parked future, each on its lane; then
    /// returns a report that names the tasks that did not end in time. The main lane runs
    /// meanwhile. Jobs that still run are named in the report, and left behind with their
    /// threads.
    ///
    /// # Errors
    /// If called inside a job, of this runtime or of another, where the call cannot wait. There
    /// is no report then, but the runtime ends as if it was dropped there: every job is
    /// cancelled when the call returns; the workers go on until the jobs have ended, for
    /// `grace` and a second at most; the main lane no longer runs, and with no workers no turn
    /// runs. A task that gets no more turns never ends: it keeps the root of the runtime, of
    /// which a process can have 4,095. Inside a job, use [`Handle::request_shutdown`].
    pub fn shutdown(mut self, grace: Duration) -> Result<ShutdownReport> {
        // The drop that comes after an error heeds it too.
        self.manner.grace = grace;
        self.end()
    }

    /// Shuts down like [`shutdown`](Runtime::shutdown), and lends `world` to the tasks of the
    /// main lane meanwhile, so that they can clean up the host's state.
    ///
    /// # Errors
    /// As [`shutdown`](Runtime::shutdown).
    pub fn shutdown_with<W: 'static>(
        self,
        world: &mut W,
        grace: Duration,
    ) -> Result<ShutdownReport> {
        let tree = self.tree().clone();
        tree.lend(world, || self.shutdown(grace))
    }

    /// Shuts it down with its grace, or with what a signal has left of it.
    pub(crate) fn end(&mut self) -> Result<ShutdownReport> {
        let turning = self.begin("shutdown")?;
        let left = self.hears.as_ref().and_then(MainSignals::ends);
        let (grace, force) = left.unwrap_or((self.manner.grace, FORCE));
        let grace = grace.min(self.manner.grace);
        let _real = self.handle.real_grace(grace);
        let report = self.drive(&turning, pin!(self.handle.tree.shutdown(grace, force)));
        drop(turning);
        self.over.set(true);
        self.workers.go_home(&self.handle.machine);
        if report.as_ref().is_ok_and(|report| !report.is_clean())
            && let Some(done) = self.handle.tree.tell_of_trouble("unclean shutdown")
            && !self.manner.quiet
        {
            say(Topic::End, format_args!("kinfolk: {done}"));
        }
        flush(MOMENT);
        report
    }

    /// The thread is inside a job and cannot wait: another waits in its place, while the
    /// workers go on. With no workers nothing turns, so there is nothing to wait for.
    fn end_elsewhere(&mut self) {
        self.handle.request_shutdown();
        let mut workers = std::mem::take(&mut self.workers);
        if !workers.threads.is_empty() {
            let (handle, grace) = (self.handle.clone(), self.manner.grace);
            let quiet = self.manner.quiet;
            let ends = std::thread::Builder::new().name("kinfolk-end".to_string());
            let begun = ends.spawn(move || {
                if let Some(report) = handle.wait_for_end(grace)
                    && !report.is_clean()
                    && !quiet
                {
                    say(Topic::End, format_args!("kinfolk: {report}"));
                }
                workers.go_home(&handle.machine);
            });
            if begun.is_ok() {
                return;
            }
        }
        self.machine().stop();
    }
}

impl WorkerThreads {
    /// Ends the workers. A worker that does not return is in a turn that does not return, and
    /// is left behind.
    fn go_home(&mut self, machine: &Machine) {
        machine.stop();
        let until = Instant::now() + HOME;
        for pool in [&machine.blocking, &machine.look_ups, &machine.io_calls] {
            pool.stop(until.saturating_duration_since(Instant::now()));
        }
        let mut home = self
            .exits
            .home
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        while *home < self.threads.len() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            home = match self.exits.came.wait_timeout(home, left) {
                Ok((home, _)) => home,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        let all = *home == self.threads.len();
        drop(home);
        for thread in self.threads.drain(..) {
            if all || thread.is_finished() {
                // A worker's own panic is a bug of ours; it has been printed.
                let _ = thread.join();
            }
        }
    }
}

/// Aborts the process with these words if it is dropped: for code that must not
/// unwind.
pub(crate) struct AbortOnUnwind(pub(crate) &'static str);

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        abort(format_args!("kinfolk: a bug: {}", self.0));
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if self.over.get() {
            return;
        }
        match self.end() {
            Ok(report) if report.is_clean() || self.manner.quiet => {}
            Ok(report) => {
                say(Topic::End, format_args!("kinfolk: {report}"));
                flush(MOMENT);
            }
            Err(error) => {
                let words =
                    "a runtime was dropped inside a job, where its shutdown cannot be awaited";
                say(Topic::End, format_args!("kinfolk: {words}: {error}"));
                self.end_elsewhere();
            }
        }
    }
}

impl std::ops::Deref for Runtime {
    type Target = Handle;
    fn deref(&self) -> &Handle {
        &self.handle
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime")
            .field("workers", &self.machine().workers.len())
            .field("living", &self.counters().living())
            .finish_non_exhaustive()
    }
}

/// A handle to a runtime, for other threads and for jobs.
#[derive(Clone)]
pub struct Handle {
    tree: Tree,
    machine: Arc<Machine>,
}

impl Handle {
    /// Returns the job tree.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Returns the root as a scope: tasks spawned into it are children of the root.
    pub fn scope(&self) -> Scope {
        self.tree.root_scope()
    }

    /// Begins a factory timer below the root, with options; see [`Scope::timer`].
    pub fn timer(&self, name: impl Into<Cow<'static, str>>) -> Timer {
        self.scope().timer(name)
    }

    /// Calls `factory` once, `wait` from now, and runs the returned future below the root; see
    /// [`Scope::delay`].
    #[track_caller]
    pub fn delay<F, R>(&self, wait: Duration, factory: F) -> TimerToken
    where
        F: FnOnce() -> R + Send + 'static,
        R: Future<Output: IntoOutcome<Value: Send>> + Send + 'static,
    {
        self.scope().delay(wait, factory)
    }

    /// Calls `factory` once, at `at`, and runs the returned future below the root; see
    /// [`Scope::at`].
    #[track_caller]
    pub fn at<F, R>(&self, at: Instant, factory: F) -> TimerToken
    where
        F: FnOnce() -> R + Send + 'static,
        R: Future<Output: IntoOutcome<Value: Send>> + Send + 'static,
    {
        self.scope().at(at, factory)
    }

    /// Calls `factory` at once and then every `period`, and runs the returned futures below the
    /// root; see [`Scope::interval`].
    ///
    /// # Errors
    /// If the period is zero.
    #[track_caller]
    pub fn interval<F, R>(&self, period: Duration, factory: F) -> Result<TimerToken>
    where
        F: FnMut() -> R + Send + 'static,
        R: Future<Output: IntoOutcome<Value: Send>> + Send + 'static,
    {
        self.scope().interval(period, factory)
    }

    /// Returns a snapshot of the living jobs.
    pub fn snapshot(&self) -> TreeSnapshot {
        self.tree.snapshot()
    }

    /// Returns the counters.
    pub fn counters(&self) -> CountersSnapshot {
        self.tree.counters()
    }

    /// Returns how many workers there are.
    pub fn workers(&self) -> usize {
        self.machine.workers.len()
    }

    /// Returns the name of the i/o driver: `io_uring` or `readiness`; `None` before the first
    /// operation.
    pub fn io_driver(&self) -> Option<&'static str> {
        self.machine.io()?.driver_name()
    }

    /// Returns how many jobs live and are runnable, and when the next timer is due.
    pub fn gauges(&self) -> Gauges {
        self.tree.gauges()
    }

    /// From here on the time is real; a virtual clock gives what holds it `grace` in
    /// real time.
    pub(crate) fn real_grace(&self, grace: Duration) -> Option<RealGrace> {
        self.machine.shuts_down();
        self.machine.busy.counts().then(|| {
            let machine = self.machine.clone();
            RealGrace::begin(grace, move || machine.jump_anyway())
        })
    }

    /// Shuts the tree down on a thread that turns nothing; the workers keep time. None if
    /// all of them are in turns that do not return, and nothing keeps it.
    fn wait_for_end(&self, grace: Duration) -> Option<ShutdownReport> {
        let _real = self.real_grace(grace);
        let waker = Waker::from(Arc::new(UnparkMain(std::thread::current())));
        let mut cx = Context::from_waker(&waker);
        let mut shutdown = pin!(self.tree.shutdown(grace, FORCE));
        let most = grace.saturating_add(2 * FORCE);
        let began = Instant::now();
        loop {
            if let Poll::Ready(report) = shutdown.as_mut().poll(&mut cx) {
                return report.ok();
            }
            let left = most.saturating_sub(began.elapsed());
            if left.is_zero() {
                return None;
            }
            std::thread::park_timeout(left);
        }
    }

    /// Cancels every job, without waiting. Returns true the first time.
    #[track_caller]
    pub fn request_shutdown(&self) -> bool {
        self.tree.request_shutdown(ReasonKind::Shutdown)
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").finish_non_exhaustive()
    }
}
