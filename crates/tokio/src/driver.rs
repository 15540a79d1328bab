//! A driver: a tokio task that takes turns of jobs. In each poll it takes some, then
//! tokio has the thread again.

use std::cell::Cell;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use kinfolk_core::host::{Turn, TurnRow, look_again};
use kinfolk_queue::{
    FEW, MOMENT, PriorityStreak, STALE, STEAL_BATCH, SleepKind, Streak, Then, Thief, Tray,
};
use tokio::task::coop::has_budget_remaining;

use crate::here;
use crate::machine::{Beds, Machine};
use crate::seat::Seat;

/// How many turns a driver takes in one poll: as many as tokio polls tasks between two
/// looks at its i/o.
const BATCH: u32 = 61;

/// No turn begins in a poll that has lasted for longer.
const LONGEST_POLL: Duration = Duration::from_micros(200);

/// How many turns until the injector is served although there is own work.
const INJECTED: u32 = 61;

/// How many turns until it looks whether another has far more to do.
const LOAD: u32 = 127;

/// A driver's private part.
pub(crate) struct DriverLocal {
    pub(crate) machine: Arc<Machine>,
    pub(crate) n: usize,
    ticks: Cell<u32>,
    streak: Streak,
    priority_streak: PriorityStreak,
    thief: Thief,
}

/// Finding turns, and putting them where they wait.
impl DriverLocal {
    #[inline]
    fn seat(&self) -> &Seat {
        self.machine.seat(self.n)
    }

    #[inline]
    fn tray(&self) -> &Tray {
        &self.seat().tray
    }

    fn find(&self) -> Option<Turn> {
        let ticks = self.ticks.get().wrapping_add(1);
        self.ticks.set(ticks);
        if ticks.is_multiple_of(LOAD) {
            self.even_out();
        }
        let serves = ticks.is_multiple_of(INJECTED);
        let priorities = &self.machine.priorities;
        if priorities.may_have_some()
            && let Some(turn) = priorities.take_first(&self.priority_streak, ticks, serves)
        {
            return Some(turn);
        }
        if serves && let Some(turn) = self.injected() {
            return Some(turn);
        }
        (self.tray().pop(&self.streak))
            .or_else(|| self.injected())
            .or_else(|| self.preferred(ticks))
    }

    /// There is no normal turn here. A low one goes behind what waits at another's tray.
    fn preferred(&self, ticks: u32) -> Option<Turn> {
        let priorities = &self.machine.priorities;
        if !priorities.may_have_some() {
            return None;
        }
        (priorities.take_high(&self.priority_streak, ticks))
            .or_else(|| {
                let stole = self.steal();
                stole.then(|| self.want_sentinel());
                stole.then(|| self.tray().pop(&self.streak))?
            })
            .or_else(|| priorities.take_low(&self.priority_streak))
    }

    /// A fair share of what lies where everybody looks.
    fn injected(&self) -> Option<Turn> {
        let there = self.machine.injector.len();
        if there == 0 {
            return None;
        }
        let share = (there / self.machine.regular + 1).min(STEAL_BATCH);
        let mut row = self.machine.injector.take(share);
        let first = row.next();
        self.put_all_back(row);
        first
    }

    /// Takes its share of what another driver has more.
    fn even_out(&self) {
        let machine = &self.machine;
        if matches!(machine.beds, Beds::Many(..)) {
            let tray = |n| &machine.seat(n).tray;
            self.thief
                .even_out(self.n, machine.taken(), tray, |turn| self.put_back(turn));
        }
    }

    /// Takes what has waited for long at another's tray.
    fn steal(&self) -> bool {
        if matches!(self.machine.beds, Beds::One) {
            return false;
        }
        let mut clock = None;
        let mut others = self.machine.seats().filter(|(n, _)| *n != self.n);
        others.any(|(n, seat)| {
            let now = || *clock.get_or_insert_with(Instant::now);
            self.thief.steal(n, &seat.tray, now, |turn| {
                self.want_help(self.tray().push_or_defer(turn));
            })
        })
    }

    /// Woken or new: it goes next.
    #[inline]
    pub(crate) fn put(&self, new: Turn) {
        match self.tray().put_next(new) {
            Some(before) => self.put_back(before),
            None => self.want_sentinel(),
        }
    }

    /// Woken together.
    pub(crate) fn put_row(&self, row: TurnRow) {
        match row.len() > FEW {
            true => self.machine.inject(row),
            false => self.put_all_back(row),
        }
    }

