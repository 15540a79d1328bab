//! Blocking calls: code that must block runs on a thread of the host's blocking pool, and
//! the job that made the call stays open until the call has returned.

use std::fmt;
use std::panic::Location;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::base::error::{Error, Result};
use crate::base::questions::Asks;
use crate::base::unwind::{Contained, KeptWaker, Payload, caught, wake};
use crate::base::wait_kind::WaitKind;
use crate::engine::blocking_call::{BlockingCall, RunCall};
use crate::engine::context;
use crate::engine::hook::report_panic;
use crate::engine::lease::Share;
use crate::points::point::{self, InterruptedTask, Yielded};
use crate::points::wait::Wait;
use crate::record::header::{JobRef, Site};
use crate::surface::scope::Scope;

/// Passed to a blocking call, which can ask it whether the call should stop.
#[derive(Clone)]
pub struct Caller {
    cancelled: Arc<AtomicBool>,
    /// Called at each question, for the host.
    asks: Option<Asks>,
}

impl Caller {
    /// Returns true once the task that waits for the call has been cancelled: the call should
    /// return soon.
    ///
    /// In a simulated test other tasks may run here. With virtual time, simulated or not, a call
    /// that asks again and again does not stop the clock.
    pub fn is_cancelled(&self) -> bool {
        if let Some(asks) = &self.asks {
            asks(&self.cancelled);
        }
        self.cancelled.load(Ordering::Acquire)
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cancelled = self.cancelled.load(Ordering::Acquire);
        write!(f, "Caller(cancelled: {cancelled})")
    }
}

/// How far a call has come.
enum CallStage<T> {
    /// In the host's queue.
    Queued,
    /// On a thread.
    Running,
    /// Called off before it began.
    CalledOff,
    /// It has returned or panicked; or the host dropped it.
    Over(Result<Contained<T>, CallFailed>),
    Taken,
}

enum CallFailed {
    Panicked(Payload),
    HostGone,
}

struct State<T> {
    stage: CallStage<T>,
    waker: Option<KeptWaker>,
    /// Keeps a job open until the call has returned: the job that made the
    /// call, or the one below the root to which the call was left.
    share: Option<Share>,
    /// The last future that would take the result is gone.
    unawaited: bool,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    cancelled: Arc<AtomicBool>,
    /// The job that made the call.
    asker: JobRef,
}

impl<T> Shared<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn finish(&self, result: Result<Contained<T>, CallFailed>) {
        let (waker, share, unawaited) = {
            let mut state = self.state();
            state.stage = CallStage::Over(result);
            (state.waker.take(), state.share.take(), state.unawaited)
        };
        if unawaited {
            // Before the share is dropped: the runtime does not end without the
            // report.
            self.report_if_panicked();
        }
        // The share first: then the waiter ends without another turn.
        drop(share);
        if let Some(waker) = waker {
            wake(waker.into_inner());
        }
    }

    /// Calls it off if it has not begun. True if the call will never run.
    fn call_off(&self) -> bool {
        let mut state = self.state();
        match state.stage {
            CallStage::Queued => {}
            CallStage::CalledOff => return true,
            _ => return false,
        }
        state.stage = CallStage::CalledOff;
        let share = state.share.take();
        drop(state);
        drop(share);
        true
    }

    /// The future that would take the result is dropped. A panic that no future takes
    /// is reported: here, or when the call is over.
    fn nobody_waits(&self) {
        self.state().unawaited = true;
        self.report_if_panicked();
    }

    fn report_if_panicked(&self) {
        let mut state = self.state();
        if !matches!(state.stage, CallStage::Over(Err(CallFailed::Panicked(_)))) {
            return;
        }
        let stage = std::mem::replace(&mut state.stage, CallStage::Taken);
        drop(state);
        if let CallStage::Over(Err(CallFailed::Panicked(payload))) = stage {
            self.report(payload);
        }
    }

    /// Gives a panic of the call that no future takes to the failure hook.
    #[cold]
    fn report(&self, payload: Payload) {
        report_panic(&self.asker, "in a blocking call", payload);
    }

    fn is_queued(&self) -> bool {
        matches!(self.state().stage, CallStage::Queued)
    }

    /// The value of the call, if it is over; else the call wakes `waker` then.
    fn poll(&self, waker: &Waker) -> Option<Result<Contained<T>, CallFailed>> {
        let new = KeptWaker::new(waker.clone());
        let mut state = self.state();
        if let CallStage::Over(_) = state.stage {
            let stage = std::mem::replace(&mut state.stage, CallStage::Taken);
            drop(state);
            return match stage {
                CallStage::Over(over) => Some(over),
                _ => unreachable!("looked at under the lock"),
            };
        }
        let old = state.waker.replace(new);
        drop(state);
        drop(old);
        None
    }
}

