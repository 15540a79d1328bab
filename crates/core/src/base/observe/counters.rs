//! Counts of what happened in one tree, each raised exactly once per event.
//! At rest they balance: created = completed + failed + cancelled.
//!
//! A thread that comes here first owns a shard from then on, and raises its
//! counts with a load and a store; numbers of new jobs it takes in blocks. One
//! that finds its shard taken shares the last one with others, atomically. A
//! reading is the sum of all.

use std::fmt;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed},
};

use crate::base::id::MOST_NUMBER;
use crate::base::kind::JobKind;
use crate::base::thread;

macro_rules! counters {
    ($($(#[$doc:meta])* $variant:ident $name:ident),* $(,)?) => {
        /// One counter.
        #[derive(Clone, Copy, Debug)]
        pub(crate) enum Count { $($variant),* }

        /// A reading of all counters of a tree.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct CountersSnapshot {
            $($(#[$doc])* pub $name: u64,)*
            /// Operations of i/o that were begun.
            pub io_submitted: u64,
            /// Operations of i/o that are over, whatever came of them.
            pub io_completed: u64,
            /// Of these, those that were ended early.
            pub io_cancelled: u64,
            /// Jobs created, by kind.
            pub created_by_kind: Vec<(JobKind, u64)>,
        }

        const COUNTERS: usize = [$(stringify!($name)),*].len();

        impl Counters {
            /// Reads every counter but those of i/o, which the host keeps.
            pub fn read(&self) -> CountersSnapshot {
                let sums = self.sums();
                let created_by_kind: Vec<_> = JobKind::ALL
                    .iter()
                    .map(|kind| (*kind, sums[COUNTERS + *kind as usize]))
                    .collect();
                let mut read = CountersSnapshot {
                    $($name: sums[Count::$variant as usize],)*
                    created_by_kind,
                    ..CountersSnapshot::default()
                };
                read.jobs_created = read.created_by_kind.iter().map(|(_, count)| count).sum();
                read
            }
        }

        impl fmt::Display for CountersSnapshot {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                $(writeln!(f, "{:24} {}", stringify!($name), self.$name)?;)*
                writeln!(f, "{:24} {}", "io_submitted", self.io_submitted)?;
                writeln!(f, "{:24} {}", "io_completed", self.io_completed)?;
                writeln!(f, "{:24} {}", "io_cancelled", self.io_cancelled)?;
                Ok(())
            }
        }
    };
}

counters! {
    /// Jobs attached to the tree, the root included.
    Created jobs_created,
    /// Jobs that ended completed.
    Completed jobs_completed,
    /// Jobs that ended failed.
    Failed jobs_failed,
    /// Jobs that ended cancelled.
    Cancelled jobs_cancelled,
    /// Spawns that were refused; they make no job.
    Refused jobs_refused,
    /// Futures that were dropped before they were done.
    ForceDropped jobs_force_dropped,
    /// Calls of `cancel` that moved a job, ours included.
    CancelRequested cancellations_requested,
    /// Waits for the end of a job that were registered.
    WaiterRegistered waiters_registered,
    /// Registered waits that the end woke.
    WaiterWoken waiters_woken,
    /// Registered waits that were given up before the end.
    WaiterRemoved waiters_removed,
    /// Timers set.
    TimerSet timers_set,
    /// Timers whose time came.
    TimerFired timers_fired,
    /// Timers given up before their time.
    TimerCancelled timers_cancelled,
}

/// How many threads may have a shard of their own.
const SHARDS: usize = 16;

/// How many numbers a thread takes at once. A tree that stays on one thread
/// numbers its jobs without a gap.
const BLOCK: u64 = 64;

const VALUES: usize = COUNTERS + JobKind::ALL.len();

/// The counts of one thread; a cache line begins with it.
#[derive(Default)]
#[repr(align(64))]
struct Shard {
    /// The number of the thread that owns it; 0 if none does yet.
    owner: AtomicU64,
    /// What is left of its block of numbers.
    next: AtomicU64,
    end: AtomicU64,
    values: [AtomicU64; VALUES],
}

/// The counters of one tree.
#[derive(Default)]
pub struct Counters {
    shards: [Shard; SHARDS],
    /// For threads without a shard.
    rest: Shard,
    /// Where the next block begins.
    numbers: AtomicU64,
}

/// All job numbers of a tree that were given out before a moment.
#[derive(Clone, Copy)]
pub(crate) struct Numbered(u64);

impl Counters {
    /// The counts of this thread, looked up once for several events.
    #[inline]
    pub(crate) fn here(&self) -> ThreadCounts<'_> {
        let me = thread::thread();
        let shard = &self.shards[me as usize % SHARDS];
        // Relaxed: only a thread itself makes it equal to its own number.
        let own = if shard.owner.load(Relaxed) == me {
            Some(shard)
        } else {
            Self::claim(shard, me)
        };
        ThreadCounts { own, all: self }
    }

    #[cold]
    fn claim(shard: &Shard, me: u64) -> Option<&Shard> {
        let mine = shard.owner.load(Relaxed) == 0
            && shard
                .owner
                .compare_exchange(0, me, Relaxed, Relaxed)
                .is_ok();
        mine.then_some(shard)
    }

    /// Where a block of numbers begins. They come round when they are used up,
    /// at the beginning of a block.
    #[inline(never)]
    fn next_block(&self) -> u64 {
        loop {
            let next = self.numbers.fetch_add(BLOCK, Relaxed) & MOST_NUMBER;
            if next <= MOST_NUMBER - BLOCK {
                return next;
            }
        }
    }

    /// The numbers that have been given out so far. A step that writes: it reads the
    /// newest value there is.
    pub(crate) fn numbered(&self) -> Numbered {
        Numbered(self.numbers.fetch_add(0, AcqRel))
    }

    /// True if a job with that number was made after `before` was asked for. False for a
    /// few of these too, the first of each thread: a thread takes its numbers in blocks.
    /// Asked under a lock under which that job was seen.
    pub(crate) fn is_newer(&self, number: u64, before: Numbered) -> bool {
        let since = self.numbers.load(Acquire).wrapping_sub(before.0);
        // Numbers come round: what counts is how far it is from there.
        number.wrapping_sub(before.0) & MOST_NUMBER < since
    }

    /// Each value of all threads together. Nothing was counted in a shard without an owner.
    fn sums(&self) -> [u64; VALUES] {
        let mut sums = [0; VALUES];
        let owned = self
            .shards
            .iter()
            .filter(|shard| shard.owner.load(Relaxed) != 0);
        for shard in owned.chain([&self.rest]) {
            for (sum, value) in sums.iter_mut().zip(&shard.values) {
                *sum += value.load(Relaxed);
            }
        }
        sums
    }

    #[inline]
    pub(crate) fn add(&self, what: Count) {
        self.here().add(what);
    }
}

/// The counters of a tree, as one thread raises them.
pub(crate) struct ThreadCounts<'a> {
    /// Its own shard, if it has one.
    own: Option<&'a Shard>,
    all: &'a Counters,
}

