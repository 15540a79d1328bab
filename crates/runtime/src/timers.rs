//! The timers of a runtime: one queue, and one sleeping thread that keeps it.
//!
//! The *keeper* sleeps until the first timer. Whoever sets an earlier one
//! wakes it; whoever gives a timer up leaves it alone, so it may wake for
//! nothing, once. Threads that are awake look now and then, and before they
//! sleep.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Instant;

use kinfolk_core::host::{TimerKey, TimerQueue, contained};

/// Who is to be told that a timer was set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Tell {
    /// Nobody: somebody wakes early enough.
    Nobody,
    /// The keeper, which would sleep too long.
    Keeper(usize),
    /// Nobody keeps the timers: somebody should.
    Anybody,
}

#[derive(Default)]
struct Kept {
    queue: TimerQueue,
    /// Who sleeps until when.
    keeper: Option<(usize, Instant)>,
}

#[derive(Default)]
pub(crate) struct Timers(Mutex<Kept>);

impl Timers {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set(&self, at: Instant, waker: Waker) -> (TimerKey, Tell) {
        let mut kept = self.kept();
        let key = kept.queue.insert(at, waker);
        let tell = match kept.keeper {
            Some((_, until)) if until <= at => Tell::Nobody,
            Some((n, _)) => {
                // It looks again before it sleeps again: told once.
                kept.keeper = None;
                Tell::Keeper(n)
            }
            None => Tell::Anybody,
        };
        (key, tell)
    }

    pub(crate) fn clear(&self, key: TimerKey) -> Option<Waker> {
        self.kept().queue.remove(key)
    }

    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.kept().queue.next_at()
    }

    /// Wakes everybody whose time has come; how many.
    pub(crate) fn fire(&self, now: Instant) -> usize {
        let mut fired = 0;
        loop {
            let due = self.kept().queue.pop_due(now);
            match due {
                Some(waker) => {
                    contained(move || waker.wake());
                }
                None => return fired,
            }
            fired += 1;
        }
    }

    /// `n` is about to sleep. If nobody keeps the timers it does: until when.
    pub(crate) fn keep(&self, n: usize) -> Option<Instant> {
        let mut kept = self.kept();
        let next = kept.queue.next_at()?;
        match kept.keeper {
            Some((keeper, until)) if keeper != n && until <= next => None,
            _ => {
                kept.keeper = Some((n, next));
                Some(next)
            }
        }
    }

    /// `n` is awake and keeps nothing.
    pub(crate) fn unkeep(&self, n: usize) {
        let mut kept = self.kept();
        if kept.keeper.is_some_and(|(keeper, _)| keeper == n) {
            kept.keeper = None;
        }
    }

    /// When the first is due, and how many there are.
    pub(crate) fn load(&self) -> (Option<Instant>, usize) {
        let kept = self.kept();
        (kept.queue.next_at(), kept.queue.len())
    }

    /// Who keeps them.
    pub(crate) fn keeper(&self) -> Option<usize> {
        self.kept().keeper.map(|(n, _)| n)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn one_keeps_and_is_told_of_what_is_earlier() {
        let timers = Timers::default();
        let soon = Instant::now() + Duration::from_secs(1);
        let late = soon + Duration::from_secs(1);
        assert_eq!(timers.keep(0), None, "nothing to keep");
        let (key, tell) = timers.set(late, Waker::noop().clone());
        assert_eq!(tell, Tell::Anybody);
        assert_eq!(timers.keep(0), Some(late));
        assert_eq!(timers.keep(1), None, "one is enough");
        assert_eq!(
            timers.keep(0),
            Some(late),
            "it looks again before it is due"
        );
        let (_, tell) = timers.set(soon, Waker::noop().clone());
        assert_eq!(tell, Tell::Keeper(0));
        let (_, tell) = timers.set(late, Waker::noop().clone());
        assert_eq!(tell, Tell::Anybody, "it was told, and is awake");
        assert_eq!(timers.keep(1), Some(soon));
        assert!(timers.clear(key).is_some() && timers.clear(key).is_none());
        timers.unkeep(0);
        assert_eq!(timers.keeper(), Some(1));
        assert_eq!(timers.fire(soon), 1);
    }
}
