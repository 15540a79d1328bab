//! One value that is produced elsewhere: a waiter, which is a point, and a completer, on any
//! thread.
//!
//! Three may race: the completer, a cancel, and the drop of the wait. One lock decides: a
//! value goes in once, and comes out once, to the waiter or as undelivered. No user code
//! runs while the lock is held. Modelled in `completion_vs_cancel` and
//! `completion_vs_drop`.

use std::fmt;
use std::panic::Location;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::base::error::{Error, Result};
use crate::base::sync::{Mutex, MutexGuard};
use crate::base::unwind::{Contained, DropsNested, KeptWaker, contained, wake};
use crate::base::wait_kind::WaitKind;
use crate::engine::context;
use crate::more::kit::point::Point;
use crate::points::point;

/// What an operation answers when it is asked to stop; see [`Completion::abort_with`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abort {
    /// It has stopped, or will stop by itself: the waiter returns at once.
    Done,
    /// It cannot be stopped now: the waiter goes on waiting, and returns the value.
    NotNow,
}

/// The error of a [`Completion`] whose completer was dropped before it completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeverCompleted;

impl fmt::Display for NeverCompleted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the `Completer` was dropped before it completed")
    }
}

impl std::error::Error for NeverCompleted {}

type Undelivered<T> = Contained<Arc<dyn Fn(T) + Send + Sync>>;

/// The state of a completion.
enum CompletionStage<T> {
    /// No value yet.
    Open,
    /// The completer was dropped, and there is no value.
    Never,
    /// There is a value, and the waiter has not taken it.
    There(Contained<T>),
    /// The value was taken, or the waiter was dropped.
    Over,
}

struct State<T> {
    stage: CompletionStage<T>,
    /// A value was accepted, even if it was dropped since.
    completed: bool,
    waker: Option<KeptWaker>,
    undelivered: Option<Undelivered<T>>,
}

struct Shared<T>(Mutex<State<T>>, DropsNested<T>);

impl<T> Shared<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_open(&self) -> bool {
        matches!(self.state().stage, CompletionStage::Open)
    }

    /// True if there is a value to wait for: `waker` is woken then.
    fn waits(&self, waker: &Waker) -> bool {
        let new = KeptWaker::new(waker.clone());
        let mut state = self.state();
        if !matches!(state.stage, CompletionStage::Open) {
            return false;
        }
        let old = state.waker.replace(new);
        drop(state);
        drop(old);
        true
    }

    fn take(&self) -> Option<Result<T, NeverCompleted>> {
        let mut state = self.state();
        match state.stage {
            CompletionStage::Open => None,
            CompletionStage::Never => Some(Err(NeverCompleted)),
            CompletionStage::There(_) | CompletionStage::Over => match take(&mut state.stage) {
                CompletionStage::There(value) => Some(Ok(value.into_inner())),
                _ => unreachable!("a completion is polled by its one waiter"),
            },
        }
    }

    /// The waiter is dropped: returns the value, if there is one.
    fn close(&self) -> CompletionStage<T> {
        let mut state = self.state();
        let (stage, waker) = (take(&mut state.stage), state.waker.take());
        if let CompletionStage::There(_) = stage {
            // Accepted, and then not delivered.
            state.completed = false;
        }
        drop(state);
        drop(waker);
        stage
    }

    /// A value that the waiter does not take.
    fn give_back(&self, value: T) {
        let undelivered = self.state().undelivered.clone();
        give_back(undelivered, self.1, value);
    }
}

fn take<T>(stage: &mut CompletionStage<T>) -> CompletionStage<T> {
    std::mem::replace(stage, CompletionStage::Over)
}

/// Hands a value that the waiter does not take to `on_undelivered`. That code runs outside
/// any job, and a panic in it ends here: the caller may be C.
///
/// Without `on_undelivered` the value is dropped. If each value of a chain owns the wait
/// for the next, they are dropped by a loop.
fn give_back<T>(undelivered: Option<Undelivered<T>>, drops: DropsNested<T>, value: T) {
    let _none = context::leave();
    match undelivered {
        Some(undelivered) => drop(contained(move || undelivered(value))),
        None => drops.discard(value),
    }
}

/// Makes a pair: a [`Completion`] to await, and the [`Completer`] that gives it its value.
///
/// ```
/// # use kinfolk_core as kinfolk;
/// # async fn demo() -> kinfolk::Result<()> {
/// let (wait, completer) = kinfolk::kit::completion();
/// std::thread::spawn(move || completer.complete(7));
/// assert_eq!(wait.await?, 7);
/// # Ok(())
/// # }
/// ```
#[track_caller]
pub fn completion<T: 'static>() -> (Completion<T>, Completer<T>) {
    completion_at(Location::caller())
}

