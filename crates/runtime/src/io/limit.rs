//! [`at_most`]: limits how many operations a scope has in flight at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use kinfolk_core::host::{discard, wake};
use kinfolk_core::{IntoOutcome, Local, Result};

static LIMIT: Local<Arc<Limit>> = Local::new();

/// Runs `future` in a scope of its own, in which at most `most` i/o operations are in flight
/// at once. Further operations wait, in order.
///
/// An operation inside nested limits counts for each of them. Operations begun by `start_…`
/// do not wait and are not counted; neither are those made through
/// `Polled`.
///
/// ```
/// # async fn demo(file: kinfolk_runtime::fs::File) -> kinfolk_core::Result<()> {
/// use kinfolk_core::scope;
/// use kinfolk_runtime::io;
///
/// let file = std::sync::Arc::new(file);
/// io::at_most(8, scope(async |s| {
///     for page in 0..1000 {
///         let file = file.clone();
///         s.launch(async move { file.read_at(vec![0; 4096], page * 4096).await.0.map(drop) });
///     }
///     Ok(())
/// }))
/// .await
/// # }
/// ```
///
/// # Cancellation
/// As [`kinfolk_core::scope`]. An operation that waits for its turn is a point.
///
/// # Panics
/// If `most` is zero: nothing could ever be done.
pub fn at_most<B>(
    most: usize,
    future: B,
) -> impl Future<Output = Result<<B::Output as IntoOutcome>::Value>>
where
    B: Future<Output: IntoOutcome>,
{
    assert!(most > 0, "a limit on operations must be at least 1");
    async move {
        let limit = Limit {
            // That of the job in which it runs, wherever it was made.
            beyond: LIMIT.get(),
            state: Mutex::new(State {
                free: most,
                ..State::default()
            }),
        };
        LIMIT.scope(Arc::new(limit), future).await
    }
}

#[derive(Default)]
struct State {
    free: usize,
    /// In order of their numbers.
    waiting: BTreeMap<u64, Waker>,
    /// Permits that were granted and not taken yet.
    granted: BTreeSet<u64>,
    next: u64,
}

pub(crate) struct Limit {
    /// The limit around this one.
    beyond: Option<Arc<Limit>>,
    state: Mutex<State>,
}

impl Limit {
    /// One for so many, which stands alone.
    pub(crate) fn new(most: usize) -> Arc<Limit> {
        Arc::new(Limit {
            beyond: None,
            state: Mutex::new(State {
                free: most,
                ..State::default()
            }),
        })
    }

    /// A permit, if one is free; it is not while an operation waits.
    pub(crate) fn try_take(self: &Arc<Limit>) -> Option<Permit> {
        let mut state = self.state();
        state.free = state.free.checked_sub(1)?;
        drop(state);
        Some(Permit {
            limit: self.clone(),
            _beyond: None,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One that was under way is over.
    fn release(&self) {
        let mut state = self.state();
        let woken = match state.waiting.pop_first() {
            Some((number, waker)) => {
                state.granted.insert(number);
                Some(waker)
            }
            None => {
                state.free += 1;
                None
            }
        };
        drop(state);
        if let Some(waker) = woken {
            wake(waker);
        }
    }
}

/// The right to one operation; dropped when that is over.
pub(crate) struct Permit {
    limit: Arc<Limit>,
    _beyond: Option<Box<Permit>>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.limit.release();
    }
}

/// Waits for a permit.
pub(crate) struct PermitWait {
    limit: Arc<Limit>,
    /// None while it does not stand in the queue.
    number: Option<u64>,
    /// Once it has come: that of the limit around it.
    got: Option<(Permit, Box<PermitWait>)>,
}

/// The turn that an operation begun here has to wait for; none without a limit.
pub(crate) fn wait_for_permit() -> Option<PermitWait> {
    LIMIT.get().map(PermitWait::of)
}

impl PermitWait {
    pub(crate) fn of(limit: Arc<Limit>) -> PermitWait {
        PermitWait {
            limit,
            number: None,
            got: None,
        }
    }

    /// The innermost limit first: a holder of an outer permit holds
    /// all the others, and goes on.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Permit> {
        if self.got.is_none() {
            let permit = ready!(self.poll_own(cx));
            let Some(beyond) = self.limit.beyond.clone() else {
                return Poll::Ready(permit);
            };
            self.got = Some((permit, Box::new(PermitWait::of(beyond))));
        }
        if let Some((_, beyond)) = &mut self.got {
            let outer = ready!(beyond.poll(cx));
            if let Some((mut permit, _)) = self.got.take() {
                permit._beyond = Some(Box::new(outer));
                return Poll::Ready(permit);
            }
        }
        unreachable!("it waits for the limit beyond")
    }

    fn poll_own(&mut self, cx: &mut Context<'_>) -> Poll<Permit> {
        let waker = cx.waker().clone();
        let mut state = self.limit.state();
        match self.number {
            None if state.free > 0 => state.free -= 1,
            None => {
                let number = state.next;
                state.next += 1;
                self.number = Some(number);
                state.waiting.insert(number, waker);
                return Poll::Pending;
            }
            Some(number) if state.granted.remove(&number) => {}
            Some(number) => {
                let old = state.waiting.insert(number, waker);
                drop(state);
                discard(old);
                return Poll::Pending;
            }
        }
        drop(state);
        self.number = None;
        Poll::Ready(Permit {
            limit: self.limit.clone(),
            _beyond: None,
        })
    }
}

impl Drop for PermitWait {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let mut state = self.limit.state();
        if state.granted.remove(&number) {
            drop(state);
            // It is not taken: to the next in the queue.
            self.limit.release();
        } else {
            let gone = state.waiting.remove(&number);
            drop(state);
            discard(gone);
        }
    }
}
