//! The sink of one tree, and what it asked for. What is told to it, and how, is said in
//! `engine/outlet.rs`.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use crate::base::observe::sink::{Interests, Sink};
use crate::base::unwind::Contained;

/// The sink of one tree.
pub(crate) struct Outlet {
    pub(crate) sink: Option<Contained<Arc<dyn Sink>>>,
    /// It has panicked.
    pub(crate) is_broken: AtomicBool,
    interests: Interests,
    /// Events show the virtual time of the host; else the system's, which goes on when the
    /// program stops the clock of its runtime.
    pub(crate) by_host: bool,
    /// When the tree began, by that clock.
    pub(crate) began: Instant,
}

impl Outlet {
    /// `began` is the time of the host, if events show that.
    pub(crate) fn new(sink: Option<Arc<dyn Sink>>, by_host: bool, began: Instant) -> Outlet {
        let interests = sink.as_ref().map(|sink| sink.interests());
        Outlet {
            sink: sink.map(Contained::new),
            is_broken: AtomicBool::new(false),
            interests: interests.unwrap_or_default(),
            by_host,
            began: if by_host { began } else { Instant::now() },
        }
    }

    /// True if there is a sink.
    #[inline]
    pub(crate) fn is_there(&self) -> bool {
        self.sink.is_some()
    }

    /// True if there is a sink that asked for one of these.
    #[inline]
    pub(crate) fn wants(&self, these: Interests) -> bool {
        self.interests.has(these)
    }
}