/// As [`completion`]; snapshots and reports name `site`.
pub fn completion_at<T: 'static>(
    site: &'static Location<'static>,
) -> (Completion<T>, Completer<T>) {
    let state = State {
        stage: CompletionStage::Open,
        completed: false,
        waker: None,
        undelivered: None,
    };
    let shared = Arc::new(Shared(Mutex::new(state), DropsNested::new()));
    let completion = Completion {
        shared: Some(shared.clone()),
        abort: None,
        begun: false,
        prompt: false,
        stays: false,
        stopped: false,
        point: Point::at(site),
    };
    (completion, Completer(shared))
}

/// Gives a [`Completion`] its value, from any thread or callback. Made by [`completion`].
///
/// If it is dropped without having done so, the wait ends with [`NeverCompleted`].
pub struct Completer<T>(Arc<Shared<T>>);

impl<T> Completer<T> {
    /// Ends the wait with `value`. Returns true for the one call that does; false if there
    /// was a value before, or the waiter is gone: then the value goes to
    /// [`on_undelivered`](Completion::on_undelivered), or is dropped.
    ///
    /// It never waits and never panics. True does not mean that the waiter has taken the
    /// value: it may be told, or dropped, before.
    pub fn complete(&self, value: T) -> bool {
        let mut state = self.0.state();
        if !matches!(state.stage, CompletionStage::Open) {
            let undelivered = state.undelivered.clone();
            drop(state);
            give_back(undelivered, self.0.1, value);
            return false;
        }
        state.stage = CompletionStage::There(Contained::new(value));
        state.completed = true;
        let waker = state.waker.take();
        drop(state);
        wake_waiter(waker);
        true
    }

    /// Ends the wait without a value, as dropping the completer does.
    pub(crate) fn never(&self) {
        let mut state = self.0.state();
        if !matches!(state.stage, CompletionStage::Open) {
            return;
        }
        state.stage = CompletionStage::Never;
        let waker = state.waker.take();
        drop(state);
        wake_waiter(waker);
    }

    /// Returns true if a value was accepted.
    pub(crate) fn has_completed(&self) -> bool {
        self.0.state().completed
    }
}

fn wake_waiter(waker: Option<KeptWaker>) {
    if let Some(waker) = waker {
        wake(waker.into_inner());
    }
}

impl<T> Drop for Completer<T> {
    fn drop(&mut self) {
        self.never();
    }
}

impl<T> fmt::Debug for Completer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Completer(completed: {})", self.has_completed())
    }
}

/// Waits for the value that its [`Completer`] delivers. Made by [`completion`].
///
/// # Cancellation
/// A *point*: told at entry, even if the value is there, unless it has
/// [`begun`](Completion::begun). Told while it waits, it asks the operation to stop
/// ([`abort_with`](Completion::abort_with)) and returns `Cancelled`, unless the answer is
/// [`Abort::NotNow`]: then it goes on waiting, returns the value, and the next point reports
/// the cancel. A value that came before the wait was told is returned; with
/// [`on_undelivered`](Completion::on_undelivered) it goes there instead. Once the wait has
/// returned `Cancelled`, or was dropped, [`Completer::complete`] returns false.
#[must_use = "futures do nothing unless awaited"]
pub struct Completion<T> {
    /// None once the wait is over.
    shared: Option<Arc<Shared<T>>>,
    abort: Option<Contained<Box<dyn FnOnce() -> Abort + Send>>>,
    begun: bool,
    /// A cancel takes precedence over a value that is there.
    prompt: bool,
    /// The wait cannot be given up any more.
    stays: bool,
    /// The operation has stopped: there will be no value.
    stopped: bool,
    point: Point,
}

// Nothing in it is pinned.
impl<T> Unpin for Completion<T> {}

impl<T> Completion<T> {
    /// Sets a function that receives each value that this wait does not return, because the
    /// waiter was told or dropped before it took the value, or because there was a value
    /// before. So a delivered value is either returned or given to `f`, once.
    ///
    /// `f` runs on the completer's thread or the waiter's, outside any job, and must not
    /// block. A panic in it is contained.
    pub fn on_undelivered(mut self, f: impl Fn(T) + Send + Sync + 'static) -> Self {
        self.prompt = true;
        self.give_back_to(f);
        self
    }

