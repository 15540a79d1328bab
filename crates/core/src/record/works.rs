//! Work that goes on beside the body of a job, as its cold part keeps it. The handle of
//! such work is [`Work`](crate::kit::Work); the end of the body, and shutdown, ask it to
//! end.

use crate::base::list::{Key, List};
use crate::base::unwind::{KeptWaker, Nested, contained};
use crate::record::header::{Header, LockedJob};

/// The closure may own other work, whose stop owns the next.
pub(crate) type StopWork = Nested<Box<dyn FnOnce() + Send>>;

/// One piece of work.
pub(crate) enum Piece {
    /// Under way, with the closure to call when the body is over; none once it
    /// was called.
    UnderWay(Option<StopWork>),
    /// Finished, with its place in the list of finished work.
    Finished(Key),
}

/// The work of a job, under its lock.
#[derive(Default)]
pub(crate) struct Works {
    pub(crate) pieces: List<Piece>,
    /// The finished and not yet collected pieces, in the order in which they finished.
    pub(crate) finished: List<Key>,
    /// The waits for the next finished piece.
    pub(crate) waiters: List<KeptWaker>,
}

impl Works {
    /// The body is over: the closures to call.
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

    /// Removes one finished piece; returns how many finished pieces are left.
    pub(crate) fn reap(&mut self) -> Option<usize> {
        if let Some(key) = self.finished.pop() {
            self.pieces.remove(key);
            return Some(self.pieces.len());
        }
        self.pieces.is_empty().then_some(0)
    }

    /// Takes the wakers of all waits, which look again when they are woken.
    pub(crate) fn take_waiters(&mut self) -> Vec<KeptWaker> {
        std::iter::from_fn(|| self.waiters.pop()).collect()
    }
}

/// The closures to call because the body of `h` is over; taken under the lock
/// under which the body's share is given up, called outside it.
pub(crate) fn take_stops(h: &mut LockedJob<'_>) -> Stops {
    Stops(h.cold().map_or(Vec::new(), |cold| cold.works.close()))
}

/// Shutdown has waited long enough: the work beside the body of `h` is asked to
/// end.
pub(crate) fn stop_all(h: &Header) {
    if let Some(stops) = h.if_cold(|cold, _| cold.works.close()) {
        Stops(stops).call();
    }
}

/// Closures to call.
#[must_use = "call it outside the lock"]
pub(crate) struct Stops(Vec<StopWork>);

impl Stops {
    pub(crate) fn call(self) {
        for stop in self.0 {
            contained(stop.into_inner());
        }
    }
}
