//! The seeded simulation: the whole tree on one thread, virtual time, every
//! scheduling choice from the seed. Blocking calls have threads of their own, and take
//! turns with it.

use std::any::Any;
use std::fmt;
use std::panic::Location;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use kinfolk_core::host::{
    BlockingCall, Host, HostGauges, Lane, TimerKey, TimerQueue, Turn, TurnRow, say::escaped, wake,
};
use kinfolk_core::{
    Budget, Clock, CountersSnapshot, Error, FORCE, IntoOutcome, IoGauges, JobId, Outcome, Patience,
    PointHeld, Pumped, ReasonKind, Scope, ShutdownReport, Sink, Task, Tree, TreeOptions,
    TreeSnapshot, kit::HeldClock,
};

use crate::at_rest;
use crate::calls::{UnderWay, Unseen};
use crate::clock::VirtualClock;
use crate::guard;
use crate::io::side::{self, IoSide, SimIoHandle};
use crate::ready_turns::ReadyTurns;
use crate::rng::Rng;
use crate::schedule::{Schedule, Yields};
use crate::unheard::Unheard;

/// Turns a shutdown gives to one instant: a body that swallows its
/// cancellation would hold the clock for ever.
const MOST_TURNS_OF_AN_INSTANT: u64 = 100_000;

/// How long to wait for another thread before the next check.
const MOMENT: Duration = Duration::from_millis(10);

/// How long to wait for a blocking call before the next check.
const LOOK: Duration = Duration::from_millis(1);

/// How long blocking calls may wait or ask without effect, in real time, while nothing
/// else can go on.
const IN_VAIN: Duration = Duration::from_secs(2);

/// Turns a simulation may take before it counts as endless.
const MOST_TURNS: u64 = 50_000_000;

/// How often a task may wake itself while nothing else is ready and the clock stands
/// still. A loop of checkpoints wakes itself at every 128th only.
const MOST_SPINS: u64 = 1_000_000;

/// How many turns tasks may take that wake each other, while the clock stands still and
/// no job begins or ends.
const MOST_IDLE_TURNS: u64 = 10_000_000;

/// How many turns tasks may take while nothing but turns and timers happens: no job begins
/// or ends, no operation is over, no blocking call is begun.
const MOST_WAITING_TURNS: u64 = 2_000_000;

/// With slipping time: the clock moves before one turn in so many.
const SLIPS: usize = 8;

/// How many of the last turns are kept for reports.
const RECENT: usize = 32;

#[derive(Default)]
struct Core {
    ready: ReadyTurns,
    /// Timers are being fired.
    firing: bool,
    /// Blocking calls that have not begun.
    calls: Vec<BlockingCall>,
    timers: TimerQueue,
    /// Where the holds of the clock that still last were taken.
    holds: Vec<&'static Location<'static>>,
    /// The simulation waits for another thread.
    waits: bool,
}

impl Core {
    fn push(&mut self, turn: Turn) {
        self.ready.push(turn, self.firing);
    }
}

/// What the host and the simulation share.
struct SimWorld {
    core: Mutex<Core>,
    /// Another thread has brought work, or has released the clock.
    came: Condvar,
    /// A task is being polled.
    polling: AtomicBool,
    clock: VirtualClock,
    io: SimIoHandle,
    /// How many pinned lanes it has, and the one thread that turns them all.
    workers: usize,
    thread: ThreadId,
}

impl SimWorld {
    fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Work has come. Notifies only if the simulation waits: otherwise each call
    /// would be a system call without effect.
    fn tell(&self, core: &mut Core) {
        if std::mem::take(&mut core.waits) {
            self.came.notify_one();
        }
    }

    /// True if no task is ready, and no blocking call waits to begin.
    fn is_idle(&self) -> bool {
        let core = self.core();
        core.ready.is_empty() && core.calls.is_empty()
    }

    /// True if no thread holds the clock.
    fn is_let_go(&self) -> bool {
        self.core().holds.is_empty()
    }

    /// Waits for another thread, a moment at most.
    fn wait_for_others(&self) {
        let mut core = self.core();
        if core.ready.is_empty() && core.calls.is_empty() && !core.holds.is_empty() {
            core.waits = true;
            let waited = self.came.wait_timeout(core, MOMENT);
            waited.unwrap_or_else(PoisonError::into_inner).0.waits = false;
        }
    }

    /// Waits until a task is ready, for `most` at most.
    fn wait_for_something(&self, most: Duration) {
        let mut core = self.core();
        if core.ready.is_empty() && core.calls.is_empty() {
            core.waits = true;
            let waited = self.came.wait_timeout(core, most);
            waited.unwrap_or_else(PoisonError::into_inner).0.waits = false;
        }
    }
}

struct SimHost(Arc<SimWorld>);

impl Host for SimHost {
    fn start(&self, turn: Turn) {
        let mut core = self.0.core();
        core.push(turn);
        self.0.tell(&mut core);
    }

    fn schedule(&self, ready: TurnRow) {
        let mut core = self.0.core();
        ready.for_each(|turn| core.push(turn));
        self.0.tell(&mut core);
    }

    fn has_main_lane(&self) -> bool {
        true
    }

    fn pinned_lanes(&self) -> usize {
        self.0.workers
    }

    fn turns_pinned(&self, n: usize) -> bool {
        n < self.0.workers && std::thread::current().id() == self.0.thread
    }

    fn run_blocking(&self, call: BlockingCall) {
        let mut core = self.0.core();
        core.calls.push(call);
        self.0.tell(&mut core);
    }

