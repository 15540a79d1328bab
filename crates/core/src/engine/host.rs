//! What the model needs from an executor.
//!
//! A host receives [`Turn`]s: a new task, or one that was woken alone, through
//! [`Host::start`], several that were woken together through [`Host::schedule`]. The
//! host queues them in any order and runs each once. The model never calls a host
//! while it holds a lock.

use std::any::Any;
use std::panic::Location;
use std::task::Waker;
use std::time::Instant;

use crate::base::observe::IoGauges;
use crate::engine::context;

pub use crate::base::drop_at_end::DropAtEnd;
pub use crate::base::lane::Lane;
pub use crate::base::own_time::OwnTime;
pub use crate::base::priority::Priority;
pub use crate::base::questions::{Asks, Questions};
pub use crate::base::real_grace::RealGrace;
pub use crate::base::thread_activity::{Activity, ThreadFiles};
pub use crate::base::timer_queue::{TimerKey, TimerQueue};
pub use crate::base::unwind::{
    CollectGuard, Contained, ContainedPanics, and_after, contained, discard, discard_waker, wake,
    wake_by_ref,
};
pub use crate::base::virtual_calls::{CallHost, VirtualCall, VirtualCalls};
pub use crate::engine::blocking_call::BlockingCall;
pub use crate::engine::rows::{Turn, TurnRow};

/// Messages of a library on standard error, written without blocking the caller.
pub mod say {
    pub use crate::base::brief::{BriefTime, GroupedCount, brief, grouped};
    pub use crate::base::escape::{EscapedText, escaped, escaped_path, is_obeyed, quoted};
    pub use crate::base::say::{MOMENT, Topic, abort, flush, say, say_error};
}

/// The work of a host at this moment; see [`Tree::gauges`](crate::Tree::gauges).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostGauges {
    /// Tasks that are queued for a turn or being polled; none if the host does
    /// not count them.
    pub runnable: Option<usize>,
    /// When the first timer is due.
    pub next_timer: Option<Instant>,
    /// The queues and their lengths.
    pub queues: Vec<(&'static str, usize)>,
}

/// Calls `f` with the host of the current job; returns `None` outside any job.
pub fn current<R>(f: impl FnOnce(&dyn Host) -> R) -> Option<R> {
    context::with(|here| {
        let job = here.current()?;
        // SAFETY: being polled, so not ended.
        let tree = unsafe { job.tree() };
        Some(f(&*tree.host))
    })
}

/// Time may have passed on this thread: the next turn reads the clock. For
/// hosts that say so with [`Host::looks`].
#[inline]
pub fn look_again() {
    context::look_again();
}

/// What an executor must provide: turns, time, timers and threads for blocking calls.
pub trait Host: Send + Sync + 'static {
    /// A new task, or one that was woken alone. The host keeps the turn and runs it
    /// later, never inside this call.
    fn start(&self, turn: Turn);

    /// Tasks of one lane and one priority that were woken together, to be run later, never
    /// inside this call.
    fn schedule(&self, ready: TurnRow);

    /// True if the host has a main lane: a thread that takes turns of
    /// [`Lane::Main`], and that made the tree. Turns say which
    /// [lane](Turn::lane) they are for.
    fn has_main_lane(&self) -> bool {
        false
    }

    /// How many [pinned lanes](Lane::Pinned) the host has: threads that take
    /// turns of their own, from number 0 on.
    fn pinned_lanes(&self) -> usize {
        0
    }

    /// True if this thread takes the turns of pinned lane `n`. Called for each of these
    /// turns, when it is run and when it is dropped.
    fn turns_pinned(&self, n: usize) -> bool {
        let _ = n;
        false
    }

    /// The time now.
    fn now(&self) -> Instant;

    /// Milliseconds since a fixed moment, to within a few, if they are cheaper
    /// to read than the time: for ages and other rough durations.
    fn coarse_millis(&self) -> Option<u64> {
        None
    }

    /// True if each thread of the host calls [`look_again`] every few turns and
    /// whenever it has slept. Then ages of jobs that are not cancelled are
    /// counted from the first turn after such a call; else the clock is read at
    /// each turn.
    fn looks(&self) -> bool {
        false
    }

    /// Wakes `waker` at `at` or after it. Equal instants in order of the call.
    fn set_timer(&self, at: Instant, waker: Waker) -> TimerKey;

    /// Clears a timer. Returns the waker if the timer has not fired: so a timer
    /// either fires or is cleared, never both.
    fn clear_timer(&self, key: TimerKey) -> Option<Waker>;

    /// Runs a blocking call, on a thread that may block. With virtual time the
    /// clock stands still until the call has returned, unless the host knows that the call
    /// waits for a task itself; see [`BlockingCall::run_asking`].
    fn run_blocking(&self, call: BlockingCall);

    /// With virtual time: stops the clock until
    /// [`release_clock`](Host::release_clock) was called as often as this, because
    /// another thread is about to complete something that a job waits for. `site`
    /// is the caller that holds the clock, for reports.
    fn hold_clock(&self, site: &'static Location<'static>) {
        let _ = site;
    }

    /// The end of one [`hold_clock`](Host::hold_clock), on any thread.
    fn release_clock(&self, site: &'static Location<'static>) {
        let _ = site;
    }

    /// The last turn of a factory timer, or of a job below one, has been taken
    /// and none is queued: [`Tree::timers_rest`](crate::Tree::timers_rest) was
    /// true for a moment. Called on a host with a main lane.
    fn timers_rest(&self) {}

    /// The i/o of this host for its jobs, as the type of the crate that provides
    /// the operations; none if the host has no i/o. See [`current`].
    fn io(&self) -> Option<&(dyn Any + Send + Sync)> {
        None
    }

    /// Counts of the i/o's past and pending operations; none if the host has no
    /// i/o.
    fn io_gauges(&self) -> Option<IoGauges> {
        None
    }

    /// The host's present work. A host that cannot tell leaves the default.
    fn gauges(&self) -> HostGauges {
        HostGauges::default()
    }

    /// The number of the worker that the calling thread is, for events; none if the thread
    /// is no worker of this host. Called for each event that a sink gets.
    fn worker(&self) -> Option<u32> {
        None
    }

    /// True if the clock is not the system's; errors then say so.
    fn virtual_time(&self) -> bool {
        false
    }
}
