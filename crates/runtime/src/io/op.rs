//! [`Op`]: the future of one operation, a point.

use std::io;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use kinfolk_core::kit::{Point, cancelled_in};
use kinfolk_core::{Cancelled, WaitKind};

use super::handle::IoHandle;
use super::in_flight::{Operation, Single, Start, to_result};
use super::limit::{self, Permit, PermitWait};

enum OpState<T: Operation> {
    /// Not begun: no other code has it.
    Start(Arc<Single<T>>),
    InFlight(Arc<Single<T>>),
    Over,
}

/// Which handle carries out an operation.
enum Via {
    /// That of the file it works on, or of the job that begins it: not known yet.
    Unknown,
    Own(Arc<IoHandle>),
    /// That of the file it works on. A reference to it is not counted, which would
    /// cost two atomic steps for each operation: it is there as long as the operation
    /// is, and looked at no longer.
    OfFile(BorrowedHandle),
}

/// Leads to the handle that a operation keeps.
struct BorrowedHandle(*const Arc<IoHandle>);

// SAFETY: as `&Arc<IoHandle>`.
unsafe impl Send for BorrowedHandle {}
// SAFETY: as above.
unsafe impl Sync for BorrowedHandle {}

/// Waits for one operation.
///
/// # Cancellation
/// A *point*. If the job is told at entry, the operation never begins. If it is told while the
/// operation is in flight, the system is asked to cancel the operation, and the wait goes on
/// until it is over; if it succeeded before that, its result is returned, and the next point
/// reports the cancel. The buffer comes back either way. If the future is dropped, the
/// operation goes on until the system has completed it, and then its result is dropped.
#[must_use = "futures do nothing unless awaited"]
pub(crate) struct Op<T: Operation> {
    at: OpState<T>,
    via: Via,
    /// It counts where there is a limit.
    limited: bool,
    /// It waits for its turn, where there is a limit.
    permit_wait: Option<Box<PermitWait>>,
    /// It was told this while the operation was under way.
    told: Option<Cancelled>,
    /// The system was asked to end the operation, and no cancel stands behind that.
    stopping: bool,
    point: Point,
}

// Nothing in it is pinned: what the system works on lies in the in_flight.
impl<T: Operation> Unpin for Op<T> {}

impl<T: Operation> Op<T> {
    /// An operation of `handle`, or, if there is none, of the handle of the file it works
    /// on, or, if there is none either, of that of the job that begins it.
    #[track_caller]
    #[inline(always)] // Made in its place: otherwise it is copied there.
    pub(crate) fn new(handle: Option<Arc<IoHandle>>, operation: T) -> Op<T> {
        Op {
            at: OpState::Start(Single::new(operation)),
            via: handle.map_or(Via::Unknown, Via::Own),
            limited: true,
            permit_wait: None,
            told: None,
            stopping: false,
            point: Point::new(),
        }
    }

    /// Snapshots and reports name `site`: for an operation that an `async` block of ours makes,
    /// which `#[track_caller]` does not reach.
    pub(crate) fn at(mut self, site: &'static Location<'static>) -> Op<T> {
        self.point = Point::at(site);
        self
    }

    /// Waits for its turn, where there is a limit.
    fn poll_permit(&mut self, cx: &mut Context<'_>) -> Poll<Option<Permit>> {
        if !self.limited {
            return Poll::Ready(None);
        }
        let wait = match &mut self.permit_wait {
            Some(wait) => wait,
            None => match limit::wait_for_permit() {
                Some(wait) => self.permit_wait.insert(Box::new(wait)),
                None => return Poll::Ready(None),
            },
        };
        let permit = ready!(wait.poll(cx));
        self.permit_wait = None;
        Poll::Ready(Some(permit))
    }

    /// It waits for no turn and is not counted: it may outlive the job that polls it,
    /// and would keep the turn of others.
    pub(crate) fn unlimited(mut self) -> Op<T> {
        self.limited = false;
        self
    }

