//! With virtual time: sockets, pipes and processes wait for another side, and that
//! side may be a job of the same test whose bytes are still on their way through the
//! system. The clock jumps over such waits only when they have been quiet for a moment
//! of real time and every driver was looked at once more.
//!
//! Whatever is begun or answered of this sort is a *stir*. A moment without one makes
//! them quiet until the next stir: a listener that waits does not make every jump
//! cost a moment.

use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use crate::machine::Machine;
use crate::sync::{self, AtomicBool, AtomicU64, Condvar, Mutex, MutexGuard, Ordering, lock};

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
            keeper: Mutex::new(Keeper::default()),
            changed: Condvar::new(),
        }
    }

    fn keeper(&self) -> MutexGuard<'_, Keeper> {
        lock(&self.keeper)
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
            let started = sync::Builder::new()
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
                let mut keeper = self.keeper();
                while !keeper.wanted && !keeper.gone {
                    let waited = self.changed.wait(keeper);
                    keeper = waited.unwrap_or_else(PoisonError::into_inner);
                }
                if keeper.gone {
                    return;
                }
                keeper.wanted = false;
            }
            let mut seen = self.stirs.load(Ordering::SeqCst);
            loop {
                sync::let_pass(MOMENT);
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

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::machine::with_clock;
    use crate::sync::Thread;
    use kinfolk_core::Clock;
    use loom::thread;
    use std::time::Instant;

    /// A virtual clock that knows what it must not jump over.
    struct Watching {
        now: Instant,
        /// In the driver of worker 0: an answer, on its way from a job that is over.
        answer: AtomicBool,
        /// The turn that the answer has woken is not over.
        turn: AtomicBool,
        jumped: AtomicBool,
        /// Whom the jump wakes.
        worker: Thread,
    }

    struct Shared(Arc<Watching>);

    impl Clock for Shared {
        fn now(&self) -> Instant {
            self.0.now
        }

        fn is_virtual(&self) -> bool {
            true
        }

        fn idle(&self, _next: Option<Instant>) -> bool {
            let this = &self.0;
            assert!(!this.answer.load(Ordering::SeqCst), "over an answer");
            assert!(!this.turn.load(Ordering::SeqCst), "over a turn");
            this.jumped.store(true, Ordering::SeqCst);
            this.worker.unpark();
            false
        }
    }

    fn machine() -> (Arc<Machine>, Arc<Quiet>, Arc<Watching>) {
        let seen = Arc::new(Watching {
            now: Instant::now(),
            answer: AtomicBool::new(false),
            turn: AtomicBool::new(false),
            jumped: AtomicBool::new(false),
            worker: sync::current(),
        });
        let machine = with_clock(1, Arc::new(Shared(seen.clone())), None);
        let quiet = Arc::new(Quiet::new(1));
        machine.set_quiet(quiet.clone());
        crate::scheduler::worker::Worker::new(machine.clone(), 0).settle_in();
        (machine, quiet, seen)
    }

    /// The worker sleeps until the clock has jumped, as in `Worker::sleep`.
    fn sleeps(machine: &Machine, quiet: &Quiet, seen: &Watching) {
        while !seen.jumped.load(Ordering::SeqCst) {
            if !machine.is_asked(0) {
                sync::park();
                continue;
            }
            if seen.answer.load(Ordering::SeqCst) {
                seen.turn.store(true, Ordering::SeqCst);
                seen.answer.store(false, Ordering::SeqCst);
                quiet.stir();
                machine.busy.add(1);
                machine.rested();
                seen.turn.store(false, Ordering::SeqCst);
                machine.rested();
            } else {
                machine.rested();
            }
        }
    }

    fn model(f: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(f);
    }

    /// A turn elsewhere answers one that waits, and is over: the clock does not jump before
    /// the driver was looked at and what it found is over, and then it jumps.
    #[test]
    fn answer_vs_jump() {
        model(|| {
            let (machine, quiet, seen) = machine();
            machine.busy.add(2);
            let answers = {
                let (machine, quiet, seen) = (machine.clone(), quiet.clone(), seen.clone());
                thread::spawn(move || {
                    seen.answer.store(true, Ordering::SeqCst);
                    quiet.stir();
                    machine.rested();
                })
            };
            // Ours begins to wait.
            quiet.stir();
            machine.rested();
            sleeps(&machine, &quiet, &seen);
            answers.join().expect("the other turn");
        });
    }
}
