//! The smallest queueing host: turns wait in a list until a test runs them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use kinfolk_core::host::{Body, Host, Ready, TimerKey, TimerQueue, Turn};
use kinfolk_core::{Patience, ReasonKind, Tree, TreeOptions};
use loom::sync::Mutex;
use loom::sync::atomic::{AtomicU64, Ordering::SeqCst};

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

/// A clock that a test moves by hand, and the timers that are set on it.
#[derive(Clone)]
pub struct Time(Arc<Timed>);

struct Timed {
    start: Instant,
    millis: AtomicU64,
    timers: Mutex<TimerQueue>,
}

impl Time {
    fn new() -> Time {
        Time(Arc::new(Timed {
            start: Instant::now(),
            millis: AtomicU64::new(0),
            timers: Mutex::new(TimerQueue::new()),
        }))
    }

    fn now(&self) -> Instant {
        self.0.start + Duration::from_millis(self.0.millis.load(SeqCst))
    }

    /// It is so many milliseconds later: fires what is due by then.
    pub fn pass(&self, millis: u64) {
        self.0.millis.fetch_add(millis, SeqCst);
        let now = self.now();
        loop {
            let due = self.0.timers.lock().unwrap().pop_due(now);
            match due {
                Some(waker) => waker.wake(),
                None => return,
            }
        }
    }

    /// How many timers are set.
    pub fn timers(&self) -> usize {
        self.0.timers.lock().unwrap().len()
    }
}

struct LoomHost {
    queue: Queue,
    time: Time,
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
        self.time.now()
    }

    fn set_timer(&self, at: Instant, waker: Waker) -> TimerKey {
        self.time.0.timers.lock().unwrap().insert(at, waker)
    }

    fn clear_timer(&self, key: TimerKey) -> Option<Waker> {
        self.time.0.timers.lock().unwrap().remove(key)
    }
}

/// A tree on a fresh host. Strictly cooperative, so that no sweep is set up.
pub fn tree() -> (Tree, Queue) {
    let (tree, queue, _) = tree_with(Duration::MAX);
    (tree, queue)
}

/// The same, with this much patience for a job that has not been told.
pub fn tree_with(unaware: Duration) -> (Tree, Queue, Time) {
    let queue = Queue(Arc::new(Mutex::new(VecDeque::new())));
    let options = TreeOptions {
        failure_hook: None,
        forced_hook: None,
        patience: Patience {
            unaware,
            cleanup: Duration::MAX,
        },
        ..TreeOptions::default()
    };
    let time = Time::new();
    let host = LoomHost {
        queue: queue.clone(),
        time: time.clone(),
    };
    (Tree::new(Box::new(host), options), queue, time)
}

/// The smallest lending host: keeps the bodies that it was given.
#[derive(Clone)]
pub struct Bodies(Arc<Mutex<VecDeque<Body>>>);

impl Bodies {
    /// The body of the task that was started first.
    pub fn take(&self) -> Body {
        let body = self.0.lock().unwrap().pop_front();
        body.expect("a task was started")
    }
}

struct LendingHost {
    bodies: Bodies,
    start: Instant,
}

impl Host for LendingHost {
    fn start(&self, turn: Turn) {
        let body = turn.into_body();
        self.bodies.0.lock().unwrap().push_back(body);
    }

    fn schedule(&self, _: Ready) {
        unreachable!("a host that lends gets tasks one by one");
    }

    fn lends(&self) -> bool {
        true
    }

    fn run_blocking(&self, call: kinfolk_core::host::BlockingCall) {
        drop(call);
    }

    fn now(&self) -> Instant {
        self.start
    }

    fn set_timer(&self, at: Instant, waker: Waker) -> TimerKey {
        TimerQueue::new().insert(at, waker)
    }

    fn clear_timer(&self, _: TimerKey) -> Option<Waker> {
        None
    }
}

/// Strictly cooperative, so that no sweep is set up.
fn options() -> TreeOptions {
    TreeOptions {
        failure_hook: None,
        forced_hook: None,
        patience: Patience {
            unaware: Duration::MAX,
            cleanup: Duration::MAX,
        },
        ..TreeOptions::default()
    }
}

/// A tree on a fresh host that lends.
pub fn lending_tree() -> (Tree, Bodies) {
    let bodies = Bodies(Arc::new(Mutex::new(VecDeque::new())));
    let host = LendingHost {
        bodies: bodies.clone(),
        start: Instant::now(),
    };
    (Tree::new(Box::new(host), options()), bodies)
}

/// As [`finish`], for a tree whose tasks have all ended.
pub fn finish_lent(tree: Tree) {
    tree.request_shutdown(ReasonKind::Shutdown);
    assert!(tree.root_job().is_ended(), "{}", tree.snapshot());
    let counters = tree.counters();
    assert_eq!(counters.living(), 0, "{counters}");
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
