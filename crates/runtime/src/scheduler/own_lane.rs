//! The pinned lane of a worker, as its thread has it: what that worker alone may turn.
//! Others push to the inbox beside it (`Neighbour`).
//!
//! The lane and the pool have *goes* on the worker's thread: one turn of the lane's row,
//! and what that hands over to; then one turn of the pool; and so on.

use std::cell::{Cell, RefCell};

use kinfolk_core::host::{Turn, TurnRow};

/// How many turns in a row a go of the lane may have.
const STREAK: u32 = 8;

/// Turns that are pinned to this thread. No other thread touches them.
#[derive(Default)]
pub(crate) struct OwnLane {
    /// What the last turn woke: it goes first, so that awaiting a child is a
    /// hand-over.
    next: Cell<Option<Turn>>,
    /// How many turns the go has had that is on; 0 if none is.
    go: Cell<u32>,
    len: Cell<usize>,
    row: RefCell<TurnRow>,
}

impl OwnLane {
    /// Nothing is queued.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many are queued.
    pub(crate) fn len(&self) -> usize {
        self.len.get()
    }

    fn grows(&self, more: usize) {
        self.len.set(self.len() + more);
    }

    /// Woken or new: it goes next.
    pub(crate) fn put(&self, turn: Turn) {
        self.grows(1);
        if let Some(before) = self.next.replace(Some(turn)) {
            self.row.borrow_mut().push_back(before);
        }
    }

    /// Behind the others.
    pub(crate) fn put_back(&self, turn: Turn) {
        self.grows(1);
        self.row.borrow_mut().push_back(turn);
    }

    /// All of them behind the others.
    pub(crate) fn put_row(&self, row: TurnRow) {
        self.grows(row.len());
        self.row.borrow_mut().append(row);
    }

    /// Takes out what lies in the slot.
    pub(crate) fn take_next(&self) -> Option<Turn> {
        let next = self.next.take();
        self.len.set(self.len() - usize::from(next.is_some()));
        next
    }

    /// The next turn, if it is this lane's go: none once after each go.
    pub(crate) fn in_its_go(&self) -> Option<Turn> {
        let had = self.go.get();
        if had > 0 {
            let next = (had < STREAK).then(|| self.take_next()).flatten();
            self.go.set(next.as_ref().map_or(0, |_| had + 1));
            return next;
        }
        let first = self.row.borrow_mut().next();
        self.len.set(self.len() - usize::from(first.is_some()));
        let first = first.or_else(|| self.take_next());
        self.go.set(u32::from(first.is_some()));
        first
    }

    /// The next turn, of the lane or of the pool: the thread has nothing else.
    pub(crate) fn pop(&self) -> Option<Turn> {
        self.in_its_go().or_else(|| self.in_its_go())
    }

    /// Takes all out.
    pub(crate) fn clear(&self) -> TurnRow {
        let mut all = self.row.take();
        self.len.set(self.len() - all.len());
        if let Some(next) = self.take_next() {
            all.push_back(next);
        }
        all
    }
}