    /// Behind the others.
    fn put_back(&self, turn: Turn) {
        self.want_help(self.tray().put_back(turn));
        self.want_sentinel();
    }

    fn put_all_back(&self, row: TurnRow) {
        match self.tray().put_row_behind_backlog(row) {
            Ok(then) => self.want_help(then),
            Err(row) => row.for_each(|turn| self.put_back(turn)),
        }
    }

    /// It has pushed into the queues of all drivers.
    pub(crate) fn has_pushed(&self, then: Then) {
        self.want_help(then);
        self.want_sentinel();
    }

    /// There is something behind our turn: another driver should look after it.
    #[inline]
    fn want_sentinel(&self) {
        if let Beds::Many(idle, _) = &self.machine.beds
            && let Some(n) = idle.wake_sentinel()
        {
            self.machine.wake(n);
        }
    }

    /// There may be more behind our turn than we can do soon.
    #[inline]
    fn want_help(&self, then: Then) {
        if then.wants_help()
            && let Beds::Many(idle, _) = &self.machine.beds
            && idle.somebody_sleeps()
        {
            self.machine.wake_one();
        }
    }

    #[inline]
    fn take(&self, turn: Turn) {
        let again = self.tray().run(turn);
        self.machine.goes_on(self.n);
        match again {
            // It goes on being counted.
            Some(again) if again.is_ordinary() => self.put_back(again),
            Some(again) => self.machine.inject_one(again),
            None => self.machine.rested(),
        }
    }
}

/// Sleeping.
impl DriverLocal {
    /// There is something to do for a driver that is about to sleep.
    fn is_needed(&self) -> bool {
        !self.machine.injector.is_empty()
            || !self.machine.priorities.is_empty()
            || self.machine.is_stopping()
    }

    /// Nothing was found: lies down, unless there is something after all.
    fn lie_down(&self) -> Bed {
        let door = &self.seat().door;
        door.lie_down();
        match &self.machine.beds {
            Beds::One => match self.is_needed() {
                true => Bed::Up(door.get_up()),
                false => Bed::Lies(SleepKind::ForGood),
            },
            Beds::Many(idle, _) => {
                let how = idle.lie_down(self.n);
                match self.still_lies(how) {
                    Some(how) => Bed::Lies(how),
                    None => Bed::Up(door.get_up()),
                }
            }
        }
    }

    /// How it goes on sleeping; none if it is up.
    fn still_lies(&self, how: SleepKind) -> Option<SleepKind> {
        let Beds::Many(idle, _) = &self.machine.beds else {
            return Some(how);
        };
        let found = self.is_needed() || (how == SleepKind::Sentinel && self.steal());
        if !found {
            return Some(how);
        }
        if let Some(n) = idle.stay_up(self.n) {
            self.machine.wake(n);
        }
        None
    }

    /// It is up: the book of sleepers counts it as awake, if it did not yet.
    fn leaves_book(&self) {
        if let Beds::Many(idle, _) = &self.machine.beds
            && let Some(n) = idle.stay_up(self.n)
        {
            self.machine.wake(n);
        }
    }

    /// It lay down and is polled: how it goes on sleeping; none if it is up.
    fn looks_again(&self) -> Option<SleepKind> {
        let Beds::Many(idle, _) = &self.machine.beds else {
            return None;
        };
        // None: another driver has woken us, and counted us as awake.
        let how = idle.looked(self.n)?;
        self.still_lies(how)
    }
}

/// How a driver lies.
enum Bed {
    Lies(SleepKind),
    /// It does not, and may have been brought a turn meanwhile.
    Up(Option<Turn>),
}

/// What a poll comes to.
enum AfterTurns {
    /// It is polled again when tokio has served others.
    GivesWay,
    Sleeps(SleepKind),
    /// It is over.
    GoesHome,
}

/// A poll.
impl DriverLocal {
    /// Takes turns, `next` first. It has `slept` just before.
    fn work(&self, mut next: Option<Turn>, mut slept: bool) -> AfterTurns {
        self.machine.want_watch();
        let mut batch = Batch::default();
        loop {
            let Some(turn) = next.take().or_else(|| self.find()) else {
                if self.machine.is_stopping() || self.leaves_if_not_needed() {
                    return AfterTurns::GoesHome;
                }
                if self.steal() {
                    // There may be more than we can do soon.
                    self.want_sentinel();
                    continue;
                }
                match self.lie_down() {
                    Bed::Lies(how) => return AfterTurns::Sleeps(how),
                    Bed::Up(turn) => next = turn,
                }
                continue;
            };
            if std::mem::take(&mut slept) {
                // The driver that woke us may have wanted a sentinel (I3).
                self.want_sentinel();
            }
            self.take(turn);
            if batch.is_over() {
                return match self.leaves_if_not_needed() {
                    true => AfterTurns::GoesHome,
                    false => AfterTurns::GivesWay,
                };
            }
        }
    }

