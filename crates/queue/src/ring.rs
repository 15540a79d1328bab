//! A worker's own queue: a bounded ring that its owner fills and empties and
//! that others may steal from. First in, first out.
//!
//! - **R1** Only the owner writes `tail` and the slots.
//! - **R2** Slots from `head` to `tail` are full. The thread that moves `head` forward
//!   by compare-and-exchange owns what it passed.
//! - **R3** A slot is written again only after `head` has passed it: the owner
//!   looks at `head` before it pushes.
//!
//! A thief reads slots before its exchange, so it may read one that is being
//! written again; then `head` has moved and its exchange fails. Both counters
//! are 64 bits and never come round. Modelled in `steal_vs_pop`.
//!
//! | rule | noticed by |
//! |---|---|
//! | R1, R3 | `steal_vs_pop` |
//! | R2 | `steal_vs_pop`, `two_thieves` |

use std::ptr::{self, NonNull};

use crate::sync::{AtomicPtr, AtomicU64, Ordering::*, RING};

/// How many a thief takes at once: so many that the next visit is far off, so few
/// that there is room for them where they go.
pub const STEAL_BATCH: usize = if RING / 2 < 128 { RING / 2 } else { 128 };

/// A cache line of its own, so that owner and thieves do not meet on it.
#[repr(align(64))]
pub(crate) struct CacheLine<T>(pub(crate) T);

/// What is queued: a turn as a pointer.
pub(crate) type Item = NonNull<()>;

pub(crate) struct Ring {
    head: CacheLine<AtomicU64>,
    tail: CacheLine<AtomicU64>,
    slots: Box<[AtomicPtr<()>]>,
}

impl Ring {
    pub(crate) fn new() -> Ring {
        Ring {
            head: CacheLine(AtomicU64::new(0)),
            tail: CacheLine(AtomicU64::new(0)),
            slots: (0..RING).map(|_| AtomicPtr::new(ptr::null_mut())).collect(),
        }
    }

    #[inline]
    fn slot(&self, at: u64) -> &AtomicPtr<()> {
        &self.slots[at as usize % RING]
    }

    /// Puts one at the end, and says how many there are; gives it back if the ring
    /// is full. The owner's.
    #[inline]
    pub(crate) fn push(&self, item: Item) -> Result<usize, Item> {
        let tail = self.tail.0.load(Relaxed);
        // Pairs with the exchange of whoever emptied the slot (R3).
        let len = (tail - self.head.0.load(Acquire)) as usize;
        if len >= RING {
            return Err(item);
        }
        self.slot(tail).store(item.as_ptr(), Relaxed);
        // Shows the slot to thieves.
        self.tail.0.store(tail + 1, Release);
        Ok(len + 1)
    }

    /// Takes the first out. The owner's.
    #[inline]
    pub(crate) fn pop(&self) -> Option<Item> {
        let tail = self.tail.0.load(Relaxed);
        let mut head = self.head.0.load(Relaxed);
        while head != tail {
            let item = self.slot(head).load(Relaxed);
            match self
                .head
                .0
                .compare_exchange_weak(head, head + 1, AcqRel, Relaxed)
            {
                Ok(_) => return NonNull::new(item),
                Err(now) => head = now,
            }
        }
        None
    }

    /// Where the queue begins and ends, as anybody sees it.
    #[inline]
    pub(crate) fn span(&self) -> (u64, u64) {
        let head = self.head.0.load(Acquire);
        (head, self.tail.0.load(Acquire).max(head))
    }

