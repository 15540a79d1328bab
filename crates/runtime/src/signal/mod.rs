//! Signals of the system, as something to wait for.
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
//! Any number of listeners hear the same signal. `#[kinfolk::main]` hears SIGINT
//! and SIGTERM by itself, beside them; `#[kinfolk::main(signals = false)]` leaves
//! them to the program.
//!
//! Once somebody has listened to a signal, it has its usual effect no more, also
//! when nobody listens any longer: a program that has waited for Ctrl-C once is
//! not ended by the next one.

mod listener;
mod wire;

pub use libc::{SIGALRM, SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
pub use listener::{Signals, ctrl_c};
pub(crate) use wire::Wire;
