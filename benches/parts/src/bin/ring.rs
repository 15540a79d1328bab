//! The ring of `kinfolk-queue` beside the queues of crossbeam-deque and st3, all first in first
//! out, in interleaved rounds; nanoseconds an item, the least of all rounds and their median.
//!
//! `cargo run --release --manifest-path benches/parts/Cargo.toml --bin ring`

use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// The ring itself: it is no public part of its crate.
#[allow(dead_code, reason = "the bench asks for less than the scheduler")]
#[path = "../../../../crates/queue/src/ring.rs"]
mod ring;

/// What the ring finds in its own crate.
mod sync {
    pub use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

    pub const RING: usize = 1024;
}

/// The same room for all.
const ROOM: usize = sync::RING;
const ROUNDS: usize = 25;
const ITEMS: usize = 200_000;

/// A worker's queue.
trait Queue {
    type Thief: Thief + Send + 'static;

    fn new() -> Self;
    fn push(&self, item: usize);
    fn pop(&self) -> Option<usize>;
    fn thief(&self) -> Self::Thief;
}

/// Another worker, with a queue of its own.
trait Thief {
    /// Takes up to half of what is there, and empties its own queue; how many it got.
    fn steal(&mut self) -> usize;
}

struct Ours(Arc<ring::Ring>);

impl Queue for Ours {
    type Thief = (Arc<ring::Ring>, Ours);

    fn new() -> Ours {
        Ours(Arc::new(ring::Ring::new()))
    }

    fn push(&self, item: usize) {
        let item = NonNull::new(ptr::without_provenance_mut(item)).expect("not null");
        self.0.push(item).expect("there is room");
    }

    fn pop(&self) -> Option<usize> {
        self.0.pop().map(|item| item.as_ptr().addr())
    }

    fn thief(&self) -> Self::Thief {
        (self.0.clone(), Ours::new())
    }
}

impl Thief for (Arc<ring::Ring>, Ours) {
    fn steal(&mut self) -> usize {
        let own = &self.1.0;
        self.0.steal(u64::MAX, |item| {
            own.push(item).expect("there is room");
        });
        std::iter::from_fn(|| self.1.pop()).count()
    }
}

impl Queue for crossbeam_deque::Worker<usize> {
    type Thief = (
        crossbeam_deque::Stealer<usize>,
        crossbeam_deque::Worker<usize>,
    );

    fn new() -> Self {
        Self::new_fifo()
    }

    fn push(&self, item: usize) {
        self.push(item);
    }

    fn pop(&self) -> Option<usize> {
        self.pop()
    }

    fn thief(&self) -> Self::Thief {
        (self.stealer(), Self::new_fifo())
    }
}

impl Thief
    for (
        crossbeam_deque::Stealer<usize>,
        crossbeam_deque::Worker<usize>,
    )
{
    fn steal(&mut self) -> usize {
        let _ = self.0.steal_batch(&self.1);
        std::iter::from_fn(|| self.1.pop()).count()
    }
}

impl Queue for st3::fifo::Worker<usize> {
    type Thief = (st3::fifo::Stealer<usize>, st3::fifo::Worker<usize>);

    fn new() -> Self {
        Self::new(ROOM)
    }

    fn push(&self, item: usize) {
        self.push(item).expect("there is room");
    }

    fn pop(&self) -> Option<usize> {
        self.pop()
    }

    fn thief(&self) -> Self::Thief {
        (self.stealer(), Self::new(ROOM))
    }
}

impl Thief for (st3::fifo::Stealer<usize>, st3::fifo::Worker<usize>) {
    fn steal(&mut self) -> usize {
        // As ours: half, and 128 at most.
        let _ = (self.0).steal(&self.1, |there| there.div_ceil(2).min(ring::STEAL_BATCH));
        std::iter::from_fn(|| self.1.pop()).count()
    }
}

/// The owner by itself: `row` in, `row` out.
fn alone<Q: Queue>(row: usize) -> f64 {
    let queue = Q::new();
    let start = Instant::now();
    for _ in 0..ITEMS / row {
        for item in 1..=row {
            queue.push(item);
        }
        assert_eq!(std::iter::from_fn(|| queue.pop()).count(), row);
    }
    start.elapsed().as_nanos() as f64 / ITEMS as f64
}

/// Half is stolen each time, on the same thread: what a batch costs without a race.
fn halves<Q: Queue>() -> f64 {
    const ROW: usize = 64;
    let queue = Q::new();
    let mut thief = queue.thief();
    let start = Instant::now();
    for _ in 0..ITEMS / ROW {
        for item in 1..=ROW {
            queue.push(item);
        }
        let mut there = thief.steal();
        there += std::iter::from_fn(|| queue.pop()).count();
        assert_eq!(there, ROW);
    }
    start.elapsed().as_nanos() as f64 / ITEMS as f64
}

/// Another thread steals all the time.
fn robbed<Q: Queue>() -> f64 {
    const ROW: usize = 64;
    let queue = Q::new();
    let over = Arc::new(AtomicBool::new(false));
    let mut thief = queue.thief();
    let thief = {
        let over = over.clone();
        std::thread::spawn(move || {
            let mut stolen = 0;
            while !over.load(Ordering::Acquire) {
                stolen += thief.steal();
            }
            stolen + thief.steal()
        })
    };
    let (mut popped, start) = (0, Instant::now());
    for _ in 0..ITEMS / ROW {
        for item in 1..=ROW {
            queue.push(item);
        }
        popped += std::iter::from_fn(|| queue.pop()).count();
    }
    let time = start.elapsed().as_nanos() as f64 / ITEMS as f64;
    over.store(true, Ordering::Release);
    let stolen = thief.join().expect("the thief");
    assert_eq!(popped + stolen, ITEMS / ROW * ROW, "each comes out once");
    time
}

type Round = fn() -> f64;

fn rounds<Q: Queue>() -> [Round; 4] {
    [
        || alone::<Q>(1),
        || alone::<Q>(512),
        halves::<Q>,
        robbed::<Q>,
    ]
}

fn main() {
    let names = ["kinfolk", "crossbeam-deque", "st3"];
    let whats = [
        "one in, one out",
        "512 in, 512 out",
        "64 in, half stolen in a batch, the rest out",
        "64 in and out, while another thread steals",
    ];
    let all = [
        rounds::<Ours>(),
        rounds::<crossbeam_deque::Worker<usize>>(),
        rounds::<st3::fifo::Worker<usize>>(),
    ];
    let mut times = vec![vec![Vec::new(); names.len()]; whats.len()];
    for round in 0..ROUNDS {
        for turn in 0..names.len() {
            // Each round begins with another one.
            let who = (round + turn) % names.len();
            for (what, run) in all[who].iter().enumerate() {
                times[what][who].push(run());
            }
        }
    }
    println!("ns an item, min / median of {ROUNDS} rounds: {names:?}");
    for (what, times) in whats.iter().zip(&mut times) {
        let row: Vec<String> = (times.iter_mut())
            .map(|times| {
                times.sort_by(f64::total_cmp);
                format!("{:.2} / {:.2}", times[0], times[times.len() / 2])
            })
            .collect();
        println!("{what}: {}", row.join(", "));
    }
}
