//! The timers of a runtime: one queue, and one sleeping thread that keeps it.
//!
//! The *keeper* sleeps until the first timer. A thread that sets an earlier timer
//! wakes it; a thread that gives a timer up does not, so the keeper may wake for
//! nothing, once. Threads that are awake look now and then, and before they
//! sleep.
//!
//! A keeper that is woken to work keeps nothing any more, and all workers may be
//! in turns that last. So the main thread is the *deputy* whenever it sleeps: it
//! wakes a moment after the first timer, and fires what no worker has fired by
//! then. It too is woken by a thread that sets an earlier one. That moment keeps it out
//! of the way while the workers keep time, and bounds how often it is woken.
//!
//! What is due lies in one row that every thread sees, and one thread at a time, the
//! *firer*, wakes from it: so all are woken in order (time-6). A wake may call code of
//! the user's, a hook or a foreign waker, which may be slow. When such a call has
//! lasted for [`HELD_UP`], the next thread that looks is the firer and goes on with
//! the row; the first one, when it returns, leaves it alone.

use std::collections::VecDeque;
use std::task::Waker;
use std::time::Instant;

use kinfolk_core::host::{TimerKey, TimerQueue, is_of_task, wake};

use crate::sync::{HELD_UP, Mutex, MutexGuard, lock};

/// Who is to be told that a timer was set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Tell {
    /// None: a thread wakes early enough.
    Nobody,
    /// The keeper, which would sleep too long.
    Keeper(usize),
    /// A sleeping worker: there is no keeper.
    Anybody,
}

/// What the main thread does about the timers while there are workers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Deputy {
    /// It is awake or outside, or was told: it looks before it sleeps.
    #[default]
    Away,
    /// It sleeps and knows of no timer.
    ForGood,
    /// It sleeps until a moment after this one.
    Until(Instant),
}

/// A timer was set.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub(crate) struct NewTimer {
    pub(crate) key: TimerKey,
    /// Who is to be told.
    pub(crate) tell: Tell,
    /// The deputy, which is the main thread, is to be told too.
    pub(crate) deputy: bool,
}

#[derive(Default)]
struct TimersInner {
    queue: TimerQueue,
    /// Who sleeps until when.
    keeper: Option<(usize, Instant)>,
    deputy: Deputy,
    /// Those that are due and not woken yet, in order.
    due: VecDeque<Waker>,
    firer: Option<Firer>,
    /// How many firers there have been.
    firers: u64,
}

/// The thread that wakes from the row.
struct Firer {
    number: u64,
    /// Since when it is in a wake that may call code of the user's.
    calls: Option<Instant>,
}

impl Firer {
    /// Another thread may go on with the row.
    fn is_held_up(&self) -> bool {
        self.calls.is_some_and(|since| since.elapsed() >= HELD_UP)
    }
}

impl TimersInner {
    /// Something lies in the row, and its firer does not come to it.
    fn is_held_up(&self) -> bool {
        !self.due.is_empty() && self.firer.as_ref().is_none_or(Firer::is_held_up)
    }
}

/// More room than that for the row is given back.
const ROOM: usize = 1024;

#[derive(Default)]
pub(crate) struct Timers(Mutex<TimersInner>);

