//! The memory of cells: slabs, each one allocation for cells of one size, and
//! the free cells in them.
//!
//! Sizes are rounded up to 16 bytes. For each size a thread makes cells of one
//! slab at a time, the one it *holds*. A freed cell goes back to its slab, on
//! any thread: at once if that thread holds the slab, else together with others
//! of the same slab that the thread frees in a row. A slab that was used up is
//! in no list until a quarter of its cells have come back; the thread that
//! frees that quarter lists the slab, in its own list or in the depot, which
//! all threads share. So cells that are made one after the other lie side by
//! side, in whatever order the cells before them were freed, and a walk through
//! a tree follows the order of memory. A free list through all memory made a
//! cancel of 111,111 jobs three times as slow.
//!
//! The memory kept is bounded by the most that was once in use, and the depot
//! frees empty slabs beyond [`MOST`]. A thread that exits gives its slabs to
//! the depot.
//!
//! With `KINFOLK_CELLS=malloc` in the environment, and in loom's models, each
//! cell is an allocation of its own: then tools that watch the allocator see
//! each allocation and each free.
//!
//! - **P1** A free cell belongs to the owner of the row in which it is linked:
//!   a thread (held, gathered) or the slab's word.
//! - **P2** A slab's `next` belongs to the thread that listed it, and then to
//!   the owner of the list.
//! - **P3** A slab is freed by the thread that took it off a list with all its
//!   cells in its word: no cell of it is in use, so no thread returns to it.
//!
//! The races are in [`slab_word`](crate::record::slab_word): `give_vs_leave`,
//! `give_vs_let_go`. Wrong counts would be noticed by those two, by
//! `two_threads_make_and_free_each_others_cells` and by
//! `cells_come_back_across_threads_and_exits`.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::collections::VecDeque;
use std::ptr;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::base::sync::POOLED;
use crate::record::slab_word::{Given, SlabWord};

const STEP: usize = 16;
const SMALLEST: usize = 128;
const SIZES: usize = 40;
const LARGEST: usize = SMALLEST + (SIZES - 1) * STEP;

/// A slab begins at a multiple of `ALIGN`, and so may the next: the bytes left
/// unused at its end leave room for the allocator's own book-keeping in
/// between.
const ALIGN: usize = 16 * 1024;
const LEFT_AWAY: usize = 64;

/// Where the cells of a slab begin.
const CELLS_AT: usize = 64;

/// How many listed slabs of one size a thread keeps.
const OWN: u32 = 4;

/// How many slabs of one size the depot keeps although they are empty.
const MOST: usize = 1024;

/// The contents of a free cell.
struct Free {
    next: *mut Free,
}

/// The begin of a slab.
struct Slab {
    word: SlabWord,
    size: u16,
    cells: u16,
    next: Cell<*mut Slab>,
}

const _: () = assert!(size_of::<Slab>() <= CELLS_AT);

const SLAB: Layout = match Layout::from_size_align(ALIGN - LEFT_AWAY, ALIGN) {
    Ok(layout) => layout,
    Err(_) => unreachable!(),
};

/// The slab of a cell.
#[inline]
fn slab_of(cell: *mut u8) -> *mut Slab {
    ptr::with_exposed_provenance_mut(cell.addr() & !(ALIGN - 1))
}

impl Slab {
    /// A new slab, held, with all its cells in a row.
    fn make(size: usize) -> (*mut Slab, *mut Free) {
        // SAFETY: not of size zero.
        let at = unsafe { alloc(SLAB) };
        if at.is_null() {
            handle_alloc_error(SLAB);
        }
        // For `slab_of`.
        let _exposed = at.expose_provenance();
        let slab = at.cast::<Slab>();
        let room = SLAB.size() - CELLS_AT;
        // SAFETY: fresh, and large enough.
        unsafe {
            slab.write(Slab {
                word: SlabWord::new(),
                size: size as u16,
                cells: (room / bytes_of(size)) as u16,
                next: Cell::new(ptr::null_mut()),
            });
            (slab, Slab::link_all(slab))
        }
    }

    /// Links all cells in the order of memory.
    ///
    /// # Safety
    /// All cells are the caller's (P1).
    unsafe fn link_all(slab: *mut Slab) -> *mut Free {
        // SAFETY: by the caller's promise; the slab has so many cells of this
        // size.
        unsafe {
            let bytes = bytes_of((*slab).size as usize);
            let first = slab.cast::<u8>().add(CELLS_AT);
            let mut next = ptr::null_mut::<Free>();
            for n in (0..(*slab).cells as usize).rev() {
                let cell = first.add(n * bytes).cast::<Free>();
                cell.write(Free { next });
                next = cell;
            }
            next
        }
    }

