//! With virtual time: how much is runnable, running or otherwise on its way.
//! When nothing is, the clock may jump. With the system's clock this counts
//! nothing and costs one look at a flag.

use std::cell::Cell;

use crate::sync::{AtomicUsize, Mutex, Ordering, local, lock};

pub(crate) struct Busy {
    counts: bool,
    count: AtomicUsize,
    /// One jump at a time: who is let go by it is counted before the next.
    jump: Mutex<()>,
}

impl Busy {
    pub(crate) fn new(counts: bool) -> Busy {
        Busy {
            counts,
            count: AtomicUsize::new(0),
            jump: Mutex::new(()),
        }
    }

    pub(crate) fn counts(&self) -> bool {
        self.counts
    }

    /// How much is busy now.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    pub(crate) fn add(&self, more: usize) {
        if self.counts {
            self.count.fetch_add(more, Ordering::SeqCst);
        }
    }

    /// One is done. True if it was the last: the clock may jump.
    #[must_use]
    pub(crate) fn done(&self) -> bool {
        self.counts && self.count.fetch_sub(1, Ordering::SeqCst) == 1
    }

    /// Runs `jump` while nothing is busy and it moves something.
    pub(crate) fn when_idle(&self, mut jump: impl FnMut() -> bool) {
        self.alone(|| while self.count.load(Ordering::SeqCst) == 0 && jump() {});
    }

    /// Runs `jumps` while no other thread lets the clock jump.
    pub(crate) fn alone(&self, jumps: impl FnOnce()) {
        if JUMPING.with(|whose| std::ptr::eq(whose.get(), self)) {
            // Called by somebody whom the jump lets go: the loop of `when_idle`,
            // further down our stack, looks again.
            return;
        }
        let _jumping = Jumping(JUMPING.with(|whose| whose.replace(self)));
        let _one = lock(&self.jump);
        jumps();
    }
}

// Whose clock this thread lets jump.
local!(static JUMPING: Cell<*const Busy> = Cell::new(std::ptr::null()));

/// Puts back whose it was before.
struct Jumping(*const Busy);

impl Drop for Jumping {
    fn drop(&mut self) {
        JUMPING.with(|whose| whose.set(self.0));
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// What the model knows of itself, beside the count.
    struct World {
        busy: Busy,
        /// Turns that are queued or taken.
        going: AtomicUsize,
        /// A turn that the first jump let go, for the first thread that looks.
        queue: AtomicUsize,
        jumping: AtomicUsize,
        jumps: AtomicUsize,
    }

    impl World {
        /// Counted before anybody can see it.
        fn let_go(&self) {
            self.busy.add(1);
            self.going.fetch_add(1, Ordering::SeqCst);
        }

        fn rested(&self) {
            if self.busy.done() {
                self.busy.when_idle(|| self.jump());
            }
        }

        fn jump(&self) -> bool {
            assert_eq!(self.jumping.swap(1, Ordering::SeqCst), 0, "two jumps");
            let going = self.going.load(Ordering::SeqCst);
            assert_eq!(going, 0, "the clock jumped over a turn");
            let first = self.jumps.fetch_add(1, Ordering::SeqCst) == 0;
            if first {
                self.let_go();
                // Loom would let a later exchange overlook a plain store.
                self.queue.swap(1, Ordering::SeqCst);
                // A tell inside the jump, which rests at once.
                self.busy.add(1);
                self.rested();
            }
            self.jumping.store(0, Ordering::SeqCst);
            first
        }

        /// The end of a turn; then the one that the jump let go, if it is ours.
        fn turn(&self) {
            self.going.fetch_sub(1, Ordering::SeqCst);
            self.rested();
            if self.queue.swap(0, Ordering::SeqCst) == 1 {
                self.turn();
            }
        }
    }

    /// Two turns end while a jump lets a third go: the clock jumps when nothing
    /// is on its way, one jump at a time, and always once more at the end.
    #[test]
    fn jump_vs_turns() {
        loom::model(|| {
            let world = Arc::new(World {
                busy: Busy::new(true),
                going: AtomicUsize::new(0),
                queue: AtomicUsize::new(0),
                jumping: AtomicUsize::new(0),
                jumps: AtomicUsize::new(0),
            });
            world.let_go();
            // Our turn hands one over.
            world.let_go();
            let other = {
                let world = world.clone();
                thread::spawn(move || world.turn())
            };
            world.turn();
            other.join().expect("the other turn");
            assert_eq!(world.going.load(Ordering::SeqCst), 0);
            let jumps = world.jumps.load(Ordering::SeqCst);
            assert!(jumps >= 2, "nobody let the clock jump at the end");
        });
    }
}
