//! Which of many are to be polled. Each has a waker of its own, which lists it
//! here and wakes the one who polls them all, so that a turn costs what was woken
//! and not what is there.
//!
//! One lock decides: a waker lists and takes the poller's waker in it, the poller
//! leaves its waker in it only if nothing is listed. So either the poller sees the
//! entry or the waker sees the poller. Modelled in `branch_wake_vs_park`.

use std::sync::{Arc, PoisonError};
use std::task::{Wake, Waker};

use crate::sync::{Mutex, MutexGuard};
use crate::unwind::{Contained, wake, wake_by_ref};

#[derive(Default)]
struct Inner {
    listed: Vec<usize>,
    /// By index: it is in `listed`.
    is_listed: Vec<bool>,
    /// There while the poller is parked.
    poller: Option<Contained<Waker>>,
}

impl Inner {
    fn list(&mut self, index: usize) {
        if self.is_listed.len() <= index {
            self.is_listed.resize(index + 1, false);
        }
        if !std::mem::replace(&mut self.is_listed[index], true) {
            self.listed.push(index);
        }
    }
}

struct Shared(Mutex<Inner>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The waker of one of many.
struct Entry {
    index: usize,
    shared: Arc<Shared>,
}

impl Wake for Entry {
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

/// The list, as the one who polls holds it.
pub(crate) struct Ready {
    shared: Arc<Shared>,
    wakers: Vec<Option<Waker>>,
}

impl Ready {
    pub(crate) fn new() -> Ready {
        Ready {
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
            Waker::from(Arc::new(Entry { index, shared }))
        })
    }

    /// Lists `index` without waking anybody: the caller is the poller.
    pub(crate) fn add(&self, index: usize) {
        self.shared.lock().list(index);
    }

    /// Moves what is listed to `todo`, which is empty. Whoever is woken from now
    /// on is listed again.
    pub(crate) fn take(&self, todo: &mut Vec<usize>) {
        let poller = {
            let mut inner = self.shared.lock();
            std::mem::swap(&mut inner.listed, todo);
            for &index in &*todo {
                inner.is_listed[index] = false;
            }
            inner.poller.take()
        };
        drop(poller);
    }

    /// Lists again what could not be polled now, before those woken meanwhile.
    pub(crate) fn put_back(&self, rest: &[usize]) {
        let mut inner = self.shared.lock();
        let woken = std::mem::take(&mut inner.listed);
        for &index in &woken {
            inner.is_listed[index] = false;
        }
        for &index in rest.iter().chain(&woken) {
            inner.list(index);
        }
    }

    /// The poller is about to wait: the next wake is its own. If somebody is
    /// listed it is woken at once.
    pub(crate) fn park(&self, poller: &Waker) {
        let kept = Contained::new(poller.clone());
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
