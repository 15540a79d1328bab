//! What a scope, a task and a local task may be given alike.

use std::borrow::Cow;

use crate::base::patience::Patience;
use crate::base::priority::Priority;
use crate::engine::tree::Shared;
use crate::record::header::Header;

/// A name, a patience and a priority that the jobs below inherit, and for tasks whether they
/// are attempts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    pub(crate) name: Option<Cow<'static, str>>,
    pub(crate) patience: Option<Patience>,
    /// Given before the others.
    pub(crate) priority: Option<Priority>,
    /// Its failure goes to its handle alone.
    pub(crate) attempt: bool,
}

impl Options {
    /// None was chosen.
    pub(crate) fn is_empty(&self) -> bool {
        self.fits_in_header() && self.priority.is_none()
    }

    fn fits_in_header(&self) -> bool {
        self.name.is_none() && self.patience.is_none() && !self.attempt
    }

    /// They go to `job`, which no other thread has seen yet; the priority was given before.
    pub(crate) fn give(self, tree: &Shared, job: &Header) {
        if self.fits_in_header() {
            return;
        }
        if let Some(patience) = self.patience {
            tree.sweeper.heed(patience);
        }
        job.with_cold(|cold, _| {
            cold.name = self.name;
            cold.patience = self.patience;
            cold.attempt = self.attempt;
        });
    }
}