    /// How many free cells make a slab worth taking.
    fn enough(&self) -> u16 {
        self.cells.div_ceil(4)
    }

    /// Takes the freed cells of the slab as a row.
    ///
    /// # Safety
    /// The caller holds the slab, or has taken it off a list.
    unsafe fn take(slab: *mut Slab) -> *mut Free {
        // SAFETY: by the caller's promise the slab exists, and the cells taken
        // out are the caller's (P1).
        unsafe {
            let Given { first, count } = (*slab).word.take();
            if count == (*slab).cells {
                // No cell is in use: link them anew, in the order of memory.
                return Slab::link_all(slab);
            }
            Slab::cell(slab, first)
        }
    }

    /// # Safety
    /// The slab exists.
    unsafe fn cell(slab: *mut Slab, at: u16) -> *mut Free {
        match at {
            0 => ptr::null_mut(),
            // SAFETY: within the slab, by `place`.
            at => unsafe { slab.cast::<u8>().add(at as usize * STEP).cast() },
        }
    }

    /// Gives a row of cells back to its slab. True if the caller must list the
    /// slab.
    ///
    /// # Safety
    /// P1: the row is the caller's.
    unsafe fn give(row: Row) -> bool {
        let more = Given {
            first: (row.head.addr() % ALIGN / STEP) as u16,
            count: row.len,
        };
        // SAFETY: a cell of it is in use, so the slab exists; the last cell is
        // the caller's until the word has it.
        unsafe {
            let slab = row.slab;
            (*slab).word.give(more, (*slab).enough(), |before| {
                (*row.tail).next = Slab::cell(slab, before);
            })
        }
    }
}

/// Free cells of one slab, linked through themselves.
#[derive(Clone, Copy)]
struct Row {
    slab: *mut Slab,
    head: *mut Free,
    tail: *mut Free,
    len: u16,
}

const EMPTY: Row = Row {
    slab: ptr::null_mut(),
    head: ptr::null_mut(),
    tail: ptr::null_mut(),
    len: 0,
};

/// A [`Row`] to which cells are added one by one. Its parts are stored
/// separately: as a whole the row would be read and written with every cell.
struct Gathered {
    slab: Cell<*mut Slab>,
    head: Cell<*mut Free>,
    tail: Cell<*mut Free>,
    len: Cell<u16>,
}

impl Gathered {
    fn take(&self) -> Row {
        Row {
            slab: self.slab.replace(ptr::null_mut()),
            head: self.head.replace(ptr::null_mut()),
            tail: self.tail.replace(ptr::null_mut()),
            len: self.len.replace(0),
        }
    }
}

/// What one thread keeps for one size.
struct Rows {
    /// The slab that the thread holds, and the free cells of it that the thread
    /// has.
    held: Cell<*mut Slab>,
    free: Cell<*mut Free>,
    /// Cells of another slab, freed in a row.
    gathered: Gathered,
    /// Slabs to hold next.
    listed: Cell<*mut Slab>,
    count: Cell<u32>,
}

/// Whether this thread keeps cells.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keeps {
    NotAsked,
    Yes,
    /// The thread is exiting.
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
            rows: [const {
                Rows {
                    held: Cell::new(ptr::null_mut()),
                    free: Cell::new(ptr::null_mut()),
                    gathered: Gathered {
                        slab: Cell::new(ptr::null_mut()),
                        head: Cell::new(ptr::null_mut()),
                        tail: Cell::new(ptr::null_mut()),
                        len: Cell::new(0),
                    },
                    listed: Cell::new(ptr::null_mut()),
                    count: Cell::new(0),
                }
            }; SIZES],
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
            for rows in &lists.rows {
                rows.give_gathered();
                while let Some(slab) = rows.unlist() {
                    Depot::put(slab);
                }
                let (held, free) = (
                    rows.held.replace(ptr::null_mut()),
                    rows.free.replace(ptr::null_mut()),
                );
                if !held.is_null() {
                    // SAFETY: this thread holds it, and has that row.
                    unsafe { let_go(held, free) };
                }
            }
        });
    }
}

