//! Lanes: which thread polls a task. A lane is a type, so the compiler checks which
//! futures may go to which thread.

use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;

use crate::base::lane::Lane;
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

/// The lane of one worker thread, by its number from 0 on: its tasks run on that thread
/// alone, and so does every destructor of theirs. For state that belongs to a thread: one
/// shard, cache or arena for each worker, without a lock.
///
/// ```
/// # mod kinfolk { pub use kinfolk_core::*; pub mod job { pub use kinfolk_core::*; } }
/// use kinfolk::{Result, job::Pinned, scope};
/// use std::rc::Rc;
///
/// async fn shards() -> Result<()> {
///     scope(async |s| {
///         for lane in Pinned::all() {
///             // Made by its worker, and never seen by another thread: it need not be `Send`.
///             s.on(lane).spawn_with(|| async {
///                 let hits = Rc::new(0);
///                 drop(hits);
///             })
///             .into_job();
///         }
///         Ok(())
///     })
///     .await
/// }
/// ```
///
/// A future that is spawned here must be `Send`; see
/// [`spawn_with`](crate::Spawner::spawn_with) and [`Pinned::here`] for one that is not. A
/// number without a worker is an error: awaiting the task returns it, and for `launch` the
/// failure hook gets it.
///
/// No other thread helps out: while the worker is in a long poll, every task that is
/// pinned to it waits. With no workers the main thread has `Pinned(0)`; on tokio, whose
/// tasks move between threads, there are no pinned lanes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Pinned(pub usize);

impl Pinned {
    /// The pinned lanes of the current job's runtime, one for each worker; none on tokio and
    /// outside any job.
    pub fn all() -> impl ExactSizeIterator<Item = Pinned> + Clone + fmt::Debug {
        let lanes = context::with(|cx| {
            let job = cx.current()?;
            // SAFETY: the current job has not ended.
            Some(unsafe { job.tree() }.pinned_lanes)
        });
        (0..lanes.unwrap_or_default()).map(|n| Pinned(usize::from(n)))
    }

    /// Returns evidence of the worker that polls this code, with which a future that is not
    /// `Send` can be spawned onto its lane. `None` on a thread without a pinned lane of the
    /// current job's runtime, and outside any job.
    pub fn here() -> Option<OnPinned> {
        context::with(|cx| {
            let job = cx.current()?;
            // SAFETY: the current job has not ended.
            let tree = unsafe { job.tree() };
            // One thread may take the turns of several lanes: the lane of the
            // job comes first.
            let own = match job.lane() {
                Lane::Pinned(n) => n..n + 1,
                _ => 0..0,
            };
            let n =
                (own.chain(0..tree.pinned_lanes)).find(|n| tree.turns_here(Lane::Pinned(*n)))?;
            Some(OnPinned {
                n,
                stays: PhantomData,
            })
        })
    }
}

/// Evidence that this thread is a certain worker of a runtime; it stays there.
#[derive(Clone, Copy)]
pub struct OnPinned {
    n: u16,
    stays: PhantomData<*const ()>,
}

impl OnPinned {
    /// Returns the lane of this worker, as a value for other threads.
    pub fn lane(&self) -> Pinned {
        Pinned(usize::from(self.n))
    }
}

impl fmt::Debug for OnPinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OnPinned({})", self.n)
    }
}

/// A lane as a spawn names it: the worker may not exist.
#[derive(Clone, Copy)]
pub enum LaneNumber {
    Pool,
    Main,
    Pinned(usize),
}

mod sealed {
    use super::LaneNumber;

    pub trait Sealed {
        /// True if the future may run only on the thread where it is made.
        const STAYS: bool = false;
        fn numbered(&self) -> LaneNumber;
    }
    impl Sealed for super::Pool {
        #[inline(always)]
        fn numbered(&self) -> LaneNumber {
            LaneNumber::Pool
        }
    }
    impl Sealed for super::Main {
        fn numbered(&self) -> LaneNumber {
            LaneNumber::Main
        }
    }
    impl Sealed for super::OnMain {
        const STAYS: bool = true;
        fn numbered(&self) -> LaneNumber {
            LaneNumber::Main
        }
    }
    impl Sealed for super::Pinned {
        fn numbered(&self) -> LaneNumber {
            LaneNumber::Pinned(self.0)
        }
    }
    impl Sealed for super::OnPinned {
        const STAYS: bool = true;
        fn numbered(&self) -> LaneNumber {
            LaneNumber::Pinned(usize::from(self.n))
        }
    }
}
pub(crate) use sealed::Sealed;

/// A lane that can carry futures of type `F`: [`Pool`], [`Main`] and [`Pinned`] carry
/// futures that are `Send`, [`OnMain`] and [`OnPinned`] carry all.
#[diagnostic::on_unimplemented(
    message = "this future cannot be spawned on the lane `{Self}`",
    note = "the pool and, from elsewhere, the lanes of one thread take futures that are \
            `Send + 'static` and return something that is; on the main thread use \
            `Main::here()`, on a worker `Pinned::here()`, from elsewhere `spawn_with`"
)]
pub trait LaneFor<F>: Sealed {}

impl<F> LaneFor<F> for Pool where F: Future<Output: IntoOutcome<Value: Send>> + Send + 'static {}

impl<F> LaneFor<F> for Main where F: Future<Output: IntoOutcome<Value: Send>> + Send + 'static {}

impl<F> LaneFor<F> for Pinned where F: Future<Output: IntoOutcome<Value: Send>> + Send + 'static {}

impl<F> LaneFor<F> for OnMain where F: Future<Output: IntoOutcome> + 'static {}

impl<F> LaneFor<F> for OnPinned where F: Future<Output: IntoOutcome> + 'static {}

/// A lane that one thread turns, so that a future may be made there: [`Main`] and [`Pinned`].
pub trait LaneOfOne: Sealed {}

impl LaneOfOne for Main {}

impl LaneOfOne for Pinned {}

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
