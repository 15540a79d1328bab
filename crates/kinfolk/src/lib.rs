//! Structured concurrency whose subject is cancellation: no task outlives its
//! family, every task hears the call to stop, and nothing is lost when it does.
//!
//! This crate holds no logic: it gathers what programs use.
//!
//! **Every day.**
//!
//! - [`scope`], [`Scope`]: a family, left when everybody in it has ended.
//! - [`spawn`] gives a [`Task`] to await; [`launch`] a [`Job`] to watch.
//! - [`timeout`], [`sleep`], [`checkpoint`]: points, where a body is told.
//! - [`cleanup`]: awaiting works again, in code that has been told.
//! - [`Error`] and [`Result`]: what went wrong, and whose cancellation it was.
//! - `#[kinfolk::main]` and `#[kinfolk::test]`.
//!
//! **Sometimes.**
//!
//! - [`all`], [`all_settled`], [`any`], [`race()`], [`select!`],
//!   [`for_each_concurrent`]: several at once in one task; [`TaskSet`]: in many.
//! - [`local_scope`]: children that borrow, inside one task.
//! - [`Local`]: a value that everything below a scope sees.
//! - [`shield`], [`ignore_cancellation`]: what must not be told yet.
//! - [`or_cancel`](OrCancel::or_cancel): a point of any future.
//! - [`blocking`]: code that must block a thread.
//! - [`on`], with [`Pool`] and [`Main`]: which thread polls a task.
//! - [`detach`], [`Lease`], [`Scope::spawn_service`]: other ways to live in a
//!   family; [`Scope::start_service`] waits until the service is ready.
//! - [`ticker`], [`Scope::interval`], [`Scope::delay`]: something every so often,
//!   or later.
//! - [`on_cancel`]: a callback for who cannot await.
//! - [`Job::interrupt`]: a request that is heard once, and can be taken back.
//! - [`Runtime`]: the native runtime by hand;
//!   [`snapshot`](Tree::snapshot) shows who lives in it.
//!
//! **Authors of libraries and hosts.**
//!
//! - [`pump`](runtime::Runtime::pump), [`next_pump`], [`with_world`]: a program
//!   that owns its main loop.
//! - [`kit`]: waits of your own that are points; callbacks and threads of others.
//! - [`host`], [`Tree`], [`Clock`]: what an executor brings, and gets.
//! - [`IntoOutcome`]: what a body may return.
//! - [`Sink`], [`Counters`], [`Gauges`]: seeing.
//! - [`testkit`]: virtual time, seeded schedules, a cancel at every point.
//!
//! Features: `runtime`, the native runtime; `tokio`, the tree on an existing
//! tokio runtime; `stream`, for what is a `Stream` and takes one; `anyhow`, whose errors
//! are recognised by type, so that what is inside can be downcast; `testkit`, which
//! belongs among the dev-dependencies. None is on by default.

pub use kinfolk_core::*;

#[cfg(any(feature = "runtime", feature = "tokio"))]
pub use kinfolk_macros::main;
// Without condition: what it makes is there in test builds only, and so may the
// feature be.
pub use kinfolk_macros::test;
#[cfg(feature = "runtime")]
pub use kinfolk_runtime as runtime;
#[cfg(feature = "runtime")]
pub use kinfolk_runtime::{Runtime, fs, io, process, signal};
#[cfg(feature = "testkit")]
pub use kinfolk_testkit as testkit;
#[cfg(feature = "tokio")]
pub use kinfolk_tokio as tokio;

/// What most files need.
pub mod prelude {
    pub use kinfolk_core::{Error, OrCancel, OrFail, Scope, Task, cleanup, scope, timeout};
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