impl<T: Send + 'static> Shared<T> {
    /// Leaves a running call to a job below the root. False if the root takes
    /// no more children: then the call stays with the job that made it.
    fn leave_to_root(self: &Arc<Self>, root: &Scope, site: Site) -> bool {
        let ended = Ended {
            shared: self.clone(),
            wait: Wait::new(),
            site,
        };
        let Ok(task) = root.task("blocking").try_spawn(ended) else {
            return false;
        };
        let job = task.into_job();
        let share = Share::of(Scope::of_job(&job).header());
        let mut state = self.state();
        let old = match state.stage {
            CallStage::Running => std::mem::replace(&mut state.share, share),
            // The call has returned meanwhile.
            _ => share,
        };
        drop(state);
        drop(old);
        true
    }
}

/// The call as the host holds it.
struct QueuedCall<F, T> {
    call: Option<Contained<F>>,
    shared: Arc<Shared<T>>,
}

impl<F, T> RunCall for QueuedCall<F, T>
where
    F: FnOnce(Caller) -> T + Send,
    T: Send,
{
    fn run(mut self: Box<Self>, asks: Option<Asks>) {
        {
            let mut state = self.shared.state();
            if !matches!(state.stage, CallStage::Queued) {
                return;
            }
            state.stage = CallStage::Running;
        }
        let Some(call) = self.call.take() else { return };
        let caller = Caller {
            cancelled: self.shared.cancelled.clone(),
            asks,
        };
        let result = caught(|| call.into_inner()(caller)).map_err(CallFailed::Panicked);
        self.shared.finish(result.map(Contained::new));
    }
}

impl<F, T> Drop for QueuedCall<F, T> {
    fn drop(&mut self) {
        let Some(call) = self.call.take() else { return };
        // Called off, or dropped unrun by the host.
        drop(call);
        if matches!(self.shared.state().stage, CallStage::Queued) {
            self.shared.finish(Err(CallFailed::HostGone));
        }
    }
}

/// Runs `call` on a thread of the host's blocking pool and waits for it.
///
/// If the job is cancelled before the call has begun, the call never begins. A call that
/// runs is always awaited, even if the job is cancelled; the call can ask
/// `caller.is_cancelled()`. [`abandon`](Blocking::abandon) makes a cancelled job go on
/// without the call. If this future is dropped, the job still stays open until the call has
/// returned.
///
/// ```
/// # use kinfolk_core as kinfolk;
/// # async fn demo() -> kinfolk::Result<()> {
/// let words = kinfolk::blocking(|_| std::fs::read_to_string("words.txt")).await??;
/// # Ok(())
/// # }
/// ```
///
/// Outside any job the result is an error of kind `Failed`, and the call is not made.
///
/// # Cancellation
/// A *point* until the call has begun; from then on it returns what the call returns, and a
/// cancel is reported by the next point. A panic in the call is an error of kind `Panicked`;
/// if this future was dropped before, the panic goes to the failure hook.
#[track_caller]
#[must_use = "futures do nothing unless awaited"]
pub fn blocking<F, T>(call: F) -> Blocking<F, T>
where
    F: FnOnce(Caller) -> T + Send + 'static,
    T: Send + 'static,
{
    blocking_at(Location::caller(), call)
}

/// As [`blocking`]; snapshots and reports name `site`.
#[must_use = "futures do nothing unless awaited"]
pub fn blocking_at<F, T>(site: &'static Location<'static>, call: F) -> Blocking<F, T>
where
    F: FnOnce(Caller) -> T + Send + 'static,
    T: Send + 'static,
{
    Blocking {
        call: Some(Contained::new(call)),
        begun: None,
        abandon: false,
        yielded: Yielded::at(Site::of(site)),
        wait: Wait::new(),
        site: Site::of(site),
    }
}

/// The future of [`blocking`].
#[must_use = "futures do nothing unless awaited"]
pub struct Blocking<F, T>
where
    F: FnOnce(Caller) -> T + Send + 'static,
    T: Send + 'static,
{
    call: Option<Contained<F>>,
    begun: Option<(Arc<Shared<T>>, Scope)>,
    abandon: bool,
    yielded: Yielded,
    wait: Wait,
    site: Site,
}

impl<F, T> Unpin for Blocking<F, T>
where
    F: FnOnce(Caller) -> T + Send + 'static,
    T: Send + 'static,
{
}

