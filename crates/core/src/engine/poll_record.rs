//! Which task each thread polls at the moment, for observers.
//!
//! A thread that takes turns has a desk, a thread-local that only this thread
//! writes: it holds the task whose turn it is, and when the turn began. Other
//! threads read the desk through a list, which has the thread from its first
//! turn to its end.

use std::cell::RefCell;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering::*, fence};
use std::sync::{Mutex, PoisonError};

use crate::base::sync::WATCHED;
use crate::record::header::Header;

/// How many interrupted turns are shown: as many as `spawn_now` nests.
const DEEPEST: usize = 16;

/// One task, and since when it is polled, in milliseconds since its tree began
/// by a clock that may be sixteen turns behind.
struct PollPlace {
    task: AtomicPtr<Header>,
    since: AtomicU32,
}

impl PollPlace {
    const fn new() -> PollPlace {
        PollPlace {
            task: AtomicPtr::new(ptr::null_mut()),
            since: AtomicU32::new(0),
        }
    }

    /// For an empty place. Acquiring the task makes its `since` visible.
    #[inline]
    fn fill(&self, task: *const Header, since: u32) {
        self.since.store(since, Relaxed);
        self.task.store(task.cast_mut(), Release);
    }

    #[inline]
    fn clear(&self) {
        self.task.store(ptr::null_mut(), Release);
    }

    /// Since when `task` is polled, if it is in this place. For other threads.
    fn since_of(&self, task: &Header) -> Option<u32> {
        let here = || ptr::eq(self.task.load(Acquire), task);
        let since = here().then(|| self.since.load(Relaxed))?;
        // If the task has left meanwhile, `since` may be that of another task.
        fence(Acquire);
        here().then_some(since)
    }
}

/// What one thread polls. Written by that thread; an observer sees what was
/// true at some moment of its call.
pub(crate) struct Desk {
    now: PollPlace,
    /// The turns that this one interrupts, the outermost first.
    by: [PollPlace; DEEPEST],
    depth: AtomicU32,
    /// Another thread has read the desk since the last turn began.
    looked_at: AtomicBool,
}

impl Desk {
    pub(crate) const fn new() -> Desk {
        Desk {
            now: PollPlace::new(),
            by: [const { PollPlace::new() }; DEEPEST],
            depth: AtomicU32::new(0),
            looked_at: AtomicBool::new(false),
        }
    }

    /// The task whose turn this thread takes; null outside every turn. For the
    /// thread itself.
    #[inline]
    pub(crate) fn task(&self) -> *const Header {
        self.now.task.load(Relaxed)
    }

    /// When the current turn began. For the thread itself.
    #[inline]
    pub(crate) fn since(&self) -> u32 {
        self.now.since.load(Relaxed)
    }

    /// A turn begins on an empty desk. For the thread itself.
    #[inline]
    pub(crate) fn set(&self, task: *const Header, since: u32) {
        self.now.fill(task, since);
    }

    /// The turn is over. For the thread itself.
    #[inline]
    pub(crate) fn clear(&self) {
        self.now.clear();
    }

    /// The turn is interrupted: the desk is empty for the inner turn. For the
    /// thread itself.
    pub(crate) fn put_by(&self) {
        let depth = self.depth.load(Relaxed);
        if let Some(place) = self.by.get(depth as usize) {
            place.fill(self.task(), self.since());
        }
        self.depth.store(depth + 1, Relaxed);
        self.now.clear();
    }

    /// The inner turn is over: restores the interrupted one. For the thread
    /// itself.
    pub(crate) fn take_up(&self, task: *const Header, since: u32) {
        self.now.clear();
        self.now.fill(task, since);
        let depth = self.depth.load(Relaxed) - 1;
        self.depth.store(depth, Relaxed);
        if let Some(place) = self.by.get(depth as usize) {
            place.clear();
        }
    }

    /// True once after another thread has read the desk. For the thread itself.
    #[inline]
    pub(crate) fn was_looked_at(&self) -> bool {
        let looked_at = self.looked_at.load(Relaxed);
        if looked_at {
            self.looked_at.store(false, Relaxed);
        }
        looked_at
    }
}

/// A desk in the list.
struct ListedDesk(*const Desk);

// SAFETY: a desk consists of atomics, and is in the list only while its thread
// lives (D1).
unsafe impl Send for ListedDesk {}

/// D1: an entry is removed, under the lock, before its thread's locals are
/// dropped; every reader of an entry holds the lock.
static DESKS: Mutex<Vec<ListedDesk>> = Mutex::new(Vec::new());

/// Removes a thread's desk from the list when the thread ends.
struct Entry(*const Desk);

impl Drop for Entry {
    fn drop(&mut self) {
        let mut desks = DESKS.lock().unwrap_or_else(PoisonError::into_inner);
        desks.retain(|listed| !ptr::eq(listed.0, self.0));
    }
}

thread_local! {
    static ENTRY: RefCell<Option<Entry>> = const { RefCell::new(None) };
}

/// Puts the desk of this thread into the list, unless the thread is ending.
///
/// # Safety
/// It is a thread-local of this thread without a destructor.
#[cold]
pub(crate) unsafe fn list(desk: &Desk) {
    if !WATCHED {
        return;
    }
    let _ = ENTRY.try_with(|entry| {
        let mut desks = DESKS.lock().unwrap_or_else(PoisonError::into_inner);
        desks.push(ListedDesk(desk));
        entry.replace(Some(Entry(desk)));
    });
}

/// Since when the task is being polled; none if it is not.
pub(crate) fn polled_since(task: &Header) -> Option<u32> {
    find(|desk| {
        let mut places = std::iter::once(&desk.now).chain(&desk.by);
        places.find_map(|place| place.since_of(task))
    })
}

/// From here on each thread reads the clock before its next turn: the begin
/// that it then shows for that turn is not before this call.
pub(crate) fn look() {
    find::<()>(|desk| {
        desk.looked_at.store(true, Relaxed);
        None
    });
}

fn find<R>(mut f: impl FnMut(&Desk) -> Option<R>) -> Option<R> {
    let desks = DESKS.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: D1, under the lock.
    desks.iter().find_map(|listed| f(unsafe { &*listed.0 }))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::sync::local;

    local!(static DESK: Desk = Desk::new(); fn with);

    fn listed() -> bool {
        with(|desk| {
            let desks = DESKS.lock().unwrap_or_else(PoisonError::into_inner);
            desks.iter().any(|listed| ptr::eq(listed.0, desk))
        })
    }

    #[test]
    fn a_thread_is_on_the_list_until_it_ends() {
        let address = std::thread::spawn(|| {
            assert!(!listed());
            // SAFETY: a thread-local without a destructor.
            with(|desk| unsafe { list(desk) });
            assert!(listed());
            with(|desk| ptr::from_ref(desk).addr())
        });
        let address = address.join().expect("it holds");
        let desks = DESKS.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(desks.iter().all(|listed| listed.0.addr() != address));
    }
}
