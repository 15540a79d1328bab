//! What the host, its drivers, the keeper and the watch share: the queues, the timers,
//! and the count for virtual time.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use kinfolk_core::host::{
    BlockingCall, CallHost, HostGauges, Lane, OwnTime, RealGrace, TimerKey, TimerQueue, Turn,
    TurnRow, VirtualCalls, wake,
};
use kinfolk_core::{Clock, WeakTree};
use kinfolk_queue::{Burial, Idle, Injector, MOMENT, PriorityQueues};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Notify;

use crate::clock::{PausedClock, TokioClock};
use crate::driver::TokioDriver;
use crate::here;
use crate::local_lane::LocalLane;
use crate::seat::Seat;
use crate::watch::{HeldUp, MOST_EXTRA};

/// Where drivers sleep.
pub(crate) enum Beds {
    /// There is one driver and will be no other: the runtime has one thread, so no
    /// other driver could run while that one is in a turn.
    One,
    /// As many as tokio has workers, and extra ones in the place of those that are held
    /// up.
    Many(Idle, HeldUp),
}

/// What a builder has said of its root.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Has {
    /// Tokio's clock is paused.
    pub(crate) paused_clock: bool,
    /// The thread of a `LocalSet` is its main lane.
    pub(crate) main_lane: bool,
}

/// What the host, its drivers, the keeper and the watch share.
pub(crate) struct Machine {
    pub(crate) tokio: Handle,
    pub(crate) clock: OwnTime,
    /// The clock is tokio's, and not one of the program's.
    pub(crate) is_tokios: bool,
    /// What holds it, where it is paused.
    holds: Option<Arc<PausedClock>>,
    timers: Mutex<TimerQueue>,
    /// Something changed that the keeper should look at.
    pub(crate) changed: Arc<Notify>,
    /// The clock is virtual, so turns are counted.
    pub(crate) counts: bool,
    /// With virtual time: turns that are queued or taken, calls that are under way.
    pub(crate) busy: AtomicUsize,
    /// With virtual time: the calls that are under way.
    pub(crate) calls: VirtualCalls,
    /// What comes from outside.
    pub(crate) injector: Injector,
    /// High and low ones, wherever they come from.
    pub(crate) priorities: PriorityQueues,
    /// Regular drivers first. The tray of one that was never started is not there.
    seats: Box<[OnceLock<Seat>]>,
    /// Seats from here on were never taken.
    taken: AtomicUsize,
    pub(crate) regular: usize,
    pub(crate) beds: Beds,
    /// The tree is gone: drivers go home.
    stopping: AtomicBool,
    /// What the thread of the `LocalSet` turns that the root was built in.
    pub(crate) main: Option<LocalLane>,
    /// Whether the tokio runtime is going away.
    pub(crate) burial: Burial,
    /// The tree was told of it.
    told: AtomicBool,
    tree: OnceLock<WeakTree>,
}

impl Machine {
    /// With tokio's clock, if it is given none, or as its builder has said.
    pub(crate) fn new(tokio: Handle, clock: Option<Arc<dyn Clock>>, has: Has) -> Machine {
        let is_tokios = clock.is_none();
        let clock = OwnTime::new(clock.unwrap_or_else(|| Arc::new(TokioClock)));
        let (beds, regular, seats) = match tokio.runtime_flavor() {
            RuntimeFlavor::CurrentThread => (Beds::One, 1, 1),
            _ => {
                let workers = tokio.metrics().num_workers().max(1);
                let beds = Beds::Many(Idle::asleep(workers), HeldUp::default());
                (beds, workers, workers + MOST_EXTRA)
            }
        };
        Machine {
            tokio,
            timers: Mutex::default(),
            changed: Arc::default(),
            counts: clock.is_virtual(),
            clock,
            is_tokios,
            holds: (has.paused_clock && is_tokios).then(Arc::default),
            busy: AtomicUsize::new(0),
            calls: VirtualCalls::new(),
            injector: Injector::default(),
            priorities: PriorityQueues::default(),
            seats: (0..seats).map(|_| OnceLock::new()).collect(),
            taken: AtomicUsize::new(0),
            regular,
            beds,
            stopping: AtomicBool::new(false),
            main: has.main_lane.then(LocalLane::default),
            burial: Burial::default(),
            told: AtomicBool::new(false),
            tree: OnceLock::new(),
        }
    }

