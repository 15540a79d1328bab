//! The header of a job: 128 bytes at the start of every cell, the same for
//! tasks, scopes and the root. This page says, once, which thread may touch
//! which field when; `SAFETY` comments elsewhere cite these rules.
//!
//! - **H1** Fields marked \[lock\] are touched under this job's lock, those
//!   marked \[parent's lock\] under the parent's. A thread holds at most one
//!   job lock at a time. Allowed under it: links, counts, the job's own
//!   atomics, moving a waker out. Never allowed: a waker's clone, wake or drop,
//!   a hook, a destructor or a call of the host.
//! - **H2** A child is unlinked only under its parent's lock. The thread that
//!   holds that lock may touch every listed child without a reference.
//! - **H3** A linked child keeps its parent, and so every ancestor, alive, without
//!   a reference from child to parent. Code inside a job that has not ended reads
//!   the chain upwards plainly. Code outside uses [`Header::parent_from_outside`].
//! - **H4** `ENDED` is set before the job is unlinked, and the job is unlinked
//!   before the tree's reference is released. After `ENDED` the ender owns the
//!   join slot if it saw WAITER, and the output if it did not see HANDLE.
//! - **H5** A parked task does not run until a thread pushes it. The thread
//!   that sets BUSY on it owns it, and its `run` link, until the push, and
//!   needs no reference. `walk` belongs to the thread that set the mark, or
//!   passed the shield; for a task that the mark claimed it then belongs to the
//!   owner of the row in which the task is. `run` of an ended task belongs to
//!   the handle that leaves the output to a turn.
//! - **H6** A cell is freed when its count of references is zero. The tree
//!   (from creation to unlinking), the handle, each observer, lease, waker,
//!   listed leaf and hook, a scope's future and its timer, a walker, the
//!   sweeper, a turn that drops an output, and an interrupt on its way (for either end) hold one each.
//!
//! Each rule that rests on a bit or a count is tested where it could be broken.
//! These models and tests would notice, and so would the other models: in a
//! model a freed cell is kept, and aborts when it is touched.
//!
//! | rule | noticed by |
//! |---|---|
//! | H1 | `last_child_vs_body_end`, `attach_vs_cancel`: loom watches the fields |
//! | H2 | `attach_vs_cancel`, `last_service_vs_body_end` |
//! | H3 | `parent_lookup_vs_end`, `own_child_vs_await` |
//! | H4 | `waiter_add_vs_end`, `handle_drop_vs_end` |
//! | H5 | `cancel_vs_park`, `wake_while_running`, `two_cancels_one_entry` |
//! | H6 | `handle_drop_vs_end`, `too_many_references_end_the_process` |

use std::fmt;
use std::panic::Location;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use crate::base::id::JobId;
use crate::base::kind::JobKind;
use crate::base::lane::{Lane, LaneMark, PriorityMark};
use crate::base::priority::Priority;
use crate::base::reason::{Reason, ReasonData};
use crate::base::sync::{
    AtomicPtr, AtomicU8, AtomicU16, AtomicU32, ByteLock, Link, Locked, Ordering, Plain, QUARANTINE,
};
use crate::base::wait_kind::{BODY_OVER, WaitKind};
use crate::record::cell::Vtable;
use crate::record::cold::Cold;
use crate::record::state::{self, ParentRead, Snapshot, State};

/// `shares` of a job that takes no more children and waits for none.
pub(crate) const NO_SHARES: u32 = u32::MAX;

/// Up to this value of `shares` one more may be added, which keeps it below
/// [`NO_SHARES`].
pub(crate) const MOST_SHARES: u32 = NO_SHARES - 2;

#[repr(C)]
pub(crate) struct Header {
    pub(crate) state: State,
    /// H6.
    refs: AtomicU32,
    lock: ByteLock,
    /// The kind of the last pending wait; written by the poller.
    pub(crate) wait_kind: AtomicU8,
    /// Four bits of kind, of which three are used, and twelve of tree.
    place: u16,
    /// \[lock\] What holds this job open: children, leases, and 1 for the body. Read and
    /// written by way of [`LockedJob`].
    shares: Plain<u32>,
    /// The [priority](PRIORITY) of the job, above it its [`BirthFacts`], and above them the
    /// [steps](STEP) from the root.
    birth: u32,
    /// Set before attaching, never changed; valid by H3.
    parent: *const Header,
    /// \[parent's lock\]
    pub(crate) prev: Plain<*const Header>,
    /// \[parent's lock\]
    pub(crate) next: Plain<*const Header>,
    /// \[lock\] The newest child.
    pub(crate) first: Link<Header>,
    /// H5.
    pub(crate) walk: Plain<*const Header>,
    pub(crate) vtable: &'static Vtable,
    /// H5: the link of run queues and of the walk's ready chain.
    pub(crate) run: Plain<*const Header>,
    /// The job where the mark entered, an ancestor. Written by the marking
    /// thread, before the mark; null if never marked from above.
    pub(crate) origin: AtomicPtr<Header>,
    /// Null until first needed, then never changed; written under the lock. The
    /// cold part itself: \[lock\].
    cold: AtomicPtr<Cold>,
    site: Site,
    /// Since when the job is idle, in milliseconds since the tree began; see
    /// [`Header::begin_poll`].
    pub(crate) turned: AtomicU32,
    pub(crate) id: JobId,
    pub(crate) born: u32,
    /// Written by the poller only.
    pub(crate) polls: AtomicU32,
    /// Where the last pending wait was made; written by the poller.
    pub(crate) wait_site: AtomicU32,
    /// How many waits of this library the last poll left pending; written by
    /// the poller.
    pub(crate) waits: AtomicU16,
    /// How often a point here returned Cancelled, up to [`TIMES`], and the bits
    /// [`SEEN`], [`OPENED`], [`BORN_TOLD`] and [`BEYOND`]; written by the poller.
    told: AtomicU8,
    /// The lane, eight bits. For the pool it holds the priority too.
    lane: LaneMark,
}

