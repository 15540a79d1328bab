//! The word of a slab: which of its cells were freed, and whether a thread or a list
//! has it. See [`crate::record::cell_pool`]; every race of the pool is one step on
//! this word.
//!
//! ```text
//!          1              2
//!  Held ──────► Out   Out ──────► Listed
//!    │    3                         │ 4
//!    └────────► Listed     Held ◄───┘
//! ```
//!
//! 1: [`SlabWord::leave_empty`] or [`SlabWord::let_go`], 3:
//! [`SlabWord::let_go`], by the thread that holds the slab. 2:
//! [`SlabWord::give`], by the thread whose freed cells make the slab worth
//! taking again; this thread lists it. 4: [`SlabWord::take`], by the thread
//! that took the slab off a list.

use crate::base::sync::{AtomicU32, Ordering::*};

/// Where a slab is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Whose {
    /// A thread makes cells of it.
    Held,
    /// In no list and held by no thread: most of its cells are in use.
    Out,
    /// In one list of slabs that threads take.
    Listed,
}

/// Freed cells, linked from the first on; 0 is no cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Given {
    pub(super) first: u16,
    pub(super) count: u16,
}

/// Sixteen bits for the first cell, fourteen for the count, two for [`Whose`].
pub(super) struct SlabWord(AtomicU32);

fn word(given: Given, whose: Whose) -> u32 {
    u32::from(given.first) | u32::from(given.count) << 16 | (whose as u32) << 30
}

fn given(word: u32) -> Given {
    Given {
        first: word as u16,
        count: (word >> 16) as u16 & 0x3fff,
    }
}

fn whose(word: u32) -> Whose {
    match word >> 30 {
        0 => Whose::Held,
        1 => Whose::Out,
        _ => Whose::Listed,
    }
}

impl SlabWord {
    /// Held, and no cell freed.
    pub(super) fn new() -> SlabWord {
        SlabWord(AtomicU32::new(word(Given::default(), Whose::Held)))
    }

    /// Gives freed cells back: `more.first` leads to the cell that `link` links
    /// to the first of those freed before. True if there are `enough` now and
    /// the slab was in no list and held by no thread: the caller must list it.
    /// Else the caller does not touch the slab again.
    #[must_use]
    pub(super) fn give(&self, more: Given, enough: u16, mut link: impl FnMut(u16)) -> bool {
        let mut now = self.0.load(Relaxed);
        loop {
            let before = given(now);
            link(before.first);
            let after = Given {
                first: more.first,
                count: before.count + more.count,
            };
            let list = whose(now) == Whose::Out && after.count >= enough;
            let next = word(after, if list { Whose::Listed } else { whose(now) });
            // Publishes the links, and what was done with the cells before, to
            // the thread that takes them; acquires what others published, if
            // this thread lists the slab.
            match self.0.compare_exchange_weak(now, next, AcqRel, Relaxed) {
                Ok(_) => return list,
                Err(seen) => now = seen,
            }
        }
    }

    /// Takes all freed cells. For the thread that holds the slab or has taken
    /// it off a list; that thread holds it from then on.
    pub(super) fn take(&self) -> Given {
        // Pairs with `give`.
        given(self.0.swap(word(Given::default(), Whose::Held), AcqRel))
    }

    /// The holder has no cell left. True if it holds the slab no longer; false
    /// if cells were freed meanwhile, and it still holds the slab.
    #[must_use]
    pub(super) fn leave_empty(&self) -> bool {
        let empty = word(Given::default(), Whose::Held);
        let out = word(Given::default(), Whose::Out);
        self.0.compare_exchange(empty, out, AcqRel, Relaxed).is_ok()
    }

