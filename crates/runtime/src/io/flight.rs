//! The flight of one operation, from submission to its end: the one place that
//! owns what the system works on.
//!
//! ```text
//! flying ──1──▶ LANDED ──2──▶ taken          1: `land`, by the driver's thread
//!    └────3───▶ NOBODY ──4──▶ taken          2: `take`, by whoever waits
//!                                            3: `give_up`, by whoever waited
//!                                            4: `land`: the result is adopted
//! ```
//!
//! | rule | noticed by |
//! |---|---|
//! | F1 | `who_writes_after_the_end_is_found_out`, `io_3_dropped_cancelled_and_timed_out_at_random` |
//! | F2 | `flight_land_vs_give_up` |
//! | F3 | `flight_land_vs_another_waker` |
//!
//! **F1** Between submission and landing nobody but the system touches the load.
//! **F2** Exactly one takes it out afterwards: 2 or 4. Both sides mark the one
//! word, and whoever finds the other's mark there takes it.
//! **F3** The waker is the lander's if it finds `WAKER` and no `NOBODY` when it
//! sets `LANDED`; otherwise it is that of who waits, who takes `WAKER` back or
//! sets `NOBODY` before it touches it. So it is woken once, or the one who waits
//! sees `LANDED` by itself.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use kinfolk_core::host::{contained, discard, wake};

use super::driver::{Landed, OpId};
use super::hub::Hub;
use super::limit::Permit;
use super::request::Request;
use crate::sync::{AtomicU32, UnsafeCell};

/// How an operation starts.
pub(crate) enum Start {
    /// The system is asked.
    Ask,
    /// That is not needed any more: it can be finished.
    Answered,
}

/// What an operation brings along and what is made of its result.
pub(crate) trait Operation: Send + 'static {
    /// What the one who waits gets.
    type Output;

    /// The hub of the file it works on, if it has one: that carries it out, and
    /// lives as long as the load.
    fn hub(&self) -> Option<&Arc<Hub>> {
        None
    }

    /// How it starts; pending if it may not yet, and whoever waits is woken.
    fn poll_start(&mut self, cx: &mut Context<'_>) -> Poll<Start> {
        let _ = cx;
        Poll::Ready(Start::Ask)
    }

    /// What the system is asked, through this hub. Called when the load lies
    /// where it will stay.
    fn request(&mut self, hub: &Arc<Hub>) -> Request;

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

/// What a station knows of an operation.
pub(crate) trait Landing: Send + Sync {
    /// It is over.
    fn land(self: Arc<Self>, result: i32);

    /// The driver has answered. Only a series goes on after that.
    fn answered(self: Arc<Self>, landed: Landed) {
        // Whoever lands frees what the system has.
        assert!(!landed.more, "{landed:?}: it is no series");
        self.land(landed.result);
    }

    /// Under which number it flies.
    fn ticket(&self) -> &Ticket;
}

/// Where an operation flies, and under which number: none while it is on its
/// way there. Written by the station, before anybody asks it to cancel.
#[derive(Debug, Default)]
pub(crate) struct Ticket {
    /// The clock waits for it.
    counted: AtomicBool,
    station: AtomicUsize,
    id: AtomicU64,
}

impl Ticket {
    pub(crate) fn count(&self) {
        self.counted.store(true, Ordering::Relaxed);
    }

    /// True once if the clock waits for it.
    pub(crate) fn uncount(&self) -> bool {
        self.counted.load(Ordering::Relaxed) && self.counted.swap(false, Ordering::Relaxed)
    }

    pub(crate) fn set_station(&self, n: usize) {
        self.station.store(n, Ordering::Relaxed);
    }

