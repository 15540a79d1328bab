//! The model of Kinfolk: a tree of jobs, and what cancelling one means.
//!
//! No threads, no clock, no system calls: a [host](host::Host) brings those.
//! Programs use this crate through the facade, `kinfolk`; this crate is for
//! those who write hosts and for the curious.
//!
//! Modules, from the bottom up; each uses only those before it:
//!
//! | module | what it is |
//! |---|---|
//! | `base` | std or loom, the panic policy, identities, reasons, errors, counters |
//! | `record` | what a job is in memory: state word, header, cold part, cell |
//! | `engine` | the machine: turns, wakes, the walk of a cancel, ends, the tree, the host |
//! | `points` | where a body hears of a cancel: points, waits, sleeping |
//! | `surface` | what programs call: scopes, tasks, handles, lanes, services |
//! | `more` | features: combinators, kit, timers, reports, shutdown, blocking, host loops |

// What the library says goes through `host::say`: no print of ours may block or panic.
#![deny(clippy::print_stderr, clippy::print_stdout, clippy::dbg_macro)]

mod base;
mod engine;
mod more;
mod points;
mod record;
mod surface;

pub use base::clock::{Clock, SystemClock};
pub use base::error::{BoxError, Cancelled, Error, ErrorKind, OrFail, Result};
pub use base::id::JobId;
pub use base::kind::JobKind;
pub use base::lane::Lane;
pub use base::observe::node::{HeldBy, NodeSnapshot, PartOf, WaitingJob, WaitsFor};
pub use base::observe::{
    Counters, CountersSnapshot, Event, EventKind, Gauges, Interests, IoGauges, JobState, RingSink,
    Sink,
};
pub use base::outcome::{IntoOutcome, Outcome, Success};
pub use base::own::OwnError;
pub use base::patience::Patience;
pub use base::priority::Priority;
pub use base::reason::{Reason, ReasonKind};
pub use base::wait_kind::WaitKind;
pub use engine::hook::{HookGuard, on_cancel, on_cancel_or_end};
pub use engine::tree::{
    FailureHook, ForcedHook, PointHeld, PointHook, Tree, TreeOptions, WeakTree,
};
pub use more::again::backoff::Backoff;
pub use more::again::forever::forever;
pub use more::again::restarting::restarting;
pub use more::again::retry::retry;
pub use more::blocking::{Blocking, Caller, blocking};
pub use more::combine::all::{all, all_settled};
pub use more::combine::any::any;
pub use more::combine::branches::{Alike, Branches};
#[doc(hidden)]
pub use more::combine::chosen::{__select_none, __select_where};
pub use more::combine::each::{ForEach, Items, for_each_concurrent};
pub use more::combine::local_scope::{
    LocalInline, LocalScope, LocalScopeOf, LocalSpawner, LocalTask, UnsendScope, local_scope,
    local_scope_unsend,
};
pub use more::combine::map::MapTasks;
pub use more::combine::race::race;
#[doc(hidden)]
pub use more::combine::select::__select;
pub use more::combine::set_verbs::{ExtendSet, JoinAllInSet};
pub use more::combine::shared::SharedTask;
#[cfg(feature = "stream")]
pub use more::combine::stream::{OrCancelItems, OrCancelStream};
pub use more::combine::task_set::{NextInSet, SpawnInSet, TaskSet};
pub use more::combine::together::Together;
pub use more::combine::tuple::Arm;
pub use more::frame::{Budget, NextPump, Pumped, next_pump};
pub use more::kit;
pub use more::own_end::{OrNone, WithDeadlinePassed};
pub use more::see::cycles::WaitCycle;
pub use more::see::snapshot::TreeSnapshot;
pub use more::see::{ShutdownReport, StillThere, StuckJob, StuckReport, TreeText};
pub use more::service::{NeverReady, Ready, Service, StartService};
pub use more::shutdown::{FORCE, GRACE, Shutdown};
pub use more::timers::factory::Timer;
pub use more::timers::grid::MissedTicks;
pub use more::timers::ticker::{Tick, Ticker, ticker};
pub use more::timers::token::TimerToken;
pub use more::world::with_world;
pub use points::ignore::{IgnoreCancellation, IgnoreGuard, ignore_cancellation};
pub use points::point::{
    Checkpoint, OrCancel, OrCancelFuture, Park, YieldNow, checkpoint, is_cancelled, park, yield_now,
};
pub use points::sleep::{Sleep, deadline, now, sleep, sleep_until};
pub use surface::attempt::attempt;
pub use surface::handle::{Job, Join};
pub use surface::inline::{Inline, Just, Open, WithScope, WithScopeAs};
pub use surface::lane::{LaneFor, LaneOfOne, Main, OnMain, OnPinned, Pinned, Pool, on};
pub use surface::lease::Lease;
pub use surface::local::Local;
pub use surface::scope::Scope;
pub use surface::scope::{
    RescheduleError, ScopeBuilder, cancel_current, cleanup, current_job, is_shielded, scope,
    scope_as, shield, shield_for, timeout, timeout_at, try_shield,
};
pub use surface::spawn::{SpawnError, Spawner};
pub use surface::spawn::{detach, launch, spawn};
pub use surface::task::{OutcomeOf, Task, TaskOutcome};

/// What the model needs from an executor.
///
/// A host gets [`Turn`](host::Turn)s: a new task, or one that was woken alone, through
/// [`Host::start`](host::Host::start), several that were woken together through
/// [`Host::schedule`](host::Host::schedule). It keeps them as it likes and runs each once. A
/// host is never called under a lock of ours.
pub mod host {
    pub use crate::engine::host::*;
    pub use crate::engine::waker::is_of_task;
    pub use crate::more::shutdown::ShutdownSteps;
}

/// Waits that our other crates make in `async` blocks, which `#[track_caller]` does not reach:
/// each takes the place in the code that snapshots and reports name.
#[doc(hidden)]
pub mod placed {
    pub use crate::more::blocking::blocking_at;
    pub use crate::more::kit::completion_at;
    pub use crate::points::sleep::sleep_at;
}
