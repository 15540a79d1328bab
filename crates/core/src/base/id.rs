//! The identity of a job: unique in the process, short when printed.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// The identity of a job. Unique among all jobs of all living trees of the
/// process, until a tree has numbered 2^40 jobs. Those of trees that are gone
/// come again after 2^24 trees.
///
/// It prints as `#7`: the job of that number in its tree. A tree on one thread
/// numbers its jobs in the order in which they are made; each further thread
/// takes its numbers in blocks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(u64);

/// Low bits: the job within its tree. High bits: the tree.
const LOCAL: u32 = 40;

/// The greatest number of a job within its tree.
pub(crate) const MOST_NUMBER: u64 = (1 << LOCAL) - 1;

/// How many trees can be told apart by the identities of their jobs.
pub(crate) const MOST_TREE_NUMBERS: u64 = (1 << (u64::BITS - LOCAL)) - 1;

impl JobId {
    /// `tree` is [`tree_number`](JobId::tree_number) of one, and `local`
    /// [`MOST_NUMBER`] at the most: counting wraps around there.
    #[inline]
    pub(crate) fn new(tree: u64, local: u64) -> Self {
        JobId(tree << LOCAL | local)
    }

    /// What the identities of a tree's jobs show of its serial: never 0, which
    /// is for refused tasks. Two trees may have the same: it says nothing about
    /// what is safe to touch.
    pub(crate) fn tree_number(serial: u64) -> u64 {
        serial % MOST_TREE_NUMBERS + 1
    }

    /// An identity for the handle of a refused task, which is in no tree.
    pub(crate) fn of_refused() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        JobId::new(0, NEXT.fetch_add(1, Ordering::Relaxed) & MOST_NUMBER)
    }

    /// Returns the identity as one number, never 0: for records that outlive the job.
    /// [`from_bits`](JobId::from_bits) takes it back.
    #[inline]
    pub fn bits(self) -> u64 {
        self.0
    }

    /// Returns the identity of that number; none for 0. A number that no job had makes the
    /// identity of no job.
    #[inline]
    pub fn from_bits(bits: u64) -> Option<Self> {
        (bits != 0).then_some(JobId(bits))
    }

    pub(crate) fn tree(self) -> u64 {
        self.0 >> LOCAL
    }

    /// Returns true if both are jobs of one tree, so that their [numbers](JobId::number) tell
    /// them apart.
    pub fn shares_tree_with(self, other: JobId) -> bool {
        self.tree() == other.tree()
    }

    /// Returns the number of the job within its tree; the root is 0. The same in
    /// every replay of one seed.
    pub fn number(self) -> u64 {
        self.0 & MOST_NUMBER
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
