//! Foreign awaits: jobs that were cancelled and cannot hear it.
//!
//! Each cancel is looked at again when the patience of its jobs may have run
//! out: a job that is idle then gets FORCE and a turn, in which it looks again
//! whether it is idle and drops its future. One timer per tree carries all
//! cancels; a cancel whose job has ended leaves the list.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, Weak};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use super::patience::Patience;
use super::walk;
use crate::host::TimerKey;
use crate::job::header::{Header, JobRef};
use crate::job::state::{self, Claim};
use crate::sync::{Mutex, MutexGuard};
use crate::task::run;
use crate::tree::Shared;

/// When, and a number that keeps equal instants apart.
pub(crate) type SweepKey = (Instant, u64);

pub(crate) struct Sweeper {
    inner: Mutex<Inner>,
    /// The shortest patience anybody in the tree has, in nanoseconds.
    shortest: AtomicU64,
}

#[derive(Default)]
struct Inner {
    due: BTreeMap<SweepKey, JobRef>,
    next: u64,
    armed: Option<TimerKey>,
}

struct SweepWaker(Weak<Shared>);

impl Wake for SweepWaker {
    fn wake(self: Arc<Self>) {
        if let Some(tree) = self.0.upgrade() {
            tree.sweeper.fire(&tree);
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Sweeper {
    pub(crate) fn new(patience: Patience) -> Sweeper {
        let sweeper = Sweeper {
            inner: Mutex::new(Inner::default()),
            shortest: AtomicU64::new(u64::MAX),
        };
        sweeper.heed(patience);
        sweeper
    }

    /// A job with this patience is in the tree.
    pub(crate) fn heed(&self, patience: Patience) {
        let shortest = nanos(patience.unaware.min(patience.cleanup));
        self.shortest.fetch_min(shortest, Relaxed);
    }

    fn shortest(&self) -> Duration {
        match self.shortest.load(Relaxed) {
            u64::MAX => Duration::MAX,
            nanos => Duration::from_nanos(nanos),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A cancel has entered at `h`.
    pub(crate) fn watch(&self, tree: &Shared, h: &Header) {
        // Not the job's own patience, which costs a climb: most jobs are gone
        // long before it runs out. The sweep looks it up.
        let first = self.shortest();
        if first.is_zero() {
            let patience = patience_of(tree, h);
            if let Some(next) = sweep(tree, h, patience, tree.host.now()) {
                self.watch_at(tree, h, next);
            }
        } else if let Some(at) = tree.host.now().checked_add(first) {
            self.watch_at(tree, h, at);
        }
    }

    /// A job that was thought deaf has been told: it has time to clean up.
    pub(crate) fn watch_again(&self, tree: &Shared, h: &Header) {
        let patience = patience_of(tree, h);
        if let Some(at) = tree.host.now().checked_add(patience.cleanup) {
            self.watch_at(tree, h, at);
        }
    }

    fn watch_at(&self, tree: &Shared, h: &Header, at: Instant) {
        let job = JobRef::from_header(h);
        let key = {
            let mut inner = self.lock();
            let key = (at, inner.next);
            inner.next += 1;
            inner.due.insert(key, job);
            key
        };
        let (old, ended) = h.with_cold(|cold, st| (cold.sweep.replace(key), st.ended()));
        if let Some(old) = old {
            self.remove(old);
        }
        if ended {
            self.remove(key);
        }
        self.rearm(tree);
    }

    fn remove(&self, key: SweepKey) {
        let gone = self.lock().due.remove(&key);
        drop(gone);
    }

    /// `h` has ended.
    pub(crate) fn forget(&self, tree: &Shared, h: &Header) {
        if let Some(key) = h.if_cold(|cold, _| cold.sweep.take()).flatten() {
            self.remove(key);
            self.rearm(tree);
        }
    }

    /// Sets the one timer to the first entry. The host is called outside the
    /// lock; whoever comes second sees the newer list.
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
        self.lock().armed = None;
        loop {
            let job = {
                let mut inner = self.lock();
                match inner.due.first_entry() {
                    Some(entry) if entry.key().0 <= now => entry.remove(),
                    _ => break,
                }
            };
            job.if_cold(|cold, _| cold.sweep = None);
            if let Some(tree) = walk::pin(&job) {
                let patience = patience_of(&tree, &job);
                if let Some(next) = sweep(&tree, &job, patience, now) {
                    self.watch_at(&tree, &job, next);
                }
            }
        }
        self.rearm(tree);
    }
}

/// The patience set nearest above `h`, or the tree's.
pub(crate) fn patience_of(tree: &Shared, h: &Header) -> Patience {
    let own = |h: &Header| h.if_cold(|cold, _| cold.patience).flatten();
    if let Some(found) = own(h) {
        return found;
    }
    let mut at = h.parent_from_outside();
    while let Some(job) = at {
        if let Some(found) = own(&job) {
            return found;
        }
        at = job.parent_from_outside();
    }
    tree.patience
}

/// Looks at every cancelled job from `top` down. Sets FORCE where patience has
/// run out; says when to look again.
fn sweep(tree: &Shared, top: &Header, patience: Patience, now: Instant) -> Option<Instant> {
    let marked_at = top
        .reason()
        .map_or(now, |reason| tree.instant_of(reason.data().at));
    let mut next: Option<Instant> = None;
    let mut later = |at: Option<Instant>| {
        if let Some(at) = at {
            next = Some(next.map_or(at, |next| next.min(at)));
        }
    };
    let mut todo = vec![(JobRef::from_header(top), patience)];
    while let Some((job, patience)) = todo.pop() {
        let st = job.state.load();
        if st.ended() || !st.effective() {
            continue;
        }
        let (since, limit) = match st.told_at() {
            Some(at) => (tree.instant_of(at), patience.cleanup),
            None => (marked_at, patience.unaware),
        };
        if !st.has(state::FORCE | state::BODY_DONE) {
            match since.checked_add(limit) {
                // The clock of marks counts milliseconds: it may be behind.
                Some(due) if due <= now + Duration::from_millis(1) => force(&job, state::FORCE),
                due => later(due),
            }
        }
        let _locked = job.lock();
        // SAFETY: H1 and H2, under the lock.
        let mut child = unsafe { job.first.get().as_ref() };
        while let Some(c) = child {
            todo.push((JobRef::from_header(c), patience));
            // SAFETY: as above.
            child = unsafe { c.next.get().as_ref() };
        }
        drop(_locked);
        for (child, patience) in todo.iter_mut().rev() {
            // Those just pushed; the rest has its own already.
            if child.depth <= job.depth {
                break;
            }
            if let Some(own) = child.if_cold(|cold, _| cold.patience).flatten() {
                *patience = own;
            }
        }
    }
    next
}

/// Asks one job to drop its future in its next turn.
fn force(job: &Header, bits: u64) {
    job.state.add(bits);
    if job.is_task() {
        if job.state.claim() == Claim::Push {
            // SAFETY: claimed.
            unsafe { run::push_claimed(job) };
        }
    } else {
        walk::wake_poller(job);
    }
}

/// Lifts every shield and guard and revokes every lease, so that the cancel
/// of the root reaches everybody.
pub(crate) fn lift_all(tree: &Shared) {
    let mut todo = vec![JobRef::from_header(tree.root())];
    while let Some(job) = todo.pop() {
        super::guard::lapse(&job);
        if job.state.load().has(state::SHIELD) {
            walk::lift_from_outside(tree, &job);
        }
        crate::job::lease::revoke(&job);
        let _locked = job.lock();
        // SAFETY: H1 and H2, under the lock.
        let mut child = unsafe { job.first.get().as_ref() };
        while let Some(c) = child {
            todo.push(JobRef::from_header(c));
            // SAFETY: as above.
            child = unsafe { c.next.get().as_ref() };
        }
    }
}

/// Asks every task below `root` to drop its future, whatever it waits on.
pub(crate) fn force_all(root: &Header) {
    let mut todo = vec![JobRef::from_header(root)];
    while let Some(job) = todo.pop() {
        {
            let _locked = job.lock();
            // SAFETY: H1 and H2, under the lock.
            let mut child = unsafe { job.first.get().as_ref() };
            while let Some(c) = child {
                todo.push(JobRef::from_header(c));
                // SAFETY: as above.
                child = unsafe { c.next.get().as_ref() };
            }
        }
        if job.is_task() && !job.state.load().has(state::BODY_DONE) {
            if job.state.start_lazy() {
                // SAFETY: its start is ours.
                unsafe { run::push_claimed(&job) };
            }
            force(&job, state::MUST);
        }
    }
}

/// How long ago the last turn of a job began, for observers.
pub(crate) fn since_turn(tree: &Shared, h: &Header) -> Duration {
    let turned = h.turned.load(Relaxed);
    Duration::from_millis(u64::from(tree.millis().saturating_sub(turned)))
}
