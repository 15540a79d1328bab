//! The identity of a job: unique in the process, short when printed.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// The identity of a job. Unique among all jobs of the process.
///
/// It prints as `#7`: the job of that number in its tree. A tree on one thread
/// numbers its jobs in the order in which they are made; each further thread
/// takes its numbers in blocks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(u64);

/// Low bits: the job within its tree. High bits: the tree.
const LOCAL: u32 = 40;

impl JobId {
    pub(crate) fn new(tree: u64, local: u64) -> Self {
        debug_assert!(local < 1 << LOCAL);
        JobId(tree << LOCAL | local)
    }

    /// An identity for the handle of a refused task, which is in no tree.
    pub(crate) fn of_refused() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        JobId::new(0, NEXT.fetch_add(1, Ordering::Relaxed) & ((1 << LOCAL) - 1))
    }

    /// As a number, never 0: that one is a refused task's.
    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    /// The identity of that number; none for 0.
    pub(crate) fn from_bits(bits: u64) -> Option<Self> {
        (bits != 0).then_some(JobId(bits))
    }

    pub(crate) fn tree(self) -> u64 {
        self.0 >> LOCAL
    }

    /// The number of the job within its tree; the root is 0. The same in
    /// every replay of one seed.
    pub fn number(self) -> u64 {
        self.0 & ((1 << LOCAL) - 1)
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.number())
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
