//! The native runtime of Kinfolk: a work-stealing scheduler with lanes, timers
//! and host loops.
//!
//! Programs use this crate through the facade, `kinfolk`.
//!
//! | module | what it is |
//! |---|---|
//! | `runtime` | the owner on its main thread, and handles for the others |
//! | `builder` | its options |
//! | `host_loop` | for hosts that own the main loop: `pump`, `run_expired` |
//! | `scope_blocking` | children that borrow |
//! | `machine` | what all threads share; the host that the model sees |
//! | `main_lane` | the main thread's queues, and how it is woken |
//! | `scheduler` | workers, their rings, the injector, who sleeps |
//! | `timers` | one queue, and who keeps it |
//! | `blocking` | threads for code that must block |
//! | `busy` | with virtual time: whether anything is on its way |
//! | `quiet` | with virtual time: whether sockets and pipes have been quiet for a moment |
//! | `entry` | `#[kinfolk::main]` |
//! | `fs` | files |
//! | `io` | operations, and the drivers that carry them out |
//! | `net` | sockets |
//! | `process` | processes that do not outlive their family |
//! | `signal` | waiting for signals of the system |
//! | `here` | the thread-local: whose turns are taken on this thread |
//! | `clock` | a clock that the host can stop and speed up |
//! | `linux` | a cheap clock, and what only Linux has |
//! | `sync` | the one switch between std and loom |

// What the library says goes through `host::say`: no print of ours may block or panic.
#![deny(clippy::print_stderr, clippy::print_stdout, clippy::dbg_macro)]

mod blocking;
mod builder;
mod busy;
mod clock;
mod dump;
mod entry;
pub mod fs;
mod here;
mod host_loop;
pub mod io;
mod linux;
mod machine;
mod main_lane;
pub mod net;
pub mod process;
mod quiet;
mod runtime;
mod scheduler;
mod scope_blocking;
pub mod signal;
mod sync;
mod timers;

pub use builder::Builder;
pub use clock::HostClock;
pub use entry::{main_options, run_main, run_main_with, run_main_without_signals};
pub use main_lane::{Cause, WakeHook};
pub use runtime::{Handle, Runtime};
pub use scope_blocking::BlockingScope;
