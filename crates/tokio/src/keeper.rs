//! The keeper: one tokio task per root that serves its timers. With a virtual clock
//! it also lets the clock jump when everything is blocked.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::machine::Machine;

/// How long to wait at a time where tokio's clock goes ahead of the root's: it is
/// paused, so that its timers are due at once.
const NAP: Duration = Duration::from_millis(10);

/// Dropped with the keeper's future: when its machine is gone, or with the tokio
/// runtime.
struct Alive(Weak<Machine>);

impl Drop for Alive {
    fn drop(&mut self) {
        if let Some(machine) = self.0.upgrade() {
            machine.host_gone(None);
        }
    }
}

/// When to look again.
enum NextWake {
    /// At once.
    Now,
    /// When something has changed.
    Changed,
    /// Then too, and when this timer is due, so long from now.
    Due(Instant, Duration),
}

/// Serves the timers of `machine` until it is gone. The keeper holds the machine
/// only while it looks; the last to let go of it says that something has changed.
///
/// Not an `async fn`: one that is dropped before its first poll says too that the tokio
/// runtime is gone.
pub(crate) fn keep(machine: Weak<Machine>) -> impl Future<Output = ()> {
    let alive = Alive(machine);
    async move { keep_while(&alive.0).await }
}

async fn keep_while(machine: &Weak<Machine>) {
    // The timer whose time was up by tokio's clock.
    let mut up = None;
    loop {
        let Some(strong) = machine.upgrade() else {
            return;
        };
        let changed = strong.changed.clone();
        let next = look(&strong);
        drop(strong);
        match next {
            NextWake::Now => {}
            NextWake::Changed => changed.notified().await,
            NextWake::Due(at, wait) if up == Some(at) => {
                // It is not due by the root's own: tokio's clock is paused, and no
                // measure of time. A thread that may block is one.
                let nap = wait.min(NAP);
                let nap = tokio::task::spawn_blocking(move || std::thread::sleep(nap));
                let _ = nap.await;
            }
            NextWake::Due(at, wait) => {
                // Whether it was told or the time is up: look again.
                let waited = tokio::time::timeout(wait, changed.notified()).await;
                up = waited.is_err().then_some(at);
            }
        }
    }
}

/// Fires what is due; when to look again.
fn look(machine: &Arc<Machine>) -> NextWake {
    if machine.clock.is_virtual() {
        if machine.busy.load(Ordering::SeqCst) == 0
            && machine.calls.let_clock_move()
            && machine.clock.idle(machine.next_timer())
        {
            machine.fire_due();
            return NextWake::Now;
        }
        return NextWake::Changed;
    }
    machine.fire_due();
    let Some(at) = machine.next_timer() else {
        return NextWake::Changed;
    };
    // None from a clock that stands still.
    match machine.clock.real_time_until(at) {
        Some(wait) => NextWake::Due(at, wait),
        None => NextWake::Changed,
    }
}
