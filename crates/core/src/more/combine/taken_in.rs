//! The results of branches that are no values: failures, and the cancellation
//! that ended one of them. The call keeps both until all branches have ended. A
//! call that is dropped before that loses neither: the failure hook gets the
//! failures (outcome-3), and an interrupt is put back (request-3).

use crate::base::error::Error;
use crate::engine::context;
use crate::engine::on_its_way::OnItsWay;
use crate::more::combine::branch::was_interrupted;

/// The cancellation that has ended a branch: that of a job around the call, or
/// an interrupt, which is on its way.
#[derive(Default)]
pub(crate) struct Cut {
    error: Option<Error>,
    on_its_way: Option<Box<OnItsWay>>,
}

impl Cut {
    /// Keeps the first; an interrupt that comes after it is put back.
    pub(crate) fn take_in(&mut self, error: Error) {
        let on_its_way = on_its_way(&error);
        if self.error.is_none() {
            self.error = Some(error);
            self.on_its_way = on_its_way.map(Box::new);
        }
    }

    pub(crate) fn is_none(&self) -> bool {
        self.error.is_none()
    }

    pub(crate) fn is_interrupt(&self) -> bool {
        self.error.as_ref().is_some_and(was_interrupted)
    }

    /// The call returns it.
    pub(crate) fn into_error(self) -> Option<Error> {
        if let Some(on_its_way) = self.on_its_way {
            on_its_way.arrive();
        }
        self.error
    }
}

/// The interrupt that has ended a branch with `error`; none for another
/// cancellation, or a failure.
pub(crate) fn on_its_way(error: &Error) -> Option<OnItsWay> {
    let told = error.cancelled().filter(|_| was_interrupted(error))?;
    let around = context::current()?;
    Some(OnItsWay::new(&around, told))
}

/// The call returns something else than `error`: an interrupt is put back.
pub(crate) fn give_up(error: &Error) {
    drop(on_its_way(error));
}
