//! What all threads of a runtime share, and the host that the model sees.

use std::any::Any;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

use kinfolk_core::host::{
    BlockingCall, CallHost, Host, HostGauges, Lane, OwnTime, TimerKey, Turn, TurnRow, VirtualCalls,
};
use kinfolk_core::{Clock, IoGauges};
use kinfolk_queue::{Idle, Injector, PriorityQueues};

use crate::blocking::{self, BlockingPool, CallInFlight, For};
use crate::busy::Busy;
use crate::here::{self, ThisThread};
use crate::io::IoHandle;
use crate::main_lane::{Cause, MainThread, WakeHook};
use crate::quiet::Quiet;
use crate::scheduler::worker::Neighbour;
use crate::sync::{HELD_UP, LATE};
use crate::timers::{NewTimer, Tell, Timers};

/// The main thread, as the keeper of the timers.
pub(crate) const MAIN: usize = usize::MAX;

pub(crate) struct Machine {
    pub(crate) clock: OwnTime,
    /// It is the system's clock.
    system_time: bool,
    pub(crate) main: MainThread,
    pub(crate) injector: Injector,
    /// Of the pool, too.
    pub(crate) priorities: PriorityQueues,
    pub(crate) workers: Box<[Neighbour]>,
    pub(crate) idle: Idle,
    pub(crate) timers: Timers,
    pub(crate) busy: Busy,
    /// With virtual time: the blocking calls of users that are under way.
    pub(crate) calls: VirtualCalls,
    pub(crate) blocking: Arc<BlockingPool>,
    /// For calls of drivers: a pool of their own, so that blocking calls of users
    /// that wait for i/o cannot keep it from being carried out.
    pub(crate) io_calls: Arc<BlockingPool>,
    /// For names that are looked up: neither users nor files are to wait for those, nor
    /// they for users.
    pub(crate) look_ups: Arc<BlockingPool>,
    /// How many threads fire timers just now.
    firing: AtomicUsize,
    /// The main thread waits until no run of a factory timer goes on.
    pub(crate) awaits_timers: AtomicBool,
    stopping: AtomicBool,
    /// Set before anybody turns.
    io: OnceLock<Arc<IoHandle>>,
    /// With virtual time, and set before anybody turns.
    quiet: OnceLock<(Arc<Quiet>, Weak<Machine>)>,
}

impl Machine {
    pub(crate) fn new(
        workers: usize,
        clock: Arc<dyn Clock>,
        hook: Option<WakeHook>,
        blocking: BlockingPool,
        io_calls: BlockingPool,
        look_ups: BlockingPool,
    ) -> Machine {
        let clock = OwnTime::new(clock);
        Machine {
            system_time: clock.is_system(),
            main: MainThread::new(hook),
            injector: Injector::default(),
            priorities: PriorityQueues::default(),
            workers: (0..workers).map(|_| Neighbour::new()).collect(),
            idle: Idle::new(workers),
            timers: Timers::default(),
            busy: Busy::new(clock.is_virtual()),
            calls: VirtualCalls::new(),
            blocking: Arc::new(blocking),
            io_calls: Arc::new(io_calls),
            look_ups: Arc::new(look_ups),
            firing: AtomicUsize::new(0),
            awaits_timers: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            io: OnceLock::new(),
            quiet: OnceLock::new(),
            clock,
        }
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Tells every worker to go home.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        for n in 0..self.workers.len() {
            self.unpark(n);
        }
    }

    pub(crate) fn set_io(&self, handle: Arc<IoHandle>) {
        let _ = self.io.set(handle);
    }

    /// None in models.
    pub(crate) fn io(&self) -> Option<&Arc<IoHandle>> {
        self.io.get()
    }

    /// With virtual time: from here on the clock waits until sockets are quiet.
    pub(crate) fn set_quiet(self: &Arc<Self>, quiet: Arc<Quiet>) {
        let _ = self.quiet.set((quiet, Arc::downgrade(self)));
    }

