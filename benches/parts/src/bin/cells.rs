//! The pool of cells of `kinfolk-core` beside the allocator and the crates slab, sharded-slab
//! and bumpalo, in interleaved rounds; nanoseconds a cell, the least of all rounds and their
//! median.
//!
//! `cargo run --release --manifest-path benches/parts/Cargo.toml --bin cells`
//!
//! With a way and a workload by their numbers, and how often, it runs that alone: for a tool
//! that counts instructions. What two numbers of rounds differ in is what the rounds took.

use std::alloc::Layout;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Instant;

/// The pool itself: it is no public part of its crate.
#[path = "../../../../crates/core/src/record/cell_pool.rs"]
mod cell_pool;
#[path = "../../../../crates/core/src/record/slab_word.rs"]
mod slab_word;

/// What the pool finds in its own crate.
mod base {
    pub(crate) mod sync {
        pub(crate) use std::sync::atomic::{AtomicU32, Ordering};

        pub(crate) const POOLED: bool = true;
    }
}

mod record {
    pub(crate) use crate::slab_word;
}

/// A cell: a header of 128 bytes, a slot, and a small future.
const WORDS: usize = 32;
type Words = [u64; WORDS];
const CELL: Layout = Layout::new::<Words>();

const ROUNDS: usize = 25;
const CELLS: usize = 100_000;

/// A way to get the memory of cells and give it back.
trait Cells {
    type Cell: Copy + Send + 'static;

    fn new() -> Self;
    fn make(&mut self) -> Self::Cell;
    fn free(&mut self, cell: Self::Cell);
    /// What a walk does: reads and writes the word of the header.
    fn touch(&mut self, cell: Self::Cell);
    /// All are freed: what goes back as a whole goes back.
    fn all_freed(&mut self) {}
}

/// Where a cell is, for the ways that give an address.
#[derive(Clone, Copy)]
struct At(*mut Words);

// SAFETY: plain memory, which one thread uses at a time.
unsafe impl Send for At {}

impl At {
    fn fill(self) -> At {
        // SAFETY: fresh memory for so many words.
        unsafe { self.0.write([1; WORDS]) };
        self
    }

    fn touch(self) {
        // SAFETY: filled, and not freed.
        unsafe { *black_box(self.0.cast::<u64>()) += 1 };
    }
}

struct Pool(cell_pool::Room);

impl Cells for Pool {
    type Cell = At;

    fn new() -> Pool {
        Pool(cell_pool::Room::new(CELL))
    }

    fn make(&mut self) -> At {
        At(cell_pool::allocate(&self.0).cast()).fill()
    }

    fn free(&mut self, cell: At) {
        // SAFETY: from `make`, and not used again.
        unsafe { cell_pool::release(cell.0.cast(), &self.0) };
    }

    fn touch(&mut self, cell: At) {
        cell.touch();
    }
}

struct Malloc;

impl Cells for Malloc {
    type Cell = At;

    fn new() -> Malloc {
        Malloc
    }

    fn make(&mut self) -> At {
        // SAFETY: not of size zero.
        let at = unsafe { std::alloc::alloc(CELL) };
        assert!(!at.is_null());
        At(at.cast()).fill()
    }

    fn free(&mut self, cell: At) {
        // SAFETY: from `make`, and not used again.
        unsafe { std::alloc::dealloc(cell.0.cast(), CELL) };
    }

    fn touch(&mut self, cell: At) {
        cell.touch();
    }
}

/// Of one thread: a cell has a number, and moves when there are more.
impl Cells for slab::Slab<Words> {
    type Cell = usize;

    fn new() -> Self {
        Self::new()
    }

    fn make(&mut self) -> usize {
        self.insert([1; WORDS])
    }

    fn free(&mut self, cell: usize) {
        self.remove(cell);
    }

    fn touch(&mut self, cell: usize) {
        self[black_box(cell)][0] += 1;
    }
}

/// Of all threads: a cell has a number, and each access counts a reference.
struct Sharded(sharded_slab::Slab<[AtomicU64; WORDS]>);

impl Cells for Sharded {
    type Cell = usize;

    fn new() -> Self {
        Sharded(sharded_slab::Slab::new())
    }

    fn make(&mut self) -> usize {
        let words = [const { AtomicU64::new(1) }; WORDS];
        self.0.insert(words).expect("there is room")
    }

    fn free(&mut self, cell: usize) {
        self.0.remove(cell);
    }

