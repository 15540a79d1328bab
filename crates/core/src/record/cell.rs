//! The memory of a job: one allocation that begins with the header.
//!
//! ```text
//! Header │ slot (Option<Waker>) │ whose │ stage: future, then output
//! ```
//!
//! Spawned tasks have a slot (the waiter, WAITER protocol), and so have scopes (the
//! poller's waker, under the lock). Beside it is `whose`: in a task it names the
//! job that waits, for observers; in a scope it says whether the waker in the slot
//! is bare, see [`waker`](crate::engine::waker). Tasks have a stage.
//!
//! - **C1** Only the thread that runs a turn touches the future. It is dropped
//!   exactly once: by the turn in which it completes, is dropped by force or is
//!   found cancelled before its first poll.
//! - **C2** That turn writes the output before the body is given up, and shows
//!   it by the OUTPUT bit. The output is taken or dropped exactly once: by the
//!   ender if it did not see HANDLE, else by the handle.
//! - **C3** A future or output above 512 bytes has an allocation of its own,
//!   which is freed when the body ends or the output is taken. So a waker, an
//!   observer or an error keeps at most the header, the slots and 512 bytes
//!   alive.
//!
//! | rule | noticed by |
//! |---|---|
//! | C1 | `cancel_vs_park`, `wake_while_running` |
//! | C2 | `handle_drop_vs_end`, `cancel_vs_completion`, `outcome_8_a_cancel_has_not_reached_the_children_of_a_shield` |
//! | C3 | `src_t23_allocations_header_size_and_pinning` |

use std::alloc::Layout;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use crate::base::error::Error;
use crate::base::id::JobId;
use crate::base::outcome::IntoOutcome;
use crate::base::sync::{AtomicU64, Ordering::Relaxed, Plain, QUARANTINE};
use crate::base::unwind::{caught, contained, discard};
use crate::record::cell_pool::{self, Room};
use crate::record::header::{Birth, Header};

/// The largest future or output that is kept inside the cell.
pub(crate) const INLINE: usize = 512;

/// A place for a waker beside the header.
pub(crate) type Slot = Plain<Option<Waker>>;

/// The result of a poll of a task. The error is separate, written to a place
/// that the caller gives: a result of two words would be written and read in
/// parts of different sizes at every turn (a store-forwarding stall).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PolledBody {
    Pending,
    /// The value is in the cell.
    Value,
    /// The error is in the caller's place.
    Failed,
}

