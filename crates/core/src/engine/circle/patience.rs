//! Foreign awaits: jobs that were cancelled and wait for no point of this library.
//!
//! A cancelled job whose poll leaves it idle requests a *look*
//! ([`Sweeper::found_idle`]). A look covers the whole cancel that reached the job, so
//! there is one entry per cancel, and one timer per tree. A job whose patience has run
//! out by then gets DROP_IF_IDLE and a turn, in which it checks again that it is idle
//! and drops its future. A cancel that every job observes costs nothing here.
//!
//! No request for a look is lost. A look that meets a running job gives it
//! another turn, in which the job requests another look if it is still idle
//! (`look_vs_park`). An entry and its key, which its job keeps, change
//! together, under the lock of the list (`look_vs_ask`).

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use crate::base::patience::Patience;
use crate::engine::children::older_children;
use crate::engine::pin;
use crate::engine::sweeper::Sweeper;
use crate::engine::tree::Shared;
use crate::engine::turn;
use crate::engine::walk;
use crate::engine::waymark;
use crate::record::cold::SweepKey;
use crate::record::header::{Header, JobRef};
use crate::record::state::{self, Claim, millis_between};

struct SweepWaker(Weak<Shared>);

impl Wake for SweepWaker {
    fn wake(self: Arc<Self>) {
        if let Some(tree) = self.0.upgrade() {
            tree.sweeper.fire(&tree);
        }
    }
}

impl Sweeper {
    /// A poll of `h`, which is cancelled, has left it idle. True if its
    /// patience is zero; else a later look is scheduled.
    ///
    /// # Safety
    /// The caller polls `h`.
    pub(crate) unsafe fn found_idle(&self, tree: &Shared, h: &Header) -> bool {
        let shortest = self.shortest.load(Relaxed);
        if shortest == 0 {
            // SAFETY: the caller polls `h`, so it is linked.
            let patience = unsafe { patience_inside(tree, h) };
            let limit = match h.state.load().has(state::TOLD) {
                true => patience.cleanup,
                false => patience.unaware,
            };
            if limit.is_zero() {
                return true;
            }
        }
        if shortest == u64::MAX {
            return false;
        }
        // Not the job's own patience, for which a climb would be needed: the
        // look finds it.
        let soon = Duration::from_nanos(shortest).max(Duration::from_millis(1));
        // SAFETY: the caller polls `h`, so it is linked.
        let origin = unsafe { h.origin() };
        if let (Some(origin), Some(at)) = (origin, tree.host.now().checked_add(soon)) {
            self.watch(tree, origin, at);
        }
        false
    }

    /// Schedules a look, at `at` or before, at the cancel that entered at `h`.
    fn watch(&self, tree: &Shared, h: &Header, at: Instant) {
        let earlier = |key: Option<SweepKey>| key.is_some_and(|key| key.0 <= at);
        // A key that is found here may belong to an entry that another thread has
        // just taken out. That thread clears the key, under the job's lock and so
        // after this check, and looks at the jobs after that.
        if h.if_cold(|cold, _| earlier(cold.sweep)).unwrap_or(false) {
            return;
        }
        let job = JobRef::from_header(h);
        let _gone = {
            let mut inner = self.lock();
            let key = (at, inner.next);
            let stale = h.with_cold(|cold, st| {
                if st.ended() || earlier(cold.sweep) {
                    None
                } else {
                    Some(cold.sweep.replace(key))
                }
            });
            stale.and_then(|stale| {
                inner.next += 1;
                inner.due.insert(key, job);
                stale.and_then(|stale| inner.due.remove(&stale))
            })
        };
        self.rearm(tree);
    }

    /// The job `h`, at which a cancel entered, has ended.
    pub(crate) fn forget(&self, tree: &Shared, h: &Header) {
        if !h.has_cold() {
            return;
        }
        let gone = {
            let mut inner = self.lock();
            let key = h.if_cold(|cold, _| cold.sweep.take()).flatten();
            key.and_then(|key| inner.due.remove(&key))
        };
        if gone.is_some() {
            self.rearm(tree);
        }
    }

    /// Takes out one job whose look is due at `now`.
    fn take_due(&self, now: Instant) -> Option<JobRef> {
        let mut inner = self.lock();
        let entry = inner.due.first_entry()?;
        if entry.key().0 > now {
            return None;
        }
        let job = entry.remove();
        job.if_cold(|cold, _| cold.sweep = None);
        Some(job)
    }

