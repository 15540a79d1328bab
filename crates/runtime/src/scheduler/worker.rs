//! A worker: find, run, look after the clock, sleep.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kinfolk_core::host::{Lane, Turn, TurnRow, contained, look_again};
use kinfolk_queue::{
    FEW, Injector, MOMENT, PriorityStreak, STALE, STEAL_BATCH, SleepKind, Streak, Then, Thief, Tray,
};

use super::own_lane::OwnLane;
use super::pace::Pace;
use crate::here::{self, Here};
use crate::io::ThreadIo;
use crate::io::driver::WaitMode;
use crate::machine::Machine;
use crate::runtime::AbortOnUnwind;
use crate::sync::{self, SPINS, Thread};

/// How many turns until the injector is served although there is own work.
const INJECTED: u32 = 61;

/// How many turns until it looks whether a neighbour has far more to do.
const LOAD: u32 = 127;

/// Where turns are long, how many looks until the injector is served and until the
/// load is looked at: as many as of 16 turns each.
const LONG_INJECTED: u32 = 4;
const LONG_LOAD: u32 = 8;

/// What others see of a worker.
pub(crate) struct Neighbour {
    pub(crate) tray: Tray,
    /// What others have pinned to it.
    pub(crate) inbox: Injector,
    /// How many turns its own lane has. Written by it alone.
    lane_len: AtomicUsize,
    thread: std::sync::OnceLock<Thread>,
}

impl Neighbour {
    pub(crate) fn new() -> Neighbour {
        Neighbour {
            tray: Tray::new(),
            inbox: Injector::default(),
            lane_len: AtomicUsize::new(0),
            thread: std::sync::OnceLock::new(),
        }
    }

    /// How many turns are pinned to it and queued.
    pub(crate) fn pinned(&self) -> usize {
        self.inbox.len() + self.lane_len.load(Ordering::Relaxed)
    }

