//! For programs that own their main loop: one frame of the main lane, or everything that is
//! due.

use std::sync::atomic::Ordering;
use std::time::Instant;

use kinfolk_core::{Budget, Error, Pumped, Result};

use crate::runtime::Runtime;

impl Runtime {
    /// Runs one frame: fires due timers and runs turns of the main lane, within `budget`. Never
    /// waits. With no workers it runs the pool too, and i/o operations complete only in pumps:
    /// a completion calls no [`on_wake`](crate::Builder::on_wake) hook. A program that sleeps
    /// between its frames should check [`Pumped::under_way`] first, or have a worker.
    ///
    /// # Errors
    /// If called inside a job.
    pub fn pump(&self, budget: Budget) -> Result<Pumped> {
        let mut turning = self.begin("pump")?;
        // It says so in its answer.
        turning.tells = false;
        self.tree().begin_frame();
        let machine = self.machine();
        let fired = machine.fire_due();
        self.own.look_at_io();
        let began = Instant::now();
        let mut ran = 0;
        let spent = |ran: usize| match budget {
            Budget::Turns(most) => ran >= most,
            Budget::Time(limit) => ran > 0 && began.elapsed() >= limit,
            _ => true,
        };
        while !spent(ran) && self.turn_once() {
            ran += 1;
        }
        // What was begun in these turns reaches the system, and what was quick is
        // over already.
        self.own.look_at_io();
        drop(turning);
        // Looked at from outside: what comes from now on calls the hook.
        Ok(
            Pumped::new(ran, fired, self.next_deadline(), self.has_more())
                .with_under_way(self.own.under_way()),
        )
    }

    /// Pumps like [`pump`](Runtime::pump), and lends `world` to the tasks of the main
    /// lane meanwhile; see [`with_world`](kinfolk_core::with_world).
    ///
    /// # Errors
    /// If called inside a job.
    pub fn pump_with<W: 'static>(&self, world: &mut W, budget: Budget) -> Result<Pumped> {
        self.tree().lend(world, || self.pump(budget))
    }

    /// Returns when the next timer is due, by the runtime's clock: a host loop may sleep until
    /// then. A clock that is not the system's converts that to real time
    /// ([`Clock::real_time_until`](kinfolk_core::Clock::real_time_until)).
    pub fn next_deadline(&self) -> Option<Instant> {
        self.machine().timers.next_at()
    }

    /// Runs everything that is due at `now`: fires those timers and runs turns of the main lane
    /// until the lane is empty and no run of a factory timer, or job that a run has started, is
    /// queued or being polled. It does not wait for runs that wait. Unlike
    /// [`pump`](Runtime::pump) it has no budget and waits for the workers: for loops that tick
    /// now and then, and for tests. A task of the main lane that never waits makes it run for ever.
    ///
    /// `now` is the time of the runtime's clock. A clock that the host sets
    /// ([`HostClock`](crate::HostClock)) moves on to it first.
    ///
    /// ```
    /// # mod kinfolk { pub use {kinfolk_core::*, kinfolk_runtime::Runtime, kinfolk_runtime as runtime}; }
    /// use kinfolk::{Clock, Runtime, runtime::HostClock};
    /// use std::time::Duration;
    ///
    /// let clock = HostClock::new();
    /// clock.pause();
    /// let rt = Runtime::builder().clock(clock.shared()).build()?;
    /// rt.interval(Duration::from_secs(1), || async { /* autosave */ })?.keep();
    /// let start = clock.now();
    /// let pumped = rt.run_expired(start)?;
    /// assert_eq!(pumped.next_deadline, Some(start + Duration::from_secs(1)));
    /// # Ok::<_, kinfolk::Error>(())
    /// ```
    ///
    /// # Errors
    /// If called inside a job, and if `now` lies ahead of a clock that the
    /// host does not set.
    pub fn run_expired(&self, now: Instant) -> Result<Pumped> {
        let mut turning = self.begin("run_expired")?;
        turning.tells = false;
        let machine = self.machine();
        if now > machine.clock.now() && !machine.clock.advance_to(now) {
            return Err(Error::msg(
                "run_expired was given a time that the runtime's clock has not reached: \
                 pass the time of that clock, or build the runtime with a HostClock, \
                 which moves on to it",
            ));
        }
        // A clock goes as far as it can: what is due later never is.
        let now = now.min(machine.clock.now());
        let tree = self.tree();
        tree.begin_frame();
        machine.awaits_timers.store(true, Ordering::SeqCst);
        // In this order: what is taken out is woken before nobody fires, and a
        // run leaves us its turns before it rests.
        let rest = || machine.nobody_fires() && tree.timers_rest();
        let (mut ran, mut fired) = (0, 0);
        loop {
            fired += machine.fire_in_order(now);
            self.own.look_at_io();
            if rest() && self.main_lane_is_empty() {
                break;
            }
            if self.turn_once() {
                ran += 1;
                continue;
            }
            machine.main.park(machine, self.own.thread_io(), || {
                !self.has_more() && !rest()
            });
            self.own.slept();
        }
        machine.awaits_timers.store(false, Ordering::SeqCst);
        self.own.look_at_io();
        drop(turning);
        Ok(
            Pumped::new(ran, fired, self.next_deadline(), self.has_more())
                .with_under_way(self.own.under_way()),
        )
    }

    /// Runs what is due like [`run_expired`](Runtime::run_expired), and lends `world` to the
    /// tasks of the main lane meanwhile; see [`with_world`](kinfolk_core::with_world).
    ///
    /// # Errors
    /// As [`run_expired`](Runtime::run_expired).
    pub fn run_expired_with<W: 'static>(&self, world: &mut W, now: Instant) -> Result<Pumped> {
        self.tree().lend(world, || self.run_expired(now))
    }

    /// No turn of the main lane is queued.
    fn main_lane_is_empty(&self) -> bool {
        self.own.main_is_empty() && self.machine().main.inbox.is_empty()
    }
}
