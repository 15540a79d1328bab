//! Hooks: callbacks that a cancel fires, or the job's end. Of cancel, end and
//! disarming exactly one gets the callback: whoever takes it out of its cell.

use std::fmt;
use std::sync::{Arc, PoisonError};
use std::task::Waker;

use crate::base::error::Error;
use crate::base::list::Key;
use crate::base::reason::Reason;
use crate::base::say::{Topic, say};
use crate::base::sync::{Mutex, MutexGuard};
use crate::base::unwind::{self, Contained, Payload, caught};
use crate::engine::context;
use crate::engine::names;
use crate::engine::tree::Tree;
use crate::engine::walk;
use crate::record::cold::Cold;
use crate::record::header::{Header, JobRef};
use crate::record::hook_cell::{Callback, HookCell};
use crate::record::state::{self, Snapshot};

impl HookCell {
    fn take(&self) -> Option<Callback> {
        lock(&self.callback).take()
    }

    /// Calls it for `h`, if that is its turn: outside every job. A panic of it is
    /// reported.
    fn fire(&self, h: &Header, reason: Option<&Reason>) {
        if let Some(callback) = self.take() {
            let _none = context::leave();
            if reason.is_some() || self.at_end {
                if let Err(payload) = caught(|| callback.into_inner()(reason)) {
                    report_panic(h, "in a hook", payload);
                }
            } else {
                drop(callback);
            }
        }
    }
}

impl HookCell {
    /// Calls it for `h`, which was cancelled or over when it was registered.
    pub(crate) fn fire_late(&self, h: &Header) {
        // One that was cancelled stays so when it has ended.
        let reason = h.state.load().effective().then(|| h.reason()).flatten();
        self.fire(h, reason.as_ref());
    }
}

/// A callback that is no job's body has panicked for `h`, which may have ended: the
/// failure hook gets it. If the tree is gone, it is said.
#[cold]
pub(crate) fn report_panic(h: &Header, place: &str, payload: Payload) {
    let error = Error::panicked_in(place, payload).at(names::victim_alone(h), h.reason());
    if let Some(tree) = walk::pin(h) {
        tree.report_failure(&error);
    } else if let Some(tree) = Tree::with_number(h.id.tree()) {
        tree.shared().report_failure(&error);
    } else {
        say(Topic::Failure, format_args!("kinfolk: {error}"));
    }
}

/// Wakes a waker that was kept for `h`. A panic of it is reported.
pub(crate) fn wake_for(h: &Header, waker: Waker) {
    if let Some(payload) = unwind::try_wake(waker) {
        report_panic(h, "in a waker", payload);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A registered hook. Dropping it disarms the hook, unless it was
/// [kept](HookGuard::keep).
#[must_use = "dropping the guard disarms the hook"]
pub struct HookGuard(Option<Arc<HookCell>>);

impl HookGuard {
    /// Leaves the hook armed until the job ends.
    pub fn keep(mut self) {
        self.0 = None;
    }

    /// Removes the hook. Returns true if it had not fired; then it never will.
    pub fn disarm(mut self) -> bool {
        self.0.take().is_some_and(|cell| disarm(&cell))
    }
}

fn disarm(cell: &HookCell) -> bool {
    let callback = cell.take();
    let won = callback.is_some();
    let place = lock(&cell.place).take();
    if let Some((job, key)) = place {
        let listed = job.if_cold(|cold, _| match cell.after_end {
            true => cold.end_hooks.remove(key),
            false => cold.hooks.remove(key),
        });
        drop(listed);
    }
    drop(callback);
    won
}

impl Drop for HookGuard {
    fn drop(&mut self) {
        if let Some(cell) = self.0.take() {
            disarm(&cell);
        }
    }
}

impl fmt::Debug for HookGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HookGuard")
    }
}

