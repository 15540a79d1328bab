//! With virtual time: sockets, pipes and processes wait for another side, and that
//! side may be a job of the same test whose bytes are still on their way through the
//! system. The clock jumps over such waits only when they have been quiet for a moment
//! of real time and every driver was looked at once more.
//!
//! Whatever is begun or answered of this sort is a *stir*. A moment without one makes
//! them quiet until the next stir: a listener that waits does not make every jump
//! cost a moment.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crate::machine::Machine;

/// How long there is to be no stir. What a system has to do between two sockets of one
/// process it does in microseconds.
const MOMENT: Duration = Duration::from_millis(5);

#[derive(Default)]
struct Keeper {
    runs: bool,
    wanted: bool,
    gone: bool,
}

pub(crate) struct Quiet {
    stirs: AtomicU64,
    /// Up to which stir it has been quiet.
    quiet: AtomicU64,
    /// By thread_io: it is to look at its driver, and is counted as busy until then.
    asked: Box<[AtomicBool]>,
    keeper: Mutex<Keeper>,
    changed: Condvar,
}

impl Quiet {
    pub(crate) fn new(threads: usize) -> Quiet {
        Quiet {
            stirs: AtomicU64::new(0),
            quiet: AtomicU64::new(0),
            asked: (0..threads).map(|_| AtomicBool::new(false)).collect(),
            keeper: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    fn keeper(&self) -> MutexGuard<'_, Keeper> {
        self.keeper.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something that waits for another side was begun, or has answered.
    pub(crate) fn stir(&self) {
        self.stirs.fetch_add(1, Ordering::SeqCst);
    }

    /// There was no stir since it was quiet.
    pub(crate) fn is_quiet(&self) -> bool {
        self.stirs.load(Ordering::SeqCst) == self.quiet.load(Ordering::SeqCst)
    }

    /// ThreadIo `n` is to look at its driver; false if it knows that already.
    #[must_use]
    pub(crate) fn ask(&self, n: usize) -> bool {
        !self.asked[n].swap(true, Ordering::SeqCst)
    }

    /// Whether thread_io `n` is to; once.
    pub(crate) fn take_asked(&self, n: usize) -> bool {
        self.asked[n].load(Ordering::SeqCst) && self.asked[n].swap(false, Ordering::SeqCst)
    }

    /// Everything waits, and there was a stir: the keeper, a thread of its own, waits
    /// for a quiet moment and then lets `machine` look again. False if no thread is
    /// to be had.
    pub(crate) fn want(self: &Arc<Self>, machine: &Weak<Machine>) -> bool {
        let mut keeper = self.keeper();
        keeper.wanted = true;
        if !keeper.runs {
            let (quiet, machine) = (self.clone(), machine.clone());
            let started = std::thread::Builder::new()
                .name("kinfolk-clock".into())
                .spawn(move || quiet.keep(&machine));
            keeper.runs = started.is_ok();
        }
        self.changed.notify_one();
        keeper.runs
    }

    /// The life of the keeper.
    fn keep(&self, machine: &Weak<Machine>) {
        loop {
            {
                let nothing = |keeper: &mut Keeper| !keeper.wanted && !keeper.gone;
                let waited = self.changed.wait_while(self.keeper(), nothing);
                let mut keeper = waited.unwrap_or_else(PoisonError::into_inner);
                if keeper.gone {
                    return;
                }
                keeper.wanted = false;
            }
            let mut seen = self.stirs.load(Ordering::SeqCst);
            loop {
                std::thread::sleep(MOMENT);
                let now = self.stirs.load(Ordering::SeqCst);
                if now == seen {
                    break;
                }
                seen = now;
            }
            let Some(machine) = machine.upgrade() else {
                return;
            };
            // Counted as busy until every driver was asked: the last of those that
            // look lets the clock jump. What they find is a stir.
            machine.busy.add(1);
            self.quiet.store(seen, Ordering::SeqCst);
            machine.look_at_drivers(self);
            machine.rested();
        }
    }

    /// The machine is gone.
    pub(crate) fn close(&self) {
        self.keeper().gone = true;
        self.changed.notify_one();
    }
}
