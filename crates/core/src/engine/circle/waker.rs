//! The waker of a task: the header itself, counted. And wakers in slots: that of a
//! task's waiter, and that of a scope's poller.

use std::mem::ManuallyDrop;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{RawWaker, RawWakerVTable, Waker};

use crate::base::sync::AtomicU64;
use crate::base::unwind::{self, contained};
use crate::engine::context;
use crate::engine::deadline;
use crate::engine::turn;
use crate::record::cell::{Slot, slot, whose};
use crate::record::header::{Header, LockedJob};
use crate::record::state::Claim;

static VTABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, drop);

/// Like [`VTABLE`], without a reference: for the slots of jobs below the task,
/// whose links keep it alive (H3). No other code sees such a waker.
static BARE: RawWakerVTable = RawWakerVTable::new(clone, wake_by_ref, wake_by_ref, nothing);

/// The task's waker without a reference of its own.
pub(crate) fn borrowed(h: &Header) -> ManuallyDrop<Waker> {
    let raw = RawWaker::new(std::ptr::from_ref(h).cast(), &VTABLE);
    // SAFETY: the functions below keep RawWaker's contract; the missing
    // reference is never released, because this value is never dropped.
    ManuallyDrop::new(unsafe { Waker::from_raw(raw) })
}

unsafe fn clone(data: *const ()) -> RawWaker {
    // SAFETY: a waker owns or borrows a reference, so the header is alive.
    unsafe { &*data.cast::<Header>() }.add_ref();
    RawWaker::new(data, &VTABLE)
}

unsafe fn wake(data: *const ()) {
    // SAFETY: passed on; the reference of this waker goes with `drop`.
    unsafe {
        wake_by_ref(data);
        drop(data);
    }
}

unsafe fn wake_by_ref(data: *const ()) {
    // SAFETY: as in `clone`.
    let h = unsafe { &*data.cast::<Header>() };
    h.assert_alive();
    if h.state.claim() == Claim::Push {
        // SAFETY: claimed, so it has not ended and is ours until the push (H5).
        unsafe { turn::push_claimed(h) };
    }
}

unsafe fn drop(data: *const ()) {
    // SAFETY: this waker owned a reference (H6).
    unsafe { Header::release(data.cast()) };
}

unsafe fn nothing(_: *const ()) {}

/// The waker of a scope's timer: it fires what is due at the scope.
static ALARM: RawWakerVTable =
    RawWakerVTable::new(clone_alarm, ring_alarm, ring_alarm_by_ref, drop);

/// The waker for the timer of a scope, without a reference of its own.
pub(crate) fn alarm(h: &Header) -> ManuallyDrop<Waker> {
    let raw = RawWaker::new(std::ptr::from_ref(h).cast(), &ALARM);
    // SAFETY: as in `borrowed`.
    ManuallyDrop::new(unsafe { Waker::from_raw(raw) })
}

unsafe fn clone_alarm(data: *const ()) -> RawWaker {
    // SAFETY: as in `clone`.
    unsafe { &*data.cast::<Header>() }.add_ref();
    RawWaker::new(data, &ALARM)
}

unsafe fn ring_alarm(data: *const ()) {
    // SAFETY: passed on; the reference of this waker goes with `drop`.
    unsafe {
        ring_alarm_by_ref(data);
        drop(data);
    }
}

unsafe fn ring_alarm_by_ref(data: *const ()) {
    // SAFETY: as in `clone`.
    let h = unsafe { &*data.cast::<Header>() };
    h.assert_alive();
    contained(|| deadline::timer_rang(h));
}

/// The bare waker to keep in the slot of a job directly below `above`, inside
/// which the caller polls, if `waker` is that of the task of `above`.
pub(crate) fn bare(waker: &Waker, above: &Header) -> Option<Waker> {
    let task = if above.is_task() {
        above
    } else {
        // SAFETY: being polled, so it is linked (H3). To climb further through
        // scopes in scopes would cost more than a clone.
        unsafe { above.parent() }.filter(|parent| parent.is_task())?
    };
    let data = std::ptr::from_ref(task).cast();
    if waker.data() != data || !std::ptr::eq(waker.vtable(), &raw const VTABLE) {
        return None;
    }
    // SAFETY: as in `borrowed`; `BARE` owns no reference.
    Some(unsafe { Waker::from_raw(RawWaker::new(data, &BARE)) })
}

/// True if a wake-up of this waker runs no user code: it is that of a task of this
/// library. The timer of a scope may call hooks, and any other waker may do
/// anything.
pub fn is_of_task(waker: &Waker) -> bool {
    std::ptr::eq(waker.vtable(), &raw const VTABLE)
}

/// The vtable of every task's waker.
pub(crate) fn vtable() -> &'static RawWakerVTable {
    &VTABLE
}

/// Wakes the job that is polled with `waker`. If that is the task whose turn
/// this thread takes, it gets another turn without a step on its word.
#[inline]
pub(crate) fn go_round(waker: &Waker) {
    let own = std::ptr::eq(waker.vtable(), &raw const VTABLE) && context::ask_again(waker.data());
    if !own {
        waker.wake_by_ref();
    }
}

