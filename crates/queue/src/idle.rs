//! Who sleeps, and who is woken for what. See the README beside this file for
//! the argument that no wake-up is lost.
//!
//! A worker without work sleeps in one of two ways. *For good*: until another thread
//! wakes it. As the *sentinel*: it looks again after a moment, because a
//! neighbour is awake and may be in a long turn with work behind it. There is
//! one sentinel at most.
//!
//! - **I1** A worker goes to sleep with an empty ring, an empty backlog and an empty
//!   slot.
//! - **I2** It sleeps for good only if no other worker is awake or there is a
//!   sentinel.
//! - **I3** The sentinel leaves its post only if no worker is awake, or none
//!   else sleeps, or by waking another. That one finds nothing and takes the
//!   post, or finds something and wakes another in its turn.

use crate::sync::{AtomicU32, Mutex, Ordering::*, fence, lock};

/// How a worker is to sleep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum SleepKind {
    /// Until it is woken.
    ForGood,
    /// For a moment: it looks after the neighbours.
    Sentinel,
}

/// A worker sleeps for good.
const SLEEPERS: u32 = 1;
/// There is a sentinel.
const SENTINEL: u32 = 2;

struct Who {
    sleeping: Vec<usize>,
    sentinel: Option<usize>,
    awake: usize,
}

/// The book of which workers sleep.
pub struct Idle {
    who: Mutex<Who>,
    /// What `who` comes to, to be looked at without the lock.
    summary: AtomicU32,
}

impl std::fmt::Debug for Idle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let who = lock(&self.who);
        f.debug_struct("Idle")
            .field("awake", &who.awake)
            .field("sleeping", &who.sleeping)
            .field("sentinel", &who.sentinel)
            .finish()
    }
}

impl Idle {
    /// All of them awake.
    pub fn new(workers: usize) -> Idle {
        Idle {
            who: Mutex::new(Who {
                sleeping: Vec::with_capacity(workers),
                sentinel: None,
                awake: workers,
            }),
            summary: AtomicU32::new(0),
        }
    }

    /// All of them asleep for good, or not started yet: the first to be woken is
    /// worker 0.
    pub fn asleep(workers: usize) -> Idle {
        Idle {
            who: Mutex::new(Who {
                sleeping: (0..workers).collect(),
                sentinel: None,
                awake: 0,
            }),
            summary: AtomicU32::new(if workers > 0 { SLEEPERS } else { 0 }),
        }
    }

    /// How many are awake.
    pub fn awake(&self) -> usize {
        lock(&self.who).awake
    }

    /// One more worker, which is awake.
    pub fn join(&self) {
        lock(&self.who).awake += 1;
    }

    /// A worker that is awake goes for ever, and leaves nothing at its tray. A push that
    /// woke no other, since all were awake, is seen by those that stay: each looks before
    /// it sleeps.
    pub fn leave(&self) {
        lock(&self.who).awake -= 1;
    }

    fn publish(&self, who: &Who) {
        let mut summary = 0;
        if !who.sleeping.is_empty() {
            summary |= SLEEPERS;
        }
        if who.sentinel.is_some() {
            summary |= SENTINEL;
        }
        self.summary.store(summary, SeqCst);
    }

    /// Worker `n` found nothing. After this it looks once more where others
    /// push, and then sleeps, or [stays up](Idle::stay_up).
    pub fn lie_down(&self, n: usize) -> SleepKind {
        let how = {
            let mut who = lock(&self.who);
            who.awake -= 1;
            let how = if who.awake > 0 && who.sentinel.is_none() {
                who.sentinel = Some(n);
                SleepKind::Sentinel
            } else {
                who.sleeping.push(n);
                SleepKind::ForGood
            };
            self.publish(&who);
            how
        };
        // Park versus push: our entry above, then our look at the queues; the
        // pusher's push, then its look at `summary`.
        fence(SeqCst);
        how
    }

    /// Worker `n` lay down and found something after all, or was woken by the
    /// clock. Other sleepers are left alone, but for I3: the answer is a
    /// worker to wake.
    pub fn stay_up(&self, n: usize) -> Option<usize> {
        let mut who = lock(&self.who);
        let mut instead = None;
        if who.sentinel == Some(n) {
            who.sentinel = None;
            who.awake += 1;
            instead = who.sleeping.pop();
            who.awake += usize::from(instead.is_some());
        } else if let Some(at) = who.sleeping.iter().position(|other| *other == n) {
            who.sleeping.swap_remove(at);
            who.awake += 1;
        }
        // Neither: somebody has woken it meanwhile, and counted it.
        self.publish(&who);
        instead
    }

