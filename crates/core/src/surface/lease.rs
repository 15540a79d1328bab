//! [`Lease`]: keeps a scope open from any thread or callback.

use std::fmt;

use crate::base::outcome::IntoOutcome;
use crate::engine::lease::Leased;
use crate::record::header::Header;
use crate::surface::scope::Scope;
use crate::surface::task::Task;

/// Keeps a scope open: its end waits until every lease is dropped.
///
/// A lease neither delays a cancel nor is told by one. Dropping the last one
/// never ends the scope inside the drop: the end is scheduled.
#[must_use = "dropping a lease lets the scope end"]
pub struct Lease(Leased);

impl Lease {
    /// None if the job has ended or takes no more children.
    pub(crate) fn of(h: &Header) -> Option<Lease> {
        Leased::of(h).map(Lease)
    }

    /// Returns the scope that the lease keeps open.
    pub fn scope(&self) -> Scope {
        Scope::new(self.0.job().clone())
    }

    /// Spawns a child into the scope and gives up the lease: the child now keeps the scope
    /// open.
    #[track_caller]
    pub fn spawn<F>(self, future: F) -> Task<<F::Output as IntoOutcome>::Value>
    where
        F: Future<Output: IntoOutcome<Value: Send>> + Send + 'static,
    {
        self.scope().spawn(future)
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::surface::handle::debug_job(f, "Lease", self.0.job())
    }
}
