//! The waker of a task: the header itself, counted.

use std::mem::ManuallyDrop;
use std::task::{RawWaker, RawWakerVTable, Waker};

use crate::job::header::Header;
use crate::job::state::Claim;
use crate::task::run;

static VTABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, drop);

/// The task's waker without a reference of its own.
pub(crate) fn borrowed(h: &Header) -> ManuallyDrop<Waker> {
    let raw = RawWaker::new(std::ptr::from_ref(h).cast(), &VTABLE);
    // SAFETY: the functions below keep RawWaker's contract; the missing
    // reference is made up for by never dropping this value.
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
    if h.state.claim() == Claim::Push {
        // SAFETY: claimed, so it has not ended and is ours until the push (H5).
        unsafe { run::push_claimed(h) };
    }
}

unsafe fn drop(data: *const ()) {
    // SAFETY: this waker owned a reference.
    unsafe { Header::release(data.cast()) };
}