    fn hold_clock(&self, site: &'static Location<'static>) {
        self.0.core().holds.push(site);
    }

    fn release_clock(&self, site: &'static Location<'static>) {
        let mut core = self.0.core();
        if let Some(at) = core.holds.iter().position(|held| *held == site) {
            core.holds.swap_remove(at);
        }
        self.0.tell(&mut core);
    }

    fn now(&self) -> Instant {
        self.0.clock.now()
    }

    fn set_timer(&self, at: Instant, waker: Waker) -> TimerKey {
        self.0.core().timers.insert(at, waker)
    }

    fn clear_timer(&self, key: TimerKey) -> Option<Waker> {
        self.0.core().timers.remove(key)
    }

    fn io(&self) -> Option<&(dyn Any + Send + Sync)> {
        self.0.io.as_any()
    }

    fn io_gauges(&self) -> Option<IoGauges> {
        self.0.io.gauges()
    }

    fn gauges(&self) -> HostGauges {
        let core = self.0.core();
        HostGauges {
            runnable: Some(core.ready.len() + usize::from(self.0.polling.load(SeqCst))),
            next_timer: core.timers.next_at(),
            queues: vec![("ready", core.ready.len()), ("timers", core.timers.len())],
        }
    }

    fn virtual_time(&self) -> bool {
        true
    }
}

/// The options of a simulation.
#[must_use = "call `build` or `run`"]
pub struct SimBuilder {
    seed: u64,
    clock: VirtualClock,
    options: TreeOptions,
    explores: bool,
    slips: bool,
    workers: usize,
    /// Failures that no handle takes go to a hook of the test.
    has_hook: bool,
    pub(crate) io: side::IoOptions,
}

impl SimBuilder {
    /// The seed decides more than the next task, as it does in `#[kinfolk::test]`. A point that
    /// could go on yields one time in four on three of eight seeds, so that other tasks run in
    /// between. And of eight seeds in a row two draw by priorities that change now and then, one
    /// has a slow task, and one makes spurious wake-ups.
    ///
    /// Without this each ready task has the same chance, and a point yields when
    /// the turn's budget is spent: for tests that count polls.
    pub fn explore(mut self) -> Self {
        self.explores = true;
        self
    }

    /// On odd seeds time also moves while tasks are ready: a woken task may find
    /// that the time is later than the instant it waited for, as on a busy machine.
    pub fn time_slips(mut self) -> Self {
        self.slips = true;
        self
    }

    /// Where events go.
    pub fn sink(mut self, sink: Arc<dyn Sink>) -> Self {
        self.options.sink = Some(sink);
        self
    }

    /// Sets the hook that receives every failure that no caller takes.
    pub fn on_failure(mut self, hook: impl Fn(&Error) + Send + Sync + 'static) -> Self {
        self.has_hook = true;
        self.options.failure_hook = Some(Box::new(hook));
        self
    }

    /// Sets the hook that receives every job whose future is dropped before it
    /// completes.
    pub fn on_forced(
        mut self,
        hook: impl Fn(&kinfolk_core::NodeSnapshot) + Send + Sync + 'static,
    ) -> Self {
        self.options.forced_hook = Some(Box::new(hook));
        self
    }

    /// How long a cancelled job may stay idle.
    pub fn patience(mut self, patience: Patience) -> Self {
        self.options.patience = patience;
        self
    }

    /// Called at every poll of a point that would go on, with the job that
    /// polls it and its place in the code: decides whether the point is held
    /// back.
    pub(crate) fn on_point(
        mut self,
        hook: impl Fn(JobId, Option<&'static Location<'static>>) -> PointHeld + Send + Sync + 'static,
    ) -> Self {
        self.options.point_hook = Some(Box::new(hook));
        self
    }

    /// How many children one job may have: for tests of the limit.
    pub fn most_children(mut self, most: u32) -> Self {
        self.options.most_children = most;
        self
    }

    /// How many [pinned lanes](kinfolk_core::Pinned) there are; two by default. One thread
    /// turns them all, in an order that the seed decides, as for the pool.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    /// Shares a clock with others.
    pub fn clock(mut self, clock: VirtualClock) -> Self {
        self.clock = clock;
        self
    }

    /// The simulation.
    #[track_caller]
    pub fn build(mut self) -> Sim {
        let (mut schedule, mut yields) = (Schedule::Even, None);
        if self.explores {
            schedule = Schedule::of(self.seed);
            // A test that sets a point hook decides itself which points yield.
            if self.options.point_hook.is_none()
                && let Some(drawn) = Yields::of(self.seed)
            {
                yields = Some(drawn.clone());
                self.options.point_hook = Some(Box::new(move |_, _| drawn.point()));
            }
        }
        let unheard = Unheard::default();
        if !self.has_hook {
            let (prints, notes) = (self.options.failure_hook.take(), unheard.hook());
            self.options.failure_hook = Some(Box::new(move |error| {
                notes(error);
                if let Some(prints) = &prints {
                    prints(error);
                }
            }));
        }
        let (handle, io) = side::make(self.io, self.seed, &self.clock);
        let world = Arc::new(SimWorld {
            core: Mutex::default(),
            came: Condvar::new(),
            polling: AtomicBool::new(false),
            clock: self.clock,
            io: handle,
            workers: self.workers,
            thread: std::thread::current().id(),
        });
        let tree = Tree::new(Box::new(SimHost(world.clone())), self.options);
        Sim {
            seed: self.seed,
            rng: Rng::new(self.seed),
            world,
            tree,
            io,
            turns: 0,
            happened: 0,
            calls: UnderWay::default(),
            held: None,
            loops: Loops::default(),
            unheard,
            schedule,
            yields,
            slips: self.slips && !self.seed.is_multiple_of(2),
        }
    }
}

