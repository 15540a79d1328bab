//! What the jobs of one root share: the host, the counters, the sink, the
//! defaults. A job finds its tree by the twelve bits in its header.

use std::any::Any;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::panic::Location;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::base::error::{Error, Result};
use crate::base::escape::{escaped_path, quoted};
use crate::base::frames::Frames;
use crate::base::id::{JobId, MOST_TREE_NUMBERS};
use crate::base::kind::JobKind;
use crate::base::lane::{Lane, MOST_PINNED};
use crate::base::observe::node::NodeSnapshot;
use crate::base::observe::{
    Count, Counters, CountersSnapshot, EventKind, Gauges, Interests, Outlet, Sink, ThreadCounts,
};
use crate::base::patience::Patience;
use crate::base::reason::ReasonKind;
use crate::base::say::{Topic, say};
use crate::base::thread;
use crate::base::unwind::{self, Contained};
use crate::engine::context;
use crate::engine::host::Host;
use crate::engine::sweeper::Sweeper;
use crate::record::cell;
use crate::record::cold::Reporter;
use crate::record::header::{Birth, BirthFacts, Header, JobRef, MOST_SHARES};
use crate::record::state;

/// How many roots may live at once in one process.
const MOST_TREES: usize = 4095;

/// Living trees by index. An entry owns one reference and is removed when its
/// root has ended. The last index, with which a [`Header`] says that it has no
/// tree, stays empty: so every twelve-bit value is an index.
static TREES: [AtomicPtr<Shared>; MOST_TREES + 1] =
    [const { AtomicPtr::new(ptr::null_mut()) }; MOST_TREES + 1];

/// The serials of trees. A serial is never used again; the numbers made of
/// serials are, but not while a tree with that number lives.
struct Serials {
    next: u64,
    /// The numbers in use, and their trees.
    living: BTreeMap<u64, Weak<Shared>>,
}

static SERIALS: Mutex<Serials> = Mutex::new(Serials::new(1));

impl Serials {
    const fn new(next: u64) -> Serials {
        Serials {
            next,
            living: BTreeMap::new(),
        }
    }

    fn lock() -> MutexGuard<'static, Serials> {
        SERIALS.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the next serial whose number is free, and that number. The search
    /// begins at `first`, if that is given.
    fn take(&mut self, first: Option<u64>) -> (u64, u64) {
        assert!(
            (self.living.len() as u64) < MOST_TREE_NUMBERS,
            "{MOST_TREE_NUMBERS} Kinfolk trees exist already: drop handles of trees that are no longer used"
        );
        let mut serial = first.unwrap_or(self.next);
        loop {
            let number = JobId::tree_number(serial);
            if let Entry::Vacant(free) = self.living.entry(number) {
                // The tree of this number is not made yet.
                free.insert(Weak::new());
                self.next = self.next.max(serial + 1);
                return (serial, number);
            }
            serial += 1;
        }
    }
}

/// How many jobs a report names at most: of more jobs it gives the number.
pub(crate) const MOST_NAMED: usize = 100_000;

/// The hook that receives every failure that no caller takes.
pub type FailureHook = Box<dyn Fn(&Error) + Send + Sync>;

/// The hook that receives every job whose future is dropped before it has
/// completed.
pub type ForcedHook = Box<dyn Fn(&NodeSnapshot) + Send + Sync>;

/// Called at every poll of a point that would succeed, with the job that polls it
/// and, in debug builds, the place of the point in the code; see
/// [`TreeOptions::point_hook`].
pub type PointHook =
    Box<dyn Fn(JobId, Option<&'static Location<'static>>) -> PointHeld + Send + Sync>;

/// Whether a point is held back for now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PointHeld {
    /// The point goes on.
    No,
    /// The point yields, and its next poll calls the hook again.
    Yes,
}

/// How many pinned lanes a tree on `host` has.
fn pinned_lanes(host: &dyn Host) -> u16 {
    let lanes = u16::try_from(host.pinned_lanes()).unwrap_or(u16::MAX);
    lanes.min(MOST_PINNED)
}

