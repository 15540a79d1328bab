//! What goes on beside the body of a job, as its cold part knows it. The handle to it is
//! [`Work`](crate::kit::Work); the end of the body, and shutdown, ask it to end.

use crate::base::list::{Key, List};
use crate::base::unwind::{KeptWaker, Nested, contained};
use crate::record::header::{Header, LockedJob};

/// It may own other work, whose stop owns the next.
pub(crate) type StopWork = Nested<Box<dyn FnOnce() + Send>>;

/// One piece of work.
pub(crate) enum Piece {
    /// Under way, and what is to be called when the body is over; none once it
    /// was.
    UnderWay(Option<StopWork>),
    /// And where it stands among those that are.
    Finished(Key),
}

/// The work of a job, under its lock.
#[derive(Default)]
pub(crate) struct Works {
    pub(crate) pieces: List<Piece>,
    /// Those that are finished and not yet collected, in the order they were finished.
    pub(crate) finished: List<Key>,
    /// The waits until one is.
    pub(crate) waiters: List<KeptWaker>,
}

impl Works {
    /// The body is over: what is to be called.
    fn close(&mut self) -> Vec<StopWork> {
        if self.pieces.is_empty() {
            return Vec::new();
        }
        self.pieces
            .iter_mut()
            .filter_map(|piece| match piece {
                Piece::UnderWay(stop) => stop.take(),
                Piece::Finished(_) => None,
            })
            .collect()
    }

    /// Takes one that is finished out of the list; how many are left in it.
    pub(crate) fn reap(&mut self) -> Option<usize> {
        if let Some(key) = self.finished.pop() {
            self.pieces.remove(key);
            return Some(self.pieces.len());
        }
        self.pieces.is_empty().then_some(0)
    }

    /// The waiter is to look again.
    pub(crate) fn take_waiters(&mut self) -> Vec<KeptWaker> {
        std::iter::from_fn(|| self.waiters.pop()).collect()
    }
}

/// What is to be called because the body of `h` is over; taken in the lock in
/// which the body's share of the count goes, called outside it.
pub(crate) fn take_stops(h: &mut LockedJob<'_>) -> Stops {
    Stops(h.cold().map_or(Vec::new(), |cold| cold.works.close()))
}

/// Shutdown has waited long enough: what goes on beside the body of `h` is asked
/// to end.
pub(crate) fn stop_all(h: &Header) {
    if let Some(stops) = h.if_cold(|cold, _| cold.works.close()) {
        Stops(stops).call();
    }
}

/// What is to be called.
#[must_use = "call it outside the lock"]
pub(crate) struct Stops(Vec<StopWork>);

impl Stops {
    pub(crate) fn call(self) {
        for stop in self.0 {
            contained(stop.into_inner());
        }
    }
}
