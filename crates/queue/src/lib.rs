//! The queues that Kinfolk's schedulers keep their turns in, and the book of which
//! of their workers sleep.
//!
//! The native runtime and the host on tokio are made of these parts. A program
//! has no use for them.
//!
//! | module | what it is |
//! |---|---|
//! | `ring` | a worker's own queue: bounded, open to theft |
//! | `slot` | one place, for the turn that goes next |
//! | `injector` | a queue under a lock, to which every thread may push |
//! | `tray` | ring, slot and the backlog behind the ring: all that a worker has queued |
//! | `priority` | the queues of high and low turns, and whose go it is |
//! | `thief` | what a worker takes from the trays of others, and when |
//! | `idle` | which workers sleep, and which one is woken for what |
//! | `door` | where one worker sleeps, and is brought a turn |
//! | `watch` | whether workers are watched that may be held up in a turn |
//! | `burial` | the end of a scheduler whose threads are gone |
//! | `sync` | the one switch between std and loom |
//!
//! Why no turn is lost and none is left lying while a worker could take it:
//! `README.md` beside this file.

// What the library says goes through `host::say`: no print of ours may block or panic.
#![deny(clippy::print_stderr, clippy::print_stdout, clippy::dbg_macro)]

mod burial;
mod door;
mod idle;
mod injector;
mod priority;
mod ring;
mod slot;
pub mod sync;
mod thief;
mod tray;
mod watch;

pub use burial::Burial;
pub use door::Door;
pub use idle::{Idle, SleepKind};
pub use injector::Injector;
pub use priority::{PriorityQueues, PriorityStreak};
pub use ring::STEAL_BATCH;
pub use thief::{MOMENT, STALE, Thief};
pub use tray::{FEW, Streak, Then, Tray};
pub use watch::Watch;
