//! The watch: a tokio task that sees which turns are held up, and has extra drivers
//! started in their place.
//!
//! A turn that blocks in `block_in_place` keeps its driver, while tokio gives the
//! worker's other tasks another thread. So as many drivers as tokio has workers are too
//! few then: jobs would wait though a thread is free, and for ever if the turn waits for
//! one of them. A turn is *held up* from when it [says so](block_in_place), or when the
//! watch has seen it go on for a millisecond. There may be one extra driver for each
//! turn that is held up. An extra one that is not needed any more goes home.
//!
//! It also has timers fired that are late: the keeper, a tokio task too, waits for the end
//! of the turn on whose worker it was woken, and for the wakers that it calls.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use kinfolk_core::host::say::{Topic, say};
use kinfolk_queue::{Idle, MOMENT, Watch};
use tokio::sync::Notify;

use crate::driver::TokioDriver;
use crate::here;
use crate::machine::{Beds, Machine};

/// So many extra drivers at most.
pub(crate) const MOST_EXTRA: usize = 64;

/// What is known of turns that are held up, and of the extra drivers in their place.
#[derive(Default)]
pub(crate) struct HeldUp {
    /// How many turns are held up.
    turns: AtomicUsize,
    extra: Mutex<Extra>,
    watch: Watch,
    /// Wakes the watch.
    pub(crate) wanted: Arc<Notify>,
    watch_started: AtomicBool,
    said: AtomicBool,
}

#[derive(Default)]
struct Extra {
    living: usize,
    /// Seats that extra drivers have left, counted from the first of theirs.
    free: Vec<usize>,
    /// Seats from here on were never taken.
    fresh: usize,
}

impl HeldUp {
    fn extra(&self) -> MutexGuard<'_, Extra> {
        self.extra.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// More extra drivers live than turns are held up. A hint.
    fn has_too_many(&self) -> bool {
        self.extra().living > self.turns.load(Ordering::SeqCst)
    }

    /// True if an extra driver is to go home: it is counted out then.
    fn lets_one_go(&self) -> bool {
        let mut extra = self.extra();
        let goes = extra.living > self.turns.load(Ordering::SeqCst);
        extra.living -= usize::from(goes);
        goes
    }

    /// The seat for another extra driver, which is counted in; none if there are as
    /// many as turns are held up.
    fn takes_one_more(&self) -> Option<usize> {
        let mut extra = self.extra();
        if extra.living >= self.turns.load(Ordering::SeqCst) {
            return None;
        }
        let seat = match extra.free.pop() {
            Some(seat) => seat,
            None if extra.fresh < MOST_EXTRA => {
                extra.fresh += 1;
                extra.fresh - 1
            }
            None => {
                drop(extra);
                self.say_that_there_are_too_many();
                return None;
            }
        };
        extra.living += 1;
        Some(seat)
    }

    /// The wakers of timers have been called.
    pub(crate) fn fired(&self) {
        self.watch.is_over();
    }

    fn say_that_there_are_too_many(&self) {
        if !self.said.swap(true, Ordering::SeqCst) {
            say(
                Topic::Seldom,
                format_args!(
                    "kinfolk: {MOST_EXTRA} jobs on tokio block their threads at once; \
                     while more do, jobs may wait until one of these calls returns \
                     (use kinfolk::blocking for blocking calls)"
                ),
            );
        }
    }
}

impl Machine {
    /// A driver is awake: it must be watched.
    #[inline]
    pub(crate) fn want_watch(self: &Arc<Self>) {
        if let Beds::Many(_, held_up) = &self.beds
            && held_up.watch.is_wanted()
        {
            self.wake_watch(held_up);
        }
    }

    /// Wakers of timers are about to be called: the watch is to look meanwhile.
    pub(crate) fn watch_firing(self: &Arc<Self>, held_up: &HeldUp) {
        if held_up.watch.begins() {
            self.wake_watch(held_up);
        }
    }

    #[cold]
    fn wake_watch(self: &Arc<Self>, held_up: &HeldUp) {
        held_up.wanted.notify_one();
        if !held_up.watch_started.swap(true, Ordering::SeqCst) {
            let watch = watch(Arc::downgrade(self), held_up.wanted.clone());
            drop(self.tokio.spawn(watch));
        }
        // As in `Machine::wake`: what this worker woke last waits until it returns, and
        // what it returns from may be what is to be watched.
        drop(self.tokio.spawn(async {}));
    }

    /// The turn of driver `n` is held up. True if that is new.
    fn hold_up(self: &Arc<Self>, held_up: &HeldUp, n: usize) -> bool {
        let new = self.seat(n).hold_up();
        held_up.turns.fetch_add(usize::from(new), Ordering::SeqCst);
        new
    }

