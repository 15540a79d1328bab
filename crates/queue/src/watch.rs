//! Whether a watch is kept over workers that may be held up in a turn. The thread or
//! task that watches rests while every worker sleeps, and is woken by the first that
//! does not.

use crate::idle::Idle;
use crate::sync::{AtomicBool, AtomicUsize, Ordering::*, fence};

/// Whether the watch is kept.
pub struct Watch {
    kept: AtomicBool,
    /// How many others are to be watched, which stand in no book.
    others: AtomicUsize,
}

impl Default for Watch {
    fn default() -> Self {
        Watch {
            kept: AtomicBool::new(false),
            others: AtomicUsize::new(0),
        }
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Watch({})", self.kept.load(Relaxed))
    }
}

impl Watch {
    /// Asked by a worker that is awake: true if the caller is to wake the watch. One
    /// load where it is kept.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        !self.kept.load(Acquire) && !self.kept.swap(true, AcqRel)
    }

    /// Another thread or task, which is no worker, is to be watched until
    /// [`is_over`](Watch::is_over). True if the caller is to wake the watch.
    pub fn begins(&self) -> bool {
        self.others.fetch_add(1, SeqCst);
        // Pairs with the fence of `rests`: our count, then our look at the flag; its flag,
        // then its look at the count. Modelled in `rest_vs_begin`.
        fence(SeqCst);
        self.is_wanted()
    }

    /// What has [begun](Watch::begins) is over.
    pub fn is_over(&self) {
        self.others.fetch_sub(1, SeqCst);
    }

    /// The watch has looked. True if it is to rest until it is woken: every worker
    /// sleeps, and nothing else is to be watched. Modelled in `rest_vs_wake`.
    ///
    /// A worker that wakes after our look at the book comes through its lock, and so
    /// sees our flag.
    pub fn rests(&self, idle: &Idle) -> bool {
        self.kept.swap(false, AcqRel);
        fence(SeqCst);
        if idle.awake() == 0 && self.others.load(SeqCst) == 0 {
            return true;
        }
        // If a worker has set it meanwhile it wakes us; to be awake already does no
        // harm.
        self.kept.swap(true, AcqRel);
        false
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// The watch goes to rest while a worker is woken: it stays, or is woken.
    #[test]
    fn rest_vs_wake() {
        loom::model(|| {
            let idle = Arc::new(Idle::asleep(1));
            let watch = Arc::new(Watch::default());
            assert!(watch.is_wanted());
            let worker = {
                let (idle, watch) = (idle.clone(), watch.clone());
                thread::spawn(move || {
                    assert_eq!(idle.wake_one(None), Some(0));
                    watch.is_wanted()
                })
            };
            let rests = watch.rests(&idle);
            let woken = worker.join().expect("the worker");
            assert!(!rests || woken, "a worker is awake and no watch is kept");
        });
    }

    /// The watch goes to rest while something else begins that is to be watched: it stays,
    /// or is woken.
    #[test]
    fn rest_vs_begin() {
        loom::model(|| {
            let idle = Idle::asleep(1);
            let watch = Arc::new(Watch::default());
            assert!(watch.is_wanted());
            let other = {
                let watch = watch.clone();
                thread::spawn(move || watch.begins())
            };
            let rests = watch.rests(&idle);
            let woken = other.join().expect("the other");
            assert!(!rests || woken, "it goes on and no watch is kept");
        });
    }
}
