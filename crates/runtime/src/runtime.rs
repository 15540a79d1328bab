//! [`Runtime`]: the owner, on its main thread. [`Handle`]: for everybody else.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::pin::{Pin, pin};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kinfolk_core::{
    Budget, Clock, CountersSnapshot, Error, FORCE, FailureHook, ForcedHook, GRACE, Gauges,
    IntoOutcome, OnMain, OrCancel, Outcome, Patience, Pool, Pumped, ReasonKind, Result, Scope,
    ShutdownReport, Sink, SystemClock, Task, Tree, TreeOptions, TreeSnapshot,
};

use crate::blocking::Blocking;
use crate::here::{self, Here, Local};
use crate::machine::{Machine, Native};
use crate::main_lane::{Cause, MainWaker, Own};
use crate::scheduler::worker::Worker;

/// How many threads may be in blocking calls.
const BLOCKING: usize = 64;

/// How long workers get to come home once everything is over.
const HOME: Duration = Duration::from_millis(500);

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
}

impl Builder {
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

    /// How many threads may be in blocking calls at a time; more calls wait.
    /// 64 by default, one at least.
    pub fn blocking_threads(mut self, most: usize) -> Self {
        self.blocking = most.max(1);
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

    /// Gets every failure that nobody takes.
    pub fn on_failure(mut self, hook: FailureHook) -> Self {
        self.options.failure_hook = Some(hook);
        self
    }

    /// Gets every job whose future is dropped before it is done.
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
    /// thread; it only passes the word on.
    pub fn on_wake(mut self, hook: impl Fn(Cause) + Send + Sync + 'static) -> Self {
        self.hook = Some(Box::new(hook));
        self
    }

    /// The runtime. This thread is its main thread.
    ///
    /// # Errors
    /// If the system starts no more threads.
    #[track_caller]
    pub fn build(self) -> Result<Runtime> {
        let blocking = Blocking::new(self.blocking, format!("{}-blocking", self.name));
        let machine = Arc::new(Machine::new(self.workers, self.clock, self.hook, blocking));
        let seen = Arc::downgrade(&machine);
        machine.clock.on_change(Box::new(move || {
            if let Some(machine) = seen.upgrade() {
                machine.clock_changed();
            }
        }));
        let tree = Tree::new(Box::new(Native(machine.clone())), self.options);
        let exits = Arc::new(Exits::default());
        let mut runtime = Runtime {
            handle: Handle {
                tree,
                machine: machine.clone(),
            },
            own: Box::new(Own::new(machine.main.load.clone())),
            threads: Vec::with_capacity(self.workers),
            exits: exits.clone(),
            grace: self.grace,
            turning: Cell::new(false),
            over: Cell::new(false),
            stays: PhantomData,
        };
        for n in 0..self.workers {
            let worker = Worker::new(machine.clone(), n);
            let exit = Exit(exits.clone());
            let thread = std::thread::Builder::new()
                .name(format!("{}-{n}", self.name))
                .spawn(move || {
                    let _exit = exit;
                    worker.run();
                })
                .map_err(|error| {
                    Error::msg(format!(
                        "worker {n} of {} could not be started: {error}: ask for fewer workers",
                        self.workers
                    ))
                })?;
            runtime.threads.push(thread);
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

/// How many workers have come home.
#[derive(Default)]
struct Exits {
    home: Mutex<usize>,
    came: Condvar,
}

/// Dropped by a worker at its end.
struct Exit(Arc<Exits>);

impl Drop for Exit {
    fn drop(&mut self) {
        *self.0.home.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.came.notify_all();
    }
}

/// A runtime: worker threads, timers, and the main lane of the thread that
/// built it. It stays on that thread; others hold a [`Handle`].
///
/// ```
/// use kinfolk_runtime::Runtime;
///
/// let rt = Runtime::new()?;
/// let sum = rt.block_on(kinfolk_core::scope(async |s| {
///     let a = s.spawn(async { 20 });
///     let b = s.spawn(async { 22 });
///     Ok(a.await? + b.await?)
/// }))?;
/// assert_eq!(sum, 42);
/// # Ok::<_, kinfolk_core::Error>(())
/// ```
///
/// Dropping it shuts it down, with ten seconds of grace.
pub struct Runtime {
    handle: Handle,
    own: Box<Own>,
    threads: Vec<JoinHandle<()>>,
    exits: Arc<Exits>,
    grace: Duration,
    turning: Cell<bool>,
    over: Cell<bool>,
    /// It stays where it was built.
    stays: PhantomData<*const ()>,
}

/// The main thread turns; leaving the scope it goes back to its host loop.
struct Turning<'a> {
    rt: &'a Runtime,
    /// Asks the host to pump if something is left.
    tells: bool,
    _here: here::Entered,
}

impl Drop for Turning<'_> {
    fn drop(&mut self) {
        self.rt.turning.set(false);
        let machine = self.rt.machine();
        machine.main.leave(machine);
        // What came while we were turning has called no hook.
        if self.tells && self.rt.has_more() {
            machine.main.tell(machine, Cause::Task);
        }
    }
}

impl Runtime {
    /// A runtime with the defaults.
    ///
    /// # Errors
    /// As [`Builder::build`].
    #[track_caller]
    pub fn new() -> Result<Runtime> {
        Runtime::builder().build()
    }

    /// A runtime with options.
    pub fn builder() -> Builder {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Builder {
            options: TreeOptions::default(),
            clock: Arc::new(SystemClock),
            workers: processors.saturating_sub(1).max(1),
            name: "kinfolk".into(),
            grace: GRACE,
            hook: None,
            blocking: BLOCKING,
        }
    }

    fn machine(&self) -> &Arc<Machine> {
        &self.handle.machine
    }

    /// For other threads.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Evidence that this is the main thread.
    pub fn on_main(&self) -> OnMain {
        self.handle
            .tree
            .on_main()
            .expect("a runtime stays on the thread that built it")
    }

    /// Begins to turn, or says why not.
    fn begin(&self, verb: &str) -> Result<Turning<'_>> {
        if kinfolk_core::current_job().is_some() || self.turning.get() {
            return Err(Error::msg(format!(
                "{verb} was called inside a job, whose thread it would block: await there instead, \
                 or hand the work to another lane with `on`"
            )));
        }
        if matches!(here::local(self.machine()), Local::Worker(_)) {
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
        self.turning.set(true);
        self.machine().main.begin(self.machine());
        self.own.look_again();
        Ok(Turning {
            rt: self,
            tells: true,
            _here: entered,
        })
    }

    /// True if the main thread has something to do.
    fn has_more(&self) -> bool {
        !self.own.is_empty() || !self.machine().nothing_for_main()
    }

    /// Takes one turn; false if there is none.
    fn turn_once(&self) -> bool {
        let machine = self.machine();
        let Some(turn) = self.own.take(machine) else {
            return false;
        };
        machine.main.load.set_in_turn(true);
        let again = turn.run();
        machine.main.load.set_in_turn(false);
        if let Some(again) = again {
            machine.busy.add(1);
            self.own.put_back(again);
        }
        machine.rested();
        true
    }

    /// Polls `future` outside every job, turning the main lane meanwhile, until
    /// it is done.
    fn drive<F: Future>(&self, _turning: &Turning<'_>, mut future: Pin<&mut F>) -> F::Output {
        let machine = self.machine();
        let woken = MainWaker::new(machine);
        let waker = Waker::from(woken.clone());
        let mut cx = Context::from_waker(&waker);
        let mut turns = 0_u32;
        loop {
            if woken.take()
                && let Poll::Ready(output) = future.as_mut().poll(&mut cx)
            {
                return output;
            }
            turns = turns.wrapping_add(1);
            if machine.workers.is_empty() && turns.is_multiple_of(16) {
                machine.fire_due();
            }
            if self.turn_once() {
                continue;
            }
            if machine.workers.is_empty() && machine.fire_due() > 0 {
                continue;
            }
            machine
                .main
                .park(machine, || !woken.is_woken() && !self.has_more());
            self.own.look_again();
        }
    }

    /// Polls `future` outside every job, turning the main lane meanwhile, until
    /// it is done: for a host that waits for a task it holds.
    ///
    /// # Errors
    /// If called inside a job.
    pub fn wait_for<F: Future>(&self, future: F) -> Result<F::Output> {
        let turning = self.begin("wait_for")?;
        Ok(self.drive(&turning, pin!(future)))
    }

    /// Runs `future` as a task of the main lane, turning that lane meanwhile,
    /// until it and everything it started have ended. With no workers the pool
    /// is turned too. A panic in it goes on here.
    ///
    /// # Errors
    /// Its own; and if called inside a job.
    #[track_caller]
    pub fn block_on<F>(&self, future: F) -> Result<<F::Output as IntoOutcome>::Value>
    where
        F: Future<Output: IntoOutcome>,
    {
        let turning = self.begin("block_on")?;
        let spawner = self.handle.scope().task("main").on(self.on_main());
        // SAFETY: it stays on this thread, and we do not return before the job
        // has ended and its value was taken: `drive` ends with its outcome, and
        // a panic in our own loop aborts.
        let task = unsafe { spawner.spawn_unchecked(future) };
        let abort = Abort;
        let result = self.drive(&turning, pin!(task));
        std::mem::forget(abort);
        drop(turning);
        result.map_err(Error::resume)
    }

    /// One frame of a host that owns the main loop: fires due timers and takes
    /// turns of the main lane, within `budget`. Never waits. With no workers
    /// the pool is turned too.
    ///
    /// # Errors
    /// If called inside a job.
    pub fn pump(&self, budget: Budget) -> Result<Pumped> {
        let mut turning = self.begin("pump")?;
        // It says so in its answer.
        turning.tells = false;
        self.handle.tree.begin_frame();
        let machine = self.machine();
        let fired = machine.fire_due();
        let began = Instant::now();
        let mut ran = 0;
        let spent = |ran: usize| match budget {
            Budget::Turns(most) => ran >= most,
            Budget::Time(limit) => ran > 0 && began.elapsed() >= limit,
            _ => true,
        };
        while !spent(ran) && self.turn_once() {
            ran += 1;
        }
        drop(turning);
        // Looked at from outside: what comes from now on calls the hook.
        Ok(Pumped::new(
            ran,
            fired,
            self.next_deadline(),
            self.has_more(),
        ))
    }

    /// As [`pump`](Runtime::pump), and lends `world` to the tasks of the main
    /// lane meanwhile; see [`with_world`](kinfolk_core::with_world).
    ///
    /// # Errors
    /// If called inside a job.
    pub fn pump_with<W: 'static>(&self, world: &mut W, budget: Budget) -> Result<Pumped> {
        self.handle.tree.lend(world, || self.pump(budget))
    }

    /// When the next timer is due, by the runtime's clock: until then a host
    /// loop may sleep, if nothing else wakes it. A clock that is not the
    /// system's says how long that is in real time
    /// ([`Clock::real_time_until`]).
    pub fn next_deadline(&self) -> Option<Instant> {
        self.machine().timers.next_at()
    }

    /// Runs `body` on this thread and lets it spawn children onto the pool that
    /// borrow from its surroundings. Returns when all of them have ended: that
    /// is why they may borrow. The main lane is turned while it waits.
    ///
    /// ```
    /// use kinfolk_runtime::Runtime;
    ///
    /// let rt = Runtime::new()?;
    /// let words = vec![String::from("no"), String::from("task")];
    /// let lengths = rt.scope_blocking(|s| {
    ///     let tasks: Vec<_> = words.iter().map(|w| s.spawn(async { w.len() })).collect();
    ///     tasks.into_iter().map(|task| s.wait(task)).sum::<kinfolk_core::Result<usize>>()
    /// })??;
    /// assert_eq!(lengths, 6);
    /// # Ok::<_, kinfolk_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// If called inside a job; and the failure of a child nobody waited for,
    /// which cancels the others.
    #[track_caller]
    pub fn scope_blocking<'env, T>(
        &'env self,
        body: impl for<'scope> FnOnce(&'scope BlockingScope<'scope, 'env>) -> T,
    ) -> Result<T> {
        // Checked before anything borrows.
        drop(self.begin("scope_blocking")?);
        let open = Arc::new(Open::default());
        let task = self
            .handle
            .scope()
            .task("scope_blocking")
            .spawn(Opened(open.clone()).or_cancel());
        let scope = BlockingScope {
            rt: self,
            scope: Scope::of_job(&task.job()),
            borrows: PhantomData,
        };
        // From here on the children must be gone before we are, come what may.
        let abort = Abort;
        let answer = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(&scope)));
        if answer.is_err() {
            task.cancel("the body of scope_blocking panicked");
        }
        open.close();
        let outcome = self.wait_for(task.outcome());
        std::mem::forget(abort);
        match answer {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(answer) => match outcome?? {
                Outcome::Failed(error) => Err(error),
                Outcome::Completed(_) | Outcome::Cancelled { .. } => Ok(answer),
            },
        }
    }

    /// Shuts the runtime down: cancels everything and waits; at `grace` lifts
    /// shields and guards and revokes leases; a second later drops every parked
    /// future, each on its lane; then says who was in the way. The main lane is
    /// turned meanwhile. What still runs is named, and left behind with its
    /// thread.
    ///
    /// # Errors
    /// If called inside a job: [`Handle::request_shutdown`] is for jobs.
    pub fn shutdown(mut self, grace: Duration) -> Result<ShutdownReport> {
        self.end(grace)
    }

    fn end(&mut self, grace: Duration) -> Result<ShutdownReport> {
        let turning = self.begin("shutdown")?;
        self.machine().clock.let_run();
        let report = self.drive(&turning, pin!(self.handle.tree.shutdown(grace, FORCE)));
        drop(turning);
        self.over.set(true);
        self.go_home();
        report
    }

    /// Ends the workers. One that does not come home is in a turn that does not
    /// return: it is left to itself.
    fn go_home(&mut self) {
        self.machine().stop();
        let until = Instant::now() + HOME;
        self.machine().blocking.stop(HOME);
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

/// What children of [`Runtime::scope_blocking`] are spawned with.
pub struct BlockingScope<'scope, 'env: 'scope> {
    rt: &'env Runtime,
    scope: Scope,
    /// Neither may shrink nor grow, as with std's scoped threads.
    borrows: PhantomData<(&'scope mut &'scope (), &'env mut &'env ())>,
}