pub(crate) struct Shared {
    index: u16,
    /// Of this tree alone. The serial never decides to which tree a job
    /// belongs: a job shows only its [number](JobId::tree_number).
    serial: u64,
    /// The number in the identities of its jobs; no other living tree has it.
    number: u64,
    pub(crate) host: Box<dyn Host>,
    /// The answers of the host about itself, read once.
    pub(crate) has_main_lane: bool,
    pub(crate) pinned_lanes: u16,
    pub(crate) virtual_time: bool,
    looks: bool,
    start: Instant,
    start_coarse: u64,
    pub(crate) counters: Counters,
    pub(crate) outlet: Outlet,
    failure_hook: Option<Contained<FailureHook>>,
    pub(crate) patience: Patience,
    pub(crate) most_children: u32,
    /// How many points a turn may pass; none if the hook is called for each.
    pub(crate) budget: u32,
    point_hook: Option<Contained<PointHook>>,
    pub(crate) sweeper: Sweeper,
    /// The host gives no more turns.
    host_is_gone: AtomicBool,
    /// The forced drops since the root was cancelled, for the shutdown report.
    pub(crate) forced: Mutex<Forced>,
    /// Shutdown drops every job by force: see
    /// [`force_all`](crate::engine::stop::force_all).
    refuses_tasks: AtomicBool,
    forced_hook: Option<Contained<ForcedHook>>,
    root: AtomicPtr<Header>,
    pub(crate) frames: Frames,
    timed: AtomicUsize,
    /// The thread that made the tree and takes the turns of its main lane.
    main_thread: u64,
}

/// A job whose future is dropped before it has completed, as the job was right
/// before the drop.
pub(crate) struct ForcedDrop {
    pub(crate) job: NodeSnapshot,
    /// The innermost scope in which the job was, if any.
    pub(crate) place: Option<NodeSnapshot>,
}

/// Forced drops, as many as a report names.
#[derive(Default)]
pub(crate) struct Forced {
    pub(crate) seen: Vec<NodeSnapshot>,
    /// How many more forced drops there were.
    pub(crate) more: usize,
}

impl Header {
    /// The tree this job belongs to.
    ///
    /// # Safety
    /// The job has not ended, or the caller is its ender and has not released
    /// it.
    #[inline]
    pub(crate) unsafe fn tree(&self) -> &Shared {
        // SAFETY: a living job keeps its root alive (H3), and the root its tree.
        // Noticed by `a_host_outlives_its_call_when_serials_come_round`.
        unsafe { Shared::at(self.tree_place()) }
    }
}

impl Shared {
    /// # Safety
    /// A job of that tree has not ended, or its ender has not released it.
    #[inline]
    pub(crate) unsafe fn at<'a>(index: u16) -> &'a Shared {
        // SAFETY: the entry exists until the root has ended, and the root
        // outlives every other job of its tree. The match below checks that it
        // exists.
        unsafe {
            let tree = TREES[index as usize & MOST_TREES].load(Ordering::Acquire);
            match tree.as_ref() {
                Some(tree) => tree,
                None => no_tree(),
            }
        }
    }

    /// An owned handle to the tree.
    pub(crate) fn handle(&self) -> Tree {
        // SAFETY: `self` lives in an Arc: `Tree::new` is the only maker.
        unsafe {
            Arc::increment_strong_count(ptr::from_ref(self));
            Tree(Arc::from_raw(ptr::from_ref(self)))
        }
    }

    /// Keeps the tree alive during a call of its host, in which the last job
    /// may end. Inside a job of the tree no reference is needed.
    pub(crate) fn held(&self) -> Option<Tree> {
        match self.inside() {
            true => None,
            false => Some(self.handle()),
        }
    }

    /// True while this thread polls a job of this tree. This tree lives, and so
    /// does that of the current job: so different trees have different places.
    pub(crate) fn inside(&self) -> bool {
        context::with(|cx| cx.current().is_some_and(|job| job.is_at(self.index)))
    }

    /// For a wait that was begun in this tree and is polled again: true if the wait must not
    /// use this tree's host any more, because the current job is of another tree, or because
    /// there is no current job and the root has ended. A host that is gone wakes no waiter.
    pub(crate) fn is_elsewhere(&self) -> bool {
        context::with(|cx| match cx.current() {
            // SAFETY: the current job has not ended.
            Some(job) => !ptr::eq(unsafe { job.tree() }, self),
            None => self.root().state.load().ended(),
        })
    }

    pub(crate) fn index(&self) -> u16 {
        self.index
    }

