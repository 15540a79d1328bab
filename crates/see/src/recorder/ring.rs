//! One thread's ring of records. Its thread writes, any thread reads; neither waits for the
//! other. A record that is overwritten while it is read is recognised and left out.
//!
//! - **R1** One thread writes at a time: the one that owns the ring.
//! - **R2** Record *n* is in slot *n* modulo the number of slots. `head` counts the records that
//!   are complete, so the one being written is number `head`, over the oldest.
//! - **R3** A reader that has seen a word of record *j* sees `head` at *j* or further when it looks
//!   again: the writer stored `head` before a release fence and the word after it, the reader
//!   loads the word before an acquire fence and `head` after it. So what it has read as record *n*
//!   is that record if `head` is then at *n* plus the slots at most, and else unknown.
//!   Modelled in `a_reader_never_takes_half_a_record`.

use kinfolk_queue::sync::{AtomicU64, Ordering, fence};

/// The words of one record: 32 bytes.
pub(super) const WORDS: usize = 4;

pub(super) type Words = [u64; WORDS];

pub(super) struct RecordRing {
    head: AtomicU64,
    slots: Box<[[AtomicU64; WORDS]]>,
}

/// What a reader got: records in order, and the number of the next.
pub(super) struct RingPart {
    pub(super) records: Vec<Words>,
    pub(super) next: u64,
    /// How many were overwritten before they could be read.
    pub(super) lost: u64,
}

impl RecordRing {
    /// `slots` is a power of two.
    pub(super) fn new(slots: usize) -> RecordRing {
        assert!(slots.is_power_of_two());
        let empty = || std::array::from_fn(|_| AtomicU64::new(0));
        RecordRing {
            head: AtomicU64::new(0),
            slots: (0..slots).map(|_| empty()).collect(),
        }
    }

    /// Writes one record over the oldest. Called by the thread that owns the ring (R1).
    #[inline]
    pub(super) fn push(&self, record: Words) {
        let n = self.head.load(Ordering::Relaxed);
        // R3: pairs with the fence of the reader.
        fence(Ordering::Release);
        let slot = &self.slots[n as usize & (self.slots.len() - 1)];
        for (word, value) in slot.iter().zip(record) {
            word.store(value, Ordering::Relaxed);
        }
        // Pairs with the reader's first look: what is counted is complete.
        self.head.store(n + 1, Ordering::Release);
    }

    /// How many records were written.
    pub(super) fn written(&self) -> u64 {
        self.head.load(Ordering::Acquire)
    }

    /// The records from number `from` on, as far as they are still there.
    pub(super) fn read(&self, from: u64) -> RingPart {
        let slots = self.slots.len() as u64;
        let next = self.written();
        let oldest = next.saturating_sub(slots);
        let first = from.max(oldest);
        let mut records = Vec::with_capacity((next - first) as usize);
        for n in first..next {
            let slot = &self.slots[n as usize & (self.slots.len() - 1)];
            records.push(std::array::from_fn(|word| {
                slot[word].load(Ordering::Relaxed)
            }));
        }
        // R3: pairs with the fence of the writer.
        fence(Ordering::Acquire);
        let head = self.head.load(Ordering::Relaxed);
        // Record `head` may be on its way over record `head - slots`.
        let intact = (head + 1).saturating_sub(slots);
        let torn = intact.saturating_sub(first).min(next - first);
        records.drain(..torn as usize);
        RingPart {
            records,
            next,
            lost: first.saturating_sub(from) + torn,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    fn record(n: u64) -> Words {
        std::array::from_fn(|word| n * 4 + word as u64)
    }

    #[test]
    fn see_4_a_ring_keeps_the_latest_and_counts_the_lost() {
        let ring = RecordRing::new(4);
        (0..3).for_each(|n| ring.push(record(n)));
        let part = ring.read(0);
        assert_eq!(part.records, [record(0), record(1), record(2)]);
        assert_eq!((part.next, part.lost), (3, 0));
        (3..10).for_each(|n| ring.push(record(n)));
        // The oldest of four may be being overwritten.
        let part = ring.read(part.next);
        assert_eq!(part.records, [record(7), record(8), record(9)]);
        assert_eq!((part.next, part.lost), (10, 4));
        assert!(ring.read(10).records.is_empty());
    }

    #[test]
    fn see_4_a_reader_beside_a_busy_writer_gets_whole_records_in_order() {
        let ring = RecordRing::new(64);
        let over = AtomicBool::new(false);
        std::thread::scope(|s| {
            s.spawn(|| {
                (0..300_000).for_each(|n| ring.push(record(n)));
                over.store(true, Ordering::Release);
            });
            let (mut next, mut seen, mut lost) = (0, 0, 0);
            loop {
                let done = over.load(Ordering::Acquire);
                let part = ring.read(next);
                let first = next + part.lost;
                for (n, found) in (first..).zip(&part.records) {
                    assert_eq!(*found, record(n));
                }
                seen += part.records.len() as u64;
                lost += part.lost;
                next = part.next;
                if done {
                    break;
                }
            }
            assert_eq!(seen + lost, 300_000);
        });
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// R3.
    #[test]
    fn a_reader_never_takes_half_a_record() {
        loom::model(|| {
            let ring = Arc::new(RecordRing::new(2));
            let writes = ring.clone();
            let writer = thread::spawn(move || {
                (1..=3).for_each(|n| writes.push([n; WORDS]));
            });
            let part = ring.read(0);
            let first = part.next - part.records.len() as u64;
            for (n, found) in (first + 1..).zip(&part.records) {
                assert_eq!(*found, [n; WORDS]);
            }
            writer.join().unwrap();
        });
    }
}