    fn touch(&mut self, cell: usize) {
        let cell = self.0.get(black_box(cell)).expect("it is there");
        let word = &cell[0];
        word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

/// Frees nothing before everything.
impl Cells for bumpalo::Bump {
    type Cell = At;

    fn new() -> Self {
        Self::new()
    }

    fn make(&mut self) -> At {
        At(self.alloc_layout(CELL).cast().as_ptr()).fill()
    }

    fn free(&mut self, cell: At) {
        let _ = cell;
    }

    fn touch(&mut self, cell: At) {
        cell.touch();
    }

    fn all_freed(&mut self) {
        self.reset();
    }
}

fn each(took: Instant) -> f64 {
    took.elapsed().as_nanos() as f64 / CELLS as f64
}

/// One made, one freed: a task that ends before the next is spawned.
fn one_by_one<C: Cells>() -> f64 {
    let mut cells = C::new();
    let start = Instant::now();
    for _ in 0..CELLS {
        let cell = cells.make();
        cells.free(black_box(cell));
    }
    cells.all_freed();
    each(start)
}

/// A tree that is built, walked and freed in the order of making.
fn in_order<C: Cells>() -> f64 {
    let mut cells = C::new();
    let mut made = Vec::with_capacity(CELLS);
    let start = Instant::now();
    made.extend((0..CELLS).map(|_| cells.make()));
    for cell in &made {
        cells.touch(*cell);
    }
    for cell in &made {
        cells.free(*cell);
    }
    cells.all_freed();
    each(start)
}

fn shuffle<T>(row: &mut [T]) {
    let mut seed = 7u64;
    for n in (1..row.len()).rev() {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        row.swap(n, (seed >> 33) as usize % (n + 1));
    }
}

/// The walk alone, of the second tree. The first was freed in any order, but for one cell in
/// eight, which lives on.
fn walk_after_disorder<C: Cells>() -> f64 {
    let mut cells = C::new();
    let mut made: Vec<_> = (0..CELLS).map(|_| cells.make()).collect();
    let living: Vec<_> = made.iter().copied().step_by(8).collect();
    let mut rest: Vec<_> = (made.drain(..).enumerate())
        .filter(|(n, _)| n % 8 != 0)
        .map(|(_, cell)| cell)
        .collect();
    shuffle(&mut rest);
    for cell in rest {
        cells.free(cell);
    }
    made.extend((0..CELLS).map(|_| cells.make()));
    let start = Instant::now();
    for cell in &made {
        cells.touch(*cell);
    }
    let took = each(start);
    for cell in made.into_iter().chain(living) {
        cells.free(cell);
    }
    cells.all_freed();
    took
}

/// Made here, freed by another thread, ten thousand at a time, back and forth.
fn across<C: Cells + Send>() -> f64 {
    const PART: usize = 10_000;
    let mut cells = C::new();
    let (give, get) = mpsc::sync_channel::<(C, Vec<C::Cell>)>(1);
    let (back, again) = mpsc::sync_channel(1);
    std::thread::scope(|threads| {
        threads.spawn(move || {
            for (mut cells, part) in get {
                for cell in part {
                    cells.free(cell);
                }
                if back.send(cells).is_err() {
                    break;
                }
            }
        });
        let start = Instant::now();
        for _ in 0..CELLS / PART {
            let part = (0..PART).map(|_| cells.make()).collect();
            give.send((cells, part)).expect("it listens");
            cells = again.recv().expect("it answers");
        }
        let took = each(start);
        drop(give);
        took
    })
}

type Round = fn() -> f64;

fn rounds<C: Cells + Send>() -> [Round; 4] {
    [
        one_by_one::<C>,
        in_order::<C>,
        walk_after_disorder::<C>,
        across::<C>,
    ]
}

fn main() {
    let names = ["kinfolk", "malloc", "slab", "sharded-slab", "bumpalo"];
    let whats = [
        "one made, one freed",
        "100,000 made, walked, freed in order",
        "the walk of 100,000 that were made after others had been freed in any order",
        "10,000 made, freed by another thread",
    ];
    let all = [
        rounds::<Pool>(),
        rounds::<Malloc>(),
        rounds::<slab::Slab<Words>>(),
        rounds::<Sharded>(),
        rounds::<bumpalo::Bump>(),
    ];
    let args: Vec<usize> = (std::env::args().skip(1))
        .map(|arg| arg.parse().expect("a number"))
        .collect();
    if let [way, what, times] = args[..] {
        for _ in 0..times {
            all[way][what]();
        }
        return;
    }
    let mut times = vec![vec![Vec::new(); names.len()]; whats.len()];
    for round in 0..ROUNDS {
        for turn in 0..names.len() {
            // Each round begins with another one.
            let way = (round + turn) % names.len();
            for (what, run) in all[way].iter().enumerate() {
                times[what][way].push(run());
            }
        }
    }
    println!("ns a cell, min / median of {ROUNDS} rounds: {names:?}");
    for (what, times) in whats.iter().zip(&mut times) {
        let row: Vec<String> = (times.iter_mut())
            .map(|times| {
                times.sort_by(f64::total_cmp);
                format!("{:.1} / {:.1}", times[0], times[times.len() / 2])
            })
            .collect();
        println!("{what}: {}", row.join(", "));
    }
}