/// Releases a slab, with the row of its cells that is left.
///
/// # Safety
/// The caller holds the slab and has the row (P1).
unsafe fn let_go(slab: *mut Slab, free: *mut Free) {
    let mut row = EMPTY;
    // SAFETY: by the caller's promise.
    unsafe {
        let mut next = free;
        while !next.is_null() {
            row = Row {
                slab,
                head: free,
                tail: next,
                len: row.len + 1,
            };
            next = (*next).next;
        }
        if row.len > 0 {
            // A held slab is not listed by `give`.
            let listed = Slab::give(row);
            assert!(!listed, "a slab that is held became somebody's to list");
        }
        if (*slab).word.let_go((*slab).enough()) {
            Depot::put(slab);
        }
    }
}

/// Listed slabs that belong to no thread.
struct Depot([VecDeque<*mut Slab>; SIZES]);

// SAFETY: a slab in a list belongs to the owner of the list.
unsafe impl Send for Depot {}

static DEPOT: Mutex<Depot> = Mutex::new(Depot([const { VecDeque::new() }; SIZES]));

impl Depot {
    fn lock() -> MutexGuard<'static, Depot> {
        DEPOT.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(size: usize) -> Option<*mut Slab> {
        Depot::lock().0[size].pop_back()
    }

    fn put(slab: *mut Slab) {
        // SAFETY: listed, so it exists.
        let size = unsafe { (*slab).size } as usize;
        let oldest = {
            let slabs = &mut Depot::lock().0[size];
            slabs.push_back(slab);
            if slabs.len() <= MOST {
                return;
            }
            slabs.pop_front()
        };
        let Some(oldest) = oldest else { return };
        // SAFETY: as above; it belongs to this thread now.
        let empty = unsafe { (*oldest).word.count() == (*oldest).cells };
        if empty {
            // SAFETY: P3.
            unsafe { dealloc(oldest.cast(), SLAB) };
        } else {
            Depot::lock().0[size].push_back(oldest);
        }
    }
}

fn bytes_of(size: usize) -> usize {
    SMALLEST + size * STEP
}

fn layout_of(size: usize) -> Layout {
    Layout::from_size_align(bytes_of(size), STEP).expect("a small layout")
}

/// The layout of a cell and the number of its size, computed once for each type
/// of task.
#[derive(Clone, Copy)]
pub(crate) struct Room {
    layout: Layout,
    /// [`SIZES`] if cells of this size are not pooled.
    size: usize,
}

impl Room {
    pub(crate) const fn new(layout: Layout) -> Room {
        let fits = POOLED && layout.size() <= LARGEST && layout.align() <= STEP;
        let size = if fits {
            layout.size().saturating_sub(SMALLEST).div_ceil(STEP)
        } else {
            SIZES
        };
        Room { layout, size }
    }
}

/// Like [`local!`](crate::base::sync::local), also in models.
#[inline]
fn with_lists<R>(f: impl FnOnce(&Lists) -> R) -> R {
    #[inline]
    fn place() -> *const Lists {
        match LISTS.try_with(ptr::from_ref) {
            Ok(place) => place,
            Err(_) => unreachable!("there is no destructor"),
        }
    }
    // SAFETY: the lists have no destructor, so they live as long as the thread,
    // and `f` cannot keep the reference.
    f(unsafe { &*place() })
}

/// Memory for a cell.
#[inline]
pub(crate) fn allocate(room: &Room) -> *mut u8 {
    with_lists(|lists| {
        let Some(rows) = lists.rows.get(room.size) else {
            return from_allocator(room.layout);
        };
        let free = &rows.free;
        let head = free.get();
        if head.is_null() {
            return lists.allocate_slowly(room.size);
        }
        // SAFETY: P1, this thread's row.
        free.set(unsafe { (*head).next });
        head.cast()
    })
}

/// Gives the memory of a cell back.
///
/// # Safety
/// `at` came from [`allocate`] with this room, and is not used again.
#[inline]
pub(crate) unsafe fn release(at: *mut u8, room: &Room) {
    with_lists(|lists| {
        let Some(rows) = lists.rows.get(room.size) else {
            // SAFETY: passed on; such a layout comes directly from the allocator.
            return unsafe { dealloc(at, room.layout) };
        };
        let slab = slab_of(at);
        let head = if slab == rows.held.get() {
            &rows.free
        } else if slab == rows.gathered.slab.get() {
            rows.gathered.len.set(rows.gathered.len.get() + 1);
            &rows.gathered.head
        } else {
            // SAFETY: passed on.
            return unsafe { lists.gather_anew(at, room.size) };
        };
        let cell = at.cast::<Free>();
        let next = head.replace(cell);
        // SAFETY: the cell is no longer used, and it is large enough.
        unsafe { cell.write(Free { next }) };
    });
}

