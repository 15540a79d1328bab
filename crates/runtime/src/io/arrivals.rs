//! What has arrived at a socket and was not taken yet.
//!
//! A [`Series`] brings it. Whoever takes is a stream ([`Next`](super::next::Next)),
//! or a single operation that looks here before it asks the system.
//!
//! - **A1** At most one series of a socket is under way. It is begun only when
//!   nothing lies here, and asked to end when too much does, or when the last
//!   stream is gone.
//! - **A2** What has arrived stays until somebody takes it, or the socket is
//!   closed. A series that nobody wants any more may still bring something: a
//!   single operation begins after its end.
//!
//! `README.md` beside this file has the rest.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use kinfolk_core::host::contained;

use super::fd::Fd;
use super::pool::{Chunk, Returned};
use super::series::Series;

/// What has arrived.
pub(crate) enum Arrival {
    Connection(Fd),
    Bytes(Chunk),
    /// No more bytes will come.
    End,
    /// There was no buffer for what came, and this had come back to the pool
    /// before it was looked for.
    NoBuffer(Returned),
    /// As kernels answer.
    Failed(i32),
}

#[derive(Default)]
struct State {
    queue: VecDeque<Arrival>,
    /// The series under way.
    series: Option<Arc<Series>>,
    /// It was asked to end.
    asked: bool,
    /// How many series were begun.
    begun: u64,
    /// How many streams there are.
    streams: usize,
    /// Woken by whatever happens here.
    wakers: Vec<Waker>,
}

impl State {
    fn wake_later(&mut self, waker: &Waker) {
        if !self.wakers.iter().any(|other| other.will_wake(waker)) {
            self.wakers.push(waker.clone());
        }
    }

    /// There is no stream any more, and it is not known when somebody comes: the
    /// buffers go back to their pool, and what the system says again is
    /// forgotten. What is to be dropped outside, because others are woken by it.
    #[must_use]
    fn keep(&mut self) -> Vec<Chunk> {
        let again = |arrival: &Arrival| matches!(arrival, Arrival::End | Arrival::NoBuffer(_));
        self.queue.retain(|arrival| !again(arrival));
        let mut lent = Vec::new();
        for arrival in &mut self.queue {
            if let Arrival::Bytes(chunk) = arrival
                && let Some(own) = chunk.own()
            {
                lent.push(std::mem::replace(chunk, own));
            }
        }
        lent
    }

    /// The series under way, if nobody has asked for its end yet.
    fn ask(&mut self) -> Option<Arc<Series>> {
        match self.series {
            Some(_) if std::mem::replace(&mut self.asked, true) => None,
            _ => self.series.clone(),
        }
    }
}

/// What has arrived at a socket and was not taken yet.
#[derive(Default)]
pub(crate) struct Arrivals(Mutex<State>);

impl Arrivals {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add_stream(&self) {
        self.state().streams += 1;
    }

    /// A stream is gone. If it was the last one, the series ends.
    pub(crate) fn remove_stream(&self) {
        let mut state = self.state();
        state.streams -= 1;
        let (mut ends, mut lent) = (None, Vec::new());
        if state.streams == 0 {
            ends = state.ask();
            lent = state.keep();
        }
        drop(state);
        drop(lent);
        if let Some(series) = ends {
            series.end();
        }
    }

    /// What came first, if anything lies here.
    pub(crate) fn take(&self) -> Option<Arrival> {
        self.state().queue.pop_front()
    }

    /// `waker` is woken when something happens here.
    pub(crate) fn wake_later(&self, waker: &Waker) {
        self.state().wake_later(waker);
    }

    /// Bytes that lie here: `f` is given some and says how many it takes. The
    /// answer as kernels give it; none if there is nothing.
    pub(crate) fn take_bytes(&self, f: impl FnOnce(&[u8]) -> usize) -> Option<i32> {
        let mut state = self.state();
        let mut emptied = None;
        let answer = loop {
            match state.queue.front_mut()? {
                Arrival::Bytes(chunk) => {
                    let taken = f(chunk);
                    chunk.advance(taken);
                    if chunk.is_empty() {
                        emptied = state.queue.pop_front();
                    }
                    // No more than was asked for, which fits.
                    break taken as i32;
                }
                Arrival::Failed(failed) => {
                    let failed = *failed;
                    state.queue.pop_front();
                    break failed;
                }
                // The stream that wanted to know will hear it again.
                Arrival::End | Arrival::NoBuffer(_) | Arrival::Connection(_) => {
                    state.queue.pop_front();
                }
            }
        };
        drop(state);
        drop(emptied);
        Some(answer)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.state().queue.is_empty()
    }

    /// Makes a series, if there is none and nothing lies here (A1): whoever gets
    /// it submits it.
    pub(crate) fn begin(&self, make: impl FnOnce() -> Arc<Series>) -> Option<Arc<Series>> {
        let mut state = self.state();
        if state.series.is_some() || !state.queue.is_empty() {
            return None;
        }
        state.begun += 1;
        state.asked = false;
        let series = make();
        state.series = Some(series.clone());
        Some(series)
    }

    /// Asks for the end of the series under way; which one that is.
    pub(crate) fn end(&self) -> Option<u64> {
        let mut state = self.state();
        let number = state.series.as_ref().map(|_| state.begun);
        let ends = state.ask();
        drop(state);
        if let Some(series) = ends {
            series.end();
        }
        number
    }

    /// True if that series is under way; then `waker` is woken when it is not.
    pub(crate) fn is_under_way(&self, number: u64, waker: &Waker) -> bool {
        let mut state = self.state();
        let under_way = state.series.is_some() && state.begun == number;
        if under_way {
            state.wake_later(waker);
        }
        under_way
    }

    /// True if a series that nobody wants any more may still bring something;
    /// then `waker` is woken when that changes (A2).
    pub(crate) fn must_wait(&self, waker: &Waker) -> bool {
        let mut state = self.state();
        let wait = state.queue.is_empty() && state.series.is_some() && state.streams == 0;
        if wait {
            state.wake_later(waker);
        }
        wait
    }

    /// The series has answered, and goes on or not. True if it is to be ended:
    /// `most` or more lies here.
    #[must_use]
    pub(crate) fn arrived(&self, arrival: Option<Arrival>, most: usize, more: bool) -> bool {
        let mut state = self.state();
        state.queue.extend(arrival);
        let lent = match state.streams {
            0 => state.keep(),
            _ => Vec::new(),
        };
        let mut over = None;
        if !more {
            over = state.series.take();
        }
        let full = more && state.queue.len() >= most && !std::mem::replace(&mut state.asked, true);
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        drop((over, lent));
        for waker in wakers {
            contained(move || waker.wake());
        }
        full
    }
}
