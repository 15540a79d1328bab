//! Spawning: a future becomes a child task, or is refused.

use std::borrow::Cow;
use std::fmt;
use std::panic::Location;

use crate::base::error::Error;
use crate::base::escape::quoted;
use crate::base::kind::JobKind;
use crate::base::lane::Lane;
use crate::base::observe::{Count, Interests};
use crate::base::outcome::IntoOutcome;
use crate::base::patience::Patience;
use crate::base::priority::Priority;
use crate::base::reason::{ReasonData, ReasonKind};
use crate::base::say::{Topic, say};
use crate::base::unwind::discard;
use crate::engine::attach::{self, Refusal};
use crate::engine::context;
use crate::engine::names;
use crate::engine::pin;
use crate::engine::rows::Turn;
use crate::engine::tree::Shared;
use crate::engine::turn;
use crate::record::cell;
use crate::record::header::{Birth, BirthFacts, Header, JobRef, MOST_SHARES, NO_SHARES};
use crate::record::state;
use crate::surface::handle::Job;
use crate::surface::inline::{Inline, Just, Setup};
use crate::surface::lane::{LaneFor, LaneNumber, LaneOfOne, Pool, Sealed};
use crate::surface::options::Options;
use crate::surface::scope::Scope;
use crate::surface::span::{self, Spanned};
use crate::surface::task::Task;

/// How deep `spawn_now` may nest before it works like `spawn`.
const DEEPEST_NOW: u32 = 16;

/// The error of [`try_spawn`](Spawner::try_spawn): why the scope refused, and the
/// future.
pub struct SpawnError<F> {
    /// The future, untouched.
    pub future: F,
    refusal: Refusal,
}

impl<F> SpawnError<F> {
    /// Returns true if the scope was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.refusal == Refusal::Cancelled
    }

    /// Returns true if the scope had ended or was closed.
    pub fn is_ended(&self) -> bool {
        self.refusal == Refusal::Ended
    }

    /// Returns true if the scope had as many children as one job may have.
    pub fn is_full(&self) -> bool {
        self.refusal == Refusal::TooMany
    }
}

impl<F> fmt::Display for SpawnError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&words(self.refusal))
    }
}

fn words(refusal: Refusal) -> Cow<'static, str> {
    let words = match refusal {
        Refusal::Cancelled => "the scope is cancelled and takes no new children",
        Refusal::Ended => "the scope has ended or was closed and takes no new children",
        Refusal::TooMany => {
            "the scope has as many children as one job may have: wait for some to end, \
             or spread them over several scopes"
        }
        Refusal::NoMain => {
            "this host has no main lane: spawn onto the pool, or run on the native runtime or \
             the simulation"
        }
        Refusal::NoWorker { n, lanes } => return no_worker(n, lanes).into(),
        Refusal::NotHere => {
            "a future that is not Send can be spawned on the thread of its lane only, a worker \
             or the main thread of its runtime: spawn it there, or pass a closure that makes it \
             to spawn_with"
        }
    };
    words.into()
}

fn no_worker(n: usize, lanes: u16) -> String {
    let there = match lanes {
        0 => "this host has no pinned lanes".to_string(),
        1 => "the only pinned lane of this host is Pinned(0)".to_string(),
        lanes => format!(
            "the pinned lanes of this host are Pinned(0) to Pinned({})",
            lanes - 1
        ),
    };
    format!("there is no worker {n} to pin a task to: {there}; see Pinned::all")
}

impl<F> fmt::Debug for SpawnError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SpawnError({:?})", self.refusal)
    }
}

impl<F> std::error::Error for SpawnError<F> {}

/// Options of a task that is about to be spawned: a name, patience, a priority. Made by
/// [`Scope::task`]; ends with one of the spawning verbs.
#[derive(Clone, Debug)]
#[must_use = "nothing is spawned until a spawning verb is called"]
pub struct Spawner<L = Pool> {
    scope: Scope,
    options: Options,
    lane: L,
}

/// Where a task is spawned, with the options of its spawner. It is passed by
/// reference, as [`Birth`] is: a copy would be read in larger parts than it was
/// just written in (a store-forwarding stall).
pub(crate) struct SpawnPlace<'a> {
    parent: &'a Header,
    options: Option<&'a Options>,
    /// True if it is an attempt whatever the options say.
    attempt: bool,
}

/// What to make of the future.
struct Plan {
    /// The task has an owning handle.
    owned: bool,
    sort: ChildSort,
    site: &'static Location<'static>,
}

