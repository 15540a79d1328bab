//! What a conformance case uses: the tree in which it runs, a way to wait until
//! every other task is blocked, and the failures that reached the failure hook.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use kinfolk_core::{CountersSnapshot, Error, Event, RingSink, Scope, Tree, TreeSnapshot};

use crate::clock::VirtualClock;

/// The waits until every task is blocked. The host's driver wakes one of them
/// at a time, before it lets the clock jump.
#[derive(Clone, Debug, Default)]
pub struct IdleWaiters(Arc<Mutex<Vec<Arc<Mutex<Settling>>>>>);

#[derive(Debug, Default)]
struct Settling {
    waker: Option<Waker>,
    done: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl IdleWaiters {
    /// Every task is blocked: lets the wait that is oldest go on. False if no
    /// task waits.
    pub fn everything_is_blocked(&self) -> bool {
        let first = {
            let mut list = lock(&self.0);
            if list.is_empty() {
                return false;
            }
            list.remove(0)
        };
        let waker = {
            let mut settling = lock(&first);
            settling.done = true;
            settling.waker.take()
        };
        if let Some(waker) = waker {
            kinfolk_core::host::wake(waker);
        }
        true
    }
}

/// The future of [`Lab::settle`].
///
/// # Cancellation
/// *Not a point.*
#[must_use = "futures do nothing unless awaited"]
#[derive(Debug)]
pub struct Settle {
    waiters: IdleWaiters,
    mine: Option<Arc<Mutex<Settling>>>,
}

impl Future for Settle {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        match &this.mine {
            None => {
                let mine = Arc::new(Mutex::new(Settling {
                    waker: Some(cx.waker().clone()),
                    done: false,
                }));
                lock(&this.waiters.0).push(mine.clone());
                this.mine = Some(mine);
                Poll::Pending
            }
            Some(mine) => {
                let mut settling = lock(mine);
                if settling.done {
                    Poll::Ready(())
                } else {
                    settling.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        }
    }
}

impl Drop for Settle {
    fn drop(&mut self) {
        if let Some(mine) = self.mine.take() {
            lock(&self.waiters.0).retain(|other| !Arc::ptr_eq(other, &mine));
        }
    }
}

/// What a conformance case uses.
#[derive(Clone)]
pub struct Lab {
    pub(crate) tree: Tree,
    pub(crate) clock: VirtualClock,
    pub(crate) failures: Arc<Mutex<Vec<Error>>>,
    pub(crate) events: Arc<RingSink>,
    pub(crate) seed: u64,
}

impl Lab {
    /// Waits until every other task is blocked. Time stands still.
    ///
    /// # Cancellation
    /// *Not a point.*
    pub fn settle(&self) -> Settle {
        Settle {
            waiters: self.clock.idle_waiters().clone(),
            mine: None,
        }
    }

    /// Lets time pass without a turn of any task: like a turn that takes long.
    pub fn dawdle(&self, by: Duration) {
        self.clock.move_to(self.clock.elapsed() + by);
    }

    /// The tree.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// A scope that spawns below the root.
    pub fn root(&self) -> Scope {
        self.tree.root_scope()
    }

    /// The living jobs.
    pub fn snapshot(&self) -> TreeSnapshot {
        self.tree.snapshot()
    }

    /// The counters.
    pub fn counters(&self) -> CountersSnapshot {
        self.tree.counters()
    }

    /// The failures that have reached the failure hook since the last call.
    pub fn take_failures(&self) -> Vec<Error> {
        std::mem::take(&mut *lock(&self.failures))
    }

    /// The events so far, those of turns included.
    pub fn events(&self) -> Vec<Event> {
        self.events.events()
    }

    /// Virtual time since the host began.
    pub fn elapsed(&self) -> Duration {
        self.clock.elapsed()
    }

    /// The seed of this run, if the host has one.
    pub fn seed(&self) -> u64 {
        self.seed
    }
}

impl std::fmt::Debug for Lab {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lab")
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}