    /// Begins it. What comes of it, if it is over in here.
    fn begin(
        &mut self,
        in_flight: Arc<Single<T>>,
        permit: Option<Permit>,
        waker: &Waker,
    ) -> Result<(), T::Output> {
        if let Via::Unknown = self.via {
            // SAFETY: no other code has it: it was never submitted.
            self.via = match unsafe { in_flight.handle() } {
                Some(handle) => Via::OfFile(BorrowedHandle(handle)),
                None => match IoHandle::current() {
                    Ok(handle) => Via::Own(handle),
                    Err(error) => return Err(in_flight.never_begun().finish(Err(error))),
                },
            };
        }
        let handle = match &self.via {
            Via::Own(handle) => handle,
            // SAFETY: the operation is in the in_flight, here or in an earlier one, and
            // no other code takes it out.
            Via::OfFile(handle) => unsafe { &*handle.0 },
            Via::Unknown => unreachable!("it was looked up above"),
        };
        if let Err(error) = handle.ready() {
            return Err(in_flight.never_begun().finish(Err(error)));
        }
        // SAFETY: no other code has it: it was never submitted.
        let request = unsafe { in_flight.request(handle) };
        // SAFETY: it leads into the in_flight, which lies still.
        if let Some(result) = unsafe { handle.at_once(&request) } {
            self.point.done();
            drop(permit);
            let mut operation = in_flight.never_begun();
            operation.answered(result);
            return Err(operation.finish(to_result(result)));
        }
        // SAFETY: as above.
        unsafe { in_flight.prepare(permit, waker) };
        self.at = OpState::InFlight(in_flight.clone());
        handle.submit(in_flight, &request);
        Ok(())
    }

    /// The handle of a in_flight that was begun.
    ///
    /// # Safety
    /// The record was not given up, and its operation was not taken out.
    unsafe fn handle(&self) -> Option<Arc<IoHandle>> {
        match &self.via {
            Via::Unknown => None,
            Via::Own(handle) => Some(handle.clone()),
            // SAFETY: as the caller says: the operation is there.
            Via::OfFile(handle) => Some(unsafe { (*handle.0).clone() }),
        }
    }
}

/// Converts a cancellation into an error of i/o: of kind `Other`, which no loop takes for a
/// reason to try again. [`told`] finds it there.
pub(crate) fn cancelled(told: Cancelled) -> io::Error {
    // As a source, so that it is seen through whatever wraps an error of i/o.
    io::Error::other(kinfolk_core::Error::from(told))
}

