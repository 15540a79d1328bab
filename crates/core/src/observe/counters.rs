//! Counts of what happened in one tree, each raised exactly once per event.
//! At rest they balance: created = completed + failed + cancelled.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::job::kind::JobKind;

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
            /// Jobs created, by kind.
            pub created_by_kind: Vec<(JobKind, u64)>,
        }

        const COUNTERS: usize = [$(stringify!($name)),*].len();

        impl Counters {
            /// Reads every counter.
            pub fn read(&self) -> CountersSnapshot {
                CountersSnapshot {
                    $($name: self.values[Count::$variant as usize].load(Relaxed),)*
                    created_by_kind: JobKind::ALL
                        .iter()
                        .map(|kind| (*kind, self.kinds[*kind as usize].load(Relaxed)))
                        .collect(),
                }
            }
        }

        impl fmt::Display for CountersSnapshot {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                $(writeln!(f, "{:24} {}", stringify!($name), self.$name)?;)*
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

/// The counters of one tree.
#[derive(Default)]
pub struct Counters {
    values: [AtomicU64; COUNTERS],
    kinds: [AtomicU64; JobKind::ALL.len()],
}

impl Counters {
    pub(crate) fn add(&self, what: Count) {
        self.values[what as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn created(&self, kind: JobKind) {
        self.add(Count::Created);
        self.kinds[kind as usize].fetch_add(1, Relaxed);
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

    /// Waits for the end of a job that are still registered.
    pub fn waiters_pending(&self) -> u64 {
        self.waiters_registered
            .saturating_sub(self.waiters_woken + self.waiters_removed)
    }
}
