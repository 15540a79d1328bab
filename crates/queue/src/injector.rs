//! Queues under a lock: the one that everybody may push to, for what comes from
//! outside, and each worker's backlog, for what a full ring cannot hold.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use kinfolk_core::host::TurnRow;

/// How many rows there is room for without an allocation.
const ROWS: usize = 64;

/// Rows of turns under a lock. Linked through the tasks, so pushing a turn
/// allocates nothing, and whole rows go in in one step. A row that is in parts
/// stays by itself, so that its parts come out in one step each, and a row of some
/// length is not made longer if it is to come out in one step: only if dozens of
/// such rows wait does a push allocate.
pub struct Injector {
    rows: Mutex<VecDeque<TurnRow>>,
    /// How long a row may grow.
    longest: usize,
    /// As many as there are in the rows, to be looked at without the lock.
    len: AtomicUsize,
}

impl std::fmt::Debug for Injector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Injector({})", self.len())
    }
}

impl Default for Injector {
    fn default() -> Self {
        Injector::in_rows_of(usize::MAX)
    }
}

impl Injector {
    /// A thread that takes as many as `longest` at once takes a row: it is not walked along
    /// under the lock.
    pub fn in_rows_of(longest: usize) -> Injector {
        Injector {
            rows: Mutex::new(VecDeque::with_capacity(ROWS)),
            longest,
            len: AtomicUsize::new(0),
        }
    }

    fn may_grow(&self, row: &TurnRow, by: &TurnRow) -> bool {
        !row.is_in_parts() && !by.is_in_parts() && row.len() + by.len() <= self.longest
    }

    fn rows(&self) -> MutexGuard<'_, VecDeque<TurnRow>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a row at the end. True if there was nothing before.
    pub fn push(&self, ready: TurnRow) -> bool {
        let mut rows = self.rows();
        let before = self.len.load(Ordering::Relaxed);
        self.len.store(before + ready.len(), Ordering::SeqCst);
        match rows.back_mut() {
            Some(last) if self.may_grow(last, &ready) => last.append(ready),
            _ => rows.push_back(ready),
        }
        before == 0
    }

    /// True if there are none, as anybody sees it.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes up to `most` out, or a part.
    #[inline]
    pub fn take(&self, most: usize) -> TurnRow {
        if most == 0 || self.is_empty() {
            return TurnRow::new();
        }
        let mut rows = self.rows();
        let Some(first) = rows.front_mut() else {
            return TurnRow::new();
        };
        let taken = first.split_front(most);
        if first.is_empty() {
            rows.pop_front();
        }
        let before = self.len.load(Ordering::Relaxed);
        self.len.store(before - taken.len(), Ordering::SeqCst);
        taken
    }

    /// Takes out as many as there are now, row by row: others may push on and on.
    pub fn take_all(&self, mut each: impl FnMut(TurnRow)) {
        let mut left = self.len();
        while left > 0 {
            let row = self.take(left);
            match row.len() {
                0 => return,
                len => left = left.saturating_sub(len),
            }
            each(row);
        }
    }

    /// How many there are, as anybody sees it.
    #[inline]
    pub fn len(&self) -> usize {
        self.len.load(Ordering::SeqCst)
    }
}
