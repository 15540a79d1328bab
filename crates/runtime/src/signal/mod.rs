//! Waiting for signals of the operating system.
//!
//! ```no_run
//! use kinfolk_runtime::signal::{SIGHUP, SIGUSR1, Signals};
//!
//! # fn reload() {}
//! # fn print_state() {}
//! # async fn demo() -> kinfolk_core::Result<()> {
//! let mut signals = Signals::new([SIGHUP, SIGUSR1])?;
//! loop {
//!     match signals.recv().await? {
//!         SIGHUP => reload(),
//!         _ => print_state(),
//!     }
//! }
//! # }
//! ```
//!
//! Any number of listeners receive the same signal. `#[kinfolk::main]` listens to SIGINT and
//! SIGTERM too; `#[kinfolk::main(signals = false)]` leaves
//! them to the program.
//!
//! Once a program has listened to a signal, the signal has lost its default effect, even
//! after the last listener is dropped: a program that has waited for Ctrl-C once is not ended
//! by the next one.

mod listener;

pub use libc::{SIGALRM, SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
pub use listener::{Signals, ctrl_c};
