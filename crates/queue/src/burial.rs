//! The end of a scheduler whose threads are gone: the turns that it still has, and
//! those that still come, are dropped, and their jobs end.
//!
//! One thread drops them at a time, and never inside the drop of another: to drop a
//! turn ends its job, which schedules the parent, and a chain of those would grow the
//! stack with the depth of the tree.

use kinfolk_core::host::Turn;

use crate::injector::Injector;
use crate::sync::{AtomicBool, Ordering::*, fence};

/// Whether a scheduler's threads are gone, and whether a thread drops its turns.
pub struct Burial {
    gone: AtomicBool,
    burying: AtomicBool,
}

impl Default for Burial {
    fn default() -> Self {
        Burial {
            gone: AtomicBool::new(false),
            burying: AtomicBool::new(false),
        }
    }
}

impl std::fmt::Debug for Burial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Burial")
            .field("gone", &self.is_gone())
            .finish_non_exhaustive()
    }
}

impl Burial {
    /// True if the threads are gone. Asked by a pusher after its push, behind a fence.
    #[inline]
    pub fn is_gone(&self) -> bool {
        self.gone.load(SeqCst)
    }

    /// The threads are gone, or one of them is. The caller then
    /// [buries](Burial::bury) what was pushed.
    pub fn begin(&self) {
        self.gone.store(true, SeqCst);
        // Pairs with the fence of a pusher: the flag, then our look at the queue; its
        // push, then its look at the flag. Modelled in `gone_vs_push`.
        fence(SeqCst);
    }

    /// Drops what `queues` have, through `each`, unless another thread does or this one
    /// does further down its stack.
    pub fn bury(&self, queues: &[&Injector], mut each: impl FnMut(Turn)) {
        self.bury_all(
            || queues.iter().all(|queue| queue.is_empty()),
            || {
                for queue in queues {
                    queue.take(usize::MAX).for_each(&mut each);
                }
            },
        );
    }

    fn bury_all(&self, is_empty: impl Fn() -> bool, mut take: impl FnMut()) {
        // A push that finds the flag set is left to the thread that has set it: that
        // one looks again when it has cleared it. Modelled in `bury_vs_bury`.
        while !is_empty() && !self.burying.swap(true, AcqRel) {
            while !is_empty() {
                take();
            }
            // Loom would let a later exchange overlook a plain store.
            self.burying.swap(false, AcqRel);
            fence(SeqCst);
        }
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::sync::AtomicUsize;
    use loom::sync::Arc;
    use loom::thread;

    #[derive(Default)]
    struct World {
        burial: Burial,
        queue: AtomicUsize,
        buried: AtomicUsize,
        at_it: AtomicUsize,
    }

    impl World {
        fn push(&self) {
            self.queue.fetch_add(1, SeqCst);
            fence(SeqCst);
            if self.burial.is_gone() {
                self.bury();
            }
        }

        fn bury(&self) {
            self.burial.bury_all(
                || self.queue.load(SeqCst) == 0,
                || {
                    assert_eq!(self.at_it.swap(1, SeqCst), 0, "two at once");
                    let taken = self.queue.swap(0, SeqCst);
                    self.buried.fetch_add(taken, SeqCst);
                    self.at_it.swap(0, SeqCst);
                },
            );
        }
    }

    /// The threads go while a turn is pushed: it is dropped.
    #[test]
    fn gone_vs_push() {
        loom::model(|| {
            let world = Arc::new(World::default());
            let pusher = {
                let world = world.clone();
                thread::spawn(move || world.push())
            };
            world.burial.begin();
            world.bury();
            pusher.join().expect("the pusher");
            assert_eq!(world.buried.load(SeqCst), 1, "a turn was left");
        });
    }

    /// Two push when the threads are gone: both turns are dropped, by one thread at a
    /// time.
    #[test]
    fn bury_vs_bury() {
        loom::model(|| {
            let world = Arc::new(World::default());
            world.burial.begin();
            let pusher = {
                let world = world.clone();
                thread::spawn(move || world.push())
            };
            world.push();
            pusher.join().expect("the pusher");
            assert_eq!(world.buried.load(SeqCst), 2, "a turn was left");
        });
    }
}
