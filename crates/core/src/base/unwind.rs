//! The panic policy. Code of the user's is called through [`caught`]; what it
//! throws becomes an outcome or a report. No other file of the library catches a panic;
//! the testkit does, whose test it is.
//!
//! Every place where code of the user's runs in a call of ours stands in the table
//! below. There are three rules.
//!
//! - **A panic ends there.** Where the code is the body's own (its poll, and what
//!   that calls in its stead), the panic is the body's, and its job fails. Anywhere
//!   else it is contained: the panic hook has printed it, and our work goes on.
//! - **One by one.** Two destructors that panic in one unwinding abort the program.
//!   So what we keep of the user's stands in a [`Contained`], each in its own, and
//!   may be dropped anywhere by anybody. What may own others of its kind, in a row of
//!   any length, stands in a [`Nested`], which is a `Contained` that does not recurse.
//! - **Outside every lock.** What is replaced, refused or taken out under a lock is
//!   carried out of it and goes there: it may ask the very job whose lock it was.
//!
//! | what runs | where | contained by | lock |
//! |---|---|---|---|
//! | a task's future: poll, drop | `run::take_turn`, `drop_instead`, `drop_half_way`, `abandon`; `cell::Stage::poll` | `caught`: the job fails | none |
//! | a scope's body: open, poll, drop | `inline`: `Inline::poll`, `poll_body`, its drop; one never opened too | `caught`: the scope fails; the drop `contained` | none |
//! | a refused future | `Place::refuse`, `LocalScopeOf::put` | `discard` | none |
//! | a branch that is over or has not begun | `combine`: `poll_in_place`, `lose_in_place`, `Many`, `BranchGroup` | `contained`, `discard` | none |
//! | `or_cancel`: its future, when told | `OrCancelFuture::poll` | `contained` | none |
//! | the same when it has ended, and that of `within` on tokio, `try_shield`, `retry`, `forever`, `restarting` and `OnceCell`: drop | `DropAtEnd`, in the poll | it is the body's; its value is `Contained` meanwhile | none |
//! | an output that is not taken | `cell::drop_output`: the ender, the handle, a turn of the main lane (`untaken`) | `contained` | none; ender and turn are outside any job |
//! | a late value | `task::ended_with`, `not_completed`, `StartService`, `LocalTask::finish` | `discard` | none |
//! | a scope's value that the verdict overrules | `verdict`, `poll_body` | `discard` | none |
//! | values of branches, of a set of tasks, of a local child | `branches::Place`, `TaskSet::done`, `local::Slot` | `Contained` each | none |
//! | a value that no pattern of `select!` matches | `Chosen::ended` | `discard` | none |
//! | the value of a `Shared` task: clone, drop | `Shared::poll`; with the last handle | the clone is its waiter's; `Nested` | taken out under its mutex, cloned outside |
//! | closures of `retry`, `forever` and `restarting`: call, drop | in the poll of the body that awaits them; with the loop | the call is the body's; a run of `restarting` is `caught` with its scope; `Contained` | none |
//! | the `late` of `race` and `any`, what it drops and what it has captured | `Policy::ended`; with the policy | `contained`, `Contained` | none |
//! | an error of the user's: drop | `Error`, `own::Kept`, wherever the last hand on it goes | `Contained` (`Carried`) | `Failures::record` hands out what it replaces ([`Gone`](crate::record::failures::Gone)) |
//! | an error: `source` | `error::next_in`, once, when it becomes ours | `caught`: it has none | none |
//! | an error: `Display`, `Debug` | by the code that prints ours; the failure hook | the hook is `contained` | none |
//! | an error: `Into`, and `From<Error>` of `scope_as` | inside the poll of the body; `own::give_back` after the scope has ended | `caught` with the body; the second is the caller's | none |
//! | what a panic carried: drop | `Payload`: in an `Error`, of a blocking call, of what was `contained` | `Contained` | none |
//! | a waker: wake | `unwind::wake`, everywhere: ends, walks, leaves, joiners, timers of every host, calls, completions, frames, i/o | `caught`; of a cancel or an interrupt the failure hook gets it | none |
//! | a waker: drop | slots (`waker::let_go`), lists and queues (`KeptWaker`), `alarm::clear`; lines and hooks of channels and locks | `Nested`, `discard`, `discard_waker` | taken out under it, dropped outside |
//! | a waker: clone; wake by a yield | at the start of a poll, before anything changes; `waker::go_round`, after all has | it is the body's | none |
//! | a hook, for the end of another job too: call, drop | `HookCell::fire`, `disarm`; with the cell | `caught`: the failure hook gets it; `Nested` | taken out of its own mutex first; outside any job |
//! | what stops work beside the body | `Stops::call`, `Work::of`, `Work` | `contained`, `Nested` | none |
//! | a completion: value, `on_undelivered`, `abort_with` | `completion::give_back`, its drops; the poll | `Nested`, `contained`, `Contained`; in the poll it is the body's | none |
//! | values, wakers and hooks in channels and locks | `kinfolk-sync`: `line::Wakes`, `mpmc::shared` | `wake`, `Contained`, `contained`; a clone of a broadcast value is its receiver's | none |
//! | a blocking call: call, captures, value | `blocking::Work` | `caught`, `Contained` | none |
//! | a task-local: drop | `cold::clear_local`, `Local::with`, the cold part | `Contained` | none |
//! | the cold part of a job | `Header::free_listed_parts` | all of the above, each by itself | no other code has it |
//! | a sink beside others: call | `Sinks` in `kinfolk-see` | `contained`: it is called no more | none |
//! | a sink: call, drop | `Shared::tell` | `caught`: it is called no more, and the failure hook gets it; `Contained` | none |
//! | failure hook (from the drop of a combinator too), forced hook, wake hook: call, drop | `report_failure`, `note_forced`, `MainThread::tell` | `contained`, `Contained` | none |
//! | a span of `tracing` | with the future it belongs to; at the spawn it is the caller's | `caught` with the future | none |
//! | a timer's factory: call, drop | `factory::SharedFactory::make`, in the poll of the run; with the driver and the last run | `caught`: the run fails; `Contained` | taken out of its mutex first |
//! | a closure that makes a future: call, drop | `MadeThere::poll` (`spawn_with`), `service::begin` (`start`, `start_service`) | `caught` with the task; the second is the starter's, and `Contained` until it is called | none |
//! | `IntoOutcome::into_result` | `cell::Stage::poll`, `inline::poll_body`, `local::Deliver` | `caught` with the body | none |
//! | items and closure of `for_each_concurrent`: next, call, drop | `ForEach::take_items`; with the call | the calls are the body's; `Contained` each | none |
//! | futures of `TaskSet::extend`, items and closure of `TaskSet::map`: next, call, drop | `ExtendSet::poll`, `MapBody::poll`; with the call | the calls are the body's; `Contained` each | none |
//! | an iterator of branches: next, drop | `Branches::open`, before there is a future | it is the caller's; branches it made are `contained` | none |
//! | a stream made a point: poll, drop | `OrCancelItems` | it is the body's | none |
//! | `with_world`, `Local::with` and `get`: call, clone | in the poll that calls them | it is the body's; the world is put back | none |
//! | the body of `scope_blocking`: call | `Runtime::scope_blocking` | `and_after`: goes on in the caller once the children have ended | none |
//! | a subscriber of `tracing` that is told what the library says | `say::with_tracing::write`, on the thread that speaks | `contained` | none |
//! | a point hook: call, drop | `Shared::watched_point`, in the poll of the point | it is the body's; `Contained` | none |
//! | a buffer of i/o: `filled`, `room`, `set_filled` | in the poll that begins the operation or takes its result (`Operation::request`, `Operation::finish`); `start` of an operation is in its caller | it is the body's; `Contained` while it is filled | none |
//! | a buffer of i/o whose waiter is gone | `in_flight::adopt` in the runtime | `contained` | none |
//! | a stream of the program's: `read_into`, `write_from`, `end`, its futures: poll, drop | in the poll of `BufReader`, `BufWriter`, `Copy`, `CopyBidirectional`; with them | it is the body's, and one that panics is not polled again; `Contained` each | none |
//! | a value that a lock or watch holds: `send_modify`, `wait_for`; the future that makes a `OnceCell` | in the call, in the poll that awaits | it is the caller's; a copy that is changed is `Contained` | none; a cell stays empty |
//! | a tokio task behind `adopt`: its value, what its panic carried | `adopt::outcome`, in the poll of the child; dropped by tokio, which contains it | its panic is the child's | none |
//! | a connection and its `stop` under `serve`, services of hyper; futures of `Executor` | in the poll of the body that serves; each a task of the scope | it is the body's, `Contained` each; `caught` as any task | none |
//! | a listener of `kinfolk-tower`'s server: call, poll, drop; `Debug` of a peer, clone of the service | `server::accept`, `name_of`, `clone_of`, `Server::run` | `contained`, `discard`: asked again, without a name, its connection is closed | none |
//! | a clock, a driver or a system of i/o that the program has written | its host asks them, in a poll or outside every turn | in a poll it is the body's; outside it ends the process: see below | none of the model's; a driver is asked under its own thread's |
//!
//! The last line of defence: a turn that unwinds all the same is a bug of ours. It
//! loses its job, and neither a worker (`Worker::run`), the main thread
//! (`Runtime::drive`) nor a thread of the pool (`BlockingPool::serve`); on tokio it is the
//! end of the root, as if the runtime were gone. A worker or a main thread
//! that unwinds outside a turn, by a `Clock` of the user's, say, aborts the process: its
//! counts are wrong, and others would wait for it.
//!
//! `tests/hostile.rs` builds programs at random from types that do their worst in
//! these places; the cases of `hostile.rs` in the conformance suite take them one by
//! one.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

