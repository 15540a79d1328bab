//! The options that scopes, tasks and local tasks have in common.

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
    /// Applied before the others.
    pub(crate) priority: Option<Priority>,
    /// The failure goes to the handle alone.
    pub(crate) attempt: bool,
}

impl Options {
    /// True if no option was chosen.
    pub(crate) fn is_empty(&self) -> bool {
        self.fits_in_header() && self.priority.is_none()
    }

    fn fits_in_header(&self) -> bool {
        self.name.is_none() && self.patience.is_none() && !self.attempt
    }

    /// Applies the options to `job`, which no other thread has seen yet; the priority was
    /// applied before.
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
