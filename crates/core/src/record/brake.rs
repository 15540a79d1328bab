//! The brake of a job whose body has swallowed too many Cancelleds: the one timer for
//! which the points of that body wait before they fail, and the wakers of these points.
//! The cold part of the job has it; [`brake`](crate::engine::brake) of the engine sets
//! it.

use crate::base::unwind::KeptWaker;
use crate::record::alarm::Alarm;

/// What a point keeps that waits for no setting.
pub(crate) const FREE: u8 = 0;

/// How many wakers wait for one setting. A point that would exceed this number does not
/// wait, and fails: a point that is polled under ever new wakers would fill the memory.
const MOST: usize = 4096;

/// The brake of one job.
#[derive(Default)]
pub(crate) struct Brake {
    /// The number of the last setting, never [`FREE`] once there was one.
    number: u8,
    /// The timer of that setting has not fired.
    is_set: bool,
    alarm: Option<Alarm>,
    wakers: Vec<KeptWaker>,
}

impl Brake {
    /// A point that keeps `held` waits. Returns the number of the setting for which it
    /// waits from now on, and whether that setting is new and has no timer yet; [`FREE`] if
    /// the wait is over. A waker that is passed twice in a row is left to the caller, to be
    /// dropped outside the lock: one point is often polled again.
    pub(crate) fn join(&mut self, held: u8, waker: &mut Option<KeptWaker>) -> (u8, bool) {
        if held != FREE && !(self.is_set && self.number == held) {
            return (FREE, false);
        }
        if self.wakers.len() == MOST {
            return (FREE, false);
        }
        let new = waker.take_if(|new| !self.wakers.last().is_some_and(|old| old.will_wake(new)));
        self.wakers.extend(new);
        let is_new = !self.is_set;
        if is_new {
            self.number = self.number.checked_add(1).unwrap_or(FREE + 1);
            self.is_set = true;
        }
        (self.number, is_new)
    }

    /// Keeps the timer of that setting, unless it has fired already.
    pub(crate) fn keep(&mut self, number: u8, alarm: &mut Option<Alarm>) {
        if self.is_set && self.number == number {
            self.alarm = alarm.take();
        }
    }

    /// The timer of that setting fires. Returns the timer, if it was kept, and
    /// the wakers of the points that wait.
    pub(crate) fn ring(&mut self, number: u8) -> (Option<Alarm>, Vec<KeptWaker>) {
        if self.number != number {
            return (None, Vec::new());
        }
        self.is_set = false;
        (self.alarm.take(), std::mem::take(&mut self.wakers))
    }

    /// The job has ended: its timer, to be cleared.
    pub(crate) fn into_alarm(self) -> Option<Alarm> {
        self.alarm
    }
}
