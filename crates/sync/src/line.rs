//! The line: first come, first served. Everything of this crate that waits stands in
//! one. A [`Waiter`] is a field of the future that waits, and is linked into the
//! [`Line`] of what it waits for: to wait allocates nothing, and to leave takes one
//! step however long the line is.
//!
//! What happens to a waiter is one byte, its [`WaiterStage`]:
//!
//! ```text
//!           1                  2
//!   Idle ───────► Listed ───────────► Granted or Refused
//!    ▲               │ 3
//!    └───────────────┘
//! 1 Line::push_back, push_front: its own future, which is about to return Pending
//! 2 First::settle: what it waited for was handed over, or will never come
//! 3 Line::leave: its own future was told or dropped
//! ```
//!
//! 2 and 3 exclude each other: both happen under the lock of the line. So a hand-over
//! that races with a cancel is seen by the one who leaves ([`Line::leave`] answers what
//! has become of the waiter), and nothing is handed over to a waiter that has left.
//!
//! Rules, which `SAFETY` comments cite:
//!
//! - **L1** A waiter is pinned while it is `Listed`, and leaves the line before its memory
//!   goes: the destructor of the future calls [`Line::leave`]. A waiter dropped while it is
//!   listed ends the process.
//! - **L2** The fields in `links` are touched under the lock of the line that the waiter is
//!   in, or by its own future while it is not listed.
//! - **L3** The code that settles a waiter takes all it needs out of it before, and does not
//!   touch it after the store of the stage: its future may see that store without the
//!   lock, and free it.
//! - **L4** A waker is cloned before the lock is taken, and woken or dropped after it was
//!   left ([`Wakes`]): it may be the user's, and call back.
//!
//! Loom watches the fields of the waiters.
//!
//! | rule | noticed by |
//! |---|---|
//! | L1 | `grant_vs_drop`, `barrier_vs_drop`: a waiter that is listed ends the process |
//! | L2, L3 | `grant_vs_cancel`, `grant_vs_drop`, `close_vs_send` |
//! | L4 | `io_6_wakes_that_panic_or_call_back_hold_up_nobody`, `io_6_a_waker_that_cannot_be_cloned_breaks_no_channel` |

use std::marker::PhantomPinned;
use std::mem::MaybeUninit;
use std::panic::Location;
use std::ptr;
use std::task::Waker;

use kinfolk_core::host::{discard_waker, say, wake};
use kinfolk_core::{JobId, kit};

use crate::sync::{AtomicU8, BATCH, Ordering, Plain};

/// What has become of a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum WaiterStage {
    /// In no line.
    Idle = 0,
    /// It stands in line.
    Listed = 1,
    /// It has got what it waited for.
    Granted = 2,
    /// What it waited for will not come: closed. Or, where there are two ways to be
    /// served, the second of them.
    Refused = 3,
}

impl WaiterStage {
    fn of(bits: u8) -> WaiterStage {
        match bits {
            0 => WaiterStage::Idle,
            1 => WaiterStage::Listed,
            2 => WaiterStage::Granted,
            _ => WaiterStage::Refused,
        }
    }
}

/// One that waits, in the future that does.
pub(crate) struct Waiter {
    /// L2.
    links: Plain<Links>,
    stage: AtomicU8,
    /// For snapshots: where it waits.
    site: &'static Location<'static>,
    _pinned: PhantomPinned,
}

struct Links {
    prev: *const Waiter,
    next: *const Waiter,
    waker: Option<Waker>,
    /// How much it waits for.
    need: usize,
    /// Its number in the line: grows from waiter to waiter.
    number: u64,
    /// For snapshots: the job that waits.
    job: Option<JobId>,
}

// SAFETY: by L2 one thread at a time touches the links; the rest is atomic.
unsafe impl Send for Waiter {}
// SAFETY: as above.
unsafe impl Sync for Waiter {}

impl Waiter {
    #[inline]
    pub(crate) fn new(site: &'static Location<'static>) -> Waiter {
        Waiter {
            links: Plain::new(Links {
                prev: ptr::null(),
                next: ptr::null(),
                waker: None,
                need: 0,
                number: 0,
                job: None,
            }),
            stage: AtomicU8::new(WaiterStage::Idle as u8),
            site,
            _pinned: PhantomPinned,
        }
    }

    /// What has become of it. Asked by its own future.
    #[inline]
    pub(crate) fn stage(&self) -> WaiterStage {
        // Pairs with the Release of `FirstInLine::settle`.
        WaiterStage::of(self.stage.load(Ordering::Acquire))
    }

    /// It can stand in line again. Called by its own future, once it was settled.
    pub(crate) fn reset(&self) {
        debug_assert_ne!(self.stage(), WaiterStage::Listed);
        self.stage.store(WaiterStage::Idle as u8, Ordering::Relaxed);
    }