    /// The identity of a new job.
    #[inline]
    pub(crate) fn next_id(&self, counts: &ThreadCounts<'_>) -> JobId {
        JobId::new(self.number, counts.next_number())
    }

    /// Milliseconds since the tree began, from the clock value of the turn, if
    /// there is a turn.
    pub(crate) fn millis(&self) -> u32 {
        context::millis_in_turn(self.index).unwrap_or_else(|| self.millis_at(self.host.now()))
    }

    /// The value wraps around once in fifty days.
    fn millis_at(&self, now: Instant) -> u32 {
        now.saturating_duration_since(self.start).as_millis() as u32
    }

    /// How long ago the tree began, by the clock of its host.
    pub(crate) fn age(&self) -> Duration {
        self.host.now().saturating_duration_since(self.start)
    }

    /// Milliseconds since the tree began by the coarse clock, whatever the
    /// turn's value is.
    #[inline(never)]
    pub(crate) fn millis_now(&self) -> u32 {
        match self.host.coarse_millis() {
            Some(now) => now.wrapping_sub(self.start_coarse) as u32,
            None => self.millis_at(self.host.now()),
        }
    }

    /// Milliseconds since the tree began, for a poll of a job that begins. Only
    /// cancelled jobs need it exact; for others it may be a few turns old.
    #[inline]
    pub(crate) fn millis_of_poll(&self, st: state::Snapshot, scope: bool) -> u32 {
        if st.effective() || !self.looks {
            return self.millis_now();
        }
        context::millis_of(self.serial, scope, || self.millis_now())
    }

    /// The host gives no more turns.
    pub(crate) fn note_host_gone(&self) {
        self.host_is_gone.store(true, Ordering::Relaxed);
    }

    /// True once the host gives no more turns.
    pub(crate) fn host_is_gone(&self) -> bool {
        self.host_is_gone.load(Ordering::Relaxed)
    }

    /// The reason for the forced drop of a task that nothing has cancelled.
    pub(crate) fn why_forced(&self) -> ReasonKind {
        match self.host_is_gone() {
            true => ReasonKind::HostGone,
            false => ReasonKind::Shutdown,
        }
    }

    /// The hook's answer for the point at `site` that `job` polls; none without a hook.
    pub(crate) fn watched_point(
        &self,
        job: JobId,
        site: Option<&'static Location<'static>>,
    ) -> Option<PointHeld> {
        self.point_hook.as_ref().map(|hook| (**hook)(job, site))
    }

    pub(crate) fn root(&self) -> &Header {
        // SAFETY: set in `Tree::new` before any other code has the tree; the
        // tree owns a reference to its root.
        unsafe { &*self.root.load(Ordering::Acquire) }
    }

    /// The root, with a reference of its own.
    pub(crate) fn root_job(&self) -> JobRef {
        JobRef::from_header(self.root())
    }

    /// So many turns of timers and of what is below them go to their queues.
    pub(crate) fn timed_turns(&self, more: usize) {
        self.timed.fetch_add(more, Ordering::SeqCst);
    }