impl fmt::Debug for SimBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimBuilder(seed {})", self.seed)
    }
}

/// The whole runtime on one thread, with virtual time and every scheduling
/// choice taken from a seed: the same seed gives the same run.
///
/// ```
/// # mod kinfolk { pub use kinfolk_core::*; pub mod testkit { pub use kinfolk_testkit::*; } }
/// use kinfolk::testkit::Sim;
/// use std::time::Duration;
///
/// let answer = Sim::seeded(7).run(async {
///     kinfolk::sleep(Duration::from_secs(3600)).await?; // no time at all
///     Ok::<_, kinfolk::Error>(42)
/// });
/// assert_eq!(answer.unwrap(), 42);
/// ```
pub struct Sim {
    seed: u64,
    rng: Rng,
    world: Arc<SimWorld>,
    tree: Tree,
    pub(crate) io: IoSide,
    turns: u64,
    /// How many events there were: turns, ends of operations, moves of the clock,
    /// frames. Blocking calls that ask go on after an event.
    happened: u64,
    calls: UnderWay,
    /// Since when the simulation has waited for threads that hold the clock, and
    /// after which turn.
    held: Option<(u64, Instant)>,
    loops: Loops,
    /// Failures that no handle took, unless the test has a hook for them.
    unheard: Unheard,
    schedule: Schedule,
    yields: Option<Yields>,
    /// Time may move while tasks are ready.
    slips: bool,
}

/// Tells a busy loop from work.
#[derive(Default)]
struct Loops {
    /// How often in a row the last task has woken itself while no other task was
    /// ready.
    spins: u64,
    /// The jobs that had the last turns, in a ring.
    recent: [Option<JobId>; RECENT],
    /// After which turn the clock last moved, or something but a turn happened.
    since: u64,
    /// After which turn something but a turn or a timer happened.
    news: u64,
    /// How many jobs had begun or ended, in all, at the last check.
    jobs: u64,
}

impl Loops {
    /// A task has had turn `turn`; `alone` says whether it woke itself while no other
    /// was ready, `drawn` whether the seed made a point of it yield.
    fn turned(&mut self, turn: u64, job: JobId, alone: bool, drawn: bool) {
        let before = self.recent[(turn as usize).wrapping_sub(1) % RECENT];
        self.recent[turn as usize % RECENT] = Some(job);
        match alone && before == Some(job) {
            true => self.spins += u64::from(!drawn),
            false => self.spins = 0,
        }
    }

    /// The clock moved after turn `turn`.
    fn time_passed(&mut self, turn: u64) {
        self.since = turn;
        self.spins = 0;
    }

    /// Something but a turn or a timer happened after turn `turn`.
    fn went_on(&mut self, turn: u64) {
        self.time_passed(turn);
        self.news = turn;
    }
}

/// Set when the future with this waker is woken.
struct WakeFlag(AtomicBool);

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

/// Why a simulation could not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stuck {
    /// No task is ready, and no timer is set that the clock can reach.
    Deadlock,
    /// The simulation took more turns than any test should.
    Endless,
    /// Tasks wake themselves or each other for ever, and nothing else happens.
    Busy,
    /// Tasks sleep and check again for ever, and nothing else happens.
    Waiting,
    /// A thread holds the clock and neither answers nor releases it.
    Held,
    /// Blocking calls do not return, and nothing else can go on.
    Called,
}

impl Sim {
    /// A simulation whose choices come from `seed`.
    #[track_caller]
    pub fn seeded(seed: u64) -> Sim {
        Sim::builder(seed).build()
    }

