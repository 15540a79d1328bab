//! Structured concurrency for Rust, built around cancellation: no task outlives its
//! family, every task hears the call to stop, and nothing is lost when it does.
//!
//! A *job* is a task or a scope; jobs form a tree. A *cancellation point* is an `await`
//! that returns `Err(Cancelled)` once its job has been cancelled: the job has then been
//! *told*. Every function of this crate that is a point says so in its section
//! *Cancellation*.
//!
//! The names come in three circles. The first is enough to write programs.
//!
//! **Every day**, and in the [`prelude`].
//!
//! - [`scope`], [`Scope`]: run child tasks; the scope returns when all of them have ended.
//!   [`Scope::spawn`] returns a handle to await, [`Scope::launch`] needs none.
//! - [`timeout`]: run a future with a time limit. When the limit passes, the future is told
//!   and may clean up.
//! - [`sleep`]: wait for a duration. A cancellation point.
//! - [`cleanup`]: await again inside a job that has been told.
//! - [`Error`]: why a scope or task did not succeed, and whose cancellation it was.
//! - [`OrFail`]: `.or_fail()?` converts any error into an [`Error`].
//! - [`OrCancel`]: `.or_cancel()` turns any future into a cancellation point.
//!
//! And with the name of the crate in front: [`kinfolk::Result`](Result),
//! `#[kinfolk::main]` and `#[kinfolk::test]`.
//!
//! ```
//! use kinfolk::prelude::*;
//! use std::time::Duration;
//!
//! async fn answer() -> kinfolk::Result<u32> {
//!     let half = async || {
//!         sleep(Duration::from_millis(1)).await?;
//!         Ok::<u32, Error>(21)
//!     };
//!     scope(async |s| {
//!         let left = s.spawn(half());
//!         Ok(left.await? + timeout(Duration::from_secs(1), half()).await?)
//!     })
//!     .await
//! }
//! ```
//!
//! **Sometimes.**
//!
//! - [`spawn`], [`launch`]: start a child of the current job without its scope at hand.
//!   [`attempt`], [`Scope::attempt`]: a child whose failure is only what its `await` returns.
//!   [`Task`] is the handle that owns a child, [`Job`] one that observes it. [`Outcome`] says how
//!   a task ended, [`Success`] makes your own type the value of a body.
//! - [`all`], [`all_settled`], [`any`], [`race()`], [`select!`] with [`Arm`],
//!   [`for_each_concurrent`]: several futures at once in one task. [`TaskSet`]: results of many
//!   tasks as they end; [`TaskSet::map`]: a task for each item, values in the order of the items.
//! - [`retry`]: try again after a failure, never after a cancellation. [`job::forever`],
//!   [`job::restarting`]: round after round, and a child that restarts itself.
//! - [`checkpoint`], [`yield_now`], [`park`]: points that wait for nothing, for one turn of the
//!   other tasks, or for the cancellation itself. [`is_cancelled`] only asks.
//! - [`local_scope`], [`local_scope_unsend`]: children that borrow from their caller.
//! - [`sync`]: channels and locks whose waits are cancellation points, and that lose nothing.
//! - [`Local`]: a value that every job below a scope can read.
//! - [`shield`], [`ignore_cancellation`]: postpone cancellation. [`Patience`]: how long a
//!   cancelled job may stay in a foreign `await`.
//! - [`Cancelled`], [`Reason`], [`ReasonKind`], [`ErrorKind`]: what a point returns, and the
//!   questions that errors answer.
//! - [`scope_as`]: a scope that fails with an error type of your own.
//! - [`blocking`]: run code that blocks its thread.
//! - [`on`], [`Pool`], [`Main`], [`job::Pinned`]: choose the thread that polls a task.
//!   [`job::Priority`]: which of those that wait is polled first.
//! - [`detach`]: a child of the root. [`Lease`]: keeps a scope open.
//!   [`Scope::spawn_service`], [`Scope::start_service`]: children that live as long as the others
//!   do.
//! - [`ticker`], [`Scope::interval`], [`Scope::delay`]: repeat or postpone work.
//!   [`now`]: the time, which tests can move.
//! - [`current_job`], [`on_cancel`]: the running job, and a callback for its cancellation.
//! - [`Job::interrupt`]: ask a task once to stop what it does; the request can be withdrawn.
//! - [`time`], [`job`], [`future`]: the less common functions and types of the above.
//! - `fs`, `net`, `io`, `process`, `signal` (feature `runtime`): files, sockets and processes
//!   whose operations are cancellation points and always return their buffers.
//! - `Runtime` (feature `runtime`): the native runtime, when you build it yourself;
//!   [`snapshot`](host::Tree::snapshot) prints its jobs, [`stuck`](see::TreeSnapshot::stuck) the
//!   jobs that do not stop.
//! - [`see`]: snapshots as text and JSON, what grew between two, and
//!   [`findings`](see::Examine::findings) in them.
//!
//! **Authors of libraries and hosts.**
//!
//! - [`frame`]: for a program that owns its main loop, such as a game.
//! - [`kit`]: cancellation points of your own, over callbacks and foreign threads.
//! - [`host`]: what an executor must provide to run Kinfolk.
//! - [`see`]: snapshots, events, counters and reports.
//! - `runtime`, `tokio`, `testkit` (features): the native runtime's own options, the tokio host,
//!   and virtual time with seeded schedules.
//!
//! Features: `runtime`, the native runtime, the only one that is on by default; `tokio`, the
//! job tree on an existing tokio runtime (`default-features = false, features = ["tokio"]`); `stream`, for `Stream`s; `anyhow`, whose errors are recognised by type, so that they
//! can be downcast; `tracing`: children run in the span in which they were spawned, detached
//! jobs and blocking calls in none, and what the library says goes to the subscriber that is
//! set for all threads instead of standard error; `futures-io`, `tokio-io` and `hyper`: streams behind their
//! traits; `testkit`, which belongs among the dev-dependencies. Libraries depend on `kinfolk-core`.