    /// With virtual time: true if nothing that waits for another side has stirred.
    /// If it has, the clock is let go on later.
    fn is_quiet(&self) -> bool {
        match self.quiet.get() {
            Some((quiet, machine)) => quiet.is_quiet() || !quiet.want(machine),
            None => true,
        }
    }

    /// Every driver is to be looked at. Whose thread has been asked is busy until it
    /// has looked.
    pub(crate) fn look_at_drivers(&self, quiet: &Quiet) {
        if self.workers.is_empty() {
            // Between two calls of the runtime no thread turns its driver.
            if self.main.is_parked() && quiet.ask(0) {
                self.main.tell(self, Cause::Task);
            }
            return;
        }
        for n in 0..self.workers.len() {
            self.busy.add(1);
            match quiet.ask(n) {
                true => self.unpark(n),
                false => self.rested(),
            }
        }
    }

    /// With virtual time: true if thread_io `n` is to look at its driver, because all
    /// else waits; once.
    pub(crate) fn is_asked(&self, n: usize) -> bool {
        self.busy.counts()
            && self
                .quiet
                .get()
                .is_some_and(|(quiet, _)| quiet.take_asked(n))
    }

    /// Wakes worker `n`, wherever it sleeps.
    pub(crate) fn unpark(&self, n: usize) {
        self.workers[n].unpark();
        if let Some(io) = self.io() {
            io.notify(n);
        }
    }

    /// Word was left at thread_io `n`.
    pub(crate) fn io_word(&self, n: usize) {
        match self.workers.is_empty() {
            true => self.main.tell(self, Cause::Task),
            false => self.unpark(n),
        }
    }

    /// Puts turns where every worker looks. They are counted as busy already.
    pub(crate) fn inject_counted(&self, row: TurnRow) {
        self.injector.push(row);
        if self.workers.is_empty() {
            self.main.tell(self, Cause::Task);
        } else {
            self.wake_one();
        }
    }

    /// Puts turns with a priority where every worker looks first, or last. They are counted
    /// as busy already. A worker takes them itself when its turn is over, and others while
    /// that lasts: as with its own queue.
    #[cold]
    pub(crate) fn put_preferred(&self, row: TurnRow) {
        let then = self.priorities.push(row);
        match here::local(self) {
            ThisThread::Worker(worker) => {
                worker.want_help(then);
                worker.want_sentinel();
            }
            ThisThread::Main(_) if self.workers.is_empty() => {}
            _ if self.workers.is_empty() => self.main.tell(self, Cause::Task),
            _ => self.wake_one(),
        }
    }

    /// One that has just had a turn.
    #[cold]
    pub(crate) fn put_back_preferred(&self, turn: Turn) {
        let mut row = TurnRow::new();
        row.push_back(turn);
        self.put_preferred(row);
    }

    /// Some worker that sleeps should look round.
    pub(crate) fn wake_one(&self) {
        if let Some(n) = self.idle.wake_one(self.timers.keeper()) {
            self.unpark(n);
        }
    }

    fn push_main(&self, row: TurnRow) {
        if self.main.inbox.push(row) {
            self.main.tell(self, Cause::Task);
        }
    }

    /// Only worker `n` may take these. It looks at its inbox after each time it was
    /// woken: the first that is pushed into an empty one wakes it.
    fn push_pinned(&self, n: usize, row: TurnRow) {
        if self.workers[n].inbox.push(row) {
            self.unpark(n);
        }
    }

    /// Nothing lies where only the main thread looks.
    pub(crate) fn nothing_for_main(&self) -> bool {
        self.main.inbox.is_empty()
            && (!self.workers.is_empty() || self.injector.is_empty() && self.priorities.is_empty())
    }

    /// One turn, or the main thread's look round, is over. With virtual time,
    /// when that was the last, the clock jumps.
    pub(crate) fn rested(&self) {
        if self.busy.done() {
            self.when_idle();
        }
    }

    /// With virtual time: lets the clock jump while everything is blocked.
    pub(crate) fn when_idle(&self) {
        self.busy
            .when_idle(|| self.is_quiet() && self.calls.let_clock_move() && self.jump());
    }

