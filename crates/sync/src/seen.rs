//! What snapshots see of a channel or a lock whose waiters stand in one place for its life:
//! what sort of thing it is, its name, and where it was made.

use std::borrow::Cow;
use std::panic::Location;
use std::sync::OnceLock;

use kinfolk_core::kit::{Listed, Resource, ResourceLook};

use crate::sync::SEEN;

/// Part of a [`Resource`].
pub(crate) struct SeenAs {
    kind: &'static str,
    site: &'static Location<'static>,
    name: OnceLock<Cow<'static, str>>,
    listed: OnceLock<Listed>,
}

impl SeenAs {
    pub(crate) fn new(kind: &'static str, site: &'static Location<'static>) -> SeenAs {
        SeenAs {
            kind,
            site,
            name: OnceLock::new(),
            listed: OnceLock::new(),
        }
    }

    /// The first name counts.
    pub(crate) fn set_name(&self, name: Cow<'static, str>) {
        let _named_before = self.name.set(name);
    }

    /// It, without the jobs that wait.
    pub(crate) fn look(&self) -> ResourceLook {
        let mut look = ResourceLook::new(self.kind, self.site);
        look.name = self.name.get().map(|name| name.to_string());
        look
    }

    /// A wait for `resource`, whose part this is, begins: from now on snapshots look at it.
    ///
    /// # Safety
    /// `resource` stays in its place until the first thing that its destructor does, which is
    /// to call [`unlist`](SeenAs::unlist).
    #[inline]
    pub(crate) unsafe fn list<R: Resource>(&self, resource: &R) {
        if SEEN && self.listed.get().is_none() {
            self.listed.get_or_init(|| {
                // SAFETY: passed on: it is taken off the list before it goes.
                unsafe { Listed::new(resource) }
            });
        }
    }

    /// The resource goes.
    pub(crate) fn unlist(&mut self) {
        self.listed.take();
    }
}
