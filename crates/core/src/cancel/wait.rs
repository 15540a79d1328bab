//! What one pending wait of ours leaves behind: a count in the job that is
//! polled under its own waker, or a leaf in the job's list under a foreign
//! one. The first costs nothing but an addition; the second is how leaves
//! inside `join!` and `FuturesUnordered` are told.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Waker;

use crate::context;
use crate::job::header::{Header, JobRef, Site};
use crate::job::list::Key;
use crate::job::state;
use crate::unwind::{Contained, wake_by_ref};

/// What a job waits on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum WaitKind {
    /// Nothing of ours: a foreign await, or no wait at all.
    Foreign = 0,
    /// A timer.
    Sleep = 1,
    /// The end of a job.
    Join = 2,
    /// The outcome of a task.
    Task = 3,
    /// The body of an inline scope.
    Scope = 4,
    /// The children of an inline scope whose body is over.
    Children = 5,
    /// A foreign future made a point by `or_cancel`.
    OrCancel = 6,
    /// `park`: nothing but a cancel ends it.
    Park = 7,
    /// The next frame.
    Pump = 8,
    /// A blocking call.
    Blocking = 9,
    /// A value that somebody else brings.
    Completion = 10,
    /// A point that a library has made itself.
    Custom = 11,
    /// An operation that the system carries out.
    Io = 12,
    /// A lock: a mutex, a read-write lock, a cell that is set once.
    Lock = 13,
    /// A permit of a semaphore.
    Permit = 14,
    /// A channel: room for a value, or a value.
    Channel = 15,
    /// A notification.
    Notify = 16,
    /// The others at a barrier.
    Barrier = 17,
}

/// In the kind of wait of a scope: its body is over, and it waits for its
/// children. BODY_DONE says that of a task; of a scope it says that its future is
/// gone too.
pub(crate) const BODY_OVER: u8 = 1 << 7;

impl WaitKind {
    pub(crate) fn from_bits(bits: u8) -> WaitKind {
        match bits & !BODY_OVER {
            1 => WaitKind::Sleep,
            2 => WaitKind::Join,
            3 => WaitKind::Task,
            4 => WaitKind::Scope,
            5 => WaitKind::Children,
            6 => WaitKind::OrCancel,
            7 => WaitKind::Park,
            8 => WaitKind::Pump,
            9 => WaitKind::Blocking,
            10 => WaitKind::Completion,
            11 => WaitKind::Custom,
            12 => WaitKind::Io,
            13 => WaitKind::Lock,
            14 => WaitKind::Permit,
            15 => WaitKind::Channel,
            16 => WaitKind::Notify,
            17 => WaitKind::Barrier,
            _ => WaitKind::Foreign,
        }
    }
}

impl fmt::Display for WaitKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WaitKind::Foreign => "a foreign await",
            WaitKind::Sleep => "sleep",
            WaitKind::Join => "join",
            WaitKind::Task => "task",
            WaitKind::Scope => "scope",
            WaitKind::Children => "children",
            WaitKind::OrCancel => "or_cancel",
            WaitKind::Park => "park",
            WaitKind::Pump => "the next pump",
            WaitKind::Blocking => "a blocking call",
            WaitKind::Completion => "a completion",
            WaitKind::Custom => "a custom point",
            WaitKind::Io => "i/o",
            WaitKind::Lock => "a lock",
            WaitKind::Permit => "a permit",
            WaitKind::Channel => "a channel",
            WaitKind::Notify => "a notification",
            WaitKind::Barrier => "a barrier",
        })
    }
}

/// One wait of ours, inside the future that waits.
pub(crate) struct Wait {
    /// The job that counts it and the poll in which it did. Compared, and used
    /// only if it is the current job.
    counted: *const Header,
    /// Taken out by the drop: there is nothing left to drop then.
    leaf: ManuallyDrop<Option<Box<Leaf>>>,
    poll: u32,
    /// It has woken itself because its job was cancelled; once is enough. As
    /// wide as `poll`: with padding behind it, making a wait would write the
    /// fields above in pieces that a look at them must then put together.
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

    /// The same for a caller that has looked up the current job `h`.
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

    /// True if the job `h` has counted it, in this poll or an earlier one.
    pub(crate) fn is_counted_by(&self, h: &Header) -> bool {
        ptr::eq(h, self.counted)
    }

    /// Lists a leaf that the job's own waker does not reach.
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
        let mut new = Some(Contained::new(waker.clone()));
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
        // shows here, and the leaf wakes itself. Once: a wait that is no point
        // goes on waiting in a cancelled job. An interrupt takes leaves out of
        // the list to wake them; so only one that is new has to look for it.
        let st = job.state.add(state::HAS_NODES);
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

    /// The wait is done or given up.
    #[inline]
    pub(crate) fn over(&mut self) {
        if self.leaf.is_some() || !self.counted.is_null() {
            self.was_pending();
        }
    }

    /// Apart, so that a wait that was never pending is over in two looks.
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
