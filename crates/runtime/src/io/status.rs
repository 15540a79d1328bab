//! Operations that go on by themselves: begun without waiting, asked about,
//! waited for or ended early one by one.

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

/// A in_flight that holds a job open until it completes.
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

/// What an [`IoOp`] needs of its in_flight, whatever it carries.
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

/// An operation that goes on by itself; made by `start_…` of a file, a pipe or a
/// socket.
///
/// It belongs to the job that began it. A cancel of that job leaves it alone
/// while the body runs: [`cancel`](IoOp::cancel) ends it early. When the body is
/// over it is ended early, and the job ends once the system has let go of it. A
/// job that was told to stop begins none: it is over at once, cancelled.
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
/// Awaiting it is *not a point*: it returns when the operation is over, because
/// the buffer comes back only then. `(&mut op).or_cancel().await` is a point, and
/// leaves the operation alone. Dropped, it is ended early, and its result
/// dropped when it comes.
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
    /// Asks for an early end. The operation is over when it says so, and may have
    /// been done all the same; otherwise its error is `ECANCELED`.
    pub fn cancel(&self) {
        if let IoOpState::UnderWay(in_flight) = &self.at {
            in_flight.clone().cancel();
        }
    }

    /// True once it is over: awaiting it returns at once.
    pub fn is_done(&self) -> bool {
        match &self.at {
            IoOpState::UnderWay(in_flight) => in_flight.is_done(),
            IoOpState::Refused(_) | IoOpState::Over => true,
        }
    }

    /// From now on it belongs to the task that `scope` is in, and may go on after
    /// the job that began it. If the body of that task is over, it comes back as
    /// it was.
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

/// Takes note of one operation that the current job has begun by `start_…` and
/// that is over, each once; waits if none is. How many are left, under way or not
/// taken note of; 0 as well if there is none. One whose result was taken is not
/// counted any more. Results are not touched: they are with their [`IoOp`].
///
/// # Cancellation
/// *Not a point*: a job that was told to stop can wait for what it has begun.
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
