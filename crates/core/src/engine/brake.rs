//! The brake of a body that swallows Cancelled: from its hundredth on, the points of the
//! body wait a millisecond on the host's clock before they fail, so that a loop that only
//! logs the error neither fills a disk nor keeps a thread busy.
//!
//! There is one brake per job, with one timer at a time. A point reached while the brake
//! is set waits for the same timer. The point keeps the number of that setting, so that a
//! later setting does not delay it further.

use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Duration;

use crate::base::escape::escaped_path;
use crate::base::say::{Topic, say};
use crate::base::sync::SPEAKS;
use crate::base::unwind::{KeptWaker, wake};
use crate::engine::alarm;
use crate::engine::names;
use crate::engine::pin;
use crate::record::brake::FREE;
use crate::record::header::{Header, JobRef};

/// How long a point of such a body waits before it fails.
const HOLD: Duration = Duration::from_millis(1);

/// The timer's waker.
struct BrakeRing {
    job: JobRef,
    number: u8,
}

impl Wake for BrakeRing {
    fn wake(self: Arc<Self>) {
        let rung = self.job.if_cold(|cold, _| {
            let brake = cold.brake.as_mut()?;
            Some(brake.ring(self.number))
        });
        let Some((alarm, wakers)) = rung.flatten() else {
            return;
        };
        if let (Some(alarm), Some(tree)) = (alarm, pin::tree_of(&self.job)) {
            alarm::clear(&tree, alarm.key());
        }
        for waker in wakers {
            wake(waker.into_inner());
        }
    }
}

/// The job, among `h` and the scopes around it in its task, that has swallowed too many.
#[inline]
pub(crate) fn swallower(h: &Header) -> Option<&Header> {
    let mut at = Some(h);
    while let Some(job) = at {
        if job.swallows() {
            return at;
        }
        at = around(job);
    }
    None
}

/// The scope or the task whose body has opened `h`; none if `h` was spawned.
fn around(h: &Header) -> Option<&Header> {
    match h.was_spawned() {
        true => None,
        // SAFETY: inside a job that has not ended (H3).
        false => unsafe { h.parent() },
    }
}

/// A point in `h`, which is being polled, returns Cancelled. At most one counts in each
/// poll, so that many points that waited together count as one. A `Cancelled` in a scope
/// that a told body has opened counts for that body too: a loop around a `timeout`
/// swallows as well as one around a `sleep`.
pub(crate) fn count(h: &Header, is_first_in_poll: bool) {
    let told_before = h.was_told();
    if is_first_in_poll && h.count_told(true) {
        name(h);
    }
    let mut at = h;
    while !told_before && at.was_born_told() {
        let Some(opener) = around(at) else {
            return;
        };
        if opener.count_told(false) {
            name(opener);
        }
        at = opener;
    }
}

/// Reports once which job swallows.
fn name(h: &Header) {
    if !SPEAKS {
        return;
    }
    // SAFETY: being polled, so it is linked.
    let whole_name = escaped_path(&unsafe { names::victim(h) }.path);
    let site = h.site();
    say(
        Topic::Swallows,
        format_args!(
            "kinfolk: {} {whole_name}, from {}:{}, swallows cancellation: it keeps running although \
             its cancellation points returned `Cancelled` a hundred times; each now waits 1 ms. \
             Return the `Cancelled` that a point returns.",
            h.kind(),
            site.file(),
            site.line(),
        ),
    );
}

/// True if the point that keeps `held` must wait; it is woken when the wait is
/// over. `swallower` is around the job that is being polled.
pub(crate) fn holds(swallower: &Header, waker: &Waker, held: &mut u8) -> bool {
    let mut waker = Some(KeptWaker::new(waker.clone()));
    let (number, is_new) = swallower.with_cold(|cold, _| {
        let brake = cold.brake.get_or_insert_default();
        brake.join(*held, &mut waker)
    });
    drop(waker);
    *held = number;
    if is_new {
        set(swallower, number);
    }
    number != FREE
}

/// Sets the timer of the setting `number`. The host is called outside the lock.
fn set(h: &Header, number: u8) {
    // The bit makes the job's ender look for the timer and clear it.
    h.state.publish_nodes();
    // SAFETY: inside a job that has not ended.
    let tree = unsafe { h.tree() };
    let job = JobRef::from_header(h);
    let ring = Waker::from(Arc::new(BrakeRing { job, number }));
    let now = tree.host.now();
    let at = now.checked_add(HOLD).unwrap_or(now);
    let mut alarm = Some(alarm::set(tree, at, &ring));
    h.if_cold(|cold, _| {
        if let Some(brake) = &mut cold.brake {
            brake.keep(number, &mut alarm);
        }
    });
    // The timer has fired already.
    if let Some(alarm) = alarm {
        alarm::clear(tree, alarm.key());
    }
}
