//! [`HostClock`]: a clock that the host can pause and scale, such as a game's own time.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kinfolk_core::Clock;

/// A clock that the host can pause and scale. Its time never goes backwards,
/// and goes on from where it was when the rate changes. Clones share the time.
///
/// The clock stops after 584 years, and later instants never come. A runtime that shuts down
/// uses real time from then on; the clock itself is not changed.
///
/// ```
/// # mod kinfolk { pub use {kinfolk_core::*, kinfolk_runtime::Runtime, kinfolk_runtime as runtime}; }
/// use kinfolk::{Runtime, runtime::HostClock};
///
/// let clock = HostClock::new();
/// let rt = Runtime::builder().clock(clock.shared()).build()?;
/// clock.set_rate(0.5); // slow motion
/// clock.pause();
/// # Ok::<_, kinfolk::Error>(())
/// ```
#[derive(Clone)]
pub struct HostClock(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    listeners: Mutex<Vec<Listener>>,
}

type Listener = Arc<dyn Fn() -> bool + Send + Sync>;

struct State {
    /// The clock showed `shown` when the real time was `at`.
    at: Instant,
    shown: Instant,
    rate: f64,
    paused: bool,
    /// It stands still there. Far before the latest instant there is: a runtime that
    /// shuts down counts on from here.
    farthest: Instant,
}

/// What a clock shows at the most.
const REACH: Duration = Duration::from_nanos(u64::MAX);

/// The latest instant there is.
fn latest() -> Instant {
    let mut at = Instant::now();
    let mut step = Duration::MAX;
    while !step.is_zero() {
        match at.checked_add(step) {
            Some(later) => at = later,
            None => step /= 2,
        }
    }
    at
}

impl State {
    fn new() -> State {
        let now = Instant::now();
        let room = latest() - now;
        State {
            at: now,
            shown: now,
            rate: 1.0,
            paused: false,
            // Half of it, where the system cannot count as far.
            farthest: now + REACH.min(room / 2),
        }
    }

    fn now(&self) -> Instant {
        if self.paused {
            return self.shown;
        }
        let passed = self.at.elapsed().as_secs_f64() * self.rate;
        self.later(Duration::try_from_secs_f64(passed).unwrap_or(Duration::MAX))
    }

    fn later(&self, by: Duration) -> Instant {
        let at = self.shown.checked_add(by);
        at.map_or(self.farthest, |at| at.min(self.farthest))
    }
}

impl HostClock {
    /// Makes a clock that runs like the system's.
    pub fn new() -> HostClock {
        HostClock(Arc::new(Inner {
            state: Mutex::new(State::new()),
            listeners: Mutex::default(),
        }))
    }

    /// Returns the clock as [`Builder::clock`](crate::Builder::clock) takes it.
    pub fn shared(&self) -> Arc<dyn Clock> {
        Arc::new(self.clone())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        {
            let mut state = self.state();
            let now = state.now();
            state.shown = now;
            state.at = Instant::now();
            change(&mut state);
        }
        self.tell();
    }

    fn listeners(&self) -> MutexGuard<'_, Vec<Listener>> {
        let listeners = self.0.listeners.lock();
        listeners.unwrap_or_else(PoisonError::into_inner)
    }

    /// A host that sleeps until a time of this clock has another time to sleep now. Those
    /// that are gone are told no more.
    fn tell(&self) {
        // Called outside the lock: they may come back to the clock.
        let mut gone = self.listeners().clone();
        gone.retain(|listener| !listener());
        if gone.is_empty() {
            return;
        }
        let is_gone = |one: &Listener| gone.iter().any(|other| Arc::ptr_eq(one, other));
        self.listeners().retain(|listener| !is_gone(listener));
    }

    /// Stops the time: no timer fires until [`resume`](HostClock::resume).
    pub fn pause(&self) {
        self.change(|state| state.paused = true);
    }

    /// Lets the time go on.
    pub fn resume(&self) {
        self.change(|state| state.paused = false);
    }

    /// Advances the time by `by`, paused or not: for loops with a fixed step.
    pub fn advance(&self, by: Duration) {
        self.change(|state| state.shown = state.later(by));
    }

    /// Returns true while the clock is paused.
    pub fn is_paused(&self) -> bool {
        self.state().paused
    }

    /// Sets the rate: 2.0 is twice as fast as real time.
    ///
    /// # Panics
    /// Unless `rate` is a positive, finite number: to stop it, `pause` it.
    pub fn set_rate(&self, rate: f64) {
        assert!(
            rate.is_finite() && rate > 0.0,
            "the rate of a clock is a positive number, not {rate}: to stop it, pause it"
        );
        self.change(|state| state.rate = rate);
    }
}

impl Default for HostClock {
    fn default() -> Self {
        HostClock::new()
    }
}

impl Clock for HostClock {
    fn now(&self) -> Instant {
        self.state().now()
    }

    fn real_time_until(&self, at: Instant) -> Option<Duration> {
        let state = self.state();
        if state.paused || at > state.farthest {
            return None;
        }
        let left = at.saturating_duration_since(state.now());
        // Rounded up: to wake early is to wake for nothing.
        let real = left.as_secs_f64() / state.rate;
        Duration::try_from_secs_f64(real)
            .ok()
            .map(|real| real.saturating_add(Duration::from_nanos(u64::from(!left.is_zero()))))
    }

    fn on_change(&self, listener: Box<dyn Fn() -> bool + Send + Sync>) {
        // Those that are gone make room.
        self.tell();
        self.listeners().push(Arc::from(listener));
    }

    fn advance_to(&self, at: Instant) -> bool {
        self.change(|state| state.shown = state.shown.max(at.min(state.farthest)));
        true
    }
}

impl fmt::Debug for HostClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("HostClock")
            .field("rate", &state.rate)
            .field("paused", &state.paused)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn case_q03_time_is_continuous_and_never_goes_back() {
        let clock = HostClock::new();
        let mut last = clock.now();
        for step in 0..2000 {
            match step % 7 {
                0 => clock.set_rate(0.25),
                2 => clock.pause(),
                3 => {
                    assert_eq!(clock.now(), clock.now(), "it stands still");
                    assert_eq!(clock.real_time_until(last + Duration::from_secs(9)), None);
                }
                4 => clock.resume(),
                5 => clock.set_rate(50.0),
                _ => {}
            }
            let now = clock.now();
            assert!(now >= last, "backwards by {:?}", last - now);
            // At fifty times the rate, a step of a microsecond or so.
            assert!(
                now - last < Duration::from_secs(5),
                "a jump of {:?}",
                now - last
            );
            last = now;
        }
    }

    /// A program may build and drop any number of runtimes with one clock.
    #[test]
    fn a_runtime_that_is_gone_is_told_no_more() {
        let clock = HostClock::new();
        let build = || crate::Runtime::builder().workers(0).clock(clock.shared());
        for _ in 0..10 {
            drop(build().build());
            assert!(clock.listeners().len() <= 1, "one that is gone at the most");
        }
        let stays = build().build();
        clock.pause();
        assert_eq!(clock.listeners().len(), 1, "one is there");
        drop(stays);
        clock.resume();
        assert!(clock.listeners().is_empty());
    }

    #[test]
    fn twice_as_fast_is_half_as_long() {
        let clock = HostClock::new();
        clock.set_rate(2.0);
        let wait = clock.real_time_until(clock.now() + Duration::from_secs(10));
        let wait = wait.expect("it runs");
        assert!(
            wait <= Duration::from_secs(5) && wait > Duration::from_secs(4),
            "{wait:?}"
        );
    }
}
