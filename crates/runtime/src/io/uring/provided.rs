//! The buffers of a group that the kernel may fill: a ring of its own, from
//! which it takes one when there are bytes to receive.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::Submitter;
use io_uring::types::BufRingEntry;

use crate::io::buf::{Aligned, IoBufMut};
use crate::io::buffer_pool::BufferGroup;

const PAGE: usize = 4096;

/// The buffers of a group that the kernel may fill.
pub(super) struct Provided {
    group: Arc<BufferGroup>,
    /// Under which number the kernel knows them.
    pub(super) bgid: u16,
    /// Reached through `entries` only. The kernel reads there until it was told
    /// not to, or the ring is closed.
    _memory: Aligned<PAGE>,
    entries: *mut BufRingEntry,
    mask: u16,
    tail: u16,
    /// Empty in between.
    moved: Vec<u16>,
}

// SAFETY: the memory is its own.
unsafe impl Send for Provided {}

impl Provided {
    /// Tells the kernel of them.
    pub(super) fn register(
        submitter: &Submitter<'_>,
        group: Arc<BufferGroup>,
        bgid: u16,
    ) -> io::Result<Provided> {
        let count = group.count().next_power_of_two();
        let bytes = usize::from(count) * size_of::<BufRingEntry>();
        let mut memory = Aligned::zeroed(bytes.next_multiple_of(PAGE));
        let entries = memory.ptr_mut();
        // SAFETY: the memory is there until it is dropped, which is after
        // `unregister` or with the ring: the kernel holds the pages meanwhile.
        unsafe { submitter.register_buf_ring_with_flags(entries as u64, count, bgid, 0) }?;
        Ok(Provided {
            group,
            bgid,
            _memory: memory,
            entries: entries.cast(),
            mask: count - 1,
            tail: 0,
            moved: Vec::new(),
        })
    }

    pub(super) fn is_of(&self, group: &Arc<BufferGroup>) -> bool {
        Arc::ptr_eq(&self.group, group)
    }

    /// No operation, no chunk and no pool refers to the group.
    pub(super) fn is_forgotten(&self) -> bool {
        Arc::strong_count(&self.group) == 1
    }

    /// Hands what is free over to the kernel.
    pub(super) fn stock(&mut self) {
        self.group.take_all(&mut self.moved);
        if self.moved.is_empty() {
            return;
        }
        for number in self.moved.drain(..) {
            let at = usize::from(self.tail & self.mask);
            // SAFETY: within the memory. No more are in the ring than there are
            // buffers, so the kernel is done with this place. Only these three
            // fields are written: the tail lies in the fourth of the first.
            unsafe {
                let entry = &mut *self.entries.add(at);
                entry.set_addr(self.group.buffer_ptr(number) as u64);
                entry.set_len(self.group.size());
                entry.set_bid(number);
            }
            self.tail = self.tail.wrapping_add(1);
        }
        // SAFETY: the tail lies in the first entry, which is there.
        let tail = unsafe { &*BufRingEntry::tail(self.entries).cast::<AtomicU16>() };
        // Pairs with the kernel's load: it sees the entries before the tail.
        tail.store(self.tail, Ordering::Release);
    }
}

/// The kernel forgets them; if it does not, their memory is leaked.
pub(super) fn unregister(submitter: &Submitter<'_>, provided: Provided) {
    if submitter.unregister_buf_ring(provided.bgid).is_err() {
        std::mem::forget(provided);
    }
}

/// A number that none of them has.
pub(super) fn free_bgid(provided: &[Provided]) -> u16 {
    let used = |bgid| provided.iter().any(|other| other.bgid == bgid);
    (0..u16::MAX).find(|bgid| !used(*bgid)).unwrap_or(0)
}