/// What sort of child a verb makes: the verbs differ in nothing else.
#[derive(Clone, Copy)]
pub(crate) struct ChildSort {
    /// COUNTED, or LAZY, or neither.
    state: u64,
    facts: BirthFacts,
    first: First,
}

impl ChildSort {
    const fn new(state: u64, facts: BirthFacts, first: First) -> ChildSort {
        ChildSort {
            state,
            facts,
            first,
        }
    }

    /// For `spawn` and `launch`.
    pub(crate) const ORDINARY: ChildSort =
        ChildSort::new(state::COUNTED, BirthFacts::NONE, First::Queued);
    /// For `spawn_now`.
    pub(crate) const NOW: ChildSort = ChildSort::new(state::COUNTED, BirthFacts::NONE, First::Now);
    /// For `spawn_atomic`.
    pub(crate) const ATOMIC: ChildSort =
        ChildSort::new(state::COUNTED, BirthFacts::ATOMIC, First::Queued);
    /// For `spawn_lazy`.
    pub(crate) const LAZY: ChildSort = ChildSort::new(state::LAZY, BirthFacts::NONE, First::Asked);
    /// For `spawn_service`.
    pub(crate) const SERVICE: ChildSort = ChildSort::new(0, BirthFacts::SERVICE, First::Queued);
    /// The driver of a factory timer. Not `timed` if its host does not count the turns of
    /// timers. Below the root it is no service, since it would wait for every other job.
    pub(crate) const fn timer(below_root: bool, timed: bool) -> ChildSort {
        let mut sort = ChildSort::ORDINARY;
        if !below_root {
            sort = ChildSort::SERVICE;
        }
        sort.facts = sort.facts.and(BirthFacts::SUPERVISOR);
        if timed {
            sort.facts = sort.facts.and(BirthFacts::TIMED);
        }
        sort
    }
}

/// When the task has its first turn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum First {
    /// When its host runs it.
    Queued,
    /// Before the call that spawns it returns.
    Now,
    /// When it is started: lazy.
    Asked,
}

impl First {
    /// Gives the first turn.
    ///
    /// # Safety
    /// As for [`start`]; and the caller has a reference to `child`.
    #[inline]
    unsafe fn give(self, tree: &Shared, child: &Header) {
        match self {
            // SAFETY: passed on.
            First::Queued => unsafe { start(tree, child) },
            // SAFETY: passed on.
            First::Now => unsafe { run_now(tree, child) },
            First::Asked => {}
        }
    }
}

impl Spawner {
    pub(crate) fn new(scope: Scope) -> Spawner {
        Spawner {
            scope,
            options: Options::default(),
            lane: Pool,
        }
    }
}

impl<L> Spawner<L> {
    /// Chooses the lane; the pool by default.
    pub fn on<M>(self, lane: M) -> Spawner<M> {
        Spawner {
            scope: self.scope,
            options: self.options,
            lane,
        }
    }

    /// Names the task.
    pub fn named(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.options.name = Some(name.into());
        self
    }

    /// Sets how long the task may stay idle once it is cancelled; inherited by the
    /// jobs it spawns.
    pub fn patience(mut self, patience: Patience) -> Self {
        self.options.patience = Some(patience);
        self
    }