/// In `told`: the job has been polled since its mark took effect.
const SEEN: u8 = 1 << 7;
/// In `told`: the body has opened a scope.
const OPENED: u8 = 1 << 6;
/// In `told`: a scope, timeout or branch that a told body has opened.
const BORN_TOLD: u8 = 1 << 5;
/// In `told`: part of the count is in the cold part.
const BEYOND: u8 = 1 << 4;
/// In `told`: how often a point of this body, and not of a scope in it, returned Cancelled.
/// A higher count goes on in the cold part.
const TIMES: u8 = BEYOND - 1;

/// How many Cancelleds a body may swallow before it is reported, and its points
/// wait before they fail.
pub(crate) const SWALLOWS: u16 = 100;
/// The weight of one Cancelled of the body itself. One that was returned inside a scope
/// which the told body opened weighs 1: a body that stops may well open some scopes on
/// its way, and only a loop opens thousands.
const OF_ITSELF: u16 = 40;
/// The weight from which on a body counts as swallowing.
const TOO_MUCH: u16 = SWALLOWS * OF_ITSELF;
const _: () = assert!(
    (TIMES as u16) * OF_ITSELF < TOO_MUCH,
    "what the header counts by itself is no swallowing"
);

/// How many references there may be. As many again fit in before the count wraps
/// around, one from each thread that has counted and not yet checked.
const MOST_REFS: u32 = u32::MAX / 2;

/// A panic would not be enough: code that catches it may go on until the count
/// wraps around, and then a cell in use is freed (H6). An `Arc` aborts for the
/// same reason.
#[cold]
fn too_many_references(h: &Header) -> ! {
    crate::base::say::abort(format_args!("kinfolk: too many references to job {}", h.id))
}

/// Set in `origin` when it holds a kept reason instead of a job.
const KEPT: usize = 1;

fn untagged(kept: *mut Header) -> *const ReasonData {
    kept.map_addr(|addr| addr & !KEPT).cast::<ReasonData>()
}

#[cfg(all(not(loom), target_pointer_width = "64"))]
const _: () = assert!(size_of::<Header>() == 128 && align_of::<Header>() == 8);

// SAFETY: every field is immutable, atomic, or guarded as H1 to H5 say.
unsafe impl Send for Header {}
// SAFETY: as above.
unsafe impl Sync for Header {}

/// In `place`: the value for the handle of a refused task, which is in no tree. All
/// twelve bits.
pub(crate) const NO_TREE: u16 = 0xfff;

/// In `birth`: one step from the root. Steps are counted in the upper 25 bits; a deeper
/// job shows the highest count.
const STEP: u32 = 1 << 7;

/// In `birth`: the two bits of the [`PriorityMark`], which children inherit.
const PRIORITY: u32 = 3;

/// In `birth`: the bits of the [`BirthFacts`].
const FACTS: u32 = STEP - 1 - PRIORITY;

/// Facts that are decided when a job is made, and never change: five bits of
/// `birth`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct BirthFacts(u32);

impl BirthFacts {
    /// No fact.
    pub(crate) const NONE: BirthFacts = BirthFacts(0);
    /// A shield: walks pass by it.
    pub(crate) const SHIELD: BirthFacts = BirthFacts(1 << 2);
    /// A service: walks pass by it, the end of its parent's body marks it.
    pub(crate) const SERVICE: BirthFacts = BirthFacts(1 << 3);
    /// Failures of its child tasks touch no other job.
    pub(crate) const SUPERVISOR: BirthFacts = BirthFacts(1 << 4);
    /// A task that is polled at least once, even if it is cancelled before.
    pub(crate) const ATOMIC: BirthFacts = BirthFacts(1 << 5);
    /// A factory timer, or a job below one: children inherit it.
    pub(crate) const TIMED: BirthFacts = BirthFacts(1 << 6);

    /// Both sets of facts.
    pub(crate) const fn and(self, others: BirthFacts) -> BirthFacts {
        BirthFacts(self.0 | others.0)
    }
}

/// The data of a new header.
pub(crate) struct Birth<'a> {
    /// The place of the tree, or [`NO_TREE`].
    pub(crate) tree: u16,
    /// The time of the tree, in milliseconds.
    pub(crate) born: u32,
    pub(crate) id: JobId,
    pub(crate) kind: JobKind,
    pub(crate) lane: Lane,
    pub(crate) facts: BirthFacts,
    pub(crate) parent: Option<&'a Header>,
    pub(crate) vtable: &'static Vtable,
    pub(crate) state: u64,
    pub(crate) refs: u32,
    pub(crate) site: &'static Location<'static>,
}

impl Birth<'_> {
    /// The job to which the handle of a refused task points.
    pub(crate) fn refused(state: u64, site: &'static Location<'static>) -> Birth<'static> {
        Birth {
            tree: NO_TREE,
            born: 0,
            id: JobId::of_refused(),
            kind: JobKind::Task,
            lane: Lane::Pool,
            facts: BirthFacts::NONE,
            parent: None,
            vtable: &crate::record::cell::NODE,
            state,
            refs: 1,
            site,
        }
    }
}