    /// The tree that this is the host of. Called before its first task.
    pub(crate) fn serves(&self, tree: WeakTree) {
        let _ = self.tree.set(tree);
    }

    pub(crate) fn seat(&self, n: usize) -> &Seat {
        self.seats[n].get_or_init(|| {
            self.taken.fetch_max(n + 1, Ordering::SeqCst);
            match n < self.regular {
                true => Seat::regular(),
                false => Seat::extra(),
            }
        })
    }

    /// The seats that were taken, with their numbers.
    pub(crate) fn seats(&self) -> impl Iterator<Item = (usize, &Seat)> {
        let seats = &self.seats[..self.taken()];
        let seats = seats.iter().map(OnceLock::get).enumerate();
        seats.filter_map(|(n, seat)| Some((n, seat?)))
    }

    /// How many seats there are, up to the last that was taken.
    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed).min(self.seats.len())
    }
}

fn one(turn: Turn) -> TurnRow {
    let mut row = TurnRow::new();
    row.push_back(turn);
    row
}

/// Turns come in, and drivers are woken for them.
impl Machine {
    /// One new or woken turn.
    #[inline]
    pub(crate) fn put_one(self: &Arc<Self>, turn: Turn) {
        self.count(1);
        if let Some(lane) = &self.main
            && turn.lane() == Lane::Main
        {
            return self.put_main(lane, one(turn));
        }
        match here::local(self) {
            Some(_) if turn.is_preferred() => self.put_preferred(one(turn)),
            Some(local) => local.put(turn),
            None => self.bring(turn),
        }
    }

    /// Hands a turn to a driver that sleeps; puts it where every driver looks if there
    /// is none, or if others wait there.
    #[inline]
    fn bring(self: &Arc<Self>, turn: Turn) {
        let sleeper = match &self.beds {
            Beds::One => Some(0),
            Beds::Many(idle, _) if self.injector.is_empty() => idle.wake_one(None),
            Beds::Many(..) => None,
        };
        let Some(n) = sleeper else {
            return self.inject_one(turn);
        };
        let seat = self.seat(n);
        if let Err(turn) = seat.door.bring(turn) {
            // It is awake already.
            self.inject_one(turn);
            return self.wake_of_many(n);
        }
        self.wake(n);
        // A driver that goes says so first, and then takes what is at its door.
        if self.burial.is_gone()
            && let Some(turn) = seat.door.get_up()
        {
            self.inject_one(turn);
        }
    }

    /// Wakes driver `n`, which was taken out of the book of those that sleep.
    #[cold]
    fn wake_of_many(self: &Arc<Self>, n: usize) {
        if matches!(self.beds, Beds::Many(..)) {
            self.wake(n);
        }
    }

    pub(crate) fn inject_one(self: &Arc<Self>, turn: Turn) {
        match turn.priority() {
            None => self.inject(one(turn)),
            Some(_) => self.put_preferred(one(turn)),
        }
    }

    /// Puts turns with a priority where every driver looks first, or last. They are counted
    /// already. A driver takes them itself when its turn is over, and others while that
    /// lasts: as with its own queue.
    #[cold]
    pub(crate) fn put_preferred(self: &Arc<Self>, row: TurnRow) {
        let then = self.priorities.push(row);
        let Some(local) = here::local(self) else {
            self.wake_one();
            // `wake_one` begins with a fence.
            if self.burial.is_gone() {
                self.bury();
            }
            return;
        };
        // A driver that is dropped buries what it has pushed.
        local.has_pushed(then);
    }