    /// Takes the first half of what lies before `until` out, or [`STEAL_BATCH`], and gives
    /// it to `take`, in order; one at least if there is one. Anybody's.
    pub(crate) fn steal(&self, until: u64, mut take: impl FnMut(Item)) -> usize {
        let mut stolen = [ptr::null_mut(); STEAL_BATCH];
        let mut head = self.head.0.load(Acquire);
        loop {
            // Pairs with the owner's push: the slots before it are written.
            let tail = self.tail.0.load(Acquire).min(until);
            let there = tail.saturating_sub(head) as usize;
            let count = there.div_ceil(2).min(stolen.len());
            if count == 0 {
                return 0;
            }
            for (n, place) in stolen[..count].iter_mut().enumerate() {
                *place = self.slot(head + n as u64).load(Relaxed);
            }
            match self
                .head
                .0
                .compare_exchange(head, head + count as u64, AcqRel, Acquire)
            {
                Ok(_) => {
                    for item in &stolen[..count] {
                        if let Some(item) = NonNull::new(*item) {
                            take(item);
                        }
                    }
                    return count;
                }
                // The owner or another thief was faster.
                Err(now) => head = now,
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn item(n: usize) -> Item {
        NonNull::new(ptr::without_provenance_mut(n)).expect("not null")
    }

    #[test]
    fn comes_out_as_it_went_in() {
        let ring = Ring::new();
        for n in 1..=RING {
            ring.push(item(n)).expect("room");
        }
        assert_eq!(ring.push(item(999)), Err(item(999)));
        assert_eq!(ring.pop(), Some(item(1)));
        let mut stolen = Vec::new();
        assert_eq!(ring.steal(5, |item| stolen.push(item)), 2);
        assert_eq!(stolen, [item(2), item(3)]);
        assert_eq!(ring.pop(), Some(item(4)));
        let (head, tail) = ring.span();
        assert_eq!((tail - head) as usize, RING - 4);
        assert_eq!(ring.steal(u64::MAX, |_| {}), STEAL_BATCH);
    }

    #[test]
    fn steals_nothing_that_is_younger() {
        let ring = Ring::new();
        ring.push(item(1)).expect("room");
        let (_, tail) = ring.span();
        assert_eq!(ring.pop(), Some(item(1)));
        ring.push(item(2)).expect("room");
        assert_eq!(ring.steal(tail, |_| {}), 0);
        assert_eq!(ring.pop(), Some(item(2)));
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    fn item(n: usize) -> Item {
        NonNull::new(ptr::without_provenance_mut(n)).expect("not null")
    }

    #[test]
    fn steal_vs_pop() {
        loom::model(|| {
            let ring = Arc::new(Ring::new());
            ring.push(item(1)).expect("room");
            ring.push(item(2)).expect("room");
            let thief = {
                let ring = ring.clone();
                thread::spawn(move || {
                    let mut got = Vec::new();
                    ring.steal(u64::MAX, |item| got.push(item.as_ptr().addr()));
                    got
                })
            };
            let mut got = Vec::new();
            got.extend(ring.pop().map(|item| item.as_ptr().addr()));
            // The slots that were emptied are used again.
            for n in 3..=5 {
                ring.push(item(n)).expect("room");
            }
            got.extend(ring.pop().map(|item| item.as_ptr().addr()));
            let mut all = thief.join().expect("the thief");
            all.extend(got);
            while let Some(item) = ring.pop() {
                all.push(item.as_ptr().addr());
            }
            all.sort_unstable();
            assert_eq!(all, [1, 2, 3, 4, 5], "each comes out once");
        });
    }

    #[test]
    fn two_thieves() {
        loom::model(|| {
            let ring = Arc::new(Ring::new());
            for n in 1..=3 {
                ring.push(item(n)).expect("room");
            }
            let thieves: Vec<_> = (0..2)
                .map(|_| {
                    let ring = ring.clone();
                    thread::spawn(move || {
                        let mut got = Vec::new();
                        ring.steal(u64::MAX, |item| got.push(item.as_ptr().addr()));
                        got
                    })
                })
                .collect();
            let mut all = Vec::new();
            all.extend(ring.pop().map(|item| item.as_ptr().addr()));
            for thief in thieves {
                all.extend(thief.join().expect("a thief"));
            }
            while let Some(item) = ring.pop() {
                all.push(item.as_ptr().addr());
            }
            all.sort_unstable();
            assert_eq!(all, [1, 2, 3], "each comes out once");
        });
    }
}
