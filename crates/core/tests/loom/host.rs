//! The smallest host: turns wait in a list until a test runs them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::task::Waker;
use std::time::{Duration, Instant};

use kinfolk_core::host::{Host, TimerKey, TimerQueue, Turn, TurnRow};
use kinfolk_core::{Patience, ReasonKind, Tree, TreeOptions};
use loom::sync::Mutex;

#[derive(Clone)]
pub struct Queue(Arc<Mutex<VecDeque<Turn>>>);

impl Queue {
    /// Gives one ready task a turn.
    pub fn run_one(&self) -> bool {
        let turn = self.0.lock().unwrap().pop_front();
        match turn {
            Some(turn) => {
                let again = turn.run();
                self.0.lock().unwrap().extend(again);
                true
            }
            None => false,
        }
    }

    pub fn run_all(&self) {
        while self.run_one() {}
    }

    /// Drops every turn, as a host does that is gone.
    pub fn drop_all(&self) {
        loop {
            let turn = self.0.lock().unwrap().pop_front();
            match turn {
                Some(turn) => drop(turn),
                None => return,
            }
        }
    }
}

/// The timers of a host, fired by hand, and its clock. The clock is no step of
/// the model.
#[derive(Clone)]
pub struct Timers {
    queue: Arc<Mutex<TimerQueue>>,
    start: Instant,
    passed: Arc<AtomicU64>,
}

impl Timers {
    fn new() -> Timers {
        Timers {
            queue: Arc::new(Mutex::new(TimerQueue::new())),
            start: Instant::now(),
            passed: Arc::default(),
        }
    }

    pub fn at(&self, after: Duration) -> Instant {
        self.start + after
    }

    pub fn move_to(&self, after: Duration) {
        let nanos = u64::try_from(after.as_nanos()).unwrap();
        self.passed.fetch_max(nanos, SeqCst);
    }

    fn now(&self) -> Instant {
        self.at(Duration::from_nanos(self.passed.load(SeqCst)))
    }

    /// It is so many milliseconds later: fires what is due by then.
    pub fn pass(&self, millis: u64) {
        self.passed.fetch_add(millis * 1_000_000, SeqCst);
        while self.fire_one() {}
    }

    /// Fires the first timer, if it is due; true if it was.
    pub fn fire_one(&self) -> bool {
        let due = self.queue.lock().unwrap().pop_due(self.now());
        due.map(Waker::wake).is_some()
    }

    /// How many are set.
    pub fn set(&self) -> usize {
        self.queue.lock().unwrap().len()
    }

    /// When the first is due.
    pub fn next(&self) -> Option<Instant> {
        self.queue.lock().unwrap().next_at()
    }
}

struct LoomHost {
    queue: Queue,
    timers: Timers,
    has_main_lane: bool,
}

impl Host for LoomHost {
    fn start(&self, turn: Turn) {
        self.queue.0.lock().unwrap().push_back(turn);
    }

    fn schedule(&self, ready: TurnRow) {
        for turn in ready {
            self.queue.0.lock().unwrap().push_back(turn);
        }
    }

    fn has_main_lane(&self) -> bool {
        self.has_main_lane
    }

    fn run_blocking(&self, call: kinfolk_core::host::BlockingCall) {
        drop(call);
    }

    fn now(&self) -> Instant {
        self.timers.now()
    }

    fn set_timer(&self, at: Instant, waker: Waker) -> TimerKey {
        self.timers.queue.lock().unwrap().insert(at, waker)
    }

    fn clear_timer(&self, key: TimerKey) -> Option<Waker> {
        self.timers.queue.lock().unwrap().remove(key)
    }
}

fn options(unaware: Duration) -> TreeOptions {
    TreeOptions {
        failure_hook: None,
        forced_hook: None,
        patience: Patience {
            unaware,
            cleanup: Duration::MAX,
        },
        ..TreeOptions::default()
    }
}

/// A tree on a fresh host. Strictly cooperative, so that no sweep is set up.
pub fn tree() -> (Tree, Queue) {
    let (tree, queue, _) = timed_tree();
    (tree, queue)
}

/// The same, with its timers.
pub fn timed_tree() -> (Tree, Queue, Timers) {
    tree_with(Duration::MAX)
}

/// The same, with this much patience for a job that has not been told.
pub fn tree_with(unaware: Duration) -> (Tree, Queue, Timers) {
    tree_on(unaware, false)
}

/// A tree whose main lane is turned by the thread that calls this.
pub fn main_tree() -> (Tree, Queue) {
    let (tree, queue, _) = tree_on(Duration::MAX, true);
    (tree, queue)
}

fn tree_on(unaware: Duration, has_main_lane: bool) -> (Tree, Queue, Timers) {
    let queue = Queue(Arc::new(Mutex::new(VecDeque::new())));
    let timers = Timers::new();
    let host = LoomHost {
        queue: queue.clone(),
        timers: timers.clone(),
        has_main_lane,
    };
    (Tree::new(Box::new(host), options(unaware)), queue, timers)
}

/// Ends the tree, and checks that everything in it has ended and balances.
pub fn finish(tree: Tree, queue: &Queue) {
    tree.request_shutdown(ReasonKind::Shutdown);
    queue.run_all();
    assert!(tree.root_job().is_ended(), "{}", tree.snapshot());
    let counters = tree.counters();
    assert_eq!(counters.living(), 0, "{counters}");
    assert_eq!(counters.waiters_pending(), 0, "{counters}");
}
