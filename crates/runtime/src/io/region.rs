//! Memory that rings may have registered, and the list of it.
//!
//! A ring that registers a region works on its pages, wherever the addresses lead
//! later. So:
//!
//! **G1** A ring holds a reference to each region it has registered, until it has
//! taken that back: the addresses mean nothing else meanwhile.
//! **G2** A region is on the list as long as a pool or one of its buffers is there.
//! An operation owns its buffer: what is off the list is under way nowhere.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a region, and each buffer in it, begins at a multiple of.
pub(crate) const PAGE: usize = 4096;

/// More than that the system does not register in one part.
const MOST: usize = 1 << 30;

/// Memory for buffers, in one piece, that stays where it is.
pub(crate) struct Region {
    start: NonNull<u8>,
    layout: Layout,
    /// It is registered in parts of so many bytes; the last may be shorter. Each
    /// buffer lies in one of them.
    part: usize,
    /// How many rings have registered it.
    rings: AtomicUsize,
}

// SAFETY: it only owns the memory; who touches it is decided by the pool, one
// buffer at a time.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    fn zeroed(len: usize, stride: usize, most: usize) -> Region {
        assert!(len > 0 && stride > 0, "a region has room for something");
        let layout = Layout::from_size_align(len, PAGE).expect("less than half of all addresses");
        // SAFETY: the size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else {
            handle_alloc_error(layout);
        };
        Region {
            start,
            layout,
            part: (most / stride).max(1) * stride,
            rings: AtomicUsize::new(0),
        }
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn len(&self) -> usize {
        self.layout.size()
    }

    fn offset(&self, ptr: *const u8) -> usize {
        ptr.addr().wrapping_sub(self.start.as_ptr().addr())
    }

    /// True if all of these bytes lie in it.
    pub(crate) fn holds(&self, ptr: *const u8, len: usize) -> bool {
        let begin = self.offset(ptr);
        begin < self.len() && len <= self.len() - begin
    }

    /// How many parts it has.
    pub(crate) fn parts(&self) -> usize {
        self.len().div_ceil(self.part)
    }

    /// Where a part lies, and how long it is.
    pub(crate) fn part(&self, n: usize) -> (NonNull<u8>, usize) {
        let begin = n * self.part;
        assert!(begin < self.len(), "part {n} of {}", self.parts());
        // SAFETY: it lies within the memory.
        let start = unsafe { self.start.add(begin) };
        (start, self.part.min(self.len() - begin))
    }

    /// In which part all of these bytes lie, which the region holds.
    pub(crate) fn part_of(&self, ptr: *const u8, len: usize) -> Option<usize> {
        let begin = self.offset(ptr);
        let n = begin / self.part;
        (begin + len <= (n + 1) * self.part).then_some(n)
    }

    pub(crate) fn rings(&self) -> usize {
        self.rings.load(Ordering::Relaxed)
    }

    pub(crate) fn was_registered(&self) {
        self.rings.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn was_taken_back(&self) {
        self.rings.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout; no buffer leads here any more, and
        // no ring (G1, G2). Noticed by
        // `memory_that_was_registered_can_be_used_for_something_else`.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

static LIST: Mutex<Vec<Arc<Region>>> = Mutex::new(Vec::new());

/// Changes with the list; 0 if there never was one.
static VERSION: AtomicUsize = AtomicUsize::new(0);

fn list() -> MutexGuard<'static, Vec<Arc<Region>>> {
    LIST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Which list it is by now. Whoever has a buffer sees one that its region is on:
/// the buffer came here from where it was put there.
pub(crate) fn version() -> usize {
    VERSION.load(Ordering::Acquire)
}

/// The list, and which one it is.
pub(crate) fn listed() -> (usize, Vec<Arc<Region>>) {
    let list = list();
    (version(), list.clone())
}

/// A region that is on the list until this is dropped.
pub(crate) struct ListedRegion(Arc<Region>);

impl ListedRegion {
    /// Room for buffers that begin at each multiple of `stride`.
    pub(crate) fn zeroed(len: usize, stride: usize) -> ListedRegion {
        ListedRegion::in_parts(len, stride, MOST)
    }

    /// As above, with parts of `most` bytes at most.
    pub(crate) fn in_parts(len: usize, stride: usize, most: usize) -> ListedRegion {
        let region = Arc::new(Region::zeroed(len, stride, most));
        let mut list = list();
        list.push(region.clone());
        VERSION.fetch_add(1, Ordering::AcqRel);
        drop(list);
        ListedRegion(region)
    }

    pub(crate) fn region(&self) -> &Region {
        &self.0
    }
}

impl Drop for ListedRegion {
    fn drop(&mut self) {
        let mut list = list();
        list.retain(|other| !Arc::ptr_eq(other, &self.0));
        VERSION.fetch_add(1, Ordering::AcqRel);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_region_knows_its_bytes() {
        let listed = ListedRegion::zeroed(2 * PAGE, PAGE);
        let region = listed.region();
        let start = region.start().as_ptr().cast_const();
        assert!(region.holds(start, 2 * PAGE));
        assert!(region.holds(start.wrapping_add(PAGE), PAGE));
        assert!(!region.holds(start.wrapping_add(1), 2 * PAGE));
        assert!(!region.holds(start.wrapping_sub(1), 2));
        assert!(!region.holds(start.wrapping_add(2 * PAGE), 1));
        assert!(!region.holds(start, usize::MAX));
    }

    #[test]
    fn a_buffer_lies_in_one_part_of_a_region() {
        // Five buffers of two pages, and five pages at most in a part.
        let listed = ListedRegion::in_parts(10 * PAGE, 2 * PAGE, 5 * PAGE);
        let region = listed.region();
        let at = |page: usize| {
            region
                .start()
                .as_ptr()
                .wrapping_add(page * PAGE)
                .cast_const()
        };
        assert_eq!(region.parts(), 3);
        let lens = [0, 1, 2].map(|n| region.part(n).1);
        assert_eq!(lens, [4 * PAGE, 4 * PAGE, 2 * PAGE]);
        assert_eq!(region.part(2).0.as_ptr().cast_const(), at(8));
        let parts = [0, 2, 4, 6, 8].map(|page| region.part_of(at(page), 2 * PAGE));
        assert_eq!(parts, [0, 0, 1, 1, 2].map(Some));
        assert_eq!(region.part_of(at(3), 2 * PAGE), None, "two of them");
        // A buffer that is longer than a part may be is one by itself.
        let long = ListedRegion::in_parts(4 * PAGE, 2 * PAGE, PAGE);
        assert_eq!(long.region().parts(), 2);
    }

    #[test]
    fn a_region_is_listed_while_it_is_used() {
        let before = version();
        let listed = ListedRegion::zeroed(PAGE, PAGE);
        let there = version();
        assert!(there > before);
        let is_there = |region: &Region| {
            let (_, all) = super::listed();
            all.iter()
                .any(|other| std::ptr::eq(&raw const **other, region))
        };
        assert!(is_there(listed.region()));
        let region = listed.0.clone();
        drop(listed);
        assert!(version() > there);
        assert!(!is_there(&region));
    }
}
