//! [`Op`]: the future of one operation, a point.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use kinfolk_core::kit::{Point, cancelled_in};
use kinfolk_core::{Cancelled, WaitKind};

use super::flight::{Flight, Operation, Start, answer};
use super::hub::Hub;
use super::limit::{self, Permit, Turn};

enum At<T: Operation> {
    /// Not begun: nobody else has it.
    Start(Arc<Flight<T>>),
    Flying(Arc<Flight<T>>),
    Over,
}

/// Waits for one operation.
///
/// # Cancellation
/// A *point*. Told at entry, the operation is never begun. Told while it is
/// under way, the system is asked to end it, and it is waited for; if it was done
/// all the same, its result is returned, and the next point tells. What was lent
/// to it comes back either way. Dropped, it goes on until the system lets go, and
/// then its result is dropped.
#[must_use = "futures do nothing unless awaited"]
pub(crate) struct Op<T: Operation> {
    at: At<T>,
    /// None until it is begun: that of the job that begins it.
    hub: Option<Arc<Hub>>,
    /// It counts where there is a limit.
    limited: bool,
    /// It waits for its turn, where there is a limit.
    turn: Option<Box<Turn>>,
    /// It was told this while the operation was under way.
    told: Option<Cancelled>,
    point: Point,
}

// Nothing in it is pinned: what the system works on lies in the flight.
impl<T: Operation> Unpin for Op<T> {}

impl<T: Operation> Op<T> {
    /// An operation of `hub`, or, if there is none, of the hub of the job that
    /// begins it.
    #[track_caller]
    #[inline(always)] // Made in its place: otherwise it is copied there.
    pub(crate) fn new(hub: Option<Arc<Hub>>, load: T) -> Op<T> {
        Op {
            at: At::Start(Flight::new(load)),
            hub,
            limited: true,
            turn: None,
            told: None,
            point: Point::new(),
        }
    }

    /// Waits for its turn, where there is a limit.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<Option<Permit>> {
        if !self.limited {
            return Poll::Ready(None);
        }
        let turn = match &mut self.turn {
            Some(turn) => turn,
            None => match limit::turn() {
                Some(turn) => self.turn.insert(Box::new(turn)),
                None => return Poll::Ready(None),
            },
        };
        let permit = ready!(turn.poll(cx));
        self.turn = None;
        Poll::Ready(Some(permit))
    }

    /// It waits for no turn and is not counted: it may outlive whoever polls it,
    /// and would keep the turn of others.
    #[cfg(any(feature = "futures-io", feature = "tokio-io", feature = "hyper"))]
    pub(crate) fn unlimited(mut self) -> Op<T> {
        self.limited = false;
        self
    }

    /// True once the system has been asked.
    #[cfg(any(feature = "futures-io", feature = "tokio-io", feature = "hyper"))]
    pub(crate) fn is_begun(&self) -> bool {
        !matches!(self.at, At::Start(_))
    }

    fn begin(
        &mut self,
        flight: Arc<Flight<T>>,
        permit: Option<Permit>,
        waker: &Waker,
    ) -> Result<(), T::Output> {
        let hub = match &self.hub {
            Some(hub) => hub,
            None => match Hub::current() {
                Ok(hub) => self.hub.insert(hub),
                Err(error) => return Err(flight.never_begun().finish(Err(error))),
            },
        };
        if let Err(error) = hub.ready() {
            return Err(flight.never_begun().finish(Err(error)));
        }
        // SAFETY: nobody else has it: it was never submitted.
        let request = unsafe { flight.prepare(hub, permit, Some(waker)) };
        self.at = At::Flying(flight.clone());
        hub.submit(flight, request);
        Ok(())
    }

    fn cancel(&self, flight: Arc<Flight<T>>) {
        if let Some(hub) = &self.hub {
            hub.cancel(flight);
        }
    }
}

/// A cancellation as i/o says it: of a kind that no loop takes for a reason to
/// try again.
pub(crate) fn cancelled(told: Cancelled) -> io::Error {
    io::Error::other(told)
}

