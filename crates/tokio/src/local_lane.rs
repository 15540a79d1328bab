//! The main lane of a root on a `LocalSet`: what the thread of that set has to turn, and
//! the tokio task there that takes it. The task is one of the set, so it stays on that
//! thread, and so do futures that are not `Send`.

use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use kinfolk_core::host::{Turn, TurnRow, look_again};
use kinfolk_queue::{Burial, Injector};

use crate::driver::{Batch, give_way};
use crate::machine::Machine;

/// What is queued for the thread of a `LocalSet`, and how it is told.
#[derive(Default)]
pub(crate) struct LocalLane {
    inbox: Injector,
    /// The waker of the task, from its first poll on.
    bell: OnceLock<Waker>,
    /// A turn is taken.
    in_turn: AtomicBool,
    /// The set has dropped the task.
    burial: Burial,
}

impl LocalLane {
    /// How many turns wait, and whether one is taken.
    pub(crate) fn load(&self) -> (usize, bool) {
        (self.inbox.len(), self.in_turn.load(Ordering::Relaxed))
    }

    /// Has the task polled. One that was not polled yet will be: it was spawned with the
    /// root.
    pub(crate) fn wake(&self) {
        if let Some(bell) = self.bell.get() {
            bell.wake_by_ref();
        }
    }
}

impl Machine {
    /// Turns of the main lane. They are counted already.
    pub(crate) fn put_main(self: &Arc<Self>, lane: &LocalLane, row: TurnRow) {
        if row.is_empty() {
            return;
        }
        lane.inbox.push(row);
        // Pairs with the fence of the first poll: our push, then our look at the bell and at
        // the burial; the bell and the burial, then a look at the inbox.
        fence(Ordering::SeqCst);
        lane.wake();
        if lane.burial.is_gone() {
            self.bury_main(lane);
        }
    }

    /// Drops what is queued for a thread that takes no more turns, if this is that thread.
    /// On another it stays where it is: its futures may be dropped on their lane alone.
    fn bury_main(&self, lane: &LocalLane) {
        if self.is_main_thread() {
            lane.burial.bury(&[&lane.inbox], |turn| {
                drop(turn);
                self.rested();
            });
        }
    }
}

impl Machine {
    /// A job of the main lane whose last child ends on a worker hands its end over to the
    /// thread of the set. That thread goes on with other things once the set is dropped, so it
    /// takes such ends for a moment: until all jobs have ended, [`MOMENT`] at most.
    fn bury_what_comes(&self, lane: &LocalLane) {
        let until = Instant::now() + MOMENT;
        while self.has_living_jobs() && Instant::now() < until {
            std::thread::sleep(BETWEEN);
            self.bury_main(lane);
        }
    }
}

/// How long the drop of a set takes the ends that workers hand over, if some job does not end.
const MOMENT: Duration = Duration::from_millis(500);

/// How long lies between two looks at what was handed over.
const BETWEEN: Duration = Duration::from_micros(100);

/// The tokio task that takes turns of the main lane.
pub(crate) struct LocalDriver {
    machine: Arc<Machine>,
    /// It has gone home. One that is dropped before was dropped by its set.
    is_home: bool,
    /// It stays where it was made.
    stays: PhantomData<*const ()>,
}

impl LocalDriver {
    pub(crate) fn new(machine: Arc<Machine>) -> LocalDriver {
        LocalDriver {
            machine,
            is_home: false,
            stays: PhantomData,
        }
    }

    fn lane(&self) -> &LocalLane {
        let lane = self.machine.main.as_ref();
        lane.expect("only a root with a main lane has this driver")
    }

    fn take(&self, turn: Turn) {
        let lane = self.lane();
        lane.in_turn.store(true, Ordering::Relaxed);
        let again = turn.run();
        lane.in_turn.store(false, Ordering::Relaxed);
        match again {
            // It goes on being counted, behind the others.
            Some(again) => {
                let mut row = TurnRow::new();
                row.push_back(again);
                lane.inbox.push(row);
            }
            None => self.machine.rested(),
        }
    }
}

impl Future for LocalDriver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let bell = &this.lane().bell;
        if bell.get().is_none() {
            let _ = bell.set(cx.waker().clone());
            // Pairs with the fence of `put_main`.
            fence(Ordering::SeqCst);
        }
        look_again();
        let mut batch = Batch::default();
        loop {
            let Some(turn) = this.lane().inbox.take(1).next() else {
                if this.machine.is_stopping() {
                    this.is_home = true;
                    return Poll::Ready(());
                }
                return Poll::Pending;
            };
            this.take(turn);
            if batch.is_over() {
                return give_way(cx);
            }
        }
    }
}

impl Drop for LocalDriver {
    fn drop(&mut self) {
        if self.is_home {
            return;
        }
        // Its futures are of this thread, and it turns no more: so every job ends.
        self.lane().burial.begin();
        self.machine.bury_main(self.lane());
        self.machine.host_gone(None);
        self.machine.bury_at_doors();
        self.machine.bury_what_comes(self.lane());
    }
}
