//! Which cancels of a tree need another look, and when. What a look does is in
//! [`patience`](crate::engine::patience).

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::base::patience::Patience;
use crate::base::sync::{Mutex, MutexGuard};
use crate::base::timer_queue::TimerKey;
use crate::record::cold::SweepKey;
use crate::record::header::JobRef;

pub(crate) struct Sweeper {
    inner: Mutex<Inner>,
    /// The shortest patience in the tree, in nanoseconds.
    pub(crate) shortest: AtomicU64,
}

#[derive(Default)]
pub(crate) struct Inner {
    /// The jobs where cancels entered, by the time of their next look. The key of
    /// an entry stands in the cold part of its job, and each such key has an
    /// entry here: both change under this lock, with the job's lock inside it.
    pub(crate) due: BTreeMap<SweepKey, JobRef>,
    pub(crate) next: u64,
    pub(crate) armed: Option<TimerKey>,
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Sweeper {
    pub(crate) fn new(patience: Patience) -> Sweeper {
        let sweeper = Sweeper {
            inner: Mutex::new(Inner::default()),
            shortest: AtomicU64::new(u64::MAX),
        };
        sweeper.heed(patience);
        sweeper
    }

    /// A job with this patience is in the tree.
    pub(crate) fn heed(&self, patience: Patience) {
        let shortest = nanos(patience.unaware.min(patience.cleanup));
        self.shortest.fetch_min(shortest, Relaxed);
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
