//! Hooks: callbacks that a cancel or the job's end calls. Of cancel, end and
//! disarming exactly one takes the callback out of its cell.

use std::fmt;
use std::sync::{Arc, PoisonError};
use std::task::Waker;

use crate::base::error::Error;
use crate::base::kind::JobKind;
use crate::base::list::{Key, List};
use crate::base::reason::Reason;
use crate::base::say::{Topic, say};
use crate::base::sync::{Mutex, MutexGuard};
use crate::base::unwind::{self, Nested, Payload, caught};
use crate::engine::context;
use crate::engine::names;
use crate::engine::pin;
use crate::engine::tree::Tree;
use crate::engine::walk;
use crate::record::cold::Cold;
use crate::record::header::{Header, JobRef};
use crate::record::hook_cell::{Callback, HookCell, HookHome, HookPlace};
use crate::record::state::{self, Snapshot};

impl HookCell {
    fn take(&self) -> Option<Callback> {
        lock(&self.callback).take()
    }

    /// Calls the callback for `h`, outside every job, if it is still there. A
    /// panic of the callback is reported.
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
    /// Calls it for `h`, which was cancelled or had ended when the hook was
    /// registered.
    pub(crate) fn fire_late(&self, h: &Header) {
        // A cancelled job stays cancelled when it has ended.
        let reason = h.state.load().effective().then(|| h.reason()).flatten();
        self.fire(h, reason.as_ref());
    }
}

/// A callback that is no job's body has panicked for `h`, which may have ended: the
/// failure hook gets the panic, or standard error, if the tree is gone.
#[cold]
pub(crate) fn report_panic(h: &Header, place: &str, payload: Payload) {
    let error = Error::panicked_in(place, payload).at(names::victim_alone(h), h.reason());
    if let Some(tree) = pin::tree_of(h) {
        tree.report_failure(&error);
    } else if let Some(tree) = Tree::with_number(h.id.tree()) {
        tree.shared().report_failure(&error);
    } else {
        say(Topic::Failure, format_args!("kinfolk: {error}"));
    }
}

/// Wakes a waker that was kept for `h`. A panic of the waker is reported.
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

fn disarm(cell: &Arc<HookCell>) -> bool {
    let callback = cell.take();
    let won = callback.is_some();
    unlist(cell);
    drop(callback);
    won
}

/// Takes the hook off its list.
fn unlist(cell: &Arc<HookCell>) {
    // In a loop, because the hook may move to another list meanwhile, when the
    // shield in which it was made ends.
    loop {
        // Released at once: a thread that lists a hook takes this lock under that of
        // the job.
        let place = lock(&cell.place).take();
        let Some(place) = place else {
            return;
        };
        match place {
            HookPlace::Job(job, key) => drop(unlist_at(&job, cell, key)),
            HookPlace::Moving(home, key) => {
                let mut job = lock(&home.0).clone();
                while unlist_at(&job, cell, key).is_none() {
                    let now = { lock(&home.0).clone() };
                    if now.as_ptr() == job.as_ptr() {
                        // The hook was called, or is about to be: its callback is taken,
                        // and its cell is dropped with the list.
                        break;
                    }
                    job = now;
                }
            }
        }
    }
}

