//! The memory of cells: freed cells wait for the next of their size on the
//! thread that freed them.
//!
//! Sizes are rounded up to 16 bytes. For each size a thread has two rows of
//! free cells, the one in use and a full or empty one beside it. A row that is
//! full when the other is full too goes to the depot, which all threads share,
//! and an empty thread takes one from there before it asks the allocator: so
//! cells that are made on one thread and freed on another come back, and what
//! is kept is bounded by what was once in use. A thread that exits gives its
//! rows to the depot.
//!
//! Each cell is an allocation of its own, so whoever finds no place for it
//! gives it back to the allocator. With `KINFOLK_CELLS=malloc` in the
//! environment, and in loom's models, everybody does: then tools that watch
//! the allocator see each cell come and go.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::ptr;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::sync::POOLED;

const STEP: usize = 16;
const SMALLEST: usize = 128;
const SIZES: usize = 40;
const LARGEST: usize = SMALLEST + (SIZES - 1) * STEP;

/// How many cells are in a full row.
const FULL: u32 = 256;

/// How many rows of one size the depot keeps.
const MOST: usize = 1024;

/// What stands in a free cell.
struct Free {
    next: *mut Free,
}

/// Free cells of one size, linked through themselves.
#[derive(Clone, Copy)]
struct Row {
    head: *mut Free,
    len: u32,
}

const EMPTY: Row = Row {
    head: ptr::null_mut(),
    len: 0,
};

/// What one thread keeps of one size.
struct Rows {
    now: Cell<Row>,
    beside: Cell<Row>,
}

/// Whether this thread keeps cells.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keeps {
    NotAsked,
    Yes,
    /// It is exiting, or nobody does.
    No,
}

struct Lists {
    keeps: Cell<Keeps>,
    rows: [Rows; SIZES],
}

std::thread_local! {
    static LISTS: Lists = const {
        Lists {
            keeps: Cell::new(Keeps::NotAsked),
            rows: [const { Rows { now: Cell::new(EMPTY), beside: Cell::new(EMPTY) } }; SIZES],
        }
    };
    /// Its destructor empties the lists when the thread exits.
    static EXIT: Exit = const { Exit };
}

struct Exit;

impl Drop for Exit {
    fn drop(&mut self) {
        LISTS.with(|lists| {
            lists.keeps.set(Keeps::No);
            for (size, rows) in lists.rows.iter().enumerate() {
                for row in [rows.now.replace(EMPTY), rows.beside.replace(EMPTY)] {
                    if row.len > 0 {
                        Depot::put(size, row);
                    }
                }
            }
        });
    }
}

/// Rows of free cells that no thread has.
struct Depot([Vec<Row>; SIZES]);

// SAFETY: the cells in a row belong to whoever has the row.
unsafe impl Send for Depot {}

static DEPOT: Mutex<Depot> = Mutex::new(Depot([const { Vec::new() }; SIZES]));

impl Depot {
    fn lock() -> MutexGuard<'static, Depot> {
        DEPOT.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(size: usize) -> Option<Row> {
        Depot::lock().0[size].pop()
    }

    fn put(size: usize, row: Row) {
        {
            let rows = &mut Depot::lock().0[size];
            if rows.len() < MOST {
                rows.push(row);
                return;
            }
        }
        let mut next = row.head;
        while !next.is_null() {
            let cell = next;
            // SAFETY: the row is ours; each cell is an allocation of that size.
            unsafe {
                next = (*cell).next;
                dealloc(cell.cast(), layout_of(size));
            }
        }
    }
}

fn layout_of(size: usize) -> Layout {
    Layout::from_size_align(SMALLEST + size * STEP, STEP).expect("a small layout")
}

/// Which of the sizes; none if it is not one for the lists.
#[inline]
fn size_of(layout: Layout) -> Option<usize> {
    let fits = POOLED && layout.size() <= LARGEST && layout.align() <= STEP;
    fits.then(|| layout.size().saturating_sub(SMALLEST).div_ceil(STEP))
}

/// As [`with_local`](crate::sync::with_local), also in models.
#[inline(always)]
fn with_lists<R>(f: impl FnOnce(&Lists) -> R) -> R {
    let lists = LISTS.with(ptr::from_ref);
    // SAFETY: without a destructor they live as long as the thread, and `f`
    // cannot take the reference further.
    f(unsafe { &*lists })
}

/// Memory for a cell.
#[inline]
pub(crate) fn allocate(layout: Layout) -> *mut u8 {
    let Some(size) = size_of(layout) else {
        return from_allocator(layout);
    };
    with_lists(|lists| {
        let now = &lists.rows[size].now;
        match now.get() {
            Row { len: 0, .. } => lists.refill(size),
            Row { head, len } => {
                // SAFETY: a cell in our row is free and ours.
                let next = unsafe { (*head).next };
                now.set(Row {
                    head: next,
                    len: len - 1,
                });
                head.cast()
            }
        }
    })
}

