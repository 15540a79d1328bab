//! The smallest queueing host: turns wait in a list until a test runs them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::task::Waker;
use std::time::{Duration, Instant};

use kinfolk_core::host::{Host, Ready, TimerKey, TimerQueue, Turn};
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

    /// Fires the first timer, if it is due.
    pub fn fire_one(&self) {
        let due = self.queue.lock().unwrap().pop_due(self.now());
        if let Some(waker) = due {
            waker.wake();
        }
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
    start: Instant,
    /// None: timers never come.
    timers: Option<Timers>,
}

impl Host for LoomHost {
    fn start(&self, turn: Turn) {
        self.queue.0.lock().unwrap().push_back(turn);
    }

    fn schedule(&self, ready: Ready) {
        for turn in ready {
            self.queue.0.lock().unwrap().push_back(turn);
        }
    }

    fn run_blocking(&self, call: kinfolk_core::host::BlockingCall) {
        drop(call);
    }

    fn now(&self) -> Instant {
        self.timers.as_ref().map_or(self.start, Timers::now)
    }

    fn set_timer(&self, at: Instant, waker: Waker) -> TimerKey {
        match &self.timers {
            Some(timers) => timers.queue.lock().unwrap().insert(at, waker),
            None => TimerQueue::new().insert(at, waker),
        }
    }

    fn clear_timer(&self, key: TimerKey) -> Option<Waker> {
        self.timers.as_ref()?.queue.lock().unwrap().remove(key)
    }
}

/// A tree on a fresh host. Strictly cooperative, so that no sweep is set up.
pub fn tree() -> (Tree, Queue) {
    tree_with(Instant::now(), None)
}

/// The same, with timers.
pub fn timed_tree() -> (Tree, Queue, Timers) {
    let timers = Timers {
        queue: Arc::new(Mutex::new(TimerQueue::new())),
        start: Instant::now(),
        passed: Arc::default(),
    };
    let (tree, queue) = tree_with(timers.start, Some(timers.clone()));
    (tree, queue, timers)
}

fn tree_with(start: Instant, timers: Option<Timers>) -> (Tree, Queue) {
    let queue = Queue(Arc::new(Mutex::new(VecDeque::new())));
    let options = TreeOptions {
        failure_hook: None,
        patience: Patience {
            unaware: Duration::MAX,
            cleanup: Duration::MAX,
        },
        ..TreeOptions::default()
    };
    let host = LoomHost {
        queue: queue.clone(),
        start,
        timers,
    };
    (Tree::new(Box::new(host), options), queue)
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
