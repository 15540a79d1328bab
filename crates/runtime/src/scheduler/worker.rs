//! A worker: find, run, look after the clock, sleep.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use kinfolk_core::host::{Ready, Turn, contained, look_again};

use super::idle::Sleep;
use super::injector::Injector;
use super::pace::Pace;
use super::ring::{Item, LOOT, Line, Ring};
use super::slot::{SeenItem, Slot};
use crate::here::{self, Here};
use crate::io::Station;
use crate::io::driver::Wait;
use crate::machine::Machine;
use crate::runtime::Abort;
use crate::sync::{self, SPINS, Thread};

/// How many turns what was woken last may take before others have one.
const STREAK: u32 = 8;

/// How many turns until the injector is served although there is own work.
const INJECTED: u32 = 61;

/// How many turns until it looks whether a neighbour has far more to do.
const LOAD: u32 = 127;

/// Where turns are long, how many looks until the injector is served and until the
/// load is looked at: as many as of 16 turns each.
const LONG_INJECTED: u32 = 4;
const LONG_LOAD: u32 = 8;

/// How many more that are.
const FAR_MORE: usize = 64;

/// So many in a ring are more than one worker can do soon.
const LONG: usize = 256;

/// What has waited this long in a neighbour's queue is stolen.
const STALE: Duration = Duration::from_micros(50);

/// How soon the sentinel looks again.
const MOMENT: Duration = Duration::from_millis(1);

/// Woken together up to this many go into the ring; more go to everybody.
const FEW: usize = 32;

/// What others see of a worker.
pub(crate) struct Neighbour {
    ring: Ring,
    /// What the ring has no room for: behind it, and first in, first out. Only the
    /// worker puts something in.
    backlog: Line<Injector>,
    /// What the last turn woke: it goes first, so that awaiting a child is a
    /// hand-over. Others may take it if the turn lasts.
    next: Slot,
    /// Turns begun. Written by the worker only.
    turns: AtomicU32,
    in_turn: AtomicBool,
    thread: std::sync::OnceLock<Thread>,
}

impl Neighbour {
    pub(crate) fn new() -> Neighbour {
        Neighbour {
            ring: Ring::new(),
            backlog: Line(Injector::in_rows_of(LOOT)),
            next: Slot::new(),
            turns: AtomicU32::new(0),
            in_turn: AtomicBool::new(false),
            thread: std::sync::OnceLock::new(),
        }
    }

    /// Wakes its thread where it parks by itself; not in a driver.
    pub(crate) fn unpark(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// How many are queued here, and whether a turn is taken.
    pub(crate) fn load(&self) -> (usize, bool) {
        let (head, tail) = self.ring.span();
        let next = usize::from(!self.next.look().is_none());
        (
            (tail - head) as usize + self.backlog.0.len() + next,
            self.in_turn.load(Ordering::Relaxed),
        )
    }

    fn take_next(&self) -> Option<Turn> {
        self.next.take().map(turn)
    }

    /// Gives a thief up to `most` of what has waited longest.
    fn give(&self, most: usize, mut take: impl FnMut(Turn)) {
        let until = self.ring.span().0.saturating_add(2 * most as u64);
        let given = self.ring.steal(until, |item| take(turn(item)));
        let left = most.min(LOOT).saturating_sub(given);
        self.backlog.0.take(left).for_each(take);
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        drop(self.take_next());
        while let Some(item) = self.ring.pop() {
            drop(turn(item));
        }
    }
}

fn turn(item: Item) -> Turn {
    // SAFETY: everything in rings and slots came from `into_raw`, and each
    // comes out once: R2, noticed by `steal_vs_pop` and `two_thieves`; a swap,
    // noticed by `slot_hands_over_once`.
    unsafe { Turn::from_raw(item) }
}

/// What a worker remembers of a neighbour since it last looked.
#[derive(Clone, Copy)]
struct Seen {
    at: Instant,
    tail: u64,
    next: SeenItem,
    turns: u32,
}

/// A worker's private part.
pub(crate) struct Worker {
    machine: Arc<Machine>,
    n: usize,
    ticks: Cell<u32>,
    pace: Pace,
    streak: Cell<u32>,
    seen: RefCell<Vec<Option<Seen>>>,
    /// Whose load is looked at next, and how many turns each had begun when it was
    /// looked at last.
    whose: Cell<usize>,
    begun: RefCell<Vec<u32>>,
    /// None in models.
    station: Option<Station>,
}

impl Worker {
    pub(crate) fn new(machine: Arc<Machine>, n: usize) -> Worker {
        let workers = machine.workers.len();
        let station = machine.io().map(|hub| Station::new(hub.clone(), n));
        Worker {
            station,
            machine,
            n,
            ticks: Cell::new(0),
            pace: Pace::new(Instant::now()),
            streak: Cell::new(0),
            seen: RefCell::new(vec![None; workers]),
            whose: Cell::new(0),
            begun: RefCell::new(vec![0; workers]),
        }
    }

