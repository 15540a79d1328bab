//! Whether a watch is kept over workers that may be held up in a turn. The thread or
//! task that watches rests while every worker sleeps, and is woken by the first that
//! does not.

use crate::idle::Idle;
use crate::sync::{AtomicBool, Ordering::*};

/// Whether the watch is kept.
pub struct Watch {
    kept: AtomicBool,
}

impl Default for Watch {
    fn default() -> Self {
        Watch {
            kept: AtomicBool::new(false),
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

    /// The watch has looked. True if it is to rest until it is woken: every worker
    /// sleeps. Modelled in `rest_vs_wake`.
    ///
    /// A worker that wakes after our look at the book comes through its lock, and so
    /// sees our flag.
    pub fn rests(&self, idle: &Idle) -> bool {
        self.kept.swap(false, AcqRel);
        if idle.awake() == 0 {
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
}