/// Calls `f` with the reason when the current job is cancelled; at once if it has been
/// cancelled already. Several hooks of one job run in the order in which they were
/// registered, and before those of the jobs below it.
///
/// The hook runs on the canceller's thread, outside Kinfolk's locks, and must not block: it
/// may set a flag, wake a task, close a handle. It may cancel another job, which is marked at
/// once, with everything below it; the hooks of that job have run at the latest when the
/// cancel around this hook returns, and so have hooks that this one registers and that fire
/// at once. A hook registered inside a shield waits, and moves to the enclosing job when the
/// shield ends. Outside any job nothing can be cancelled, and the hook never fires. A panic
/// in a hook fails no job: the failure hook receives it, and the cancel goes on.
pub fn on_cancel(f: impl FnOnce(&Reason) + Send + 'static) -> HookGuard {
    on_current(
        Contained::new(Box::new(|reason| {
            if let Some(reason) = reason {
                f(reason);
            }
        })),
        false,
    )
}

/// Like [`on_cancel`], but also calls `f` with `None` if the job ends without having been
/// cancelled. `f` is called once, unless the hook is disarmed.
pub fn on_cancel_or_end(f: impl FnOnce(Option<&Reason>) + Send + 'static) -> HookGuard {
    on_current(Contained::new(Box::new(f)), true)
}

fn on_current(callback: Callback, at_end: bool) -> HookGuard {
    match context::current() {
        Some(job) => register(&job, callback, at_end),
        None => HookGuard(None),
    }
}

pub(crate) fn register(h: &Header, callback: Callback, at_end: bool) -> HookGuard {
    let cell = Arc::new(HookCell {
        callback: Mutex::new(Some(callback)),
        at_end,
        after_end: false,
        place: Mutex::new(None),
    });
    publish(h, &cell);
    HookGuard(Some(cell))
}

/// Lists a hook that is called when `h` has ended, or calls it if that is so.
pub(crate) fn register_for_the_end(h: &Header, callback: Callback) -> HookGuard {
    let cell = Arc::new(HookCell {
        callback: Mutex::new(Some(callback)),
        at_end: true,
        after_end: true,
        place: Mutex::new(None),
    });
    let listed = cell.clone();
    let key = h.with_cold(|cold, _| {
        // The ender takes the list after ENDED, under this lock; so look at the word
        // again in it, as joiners do. Modelled in `waiter_add_vs_end`.
        if h.state.publish_nodes().ended() {
            return Err(listed);
        }
        Ok(cold.end_hooks.push(listed))
    });
    match key {
        Ok(key) => {
            let before = lock(&cell.place).replace((JobRef::from_header(h), key));
            drop(before);
        }
        Err(listed) => walk::call_late_hook(JobRef::from_header(h), listed),
    }
    HookGuard(Some(cell))
}

/// Lists the hook at `h`, or fires it if `h` is cancelled or over.
pub(crate) fn publish(h: &Header, cell: &Arc<HookCell>) {
    let listed = cell.clone();
    let (st, key) = h.with_cold(|cold, st| list(h, cold, st, listed));
    published(h, cell, st, key);
}

/// Lists the hook under the lock, `st` having been seen there. The word since,
/// and where it is listed.
fn list(h: &Header, cold: &mut Cold, st: Snapshot, cell: Arc<HookCell>) -> (Snapshot, Option<Key>) {
    if st.ended() || st.effective() {
        return (st, None);
    }
    let key = cold.hooks.push(cell);
    // A cancel that comes after this sees the bit; one that came before
    // shows here. Modelled in `hook_publish_vs_cancel`.
    (h.state.publish_nodes(), Some(key))
}

fn published(h: &Header, cell: &Arc<HookCell>, st: Snapshot, key: Option<Key>) {
    match key {
        // Its ender may have looked for hooks before this one was listed, and
        // looks no more.
        Some(key) if st.ended() => drop(h.if_cold(|cold, _| cold.hooks.remove(key))),
        Some(key) => {
            let place = (JobRef::from_header(h), key);
            let before = lock(&cell.place).replace(place);
            drop(before);
        }
        None => {}
    }
    if st.ended() || st.effective() {
        walk::call_late_hook(JobRef::from_header(h), cell.clone());
    }
}

