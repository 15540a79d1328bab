//! Turns as hosts receive them: single ones, and rows of them. What a turn does
//! is in [`turn`](crate::engine::turn).

use std::fmt;
use std::ptr::{self, NonNull};

use crate::base::id::JobId;
use crate::base::lane::{Lane, LaneMark};
use crate::base::priority::Priority;
use crate::record::header::Header;

/// The right to give one task one turn. The holder must run it; a turn that is
/// dropped instead drops the task's future there and ends the job as cancelled,
/// because its host is gone.
#[must_use = "a task that is not run never ends"]
pub struct Turn(NonNull<Header>);

// SAFETY: the holder alone touches the future (C1), and the future is Send
// (spawning demands it) or of a lane with one thread, whose turns `run` and
// `drop` refuse on another.
unsafe impl Send for Turn {}

impl Turn {
    /// # Safety
    /// The task is BUSY and the caller owns its next turn (H5).
    #[inline]
    pub(crate) unsafe fn new(h: *const Header) -> Turn {
        // SAFETY: a task, so not null.
        Turn(unsafe { NonNull::new_unchecked(h.cast_mut()) })
    }

    #[inline]
    pub(crate) fn header(&self) -> &Header {
        // SAFETY: a turn owns its task, which has not ended, or a reference to it.
        unsafe { self.0.as_ref() }
    }

    #[inline]
    pub(crate) fn take(self) -> *const Header {
        let h = self.0.as_ptr();
        std::mem::forget(self);
        h
    }

    /// The lane on which the turn must run.
    #[inline]
    pub fn lane(&self) -> Lane {
        self.header().lane()
    }

    /// True if the turn must run on that lane: one comparison.
    #[inline]
    pub fn is_for(&self, lane: Lane) -> bool {
        self.header().lane_mark().is_lane_of(LaneMark::of(lane))
    }

    /// True if the turn is of the pool and has the normal priority, as most have: one
    /// comparison.
    #[inline]
    pub fn is_ordinary(&self) -> bool {
        self.header().lane_mark() == LaneMark::POOL
    }

    /// True if the turn is of the pool and has another priority than the normal
    /// one.
    #[inline]
    pub fn is_preferred(&self) -> bool {
        self.header().lane_mark().is_preferred()
    }

    /// The priority, if the turn is of the pool and has another than the normal one; none
    /// on other lanes, where no turn goes first.
    #[inline]
    pub fn priority(&self) -> Option<Priority> {
        preferred(self.header())
    }

    /// The turn as a pointer, for queues made of atomics.
    #[inline]
    pub fn into_raw(self) -> NonNull<()> {
        let raw = self.0.cast();
        std::mem::forget(self);
        raw
    }

    /// # Safety
    /// The pointer is of [`into_raw`](Turn::into_raw), and is not used again.
    #[inline]
    pub unsafe fn from_raw(raw: NonNull<()>) -> Turn {
        Turn(raw.cast())
    }

    /// The job whose turn this is.
    pub fn job(&self) -> JobId {
        self.header().id
    }
}

/// The priority of a task, if it is of the pool and not normal.
#[inline]
fn preferred(h: &Header) -> Option<Priority> {
    let priority = h.lane_mark().pool_priority();
    priority.filter(|priority| *priority != Priority::Normal)
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Turn({})", self.job())
    }
}

/// A queue of turns, linked through the tasks themselves: tasks that were woken
/// together, and the building block of a host's queues. Nothing here allocates.
///
/// The tasks that one cancel woke come *in parts*: the first of each 64 is
/// linked to the first of the next 64 through `walk`, which is unused, since
/// these tasks are marked. So a queue that many threads take from can give a
/// part away without following links through memory that no cache holds.
#[must_use = "a task that is not run never ends"]
pub struct TurnRow {
    /// Valid if the row is not empty.
    pub(crate) head: *const Header,
    /// Valid if the row is not empty; null if it has not been searched for.
    tail: *const Header,
    len: usize,
    /// How many of the tasks are [timed](Header::is_timed), until they are
    /// handed over.
    pub(crate) timed: usize,
    in_parts: bool,
}

/// How many tasks are in a part.
pub(crate) const PART: usize = 64;

// SAFETY: as for Turn.
unsafe impl Send for TurnRow {}

impl TurnRow {
    /// An empty row.
    pub const fn new() -> TurnRow {
        TurnRow {
            head: ptr::null(),
            tail: ptr::null(),
            len: 0,
            timed: 0,
            in_parts: false,
        }
    }

    /// # Safety
    /// The task is claimed and the caller owns its next push (H5).
    pub(crate) unsafe fn push(&mut self, h: &Header) {
        // SAFETY: H5, the links of all of them are the caller's until the push.
        unsafe {
            match self.len {
                0 => self.head = h,
                _ => (*self.last_task()).run.set(h),
            }
        }
        self.tail = h;
        self.len += 1;
        self.timed += usize::from(h.is_timed());
        self.in_parts = false;
    }

    /// The last of a row that is not empty.
    fn last_task(&self) -> *const Header {
        if !self.tail.is_null() {
            return self.tail;
        }
        let mut last = self.head;
        for _ in 1..self.len {
            // SAFETY: H5, ours until the push.
            last = unsafe { (*last).run.get() };
        }
        last
    }

