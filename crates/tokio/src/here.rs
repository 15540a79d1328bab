//! The thread-local: which driver is being polled on this thread.

use std::cell::Cell;
use std::ptr;

use crate::driver::Local;
use crate::machine::Machine;

std::thread_local! {
    static HERE: Cell<*const Local> = const { Cell::new(ptr::null()) };
}

/// The driver that is being polled on this thread.
#[inline]
pub(crate) fn any<'a>() -> Option<&'a Local> {
    // With `try_with`, which is inlined where `get` may be a call.
    let local = HERE.try_with(Cell::get).unwrap_or(ptr::null());
    // SAFETY: set by `enter` on this thread, whose guard lives further down our stack,
    // as does what it points to.
    unsafe { local.as_ref() }
}

/// The driver of `machine` that is being polled on this thread.
#[inline]
pub(crate) fn local(machine: &Machine) -> Option<&Local> {
    any().filter(|local| ptr::eq(&*local.machine, machine))
}

/// Puts back what was there before.
pub(crate) struct Entered(*const Local);

/// From here to the drop of the answer this thread is at `local`.
///
/// # Safety
/// `local` outlives the answer.
#[inline]
pub(crate) unsafe fn enter(local: &Local) -> Entered {
    Entered(HERE.replace(local))
}

/// From here to the drop of the answer this thread is at no driver.
pub(crate) fn leave() -> Entered {
    Entered(HERE.replace(ptr::null()))
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        HERE.set(self.0);
    }
}