    /// Sets how soon the task is polled beside other tasks of the pool; inherited by the
    /// jobs it spawns. Without this option a task has the priority of the job that it is
    /// spawned in, and a [detached](detach) one the normal priority.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.options.priority = Some(priority);
        self
    }

    /// Makes the task an attempt: its failure is returned by its handle and cancels no other
    /// job; see [`Scope::attempt`]. Holds for every spawning verb: a failure of a
    /// [launched](Spawner::launch) attempt goes to the failure hook, since no handle takes it.
    pub fn attempted(mut self) -> Self {
        self.options.attempt = true;
        self
    }

    /// Spawns a child task. If it fails, its family is cancelled, even where the failure is
    /// handled when the task is awaited: for a failure that only its `await` returns, spawn
    /// an [attempt](Spawner::attempt). Dropping the [`Task`] cancels the task.
    ///
    /// With the feature `tracing` the task runs in the span in which this is
    /// called, as do children of every other verb; [detached](detach) jobs
    /// inherit none.
    ///
    /// A future that is not `Send` goes to the main lane with [`Main::here`](crate::Main::here),
    /// which the free [`spawn`] shows.
    ///
    /// Into a cancelled, closed or ended scope: the handle is born cancelled,
    /// the future is dropped by this call and never polled. If the scope has
    /// ended by itself, a message on standard error says so, once.
    #[inline]
    #[track_caller]
    pub fn spawn<F>(self, future: F) -> Task<<F::Output as IntoOutcome>::Value>
    where
        L: LaneFor<F>,
        F: Future<Output: IntoOutcome>,
    {
        let place = self.place();
        place.spawn_on(&self.lane, future, ChildSort::ORDINARY, Location::caller())
    }

    /// Spawns a child task without an owning handle: dropping the [`Job`] does not
    /// cancel it, and the scope waits for it.
    #[track_caller]
    pub fn launch<F>(self, future: F) -> Job
    where
        L: LaneFor<F>,
        F: Future<Output: IntoOutcome>,
    {
        self.place()
            .launch_on(&self.lane, future, ChildSort::ORDINARY, Location::caller())
    }

    /// Like [`spawn`](Spawner::spawn), but a refusal returns the future.
    #[track_caller]
    pub fn try_spawn<F>(
        self,
        future: F,
    ) -> Result<Task<<F::Output as IntoOutcome>::Value>, SpawnError<F>>
    where
        L: LaneFor<F>,
        F: Future<Output: IntoOutcome>,
    {
        self.place()
            .try_spawn_on(&self.lane, future, ChildSort::ORDINARY, Location::caller())
    }

    /// Like [`launch`](Spawner::launch), but a refusal returns the future.
    #[track_caller]
    pub fn try_launch<F>(self, future: F) -> Result<Job, SpawnError<F>>
    where
        L: LaneFor<F>,
        F: Future<Output: IntoOutcome>,
    {
        let plan = Plan {
            owned: false,
            sort: ChildSort::ORDINARY,
            site: Location::caller(),
        };
        let job = self.place().put_checked(&self.lane, future, &plan)?;
        Ok(Job::new(job))
    }

    /// Like [`spawn_now`](Spawner::spawn_now), but a refusal returns the future.
    #[track_caller]
    pub fn try_spawn_now<F>(
        self,
        future: F,
    ) -> Result<Task<<F::Output as IntoOutcome>::Value>, SpawnError<F>>
    where
        L: LaneFor<F>,
        F: Future<Output: IntoOutcome>,
    {
        self.place()
            .try_spawn_on(&self.lane, future, ChildSort::NOW, Location::caller())
    }

    /// Like [`spawn_atomic`](Spawner::spawn_atomic), but a refusal returns the
    /// future.
    #[track_caller]
    pub fn try_spawn_atomic<F>(
        self,
        future: F,
    ) -> Result<Task<<F::Output as IntoOutcome>::Value>, SpawnError<F>>
    where
        L: LaneFor<F>,
        F: Future<Output: IntoOutcome>,
    {
        self.place()
            .try_spawn_on(&self.lane, future, ChildSort::ATOMIC, Location::caller())
    }

    /// Like [`spawn_lazy`](Spawner::spawn_lazy), but a refusal returns the future.
    #[track_caller]
    pub fn try_spawn_lazy<F>(
        self,
        future: F,
    ) -> Result<Task<<F::Output as IntoOutcome>::Value>, SpawnError<F>>
    where
        L: LaneFor<F>,
        F: Future<Output: IntoOutcome>,
    {
        self.place()
            .try_spawn_on(&self.lane, future, ChildSort::LAZY, Location::caller())
    }

    /// Like [`spawn_service`](Spawner::spawn_service), but a refusal returns the
    /// future.
    #[track_caller]
    pub fn try_spawn_service<F>(
        self,
        future: F,
    ) -> Result<Task<<F::Output as IntoOutcome>::Value>, SpawnError<F>>
    where
        L: LaneFor<F>,
        F: Future<Output: IntoOutcome>,
    {
        self.place()
            .try_spawn_on(&self.lane, future, ChildSort::SERVICE, Location::caller())
    }

    /// Spawns a child task and polls it once, here, before returning. Outside a job of the
    /// same lane, and when nested deeper than 16, this works like [`spawn`](Spawner::spawn).
    #[inline]
    #[track_caller]
    pub fn spawn_now<F>(self, future: F) -> Task<<F::Output as IntoOutcome>::Value>
    where
        L: LaneFor<F>,
        F: Future<Output: IntoOutcome>,
    {
        let place = self.place();
        place.spawn_on(&self.lane, future, ChildSort::NOW, Location::caller())
    }

    /// Spawns a child task that reaches its first point even if it is
    /// cancelled before it starts.
    ///
    /// Into a cancelled scope whose body goes on: the child is attached, is
    /// cancelled from birth, and is told at its first point. So a body that was
    /// cancelled by a failing sibling can still hand values over that must not
    /// be lost. A closed scope, and a cancelled one whose body has ended, refuse
    /// the child.
    #[track_caller]
    pub fn spawn_atomic<F>(self, future: F) -> Task<<F::Output as IntoOutcome>::Value>
    where
        L: LaneFor<F>,
        F: Future<Output: IntoOutcome>,
    {
        let place = self.place();
        place.spawn_on(&self.lane, future, ChildSort::ATOMIC, Location::caller())
    }

    /// Spawns a child task that starts when it is first awaited, joined or
    /// [started](Task::start). Until then it holds no scope open: a scope that
    /// ends with it unstarted cancels it.
    #[track_caller]
    pub fn spawn_lazy<F>(self, future: F) -> Task<<F::Output as IntoOutcome>::Value>
    where
        L: LaneFor<F>,
        F: Future<Output: IntoOutcome>,
    {
        let place = self.place();
        place.spawn_on(&self.lane, future, ChildSort::LAZY, Location::caller())
    }

    /// Spawns a service: a task that works for its siblings. No cancel from
    /// above reaches it while they live; it is cancelled when the scope's body
    /// and every ordinary child have ended. Its failure counts like that of any
    /// child.
    #[track_caller]
    pub fn spawn_service<F>(self, future: F) -> Task<<F::Output as IntoOutcome>::Value>
    where
        L: LaneFor<F>,
        F: Future<Output: IntoOutcome>,
    {
        let place = self.place();
        place.spawn_on(&self.lane, future, ChildSort::SERVICE, Location::caller())
    }

    /// Makes a job of a future that another executor polls; see [`Scope::host`].
    ///
    /// # Cancellation
    /// As [`Scope::host`].
    #[track_caller]
    pub fn host<F>(self, future: F) -> Inline<Just<F>>
    where
        F: Future<Output: IntoOutcome>,
    {
        let mut setup = Setup::new(JobKind::Hosted, Location::caller());
        let more = setup.more();
        more.options = self.options;
        more.below = Some(JobRef::from_header(self.scope.header()));
        Inline::new(Just(future), setup)
    }

    /// Launches a child of another sort than [`launch`](Spawner::launch) does.
    pub(crate) fn launch_as<F>(
        self,
        future: F,
        sort: ChildSort,
        site: &'static Location<'static>,
    ) -> Job
    where
        L: LaneFor<F>,
        F: Future<Output: IntoOutcome>,
    {
        self.place().launch_on(&self.lane, future, sort, site)
    }

    pub(crate) fn scope(&self) -> &Scope {
        &self.scope
    }

    pub(crate) fn lane(&self) -> &L {
        &self.lane
    }

    pub(crate) fn place(&self) -> SpawnPlace<'_> {
        SpawnPlace {
            parent: self.scope.header(),
            options: Some(&self.options),
            attempt: false,
        }
    }
}

