//! The thread-local: which driver is being polled on this thread.

use std::cell::Cell;
use std::ptr;

use crate::driver::DriverLocal;
use crate::machine::Machine;

std::thread_local! {
    static HERE: Cell<*const DriverLocal> = const { Cell::new(ptr::null()) };
}

/// The driver that is being polled on this thread.
#[inline]
pub(crate) fn any<'a>() -> Option<&'a DriverLocal> {
    // With `try_with`, which is inlined where `get` may be a call.
    let local = HERE.try_with(Cell::get).unwrap_or(ptr::null());
    // SAFETY: set by `enter` on this thread, whose guard lives further down our stack,
    // as does what it points to.
    unsafe { local.as_ref() }
}

/// The driver of `machine` that is being polled on this thread.
#[inline]
pub(crate) fn local(machine: &Machine) -> Option<&DriverLocal> {
    any().filter(|local| ptr::eq(&*local.machine, machine))
}

/// Puts back what was there before.
pub(crate) struct EnteredDriver(*const DriverLocal);

/// From here to the drop of the answer this thread is at `local`.
///
/// # Safety
/// `local` outlives the returned guard.
#[inline]
pub(crate) unsafe fn enter(local: &DriverLocal) -> EnteredDriver {
    EnteredDriver(HERE.replace(local))
}

/// Until the returned guard is dropped, this thread is at no driver.
pub(crate) fn leave() -> EnteredDriver {
    EnteredDriver(HERE.replace(ptr::null()))
}

impl Drop for EnteredDriver {
    #[inline]
    fn drop(&mut self) {
        HERE.set(self.0);
    }
}
