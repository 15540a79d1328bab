//! The tree of a job for a caller that may be outside of it: kept alive while it is used.

use crate::base::observe::Count;
use crate::engine::context;
use crate::engine::tree::{Shared, Tree};
use crate::record::header::Header;

/// The tree of a job, kept alive while we use it.
pub(crate) enum PinnedTree<'a> {
    /// We are inside a job of the same tree.
    Inside(&'a Shared),
    Owned(Tree),
}

impl std::ops::Deref for PinnedTree<'_> {
    type Target = Shared;
    fn deref(&self) -> &Shared {
        match self {
            PinnedTree::Inside(tree) => tree,
            PinnedTree::Owned(tree) => tree.shared(),
        }
    }
}

/// The tree of `h`, from anywhere; none if the job has ended.
#[inline]
pub(crate) fn tree_of(h: &Header) -> Option<PinnedTree<'_>> {
    context::with(|cx| tree_from(cx.current(), h))
}

/// The same for a caller that has looked up the current job.
#[inline]
pub(crate) fn tree_from<'a>(current: Option<&Header>, h: &'a Header) -> Option<PinnedTree<'a>> {
    if h.state.load().ended() {
        return None;
    }
    // `h` had not ended just now, the current job has not: then two trees have
    // two places.
    if current.is_some_and(|current| current.has_place_of(h)) {
        // SAFETY: the current job of the same tree has not ended. Noticed by
        // `a_job_of_another_tree_is_pinned_when_serials_come_round`.
        return Some(PinnedTree::Inside(unsafe { h.tree() }));
    }
    tree_from_outside(h)
}

#[cold]
fn tree_from_outside(h: &Header) -> Option<PinnedTree<'_>> {
    let locked = h.lock();
    let read = locked.read_parent();
    // SAFETY: if not ended: its ender cannot pass our lock while the read goes on.
    // Noticed by `parent_lookup_vs_end`, which holds in the same way.
    (!read.seen.ended()).then(|| PinnedTree::Owned(unsafe { h.tree() }.handle()))
}

/// Counts a spawn that an ended job refused. Its tree may be gone with it: it is
/// looked for by its number.
#[cold]
pub(crate) fn count_refused(h: &Header) {
    if let Some(tree) = Tree::with_number(h.id.tree()) {
        tree.shared().counters.add(Count::Refused);
    }
}
