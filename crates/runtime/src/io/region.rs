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

/// Memory for buffers, in one piece, that stays where it is.
pub(crate) struct Region {
    start: NonNull<u8>,
    layout: Layout,
    /// How many rings have registered it.
    rings: AtomicUsize,
}

// SAFETY: it only owns the memory; who touches it is decided by the pool, one
// buffer at a time.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    fn zeroed(len: usize) -> Region {
        assert!(len > 0, "a region has room for something");
        let layout = Layout::from_size_align(len, PAGE).expect("less than half of all addresses");
        // SAFETY: the size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else {
            handle_alloc_error(layout);
        };
        Region {
            start,
            layout,
            rings: AtomicUsize::new(0),
        }
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn len(&self) -> usize {
        self.layout.size()
    }

    /// True if all of these bytes lie in it.
    pub(crate) fn holds(&self, ptr: *const u8, len: usize) -> bool {
        let begin = ptr.addr().wrapping_sub(self.start.as_ptr().addr());
        begin < self.len() && len <= self.len() - begin
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
        // no ring (G1, G2).
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
pub(crate) struct Listed(Arc<Region>);

impl Listed {
    pub(crate) fn zeroed(len: usize) -> Listed {
        let region = Arc::new(Region::zeroed(len));
        let mut list = list();
        list.push(region.clone());
        VERSION.fetch_add(1, Ordering::AcqRel);
        drop(list);
        Listed(region)
    }

    pub(crate) fn region(&self) -> &Region {
        &self.0
    }
}

impl Drop for Listed {
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
        let listed = Listed::zeroed(2 * PAGE);
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
    fn a_region_is_listed_while_it_is_used() {
        let before = version();
        let listed = Listed::zeroed(PAGE);
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
