//! The record of one operation in flight, from submission to completion. The record owns the
//! memory that the system works on.
//!
//! ```text
//! in flight ──1──▶ COMPLETE ──2──▶ taken          1: `complete`, by the driver's thread
//!    └────3───▶ GIVEN_UP ──4──▶ taken          2: `take`, by the waiting side
//!                                            3: `give_up`, by the waiting side
//!                                            4: `complete`: the result is adopted
//! ```
//!
//! | rule | noticed by |
//! |---|---|
//! | F1 | `who_writes_after_the_end_is_found_out`, `io_3_dropped_cancelled_and_timed_out_at_random` |
//! | F2 | `in_flight_complete_vs_give_up` |
//! | F3 | `in_flight_complete_vs_another_waker` |
//!
//! **F1** Between submission and completion only the system touches the operation.
//! **F2** Exactly one side takes it out afterwards: 2 or 4. Both sides mark the one
//! word, and the side that finds the other's mark takes it.
//! **F3** The waker belongs to the driver's thread if that finds `WAKER` and no `GIVEN_UP` when
//! it sets `COMPLETE`; otherwise the waker belongs to the waiting side, which takes `WAKER`
//! back or sets `GIVEN_UP` before it touches the waker. So the task is woken once, or it sees
//! `COMPLETE` by itself.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use kinfolk_core::host::{contained, discard, wake};

use super::driver::{Answer, OpId};
use super::handle::IoHandle;
use super::limit::Permit;
use super::request::Request;
use crate::io::request::NopArgs;
use crate::sync::{AtomicU32, UnsafeCell};

/// How an operation starts.
pub(crate) enum Start {
    /// The system is asked.
    Ask,
    /// That is not needed any more: it can be finished.
    Answered,
}

/// An operation: the file, buffer and arguments that it owns, and how its result is made.
pub(crate) trait Operation: Send + 'static {
    /// What the waiting task gets.
    type Output;

    /// The handle of the file it works on, if it has one: that carries it out, and
    /// lives as long as the operation.
    fn handle(&self) -> Option<&Arc<IoHandle>> {
        None
    }

    /// How it starts; pending if it may not yet, and the waiting task is woken.
    fn poll_start(&mut self, cx: &mut Context<'_>) -> Poll<Start> {
        let _ = cx;
        Poll::Ready(Start::Ask)
    }

    /// What the system is asked, through this handle. Called when the operation lies
    /// where it will stay.
    fn request(&mut self, handle: &Arc<IoHandle>) -> Request;

    /// The system has answered, and nothing is made of it yet. False if it must
    /// not be begun again although it was ended early.
    fn answered(&mut self, result: i32) -> bool {
        let _ = result;
        true
    }

    /// What is made of the answer. What is not delivered is made all the same,
    /// and dropped: so files are closed and buffers freed.
    fn finish(self, result: io::Result<u32>) -> Self::Output;
}

/// An operation in flight, as the thread knows it whose driver carries it out.
pub(crate) trait InFlight: Send + Sync {
    /// The operation is complete, with this answer of the system.
    fn complete(self: Arc<Self>, result: i32);

    /// The driver has answered. Only a series goes on after that.
    fn answered(self: Arc<Self>, answer: Answer) {
        // Completing frees the memory that the system works on.
        assert!(!answer.more, "{answer:?}: it is no series");
        self.complete(answer.result);
    }

    /// Its number with the driver.
    fn id_cell(&self) -> &OpIdCell;
}

/// Which thread's driver has an operation, and under which number; no number while the
/// operation lies in a mailbox. Written by that thread, before it reads a cancel.
#[derive(Debug, Default)]
pub(crate) struct OpIdCell {
    /// The clock waits for it.
    counted: AtomicBool,
    thread: AtomicUsize,
    id: AtomicU64,
}

impl OpIdCell {
    pub(crate) fn count(&self) {
        self.counted.store(true, Ordering::Relaxed);
    }

    /// True once if the clock waits for it.
    pub(crate) fn uncount(&self) -> bool {
        self.counted.load(Ordering::Relaxed) && self.counted.swap(false, Ordering::Relaxed)
    }

    pub(crate) fn set_thread(&self, n: usize) {
        self.thread.store(n, Ordering::Relaxed);
    }

    pub(crate) fn thread(&self) -> usize {
        self.thread.load(Ordering::Relaxed)
    }

    pub(crate) fn set_id(&self, id: OpId) {
        let packed = (u64::from(id.generation) << 32) | (u64::from(id.index) + 1);
        self.id.store(packed, Ordering::Relaxed);
    }

    pub(crate) fn id(&self) -> Option<OpId> {
        let packed = self.id.load(Ordering::Relaxed);
        let index = (packed as u32).checked_sub(1)?;
        Some(OpId {
            index,
            generation: (packed >> 32) as u32,
        })
    }
}

/// The operation is complete: the answer is there.
const COMPLETE: u32 = 1;
/// The future was dropped: the result is adopted.
const GIVEN_UP: u32 = 2;
/// There is a waker: the completing side takes it.
const WAKER: u32 = 4;