impl<'scope> BlockingScope<'scope, '_> {
    /// Spawns a child onto the pool; it may borrow what outlives the scope.
    #[track_caller]
    pub fn spawn<F>(&'scope self, future: F) -> Task<<F::Output as IntoOutcome>::Value>
    where
        F: Future<Output: IntoOutcome<Value: Send>> + Send + 'scope,
    {
        let spawner = self.scope.on(Pool);
        // SAFETY: it is Send. It outlives 'scope, and `scope_blocking` does not
        // return before the job has ended; nor does its value outlive 'scope.
        unsafe { spawner.spawn_unchecked(future) }
    }

    /// Waits for a child, turning the main lane meanwhile.
    ///
    /// # Errors
    /// As awaiting the task.
    pub fn wait<T>(&self, task: Task<T>) -> Result<T> {
        self.rt.wait_for(task)?
    }
}

impl fmt::Debug for BlockingScope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BlockingScope")
    }
}

/// Whether a blocking scope's body still runs.
#[derive(Default)]
struct Open(Mutex<(bool, Option<Waker>)>);

impl Open {
    fn close(&self) {
        let waker = {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            state.0 = true;
            state.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Done when the scope is closed.
struct Opened(Arc<Open>);

impl Future for Opened {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let new = cx.waker().clone();
        let mut state = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.0 {
            return Poll::Ready(());
        }
        let old = state.1.replace(new);
        drop(state);
        drop(old);
        Poll::Pending
    }
}

/// Aborts the process if it is dropped: for code that must not unwind.
struct Abort;

impl Drop for Abort {
    fn drop(&mut self) {
        eprintln!("kinfolk: a bug: the main loop panicked while a borrowed future was running");
        std::process::abort();
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if self.over.get() {
            return;
        }
        match self.end(self.grace) {
            Ok(report) if report.is_clean() => {}
            Ok(report) => eprintln!("kinfolk: {report}"),
            Err(error) => {
                eprintln!("kinfolk: a runtime was dropped inside a job and cannot wait: {error}");
                self.handle.request_shutdown();
                self.machine().stop();
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

/// A runtime as other threads and jobs hold it.
#[derive(Clone)]
pub struct Handle {
    tree: Tree,
    machine: Arc<Machine>,
}

impl Handle {
    /// The tree.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// A scope that spawns below the root.
    pub fn scope(&self) -> Scope {
        self.tree.root_scope()
    }

    /// The living jobs.
    pub fn snapshot(&self) -> TreeSnapshot {
        self.tree.snapshot()
    }

    /// The counters.
    pub fn counters(&self) -> CountersSnapshot {
        self.tree.counters()
    }

    /// How many workers there are.
    pub fn workers(&self) -> usize {
        self.machine.workers.len()
    }

    /// What is alive, runnable and due.
    pub fn gauges(&self) -> Gauges {
        self.tree.gauges()
    }

    /// Cancels everything without waiting. True the first time.
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