    /// New or woken turns.
    pub(crate) fn put(self: &Arc<Self>, row: TurnRow) {
        self.count(row.len());
        if let Some(lane) = &self.main
            && row.lane() == Lane::Main
        {
            return self.put_main(lane, row);
        }
        match here::local(self) {
            _ if row.priority().is_some() => self.put_preferred(row),
            Some(local) => local.put_row(row),
            None => self.inject(row),
        }
    }

    /// Puts turns where every driver looks. They are counted already.
    pub(crate) fn inject(self: &Arc<Self>, row: TurnRow) {
        if row.is_empty() {
            return;
        }
        self.injector.push(row);
        self.wake_one();
        // `wake_one` begins with a fence.
        if self.burial.is_gone() {
            self.bury();
        }
    }

    /// A driver that sleeps should look at the injector.
    pub(crate) fn wake_one(self: &Arc<Self>) {
        let woken = match &self.beds {
            Beds::One => self.seat(0).door.knock().then_some(0),
            Beds::Many(idle, _) => idle.wake_one(None),
        };
        if let Some(n) = woken {
            self.wake(n);
        }
    }

    /// Makes tokio poll driver `n`, which starts it if it was not.
    #[inline]
    pub(crate) fn wake(self: &Arc<Self>, n: usize) {
        let seat = self.seat(n);
        match seat.is_to_start() {
            true => drop(self.tokio.spawn(TokioDriver::new(self.clone(), n))),
            false => seat.wake(),
        }
        if matches!(self.beds, Beds::Many(..)) && here::any().is_some() {
            // What a worker of tokio woke last waits for it to return, and no other
            // worker may take it: and we are in a turn, which may be a long one. So
            // something else is the last.
            drop(self.tokio.spawn(async {}));
        }
    }
}

/// With virtual time.
impl Machine {
    #[inline]
    pub(crate) fn count(&self, more: usize) {
        if self.counts {
            self.busy.fetch_add(more, Ordering::SeqCst);
        }
    }

    /// One turn or call is over. The keeper lets the clock jump after the last.
    #[inline]
    pub(crate) fn rested(&self) {
        if self.counts && self.busy.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.changed.notify_one();
        }
        if self.is_paused() {
            // Tokio's clock jumps without a word to us: a call that the turn has woken holds
            // it from here on.
            self.calls.let_clock_move();
        }
    }
}

impl CallHost for Machine {
    fn hold_for_call(&self) {
        self.count(1);
        self.hold_paused_clock();
    }

    fn release_for_call(&self) {
        self.rested();
        self.release_paused_clock();
    }

    fn holds(&self) -> usize {
        self.busy.load(Ordering::SeqCst)
    }

    fn is_asked(&self) -> bool {
        self.counts
    }
}

/// With tokio's clock paused.
impl Machine {
    /// The builder of the root has said so.
    pub(crate) fn is_paused(&self) -> bool {
        self.holds.is_some()
    }

    /// Something holds the clock.
    pub(crate) fn hold_paused_clock(&self) {
        if let Some(holds) = &self.holds
            && holds.hold()
        {
            // Tokio's clock does not jump while a blocking call of its runtime is under way.
            let holds = holds.clone();
            drop(self.tokio.spawn_blocking(move || holds.wait()));
        }
    }

    /// Something has let go of it.
    pub(crate) fn release_paused_clock(&self) {
        if let Some(holds) = &self.holds {
            holds.release();
        }
    }
}