impl Rows {
    /// Lists a slab here, or in the depot.
    fn list(&self, slab: *mut Slab) {
        if self.count.get() >= OWN {
            return Depot::put(slab);
        }
        self.count.set(self.count.get() + 1);
        // SAFETY: P2, this thread lists it.
        unsafe { (*slab).next.set(self.listed.replace(slab)) };
    }

    fn unlist(&self) -> Option<*mut Slab> {
        let slab = self.listed.get();
        if slab.is_null() {
            return None;
        }
        self.count.set(self.count.get() - 1);
        // SAFETY: P2, this thread's list.
        self.listed.set(unsafe { (*slab).next.get() });
        Some(slab)
    }

    fn give_gathered(&self) {
        let row = self.gathered.take();
        // SAFETY: P1, this thread's row.
        if row.len > 0 && unsafe { Slab::give(row) } {
            self.list(row.slab);
        }
    }
}

impl Lists {
    /// Allocates when the row is empty.
    #[cold]
    fn allocate_slowly(&self, size: usize) -> *mut u8 {
        if !pools() {
            return from_allocator(layout_of(size));
        }
        let rows = &self.rows[size];
        rows.give_gathered();
        let held = rows.held.get();
        // SAFETY: this thread holds it.
        if !held.is_null() && unsafe { !(*held).word.leave_empty() } {
            // Some of its cells have come back.
            // SAFETY: as above.
            rows.free.set(unsafe { Slab::take(held) });
        } else {
            let (slab, free) = match rows.unlist().or_else(|| Depot::take(size)) {
                // SAFETY: off a list; a listed slab has free cells.
                Some(slab) => (slab, unsafe { Slab::take(slab) }),
                None => Slab::make(size),
            };
            rows.held.set(slab);
            rows.free.set(free);
        }
        let head = rows.free.get();
        // SAFETY: P1, this thread's row, which is not empty.
        rows.free.set(unsafe { (*head).next });
        if !self.keeps() {
            // SAFETY: this thread holds it, and has that row.
            unsafe {
                let_go(
                    rows.held.replace(ptr::null_mut()),
                    rows.free.replace(ptr::null_mut()),
                )
            };
        }
        head.cast()
    }

    /// Frees a cell that is neither of the held slab nor of the slab of the
    /// gathered row.
    ///
    /// # Safety
    /// As for [`release`].
    #[inline(never)]
    unsafe fn gather_anew(&self, at: *mut u8, size: usize) {
        if !pools() {
            // SAFETY: each cell is an allocation of its own, of that size.
            return unsafe { dealloc(at, layout_of(size)) };
        }
        let rows = &self.rows[size];
        rows.give_gathered();
        let cell = at.cast::<Free>();
        let gathered = &rows.gathered;
        gathered.slab.set(slab_of(at));
        gathered.head.set(cell);
        gathered.tail.set(cell);
        gathered.len.set(1);
        if !self.keeps() {
            rows.give_gathered();
            if let Some(slab) = rows.unlist() {
                Depot::put(slab);
            }
        }
    }

    /// Whether this thread keeps cells; decided on first use.
    fn keeps(&self) -> bool {
        if self.keeps.get() == Keeps::NotAsked {
            // Registers the destructor; fails in a thread that is exiting.
            let keeps = EXIT.try_with(|_| {}).is_ok();
            self.keeps.set(if keeps { Keeps::Yes } else { Keeps::No });
        }
        self.keeps.get() == Keeps::Yes
    }
}