/// The in_flight of one operation.
pub(crate) struct Single<T> {
    state: AtomicU32,
    id_cell: OpIdCell,
    /// Written before `COMPLETE` is set, read after it was seen.
    answer: UnsafeCell<i32>,
    /// F3.
    waker: UnsafeCell<Option<Waker>>,
    /// The driver's.
    permit: UnsafeCell<Option<Permit>>,
    /// None once it was taken out.
    operation: UnsafeCell<Option<T>>,
}

// SAFETY: what is in the cells is sent to the side that takes it, one at a time (F1,
// F2, F3).
unsafe impl<T: Send> Sync for Single<T> {}

/// The answer of a thread that is closed.
pub(crate) const GONE: i32 = i32::MIN;

/// The answer of a kernel as a result.
pub(crate) fn to_result(result: i32) -> io::Result<u32> {
    u32::try_from(result).map_err(|_| failure(result))
}

/// The answer of a kernel that has failed as an error.
pub(crate) fn failure(result: i32) -> io::Error {
    match result {
        GONE => io::Error::other("the runtime that carries out this i/o is gone"),
        _ => io::Error::from_raw_os_error(-result),
    }
}

impl<T: Operation> Single<T> {
    /// A in_flight that is not begun. From here on the operation lies where it will stay.
    pub(crate) fn new(operation: T) -> Arc<Single<T>> {
        Arc::new(Single {
            state: AtomicU32::new(0),
            id_cell: OpIdCell::default(),
            answer: UnsafeCell::new(0),
            waker: UnsafeCell::new(None),
            permit: UnsafeCell::new(None),
            operation: UnsafeCell::new(Some(operation)),
        })
    }

    /// Whether it may begin now; otherwise the waiting task is woken.
    ///
    /// # Safety
    /// The operation was not submitted yet, and only the caller has the record.
    pub(crate) unsafe fn poll_start(&self, cx: &mut Context<'_>) -> Poll<Start> {
        // SAFETY: no other code has it.
        let operation = unsafe { (*self.operation.get()).as_mut() };
        operation.map_or(Poll::Ready(Start::Ask), |operation| {
            operation.poll_start(cx)
        })
    }

    /// The handle of the file it works on, if it has one.
    ///
    /// # Safety
    /// The operation was not submitted yet, and only the caller has the record.
    pub(crate) unsafe fn handle(&self) -> Option<&Arc<IoHandle>> {
        // SAFETY: no other code has it.
        unsafe { (*self.operation.get()).as_ref() }?.handle()
    }

    /// The request that the system gets for it.
    ///
    /// # Safety
    /// The operation was not submitted yet, and only the caller has the record.
    pub(crate) unsafe fn request(&self, handle: &Arc<IoHandle>) -> Request {
        // SAFETY: no other code has it.
        let operation = unsafe { (*self.operation.get()).as_mut() };
        operation.map_or(Request::Nop(NopArgs), |operation| operation.request(handle))
    }

    /// It is about to be submitted: when it completes, `permit` is given back and
    /// `waker` is woken.
    ///
    /// # Safety
    /// The operation was not submitted yet, and only the caller has the record.
    pub(crate) unsafe fn prepare(&self, permit: Option<Permit>, waker: &Waker) {
        let waker = Some(waker.clone());
        // SAFETY: no other code has it.
        unsafe {
            *self.waker.get() = waker;
            *self.permit.get() = permit;
        }
        self.state.store(WAKER, Ordering::Relaxed);
    }

    /// # Safety
    /// The operation is complete, and the caller is the side that takes it (F2).
    unsafe fn take_operation(&self) -> T {
        // SAFETY: no other code touches it any more.
        let operation = unsafe { (*self.operation.get()).take() };
        operation.expect("an operation is taken once")
    }

    /// # Safety
    /// The waker belongs to the caller (F3).
    unsafe fn take_waker(&self) -> Option<Waker> {
        // SAFETY: as promised.
        unsafe { (*self.waker.get()).take() }
    }

    /// The operation and the answer, if it is complete; otherwise `waker` is woken
    /// when it does.
    pub(crate) fn take(&self, waker: &Waker) -> Poll<(T, i32)> {
        if !self.is_complete() && !self.wake_later(waker) {
            return Poll::Pending;
        }
        // SAFETY: 2; and the answer was written before `COMPLETE` was set.
        Poll::Ready(unsafe { (self.take_operation(), *self.answer.get()) })
    }

    /// From now on `waker` is woken when it completes. True if it has.
    fn wake_later(&self, waker: &Waker) -> bool {
        if self.state.fetch_and(!WAKER, Ordering::AcqRel) & COMPLETE != 0 {
            return true;
        }
        // SAFETY: F3: it is not complete, and the completing side now finds no `WAKER`.
        let place = unsafe { &mut *self.waker.get() };
        let other = match place {
            Some(old) if old.will_wake(waker) => None,
            _ => place.replace(waker.clone()),
        };
        let complete = self.state.fetch_or(WAKER, Ordering::AcqRel) & COMPLETE != 0;
        if let Some(other) = other {
            discard(other);
        }
        if complete {
            // SAFETY: F3: the driver has found no `WAKER`.
            discard(unsafe { self.take_waker() });
        }
        complete
    }

