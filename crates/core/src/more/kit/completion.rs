//! A value that somebody else brings: the one who waits, at a point, and the
//! one who completes it, on any thread.
//!
//! Three may race: the completer, a cancel, and the drop of the wait. One lock
//! decides: a value goes in once, and comes out once, to the waiter or as
//! undelivered. Nobody's code runs while it is held. Modelled in
//! `completion_vs_cancel` and `completion_vs_drop`.

use std::fmt;
use std::panic::Location;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::base::error::{Error, Result};
use crate::base::sync::{Mutex, MutexGuard};
use crate::base::unwind::{Contained, contained, wake};
use crate::base::wait_kind::WaitKind;
use crate::engine::context;
use crate::more::kit::point::Point;
use crate::points::point;

/// What an operation answers when it is asked to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abort {
    /// It has stopped, or will by itself: nobody waits for it any more.
    Done,
    /// It cannot be stopped now: it is waited for, and returns what it brings.
    NotNow,
}

/// Whoever was to complete it is gone without having done so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeverCompleted;

impl fmt::Display for NeverCompleted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it was never completed: its completer is gone")
    }
}

impl std::error::Error for NeverCompleted {}

type Undelivered<T> = Contained<Arc<dyn Fn(T) + Send + Sync>>;

/// How far it has come.
enum Stage<T> {
    /// No value yet.
    Open,
    /// The completer is gone, and there is none.
    Never,
    /// There is one, and nobody has taken it.
    There(T),
    /// It was taken, or nobody waits any more.
    Over,
}

struct State<T> {
    stage: Stage<T>,
    /// A value was accepted, whatever became of it.
    completed: bool,
    waker: Option<Contained<Waker>>,
    undelivered: Option<Undelivered<T>>,
}

struct Shared<T>(Mutex<State<T>>);

impl<T> Shared<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_open(&self) -> bool {
        matches!(self.state().stage, Stage::Open)
    }

    /// True if there is something to wait for: `waker` is woken then.
    fn waits(&self, waker: &Waker) -> bool {
        let new = Contained::new(waker.clone());
        let mut state = self.state();
        if !matches!(state.stage, Stage::Open) {
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
            Stage::Open => None,
            Stage::Never => Some(Err(NeverCompleted)),
            Stage::There(_) | Stage::Over => match take(&mut state.stage) {
                Stage::There(value) => Some(Ok(value)),
                _ => unreachable!("a completion is polled by its one waiter"),
            },
        }
    }

    /// Nobody waits any more; what there was.
    fn close(&self) -> Stage<T> {
        let mut state = self.state();
        let (stage, waker) = (take(&mut state.stage), state.waker.take());
        if let Stage::There(_) = stage {
            // Accepted, and not delivered after all.
            state.completed = false;
        }
        drop(state);
        drop(waker);
        stage
    }

    /// A value for nobody.
    fn give_back(&self, value: T) {
        let undelivered = self.state().undelivered.clone();
        give_back(undelivered, value);
    }
}

fn take<T>(stage: &mut Stage<T>) -> Stage<T> {
    std::mem::replace(stage, Stage::Over)
}

/// A value for nobody. What its author does with it belongs to no job, and
/// ends here if it panics: the caller may be C.
fn give_back<T>(undelivered: Option<Undelivered<T>>, value: T) {
    let _none = context::leave();
    contained(move || match undelivered {
        Some(undelivered) => undelivered(value),
        None => drop(value),
    });
}

/// A wait, and the one who ends it.
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
pub fn completion<T>() -> (Completion<T>, Completer<T>) {
    completion_at(Location::caller())
}