impl<F, T> Blocking<F, T>
where
    F: FnOnce(Caller) -> T + Send + 'static,
    T: Send + 'static,
{
    /// Lets a cancelled job go on at once: the call continues as a job below the root, and
    /// its result is dropped. The same happens if this future is dropped.
    pub fn abandon(mut self) -> Self {
        self.abandon = true;
        self
    }

    fn begin(&mut self) -> Result<Arc<Shared<T>>> {
        let call = self
            .call
            .take()
            .expect("a blocking call was polled after completion");
        let Some(scope) = Scope::current() else {
            let at = self.site.location();
            return Err(Error::msg(format!(
                "a blocking call at {}:{} was polled outside any Kinfolk job, where there is \
                 no pool to run it on: run it inside a runtime",
                at.file(),
                at.line()
            )));
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                stage: CallStage::Queued,
                waker: None,
                share: Share::of(scope.header()),
                unawaited: false,
            }),
            cancelled: Arc::default(),
            asker: JobRef::from_header(scope.header()),
        });
        let work = QueuedCall {
            call: Some(call),
            shared: shared.clone(),
        };
        // SAFETY: the current job has not ended.
        let tree = unsafe { scope.header().tree() }.handle();
        self.begun = Some((shared.clone(), tree.root_scope()));
        tree.host().run_blocking(BlockingCall {
            work: Box::new(work),
            site: self.site,
        });
        Ok(shared)
    }
}

impl<F, T> Future for Blocking<F, T>
where
    F: FnOnce(Caller) -> T + Send + 'static,
    T: Send + 'static,
{
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T>> {
        let this = self.get_mut();
        let shared = match &this.begun {
            Some((shared, _)) => shared.clone(),
            None => {
                std::task::ready!(point::poll_point_at(cx, &mut this.yielded, this.site))?;
                this.begin()?
            }
        };
        if let Some(over) = shared.poll(cx.waker()) {
            this.wait.over();
            this.begun = None;
            return Poll::Ready(match over {
                Ok(value) => Ok(value.into_inner()),
                Err(CallFailed::Panicked(payload)) => Err(Error::panicked(payload)),
                Err(CallFailed::HostGone) => Err(Error::msg(
                    "the host is gone: the blocking call was never made",
                )),
            });
        }
        if point::is_marked()
            && let Some(job) = context::current()
        {
            shared.cancelled.store(true, Ordering::Release);
            if shared.call_off() || this.abandon {
                this.wait.over();
                this.let_go();
                return Poll::Ready(Err(point::tell(&job, Some(this.site.location())).into()));
            }
        } else if point::must_look()
            && (this.abandon || shared.is_queued())
            && let Some(told) = point::take_interrupt()
        {
            // An interrupt. It is taken first: if it were gone by now, a call
            // that is called off would have no error to return.
            if this.abandon || shared.call_off() {
                this.wait.over();
                this.let_go();
                return Poll::Ready(Err(told.into()));
            }
            // It has begun meanwhile: for the next point.
            InterruptedTask::default().tell_again(&told);
        }
        this.wait.pending(cx.waker(), WaitKind::Blocking, this.site);
        Poll::Pending
    }
}

impl<F, T> Blocking<F, T>
where
    F: FnOnce(Caller) -> T + Send + 'static,
    T: Send + 'static,
{
    /// The future waits for the call no longer.
    fn let_go(&mut self) {
        if let Some((shared, root)) = self.begun.take() {
            shared.cancelled.store(true, Ordering::Release);
            let off = shared.call_off();
            if off || !self.abandon || !shared.leave_to_root(&root, self.site) {
                shared.nobody_waits();
            }
        }
    }
}

impl<F, T> Drop for Blocking<F, T>
where
    F: FnOnce(Caller) -> T + Send + 'static,
    T: Send + 'static,
{
    fn drop(&mut self) {
        self.let_go();
    }
}

impl<F, T> fmt::Debug for Blocking<F, T>
where
    F: FnOnce(Caller) -> T + Send + 'static,
    T: Send + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Blocking")
    }
}

/// The body of the job below the root to which an abandoned call is left. *Not
/// a point*: only the call's end ends it.
struct Ended<T> {
    shared: Arc<Shared<T>>,
    wait: Wait,
    site: Site,
}

impl<T> Future for Ended<T> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        if let Some(over) = this.shared.poll(cx.waker()) {
            this.wait.over();
            if let Err(CallFailed::Panicked(payload)) = over {
                this.shared.report(payload);
            }
            return Poll::Ready(());
        }
        this.wait.pending(cx.waker(), WaitKind::Blocking, this.site);
        Poll::Pending
    }
}

impl<T> Drop for Ended<T> {
    fn drop(&mut self) {
        self.shared.nobody_waits();
    }
}