use crate::base::sync::local;

/// What a panic carried. It may be dropped anywhere: a destructor of it that
/// panics ends there.
pub(crate) struct Payload(Contained<Box<dyn Any + Send>>);

impl Payload {
    /// The words of the panic, where it has any.
    pub(crate) fn message(&self) -> &str {
        message_of(&**self.0)
    }

    /// For code that resumes the panic.
    pub(crate) fn into_box(self) -> Box<dyn Any + Send> {
        self.0.into_inner()
    }
}

/// Runs code of the user's. The state it may have left broken is its own: we
/// drop it and never look at it again, hence the assertion.
pub(crate) fn caught<R>(f: impl FnOnce() -> R) -> Result<R, Payload> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|payload| Payload(Contained::new(payload)))
}

/// Runs code whose panic has nowhere to go (a waker, a sink, a destructor of
/// something already decided). The panic hook has printed it; the work of the
/// caller goes on. True if it panicked.
pub fn contained(f: impl FnOnce()) -> bool {
    match caught(f) {
        Ok(()) => false,
        Err(payload) => {
            // What the panic carried is dropped here, contained as well.
            note_contained(&**payload.0);
            true
        }
    }
}

thread_local! {
    /// Where the messages of panics that are contained on this thread go, while a test tool
    /// collects them.
    static COLLECTOR: RefCell<Option<ContainedPanics>> = const { RefCell::new(None) };
}