/// Whether cells are kept in slabs in this process.
fn pools() -> bool {
    static SWITCH: OnceLock<bool> = OnceLock::new();
    *SWITCH.get_or_init(|| std::env::var_os("KINFOLK_CELLS").is_none_or(|to| to != "malloc"))
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
    use std::collections::HashSet;

    fn make(layout: Layout, count: usize) -> Vec<usize> {
        (0..count)
            .map(|_| allocate(&Room::new(layout)).expose_provenance())
            .collect()
    }

    fn give_back(layout: Layout, cells: impl IntoIterator<Item = usize>) {
        for at in cells {
            // SAFETY: made by `make`, and no longer used.
            unsafe { release(ptr::with_exposed_provenance_mut(at), &Room::new(layout)) };
        }
    }

    fn slabs_of(cells: &[usize]) -> HashSet<usize> {
        cells.iter().map(|at| at & !(ALIGN - 1)).collect()
    }

    fn is_off() -> bool {
        std::env::var_os("KINFOLK_CELLS").is_some()
    }

    /// Each test has a size of its own, because all tests share the depot.
    fn layout(nth: usize) -> Layout {
        Layout::from_size_align(LARGEST - nth * STEP - 3, 8).expect("a layout")
    }

    #[test]
    fn cells_come_back_across_threads_and_exits() {
        if is_off() {
            return;
        }
        let layout = layout(0);
        let made = make(layout, 1000);
        assert_eq!(made.iter().collect::<HashSet<_>>().len(), made.len());
        let freed = made.clone();
        std::thread::spawn(move || give_back(layout, freed))
            .join()
            .expect("no panic");
        // The thread has exited: all its slabs are in the depot, except the one
        // that this thread holds.
        let again = make(layout, 1000);
        assert_eq!(again.iter().collect::<HashSet<_>>().len(), again.len());
        assert_eq!(slabs_of(&again), slabs_of(&made));
        give_back(layout, again);
    }

    /// Cells that were freed in any order are made again in the order of
    /// memory.
    #[test]
    fn cells_made_in_a_row_lie_side_by_side() {
        if is_off() {
            return;
        }
        let layout = layout(1);
        let mut made = make(layout, 1000);
        let mut seed = 7u64;
        for n in (1..made.len()).rev() {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
            made.swap(n, (seed >> 33) as usize % (n + 1));
        }
        let slabs = slabs_of(&made).len();
        give_back(layout, made);
        let again = make(layout, 1000);
        let moves = again.windows(2).filter(|pair| pair[0] > pair[1]).count();
        assert!(
            moves <= slabs + 2 * 64,
            "{moves} steps backwards, {slabs} slabs"
        );
        give_back(layout, again);
    }

    /// One cell in each slab lives: the other cells are used again.
    #[test]
    fn a_cell_that_stays_does_not_keep_its_slab_from_others() {
        if is_off() {
            return;
        }
        let layout = layout(2);
        let made = make(layout, 1000);
        let mut stay = Vec::new();
        let mut slabs = HashSet::new();
        for at in made.iter().copied() {
            if slabs.insert(at & !(ALIGN - 1)) {
                stay.push(at);
            } else {
                give_back(layout, [at]);
            }
        }
        let again = make(layout, 1000 - stay.len());
        assert!(again.iter().all(|at| !stay.contains(at)));
        assert_eq!(slabs_of(&again).difference(&slabs).count(), 0);
        give_back(layout, again.into_iter().chain(stay));
    }

    /// The depot frees empty slabs when it has many.
    #[test]
    fn the_depot_is_bounded() {
        if is_off() {
            return;
        }
        let layout = layout(3);
        let size = Room::new(layout).size;
        assert!(size < SIZES, "one for the lists");
        let made = make(layout, (MOST + 100) * 22);
        assert!(slabs_of(&made).len() > MOST + 50);
        give_back(layout, made);
        let kept = Depot::lock().0[size].len();
        assert!(kept <= MOST + 1, "{kept} slabs");
    }

    #[test]
    fn two_threads_make_and_free_each_others_cells() {
        if is_off() {
            return;
        }
        let layout = layout(4);
        let (ours, theirs) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
        let work = |send: std::sync::mpsc::Sender<Vec<usize>>,
                    get: std::sync::mpsc::Receiver<Vec<usize>>| {
            for round in 0..300usize {
                let made = make(layout, 1 + round % 97);
                for at in &made {
                    // SAFETY: made here; a write by another thread would show.
                    unsafe { ptr::with_exposed_provenance_mut::<usize>(*at).write(*at) };
                }
                for at in &made {
                    // SAFETY: as above.
                    let read = unsafe { ptr::with_exposed_provenance::<usize>(*at).read() };
                    assert_eq!(read, *at, "somebody else has this cell");
                }
                if send.send(made).is_err() {
                    break;
                }
                if let Ok(others) = get.recv() {
                    give_back(layout, others);
                }
            }
        };
        std::thread::scope(|s| {
            s.spawn(|| work(ours.0, theirs.1));
            s.spawn(|| work(theirs.0, ours.1));
        });
    }

    #[test]
    fn a_cell_that_fits_no_row_is_the_allocators() {
        let large = Layout::from_size_align(LARGEST + 1, 8).expect("a layout");
        let aligned = Layout::from_size_align(256, 64).expect("a layout");
        for layout in [large, aligned] {
            let room = Room::new(layout);
            assert_eq!(room.size, SIZES);
            let at = allocate(&room);
            assert_eq!(at.addr() % layout.align(), 0);
            // SAFETY: made just above.
            unsafe { release(at, &room) };
        }
    }
}