fn unlist_at(job: &Header, cell: &Arc<HookCell>, key: Key) -> Option<Arc<HookCell>> {
    job.if_cold(|cold, _| {
        let list = match cell.after_end {
            true => &mut cold.end_hooks,
            false => &mut cold.hooks,
        };
        // The key may be of another list, which was here before.
        let is_there = list.get(key).is_some_and(|there| Arc::ptr_eq(there, cell));
        is_there.then(|| list.remove(key)).flatten()
    })
    .flatten()
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
        Nested::new(Box::new(|reason| {
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
    on_current(Nested::new(Box::new(f)), true)
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

/// Lists a hook that is called when `h` has ended, or calls it if `h` has ended
/// already.
pub(crate) fn register_for_the_end(h: &Header, callback: Callback) -> HookGuard {
    let cell = Arc::new(HookCell {
        callback: Mutex::new(Some(callback)),
        at_end: true,
        after_end: true,
        place: Mutex::new(None),
    });
    let listed = cell.clone();
    let late = h.with_cold(|cold, _| {
        // The ender takes the list after ENDED, under this lock; so this thread
        // reads the word again under it, as joiners do. Modelled in
        // `waiter_add_vs_end`.
        if h.state.publish_nodes().ended() {
            return Some(listed);
        }
        let key = cold.end_hooks.push(listed);
        // The hook was on no list before.
        *lock(&cell.place) = Some(HookPlace::Job(JobRef::from_header(h), key));
        None
    });
    if let Some(late) = late {
        walk::call_late_hook(JobRef::from_header(h), late);
    }
    HookGuard(Some(cell))
}

/// Lists the hook at `h`, or fires it if `h` is cancelled or has ended.
pub(crate) fn publish(h: &Header, cell: &Arc<HookCell>) {
    let listed = cell.clone();
    let (st, before) = h.with_cold(|cold, st| list(h, cold, st, listed));
    drop(before);
    published(h, cell, st);
}

/// Lists the hook under the lock, under which `st` was read. Returns the word
/// since then, and the hook's previous place, which is dropped outside the
/// lock.
fn list(
    h: &Header,
    cold: &mut Cold,
    st: Snapshot,
    cell: Arc<HookCell>,
) -> (Snapshot, Option<HookPlace>) {
    if st.ended() || st.effective() {
        return (st, None);
    }
    let before = append(h, cold, cell);
    // A cancel after this step sees the bit; one before it shows in the answer.
    // Modelled in `hook_publish_vs_cancel`.
    (h.state.publish_nodes(), before)
}

/// Puts the hook last on the list of `h`. Returns its previous place.
fn append(h: &Header, cold: &mut Cold, cell: Arc<HookCell>) -> Option<HookPlace> {
    if h.kind() == JobKind::Shield && cold.hook_home.is_none() {
        let home = HookHome(Mutex::new(JobRef::from_header(h)));
        cold.hook_home = Some(Arc::new(home));
    }
    let key = cold.hooks.push(cell.clone());
    let place = match &cold.hook_home {
        Some(home) => HookPlace::Moving(home.clone(), key),
        None => HookPlace::Job(JobRef::from_header(h), key),
    };
    lock(&cell.place).replace(place)
}

fn published(h: &Header, cell: &Arc<HookCell>, st: Snapshot) {
    if st.ended() {
        // The ender may have emptied the list before this hook was listed, and
        // does not return to it.
        unlist(cell);
        forget_home(h);
    }
    if st.ended() || st.effective() {
        walk::call_late_hook(JobRef::from_header(h), cell.clone());
    }
}

/// The job ends: drops the place of its hooks, which refers to the job.
fn forget_home(h: &Header) {
    let home = h.if_cold(|cold, _| cold.hook_home.take());
    drop(home);
}

/// The mark has taken effect at `h`: wakes its foreign leaves, calls its hooks.
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

/// The job ends: hooks that are still armed get their one call, or are dropped. In
/// a cancelled job they get the call of the cancel: the job may be told and end
/// before the walk that has marked it makes its calls.
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
    forget_home(h);
}

/// The job has ended, and is still in the tree: the hooks for the end are
/// called.
#[cold]
pub(crate) fn run_after_end(h: &Header) {
    while let Some(hook) = h.if_cold(|cold, _| cold.end_hooks.pop()).flatten() {
        hook.fire(h, None);
    }
}

/// A shield ends: its hooks move to the enclosing job.
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
    move_hooks(shield, parent);
}

/// Moves the hooks of `shield` to `parent`.
fn move_hooks(shield: &Header, parent: &Header) {
    let taken = shield.if_cold(|cold, _| {
        let home = cold.hook_home.take()?;
        Some((std::mem::take(&mut cold.hooks), home))
    });
    if let Some((hooks, home)) = taken.flatten() {
        move_list(parent, hooks, home);
    }
}

/// Moves the list of a shield to `parent`, behind the hooks that are there, as a whole: of
/// the two lists the shorter is put into the longer, so that hooks that are kept in nested
/// shields are not moved again and again.
fn move_list(parent: &Header, mut hooks: List<Arc<HookCell>>, home: Arc<HookHome>) {
    if hooks.is_empty() {
        return;
    }
    let listed = parent.with_cold(|cold, st| {
        if st.ended() || st.effective() {
            return Err(hooks);
        }
        let mut gone = Vec::new();
        let (mut job, mut other) = (None, None);
        if cold.hooks.len() < hooks.len() {
            job = Some(std::mem::replace(
                &mut *lock(&home.0),
                JobRef::from_header(parent),
            ));
            let mut before = std::mem::replace(&mut cold.hooks, hooks);
            while let Some(cell) = before.pop_back() {
                let key = cold.hooks.push_front(cell.clone());
                let place = HookPlace::Moving(home.clone(), key);
                gone.extend(lock(&cell.place).replace(place));
            }
            other = cold.hook_home.replace(home);
        } else {
            while let Some(cell) = hooks.pop() {
                gone.extend(append(parent, cold, cell));
            }
        }
        // As in `list`.
        Ok((parent.state.publish_nodes(), gone, job, other))
    });
    match listed {
        Ok((st, gone, job, other)) => {
            drop((gone, job, other));
            if st.ended() || st.effective() {
                while let Some(cell) = parent.if_cold(|cold, _| cold.hooks.pop()).flatten() {
                    walk::call_late_hook(JobRef::from_header(parent), cell);
                }
            }
        }
        Err(mut hooks) => {
            while let Some(cell) = hooks.pop() {
                walk::call_late_hook(JobRef::from_header(parent), cell);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::reason::{ReasonData, ReasonKind};
    use crate::record::cell;
    use crate::record::header::Birth;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    /// A cancelled job ends before the walk makes its calls: the ender calls
    /// the hook for the cancel, once, with the reason.
    #[test]
    fn the_end_of_a_cancelled_job_calls_what_the_cancel_has_not() {
        let marked = state::BUSY | state::CANCELLED | state::ORIGIN;
        let birth = Birth::refused(marked, std::panic::Location::caller());
        // SAFETY: fresh; its one reference is ours.
        let job = unsafe { JobRef::adopt(cell::create_node(&birth)) };
        let calls = Arc::new(AtomicUsize::new(0));
        let called = calls.clone();
        let hook = Arc::new(HookCell {
            callback: Mutex::new(Some(Nested::new(Box::new(
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
        // The walk comes late, and finds no hook to call.
        fire_all(&job);
        assert_eq!(calls.load(SeqCst), 1);
    }

    /// The job ends between the read of its word and the bit. Its ender does
    /// not look for hooks again: the late hook leaves the list, or the list,
    /// the hook and the job would keep each other alive for ever.
    #[test]
    fn a_hook_that_comes_after_the_end_is_not_listed() {
        let over = state::BUSY | state::BODY_DONE | state::ENDED;
        let birth = Birth::refused(over, std::panic::Location::caller());
        // SAFETY: fresh; its one reference is ours.
        let job = unsafe { JobRef::adopt(cell::create_node(&birth)) };
        let calls = Arc::new(AtomicUsize::new(0));
        let called = calls.clone();
        let hook = Arc::new(HookCell {
            callback: Mutex::new(Some(Nested::new(Box::new(
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
        let (st, place) = job.with_cold(|cold, _| list(&job, cold, before, listed));
        assert!(st.ended() && place.is_none());
        assert_eq!(job.if_cold(|cold, _| cold.hooks.len()), Some(1));
        published(&job, &hook, st);
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
                    let call: Callback = Nested::new(Box::new(move |_: Option<&Reason>| {
                        calls.fetch_add(1, SeqCst);
                    }));
                    register(&job, call, true).keep();
                })
            };
            // The steps of the ender.
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

    /// A hook that was made in a shield is disarmed while the shield ends: it is not
    /// called, no other hook leaves a list, and no reference to the jobs is left. Once
    /// with the longer list in the shield, once with that of the job around it.
    #[test]
    fn hook_disarm_vs_move() {
        for around in [1, 2] {
            loom::model(move || {
                let site = std::panic::Location::caller();
                // SAFETY: fresh; each of the two references is ours.
                let job = |birth: Birth<'_>| unsafe { JobRef::adopt(cell::create_node(&birth)) };
                let parent = job(Birth::refused(state::BUSY, site));
                let shield = job(Birth {
                    kind: JobKind::Shield,
                    ..Birth::refused(state::BUSY, site)
                });
                let calls = Arc::new(AtomicUsize::new(0));
                let arm = |h: &Header, weight: usize| {
                    let calls = calls.clone();
                    let call: Callback = Nested::new(Box::new(move |_: Option<&Reason>| {
                        calls.fetch_add(weight, SeqCst);
                    }));
                    register(h, call, true)
                };
                for _ in 0..around {
                    arm(&parent, 1).keep();
                }
                let guard = arm(&shield, 100);
                if around == 1 {
                    arm(&shield, 10).keep();
                }
                let disarmer = loom::thread::spawn(move || assert!(guard.disarm()));
                move_hooks(&shield, &parent);
                disarmer.join().unwrap();
                run_end_hooks(&shield);
                run_end_hooks(&parent);
                let expected = if around == 1 { 11 } else { 2 };
                assert_eq!(calls.load(SeqCst), expected);
                assert!(shield.is_last_reference());
                assert!(parent.is_last_reference());
            });
        }
    }

    /// A hook for the cancel is published while its job is cancelled and ends: it is
    /// called once, with the reason, in every order of the three.
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
                    let call: Callback = Nested::new(Box::new(move |reason: Option<&Reason>| {
                        assert_eq!(reason.map(Reason::kind), Some(ReasonKind::Asked));
                        calls.fetch_add(1, SeqCst);
                    }));
                    register(&job, call, false).keep();
                })
            };
            // The steps of the canceller, and then of the ender.
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
