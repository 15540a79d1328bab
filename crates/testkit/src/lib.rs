//! Testing for programs on Kinfolk, and for Kinfolk itself: virtual time,
//! seeded schedules, counted futures, a sequencer, and the harness of the
//! conformance suite that every host runs.

// What the library says goes through `host::say`: no print of ours may block or panic.
#![deny(clippy::print_stderr, clippy::print_stdout, clippy::dbg_macro)]

mod at_rest;
mod calls;
mod clock;
mod counted;
mod everywhere;
mod gate;
mod guard;
pub mod harness;
#[cfg(feature = "runtime")]
pub mod io;
#[cfg(not(feature = "runtime"))]
#[path = "no_io.rs"]
mod io;
mod lab;
mod log;
mod ready_turns;
mod rewind;
mod rng;
mod run_test;
#[cfg(feature = "tokio")]
mod run_tokio_test;
mod schedule;
mod seeds;
mod sequencer;
mod sim;
mod unheard;

pub use kinfolk_core::kit::{HeldClock, hold_clock};

pub use clock::VirtualClock;
pub use counted::{Counted, DropTally, Tally};
pub use everywhere::{CancelEverywhere, Everywhere, cancel_everywhere, cancel_everywhere_then};
pub use gate::{Gate, GateWait};
pub use guard::{GuardedRun, guarded};
pub use lab::{IdleWaiters, Lab, Settle};
pub use log::Log;
pub use rng::Rng;
#[cfg(feature = "runtime")]
pub use run_test::run_native_test;
pub use run_test::{TestOptions, run_test};
#[cfg(feature = "tokio")]
pub use run_tokio_test::run_tokio_test;
pub use sequencer::{Sequencer, Step};
pub use sim::{Sim, SimBuilder};