    /// One of these turns has been taken. Each turn that it caused is counted
    /// already, so at zero all these jobs are parked or have ended.
    pub(crate) fn timed_turn_over(&self) {
        if self.timed.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.host.timers_rest();
        }
    }

    /// True on the thread that made the tree.
    pub(crate) fn is_main_thread(&self) -> bool {
        self.main_thread == thread::thread()
    }

    /// True if turns of `lane` may be taken on this thread.
    #[inline]
    pub(crate) fn turns_here(&self, lane: Lane) -> bool {
        match lane {
            Lane::Pool => true,
            Lane::Main => self.is_main_thread(),
            Lane::Pinned(n) => self.turns_pinned(n),
        }
    }

    // Not inlined: a call of the host would cost each turn of another lane the registers
    // that the call saves.
    #[inline(never)]
    fn turns_pinned(&self, n: u16) -> bool {
        self.host.turns_pinned(usize::from(n))
    }

    pub(crate) fn weak(&self) -> Weak<Shared> {
        Arc::downgrade(&self.handle().0)
    }

    /// Reports a failure for which there is no handle.
    pub(crate) fn report_failure(&self, error: &Error) {
        if let Some(hook) = &self.failure_hook {
            unwind::contained(|| (**hook)(error));
        }
    }

    /// A future was dropped before it had completed.
    pub(crate) fn note_forced(&self, seen: ForcedDrop) {
        self.counters.add(Count::ForceDropped);
        self.emit_for(Interests::CAUSES, seen.job.id, EventKind::Dropped);
        if let Some(hook) = &self.forced_hook {
            unwind::contained(|| (**hook)(&seen.job));
        }
        if self.root().state.load().has(state::CANCELLED) {
            let mut forced = self.forced.lock().unwrap_or_else(PoisonError::into_inner);
            if forced.seen.len() < MOST_NAMED {
                forced.seen.push(seen.place.unwrap_or(seen.job));
            } else {
                forced.more += 1;
            }
        }
    }

    /// From here on no task is attached anywhere in the tree, except those that are
    /// just being made.
    pub(crate) fn refuse_tasks(&self) {
        self.refuses_tasks.store(true, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn refuses_tasks(&self) -> bool {
        self.refuses_tasks.load(Ordering::Relaxed)
    }

    /// The root has ended: removes the entry and returns its reference.
    pub(crate) fn retire(&self) -> Option<Tree> {
        let entry = TREES[self.index as usize].swap(ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: the entry owned one reference, made in `Tree::new`, and is
        // taken out once. Noticed by
        // `a_host_outlives_its_call_when_serials_come_round`.
        (!entry.is_null()).then(|| Tree(unsafe { Arc::from_raw(entry) }))
    }
}

#[cold]
#[inline(never)]
fn no_tree() -> ! {
    panic!("a job that has ended was asked for its tree, which is gone")
}

impl Reporter for Shared {
    fn report(&self, error: &Error) {
        self.report_failure(error);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        Serials::lock().living.remove(&self.number);
        let root = *self.root.get_mut();
        if !root.is_null() {
            // SAFETY: the tree owned one reference to its root (H6).
            unsafe { Header::release(root) };
        }
    }
}

/// Options of a [`Tree`]. Every field has a default.
pub struct TreeOptions {
    /// Where events go; none by default.
    pub sink: Option<Arc<dyn Sink>>,
    /// Receives every failure that no caller takes: of supervised tasks without a handle, of
    /// detached jobs, of scopes that were dropped before they were over. By default failures
    /// are printed to standard error, at most ten in a second, with the number of those that
    /// were left out.
    pub failure_hook: Option<FailureHook>,
    /// Receives every job whose future is dropped before it has completed, as the job was then.
    /// By default the job is printed to standard error, like failures.
    pub forced_hook: Option<ForcedHook>,
    /// How long a cancelled job may stay idle before its future is dropped.
    pub patience: Patience,
    /// How many children one job may have at a time.
    pub most_children: u32,
    /// Called at every poll of a point that would succeed, with the job that
    /// polls it, on its thread: for tools that test programs. The hook replaces
    /// the turn's budget.
    pub point_hook: Option<PointHook>,
}

impl Default for TreeOptions {
    fn default() -> Self {
        TreeOptions {
            sink: None,
            failure_hook: Some(Box::new(|error| {
                let job = match error.path() {
                    [] => "a job".to_string(),
                    path => escaped_path(path),
                };
                let words = format_args!("kinfolk: unhandled failure of {job}: {error}");
                say(Topic::Failure, words);
            })),
            forced_hook: Some(Box::new(|job| {
                let (file, line) = (job.site.file(), job.site.line());
                say(
                    Topic::Forced,
                    format_args!(
                        "kinfolk: dropped {} {}, spawned at {file}:{line}: it reached no \
                         cancellation point after it was cancelled",
                        job.kind,
                        quoted(&job.name),
                    ),
                );
            })),
            patience: Patience::default(),
            // The limit of the source design; see the contract's appendix.
            most_children: (1 << 29) - 1,
            point_hook: None,
        }
    }
}

/// A tree of jobs on a host: for authors of hosts.
#[derive(Clone)]
pub struct Tree(Arc<Shared>);

/// A tree that may be gone; see [`Tree::downgrade`].
#[derive(Clone)]
pub struct WeakTree(Weak<Shared>);

impl WeakTree {
    /// Returns the tree, if it still exists.
    pub fn upgrade(&self) -> Option<Tree> {
        Tree::upgrade(&self.0)
    }
}

impl fmt::Debug for WeakTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WeakTree")
    }
}

