//! Structured concurrency whose subject is cancellation: no task outlives its
//! family, every task hears the call to stop, and nothing is lost when it does.
//!
//! This crate holds no logic: it gathers what programs use.
//!
//! - every day: [`scope`], [`spawn`], [`timeout`], [`checkpoint`], [`cleanup`],
//!   [`shield`];
//! - with the feature `tokio`: the tree on an existing tokio runtime, and
//!   `#[kinfolk::main]`;
//! - with the feature `testkit`, which belongs among the dev-dependencies:
//!   virtual time and seeded schedules, and what `#[kinfolk::test]` runs on;
//! - with the feature `anyhow`: `anyhow::Error` is recognised by its type, so that
//!   what is inside it can be downcast;
//! - for those who write hosts: [`host`].

pub use kinfolk_core::*;

#[cfg(feature = "tokio")]
pub use kinfolk_macros::main;
// Without condition: what it makes is there in test builds only, and so may the
// feature be.
pub use kinfolk_macros::test;
#[cfg(feature = "testkit")]
pub use kinfolk_testkit as testkit;
#[cfg(feature = "tokio")]
pub use kinfolk_tokio as tokio;

/// What most files need.
pub mod prelude {
    pub use kinfolk_core::{Error, OrCancel, OrFail, Scope, Task, cleanup, scope, timeout};
}

/// The code in the README is a test.
#[cfg(all(doctest, feature = "tokio", feature = "testkit"))]
#[doc = include_str!("../../../README.md")]
mod readme {}
