//! The flight of one operation, from submission to its end: the one place that
//! owns what the system works on.
//!
//! ```text
//! Flying ──1──▶ Landed ──2──▶ Taken          1: `land`, by the driver's thread
//!    └────3───▶ Nobody ──4──▶ Taken          2: `take`, by whoever waits
//!                                            3: `give_up`, by whoever waited
//!                                            4: `land`: the result is adopted
//! ```
//!
//! **F1** Between submission and landing nobody but the system touches the load.
//! **F2** Exactly one takes it out afterwards: 2 or 4, decided under the lock.

use std::cell::UnsafeCell;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use kinfolk_core::host::contained;

use super::driver::{Landed, OpId};
use super::hub::Hub;
use super::limit::Permit;
use super::request::Request;

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
        debug_assert!(!landed.more, "{landed:?}: it is no series");
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

enum Stage {
    Flying(Option<Waker>, Option<Permit>),
    Landed(i32),
    Nobody(Option<Permit>),
    Taken,
}

/// The flight of one operation.
pub(crate) struct Flight<T> {
    stage: Mutex<Stage>,
    ticket: Ticket,
    /// None once it was taken out.
    load: UnsafeCell<Option<T>>,
}

// SAFETY: the load is sent to whoever takes it, one at a time (F1, F2).
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
    /// A flight, and what is to be asked of the system for it.
    pub(crate) fn new(
        load: T,
        hub: &Arc<Hub>,
        permit: Option<Permit>,
    ) -> (Arc<Flight<T>>, Request) {
        let mut flight = Arc::new(Flight {
            stage: Mutex::new(Stage::Flying(None, permit)),
            ticket: Ticket::default(),
            load: UnsafeCell::new(Some(load)),
        });
        let request = Arc::get_mut(&mut flight)
            .and_then(|flight| flight.load.get_mut().as_mut())
            .map_or(Request::Nop, |load| load.request(hub));
        (flight, request)
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// # Safety
    /// It has landed, and the caller is the one who takes (F2).
    unsafe fn load(&self) -> T {
        // SAFETY: nobody else touches it any more.
        let load = unsafe { (*self.load.get()).take() };
        load.expect("a load is taken once")
    }

    /// The load and the answer, if it has landed; otherwise `waker` is woken
    /// when it does.
    pub(crate) fn take(&self, waker: &Waker) -> Poll<(T, i32)> {
        let mut stage = self.stage();
        match &mut *stage {
            Stage::Landed(result) => {
                let result = *result;
                *stage = Stage::Taken;
                drop(stage);
                // SAFETY: 2.
                Poll::Ready((unsafe { self.load() }, result))
            }
            Stage::Flying(old, _) => {
                if old.as_ref().is_some_and(|old| old.will_wake(waker)) {
                    return Poll::Pending;
                }
                let old = old.replace(waker.clone());
                drop(stage);
                drop(old);
                Poll::Pending
            }
            Stage::Nobody(_) | Stage::Taken => unreachable!("a flight has one who waits"),
        }
    }

    /// True once it has landed.
    pub(crate) fn has_landed(&self) -> bool {
        matches!(&*self.stage(), Stage::Landed(_))
    }

    /// The load of a flight that was never submitted.
    pub(crate) fn never_begun(&self) -> T {
        *self.stage() = Stage::Taken;
        // SAFETY: the system does not know of it, and nobody else takes it.
        unsafe { self.load() }
    }

    /// Nobody waits any more. False if it has landed already: then its result
    /// is adopted here.
    pub(crate) fn give_up(&self) -> bool {
        let mut stage = self.stage();
        match std::mem::replace(&mut *stage, Stage::Nobody(None)) {
            Stage::Flying(waker, permit) => {
                *stage = Stage::Nobody(permit);
                drop(stage);
                drop(waker);
                true
            }
            Stage::Landed(result) => {
                *stage = Stage::Taken;
                drop(stage);
                // SAFETY: 2: it has landed and nobody else will take it.
                adopt(unsafe { self.load() }, result);
                false
            }
            before @ (Stage::Nobody(_) | Stage::Taken) => {
                *stage = before;
                false
            }
        }
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
        let mut stage = self.stage();
        match std::mem::replace(&mut *stage, Stage::Landed(result)) {
            Stage::Flying(waker, permit) => {
                drop(stage);
                drop(permit);
                if let Some(waker) = waker {
                    contained(move || waker.wake());
                }
            }
            Stage::Nobody(permit) => {
                *stage = Stage::Taken;
                drop(stage);
                drop(permit);
                // SAFETY: 4.
                adopt(unsafe { self.load() }, result);
            }
            Stage::Landed(_) | Stage::Taken => unreachable!("an operation lands once"),
        }
    }

    fn ticket(&self) -> &Ticket {
        &self.ticket
    }
}
