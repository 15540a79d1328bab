//! Lanes: which thread polls a task. A lane is a type, so the compiler checks which
//! futures may go to which thread.

use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;

use crate::base::outcome::IntoOutcome;
use crate::engine::context;
use crate::engine::tree::Tree;
use crate::surface::scope::Scope;
use crate::surface::task::Task;

/// The lane of the worker threads: its tasks run on any of them, so their futures are
/// `Send`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pool;

/// The lane of the main thread: its tasks run on the one thread that built the runtime,
/// while that thread runs the lane. A future spawned from another thread must be `Send`;
/// see [`Main::here`] and [`Spawner::spawn_with`](crate::surface::spawn::Spawner::spawn_with)
/// for one that is not.
#[derive(Clone, Copy, Debug, Default)]
pub struct Main;

impl Main {
    /// Returns evidence that this code runs on the main thread of the current job's runtime,
    /// with which a future that is not `Send` can be spawned there. `None` on another
    /// thread, and outside any job.
    pub fn here() -> Option<OnMain> {
        context::with(|cx| {
            // SAFETY: the current job has not ended.
            let tree = unsafe { cx.current()?.tree() };
            tree.is_main_thread().then(OnMain::new)
        })
    }
}

/// Evidence that this thread is a runtime's main thread; it stays there.
#[derive(Clone, Copy)]
pub struct OnMain(PhantomData<*const ()>);

impl OnMain {
    fn new() -> OnMain {
        OnMain(PhantomData)
    }
}

impl Tree {
    /// Returns evidence that this is the thread that made the tree; none on another.
    pub fn on_main(&self) -> Option<OnMain> {
        self.shared().is_main_thread().then(OnMain::new)
    }
}

impl fmt::Debug for OnMain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnMain")
    }
}

mod sealed {
    pub trait Sealed {
        const LANE: crate::base::lane::Lane;
        /// The future may stay where it is made, and nowhere else.
        const STAYS: bool = false;
    }
    impl Sealed for super::Pool {
        const LANE: crate::base::lane::Lane = crate::base::lane::Lane::Pool;
    }
    impl Sealed for super::Main {
        const LANE: crate::base::lane::Lane = crate::base::lane::Lane::Main;
    }
    impl Sealed for super::OnMain {
        const LANE: crate::base::lane::Lane = crate::base::lane::Lane::Main;
        const STAYS: bool = true;
    }
}
pub(crate) use sealed::Sealed;

/// A lane that can carry futures of type `F`: [`Pool`] and [`Main`] carry what
/// is `Send`, [`OnMain`] carries everything.
#[diagnostic::on_unimplemented(
    message = "this future cannot be spawned on the lane `{Self}`",
    note = "the pool and, from elsewhere, the main lane take futures that are `Send + 'static` \
            and return something that is; on the main thread use `Main::here()`"
)]
pub trait LaneFor<F>: Sealed {}

impl<F> LaneFor<F> for Pool where F: Future<Output: IntoOutcome<Value: Send>> + Send + 'static {}

impl<F> LaneFor<F> for Main where F: Future<Output: IntoOutcome<Value: Send>> + Send + 'static {}

impl<F> LaneFor<F> for OnMain where F: Future<Output: IntoOutcome> + 'static {}

/// Spawns `future` as a child of the current job on another lane. Await the returned
/// [`Task`] for its value; the code after the await runs on its own lane again.
///
/// # Panics
/// Outside any job: there is no job to be the parent.
///
/// # Cancellation
/// Awaiting it is *not a point*, like awaiting any [`Task`].
#[track_caller]
pub fn on<L, F>(lane: L, future: F) -> Task<<F::Output as IntoOutcome>::Value>
where
    L: LaneFor<F>,
    F: Future<Output: IntoOutcome>,
{
    Scope::here("on", Location::caller()).on(lane).spawn(future)
}