    /// A simulation with options. Failures that no caller takes are printed,
    /// unless a hook is set.
    pub fn builder(seed: u64) -> SimBuilder {
        SimBuilder {
            seed,
            clock: VirtualClock::new(),
            options: TreeOptions::default(),
            explores: false,
            slips: false,
            workers: 2,
            has_hook: false,
            io: side::IoOptions::default(),
        }
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The tree.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The tree, as plain data.
    pub fn snapshot(&self) -> TreeSnapshot {
        self.tree.snapshot()
    }

    /// The counters.
    pub fn counters(&self) -> CountersSnapshot {
        self.tree.counters()
    }

    /// A scope that spawns below the root.
    pub fn root(&self) -> Scope {
        self.tree.root_scope()
    }

    /// Virtual time since the simulation began.
    pub fn elapsed(&self) -> Duration {
        self.world.clock.elapsed()
    }

    /// The virtual time, as jobs of the simulation see it with `now()`; only a run moves it.
    pub fn now(&self) -> Instant {
        self.world.clock.now()
    }

    /// The instant at which the clock began.
    pub fn start(&self) -> Instant {
        self.world.clock.start()
    }

    /// Stops the clock until the guard is dropped: for a thread that is about to answer a
    /// task. Meanwhile the simulation waits for that thread, in real time, whenever nothing
    /// else can go on. Inside a task use [`hold_clock`](crate::hold_clock).
    ///
    /// ```
    /// # mod kinfolk { pub use kinfolk_core::*; pub mod testkit { pub use kinfolk_testkit::*; } }
    /// use kinfolk::testkit::Sim;
    /// use std::time::Duration;
    ///
    /// let mut sim = Sim::seeded(7);
    /// let (answer, completer) = kinfolk::kit::completion();
    /// let held = sim.hold_clock();
    /// let thread = std::thread::spawn(move || {
    ///     completer.complete(42); // however long that takes
    ///     drop(held);
    /// });
    /// let got = sim.run(kinfolk::timeout(Duration::from_millis(1), answer));
    /// assert_eq!(got.unwrap(), 42);
    /// # thread.join().unwrap();
    /// ```
    #[track_caller]
    pub fn hold_clock(&self) -> HeldClock {
        self.tree.hold_clock()
    }

    /// Timers set at the host, those of the library's own included.
    pub fn timers(&self) -> usize {
        self.world.core().timers.len()
    }

    /// Tasks that are ready for a turn.
    pub fn ready(&self) -> usize {
        self.world.core().ready.len()
    }

    /// Gives one ready task a turn, makes a blocking call or lets one go on, or
    /// completes operations whose time has come; false if there is none of these.
    pub fn step(&mut self) -> bool {
        if !self.calls.is_empty() {
            // The latest step may have let one of them go on.
            self.calls.look(self.happened);
        }
        let went_on = self.draw();
        if !self.calls.is_empty() {
            self.calls.look(self.happened);
        }
        went_on
    }

    /// Draws what goes on, and does it.
    fn draw(&mut self) -> bool {
        if let Some(waker) = self.schedule.nudge(&mut self.rng) {
            let _inside = self.io.enter();
            wake(waker);
        }
        let io = usize::from(self.io.is_busy());
        let asked = self.calls.fresh(self.happened);
        let core = self.world.core();
        let (turns, calls) = (core.ready.len(), core.calls.len() + asked);
        if turns + calls + io == 0 {
            return false;
        }
        let mut at = self.rng.below(turns + calls + io);
        if at < turns {
            // The usual case: the lock is taken once.
            let turn = Sim::take_out(core, &mut self.schedule, &mut self.rng, self.turns, at);
            self.take_turn(turn);
            return true;
        }
        drop(core);
        if at == turns + calls {
            if self.turn_io() {
                return true;
            }
            // The thread i/o was busy with operations that are not over yet.
            if turns + calls == 0 {
                return false;
            }
            at = self.rng.below(turns + calls);
        }
        if at < turns {
            let core = self.world.core();
            let turn = Sim::take_out(core, &mut self.schedule, &mut self.rng, self.turns, at);
            self.take_turn(turn);
        } else {
            self.call(at - turns, asked);
        }
        true
    }

    /// Takes out the ready task that runs next, given the one that was drawn.
    fn take_out(
        mut core: MutexGuard<'_, Core>,
        schedule: &mut Schedule,
        rng: &mut Rng,
        turn: u64,
        drawn: usize,
    ) -> Turn {
        let at = match schedule {
            Schedule::Even => drawn,
            schedule => {
                let job = |at: usize| core.ready.get(at).job();
                schedule.pick(rng, turn, drawn, core.ready.len(), job)
            }
        };
        core.ready.take(at)
    }

    /// Completes the operations whose time has come; false if there are none.
    fn turn_io(&mut self) -> bool {
        let _inside = self.io.enter();
        let over = self.io.turn() > 0;
        if over {
            self.turns += 1;
            self.happened += 1;
            self.loops.went_on(self.turns);
        }
        over
    }

    /// Gives a task its turn.
    fn take_turn(&mut self, turn: Turn) {
        self.turns += 1;
        self.happened += 1;
        let job = turn.job();
        self.schedule.turned(&mut self.rng, || turn.waker());
        let yields = self.yields.as_ref().map_or(0, Yields::count);
        self.world.polling.store(true, SeqCst);
        let again = {
            let _inside = self.io.enter();
            turn.run()
        };
        self.world.polling.store(false, SeqCst);
        let mut alone = false;
        if let Some(again) = again {
            let mut core = self.world.core();
            // The task may wait for a thread that holds the clock, or for a blocking
            // call.
            alone = core.ready.is_empty()
                && core.calls.is_empty()
                && core.holds.is_empty()
                && self.calls.is_empty();
            core.push(again);
        }
        // The seed made the point yield, not the task.
        let drawn = alone && self.yields.as_ref().map_or(0, Yields::count) != yields;
        self.loops.turned(self.turns, job, alone, drawn);
    }

    /// Gives one ready task of a lane a turn; false if there is none.
    fn step_on(&mut self, lane: Lane) -> bool {
        let turn = {
            let mut core = self.world.core();
            let numbers = core.ready.of(lane);
            if numbers.is_empty() {
                return false;
            }
            let at = numbers.start + self.rng.below(numbers.len());
            core.ready.take(at)
        };
        self.take_turn(turn);
        true
    }

    /// The work of other threads meanwhile: some turns of the pool, or none; some of
    /// the operations whose time has come; and some of the blocking calls.
    fn workers_go_on(&mut self) {
        while self.io.is_busy() && self.rng.below(2) == 0 && self.turn_io() {}
        while self.rng.below(2) == 0 && self.step_on(Lane::Pool) {}
        while self.rng.below(2) == 0 && self.make_call() {}
    }

    /// Makes one of the blocking calls that have not begun, or lets one go on that has
    /// asked; false if there is none.
    fn make_call(&mut self) -> bool {
        if !self.calls.is_empty() {
            self.calls.look(self.happened);
        }
        let asked = self.calls.fresh(self.happened);
        let calls = asked + self.world.core().calls.len();
        if calls == 0 {
            return false;
        }
        let at = self.rng.below(calls);
        self.call(at, asked);
        true
    }

    /// Lets the blocking call at `at` go on: the first `asked` are those that have asked,
    /// then come those that have not begun.
    fn call(&mut self, at: usize, asked: usize) {
        if at < asked {
            // Not counted as a turn: else a call that asks for ever would count as
            // progress.
            return self.calls.go_on(at, self.happened);
        }
        self.turns += 1;
        self.happened += 1;
        self.loops.went_on(self.turns);
        let call = self.world.core().calls.swap_remove(at - asked);
        let world = self.world.clone();
        self.calls
            .begin(call, move || world.is_idle(), self.happened);
    }

    /// One frame of a host that owns the main loop: fires due timers and takes
    /// turns of the main lane, within `budget`. The seed decides how far the
    /// pool gets meanwhile. The clock stands still, so a budget of time is
    /// spent by an empty lane only; a budget of zero time gives one turn.
    pub fn pump(&mut self, budget: Budget) -> Pumped {
        self.tree.begin_frame();
        self.happened += 1;
        self.loops.went_on(self.turns);
        let fired = self.fire_due();
        let mut ran = 0;
        loop {
            self.workers_go_on();
            let spent = match budget {
                Budget::Turns(most) => ran >= most,
                Budget::Time(limit) => ran > 0 && limit.is_zero(),
                _ => true,
            };
            if spent || !self.step_on(Lane::Main) {
                break;
            }
            ran += 1;
            self.assert_not_endless("the main lane is never empty");
        }
        self.pumped(ran, fired)
    }

    /// Like [`pump`](Sim::pump), and lends `world` to the tasks of the main
    /// lane meanwhile; see [`with_world`](kinfolk_core::with_world).
    pub fn pump_with<W: 'static>(&mut self, world: &mut W, budget: Budget) -> Pumped {
        let tree = self.tree.clone();
        tree.lend(world, || self.pump(budget))
    }

