//! The trace that a pending wait leaves in its job: a count, if the wait is
//! polled under the job's own waker, or a leaf in the job's list, if it is
//! polled under a foreign one. The count costs one addition; the list reaches
//! leaves inside `join!` and `FuturesUnordered`.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Waker;

use crate::base::list::Key;
use crate::base::unwind::{KeptWaker, wake_by_ref};
use crate::base::wait_kind::WaitKind;
use crate::engine::context;
use crate::record::header::{Header, JobRef, Site};
use crate::record::state;

/// One wait of this library, inside the future that waits.
pub(crate) struct Wait {
    /// The job that counts this wait and the poll in which it did. Compared,
    /// and dereferenced only if it is the current job.
    counted: *const Header,
    /// The drop takes it out, and leaves nothing to drop.
    leaf: ManuallyDrop<Option<Box<Leaf>>>,
    poll: u32,
    /// The wait has woken itself because its job was cancelled; once is enough.
    /// As wide as `poll`: with padding behind it, a new wait would be written
    /// in parts and read back as a whole (a store-forwarding stall).
    noticed: u32,
}

const _: () = assert!(size_of::<Wait>() == 2 * size_of::<usize>() + 8);

struct Leaf {
    job: JobRef,
    key: Key,
}

// SAFETY: `counted` is only compared with the current job of the thread.
unsafe impl Send for Wait {}
// SAFETY: as above; nothing is reachable through a shared reference.
unsafe impl Sync for Wait {}

impl Wait {
    pub(crate) const fn new() -> Wait {
        Wait {
            counted: ptr::null(),
            leaf: ManuallyDrop::new(None),
            poll: 0,
            noticed: 0,
        }
    }

    /// The future is about to return Pending.
    pub(crate) fn pending(&mut self, waker: &Waker, kind: WaitKind, site: Site) {
        context::with(|cx| match cx.current() {
            Some(h) => self.pending_in(cx, h, waker, kind, site),
            None => self.unlist(),
        });
    }

    /// The same for a caller that has already read the current job, `h`.
    #[inline]
    pub(crate) fn pending_in(
        &mut self,
        cx: &context::Context,
        h: &Header,
        waker: &Waker,
        kind: WaitKind,
        site: Site,
    ) {
        h.wait_kind.store(kind as u8, Relaxed);
        h.wait_site.store(site.0, Relaxed);
        if !cx.polled_with(waker) {
            return self.list(JobRef::from_header(h), waker);
        }
        let poll = h.polls.load(Relaxed);
        if !ptr::eq(self.counted, h) || self.poll != poll {
            h.waits
                .store(h.waits.load(Relaxed).saturating_add(1), Relaxed);
            self.counted = h;
            self.poll = poll;
        }
        self.unlist();
    }

    /// True if the job `h` has counted this wait, in this poll or an earlier
    /// one.
    pub(crate) fn is_counted_by(&self, h: &Header) -> bool {
        ptr::eq(h, self.counted)
    }

    /// Lists a leaf that the job's own waker does not wake.
    #[cold]
    pub(crate) fn list(&mut self, job: JobRef, waker: &Waker) {
        let moved = self
            .leaf
            .as_ref()
            .is_some_and(|leaf| !ptr::eq(leaf.job.as_ptr(), job.as_ptr()));
        if moved {
            self.noticed = 0;
            self.unlist();
        }
        let mut new = Some(KeptWaker::new(waker.clone()));
        let key = self.leaf.as_ref().map(|leaf| leaf.key);
        let (key, old, listed) = job.with_cold(|cold, _| {
            if let Some(key) = key
                && let Some(listed) = cold.leaves.get_mut(key)
            {
                let old = if listed.will_wake(waker) {
                    None
                } else {
                    new.take().map(|new| std::mem::replace(listed, new))
                };
                return (key, old, false);
            }
            let new = new.take().unwrap_or_else(|| unreachable!("taken once"));
            (cold.leaves.push(new), None, true)
        });
        drop((old, new));
        // A cancel after this sees the bit and wakes the leaf; one before it
        // shows in the answer, and the leaf wakes itself. Once: a wait that is
        // no point goes on waiting in a cancelled job. An interrupt takes
        // leaves out of the list to wake them; so only a newly listed leaf must
        // check for it.
        let st = job.state.publish_nodes();
        let woken = if st.effective() {
            std::mem::replace(&mut self.noticed, 1) == 0
        } else {
            listed && st.has(state::INTERRUPTED)
        };
        if woken {
            wake_by_ref(waker);
        }
        match &mut *self.leaf {
            Some(leaf) => leaf.key = key,
            None => *self.leaf = Some(Box::new(Leaf { job, key })),
        }
    }

    #[inline]
    fn unlist(&mut self) {
        if self.leaf.is_some() {
            self.unlist_leaf();
        }
    }

    #[cold]
    fn unlist_leaf(&mut self) {
        if let Some(leaf) = self.leaf.take() {
            let waker = leaf.job.if_cold(|cold, _| cold.leaves.remove(leaf.key));
            drop(waker);
        }
    }

    /// The wait is over or dropped.
    #[inline]
    pub(crate) fn over(&mut self) {
        if self.leaf.is_some() || !self.counted.is_null() {
            self.was_pending();
        }
    }

    /// Not inlined, so that a wait that was never pending costs two
    /// comparisons.
    #[inline(never)]
    fn was_pending(&mut self) {
        self.unlist();
        if !self.counted.is_null() {
            self.uncount();
        }
    }

    fn uncount(&mut self) {
        let counted = std::mem::replace(&mut self.counted, ptr::null());
        context::with(|cx| {
            // Counts of earlier polls are void.
            if let Some(h) = cx.current()
                && ptr::eq(h, counted)
                && h.polls.load(Relaxed) == self.poll
            {
                h.waits
                    .store(h.waits.load(Relaxed).saturating_sub(1), Relaxed);
            }
        });
    }
}

impl Drop for Wait {
    #[inline]
    fn drop(&mut self) {
        self.over();
    }
}

impl fmt::Debug for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wait")
    }
}
