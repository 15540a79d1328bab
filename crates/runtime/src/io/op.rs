//! [`Op`]: the future of one operation, a point.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use kinfolk_core::kit::{Point, cancelled_in};
use kinfolk_core::{Cancelled, WaitKind};

use super::handle::Hub;
use super::in_flight::{Flight, Operation, Start, answer};
use super::limit::{self, Permit, Turn};

enum At<T: Operation> {
    /// Not begun: nobody else has it.
    Start(Arc<Flight<T>>),
    Flying(Arc<Flight<T>>),
    Over,
}

/// Which hub carries out an operation.
enum Via {
    /// That of the file it works on, or of the job that begins it: not known yet.
    Unknown,
    Own(Arc<Hub>),
    /// That of the file it works on. A reference to it is not counted, which would
    /// cost two atomic steps for each operation: it is there as long as the load
    /// is, and looked at no longer.
    Loads(Borrowed),
}

/// Leads to the hub that a load keeps.
struct Borrowed(*const Arc<Hub>);

// SAFETY: as `&Arc<Hub>`.
unsafe impl Send for Borrowed {}
// SAFETY: as above.
unsafe impl Sync for Borrowed {}

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
    via: Via,
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
    /// An operation of `hub`, or, if there is none, of the hub of the file it works
    /// on, or, if there is none either, of that of the job that begins it.
    #[track_caller]
    #[inline(always)] // Made in its place: otherwise it is copied there.
    pub(crate) fn new(hub: Option<Arc<Hub>>, load: T) -> Op<T> {
        Op {
            at: At::Start(Flight::new(load)),
            via: hub.map_or(Via::Unknown, Via::Own),
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

    /// Begins it. What comes of it, if it is over in here.
    fn begin(
        &mut self,
        flight: Arc<Flight<T>>,
        permit: Option<Permit>,
        waker: &Waker,
    ) -> Result<(), T::Output> {
        if let Via::Unknown = self.via {
            // SAFETY: nobody else has it: it was never submitted.
            self.via = match unsafe { flight.hub() } {
                Some(hub) => Via::Loads(Borrowed(hub)),
                None => match Hub::current() {
                    Ok(hub) => Via::Own(hub),
                    Err(error) => return Err(flight.never_begun().finish(Err(error))),
                },
            };
        }
        let hub = match &self.via {
            Via::Own(hub) => hub,
            // SAFETY: the load is in the flight, here or in an earlier one, and
            // nobody but us takes it out.
            Via::Loads(hub) => unsafe { &*hub.0 },
            Via::Unknown => unreachable!("it was looked up above"),
        };
        if let Err(error) = hub.ready() {
            return Err(flight.never_begun().finish(Err(error)));
        }
        // SAFETY: nobody else has it: it was never submitted.
        let request = unsafe { flight.request(hub) };
        // SAFETY: it leads into the flight, which lies still.
        if let Some(result) = unsafe { hub.at_once(&request) } {
            self.point.done();
            drop(permit);
            let mut load = flight.never_begun();
            load.answered(result);
            return Err(load.finish(answer(result)));
        }
        // SAFETY: as above.
        unsafe { flight.prepare(permit, waker) };
        self.at = At::Flying(flight.clone());
        hub.submit(flight, &request);
        Ok(())
    }

    /// The hub of a flight that was begun.
    ///
    /// # Safety
    /// It was not given up, and its load was not taken out.
    unsafe fn hub(&self) -> Option<Arc<Hub>> {
        match &self.via {
            Via::Unknown => None,
            Via::Own(hub) => Some(hub.clone()),
            // SAFETY: as the caller says: the load is there.
            Via::Loads(hub) => Some(unsafe { (*hub.0).clone() }),
        }
    }
}

/// A cancellation as i/o says it: of a kind that no loop takes for a reason to
/// try again.
pub(crate) fn cancelled(told: Cancelled) -> io::Error {
    // As a source, so that it is seen through whatever wraps an error of i/o.
    io::Error::other(kinfolk_core::Error::from(told))
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

impl<T: Operation> Op<T> {
    /// Polls it. With `other` it is looked after on somebody's behalf: then that
    /// is woken when it is over, and it is no point, and takes nobody's interrupt.
    pub(crate) fn poll_as(
        &mut self,
        cx: &mut Context<'_>,
        other: Option<&Waker>,
    ) -> Poll<T::Output> {
        let asks = other.is_none();
        loop {
            if let At::Flying(flight) = &self.at {
                if let Poll::Ready((mut load, result)) = flight.take(other.unwrap_or(cx.waker())) {
                    self.at = At::Over;
                    self.point.done();
                    let again = load.answered(result);
                    if again && (result == -libc::ECANCELED || result == -libc::EINTR) {
                        // Ended early, and it was not known yet on whose word.
                        match self.told.take() {
                            Some(told) if self.point.still_told(&told) => {
                                return Poll::Ready(load.finish(Err(cancelled(told))));
                            }
                            // Nobody has asked for it here: once more, if nobody
                            // does now.
                            told => {
                                if let Some(told) = told {
                                    self.point.tell_again(&told);
                                }
                                self.at = At::Start(Flight::new(load));
                            }
                        }
                        continue;
                    }
                    if let Some(told) = self.told.take() {
                        self.point.tell_again(&told);
                    }
                    return Poll::Ready(load.finish(answer(result)));
                }
                if self.told.is_none()
                    && let Err(told) = ready!(self.poll_enter(cx, asks))
                {
                    self.told = Some(told);
                    // SAFETY: its load was not taken out above, and only we take it.
                    let hub = unsafe { self.hub() };
                    if let At::Flying(flight) = &self.at
                        && let Some(hub) = hub
                    {
                        hub.cancel(flight.clone());
                    }
                    // It may have landed in here.
                    continue;
                }
                self.pending(cx, asks);
                return Poll::Pending;
            }
            match std::mem::replace(&mut self.at, At::Over) {
                At::Start(flight) => {
                    match self.poll_enter(cx, asks) {
                        Poll::Ready(Ok(())) => {}
                        Poll::Ready(Err(told)) => {
                            self.turn = None;
                            let load = flight.never_begun();
                            return Poll::Ready(load.finish(Err(cancelled(told))));
                        }
                        Poll::Pending => {
                            self.at = At::Start(flight);
                            return Poll::Pending;
                        }
                    }
                    // SAFETY: nobody else has it: it was never submitted.
                    match unsafe { flight.poll_start(cx) } {
                        Poll::Ready(Start::Ask) => {}
                        Poll::Ready(Start::Answered) => {
                            self.turn = None;
                            self.point.done();
                            return Poll::Ready(flight.never_begun().finish(Ok(0)));
                        }
                        Poll::Pending => {
                            self.at = At::Start(flight);
                            self.pending(cx, asks);
                            return Poll::Pending;
                        }
                    }
                    let Poll::Ready(permit) = self.poll_turn(cx) else {
                        self.at = At::Start(flight);
                        self.pending(cx, asks);
                        return Poll::Pending;
                    };
                    if let Err(over) = self.begin(flight, permit, other.unwrap_or(cx.waker())) {
                        return Poll::Ready(over);
                    }
                    if let At::Flying(flight) = &self.at
                        && !flight.has_landed()
                    {
                        // It has our waker, and we have asked a moment ago.
                        self.pending(cx, asks);
                        return Poll::Pending;
                    }
                }
                At::Flying(_) => unreachable!("it was looked at above"),
                At::Over => panic!("an operation was polled after it was over"),
            }
        }
    }

    fn poll_enter(&mut self, cx: &mut Context<'_>, asks: bool) -> Poll<Result<(), Cancelled>> {
        match asks {
            true => self.point.poll_enter(cx),
            false => Poll::Ready(Ok(())),
        }
    }

    fn pending(&mut self, cx: &mut Context<'_>, asks: bool) {
        if asks {
            self.point.pending_as(cx, WaitKind::Io);
        }
    }
}

impl<T: Operation> Future for Op<T> {
    type Output = T::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T::Output> {
        self.get_mut().poll_as(cx, None)
    }
}

impl<T: Operation> Drop for Op<T> {
    fn drop(&mut self) {
        if let Some(told) = self.told.take() {
            // Nobody acts on it any more: the next point tells it.
            self.point.tell_again(&told);
        }
        if let At::Flying(flight) = std::mem::replace(&mut self.at, At::Over) {
            // SAFETY: nobody has given it up yet, and only we take its load.
            let hub = unsafe { self.hub() };
            if flight.give_up()
                && let Some(hub) = hub
            {
                hub.cancel(flight);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::future::poll_fn;
    use std::os::unix::net::UnixStream;

    use kinfolk_core::{Error, checkpoint, current_job};

    use super::*;
    use crate::Runtime;
    use crate::io::ops;

    /// cancel-3: whoever only looks after an operation leaves the interrupt to the
    /// job's own wait.
    #[test]
    fn cancel_3_one_that_is_looked_after_takes_no_interrupt() {
        let rt = Runtime::builder().workers(0).build().expect("a runtime");
        rt.block_on(async {
            let (quiet, _other) = UnixStream::pair()?;
            let poll = ops::Poll::new(Arc::new(quiet), libc::POLLIN as u32);
            let mut op = Op::new(Some(Hub::current()?), poll);
            // Once to begin it, once to be told.
            poll_fn(|cx| Poll::Ready(op.poll_as(cx, None).is_ready())).await;
            current_job().expect("a job").interrupt("look up");
            poll_fn(|cx| Poll::Ready(op.poll_as(cx, Some(Waker::noop())).is_ready())).await;
            assert!(op.told.is_none());
            checkpoint().await.expect_err("it was heard elsewhere");
            Ok::<_, Error>(())
        })
        .expect("an interrupt");
    }
}
