//! Kinfolk's job tree on an existing tokio runtime: no second thread pool, a
//! job is one tokio task, and `#[tokio::main]` stays as it is.
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

// What the library says goes through `host::say`: no print of ours may block or panic.
#![deny(clippy::print_stderr, clippy::print_stdout, clippy::dbg_macro)]

mod driver;
mod entry;
mod host;
mod root;

pub use entry::run_main;
pub use root::{Root, RootBuilder, run};