impl Header {
    #[inline]
    pub(crate) fn new(birth: &Birth<'_>) -> Header {
        let inherited = birth.parent.map_or(0, |parent| {
            // Facts that children do not inherit are removed before the step is
            // added.
            let kept = parent.birth & !(FACTS & !BirthFacts::TIMED.0);
            kept.checked_add(STEP).unwrap_or(kept)
        });
        Header {
            state: State::born(birth.state, birth.kind == JobKind::Task),
            refs: AtomicU32::new(birth.refs),
            lock: ByteLock::new(),
            wait_kind: AtomicU8::new(0),
            place: (birth.kind as u16) << 12 | birth.tree,
            shares: Plain::new(1),
            birth: inherited | birth.facts.0,
            parent: birth.parent.map_or(ptr::null(), ptr::from_ref),
            prev: Plain::new(ptr::null()),
            next: Plain::new(ptr::null()),
            first: Link::new(ptr::null()),
            walk: Plain::new(ptr::null()),
            vtable: birth.vtable,
            run: Plain::new(ptr::null()),
            origin: AtomicPtr::new(ptr::null_mut()),
            cold: AtomicPtr::new(ptr::null_mut()),
            site: Site::of(birth.site),
            turned: AtomicU32::new(0),
            id: birth.id,
            born: birth.born,
            polls: AtomicU32::new(0),
            wait_site: AtomicU32::new(0),
            waits: AtomicU16::new(0),
            told: AtomicU8::new(0),
            lane: LaneMark::with(birth.lane, PriorityMark::from_bits(inherited)),
        }
    }

