//! Attempts: child tasks whose failure goes to the handle and nowhere else. An attempt is an
//! option of the one spawn builder; the verbs here are the short forms.

use std::panic::Location;

use crate::base::outcome::IntoOutcome;
use crate::engine::context;
use crate::surface::lane::LaneFor;
use crate::surface::scope::Scope;
use crate::surface::spawn::{ChildSort, SpawnPlace, Spawner};
use crate::surface::task::Task;

impl Scope {
    /// Spawns a child task whose failure is only what its `await` returns: the scope, its
    /// body and the other children go on.
    ///
    /// A panic counts as a failure. If the handle is dropped before it has returned the
    /// failure, the failure hook gets it; an observer's [`join`](crate::Job::join) shows the
    /// failure and takes nothing. Otherwise it is a task like those of
    /// [`spawn`](Scope::spawn): the scope waits for it, and a cancellation of the scope
    /// reaches it. For other spawning verbs there is [`Spawner::attempted`].
    ///
    /// ```
    /// # use kinfolk_core as kinfolk;
    /// # async fn mirror() -> kinfolk::Result<String> { Ok(String::new()) }
    /// # async fn origin() -> kinfolk::Result<String> { Ok(String::new()) }
    /// # async fn log_in() -> kinfolk::Result<()> { Ok(()) }
    /// # async fn demo() -> kinfolk::Result<()> {
    /// kinfolk::scope(async |s| {
    ///     let fast = s.attempt(mirror());
    ///     let login = s.spawn(log_in()); // goes on, whatever becomes of the mirror
    ///     let page = match fast.await {
    ///         Ok(page) => page,
    ///         Err(error) if error.is_cancelled() => return Err(error),
    ///         Err(_) => origin().await?,
    ///     };
    ///     login.await?;
    ///     Ok(page)
    /// })
    /// .await?;
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn attempt<F>(&self, future: F) -> Task<<F::Output as IntoOutcome>::Value>
    where
        F: Future<Output: IntoOutcome<Value: Send>> + Send + 'static,
    {
        let place = SpawnPlace::below(self.header()).attempted();
        place.spawn_as(future, ChildSort::ORDINARY, Location::caller())
    }
}

impl<L> Spawner<L> {
    /// Spawns a child task whose failure is only what its `await` returns; see
    /// [`Scope::attempt`].
    #[track_caller]
    pub fn attempt<F>(self, future: F) -> Task<<F::Output as IntoOutcome>::Value>
    where
        L: LaneFor<F>,
        F: Future<Output: IntoOutcome>,
    {
        self.attempted().spawn(future)
    }
}

/// Spawns a child of the current job whose failure is only what its `await` returns; see
/// [`Scope::attempt`].
///
/// # Panics
/// Outside every job: there is no parent.
#[track_caller]
pub fn attempt<F>(future: F) -> Task<<F::Output as IntoOutcome>::Value>
where
    F: Future<Output: IntoOutcome<Value: Send>> + Send + 'static,
{
    let site = Location::caller();
    context::with(|cx| match cx.current() {
        Some(job) => SpawnPlace::below(job)
            .attempted()
            .spawn_as(future, ChildSort::ORDINARY, site),
        None => Scope::here("attempt", site).attempt(future),
    })
}