/// The cancel that an error of i/o comes from, if it does: also one that stands
/// further down among its sources, as when a library has wrapped it. See
/// [`cancelled_in`] for errors of other types.
///
/// ```
/// # mod kinfolk { pub use kinfolk_core::*; pub use kinfolk_runtime::{io, net}; }
/// use kinfolk::{Result, io, net::TcpListener, sleep};
/// use std::time::Duration;
///
/// async fn serve(listener: TcpListener) -> Result<()> {
///     loop {
///         match listener.accept().await {
///             Ok((stream, _)) => drop(stream),
///             Err(error) if io::told(&error).is_some() => return Err(error.into()),
///             Err(_) => sleep(Duration::from_millis(10)).await?, // too many open files?
///         }
///     }
/// }
/// ```
pub fn told(error: &io::Error) -> Option<&Cancelled> {
    cancelled_in(error)
}

impl<T: Operation> Future for Op<T> {
    type Output = T::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T::Output> {
        let this = self.get_mut();
        loop {
            if let At::Flying(flight) = &this.at {
                if let Poll::Ready((mut load, result)) = flight.take(cx.waker()) {
                    this.at = At::Over;
                    this.point.done();
                    let again = load.answered(result);
                    if again && (result == -libc::ECANCELED || result == -libc::EINTR) {
                        // Ended early, and it was not known yet on whose word.
                        match this.told.take() {
                            Some(told) if this.point.still_told(&told) => {
                                return Poll::Ready(load.finish(Err(cancelled(told))));
                            }
                            // Nobody has asked for it here: once more, if nobody
                            // does now.
                            told => {
                                if let Some(told) = told {
                                    this.point.tell_again(&told);
                                }
                                this.at = At::Start(Flight::new(load));
                            }
                        }
                        continue;
                    }
                    if let Some(told) = this.told.take() {
                        this.point.tell_again(&told);
                    }
                    return Poll::Ready(load.finish(answer(result)));
                }
                if this.told.is_none()
                    && let Err(told) = ready!(this.point.poll_enter(cx))
                {
                    this.told = Some(told);
                    this.cancel(flight.clone());
                    // It may have landed in here.
                    continue;
                }
                this.point.pending_as(cx, WaitKind::Io);
                return Poll::Pending;
            }
            match std::mem::replace(&mut this.at, At::Over) {
                At::Start(flight) => {
                    match this.point.poll_enter(cx) {
                        Poll::Ready(Ok(())) => {}
                        Poll::Ready(Err(told)) => {
                            this.turn = None;
                            let load = flight.never_begun();
                            return Poll::Ready(load.finish(Err(cancelled(told))));
                        }
                        Poll::Pending => {
                            this.at = At::Start(flight);
                            return Poll::Pending;
                        }
                    }
                    // SAFETY: nobody else has it: it was never submitted.
                    match unsafe { flight.poll_start(cx) } {
                        Poll::Ready(Start::Ask) => {}
                        Poll::Ready(Start::Answered) => {
                            this.turn = None;
                            this.point.done();
                            return Poll::Ready(flight.never_begun().finish(Ok(0)));
                        }
                        Poll::Pending => {
                            this.at = At::Start(flight);
                            this.point.pending_as(cx, WaitKind::Io);
                            return Poll::Pending;
                        }
                    }
                    let Poll::Ready(permit) = this.poll_turn(cx) else {
                        this.at = At::Start(flight);
                        this.point.pending_as(cx, WaitKind::Io);
                        return Poll::Pending;
                    };
                    if let Err(failed) = this.begin(flight, permit, cx.waker()) {
                        return Poll::Ready(failed);
                    }
                    if let At::Flying(flight) = &this.at
                        && !flight.has_landed()
                    {
                        // It has our waker, and we have asked a moment ago.
                        this.point.pending_as(cx, WaitKind::Io);
                        return Poll::Pending;
                    }
                }
                At::Flying(_) => unreachable!("it was looked at above"),
                At::Over => panic!("an operation was polled after it was over"),
            }
        }
    }
}

impl<T: Operation> Drop for Op<T> {
    fn drop(&mut self) {
        if let Some(told) = self.told.take() {
            // Nobody acts on it any more: the next point tells it.
            self.point.tell_again(&told);
        }
        if let At::Flying(flight) = std::mem::replace(&mut self.at, At::Over)
            && flight.give_up()
        {
            self.cancel(flight);
        }
    }
}