    #[inline]
    pub(crate) fn lock(&self) -> LockedJob<'_> {
        LockedJob {
            locked: self.lock.lock(),
            job: self,
        }
    }

    /// Locks the job, and first makes a cold part if it has none.
    pub(crate) fn lock_with_cold(&self) -> LockedJob<'_> {
        if !self.has_cold() {
            self.with_cold(|_, _| {});
        }
        self.lock()
    }

    #[inline]
    pub(crate) fn kind(&self) -> JobKind {
        JobKind::from_bits((self.place >> 12) as u8)
    }

    #[inline]
    pub(crate) fn lane(&self) -> Lane {
        self.lane.lane()
    }

    #[inline]
    pub(crate) fn lane_mark(&self) -> LaneMark {
        self.lane
    }

    /// Gives a new job a priority of its own instead of its parent's.
    ///
    /// The job is fresh: the caller has the only reference, and does not use it
    /// meanwhile.
    /// meanwhile.
    pub(crate) unsafe fn give_priority(h: *mut Header, priority: Priority) {
        let mark = PriorityMark::of(priority);
        // SAFETY: passed on.
        let h = unsafe { &mut *h };
        h.birth = h.birth & !PRIORITY | mark.bits();
        h.lane = LaneMark::with(h.lane.lane(), mark);
    }

    /// The priority of the job, and of those below it that were not given
    /// another.
    pub(crate) fn priority(&self) -> Priority {
        PriorityMark::from_bits(self.birth).priority()
    }

    /// The number of steps from the root.
    #[inline]
    pub(crate) fn depth(&self) -> u32 {
        self.birth / STEP
    }

    /// True if it was born with one of these facts.
    #[inline]
    fn was_born(&self, facts: BirthFacts) -> bool {
        self.birth & facts.0 != 0
    }

    /// True for a factory timer and the jobs below one: their turns are
    /// counted, see `Shared::timed_turns`.
    #[inline]
    pub(crate) fn is_timed(&self) -> bool {
        self.was_born(BirthFacts::TIMED)
    }

    /// True for a shield.
    #[inline]
    pub(crate) fn is_shield(&self) -> bool {
        self.was_born(BirthFacts::SHIELD)
    }

    /// True for a service.
    #[inline]
    pub(crate) fn is_service(&self) -> bool {
        self.was_born(BirthFacts::SERVICE)
    }

    /// True for a shield or a service, which walks pass by.
    #[inline]
    pub(crate) fn is_barrier(&self) -> bool {
        self.was_born(BirthFacts::SHIELD.and(BirthFacts::SERVICE))
    }

    /// True if failures of its child tasks touch no other job.
    #[inline]
    pub(crate) fn is_supervisor(&self) -> bool {
        self.was_born(BirthFacts::SUPERVISOR)
    }

    /// True for a task that is polled once even if it is cancelled before.
    #[inline]
    pub(crate) fn is_atomic(&self) -> bool {
        self.was_born(BirthFacts::ATOMIC)
    }

    #[inline]
    pub(crate) fn is_task(&self) -> bool {
        // Not through `kind`, which compares one kind after the other.
        self.place >> 12 == JobKind::Task as u16
    }

    /// True for a child with a body of its own: a task, a local one, or a hosted future.
    /// Such a child may be refused, and takes no interrupts of another task. All but the
    /// hosted future fail their parent.
    #[inline]
    pub(crate) fn was_spawned(&self) -> bool {
        let kind = self.place >> 12;
        self.is_task() || kind == JobKind::LocalTask as u16 || kind == JobKind::Hosted as u16
    }

    /// True for a future that another executor owns and polls.
    #[inline]
    pub(crate) fn is_hosted(&self) -> bool {
        self.place >> 12 == JobKind::Hosted as u16
    }

    pub(crate) fn site(&self) -> &'static Location<'static> {
        self.site.location()
    }

    #[inline]
    pub(crate) fn site_mark(&self) -> Site {
        self.site
    }

    /// The place of this job's tree.
    #[inline]
    pub(crate) fn tree_place(&self) -> u16 {
        self.place & NO_TREE
    }

    /// True if the job is of the tree at that place. For a job that has not
    /// ended, and a tree whose root has not.
    #[inline]
    pub(crate) fn is_at(&self, index: u16) -> bool {
        self.tree_place() == index
    }

    /// True if the job is of the same tree as `other`. For two jobs that have
    /// not ended.
    #[inline]
    pub(crate) fn has_place_of(&self, other: &Header) -> bool {
        (self.place ^ other.place) & NO_TREE == 0
    }

    /// # Safety
    /// The caller is inside this job, or otherwise knows that it is linked (H3).
    pub(crate) unsafe fn parent(&self) -> Option<&Header> {
        // SAFETY: by H3 the parent outlives the link.
        unsafe { self.parent.as_ref() }
    }

    /// True if this job was made with `other` as its parent.
    pub(crate) fn is_child_of(&self, other: &Header) -> bool {
        ptr::eq(self.parent, other)
    }

    /// The parent, for any thread; none for the root and for an ended job. The
    /// ender of this job sees PARENT_BEING_READ and takes the job's lock before
    /// it unlinks. Modelled in `parent_lookup_vs_end`.
    pub(crate) fn parent_from_outside(&self) -> Option<JobRef> {
        let locked = self.lock();
        let read = locked.read_parent();
        if read.seen.ended() {
            None
        } else {
            // SAFETY: not ended, and its ender cannot pass the lock held here:
            // linked (H3). Noticed by `parent_lookup_vs_end`.
            unsafe { self.parent.as_ref() }.map(JobRef::from_header)
        }
    }

    /// The job where this job's mark entered the tree; none if not marked.
    ///
    /// # Safety
    /// As for [`Header::parent`].
    pub(crate) unsafe fn origin(&self) -> Option<&Header> {
        let st = self.state.load();
        if !st.has(state::CANCELLED) {
            None
        } else if st.has(state::ORIGIN) {
            Some(self)
        } else {
            let origin = self.origin.load(Ordering::Relaxed);
            assert!(
                origin.addr() & KEPT == 0,
                "job {} keeps its reason",
                self.id
            );
            // SAFETY: an ancestor, alive by H3; not a kept reason. Noticed by
            // `body_end_vs_attach_then_cancel_from_above`.
            unsafe { origin.as_ref() }
        }
    }

    /// The origin to store in a child that is marked from here. This job is
    /// marked, and has a child to mark, so its ender has not swapped `origin`
    /// yet.
    pub(crate) fn origin_to_hand_on(&self) -> *mut Header {
        if self.state.load().has(state::ORIGIN) {
            ptr::from_ref(self).cast_mut()
        } else {
            let origin = self.origin.load(Ordering::Relaxed);
            assert!(
                origin.addr() & KEPT == 0,
                "job {} keeps its reason",
                self.id
            );
            origin
        }
    }

    /// Runs `f` on the cold part, making it first if there is none. `f` runs
    /// under the lock: H1.
    pub(crate) fn with_cold<R>(&self, f: impl FnOnce(&mut Cold, Snapshot) -> R) -> R {
        let mut spare: Option<Box<Cold>> = None;
        loop {
            let mut locked = self.lock();
            if let Some(cold) = locked.cold() {
                return f(cold, self.state.load());
            }
            match spare.take() {
                Some(made) => self.cold.store(Box::into_raw(made), Ordering::Relaxed),
                None => {
                    drop(locked);
                    spare = Some(Box::default());
                }
            }
        }
    }

    /// True if there is a cold part, as far as this thread can know: a cold
    /// part whose making happens before this call is seen.
    pub(crate) fn has_cold(&self) -> bool {
        !self.cold.load(Ordering::Relaxed).is_null()
    }

    /// Runs `f` on the cold part if there is one.
    pub(crate) fn if_cold<R>(&self, f: impl FnOnce(&mut Cold, Snapshot) -> R) -> Option<R> {
        if !self.has_cold() {
            return None;
        }
        self.lock().cold().map(|cold| f(cold, self.state.load()))
    }

    /// Frees what the header owns beyond itself.
    ///
    /// # Safety
    /// No other code uses the header any more.
    #[inline]
    pub(crate) unsafe fn free_parts(&self) {
        let kept = self.origin.load(Ordering::Relaxed).addr() & KEPT != 0;
        if self.has_cold() || kept {
            // SAFETY: passed on.
            unsafe { self.free_listed_parts() };
        }
    }

    /// # Safety
    /// As for [`Header::free_parts`].
    #[cold]
    unsafe fn free_listed_parts(&self) {
        let cold = self.cold.load(Ordering::Relaxed);
        if !cold.is_null() {
            // SAFETY: made by Box::into_raw in `with_cold`.
            let cold = unsafe { Box::from_raw(cold) };
            // Its user values are contained, each by itself.
            crate::base::unwind::discard(cold);
        }
        let kept = self.origin.load(Ordering::Relaxed);
        if kept.addr() & KEPT != 0 {
            // SAFETY: made by Arc::into_raw in `keep_reason`, as KEPT says.
            // Noticed by `walk_from_above_vs_end`.
            drop(unsafe { Arc::from_raw(untagged(kept)) });
        }
    }

    /// At the end of a job that was cancelled from above: copies the reason,
    /// since the job that stores it may be freed before a reader comes. Nothing
    /// is copied if no reader is left. False if the job is not marked, so that
    /// a mark may still come.
    ///
    /// # Safety
    /// The caller is the ender, and the job is still linked.
    #[inline]
    pub(crate) unsafe fn keep_reason(&self) -> bool {
        let st = self.state.load();
        if !st.has(state::CANCELLED) {
            return false;
        }
        // SAFETY: passed on.
        unsafe { self.keep_reason_of_mark(st) }
    }

    /// # Safety
    /// As for [`Header::keep_reason`].
    pub(crate) unsafe fn keep_reason_of_mark(&self, st: Snapshot) -> bool {
        if st.has(state::ORIGIN) || self.refs.load(Ordering::Relaxed) == 1 {
            return true;
        }
        if self.origin.load(Ordering::Relaxed).addr() & KEPT != 0 {
            // Copied already, by an end in one step that was refused.
            return true;
        }
        // SAFETY: linked by the caller's promise.
        let Some(origin) = (unsafe { self.origin() }) else {
            return true;
        };
        if let Some(Some(reason)) = origin.if_cold(|cold, _| cold.reason.clone()) {
            let kept = Arc::into_raw(reason)
                .cast_mut()
                .cast::<Header>()
                .map_addr(|addr| addr | KEPT);
            // Readers from outside read `origin` under this lock until the job
            // has ended.
            let _locked = self.lock();
            self.origin.store(kept, Ordering::Release);
        }
        true
    }

    /// Why this job was cancelled, for any thread, living or ended.
    pub(crate) fn reason(&self) -> Option<Reason> {
        let st = self.state.load();
        if !st.has(state::CANCELLED) {
            return None;
        }
        if st.has(state::ORIGIN) {
            let data = self.if_cold(|cold, _| cold.reason.clone()).flatten()?;
            return Some(Reason::new(data, false));
        }
        let origin = {
            let locked = self.lock();
            let read = locked.read_parent();
            let origin = self.origin.load(Ordering::Acquire);
            if origin.addr() & KEPT != 0 {
                let data = untagged(origin);
                // SAFETY: made by `keep_reason`, as KEPT says; lives as long as
                // the header. Noticed by `walk_from_above_vs_end`.
                unsafe { Arc::increment_strong_count(data) };
                // SAFETY: the reference counted just above.
                Err(Some(Reason::new(unsafe { Arc::from_raw(data) }, true)))
            } else if read.seen.ended() {
                Err(None)
            } else {
                // SAFETY: not ended, and its ender cannot pass the lock held
                // here, so it is linked and the origin, an ancestor, is alive
                // (H3). Noticed by `parent_lookup_vs_end`, which holds in the
                // same way.
                Ok(unsafe { origin.as_ref() }.map(JobRef::from_header))
            }
        };
        match origin {
            Err(kept) => kept,
            Ok(origin) => {
                let data = origin?.if_cold(|cold, _| cold.reason.clone()).flatten()?;
                Some(Reason::new(data, true))
            }
        }
    }

    pub(crate) fn add_ref(&self) {
        let before = self.refs.fetch_add(1, Ordering::Relaxed);
        assert!(
            !QUARANTINE || before != 0,
            "job {} was referred to after it was freed",
            self.id
        );
        if before >= MOST_REFS {
            too_many_references(self);
        }
    }

    /// In models: aborts if the cell was freed. A panic could be lost, since
    /// wakers are called where panics are contained.
    #[inline]
    pub(crate) fn assert_alive(&self) {
        if QUARANTINE && self.refs.load(Ordering::Relaxed) == 0 {
            crate::base::say::abort(format_args!(
                "job {} was touched after it was freed",
                self.id
            ));
        }
    }

    /// Releases one reference; the last release frees the cell.
    ///
    /// # Safety
    /// The caller owns the reference, and does not touch the header again.
    #[inline]
    pub(crate) unsafe fn release(this: *const Header) {
        // SAFETY: alive while the caller owns a reference.
        let h = unsafe { &*this };
        if h.is_last_reference() {
            if QUARANTINE {
                h.refs.store(0, Ordering::Relaxed);
            }
        } else if h.refs.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        // SAFETY: H6, the last reference is released. Noticed by
        // `too_many_references_end_the_process` if the count wrapped around.
        unsafe { crate::record::cell::free(this) };
    }

    /// For the owner of a reference: true if it is the only one. Then no thread
    /// can make another: that takes a reference, or the link of a job that has
    /// not ended, which is counted (H6). Pairs with the decrements of the
    /// others.
    pub(crate) fn is_last_reference(&self) -> bool {
        self.refs.load(Ordering::Acquire) == 1
    }

    /// The weight of the Cancelleds that were returned in this body: by its own points,
    /// and in scopes that it has opened since it was told.
    fn swallowed(&self) -> u16 {
        let here = self.told.load(Ordering::Relaxed) & TIMES;
        let beyond = self.if_cold(|cold, _| cold.told_beyond).unwrap_or(0);
        beyond.saturating_add(u16::from(here) * OF_ITSELF)
    }

    /// True if the body has swallowed [`SWALLOWS`] Cancelleds.
    #[inline]
    pub(crate) fn swallows(&self) -> bool {
        // The part of the count in the header alone is always too small.
        self.told.load(Ordering::Relaxed) & BEYOND != 0 && self.swallowed() >= TOO_MUCH
    }

    /// True if a point of this body, and not of a scope in it, has returned
    /// Cancelled.
    pub(crate) fn was_told(&self) -> bool {
        self.told.load(Ordering::Relaxed) & TIMES != 0
    }

    /// True if neither a point of this body nor one in a scope that it has opened since has
    /// returned Cancelled.
    #[inline]
    pub(crate) fn was_told_nothing(&self) -> bool {
        self.told.load(Ordering::Relaxed) & (TIMES | BEYOND) == 0
    }

    /// One more Cancelled was returned in this body: by a point `of_itself`, or in a
    /// scope that it has opened since it was told. True if with this one the body begins
    /// to [swallow](Header::swallows). For the poller.
    #[inline]
    pub(crate) fn count_told(&self, of_itself: bool) -> bool {
        let told = self.told.load(Ordering::Relaxed);
        if of_itself && told & BEYOND == 0 && told & TIMES < TIMES {
            self.told.store(told + 1, Ordering::Relaxed);
            return false;
        }
        self.count_beyond(of_itself)
    }

    /// Counts one more when the header has no room for it.
    #[cold]
    fn count_beyond(&self, of_itself: bool) -> bool {
        let before = self.swallowed();
        if before >= TOO_MUCH {
            return false;
        }
        let weight = if of_itself { OF_ITSELF } else { 1 };
        let told = self.told.load(Ordering::Relaxed);
        if of_itself && told & TIMES < TIMES {
            self.told.store(told + 1, Ordering::Relaxed);
        } else {
            self.told.store(told | BEYOND, Ordering::Relaxed);
            self.with_cold(|cold, _| cold.told_beyond = cold.told_beyond.saturating_add(weight));
        }
        before + weight >= TOO_MUCH
    }

    /// A told body opens this scope, timeout or branch. Called before its first
    /// poll.
    pub(crate) fn is_opened_by_told_body(&self) {
        let told = self.told.load(Ordering::Relaxed);
        self.told.store(told | BORN_TOLD, Ordering::Relaxed);
    }

    /// True if a told body has opened this scope, timeout or branch.
    pub(crate) fn was_born_told(&self) -> bool {
        self.told.load(Ordering::Relaxed) & BORN_TOLD != 0
    }

    /// The body opens a scope. For the poller.
    pub(crate) fn opens_scope(&self) {
        let told = self.told.load(Ordering::Relaxed);
        if told & OPENED == 0 {
            self.told.store(told | OPENED, Ordering::Relaxed);
        }
    }

    /// True if the body has opened a scope. For the poller or the next owner of the
    /// body; and for any thread under the lock, because the bit is set before a
    /// scope is attached.
    pub(crate) fn has_opened_scopes(&self) -> bool {
        self.told.load(Ordering::Relaxed) & OPENED != 0
    }

    /// A poll begins, at `millis`. For the poller. `turned` is the time at
    /// which the last wait of this library ended, so that a foreign await that
    /// is polled again and again counts as one wait; and not before the mark
    /// took effect.
    pub(crate) fn begin_poll(&self, st: Snapshot, millis: u32) {
        let polls = self.polls.load(Ordering::Relaxed);
        let told = self.told.load(Ordering::Relaxed);
        let fresh_mark = st.effective() && told & SEEN == 0;
        if fresh_mark {
            self.told.store(told | SEEN, Ordering::Relaxed);
        }
        if fresh_mark || polls == 0 || !self.no_wait_of_ours() {
            self.turned.store(millis, Ordering::Relaxed);
        }
        self.polls
            .store(polls.wrapping_add(1).max(1), Ordering::Relaxed);
        self.waits.store(0, Ordering::Relaxed);
    }

    /// The body of a scope is over: the scope waits for its children now. For
    /// the poller.
    pub(crate) fn wait_for_children(&self) {
        self.wait_kind
            .store(WaitKind::Children as u8 | BODY_OVER, Ordering::Relaxed);
        self.wait_site.store(self.site.0, Ordering::Relaxed);
        self.waits.store(1, Ordering::Relaxed);
    }

    /// True if the body is over and the job goes on: it waits for its children.
    pub(crate) fn is_body_over(&self, st: Snapshot) -> bool {
        st.has(state::BODY_DONE) || self.wait_kind.load(Ordering::Relaxed) & BODY_OVER != 0
    }

    /// True if the job has been polled since its mark took effect.
    pub(crate) fn has_seen_mark(&self) -> bool {
        self.told.load(Ordering::Relaxed) & SEEN != 0
    }

    /// True if no wait of this library is left inside this job, counted or
    /// under a foreign waker: this library would not wake it.
    pub(crate) fn no_wait_of_ours(&self) -> bool {
        self.waits.load(Ordering::Relaxed) == 0
            && !(self.state.peek().has(state::HAS_NODES)
                && self
                    .if_cold(|cold, _| !cold.leaves.is_empty())
                    .unwrap_or(false))
    }
}

