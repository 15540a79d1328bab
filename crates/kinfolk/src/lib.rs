//! Structured concurrency whose subject is cancellation: no task outlives its
//! family, every task hears the call to stop, and nothing is lost when it does.
//!
//! This crate holds no logic: it gathers what programs use. The names come in three
//! circles; whoever knows the first can write programs.
//!
//! **Every day**, and in the [`prelude`].
//!
//! - [`scope`], [`Scope`]: a family, left when everybody in it has ended.
//!   [`Scope::spawn`] starts a task to await, [`Scope::launch`] one to let run.
//! - [`timeout`], [`sleep`]: a limit, and a point, where a body is told to stop.
//! - [`cleanup`]: awaiting works again, in code that has been told.
//! - [`Error`]: what went wrong, and whose cancellation it was.
//! - [`OrFail`], `.or_fail()?`: any error as ours. [`OrCancel`], `.or_cancel()`: a
//!   point of any future.
//!
//! And with the name of the crate in front: `kinfolk::Result`, `#[kinfolk::main]`,
//! `#[kinfolk::test]`.
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
//! - [`spawn`], [`launch`]: children of the current job, without its scope at hand.
//!   [`Task`], [`Job`]: what these and the scope's verbs give; [`Outcome`]: how one
//!   ended; [`Success`]: a type of your own as the value of a body.
//! - [`all`], [`all_settled`], [`any`], [`race()`], [`select!`],
//!   [`for_each_concurrent`]: several at once in one task; [`TaskSet`]: in many.
//! - [`checkpoint`], [`yield_now`], [`park`]: points that wait for nothing, or for
//!   nothing but the cancel. [`is_cancelled`] only asks.
//! - [`local_scope`]: children that borrow, inside one task.
//! - [`sync`]: channels and locks whose waits are points, and that lose nothing.
//! - [`Local`]: a value that everything below a scope sees.
//! - [`shield`], [`ignore_cancellation`]: what must not be told yet. [`Patience`]: how
//!   long with code that cannot hear.
//! - [`scope_as`]: a scope that fails with an error type of your own.
//! - [`blocking`]: code that must block a thread.
//! - [`on`], with [`Pool`] and [`Main`]: which thread polls a task.
//! - [`detach`], [`Lease`], [`Scope::spawn_service`]: other ways to live in a
//!   family; [`Scope::start_service`] waits until the service is ready.
//! - [`ticker`], [`Scope::interval`], [`Scope::delay`]: something every so often,
//!   or later. [`now`], [`deadline`]: what time it is, and how much is left.
//! - [`on_cancel`]: a callback for who cannot await.
//! - [`Job::interrupt`]: a request that is heard once, and can be taken back.
//! - `fs`, `net`, `io`, `process`, `signal`, with the feature `runtime`: files and sockets whose
//!   operations are points; buffers always come back.
//! - `Runtime`, with the same feature: the native runtime by hand;
//!   [`snapshot`](Tree::snapshot) shows who lives in it, and
//!   [`stuck`](TreeSnapshot::stuck) who was to stop and is still there.
//!
//! **Authors of libraries and hosts.**
//!
//! - `Runtime::pump`, [`next_pump`], [`with_world`]: a program that owns its main
//!   loop.
//! - [`kit`]: waits of your own that are points; callbacks and threads of others.
//! - [`host`], [`Tree`], [`Clock`]: what an executor brings, and gets.
//! - [`IntoOutcome`]: what a body may return.
//! - [`Sink`], [`Counters`], [`Gauges`]: seeing.
//! - `testkit`, a feature: virtual time, seeded schedules, a cancel at every point.
//!
//! Features: `runtime`, the native runtime; `tokio`, the tree on an existing
//! tokio runtime; `stream`, for what is a `Stream` and takes one; `anyhow`, whose errors
//! are recognised by type, so that what is inside can be downcast; `tracing`: children
//! run in the span in which they were spawned, detached jobs and blocking calls in
//! none; `futures-io`, `tokio-io` and `hyper`, for streams behind their traits;
//! `testkit`, which belongs among the dev-dependencies. None is on by default.

// What the library says goes through `host::say`: no print of ours may block or panic.
#![deny(clippy::print_stderr, clippy::print_stdout, clippy::dbg_macro)]

pub use kinfolk_core::*;

#[cfg(any(feature = "runtime", feature = "tokio"))]
pub use kinfolk_macros::main;
// Without condition: what it makes is there in test builds only, and so may the
// feature be.
pub use kinfolk_macros::test;
#[cfg(feature = "runtime")]
pub use kinfolk_runtime as runtime;
#[cfg(feature = "runtime")]
pub use kinfolk_runtime::{Runtime, fs, io, net, process, signal};
pub use kinfolk_sync as sync;
#[cfg(feature = "testkit")]
pub use kinfolk_testkit as testkit;
#[cfg(feature = "tokio")]
pub use kinfolk_tokio as tokio;

/// What most files need: the first circle, and nothing else.
pub mod prelude {
    pub use kinfolk_core::{Error, OrCancel, OrFail, Scope, cleanup, scope, sleep, timeout};
}

/// What `#[kinfolk::main]` calls.
#[doc(hidden)]
#[cfg(any(feature = "runtime", feature = "tokio"))]
pub mod __main {
    #[cfg(feature = "runtime")]
    pub use kinfolk_runtime::{run_main, run_main_without_signals};
    #[cfg(not(feature = "runtime"))]
    pub use kinfolk_tokio::{run_main, run_main as run_main_without_signals};
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
