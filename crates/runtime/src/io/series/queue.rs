//! What has arrived at a socket and was not taken yet.
//!
//! A [`Series`] brings it. A stream ([`SeriesStream`](super::stream::SeriesStream)) takes it, or
//! a single operation, which looks here before it asks the system.
//!
//! - **A1** At most one series of a socket is under way. It is begun only when
//!   nothing lies here, and asked to end when too much does, or when the last
//!   stream is gone.
//! - **A2** What has arrived stays until somebody takes it, or the socket is
//!   closed. A series may bring what a single operation wants: that waits here as
//!   long as one is under way.
//! - **A4** A series is asked to end only once it was submitted: before that
//!   nobody could say where it is. Whoever submits it looks afterwards whether
//!   somebody wanted its end.
//!
//! `README.md` beside this file has the rest.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use kinfolk_core::host::{Contained, discard, wake};

use super::Series;
use crate::io::buffer_pool::{BufferPool, Chunk, Returned};
use crate::io::fd::Fd;

/// What has arrived.
pub(crate) enum SeriesItem {
    Connection(Fd),
    Bytes(Chunk),
    /// No more bytes will come.
    End,
    /// There was no buffer for what came, and this had come back to the pool
    /// before it was looked for. It lies nowhere: all who wait get to know it.
    NoBuffer(Returned),
    /// As kernels answer. What the system says once, and not again, is kept.
    Failed {
        result: i32,
        once: bool,
    },
}

/// Where a waiter is found, to be woken. A waiter that goes away
/// [leaves](SeriesQueue::leave) it.
#[derive(Default)]
pub(crate) struct WakerKey(Option<u64>);

/// A socket at which a single operation may wait for what a series brings.
pub(crate) struct SocketWaiter {
    pub(crate) fd: Fd,
    key: WakerKey,
}

impl SocketWaiter {
    pub(crate) fn new(fd: Fd) -> SocketWaiter {
        let key = WakerKey::default();
        SocketWaiter { fd, key }
    }

    /// What has arrived there, if there was a series, and its own key.
    pub(crate) fn queue(&mut self) -> Option<(&SeriesQueue, &mut WakerKey)> {
        Some((self.fd.known_series_queue()?, &mut self.key))
    }
}

impl Drop for SocketWaiter {
    fn drop(&mut self) {
        if let Some((queue, key)) = self.queue() {
            queue.leave(key);
        }
    }
}

#[derive(Default)]
struct State {
    queue: VecDeque<SeriesItem>,
    /// Where there was no buffer for what came.
    empty: Vec<Returned>,
    /// The series under way.
    series: Option<Arc<Series>>,
    /// It was submitted: it can be asked to end (A4).
    submitted: bool,
    /// Its end was asked for.
    asked: bool,
    /// How many series were begun.
    begun: u64,
    /// How many streams there are.
    streams: usize,
    /// Woken by whatever happens here, by key.
    wakers: Vec<(u64, Waker)>,
    /// The next key.
    keys: u64,
}

impl State {
    /// What the caller drops outside the lock.
    #[must_use]
    fn wake_later(&mut self, key: &mut WakerKey, waker: Waker) -> Option<Waker> {
        let keys = &mut self.keys;
        let key = *key.0.get_or_insert_with(|| {
            *keys += 1;
            *keys
        });
        match self.wakers.iter_mut().find(|(other, _)| *other == key) {
            Some((_, old)) => Some(std::mem::replace(old, waker)),
            None => {
                self.wakers.push((key, waker));
                None
            }
        }
    }

    /// The task with this key does not wait any more. What is to be dropped outside.
    #[must_use]
    fn leave(&mut self, key: &mut WakerKey) -> Option<Waker> {
        let key = key.0.take()?;
        let at = self.wakers.iter().position(|(other, _)| *other == key)?;
        Some(self.wakers.swap_remove(at).1)
    }