/// The messages of panics that were contained on the threads that collect into it. For test
/// tools: a program goes on after such a panic, a test must not be green after it.
#[derive(Clone, Debug, Default)]
pub struct ContainedPanics(Arc<Mutex<Vec<String>>>);

impl ContainedPanics {
    /// This thread collects into a new one from now on, until the guard is dropped.
    pub fn collect() -> CollectGuard {
        ContainedPanics::default().collect_here()
    }

    /// What this thread collects into; none if it does not collect.
    pub fn here() -> Option<ContainedPanics> {
        let here = COLLECTOR.try_with(|here| here.borrow().clone());
        here.ok().flatten()
    }

    /// This thread collects into this one too, until the guard is dropped.
    pub fn collect_here(self) -> CollectGuard {
        let before = COLLECTOR.try_with(|here| here.replace(Some(self.clone())));
        CollectGuard {
            panics: self,
            before: before.ok().flatten(),
            _here: PhantomData,
        }
    }

    /// Takes the messages that there are.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// While it lives, panics that are contained on its thread are collected.
#[derive(Debug)]
pub struct CollectGuard {
    panics: ContainedPanics,
    before: Option<ContainedPanics>,
    /// Of this thread alone.
    _here: PhantomData<*const ()>,
}

impl CollectGuard {
    /// What this thread collects into.
    pub fn panics(&self) -> &ContainedPanics {
        &self.panics
    }
}

impl Drop for CollectGuard {
    fn drop(&mut self) {
        let before = self.before.take();
        let _ = COLLECTOR.try_with(|here| *here.borrow_mut() = before);
    }
}

/// A panic with this payload is contained.
#[cold]
fn note_contained(payload: &(dyn Any + Send)) {
    if let Some(ContainedPanics(messages)) = ContainedPanics::here() {
        let mut messages = messages.lock().unwrap_or_else(PoisonError::into_inner);
        messages.push(message_of(payload).to_string());
    }
}

/// The message of a panic, where it has one.
fn message_of(payload: &(dyn Any + Send)) -> &str {
    if let Some(s) = payload.downcast_ref::<&'static str>() {
        s
    } else if let Some(s) = payload.downcast_ref::<String>() {
        s
    } else {
        "a panic without a message"
    }
}

