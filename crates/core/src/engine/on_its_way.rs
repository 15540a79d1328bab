//! An interrupt that is *on its way*: a point has returned it, and so has the body
//! of a scope or of a branch, but not yet the call that awaits that body.
//! Meanwhile an [`OnItsWay`] keeps it. If the call returns something else, because
//! another branch has won or because a deadline or a failure takes its place, or
//! if the call is dropped, the interrupt is put back (request-3).

use crate::base::error::Cancelled;
use crate::engine::interrupts;
use crate::record::header::{Header, JobRef};

/// An interrupt on its way out of a call. Dropping this puts the interrupt
/// back.
pub(crate) struct OnItsWay {
    told: Cancelled,
    /// The task that was interrupted; none once the interrupt has arrived.
    task: Option<JobRef>,
    /// The job around the body that has returned it.
    around: JobRef,
}

impl OnItsWay {
    /// A body inside `around` has returned `told`.
    pub(crate) fn new(around: &Header, told: &Cancelled) -> OnItsWay {
        OnItsWay {
            told: told.clone(),
            task: interrupts::set_out(around, told),
            around: JobRef::from_header(around),
        }
    }

    /// The call returns the interrupt.
    pub(crate) fn arrive(mut self) -> Cancelled {
        if let Some(task) = self.task.take() {
            interrupts::arrived(&task, &self.told);
        }
        self.told.clone()
    }
}

impl Drop for OnItsWay {
    fn drop(&mut self) {
        let Some(task) = self.task.take() else {
            return;
        };
        interrupts::not_returned(&task, &self.around, &self.told);
    }
}