/// The mark has taken effect at `h`: wakes its foreign leaves, fires its hooks.
pub(crate) fn fire_all(h: &Header) {
    let mut reason = None;
    loop {
        let (leaf, hook) = h
            .if_cold(|cold, _| {
                let leaf = cold.leaves.pop();
                let hook = if leaf.is_none() {
                    cold.hooks.pop()
                } else {
                    None
                };
                (leaf, hook)
            })
            .unwrap_or((None, None));
        match (leaf, hook) {
            (Some(waker), _) => wake_for(h, waker.into_inner()),
            (None, Some(hook)) => {
                if reason.is_none() {
                    reason = h.reason();
                }
                hook.fire(h, reason.as_ref());
            }
            (None, None) => return,
        }
    }
}

/// The job ends: hooks that are still armed get their one call, or are
/// dropped. In a cancelled job that is the call of the cancel: the job may be told
/// and end before the walk that has marked it comes to call.
#[inline]
pub(crate) fn run_end_hooks(h: &Header) {
    if h.state.load().has(state::HAS_NODES) {
        run_listed_end_hooks(h);
    }
}

#[cold]
fn run_listed_end_hooks(h: &Header) {
    let mut reason = None;
    while let Some(hook) = h.if_cold(|cold, _| cold.hooks.pop()).flatten() {
        if reason.is_none() && h.state.load().effective() {
            reason = h.reason();
        }
        hook.fire(h, reason.as_ref());
    }
}

/// The job has ended, and is in the tree still: its hooks for that are called.
#[cold]
pub(crate) fn run_after_end(h: &Header) {
    while let Some(hook) = h.if_cold(|cold, _| cold.end_hooks.pop()).flatten() {
        hook.fire(h, None);
    }
}

