//! The queues of turns with another priority than the normal one, and whose go it is.
//!
//! There is one queue for high turns and one for low ones, and every worker takes from both:
//! a high turn is for the first worker that is free, whichever woke it. Each is an
//! [`Injector`], so what is said there of pushes and sleepers holds here: a push from outside
//! wakes a sleeper, one by a worker counts as a push into its own ring.
//!
//! Of the turns that a worker takes of the pool, while others wait, at most [`HIGH_ROW`] in a
//! row are high, and at least one in [`LOW_EVERY`] is low. Nothing of this is asked while both
//! queues are empty.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

use kinfolk_core::host::{Priority, Turn, TurnRow};

use crate::injector::Injector;
use crate::ring::{CacheLine, STEAL_BATCH};
use crate::tray::{FEW, Then};

/// How many high turns a worker takes in a row, while normal ones wait.
const HIGH_ROW: u32 = 16;

/// Of so many turns one is low, while low ones wait.
const LOW_EVERY: u32 = 32;

/// What a worker has taken: how far the bounds are away.
#[derive(Debug, Default)]
pub struct PriorityStreak {
    /// How many high turns came in a row, and the tick of the last turn of these queues.
    high: Cell<u32>,
    tick: Cell<u32>,
    /// How many turns have gone before a low one since the last of those.
    before_low: Cell<u32>,
}

impl PriorityStreak {
    /// How many high turns in a row were the last before `tick`.
    fn high_before(&self, tick: u32) -> u32 {
        match self.tick.get() == tick.wrapping_sub(1) {
            true => self.high.get(),
            false => 0,
        }
    }

    fn took(&self, tick: u32, high: u32) {
        self.tick.set(tick);
        self.high.set(high);
    }

    /// A low turn waits. True if it is its go.
    fn low_is_due(&self) -> bool {
        let before = self.before_low.get() + 1;
        let due = before >= LOW_EVERY;
        self.before_low.set(if due { 0 } else { before });
        due
    }
}

/// Turns of the pool with the high and with the low priority.
///
/// One word says whether there are any, so that a worker without such turns asks that alone.
/// It counts a turn before it is pushed, and until after it was taken: if a queue is seen to
/// have some, so is the word.
pub struct PriorityQueues {
    queued: CacheLine<AtomicUsize>,
    high: CacheLine<Injector>,
    low: CacheLine<Injector>,
}

impl Default for PriorityQueues {
    fn default() -> Self {
        PriorityQueues {
            queued: CacheLine(AtomicUsize::new(0)),
            high: CacheLine(Injector::default()),
            low: CacheLine(Injector::default()),
        }
    }
}

impl std::fmt::Debug for PriorityQueues {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PriorityQueues")
            .field("high", &self.high.0.len())
            .field("low", &self.low.0.len())
            .finish()
    }
}

impl PriorityQueues {
    /// Puts a row of one priority behind the others of it. The answer is for the worker that
    /// pushes: others are told whatever it is. Normal turns do not belong here, and would go
    /// as the low ones do.
    pub fn push(&self, row: TurnRow) -> Then {
        let more = row.len();
        let queue = match row.priority() {
            Some(Priority::High) => &self.high.0,
            _ => &self.low.0,
        };
        self.queued.0.fetch_add(more, Ordering::Relaxed);
        queue.push(row);
        let len = queue.len();
        Then::wants_help_if(more > FEW || len.is_multiple_of(STEAL_BATCH))
    }

    /// True if there are some, or are about to be: one load.
    #[inline]
    pub fn may_have_some(&self) -> bool {
        self.queued.0.load(Ordering::Relaxed) != 0
    }

    /// True if there are none, as every thread sees it.
    pub fn is_empty(&self) -> bool {
        self.high.0.is_empty() && self.low.0.is_empty()
    }

    /// How many are high and how many low.
    pub fn len(&self) -> (usize, usize) {
        (self.high.0.len(), self.low.0.len())
    }

    /// The two queues, for the end of a scheduler: what is taken here is counted on.
    pub fn queues(&self) -> [&Injector; 2] {
        [&self.high.0, &self.low.0]
    }

    /// The turn that goes before the normal ones, at this tick of the worker's; none if it
    /// is the go of those. With `serves`, the go of what every worker may push, a high one
    /// waits for the next tick.
    #[inline(never)]
    pub fn take_first(&self, streak: &PriorityStreak, tick: u32, serves: bool) -> Option<Turn> {
        let high = streak.high_before(tick);
        if !self.low.0.is_empty() && streak.low_is_due() {
            // A row of high turns that it stands in goes on.
            streak.took(tick, high);
            return self.take_one(&self.low.0);
        }
        if serves || high >= HIGH_ROW {
            return None;
        }
        let turn = self.take_one(&self.high.0)?;
        streak.took(tick, high + 1);
        Some(turn)
    }