impl ThreadCounts<'_> {
    #[inline]
    fn raise(&self, at: usize) {
        match self.own {
            // Written by this thread only.
            Some(own) => {
                let value = &own.values[at];
                value.store(value.load(Relaxed) + 1, Relaxed);
            }
            None => {
                self.all.rest.values[at].fetch_add(1, Relaxed);
            }
        }
    }

    #[inline]
    pub(crate) fn add(&self, what: Count) {
        self.raise(what as usize);
    }

    /// A job was created. How many there are in all is the sum over the kinds.
    #[inline]
    pub(crate) fn created(&self, kind: JobKind) {
        self.raise(COUNTERS + kind as usize);
    }

    /// The number of a new job: [`MOST_NUMBER`] at the most.
    #[inline]
    pub(crate) fn next_number(&self) -> u64 {
        match self.own {
            Some(own) => {
                let mut next = own.next.load(Relaxed);
                if next == own.end.load(Relaxed) {
                    next = self.all.next_block();
                    own.end.store(next + BLOCK, Relaxed);
                }
                own.next.store(next + 1, Relaxed);
                next
            }
            None => self.all.numbers.fetch_add(1, Relaxed) & MOST_NUMBER,
        }
    }
}

impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.read().fmt(f)
    }
}

impl CountersSnapshot {
    /// Jobs that have not ended.
    pub fn living(&self) -> u64 {
        let ended = self.jobs_completed + self.jobs_failed + self.jobs_cancelled;
        // Read one after the other: in a busy tree the parts may be ahead.
        self.jobs_created.saturating_sub(ended)
    }