    /// The turn of driver `n` goes on or is over.
    #[inline]
    pub(crate) fn goes_on(&self, n: usize) {
        if let Beds::Many(_, held_up) = &self.beds
            && self.seat(n).go_on()
        {
            held_up.turns.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Starts extra drivers, if turns are held up and no driver sleeps that could go on
    /// in their place.
    fn start_extra(self: &Arc<Self>, idle: &Idle, held_up: &HeldUp) {
        while !idle.somebody_sleeps()
            && let Some(seat) = held_up.takes_one_more()
        {
            idle.join();
            let n = self.regular + seat;
            drop(self.tokio.spawn(TokioDriver::new(self.clone(), n)));
        }
    }

    /// True if driver `n` is an extra one that is not needed: then it is counted out,
    /// and goes home by [`leaves`](Machine::leaves).
    pub(crate) fn lets_go(&self, n: usize) -> bool {
        match &self.beds {
            Beds::Many(_, held_up) if n >= self.regular => held_up.lets_one_go(),
            _ => false,
        }
    }

    /// Extra driver `n`, which is awake, goes home. What it has goes to everybody.
    pub(crate) fn leaves(self: &Arc<Self>, n: usize) {
        let Beds::Many(idle, held_up) = &self.beds else {
            return;
        };
        let seat = self.seat(n);
        self.inject(seat.clear());
        idle.leave();
        seat.is_free();
        held_up.extra().free.push(n - self.regular);
        // What this driver has woken high or low stands in a queue that the regular drivers may
        // have buried before, each when it was dropped.
        fence(Ordering::SeqCst);
        if self.burial.is_gone() {
            self.bury();
        }
    }
}

/// Looks at every driver, a millisecond after the other look, while one is awake.
async fn watch(machine: Weak<Machine>, wanted: Arc<Notify>) {
    let mut seen = Vec::new();
    loop {
        wanted.notified().await;
        loop {
            tokio::time::sleep(MOMENT).await;
            let Some(machine) = machine.upgrade() else {
                return;
            };
            if look(&machine, &mut seen) {
                break;
            }
        }
        if machine.strong_count() == 0 {
            return;
        }
    }
}

/// What the watch has seen of a driver.
#[derive(Clone, Copy, Default)]
struct SeenTurn {
    /// In which turn it was.
    turn: Option<u32>,
    /// It was woken with a turn, and tokio had not polled it yet.
    waits: bool,
}

/// Sees which turns are held up. `seen` is what it saw at its last look. True if all
/// sleep, and no extra driver is left.
fn look(machine: &Arc<Machine>, seen: &mut Vec<SeenTurn>) -> bool {
    let Beds::Many(idle, held_up) = &machine.beds else {
        return true;
    };
    seen.resize(machine.taken(), SeenTurn::default());
    for (n, seat) in machine.seats() {
        let now = SeenTurn {
            turn: seat.tray.is_in_turn().then(|| seat.tray.turns()),
            waits: seat.door.has_turn(),
        };
        let Some(last) = seen.get_mut(n) else {
            continue;
        };
        match now.turn {
            // It ended just when it was seen to be held up.
            None => machine.goes_on(n),
            Some(_) if last.turn == now.turn => {
                machine.hold_up(held_up, n);
            }
            Some(_) => {}
        }
        if last.waits
            && now.waits
            && let Some(turn) = seat.door.get_up()
        {
            // A task of tokio's own that blocks may be in its way: another driver
            // takes it.
            machine.inject_one(turn);
        }
        *last = now;
    }
    machine.start_extra(idle, held_up);
    machine.fire_late();
    if held_up.has_too_many() {
        // Those that sleep hear that they are not needed.
        let extra = machine.seats().skip_while(|(n, _)| *n < machine.regular);
        extra.for_each(|(_, seat)| seat.wake());
    }
    held_up.extra().living == 0 && held_up.watch.rests(idle)
}

/// Runs code that blocks the thread, as [`tokio::task::block_in_place`] does, and lets
/// other jobs go on meanwhile.
///
/// Inside a job use this one: what waits behind the job is given to others at once.
/// With tokio's own function they wait until the host sees that the job blocks, a
/// millisecond or two. [`blocking`](kinfolk_core::blocking) is better than both where
/// the code may run on another thread: a cancel reaches its waiter.
///
/// Outside every job it is tokio's. In the first sixty-four jobs that block at once all
/// others go on; beyond, they may have to wait.
///
/// # Panics
/// As tokio's: on a current-thread runtime.
#[track_caller]
pub fn block_in_place<R>(call: impl FnOnce() -> R) -> R {
    /// The turn goes on.
    struct BlocksNow<'a>(&'a Machine, usize);
    impl Drop for BlocksNow<'_> {
        fn drop(&mut self) {
            self.0.goes_on(self.1);
        }
    }
    let local = here::any();
    // What the call wakes goes to other drivers.
    let _elsewhere = here::leave();
    let _blocks = local.and_then(|local| {
        let Beds::Many(idle, held_up) = &local.machine.beds else {
            return None;
        };
        let new = local.machine.hold_up(held_up, local.n);
        local.machine.inject(local.machine.seat(local.n).clear());
        if !local.machine.priorities.is_empty() {
            local.machine.wake_one();
        }
        local.machine.start_extra(idle, held_up);
        new.then(|| BlocksNow(&local.machine, local.n))
    });
    tokio::task::block_in_place(call)
}