    /// True once it is complete.
    pub(crate) fn is_complete(&self) -> bool {
        self.state.load(Ordering::Acquire) & COMPLETE != 0
    }

    /// The operation of a in_flight that was never submitted.
    pub(crate) fn never_begun(&self) -> T {
        // SAFETY: the system does not know of it, and no other code takes it.
        unsafe { self.take_operation() }
    }

    /// The future is dropped. False if the operation is complete already: then its result is
    /// adopted here.
    pub(crate) fn give_up(&self) -> bool {
        if self.state.fetch_or(GIVEN_UP, Ordering::AcqRel) & COMPLETE == 0 {
            // SAFETY: F3: the completing side now finds `GIVEN_UP`.
            let waker = unsafe { self.take_waker() };
            discard(waker);
            return true;
        }
        // SAFETY: 2: it is complete without our mark and no other code will take it;
        // and the answer was written before.
        let (operation, answer) = unsafe { (self.take_operation(), *self.answer.get()) };
        adopt(operation, answer);
        false
    }
}

/// Makes a result that no task waits for, and drops it. A panic of the user's code ends
/// here.
fn adopt<T: Operation>(mut operation: T, result: i32) {
    contained(move || {
        operation.answered(result);
        drop(operation.finish(to_result(result)));
    });
}

impl<T: Operation> InFlight for Single<T> {
    fn complete(self: Arc<Self>, result: i32) {
        // SAFETY: only here, once, and no code reads it before `COMPLETE` is set.
        unsafe { *self.answer.get() = result };
        // SAFETY: it is ours.
        let permit = unsafe { (*self.permit.get()).take() };
        let before = self.state.fetch_or(COMPLETE, Ordering::AcqRel);
        assert_eq!(before & COMPLETE, 0, "an operation completes once");
        drop(permit);
        if before & GIVEN_UP != 0 {
            // SAFETY: 4.
            adopt(unsafe { self.take_operation() }, result);
        } else if before & WAKER != 0 {
            // SAFETY: F3.
            if let Some(waker) = unsafe { self.take_waker() } {
                wake(waker);
            }
        }
    }

    fn id_cell(&self) -> &OpIdCell {
        &self.id_cell
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::sync::AtomicUsize as Count;
    use loom::thread;
    use std::task::Wake;

    /// Counts how often a result is made.
    struct Probe(Arc<Count>);

    impl Operation for Probe {
        type Output = i32;

        fn request(&mut self, _handle: &Arc<IoHandle>) -> Request {
            Request::Nop(NopArgs)
        }

        fn finish(self, result: io::Result<u32>) -> i32 {
            self.0.fetch_add(1, Ordering::Relaxed);
            result.map_or(-1, |done| done as i32)
        }
    }

    struct Bell(Count);

    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn bell() -> (Arc<Bell>, Waker) {
        let bell = Arc::new(Bell(Count::new(0)));
        (bell.clone(), Waker::from(bell))
    }

    fn under_way(waker: &Waker) -> (Arc<Single<Probe>>, Arc<Count>) {
        let made = Arc::new(Count::new(0));
        let in_flight = Single::new(Probe(made.clone()));
        assert!(!in_flight.wake_later(waker));
        (in_flight, made)
    }

    /// Polled with another waker while it completes: that one is woken, or the poll
    /// has seen it.
    #[test]
    fn in_flight_complete_vs_another_waker() {
        loom::model(|| {
            let ((_, old), (bell, new)) = (bell(), bell());
            let (in_flight, made) = under_way(&old);
            let driver = {
                let in_flight = in_flight.clone();
                thread::spawn(move || in_flight.complete(7))
            };
            let polled = in_flight.take(&new);
            driver.join().expect("the driver");
            let woken = bell.0.load(Ordering::Relaxed);
            let (operation, answer) = match polled {
                Poll::Ready(taken) => taken,
                Poll::Pending => {
                    assert_eq!(woken, 1, "a wake-up was lost");
                    match in_flight.take(&new) {
                        Poll::Ready(taken) => taken,
                        Poll::Pending => panic!("it is complete"),
                    }
                }
            };
            assert_eq!(answer, 7);
            assert_eq!(operation.finish(Ok(7)), 7);
            assert_eq!(made.load(Ordering::Relaxed), 1);
        });
    }

    /// Given up while it completes: one of the two adopts the result.
    #[test]
    fn in_flight_complete_vs_give_up() {
        loom::model(|| {
            let (bell, waker) = bell();
            let (in_flight, made) = under_way(&waker);
            drop(waker);
            let driver = {
                let in_flight = in_flight.clone();
                thread::spawn(move || in_flight.complete(7))
            };
            let left = in_flight.give_up();
            driver.join().expect("the driver");
            assert_eq!(
                made.load(Ordering::Relaxed),
                1,
                "left to the driver: {left}"
            );
            assert_eq!(Arc::strong_count(&bell), 1, "the waker is gone");
        });
    }
}
