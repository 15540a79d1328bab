//! Factory timers: `delay`, `at` and `interval` make a fresh future at each
//! due time and run it as a job of its own.
//!
//! Each timer is one driver task: a service of its scope, which sleeps and
//! starts the runs as its children, one at a time. So a run is told, waited
//! for and seen as every job is. The driver is a supervisor: a run that fails
//! goes to the failure hook. Who may stop it is in [`token`](crate::more::timers::token).

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
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
use crate::engine::walk;
use crate::more::timers::grid::{Grid, MissedTicks};
use crate::more::timers::token::{Driver, Next, Signal, TimerToken};
use crate::points::sleep::{Moment, Sleep, now};
use crate::surface::handle::Job;
use crate::surface::lane::{LaneFor, Main, OnMain, Pool};
use crate::surface::scope::Scope;
use crate::surface::spawn::{Place, Sort, Spawner};

/// A factory timer with options: a name, a lane, what happens to missed ticks.
/// Made by [`Scope::timer`]; ends with one of its verbs.
#[must_use = "no timer is set until `delay`, `at` or `interval` is called"]
pub struct Timer<L = Pool> {
    scope: Scope,
    name: Option<Cow<'static, str>>,
    missed: MissedTicks,
    lane: PhantomData<L>,
}

/// When the runs are due.
struct Plan {
    grid: Grid,
    /// There is one run only.
    once: bool,
    site: &'static Location<'static>,
}

impl Timer {
    fn new(scope: Scope) -> Timer {
        Timer {
            scope,
            name: None,
            missed: MissedTicks::default(),
            lane: PhantomData,
        }
    }
}

impl<L> Timer<L> {
    /// What an interval does about ticks that were missed. A run never begins
    /// before the one before it has ended, whatever is chosen here.
    pub fn missed(mut self, missed: MissedTicks) -> Self {
        self.missed = missed;
        self
    }

    /// Chooses the lane of the runs; the pool by default. On the main lane a
    /// run happens when the main thread next turns, however late that is.
    pub fn on<M>(self, _lane: M) -> Timer<M> {
        Timer {
            scope: self.scope,
            name: self.name,
            missed: self.missed,
            lane: PhantomData,
        }
    }

    fn once(&self, due: Option<Instant>, site: &'static Location<'static>) -> Plan {
        Plan {
            grid: Grid::new(due, Duration::MAX, self.missed),
            once: true,
            site,
        }
    }

    fn often(&self, period: Duration, site: &'static Location<'static>) -> Result<Plan> {
        Grid::check(period)?;
        Ok(Plan {
            grid: Grid::new(Some(self.now()), period, self.missed),
            once: false,
            site,
        })
    }

    /// The spawner of the driver, and what it is to its scope.
    fn spawner(self, kind: &'static str) -> (Spawner<L>, Sort) {
        // What hangs from the root is cancelled at once at shutdown; a service
        // would wait there for every other job.
        let scope = self.scope.header();
        let below_root = scope.kind() == JobKind::Root;
        // None: it has ended, and refuses the driver.
        let timed = walk::pin(scope).is_some_and(|tree| tree.has_main_lane);
        let sort = Sort::timer(below_root, timed);
        let name = self.name.unwrap_or(Cow::Borrowed(kind));
        let spawner = Spawner::new(self.scope).named(name).on_lane();
        (spawner, sort)
    }

    /// The time by the clock of the scope's host.
    fn now(&self) -> Instant {
        walk::pin(self.scope.header()).map_or_else(Instant::now, |tree| tree.host.now())
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

            fn set<F, R>(self, kind: &'static str, plan: Plan, factory: F) -> TimerToken
            where
                F: FnMut() -> R $(+ $send)? + 'static,
                R: Future<Output: IntoOutcome$(<Value: $send>)?> $(+ $send)? + 'static,
            {
                let site = plan.site;
                let signal = Arc::new(Signal::new());
                let driver = Driver(signal.clone());
                let (spawner, sort) = self.spawner(kind);
                let factory = Kept::new(factory);
                let drive = drive::<$lane, F, R>(driver, plan, factory);
                TimerToken::new(signal, spawner.launch_as(drive, sort, site))
            }
        }
    };
}

verbs!(Pool, Send);
verbs!(Main, Send);
verbs!(OnMain,);

/// A factory that is called once, as one that may be called often.
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