// What the library says goes through `host::say`: no print of ours may block or panic.
#![deny(clippy::print_stderr, clippy::print_stdout, clippy::dbg_macro)]

// Every name at the root stands in one of the circles above: `tests/perimeter.rs` counts them.
#[doc(inline)]
pub use kinfolk_core::{
    Arm, Cancelled, Error, ErrorKind, Job, Lease, Local, Main, OrCancel, OrFail, Outcome, Patience,
    Pool, Reason, ReasonKind, Result, Scope, Success, Task, TaskSet, all, all_settled, any,
    attempt, blocking, checkpoint, cleanup, current_job, detach, for_each_concurrent,
    ignore_cancellation, is_cancelled, kit, launch, local_scope, local_scope_unsend, now, on,
    on_cancel, park, race, retry, scope, scope_as, select, shield, sleep, spawn, ticker, timeout,
    yield_now,
};

pub use kinfolk_sync as sync;

// Without condition: it says which feature it lacks.
#[doc(inline)]
pub use kinfolk_macros::main;
// Without condition: what it makes is there in test builds only, and so may the
// feature be.
#[doc(inline)]
pub use kinfolk_macros::test;
#[doc(inline)]
#[cfg(feature = "runtime")]
pub use kinfolk_runtime as runtime;
#[doc(inline)]
#[cfg(feature = "runtime")]
pub use kinfolk_runtime::{Runtime, fs, io, process, signal};
#[doc(inline)]
#[cfg(feature = "testkit")]
pub use kinfolk_testkit as testkit;
#[doc(inline)]
#[cfg(feature = "tokio")]
pub use kinfolk_tokio as tokio;

/// Jobs, scopes and tasks beyond the everyday: builders, handles, lanes, services and
/// what a body may return.
pub mod job {
    #[doc(inline)]
    pub use kinfolk_core::{
        BoxError, Caller, HookGuard, IgnoreGuard, IntoOutcome, JobId, JobKind, JobState, Lane,
        LaneFor, LaneOfOne, LocalScope, LocalScopeOf, LocalSpawner, LocalTask, NeverReady, OnMain,
        OnPinned, OwnError, Pinned, Priority, Ready, RescheduleError, ScopeBuilder, Service,
        SharedTask, SpawnError, Spawner, UnsendScope, cancel_current, forever, is_shielded,
        on_cancel_or_end, restarting, shield_for, try_shield,
    };
}

/// Clocks, deadlines, tickers and timers.
pub mod time {
    #[doc(inline)]
    pub use kinfolk_core::{
        Backoff, Clock, MissedTicks, SystemClock, Ticker, Timer, TimerToken, deadline, sleep_until,
        timeout_at,
    };
}

/// The futures that the functions of this crate return, and the traits that say what a
/// combinator accepts.
pub mod future {
    #[doc(inline)]
    pub use kinfolk_core::{
        Alike, Blocking, Branches, Checkpoint, ExtendSet, ForEach, IgnoreCancellation, Inline,
        Items, Join, JoinAllInSet, Just, LocalInline, MapTasks, NextInSet, NextPump, Open,
        OrCancelFuture, OrNone, OutcomeOf, Park, Sleep, SpawnInSet, StartService, TaskOutcome,
        Tick, Together, WithDeadlinePassed, WithScope, WithScopeAs, YieldNow,
    };
    #[doc(inline)]
    #[cfg(feature = "stream")]
    pub use kinfolk_core::{OrCancelItems, OrCancelStream};
}

