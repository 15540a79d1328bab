//! [`IoOp`]: operations that are begun without waiting for them.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use kinfolk_core::kit::{self, Point, Reap, Work};
use kinfolk_core::{Scope, WaitKind};

use super::handle::IoHandle;
use super::in_flight::{InFlight, OpIdCell, Operation, Single, to_result};
use super::op::cancelled;

/// What holds the job open that an operation belongs to.
enum JobHold {
    UnderWay(Option<Work>),
    /// Until the result is taken.
    Complete {
        _unreaped: Option<Work>,
    },
    Over,
}

/// An in-flight operation that holds a job open until it completes.
struct Started<T> {
    in_flight: Arc<Single<T>>,
    held: Mutex<JobHold>,
    handle: Arc<IoHandle>,
    /// How often it has gone over to another job.
    owner: AtomicU32,
    /// One more than the last owner whose body is over.
    stopped: AtomicU32,
    /// Its end was asked for.
    asked: AtomicBool,
}

impl<T: Operation> Started<T> {
    fn held(&self) -> MutexGuard<'_, JobHold> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its result was taken: it is no work of a job any more.
    fn taken(&self) {
        let held = std::mem::replace(&mut *self.held(), JobHold::Over);
        drop(held);
    }

    /// What is called when the body of the job is over.
    fn stop(self: &Arc<Self>, owner: u32) -> impl FnOnce() + Send + 'static {
        let seen = Arc::downgrade(self);
        move || {
            let Some(in_flight) = seen.upgrade() else {
                return;
            };
            in_flight.stopped.fetch_max(owner + 1, Ordering::SeqCst);
            // Not if it has gone over to another job meanwhile.
            if in_flight.owner.load(Ordering::SeqCst) == owner {
                in_flight.cancel();
            }
        }
    }
}

impl<T: Operation> InFlight for Started<T> {
    fn complete(self: Arc<Self>, result: i32) {
        self.in_flight.clone().complete(result);
        let mut work = match &mut *self.held() {
            JobHold::UnderWay(work) => work.take(),
            JobHold::Complete { .. } | JobHold::Over => None,
        };
        if let Some(work) = &mut work {
            work.finish();
        }
        let mut held = self.held();
        let before = match *held {
            JobHold::Over => JobHold::Complete { _unreaped: work },
            _ => std::mem::replace(&mut *held, JobHold::Complete { _unreaped: work }),
        };
        drop(held);
        drop(before);
    }

    fn id_cell(&self) -> &OpIdCell {
        self.in_flight.id_cell()
    }
}

/// What an [`IoOp`] needs of its in-flight record, whatever it carries.
trait Status<O>: Send + Sync {
    fn poll(&self, waker: &Waker) -> Poll<O>;
    fn is_done(&self) -> bool;
    fn cancel(self: Arc<Self>);
    fn give_up(self: Arc<Self>);
    fn direct_to(self: Arc<Self>, scope: &Scope) -> bool;
}

impl<T: Operation> Status<T::Output> for Started<T> {
    fn poll(&self, waker: &Waker) -> Poll<T::Output> {
        self.in_flight.take(waker).map(|(operation, result)| {
            self.taken();
            // Interrupted on its way out of the kernel, because it was asked to.
            let asked = self.asked.load(Ordering::SeqCst);
            let result = match result == -libc::EINTR && asked {
                true => -libc::ECANCELED,
                false => result,
            };
            operation.finish(to_result(result))
        })
    }

    fn is_done(&self) -> bool {
        self.in_flight.is_complete()
    }

    fn cancel(self: Arc<Self>) {
        self.asked.store(true, Ordering::SeqCst);
        let handle = self.handle.clone();
        handle.cancel(self);
    }

    fn give_up(self: Arc<Self>) {
        if self.in_flight.give_up() {
            self.cancel();
        }
    }

    fn direct_to(self: Arc<Self>, scope: &Scope) -> bool {
        let owner = self.owner.load(Ordering::SeqCst) + 1;
        let Some(work) = Work::of_task(scope, self.stop(owner)) else {
            return false;
        };
        // The clock knows of operations, and waits for those that end by themselves.
        let work = work.lets_time_pass();
        self.owner.store(owner, Ordering::SeqCst);
        if self.stopped.load(Ordering::SeqCst) > owner {
            // Its body has ended in between, and its word found the old owner.
            self.clone().cancel();
        }
        let mut held = self.held();
        let before = match &mut *held {
            JobHold::UnderWay(before) => before.replace(work),
            JobHold::Complete { .. } | JobHold::Over => Some(work),
        };
        drop(held);
        drop(before);
        true
    }
}

/// An operation that was begun without waiting for it; made by the `start_…` methods of
/// files, pipes and sockets.
///
/// It belongs to the job that began it. A cancel of that job does not end the operation while
/// the body runs; [`cancel`](IoOp::cancel) does. When the body is over, the operation is
/// cancelled, and the job ends once the system has completed it. In a job that was told, no
/// operation begins: the `IoOp` is over at once, with the error `Cancelled`.
///
/// ```
/// # async fn demo(file: kinfolk_runtime::fs::File) -> kinfolk_core::Result<()> {
/// let first = file.start_read_at(vec![0; 4096], 0);
/// let second = file.start_read_at(vec![0; 4096], 4096);
/// // Both are on their way.
/// let (read, _page) = first.await;
/// read?;
/// second.cancel();
/// let (_read_or_cancelled, _page) = second.await;
/// # Ok(())
/// # }
/// ```
///
/// # Cancellation
/// Awaiting it is *not a point*: it returns when the operation is over, because the buffer
/// comes back only then. `(&mut op).or_cancel().await` is a point, and does not end the
/// operation. Dropping an `IoOp` cancels the operation; its result is dropped when it comes.
#[must_use = "dropping it ends the operation early"]
pub struct IoOp<O> {
    at: IoOpState<O>,
    point: Point,
}

