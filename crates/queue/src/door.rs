//! Where one worker sleeps. One word says whether it does, and a turn that comes from
//! outside is handed to the sleeper in the step that wakes it: no queue and no lock.
//!
//! A worker without neighbours needs no more. One of several lies down at its door
//! first and then in the book of [`Idle`](crate::Idle); a turn is brought only by a
//! thread that has taken it out of the book.
//!
//! ```text
//!            1: lie_down                2: bring
//!   awake ────────────────▶ asleep ────────────────▶ a turn
//!     ▲                       │  3: knock              │
//!     ├───────────────────────┘                        │
//!     └────────────────────────────────────────────────┘
//!                       4: get_up
//! ```
//!
//! Only the owner takes arrows 1 and 4. Modelled in `lie_down_vs_bring` and
//! `lie_down_vs_knock`.

use std::ptr::{self, NonNull};

use kinfolk_core::host::Turn;

use crate::ring::Item;
use crate::sync::{AtomicPtr, Ordering::*, fence};

/// The owner sleeps. Turns are pointers to what is aligned: none is at this address.
const ASLEEP: usize = 1;

fn asleep() -> *mut () {
    ptr::without_provenance_mut(ASLEEP)
}

/// Where one worker sleeps.
pub struct Door(AtomicPtr<()>);

impl std::fmt::Debug for Door {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0.load(Relaxed).addr() {
            0 => "Door(awake)",
            ASLEEP => "Door(asleep)",
            _ => "Door(a turn)",
        })
    }
}

impl Door {
    /// Its owner sleeps, or was not started yet.
    pub fn asleep() -> Door {
        Door(AtomicPtr::new(asleep()))
    }

    /// True if a turn waits for the owner to get up.
    pub fn has_turn(&self) -> bool {
        self.0.load(Relaxed).addr() > ASLEEP
    }

    /// The owner found nothing. After this it looks at the injector once more, and then
    /// sleeps, or [gets up](Door::get_up).
    #[inline]
    pub fn lie_down(&self) {
        self.0.store(asleep(), Release);
        // Pairs with the fence of `knock`: our entry, then our look at the injector;
        // the pusher's push, then its look here.
        fence(SeqCst);
    }

    /// The owner is awake. The answer is the turn that it was woken with. Of another
    /// thread too, if it knows that the owner was woken: it takes the turn back.
    #[inline]
    pub fn get_up(&self) -> Option<Turn> {
        // SAFETY: it came from `into_raw` in `bring`, and comes out of a swap once.
        // Noticed by `lie_down_vs_bring`.
        self.take().map(|item| unsafe { Turn::from_raw(item) })
    }

    #[inline]
    fn take(&self) -> Option<Item> {
        if self.0.load(Relaxed).is_null() {
            return None;
        }
        let was = self.0.swap(ptr::null_mut(), AcqRel);
        (was.addr() != ASLEEP).then(|| NonNull::new(was)).flatten()
    }

    /// Hands `turn` to the owner if it sleeps; the caller then wakes it. Else the turn
    /// comes back, and goes to the injector.
    #[inline]
    pub fn bring(&self, turn: Turn) -> Result<(), Turn> {
        let item = turn.into_raw();
        match self.offer(item) {
            true => Ok(()),
            // SAFETY: it is of `into_raw` just above, and was not put anywhere.
            false => Err(unsafe { Turn::from_raw(item) }),
        }
    }

    #[inline]
    fn offer(&self, item: Item) -> bool {
        self.0
            .compare_exchange(asleep(), item.as_ptr(), AcqRel, Relaxed)
            .is_ok()
    }

    /// Something was pushed to the injector. True if the owner sleeps; the caller then
    /// wakes it.
    #[inline]
    pub fn knock(&self) -> bool {
        fence(SeqCst);
        self.0.load(Relaxed).addr() == ASLEEP
            && self
                .0
                .compare_exchange(asleep(), ptr::null_mut(), AcqRel, Relaxed)
                .is_ok()
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        drop(self.get_up());
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::sync::AtomicUsize;
    use loom::sync::Arc;
    use loom::thread;

    fn item(n: usize) -> Item {
        NonNull::new(ptr::without_provenance_mut(8 * n)).expect("not null")
    }

    /// Two bring a turn each while the owner lies down, and again after what it found:
    /// each turn comes out once, at the door or as one that is given back.
    #[test]
    fn lie_down_vs_bring() {
        loom::model(|| {
            let door = Arc::new(Door::asleep());
            assert!(door.take().is_none());
            let bringers: Vec<_> = (1..=2)
                .map(|n| {
                    let door = door.clone();
                    thread::spawn(move || door.offer(item(n)))
                })
                .collect();
            let mut got = Vec::new();
            for _ in 0..2 {
                door.lie_down();
                got.extend(door.take());
            }
            let brought = bringers.into_iter().map(|one| one.join().expect("it"));
            let brought = brought.filter(|brought| *brought).count();
            got.extend(door.take());
            got.dedup();
            assert_eq!(got.len(), brought, "each comes out once");
        });
    }

    /// The owner lies down while something is pushed to the injector: it sees the push,
    /// or is woken.
    #[test]
    fn lie_down_vs_knock() {
        loom::model(|| {
            let door = Arc::new(Door::asleep());
            assert!(door.take().is_none());
            let injector = Arc::new(AtomicUsize::new(0));
            let pusher = {
                let (door, injector) = (door.clone(), injector.clone());
                thread::spawn(move || {
                    injector.store(1, Relaxed);
                    door.knock()
                })
            };
            door.lie_down();
            let found = injector.load(Relaxed) != 0;
            let woken = pusher.join().expect("the pusher");
            assert!(found || woken, "a wake-up was lost");
        });
    }

    /// A turn is brought to one of several: out of the book, then to its door. Meanwhile
    /// the owner is polled for nothing, gets up, and lies down again, at its door and in the
    /// book. However late the turn comes, it is taken once, and the book counts the owner as
    /// awake while it is up.
    #[test]
    fn bring_vs_lie_down_again() {
        use crate::idle::Idle;
        loom::model(|| {
            let idle = Arc::new(Idle::asleep(1));
            let door = Arc::new(Door::asleep());
            let bringer = {
                let (idle, door) = (idle.clone(), door.clone());
                thread::spawn(move || idle.wake_one(None).is_some() && door.offer(item(1)))
            };
            // It is polled: it is up if it stands in the book no longer, or has a turn.
            let mut got = None;
            if idle.looked(0).is_none() {
                got = door.take();
                if got.is_none() {
                    // It found nothing.
                    door.lie_down();
                    let _ = idle.lie_down(0);
                }
            }
            let brought = bringer.join().expect("the bringer");
            if got.is_none() && brought {
                // It is woken.
                assert!(door.has_turn());
                let _ = idle.stay_up(0);
                got = door.take();
            }
            assert_eq!(got.is_some(), brought);
            let up = usize::from(got.is_some() || idle.looked(0).is_none());
            assert_eq!(idle.awake(), up, "the book counts it wrong");
        });
    }
}