/// Runs code of the caller's and then `after`, also if that code panics: the panic
/// goes on when `after` is over. `after` is told whether there is one.
pub fn and_after<R, A>(f: impl FnOnce() -> R, after: impl FnOnce(bool) -> A) -> (R, A) {
    let answer = caught(f);
    let after = after(answer.is_err());
    match answer {
        Ok(answer) => (answer, after),
        Err(payload) => resume_unwind(payload.into_box()),
    }
}

/// Drops a value of the user's, or something that owns one. Not under a lock.
#[inline]
pub fn discard<T>(value: T) {
    drop(Contained::new(value));
}

/// Wakes a waker, which may be of the user's making. Not under a lock.
///
/// A waker may do what wakes another one, and so on: more than sixteen wakes inside
/// each other on one thread, a further one waits until the sixteenth has returned. So
/// a row of any length is a loop, and does not grow the stack.
#[inline]
pub fn wake(waker: Waker) {
    contain(try_wake(waker));
}

/// A wake has ended here, by a panic or without one.
#[inline]
fn contain(panicked: Option<Payload>) {
    if let Some(payload) = panicked {
        note_contained(&**payload.0);
    }
}

/// The same, and keeps it.
#[inline]
pub fn wake_by_ref(waker: &Waker) {
    if wakes(|here| here.depth.get()) < DEEPEST {
        contain(nested(|| waker.wake_by_ref()));
    } else {
        contained(|| wake(waker.clone()));
    }
}

/// The same, with what a panic of it carried. That of one that had to wait is
/// contained where it is woken.
#[inline]
pub(crate) fn try_wake(waker: Waker) -> Option<Payload> {
    if wakes(|here| here.depth.get()) < DEEPEST {
        nested(move || waker.wake())
    } else {
        later(LaterWaker::Wake(Contained::new(waker)));
        None
    }
}

/// Drops a waker, which may be of the user's making. Not under a lock.
///
/// A waker may own a future that waits with another waker, and so on: such drops nest
/// together with wakes, sixteen deep at most.
#[inline]
pub fn discard_waker(waker: Waker) {
    if wakes(|here| here.depth.get()) < DEEPEST {
        contain(nested(move || drop(waker)));
    } else {
        later(LaterWaker::Drop(Contained::new(waker)));
    }
}

/// Drops a value of the user's that may own what owns such a value, and so on: a hook that has
/// captured the guard of another hook. Not under a lock.
///
/// Such drops nest together with wakes, sixteen deep at most.
#[inline]
fn discard_nested<T: 'static>(value: T) {
    if wakes(|here| here.depth.get()) < DEEPEST {
        contain(nested(move || drop(value)));
    } else {
        later(LaterWaker::Value(Box::new(Contained::new(value))));
    }
}