    /// Wakes its thread where it parks by itself; not in a driver.
    pub(crate) fn unpark(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

/// A worker's private part.
pub(crate) struct Worker {
    machine: Arc<Machine>,
    n: usize,
    ticks: Cell<u32>,
    pace: Pace,
    streak: Streak,
    priority_streak: PriorityStreak,
    thief: Thief,
    lane: OwnLane,
    /// None in models.
    thread_io: Option<ThreadIo>,
}

impl Worker {
    pub(crate) fn new(machine: Arc<Machine>, n: usize) -> Worker {
        let workers = machine.workers.len();
        let thread_io = machine.io().map(|handle| ThreadIo::new(handle.clone(), n));
        Worker {
            thread_io,
            machine,
            n,
            ticks: Cell::new(0),
            pace: Pace::new(Instant::now()),
            streak: Streak::default(),
            priority_streak: PriorityStreak::default(),
            thief: Thief::new(workers),
            lane: OwnLane::default(),
        }
    }

    /// Its number.
    pub(crate) fn number(&self) -> usize {
        self.n
    }

    /// The lane that it alone turns.
    pub(crate) fn lane(&self) -> Lane {
        u16::try_from(self.n).map_or(Lane::Main, Lane::Pinned)
    }

    fn seen(&self) -> &Neighbour {
        &self.machine.workers[self.n]
    }

    fn own(&self) -> &Tray {
        &self.seen().tray
    }

    /// The life of the worker, on its thread.
    pub(crate) fn run(self) {
        // SAFETY: `self` and the machine live until the end of this function.
        let _here = unsafe { here::enter(Here::Worker(Arc::as_ptr(&self.machine), &self)) };
        // SAFETY: it lives as long as `self`, and this is its thread.
        let _thread_io = self.thread_io.as_ref().map(|s| unsafe { s.enter() });
        self.settle_in();
        crate::linux::precise_timers();
        while !self.machine.is_stopping() {
            // Nothing unwinds out of a turn or a timer: what they call of the
            // user's is contained. If something does all the same, that is our
            // bug; the job is lost, not the worker. Around the loop, so that a
            // turn costs nothing more. Outside a turn the queues, and the count of
            // those who are awake, may be wrong: the others would wait for ever.
            if contained(|| self.work()) && !self.turn_unwound() {
                drop(AbortOnUnwind("a worker panicked outside any job"));
            }
        }
        self.leave_lane();
    }

    /// No thread turns this lane any more: what is queued here goes here. What is pushed
    /// from now on is leaked, since no other thread may touch it.
    fn leave_lane(&self) {
        loop {
            self.collect_pinned();
            let row = self.lane.clear();
            if row.is_empty() {
                return;
            }
            for turn in row {
                drop(turn);
                self.machine.rested();
            }
        }
    }

    fn work(&self) {
        let mut slept = false;
        while !self.machine.is_stopping() {
            match self.find() {
                Some(turn) => {
                    if std::mem::take(&mut slept) {
                        // Whoever woke us may have wanted a sentinel (I3).
                        self.want_sentinel();
                    }
                    self.take(turn);
                }
                None if self.poll_io(ThreadIo::poll_idle) => {}
                None => {
                    self.sleep();
                    look_again();
                    slept = true;
                }
            }
        }
    }

    /// What [`take`](Worker::take) does after a turn. False if there was none.
    fn turn_unwound(&self) -> bool {
        let in_turn = self.own().turn_unwound();
        if in_turn {
            self.machine.rested();
        }
        in_turn
    }

    /// Before it can sleep, so that a thread that wakes it finds it.
    pub(crate) fn settle_in(&self) {
        let _ = self.machine.workers[self.n].thread.set(sync::current());
    }

    fn take(&self, turn: Turn) {
        let again = self.own().run(turn);
        if let Some(again) = again {
            self.machine.busy.add(1);
            match again.is_ordinary() {
                true => self.put_back(again),
                false => self.put_back_elsewhere(again),
            }
        }
        self.machine.rested();
    }

    fn find(&self) -> Option<Turn> {
        let ticks = self.ticks.get().wrapping_add(1);
        self.ticks.set(ticks);
        let mut serve = ticks.is_multiple_of(INJECTED);
        if ticks.is_multiple_of(LOAD) {
            self.even_out();
        }
        if self.pace.is_due(ticks)
            && let Some(turn) = self.attend(ticks, &mut serve)
        {
            return Some(turn);
        }
        let priorities = &self.machine.priorities;
        if priorities.may_have_some()
            && let Some(turn) = priorities.take_first(&self.priority_streak, ticks, serve)
        {
            return Some(turn);
        }
        if serve && let Some(turn) = self.injected() {
            return Some(turn);
        }
        (self.own().pop(&self.streak))
            .or_else(|| self.injected())
            .or_else(|| self.preferred(ticks))
            .or_else(|| self.pinned())
    }

    /// There is no normal turn here. A low one goes behind what waits at a neighbour.
    fn preferred(&self, ticks: u32) -> Option<Turn> {
        let priorities = &self.machine.priorities;
        if !priorities.may_have_some() {
            return None;
        }
        (priorities.take_high(&self.priority_streak, ticks))
            .or_else(|| {
                let stole = self.steal();
                stole.then(|| self.want_sentinel());
                stole.then(|| self.own().pop(&self.streak))?
            })
            .or_else(|| priorities.take_low(&self.priority_streak))
    }

    /// There is more to do than to take a turn of the pool. Each turn comes by here that
    /// has something pinned queued behind it; the others do every 16th time.
    #[inline(never)]
    fn attend(&self, ticks: u32, serve: &mut bool) -> Option<Turn> {
        if self.pace.is_look(ticks) {
            self.look(ticks);
            *serve |= self.pace.is_long(LONG_INJECTED);
            self.collect_pinned();
        }
        if self.lane.is_empty() {
            return None;
        }
        self.pace.ask_for_next(ticks);
        if *serve {
            // The injector's turn, or it would wait for long where both fall together.
            return None;
        }
        self.taken(self.lane.in_its_go())
    }

    /// There is nothing of the pool.
    fn pinned(&self) -> Option<Turn> {
        self.collect_pinned();
        if self.lane.is_empty() {
            return None;
        }
        self.pace.ask_for_next(self.ticks.get());
        self.taken(self.lane.pop())
    }

    /// Shows others how many are left.
    fn taken(&self, turn: Option<Turn>) -> Option<Turn> {
        self.lane_changed();
        turn
    }

    fn lane_changed(&self) {
        let lane_len = &self.seen().lane_len;
        lane_len.store(self.lane.len(), Ordering::Relaxed);
    }

    /// What others have pinned here goes behind what is here.
    pub(crate) fn collect_pinned(&self) {
        if self.seen().inbox.is_empty() {
            return;
        }
        self.seen().inbox.take_all(|row| self.lane.put_row(row));
        self.lane_changed();
    }

    /// Woken or new, and pinned to this worker: it goes next.
    pub(crate) fn put_pinned(&self, new: Turn) {
        self.lane.put(new);
        self.wants_go();
    }

    /// It has had its turn, and is not of the pool, or is not normal.
    fn put_back_elsewhere(&self, turn: Turn) {
        match turn.priority() {
            Some(_) => self.machine.put_back_preferred(turn),
            None => self.put_back_pinned(turn),
        }
    }

    /// Pinned to this worker, and behind the others.
    fn put_back_pinned(&self, turn: Turn) {
        self.lane.put_back(turn);
        self.wants_go();
    }

    /// Woken together, and pinned to this worker.
    pub(crate) fn put_pinned_row(&self, row: TurnRow) {
        self.lane.put_row(row);
        self.wants_go();
    }

    fn wants_go(&self) {
        self.lane_changed();
        self.pace.ask_for_next(self.ticks.get());
    }

    /// Time has passed: timers may be due, operations over.
    #[inline(never)]
    fn look(&self, ticks: u32) {
        look_again();
        self.pace.looked(ticks, Instant::now());
        self.machine.fire_due();
        self.poll_io(ThreadIo::poll_busy);
        if self.pace.is_long(LONG_LOAD) {
            self.even_out();
        }
    }

    /// With virtual time, when all else waits: looks at the driver once more. True if
    /// it was asked to, and then there may be work.
    fn look_if_asked(&self) -> bool {
        let asked = self.machine.is_asked(self.n);
        if asked {
            self.poll_io(|thread_io| thread_io.poll(WaitMode::No));
            self.machine.rested();
        }
        asked
    }

    /// Wakes whose operations are over; true if there were any.
    fn poll_io(&self, poll: impl FnOnce(&ThreadIo) -> usize) -> bool {
        match &self.thread_io {
            Some(thread_io) if thread_io.is_busy() => poll(thread_io) > 0,
            _ => false,
        }
    }

    /// A fair share of what lies where everybody looks.
    fn injected(&self) -> Option<Turn> {
        let there = self.machine.injector.len();
        if there == 0 {
            return None;
        }
        let share = (there / self.machine.workers.len() + 1).min(STEAL_BATCH);
        let mut row = self.machine.injector.take(share);
        let first = row.next();
        self.put_all_back(row);
        first
    }

    /// The only worker takes in what others have pushed, before timers wake more:
    /// what the main thread has fired goes before what is fired here (time-6).
    pub(crate) fn collect_alone(&self) {
        if self.machine.workers.len() > 1 {
            return;
        }
        let injector = &self.machine.injector;
        injector.take_all(|row| self.put_all_back(row));
    }

    /// Takes its share of what a neighbour has more.
    fn even_out(&self) {
        let workers = &self.machine.workers;
        self.thief.even_out(
            self.n,
            workers.len(),
            |n| &workers[n].tray,
            |turn| {
                self.put_back(turn);
            },
        );
    }

    /// Woken or new: it goes next.
    pub(crate) fn put(&self, new: Turn) {
        match self.own().put_next(new) {
            Some(before) => self.put_back(before),
            None => self.want_sentinel(),
        }
    }

    /// Runs `f` while the slot is empty. What lay in it lies there again after.
    pub(crate) fn without_slot<R>(&self, f: impl FnOnce() -> R) -> R {
        let kept = self.own().take_next();
        let kept_pinned = self.lane.take_next();
        let answer = f();
        self.slot_goes_behind();
        if let Some(kept) = kept {
            self.put(kept);
        }
        if let Some(kept) = kept_pinned {
            self.put_pinned(kept);
        }
        answer
    }

    /// What lies in the slot goes behind the others.
    pub(crate) fn slot_goes_behind(&self) {
        if let Some(turn) = self.own().take_next() {
            self.put_back(turn);
        }
        if let Some(turn) = self.lane.take_next() {
            self.put_back_pinned(turn);
        }
    }

    /// There is something behind our turn: another worker should look after it.
    pub(crate) fn want_sentinel(&self) {
        if let Some(n) = self.machine.idle.wake_sentinel() {
            self.machine.unpark(n);
        }
    }

    /// There may be more behind our turn than we can do soon: a sleeping worker may help.
    pub(crate) fn want_help(&self, then: Then) {
        if then.wants_help() && self.machine.idle.somebody_sleeps() {
            self.machine.wake_one();
        }
    }

    /// Behind the others.
    pub(crate) fn put_back(&self, turn: Turn) {
        self.want_help(self.own().put_back(turn));
        self.want_sentinel();
    }

    /// All of them behind the others.
    fn put_all_back(&self, row: TurnRow) {
        match self.own().put_row_behind_backlog(row) {
            Ok(then) => self.want_help(then),
            Err(row) => {
                for turn in row {
                    self.put_back(turn);
                }
            }
        }
    }

    /// Woken together.
    pub(crate) fn put_row(&self, row: TurnRow) {
        if row.len() > FEW {
            return self.machine.inject_counted(row);
        }
        self.put_all_back(row);
    }

    /// Takes what has waited for long in a neighbour's queue into our own.
    fn steal(&self) -> bool {
        let clock = Cell::new(None);
        let workers = self.machine.workers.iter().enumerate();
        workers.filter(|(n, _)| *n != self.n).any(|(n, neighbour)| {
            self.thief.steal(
                n,
                &neighbour.tray,
                || {
                    let now = clock.get().unwrap_or_else(Instant::now);
                    clock.set(Some(now));
                    now
                },
                // There is room: our ring is empty when we steal.
                |turn| self.want_help(self.own().push_or_defer(turn)),
            )
        })
    }

    /// Others have pushed something that this worker takes, or it is to go home.
    fn is_needed(&self) -> bool {
        self.is_pushed_to() || !self.machine.priorities.is_empty()
    }

    /// The same without what may be a neighbour's own push, which it is about to take itself.
    fn is_pushed_to(&self) -> bool {
        !self.machine.injector.is_empty()
            || !self.seen().inbox.is_empty()
            || self.machine.is_stopping()
    }

    /// Nothing to do: looks round for a moment, then sleeps until there is.
    pub(crate) fn sleep(&self) {
        // What waits to be handed over to the system is handed over first.
        let spins = match &self.thread_io {
            Some(thread_io) if thread_io.has_unsent() => 0,
            _ => SPINS,
        };
        for _ in 0..spins {
            if self.is_pushed_to() {
                return;
            }
            std::hint::spin_loop();
        }
        let idle = &self.machine.idle;
        if self.steal() {
            // There may be more than we can do soon.
            return self.want_sentinel();
        }
        let mut how = idle.lie_down(self.n);
        loop {
            let found = self.look_if_asked()
                || self.is_needed()
                || self.machine.due().is_some()
                || self.poll_io(ThreadIo::poll_idle)
                || (how == SleepKind::Sentinel && self.steal());
            if found {
                break;
            }
            let keeps = self.machine.keeps(self.n);
            let wait = match how {
                SleepKind::ForGood => None,
                SleepKind::Sentinel => Some(self.moment()),
            };
            let due = keeps.and_then(|until| self.machine.clock.real_time_until(until));
            let most = match (wait, due) {
                (Some(wait), Some(due)) => Some(wait.min(due)),
                (wait, due) => wait.or(due),
            };
            let answered = match (&self.thread_io, most) {
                (Some(thread_io), _) if thread_io.is_busy() => thread_io.park(most) > 0,
                (_, None) => {
                    sync::park();
                    false
                }
                (_, Some(most)) => {
                    sync::park_timeout(most);
                    false
                }
            };
            self.pace.slept(self.ticks.get(), Instant::now());
            if keeps.is_some() {
                self.machine.timers.unkeep(self.n);
            }
            match idle.looked(self.n) {
                Some(next) => how = next,
                // Somebody has woken us, and counted us as awake.
                None => return,
            }
            if answered {
                break;
            }
        }
        if let Some(n) = idle.stay_up(self.n) {
            self.machine.unpark(n);
        }
        // Counted as awake: what a timer calls may be slow.
        self.machine.fire_due();
    }

    /// How soon to look again: sooner if something may be getting old.
    fn moment(&self) -> Duration {
        match self.thief.has_seen() {
            true => STALE,
            false => MOMENT,
        }
    }
}