impl<'a> SpawnPlace<'a> {
    /// A place without options.
    pub(crate) fn below(parent: &'a Header) -> SpawnPlace<'a> {
        SpawnPlace {
            parent,
            options: None,
            attempt: false,
        }
    }

    /// A child whose failure goes to its handle alone.
    pub(crate) fn attempted(mut self) -> SpawnPlace<'a> {
        self.attempt = true;
        self
    }

    /// On the pool.
    #[inline]
    pub(crate) fn spawn_as<F>(
        &self,
        future: F,
        sort: ChildSort,
        site: &'static Location<'static>,
    ) -> Task<<F::Output as IntoOutcome>::Value>
    where
        F: Future<Output: IntoOutcome<Value: Send>> + Send + 'static,
    {
        self.spawn_on(&Pool, future, sort, site)
    }

    /// Inlined, so that the handle is made where it is kept: copying a handle
    /// that a call returns in parts is slow (a store-forwarding stall).
    #[inline]
    pub(crate) fn spawn_on<L, F>(
        &self,
        lane: &L,
        future: F,
        sort: ChildSort,
        site: &'static Location<'static>,
    ) -> Task<<F::Output as IntoOutcome>::Value>
    where
        L: LaneFor<F>,
        F: Future<Output: IntoOutcome>,
    {
        let job = self.spawn_job(lane, future, sort, site);
        // SAFETY: made of F, with HANDLE set; a refused one has no value (C2).
        unsafe { Task::new(job) }
    }