    /// It sleeps and is polled.
    fn turns_over(&self) -> AfterTurns {
        let door = &self.seat().door;
        if door.has_turn() {
            // The thread that brought it took us out of the book before. If we were polled
            // and lay down again in between, we stand there once more.
            self.leaves_book();
            return self.work(door.get_up(), true);
        }
        let Some(how) = self.looks_again() else {
            return self.work(door.get_up(), true);
        };
        if self.machine.lets_go(self.n) {
            self.leaves_book();
            self.machine.leaves(self.n);
            return AfterTurns::GoesHome;
        }
        AfterTurns::Sleeps(how)
    }

    /// True if it was an extra driver, and has left.
    fn leaves_if_not_needed(&self) -> bool {
        let leaves = self.machine.lets_go(self.n);
        if leaves {
            self.machine.leaves(self.n);
        }
        leaves
    }
}

/// When a poll has lasted for long enough.
#[derive(Default)]
pub(crate) struct Batch {
    turns: u32,
    began: Option<Instant>,
}

impl Batch {
    /// One more turn was taken. True if no other is to begin in this poll: not on a
    /// spent budget of tokio's above all, on which what the turn waits for would not be
    /// ready though it is.
    pub(crate) fn is_over(&mut self) -> bool {
        self.turns += 1;
        if self.turns >= BATCH || !has_budget_remaining() {
            return true;
        }
        // After two, four, eight turns, and each sixteen from there.
        let looks = match self.turns {
            1 => false,
            turns => turns.is_power_of_two() || turns.is_multiple_of(16),
        };
        if !looks {
            return false;
        }
        look_again();
        let now = Instant::now();
        now - *self.began.get_or_insert(now) > LONGEST_POLL
    }
}

/// A tokio task that takes turns.
pub(crate) struct TokioDriver {
    local: DriverLocal,
    /// It sleeps.
    sleeps: Option<SleepKind>,
    nap: Nap,
    /// It has gone home. One that is dropped before was dropped by tokio.
    is_home: bool,
}

impl TokioDriver {
    pub(crate) fn new(machine: Arc<Machine>, n: usize) -> TokioDriver {
        TokioDriver {
            local: DriverLocal {
                machine,
                n,
                ticks: Cell::new(0),
                streak: Streak::default(),
                priority_streak: PriorityStreak::default(),
                thief: Thief::default(),
            },
            sleeps: None,
            nap: Nap::default(),
            is_home: false,
        }
    }
}

impl Future for TokioDriver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let TokioDriver {
            local,
            sleeps,
            nap,
            is_home,
        } = self.get_mut();
        local.machine.seat(local.n).polled_with(cx.waker());
        let next = {
            // SAFETY: `local` is part of this future, which stays until the poll is over.
            let _here = unsafe { here::enter(local) };
            look_again();
            match sleeps.is_some() {
                true => local.turns_over(),
                // It may have been started with one.
                false => local.work(local.seat().door.get_up(), false),
            }
        };
        *sleeps = None;
        if !matches!(next, AfterTurns::Sleeps(_)) {
            nap.is_over();
        }
        match next {
            AfterTurns::GivesWay => give_way(cx),
            AfterTurns::Sleeps(how) => {
                *sleeps = Some(how);
                match how {
                    SleepKind::ForGood => Poll::Pending,
                    SleepKind::Sentinel => nap.rest(local.thief.has_seen(), cx),
                }
            }
            AfterTurns::GoesHome => {
                *is_home = true;
                Poll::Ready(())
            }
        }
    }
}

impl Drop for TokioDriver {
    fn drop(&mut self) {
        if !self.is_home {
            self.local.machine.host_gone(Some(self.local.n));
        }
    }
}

/// Lets tokio serve its other tasks and its i/o before it polls us again. A plain wake
/// would let the i/o wait for dozens of polls.
pub(crate) fn give_way(cx: &mut Context<'_>) -> Poll<()> {
    let again = pin!(tokio::task::yield_now());
    let _ = again.poll(cx);
    Poll::Pending
}