    /// Moves the clock on to `now`, fires due timers and takes turns until the
    /// main lane is empty and no run of a factory timer, nor a job that a run
    /// has started, is ready. The seed decides how far the rest of the pool
    /// gets.
    pub fn run_expired(&mut self, now: Instant) -> Pumped {
        self.world
            .clock
            .move_to(now.saturating_duration_since(self.start()));
        self.tree.begin_frame();
        self.happened += 1;
        self.loops.went_on(self.turns);
        let fired = self.fire_due();
        let mut ran = 0;
        loop {
            // Also in a frame in which no timer is due: the pool waits for no host
            // loop.
            self.workers_go_on();
            if self.tree.timers_rest() && !self.has_ready(Lane::Main) {
                break;
            }
            if self.step_on(Lane::Main) {
                ran += 1;
            } else {
                self.step_on(Lane::Pool);
            }
            self.assert_not_endless("the main lane is never empty, or a run never waits");
        }
        self.pumped(ran, fired)
    }

    /// As [`run_expired`](Sim::run_expired), and lends `world` to the tasks of
    /// the main lane meanwhile.
    pub fn run_expired_with<W: 'static>(&mut self, world: &mut W, now: Instant) -> Pumped {
        let tree = self.tree.clone();
        tree.lend(world, || self.run_expired(now))
    }

    /// When the next timer is due.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.world.core().timers.next_at()
    }

    fn has_ready(&self, lane: Lane) -> bool {
        !self.world.core().ready.of(lane).is_empty()
    }

    fn pumped(&self, ran: usize, fired: usize) -> Pumped {
        let more = self.has_ready(Lane::Main);
        Pumped::new(ran, fired, self.next_deadline(), more)
    }

    #[track_caller]
    fn assert_not_endless(&mut self, what: &str) {
        if self.turns >= MOST_TURNS {
            panic!("{}", self.report(Stuck::Endless, what));
        }
        if self.loops.spins >= MOST_SPINS
            || self.turns - self.loops.since >= MOST_IDLE_TURNS && !self.jobs_went_on()
        {
            panic!("{}", self.report(Stuck::Busy, what));
        }
        if self.turns - self.loops.news >= MOST_WAITING_TURNS && !self.jobs_went_on() {
            panic!("{}", self.report(Stuck::Waiting, what));
        }
    }

    /// True if a job has begun or ended since the last look.
    fn jobs_went_on(&mut self) -> bool {
        let counters = self.counters();
        let jobs = 2 * counters.jobs_created - counters.living();
        let went_on = jobs != self.loops.jobs;
        self.loops.jobs = jobs;
        if went_on {
            self.loops.went_on(self.turns);
        }
        went_on
    }

    /// The tasks that had the last turns, with the most first.
    fn busiest(&self) -> String {
        let mut turns: Vec<(usize, JobId)> = Vec::new();
        for job in self.loops.recent.iter().flatten() {
            match turns.iter_mut().find(|(_, other)| other == job) {
                Some((count, _)) => *count += 1,
                None => turns.push((1, *job)),
            }
        }
        turns.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
        let tree = self.snapshot();
        let named =
            turns.iter().map(
                |(_, job)| match tree.nodes().iter().find(|node| node.id == *job) {
                    Some(node) => format!(
                        "{} {job}, spawned at {}:{}",
                        escaped(&node.name),
                        node.site.file(),
                        node.site.line()
                    ),
                    None => job.to_string(),
                },
            );
        named.collect::<Vec<_>>().join("; ")
    }

    /// Runs until every task is blocked. Time stands still.
    pub fn settle(&mut self) {
        while self.step() {
            self.assert_not_endless("the simulation never settles");
        }
    }

    /// Runs until every task is blocked and no thread holds the clock.
    fn settle_with_others(&mut self) {
        self.settle();
        while self.waits_for_others("the clock should move on") {
            self.settle();
        }
    }

    /// No task is ready here: waits for threads that hold the clock, for a moment, and for
    /// blocking calls, until a task is ready or they are quiet. False if the clock may
    /// move.
    ///
    /// # Panics
    /// If none of these threads has answered or released the clock for as long
    /// as a test may hang.
    #[track_caller]
    fn waits_for_others(&mut self, what: &str) -> bool {
        if self.world.is_let_go() {
            if self.calls.is_empty() {
                self.held = None;
                return false;
            }
            return self.waits_for_calls();
        }
        if self.waited_for_others() > guard::limit() / 2 {
            panic!("{}", self.report(Stuck::Held, what));
        }
        self.world.wait_for_others();
        true
    }

    /// No task is ready here: waits for blocking calls until one of them goes on or wakes a
    /// task; false if none does, and the clock need not wait for them.
    fn waits_for_calls(&mut self) -> bool {
        while self.calls.hold_clock() {
            if self.calls.look(self.happened) || !self.world.is_idle() {
                return true;
            }
            self.world.wait_for_something(LOOK);
        }
        false
    }

    /// Only blocking calls can go on: waits for them, for a moment.
    ///
    /// # Panics
    /// If there are none, or they have not gone on for a while.
    #[track_caller]
    fn waits_in_vain(&mut self, what: &str) {
        if self.calls.is_empty() {
            panic!("{}", self.report(Stuck::Deadlock, what));
        }
        let most = match self.calls.all_wait() {
            true => IN_VAIN,
            false => guard::limit() / 2,
        };
        if self.waited_for_others() > most {
            panic!("{}", self.report(Stuck::Called, what));
        }
        // The answer that they wait for may come from elsewhere.
        self.happened += 1;
        self.world.wait_for_something(LOOK);
    }

    /// For how long only threads that hold the clock could go on, in real time.
    fn waited_for_others(&mut self) -> Duration {
        match self.held {
            Some((turns, since)) if turns == self.turns => since.elapsed(),
            _ => {
                self.held = Some((self.turns, Instant::now()));
                Duration::ZERO
            }
        }
    }

    /// Moves the clock to `at`, running due tasks on the way, in order.
    #[track_caller]
    fn advance_to_nanos(&mut self, at: u64, inclusive: bool) {
        self.loops.went_on(self.turns);
        loop {
            self.settle_with_others();
            let next = self.next_event_nanos();
            match next {
                Some(next) if next < at || (inclusive && next == at) => self.fire_at(next),
                _ => break,
            }
        }
        self.world.clock.move_to(Duration::from_nanos(at));
    }

    /// Moves the clock on by `by`. Tasks that are due at the new time have run.
    /// While a thread [holds the clock](Sim::hold_clock) the simulation waits
    /// for that thread first.
    ///
    /// # Panics
    /// If such a thread does not release the clock.
    #[track_caller]
    pub fn advance(&mut self, by: Duration) {
        let at = nanos(self.elapsed().saturating_add(by));
        self.advance_to_nanos(at, true);
        self.settle();
    }

    /// As [`advance`](Sim::advance), and lends `world` to the tasks of the main lane
    /// meanwhile; see [`with_world`](kinfolk_core::with_world).
    #[track_caller]
    pub fn advance_with<W: 'static>(&mut self, world: &mut W, by: Duration) {
        let tree = self.tree.clone();
        tree.lend(world, || self.advance(by));
    }

    /// Moves the clock on by `by`. Tasks that are due at the new time have not
    /// run.
    ///
    /// # Panics
    /// As [`advance`](Sim::advance).
    #[track_caller]
    pub fn advance_to_before(&mut self, by: Duration) {
        let at = nanos(self.elapsed().saturating_add(by));
        self.advance_to_nanos(at, false);
    }

    /// When the next timer is due, or the next operation completes; none if the
    /// clock cannot reach that time.
    fn next_event_nanos(&self) -> Option<u64> {
        let timer = self.world.core().timers.next_at();
        let timer = timer.and_then(|at| self.world.clock.reach(at));
        let io = self.io.next_at();
        let io = io.and_then(|at| u64::try_from(at.as_nanos()).ok());
        [timer, io].into_iter().flatten().min()
    }

    fn fire_at(&mut self, at: u64) {
        self.happened += 1;
        self.loops.time_passed(self.turns);
        self.world.clock.move_to(Duration::from_nanos(at));
        self.fire_due();
    }

    /// Fires the timers that are due; returns how many.
    fn fire_due(&mut self) -> usize {
        let now = self.world.clock.now();
        let mut fired = 0;
        loop {
            let due = {
                let mut core = self.world.core();
                let due = core.timers.pop_due(now);
                core.firing = due.is_some();
                due
            };
            match due {
                Some(waker) => wake(waker),
                None => return fired,
            }
            fired += 1;
        }
    }

    /// The blocking calls that the seed does not decide.
    pub(crate) fn unseen_calls(&self) -> Unseen {
        self.calls.unseen()
    }

    /// How many turns were taken.
    pub(crate) fn turns(&self) -> u64 {
        self.turns
    }

    /// The trail that two runs of one seed have in common: how many turns they took, how
    /// often they drew, and how much time has passed.
    pub(crate) fn trail(&self) -> (u64, u64, Duration) {
        (self.turns, self.rng.state(), self.elapsed())
    }

    /// Runs until `done`, jumping the clock when every task is blocked. `done`
    /// is called between two turns.
    ///
    /// # Panics
    /// If nothing can go on any more, or the run never ends: the message has
    /// `what`, the seed and the tree.
    #[track_caller]
    pub(crate) fn drive_until(&mut self, what: &str, mut done: impl FnMut(&mut Sim) -> bool) {
        self.loops.went_on(self.turns);
        while !done(self) {
            self.assert_not_endless(what);
            if self.slips
                && self.rng.below(SLIPS) == 0
                && self.world.is_let_go()
                && !self.calls.hold_clock()
                && let Some(next) = self.next_event_nanos()
            {
                self.fire_at(next);
            }
            if !self.step()
                && !self.waits_for_others(what)
                && !self.world.clock.idle_waiters().everything_is_blocked()
            {
                match self.next_event_nanos() {
                    Some(next) => self.fire_at(next),
                    None => self.waits_in_vain(what),
                }
            }
        }
    }

    /// The outcome of a task that has ended.
    pub(crate) fn outcome_of<T>(&self, task: Task<T>) -> Outcome<T> {
        let mut cx = Context::from_waker(Waker::noop());
        match Pin::new(&mut task.outcome()).poll(&mut cx) {
            Poll::Ready(Ok(outcome)) => outcome,
            other => unreachable!(
                "an ended task did not give its outcome: {}",
                other.is_ready()
            ),
        }
    }

    /// Runs `body` as a task below the root until it has ended, jumping the
    /// clock when every task is blocked.
    ///
    /// # Panics
    /// If nothing can go on any more: the message has the seed and the tree.
    #[track_caller]
    pub fn outcome<F>(&mut self, body: F) -> Outcome<<F::Output as IntoOutcome>::Value>
    where
        F: Future<Output: IntoOutcome<Value: Send>> + Send + 'static,
    {
        let task = self.root().task("main").spawn(body);
        let job = task.job();
        self.drive_until("main has not ended", |_| job.is_ended());
        self.outcome_of(task)
    }

    /// Like [`outcome`](Sim::outcome), as a result. A panic in the body is
    /// raised again here.
    #[track_caller]
    pub fn run<F>(&mut self, body: F) -> kinfolk_core::Result<<F::Output as IntoOutcome>::Value>
    where
        F: Future<Output: IntoOutcome<Value: Send>> + Send + 'static,
    {
        match self.outcome(body) {
            Outcome::Completed(value) => Ok(value),
            Outcome::Failed(error) => Err(error.resume()),
            Outcome::Cancelled { reason, .. } => {
                Err(Error::msg(format!("main was cancelled: {reason}")))
            }
        }
    }

    /// Polls `future` outside any job until it completes, jumping the clock
    /// when every task is blocked: for a host that waits for a task whose
    /// handle it has.
    ///
    /// # Panics
    /// If nothing can go on any more: the message has the seed and the tree.
    #[track_caller]
    pub fn wait_for<F: Future>(&mut self, future: F) -> F::Output {
        let bell = Arc::new(WakeFlag(AtomicBool::new(true)));
        let waker = Waker::from(bell.clone());
        let mut cx = Context::from_waker(&waker);
        let mut future = std::pin::pin!(future);
        let mut output = None;
        self.drive_until("wait_for has not ended", |sim| {
            if bell.0.swap(false, SeqCst) {
                let _inside = sim.io.enter();
                if let Poll::Ready(value) = future.as_mut().poll(&mut cx) {
                    output = Some(value);
                }
            }
            output.is_some()
        });
        match output {
            Some(output) => output,
            None => unreachable!("it was driven until there is one"),
        }
    }

    /// As [`wait_for`](Sim::wait_for), and lends `world` to the tasks of the main lane
    /// meanwhile; see [`with_world`](kinfolk_core::with_world).
    #[track_caller]
    pub fn wait_for_with<W: 'static, F: Future>(&mut self, world: &mut W, future: F) -> F::Output {
        let tree = self.tree.clone();
        tree.lend(world, || self.wait_for(future))
    }

    /// Like [`shutdown`](Sim::shutdown), and lends `world` to the tasks of the main
    /// lane meanwhile: they may clean up in it.
    #[track_caller]
    pub fn shutdown_with<W: 'static>(&mut self, world: &mut W, grace: Duration) -> ShutdownReport {
        let tree = self.tree.clone();
        tree.lend(world, || self.shutdown(grace))
    }

    /// Shuts the tree down in virtual time, as a host does in real time: cancels
    /// everything and runs on; at `grace` lifts shields and guards and revokes
    /// leases; a second later drops every future that is parked. The report
    /// names the tasks that did not end. See [`Tree::shutdown`].
    ///
    /// The clock moves when every task is blocked, and also when tasks are busy at
    /// one instant for too many turns. For a thread that holds the clock the
    /// simulation waits in real time, for the grace.
    ///
    /// # Panics
    /// If nothing can go on any more and no time is left to wait for, which
    /// needs a grace beyond all time; and inside a job.
    #[track_caller]
    pub fn shutdown(&mut self, grace: Duration) -> ShutdownReport {
        let bell = Arc::new(WakeFlag(AtomicBool::new(true)));
        let waker = Waker::from(bell.clone());
        let mut cx = Context::from_waker(&waker);
        let mut shutdown = self.tree.shutdown(grace, FORCE);
        let mut turns = 0;
        loop {
            // The waiter of the report is one more among the ready tasks.
            if bell.0.load(SeqCst) && self.rng.below(self.ready() + 1) == 0 {
                bell.0.store(false, SeqCst);
                let _inside = self.io.enter();
                match Pin::new(&mut shutdown).poll(&mut cx) {
                    Poll::Ready(Ok(report)) => return report,
                    Poll::Ready(Err(error)) => panic!("{error}"),
                    Poll::Pending => continue,
                }
            }
            if self.turns >= MOST_TURNS {
                panic!("{}", self.report(Stuck::Endless, "shutdown does not end"));
            }
            let busy = self.step();
            turns += 1;
            if !busy && !bell.0.load(SeqCst) && !self.world.is_let_go() {
                // Such a thread lives in real time, and so its grace is in real
                // time. An unlimited grace ends when a test would count as hanging.
                if self.waited_for_others() < grace.min(guard::limit() / 2) {
                    self.world.wait_for_others();
                    continue;
                }
                if grace == Duration::MAX {
                    panic!("{}", self.report(Stuck::Held, "shutdown does not end"));
                }
            }
            if !busy && !bell.0.load(SeqCst) && self.waits_for_calls() {
                continue;
            }
            if busy && turns < MOST_TURNS_OF_AN_INSTANT
                || bell.0.load(SeqCst)
                || self.world.clock.idle_waiters().everything_is_blocked()
            {
                continue;
            }
            turns = 0;
            match self.next_event_nanos() {
                Some(next) => self.fire_at(next),
                None if busy => {}
                None => self.waits_in_vain("shutdown does not end"),
            }
        }
    }

    /// Cancels all jobs, runs until they have ended however long that takes, lifting no
    /// shield and dropping no job by force, and checks that the counters balance and that
    /// no timer, no waiter, no operation, no open file and no [hold of the
    /// clock](Sim::hold_clock) is left behind. For a thread that still holds the clock it
    /// waits, in real time.
    ///
    /// # Panics
    /// If something does not end or does not balance: the message has the seed and the
    /// tree. If a job has panicked and no handle took the panic, unless failures go to [a
    /// hook](SimBuilder::on_failure). If a fault of a script never happened.
    #[track_caller]
    pub fn finish(mut self) {
        // An unlimited grace.
        drop(self.shutdown(Duration::MAX));
        self.settle();
        while !self.world.is_let_go() {
            if self.waited_for_others() > guard::limit() / 2 {
                panic!("{}", self.report(Stuck::Held, "the simulation is over"));
            }
            self.world.wait_for_others();
        }
        if let Some(complaint) = self.unheard.panics() {
            panic!(
                "seed {}: the simulation left {complaint}\n                 take the outcome of that job, or give SimBuilder::on_failure a hook",
                self.seed
            );
        }
        self.io.finish(self.seed);
        if let Some(left) = at_rest::left(&self.counters(), self.timers()) {
            panic!("seed {}: the simulation is over, and {left}", self.seed);
        }
    }

    /// Panics if a job but the root is left, or a timer: for the end of a
    /// test.
    #[track_caller]
    pub fn assert_nothing_left(&self) {
        // Read once: it costs as much as a few turns.
        let counters = self.counters();
        let (living, timers) = (counters.living(), counters.timers_pending());
        assert!(
            living == 1 && timers == 0,
            "the test ended with {} jobs and {timers} timers left (seed {}):\n{}",
            living - 1,
            self.seed,
            self.snapshot()
        );
    }

    fn report(&self, stuck: Stuck, what: &str) -> String {
        let why = match stuck {
            Stuck::Deadlock => "nothing is ready, no timer will be due and no i/o will be over",
            Stuck::Endless => "turns go on without end",
            Stuck::Busy => &format!(
                "the clock stands still while these tasks wake themselves or each other for \
                 ever, and nothing else runs: {}",
                self.busiest()
            ),
            Stuck::Waiting => &format!(
                "for {} turns no job has begun or ended and no operation was over, while these \
                 tasks sleep and look again for ever: {}",
                self.turns - self.loops.news,
                self.busiest()
            ),
            Stuck::Held => {
                let holds = &self.world.core().holds;
                let sites = holds
                    .iter()
                    .map(|at| format!("{}:{}", at.file(), at.line()));
                &format!(
                    "nothing is ready, and the clock is still held by what was begun at {}",
                    sites.collect::<Vec<_>>().join(", ")
                )
            }
            Stuck::Called => &format!(
                "nothing is ready, no timer will be due and no i/o will be over, and {}",
                self.calls.describe()
            ),
        };
        let name = match stuck {
            Stuck::Deadlock | Stuck::Held | Stuck::Called => "deadlock",
            Stuck::Endless => "endless",
            Stuck::Busy => "busy loop",
            Stuck::Waiting => "wait in a loop",
        };
        format!(
            "{name}: {what}: {why} (seed {}, {} turns, {:?} of virtual time)\n{}",
            self.seed,
            self.turns,
            self.elapsed(),
            self.snapshot()
        )
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Drop for Sim {
    /// The jobs that are left are cancelled, and go on as far as they can while
    /// time stands still. The rest is dropped as at the end of a shutdown.
    fn drop(&mut self) {
        let root = self.tree.root_job();
        if root.is_ended() {
            return;
        }
        self.tree.request_shutdown(ReasonKind::Shutdown);
        // A bounded number of turns: a body that swallows its cancellation
        // would go on for ever.
        for _ in 0..MOST_TURNS_OF_AN_INSTANT {
            if root.is_ended() {
                return;
            }
            if !self.step() {
                break;
            }
        }
        self.tree.force();
        while !root.is_ended() && self.step() {}
    }
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sim")
            .field("seed", &self.seed)
            .field("elapsed", &self.elapsed())
            .finish_non_exhaustive()
    }
}