    fn spawn_job<L, F>(
        &self,
        lane: &L,
        future: F,
        sort: ChildSort,
        site: &'static Location<'static>,
    ) -> JobRef
    where
        L: LaneFor<F>,
        F: Future<Output: IntoOutcome>,
    {
        let plan = Plan {
            owned: true,
            sort,
            site,
        };
        match self.put_checked(lane, future, &plan) {
            Ok(job) => job,
            Err(refused) => self.refuse(refused, site),
        }
    }

    /// Like [`spawn_on`](SpawnPlace::spawn_on), but a refusal returns the future.
    fn try_spawn_on<L, F>(
        &self,
        lane: &L,
        future: F,
        sort: ChildSort,
        site: &'static Location<'static>,
    ) -> Result<Task<<F::Output as IntoOutcome>::Value>, SpawnError<F>>
    where
        L: LaneFor<F>,
        F: Future<Output: IntoOutcome>,
    {
        let plan = Plan {
            owned: true,
            sort,
            site,
        };
        let job = self.put_checked(lane, future, &plan)?;
        // SAFETY: made of F, with HANDLE set (C2).
        Ok(unsafe { Task::new(job) })
    }

    /// On the pool.
    pub(crate) fn launch<F>(&self, future: F, site: &'static Location<'static>) -> Job
    where
        F: Future<Output: IntoOutcome<Value: Send>> + Send + 'static,
    {
        self.launch_on(&Pool, future, ChildSort::ORDINARY, site)
    }

    fn launch_on<L, F>(
        &self,
        lane: &L,
        future: F,
        sort: ChildSort,
        site: &'static Location<'static>,
    ) -> Job
    where
        L: LaneFor<F>,
        F: Future<Output: IntoOutcome>,
    {
        let plan = &Plan {
            owned: false,
            sort,
            site,
        };
        let job = match self.put_checked(lane, future, plan) {
            Ok(job) => job,
            Err(refused) => {
                let refusal = refused.refusal;
                let job = self.refuse(refused, plan.site);
                if is_failure(refusal)
                    && let Some(tree) = pin::tree_of(self.parent)
                {
                    tree.report_failure(&Error::msg(words(refusal)));
                }
                job
            }
        };
        Job::new(job)
    }

    #[cold]
    fn refuse<F>(&self, refused: SpawnError<F>, site: &'static Location<'static>) -> JobRef {
        let job = refused_job(self.parent, refused.refusal, site);
        discard(refused.future);
        job
    }

    /// Makes the cell, links it and starts it.
    fn put_checked<L, F>(&self, lane: &L, future: F, plan: &Plan) -> Result<JobRef, SpawnError<F>>
    where
        L: LaneFor<F>,
        F: Future<Output: IntoOutcome>,
    {
        // SAFETY: the lane carries it, so it is 'static, and Send unless it
        // stays on this thread.
        unsafe { self.put(future, plan, lane.numbered(), L::STAYS) }
    }

    /// Makes the cell, links it and starts it. Long because it returns the future from each
    /// place where it is refused.
    ///
    /// # Safety
    /// The future and its value may be sent to any thread that runs turns of `lane`; if it
    /// `stays`, only to the one thread of its lane, and only if the caller is on that thread.
    /// Values that the future borrows outlive the job.
    unsafe fn put<F>(
        &self,
        future: F,
        plan: &Plan,
        lane: LaneNumber,
        stays: bool,
    ) -> Result<JobRef, SpawnError<F>>
    where
        F: Future<Output: IntoOutcome>,
    {
        let parent = self.parent;
        let Some(pinned) = pin::tree_of(parent) else {
            pin::count_refused(parent);
            let refusal = Refusal::Ended;
            return Err(SpawnError { future, refusal });
        };
        let tree: &Shared = &pinned;
        let counts = tree.counters.here();
        let lane = match placed(tree, lane, stays) {
            Ok(lane) => lane,
            Err(refusal) => {
                counts.add(Count::Refused);
                return Err(SpawnError { future, refusal });
            }
        };
        let handle = if plan.owned { state::HANDLE } else { 0 };
        let h = cell::create_task::<Spanned<F>>(
            &Birth {
                tree: tree.index(),
                born: tree.millis(),
                id: tree.next_id(&counts),
                kind: JobKind::Task,
                lane,
                facts: plan.sort.facts,
                parent: Some(parent),
                vtable: cell::vtable_for::<Spanned<F>>(plan.owned),
                state: state::BUSY | handle | plan.sort.state,
                // One for the tree, and one for the handle or observer.
                refs: 2,
                site: plan.site,
            },
            span::inherit(parent, future),
        );
        if let Some(options) = self.options
            && !options.is_empty()
        {
            if let Some(priority) = options.priority {
                // SAFETY: fresh.
                unsafe { Header::give_priority(h.cast_mut(), priority) };
            }
            // SAFETY: fresh, and the caller's.
            options.clone().give(tree, unsafe { &*h });
        }
        // SAFETY: fresh; two references are the caller's.
        let (child, job) = unsafe { (&*h, JobRef::adopt(h)) };
        if self.attempt {
            child.with_cold(|cold, _| cold.attempt = true);
        }
        // SAFETY: fresh, made with this parent.
        match unsafe { attach::attach(parent, child, true, tree.most_children) } {
            Ok(()) => {
                counts.created(JobKind::Task);
                if tree.has_sink() {
                    tree.tell_of_birth(child, Some(parent));
                }
                // SAFETY: linked and BUSY from birth, so it has not ended and this
                // thread owns its first turn (H5). The tree is pinned.
                unsafe { plan.sort.first.give(tree, child) };
                Ok(job)
            }
            Err(refusal) => {
                counts.add(Count::Refused);
                // SAFETY: C1, no other thread has seen it; the tree's reference
                // is released with it.
                let future = unsafe {
                    let future = cell::take_future::<Spanned<F>>(child);
                    Header::release(h);
                    future
                };
                drop(job);
                Err(SpawnError {
                    future: span::bare(future),
                    refusal,
                })
            }
        }
    }
}