    /// Where it waits.
    pub(crate) fn site(&self) -> &'static Location<'static> {
        self.site
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if self.stage() == WaiterStage::Listed {
            // L1 is broken: the line points to memory that goes now.
            say::abort(format_args!(
                "kinfolk: a waiter was dropped while it stood in a line"
            ));
        }
    }
}

/// Those who wait for one thing, the first to come first. Under a lock, always.
pub(crate) struct Line {
    head: *const Waiter,
    tail: *const Waiter,
    len: usize,
    /// The number of the next one.
    number: u64,
}

// SAFETY: it is a value under a lock; what it points to is `Sync`, and is there by L1.
unsafe impl Send for Line {}

impl Line {
    pub(crate) const fn new() -> Line {
        Line {
            head: ptr::null(),
            tail: ptr::null(),
            len: 0,
            number: 0,
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head.is_null()
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The number that the next one will get: all who stand in line now have a smaller
    /// one.
    pub(crate) fn next_number(&self) -> u64 {
        self.number
    }

    /// Puts a waiter at the end of the line, to be woken with `waker`.
    ///
    /// # Safety
    /// L1, from now until the waiter is settled or has left; it is in no line yet.
    pub(crate) unsafe fn push_back(&mut self, waiter: &Waiter, waker: Waker, need: usize) {
        let (at, tail) = (ptr::from_ref(waiter), self.tail);
        let number = self.number;
        self.number += 1;
        // SAFETY: L2, its own future calls, under the lock.
        unsafe {
            waiter.links.with_mut(|links| {
                *links = Links {
                    prev: tail,
                    next: ptr::null(),
                    waker: Some(waker),
                    need,
                    number,
                    job: kit::current_id(),
                }
            });
        }
        // SAFETY: L1 and L2: what is in the line is there, and the lock is held.
        match unsafe { tail.as_ref() } {
            // SAFETY: L2, under the lock.
            Some(tail) => unsafe { tail.links.with_mut(|links| links.next = at) },
            None => self.head = at,
        }
        self.tail = at;
        self.listed(waiter);
    }

    /// The same, at the front: for one that was served and has found nothing.
    ///
    /// # Safety
    /// As [`push_back`](Line::push_back).
    pub(crate) unsafe fn push_front(&mut self, waiter: &Waiter, waker: Waker, need: usize) {
        let (at, head) = (ptr::from_ref(waiter), self.head);
        // SAFETY: L2, its own future calls, under the lock.
        unsafe {
            waiter.links.with_mut(|links| {
                // It keeps its number, which is smaller than all others.
                (links.prev, links.next) = (ptr::null(), head);
                (links.waker, links.need) = (Some(waker), need);
                links.job = kit::current_id();
            });
        }
        // SAFETY: L1 and L2: what is in the line is there, and the lock is held.
        match unsafe { head.as_ref() } {
            // SAFETY: L2, under the lock.
            Some(head) => unsafe { head.links.with_mut(|links| links.prev = at) },
            None => self.tail = at,
        }
        self.head = at;
        self.listed(waiter);
    }

    fn listed(&mut self, waiter: &Waiter) {
        self.len += 1;
        // Read by its own future, and by others under the lock.
        waiter
            .stage
            .store(WaiterStage::Listed as u8, Ordering::Relaxed);
    }

    /// The first in line.
    #[inline]
    pub(crate) fn first(&mut self) -> Option<FirstInLine<'_>> {
        let waiter = ptr::NonNull::new(self.head.cast_mut())?;
        Some(FirstInLine { line: self, waiter })
    }

    /// `waiter`, which stands in this line or has been settled by it, stands here no
    /// longer. Its waker comes back, and what had become of it: `Listed` if it left.
    #[must_use = "a waiter that was settled has got something, and the waker goes outside the lock"]
    pub(crate) fn leave(&mut self, waiter: &Waiter) -> (WaiterStage, Option<Waker>) {
        let stage = waiter.stage();
        if stage != WaiterStage::Listed {
            return (stage, None);
        }
        let waker = self.unlink(waiter);
        waiter
            .stage
            .store(WaiterStage::Idle as u8, Ordering::Relaxed);
        (WaiterStage::Listed, waker)
    }

    /// `waiter`, which stands in this line, is polled with another waker: that one is
    /// kept, and `waker` holds what is not needed any more.
    pub(crate) fn update(&mut self, waiter: &Waiter, waker: &mut Option<Waker>) {
        // SAFETY: L2, under the lock.
        unsafe {
            waiter.links.with_mut(|links| {
                links.job = kit::current_id();
                let same = match (&links.waker, &*waker) {
                    (Some(old), Some(new)) => old.will_wake(new),
                    _ => false,
                };
                if !same {
                    std::mem::swap(&mut links.waker, waker);
                }
            });
        }
    }

    fn unlink(&mut self, waiter: &Waiter) -> Option<Waker> {
        // SAFETY: L2, under the lock.
        let (prev, next, waker) = unsafe {
            waiter.links.with_mut(|links| {
                let ends = (links.prev, links.next, links.waker.take());
                (links.prev, links.next) = (ptr::null(), ptr::null());
                ends
            })
        };
        // SAFETY: L1 and L2: what is in the line is there, and the lock is held.
        match unsafe { prev.as_ref() } {
            // SAFETY: L2, under the lock.
            Some(prev) => unsafe { prev.links.with_mut(|links| links.next = next) },
            None => self.head = next,
        }
        // SAFETY: as for `prev`.
        match unsafe { next.as_ref() } {
            // SAFETY: L2, under the lock.
            Some(next) => unsafe { next.links.with_mut(|links| links.prev = prev) },
            None => self.tail = prev,
        }
        self.len -= 1;
        waker
    }

    /// The number of a waiter that stands in this line, or stood in it last.
    pub(crate) fn number_of(&self, waiter: &Waiter) -> u64 {
        // SAFETY: L2, under the lock, which a line is always reached by.
        unsafe { waiter.links.with_mut(|links| links.number) }
    }

    /// The jobs that wait, and where, the first in line first.
    pub(crate) fn jobs(&self, into: &mut Vec<(JobId, &'static Location<'static>)>) {
        let mut at = self.head;
        // SAFETY: L1 and L2: what is in the line is there, and the lock is held.
        while let Some(waiter) = unsafe { at.as_ref() } {
            // SAFETY: L2, under the lock.
            let (job, next) = unsafe { waiter.links.with_mut(|links| (links.job, links.next)) };
            into.extend(job.map(|job| (job, waiter.site)));
            at = next;
        }
    }
}

/// The first in line, under the lock.
pub(crate) struct FirstInLine<'l> {
    line: &'l mut Line,
    waiter: ptr::NonNull<Waiter>,
}