    /// There is no stream any more, and it is not known when somebody comes: the
    /// buffers go back to their pool, and what the system says again is
    /// forgotten. What is to be dropped outside, because others are woken by it.
    #[must_use]
    fn keep(&mut self) -> Vec<Chunk> {
        self.empty.clear();
        self.queue.retain(|item| match item {
            SeriesItem::Connection(_) | SeriesItem::Bytes(_) => true,
            SeriesItem::End | SeriesItem::NoBuffer(_) => false,
            SeriesItem::Failed { once, .. } => *once,
        });
        let mut lent = Vec::new();
        for item in &mut self.queue {
            if let SeriesItem::Bytes(chunk) = item
                && let Some(own) = chunk.own()
            {
                lent.push(std::mem::replace(chunk, own));
            }
        }
        lent
    }

    /// A waiter wants the end of the series under way, which is to be asked for
    /// it unless it was before.
    fn ask(&mut self) -> Option<Arc<Series>> {
        let asked = std::mem::replace(&mut self.asked, true);
        match asked || !self.submitted {
            true => None,
            false => self.series.clone(),
        }
    }
}

/// What has arrived at a socket and was not taken yet.
#[derive(Default)]
pub(crate) struct SeriesQueue(Mutex<State>);

impl SeriesQueue {
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

    /// What came first, if anything lies here. A waiter that takes it waits no more.
    pub(crate) fn take(&self, key: &mut WakerKey) -> Option<SeriesItem> {
        let mut state = self.state();
        let first = state.queue.pop_front()?;
        let left = state.leave(key);
        drop(state);
        drop(left);
        Some(first)
    }

    /// What had come back to the pool when this thread's group was found empty; none
    /// if it was not, or if more has come back since.
    pub(crate) fn lacks(&self, pool: &BufferPool, thread: usize) -> Option<Returned> {
        let state = self.state();
        let mut empty = state.empty.iter();
        (empty.find(|at| at.is_of(pool, thread) && at.is_all())).cloned()
    }

    /// The task with this key does not wait any more.
    pub(crate) fn leave(&self, key: &mut WakerKey) {
        if key.0.is_some() {
            let left = self.state().leave(key);
            discard(left);
        }
    }

    /// `waker` is woken when something happens here.
    pub(crate) fn wake_later(&self, key: &mut WakerKey, waker: &Waker) {
        let new = waker.clone();
        let old = self.state().wake_later(key, new);
        discard(old);
    }

    /// Takes what came first, for a single operation. None if nothing lies here
    /// and no series is under way: then it asks the system (A2).
    pub(crate) fn poll_take(&self, key: &mut WakerKey, waker: &Waker) -> Poll<Option<SeriesItem>> {
        // Cloned and dropped outside the lock.
        let new = waker.clone();
        let mut state = self.state();
        match state.queue.pop_front() {
            None if state.series.is_some() => {
                let old = state.wake_later(key, new);
                drop(state);
                discard(old);
                Poll::Pending
            }
            first => {
                drop(state);
                discard(new);
                Poll::Ready(first)
            }
        }
    }

    /// As above, for bytes: `f` is given some and says how many it takes. The
    /// answer is as kernels give it.
    pub(crate) fn poll_bytes(
        &self,
        key: &mut WakerKey,
        waker: &Waker,
        f: impl FnOnce(&[u8]) -> usize,
    ) -> Poll<Option<i32>> {
        // Dropped outside the lock.
        let new = Contained::new(waker.clone());
        let mut state = self.state();
        let mut emptied = None;
        let answer = loop {
            let Some(first) = state.queue.front_mut() else {
                if state.series.is_none() {
                    return Poll::Ready(None);
                }
                let old = state.wake_later(key, new.into_inner());
                drop(state);
                discard(old);
                return Poll::Pending;
            };
            match first {
                SeriesItem::Bytes(chunk) => {
                    let taken = f(chunk);
                    chunk.advance(taken);
                    if chunk.is_empty() {
                        emptied = state.queue.pop_front();
                    }
                    // No more than was asked for, which fits.
                    break taken as i32;
                }
                SeriesItem::Failed { result, .. } => {
                    let result = *result;
                    state.queue.pop_front();
                    break result;
                }
                // The stream that wanted to know will hear it again.
                SeriesItem::End | SeriesItem::NoBuffer(_) | SeriesItem::Connection(_) => {
                    state.queue.pop_front();
                }
            }
        };
        drop(state);
        drop(emptied);
        Poll::Ready(Some(answer))
    }

