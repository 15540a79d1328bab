//! Which task each thread polls at the moment, for observers.
//!
//! A thread that takes turns has a desk: the task whose turn it is and when
//! that began, in a thread-local that only it writes. Others read it by way of
//! a list, which the thread is on from its first turn to its end.

use std::cell::RefCell;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use crate::job::header::Header;
use crate::sync::WATCHED;

/// What one thread polls. Nothing is ordered by it: an observer sees what was
/// so at some moment of its call.
pub(crate) struct Desk {
    task: AtomicPtr<Header>,
    since: AtomicU32,
}

impl Desk {
    pub(crate) const fn new() -> Desk {
        Desk {
            task: AtomicPtr::new(ptr::null_mut()),
            since: AtomicU32::new(0),
        }
    }

    /// The task whose turn is taken here; null outside every turn.
    #[inline]
    pub(crate) fn task(&self) -> *const Header {
        self.task.load(Relaxed)
    }

    /// When that turn began, in milliseconds since its tree did, by a clock
    /// that may be sixteen turns behind.
    #[inline]
    pub(crate) fn since(&self) -> u32 {
        self.since.load(Relaxed)
    }

    /// A turn begins, or the one before is gone on with. For the thread itself.
    #[inline]
    pub(crate) fn set(&self, task: *const Header, since: u32) {
        self.since.store(since, Relaxed);
        self.task.store(task.cast_mut(), Relaxed);
    }

    /// A turn is over that interrupted no other. For the thread itself.
    #[inline]
    pub(crate) fn clear(&self) {
        self.task.store(ptr::null_mut(), Relaxed);
    }
}

/// A desk on the list.
struct Listed(*const Desk);

// SAFETY: a desk is made of atomics, and on the list only while its thread
// lives (D1).
unsafe impl Send for Listed {}

/// D1: an entry is taken out, under the lock, before its thread's locals go;
/// whoever reads one holds the lock.
static DESKS: Mutex<Vec<Listed>> = Mutex::new(Vec::new());

/// Takes a thread's desk off the list when the thread ends.
struct Entry(*const Desk);

impl Drop for Entry {
    fn drop(&mut self) {
        let mut desks = DESKS.lock().unwrap_or_else(PoisonError::into_inner);
        desks.retain(|listed| !ptr::eq(listed.0, self.0));
    }
}

thread_local! {
    static ENTRY: RefCell<Option<Entry>> = const { RefCell::new(None) };
}

/// Puts the desk of this thread on the list. On a thread that is ending it
/// stays off.
///
/// # Safety
/// It is a thread-local of this thread without a destructor.
#[cold]
pub(crate) unsafe fn list(desk: &Desk) {
    if !WATCHED {
        return;
    }
    let _ = ENTRY.try_with(|entry| {
        let mut desks = DESKS.lock().unwrap_or_else(PoisonError::into_inner);
        desks.push(Listed(desk));
        entry.replace(Some(Entry(desk)));
    });
}

/// Since when the task is being polled; none if it is not.
pub(crate) fn polled_since(task: &Header) -> Option<u32> {
    let desks = DESKS.lock().unwrap_or_else(PoisonError::into_inner);
    desks.iter().find_map(|listed| {
        // SAFETY: D1, under the lock.
        let desk = unsafe { &*listed.0 };
        ptr::eq(desk.task(), task).then(|| desk.since())
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::local;

    local!(static DESK: Desk = Desk::new(); fn with);

    fn listed() -> bool {
        with(|desk| {
            let desks = DESKS.lock().unwrap_or_else(PoisonError::into_inner);
            desks.iter().any(|listed| ptr::eq(listed.0, desk))
        })
    }

    #[test]
    fn a_thread_is_on_the_list_until_it_ends() {
        let address = std::thread::spawn(|| {
            assert!(!listed());
            // SAFETY: a thread-local without a destructor.
            with(|desk| unsafe { list(desk) });
            assert!(listed());
            with(|desk| ptr::from_ref(desk).addr())
        });
        let address = address.join().expect("it holds");
        let desks = DESKS.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(desks.iter().all(|listed| listed.0.addr() != address));
    }
}
