//! The host that the model sees: turns go into queues of ours, and drivers take them.

use std::panic::Location;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use kinfolk_core::host::{BlockingCall, Host, HostGauges, TimerKey, Turn, TurnRow};

use crate::here;
use crate::machine::Machine;

/// The host of a tree on tokio. The tree owns it; when it goes, so do the drivers.
pub(crate) struct TokioHost(pub(crate) Arc<Machine>);

impl Drop for TokioHost {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl Host for TokioHost {
    #[inline]
    fn start(&self, turn: Turn) {
        self.0.put_one(turn);
    }

    fn schedule(&self, ready: TurnRow) {
        self.0.put(ready);
    }

    fn has_main_lane(&self) -> bool {
        self.0.main.is_some()
    }

    fn now(&self) -> Instant {
        self.0.clock.now()
    }

    fn looks(&self) -> bool {
        !self.0.counts
    }

    fn set_timer(&self, at: Instant, waker: Waker) -> TimerKey {
        self.0.set_timer(at, waker)
    }

    fn clear_timer(&self, key: TimerKey) -> Option<Waker> {
        self.0.clear_timer(key)
    }

    fn run_blocking(&self, call: BlockingCall) {
        self.0.run_blocking(call);
    }

    fn hold_clock(&self, _site: &'static Location<'static>) {
        self.0.count(1);
        self.0.hold_paused_clock();
    }

    fn release_clock(&self, _site: &'static Location<'static>) {
        self.0.rested();
        self.0.release_paused_clock();
    }

    fn gauges(&self) -> HostGauges {
        self.0.gauges()
    }

    fn worker(&self) -> Option<u32> {
        here::local(&self.0).and_then(|local| u32::try_from(local.n).ok())
    }

    fn virtual_time(&self) -> bool {
        self.0.counts || self.0.is_paused()
    }
}