impl Tree {
    /// Makes a new root on `host`.
    ///
    /// # Panics
    /// If 4,095 roots exist already.
    #[track_caller]
    pub fn new(host: Box<dyn Host>, options: TreeOptions) -> Tree {
        match Tree::try_new(host, options) {
            Ok(tree) => tree,
            Err(error) => panic!("{error}"),
        }
    }

    /// Like [`new`](Tree::new), but returns an error instead of panicking.
    ///
    /// # Errors
    /// If 4,095 roots exist already.
    #[track_caller]
    pub fn try_new(host: Box<dyn Host>, options: TreeOptions) -> Result<Tree> {
        Tree::numbered(host, options, None)
    }

    /// Makes a tree whose serial is at least `first`.
    #[track_caller]
    fn numbered(host: Box<dyn Host>, options: TreeOptions, first: Option<u64>) -> Result<Tree> {
        let start = host.now();
        let outlet = Outlet::new(options.sink, host.virtual_time(), start);
        let (serial, number) = Serials::lock().take(first);
        let mut shared = Arc::new(Shared {
            index: 0,
            serial,
            number,
            has_main_lane: host.has_main_lane(),
            pinned_lanes: pinned_lanes(&*host),
            virtual_time: host.virtual_time(),
            looks: host.looks(),
            start_coarse: host.coarse_millis().unwrap_or_default(),
            host,
            start,
            counters: Counters::default(),
            outlet,
            failure_hook: options.failure_hook.map(Contained::new),
            patience: options.patience,
            most_children: options.most_children.min(MOST_SHARES),
            budget: options.point_hook.as_ref().map_or(context::BUDGET, |_| 0),
            point_hook: options.point_hook.map(Contained::new),
            sweeper: Sweeper::new(options.patience),
            host_is_gone: AtomicBool::new(false),
            forced: Mutex::default(),
            refuses_tasks: AtomicBool::new(false),
            forced_hook: options.forced_hook.map(Contained::new),
            root: AtomicPtr::new(ptr::null_mut()),
            frames: Frames::default(),
            timed: AtomicUsize::new(0),
            main_thread: thread::thread(),
        });
        let free = (0..MOST_TREES as u16).find(|index| {
            Arc::get_mut(&mut shared).expect("not shared yet").index = *index;
            let entry = Arc::as_ptr(&shared).cast_mut();
            TREES[*index as usize]
                .compare_exchange(ptr::null_mut(), entry, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        });
        if free.is_none() {
            return Err(Error::msg(format!(
                "{MOST_TREES} Kinfolk roots exist already: shut some down before making more \
                 (a runtime that was dropped inside a job keeps its root while one of its \
                 tasks waits for a turn that no thread will run)"
            )));
        }
        // The entry's reference.
        std::mem::forget(shared.clone());
        Serials::lock()
            .living
            .insert(number, Arc::downgrade(&shared));
        let counts = shared.counters.here();
        let root = cell::create_node(&Birth {
            tree: shared.index(),
            born: shared.millis(),
            id: shared.next_id(&counts),
            kind: JobKind::Root,
            lane: Lane::Pool,
            facts: BirthFacts::SUPERVISOR,
            parent: None,
            vtable: &cell::NODE,
            state: state::HAS_SHARES,
            refs: 2,
            site: Location::caller(),
        });
        shared.root.store(root.cast_mut(), Ordering::Release);
        counts.created(JobKind::Root);
        if shared.has_sink() {
            shared.tell_of_birth(shared.root(), None);
        }
        Ok(Tree(shared))
    }

    /// The tree whose jobs have that number, if it still exists: a later tree may
    /// have the same number.
    pub(crate) fn with_number(number: u64) -> Option<Tree> {
        let tree = Serials::lock().living.get(&number).cloned();
        // Outside the lock, which the drop of a tree takes.
        tree.and_then(|tree| Tree::upgrade(&tree))
    }

    /// The tree, if it still exists.
    pub(crate) fn upgrade(tree: &Weak<Shared>) -> Option<Tree> {
        tree.upgrade().map(Tree)
    }

    /// The tree of a reference that a record keeps, if it still exists.
    pub(crate) fn upgrade_any(tree: &Weak<dyn Any + Send + Sync>) -> Option<Tree> {
        tree.upgrade()?.downcast().ok().map(Tree)
    }

    /// The reference that a record keeps for a failure to be reported later.
    pub(crate) fn as_reporter(&self) -> Arc<dyn Reporter> {
        self.0.clone()
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.0
    }

    /// A reference that does not keep the tree alive: for its host, which the
    /// tree owns.
    pub fn downgrade(&self) -> WeakTree {
        WeakTree(self.0.weak())
    }

    /// Returns the counters. Those of i/o are the host's, which has one tree.
    pub fn counters(&self) -> CountersSnapshot {
        let mut read = self.0.counters.read();
        if let Some(io) = self.0.host.io_gauges() {
            read.io_submitted = io.submitted;
            read.io_completed = io.completed;
            read.io_cancelled = io.cancelled;
        }
        read
    }

    /// Returns the present gauges of the tree and of the host.
    pub fn gauges(&self) -> Gauges {
        let host = self.0.host.gauges();
        let now = self.0.host.now();
        Gauges {
            living: self.counters().living(),
            runnable: host.runnable,
            next_deadline_in: host.next_timer.map(|at| at.saturating_duration_since(now)),
            queues: host.queues,
            io: self.0.host.io_gauges(),
        }
    }

    /// True if neither a factory timer nor a job below one is queued for a turn
    /// or being polled. On a host with a main lane; see
    /// [`Host::timers_rest`].
    pub fn timers_rest(&self) -> bool {
        self.0.timed.load(Ordering::SeqCst) == 0
    }

    /// Returns the host.
    pub fn host(&self) -> &dyn Host {
        &*self.0.host
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::engine::host::{BlockingCall, TimerKey, TimerQueue, Turn, TurnRow};
    use crate::engine::pin;
    use crate::engine::walk::{self, Why};
    use crate::record::header::JobRef;
    use std::task::{Poll, Waker};

    /// Keeps turns, or drops each inside the call that brings it, like a host
    /// that is gone.
    #[derive(Clone, Default)]
    struct Pile(Arc<Heap>);

    #[derive(Default)]
    struct Heap {
        turns: Mutex<Vec<Turn>>,
        drops: AtomicBool,
        /// The host is called.
        called: AtomicBool,
        /// The host was dropped during a call.
        went_meanwhile: AtomicBool,
    }

    impl Pile {
        fn run(&self) {
            while let Some(turn) = {
                let mut turns = self.0.turns.lock().expect("not poisoned");
                turns.pop()
            } {
                assert!(turn.run().is_none());
            }
        }
    }

    /// The host itself, which is dropped with its tree.
    struct Owner(Pile);

    impl Drop for Owner {
        fn drop(&mut self) {
            let heap = &self.0.0;
            let called = heap.called.load(Ordering::SeqCst);
            heap.went_meanwhile.store(called, Ordering::SeqCst);
        }
    }

    impl Host for Owner {
        fn start(&self, turn: Turn) {
            // The code below does not touch the host, which may be gone.
            let pile = self.0.clone();
            if pile.0.drops.load(Ordering::SeqCst) {
                pile.0.called.store(true, Ordering::SeqCst);
                drop(turn);
                pile.0.called.store(false, Ordering::SeqCst);
            } else {
                pile.0.turns.lock().expect("not poisoned").push(turn);
            }
        }

        fn schedule(&self, ready: TurnRow) {
            for turn in ready {
                self.start(turn);
            }
        }

        fn now(&self) -> Instant {
            Instant::now()
        }

        fn set_timer(&self, at: Instant, waker: Waker) -> TimerKey {
            TimerQueue::new().insert(at, waker)
        }

        fn clear_timer(&self, _: TimerKey) -> Option<Waker> {
            None
        }

        fn run_blocking(&self, call: BlockingCall) {
            drop(call);
        }
    }

    fn tree_from(serial: Option<u64>) -> (Tree, Pile) {
        let pile = Pile::default();
        let options = TreeOptions {
            failure_hook: None,
            forced_hook: None,
            ..TreeOptions::default()
        };
        let tree = Tree::numbered(Box::new(Owner(pile.clone())), options, serial).unwrap();
        (tree, pile)
    }

    /// T22: a job may have 2^29 - 1 children, the limit of the source design, and
    /// not one more.
    #[test]
    fn src_t22_the_limit_of_children_is_that_of_the_source() {
        let (tree, pile) = tree_from(None);
        let root = tree.root_scope();
        let set = |shares: u32| {
            let job = root.job().job_ref();
            let mut locked = job.lock();
            let before = locked.shares();
            locked.set_shares(shares);
            before
        };
        // The body counts as one.
        let before = set((1 << 29) - 1);
        let last = root.try_spawn(async {}).expect("there is room for one");
        let refused = root.try_spawn(async {}).expect_err("there is none");
        assert!(refused.is_full());
        set(before + 1);
        pile.run();
        assert!(last.is_ended());
        assert!(root.try_spawn(async {}).is_ok());
        pile.run();
        tree.request_shutdown(ReasonKind::Shutdown);
        assert_eq!(tree.counters().living(), 0);
    }

    /// A tree that is shut down except for one task, whose waker is the only
    /// way to reach the task. The number of the tree is given again, as if no
    /// living tree had it: still, nothing that is safe to touch may depend on
    /// it.
    fn almost_over(serial: u64) -> (JobRef, Waker, Pile) {
        let number = JobId::tree_number(serial);
        assert!(Serials::lock().living.remove(&number).is_some());
        let (tree, pile) = tree_from(Some(serial));
        assert_eq!(tree.0.number, number);
        let kept = Arc::new(Mutex::new(None));
        let keeps = kept.clone();
        let job = tree.root_scope().launch(std::future::poll_fn(move |cx| {
            *keeps.lock().expect("not poisoned") = Some(cx.waker().clone());
            Poll::<()>::Pending
        }));
        pile.run();
        tree.request_shutdown(ReasonKind::Shutdown);
        pile.run();
        pile.0.drops.store(true, Ordering::SeqCst);
        let waker = kept.lock().expect("not poisoned").take();
        let job = JobRef::from_header(crate::surface::scope::Scope::of_job(&job).header());
        (job, waker.expect("polled"), pile)
    }

    /// Runs `f` inside a job of a tree of its own, numbered from `serial` on.
    fn inside_a_job(serial: u64, f: impl FnOnce() + Send + 'static) {
        let (tree, pile) = tree_from(Some(serial));
        let job = tree.root_scope().launch(async move { f() });
        pile.run();
        let ended = job.state();
        tree.request_shutdown(ReasonKind::Shutdown);
        pile.run();
        assert_eq!(ended, crate::JobState::Completed);
    }

    #[test]
    fn a_number_in_use_is_passed_over() {
        let mut serials = Serials::new(MOST_TREE_NUMBERS - 1);
        let most = MOST_TREE_NUMBERS;
        assert_eq!(serials.take(None), (most - 1, most));
        // Never 0, which stands for a refused task.
        assert_eq!(serials.take(None), (most, 1));
        assert_eq!(serials.take(None), (most + 1, 2));
        // The numbers wrap around: two of the three trees still live.
        assert!(serials.living.remove(&1).is_some());
        assert_eq!(serials.take(Some(2 * most - 1)), (2 * most, 1));
        assert_eq!(serials.take(None), (2 * most + 2, 3));
    }

    /// The numbers that trees show wrap around after sixteen million. Two trees that
    /// would have the same number are still two trees.
    #[test]
    fn a_host_outlives_its_call_when_serials_come_round() {
        const SERIAL: u64 = 0xabcdef;
        inside_a_job(SERIAL, || {
            let (job, waker, pile) = almost_over(SERIAL + MOST_TREE_NUMBERS);
            waker.wake();
            assert!(job.state.load().ended(), "{:?}", job.state.load());
            let meanwhile = pile.0.went_meanwhile.load(Ordering::SeqCst);
            assert!(!meanwhile, "the host was dropped inside its own `start`");
        });
    }

    #[test]
    fn a_job_of_another_tree_is_pinned_when_serials_come_round() {
        const SERIAL: u64 = 0xabcdee;
        inside_a_job(SERIAL, || {
            let (job, waker, pile) = almost_over(SERIAL + MOST_TREE_NUMBERS);
            let pinned = pin::tree_of(&job);
            assert!(matches!(pinned, Some(pin::PinnedTree::Owned(_))));
            assert!(!pinned.expect("it lives").inside());
            drop((waker, pile));
            walk::cancel(&job, Why::new(ReasonKind::Asked, Location::caller()));
        });
    }
}
