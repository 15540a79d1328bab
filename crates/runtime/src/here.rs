//! The thread-local: whose turns are taken on this thread.

use std::cell::Cell;
use std::ptr;

use crate::machine::Machine;
use crate::main_lane::MainLocal;
use crate::scheduler::worker::Worker;

/// A thread that takes turns.
#[derive(Clone, Copy)]
pub(crate) enum Here {
    /// None.
    Elsewhere,
    /// The main thread, while it turns.
    Main(*const Machine, *const MainLocal),
    /// A worker.
    Worker(*const Machine, *const Worker),
}

std::thread_local! {
    static HERE: Cell<Here> = const { Cell::new(Here::Elsewhere) };
}

/// With `try_with`, which is inlined where `get` may be a call.
#[inline]
fn here() -> Here {
    HERE.try_with(Cell::get).unwrap_or(Here::Elsewhere)
}

/// What this thread is to `machine`.
pub(crate) enum ThisThread<'a> {
    Elsewhere,
    Main(&'a MainLocal),
    Worker(&'a Worker),
}

/// Looks up what this thread is to `machine`.
#[inline]
pub(crate) fn local(machine: &Machine) -> ThisThread<'_> {
    match here() {
        // SAFETY: set by `enter` on this thread, whose guard lives further down
        // our stack, as does what it points to.
        Here::Main(of, own) if ptr::eq(of, machine) => ThisThread::Main(unsafe { &*own }),
        // SAFETY: as above.
        Here::Worker(of, worker) if ptr::eq(of, machine) => ThisThread::Worker(unsafe { &*worker }),
        _ => ThisThread::Elsewhere,
    }
}

/// Puts back what was there before.
pub(crate) struct EnteredThread(Here);

/// From here to the drop of the answer, this thread is `here`.
///
/// # Safety
/// What `here` points to outlives the returned guard.
pub(crate) unsafe fn enter(here: Here) -> EnteredThread {
    EnteredThread(HERE.replace(here))
}

impl Drop for EnteredThread {
    fn drop(&mut self) {
        HERE.set(self.0);
    }
}
