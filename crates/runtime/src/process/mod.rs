//! Processes that do not outlive their family.
//!
//! ```
//! use kinfolk_runtime::{Runtime, process::Command};
//!
//! Runtime::new()?.block_on(async {
//!     let said = Command::new("echo").arg("hello").output().await?;
//!     assert!(said.status.success());
//!     assert_eq!(said.stdout, b"hello\n");
//!     Ok::<_, kinfolk_core::Error>(())
//! })?;
//! # Ok::<_, kinfolk_core::Error>(())
//! ```
//!
//! # Who stops a process, and when
//!
//! Each process has a *reaper*, a service of the job that started it. The reaper
//! waits for the end of the process and reaps it. When it is cancelled it stops
//! the process first: SIGTERM; after a [grace](Command::grace) SIGKILL. It is
//! cancelled
//!
//! - when the [`Child`] is dropped before the process has ended,
//! - by [`Child::stop`],
//! - when the job that started the process is over: its body and every child that
//!   is no service.
//!
//! That job waits for the reaper as for every child, so that no process outlives
//! its family, and none is left a zombie. A job that is cancelled hears it in
//! [`Child::wait`], returns, drops the child, and ends once the process has; in its
//! `cleanup` it can still talk to the process.
//!
//! Where the system has no `pidfd_open`, or a sandbox hides it, a thread for each
//! process waits for its end.
//!
//! A shutdown that lifts shields cuts the grace short. A reaper that is dropped by
//! force kills the process at once and leaves the reaping to a thread.

mod child;
mod command;
mod reaper;
mod record;
mod waiter;

pub use child::Child;
pub use command::{Command, Stdio};
pub use std::process::{ExitStatus, Output};

use std::io;

use kinfolk_core::Error;

/// An error of ours as i/o says it: of the kind of the i/o error in it, if there
/// is one.
fn io_error(error: Error) -> io::Error {
    let kind = match error.downcast_ref::<io::Error>() {
        Some(inner) if !error.is_cancelled() => inner.kind(),
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}
