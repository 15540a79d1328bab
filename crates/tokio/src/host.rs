//! The host: tasks become tokio tasks, timers wait in one queue that the
//! driver task serves.

use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Instant;

use kinfolk_core::Clock;
use kinfolk_core::host::{BlockingCall, Host, HostGauges, Ready, TimerKey, TimerQueue, Turn, wake};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Notify;

/// Tokio's clock: the system's, unless a test has paused it. Outside every tokio
/// runtime it is the system's.
pub(crate) struct TokioClock;

impl Clock for TokioClock {
    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }
}

/// What the host and its driver share.
pub(crate) struct Machine {
    pub(crate) tokio: Handle,
    pub(crate) clock: Arc<dyn Clock>,
    timers: Mutex<TimerQueue>,
    /// Something changed that the driver should look at.
    pub(crate) changed: Arc<Notify>,
    /// With virtual time: tasks that are woken or being polled.
    pub(crate) busy: AtomicUsize,
    /// The tokio runtime is going away: nothing can be started any more.
    pub(crate) gone: AtomicBool,
}

impl Machine {
    pub(crate) fn new(tokio: Handle, clock: Arc<dyn Clock>) -> Machine {
        Machine {
            tokio,
            clock,
            timers: Mutex::default(),
            changed: Arc::default(),
            busy: AtomicUsize::new(0),
            gone: AtomicBool::new(false),
        }
    }

    fn timers(&self) -> MutexGuard<'_, TimerQueue> {
        self.timers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When the first timer is due.
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        self.timers().next_at()
    }

    /// Wakes everybody whose time has come, in the order of their instants. A
    /// waker that panics is the matter of whoever made it: the driver goes on.
    pub(crate) fn fire_due(&self) {
        let now = self.clock.now();
        let mut fired = 0;
        loop {
            let due = self.timers().pop_due(now);
            match due {
                Some(waker) => wake(waker),
                None => break,
            }
            fired += 1;
        }
        if fired > 1 && self.has_one_worker() {
            // A worker of tokio runs first what was woken last. Where it is alone
            // the tasks are to run in the order of their timers (time-6): something
            // else is the last.
            drop(self.tokio.spawn(async {}));
        }
    }
}

impl Machine {
    fn has_one_worker(&self) -> bool {
        self.tokio.runtime_flavor() == RuntimeFlavor::MultiThread
            && self.tokio.metrics().num_workers() == 1
    }
}

impl Drop for Machine {
    /// The driver goes with it.
    fn drop(&mut self) {
        self.changed.notify_one();
    }
}

pub(crate) struct TokioHost(pub(crate) Arc<Machine>);

impl Host for TokioHost {
    fn start(&self, turn: Turn) {
        self.0.busy.fetch_add(1, Ordering::SeqCst);
        let body = turn.into_body();
        if self.0.gone.load(Ordering::SeqCst) {
            // Dropping it ends the job: its host is gone.
            drop(body);
            self.rested();
            return;
        }
        drop(self.0.tokio.spawn(body));
    }

    fn schedule(&self, ready: Ready) {
        unreachable!(
            "tasks on tokio are woken by tokio's wakers, not {}",
            ready.len()
        );
    }

    fn lends(&self) -> bool {
        true
    }

    fn now(&self) -> Instant {
        self.0.clock.now()
    }

    fn set_timer(&self, at: Instant, waker: Waker) -> TimerKey {
        let (key, first) = {
            let mut timers = self.0.timers();
            let before = timers.next_at();
            let key = timers.insert(at, waker);
            (key, before.is_none_or(|before| at < before))
        };
        if first {
            self.0.changed.notify_one();
        }
        key
    }

    fn clear_timer(&self, key: TimerKey) -> Option<Waker> {
        self.0.timers().remove(key)
    }

    fn run_blocking(&self, call: BlockingCall) {
        self.woken(1);
        let machine = self.0.clone();
        if machine.gone.load(Ordering::SeqCst) {
            drop(call);
            return self.rested();
        }
        drop(self.0.tokio.spawn_blocking(move || {
            call.run();
            TokioHost(machine).rested();
        }));
    }

    fn woken(&self, tasks: usize) {
        self.0.busy.fetch_add(tasks, Ordering::SeqCst);
    }

    fn rested(&self) {
        if self.0.busy.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.changed.notify_one();
        }
    }

    fn hold_clock(&self, _site: &'static Location<'static>) {
        self.woken(1);
    }

    fn release_clock(&self, _site: &'static Location<'static>) {
        self.rested();
    }

    fn gauges(&self) -> HostGauges {
        // With the system's clock nobody counts: that would be two steps on
        // one shared word for every turn.
        let counted = self.0.clock.is_virtual();
        let timers = self.0.timers();
        HostGauges {
            runnable: counted.then(|| self.0.busy.load(Ordering::SeqCst)),
            next_timer: timers.next_at(),
            queues: vec![
                ("timers", timers.len()),
                (
                    "tokio's global queue",
                    self.0.tokio.metrics().global_queue_depth(),
                ),
            ],
        }
    }

    fn virtual_time(&self) -> bool {
        self.0.clock.is_virtual()
    }
}