/// Returns the cancel that an error of i/o comes from, if it does: also one that stands
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
    /// Polls it. With `other` that waker is woken when the operation is complete, and the
    /// poll is no cancellation point: it takes no interrupt of the job.
    pub(crate) fn poll_as(
        &mut self,
        cx: &mut Context<'_>,
        other: Option<&Waker>,
    ) -> Poll<T::Output> {
        let asks = other.is_none();
        loop {
            if let OpState::InFlight(in_flight) = &self.at {
                if let Poll::Ready((operation, result)) =
                    in_flight.take(other.unwrap_or(cx.waker()))
                {
                    match self.answered(operation, result) {
                        Some(output) => return Poll::Ready(output),
                        None => continue,
                    }
                }
                if self.told.is_none()
                    && let Err(told) = ready!(self.poll_enter(cx, asks))
                {
                    self.end_early(told);
                    // It may be complete by now.
                    continue;
                }
                self.pending(cx, asks);
                return Poll::Pending;
            }
            if let Some(output) = ready!(self.poll_begin(cx, other)) {
                return Poll::Ready(output);
            }
        }
    }

    /// The system has answered: the result, or nothing if the operation is to be submitted
    /// again because it was ended early and no cancel of this job stands behind that.
    #[inline]
    fn answered(&mut self, mut operation: T, result: i32) -> Option<T::Output> {
        self.at = OpState::Over;
        self.stopping = false;
        self.point.done();
        let again = operation.answered(result);
        let told = self.told.take();
        if again && (result == -libc::ECANCELED || result == -libc::EINTR) {
            if let Some(told) = told {
                if self.point.still_told(&told) {
                    return Some(operation.finish(Err(cancelled(told))));
                }
                self.point.tell_again(&told);
            }
            self.at = OpState::Start(Single::new(operation));
            return None;
        }
        if let Some(told) = told {
            self.point.tell_again(&told);
        }
        Some(operation.finish(to_result(result)))
    }

    /// The job was told to stop while the operation is in flight: the system is asked to
    /// end it.
    fn end_early(&mut self, told: Cancelled) {
        self.told = Some(told);
        // SAFETY: its operation was not taken out, and only we take it.
        let handle = unsafe { self.handle() };
        if let OpState::InFlight(in_flight) = &self.at
            && let Some(handle) = handle
        {
            handle.cancel(in_flight.clone());
        }
    }

    /// Asks the system to end an operation in flight, and does not wait for the end. The
    /// operation keeps its result: polled again, it returns the bytes that were transferred,
    /// or is submitted anew if there were none.
    pub(crate) fn ask_to_end(&mut self) {
        let OpState::InFlight(in_flight) = &self.at else {
            return;
        };
        if self.stopping || self.told.is_some() {
            return;
        }
        self.stopping = true;
        // SAFETY: its operation was not taken out, and only we take it.
        if let Some(handle) = unsafe { self.handle() } {
            handle.cancel(in_flight.clone());
        }
    }

    /// As [`ask_to_end`](Op::ask_to_end), and waits for the end. No cancellation point.
    /// Nothing if the operation was ended before it had an effect: polled again, it is
    /// submitted anew.
    pub(crate) fn poll_stop(&mut self, cx: &mut Context<'_>) -> Poll<Option<T::Output>> {
        self.ask_to_end();
        let OpState::InFlight(in_flight) = &self.at else {
            return Poll::Ready(None);
        };
        let Poll::Ready((mut operation, result)) = in_flight.take(cx.waker()) else {
            self.point.pending_as(cx, WaitKind::Io);
            return Poll::Pending;
        };
        self.at = OpState::Over;
        self.stopping = false;
        self.point.done();
        if let Some(told) = self.told.take() {
            self.point.tell_again(&told);
        }
        if operation.answered(result) && (result == -libc::ECANCELED || result == -libc::EINTR) {
            self.at = OpState::Start(Single::new(operation));
            return Poll::Ready(None);
        }
        Poll::Ready(Some(operation.finish(to_result(result))))
    }

    /// Begins an operation that is not in flight, once it may. The output, if it is over
    /// without the system or was answered at once; nothing, if it is in flight and complete.
    #[inline]
    fn poll_begin(
        &mut self,
        cx: &mut Context<'_>,
        other: Option<&Waker>,
    ) -> Poll<Option<T::Output>> {
        let asks = other.is_none();
        let in_flight = match std::mem::replace(&mut self.at, OpState::Over) {
            OpState::Start(in_flight) => in_flight,
            OpState::InFlight(_) => unreachable!("the caller has looked"),
            OpState::Over => panic!("an operation was polled after completion"),
        };
        match self.poll_enter(cx, asks) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(told)) => {
                self.permit_wait = None;
                let operation = in_flight.never_begun();
                return Poll::Ready(Some(operation.finish(Err(cancelled(told)))));
            }
            Poll::Pending => {
                self.at = OpState::Start(in_flight);
                return Poll::Pending;
            }
        }
        // SAFETY: no other code has it: it was never submitted.
        match unsafe { in_flight.poll_start(cx) } {
            Poll::Ready(Start::Ask) => {}
            Poll::Ready(Start::Answered) => {
                self.permit_wait = None;
                self.point.done();
                return Poll::Ready(Some(in_flight.never_begun().finish(Ok(0))));
            }
            Poll::Pending => {
                self.at = OpState::Start(in_flight);
                self.pending(cx, asks);
                return Poll::Pending;
            }
        }
        let Poll::Ready(permit) = self.poll_permit(cx) else {
            self.at = OpState::Start(in_flight);
            self.pending(cx, asks);
            return Poll::Pending;
        };
        if let Err(over) = self.begin(in_flight, permit, other.unwrap_or(cx.waker())) {
            return Poll::Ready(Some(over));
        }
        if let OpState::InFlight(in_flight) = &self.at
            && !in_flight.is_complete()
        {
            // It has our waker, and the point was asked a moment ago.
            self.pending(cx, asks);
            return Poll::Pending;
        }
        Poll::Ready(None)
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
            // No wait acts on it any more: the next point tells it.
            self.point.tell_again(&told);
        }
        if let OpState::InFlight(in_flight) = std::mem::replace(&mut self.at, OpState::Over) {
            // SAFETY: nobody has given it up yet, and only we take its operation.
            let handle = unsafe { self.handle() };
            if in_flight.give_up()
                && let Some(handle) = handle
            {
                handle.cancel(in_flight);
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

    /// cancel-3: code that only looks after an operation leaves the interrupt to the
    /// job's own wait.
    #[test]
    fn cancel_3_one_that_is_looked_after_takes_no_interrupt() {
        let rt = Runtime::builder().workers(0).build().expect("a runtime");
        rt.block_on(async {
            let (quiet, _other) = UnixStream::pair()?;
            let poll = ops::Poll::new(Arc::new(quiet), libc::POLLIN as u32);
            let mut op = Op::new(Some(IoHandle::current()?), poll);
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