    /// Sets a function that asks the operation to stop. It is called once, if the waiter is
    /// told or dropped before the value came, and may call the completer.
    ///
    /// Its answer says whether the waiter goes on waiting: see [`Abort`]. If the waiter was
    /// dropped, the answer is ignored.
    pub fn abort_with(mut self, f: impl FnOnce() -> Abort + Send + 'static) -> Self {
        let before = self.abort.replace(Contained::new(Box::new(f)));
        drop(before);
        self
    }

    pub(crate) fn give_back_to(&self, f: impl Fn(T) + Send + Sync + 'static) {
        if let Some(shared) = &self.shared {
            let new: Undelivered<T> = Contained::new(Arc::new(f));
            let old = shared.state().undelivered.replace(new);
            // It may own a completer, whose drop takes the lock.
            drop(old);
        }
    }

    /// Says that the operation has begun and may have taken effect: a value that is there is
    /// returned at entry too, and the next point reports the cancel. If there is no value
    /// yet, the operation is asked to stop at entry, as at any later time.
    ///
    /// For an operation that is begun before its wait: call
    /// [`checkpoint`](crate::checkpoint) before you begin it.
    pub fn begun(mut self) -> Self {
        self.begun = true;
        self
    }

    /// The waiter is told: asks the operation to stop, once.
    fn ask_to_stop(&mut self, shared: &Shared<T>) {
        if !shared.is_open() {
            return;
        }
        if let Some(abort) = self.abort.take() {
            match abort.into_inner()() {
                Abort::Done => self.stopped = true,
                Abort::NotNow => self.stays = true,
            }
        }
    }

    /// The wait is over. A value that came while the point was told is returned, unless
    /// the cancel takes precedence.
    fn give_up(&mut self, shared: &Shared<T>) -> Option<T> {
        self.point.done();
        self.shared = None;
        match shared.close() {
            CompletionStage::There(value) if self.begun && !self.prompt && !self.stopped => {
                Some(value.into_inner())
            }
            CompletionStage::There(value) => {
                shared.give_back(value.into_inner());
                None
            }
            CompletionStage::Open | CompletionStage::Never | CompletionStage::Over => None,
        }
    }
}

impl<T> Future for Completion<T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T>> {
        let this = self.get_mut();
        let shared = this
            .shared
            .clone()
            .expect("a completion was polled after completion");
        // A value that is there is returned, and the next point reports the
        // cancel.
        let mut got = None;
        if this.begun && !this.prompt && !shared.is_open() {
            // Before the value is taken out: this may drop a waker, and that
            // may panic.
            this.point.done();
            got = shared.take();
        }
        if got.is_none() && !this.stays && point::is_marked() {
            this.ask_to_stop(&shared);
        }
        if got.is_none() && !this.stays {
            match this.point.poll_enter(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(told)) => {
                    // The value may have come just now, between the two checks.
                    this.ask_to_stop(&shared);
                    if this.stays {
                        this.point.tell_again(&told);
                    } else if let Some(value) = this.give_up(&shared) {
                        this.point.tell_again(&told);
                        return Poll::Ready(Ok(value));
                    } else {
                        return Poll::Ready(Err(told.into()));
                    }
                }
                Poll::Ready(Ok(())) if this.stopped => {
                    // The operation was asked to stop in a job that was
                    // cancelled, and did; then the wait was moved to another job.
                    this.give_up(&shared);
                    return Poll::Ready(Err(never()));
                }
                Poll::Ready(Ok(())) => {}
            }
        }
        this.begun = true;
        if got.is_none() && !shared.waits(cx.waker()) {
            this.point.done();
            got = shared.take();
        }
        match got {
            Some(result) => {
                this.shared = None;
                Poll::Ready(result.map_err(|NeverCompleted| never()))
            }
            None => {
                this.point.pending_as(cx, WaitKind::Completion);
                Poll::Pending
            }
        }
    }
}

fn never() -> Error {
    Error::from_boxed(Box::new(NeverCompleted))
}

impl<T> Drop for Completion<T> {
    fn drop(&mut self) {
        let Some(shared) = self.shared.take() else {
            return;
        };
        match shared.close() {
            CompletionStage::There(value) => shared.give_back(value.into_inner()),
            CompletionStage::Open => {
                if let Some(abort) = self.abort.take() {
                    contained(move || {
                        let _nobody_waits = abort.into_inner()();
                    });
                }
            }
            CompletionStage::Never | CompletionStage::Over => {}
        }
    }
}

impl<T> fmt::Debug for Completion<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completion")
            .field("over", &self.shared.is_none())
            .finish_non_exhaustive()
    }
}
