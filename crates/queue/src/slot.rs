//! The hand-over slot: one place beside a worker's ring, for what its turn woke
//! last. The owner puts and takes; a thief takes what it saw there for long.
//!
//! Every turn that goes in comes out once: coming out, being stolen, and going
//! in on top of another are one exchange of one pointer each. What was seen may
//! have left and come back meanwhile; then the thief has what is there now, and
//! that is as good. Modelled in `slot_hands_over_once`.

use std::ptr::{self, NonNull};

use crate::ring::Item;
use crate::sync::{AtomicPtr, Ordering::*};

pub(crate) struct TurnSlot(AtomicPtr<()>);

/// What lay in a slot: an address to compare with, nothing to use.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct SeenItem(usize);

impl SeenItem {
    #[inline]
    pub(crate) fn is_none(self) -> bool {
        self.0 == 0
    }
}

impl TurnSlot {
    pub(crate) fn new() -> TurnSlot {
        TurnSlot(AtomicPtr::new(ptr::null_mut()))
    }

    /// Puts one in; the answer lay there before. The owner's.
    #[inline]
    pub(crate) fn put(&self, item: Item) -> Option<Item> {
        if self.look().is_none() {
            // Nobody else fills it, and a thief takes out what it has seen: an
            // empty one stays empty.
            self.0.store(item.as_ptr(), Release);
            return None;
        }
        NonNull::new(self.0.swap(item.as_ptr(), AcqRel))
    }

    /// Takes out what is there. The owner's.
    #[inline]
    pub(crate) fn take(&self) -> Option<Item> {
        if self.look().is_none() {
            return None;
        }
        NonNull::new(self.0.swap(ptr::null_mut(), AcqRel))
    }

    /// What is there.
    #[inline]
    pub(crate) fn look(&self) -> SeenItem {
        SeenItem(self.0.load(Relaxed).addr())
    }

    /// Takes out what was seen, if it is there. Anybody's.
    pub(crate) fn steal(&self, seen: SeenItem) -> Option<Item> {
        let seen = ptr::without_provenance_mut(seen.0);
        self.0
            .compare_exchange(seen, ptr::null_mut(), AcqRel, Relaxed)
            .ok()
            .and_then(NonNull::new)
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    /// A task: what it is at is written before it is put, and read and written
    /// by the thread that has taken it.
    type Task = UnsafeCell<usize>;

    fn item(task: &Arc<Task>) -> Item {
        NonNull::from(&**task).cast()
    }

    /// A turn of it. Loom complains if two have one at once.
    fn turn(item: Item) {
        // SAFETY: the tasks outlive the threads of the model.
        let task = unsafe { item.cast::<Task>().as_ref() };
        // SAFETY: whoever has the turn is alone, which loom checks.
        task.with_mut(|turns| unsafe { *turns += 1 });
    }

    /// The owner puts one task, takes it, and puts it again and another one on
    /// top, while a thief takes what it has seen: each comes out once.
    #[test]
    fn slot_hands_over_once() {
        loom::model(|| {
            let slot = Arc::new(TurnSlot::new());
            let (one, two) = (Arc::new(Task::new(0)), Arc::new(Task::new(0)));
            let thief = {
                let (slot, tasks) = (slot.clone(), (one.clone(), two.clone()));
                thread::spawn(move || {
                    let seen = slot.look();
                    if !seen.is_none()
                        && let Some(item) = slot.steal(seen)
                    {
                        turn(item);
                        drop(tasks);
                    }
                })
            };
            // SAFETY: not shared yet, which loom checks.
            one.with_mut(|turns| unsafe { *turns = 10 });
            assert!(slot.put(item(&one)).is_none());
            if let Some(mine) = slot.take() {
                turn(mine);
                // It was woken in its turn: the same pointer once more.
                assert!(slot.put(mine).is_none());
            }
            // SAFETY: as above.
            two.with_mut(|turns| unsafe { *turns = 10 });
            if let Some(before) = slot.put(item(&two)) {
                turn(before);
            }
            if let Some(mine) = slot.take() {
                turn(mine);
            }
            thief.join().expect("the thief");
            assert!(slot.take().is_none());
            // SAFETY: the thief has ended.
            let turns = one.with(|turns| unsafe { *turns });
            assert!((11..=12).contains(&turns), "{turns}");
            // SAFETY: as above.
            let turns = two.with(|turns| unsafe { *turns });
            assert_eq!(turns, 11, "once");
        });
    }
}