    /// The sentinel `n` has looked round and found nothing. None if it was
    /// woken meanwhile.
    pub fn looked(&self, n: usize) -> Option<SleepKind> {
        let mut who = lock(&self.who);
        if who.sentinel != Some(n) {
            return who.sleeping.contains(&n).then_some(SleepKind::ForGood);
        }
        if who.awake > 0 {
            return Some(SleepKind::Sentinel);
        }
        who.sentinel = None;
        who.sleeping.push(n);
        self.publish(&who);
        drop(who);
        // As in `lie_down`: it looks at the queues once more.
        fence(SeqCst);
        Some(SleepKind::ForGood)
    }

    /// Something was pushed where everybody looks: who is to be woken for it.
    /// `spare` is woken last.
    pub fn wake_one(&self, spare: Option<usize>) -> Option<usize> {
        fence(SeqCst);
        if self.summary.load(SeqCst) == 0 {
            return None;
        }
        let mut who = lock(&self.who);
        let woken = match who.sleeping.iter().position(|n| Some(*n) != spare) {
            Some(at) => Some(who.sleeping.swap_remove(at)),
            None => who.sleeping.pop().or_else(|| who.sentinel.take()),
        };
        who.awake += usize::from(woken.is_some());
        self.publish(&who);
        woken
    }

    /// A hint, without a fence: what depends on it is found by the sentinel too.
    #[inline]
    pub fn somebody_sleeps(&self) -> bool {
        self.summary.load(Relaxed) != 0
    }

    /// A worker's own queue has something in it: if others sleep and none
    /// looks, who is to be woken to do so. One load where that is not so.
    #[inline]
    pub fn wake_sentinel(&self) -> Option<usize> {
        if self.summary.load(Relaxed) != SLEEPERS {
            return None;
        }
        self.wake_to_look()
    }