/// Sockets: TCP, UDP and Unix sockets.
///
/// Each operation takes a buffer by value and returns it with its result, whether it
/// succeeds, fails or is cancelled. Methods take `&self`: several jobs may use a socket at
/// once, by reference or in an `Arc`. Time limits are scopes:
/// `timeout(limit, TcpStream::connect(addr))`.
///
/// With the features `futures-io`, `tokio-io` and `hyper` a stream can be wrapped in `Polled`,
/// which implements their traits; with `stream` the connections of a listener are a `Stream`.
#[cfg(feature = "runtime")]
pub mod net {
    #[doc(inline)]
    #[cfg(feature = "hyper")]
    pub use kinfolk_adapters::hyper;
    #[doc(inline)]
    #[cfg(any(feature = "futures-io", feature = "tokio-io", feature = "hyper"))]
    pub use kinfolk_adapters::{Polled, Streaming};
    #[doc(inline)]
    pub use kinfolk_runtime::net::*;
}

/// Frames: for a program that owns its main loop and lets the runtime work once in a while.
pub mod frame {
    #[doc(inline)]
    pub use kinfolk_core::{Budget, Pumped, next_pump, with_world};
}

/// Snapshots of the job tree, events, counters and reports; sinks that record what happens and
/// say why a job was cancelled.
pub mod see {
    #[doc(inline)]
    pub use kinfolk_core::{
        Counters, CountersSnapshot, Event, EventKind, Gauges, HeldBy, Interests, IoGauges,
        NodeSnapshot, PartOf, RingSink, ShutdownReport, Sink, StillThere, StuckJob, StuckReport,
        TreeSnapshot, TreeText, WaitCycle, WaitKind, WaitingJob, WaitsFor,
    };
    #[doc(inline)]
    #[cfg(feature = "tracing")]
    pub use kinfolk_see::JobSpans;
    #[doc(inline)]
    #[cfg(feature = "metrics")]
    pub use kinfolk_see::Measures;
    #[doc(inline)]
    pub use kinfolk_see::{
        CancelEntry, CancelTrace, Causes, Examine, Finding, FindingLevel, FindingRule, Findings,
        GrowthKeeper, Held, JSON_FORMAT, JSON_SCHEMA, JobGrowth, JobLabel, PerfettoBuilder,
        PerfettoSink, RecordedEvent, Recorder, RecorderBuilder, Recording, Rules,
        ShutdownWaterfall, Sinks, TracedHop, TracedJob, TreeDiff, WaterfallRow, WriteJson,
    };
}

/// What an executor must provide to run Kinfolk, and the tree that it runs.
pub mod host {
    #[doc(inline)]
    pub use kinfolk_core::host::*;
    #[doc(inline)]
    pub use kinfolk_core::{
        FORCE, FailureHook, ForcedHook, GRACE, PointHeld, PointHook, Shutdown, Tree, TreeOptions,
        WeakTree,
    };
}

/// What most files need: the first circle, and nothing else.
pub mod prelude {
    pub use kinfolk_core::{Error, OrCancel, OrFail, Scope, cleanup, scope, sleep, timeout};
}

/// What `#[kinfolk::main]` calls.
#[doc(hidden)]
#[cfg(feature = "runtime")]
pub mod __main {
    pub use kinfolk_runtime::{main_options, run_main_with};
}

/// The code in the README is a test.
#[cfg(all(doctest, feature = "runtime", feature = "tokio", feature = "testkit"))]
#[doc = include_str!("../../../README.md")]
mod readme {}

/// And so is the code in the guide to testing.
#[cfg(all(doctest, feature = "runtime", feature = "tokio", feature = "testkit"))]
#[doc = include_str!("../../../docs/testing.md")]
mod testing {}

/// And in the guide to i/o.
#[cfg(all(doctest, feature = "runtime", feature = "tokio", feature = "testkit"))]
#[doc = include_str!("../../../docs/io.md")]
mod io_guide {}

/// And in the guide to channels and locks.
#[cfg(all(doctest, feature = "runtime", feature = "tokio", feature = "testkit"))]
#[doc = include_str!("../../../docs/sync.md")]
mod sync_guide {}
