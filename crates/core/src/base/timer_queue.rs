//! The queue of timers for hosts: exact instants, millions of them, and giving
//! one up as cheap as setting it. A pure data structure: it has no clock and
//! wakes no thread.
//!
//! It is a heap in which every entry has four children, beside a table of
//! places. An entry of the heap holds what is compared; its place holds the
//! waker and where in the heap the entry is, so that a key finds it at once.
//!
//! ```text
//! key ──► place {waker, position} ──► heap[position] {instant, age, place}
//! ```
//!
//! Setting compares with a parent or two, since a new timer is seldom the
//! first of many; giving up fills the gap with the last entry, which seldom
//! moves further, since most entries have no children. Both are O(log n) at
//! worst, taking the first one out always is. Nothing is allocated once the
//! two tables have grown to what is pending at a time.

use std::fmt;
use std::task::Waker;
use std::time::Instant;

use crate::base::unwind::KeptWaker;

/// Names a timer that was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimerKey {
    /// When it is due.
    pub at: Instant,
    /// Tells it from every other timer of its queue.
    pub number: u64,
}

impl TimerKey {
    fn new(at: Instant, place: u32, uses: u32) -> TimerKey {
        TimerKey {
            at,
            number: u64::from(uses) << 32 | u64::from(place),
        }
    }

    fn place(self) -> u32 {
        self.number as u32
    }

    fn uses(self) -> u32 {
        (self.number >> 32) as u32
    }
}

/// Children of one entry. Four of them lie side by side, and the heap is half
/// as deep as with two.
const CHILDREN: usize = 4;

/// No position and no place.
const NONE: u32 = u32::MAX;

/// What is compared: the instant, then the age.
#[derive(Clone, Copy, Debug)]
struct HeapEntry {
    at: Instant,
    age: u64,
    place: u32,
}

impl HeapEntry {
    fn before(&self, other: &HeapEntry) -> bool {
        (self.at, self.age) < (other.at, other.age)
    }
}

/// Where a timer is found by its key.
struct HeapPlace {
    /// There while the timer is pending.
    waker: Option<KeptWaker>,
    /// Pending: the position in the heap. Free: the next free place.
    position: u32,
    /// How many timers have been here: an old key finds nothing.
    uses: u32,
}

/// Timers by instant. Equal instants come out in the order in which they were
/// set.
pub struct TimerQueue {
    heap: Vec<HeapEntry>,
    places: Vec<HeapPlace>,
    free: u32,
    next_age: u64,
}

impl Default for TimerQueue {
    fn default() -> Self {
        TimerQueue::new()
    }
}

impl TimerQueue {
    /// An empty queue.
    pub const fn new() -> Self {
        TimerQueue {
            heap: Vec::new(),
            places: Vec::new(),
            free: NONE,
            next_age: 0,
        }
    }

    /// Sets a timer.
    ///
    /// # Panics
    /// If four billion timers are pending.
    pub fn insert(&mut self, at: Instant, waker: Waker) -> TimerKey {
        let place = self.take_place(waker);
        let age = self.next_age;
        self.next_age += 1;
        let entry = HeapEntry { at, age, place };
        self.heap.push(entry);
        self.move_up(self.heap.len() - 1, entry);
        TimerKey::new(at, place, self.places[place as usize].uses)
    }

    /// Gives a timer up; none if it has fired or was given up before.
    pub fn remove(&mut self, key: TimerKey) -> Option<Waker> {
        let place = self.places.get(key.place() as usize)?;
        if place.uses != key.uses() || place.waker.is_none() {
            return None;
        }
        let position = place.position as usize;
        Some(self.take_out(position))
    }

    /// When the first timer is due.
    pub fn next_at(&self) -> Option<Instant> {
        self.heap.first().map(|first| first.at)
    }