impl FirstInLine<'_> {
    #[inline]
    fn waiter(&self) -> &Waiter {
        // SAFETY: L1: it stands in the line, and the lock is held.
        unsafe { self.waiter.as_ref() }
    }

    /// How much it waits for.
    pub(crate) fn need(&self) -> usize {
        // SAFETY: L2, under the lock.
        unsafe { self.waiter().links.with_mut(|links| links.need) }
    }

    /// Its number in the line.
    pub(crate) fn number(&self) -> u64 {
        // SAFETY: L2, under the lock.
        unsafe { self.waiter().links.with_mut(|links| links.number) }
    }

    /// True if no other waiter stands behind it.
    #[inline]
    pub(crate) fn is_last(&self) -> bool {
        self.line.len == 1
    }

    /// For what stands around the waiter in memory.
    pub(crate) fn as_ptr(&self) -> *const Waiter {
        self.waiter.as_ptr()
    }

    /// Takes it out of the line: `stage` has become of it. Its waker, to be woken
    /// outside the lock.
    #[must_use = "it is to be woken"]
    #[inline]
    pub(crate) fn settle(self, stage: WaiterStage) -> Option<Waker> {
        // SAFETY: L1: it stands in the line, and the lock is held.
        let waiter = unsafe { self.waiter.as_ref() };
        let waker = self.line.unlink(waiter);
        // L3: the last touch. Pairs with the Acquire of `Waiter::stage`.
        waiter.stage.store(stage as u8, Ordering::Release);
        waker
    }
}

/// Wakers on their way out of a lock (L4). A bounded number: one that settles a long
/// line leaves the lock in between.
pub(crate) struct Wakes {
    wakers: [MaybeUninit<Waker>; BATCH],
    len: usize,
}

impl Wakes {
    #[inline]
    pub(crate) const fn new() -> Wakes {
        Wakes {
            wakers: [const { MaybeUninit::uninit() }; BATCH],
            len: 0,
        }
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.len == BATCH
    }

    /// There must be room.
    #[inline]
    pub(crate) fn push(&mut self, waker: Option<Waker>) {
        if let Some(waker) = waker {
            self.wakers[self.len].write(waker);
            self.len += 1;
        }
    }

    /// Wakes all, in order, and is empty then. Not under a lock. A wake that panics ends
    /// there, and a row of wakes that wake each other does not grow the stack.
    #[inline]
    pub(crate) fn wake_all(&mut self) {
        for n in 0..std::mem::take(&mut self.len) {
            // SAFETY: the first `len` were written, and `len` is 0 since.
            wake(unsafe { self.wakers[n].assume_init_read() });
        }
    }
}

impl Drop for Wakes {
    fn drop(&mut self) {
        self.wake_all();
    }
}

/// Wakes one that was taken out of a line. Not under a lock.
#[inline]
pub(crate) fn wake_one(waker: Option<Waker>) {
    if let Some(waker) = waker {
        wake(waker);
    }
}

/// Drops one that was not needed. Not under a lock.
#[inline]
pub(crate) fn let_go(waker: Option<Waker>) {
    if let Some(waker) = waker {
        discard_waker(waker);
    }
}