/// A shield ends: its hooks go on at the enclosing job.
///
/// # Safety
/// The caller polls the shield, so it is linked.
pub(crate) unsafe fn move_to_parent(shield: &Header) {
    if !shield.state.load().has(state::HAS_NODES) {
        return;
    }
    // SAFETY: linked.
    let Some(parent) = (unsafe { shield.parent() }) else {
        return;
    };
    while let Some(hook) = shield.if_cold(|cold, _| cold.hooks.pop()).flatten() {
        publish(parent, &hook);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::reason::{ReasonData, ReasonKind};
    use crate::record::cell;
    use crate::record::header::Birth;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    /// A cancelled job ends before the walk has come to call: the hook for the
    /// cancel is called by its ender, once, with the reason.
    #[test]
    fn the_end_of_a_cancelled_job_calls_what_the_cancel_has_not() {
        let marked = state::BUSY | state::CANCELLED | state::ORIGIN;
        let birth = Birth::refused(marked, std::panic::Location::caller());
        // SAFETY: fresh; its one reference is ours.
        let job = unsafe { JobRef::adopt(cell::create_node(&birth)) };
        let calls = Arc::new(AtomicUsize::new(0));
        let called = calls.clone();
        let hook = Arc::new(HookCell {
            callback: Mutex::new(Some(Contained::new(Box::new(
                move |reason: Option<&Reason>| {
                    assert_eq!(reason.map(Reason::kind), Some(ReasonKind::Asked));
                    called.fetch_add(1, SeqCst);
                },
            )))),
            at_end: false,
            after_end: false,
            place: Mutex::new(None),
        });
        let reason = Arc::new(ReasonData {
            kind: ReasonKind::Asked,
            text: None,
            origin: job.id,
            culprit: None,
            site: std::panic::Location::caller(),
            at: std::time::Instant::now(),
            by: None,
            delivery: None,
        });
        job.with_cold(|cold, _| {
            cold.reason = Some(reason);
            cold.hooks.push(hook);
        });
        let _before = job.state.publish_nodes();
        run_end_hooks(&job);
        // The walk comes late, and finds nothing to call.
        fire_all(&job);
        assert_eq!(calls.load(SeqCst), 1);
    }

    /// The job ends between the look at its word and the bit. Its ender looks
    /// for hooks no more: the late one leaves the list again, or the list, the
    /// hook and the job would keep each other for ever.
    #[test]
    fn a_hook_that_comes_after_the_end_is_not_listed() {
        let over = state::BUSY | state::BODY_DONE | state::ENDED;
        let birth = Birth::refused(over, std::panic::Location::caller());
        // SAFETY: fresh; its one reference is ours.
        let job = unsafe { JobRef::adopt(cell::create_node(&birth)) };
        let calls = Arc::new(AtomicUsize::new(0));
        let called = calls.clone();
        let hook = Arc::new(HookCell {
            callback: Mutex::new(Some(Contained::new(Box::new(
                move |reason: Option<&Reason>| {
                    assert!(reason.is_none());
                    called.fetch_add(1, SeqCst);
                },
            )))),
            at_end: true,
            after_end: false,
            place: Mutex::new(None),
        });
        let listed = hook.clone();
        let before = Snapshot(state::BUSY);
        let (st, key) = job.with_cold(|cold, _| list(&job, cold, before, listed));
        assert!(st.ended() && key.is_some());
        published(&job, &hook, st, key);
        assert_eq!(calls.load(SeqCst), 1);
        assert_eq!(job.if_cold(|cold, _| cold.hooks.len()), Some(0));
        assert_eq!(Arc::strong_count(&hook), 1);
        assert!(job.is_last_reference());
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::base::reason::{ReasonData, ReasonKind};
    use crate::record::cell;
    use crate::record::header::Birth;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    /// A hook is published while its job ends: it is called once, and is not
    /// listed afterwards.
    #[test]
    fn hook_publish_vs_end() {
        loom::model(|| {
            let birth = Birth::refused(state::BUSY, std::panic::Location::caller());
            // SAFETY: fresh; its one reference is ours.
            let job = unsafe { JobRef::adopt(cell::create_node(&birth)) };
            let calls = Arc::new(AtomicUsize::new(0));
            let publisher = {
                let (job, calls) = (job.clone(), calls.clone());
                loom::thread::spawn(move || {
                    let call: Callback = Contained::new(Box::new(move |_: Option<&Reason>| {
                        calls.fetch_add(1, SeqCst);
                    }));
                    register(&job, call, true).keep();
                })
            };
            // What its ender does.
            run_end_hooks(&job);
            let st = job.state.end(false, false, true).expect("nothing to keep");
            if st.has(state::HAS_NODES) {
                run_end_hooks(&job);
            }
            publisher.join().unwrap();
            assert_eq!(calls.load(SeqCst), 1);
            let listed = job.if_cold(|cold, _| cold.hooks.len());
            assert_eq!(listed.unwrap_or(0), 0);
            assert!(job.is_last_reference());
        });
    }

    /// A hook for the cancel is published while its job is cancelled and ends: it is
    /// called once, with the reason, whichever of the three it meets.
    #[test]
    fn hook_publish_vs_cancel_and_end() {
        loom::model(|| {
            let birth = Birth::refused(state::BUSY, std::panic::Location::caller());
            // SAFETY: fresh; its one reference is ours.
            let job = unsafe { JobRef::adopt(cell::create_node(&birth)) };
            let reason = Arc::new(ReasonData {
                kind: ReasonKind::Asked,
                text: None,
                origin: job.id,
                culprit: None,
                site: std::panic::Location::caller(),
                at: std::time::Instant::now(),
                by: None,
                delivery: None,
            });
            job.with_cold(|cold, _| cold.reason = Some(reason));
            let calls = Arc::new(AtomicUsize::new(0));
            let publisher = {
                let (job, calls) = (job.clone(), calls.clone());
                loom::thread::spawn(move || {
                    let call: Callback =
                        Contained::new(Box::new(move |reason: Option<&Reason>| {
                            assert_eq!(reason.map(Reason::kind), Some(ReasonKind::Asked));
                            calls.fetch_add(1, SeqCst);
                        }));
                    register(&job, call, false).keep();
                })
            };
            // What the canceller does, and then the ender.
            assert_eq!(
                job.state.mark(state::MarkFrom::Here, false),
                state::Marked::Noted
            );
            if job.state.load().has(state::HAS_NODES) {
                fire_all(&job);
            }
            run_end_hooks(&job);
            let st = job.state.end(false, false, true).expect("nothing to keep");
            if st.has(state::HAS_NODES) {
                run_end_hooks(&job);
            }
            publisher.join().unwrap();
            assert_eq!(calls.load(SeqCst), 1);
            let listed = job.if_cold(|cold, _| cold.hooks.len());
            assert_eq!(listed.unwrap_or(0), 0);
        });
    }
}
