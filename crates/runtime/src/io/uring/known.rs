//! The regions that a ring knows, and those of them it has registered.

use std::ptr::null_mut;
use std::sync::Arc;

use io_uring::Submitter;

use crate::io::region::{self, Region};

/// How many regions a ring has registered at most. With more of them, the later
/// ones are used as any memory is.
const SLOTS: u16 = 64;

enum At {
    /// Nobody has used it here yet.
    Untried,
    Slot(u16),
    /// The kernel does not want it, or there is no slot.
    Refused,
}

/// The regions that a ring knows.
#[derive(Default)]
pub(super) struct Known {
    version: usize,
    regions: Vec<(Arc<Region>, At)>,
    /// None before the first is registered.
    free: Option<Vec<u16>>,
}

impl Known {
    /// In which slot of the ring these bytes lie; none if they are registered
    /// nowhere.
    pub(super) fn slot(&mut self, ring: &Submitter<'_>, ptr: *const u8, len: u32) -> Option<u16> {
        self.refresh(ring);
        let len = len as usize;
        let (region, at) = (self.regions.iter_mut()).find(|known| known.0.holds(ptr, len))?;
        if let At::Untried = at {
            *at = match register(ring, &mut self.free, region) {
                Some(slot) => At::Slot(slot),
                None => At::Refused,
            };
        }
        match at {
            At::Slot(slot) => Some(*slot),
            At::Untried | At::Refused => None,
        }
    }

    /// Takes back what is off the list (G2), and takes note of what is new.
    pub(super) fn refresh(&mut self, ring: &Submitter<'_>) {
        if region::version() == self.version {
            return;
        }
        let (version, listed) = region::listed();
        self.version = version;
        let free = &mut self.free;
        self.regions.retain_mut(|(region, at)| {
            if listed.iter().any(|other| Arc::ptr_eq(other, region)) {
                return true;
            }
            match at {
                At::Slot(slot) if !take_back(ring, *slot) => {
                    // The kernel still has its pages: the addresses must never
                    // mean anything else (G1).
                    std::mem::forget(region.clone());
                }
                At::Slot(slot) => {
                    region.was_taken_back();
                    free.get_or_insert_default().push(*slot);
                }
                At::Untried | At::Refused => {}
            }
            false
        });
        for region in listed {
            if !self
                .regions
                .iter()
                .any(|known| Arc::ptr_eq(&known.0, &region))
            {
                self.regions.push((region, At::Untried));
            }
        }
    }
}

/// Registers it with the ring; the slot it lies in.
fn register(ring: &Submitter<'_>, free: &mut Option<Vec<u16>>, region: &Region) -> Option<u16> {
    let free = match free {
        Some(free) => free,
        None => {
            ring.register_buffers_sparse(SLOTS.into()).ok()?;
            free.insert((0..SLOTS).rev().collect())
        }
    };
    let slot = free.pop()?;
    let all = libc::iovec {
        iov_base: region.start().as_ptr().cast(),
        iov_len: region.len(),
    };
    // SAFETY: whoever asks holds the region until it was taken back (G1).
    match unsafe { ring.register_buffers_update(slot.into(), &[all], None) } {
        Ok(_) => {
            region.was_registered();
            Some(slot)
        }
        Err(_) => {
            free.push(slot);
            None
        }
    }
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

impl Drop for Known {
    fn drop(&mut self) {
        for (region, at) in &self.regions {
            if let At::Slot(_) = at {
                region.was_taken_back();
            }
        }
    }
}
