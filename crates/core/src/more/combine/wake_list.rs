//! Which of many branches the next turn polls. Each branch has a waker of its own, which
//! lists the branch here and wakes the poller of the group. So a turn costs as much as the
//! branches it polls, however many exist or are listed: the poller takes one after the
//! other out of the list, and a branch that it does not reach stays in its place.
//!
//! One lock decides: under it a waker lists its branch and takes the poller's
//! waker, and the poller stores its waker only if the list is empty. So either the
//! poller sees the entry or the waker finds the poller. Modelled in
//! `branch_wake_vs_park`.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};
use std::task::{Wake, Waker};

use crate::base::sync::{Mutex, MutexGuard};
use crate::base::unwind::{KeptWaker, wake, wake_by_ref};

#[derive(Default)]
struct Inner {
    listed: VecDeque<usize>,
    /// By index: the branch is in `listed`.
    is_listed: Vec<bool>,
    /// Some while the poller is parked.
    poller: Option<KeptWaker>,
}

impl Inner {
    fn list(&mut self, index: usize) {
        if self.is_listed.len() <= index {
            self.is_listed.resize(index + 1, false);
        }
        if !std::mem::replace(&mut self.is_listed[index], true) {
            self.listed.push_back(index);
        }
    }
}

struct Shared(Mutex<Inner>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The waker of one branch.
struct WakeEntry {
    index: usize,
    shared: Arc<Shared>,
}

impl Wake for WakeEntry {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let poller = {
            let mut inner = self.shared.lock();
            inner.list(self.index);
            inner.poller.take()
        };
        if let Some(poller) = poller {
            wake(poller.into_inner());
        }
    }
}

/// The list, as the poller holds it.
pub(crate) struct WakeList {
    shared: Arc<Shared>,
    wakers: Vec<Option<Waker>>,
}

impl WakeList {
    pub(crate) fn new() -> WakeList {
        WakeList {
            shared: Arc::new(Shared(Mutex::new(Inner::default()))),
            wakers: Vec::new(),
        }
    }

    /// The waker that lists `index`.
    pub(crate) fn waker(&mut self, index: usize) -> &Waker {
        if self.wakers.len() <= index {
            self.wakers.resize(index + 1, None);
        }
        self.wakers[index].get_or_insert_with(|| {
            let shared = self.shared.clone();
            Waker::from(Arc::new(WakeEntry { index, shared }))
        })
    }

    /// Lists `index` without a wake-up: the caller is the poller.
    pub(crate) fn add(&self, index: usize) {
        self.shared.lock().list(index);
    }

    /// A round begins, and the poller is not parked: returns how many branches
    /// are listed. A branch that is woken meanwhile comes behind them, so that
    /// the round ends.
    pub(crate) fn begin(&self) -> usize {
        let (listed, poller) = {
            let mut inner = self.shared.lock();
            (inner.listed.len(), inner.poller.take())
        };
        drop(poller);
        listed
    }

    /// Takes the first branch out of the list. A wake-up from now on lists it
    /// again.
    pub(crate) fn next(&self) -> Option<usize> {
        let mut inner = self.shared.lock();
        let index = inner.listed.pop_front()?;
        inner.is_listed[index] = false;
        Some(index)
    }

    /// The poller is about to wait: the next wake-up wakes it. If a branch is
    /// listed, the poller is woken at once.
    pub(crate) fn park(&self, poller: &Waker) {
        let kept = KeptWaker::new(poller.clone());
        let (waiting, old) = {
            let mut inner = self.shared.lock();
            if inner.listed.is_empty() {
                (true, inner.poller.replace(kept))
            } else {
                (false, Some(kept))
            }
        };
        drop(old);
        if !waiting {
            wake_by_ref(poller);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A branch that a round does not reach keeps its place, and is listed once.
    #[test]
    fn a_round_that_stops_half_way_lists_nothing_anew() {
        let mut ready = WakeList::new();
        for index in 0..4 {
            ready.add(index);
        }
        assert_eq!(ready.begin(), 4);
        assert_eq!([ready.next(), ready.next()], [Some(0), Some(1)]);
        // A branch that was polled, one that waits for its turn, and a new one.
        for index in [0, 3, 4] {
            ready.waker(index).wake_by_ref();
        }
        assert_eq!(ready.begin(), 4);
        let order = std::iter::from_fn(|| ready.next());
        assert_eq!(order.collect::<Vec<_>>(), [2, 3, 0, 4]);
    }
}
