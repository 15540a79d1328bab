//! Timers that the model sets at the host. Each is counted as set once and as fired or
//! cancelled once.

use std::task::Waker;
use std::time::Instant;

use crate::base::observe::Count;
use crate::base::timer_queue::TimerKey;
use crate::base::unwind::discard;
use crate::engine::tree::Shared;
use crate::record::alarm::Alarm;

/// Sets a timer that wakes `waker` at `at`.
#[inline]
pub(crate) fn set(tree: &Shared, at: Instant, waker: &Waker) -> Alarm {
    let key = tree.host.set_timer(at, waker.clone());
    tree.counters.add(Count::TimerSet);
    Alarm::of(key, waker)
}

/// Clears an alarm that was taken out of its job. The host decides, once,
/// whether it fired or was cleared.
#[inline]
pub(crate) fn clear(tree: &Shared, key: TimerKey) {
    match tree.host.clear_timer(key) {
        Some(waker) => {
            tree.counters.add(Count::TimerCancelled);
            discard(waker);
        }
        None => tree.counters.add(Count::TimerFired),
    }
}