/// How deep wakes, and drops of wakers and of [`Nested`] values, nest on one thread.
const DEEPEST: u32 = 16;

/// What has to wait until the deepest has returned.
enum LaterWaker {
    Wake(Contained<Waker>),
    Drop(#[allow(dead_code, reason = "it is only dropped")] Contained<Waker>),
    Value(#[allow(dead_code, reason = "it is only dropped")] Box<dyn Any>),
}

/// Wakers that have to wait.
type UnwokenWakers = RefCell<VecDeque<LaterWaker>>;

/// The wakes that go on on this thread.
struct WakeNesting {
    depth: Cell<u32>,
    /// Of the deepest: null while there is none.
    waiting: Cell<*const UnwokenWakers>,
}

local!(static WAKES: WakeNesting = WakeNesting {
    depth: Cell::new(0),
    waiting: Cell::new(ptr::null()),
}; fn wakes);

/// Calls `wake`, one deeper than the wake around it.
#[inline]
fn nested(wake: impl FnOnce()) -> Option<Payload> {
    let depth = wakes(|here| here.depth.replace(here.depth.get() + 1));
    let panicked = if depth + 1 < DEEPEST {
        caught(wake).err()
    } else {
        deepest(wake)
    };
    wakes(|here| here.depth.set(depth));
    panicked
}

/// Calls `wake`, and then the wakers that had to wait for it.
#[inline(never)]
fn deepest(wake: impl FnOnce()) -> Option<Payload> {
    let waiting = UnwokenWakers::default();
    wakes(|here| here.waiting.set(&raw const waiting));
    let panicked = caught(wake).err();
    loop {
        // Others may be added while this one is woken.
        let next = waiting.borrow_mut().pop_front();
        match next {
            Some(LaterWaker::Wake(waker)) => drop(contained(|| waker.into_inner().wake())),
            Some(LaterWaker::Drop(waker)) => drop(waker),
            Some(LaterWaker::Value(value)) => drop(value),
            None => break,
        }
    }
    wakes(|here| here.waiting.set(ptr::null()));
    panicked
}

#[cold]
fn later(what: LaterWaker) {
    wakes(|here| {
        // SAFETY: at this depth `deepest` goes on, further down our stack, and takes
        // it back before its list goes.
        let waiting = unsafe { here.waiting.get().as_ref() };
        let waiting = waiting.unwrap_or_else(|| unreachable!("set with the depth"));
        waiting.borrow_mut().push_back(what);
    });
}

/// A value of the user's that we keep: a panic of its destructor ends there. So
/// what holds several of them drops all, one by one: two destructors that panic
/// in one unwinding would abort the program.
pub struct Contained<T>(ManuallyDrop<T>);

impl<T> Contained<T> {
    /// To be dropped by us.
    #[inline]
    pub const fn new(value: T) -> Contained<T> {
        Contained(ManuallyDrop::new(value))
    }

    /// Takes it out: from now on its destructor is the caller's responsibility.
    #[inline]
    pub fn into_inner(self) -> T {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is never dropped, and not used again.
        unsafe { ManuallyDrop::take(&mut this.0) }
    }

    /// The value of one that is pinned, which is pinned with it.
    #[inline]
    pub fn as_pin_mut(self: Pin<&mut Self>) -> Pin<&mut T> {
        // SAFETY: the value is dropped where it stands, and moved by `into_inner`
        // alone, which nothing that is pinned can be given to.
        unsafe { self.map_unchecked_mut(|this| &mut *this.0) }
    }
}

impl<T> Drop for Contained<T> {
    #[inline]
    fn drop(&mut self) {
        if std::mem::needs_drop::<T>() {
            // SAFETY: dropped once: this is the only destructor, and `into_inner`
            // keeps it from running.
            drop_contained(|| unsafe { ManuallyDrop::drop(&mut self.0) });
        }
    }
}

/// The payload of a destructor's panic may panic in turn when it is dropped; that
/// one's payload is leaked, since there may be no end of them.
#[inline(never)]
fn drop_contained(drop_it: impl FnOnce()) {
    let Err(payload) = catch_unwind(AssertUnwindSafe(drop_it)) else {
        return;
    };
    note_contained(&*payload);
    if let Err(second) = catch_unwind(AssertUnwindSafe(move || drop(payload))) {
        std::mem::forget(second);
    }
}

impl<T> Deref for Contained<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Contained<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T: Clone> Clone for Contained<T> {
    fn clone(&self) -> Self {
        Contained::new(T::clone(self))
    }
}

impl<T: Default> Default for Contained<T> {
    fn default() -> Self {
        Contained::new(T::default())
    }
}

impl<T: fmt::Debug> fmt::Debug for Contained<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        T::fmt(self, f)
    }
}

