//! Structured concurrency whose subject is cancellation: no task outlives its
//! family, every task hears the call to stop, and nothing is lost when it does.
//!
//! This crate holds no logic: it gathers what programs use.
//!
//! - every day: [`scope`], [`spawn`], [`timeout`], [`checkpoint`], [`cleanup`],
//!   [`shield`];
//! - with the feature `runtime`: [`Runtime`](runtime::Runtime), the native one,
//!   and `#[kinfolk::main]` on it;
//! - with the feature `tokio`: the tree on an existing tokio runtime;
//! - with the feature `stream`: the [`Ticker`] as a `Stream`;
//! - with the feature `testkit`, which belongs among the dev-dependencies:
//!   virtual time and seeded schedules, and what `#[kinfolk::test]` runs on;
//! - for those who write hosts: [`host`].

pub use kinfolk_core::*;

#[cfg(any(feature = "runtime", feature = "tokio"))]
pub use kinfolk_macros::main;
// Without condition: what it makes is there in test builds only, and so may the
// feature be.
pub use kinfolk_macros::test;
#[cfg(feature = "runtime")]
pub use kinfolk_runtime as runtime;
#[cfg(feature = "runtime")]
pub use kinfolk_runtime::Runtime;
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