/// The lock of one job is held: gives access to what H1 allows under it.
pub(crate) struct LockedJob<'a> {
    locked: Locked<'a>,
    job: &'a Header,
}

impl<'a> LockedJob<'a> {
    /// The job.
    #[inline]
    pub(crate) fn job(&self) -> &'a Header {
        self.job
    }

    /// The count of what holds the job open; [`NO_SHARES`] if it is closed for
    /// good.
    #[inline]
    pub(crate) fn shares(&self) -> u32 {
        // SAFETY: H1, the lock is held.
        unsafe { self.job.shares.get() }
    }

    #[inline]
    pub(crate) fn set_shares(&mut self, shares: u32) {
        // SAFETY: H1, the lock is held.
        unsafe { self.job.shares.set(shares) }
    }

    /// The cold part, if there is one.
    #[inline]
    pub(crate) fn cold(&mut self) -> Option<&mut Cold> {
        // SAFETY: H1, the lock is held; the box lives as long as the header.
        unsafe { self.job.cold.load(Ordering::Relaxed).as_mut() }
    }

    /// How many linked children do not hold the job open.
    #[inline]
    pub(crate) fn loose(&mut self) -> u32 {
        self.cold().map_or(0, |cold| cold.loose)
    }

    /// Removes `child` from the list.
    ///
    /// # Safety
    /// It is linked, below this job.
    #[inline]
    pub(crate) unsafe fn unlink(&mut self, child: &Header) {
        // SAFETY: H1 and H2: this lock guards all of these links, and the siblings are
        // alive while they are listed.
        unsafe {
            let (prev, next) = (child.prev.get(), child.next.get());
            match prev.as_ref() {
                Some(prev) => prev.next.set(next),
                None => self.job.first.set(next),
            }
            if let Some(next) = next.as_ref() {
                next.prev.set(prev);
            }
        }
    }

    /// Evidence for steps on the word that are taken under the lock.
    #[inline]
    pub(crate) fn evidence(&self) -> &Locked<'a> {
        &self.locked
    }

    /// Reads the parent, for a thread outside the job.
    pub(crate) fn read_parent(&self) -> ParentRead<'_> {
        self.job.state.read_parent(&self.locked)
    }
}

