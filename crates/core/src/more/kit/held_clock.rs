//! [`HeldClock`]: virtual time waits for another thread that is about to answer.

use std::fmt;
use std::panic::Location;

use crate::engine::context;
use crate::engine::tree::{Shared, Tree};

/// Stops the virtual clock of a test until this is dropped. Give it to a thread
/// that will answer a job: a library's own thread, a callback, a server beside the
/// test. Drop it after the answer was given.
///
/// Virtual time jumps when every job waits. The clock knows of the jobs, their
/// blocking calls and their i/o; it does not know of a thread that the test has
/// started itself, and without a held clock would jump over that thread's answer to
/// the next timer.
///
/// ```
/// # use kinfolk_core as kinfolk;
/// use kinfolk::kit;
///
/// async fn ask() -> kinfolk::Result<u32> {
///     let (answer, completer) = kit::completion();
///     let held = kit::hold_clock();
///     std::thread::spawn(move || {
///         completer.complete(42);
///         drop(held);
///     });
///     answer.await
/// }
/// ```
///
/// With the system's clock this does nothing. An open [`Work`](crate::more::kit::Work) holds
/// the clock by itself; a [`Lease`](crate::Lease) does not, since jobs that wait for a timer
/// hold leases too.
#[must_use = "dropping it lets the clock go on"]
pub struct HeldClock(Option<(Tree, &'static Location<'static>)>);

/// Stops the virtual clock of the current job's host until the guard is
/// dropped; see [`HeldClock`]. Does nothing outside any job, and with the
/// system's clock.
#[track_caller]
pub fn hold_clock() -> HeldClock {
    let site = Location::caller();
    context::current().map_or(HeldClock(None), |job| {
        // SAFETY: the current job is being polled, so it has not ended.
        HeldClock::of(virtual_time(unsafe { job.tree() }), site)
    })
}

/// The tree, if its clock is virtual.
pub(crate) fn virtual_time(tree: &Shared) -> Option<Tree> {
    tree.virtual_time.then(|| tree.handle())
}

impl HeldClock {
    /// Holds the clock of this tree, which is virtual. Called outside every
    /// lock.
    pub(crate) fn of(tree: Option<Tree>, site: &'static Location<'static>) -> HeldClock {
        HeldClock(tree.map(|tree| {
            tree.host().hold_clock(site);
            (tree, site)
        }))
    }
}

impl Tree {
    /// Stops the tree's virtual clock until the guard is dropped, for a thread
    /// that is about to answer; see [`HeldClock`].
    #[track_caller]
    pub fn hold_clock(&self) -> HeldClock {
        HeldClock::of(virtual_time(self.shared()), Location::caller())
    }
}

impl Drop for HeldClock {
    fn drop(&mut self) {
        if let Some((tree, site)) = self.0.take() {
            tree.host().release_clock(site);
        }
    }
}

impl fmt::Debug for HeldClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HeldClock")
    }
}
