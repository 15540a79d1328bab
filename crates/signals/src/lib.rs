//! What the hosts of Kinfolk share of `#[kinfolk::main]`: who hears Ctrl-C and SIGTERM,
//! keeps the time of the shutdown that follows, and decides the exit code.
//!
//! Programs use none of this themselves: the native runtime and the tokio host do.
//!
//! | module | what it is |
//! |---|---|
//! | `unix` | the thread that hears signals, and shuts a tree down |
//! | `none` | the same where no signal can be heard yet |
//! | `wire` | from a signal handler to a thread |
//! | `exit` | the exit code of a main, and what is said at its end |

// What the library says goes through `host::say`: no print of ours may block or panic.
#![deny(clippy::print_stderr, clippy::print_stdout, clippy::dbg_macro)]

use std::time::Duration;

use kinfolk_core::host::RealGrace;

mod exit;
#[cfg(not(unix))]
#[path = "none.rs"]
mod unix;
#[cfg(unix)]
mod unix;
#[cfg(unix)]
mod wire;

pub use exit::{MainEnded, Manner};
pub use unix::MainSignals;
#[cfg(unix)]
pub use wire::Wire;

/// Gives a host the grace of its shutdown in real time, whatever its clock does.
pub type GraceInRealTime = Box<dyn Fn(Duration) -> Option<RealGrace> + Send + Sync>;
