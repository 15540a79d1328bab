//! Did a job end itself? By its own deadline, or by a cancel that was asked of it.

use crate::base::error::{Error, ErrorKind};
use crate::base::reason::ReasonKind;
use crate::engine::deadline;
use crate::record::header::Header;
use crate::record::state;

/// True if the deadline of `h` itself has passed and cancelled it. Looks at the clock.
pub(crate) fn deadline_passed(h: &Header) -> bool {
    let st = h.state.load();
    if st.has(state::DEADLINE) && !st.has(state::CANCELLED) {
        deadline::fire_if_due(h);
    }
    OverJob(h).by_its_deadline()
}

/// A scope whose body and children are over.
#[derive(Clone, Copy)]
pub(crate) struct OverJob<'a>(pub(crate) &'a Header);

impl OverJob<'_> {
    /// True if its cancel entered there, and was its own deadline's.
    pub(crate) fn by_its_deadline(self) -> bool {
        self.0.state.load().has(state::ORIGIN)
            && self.0.if_cold(|cold, _| cold.entered_by_deadline()) == Some(true)
    }

    /// True if `error` says that it was ended by its own deadline or its own cancel. What a
    /// body returns cannot look like it: the reason is the job's own, and is inherited by all
    /// below it.
    pub(crate) fn is_ended_by_itself(self, error: &Error) -> bool {
        matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::Stopped)
            && error.reason().is_some_and(|reason| {
                reason.origin() == self.0.id
                    && matches!(reason.kind(), ReasonKind::Deadline | ReasonKind::Asked)
            })
    }
}
