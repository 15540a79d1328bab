//! A simple queue of timers for hosts: an ordered map. Equal instants come out
//! in the order in which they were set.

use std::collections::BTreeMap;
use std::task::Waker;
use std::time::Instant;

/// Names a timer that was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimerKey {
    /// When it is due.
    pub at: Instant,
    /// Keeps equal instants apart, in order.
    pub number: u64,
}

/// Timers by instant.
#[derive(Debug, Default)]
pub struct TimerQueue {
    timers: BTreeMap<TimerKey, Waker>,
    next: u64,
}

impl TimerQueue {
    /// An empty queue.
    pub fn new() -> Self {
        TimerQueue::default()
    }

    /// Sets a timer.
    pub fn insert(&mut self, at: Instant, waker: Waker) -> TimerKey {
        let key = TimerKey {
            at,
            number: self.next,
        };
        self.next += 1;
        self.timers.insert(key, waker);
        key
    }

    /// Gives a timer up; none if it has fired or was given up before.
    pub fn remove(&mut self, key: TimerKey) -> Option<Waker> {
        self.timers.remove(&key)
    }

    /// When the first timer is due.
    pub fn next_at(&self) -> Option<Instant> {
        self.timers.keys().next().map(|key| key.at)
    }

    /// Takes the first timer out if it is due at `now`.
    pub fn pop_due(&mut self, now: Instant) -> Option<Waker> {
        let entry = self.timers.first_entry()?;
        (entry.key().at <= now).then(|| entry.remove())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.timers.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.timers.is_empty()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    use std::time::Duration;

    struct Digit(Arc<AtomicU32>, u32);
    impl std::task::Wake for Digit {
        fn wake(self: Arc<Self>) {
            self.0.store(self.0.load(Relaxed) * 10 + self.1, Relaxed);
        }
    }

    #[test]
    fn case_n14_equal_deadlines_fire_in_creation_order() {
        let order = Arc::new(AtomicU32::new(0));
        let digit = |n| Waker::from(Arc::new(Digit(order.clone(), n)));
        let mut queue = TimerQueue::new();
        let start = Instant::now();
        let late = start + Duration::from_millis(2);
        queue.insert(late, digit(2));
        let gone = queue.insert(late, digit(9));
        queue.insert(late, digit(3));
        queue.insert(start + Duration::from_millis(1), digit(1));
        assert!(queue.remove(gone).is_some() && queue.remove(gone).is_none());
        assert!(queue.pop_due(start).is_none());
        while let Some(waker) = queue.pop_due(late) {
            waker.wake();
        }
        assert_eq!(order.load(Relaxed), 123);
        assert!(queue.is_empty());
    }
}