    /// Does `f` if nothing lies here and no series is under way, so that nothing
    /// is overtaken (A2). Meanwhile nobody else takes or begins anything.
    pub(crate) fn alone<R>(&self, f: impl FnOnce() -> R) -> Option<R> {
        let state = self.state();
        (state.series.is_none() && state.queue.is_empty()).then(f)
    }

    /// True if a series that accepts is under way.
    pub(crate) fn is_accepting(&self) -> bool {
        let state = self.state();
        state.series.as_ref().is_some_and(|series| series.accepts())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.state().queue.is_empty()
    }

    /// Makes a series, if there is none and nothing lies here (A1), and has it
    /// submitted.
    pub(crate) fn begin(
        &self,
        make: impl FnOnce() -> Arc<Series>,
        submit: impl FnOnce(&Arc<Series>),
    ) {
        let mut state = self.state();
        if state.series.is_some() || !state.queue.is_empty() {
            return;
        }
        state.begun += 1;
        let number = state.begun;
        state.submitted = false;
        state.asked = false;
        let series = make();
        state.series = Some(series.clone());
        drop(state);
        submit(&series);
        let mut state = self.state();
        // Not if it is over already, and another has begun.
        let this = state.series.is_some() && state.begun == number;
        state.submitted |= this;
        let wanted = this && state.asked;
        drop(state);
        if wanted {
            series.end();
        }
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
    pub(crate) fn is_under_way(&self, number: u64, key: &mut WakerKey, waker: &Waker) -> bool {
        // Dropped outside the lock.
        let new = Contained::new(waker.clone());
        let mut state = self.state();
        let under_way = state.series.is_some() && state.begun == number;
        let old = under_way.then(|| state.wake_later(key, new.into_inner()));
        drop(state);
        discard(old);
        under_way
    }

    /// The series has answered, and goes on or not. True if it is to be ended:
    /// `most` or more lies here.
    #[must_use]
    pub(crate) fn arrived(&self, item: Option<SeriesItem>, most: usize, more: bool) -> bool {
        let mut state = self.state();
        match item {
            Some(SeriesItem::NoBuffer(before)) => {
                state.empty.retain(|at| at.is_all() && !at.is_like(&before));
                state.empty.push(before);
            }
            item => state.queue.extend(item),
        }
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
        for (_, waker) in wakers {
            wake(waker);
        }
        full
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::task::Wake;

    struct Nobody;

    impl Wake for Nobody {
        fn wake(self: Arc<Self>) {}
    }

    #[test]
    fn whoever_waits_long_has_one_place() {
        let queue = SeriesQueue::default();
        let (mut one, mut two) = (WakerKey::default(), WakerKey::default());
        let first = Arc::new(Nobody);
        queue.wake_later(&mut two, &Waker::from(first.clone()));
        for _ in 0..100 {
            queue.wake_later(&mut one, &Waker::from(Arc::new(Nobody)));
        }
        assert_eq!(queue.state().wakers.len(), 2);
        assert_eq!(Arc::strong_count(&first), 2, "it is still to be woken");
        queue.leave(&mut two);
        queue.leave(&mut two);
        assert_eq!(queue.state().wakers.len(), 1);
        assert_eq!(Arc::strong_count(&first), 1, "its waker is gone with it");
    }
}
