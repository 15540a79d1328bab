//! Foreign awaits: jobs that were cancelled and cannot hear it.
//!
//! A cancelled job whose poll leaves it idle asks to be looked at again
//! ([`Sweeper::found_idle`]). The look is at the whole cancel it belongs to, so
//! there is one entry per cancel, and one timer per tree. A job whose patience
//! has run out by then gets FORCE and a turn, in which it looks again whether it
//! is idle and drops its future. A cancel that everybody hears costs nothing
//! here.
//!
//! No job that asked is forgotten. A look that meets a running job gives it
//! another turn, in which the job asks again if it is still idle
//! (`look_vs_park`). An entry and the key of it that its job keeps change
//! together, under the lock of the list (`look_vs_ask`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, Weak};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use crate::base::observe::Numbered;
use crate::base::patience::Patience;
use crate::base::sync::{Mutex, MutexGuard};
use crate::base::timer_queue::TimerKey;
use crate::engine::left_open;
use crate::engine::tree::Shared;
use crate::engine::turn;
use crate::engine::walk;
use crate::engine::waymark;
use crate::more::kit::work;
use crate::record::header::{Header, JobRef};
use crate::record::state::{self, Claim, millis_between};

/// When, and a number that keeps equal instants apart.
pub(crate) type SweepKey = (Instant, u64);

pub(crate) struct Sweeper {
    inner: Mutex<Inner>,
    /// The shortest patience anybody in the tree has, in nanoseconds.
    shortest: AtomicU64,
}

#[derive(Default)]
struct Inner {
    /// The jobs where cancels entered, by when to look at them. The key of an
    /// entry stands in the cold part of its job, and a key that stands there has
    /// an entry here: both change under this lock, with the job's lock inside it.
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

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A poll of `h`, which is cancelled, has left it idle. True if there is
    /// no patience with that at all; else the cancel is looked at again.
    pub(crate) fn found_idle(&self, tree: &Shared, h: &Header) -> bool {
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
        // Not the job's own patience, which costs a climb: the look finds it.
        let soon = Duration::from_nanos(shortest).max(Duration::from_millis(1));
        // SAFETY: the caller polls `h`, so it is linked.
        let origin = unsafe { h.origin() };
        if let (Some(origin), Some(at)) = (origin, tree.host.now().checked_add(soon)) {
            self.watch(tree, origin, at);
        }
        false
    }

