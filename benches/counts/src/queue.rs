//! The least host there is: one queue, one thread, a clock that stands still.
//! What is counted on it is the model's own.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Instant;

use kinfolk_core::host::{Host, Ready, TimerKey, TimerQueue, Turn};
use kinfolk_core::{Tree, TreeOptions};

use crate::operations::Body;

struct Queue {
    turns: Mutex<VecDeque<Turn>>,
    timers: Mutex<TimerQueue>,
    start: Instant,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct QueueHost(Arc<Queue>);

impl Host for QueueHost {
    fn start(&self, turn: Turn) {
        locked(&self.0.turns).push_back(turn);
    }

    fn schedule(&self, ready: Ready) {
        locked(&self.0.turns).extend(ready);
    }

    fn now(&self) -> Instant {
        self.0.start
    }

    fn set_timer(&self, at: Instant, waker: Waker) -> TimerKey {
        locked(&self.0.timers).insert(at, waker)
    }

    fn clear_timer(&self, key: TimerKey) -> Option<Waker> {
        locked(&self.0.timers).remove(key)
    }
}

/// Runs `body` to its end.
pub fn run(body: Body) {
    let queue = Arc::new(Queue {
        turns: Mutex::default(),
        timers: Mutex::default(),
        start: Instant::now(),
    });
    let tree = Tree::new(Box::new(QueueHost(queue.clone())), TreeOptions::default());
    let main = tree.root_scope().task("main").launch(body);
    loop {
        // Not in the head of a `while let`, which would keep the lock.
        let Some(turn) = locked(&queue.turns).pop_front() else {
            break;
        };
        turn.run();
    }
    assert!(main.is_ended(), "nothing is ready and main has not ended");
}
