//! What can be asked of a snapshot beyond what it has.

use kinfolk_core::TreeSnapshot;

use crate::diff::TreeDiff;
use crate::findings::{Findings, Rules};

/// Questions to a [`TreeSnapshot`]: what has grown since an earlier one, and what in it
/// deserves a look.
pub trait Examine {
    /// Returns what has grown since an earlier snapshot of the same tree: jobs of one name
    /// and spawn site below parents of one path, by how many, and which job keeps them open.
    /// What has grown only because there are more parents is counted with the parents.
    fn diff(&self, earlier: &TreeSnapshot) -> TreeDiff;

    /// Returns what the default [`Rules`] find. Rules that compare need an earlier snapshot:
    /// [`Rules::check`].
    fn findings(&self) -> Findings;
}

impl Examine for TreeSnapshot {
    fn diff(&self, earlier: &TreeSnapshot) -> TreeDiff {
        TreeDiff::new(self, earlier)
    }

    fn findings(&self) -> Findings {
        Rules::default().check(self, None)
    }
}
