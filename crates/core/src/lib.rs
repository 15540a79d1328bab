//! The model of Kinfolk: a tree of jobs, and what cancelling one means.
//!
//! No threads, no clock, no system calls: a [host](host::Host) brings those.
//! Programs use this crate through the facade, `kinfolk`; this crate is for
//! those who write hosts and for the curious.
//!
//! Modules:
//!
//! | module | what it is |
//! |---|---|
//! | `sync` | the one switch between std and loom |
//! | `unwind` | the panic policy |
//! | `say` | what the library itself says on standard error |
//! | `context` | the thread-local: which job is polled here |
//! | `observe` | events, counters, gauges, sinks |
//! | `error` | `Cancelled` and `Error` |
//! | `own` | errors of the user's own type, and `anyhow` |
//! | `span` | the span of `tracing` that a child inherits |
//! | `job` | header, state word, links, ends, handles, scopes |
//! | `cancel` | reasons, the walk, points, waits, hooks, guards, the sweep, interrupts |
//! | `task` | cells, turns, wakers |
//! | `combine` | several futures at once: branches and sets of tasks |
//! | `kit` | for authors: waits of their own that are points |
//! | `time` | sleeping, tickers and timers |
//! | `tree` | what the jobs of one root share |
//! | `shutdown` | ask, lift, drop, report |
//! | `blocking` | calls that must block, on the host's threads |
//! | `frame`, `world` | for hosts that own the main loop |
//! | `report` | who is in the way of a stop, in words |
//! | `host` | what the model needs from an executor |

// What the library says goes through `host::say`: no print of ours may block or panic.
#![deny(clippy::print_stderr, clippy::print_stdout, clippy::dbg_macro)]

mod blocking;
mod cancel;
mod combine;
mod context;
mod desks;
mod error;
mod frame;
pub mod host;
mod job;
pub mod kit;
mod observe;
mod own;
mod real_grace;
mod report;
mod say;
mod shutdown;
mod span;
mod sync;
mod task;
mod time;
mod tree;
mod unwind;
mod world;

pub use blocking::{Blocking, Caller, blocking};
pub use cancel::guard::{IgnoreCancellation, IgnoreGuard, ignore_cancellation};
pub use cancel::hook::{HookGuard, on_cancel, on_cancel_or_end};
pub use cancel::patience::Patience;
pub use cancel::point::{
    Checkpoint, OrCancel, OrCancelFuture, Park, YieldNow, checkpoint, is_cancelled, park, yield_now,
};
pub use cancel::reason::{Reason, ReasonKind};
pub use cancel::wait::WaitKind;
pub use combine::all::{all, all_settled};
pub use combine::any::any;
pub use combine::branches::{Alike, Branches};
pub use combine::each::{ForEach, Items, for_each_concurrent};
pub use combine::local::{
    LocalInline, LocalScope, LocalScopeOf, LocalSpawner, LocalTask, UnsendScope, local_scope,
    local_scope_unsend,
};
pub use combine::race::race;
#[doc(hidden)]
pub use combine::select::__select;
#[cfg(feature = "stream")]
pub use combine::stream::{OrCancelItems, OrCancelStream};
pub use combine::task_set::{NextInSet, SpawnInSet, TaskSet};
pub use combine::together::Together;
pub use combine::tuple::Arm;
pub use error::{BoxError, Cancelled, Error, ErrorKind, OrFail, Result};
pub use frame::{Budget, NextPump, Pumped, next_pump};
pub use job::id::JobId;
pub use job::inline::{Inline, Just, Open, WithScope, WithScopeAs};
pub use job::kind::JobKind;
pub use job::lane::{Lane, LaneFor, Main, OnMain, Pool, on};
pub use job::local::Local;
pub use job::outcome::{IntoOutcome, Outcome, Success};
pub use job::scope::{
    RescheduleError, ScopeBuilder, cancel_current, cleanup, current_job, is_shielded, scope,
    scope_as, shield, shield_for, timeout, timeout_at, try_shield,
};
pub use job::service::{NeverReady, Ready, Service, StartService};
pub use job::spawn::{detach, launch, spawn};
pub use job::{
    HeldBy, Job, Join, Lease, NodeSnapshot, OutcomeOf, PartOf, Scope, SpawnError, Spawner, Task,
    TaskOutcome, TreeSnapshot, WaitCycle, Waiter, WaitsFor,
};
pub use observe::{
    Counters, CountersSnapshot, Event, EventKind, Gauges, IoGauges, JobState, RingSink, Sink,
};
pub use own::OwnError;
pub use report::{ShutdownReport, StillThere, StuckJob, StuckReport};
pub use shutdown::{FORCE, GRACE, Shutdown};
pub use time::clock::{Clock, SystemClock};
pub use time::factory::Timer;
pub use time::grid::MissedTicks;
pub use time::sleep::{Sleep, deadline, now, sleep, sleep_until};
pub use time::ticker::{Tick, Ticker, ticker};
pub use time::token::TimerToken;
pub use tree::{FailureHook, ForcedHook, PointHeld, PointHook, Tree, TreeOptions, WeakTree};
pub use world::with_world;
