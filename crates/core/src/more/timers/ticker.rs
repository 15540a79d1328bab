//! The ticker: regular ticks, awaited in a loop of the program's own.

use std::fmt;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use crate::base::error::{Cancelled, Result};
use crate::more::timers::grid::{Grid, MissedTicks};
use crate::points::sleep::{Moment, Sleep, now};

/// Ticks at once and then every `period`, counted from the first poll. A
/// period of zero is an error.
///
/// ```
/// # use kinfolk_core as kinfolk;
/// # use std::time::Duration;
/// # fn look() {}
/// # async fn watch() -> kinfolk::Result<()> {
/// let mut ticker = kinfolk::ticker(Duration::from_secs(1))?;
/// loop {
///     ticker.tick().await?;
///     look();
/// }
/// # }
/// ```
pub fn ticker(period: Duration) -> Result<Ticker> {
    Grid::check(period)?;
    Ok(Ticker {
        period,
        missed: MissedTicks::default(),
        grid: None,
        sleep: None,
    })
}

/// Ticks on a fixed grid, without drift. Made by [`ticker`].
///
/// With the feature `stream` it is also a `Stream` of the results of
/// [`tick`](Ticker::tick); it never ends, and a poll of it is a *point*.
pub struct Ticker {
    period: Duration,
    missed: MissedTicks,
    /// Some from the first poll or reset on.
    grid: Option<Grid>,
    /// Some while a tick is awaited.
    sleep: Option<Sleep>,
}

impl Ticker {
    /// Sets what happens to ticks that were missed.
    #[must_use = "it gives the ticker back"]
    pub fn missed(mut self, missed: MissedTicks) -> Ticker {
        self.missed = missed;
        if let Some(grid) = &mut self.grid {
            grid.missed = missed;
        }
        self
    }

    /// Waits for the next tick and returns the instant for which it was planned.
    ///
    /// # Cancellation
    /// A *point*. If it returns `Cancelled`, or is dropped before it is over, no tick was
    /// taken: the next call waits for the same one.
    ///
    /// # Panics
    /// When polled outside any job: there is no clock to ask.
    #[track_caller]
    pub fn tick(&mut self) -> Tick<'_> {
        Tick {
            ticker: self,
            site: Location::caller(),
        }
    }

    /// Restarts the ticker: the next tick comes a whole period from now, and the others on
    /// the grid that begins there.
    pub fn reset(&mut self) {
        self.sleep = None;
        let next = now().checked_add(self.period);
        self.grid
            .get_or_insert_with(|| Grid::new(next, self.period, self.missed))
            .restart(next);
    }

    /// Returns the period.
    pub fn period(&self) -> Duration {
        self.period
    }

    /// Returns how many ticks were missed and skipped.
    pub fn skipped(&self) -> u64 {
        self.grid.map_or(0, |grid| grid.skipped())
    }

    fn poll_tick(
        &mut self,
        cx: &mut Context<'_>,
        site: &'static Location<'static>,
    ) -> Poll<Result<Instant, Cancelled>> {
        let grid = self
            .grid
            .get_or_insert_with(|| Grid::new(Some(now()), self.period, self.missed));
        let due = grid.due();
        let sleep = self
            .sleep
            .get_or_insert_with(|| Sleep::new(due.map_or(Moment::Never, Moment::At), site));
        let slept = ready!(Pin::new(sleep).poll(cx));
        self.sleep = None;
        slept?;
        let planned = due.unwrap_or_else(|| unreachable!("a sleep without end has ended"));
        grid.take(now());
        Poll::Ready(Ok(planned))
    }
}

impl fmt::Debug for Ticker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticker")
            .field("period", &self.period)
            .field("missed", &self.missed)
            .field("next", &self.grid.and_then(|grid| grid.due()))
            .finish()
    }
}

/// The future of [`Ticker::tick`].
#[must_use = "futures do nothing unless awaited"]
pub struct Tick<'a> {
    ticker: &'a mut Ticker,
    site: &'static Location<'static>,
}

impl Future for Tick<'_> {
    type Output = Result<Instant, Cancelled>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        this.ticker.poll_tick(cx, this.site)
    }
}

impl Drop for Tick<'_> {
    /// The wait is over: the timer is dropped, the tick stays.
    fn drop(&mut self) {
        self.ticker.sleep = None;
    }
}

impl fmt::Debug for Tick<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tick").field(&self.ticker).finish()
    }
}

#[cfg(feature = "stream")]
impl futures_core::Stream for Ticker {
    type Item = Result<Instant, Cancelled>;

    #[track_caller]
    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let site = Location::caller();
        self.get_mut().poll_tick(cx, site).map(Some)
    }
}