enum IoOpState<O> {
    UnderWay(Arc<dyn Status<O>>),
    /// It was never begun.
    Refused(O),
    Over,
}

// Nothing in it is pinned.
impl<O> Unpin for IoOp<O> {}

/// Begins an operation that goes on by itself.
#[track_caller]
pub(crate) fn start<T: Operation>(handle: &Arc<IoHandle>, operation: T) -> IoOp<T::Output> {
    let point = Point::new();
    let refused = |operation: T, error| IoOp {
        at: IoOpState::Refused(operation.finish(Err(error))),
        point: Point::new(),
    };
    if let Some(told) = kit::cancelled_here() {
        return refused(operation, cancelled(told));
    }
    if let Err(error) = handle.ready() {
        return refused(operation, error);
    }
    let in_flight = Single::new(operation);
    // SAFETY: no other code has it yet.
    let request = unsafe { in_flight.request(handle) };
    let started = Arc::new(Started {
        in_flight,
        held: Mutex::new(JobHold::UnderWay(None)),
        handle: handle.clone(),
        owner: AtomicU32::new(0),
        stopped: AtomicU32::new(0),
        asked: AtomicBool::new(false),
    });
    if kinfolk_core::current_job().is_some() {
        let Some(work) = Work::here(started.stop(0)) else {
            return refused(
                started.in_flight.never_begun(),
                io::Error::other("the job is ending and begins no further operation"),
            );
        };
        // As in `direct_to`.
        *started.held() = JobHold::UnderWay(Some(work.lets_time_pass()));
    }
    handle.submit(started.clone(), &request);
    IoOp {
        at: IoOpState::UnderWay(started),
        point,
    }
}

impl<O> IoOp<O> {
    /// Asks the system to cancel the operation. The operation is over when awaiting it
    /// returns; it may have succeeded before the cancel, otherwise its error is `ECANCELED`.
    pub fn cancel(&self) {
        if let IoOpState::UnderWay(in_flight) = &self.at {
            in_flight.clone().cancel();
        }
    }

    /// Returns true once the operation is over: awaiting it then returns at once.
    pub fn is_done(&self) -> bool {
        match &self.at {
            IoOpState::UnderWay(in_flight) => in_flight.is_done(),
            IoOpState::Refused(_) | IoOpState::Over => true,
        }
    }

    /// Gives the operation to the task that `scope` is in: it may then outlive the job that
    /// began it. If the body of that task is over, the operation is returned unchanged.
    pub fn direct_to(self, scope: &Scope) -> Result<IoOp<O>, IoOp<O>> {
        match &self.at {
            IoOpState::UnderWay(in_flight) if !in_flight.clone().direct_to(scope) => Err(self),
            _ => Ok(self),
        }
    }
}

impl<O> Future for IoOp<O> {
    type Output = O;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<O> {
        if let IoOpState::UnderWay(in_flight) = &self.at {
            // It stays here meanwhile: a waker may panic.
            let polled = in_flight.poll(cx.waker());
            match polled.is_ready() {
                true => {
                    self.at = IoOpState::Over;
                    self.point.done();
                }
                false => self.point.pending_as(cx, WaitKind::Io),
            }
            return polled;
        }
        match std::mem::replace(&mut self.at, IoOpState::Over) {
            IoOpState::UnderWay(_) => unreachable!("it was looked at above"),
            IoOpState::Refused(output) => Poll::Ready(output),
            IoOpState::Over => panic!("an operation was polled after completion"),
        }
    }
}

impl<O> Drop for IoOp<O> {
    fn drop(&mut self) {
        if let IoOpState::UnderWay(in_flight) = std::mem::replace(&mut self.at, IoOpState::Over) {
            in_flight.give_up();
        }
    }
}

impl<O> fmt::Debug for IoOp<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IoOp")
            .field("done", &self.is_done())
            .finish_non_exhaustive()
    }
}

/// Waits until one of the operations that the current job has begun by `start_…` is over;
/// each operation counts once. Returns how many others are left, in flight or not counted
/// yet; 0 if there is none. An operation whose result was taken does not count. Results stay
/// with their [`IoOp`].
///
/// # Cancellation
/// *Not a point*: a job that was told can wait for the operations that it has begun.
pub async fn reap_next() -> usize {
    let (mut point, mut reap) = (Point::new(), Reap::new());
    poll_fn(move |cx| {
        let reaped = reap.poll_reap(cx);
        match reaped.is_ready() {
            true => point.done(),
            false => point.pending_as(cx, WaitKind::Io),
        }
        reaped
    })
    .await
}

/// Waits until every operation that the current job has begun by `start_…` is
/// over.
///
/// # Cancellation
/// *Not a point*; see [`reap_next`].
pub async fn reap_all() {
    while reap_next().await > 0 {}
}