/// The lane, or why no task of it can be spawned here.
#[inline]
fn placed(tree: &Shared, lane: LaneNumber, stays: bool) -> Result<Lane, Refusal> {
    if tree.refuses_tasks() {
        return Err(Refusal::Cancelled);
    }
    let lane = match lane {
        LaneNumber::Pool => return Ok(Lane::Pool),
        LaneNumber::Main if !tree.has_main_lane => return Err(Refusal::NoMain),
        LaneNumber::Main => Lane::Main,
        LaneNumber::Pinned(n) => match u16::try_from(n) {
            Ok(n) if n < tree.pinned_lanes => Lane::Pinned(n),
            _ => {
                let lanes = tree.pinned_lanes;
                return Err(Refusal::NoWorker { n, lanes });
            }
        },
    };
    match stays && !tree.turns_here(lane) {
        true => Err(Refusal::NotHere),
        false => Ok(lane),
    }
}

/// True if the spawn was wrong, not late: then awaiting its handle returns an
/// error.
fn is_failure(refusal: Refusal) -> bool {
    match refusal {
        Refusal::Cancelled | Refusal::Ended => false,
        Refusal::TooMany | Refusal::NoMain | Refusal::NoWorker { .. } | Refusal::NotHere => true,
    }
}

/// A spawn into a job that has ended by itself is a mistake that the handle alone does
/// not show: it is reported, once for each such job. A job that was cancelled or
/// closed is meant to refuse, and so is the root, which ends by shutdown.
fn say_if_late(parent: &Header, site: &'static Location<'static>) {
    let late = {
        let mut locked = parent.lock_with_cold();
        let st = parent.state.load();
        let over = st.ended() || locked.shares() == NO_SHARES && locked.loose() == 0;
        let meant = st.has(state::CANCELLED | state::NO_NEW_CHILDREN);
        let said = locked.cold().map(|cold| &mut cold.late_spawn_said);
        over && !meant && said.is_some_and(|said| !std::mem::replace(said, true))
    };
    if !late {
        return;
    }
    let opened = parent.site();
    say(
        Topic::Late,
        format_args!(
            "kinfolk: the task spawned at {}:{} never runs: the {} {} of {}:{} had ended",
            site.file(),
            site.line(),
            parent.kind(),
            quoted(&names::name_of(parent)),
            opened.file(),
            opened.line(),
        ),
    );
}

