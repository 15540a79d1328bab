//! Hooks: callbacks that a cancel fires, or the job's end. Of cancel, end and
//! disarming exactly one gets the callback: whoever takes it out of its cell.

use std::fmt;
use std::sync::{Arc, PoisonError};

use super::reason::Reason;
use crate::context;
use crate::job::header::{Header, JobRef};
use crate::job::list::Key;
use crate::job::state;
use crate::sync::{Mutex, MutexGuard};
use crate::unwind::{Contained, contained, wake};

type Callback = Contained<Box<dyn FnOnce(Option<&Reason>) + Send>>;

pub(crate) struct HookCell {
    callback: Mutex<Option<Callback>>,
    /// Also called, with no reason, when the job ends uncancelled.
    at_end: bool,
    /// Where it is listed; a hook made in a shield moves at its exit.
    place: Mutex<Option<(JobRef, Key)>>,
}

impl HookCell {
    fn take(&self) -> Option<Callback> {
        lock(&self.callback).take()
    }

    fn fire(&self, reason: Option<&Reason>) {
        if let Some(callback) = self.take() {
            if reason.is_some() || self.at_end {
                contained(|| callback.into_inner()(reason));
            } else {
                drop(callback);
            }
        }
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

    /// Takes the hook away. True if it had not fired: it never will.
    pub fn disarm(mut self) -> bool {
        self.0.take().is_some_and(|cell| disarm(&cell))
    }
}

fn disarm(cell: &HookCell) -> bool {
    let callback = cell.take();
    let won = callback.is_some();
    let place = lock(&cell.place).take();
    if let Some((job, key)) = place {
        let listed = job.if_cold(|cold, _| cold.hooks.remove(key));
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

/// Calls `f` with the reason when the current job is cancelled; at once if it
/// is cancelled already.
///
/// The hook runs on the canceller's thread, outside our locks, and may only
/// schedule: set a flag, wake somebody, close a handle. Inside a shield it
/// waits, and moves to the enclosing job when the shield ends. Outside every
/// job nothing can be cancelled, and the hook never fires.
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

/// As [`on_cancel`], and with `None` when the job ends without having been
/// cancelled. One call, either way, unless disarmed.
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
        place: Mutex::new(None),
    });
    publish(h, &cell);
    HookGuard(Some(cell))
}

/// Lists the hook at `h`, or fires it if `h` is cancelled or over.
pub(crate) fn publish(h: &Header, cell: &Arc<HookCell>) {
    let listed = cell.clone();
    let (st, key) = h.with_cold(|cold, st| {
        if st.ended() || st.effective() {
            return (st, None);
        }
        let key = cold.hooks.push(listed);
        // A cancel that comes after this sees the bit; one that came before
        // shows here. Modelled in `hook_publish_vs_cancel`.
        (h.state.add(state::HAS_NODES), Some(key))
    });
    if let Some(key) = key {
        let place = (JobRef::from_header(h), key);
        let before = lock(&cell.place).replace(place);
        drop(before);
    }
    if st.ended() {
        cell.fire(None);
    } else if st.effective() {
        let reason = h.reason();
        cell.fire(reason.as_ref());
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
            (Some(waker), _) => {
                wake(waker.into_inner());
            }
            (None, Some(hook)) => {
                if reason.is_none() {
                    reason = h.reason();
                }
                let _none = context::leave();
                hook.fire(reason.as_ref());
            }
            (None, None) => return,
        }
    }
}

/// The job ends: hooks that are still armed get their one call, or are
/// dropped.
#[inline]
pub(crate) fn run_end_hooks(h: &Header) {
    if h.state.load().has(state::HAS_NODES) {
        run_listed_end_hooks(h);
    }
}

#[cold]
fn run_listed_end_hooks(h: &Header) {
    while let Some(hook) = h.if_cold(|cold, _| cold.hooks.pop()).flatten() {
        let _none = context::leave();
        hook.fire(None);
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
