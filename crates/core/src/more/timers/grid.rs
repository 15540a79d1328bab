//! A periodic grid: a first instant and a period, and what happens to ticks
//! that were missed. Pure arithmetic, used by the ticker and by intervals.

use std::time::{Duration, Instant};

use crate::base::error::{Error, Result};

/// What happens to ticks whose time has passed before they were taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MissedTicks {
    /// One late tick comes at once, the others are skipped; then the grid goes
    /// on. An interval whose run is still in progress skips the ticks that
    /// become due meanwhile, without a late one.
    #[default]
    Skip,
    /// All of them come, one after the other without a pause, until the grid is
    /// caught up with.
    Burst,
    /// One late tick at once; the next one comes a whole period after it, and
    /// so the grid moves.
    Delay,
}

/// When the next tick is due.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    /// None means never: a period too long for the clock.
    due: Option<Instant>,
    period: Duration,
    pub(crate) missed: MissedTicks,
    skipped: u64,
}

impl Grid {
    /// A period of zero is an error.
    pub(crate) fn check(period: Duration) -> Result<()> {
        if period.is_zero() {
            return Err(Error::msg(
                "a period of zero would tick for ever without a pause: give one that is longer",
            ));
        }
        Ok(())
    }

    /// Ticks at `first` and then at every whole period after it.
    pub(crate) fn new(first: Option<Instant>, period: Duration, missed: MissedTicks) -> Grid {
        Grid {
            due: first,
            period,
            missed,
            skipped: 0,
        }
    }

    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// How many ticks have been skipped.
    pub(crate) fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Ticks at `first` and then at every whole period after it.
    pub(crate) fn restart(&mut self, first: Option<Instant>) {
        self.due = first;
    }

    /// The tick that is due is taken at `now`: computes the next one.
    pub(crate) fn take(&mut self, now: Instant) {
        let Some(due) = self.due else { return };
        match self.missed {
            MissedTicks::Delay if now > due => self.due = now.checked_add(self.period),
            _ => self.due = due.checked_add(self.period),
        }
        // The next tick is after `now`: one that is due now has been taken with
        // this one.
        if self.missed == MissedTicks::Skip && self.due.is_some_and(|next| next <= now) {
            self.skip_to(now);
            if self.due == Some(now) {
                self.skip(1);
            }
        }
    }

    /// The ticks before `now` did not happen, because a run was in progress.
    pub(crate) fn pass(&mut self, now: Instant) {
        if self.missed == MissedTicks::Skip {
            self.skip_to(now);
        }
    }

    /// Skips the ticks before `now`.
    fn skip_to(&mut self, now: Instant) {
        if let Some(due) = self.due
            && let Some(late) = now.checked_duration_since(due)
        {
            self.skip(late.as_nanos().div_ceil(self.period.as_nanos()));
        }
    }

    fn skip(&mut self, ticks: u128) {
        const SECOND: u128 = 1_000_000_000;
        let Some(nanos) = self.period.as_nanos().checked_mul(ticks) else {
            self.due = None;
            return;
        };
        let far = u64::try_from(nanos / SECOND).map_or(Duration::MAX, |seconds| {
            Duration::new(seconds, (nanos % SECOND) as u32)
        });
        self.due = self.due.and_then(|due| due.checked_add(far));
        let ticks = u64::try_from(ticks).unwrap_or(u64::MAX);
        self.skipped = self.skipped.saturating_add(ticks);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn grid(missed: MissedTicks) -> (Grid, Instant) {
        let start = Instant::now();
        (Grid::new(Some(start), 100 * MS, missed), start)
    }

    #[track_caller]
    fn expect(grid: &Grid, start: Instant, ms: u32, skipped: u64) {
        assert_eq!(grid.due(), Some(start + ms * MS));
        assert_eq!(grid.skipped(), skipped);
    }

    #[test]
    fn a_tick_in_time_plans_the_next_one_whatever_the_policy() {
        for missed in [MissedTicks::Skip, MissedTicks::Burst, MissedTicks::Delay] {
            let (mut grid, start) = grid(missed);
            grid.take(start);
            expect(&grid, start, 100, 0);
            grid.pass(start + 100 * MS);
            expect(&grid, start, 100, 0);
        }
    }

    #[test]
    fn a_late_tick_is_followed_by_what_the_policy_says() {
        let (mut skip, start) = grid(MissedTicks::Skip);
        skip.take(start + 350 * MS);
        expect(&skip, start, 400, 3);
        skip.take(start + 700 * MS);
        expect(&skip, start, 800, 6);
        skip.take(start + 850 * MS);
        expect(&skip, start, 900, 6);
        let (mut burst, start) = grid(MissedTicks::Burst);
        burst.take(start + 350 * MS);
        expect(&burst, start, 100, 0);
        let (mut delay, start) = grid(MissedTicks::Delay);
        delay.take(start + 350 * MS);
        expect(&delay, start, 450, 0);
    }

    #[test]
    fn what_was_in_the_way_of_is_skipped_and_what_is_due_now_is_not() {
        let (mut grid, start) = grid(MissedTicks::Skip);
        grid.take(start);
        grid.pass(start + 250 * MS);
        expect(&grid, start, 300, 2);
        grid.take(start + 300 * MS);
        grid.pass(start + 500 * MS);
        expect(&grid, start, 500, 3);
    }

    #[test]
    fn what_the_clock_cannot_hold_is_never() {
        let start = Instant::now();
        let mut long = Grid::new(Some(start), Duration::MAX, MissedTicks::Skip);
        long.take(start);
        assert_eq!(long.due(), None);
        long.take(start);
        long.pass(start);
        assert_eq!((long.due(), long.skipped()), (None, 0));
        // Many short periods after a very long sleep.
        let nano = Duration::from_nanos(1);
        let mut short = Grid::new(Some(start), nano, MissedTicks::Skip);
        let late = start + Duration::from_secs(1 << 40);
        short.take(late);
        assert_eq!(short.due(), Some(late + nano));
        assert_eq!(short.skipped(), u64::MAX);
    }
}