/// An owned reference to a job's cell (H6).
pub(crate) struct JobRef(NonNull<Header>);

// SAFETY: the header is Sync, and freeing it may happen on any thread.
unsafe impl Send for JobRef {}
// SAFETY: as above.
unsafe impl Sync for JobRef {}

impl JobRef {
    /// A new reference to a living header.
    pub(crate) fn from_header(h: &Header) -> JobRef {
        h.add_ref();
        JobRef(NonNull::from(h))
    }

    /// Takes over a reference that is already counted.
    ///
    /// # Safety
    /// `h` is alive and one reference of it is the caller's to give.
    pub(crate) unsafe fn adopt(h: *const Header) -> JobRef {
        // SAFETY: never null by the caller's promise.
        JobRef(unsafe { NonNull::new_unchecked(h.cast_mut()) })
    }

    pub(crate) fn as_ptr(&self) -> *const Header {
        self.0.as_ptr()
    }
}

impl std::ops::Deref for JobRef {
    type Target = Header;
    fn deref(&self) -> &Header {
        // SAFETY: this value owns a reference.
        unsafe { self.0.as_ref() }
    }
}

impl Clone for JobRef {
    fn clone(&self) -> Self {
        JobRef::from_header(self)
    }
}

impl Drop for JobRef {
    fn drop(&mut self) {
        // SAFETY: this value owns a reference and releases it.
        unsafe { Header::release(self.as_ptr()) }
    }
}