    /// The holder makes no more cells of the slab. True if there are `enough`
    /// freed cells: the caller must list it.
    #[must_use]
    pub(super) fn let_go(&self, enough: u16) -> bool {
        let mut now = self.0.load(Relaxed);
        loop {
            let list = given(now).count >= enough;
            let next = word(given(now), if list { Whose::Listed } else { Whose::Out });
            match self.0.compare_exchange_weak(now, next, AcqRel, Relaxed) {
                Ok(_) => return list,
                Err(seen) => now = seen,
            }
        }
    }

    /// How many cells are free.
    pub(super) fn count(&self) -> u16 {
        // Pairs with `give`: the thread that sees all of them may free the
        // slab.
        given(self.0.load(Acquire)).count
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::base::sync::Plain;
    use loom::thread;
    use std::sync::Arc;

    /// A slab of cells that are linked by number, and a list of such slabs,
    /// which has at most one here.
    struct Model {
        word: SlabWord,
        next: Vec<Plain<u16>>,
        listed: loom::sync::Mutex<u32>,
    }

    // SAFETY: a model; loom checks which thread touches the cells.
    unsafe impl Sync for Model {}
    // SAFETY: as above.
    unsafe impl Send for Model {}

    const ENOUGH: u16 = 2;

    impl Model {
        fn new(cells: usize) -> Arc<Model> {
            Arc::new(Model {
                word: SlabWord::new(),
                next: (0..=cells).map(|_| Plain::new(0)).collect(),
                listed: loom::sync::Mutex::new(0),
            })
        }

        fn list(&self) {
            *self.listed.lock().unwrap() += 1;
        }

        fn give(&self, cell: u16) {
            let more = Given {
                first: cell,
                count: 1,
            };
            // SAFETY: loom checks that no other thread has the cell.
            let link = |before| unsafe { self.next[cell as usize].set(before) };
            if self.word.give(more, ENOUGH, link) {
                self.list();
            }
        }

        /// The numbers of the cells that were taken.
        fn cells(&self, given: Given) -> Vec<u16> {
            let mut cells = Vec::new();
            let mut at = given.first;
            for _ in 0..given.count {
                cells.push(at);
                // SAFETY: as above.
                at = unsafe { self.next[at as usize].get() };
            }
            cells
        }

        /// The holder has no cell left: takes the freed cells, or leaves the
        /// slab.
        fn more_or_leave(&self) -> Vec<u16> {
            let given = self.word.take();
            if given.count == 0 && self.word.leave_empty() {
                return Vec::new();
            }
            let more = self.word.take();
            [self.cells(given), self.cells(more)].concat()
        }
    }

    /// A thread frees the last cells while the holder runs out of cells: each
    /// cell turns up once, and the slab is listed at most once, when no thread
    /// holds it any more.
    #[test]
    fn give_vs_leave() {
        loom::model(|| {
            let slab = Model::new(2);
            let other = slab.clone();
            let giver = thread::spawn(move || {
                other.give(1);
                other.give(2);
            });
            let mut mine = slab.more_or_leave();
            giver.join().unwrap();
            let listed = *slab.listed.lock().unwrap();
            assert!(listed <= 1);
            if listed == 1 {
                assert!(mine.is_empty(), "it was left empty, and given to since");
            }
            mine.extend(slab.cells(slab.word.take()));
            mine.sort_unstable();
            assert_eq!(mine, [1, 2]);
        });
    }

    /// Two threads free cells while the holder releases the slab: exactly one
    /// lists it, once there are enough.
    #[test]
    fn give_vs_let_go() {
        loom::model(|| {
            let slab = Model::new(3);
            let givers = [1, 2].map(|cell| {
                let other = slab.clone();
                thread::spawn(move || other.give(cell))
            });
            if slab.word.let_go(ENOUGH) {
                slab.list();
            }
            for giver in givers {
                giver.join().unwrap();
            }
            assert_eq!(*slab.listed.lock().unwrap(), 1);
            let mut all = slab.cells(slab.word.take());
            all.sort_unstable();
            assert_eq!(all, [1, 2]);
        });
    }
}