/// True if waking `kept`, a clone or a [`bare`] waker, has the same effect as
/// waking `waker`.
pub(crate) fn is_kept(kept: &Waker, waker: &Waker) -> bool {
    let bare = std::ptr::eq(kept.vtable(), &raw const BARE)
        && std::ptr::eq(waker.vtable(), &raw const VTABLE);
    kept.data() == waker.data() && (bare || std::ptr::eq(kept.vtable(), waker.vtable()))
}

/// Drops a waker that was taken out of a slot. Dropping a task's waker runs no
/// user code, and dropping a [`bare`] one does nothing.
#[inline]
pub(crate) fn let_go(kept: Option<Waker>) {
    match kept {
        Some(waker) if !is_ours(&waker) => unwind::discard_waker(waker),
        ours => std::mem::drop(ours),
    }
}

fn is_ours(waker: &Waker) -> bool {
    let vtable: *const RawWakerVTable = waker.vtable();
    std::ptr::eq(vtable, &raw const BARE) || std::ptr::eq(vtable, &raw const VTABLE)
}

/// A waker that was taken out of a slot, and is safe to use whichever jobs end
/// meanwhile: a bare task is claimed.
#[must_use = "a waker that is taken out must be woken"]
#[derive(Default)]
pub(crate) enum TakenWaker {
    #[default]
    Nobody,
    Claimed(*const Header),
    Owned(Waker),
}

impl TakenWaker {
    /// # Safety
    /// The job of the slot is linked, or its parent's lock, under which it was
    /// unlinked, is still held: so a bare task is alive (H3).
    pub(crate) unsafe fn new(kept: Option<Waker>) -> TakenWaker {
        match kept {
            None => TakenWaker::Nobody,
            Some(waker) if std::ptr::eq(waker.vtable(), &raw const BARE) => {
                // SAFETY: alive by the caller's promise.
                let h = unsafe { &*waker.data().cast::<Header>() };
                h.assert_alive();
                match h.state.claim() {
                    Claim::Push => TakenWaker::Claimed(h),
                    Claim::Leave => TakenWaker::Nobody,
                }
            }
            Some(waker) => TakenWaker::Owned(waker),
        }
    }

    /// Wakes it. Must not be called under a lock.
    #[inline]
    pub(crate) fn wake(self) {
        if !matches!(self, TakenWaker::Nobody) {
            self.wake_somebody();
        }
    }

    fn wake_somebody(self) {
        match self {
            TakenWaker::Nobody => {}
            // SAFETY: claimed by this thread, so it has not ended (H5).
            TakenWaker::Claimed(h) => unsafe { turn::push_claimed(&*h) },
            TakenWaker::Owned(waker) => unwind::wake(waker),
        }
    }
}

/// This value in `whose` of a scope says that the slot holds the bare waker of
/// the task above. Written under the lock, with the slot.
const IS_BARE: u64 = 1;

/// Keeps the waker of a scope's poller in its slot: bare, if it is that of the
/// task `above` the scope.
///
/// If the slot holds that bare waker already, it is left there, without the
/// lock. A thread that takes it out clears the mark first and then wakes that
/// task: if this check comes too early to see the cleared mark, the next poll
/// sees it. Modelled in `kept_waker_vs_wake`.
#[inline]
pub(crate) fn keep_poller(h: &Header, waker: &Waker, above: Option<&Header>) {
    let bare = above.and_then(|above| bare(waker, above));
    let (Some(slot), Some(mark)) = (slot(h), whose(h)) else {
        unreachable!("a scope has a slot");
    };
    if bare.is_none() || mark.load(Relaxed) != IS_BARE {
        keep_waker(h, slot, mark, waker, bare);
    }
}

/// Takes the waker of a scope's poller out of its slot.
///
/// # Safety
/// It is a scope: the slot of a task is guarded by WAITER.
pub(crate) unsafe fn take_poller(h: &LockedJob<'_>) -> Option<Waker> {
    whose(h.job())?.store(0, Relaxed);
    // SAFETY: H1, under the lock.
    unsafe { slot(h.job())?.take() }
}

/// Keeps `waker` in a scope's slot, under its lock: as `bare`, or else as a clone.
/// The clone is made, and the old waker dropped, outside the lock (H1).
fn keep_waker(h: &Header, slot: &Slot, mark: &AtomicU64, waker: &Waker, bare: Option<Waker>) {
    let is_bare = bare.is_some();
    let mut new = bare;
    loop {
        let kept = {
            let _locked = h.lock();
            // SAFETY: H1, under the lock.
            let kept = unsafe {
                slot.with_mut(|kept| match kept {
                    Some(kept) if is_kept(kept, waker) => Some(None),
                    _ => new.take().map(|new| kept.replace(new)),
                })
            };
            if kept.is_some() {
                mark.store(if is_bare { IS_BARE } else { 0 }, Relaxed);
            }
            kept
        };
        if let Some(old) = kept {
            return let_go(old);
        }
        new = Some(waker.clone());
    }
}