/// A `&'static Location` in four bytes: its distance from a static of this
/// crate. All locations of one program lie in its read-only data.
#[derive(Clone, Copy)]
pub(crate) struct Site(pub(crate) u32);

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.location(), f)
    }
}

static ANCHOR: u8 = 0;

impl Site {
    #[inline]
    pub(crate) fn of(location: &'static Location<'static>) -> Site {
        let here = ptr::from_ref(&ANCHOR).addr() as i64;
        let there = ptr::from_ref(location).expose_provenance() as i64;
        match i32::try_from(there - here) {
            Ok(distance) if distance != 0 => Site(distance as u32),
            // A location in a library loaded far away.
            _ => Site(0),
        }
    }

    pub(crate) fn location(self) -> &'static Location<'static> {
        if self.0 == 0 {
            return Location::caller();
        }
        let here = ptr::from_ref(&ANCHOR).addr() as i64;
        let there = (here + i64::from(self.0 as i32)) as usize;
        // SAFETY: `of` made the distance from a `&'static Location` whose
        // provenance it exposed, and the anchor does not move.
        unsafe { &*ptr::with_exposed_provenance::<Location<'static>>(there) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// The references are counted in another process, which must die, whatever
    /// code catches panics in it. If it lived on, the count could wrap around
    /// to zero, and memory in use would be freed.
    #[test]
    fn too_many_references_end_the_process() {
        const CHILD: &str = "KINFOLK_TOO_MANY_REFERENCES";
        if std::env::var_os(CHILD).is_some() {
            let over = state::BUSY | state::BODY_DONE | state::ENDED;
            let birth = Birth::refused(over, Location::caller());
            // SAFETY: fresh; its one reference is ours.
            let job = unsafe { JobRef::adopt(crate::record::cell::create_node(&birth)) };
            job.refs.store(u32::MAX / 2, Ordering::Relaxed);
            for _ in 0..3 {
                let more = crate::base::unwind::caught(|| job.clone());
                assert!(more.is_err());
            }
            // The process lived on: the test around it sees its success.
            return;
        }
        let this = std::env::current_exe().expect("a test has a path");
        let child = std::process::Command::new(this)
            .args(["too_many_references_end_the_process", "--nocapture"])
            .env(CHILD, "1")
            .output()
            .expect("it runs");
        let said = String::from_utf8_lossy(&child.stderr);
        assert!(!child.status.success(), "it lived on: {said}");
        assert!(said.contains("too many references to job"), "{said}");
    }

    fn node(parent: Option<&Header>, facts: BirthFacts) -> JobRef {
        let birth = Birth {
            parent,
            facts,
            ..Birth::refused(state::BUSY, Location::caller())
        };
        // SAFETY: fresh; its one reference is ours.
        unsafe { JobRef::adopt(crate::record::cell::create_node(&birth)) }
    }

    /// Children inherit that they are timed, and no other fact of birth; the steps from
    /// the root stand above the facts, and do not overflow into them.
    #[test]
    fn facts_of_birth_are_its_own_and_its_depth_stops_below_them() {
        let asks: [fn(&Header) -> bool; 5] = [
            Header::is_shield,
            Header::is_service,
            Header::is_supervisor,
            Header::is_atomic,
            Header::is_timed,
        ];
        let facts = [
            BirthFacts::SHIELD,
            BirthFacts::SERVICE,
            BirthFacts::SUPERVISOR,
            BirthFacts::ATOMIC,
            BirthFacts::TIMED,
        ];
        for (own, fact) in facts.into_iter().enumerate() {
            let job = node(None, fact);
            let child = node(Some(&job), BirthFacts::NONE);
            for (at, ask) in asks.iter().enumerate() {
                assert_eq!(ask(&job), at == own);
                assert_eq!(ask(&child), at == own && fact == BirthFacts::TIMED);
            }
            assert_eq!((job.depth(), child.depth()), (0, 1));
            assert_eq!(job.is_barrier(), own < 2);
        }
        let mut deepest = node(None, BirthFacts::SERVICE.and(BirthFacts::TIMED));
        // SAFETY: no other code has it.
        unsafe { (*deepest.0.as_ptr()).birth |= u32::MAX - FACTS - PRIORITY - STEP };
        for _ in 0..3 {
            deepest = node(Some(&deepest), BirthFacts::NONE);
            assert_eq!(deepest.depth(), u32::MAX / STEP);
            assert!(deepest.is_timed() && !deepest.is_service());
        }
    }

    /// Children inherit a priority until one is given another; lanes of one thread do
    /// not use a priority, but pass it on to the jobs below.
    #[test]
    fn a_priority_is_inherited_through_every_lane() {
        let born = |parent: &JobRef, lane, priority| {
            let birth = Birth {
                parent: Some(parent),
                lane,
                facts: BirthFacts::SERVICE,
                ..Birth::refused(state::BUSY, Location::caller())
            };
            // SAFETY: fresh; its one reference is ours.
            let job = unsafe { JobRef::adopt(crate::record::cell::create_node(&birth)) };
            if let Some(priority) = priority {
                // SAFETY: as above.
                unsafe { Header::give_priority(job.as_ptr().cast_mut(), priority) };
            }
            job
        };
        let root = node(None, BirthFacts::NONE);
        assert_eq!(root.priority(), Priority::Normal);
        let high = born(&root, Lane::Pool, Some(Priority::High));
        let main = born(&high, Lane::Main, None);
        let below = born(&main, Lane::Pool, None);
        let low = born(&below, Lane::Pool, Some(Priority::Low));
        let normal = born(&low, Lane::Pool, Some(Priority::Normal));
        let all = [&high, &main, &below, &low, &normal];
        let marks = all.map(|job| job.lane_mark().pool_priority());
        use Priority::{High, Low, Normal};
        assert_eq!(
            all.map(|job| job.priority()),
            [High, High, High, Low, Normal]
        );
        assert_eq!(
            marks,
            [Some(High), None, Some(High), Some(Low), Some(Normal)]
        );
        assert!(all.iter().all(|job| job.is_service() && !job.is_timed()));
        assert_eq!(normal.depth(), 5);
    }

    /// The header counts to its limit, and the cold part goes on. The hundredth is
    /// reported once.
    #[test]
    fn every_cancelled_that_was_told_is_counted() {
        let job = node(None, BirthFacts::NONE);
        assert!(!job.was_told() && job.was_told_nothing());
        for told in 1..=1100 {
            assert_eq!(job.count_told(true), told == 100, "{told}");
            assert_eq!(job.swallows(), told >= 100, "{told}");
            assert!(job.was_told());
        }
        assert!(!job.has_opened_scopes() && !job.has_seen_mark() && !job.was_born_told());
        job.opens_scope();
        job.is_opened_by_told_body();
        assert!(job.has_opened_scopes() && job.was_born_told() && job.swallows());
    }

    /// A Cancelled inside a scope that a told body opened weighs a fortieth of
    /// one of the body itself.
    #[test]
    fn what_scopes_are_told_weighs_little() {
        let job = node(None, BirthFacts::NONE);
        for told in 1..=3_960 {
            assert!(!job.count_told(false), "{told}");
        }
        assert!(!job.was_told() && !job.was_told_nothing() && !job.swallows());
        assert!(job.count_told(true) && job.was_told() && job.swallows());
    }

    #[test]
    fn a_site_survives_its_four_bytes() {
        let here = Location::caller();
        let back = Site::of(here).location();
        assert_eq!((back.file(), back.line()), (here.file(), here.line()));
    }
}