    fn jump(&self) -> bool {
        let moved = self.clock.idle(self.timers.next_at());
        self.fire(self.clock.now());
        moved
    }

    /// The same whatever it waits for: a shutdown has waited long enough. A clock that
    /// does not jump is not waited for any more.
    pub(crate) fn jump_anyway(&self) {
        self.busy.alone(|| {
            let next = self.timers.next_at();
            let moved = self.clock.idle(next);
            self.fire(self.clock.now());
            if next.is_some() && !moved {
                self.clock.run();
            }
        });
    }

    /// The runtime shuts down. It goes by real time from here on; a virtual clock jumps
    /// until it has had the grace ([`jump_anyway`](Machine::jump_anyway)).
    pub(crate) fn shuts_down(&self) {
        if !self.clock.is_virtual() {
            self.clock.run();
            self.clock_changed();
        }
    }

    /// The clock runs faster or slower than it did: whoever sleeps until a
    /// timer looks again.
    pub(crate) fn clock_changed(&self) {
        match self.timers.keeper() {
            Some(MAIN) | None => return self.main.tell(self, Cause::Timer),
            Some(n) => self.unpark(n),
        }
        if self.timers.has_deputy() {
            self.main.tell(self, Cause::Timer);
        }
    }

    /// Fires the timers that are due; how many.
    pub(crate) fn fire_due(&self) -> usize {
        match self.due() {
            Some(now) => self.fire(now),
            None => 0,
        }
    }

    /// The time, if a thread that looks now has timers to fire.
    pub(crate) fn due(&self) -> Option<Instant> {
        if self.busy.counts() {
            // The clock stands still while somebody runs, and fires when it
            // moves.
            return None;
        }
        let (next, held_up) = self.timers.look();
        if next.is_none() && !held_up {
            return None;
        }
        let now = self.clock.now();
        (held_up || next.is_some_and(|at| at <= now)).then_some(now)
    }