/// As [`completion`]; snapshots and reports name `site`.
pub fn completion_at<T>(site: &'static Location<'static>) -> (Completion<T>, Completer<T>) {
    let shared = Arc::new(Shared(Mutex::new(State {
        stage: Stage::Open,
        completed: false,
        waker: None,
        undelivered: None,
    })));
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

/// Brings the value, from any thread or callback. Made by [`completion`].
///
/// Dropped without having done so, it ends the wait with [`NeverCompleted`].
pub struct Completer<T>(Arc<Shared<T>>);

impl<T> Completer<T> {
    /// Ends the wait with `value`. True for the one call that does. False if
    /// there was a value before, or nobody waits any more: then the value goes
    /// to [`on_undelivered`](Completion::on_undelivered), or is dropped.
    ///
    /// It never waits and never panics. True does not mean that the value has
    /// arrived: the waiter may be told, or dropped, before it takes it.
    pub fn complete(&self, value: T) -> bool {
        let mut state = self.0.state();
        if !matches!(state.stage, Stage::Open) {
            let undelivered = state.undelivered.clone();
            drop(state);
            give_back(undelivered, value);
            return false;
        }
        state.stage = Stage::There(value);
        state.completed = true;
        let waker = state.waker.take();
        drop(state);
        wake_waiter(waker);
        true
    }

    /// No value will come: as if it were dropped.
    pub(crate) fn never(&self) {
        let mut state = self.0.state();
        if !matches!(state.stage, Stage::Open) {
            return;
        }
        state.stage = Stage::Never;
        let waker = state.waker.take();
        drop(state);
        wake_waiter(waker);
    }

    /// True if a value was accepted.
    pub(crate) fn has_completed(&self) -> bool {
        self.0.state().completed
    }
}

fn wake_waiter(waker: Option<Contained<Waker>>) {
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

/// Waits for the value that its [`Completer`] brings. Made by [`completion`].
///
/// # Cancellation
/// A *point*: told at entry, even if the value is there, unless it has
/// [`begun`](Completion::begun). Told while it waits, it
/// asks the operation to stop ([`abort_with`](Completion::abort_with)) and
/// returns `Cancelled`, unless the answer is [`Abort::NotNow`]: then it waits
/// on, returns the value, and the next point tells. A value that came before it
/// was told is returned; with [`on_undelivered`](Completion::on_undelivered) it
/// goes there instead. Once it has returned `Cancelled`, or was dropped, nobody
/// waits: the completer gets false.
#[must_use = "futures do nothing unless awaited"]
pub struct Completion<T> {
    /// None once it is over.
    shared: Option<Arc<Shared<T>>>,
    abort: Option<Contained<Box<dyn FnOnce() -> Abort + Send>>>,
    begun: bool,
    /// Told comes before a value that is there.
    prompt: bool,
    /// It cannot be given up any more.
    stays: bool,
    /// The operation has stopped: there will be no value.
    stopped: bool,
    point: Point,
}

// Nothing in it is pinned.
impl<T> Unpin for Completion<T> {}

impl<T> Completion<T> {
    /// `f` gets each value that is not returned here: because the waiter was
    /// told or dropped before it took it, or because there was one before. So a
    /// value that was brought is returned or given to `f`, once.
    ///
    /// It runs on the thread of whoever found out, the completer's or the
    /// waiter's, outside every job, and may only schedule. A panic in it ends
    /// there.
    pub fn on_undelivered(mut self, f: impl Fn(T) + Send + Sync + 'static) -> Self {
        self.prompt = true;
        self.give_back_to(f);
        self
    }

    /// Asks the operation to stop: called once, if the waiter is told or
    /// dropped before the value came. It may also call the completer.
    ///
    /// The answer says whether it is waited for: see [`Abort`]. If the waiter
    /// was dropped, nobody is there to wait.
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

    /// What is waited for has begun, and may have taken effect: a value that is
    /// there is returned at entry too, and the next point tells. If there is none
    /// yet, it is asked to stop at entry as at any later time.
    ///
    /// For an operation that is begun before its wait: ask with a
    /// [`checkpoint`](crate::checkpoint) before that.
    pub fn begun(mut self) -> Self {
        self.begun = true;
        self
    }

    /// There is something to tell: the operation hears it first, once.
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

    /// Nobody waits any more. A value that came while the point told is there
    /// to be returned, if told does not come first.
    fn give_up(&mut self, shared: &Shared<T>) -> Option<T> {
        self.point.done();
        self.shared = None;
        match shared.close() {
            Stage::There(value) if self.begun && !self.prompt && !self.stopped => Some(value),
            Stage::There(value) => {
                shared.give_back(value);
                None
            }
            Stage::Open | Stage::Never | Stage::Over => None,
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
            .expect("a completion was polled after it was over");
        // What has taken effect is returned, and the next point tells.
        let mut got = None;
        if this.begun && !this.prompt && !shared.is_open() {
            // Before the value is out: it may drop a waker, and that may panic.
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
                    // It may have come just now, between the two looks.
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
                    // Asked to stop in a job that was cancelled, it did; and then
                    // it came to another job.
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
            Stage::There(value) => shared.give_back(value),
            Stage::Open => {
                if let Some(abort) = self.abort.take() {
                    contained(move || {
                        let _nobody_waits = abort.into_inner()();
                    });
                }
            }
            Stage::Never | Stage::Over => {}
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