/// Timers and calls.
impl Machine {
    fn timers(&self) -> MutexGuard<'_, TimerQueue> {
        self.timers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When the first timer is due.
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        self.timers().next_at()
    }

    pub(crate) fn set_timer(&self, at: Instant, waker: Waker) -> TimerKey {
        let (key, first) = {
            let mut timers = self.timers();
            let before = timers.next_at();
            let key = timers.insert(at, waker);
            (key, before.is_none_or(|before| at < before))
        };
        if first {
            self.changed.notify_one();
        }
        key
    }

    pub(crate) fn clear_timer(&self, key: TimerKey) -> Option<Waker> {
        self.timers().remove(key)
    }

    /// Wakes everybody whose time has come, in the order of their instants. A
    /// waker that panics is its author's matter: the keeper goes on. One that
    /// does not return is seen by the watch, which fires the others.
    pub(crate) fn fire_due(self: &Arc<Self>) {
        let now = self.clock.now();
        let mut due = self.timers().pop_due(now);
        if due.is_none() {
            return;
        }
        let _firing = Firing::begins(self);
        while let Some(waker) = due {
            wake(waker);
            due = self.timers().pop_due(now);
        }
    }

    /// Has what was due a moment ago fired, by a tokio task of its own. The keeper is held
    /// up then: by a waker that it calls, or by the turn of a job on the worker of tokio's
    /// that the keeper was woken on.
    pub(crate) fn fire_late(self: &Arc<Self>) {
        let is_late = |at: Instant| {
            let late = at.checked_add(MOMENT);
            late.is_some_and(|late| late <= self.clock.now())
        };
        if !self.counts && self.next_timer().is_some_and(is_late) {
            let machine = self.clone();
            drop(self.tokio.spawn(async move { machine.fire_due() }));
        }
    }

    /// A shutdown goes on by its own thread: its grace, which began at `began`, is over in
    /// real time. A virtual clock jumps; any other, and one that does not, is asked no more.
    pub(crate) fn fire_anyway(self: &Arc<Self>, began: Instant, grace: Duration) {
        let next = self.next_timer();
        if next.is_some() && !self.clock.idle(next) {
            self.clock.run_from(began.checked_add(grace));
        }
        self.fire_due();
    }

    pub(crate) fn run_blocking(self: &Arc<Self>, call: BlockingCall) {
        self.hold_for_call();
        let flight = TokioCall {
            call: Some(call),
            machine: self.clone(),
        };
        if self.burial.is_gone() {
            return;
        }
        let run = move || {
            let mut flight = flight;
            if let Some(call) = flight.call.take() {
                flight.machine.run_call(call);
            }
        };
        if !self.is_paused() {
            return drop(self.tokio.spawn_blocking(run));
        }
        // Tokio's clock would wait for a call that is tokio's, whatever that does. Without a
        // thread of its own the call was never made.
        let tokio = self.tokio.clone();
        let thread = std::thread::Builder::new().name("kinfolk-blocking".into());
        drop(thread.spawn(move || {
            let _inside = tokio.enter();
            run();
        }));
    }

    /// Makes a call, on this thread. A virtual clock does not wait for one that waits itself.
    fn run_call(self: &Arc<Self>, call: BlockingCall) {
        if !self.counts && !self.is_paused() {
            return call.run();
        }
        let watched = self.calls.begin(self.clone());
        call.run_asking(watched.asks());
    }

    pub(crate) fn gauges(&self) -> HostGauges {
        let injected = self.injector.len();
        let (high, low) = self.priorities.len();
        let (mut queued, mut turns) = (0, 0);
        for (_, seat) in self.seats() {
            let (len, in_turn) = seat.load();
            queued += len;
            turns += usize::from(in_turn);
        }
        let (main, in_turn) = self.main.as_ref().map_or((0, false), LocalLane::load);
        turns += usize::from(in_turn);
        let timers = self.timers();
        HostGauges {
            runnable: Some(injected + high + low + queued + main + turns),
            next_timer: timers.next_at(),
            queues: vec![
                ("timers", timers.len()),
                ("injected", injected),
                ("high", high),
                ("low", low),
                ("drivers", queued),
                ("main lane", main),
                (
                    "tokio's global queue",
                    self.tokio.metrics().global_queue_depth(),
                ),
            ],
        }
    }
}