    pub(crate) fn station(&self) -> usize {
        self.station.load(Ordering::Relaxed)
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

/// It is over: the answer stands.
const LANDED: u32 = 1;
/// Nobody waits any more.
const NOBODY: u32 = 2;
/// There is a waker: whoever lands takes it.
const WAKER: u32 = 4;

/// The flight of one operation.
pub(crate) struct Flight<T> {
    state: AtomicU32,
    ticket: Ticket,
    /// Written before `LANDED` is set, read after it was seen.
    answer: UnsafeCell<i32>,
    /// F3.
    waker: UnsafeCell<Option<Waker>>,
    /// The lander's.
    permit: UnsafeCell<Option<Permit>>,
    /// None once it was taken out.
    load: UnsafeCell<Option<T>>,
}

// SAFETY: what is in the cells is sent to whoever takes it, one at a time (F1,
// F2, F3).
unsafe impl<T: Send> Sync for Flight<T> {}

/// The answer of a station that is closed.
pub(crate) const GONE: i32 = i32::MIN;

/// The answer of a kernel as a result.
pub(crate) fn answer(result: i32) -> io::Result<u32> {
    u32::try_from(result).map_err(|_| failure(result))
}

/// The answer of a kernel that has failed as an error.
pub(crate) fn failure(result: i32) -> io::Error {
    match result {
        GONE => io::Error::other("the runtime that carries out this i/o is gone"),
        _ => io::Error::from_raw_os_error(-result),
    }
}

impl<T: Operation> Flight<T> {
    /// A flight that is not begun. From here on the load lies where it will stay.
    pub(crate) fn new(load: T) -> Arc<Flight<T>> {
        Arc::new(Flight {
            state: AtomicU32::new(0),
            ticket: Ticket::default(),
            answer: UnsafeCell::new(0),
            waker: UnsafeCell::new(None),
            permit: UnsafeCell::new(None),
            load: UnsafeCell::new(Some(load)),
        })
    }

    /// Whether it may begin now; otherwise the one who waits is woken.
    ///
    /// # Safety
    /// It was not submitted yet, and the caller is the only one who has it.
    pub(crate) unsafe fn poll_start(&self, cx: &mut Context<'_>) -> Poll<Start> {
        // SAFETY: nobody else has it.
        let load = unsafe { (*self.load.get()).as_mut() };
        load.map_or(Poll::Ready(Start::Ask), |load| load.poll_start(cx))
    }

    /// The hub of the file it works on, if it has one.
    ///
    /// # Safety
    /// It was not submitted yet, and the caller is the only one who has it.
    pub(crate) unsafe fn hub(&self) -> Option<&Arc<Hub>> {
        // SAFETY: nobody else has it.
        unsafe { (*self.load.get()).as_ref() }?.hub()
    }

    /// What is to be asked of the system for it.
    ///
    /// # Safety
    /// It was not submitted yet, and the caller is the only one who has it.
    pub(crate) unsafe fn request(&self, hub: &Arc<Hub>) -> Request {
        // SAFETY: nobody else has it.
        let load = unsafe { (*self.load.get()).as_mut() };
        load.map_or(Request::Nop, |load| load.request(hub))
    }

    /// It is about to be submitted: when it lands, `permit` is given back and
    /// `waker` is woken.
    ///
    /// # Safety
    /// It was not submitted yet, and the caller is the only one who has it.
    pub(crate) unsafe fn prepare(&self, permit: Option<Permit>, waker: &Waker) {
        let waker = Some(waker.clone());
        // SAFETY: nobody else has it.
        unsafe {
            *self.waker.get() = waker;
            *self.permit.get() = permit;
        }
        self.state.store(WAKER, Ordering::Relaxed);
    }

    /// # Safety
    /// It has landed, and the caller is the one who takes (F2).
    unsafe fn load(&self) -> T {
        // SAFETY: nobody else touches it any more.
        let load = unsafe { (*self.load.get()).take() };
        load.expect("a load is taken once")
    }

    /// # Safety
    /// The waker is the caller's (F3).
    unsafe fn take_waker(&self) -> Option<Waker> {
        // SAFETY: as promised.
        unsafe { (*self.waker.get()).take() }
    }

    /// The load and the answer, if it has landed; otherwise `waker` is woken
    /// when it does.
    pub(crate) fn take(&self, waker: &Waker) -> Poll<(T, i32)> {
        if !self.has_landed() && !self.wake_later(waker) {
            return Poll::Pending;
        }
        // SAFETY: 2; and the answer was written before it landed.
        Poll::Ready(unsafe { (self.load(), *self.answer.get()) })
    }

    /// From now on `waker` is woken when it lands. True if it has.
    fn wake_later(&self, waker: &Waker) -> bool {
        if self.state.fetch_and(!WAKER, Ordering::AcqRel) & LANDED != 0 {
            return true;
        }
        // SAFETY: F3: it has not landed, and whoever lands now finds no `WAKER`.
        let place = unsafe { &mut *self.waker.get() };
        let other = match place {
            Some(old) if old.will_wake(waker) => None,
            _ => place.replace(waker.clone()),
        };
        let landed = self.state.fetch_or(WAKER, Ordering::AcqRel) & LANDED != 0;
        if let Some(other) = other {
            discard(other);
        }
        if landed {
            // SAFETY: F3: whoever landed has found no `WAKER`.
            discard(unsafe { self.take_waker() });
        }
        landed
    }

    /// True once it has landed.
    pub(crate) fn has_landed(&self) -> bool {
        self.state.load(Ordering::Acquire) & LANDED != 0
    }

    /// The load of a flight that was never submitted.
    pub(crate) fn never_begun(&self) -> T {
        // SAFETY: the system does not know of it, and nobody else takes it.
        unsafe { self.load() }
    }

    /// Nobody waits any more, who did before. False if it has landed already:
    /// then its result is adopted here.
    pub(crate) fn give_up(&self) -> bool {
        if self.state.fetch_or(NOBODY, Ordering::AcqRel) & LANDED == 0 {
            // SAFETY: F3: whoever lands now finds `NOBODY`.
            let waker = unsafe { self.take_waker() };
            discard(waker);
            return true;
        }
        // SAFETY: 2: it has landed without our mark and nobody else will take it;
        // and the answer was written before.
        let (load, answer) = unsafe { (self.load(), *self.answer.get()) };
        adopt(load, answer);
        false
    }
}

/// A result that nobody waits for. What belongs to others ends here if it
/// panics.
fn adopt<T: Operation>(mut load: T, result: i32) {
    contained(move || {
        load.answered(result);
        drop(load.finish(answer(result)));
    });
}

impl<T: Operation> Landing for Flight<T> {
    fn land(self: Arc<Self>, result: i32) {
        // SAFETY: only here, once, and nobody reads it before `LANDED` is set.
        unsafe { *self.answer.get() = result };
        // SAFETY: it is ours.
        let permit = unsafe { (*self.permit.get()).take() };
        let before = self.state.fetch_or(LANDED, Ordering::AcqRel);
        assert_eq!(before & LANDED, 0, "an operation lands once");
        drop(permit);
        if before & NOBODY != 0 {
            // SAFETY: 4.
            adopt(unsafe { self.load() }, result);
        } else if before & WAKER != 0 {
            // SAFETY: F3.
            if let Some(waker) = unsafe { self.take_waker() } {
                wake(waker);
            }
        }
    }

    fn ticket(&self) -> &Ticket {
        &self.ticket
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::sync::AtomicUsize as Count;
    use loom::thread;
    use std::task::Wake;

    /// Counts who makes something of the answer.
    struct Load(Arc<Count>);

    impl Operation for Load {
        type Output = i32;

        fn request(&mut self, _hub: &Arc<Hub>) -> Request {
            Request::Nop
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

    fn under_way(waker: &Waker) -> (Arc<Flight<Load>>, Arc<Count>) {
        let made = Arc::new(Count::new(0));
        let flight = Flight::new(Load(made.clone()));
        assert!(!flight.wake_later(waker));
        (flight, made)
    }

    /// Polled with another waker while it lands: that one is woken, or the poll
    /// has seen it.
    #[test]
    fn flight_land_vs_another_waker() {
        loom::model(|| {
            let ((_, old), (bell, new)) = (bell(), bell());
            let (flight, made) = under_way(&old);
            let lander = {
                let flight = flight.clone();
                thread::spawn(move || flight.land(7))
            };
            let polled = flight.take(&new);
            lander.join().expect("the lander");
            let woken = bell.0.load(Ordering::Relaxed);
            let (load, answer) = match polled {
                Poll::Ready(taken) => taken,
                Poll::Pending => {
                    assert_eq!(woken, 1, "a wake-up was lost");
                    match flight.take(&new) {
                        Poll::Ready(taken) => taken,
                        Poll::Pending => panic!("it has landed"),
                    }
                }
            };
            assert_eq!(answer, 7);
            assert_eq!(load.finish(Ok(7)), 7);
            assert_eq!(made.load(Ordering::Relaxed), 1);
        });
    }

    /// Given up while it lands: one of the two adopts the result.
    #[test]
    fn flight_land_vs_give_up() {
        loom::model(|| {
            let (bell, waker) = bell();
            let (flight, made) = under_way(&waker);
            drop(waker);
            let lander = {
                let flight = flight.clone();
                thread::spawn(move || flight.land(7))
            };
            let left = flight.give_up();
            lander.join().expect("the lander");
            assert_eq!(
                made.load(Ordering::Relaxed),
                1,
                "left to the lander: {left}"
            );
            assert_eq!(Arc::strong_count(&bell), 1, "the waker is gone");
        });
    }
}
