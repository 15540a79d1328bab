//! Locks, semaphores, notifications and barriers.

use std::sync::Arc;

use kinfolk_core::Outcome;
use kinfolk_sync::{Barrier, Mutex, Notify, Semaphore};
use loom::sync::atomic::{AtomicBool, Ordering::SeqCst};
use loom::thread;

use crate::host::{finish, tree};
use crate::{now_or_never, polled};

/// A guard is dropped while another task begins to wait: that one gets the lock, and is
/// woken if it had to wait.
#[test]
fn grant_vs_wait() {
    loom::model(|| {
        let mutex = Arc::new(Mutex::new(0));
        let guard = mutex.clone().try_lock_owned().unwrap();
        let other = thread::spawn(move || drop(guard));
        let mut waiter = polled(mutex.clone().lock_owned());
        let got = waiter.poll();
        other.join().unwrap();
        drop(waiter.finish(got).unwrap());
        assert!(mutex.try_lock().is_ok());
    });
}

/// A guard is dropped while a waiter leaves: the lock is free after both, whether it was
/// handed over to the one that left or not.
#[test]
fn grant_vs_drop() {
    loom::model(|| {
        let mutex = Arc::new(Mutex::new(0));
        let guard = mutex.clone().try_lock_owned().unwrap();
        let mut waiter = polled(mutex.clone().lock_owned());
        assert!(waiter.poll().is_none());
        let other = thread::spawn(move || drop(guard));
        drop(waiter);
        other.join().unwrap();
        assert!(mutex.try_lock().is_ok(), "the lock is lost");
    });
}

/// The same with a second waiter behind the one that leaves: it gets the lock.
#[test]
fn grant_vs_drop_of_the_first() {
    loom::model(|| {
        let mutex = Arc::new(Mutex::new(0));
        let guard = mutex.clone().try_lock_owned().unwrap();
        let mut first = polled(mutex.clone().lock_owned());
        assert!(first.poll().is_none());
        let mut second = polled(mutex.clone().lock_owned());
        let got = second.poll();
        assert!(got.is_none());
        let other = thread::spawn(move || drop(guard));
        drop(first);
        other.join().unwrap();
        drop(second.finish(got).unwrap());
        assert!(mutex.try_lock().is_ok());
    });
}

/// A guard is dropped while the job that waits is cancelled: it has the guard or was
/// told, and the lock is free after it.
#[test]
fn grant_vs_cancel() {
    loom::model(|| {
        let (tree, queue) = tree();
        let mutex = Arc::new(Mutex::new(0));
        let guard = mutex.clone().try_lock_owned().unwrap();
        let lock = mutex.clone();
        let task = tree
            .root_scope()
            .spawn(async move { Ok::<_, kinfolk_core::Error>(*lock.lock().await? + 7) });
        queue.run_all();
        let other = thread::spawn(move || drop(guard));
        assert!(task.cancel("now"));
        queue.run_all();
        other.join().unwrap();
        queue.run_all();
        let outcome = now_or_never(task.outcome()).unwrap().unwrap();
        let Outcome::Cancelled { late, .. } = outcome else {
            panic!("{outcome:?}");
        };
        assert!(late.is_none_or(|value| value == 7));
        assert!(mutex.try_lock().is_ok(), "the lock is lost");
        finish(tree, &queue);
    });
}

/// The first in line wants more than there is, and leaves while permits come: the second
/// gets them.
#[test]
fn weighted_leave_vs_release() {
    loom::model(|| {
        let semaphore = Arc::new(Semaphore::new(0));
        let mut first = polled(semaphore.clone().acquire_many_owned(2));
        assert!(first.poll().is_none());
        let mut second = polled(semaphore.clone().acquire_owned());
        let got = second.poll();
        assert!(got.is_none());
        let adds = semaphore.clone();
        let other = thread::spawn(move || adds.add_permits(1));
        drop(first);
        other.join().unwrap();
        drop(second.finish(got).unwrap());
        assert_eq!(semaphore.available_permits(), 1);
    });
}

/// A semaphore is closed while a task begins to wait: it is refused.
#[test]
fn close_vs_wait() {
    loom::model(|| {
        let semaphore = Arc::new(Semaphore::new(0));
        let closes = semaphore.clone();
        let other = thread::spawn(move || closes.close());
        let mut waiter = polled(semaphore.clone().acquire_owned());
        let got = waiter.poll();
        other.join().unwrap();
        assert!(waiter.finish(got).unwrap_err().is_closed());
    });
}

/// One is notified while it goes: the next one in line is, or the notification is kept.
#[test]
fn notify_vs_drop() {
    loom::model(|| {
        let notify = Arc::new(Notify::new());
        let (n, m) = (notify.clone(), notify.clone());
        let mut first = polled(async move { n.notified().await });
        assert!(first.poll().is_none());
        let mut second = polled(async move { m.notified().await });
        let got = second.poll();
        assert!(got.is_none());
        let notifies = notify.clone();
        let other = thread::spawn(move || notifies.notify_one());
        drop(first);
        other.join().unwrap();
        second.finish(got).unwrap();
        assert!(!notify.try_notified(), "notified twice");
    });
}

/// All are notified while one begins to wait that was made before: it is notified.
#[test]
fn notify_all_vs_wait() {
    loom::model(|| {
        // A future that borrows cannot own what it borrows from.
        let notify: &'static Notify = Box::leak(Box::new(Notify::new()));
        let mut waiter = polled(notify.notified());
        let other = thread::spawn(move || notify.notify_waiters());
        let got = waiter.poll();
        other.join().unwrap();
        waiter.finish(got).unwrap();
    });
}

/// One comes to a barrier while another leaves it: they meet or they do not, and the next
/// two do.
#[test]
fn barrier_vs_drop() {
    loom::model(|| {
        let barrier = Arc::new(Barrier::new(2));
        let waits = |barrier: Arc<Barrier>| polled(async move { barrier.wait().await });
        let mut first = waits(barrier.clone());
        assert!(first.poll().is_none());
        let mut second = waits(barrier.clone());
        let left = Arc::new(AtomicBool::new(false));
        let has_left = left.clone();
        let other = thread::spawn(move || {
            let late = has_left.load(SeqCst);
            let met = second.poll().is_some();
            assert!(!(late && met), "it met one that had left");
            (second, met)
        });
        drop(first);
        left.store(true, SeqCst);
        let (second, met) = other.join().unwrap();
        let mut third = waits(barrier.clone());
        let got = third.poll();
        assert_eq!(got.is_some(), !met, "as many are there as wait");
        if !met {
            second.finish(None).unwrap();
        }
    });
}

/// The second of two comes while a third one comes for the next meeting: two of the three
/// meet, and the third waits for another.
#[test]
fn barrier_vs_next_meeting() {
    loom::model(|| {
        let barrier = Arc::new(Barrier::new(2));
        let waits = |barrier: Arc<Barrier>| polled(async move { barrier.wait().await });
        let mut first = waits(barrier.clone());
        assert!(first.poll().is_none());
        let (mut second, mut third) = (waits(barrier.clone()), waits(barrier.clone()));
        let other = thread::spawn(move || {
            let met = second.poll().is_some();
            (second, met)
        });
        let third_met = third.poll().is_some();
        let (mut second, second_met) = other.join().unwrap();
        let met = usize::from(first.poll().is_some())
            + usize::from(second_met || second.poll().is_some())
            + usize::from(third_met || third.poll().is_some());
        assert_eq!(met, 2, "one of the three waits for the next");
    });
}