/// From here on a shutdown goes by real time, or from its grace on if the clock is
/// tokio's, which a test may have paused, or virtual.
pub(crate) fn real_grace(machine: &Arc<Machine>, grace: Duration) -> RealGrace {
    let machine = machine.clone();
    if !machine.clock.is_virtual() && !machine.is_tokios {
        // A clock that is paused meanwhile, or stands still, holds up nothing.
        machine.clock.run();
        machine.changed.notify_one();
    }
    let began = machine.clock.now();
    RealGrace::begin(grace, move || machine.fire_anyway(began, grace))
}

/// Wakers of timers are being called, which may take long: the watch looks meanwhile.
struct Firing<'a>(Option<&'a HeldUp>);

impl Firing<'_> {
    fn begins(machine: &Arc<Machine>) -> Firing<'_> {
        let Beds::Many(_, held_up) = &machine.beds else {
            return Firing(None);
        };
        machine.watch_firing(held_up);
        Firing(Some(held_up))
    }
}

impl Drop for Firing<'_> {
    fn drop(&mut self) {
        if let Some(held_up) = self.0 {
            held_up.fired();
        }
    }
}

/// A blocking call that tokio has. One that it drops ends as one whose host is gone.
struct TokioCall {
    call: Option<BlockingCall>,
    machine: Arc<Machine>,
}

impl Drop for TokioCall {
    fn drop(&mut self) {
        drop(self.call.take());
        self.machine.release_for_call();
    }
}

/// The end, of the tree or of the tokio runtime.
impl Machine {
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// The tree is gone, and every driver goes home.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.let_clock_go();
        for (_, seat) in self.seats() {
            seat.wake();
        }
        if let Some(lane) = &self.main {
            lane.wake();
        }
    }

    /// This is the thread of its main lane.
    pub(crate) fn is_main_thread(&self) -> bool {
        let tree = self.tree.get().and_then(WeakTree::upgrade);
        tree.is_some_and(|tree| tree.on_main().is_some())
    }

    /// tokio has dropped a task of ours, so its runtime is going away: every job ends.
    /// `seat` is that of the driver that was dropped, if it was one.
    pub(crate) fn host_gone(self: &Arc<Self>, seat: Option<usize>) {
        self.burial.begin();
        self.let_clock_go();
        if let Some(n) = seat {
            self.inject(self.seat(n).clear());
        }
        self.bury();
        if !self.told.swap(true, Ordering::SeqCst)
            && let Some(tree) = self.tree.get().and_then(WeakTree::upgrade)
        {
            tree.host_gone();
        }
    }

    /// Drops what sleeping drivers were brought: their tokio runtime may go on, but on one
    /// thread it turns nothing while that thread is in the destructor of a set.
    pub(crate) fn bury_at_doors(self: &Arc<Self>) {
        for (_, seat) in self.seats() {
            if seat.door.has_turn()
                && let Some(turn) = seat.door.get_up()
            {
                self.inject_one(turn);
            }
        }
    }

    /// True if a job below the root has not ended.
    pub(crate) fn has_living_jobs(&self) -> bool {
        let tree = self.tree.get().and_then(WeakTree::upgrade);
        tree.is_some_and(|tree| tree.counters().living() > 1)
    }

    /// The runtime goes, or the tree: what still holds the paused clock holds up neither.
    fn let_clock_go(&self) {
        if let Some(holds) = &self.holds {
            holds.let_go();
        }
    }

    /// Drops what is queued, which ends its jobs.
    pub(crate) fn bury(&self) {
        let [high, low] = self.priorities.queues();
        self.burial.bury(&[&self.injector, high, low], |turn| {
            drop(turn);
            self.rested();
        });
    }
}

impl Drop for Machine {
    /// The keeper goes with it, and the watch.
    fn drop(&mut self) {
        self.changed.notify_one();
        if let Beds::Many(_, held_up) = &self.beds {
            held_up.wanted.notify_one();
        }
    }
}
