//! The driver: one tokio task per root that serves its timers. With a virtual
//! clock it also lets the clock jump when everything is blocked.

use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::host::Machine;

/// The driver holds the machine only while it looks, and looks at least this
/// often: when the last root is gone, the driver follows.
const LONGEST: Duration = Duration::from_secs(1);

/// Dropped with the driver's future, when the tokio runtime goes away.
struct Alive(Weak<Machine>);

impl Drop for Alive {
    fn drop(&mut self) {
        if let Some(machine) = self.0.upgrade() {
            machine.gone.store(true, Ordering::SeqCst);
        }
    }
}

/// Serves the timers of `machine` until it is gone.
pub(crate) async fn drive(machine: Weak<Machine>) {
    let _alive = Alive(machine.clone());
    loop {
        let Some(strong) = machine.upgrade() else {
            return;
        };
        let changed = strong.changed.clone();
        let wait = look(&strong);
        drop(strong);
        if let Some(wait) = wait {
            // Whether it was told or the time is up: look again.
            let _ = tokio::time::timeout(wait, changed.notified()).await;
        }
    }
}

/// Fires what is due; how long to wait for the next look, none for at once.
fn look(machine: &Machine) -> Option<Duration> {
    if machine.clock.is_virtual() {
        if machine.busy.load(Ordering::SeqCst) == 0 && machine.clock.idle(machine.next_timer()) {
            machine.fire_due();
            return None;
        }
        return Some(LONGEST);
    }
    machine.fire_due();
    let next = machine.next_timer();
    Some(next.map_or(LONGEST, |at| {
        at.saturating_duration_since(machine.clock.now())
            .min(LONGEST)
    }))
}
