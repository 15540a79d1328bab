//! The regions that a ring knows, and those of them it has registered.

use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use io_uring::Submitter;

use crate::io::region::{self, Region};

/// How many parts of regions a ring has registered at most. With more of them, the
/// later ones are used as any memory is.
const SLOTS: u16 = 64;

/// What became of a part.
#[derive(Clone, Copy)]
enum PartState {
    /// Not used here yet.
    Untried,
    Slot(u16),
    /// The kernel does not want it, or there is no slot.
    Refused,
}

/// A region, and its parts.
struct RingRegion {
    region: Arc<Region>,
    parts: Vec<PartState>,
}

impl RingRegion {
    fn slots(&self) -> impl Iterator<Item = u16> {
        self.parts.iter().filter_map(|at| match at {
            PartState::Slot(slot) => Some(*slot),
            PartState::Untried | PartState::Refused => None,
        })
    }
}

/// The regions that a ring knows.
#[derive(Default)]
pub(super) struct RegisteredRegions {
    version: usize,
    regions: Vec<RingRegion>,
    /// None before the first is registered.
    free: Option<Vec<u16>>,
}

impl RegisteredRegions {
    /// In which slot of the ring these bytes lie; none if they are registered
    /// nowhere.
    pub(super) fn slot(&mut self, ring: &Submitter<'_>, ptr: *const u8, len: u32) -> Option<u16> {
        self.refresh(ring);
        let len = len as usize;
        let entry = (self.regions.iter_mut()).find(|known| known.region.holds(ptr, len))?;
        let part = entry.region.part_of(ptr, len)?;
        if let PartState::Untried = entry.parts[part] {
            let first = entry.slots().next().is_none();
            entry.parts[part] = match register(ring, &mut self.free, entry.region.part(part)) {
                Some(slot) => PartState::Slot(slot),
                None => PartState::Refused,
            };
            if first && entry.slots().next().is_some() {
                entry.region.was_registered();
            }
        }
        match entry.parts[part] {
            PartState::Slot(slot) => Some(slot),
            PartState::Untried | PartState::Refused => None,
        }
    }

    /// Takes back what is off the list (G2), and takes note of what is new.
    pub(super) fn refresh(&mut self, ring: &Submitter<'_>) {
        if region::version() == self.version {
            return;
        }
        let (version, listed) = region::listed();
        self.version = version;
        let is_listed =
            |entry: &mut RingRegion| listed.iter().any(|other| Arc::ptr_eq(other, &entry.region));
        let gone = self.regions.extract_if(.., |entry| !is_listed(entry));
        let gone: Vec<RingRegion> = gone.collect();
        for entry in &gone {
            let mut registered = false;
            for slot in entry.slots() {
                registered = true;
                match take_back(ring, slot) {
                    true => self.free.get_or_insert_default().push(slot),
                    // The kernel still has its pages: the addresses must never
                    // mean anything else (G1).
                    false => std::mem::forget(entry.region.clone()),
                }
            }
            if registered {
                entry.region.was_taken_back();
            }
        }
        if !gone.is_empty() {
            // There may be a slot now, or memory that may be pinned.
            self.try_again();
        }
        for region in listed {
            let known = |entry: &RingRegion| Arc::ptr_eq(&entry.region, &region);
            if !self.regions.iter().any(known) {
                let parts = vec![PartState::Untried; region.parts()];
                self.regions.push(RingRegion { region, parts });
            }
        }
    }

    /// What was refused is tried again when it is used.
    fn try_again(&mut self) {
        for at in self.regions.iter_mut().flat_map(|entry| &mut entry.parts) {
            if let PartState::Refused = at {
                *at = PartState::Untried;
            }
        }
    }
}

/// Registers a part with the ring; the slot it lies in.
fn register(
    ring: &Submitter<'_>,
    free: &mut Option<Vec<u16>>,
    (start, len): (NonNull<u8>, usize),
) -> Option<u16> {
    let free = match free {
        Some(free) => free,
        None => {
            ring.register_buffers_sparse(SLOTS.into()).ok()?;
            free.insert((0..SLOTS).rev().collect())
        }
    };
    let slot = free.pop()?;
    let all = libc::iovec {
        iov_base: start.as_ptr().cast(),
        iov_len: len,
    };
    // SAFETY: the caller holds the region until it was taken back (G1).
    let registered = unsafe { ring.register_buffers_update(slot.into(), &[all], None) };
    if registered.is_err() {
        free.push(slot);
        return None;
    }
    Some(slot)
}

/// Empties a slot; false if the kernel does not.
fn take_back(ring: &Submitter<'_>, slot: u16) -> bool {
    let nothing = libc::iovec {
        iov_base: null_mut(),
        iov_len: 0,
    };
    // SAFETY: it leads nowhere.
    unsafe { ring.register_buffers_update(slot.into(), &[nothing], None) }.is_ok()
}

impl Drop for RegisteredRegions {
    fn drop(&mut self) {
        for entry in &self.regions {
            if entry.slots().next().is_some() {
                entry.region.was_taken_back();
            }
        }
    }
}