impl Timers {
    fn kept(&self) -> MutexGuard<'_, TimersInner> {
        lock(&self.0)
    }

    #[inline]
    pub(crate) fn set(&self, at: Instant, waker: Waker) -> NewTimer {
        let mut kept = self.kept();
        // Its instant is ours: it need not be read back from where it has just
        // been written.
        let number = kept.queue.insert(at, waker).number;
        let tell = match kept.keeper {
            Some((_, until)) if until <= at => Tell::Nobody,
            Some((n, _)) => {
                // It looks again before it sleeps again: told once.
                kept.keeper = None;
                Tell::Keeper(n)
            }
            None => Tell::Anybody,
        };
        let deputy = match kept.deputy {
            Deputy::Away => false,
            Deputy::Until(first) if first <= at => false,
            Deputy::ForGood | Deputy::Until(_) => {
                kept.deputy = Deputy::Away;
                true
            }
        };
        let key = TimerKey { at, number };
        NewTimer { key, tell, deputy }
    }

    pub(crate) fn clear(&self, key: TimerKey) -> Option<Waker> {
        self.kept().queue.remove(key)
    }

    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.kept().queue.next_at()
    }

    /// When the first is due that no thread has taken out; and true if others have
    /// been, and lie in the row behind a call that does not return.
    pub(crate) fn look(&self) -> (Option<Instant>, bool) {
        let kept = self.kept();
        (kept.queue.next_at(), kept.is_held_up())
    }

    /// True if some that are due have not been woken yet: a thread that is about to
    /// sleep looks again after [`HELD_UP`].
    pub(crate) fn are_being_fired(&self) -> bool {
        !self.kept().due.is_empty()
    }

    /// Wakes everybody whose time has come, in the order of their instants, and
    /// calls `woken` after each; how many. None if another thread is at it: that one
    /// wakes these too, behind those it has.
    pub(crate) fn fire(&self, now: Instant, mut woken: impl FnMut()) -> usize {
        let Some(number) = self.begin_to_fire(now) else {
            return 0;
        };
        let mut fired = 0;
        while let Some(waker) = self.next_due(number) {
            wake(waker);
            woken();
            fired += 1;
        }
        fired
    }

    /// All that are due by now go into the row, in one step. The number of the new
    /// firer, if there is something to do and no other thread does it.
    fn begin_to_fire(&self, now: Instant) -> Option<u64> {
        let mut kept = self.kept();
        let TimersInner { queue, due, .. } = &mut *kept;
        due.extend(std::iter::from_fn(|| queue.pop_due(now)));
        if !kept.is_held_up() {
            return None;
        }
        kept.firers += 1;
        let number = kept.firers;
        kept.firer = Some(Firer {
            number,
            calls: None,
        });
        Some(number)
    }

    /// The next one, for the firer with this number. None if that was the last, or if
    /// another thread has gone on with the row meanwhile.
    fn next_due(&self, number: u64) -> Option<Waker> {
        let mut kept = self.kept();
        let TimersInner { due, firer, .. } = &mut *kept;
        let own = firer.as_mut().filter(|firer| firer.number == number)?;
        let Some(next) = due.pop_front() else {
            *firer = None;
            if due.capacity() > ROOM {
                *due = VecDeque::new();
            }
            return None;
        };
        own.calls = (!is_of_task(&next)).then(Instant::now);
        Some(next)
    }

    /// `n` is about to sleep. If there is no keeper, it becomes the keeper: until when.
    pub(crate) fn keep(&self, n: usize) -> Option<Instant> {
        let mut kept = self.kept();
        let next = kept.queue.next_at()?;
        match kept.keeper {
            Some((keeper, until)) if keeper != n && until <= next => None,
            _ => {
                kept.keeper = Some((n, next));
                Some(next)
            }
        }
    }

    /// The main thread is about to sleep, and is the deputy: after which timer it
    /// wakes.
    pub(crate) fn deputise(&self) -> Option<Instant> {
        let mut kept = self.kept();
        let next = kept.queue.next_at();
        kept.deputy = next.map_or(Deputy::ForGood, Deputy::Until);
        next
    }

    /// The main thread sleeps, and is the deputy.
    pub(crate) fn has_deputy(&self) -> bool {
        self.kept().deputy != Deputy::Away
    }

    /// The deputy is awake.
    pub(crate) fn deputy_wakes(&self) {
        self.kept().deputy = Deputy::Away;
    }

    /// `n` is awake and keeps nothing.
    pub(crate) fn unkeep(&self, n: usize) {
        let mut kept = self.kept();
        if kept.keeper.is_some_and(|(keeper, _)| keeper == n) {
            kept.keeper = None;
        }
    }

    /// When the first is due, and how many there are.
    pub(crate) fn load(&self) -> (Option<Instant>, usize) {
        let kept = self.kept();
        (kept.queue.next_at(), kept.queue.len())
    }

    /// Who keeps them.
    pub(crate) fn keeper(&self) -> Option<usize> {
        self.kept().keeper.map(|(n, _)| n)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn one_keeps_and_is_told_of_what_is_earlier() {
        let timers = Timers::default();
        let soon = Instant::now() + Duration::from_secs(1);
        let late = soon + Duration::from_secs(1);
        assert_eq!(timers.keep(0), None, "nothing to keep");
        let NewTimer { key, tell, deputy } = timers.set(late, Waker::noop().clone());
        assert_eq!((tell, deputy), (Tell::Anybody, false));
        assert_eq!(timers.keep(0), Some(late));
        assert_eq!(timers.keep(1), None, "one is enough");
        assert_eq!(
            timers.keep(0),
            Some(late),
            "it looks again before it is due"
        );
        let set = timers.set(soon, Waker::noop().clone());
        assert_eq!(set.tell, Tell::Keeper(0));
        let set = timers.set(late, Waker::noop().clone());
        assert_eq!(set.tell, Tell::Anybody, "it was told, and is awake");
        assert_eq!(timers.keep(1), Some(soon));
        assert!(timers.clear(key).is_some() && timers.clear(key).is_none());
        timers.unkeep(0);
        assert_eq!(timers.keeper(), Some(1));
        assert_eq!(timers.fire(soon, || {}), 1);
    }

    #[test]
    fn the_deputy_is_told_of_what_is_earlier_whoever_keeps() {
        let timers = Timers::default();
        let soon = Instant::now() + Duration::from_secs(1);
        let late = soon + Duration::from_secs(1);
        let set = |at| timers.set(at, Waker::noop().clone());
        assert_eq!(timers.deputise(), None);
        assert!(set(late).deputy, "it sleeps for good");
        assert!(!set(soon).deputy, "it was told, and looks again");
        assert_eq!(timers.deputise(), Some(soon));
        assert_eq!(timers.keep(0), Some(soon));
        assert!(!set(late).deputy && !set(soon).deputy);
        assert!(set(soon - Duration::from_millis(1)).deputy);
        let _ = timers.deputise();
        timers.deputy_wakes();
        assert!(!set(Instant::now()).deputy, "it is awake");
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::machine::{MAIN, Machine, Native, still};
    use crate::scheduler::worker::Worker;
    use crate::sync::{AtomicUsize, Ordering::SeqCst};
    use kinfolk_core::host::Host;
    use loom::thread;
    use std::sync::Arc;
    use std::task::Wake;
    use std::time::Duration;

    /// How often a timer has fired.
    #[derive(Default)]
    struct Fired(AtomicUsize);

    impl Wake for Fired {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    impl Fired {
        fn times(&self) -> usize {
            self.0.load(SeqCst)
        }
    }

    fn hour() -> Duration {
        Duration::from_secs(3600)
    }

    /// Another thread sets a timer that is due.
    fn sets(machine: &Arc<Machine>, fired: &Arc<Fired>) -> thread::JoinHandle<()> {
        let (machine, fired) = (machine.clone(), fired.clone());
        thread::spawn(move || {
            let now = machine.clock.now();
            Native(machine).set_timer(now, fired.into());
        })
    }

    /// One worker goes to sleep, as it does in life, while somebody sets a
    /// timer: it fires, or loom finds that the worker sleeps for ever.
    fn worker_vs_set(kept: bool) {
        loom::model(move || {
            let machine = still(1, None);
            if kept {
                let late = machine.clock.now() + hour();
                let _ = machine.timers.set(late, Waker::noop().clone());
            }
            let fired = Arc::new(Fired::default());
            let worker = Worker::new(machine.clone(), 0);
            worker.settle_in();
            let setter = sets(&machine, &fired);
            while fired.times() == 0 {
                worker.sleep();
            }
            setter.join().expect("the setter");
            assert_eq!(fired.times(), 1);
            assert_eq!(
                machine.timers.keeper(),
                None,
                "whoever is awake keeps nothing"
            );
        });
    }

    /// It would sleep for good.
    #[test]
    fn set_vs_sleep() {
        worker_vs_set(false);
    }

    /// It keeps the timers, and would sleep for an hour.
    #[test]
    fn set_vs_keeper() {
        worker_vs_set(true);
    }

    /// The same for the main thread without workers, as in `Runtime::drive`.
    #[test]
    fn set_vs_main_keeper() {
        loom::model(|| {
            let machine = still(0, None);
            let late = machine.clock.now() + hour();
            let _ = machine.timers.set(late, Waker::noop().clone());
            let fired = Arc::new(Fired::default());
            machine.main.begin(&machine);
            let setter = sets(&machine, &fired);
            while fired.times() == 0 {
                if machine.fire_due() == 0 {
                    machine.main.park(&machine, None, || true);
                }
            }
            setter.join().expect("the setter");
            machine.main.leave(&machine);
            assert_ne!(machine.timers.keeper(), Some(MAIN));
        });
    }

    /// The main thread as the deputy of one worker, which is in a turn that does
    /// not return: it fires the timer, or loom finds that it sleeps for ever.
    fn deputy_vs_set(kept: bool) {
        loom::model(move || {
            let machine = still(1, None);
            if kept {
                let late = machine.clock.now() + hour();
                let _ = machine.timers.set(late, Waker::noop().clone());
            }
            let fired = Arc::new(Fired::default());
            machine.main.begin(&machine);
            let setter = sets(&machine, &fired);
            while fired.times() == 0 {
                machine.main.park(&machine, None, || true);
            }
            setter.join().expect("the setter");
            machine.main.leave(&machine);
            assert_eq!(fired.times(), 1);
        });
    }

    /// It would sleep for good.
    #[test]
    fn set_vs_deputy() {
        deputy_vs_set(false);
    }

    /// It would sleep for an hour.
    #[test]
    fn set_vs_deputy_that_knows_of_one() {
        deputy_vs_set(true);
    }

    /// Two go to sleep while somebody sets a timer: one of them wakes early
    /// enough, or somebody is told.
    #[test]
    fn set_vs_two_keepers() {
        loom::model(|| {
            let timers = Arc::new(Timers::default());
            let soon = Instant::now();
            let _ = timers.set(soon + hour(), Waker::noop().clone());
            let sleepers: Vec<_> = (0..2)
                .map(|n| {
                    let timers = timers.clone();
                    thread::spawn(move || timers.keep(n))
                })
                .collect();
            let NewTimer { tell, .. } = timers.set(soon, Waker::noop().clone());
            let until: Vec<_> = sleepers
                .into_iter()
                .map(|sleeper| sleeper.join().expect("a sleeper"))
                .collect();
            match tell {
                Tell::Keeper(n) => assert!(until[n].is_some_and(|at| at > soon)),
                Tell::Nobody => assert!(until.contains(&Some(soon))),
                // Nobody was entered: one who lay down before is woken, and the
                // first to lie down since keeps it.
                Tell::Anybody => {}
            }
            // Whoever is told looks again; then one wakes in time.
            let told = match tell {
                Tell::Keeper(n) => timers.keep(n),
                _ => None,
            };
            assert!(
                until.contains(&Some(soon)) || told == Some(soon),
                "{tell:?}, asleep until {until:?}, told until {told:?}"
            );
        });
    }

    /// The keeper goes to sleep while the timer it sleeps for is given up
    /// elsewhere and a later one is set: somebody wakes for that one in time,
    /// and the keeper wakes for nothing at most once.
    #[test]
    fn clear_vs_keeper() {
        loom::model(|| {
            let timers = Arc::new(Timers::default());
            let first = Instant::now();
            let second = first + hour();
            let NewTimer { key, .. } = timers.set(first, Waker::noop().clone());
            let keeper = {
                let timers = timers.clone();
                thread::spawn(move || timers.keep(0))
            };
            assert!(timers.clear(key).is_some(), "it has not fired");
            let NewTimer { tell, .. } = timers.set(second, Waker::noop().clone());
            let until = keeper.join().expect("the keeper");
            match tell {
                // It sleeps, and wakes at the first or at the second.
                Tell::Nobody => assert!(until.is_some_and(|at| at <= second)),
                Tell::Keeper(n) => assert_eq!((n, until), (0, None), "it wakes in time"),
                // It had not looked yet, or had seen none.
                Tell::Anybody => assert!(until.is_none_or(|at| at == second)),
            }
            // It wakes for nothing, looks, and sleeps until the second.
            timers.unkeep(0);
            assert_eq!(timers.fire(first, || {}), 0);
            assert_eq!(timers.keep(0), Some(second));
        });
    }

    /// A timer fires while it is given up elsewhere: one of the two has it.
    #[test]
    fn fire_vs_clear() {
        loom::model(|| {
            let timers = Arc::new(Timers::default());
            let fired = Arc::new(Fired::default());
            let now = Instant::now();
            let NewTimer { key, .. } = timers.set(now, fired.clone().into());
            // Another one, to be found in its place later.
            let _ = timers.set(now + hour(), Waker::noop().clone());
            let clearer = {
                let timers = timers.clone();
                thread::spawn(move || timers.clear(key).is_some())
            };
            let fires = timers.fire(now, || {});
            // It may take the place of the first: the old key does not name it.
            let _ = timers.set(now + hour(), Waker::noop().clone());
            let cleared = clearer.join().expect("the clearer");
            assert_eq!(fires, fired.times());
            assert_eq!(fires + usize::from(cleared), 1, "one of the two");
            assert_eq!(timers.load().1, 2, "nobody else's was given up");
        });
    }
}