    /// Takes the first timer out if it is due at `now`.
    pub fn pop_due(&mut self, now: Instant) -> Option<Waker> {
        let due = self.next_at()? <= now;
        due.then(|| self.take_out(0))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    fn take_place(&mut self, waker: Waker) -> u32 {
        let free = self.free;
        if let Some(place) = self.places.get_mut(free as usize) {
            self.free = place.position;
            place.waker = Some(KeptWaker::new(waker));
            return free;
        }
        let fresh = u32::try_from(self.places.len()).unwrap_or(NONE);
        assert!(
            fresh != NONE,
            "four billion timers are pending in one queue"
        );
        self.places.push(HeapPlace {
            waker: Some(KeptWaker::new(waker)),
            position: NONE,
            uses: 0,
        });
        fresh
    }

    fn free_place(&mut self, index: u32) -> Waker {
        let place = &mut self.places[index as usize];
        let waker = place.waker.take();
        match place.uses.checked_add(1) {
            Some(uses) => {
                place.uses = uses;
                place.position = self.free;
                self.free = index;
            }
            // Worn out: one more use would make its first key good again. It
            // stays empty.
            None => place.position = NONE,
        }
        match waker {
            Some(waker) => waker.into_inner(),
            None => unreachable!("an entry of the heap points to a free place"),
        }
    }

    fn take_out(&mut self, position: usize) -> Waker {
        let place = self.heap[position].place;
        let end = self.heap.len() - 1;
        if position == end {
            self.heap.truncate(end);
        } else {
            let last = self.heap[end];
            let earlier = last.before(&self.heap[position]);
            self.heap.truncate(end);
            if earlier {
                self.move_up(position, last);
            } else {
                self.move_down(position, last);
            }
        }
        self.free_place(place)
    }

    #[inline]
    fn put(&mut self, position: usize, entry: HeapEntry) {
        self.heap[position] = entry;
        // As many positions as places, so it fits.
        self.places[entry.place as usize].position = position as u32;
    }

    /// Puts `entry` at `position` or further up; what was there is gone.
    /// Inlined, so that a new entry is never copied as a whole: it would be
    /// read in larger pieces than it was just written in, and wait for them.
    #[inline(always)]
    fn move_up(&mut self, mut position: usize, entry: HeapEntry) {
        while position > 0 {
            let above = (position - 1) / CHILDREN;
            if self.heap[above].before(&entry) {
                break;
            }
            self.put(position, self.heap[above]);
            position = above;
        }
        self.put(position, entry);
    }

    /// Puts `entry` at `position` or further down; what was there is gone.
    fn move_down(&mut self, mut position: usize, entry: HeapEntry) {
        loop {
            let below = position * CHILDREN + 1;
            let end = self.heap.len().min(below + CHILDREN);
            let Some(children) = self.heap.get(below..end).filter(|c| !c.is_empty()) else {
                break;
            };
            let mut first = 0;
            for other in 1..children.len() {
                if children[other].before(&children[first]) {
                    first = other;
                }
            }
            let child = children[first];
            if entry.before(&child) {
                break;
            }
            self.put(position, child);
            position = below + first;
        }
        self.put(position, entry);
    }
}

impl fmt::Debug for TimerQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimerQueue")
            .field("len", &self.len())
            .field("next_at", &self.next_at())
            .finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::hint::black_box;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    use std::time::Duration;

    struct Digit(Arc<AtomicU32>, u32);
    impl std::task::Wake for Digit {
        fn wake(self: Arc<Self>) {
            self.0.store(self.0.load(Relaxed) * 10 + self.1, Relaxed);
        }
    }