    fn own(&self) -> &Neighbour {
        &self.machine.workers[self.n]
    }

    /// The life of the worker, on its thread.
    pub(crate) fn run(self) {
        // SAFETY: `self` and the machine live until the end of this function.
        let _here = unsafe { here::enter(Here::Worker(Arc::as_ptr(&self.machine), &self)) };
        // SAFETY: it lives as long as `self`, and this is its thread.
        let _station = self.station.as_ref().map(|s| unsafe { s.enter() });
        self.settle_in();
        crate::linux::precise_timers();
        while !self.machine.is_stopping() {
            // Nothing unwinds out of a turn or a timer: what they call of the
            // user's is contained. If something does all the same, that is our
            // bug; the job is lost, not the worker. Around the loop, so that a
            // turn costs nothing more. Outside a turn the queues, and the count of
            // those who are awake, may be wrong: the others would wait for ever.
            if contained(|| self.work()) && !self.turn_unwound() {
                drop(Abort("a worker panicked outside every job"));
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
                None if self.visit_io(Station::settle) => {}
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
        let in_turn = self.own().in_turn.swap(false, Ordering::Relaxed);
        if in_turn {
            self.machine.rested();
        }
        in_turn
    }

    /// Before it can sleep, so that whoever wakes it finds it.
    pub(crate) fn settle_in(&self) {
        let _ = self.own().thread.set(sync::current());
    }

    fn take(&self, turn: Turn) {
        let turns = &self.own().turns;
        turns.store(
            turns.load(Ordering::Relaxed).wrapping_add(1),
            Ordering::Relaxed,
        );
        self.own().in_turn.store(true, Ordering::Relaxed);
        let again = turn.run();
        self.own().in_turn.store(false, Ordering::Relaxed);
        if let Some(again) = again {
            self.machine.busy.add(1);
            self.put_back(again);
        }
        self.machine.rested();
    }

    fn find(&self) -> Option<Turn> {
        let ticks = self.ticks.get().wrapping_add(1);
        self.ticks.set(ticks);
        let mut serve = ticks.is_multiple_of(INJECTED);
        if self.pace.is_due(ticks) {
            self.look(ticks);
            serve |= self.pace.is_long(LONG_INJECTED);
        }
        if ticks.is_multiple_of(LOAD) {
            self.even_out();
        }
        if serve && let Some(turn) = self.injected() {
            return Some(turn);
        }
        self.handed_over()
            .or_else(|| self.own().ring.pop().map(turn))
            .or_else(|| self.refilled())
            .or_else(|| self.own().take_next())
            .or_else(|| self.injected())
    }

    /// Time has passed: timers may be due, operations over.
    #[inline(never)]
    fn look(&self, ticks: u32) {
        look_again();
        self.pace.looked(ticks, Instant::now());
        self.machine.fire_due();
        self.visit_io(Station::glance);
        if self.pace.is_long(LONG_LOAD) {
            self.even_out();
        }
    }

    /// With virtual time, when all else waits: looks at the driver once more. True if
    /// it was asked to, and then there may be work.
    fn look_if_asked(&self) -> bool {
        let asked = self.machine.is_asked(self.n);
        if asked {
            self.visit_io(|station| station.turn(Wait::No));
            self.machine.rested();
        }
        asked
    }

    /// Wakes whose operations are over; true if there were any.
    fn visit_io(&self, visit: impl FnOnce(&Station) -> usize) -> bool {
        match &self.station {
            Some(station) if station.is_busy() => visit(station) > 0,
            _ => false,
        }
    }

    /// What the last turn woke, unless that has gone on for long.
    fn handed_over(&self) -> Option<Turn> {
        if self.streak.get() >= STREAK {
            self.streak.set(0);
            return None;
        }
        let next = self.own().take_next();
        let streak = if next.is_some() {
            self.streak.get() + 1
        } else {
            0
        };
        self.streak.set(streak);
        next
    }

    /// The ring is empty: what waits behind it comes in.
    fn refilled(&self) -> Option<Turn> {
        let mut row = self.own().backlog.0.take(LOOT);
        let first = row.next();
        for turn in row {
            self.push_or_defer(turn);
        }
        first
    }

    /// A fair share of what lies where everybody looks.
    fn injected(&self) -> Option<Turn> {
        let there = self.machine.injector.len();
        if there == 0 {
            return None;
        }
        let share = (there / self.machine.workers.len() + 1).min(LOOT);
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

    /// Takes half of what a neighbour has more than we have, so that tasks have as
    /// many turns on one worker as on another. One that is in the same turn as when
    /// we looked last does nothing of it: half of all.
    fn even_out(&self) {
        let n = self.whose.get() % self.machine.workers.len();
        self.whose.set(n + 1);
        if n == self.n {
            return;
        }
        let neighbour = &self.machine.workers[n];
        let turns = neighbour.turns.load(Ordering::Relaxed);
        let stays = std::mem::replace(&mut self.begun.borrow_mut()[n], turns) == turns;
        let (own, least) = match stays {
            true => (0, 0),
            false => (self.own().load().0, FAR_MORE),
        };
        let more = neighbour.load().0.saturating_sub(own);
        if more > least {
            neighbour.give(more.div_ceil(2), |turn| self.put_back(turn));
        }
    }

    /// Woken or new: it goes next.
    pub(crate) fn put(&self, new: Turn) {
        match self.own().next.put(new.into_raw()) {
            Some(before) => self.put_back(turn(before)),
            None => self.want_sentinel(),
        }
    }

    /// Runs `f` while the slot is empty. What lay in it lies there again after.
    pub(crate) fn without_slot<R>(&self, f: impl FnOnce() -> R) -> R {
        let kept = self.own().take_next();
        let answer = f();
        self.slot_goes_behind();
        if let Some(kept) = kept {
            self.put(kept);
        }
        answer
    }

    /// What lies in the slot goes behind the others.
    pub(crate) fn slot_goes_behind(&self) {
        if let Some(turn) = self.own().take_next() {
            self.put_back(turn);
        }
    }

    /// There is something behind our turn: somebody should look after it.
    fn want_sentinel(&self) {
        if let Some(n) = self.machine.idle.wake_sentinel() {
            self.machine.unpark(n);
        }
    }

    /// There is more behind our turn than we can do soon: whoever sleeps may help.
    fn want_help(&self) {
        if self.machine.idle.somebody_sleeps() {
            self.machine.wake_one();
        }
    }

    /// Behind the others.
    pub(crate) fn put_back(&self, turn: Turn) {
        match self.own().backlog.0.len() {
            0 => self.push_or_defer(turn),
            _ => self.defer(turn),
        }
        self.want_sentinel();
    }

    /// All of them behind the others.
    fn put_all_back(&self, row: Ready) {
        if self.own().backlog.0.len() == 0 {
            for turn in row {
                self.put_back(turn);
            }
        } else if !row.is_empty() {
            self.own().backlog.0.push(row);
            self.want_help();
        }
    }

    fn push_or_defer(&self, new: Turn) {
        match self.own().ring.push(new.into_raw()) {
            // Not each time: to wake one takes longer than many turns.
            Ok(len) if len >= LONG && len.is_multiple_of(LOOT) => self.want_help(),
            Ok(_) => {}
            Err(item) => self.defer(turn(item)),
        }
    }

    /// There is no room in the ring.
    fn defer(&self, turn: Turn) {
        let mut row = Ready::new();
        row.push_back(turn);
        let backlog = &self.own().backlog.0;
        let before = backlog.len();
        backlog.push(row);
        if before.is_multiple_of(LOOT) {
            self.want_help();
        }
    }

    /// Woken together.
    pub(crate) fn put_row(&self, row: Ready) {
        if row.len() > FEW {
            return self.machine.inject_counted(row);
        }
        self.put_all_back(row);
    }

    /// Takes what has waited for long in a neighbour's queue into our own.
    fn steal(&self) -> bool {
        let mut found = false;
        let now = Instant::now();
        for n in 0..self.machine.workers.len() {
            if n == self.n {
                continue;
            }
            let neighbour = &self.machine.workers[n];
            let there = neighbour.load().0;
            if there >= LONG || neighbour.backlog.0.len() > 0 {
                // It has more than it can do soon, however new that is.
                neighbour.give(there.div_ceil(2), |turn| {
                    self.steal_one(turn.into_raw(), &mut found);
                });
                if found {
                    return true;
                }
            }
            let (head, tail) = neighbour.ring.span();
            let next = neighbour.next.look();
            let turns = neighbour.turns.load(Ordering::Relaxed);
            let fresh = Seen {
                at: now,
                tail,
                next,
                turns,
            };
            let mut seen = self.seen.borrow_mut();
            let Some(before) = seen[n] else {
                seen[n] = (head != tail || !next.is_none()).then_some(fresh);
                continue;
            };
            let waits = head < before.tail;
            let held = !next.is_none() && next == before.next && turns == before.turns;
            if !waits && !held {
                seen[n] = (head != tail || !next.is_none()).then_some(fresh);
                continue;
            }
            if now - before.at < STALE {
                continue;
            }
            seen[n] = None;
            drop(seen);
            if waits {
                neighbour
                    .ring
                    .steal(before.tail, |item| self.steal_one(item, &mut found));
            }
            if held && let Some(item) = neighbour.next.steal(next) {
                self.steal_one(item, &mut found);
            }
            if found {
                return true;
            }
        }
        found
    }

    fn steal_one(&self, item: Item, found: &mut bool) {
        *found = true;
        // There is room: our ring is empty when we steal.
        self.push_or_defer(turn(item));
    }

    /// Nothing to do: looks round for a moment, then sleeps until there is.
    pub(crate) fn sleep(&self) {
        // What waits to be handed over to the system is handed over first.
        let spins = match &self.station {
            Some(station) if station.has_unsent() => 0,
            _ => SPINS,
        };
        for _ in 0..spins {
            if self.machine.injector.len() > 0 || self.machine.is_stopping() {
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
                || self.machine.injector.len() > 0
                || self.machine.is_stopping()
                || self.machine.fire_due() > 0
                || self.visit_io(Station::settle)
                || (how == Sleep::Sentinel && self.steal());
            if found {
                break;
            }
            let keeps = self.machine.keeps(self.n);
            let wait = match how {
                Sleep::ForGood => None,
                Sleep::Sentinel => Some(self.moment()),
            };
            let due = keeps.and_then(|until| self.machine.clock.real_time_until(until));
            let most = match (wait, due) {
                (Some(wait), Some(due)) => Some(wait.min(due)),
                (wait, due) => wait.or(due),
            };
            let landed = match (&self.station, most) {
                (Some(station), _) if station.is_busy() => station.park(most) > 0,
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
            if landed {
                break;
            }
        }
        if let Some(n) = idle.stay_up(self.n) {
            self.machine.unpark(n);
        }
    }

    /// How soon to look again: sooner if something may be getting old.
    fn moment(&self) -> Duration {
        match self.seen.borrow().iter().any(Option::is_some) {
            true => STALE,
            false => MOMENT,
        }
    }
}