    /// There is no normal turn: a high one, which came or whose go was over.
    pub fn take_high(&self, streak: &PriorityStreak, tick: u32) -> Option<Turn> {
        let turn = self.take_one(&self.high.0)?;
        streak.took(tick, 1);
        Some(turn)
    }

    /// There is nothing else.
    pub fn take_low(&self, streak: &PriorityStreak) -> Option<Turn> {
        streak.before_low.set(0);
        self.take_one(&self.low.0)
    }

    fn take_one(&self, queue: &Injector) -> Option<Turn> {
        // What a cancel woke is in no parts here: one is one.
        let turn = queue.take(1).next()?;
        self.queued.0.fetch_sub(1, Ordering::Relaxed);
        Some(turn)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::task::Waker;
    use std::time::Instant;

    use kinfolk_core::host::{BlockingCall, Host, TimerKey};
    use kinfolk_core::{Tree, TreeOptions, yield_now};

    use super::*;

    /// A host that keeps the turns it gets.
    #[derive(Clone, Default)]
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

        fn run_blocking(&self, _call: BlockingCall) {
            unreachable!("nothing blocks")
        }
    }

    /// Tasks that go round for ever, by their priority.
    fn tasks(counts: [(Priority, usize); 3]) -> (Tree, Vec<Turn>) {
        let host = Keeps::default();
        let options = TreeOptions {
            forced_hook: Some(Box::new(|_| {})),
            ..TreeOptions::default()
        };
        let tree = Tree::new(Box::new(host.clone()), options);
        for (priority, count) in counts {
            for _ in 0..count {
                let place = tree.root_scope().task("round").priority(priority);
                place.launch(async { while yield_now().await.is_ok() {} });
            }
        }
        let turns = std::mem::take(&mut *host.0.lock().unwrap());
        (tree, turns)
    }

    fn row(turn: Turn) -> TurnRow {
        let mut row = TurnRow::new();
        row.push_back(turn);
        row
    }

    /// Takes `turns` turns as a worker does; the priority of each.
    fn order(counts: [(Priority, usize); 3], turns: u32) -> Vec<Priority> {
        let (tree, ready) = tasks(counts);
        let (queues, streak) = (PriorityQueues::default(), PriorityStreak::default());
        let normal = Injector::default();
        let put = |turn: Turn| match turn.priority() {
            Some(_) => assert!(!queues.push(row(turn)).wants_help()),
            None => drop(normal.push(row(turn))),
        };
        ready.into_iter().for_each(put);
        let mut order = Vec::new();
        for tick in 1..=turns {
            let turn = (queues.take_first(&streak, tick, false))
                .or_else(|| normal.take(1).next())
                .or_else(|| queues.take_high(&streak, tick))
                .or_else(|| queues.take_low(&streak))
                .expect("some go round");
            order.push(turn.priority().unwrap_or_default());
            turn.run().into_iter().for_each(put);
        }
        // What is queued goes with its host: each turn that is dropped ends its job.
        drop((queues, normal));
        assert_eq!(tree.counters().living(), 1, "the root");
        order
    }

    /// The most turns that go between two of a priority, and before the first.
    fn most_between(order: &[Priority], of: Priority) -> usize {
        let others = order.split(|priority| *priority == of);
        others.map(<[_]>::len).max().expect("one piece at least")
    }

    use Priority::{High, Low, Normal};

    /// lane-5: while all three go round for ever, none waits for longer than its bound.
    #[test]
    fn lane_5_the_bounds_hold_where_all_go_round() {
        for high in [1, 3, 40] {
            let order = order([(High, high), (Normal, 2), (Low, 2)], 20_000);
            let (high_row, low_every) = (HIGH_ROW as usize, LOW_EVERY as usize);
            assert_eq!(most_between(&order, Low), low_every - 1);
            assert_eq!(most_between(&order, High), 2, "a normal one and a low one");
            assert_eq!(most_between(&order, Normal), high_row + 1, "a low one too");
            let highs = order.split(|priority| *priority != High);
            assert_eq!(highs.map(<[_]>::len).max(), Some(high_row));
        }
    }

    /// Where nothing else waits, each has all turns.
    #[test]
    fn lane_5_a_bound_holds_beside_others_alone() {
        assert!(
            order([(High, 2), (Normal, 0), (Low, 0)], 100)
                .iter()
                .all(|one| *one == High)
        );
        assert!(
            order([(High, 0), (Normal, 0), (Low, 2)], 100)
                .iter()
                .all(|one| *one == Low)
        );
        let order = order([(High, 2), (Normal, 0), (Low, 1)], 320);
        assert_eq!(order.iter().filter(|one| **one == Low).count(), 10);
        assert_eq!(most_between(&order, High), 1);
    }