    #[test]
    fn case_n14_equal_deadlines_fire_in_creation_order() {
        let order = Arc::new(AtomicU32::new(0));
        let digit = |n| Waker::from(Arc::new(Digit(order.clone(), n)));
        let mut queue = TimerQueue::new();
        let start = Instant::now();
        let late = start + Duration::from_millis(2);
        queue.insert(late, digit(2));
        let gone = queue.insert(late, digit(9));
        queue.insert(late, digit(3));
        queue.insert(start + Duration::from_millis(1), digit(1));
        assert!(queue.remove(gone).is_some() && queue.remove(gone).is_none());
        assert!(queue.pop_due(start).is_none());
        while let Some(waker) = queue.pop_due(late) {
            waker.wake();
        }
        assert_eq!(order.load(Relaxed), 123);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_place_that_was_used_too_often_is_left_empty() {
        let mut queue = TimerQueue::new();
        let at = Instant::now();
        let first = queue.insert(at, Waker::noop().clone());
        assert!(queue.remove(first).is_some());
        queue.places[0].uses = u32::MAX;
        let last = queue.insert(at, Waker::noop().clone());
        assert_eq!((last.place(), last.uses()), (0, u32::MAX));
        assert!(queue.remove(last).is_some());
        let other = queue.insert(at, Waker::noop().clone());
        assert_eq!(other.place(), 1);
        assert!(queue.remove(first).is_none() && queue.remove(last).is_none());
        assert_eq!(queue.len(), 1);
    }

    #[test]
    fn nothing_grows_once_it_is_large_enough() {
        let mut queue = TimerQueue::new();
        let start = Instant::now();
        for round in 0..100_u64 {
            let keys: Vec<_> = (0..64)
                .map(|n| {
                    let at = start + Duration::from_nanos(n * 7 % 64 + round);
                    queue.insert(at, Waker::noop().clone())
                })
                .collect();
            for key in keys {
                assert!(queue.remove(key).is_some());
            }
        }
        assert_eq!((queue.places.len(), queue.len()), (64, 0));
    }

    /// Nanoseconds of one call of `step`, the best of several rounds.
    fn nanos(rounds: u32, calls: u32, mut step: impl FnMut(u32)) -> f64 {
        (0..rounds)
            .map(|_| {
                let begun = Instant::now();
                (0..calls).for_each(&mut step);
                begun.elapsed().as_nanos() as f64 / f64::from(calls)
            })
            .fold(f64::MAX, f64::min)
    }

    /// Prints what setting and giving up cost:
    /// `cargo test --release -p kinfolk-core --lib -- --ignored --nocapture cost`
    #[test]
    #[ignore = "a measurement"]
    #[expect(clippy::print_stderr, reason = "a measurement is for its reader")]
    fn the_cost_of_setting_and_giving_up() {
        const CALLS: u32 = 200_000;
        let start = Instant::now();
        let mut random = 1_u64;
        let mut draw = move || {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            random >> 33
        };
        for pending in [0_u32, 1_000, 1_000_000] {
            let mut queue = TimerQueue::new();
            let far = |draw: u64| start + Duration::from_micros(draw % 60_000_000);
            let mut keys: Vec<_> = (0..pending)
                .map(|_| queue.insert(far(draw()), Waker::noop().clone()))
                .collect();
            let same = nanos(5, CALLS, |n| {
                let at = start + Duration::from_nanos(30_000_000_000 + u64::from(n));
                let key = queue.insert(at, Waker::noop().clone());
                black_box(queue.remove(black_box(key)));
            });
            let first = nanos(5, CALLS, |_| {
                let key = queue.insert(start, Waker::noop().clone());
                black_box(queue.remove(black_box(key)));
            });
            let drawn = nanos(5, CALLS, |_| {
                let key = queue.insert(far(draw()), Waker::noop().clone());
                black_box(queue.remove(black_box(key)));
            });
            let turnover = nanos(5, CALLS, |_| {
                let key = queue.insert(far(draw()), Waker::noop().clone());
                if keys.is_empty() {
                    keys.push(key);
                } else {
                    let old = draw() as usize % keys.len();
                    let old = std::mem::replace(&mut keys[old], key);
                    black_box(queue.remove(old));
                }
            });
            let fired = queue.len().min(100_000);
            let popped = nanos(1, fired.max(1) as u32, |_| {
                black_box(queue.pop_due(start + Duration::from_secs(100)));
            });
            eprintln!(
                "{pending:>8} pending: insert + remove of one in the middle {same:.0} ns, \
                 of the first {first:.0} ns, of a random one {drawn:.0} ns, \
                 insert one and remove a random other {turnover:.0} ns, pop {popped:.0} ns"
            );
        }
    }
}
