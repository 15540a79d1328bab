//! What has failed in one job, in the order of time: child tasks and the body.

use crate::error::{Error, MOST_SUPPRESSED};

#[derive(Default)]
pub(crate) struct Failures {
    list: Vec<Error>,
    /// Failures of children that came after the job's own deadline had fired:
    /// they do not replace TimedOut.
    after_deadline: Vec<Error>,
    /// Those beyond what is kept.
    more: usize,
}

impl Failures {
    /// Takes a failure in. One that is there already is not listed twice, and
    /// one that has a listed failure among its sources takes its place.
    pub(crate) fn record(&mut self, error: Error, after_deadline: bool) {
        for list in [&mut self.list, &mut self.after_deadline] {
            if let Some(known) = list
                .iter_mut()
                .find(|known| error.contains(known) || known.contains(&error))
            {
                if !known.contains(&error) {
                    *known = error;
                }
                return;
            }
        }
        let list = if after_deadline {
            &mut self.after_deadline
        } else {
            &mut self.list
        };
        if list.len() <= MOST_SUPPRESSED {
            list.push(error);
        } else {
            self.more += 1;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty() && self.after_deadline.is_empty()
    }

    /// Something failed that dominates the job's own deadline.
    pub(crate) fn dominates(&self) -> bool {
        !self.list.is_empty()
    }

    /// All of it as one error, the first in time in front; none if nothing
    /// failed. Sharing: one failure comes out as it went in.
    pub(crate) fn decide(&mut self) -> Option<Error> {
        let mut all = std::mem::take(&mut self.list);
        all.append(&mut self.after_deadline);
        let more = std::mem::take(&mut self.more);
        let (first, rest) = all.split_first()?;
        Some(first.joined_by(rest, more))
    }

    /// What a deadline that fired first takes along.
    pub(crate) fn beside(&mut self, timed_out: Error) -> Error {
        let rest = std::mem::take(&mut self.after_deadline);
        timed_out.joined_by(&rest, std::mem::take(&mut self.more))
    }
}