/// The handle of a task that was refused: an ended job that was never in the
/// tree.
pub(crate) fn refused_job(
    parent: &Header,
    refusal: Refusal,
    site: &'static Location<'static>,
) -> JobRef {
    if refusal == Refusal::Ended {
        say_if_late(parent, site);
    }
    let failed = is_failure(refusal);
    let how = if failed {
        state::ENDED_FAILED
    } else {
        state::ENDED_CANCELLED
    };
    let birth = Birth::refused(
        state::BUSY
            | state::BODY_DONE
            | state::ENDED
            | state::CANCELLED
            | state::ORIGIN
            | state::HANDLE
            | how,
        site,
    );
    // SAFETY: the one reference is the caller's.
    let job = unsafe { JobRef::adopt(cell::create_node(&birth)) };
    let inherited = match refusal {
        Refusal::Cancelled => parent.reason().map(|reason| reason.data().clone()),
        _ => None,
    };
    let kind = match refusal {
        // The job is not cancelled itself: it refuses because of a forced drop.
        Refusal::Cancelled => {
            pin::tree_of(parent).map_or(ReasonKind::Shutdown, |tree| tree.why_forced())
        }
        _ => ReasonKind::ScopeEnded,
    };
    let reason = inherited.unwrap_or_else(|| {
        std::sync::Arc::new(ReasonData {
            kind,
            text: None,
            origin: parent.id,
            culprit: None,
            site,
            at: std::time::Instant::now(),
            by: None,
            delivery: None,
        })
    });
    job.with_cold(|cold, _| {
        cold.reason = Some(reason);
        cold.outcome = failed.then(|| Error::msg(words(refusal)));
    });
    job
}

/// The error for the caller of a future that was refused with the handle `job`.
pub(crate) fn refused_error(job: &JobRef) -> Error {
    let outcome = job.if_cold(|cold, _| cold.outcome.clone()).flatten();
    let stopped = || {
        let reason = job.reason();
        let reason = reason.unwrap_or_else(|| unreachable!("refused without a reason"));
        Error::stopped(reason).at(names::victim_alone(job), None)
    };
    outcome.unwrap_or_else(stopped)
}

/// A future that is made where it will be polled.
enum MadeThere<C, F> {
    Maker(Option<C>),
    Made(F),
}