    /// Fires the timers that are due by `now`; how many.
    pub(crate) fn fire(&self, now: Instant) -> usize {
        self.firing.fetch_add(1, Ordering::SeqCst);
        let fired = self.fire_in_order(now);
        if self.firing.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.timers_may_rest();
        }
        fired
    }

    /// The same, for the main thread that waits until timers rest.
    ///
    /// What they wake here goes behind the others, so that it runs in their order
    /// (time-6): the slot would turn it round. What lay in the slot stays there.
    pub(crate) fn fire_in_order(&self, now: Instant) -> usize {
        match here::local(self) {
            ThisThread::Elsewhere => self.timers.fire(now, || {}),
            ThisThread::Main(own) => {
                // What others have fired for us goes before.
                own.collect(self);
                own.without_slot(|| self.timers.fire(now, || own.slot_goes_behind()))
            }
            ThisThread::Worker(worker) => {
                // What these call may be slow: a neighbour looks after the rest.
                worker.want_sentinel();
                worker.collect_alone();
                worker.collect_pinned();
                worker.without_slot(|| self.timers.fire(now, || worker.slot_goes_behind()))
            }
        }
    }

    /// No thread is between taking a timer out and waking its owner. Asked
    /// before whether the woken rest.
    pub(crate) fn nobody_fires(&self) -> bool {
        self.firing.load(Ordering::SeqCst) == 0
    }

    /// The main thread says that it waits, then looks at the counts; whoever
    /// takes one to zero looks here after. One of them sees the other.
    fn timers_may_rest(&self) {
        if self.awaits_timers.load(Ordering::SeqCst) {
            self.main.tell(self, Cause::Timer);
        }
    }

    /// Until when worker `n` may sleep, if it is the one to keep the timers.
    pub(crate) fn keeps(&self, n: usize) -> Option<Instant> {
        if self.busy.counts() {
            return None;
        }
        let until = self.timers.keep(n);
        if !self.timers.are_being_fired() {
            return until;
        }
        // Another thread does: it may be held up.
        let soon = self.clock.now().checked_add(HELD_UP);
        [until, soon].into_iter().flatten().min()
    }

    /// How long the main thread may sleep in real time. Without workers it keeps
    /// the timers, else it is the deputy of those that do.
    pub(crate) fn main_sleeps(&self) -> Option<Duration> {
        if self.workers.is_empty() {
            return self.clock.real_time_until(self.keeps(MAIN)?);
        }
        if self.busy.counts() {
            return None;
        }
        let due = (self.timers.deputise())
            .and_then(|at| self.clock.real_time_until(at))
            .map(|due| due.saturating_add(LATE));
        // A worker does: it may be held up.
        let soon = self.timers.are_being_fired().then_some(HELD_UP);
        [due, soon].into_iter().flatten().min()
    }

    /// The main thread is awake, and keeps nothing.
    pub(crate) fn main_wakes(&self) {
        match self.workers.is_empty() {
            true => self.timers.unkeep(MAIN),
            false => self.timers.deputy_wakes(),
        }
    }

    /// No worker sleeps, so none keeps the timers but the main thread. A hint: the
    /// next look sees it.
    pub(crate) fn main_looks_at_timers(&self) -> bool {
        !self.idle.somebody_sleeps()
    }

    fn tell_of_timer(&self, set: NewTimer) {
        if set.deputy {
            self.main.tell(self, Cause::Timer);
        }
        match set.tell {
            Tell::Nobody => {}
            _ if self.workers.is_empty() => {
                // On its own thread it looks before it sleeps.
                if !matches!(here::local(self), ThisThread::Main(_)) {
                    self.main.tell(self, Cause::Timer);
                }
            }
            Tell::Keeper(n) => self.unpark(n),
            Tell::Anybody => {
                if let Some(n) = self.idle.wake_one(None) {
                    self.unpark(n);
                }
            }
        }
    }

    /// New or woken turns of one lane.
    fn put(&self, row: TurnRow) {
        self.busy.add(row.len());
        if row.priority().is_some() {
            return self.put_preferred(row);
        }
        let lane = row.lane();
        match here::local(self) {
            ThisThread::Main(own) if lane == Lane::Main || self.workers.is_empty() => {
                own.put_row(row)
            }
            ThisThread::Worker(worker) if lane == Lane::Pool => worker.put_row(row),
            ThisThread::Worker(worker) if lane == worker.lane() => worker.put_pinned_row(row),
            _ => match lane {
                Lane::Main => self.push_main(row),
                Lane::Pinned(n) if !self.workers.is_empty() => self.push_pinned(n.into(), row),
                _ => self.inject_counted(row),
            },
        }
    }

    /// One new or woken turn.
    fn put_one(&self, turn: Turn) {
        match here::local(self) {
            ThisThread::Main(own)
                if turn.is_ordinary() && self.workers.is_empty()
                    || turn.is_for(Lane::Main)
                    || self.workers.is_empty() && !turn.is_preferred() =>
            {
                self.busy.add(1);
                own.put(turn);
            }
            ThisThread::Worker(worker) if turn.is_ordinary() => {
                self.busy.add(1);
                worker.put(turn);
            }
            ThisThread::Worker(worker) if turn.lane() == worker.lane() => {
                self.busy.add(1);
                worker.put_pinned(turn);
            }
            _ => {
                let mut row = TurnRow::new();
                row.push_back(turn);
                self.put(row);
            }
        }
    }
}

impl CallHost for Machine {
    fn hold_for_call(&self) {
        self.busy.add(1);
    }

    fn release_for_call(&self) {
        self.rested();
    }

    fn holds(&self) -> usize {
        self.busy.count()
    }
}

impl Drop for Machine {
    /// The keeper of the quiet goes with it.
    fn drop(&mut self) {
        if let Some((quiet, _)) = self.quiet.get() {
            quiet.close();
        }
    }
}

/// The native runtime, as the model sees it.
pub(crate) struct Native(pub(crate) Arc<Machine>);

impl Host for Native {
    fn start(&self, turn: Turn) {
        self.0.put_one(turn);
    }

    fn schedule(&self, ready: TurnRow) {
        self.0.put(ready);
    }

    fn has_main_lane(&self) -> bool {
        true
    }

