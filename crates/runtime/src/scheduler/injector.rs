//! The queue that everybody may push to: for what comes from outside, and for
//! what a full ring cannot hold.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use kinfolk_core::host::Ready;

/// A row of turns under a lock. Linked through the tasks: pushing allocates
/// nothing, and whole rows go in in one step.
#[derive(Default)]
pub(crate) struct Injector {
    row: Mutex<Ready>,
    /// As many as there are in the row, to be looked at without the lock.
    len: AtomicUsize,
}

impl Injector {
    fn row(&self) -> MutexGuard<'_, Ready> {
        self.row.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a row at the end. True if there was nothing before.
    pub(crate) fn push(&self, ready: Ready) -> bool {
        let mut row = self.row();
        let was_empty = row.is_empty();
        row.append(ready);
        self.len.store(row.len(), Ordering::SeqCst);
        was_empty
    }

    /// Takes up to `most` out.
    pub(crate) fn take(&self, most: usize) -> Ready {
        if self.len() == 0 {
            return Ready::new();
        }
        let mut row = self.row();
        let taken = row.split_front(most);
        self.len.store(row.len(), Ordering::SeqCst);
        taken
    }

    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::SeqCst)
    }
}