    /// Timers that are set and have neither fired nor been given up.
    pub fn timers_pending(&self) -> u64 {
        self.timers_set
            .saturating_sub(self.timers_fired + self.timers_cancelled)
    }

    /// Operations of i/o that were begun and are not over.
    pub fn io_pending(&self) -> u64 {
        self.io_submitted.saturating_sub(self.io_completed)
    }

    /// Waits for the end of a job that are still registered.
    pub fn waiters_pending(&self) -> u64 {
        self.waiters_registered
            .saturating_sub(self.waiters_woken + self.waiters_removed)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// More threads than there are shards: nothing is lost, no number is given
    /// twice.
    #[test]
    fn counts_and_numbers_are_exact_with_any_number_of_threads() {
        let counters = Counters::default();
        let numbers: Vec<u64> = std::thread::scope(|s| {
            let threads: Vec<_> = (0..3 * SHARDS)
                .map(|_| {
                    s.spawn(|| {
                        let of_one = || {
                            counters.add(Count::Completed);
                            counters.here().created(JobKind::Task);
                            counters.here().next_number()
                        };
                        (0..500).map(|_| of_one()).collect::<Vec<_>>()
                    })
                })
                .collect();
            let each = threads.into_iter().map(|thread| thread.join());
            each.flat_map(|numbers| numbers.expect("no panic"))
                .collect()
        });
        let all = 3 * SHARDS * 500;
        let read = counters.read();
        assert_eq!(read.jobs_completed, all as u64);
        assert_eq!(read.jobs_created, all as u64);
        assert_eq!(read.living(), 0);
        assert_eq!(numbers.iter().collect::<HashSet<_>>().len(), all);
    }

    #[test]
    fn numbers_come_round_before_they_run_over() {
        let counters = Counters::default();
        counters.numbers.store(MOST_NUMBER - 70, Relaxed);
        let own = counters.here();
        assert!(own.own.is_some());
        let numbers: Vec<u64> = (0..200).map(|_| own.next_number()).collect();
        assert!(numbers.iter().all(|number| *number <= MOST_NUMBER));
        assert_eq!(numbers[0], MOST_NUMBER - 70);
        assert!(numbers[BLOCK as usize] < 2 * BLOCK, "{numbers:?}");
        let rest = ThreadCounts {
            own: None,
            all: &counters,
        };
        counters.numbers.store(MOST_NUMBER, Relaxed);
        assert_eq!([rest.next_number(), rest.next_number()], [MOST_NUMBER, 0]);
    }

    #[test]
    fn what_was_numbered_before_is_not_newer() {
        // Also where numbers come round.
        for first in [0, MOST_NUMBER - 70, MOST_NUMBER - BLOCK, 3 * MOST_NUMBER] {
            let counters = Counters::default();
            counters.numbers.store(first, Relaxed);
            let number = || counters.here().next_number();
            let old: Vec<u64> = (0..2 * BLOCK).map(|_| number()).collect();
            let before = counters.numbered();
            let block: Vec<u64> = (0..BLOCK).map(|_| number()).collect();
            let new: Vec<u64> = (0..2 * BLOCK).map(|_| number()).collect();
            let newer = |number: &&u64| counters.is_newer(**number, before);
            assert_eq!(old.iter().filter(newer).count(), 0, "from {first}");
            assert_eq!(new.iter().filter(newer).count(), new.len(), "from {first}");
            assert_eq!(block.iter().filter(newer).count(), block.len());
        }
    }

    #[test]
    fn one_thread_numbers_without_a_gap() {
        let (one, other) = (Counters::default(), Counters::default());
        for n in 0..3 * BLOCK {
            assert_eq!(one.here().next_number(), n);
            assert_eq!(other.here().next_number(), n);
        }
    }
}