    fn pinned_lanes(&self) -> usize {
        // With no workers the main thread stands for one.
        self.0.workers.len().max(1)
    }

    fn turns_pinned(&self, n: usize) -> bool {
        match here::local(&self.0) {
            ThisThread::Worker(worker) => worker.number() == n,
            _ => n == 0 && self.0.workers.is_empty() && self.0.main.is_this_thread(),
        }
    }

    fn now(&self) -> Instant {
        self.0.clock.now()
    }

    fn coarse_millis(&self) -> Option<u64> {
        self.0.system_time.then(crate::linux::coarse_millis)?
    }

    fn looks(&self) -> bool {
        self.0.system_time
    }

    fn set_timer(&self, at: Instant, waker: Waker) -> TimerKey {
        let set = self.0.timers.set(at, waker);
        if !self.0.busy.counts() {
            self.0.tell_of_timer(set);
        }
        set.key
    }

    fn clear_timer(&self, key: TimerKey) -> Option<Waker> {
        self.0.timers.clear(key)
    }

    fn run_blocking(&self, call: BlockingCall) {
        let threads = blocking::wanted();
        let flight = CallInFlight::new(self.0.clone(), threads);
        let pool = match threads {
            For::Users => &self.0.blocking,
            For::Files => &self.0.io_calls,
            For::Names => &self.0.look_ups,
        };
        pool.run(call, flight);
    }

    fn hold_clock(&self, _site: &'static Location<'static>) {
        self.0.busy.add(1);
    }

    fn release_clock(&self, _site: &'static Location<'static>) {
        self.0.rested();
    }

    fn timers_rest(&self) {
        self.0.timers_may_rest();
    }

    fn io(&self) -> Option<&(dyn Any + Send + Sync)> {
        self.0.io().map(|handle| handle as &(dyn Any + Send + Sync))
    }

    fn io_gauges(&self) -> Option<IoGauges> {
        self.0.io().map(|handle| handle.gauges())
    }

    fn gauges(&self) -> HostGauges {
        let (own, main_turn) = self.0.main.load.read();
        let main = own + self.0.main.inbox.len();
        let injected = self.0.injector.len();
        let (high, low) = self.0.priorities.len();
        let (mut queued, mut pinned, mut turns) = (0, 0, usize::from(main_turn));
        for worker in &self.0.workers {
            let (len, in_turn) = worker.tray.load();
            queued += len;
            pinned += worker.pinned();
            turns += usize::from(in_turn);
        }
        let (next_timer, timers) = self.0.timers.load();
        HostGauges {
            runnable: Some(main + injected + high + low + queued + pinned + turns),
            next_timer,
            queues: vec![
                ("main", main),
                ("injected", injected),
                ("high", high),
                ("low", low),
                ("workers", queued),
                ("pinned", pinned),
                ("timers", timers),
                ("blocking", self.0.blocking.len()),
                ("i/o calls", self.0.io_calls.len()),
                ("look-ups", self.0.look_ups.len()),
            ],
        }
    }

    fn worker(&self) -> Option<u32> {
        match here::local(&self.0) {
            ThisThread::Worker(worker) => u32::try_from(worker.number()).ok(),
            ThisThread::Main(_) | ThisThread::Elsewhere => None,
        }
    }

    fn virtual_time(&self) -> bool {
        self.0.clock.is_virtual()
    }
}

/// A machine for models, with this clock and no threads.
#[cfg(all(test, loom))]
pub(crate) fn with_clock(
    workers: usize,
    clock: Arc<dyn Clock>,
    hook: Option<WakeHook>,
) -> Arc<Machine> {
    let pool = || BlockingPool::new(1, String::new());
    Arc::new(Machine::new(workers, clock, hook, pool(), pool(), pool()))
}

/// The same; its time stands still.
#[cfg(all(test, loom))]
pub(crate) fn still(workers: usize, hook: Option<WakeHook>) -> Arc<Machine> {
    struct Still(Instant);
    impl Clock for Still {
        fn now(&self) -> Instant {
            self.0
        }
    }
    with_clock(workers, Arc::new(Still(Instant::now())), hook)
}
