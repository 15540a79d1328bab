//! Channels and locks whose waits are cancellation points, and that lose nothing.
//!
//! Use them as `kinfolk::sync`. The names are those of `tokio::sync`, where there is such
//! a thing; what differs is what happens when a task is told to stop:
//!
//! - A **send** that is told gives the value back, in its error.
//! - A **receive** that is told has taken nothing: the value stays in its place.
//! - A **lock** that is told holds nothing, and the next in line gets it.
//! - What has taken effect before is returned, and the next point tells.
//!
//! The same holds for a future that is dropped, by a lost `select!` for instance; only the
//! value of a dropped send goes with it.
//!
//! ```
//! # use kinfolk_core as kinfolk;
//! use kinfolk::{Result, scope};
//! # use kinfolk_sync as sync;
//! use sync::{Mutex, mpmc};
//!
//! async fn feed(numbers: Vec<u64>, tx: mpmc::Sender<u64>) -> Result<()> {
//!     for n in numbers {
//!         tx.send(n).await?; // waits for room; told to stop, it returns
//!     }
//!     Ok(())
//! }
//!
//! async fn sum(numbers: Vec<u64>) -> Result<u64> {
//!     let total = Mutex::new(0);
//!     let (tx, rx) = mpmc::channel(4);
//!     scope(async |s| {
//!         s.launch(feed(numbers, tx));
//!         while let Some(n) = rx.recv().await? {
//!             *total.lock().await? += n;
//!         }
//!         Ok(())
//!     })
//!     .await?;
//!     Ok(total.into_inner())
//! }
//! ```
//!
//! | | |
//! |---|---|
//! | [`mpmc`] | [`channel`](mpmc::channel) with so much room, [`rendezvous`](mpmc::rendezvous) with none, [`unbounded_channel`](mpmc::unbounded_channel) |
//! | [`oneshot`] | one value |
//! | [`watch`] | the latest value |
//! | [`broadcast`] | every value to every receiver; slow ones are told what they missed |
//! | [`Mutex`], [`RwLock`], [`Semaphore`] | one, many readers or one writer, so many at a time |
//! | [`Notify`], [`Barrier`], [`OnceCell`] | a wake-up, a meeting point, a value that is made once |
//!
//! **First come, first served.** What is awaited here is served in the order in which it
//! was first polled. A lock is handed over to the first in line and never free in between;
//! no newcomer and no `try_` form overtakes those who wait.
//!
//! **On any executor.** Every wait works in plain tokio and smol tasks and under any
//! `block_on`. Outside every job it is never told anything, and never returns `Cancelled`.
//! Threads use the `blocking_` forms.
//!
//! **To be seen.** A snapshot of the tree says which lock or channel a job waits for, by the
//! name given with `named` and by the place where it was made, and which job holds it; jobs
//! that wait for each other in a circle are printed with their places.

#![deny(clippy::print_stderr, clippy::print_stdout, clippy::dbg_macro)]

mod acquire;
mod barrier;
mod blocking;
pub mod broadcast;
mod error;
mod line;
mod looking;
pub mod mpmc;
mod mutex;
mod notify;
mod once_cell;
pub mod oneshot;
mod permits;
mod rwlock;
mod seen;
mod semaphore;
mod sync;
pub mod watch;

pub use acquire::{Acquirable, Acquire};
pub use barrier::{Barrier, BarrierWait, BarrierWaitResult};
pub use error::{
    AcquireError, Closed, SendError, TryAcquireError, TryLockError, TryRecvError, TrySendError,
};
pub use kinfolk_core::kit::LastGuard;
pub use mutex::{Mutex, MutexGuard, OwnedMutexGuard};
pub use notify::{Notified, Notify};
pub use once_cell::OnceCell;
pub use rwlock::{
    OwnedRwLockReadGuard, OwnedRwLockWriteGuard, ReadGuard, Reading, RwLock, RwLockReadGuard,
    RwLockWriteGuard, WriteGuard, Writing,
};
pub use semaphore::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