/// How the sentinel waits until it looks again.
///
/// It looks every millisecond. If it has seen something then, it looks once more when
/// that has become old: tokio's timers are too coarse for so short a wait, so it gives
/// way again and again until then.
#[derive(Default)]
struct Nap {
    timer: Option<Pin<Box<tokio::time::Sleep>>>,
    /// Until when it goes round.
    until: Option<Instant>,
    /// It has gone round since it last slept.
    went_round: bool,
}

impl Nap {
    /// It has worked.
    fn is_over(&mut self) {
        self.until = None;
        self.went_round = false;
    }

    fn rest(&mut self, has_seen: bool, cx: &mut Context<'_>) -> Poll<()> {
        if has_seen && !self.went_round {
            let now = Instant::now();
            let until = *self.until.get_or_insert(now + STALE);
            if now <= until {
                return give_way(cx);
            }
        }
        self.went_round = true;
        self.until = None;
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(MOMENT)));
        if timer.is_elapsed() {
            timer.as_mut().reset(tokio::time::Instant::now() + MOMENT);
        }
        if timer.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.went_round = false;
        give_way(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::sync::{Mutex, mpsc};
    use std::task::Waker;

    use kinfolk_core::host::{BlockingCall, Host, TimerKey};
    use kinfolk_core::{Tree, TreeOptions};

    use super::*;

    /// A host that keeps the turns it gets.
    #[derive(Default)]
    struct Keeps(Arc<Mutex<Vec<Turn>>>);

    impl Host for Keeps {
        fn start(&self, turn: Turn) {
            self.0.lock().unwrap().push(turn);
        }

        fn schedule(&self, ready: TurnRow) {
            self.0.lock().unwrap().extend(ready);
        }

        fn now(&self) -> Instant {
            Instant::now()
        }

        fn set_timer(&self, _at: Instant, _waker: Waker) -> TimerKey {
            unreachable!("no timer is set")
        }

        fn clear_timer(&self, _key: TimerKey) -> Option<Waker> {
            None
        }

        fn run_blocking(&self, _call: BlockingCall) {}
    }

    /// A driver is polled by hand beside another, which is awake: with its turn at the door
    /// after it was taken out of the book of sleepers; and with a turn that comes only
    /// after it was polled for nothing and has lain down again. The book counts it
    /// as awake in its turn, and not when it has lain down.
    #[test]
    fn lane_6_a_turn_that_comes_late_to_a_driver_leaves_the_book_right() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_time()
            .build()
            .unwrap();
        // The watch is not to see a turn of ours held up by a busy machine: its workers are
        // kept.
        let kept: Vec<_> = (0..2)
            .map(|_| {
                let (go, held) = mpsc::channel::<()>();
                drop(runtime.spawn(async move { held.recv() }));
                go
            })
            .collect();
        let machine = Arc::new(Machine::new(
            runtime.handle().clone(),
            None,
            Default::default(),
        ));
        let Beds::Many(idle, _) = &machine.beds else {
            panic!("a runtime with workers");
        };
        for n in 0..2 {
            assert!(machine.seat(n).is_to_start(), "not by tokio");
            assert_eq!(idle.wake_one(None), Some(n));
        }
        let mut driver = pin!(TokioDriver::new(machine.clone(), 0));
        let mut poll = || {
            let polled = poll_fn(|cx| Poll::Ready(driver.as_mut().poll(cx).is_ready()));
            runtime.block_on(polled)
        };

        let host = Keeps::default();
        let turns = host.0.clone();
        let tree = Tree::new(Box::new(host), TreeOptions::default());
        let awake = Arc::new(AtomicUsize::new(usize::MAX));
        let turn = || {
            let (machine, awake) = (machine.clone(), awake.clone());
            drop(tree.root_scope().launch(async move {
                let Beds::Many(idle, _) = &machine.beds else {
                    return;
                };
                awake.store(idle.awake(), SeqCst);
            }));
            turns.lock().unwrap().pop().expect("a turn of the new job")
        };

        assert!(!poll());
        assert_eq!(idle.awake(), 1, "it found nothing");
        for lies_down_again in [false, true] {
            assert_eq!(idle.wake_one(None), Some(0));
            if lies_down_again {
                assert!(!poll());
                assert_eq!(idle.awake(), 1, "it found nothing once more");
            }
            assert!(machine.seat(0).door.bring(turn()).is_ok());
            assert!(!poll());
            assert_eq!(awake.swap(usize::MAX, SeqCst), 2, "{lies_down_again}");
            assert_eq!(idle.awake(), 1, "{lies_down_again}: it has lain down");
        }

        machine.stop();
        assert!(poll(), "it goes home");
        drop(kept);
    }
}
