//! Kinfolk's job tree on an existing tokio runtime: no second thread pool, and
//! `#[tokio::main]` stays as it is. Jobs may use everything of tokio's: sockets,
//! timers, channels, `spawn_blocking`.
//!
//! ```
//! # fn main() {
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(main_());
//! # }
//! use kinfolk_core::{Error, scope};
//!
//! # async fn main_() {
//! let sum = kinfolk_tokio::run(async {
//!     scope(async |s| {
//!         let a = s.spawn(async { 20 });
//!         let b = s.spawn(async { 22 });
//!         Ok(a.await? + b.await?)
//!     })
//!     .await
//! })
//! .await
//! .unwrap();
//! assert_eq!(sum, 42);
//! kinfolk_tokio::Root::current().shutdown().await.unwrap();
//! # }
//! ```
//!
//! A job is no tokio task. Turns of jobs wait in queues of Kinfolk's own, and a few
//! tokio tasks take them, as many as tokio has workers. So tokio's console,
//! `tokio::task::id` and tokio's metrics show those tasks and not the jobs; and
//! `tokio::task::spawn_local` cannot be called in a job. Code that blocks its thread
//! inside a job should do so in [`block_in_place`] of this crate, not in tokio's.
//!
//! Tasks that were started with `tokio::spawn` are no jobs. [`AdoptExt::adopt`] makes one the
//! child of a scope; [`Root::enter`] makes a job of a future that a tokio task polls. In a test
//! [`RootBuilder::on_bare_spawn`] reports a `tokio::spawn` in a job.
//!
//! When the tokio runtime is dropped, every job below the root is dropped where it
//! waits, and ends as cancelled with `ReasonKind::HostGone`.

// What the library says goes through `host::say`: no print of ours may block or panic.
#![deny(clippy::print_stderr, clippy::print_stdout, clippy::dbg_macro)]

mod bare_spawns;
mod bridge;
mod builder;
mod clock;
mod driver;
mod entry;
mod here;
mod host;
pub mod io;
mod keeper;
mod local_lane;
mod machine;
mod root;
mod seat;
mod watch;

pub use bare_spawns::{BareSpawnHook, BareSpawns};
#[cfg(feature = "tokio-util")]
pub use bridge::TokenExt;
pub use bridge::{AdoptExt, Within, within};
pub use builder::RootBuilder;
pub use entry::{MainOptions, main_options, run_main, run_main_with, run_main_without_signals};
pub use root::{Root, run};
pub use watch::block_in_place;

/// The code in the migration guide is a test.
#[cfg(all(doctest, feature = "tokio-util"))]
#[doc = include_str!("../../../docs/from-tokio.md")]
mod from_tokio {}