/// Gives the memory of a cell back.
///
/// # Safety
/// `at` came from [`allocate`] with this layout, and is not used again.
#[inline]
pub(crate) unsafe fn release(at: *mut u8, layout: Layout) {
    let Some(size) = size_of(layout) else {
        // SAFETY: passed on; such a layout comes from the allocator as it is.
        return unsafe { dealloc(at, layout) };
    };
    with_lists(|lists| {
        let now = &lists.rows[size].now;
        let Row { head, len } = now.get();
        if len < FULL && lists.keeps.get() == Keeps::Yes {
            let cell = at.cast::<Free>();
            // SAFETY: nobody uses the cell any more, and it is large enough.
            unsafe { cell.write(Free { next: head }) };
            now.set(Row {
                head: cell,
                len: len + 1,
            });
        } else {
            lists.release_slowly(at, size);
        }
    });
}

impl Lists {
    /// The row in use is empty.
    #[cold]
    fn refill(&self, size: usize) -> *mut u8 {
        let rows = &self.rows[size];
        let mut row = rows.beside.replace(EMPTY);
        if row.len == 0 && self.keeps() {
            row = Depot::take(size).unwrap_or(EMPTY);
        }
        if row.len == 0 {
            return from_allocator(layout_of(size));
        }
        // SAFETY: a cell in our row is free and ours.
        let next = unsafe { (*row.head).next };
        rows.now.set(Row {
            head: next,
            len: row.len - 1,
        });
        row.head.cast()
    }

    /// The row in use is full, or the thread has none.
    #[cold]
    fn release_slowly(&self, at: *mut u8, size: usize) {
        if !self.keeps() {
            // SAFETY: each cell is an allocation of its own, of that size.
            return unsafe { dealloc(at, layout_of(size)) };
        }
        let rows = &self.rows[size];
        if rows.now.get().len == FULL {
            let beside = rows.beside.replace(rows.now.replace(EMPTY));
            if beside.len > 0 {
                Depot::put(size, beside);
            }
        }
        let Row { head, len } = rows.now.get();
        let cell = at.cast::<Free>();
        // SAFETY: nobody uses the cell any more, and it is large enough.
        unsafe { cell.write(Free { next: head }) };
        rows.now.set(Row {
            head: cell,
            len: len + 1,
        });
    }

    /// Whether this thread keeps cells; asked for on first use.
    fn keeps(&self) -> bool {
        static SWITCH: OnceLock<bool> = OnceLock::new();
        if self.keeps.get() == Keeps::NotAsked {
            let wanted = *SWITCH
                .get_or_init(|| std::env::var_os("KINFOLK_CELLS").is_none_or(|to| to != "malloc"));
            // Registers the destructor; fails in a thread that is exiting.
            let keeps = wanted && EXIT.try_with(|_| {}).is_ok();
            self.keeps.set(if keeps { Keeps::Yes } else { Keeps::No });
        }
        self.keeps.get() == Keeps::Yes
    }
}

fn from_allocator(layout: Layout) -> *mut u8 {
    // SAFETY: the size of a cell is at least that of a header.
    let at = unsafe { alloc(layout) };
    if at.is_null() {
        handle_alloc_error(layout);
    }
    at
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn cells_come_back_across_threads_and_exits() {
        if std::env::var_os("KINFOLK_CELLS").is_some() {
            // Nothing is kept then.
            return;
        }
        let layout = Layout::from_size_align(LARGEST - 3, 8).expect("a layout");
        let size = size_of(layout).expect("one for the lists");
        let made: Vec<usize> = (0..FULL * 5).map(|_| allocate(layout) as usize).collect();
        let freed = made.clone();
        std::thread::spawn(move || {
            for at in freed {
                // SAFETY: made above, and given up.
                unsafe { release(ptr::with_exposed_provenance_mut(at), layout) };
            }
        })
        .join()
        .expect("no panic");
        // The thread has exited: all of it lies in the depot.
        let again: std::collections::HashSet<usize> =
            (0..FULL * 5).map(|_| allocate(layout) as usize).collect();
        assert_eq!(again.len(), made.len());
        assert!(made.iter().all(|at| again.contains(at)));
        assert!(Depot::take(size).is_none());
        for at in again {
            // SAFETY: made above, and given up.
            unsafe { release(ptr::with_exposed_provenance_mut(at), layout) };
        }
    }

    #[test]
    fn a_cell_that_fits_no_row_is_the_allocators() {
        let large = Layout::from_size_align(LARGEST + 1, 8).expect("a layout");
        let aligned = Layout::from_size_align(256, 64).expect("a layout");
        for layout in [large, aligned] {
            assert_eq!(size_of(layout), None);
            let at = allocate(layout);
            assert_eq!(at.addr() % layout.align(), 0);
            // SAFETY: made just above.
            unsafe { release(at, layout) };
        }
    }
}
