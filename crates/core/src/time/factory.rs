//! Factory timers: `delay`, `at` and `interval` make a fresh future at each
//! due time and run it as a job of its own.
//!
//! Each timer is one driver task: a service of its scope, which sleeps and
//! starts the runs as its children, one at a time. So a run is told, waited
//! for and seen as every job is. The driver is a supervisor: a run that fails
//! goes to the failure hook. Who may stop it is in [`token`](super::token).

use std::borrow::Cow;
use std::fmt;
use std::panic::Location;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::grid::{Grid, MissedTicks};
use super::sleep::{Moment, Sleep, now};
use super::token::{Driver, Next, Signal, TimerToken};
use crate::cancel::walk;
use crate::error::{Cancelled, Result};
use crate::job::kind::JobKind;
use crate::job::outcome::IntoOutcome;
use crate::job::{Job, Scope, Spawner, state};

/// A factory timer with options: a name, what happens to missed ticks. Made by
/// [`Scope::timer`]; ends with one of its verbs.
#[must_use = "no timer is set until `delay`, `at` or `interval` is called"]
pub struct Timer {
    scope: Scope,
    name: Option<Cow<'static, str>>,
    missed: MissedTicks,
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
        }
    }

    /// What an interval does about ticks that were missed. A run never begins
    /// before the one before it has ended, whatever is chosen here.
    pub fn missed(mut self, missed: MissedTicks) -> Timer {
        self.missed = missed;
        self
    }

    /// Runs once, `wait` from now; see [`Scope::delay`].
    #[track_caller]
    pub fn delay<F, R>(self, wait: Duration, factory: F) -> TimerToken
    where
        F: FnOnce() -> R + Send + 'static,
        R: Future<Output: IntoOutcome<Value: Send>> + Send + 'static,
    {
        let due = self.now().checked_add(wait);
        self.set_once(due, factory, Location::caller())
    }

    /// Runs once, at `at`; see [`Scope::at`].
    #[track_caller]
    pub fn at<F, R>(self, at: Instant, factory: F) -> TimerToken
    where
        F: FnOnce() -> R + Send + 'static,
        R: Future<Output: IntoOutcome<Value: Send>> + Send + 'static,
    {
        self.set_once(Some(at), factory, Location::caller())
    }

    /// Runs at once and then every `period`; see [`Scope::interval`].
    #[track_caller]
    pub fn interval<F, R>(self, period: Duration, factory: F) -> Result<TimerToken>
    where
        F: FnMut() -> R + Send + 'static,
        R: Future<Output: IntoOutcome<Value: Send>> + Send + 'static,
    {
        Grid::check(period)?;
        let plan = Plan {
            grid: Grid::new(Some(self.now()), period, self.missed),
            once: false,
            site: Location::caller(),
        };
        Ok(self.set("interval", plan, factory))
    }

    fn set_once<F, R>(
        self,
        due: Option<Instant>,
        factory: F,
        site: &'static Location<'static>,
    ) -> TimerToken
    where
        F: FnOnce() -> R + Send + 'static,
        R: Future<Output: IntoOutcome<Value: Send>> + Send + 'static,
    {
        let plan = Plan {
            grid: Grid::new(due, Duration::MAX, self.missed),
            once: true,
            site,
        };
        let mut factory = Some(factory);
        self.set("delay", plan, move || {
            let factory = factory.take();
            factory.unwrap_or_else(|| unreachable!("a delay ran twice"))()
        })
    }

    fn set<F, R>(self, kind: &'static str, plan: Plan, factory: F) -> TimerToken
    where
        F: FnMut() -> R + Send + 'static,
        R: Future<Output: IntoOutcome<Value: Send>> + Send + 'static,
    {
        let site = plan.site;
        let signal = Arc::new(Signal::new());
        let driver = Driver(signal.clone());
        let factory = Arc::new(Mutex::new(factory));
        // What hangs from the root is cancelled at once at shutdown; a service
        // would wait there for every other job.
        let sort = match self.scope.header().kind() {
            JobKind::Root => state::COUNTED,
            _ => state::SERVICE,
        };
        let job = Spawner::new(self.scope)
            .named(self.name.unwrap_or(Cow::Borrowed(kind)))
            .spawn_as(drive(driver, plan, factory), sort | state::SUPERVISOR, site)
            .into_job();
        TimerToken::new(signal, job)
    }

    /// The time by the clock of the scope's host.
    fn now(&self) -> Instant {
        walk::pin(self.scope.header()).map_or_else(Instant::now, |tree| tree.host.now())
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timer")
            .field("scope", &self.scope)
            .field("name", &self.name)
            .field("missed", &self.missed)
            .finish()
    }
}

/// The body of a driver.
async fn drive<F, R>(driver: Driver, plan: Plan, factory: Arc<Mutex<F>>) -> Result<(), Cancelled>
where
    F: FnMut() -> R + Send + 'static,
    R: Future<Output: IntoOutcome<Value: Send>> + Send + 'static,
{
    let signal = &*driver.0;
    let here = Scope::here("a timer");
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
        // How it ended is the failure hook's business.
        let _ = start(&here, factory.clone(), site).join().await?;
        grid.pass(now());
        signal.set_skipped(grid.skipped());
        if signal.ended() == Next::Stop {
            return Ok(());
        }
    }
}

/// Starts one run as a child of the driver.
fn start<F, R>(here: &Scope, factory: Arc<Mutex<F>>, site: &'static Location<'static>) -> Job
where
    F: FnMut() -> R + Send + 'static,
    R: Future<Output: IntoOutcome<Value: Send>> + Send + 'static,
{
    // The factory is called inside the run, so that its panic is the run's and
    // what it spawns hangs from the run.
    let run = async move { make(factory).await };
    Spawner::new(here.clone())
        .spawn_as(run, state::COUNTED, site)
        .into_job()
}

/// Calls the factory and lets go of it. The lock is never waited for: there is
/// one run at a time. A factory that has panicked is called again.
fn make<F: FnMut() -> R, R>(factory: Arc<Mutex<F>>) -> R {
    let mut factory = factory.lock().unwrap_or_else(PoisonError::into_inner);
    factory()
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
    /// # use std::time::Duration;
    /// # async fn report() {}
    /// # async fn serve() -> kinfolk_core::Result<()> { Ok(()) }
    /// # async fn example() -> kinfolk_core::Result<()> {
    /// kinfolk_core::scope(async |s| {
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
