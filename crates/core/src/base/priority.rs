//! How soon a task is polled beside others that are runnable too. The option of a spawn is
//! in [`surface::spawn`](crate::surface::spawn); whose go it is decides the host.

use std::fmt;

/// How soon a runnable task is polled, beside the other tasks of the pool.
///
/// A worker that is free takes a high task before normal ones, and a low task when there is
/// nothing else to do. None of them starves: while others wait, at most 16 turns in a row
/// are of high tasks, and at least one turn in 32 is of a low one.
///
/// A priority is a preference, not an order. A turn is never interrupted for another, a task
/// that awaits another lends it nothing, and a simulation draws turns as if there were no
/// priorities, so that a test finds what goes wrong in any order.
///
/// ```
/// # mod kinfolk { pub use kinfolk_core::*; pub mod job { pub use kinfolk_core::*; } }
/// use kinfolk::{Result, job::Priority, scope};
///
/// async fn serve() -> Result<()> {
///     scope(async |s| {
///         s.task("requests").priority(Priority::High).launch(async { /* … */ });
///         // What this task spawns is low too.
///         s.task("compaction").priority(Priority::Low).launch(async { /* … */ });
///         Ok(())
///     })
///     .await
/// }
/// ```
///
/// Tasks of a lane that one thread turns, [`Main`](crate::Main) and
/// [`Pinned`](crate::Pinned), are polled in the order in which they became runnable, whatever
/// their priority; the tasks that they spawn on the pool inherit it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub enum Priority {
    /// For bulk work that may wait: compaction, indexing, clean-up.
    Low,
    /// That of a task below the root, unless it is given another.
    #[default]
    Normal,
    /// For short work that something waits for: input, requests, heartbeats.
    High,
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Priority::Low => "low",
            Priority::Normal => "normal",
            Priority::High => "high",
        })
    }
}