    fn wake_to_look(&self) -> Option<usize> {
        let mut who = lock(&self.who);
        if who.sentinel.is_some() {
            return None;
        }
        let woken = who.sleeping.pop();
        who.awake += usize::from(woken.is_some());
        self.publish(&who);
        woken
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_first_to_lie_down_is_the_sentinel() {
        let idle = Idle::new(3);
        assert_eq!(idle.lie_down(0), SleepKind::Sentinel);
        assert_eq!(idle.lie_down(1), SleepKind::ForGood);
        // One is awake: the sentinel stays.
        assert_eq!(idle.looked(0), Some(SleepKind::Sentinel));
        assert_eq!(idle.wake_sentinel(), None);
        // The last one: nobody is awake, and nobody needs to look.
        assert_eq!(idle.lie_down(2), SleepKind::ForGood);
        assert_eq!(idle.looked(0), Some(SleepKind::ForGood));
        // One is woken; when it has something in its ring it wants a sentinel.
        assert_eq!(idle.wake_one(None), Some(1));
        assert_eq!(idle.looked(1), None);
        let woken = idle.wake_sentinel().expect("somebody to look");
        assert_eq!(idle.lie_down(woken), SleepKind::Sentinel);
        // The sentinel finds work: another takes its post.
        let instead = idle.stay_up(woken).expect("the last sleeper");
        assert_ne!(instead, woken);
        assert_eq!(idle.wake_one(None), None, "all are awake");
    }

    #[test]
    fn workers_come_and_go() {
        let idle = Idle::asleep(2);
        assert_eq!(idle.awake(), 0);
        assert_eq!(idle.wake_one(None), Some(0));
        assert_eq!(idle.wake_one(None), Some(1));
        assert_eq!(idle.wake_one(None), None, "all are awake");
        // A third comes, and looks after the others.
        idle.join();
        assert_eq!(idle.lie_down(2), SleepKind::Sentinel);
        assert_eq!(idle.stay_up(2), None);
        idle.leave();
        assert_eq!(idle.awake(), 2);
    }

    #[test]
    fn whoever_keeps_the_timers_is_woken_last() {
        let idle = Idle::new(2);
        let _ = idle.lie_down(0);
        let _ = idle.lie_down(1);
        let _ = idle.looked(0);
        assert_eq!(idle.wake_one(Some(1)), Some(0));
        assert_eq!(idle.wake_one(Some(1)), Some(1));
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicUsize;
    use loom::thread;

    /// A worker goes to sleep while another thread pushes where all workers look:
    /// either it finds the push, or it is woken.
    #[test]
    fn park_vs_push() {
        loom::model(|| {
            let idle = Arc::new(Idle::new(1));
            let injector = Arc::new(AtomicUsize::new(0));
            let pusher = {
                let (idle, injector) = (idle.clone(), injector.clone());
                thread::spawn(move || {
                    injector.store(1, Relaxed);
                    idle.wake_one(None).is_some()
                })
            };
            let _ = idle.lie_down(0);
            let found = injector.load(Relaxed) != 0;
            let woken = pusher.join().expect("the pusher");
            assert!(found || woken, "a wake-up was lost");
        });
    }

    /// Two threads push what only worker 0 may take, while it goes to sleep again and again
    /// beside one that sleeps: it takes both, or loom finds that it sleeps for ever. It gets up by
    /// itself, and the book counts it right.
    #[test]
    fn park_vs_inbox() {
        loom::model(|| {
            let idle = Arc::new(Idle::new(2));
            let _ = idle.lie_down(1);
            let inbox = Arc::new(AtomicUsize::new(0));
            let worker = thread::current();
            let pushers: [_; 2] = std::array::from_fn(|_| {
                let (inbox, worker) = (inbox.clone(), worker.clone());
                thread::spawn(move || {
                    if inbox.fetch_add(1, SeqCst) == 0 {
                        worker.unpark();
                    }
                })
            });
            let mut taken = 0;
            while taken < 2 {
                let _ = idle.lie_down(0);
                while inbox.load(SeqCst) == 0 {
                    thread::park();
                    let how = idle.looked(0);
                    assert!(how.is_some(), "no other worker takes it out of the book");
                }
                let _ = idle.stay_up(0);
                taken += inbox.swap(0, SeqCst);
                assert!(idle.awake() >= 1);
            }
            for pusher in pushers {
                pusher.join().expect("a pusher");
            }
        });
    }

    /// A worker goes to sleep while its neighbour, who is awake, puts something
    /// into its own queue: a worker will look at that queue.
    #[test]
    fn sleep_vs_own_push() {
        loom::model(|| {
            let idle = Arc::new(Idle::new(2));
            // Both sleep for good; then both are woken for something.
            for n in 0..2 {
                let _ = idle.lie_down(n);
            }
            let _ = idle.looked(0);
            let one = idle.wake_one(None).expect("somebody sleeps");
            let two = idle.wake_one(None).expect("somebody sleeps");
            assert_ne!(one, two);
            let sleeper = {
                let idle = idle.clone();
                thread::spawn(move || idle.lie_down(two))
            };
            let woken = idle.wake_sentinel();
            let how = sleeper.join().expect("the sleeper");
            assert!(
                woken.is_some() || how == SleepKind::Sentinel,
                "worker {one} is awake and nobody looks after it"
            );
        });
    }

    /// An extra worker starts in the place of one that is held up in a turn, finds nothing
    /// and lies down, while something is pushed: it finds the push, or is woken.
    #[test]
    fn join_vs_push() {
        loom::model(|| {
            // Worker 0 is awake, and never looks.
            let idle = Arc::new(Idle::new(1));
            let injector = Arc::new(AtomicUsize::new(0));
            let pusher = {
                let (idle, injector) = (idle.clone(), injector.clone());
                thread::spawn(move || {
                    injector.store(1, Relaxed);
                    idle.wake_one(None)
                })
            };
            idle.join();
            let how = idle.lie_down(1);
            assert_eq!(how, SleepKind::Sentinel, "it looks after worker 0");
            let found = injector.load(Relaxed) != 0;
            let woken = pusher.join().expect("the pusher");
            assert!(found || woken == Some(1), "a wake-up was lost");
            assert_eq!(idle.awake(), 1 + usize::from(woken.is_some()));
        });
    }

    /// An extra worker leaves while another lies down and something is pushed: the one that
    /// stays finds the push, or is woken. It is counted right.
    #[test]
    fn leave_vs_push() {
        loom::model(|| {
            let idle = Arc::new(Idle::new(2));
            let injector = Arc::new(AtomicUsize::new(0));
            let pusher = {
                let (idle, injector) = (idle.clone(), injector.clone());
                thread::spawn(move || {
                    injector.store(1, Relaxed);
                    idle.wake_one(None)
                })
            };
            let extra = {
                let idle = idle.clone();
                thread::spawn(move || idle.leave())
            };
            let _ = idle.lie_down(0);
            let found = injector.load(Relaxed) != 0;
            let woken = pusher.join().expect("the pusher");
            extra.join().expect("the extra one");
            assert!(found || woken == Some(0), "a wake-up was lost");
            assert_eq!(idle.awake(), usize::from(woken.is_some()));
        });
    }
}
