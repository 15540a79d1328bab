//! Factory timers: `delay`, `at` and `interval` make a fresh future at each
//! due time and run it as a job of its own.
//!
//! Each timer is one driver task: a service of its scope, which sleeps and starts the
//! runs as its children, one after the other. So a run is told, waited for and seen like
//! every job. The driver is a supervisor: the failure of a run goes to the failure hook.
//! How a driver is stopped is in [`token`](crate::more::timers::token).

use std::borrow::Cow;
use std::fmt;
use std::panic::Location;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use pin_project_lite::pin_project;

use crate::base::error::{Cancelled, Result};
use crate::base::kind::JobKind;
use crate::base::outcome::IntoOutcome;
use crate::base::unwind::Contained;
use crate::engine::pin;
use crate::more::timers::grid::{Grid, MissedTicks};
use crate::more::timers::token::{FactoryDriver, NextRun, Signal, TimerToken};
use crate::points::sleep::{Moment, Sleep, now};
use crate::surface::handle::Job;
use crate::surface::lane::{LaneFor, Main, OnMain, OnPinned, Pinned, Pool};
use crate::surface::scope::Scope;
use crate::surface::spawn::{ChildSort, SpawnPlace, Spawner};

/// A factory timer with options: a name, a lane, what happens to missed ticks.
/// Made by [`Scope::timer`]; ends with one of its verbs.
#[must_use = "no timer is set until `delay`, `at` or `interval` is called"]
pub struct Timer<L = Pool> {
    scope: Scope,
    name: Option<Cow<'static, str>>,
    missed: MissedTicks,
    lane: L,
}

/// When the runs are due.
struct TimerPlan {
    grid: Grid,
    /// There is only one run.
    once: bool,
    site: &'static Location<'static>,
}

impl Timer {
    fn new(scope: Scope) -> Timer {
        Timer {
            scope,
            name: None,
            missed: MissedTicks::default(),
            lane: Pool,
        }
    }
}

impl<L> Timer<L> {
    /// Sets what an interval does about missed ticks. Whatever is chosen, a run never begins
    /// before the previous run has ended.
    pub fn missed(mut self, missed: MissedTicks) -> Self {
        self.missed = missed;
        self
    }

    /// Chooses the lane of the runs; the default is the pool. On the main lane a run happens
    /// when the main thread next runs turns, however late that is.
    pub fn on<M>(self, lane: M) -> Timer<M> {
        Timer {
            scope: self.scope,
            name: self.name,
            missed: self.missed,
            lane,
        }
    }

    fn once(&self, due: Option<Instant>, site: &'static Location<'static>) -> TimerPlan {
        TimerPlan {
            grid: Grid::new(due, Duration::MAX, self.missed),
            once: true,
            site,
        }
    }

    fn often(&self, period: Duration, site: &'static Location<'static>) -> Result<TimerPlan> {
        Grid::check(period)?;
        Ok(TimerPlan {
            grid: Grid::new(Some(self.now()), period, self.missed),
            once: false,
            site,
        })
    }

    /// The spawner of the driver, and the sort of child that the driver is.
    fn spawner(self, kind: &'static str) -> (Spawner<L>, ChildSort) {
        // A driver that hangs from the root is cancelled at once at shutdown; a
        // service would wait there for every other job.
        let scope = self.scope.header();
        let below_root = scope.kind() == JobKind::Root;
        // None: it has ended, and refuses the driver.
        let timed = pin::tree_of(scope).is_some_and(|tree| tree.has_main_lane);
        let sort = ChildSort::timer(below_root, timed);
        let name = self.name.unwrap_or(Cow::Borrowed(kind));
        let spawner = Spawner::new(self.scope).named(name).on(self.lane);
        (spawner, sort)
    }

    /// The time by the clock of the scope's host.
    fn now(&self) -> Instant {
        pin::tree_of(self.scope.header()).map_or_else(Instant::now, |tree| tree.host.now())
    }
}