    /// More than a few at once ask for another worker, and so does every so many-th that
    /// waits. What is counted as queued is what is there.
    #[test]
    fn lane_5_a_push_asks_for_help_where_much_waits() {
        for many in [1, FEW, FEW + 1] {
            let (tree, ready) = tasks([(High, many), (Normal, 0), (Low, 0)]);
            let queues = PriorityQueues::default();
            assert!(queues.is_empty() && !queues.may_have_some());
            let mut all = TurnRow::new();
            ready.into_iter().for_each(|turn| all.push_back(turn));
            assert_eq!(queues.push(all).wants_help(), many > FEW, "{many}");
            assert_eq!((queues.len(), queues.is_empty()), ((many, 0), false));
            let streak = PriorityStreak::default();
            while queues.take_high(&streak, 1).is_some() {}
            assert!(queues.is_empty() && !queues.may_have_some());
            drop(tree);
        }
        for priority in [High, Low] {
            let (tree, ready) = tasks([(priority, 2 * STEAL_BATCH), (Normal, 0), (Low, 0)]);
            let queues = PriorityQueues::default();
            for (n, turn) in ready.into_iter().enumerate() {
                let asks = (n + 1).is_multiple_of(STEAL_BATCH);
                assert_eq!(queues.push(row(turn)).wants_help(), asks, "{n}");
                assert!(!queues.is_empty(), "one is enough, {priority:?}");
            }
            drop((queues, tree));
        }
    }

    /// A high turn that comes after normal ones have gone has its whole row, and does not go
    /// where the injector is served.
    #[test]
    fn lane_5_a_row_begins_anew_after_a_normal_turn() {
        let (tree, ready) = tasks([(High, 60), (Normal, 0), (Low, 0)]);
        let (queues, streak) = (PriorityQueues::default(), PriorityStreak::default());
        ready.into_iter().for_each(|turn| {
            let _ = queues.push(row(turn));
        });
        let mut taken = Vec::new();
        for tick in [1, 2, 3, 9, 10].into_iter().chain(11..40) {
            taken.extend(queues.take_first(&streak, tick, tick == 10).map(|_| tick));
        }
        assert_eq!(taken[..4], [1, 2, 3, 9]);
        assert_eq!(taken[4..20], (11..27).collect::<Vec<_>>());
        assert_eq!(taken[20], 28, "one normal turn later");
        drop((queues, tree));
    }
}

#[cfg(all(test, loom))]
mod models {
    use crate::idle::{Idle, SleepKind};
    use crate::sync::{AtomicUsize, Ordering::*};
    use loom::sync::Arc;
    use loom::thread;

    /// A worker in a turn that lasts pushes a high turn into the queue of all, and wakes no
    /// worker for it, while its neighbour goes to sleep: the neighbour finds it, or will look,
    /// or a worker that sleeps is woken to look.
    #[test]
    fn high_push_vs_sleep() {
        loom::model(|| {
            let idle = Arc::new(Idle::new(2));
            for n in 0..2 {
                let _ = idle.lie_down(n);
            }
            let _ = idle.looked(0);
            let own = idle.wake_one(None).expect("both sleep");
            let other = idle.wake_one(None).expect("one sleeps");
            let high = Arc::new(AtomicUsize::new(0));
            let sleeper = {
                let (idle, high) = (idle.clone(), high.clone());
                thread::spawn(move || {
                    let how = idle.lie_down(other);
                    (how, high.load(Relaxed) > 0)
                })
            };
            high.store(1, Relaxed);
            let woken = idle.wake_sentinel();
            let (how, found) = sleeper.join().expect("the sleeper");
            assert!(
                found || woken.is_some() || how == SleepKind::Sentinel,
                "worker {own} is in a turn, and the high one waits for it"
            );
        });
    }

    /// The same from a thread that is no worker, while both of two workers go to sleep: one
    /// of them finds the turn, or is woken.
    #[test]
    fn high_push_vs_two_sleepers() {
        loom::model(|| {
            let idle = Arc::new(Idle::new(2));
            let high = Arc::new(AtomicUsize::new(0));
            let sleepers: [_; 2] = std::array::from_fn(|n| {
                let (idle, high) = (idle.clone(), high.clone());
                thread::spawn(move || {
                    let how = idle.lie_down(n);
                    let finds = || high.load(Relaxed) > 0;
                    finds()
                        || how == SleepKind::Sentinel
                            && match idle.looked(n) {
                                // Its last look.
                                Some(SleepKind::ForGood) => finds(),
                                // It looks again and again, or was woken.
                                Some(SleepKind::Sentinel) | None => true,
                            }
                })
            });
            high.store(1, Relaxed);
            let woken = idle.wake_one(None).is_some();
            let finds = sleepers.map(|sleeper| sleeper.join().expect("a sleeper"));
            assert!(woken || finds.contains(&true), "a wake-up was lost");
        });
    }
}