impl<C, F> Future for MadeThere<C, F>
where
    C: FnOnce() -> F,
    F: Future,
{
    type Output = F::Output;

    fn poll(
        self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<F::Output> {
        // SAFETY: the maker is moved out of its Option and never pinned; the
        // future, once made in place, is never moved.
        let this = unsafe { self.get_unchecked_mut() };
        if let MadeThere::Maker(maker) = this {
            let maker = maker
                .take()
                .expect("a future that could not be made is not polled again");
            *this = MadeThere::Made(maker());
        }
        match this {
            // SAFETY: as above.
            MadeThere::Made(made) => unsafe { std::pin::Pin::new_unchecked(made) }.poll(cx),
            MadeThere::Maker(_) => unreachable!("it was just made"),
        }
    }
}

impl<L: Sealed> Spawner<L> {
    /// Like [`spawn`](Spawner::spawn), for hosts that ensure by other means
    /// what the lane demands of the future.
    ///
    /// # Safety
    /// The future and its value may be sent to every thread that runs turns of the lane. The
    /// caller does not return before the job has ended and its value was taken, unless both
    /// are `'static`.
    #[track_caller]
    pub unsafe fn spawn_unchecked<F>(self, future: F) -> Task<<F::Output as IntoOutcome>::Value>
    where
        F: Future<Output: IntoOutcome>,
    {
        let plan = Plan {
            owned: true,
            sort: ChildSort::ORDINARY,
            site: Location::caller(),
        };
        // SAFETY: passed on.
        let job = match unsafe {
            self.place()
                .put(future, &plan, self.lane.numbered(), L::STAYS)
        } {
            Ok(job) => job,
            Err(refused) => self.place().refuse(refused, plan.site),
        };
        // SAFETY: made of F, with HANDLE set; a refused one has no value (C2).
        unsafe { Task::new(job) }
    }
}

impl<L: LaneOfOne> Spawner<L> {
    /// Spawns a future that is not `Send` onto the main lane, or onto that of one worker, from
    /// anywhere: `make` is called there, in the task's first turn.
    #[track_caller]
    pub fn spawn_with<C, F>(self, make: C) -> Task<<F::Output as IntoOutcome>::Value>
    where
        C: FnOnce() -> F + Send + 'static,
        F: Future<Output: IntoOutcome<Value: Send>> + 'static,
    {
        // SAFETY: only the closure, which is Send, is sent to the other thread;
        // the future is made, polled and dropped by turns of a lane that one
        // thread turns.
        unsafe { self.spawn_unchecked(MadeThere::Maker(Some(make))) }
    }
}

/// Gives a new task to its host.
///
/// # Safety
/// The caller owns the job's first turn. `tree` is the job's tree, and lives until this
/// returns.
#[inline]
unsafe fn start(tree: &Shared, child: &Header) {
    if tree.wants(Interests::TURNS) {
        tree.tell_of_wake(child.id);
    }
    // SAFETY: passed on.
    unsafe { turn::start_turn(tree, child) };
}

/// Gives a new task its first turn on this thread, now.
///
/// # Safety
/// As for [`start`]; and the caller holds a reference to the job.
unsafe fn run_now(tree: &Shared, child: &Header) {
    let lane = child.lane();
    let same_lane =
        tree.inside() && context::lane().is_lane_of(child.lane_mark()) && tree.turns_here(lane);
    let nested = same_lane.then(|| context::nest(DEEPEST_NOW)).flatten();
    let Some(nested) = nested else {
        // SAFETY: passed on.
        return unsafe { start(tree, child) };
    };
    if child.is_timed() {
        tree.timed_turns(1);
    }
    // SAFETY: passed on.
    let again = unsafe { Turn::new(child) }.run();
    drop(nested);
    if let Some(turn) = again {
        tree.host.start(turn);
    }
}

/// Starts a lazy task: it counts among its parent's children from now on.
pub(crate) fn start_lazy(h: &Header) -> bool {
    if !h.is_task() {
        // In a scope's word the bit of LAZY means something else.
        return false;
    }
    // The job may end meanwhile: the parent is kept.
    let parent = h.parent_from_outside();
    let mine = {
        let mut locked = parent.as_ref().map(|parent| parent.lock());
        let mine = h.state.start_lazy();
        // LAZY is cleared once: this thread starts the task, so it is linked.
        // Noticed by `case_a15_a_lazy_job_waits_for_its_start`.
        if mine && let Some(parent) = &mut locked {
            let shares = parent.shares();
            if shares <= MOST_SHARES
                && let Some(cold) = parent.cold()
            {
                cold.loose -= 1;
                parent.set_shares(shares + 1);
                h.state.count(parent.evidence());
            }
        }
        mine
    };
    if mine {
        // SAFETY: this thread starts it (H5).
        unsafe { turn::push_claimed(h) };
    }
    mine
}

/// Spawns a child of the current job. If it fails, its family is cancelled, even where the
/// failure is handled when the task is awaited: for a failure that only its `await` returns,
/// there is [`attempt`](crate::attempt). See [`Spawner::spawn`].
///
/// The future must be `Send`, for any worker may poll it. A future that is not `Send`
/// can stay on the main thread, if it is made there:
///
/// ```
/// # mod kinfolk { pub use kinfolk_core::*; }
/// use kinfolk::{Main, Result, on};
/// use std::rc::Rc;
///
/// async fn window() -> Result<u32> {
///     let main = Main::here().expect("a window lives on the main thread");
///     let title = Rc::new(7);
///     on(main, async move { *title }).await
/// }
/// ```
///
/// # Panics
/// Outside any job: there is no job to be the parent.
#[inline]
#[track_caller]
pub fn spawn<F>(future: F) -> Task<<F::Output as IntoOutcome>::Value>
where
    F: Future<Output: IntoOutcome<Value: Send>> + Send + 'static, // to borrow: `local_scope`
{
    let site = Location::caller();
    context::with(|cx| match cx.current() {
        Some(job) => SpawnPlace::below(job).spawn_as(future, ChildSort::ORDINARY, site),
        None => Scope::here("spawn", site).spawn(future),
    })
}

/// Launches a child of the current job; see [`Spawner::launch`].
///
/// # Panics
/// Outside any job: there is no job to be the parent.
#[track_caller]
pub fn launch<F>(future: F) -> Job
where
    F: Future<Output: IntoOutcome<Value: Send>> + Send + 'static, // to borrow: `local_scope`
{
    let site = Location::caller();
    context::with(|cx| match cx.current() {
        Some(job) => SpawnPlace::below(job).launch(future, site),
        None => Scope::here("launch", site).launch(future),
    })
}

/// Launches a job below the root. The current job neither waits for it nor
/// fails with it, and passes nothing on to it. At shutdown the job is cancelled
/// and waited for; its failure goes to the failure hook.
///
/// # Panics
/// Outside any job: there is no root.
#[track_caller]
pub fn detach<F>(future: F) -> Job
where
    F: Future<Output: IntoOutcome<Value: Send>> + Send + 'static, // to borrow: `local_scope`
{
    let scope = Scope::here("detach", Location::caller());
    // SAFETY: the current job has not ended.
    let root = JobRef::from_header(unsafe { scope.header().tree() }.root());
    Scope::new(root).launch(future)
}