/// The verbs, with the bounds of each lane.
macro_rules! verbs {
    ($lane:ty, $($send:ident)?) => {
        impl Timer<$lane> {
            /// Runs once, `wait` from now; see [`Scope::delay`].
            #[track_caller]
            pub fn delay<F, R>(self, wait: Duration, factory: F) -> TimerToken
            where
                F: FnOnce() -> R $(+ $send)? + 'static,
                R: Future<Output: IntoOutcome$(<Value: $send>)?> $(+ $send)? + 'static,
            {
                let plan = self.once(self.now().checked_add(wait), Location::caller());
                self.set("delay", plan, only_once(factory))
            }

            /// Runs once, at `at`; see [`Scope::at`].
            #[track_caller]
            pub fn at<F, R>(self, at: Instant, factory: F) -> TimerToken
            where
                F: FnOnce() -> R $(+ $send)? + 'static,
                R: Future<Output: IntoOutcome$(<Value: $send>)?> $(+ $send)? + 'static,
            {
                let plan = self.once(Some(at), Location::caller());
                self.set("delay", plan, only_once(factory))
            }

            /// Runs at once and then every `period`; see [`Scope::interval`].
            #[track_caller]
            pub fn interval<F, R>(self, period: Duration, factory: F) -> Result<TimerToken>
            where
                F: FnMut() -> R $(+ $send)? + 'static,
                R: Future<Output: IntoOutcome$(<Value: $send>)?> $(+ $send)? + 'static,
            {
                let plan = self.often(period, Location::caller())?;
                Ok(self.set("interval", plan, factory))
            }

            fn set<F, R>(self, kind: &'static str, plan: TimerPlan, factory: F) -> TimerToken
            where
                F: FnMut() -> R $(+ $send)? + 'static,
                R: Future<Output: IntoOutcome$(<Value: $send>)?> $(+ $send)? + 'static,
            {
                let site = plan.site;
                let signal = Arc::new(Signal::new());
                let driver = FactoryDriver(signal.clone());
                let lane = self.lane;
                let (spawner, sort) = self.spawner(kind);
                let factory = SharedFactory::new(factory);
                let drive = drive(lane, driver, plan, factory);
                TimerToken::new(signal, spawner.launch_as(drive, sort, site))
            }
        }
    };
}

verbs!(Pool, Send);
verbs!(Main, Send);
verbs!(Pinned, Send);
verbs!(OnMain,);
verbs!(OnPinned,);

/// A factory that is called once, with the type of one that may be called
/// often.
fn only_once<F: FnOnce() -> R, R>(factory: F) -> impl FnMut() -> R {
    let mut factory = Some(factory);
    move || {
        let factory = factory.take();
        factory.unwrap_or_else(|| unreachable!("a delay ran twice"))()
    }
}

impl<L> fmt::Debug for Timer<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timer")
            .field("scope", &self.scope)
            .field("name", &self.name)
            .field("missed", &self.missed)
            .finish()
    }
}

/// The body of a driver. It is on the lane of its runs: if the main thread runs
/// turns late, the driver finds the tick due, runs once and returns to the
/// grid.
async fn drive<L, F, R>(
    lane: L,
    driver: FactoryDriver,
    plan: TimerPlan,
    factory: SharedFactory<F>,
) -> Result<(), Cancelled>
where
    L: LaneFor<Run<F, R>>,
    F: FnMut() -> R,
    R: Future<Output: IntoOutcome>,
{
    let signal = &*driver.0;
    let here = Scope::here("a timer", std::panic::Location::caller());
    let TimerPlan {
        mut grid,
        once,
        site,
    } = plan;
    loop {
        let due = NextDue {
            sleep: Sleep::new(grid.due().map_or(Moment::Never, Moment::At), site),
            signal,
            last: once,
        };
        if due.await? == NextRun::Stop {
            return Ok(());
        }
        grid.take(now());
        signal.set_skipped(grid.skipped());
        let run = Run {
            factory: Some(factory.clone()),
            made: None,
        };
        // The outcome of the run goes to the failure hook.
        let _ = start(&lane, &here, run, site).join().await?;
        grid.pass(now());
        signal.set_skipped(grid.skipped());
        if signal.ended() == NextRun::Stop {
            return Ok(());
        }
    }
}

/// Starts one run as a child of the driver.
fn start<L, R>(lane: &L, here: &Scope, run: R, site: &'static Location<'static>) -> Job
where
    L: LaneFor<R>,
    R: Future<Output: IntoOutcome>,
{
    SpawnPlace::below(here.header())
        .spawn_on(lane, run, ChildSort::ORDINARY, site)
        .into_job()
}

pin_project! {
    /// One run. The factory is called inside it, so that a panic of the factory
    /// belongs to the run, and jobs that it spawns hang from the run.
    struct Run<F, R> {
        factory: Option<SharedFactory<F>>,
        #[pin]
        made: Option<R>,
    }
}

/// The factory of a timer, shared by its driver and the run that is due. Values that
/// it has captured may panic when they are dropped: this must not fail the driver,
/// which is a service, and with it the scope.
struct SharedFactory<F>(Arc<Mutex<Option<Contained<F>>>>);

impl<F> Clone for SharedFactory<F> {
    fn clone(&self) -> SharedFactory<F> {
        SharedFactory(self.0.clone())
    }
}