/// The body of a driver. It is on the lane of its runs: a main thread that
/// turns late finds the tick due, makes up for it once and goes back to the
/// grid.
async fn drive<L, F, R>(driver: Driver, plan: Plan, factory: Kept<F>) -> Result<(), Cancelled>
where
    L: LaneFor<Run<F, R>>,
    F: FnMut() -> R,
    R: Future<Output: IntoOutcome>,
{
    let signal = &*driver.0;
    let here = Scope::here("a timer", std::panic::Location::caller());
    let Plan {
        mut grid,
        once,
        site,
    } = plan;
    loop {
        let due = Due {
            sleep: Sleep::new(grid.due().map_or(Moment::Never, Moment::At), site),
            signal,
            last: once,
        };
        if due.await? == Next::Stop {
            return Ok(());
        }
        grid.take(now());
        signal.set_skipped(grid.skipped());
        let run = Run {
            factory: Some(factory.clone()),
            made: None,
        };
        // How it ended is the failure hook's business.
        let _ = start::<L, _>(&here, run, site).join().await?;
        grid.pass(now());
        signal.set_skipped(grid.skipped());
        if signal.ended() == Next::Stop {
            return Ok(());
        }
    }
}

/// Starts one run as a child of the driver.
fn start<L, R>(here: &Scope, run: R, site: &'static Location<'static>) -> Job
where
    L: LaneFor<R>,
    R: Future<Output: IntoOutcome>,
{
    Place::below(here.header())
        .spawn_as::<L, R>(run, Sort::ORDINARY, site)
        .into_job()
}

pin_project! {
    /// One run. The factory is called inside it, so that its panic is the
    /// run's and what it spawns hangs from the run.
    struct Run<F, R> {
        factory: Option<Kept<F>>,
        #[pin]
        made: Option<R>,
    }
}

/// The factory of a timer, shared by its driver and the run that is due. What it has
/// captured may panic when it is dropped: the driver is a service, and would fail its
/// scope.
struct Kept<F>(Arc<Mutex<Option<Contained<F>>>>);

impl<F> Clone for Kept<F> {
    fn clone(&self) -> Kept<F> {
        Kept(self.0.clone())
    }
}

impl<F> Kept<F> {
    fn new(factory: F) -> Kept<F> {
        Kept(Arc::new(Mutex::new(Some(Contained::new(factory)))))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Contained<F>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls the factory, outside the lock. One that panics is called again for the
    /// next run.
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

/// A factory that is being called. Put back at the end of the call, also by a panic.
struct Called<F> {
    kept: Kept<F>,
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
struct Due<'a> {
    sleep: Sleep,
    signal: &'a Signal,
    last: bool,
}

impl Future for Due<'_> {
    type Output = Result<Next, Cancelled>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        match Pin::new(&mut this.sleep).poll(cx) {
            Poll::Ready(slept) => Poll::Ready(slept.map(|()| this.signal.begin(this.last))),
            Poll::Pending => match this.signal.wait(cx.waker()) {
                Next::Go => Poll::Pending,
                Next::Stop => Poll::Ready(Ok(Next::Stop)),
            },
        }
    }
}

/// # Timers
///
/// Each calls its factory when a run is due, once per run, and runs what it
/// makes as a job of its own. The timer is a service of the scope: it holds
/// nothing open, and when the scope's body and ordinary children have ended it
/// is cancelled, with the run in progress, and waited for. A timer of the root
/// is an ordinary job there, cancelled and waited for at shutdown.
///
/// A run that fails, or a factory that panics, goes to the failure hook and
/// touches nobody else.
impl Scope {
    /// A timer with a name.
    pub fn timer(&self, name: impl Into<Cow<'static, str>>) -> Timer {
        let mut timer = Timer::new(self.clone());
        timer.name = Some(name.into());
        timer
    }

    /// Runs what `factory` makes once, `wait` from now. `Duration::MAX` is
    /// never.
    #[track_caller]
    pub fn delay<F, R>(&self, wait: Duration, factory: F) -> TimerToken
    where
        F: FnOnce() -> R + Send + 'static,
        R: Future<Output: IntoOutcome<Value: Send>> + Send + 'static,
    {
        Timer::new(self.clone()).delay(wait, factory)
    }

    /// Runs what `factory` makes once, at `at`; at once if that has passed.
    #[track_caller]
    pub fn at<F, R>(&self, at: Instant, factory: F) -> TimerToken
    where
        F: FnOnce() -> R + Send + 'static,
        R: Future<Output: IntoOutcome<Value: Send>> + Send + 'static,
    {
        Timer::new(self.clone()).at(at, factory)
    }

    /// Runs what `factory` makes at once and then every `period`, on a fixed
    /// grid. One run at a time: ticks that come due during a run, suspended or
    /// not, are skipped and counted. A late host makes up for one and goes back
    /// to the grid; for other ways see [`Timer::missed`]. A failing run does
    /// not stop the interval. A period of zero is an error.
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
