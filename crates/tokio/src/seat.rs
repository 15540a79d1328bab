//! A seat: one driver's place in the host. It has the tray, how the driver is woken,
//! and whether its turn is held up.

use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::task::Waker;

use kinfolk_core::host::TurnRow;
use kinfolk_queue::{Door, Tray};

/// The tokio waker of the driver at a seat; none before its first poll.
enum Bell {
    /// Of a regular driver, which is one tokio task for the life of the root.
    Regular(OnceLock<Waker>),
    /// Of an extra one. After it has gone another may take the seat.
    Extra(Mutex<Option<Waker>>),
}

/// One driver's place.
pub(crate) struct Seat {
    pub(crate) tray: Tray,
    pub(crate) door: Door,
    /// A regular driver was started here.
    started: AtomicBool,
    bell: Bell,
    /// Its turn is held up: it has said so, or was seen in it for long.
    held_up: AtomicBool,
}

impl Seat {
    fn with(bell: Bell) -> Seat {
        Seat {
            tray: Tray::new(),
            door: Door::asleep(),
            started: AtomicBool::new(false),
            bell,
            held_up: AtomicBool::new(false),
        }
    }

    pub(crate) fn regular() -> Seat {
        Seat::with(Bell::Regular(OnceLock::new()))
    }

    pub(crate) fn extra() -> Seat {
        Seat::with(Bell::Extra(Mutex::new(None)))
    }

    /// True for the one caller that is to start its regular driver.
    #[inline]
    pub(crate) fn is_to_start(&self) -> bool {
        matches!(self.bell, Bell::Regular(_))
            && !self.started.load(Relaxed)
            && !self.started.swap(true, SeqCst)
    }

    /// The driver is polled with `waker`, the same at each poll.
    #[inline]
    pub(crate) fn polled_with(&self, waker: &Waker) {
        match &self.bell {
            Bell::Regular(bell) => {
                bell.get_or_init(|| waker.clone());
            }
            Bell::Extra(bell) => {
                let mut bell = bell.lock().unwrap_or_else(PoisonError::into_inner);
                bell.get_or_insert_with(|| waker.clone());
            }
        }
    }

    /// Makes tokio poll the driver. One that was not polled yet will be: it was spawned
    /// a moment ago.
    #[inline]
    pub(crate) fn wake(&self) {
        match &self.bell {
            Bell::Regular(bell) => {
                if let Some(waker) = bell.get() {
                    waker.wake_by_ref();
                }
            }
            Bell::Extra(bell) => {
                let waker = bell.lock().unwrap_or_else(PoisonError::into_inner).clone();
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
        }
    }

    /// The extra driver has gone.
    pub(crate) fn is_free(&self) {
        if let Bell::Extra(bell) = &self.bell {
            let waker = bell.lock().unwrap_or_else(PoisonError::into_inner).take();
            drop(waker);
        }
    }

    /// Its turn is held up. True if that is new.
    pub(crate) fn hold_up(&self) -> bool {
        !self.held_up.swap(true, SeqCst)
    }

    /// Its turn goes on or is over. True if it was held up.
    #[inline]
    pub(crate) fn go_on(&self) -> bool {
        self.held_up.load(Relaxed) && self.held_up.swap(false, SeqCst)
    }

    /// How many turns wait here, and whether the driver is in one.
    pub(crate) fn load(&self) -> (usize, bool) {
        let (queued, in_turn) = self.tray.load();
        (queued + usize::from(self.door.has_turn()), in_turn)
    }

    /// Takes out all that is queued here. The driver's, or of whoever acts for it when
    /// it is gone.
    pub(crate) fn clear(&self) -> TurnRow {
        let mut all = TurnRow::new();
        if let Some(turn) = self.door.get_up() {
            all.push_back(turn);
        }
        let streak = kinfolk_queue::Streak::default();
        while let Some(turn) = self.tray.pop(&streak) {
            all.push_back(turn);
        }
        all
    }
}