impl<F> SharedFactory<F> {
    fn new(factory: F) -> SharedFactory<F> {
        SharedFactory(Arc::new(Mutex::new(Some(Contained::new(factory)))))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Contained<F>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls the factory, outside the lock. A factory that panics is called again
    /// for the next run.
    fn make<R>(self) -> R
    where
        F: FnMut() -> R,
    {
        let factory = self.lock().take();
        let factory = factory.unwrap_or_else(|| unreachable!("there is one run at a time"));
        let mut called = Called {
            kept: self,
            factory: Some(factory),
        };
        let factory = called.factory.as_mut();
        factory.unwrap_or_else(|| unreachable!("just put there"))()
    }
}

/// A factory that is being called. It is put back at the end of the call, also by a
/// panic.
struct Called<F> {
    kept: SharedFactory<F>,
    factory: Option<Contained<F>>,
}

impl<F> Drop for Called<F> {
    fn drop(&mut self) {
        *self.kept.lock() = self.factory.take();
    }
}

impl<F, R> Future for Run<F, R>
where
    F: FnMut() -> R,
    R: Future,
{
    type Output = R::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<R::Output> {
        let mut this = self.project();
        if let Some(factory) = this.factory.take() {
            this.made.set(Some(factory.make()));
        }
        let made = this.made.as_pin_mut();
        made.expect("a run whose factory panicked is not polled again")
            .poll(cx)
    }
}

/// Waits until a run is due and claims it, or until the token is cancelled.
/// A *point*.
struct NextDue<'a> {
    sleep: Sleep,
    signal: &'a Signal,
    last: bool,
}

impl Future for NextDue<'_> {
    type Output = Result<NextRun, Cancelled>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        match Pin::new(&mut this.sleep).poll(cx) {
            Poll::Ready(slept) => Poll::Ready(slept.map(|()| this.signal.begin(this.last))),
            Poll::Pending => match this.signal.wait(cx.waker()) {
                NextRun::Go => Poll::Pending,
                NextRun::Stop => Poll::Ready(Ok(NextRun::Stop)),
            },
        }
    }
}

/// # Timers
///
/// A timer calls its factory once for each run, when the run is due, and runs the returned
/// future as a job of its own. The timer is a service of the scope: it does not hold the
/// scope open, and when the scope's body and ordinary children have ended, the timer is
/// cancelled, with the run in progress, and awaited. A timer of the root is an ordinary job
/// there, cancelled and awaited at shutdown.
///
/// The failure of a run, or a panic of the factory, goes to the failure hook and does not
/// cancel other jobs.
impl Scope {
    /// Begins a timer with a name.
    pub fn timer(&self, name: impl Into<Cow<'static, str>>) -> Timer {
        let mut timer = Timer::new(self.clone());
        timer.name = Some(name.into());
        timer
    }

    /// Calls `factory` once, `wait` from now, and runs the returned future. `Duration::MAX`
    /// means never.
    #[track_caller]
    pub fn delay<F, R>(&self, wait: Duration, factory: F) -> TimerToken
    where
        F: FnOnce() -> R + Send + 'static,
        R: Future<Output: IntoOutcome<Value: Send>> + Send + 'static,
    {
        Timer::new(self.clone()).delay(wait, factory)
    }

    /// Calls `factory` once, at `at`, and runs the returned future; at once if `at` has
    /// passed.
    #[track_caller]
    pub fn at<F, R>(&self, at: Instant, factory: F) -> TimerToken
    where
        F: FnOnce() -> R + Send + 'static,
        R: Future<Output: IntoOutcome<Value: Send>> + Send + 'static,
    {
        Timer::new(self.clone()).at(at, factory)
    }

    /// Calls `factory` at once and then every `period`, on a fixed grid, and runs the
    /// returned futures one at a time. Ticks that become due during a run are skipped and
    /// counted. A late host makes up for one tick and returns to the grid; for other choices
    /// see [`Timer::missed`]. A failing run does not stop the interval. A period of zero is
    /// an error.
    ///
    /// ```
    /// # use kinfolk_core as kinfolk;
    /// # use std::time::Duration;
    /// # async fn report() {}
    /// # async fn serve() -> kinfolk::Result<()> { Ok(()) }
    /// # async fn example() -> kinfolk::Result<()> {
    /// kinfolk::scope(async |s| {
    ///     s.interval(Duration::from_secs(1), report)?.keep();
    ///     serve().await
    /// })
    /// .await
    /// # }
    /// ```
    #[track_caller]
    pub fn interval<F, R>(&self, period: Duration, factory: F) -> Result<TimerToken>
    where
        F: FnMut() -> R + Send + 'static,
        R: Future<Output: IntoOutcome<Value: Send>> + Send + 'static,
    {
        Timer::new(self.clone()).interval(period, factory)
    }
}