    /// Sets the one timer to the first entry. The host is called outside the
    /// lock; of two threads the second sees the newer list.
    fn rearm(&self, tree: &Shared) {
        loop {
            let (first, armed) = {
                let inner = self.lock();
                let first = inner.due.keys().next().map(|key| key.0);
                (first, inner.armed)
            };
            if first == armed.map(|key| key.at) {
                return;
            }
            let new = first.map(|at| {
                let waker = Waker::from(Arc::new(SweepWaker(tree.weak())));
                tree.host.set_timer(at, waker)
            });
            let stale = {
                let mut inner = self.lock();
                if inner.armed == armed {
                    inner.armed = new;
                    armed
                } else {
                    new
                }
            };
            if let Some(stale) = stale {
                drop(tree.host.clear_timer(stale));
            }
        }
    }

    fn fire(&self, tree: &Shared) {
        let now = tree.host.now();
        // A timer that was set meanwhile is cleared along with the one that
        // fired: `rearm` sets the timer that is needed.
        let armed = self.lock().armed.take();
        if let Some(armed) = armed {
            drop(tree.host.clear_timer(armed));
        }
        while let Some(job) = self.take_due(now) {
            if let Some(tree) = pin::tree_of(&job)
                && let Some(next) = sweep(&tree, &job, now)
            {
                self.watch(&tree, &job, next);
            }
        }
        self.rearm(tree);
    }
}

fn own_patience(h: &Header) -> Option<Patience> {
    h.if_cold(|cold, _| cold.patience).flatten()
}

/// The patience set nearest above `h`, or the tree's.
///
/// # Safety
/// `h` is linked.
pub(crate) unsafe fn patience_inside(tree: &Shared, h: &Header) -> Patience {
    // SAFETY: passed on.
    unsafe { waymark::patience(h) }.unwrap_or(tree.patience)
}

/// The same for a thread outside `h`, which may end meanwhile: a climb to the
/// root.
fn patience_of(tree: &Shared, h: &Header) -> Patience {
    let mut found = own_patience(h);
    let mut at = h.parent_from_outside();
    while let (None, Some(job)) = (found, at) {
        found = own_patience(&job);
        at = job.parent_from_outside();
    }
    found.unwrap_or(tree.patience)
}

/// Visits every job below `top` that the cancel reaches and that is idle. Sets
/// DROP_IF_IDLE on jobs whose patience has run out; returns when to look again. A job
/// that is not idle now requests another look when it is. A running job may have
/// requested this look a moment ago and be about to park: it gets another turn, in
/// which it requests again. A job that is made meanwhile requests its own look.
fn sweep(tree: &Shared, top: &Header, now: Instant) -> Option<Instant> {
    let before = tree.counters.numbered();
    let mut next: Option<Instant> = None;
    let mut todo = vec![(JobRef::from_header(top), patience_of(tree, top))];
    while let Some((job, inherited)) = todo.pop() {
        let st = job.state.load();
        let patience = own_patience(&job).unwrap_or(inherited);
        older_children(tree, &job, before, &mut |child| {
            todo.push((child, patience))
        });
        let skip = state::ENDED | state::DROP_IF_IDLE | state::BODY_DONE;
        if st.has(skip) || !st.effective() || !job.has_seen_mark() || !job.no_wait_of_ours() {
            continue;
        }
        if job.is_task() && st.has(state::BUSY) {
            rouse(&job);
            continue;
        }
        // Measured by the clock that turns and points have read, not by `now`,
        // which may be of another clock and was read before.
        let millis = tree.millis_now();
        let idle = millis_between(job.turned.load(Relaxed), millis);
        let (idle, limit) = match st.told_for(millis) {
            Some(told) => (idle.min(told), patience.cleanup),
            None => (idle, patience.unaware),
        };
        let left = limit.saturating_sub(Duration::from_millis(u64::from(idle)));
        match now.checked_add(left) {
            _ if left.is_zero() => force(&job),
            Some(due) => next = Some(next.map_or(due, |next| next.min(due))),
            None => {}
        }
    }
    next
}

/// Makes one job drop its future in its next turn.
fn force(job: &Header) {
    job.state.drop_if_idle();
    rouse(job);
}

/// Gives a job another turn, or a scope another poll.
pub(crate) fn rouse(job: &Header) {
    if job.is_task() {
        if job.state.claim() == Claim::Push {
            // SAFETY: claimed.
            unsafe { turn::push_claimed(job) };
        }
    } else {
        walk::wake_poller(job);
    }
}