/// A [`Contained`] value that may own others of its kind in a row of any length: more than
/// sixteen drops inside each other, a further one waits until the sixteenth is over. So
/// the row is dropped by a loop, and does not grow the stack.
pub(crate) struct Nested<T: 'static>(ManuallyDrop<T>);

impl<T: 'static> Nested<T> {
    #[inline]
    pub(crate) fn new(value: T) -> Nested<T> {
        Nested(ManuallyDrop::new(value))
    }

    /// Takes it out: from now on its destructor is the caller's responsibility.
    #[inline]
    pub(crate) fn into_inner(self) -> T {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is never dropped, and not used again.
        unsafe { ManuallyDrop::take(&mut this.0) }
    }
}

impl<T: 'static> Deref for Nested<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// A waker that is kept, in whatever list or record: it may own a wait that keeps the next.
pub(crate) type KeptWaker = Nested<Waker>;

impl<T: 'static> Drop for Nested<T> {
    #[inline]
    fn drop(&mut self) {
        if std::mem::needs_drop::<T>() {
            // SAFETY: taken once: this is the only destructor, and `into_inner` keeps it
            // from running.
            discard_nested(unsafe { ManuallyDrop::take(&mut self.0) });
        }
    }
}

/// That values of type `T` may be dropped as [`Nested`] ones are, for code that is not told
/// that a `T` borrows nothing.
pub(crate) struct DropsNested<T>(fn(T));

impl<T: 'static> DropsNested<T> {
    pub(crate) const fn new() -> DropsNested<T> {
        DropsNested(discard_nested::<T>)
    }
}

impl<T> DropsNested<T> {
    #[inline]
    pub(crate) fn discard(self, value: T) {
        if std::mem::needs_drop::<T>() {
            (self.0)(value);
        }
    }
}

impl<T> Clone for DropsNested<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for DropsNested<T> {}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    /// Panics when it is dropped, with one of its kind as what the panic carries,
    /// as long as there are any left.
    struct Bomb(Arc<AtomicUsize>, usize);

    impl Drop for Bomb {
        fn drop(&mut self) {
            self.0.fetch_add(1, Relaxed);
            if self.1 > 0 {
                std::panic::resume_unwind(Box::new(Bomb(self.0.clone(), self.1 - 1)));
            }
        }
    }

    #[test]
    fn destructors_that_panic_are_run_one_by_one() {
        let drops = Arc::new(AtomicUsize::new(0));
        let many: Vec<_> = (0..3)
            .map(|_| Contained::new(Bomb(drops.clone(), 1)))
            .collect();
        drop(many);
        // Each of them, and what its panic carried.
        assert_eq!(drops.swap(0, Relaxed), 6);
        discard(Bomb(drops.clone(), 2));
        assert_eq!(drops.swap(0, Relaxed), 2, "the third is leaked");
        let payload = caught(|| std::panic::resume_unwind(Box::new(Bomb(drops.clone(), 1))));
        drop(payload);
        assert_eq!(drops.load(Relaxed), 2);
    }

    #[test]
    fn what_is_taken_out_is_not_dropped_here() {
        let drops = Arc::new(AtomicUsize::new(0));
        let bomb = Contained::new(Bomb(drops.clone(), 0)).into_inner();
        assert_eq!(drops.load(Relaxed), 0);
        drop(bomb);
        assert_eq!(drops.load(Relaxed), 1);
    }
}