/// What differs from one type of task to another.
pub(crate) struct Vtable {
    room: Room,
    has_slot: bool,
    stage: usize,
    /// Dropping the output runs code.
    output_drops: bool,
    pub(crate) poll: unsafe fn(*const Header, &mut Context<'_>, &mut Option<Error>) -> PolledBody,
    pub(crate) drop_future: unsafe fn(*const Header),
    drop_output: unsafe fn(*const Header),
}

const SLOT_AT: usize = size_of::<Header>().next_multiple_of(align_of::<Slot>());
const WHOSE_AT: usize = (SLOT_AT + size_of::<Slot>()).next_multiple_of(align_of::<AtomicU64>());
const SLOT_END: usize = WHOSE_AT + size_of::<AtomicU64>();

unsafe fn no_poll(h: *const Header, _: &mut Context<'_>, _: &mut Option<Error>) -> PolledBody {
    // SAFETY: the caller has a living header.
    unreachable!("job {} has no future of its own", unsafe { &*h }.id)
}

unsafe fn nothing(_: *const Header) {}

const fn room(size: usize, align: usize) -> Room {
    match Layout::from_size_align(size, align) {
        Ok(layout) => Room::new(layout),
        Err(_) => panic!("a task too large for the address space"),
    }
}

/// Roots, scopes and refused tasks: a header and a slot.
pub(crate) static NODE: Vtable = Vtable {
    room: room(SLOT_END, 16),
    has_slot: true,
    stage: 0,
    output_drops: false,
    poll: no_poll,
    drop_future: nothing,
    drop_output: nothing,
};

/// The functions for one type of future.
struct Stage<F>(PhantomData<F>);

impl<F> Stage<F>
where
    F: Future,
    F::Output: IntoOutcome,
{
    const BOXED_FUTURE: bool = size_of::<F>() > INLINE;
    const BOXED_OUTPUT: bool = is_boxed::<Value<F>>();
    const OUTPUT_DROPS: bool = Self::BOXED_OUTPUT || std::mem::needs_drop::<Value<F>>();

    const fn vtable(has_slot: bool) -> Vtable {
        let future = if Self::BOXED_FUTURE {
            Layout::new::<Pin<Box<F>>>()
        } else {
            Layout::new::<F>()
        };
        let output = if Self::BOXED_OUTPUT {
            Layout::new::<Box<Value<F>>>()
        } else {
            Layout::new::<Value<F>>()
        };
        let align = max(max(future.align(), output.align()), 16);
        let slots = if has_slot {
            SLOT_END
        } else {
            size_of::<Header>()
        };
        let stage = slots.next_multiple_of(max(future.align(), output.align()));
        let size = stage + max(future.size(), output.size());
        Vtable {
            room: room(size, align),
            has_slot,
            stage,
            output_drops: Self::OUTPUT_DROPS,
            poll: Self::poll,
            drop_future: Self::drop_future,
            drop_output: Self::drop_output,
        }
    }

    const SPAWNED: &'static Vtable = &Self::vtable(true);
    const LAUNCHED: &'static Vtable = &Self::vtable(false);

    unsafe fn future<'a>(h: *const Header) -> Pin<&'a mut F> {
        // SAFETY: C1, the caller runs the turn. The cell does not move, so a
        // future inside it is pinned.
        unsafe {
            let at = stage(h);
            if Self::BOXED_FUTURE {
                (*at.cast::<Pin<Box<F>>>()).as_mut()
            } else {
                Pin::new_unchecked(&mut *at.cast::<F>())
            }
        }
    }

    unsafe fn drop_future(h: *const Header) {
        // SAFETY: C1, once.
        unsafe {
            let at = stage(h);
            if Self::BOXED_FUTURE {
                at.cast::<Pin<Box<F>>>().drop_in_place();
            } else {
                at.cast::<F>().drop_in_place();
            }
        }
    }

    unsafe fn poll(
        h: *const Header,
        cx: &mut Context<'_>,
        error: &mut Option<Error>,
    ) -> PolledBody {
        // SAFETY: C1.
        let Poll::Ready(output) = (unsafe { Self::future(h) }).poll(cx) else {
            return PolledBody::Pending;
        };
        let result = output.into_result();
        // The future is dropped before any other thread sees its outcome.
        // SAFETY: C1; it has completed and is not polled again.
        if let Err(payload) = caught(|| unsafe { Self::drop_future(h) }) {
            discard(result);
            *error = Some(Error::panicked(payload));
            return PolledBody::Failed;
        }
        let value = match result {
            Ok(value) => value,
            Err(failed) => {
                *error = Some(failed);
                return PolledBody::Failed;
            }
        };
        // SAFETY: C2; the future has been dropped, so its memory is free.
        unsafe {
            let at = stage(h);
            if Self::BOXED_OUTPUT {
                at.cast::<Box<Value<F>>>().write(Box::new(value));
            } else {
                at.cast::<Value<F>>().write(value);
            }
        }
        PolledBody::Value
    }

    unsafe fn drop_output(h: *const Header) {
        // SAFETY: C2, once.
        unsafe {
            let at = stage(h);
            if Self::BOXED_OUTPUT {
                at.cast::<Box<Value<F>>>().drop_in_place();
            } else {
                at.cast::<Value<F>>().drop_in_place();
            }
        }
    }
}

/// Whether an output of this type has an allocation of its own.
const fn is_boxed<T>() -> bool {
    size_of::<T>() > INLINE
}

type Value<F> = <<F as Future>::Output as IntoOutcome>::Value;

const fn max(a: usize, b: usize) -> usize {
    if a > b { a } else { b }
}

unsafe fn stage(h: *const Header) -> *mut u8 {
    // SAFETY: the caller has a task's cell, whose vtable has the offset.
    unsafe { h.cast_mut().cast::<u8>().add((*h).vtable.stage) }
}

/// Memory for the cell of `birth`. Inlined, so that its size is a constant
/// where the type of the task is known.
#[inline]
fn memory_for(birth: &Birth<'_>) -> *mut u8 {
    cell_pool::allocate(&birth.vtable.room)
}

/// Makes a cell without filling its stage. Inlined, so that most fields of the
/// header are constants there.
///
/// # Safety
/// `at` is the memory that [`memory_for`] returned for `birth`.
#[inline(always)]
unsafe fn begin(at: *mut u8, birth: &Birth<'_>) -> *const Header {
    let vtable = birth.vtable;
    let h = at.cast::<Header>();
    // SAFETY: fresh memory of that layout.
    unsafe {
        h.write(Header::new(birth));
        if vtable.has_slot {
            at.add(SLOT_AT).cast::<Slot>().write(Plain::new(None));
            at.add(WHOSE_AT)
                .cast::<AtomicU64>()
                .write(AtomicU64::new(0));
        }
    }
    h
}

/// The vtable of a task with or without a join slot.
pub(crate) fn vtable_for<F>(spawned: bool) -> &'static Vtable
where
    F: Future,
    F::Output: IntoOutcome,
{
    if spawned {
        Stage::<F>::SPAWNED
    } else {
        Stage::<F>::LAUNCHED
    }
}

/// A cell with a future in it. `birth.vtable` is [`vtable_for`] the same type.
#[inline]
pub(crate) fn create_task<F>(birth: &Birth<'_>, future: F) -> *const Header
where
    F: Future,
    F::Output: IntoOutcome,
{
    // SAFETY: the vtable is F's, so the stage fits it.
    unsafe {
        let h = begin(memory_for(birth), birth);
        let at = stage(h);
        if Stage::<F>::BOXED_FUTURE {
            at.cast::<Pin<Box<F>>>().write(Box::pin(future));
        } else {
            at.cast::<F>().write(future);
        }
        h
    }
}

/// Moves a future out of a cell that no other code has seen.
///
/// # Safety
/// C1: the cell was made by [`create_task`] with this type, and was not polled.
pub(crate) unsafe fn take_future<F>(h: &Header) -> F
where
    F: Future,
    F::Output: IntoOutcome,
{
    // SAFETY: by the caller's promise. Never polled, so not pinned yet.
    unsafe {
        let at = stage(h);
        if Stage::<F>::BOXED_FUTURE {
            *Pin::into_inner_unchecked(at.cast::<Pin<Box<F>>>().read())
        } else {
            at.cast::<F>().read()
        }
    }
}

/// A cell with no future: a root, a scope or a refused task.
pub(crate) fn create_node(birth: &Birth<'_>) -> *const Header {
    // SAFETY: no stage to fill.
    unsafe { begin(memory_for(birth), birth) }
}

/// The waiter of a spawned task (WAITER protocol), or the poller's waker of a
/// scope (under the lock).
pub(crate) fn slot(h: &Header) -> Option<&Slot> {
    // SAFETY: `has_slot` says it was written, and it lives as long as the cell.
    h.vtable.has_slot.then(|| unsafe {
        &*std::ptr::from_ref(h)
            .cast::<u8>()
            .add(SLOT_AT)
            .cast::<Slot>()
    })
}

/// The value beside the slot.
pub(crate) fn whose(h: &Header) -> Option<&AtomicU64> {
    // SAFETY: written with the slot, and lives as long as the cell.
    h.vtable.has_slot.then(|| unsafe {
        &*std::ptr::from_ref(h)
            .cast::<u8>()
            .add(WHOSE_AT)
            .cast::<AtomicU64>()
    })
}

/// Stores which job the waiter in the slot is; none outside every job. Called
/// before WAITER is set, so that every thread that sees the bit finds the job.
pub(crate) fn set_waiting_job(h: &Header, job: Option<JobId>) {
    if let Some(whose) = whose(h) {
        whose.store(job.map_or(0, JobId::bits), Relaxed);
    }
}

/// The job that waits in the slot, for observers that have seen WAITER.
pub(crate) fn waiting_job(h: &Header) -> Option<JobId> {
    JobId::from_bits(whose(h)?.load(Relaxed))
}

/// Moves the output out.
///
/// # Safety
/// C2: the output is there, is the caller's, and is a `T`.
pub(crate) unsafe fn take_output<T>(h: &Header) -> T {
    // SAFETY: by the caller's promise.
    unsafe {
        let at = stage(h);
        if is_boxed::<T>() {
            *at.cast::<Box<T>>().read()
        } else {
            at.cast::<T>().read()
        }
    }
}

/// True if dropping the output does anything.
pub(crate) fn output_needs_drop(h: &Header) -> bool {
    h.vtable.output_drops
}

/// Drops the output; a panic in its destructor is contained.
///
/// # Safety
/// C2: the output is there and is the caller's.
pub(crate) unsafe fn drop_output(h: &Header) {
    // SAFETY: by the caller's promise.
    contained(|| unsafe { (h.vtable.drop_output)(h) });
}

/// Drops the waker that is still in the slot of a cell that is freed.
///
/// # Safety
/// As for [`free`].
#[cold]
unsafe fn drop_waker(h: &Header) {
    // SAFETY: exclusive by the caller's promise.
    discard(unsafe { slot(h).and_then(|slot| slot.take()) });
}

/// Frees a cell.
///
/// # Safety
/// H6: no reference is left. The future and the output are dropped (C1, C2).
#[inline(never)]
pub(crate) unsafe fn free(this: *const Header) {
    // SAFETY: exclusive from here on; each part was written by `begin`.
    unsafe {
        let h = &*this;
        let vtable = h.vtable;
        let kept = slot(h).is_some_and(|slot| slot.with_mut(|slot| slot.is_some()));
        if kept {
            drop_waker(h);
        }
        h.free_parts();
        if QUARANTINE {
            return;
        }
        this.cast_mut().drop_in_place();
        cell_pool::release(this.cast_mut().cast(), &vtable.room);
    }
}