    /// Puts a turn at the end.
    pub fn push_back(&mut self, turn: Turn) {
        // SAFETY: a turn owns its task, which is alive.
        unsafe { self.push(&*turn.take()) };
    }

    /// Puts all of `other` at the end, in one step.
    pub fn append(&mut self, mut other: TurnRow) {
        if other.is_empty() {
            return;
        }
        if self.is_empty() {
            std::mem::swap(self, &mut other);
            return;
        }
        // SAFETY: H5, ours until the push.
        unsafe { (*self.last_task()).run.set(other.head) };
        self.tail = other.last_task();
        self.len += std::mem::take(&mut other.len);
        self.in_parts = false;
    }

    /// True if [`split_front`](TurnRow::split_front) removes a part in one step.
    pub fn is_in_parts(&self) -> bool {
        self.in_parts
    }

    /// Removes the first `most` turns, or the first part of a row that is in
    /// parts.
    pub fn split_front(&mut self, most: usize) -> TurnRow {
        if most >= self.len {
            return std::mem::take(self);
        }
        if self.in_parts {
            return self.split_part();
        }
        let mut front = TurnRow::new();
        front.head = self.head;
        front.len = most;
        for _ in 0..most {
            front.tail = self.head;
            // SAFETY: H5, ours until the push. The row has more tasks than these,
            // so each is linked to another.
            self.head = unsafe { (*self.head).run.get() };
        }
        self.len -= most;
        front
    }

    fn split_part(&mut self) -> TurnRow {
        if self.len <= PART {
            return std::mem::take(self);
        }
        let front = TurnRow {
            head: self.head,
            tail: ptr::null(),
            len: PART,
            timed: 0,
            in_parts: false,
        };
        // SAFETY: H5; marked, so `walk` belongs to the holder of the row.
        self.head = unsafe { (*self.head).walk.get() };
        self.len -= PART;
        front
    }

    /// The number of turns.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The lane of the first turn.
    pub fn lane(&self) -> Lane {
        if self.is_empty() {
            return Lane::Pool;
        }
        // SAFETY: H5, the first is ours until the push.
        unsafe { &*self.head }.lane()
    }

    /// The priority of the first turn, as of [`Turn::priority`].
    pub fn priority(&self) -> Option<Priority> {
        // SAFETY: H5, the first is ours until the push.
        (!self.is_empty()).then(|| preferred(unsafe { &*self.head }))?
    }

    /// True if the row has no turns.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn pop(&mut self) -> Option<*const Header> {
        if self.len == 0 {
            return None;
        }
        let h = self.head;
        self.len -= 1;
        self.in_parts = false;
        if self.len > 0 {
            // SAFETY: H5, ours until the push.
            self.head = unsafe { (*h).run.get() };
            // The next header is needed when this task has had its turn.
            crate::base::sync::fetch_ahead(self.head);
        }
        Some(h)
    }
}

impl Default for TurnRow {
    fn default() -> Self {
        TurnRow::new()
    }
}

impl fmt::Debug for TurnRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TurnRow({})", self.len)
    }
}

impl Iterator for TurnRow {
    type Item = Turn;

    fn next(&mut self) -> Option<Turn> {
        // SAFETY: each task in the chain is claimed.
        self.pop().map(|h| unsafe { Turn::new(h) })
    }
}

impl Drop for TurnRow {
    fn drop(&mut self) {
        // Each turn that is dropped ends its job.
        for turn in self.by_ref() {
            drop(turn);
        }
    }
}

/// Tasks that were marked together, by lane. Those of the pool, which several
/// threads may share, come in parts.
pub(crate) struct MarkedRows {
    pub(crate) pool: TurnRow,
    pub(crate) main: TurnRow,
    /// Tasks of other lanes, and of the pool with another priority than the
    /// normal one.
    pub(crate) others: TurnRow,
    /// The first task of the last part.
    part: *const Header,
}

impl MarkedRows {
    pub(crate) const fn new() -> MarkedRows {
        MarkedRows {
            pool: TurnRow::new(),
            main: TurnRow::new(),
            others: TurnRow::new(),
            part: ptr::null(),
        }
    }

    /// # Safety
    /// As for [`TurnRow::push`]; and the caller has marked the task, so that
    /// `walk` is the caller's.
    // Always: it is most of what a walk does for a task without children.
    #[inline(always)]
    pub(crate) unsafe fn push(&mut self, h: &Header) {
        if h.lane_mark() != LaneMark::POOL {
            // SAFETY: passed on.
            return unsafe { self.push_elsewhere(h) };
        }
        if self.pool.len.is_multiple_of(PART) {
            // SAFETY: H5, we have marked both.
            if let Some(part) = unsafe { self.part.as_ref() } {
                // SAFETY: as above.
                unsafe { part.walk.set(h) };
            }
            self.part = h;
        }
        // SAFETY: passed on.
        unsafe { self.pool.push(h) };
        // A row of one part is like any other.
        self.pool.in_parts = self.pool.len > PART;
    }

    /// # Safety
    /// As for [`TurnRow::push`].
    unsafe fn push_elsewhere(&mut self, h: &Header) {
        let row = match h.lane() {
            Lane::Main => &mut self.main,
            _ => &mut self.others,
        };
        // SAFETY: passed on.
        unsafe { row.push(h) };
    }
}