    /// Looks at the cancel that entered at `h` at `at`, or before.
    fn watch(&self, tree: &Shared, h: &Header, at: Instant) {
        let earlier = |key: Option<SweepKey>| key.is_some_and(|key| key.0 <= at);
        // A key that is found here may belong to an entry that has just been
        // taken out. Whoever took it out clears the key, under the job's lock and
        // so after this look, and looks at the jobs after that.
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

    /// `h`, where a cancel entered, has ended.
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

    /// Takes out one job that is to be looked at by `now`.
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
        // A timer that was set meanwhile is given up with the one that fired:
        // `rearm` sets what is needed.
        let armed = self.lock().armed.take();
        if let Some(armed) = armed {
            drop(tree.host.clear_timer(armed));
        }
        while let Some(job) = self.take_due(now) {
            if let Some(tree) = walk::pin(&job)
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

/// The same from outside, where `h` may end meanwhile: a climb to the root.
fn patience_of(tree: &Shared, h: &Header) -> Patience {
    let mut found = own_patience(h);
    let mut at = h.parent_from_outside();
    while let (None, Some(job)) = (found, at) {
        found = own_patience(&job);
        at = job.parent_from_outside();
    }
    found.unwrap_or(tree.patience)
}

/// The children of a job, as references.
pub(crate) fn children(job: &Header, each: &mut dyn FnMut(JobRef)) {
    let _locked = job.lock();
    // SAFETY: H1 and H2, under the lock.
    let mut child = unsafe { job.first.get().as_ref() };
    while let Some(c) = child {
        each(JobRef::from_header(c));
        // SAFETY: as above.
        child = unsafe { c.next.get().as_ref() };
    }
}

/// The same without those that were made since `before` was asked for. A walk through
/// the tree that takes these alone ends, however fast the tree grows.
pub(crate) fn older_children(
    tree: &Shared,
    job: &Header,
    before: Numbered,
    each: &mut dyn FnMut(JobRef),
) {
    children(job, &mut |child| {
        if !tree.counters.is_newer(child.id.number(), before) {
            each(child);
        }
    });
}

/// Looks at every job below `top` that hears its cancel and is idle. Sets FORCE
/// where patience has run out; says when to look again. A job that is not idle
/// now asks for another look when it is. A running one may have asked for this
/// look a moment ago, and be about to park: it gets another turn, in which it
/// asks again. One that is made meanwhile asks by itself.
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
        let skip = state::ENDED | state::FORCE | state::BODY_DONE;
        if st.has(skip) || !st.effective() || !job.has_seen_mark() || !job.no_wait_of_ours() {
            continue;
        }
        if job.is_task() && st.has(state::BUSY) {
            rouse(&job);
            continue;
        }
        // By the clock that turns and points have looked at, not by `now`,
        // which may be another and was read before.
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

/// Asks one job to drop its future in its next turn.
fn force(job: &Header) {
    job.state.add(state::FORCE);
    rouse(job);
}

/// Gives a job another turn, or a scope another poll.
fn rouse(job: &Header) {
    if job.is_task() {
        if job.state.claim() == Claim::Push {
            // SAFETY: claimed.
            unsafe { turn::push_claimed(job) };
        }
    } else {
        walk::wake_poller(job);
    }
}

/// Lifts every shield and guard and revokes every lease, so that the cancel
/// of the root reaches everybody. What is made meanwhile is left to [`force_all`].
pub(crate) fn lift_all(tree: &Shared) {
    let before = tree.counters.numbered();
    let mut todo = vec![JobRef::from_header(tree.root())];
    while let Some(job) = todo.pop() {
        crate::engine::guard::lapse(&job);
        if job.state.load().has(state::SHIELD) {
            walk::lift(tree, &job);
        }
        // What goes on beside its body is asked to end, as when that is over.
        work::stop_all(&job);
        crate::engine::lease::revoke(&job);
        older_children(tree, &job, before, &mut |child| todo.push(child));
    }
}

/// Asks every task of `tree` to drop its future, whatever it waits on, and
/// revokes the leases that were taken since [`lift_all`]. It lifts no shield:
/// what is inside would run on while it is being forced.
///
/// Every job gets MUST before its children are listed, and an attacher looks for
/// it under the same lock: a child is listed, or refused, or born with it
/// (`force_vs_attach`). All have it before the first is told: no task that a
/// shield had spared hears of the cancel in a turn of its own. From the beginning the
/// whole tree refuses tasks, so that it does not grow away from the list.
pub(crate) fn force_all(tree: &Shared) {
    tree.refuse_tasks();
    let mut all = vec![JobRef::from_header(tree.root())];
    let mut next = 0;
    while let Some(job) = all.get(next).cloned() {
        job.state.add(state::MUST);
        children(&job, &mut |child| all.push(child));
        next += 1;
    }
    for job in all {
        if job.is_task() && !job.state.load().has(state::BODY_DONE) {
            mark_forced(tree, &job);
            if job.state.start_lazy() {
                // SAFETY: its start is ours.
                unsafe { turn::push_claimed(&job) };
            }
            rouse(&job);
        } else if job.is_hosted() {
            left_open::force_hosted(tree, &job);
        }
        crate::engine::lease::revoke(&job);
    }
}

/// Marks a task that must go: what is forced ends cancelled, also what a shield,
/// a guard or being a service has spared. A turn may come before [`force_all`]
/// has come to it, and marks its task itself.
pub(crate) fn mark_forced(tree: &Shared, job: &Header) {
    crate::engine::guard::lapse(job);
    walk::cancel(job, walk::Why::new(tree.why_forced(), job.site()));
}

/// For how long a job has been in what it waits on, for observers.
pub(crate) fn since_turn(tree: &Shared, h: &Header) -> Duration {
    let idle = millis_between(h.turned.load(Relaxed), tree.millis_now());
    Duration::from_millis(u64::from(idle))
}
