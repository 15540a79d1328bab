//! Locks, semaphores, notifications, barriers and once cells: points that lose nothing,
//! first come, first served.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use kinfolk_core::{
    Error, ErrorKind, OrCancel, Patience, Task, cancel_current, cleanup, scope, shield, sleep,
    spawn, yield_now,
};
use kinfolk_sync::{Barrier, LastGuard, Mutex, Notify, OnceCell, RwLock, Semaphore};

use crate::sync_channels::Words;
use kinfolk_testkit::Lab;

const MS: Duration = Duration::from_millis(1);

/// A task that takes the lock and returns what it finds.
fn locks(mutex: &Arc<Mutex<u32>>) -> Task<u32> {
    let mutex = mutex.clone();
    spawn(async move { Ok::<_, Error>(*mutex.lock().await?) })
}

/// io-6: a lock is a point: told at entry though it is free, told while it waits; in a
/// shield it is not. It is never lost.
pub async fn io_6_a_lock_is_a_point(lab: Lab) {
    let mutex = Arc::new(Mutex::new(7));
    let lock = mutex.clone();
    let told = spawn(async move {
        cancel_current("now");
        let told = lock.lock().await.map(drop);
        assert!(told.is_err(), "told at entry");
        assert!(lock.try_lock().is_ok(), "a try form is no point");
        cleanup(async {
            assert_eq!(*lock.lock().await?, 7);
            Ok::<_, Error>(())
        })
        .await?;
        shield(async {
            assert_eq!(*lock.lock().await?, 7);
            Ok::<_, Error>(())
        })
        .await?;
        told.map_err(Error::from)
    });
    assert!(told.outcome().await.unwrap().is_cancelled());

    let guard = mutex.try_lock().unwrap();
    let waits = locks(&mutex);
    lab.settle().await;
    assert!(waits.cancel("enough"));
    let outcome = waits.outcome().await.unwrap();
    assert!(outcome.is_cancelled() && outcome.into_value().is_none());
    assert!(mutex.try_lock().is_err(), "it is still held");
    drop(guard);
    assert!(mutex.try_lock().is_ok());
}

/// io-6, cancel-3: a lock that was handed over before its waiter was told is returned.
pub async fn io_6_what_was_handed_over_is_returned(lab: Lab) {
    let mutex = Arc::new(Mutex::new(7));
    let guard = mutex.try_lock().unwrap();
    let first = locks(&mutex);
    lab.settle().await;
    let second = locks(&mutex);
    lab.settle().await;
    drop(guard);
    first.cancel("too late");
    let outcomes = [
        first.outcome().await.unwrap().into_value(),
        second.outcome().await.unwrap().into_value(),
    ];
    assert_eq!(outcomes, [Some(7), Some(7)]);
    assert!(mutex.try_lock().is_ok());
}

/// io-6: an interrupt that is taken while the lock is handed over is told by the next
/// point; the lock is neither lost nor returned to a body that was told.
pub async fn io_6_an_interrupt_leaves_the_line(lab: Lab) {
    let mutex = Arc::new(Mutex::new(7));
    let guard = mutex.try_lock().unwrap();
    let lock = mutex.clone();
    let waits = spawn(async move {
        let told = lock.lock().await.map(drop).unwrap_err();
        assert!(Error::from(told).is_cancelled());
        Ok::<_, Error>(*lock.lock().await?)
    });
    lab.settle().await;
    assert!(waits.interrupt("look up"));
    lab.settle().await;
    drop(guard);
    assert_eq!(waits.await.unwrap(), 7);
}

/// io-6: locks and permits are got in the order in which they were waited for, and no
/// newcomer overtakes.
pub async fn io_6_first_come_first_served(lab: Lab) {
    let (mutex, log) = (Arc::new(Mutex::new(())), Words::default());
    let guard = mutex.try_lock().unwrap();
    let mut tasks = Vec::new();
    for n in 0..5 {
        let (mutex, log) = (mutex.clone(), log.clone());
        tasks.push(spawn(async move {
            let _guard = mutex.lock().await?;
            log.add(format!("{n}"));
            yield_now().await?;
            Ok::<_, Error>(())
        }));
        lab.settle().await;
    }
    // The third is not there any more.
    assert!(tasks[2].cancel("gone"));
    lab.settle().await;
    drop(guard);
    assert!(mutex.try_lock().is_err(), "it was handed over");
    for task in tasks {
        drop(task.outcome().await);
    }
    assert_eq!(log.take(), ["0", "1", "3", "4"]);
}

/// M15: waiters and holders of a lock are cancelled at random: never two hold it, and it
/// is never lost.
pub async fn case_m15_a_lock_whose_waiters_are_cancelled_is_never_lost(lab: Lab) {
    let mutex = Arc::new(Mutex::new(0_u32));
    let (held, taken) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let mut tasks = Vec::new();
    for _ in 0..24 {
        let (mutex, held, taken) = (mutex.clone(), held.clone(), taken.clone());
        tasks.push(spawn(async move {
            for _ in 0..3 {
                let mut guard = mutex.lock().await?;
                assert!(!held.swap(true, SeqCst), "two hold it");
                let before = *guard;
                let yielded = yield_now().await;
                *guard = before + 1;
                taken.fetch_add(1, SeqCst);
                held.store(false, SeqCst);
                drop(guard);
                yielded?;
            }
            Ok::<_, Error>(())
        }));
    }
    let mut seed = lab.seed().wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for task in &tasks {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        if seed.is_multiple_of(3) {
            task.cancel("at random");
        }
        if seed.is_multiple_of(5) {
            let _ = yield_now().await;
        }
    }
    for task in tasks {
        drop(task.outcome().await);
    }
    let total = *mutex.try_lock().expect("the lock is lost");
    assert_eq!(total as usize, taken.load(SeqCst));
}

/// io-6: the next holder can ask how the last guard went.
pub async fn io_6_the_next_holder_can_ask_how_the_last_guard_went(lab: Lab) {
    let mutex = Arc::new(Mutex::new(0));
    let last = |mutex: &Mutex<i32>| mutex.try_lock().unwrap().last_guard();
    assert_eq!(last(&mutex), LastGuard::Released, "there was none");

    let lock = mutex.clone();
    let panics = scope(async |s| {
        s.spawn(async move {
            let _guard = lock.lock().await?;
            std::panic::panic_any("with the lock");
            #[allow(unreachable_code)]
            Ok::<_, Error>(())
        })
        .await
    });
    assert_eq!(panics.await.unwrap_err().kind(), ErrorKind::Panicked);
    assert_eq!(last(&mutex), LastGuard::Panicked);
    assert_eq!(last(&mutex), LastGuard::Released, "of the last one only");

    // Dropped by force: it cannot hear, and nobody has patience with it.
    let lock = mutex.clone();
    let forced = scope(async |s| {
        let none = Patience {
            unaware: Duration::ZERO,
            ..Patience::default()
        };
        let task = s.task("deaf").patience(none).spawn(async move {
            let _guard = lock.lock().await?;
            std::future::pending::<()>().await;
            Ok::<_, Error>(())
        });
        lab.settle().await;
        assert!(task.cancel("now"));
        assert!(task.outcome().await?.is_cancelled());
        Ok(())
    });
    forced.await.unwrap();
    assert_eq!(last(&mutex), LastGuard::Dropped);

    // With a future that `or_cancel` drops.
    let lock = mutex.clone();
    let dropped = spawn(async move {
        let held = async {
            let _guard = lock.lock().await;
            std::future::pending::<()>().await;
        };
        held.or_cancel().await?;
        Ok::<_, Error>(())
    });
    lab.settle().await;
    assert!(dropped.cancel("now"));
    drop(dropped.outcome().await);
    assert_eq!(last(&mutex), LastGuard::Dropped);
}

/// io-6: a small request does not overtake a large one; a large one that leaves lets the
/// small ones through; a closed semaphore says so.
pub async fn io_6_permits_are_weighted_and_fair(lab: Lab) {
    let semaphore = Arc::new(Semaphore::new(2));
    let takes = |n: usize| {
        let semaphore = semaphore.clone();
        spawn(async move { Ok::<_, Error>(semaphore.acquire_many(n).await?.num_permits()) })
    };
    let one = semaphore.try_acquire().unwrap();
    let large = takes(2);
    lab.settle().await;
    let small = takes(1);
    lab.settle().await;
    assert!(semaphore.try_acquire().is_err(), "others wait");
    assert!(large.cancel("gone"));
    drop(large.outcome().await);
    assert_eq!(small.await.unwrap(), 1);
    drop(one);

    let all = semaphore.clone().try_acquire_many_owned(2).unwrap();
    let waits = semaphore.clone();
    let refused = spawn(async move {
        let error = waits.acquire().await.unwrap_err();
        let closed = error.is_closed();
        let error = Error::from(error);
        assert!(!error.is_cancelled() && error.to_string().contains("closed"));
        Ok::<_, Error>(closed)
    });
    lab.settle().await;
    semaphore.close();
    assert!(refused.await.unwrap());
    assert!(semaphore.acquire().await.unwrap_err().is_closed());
    drop(all);
}

/// io-6: many read or one writes; a writer that waits is not overtaken by readers, and one
/// that is told lets them through.
pub async fn io_6_readers_and_writers(lab: Lab) {
    let lock = Arc::new(RwLock::new(1));
    let reads = |lock: &Arc<RwLock<u32>>| {
        let lock = lock.clone();
        spawn(async move { Ok::<_, Error>(*lock.read().await?) })
    };
    let writes = |lock: &Arc<RwLock<u32>>| {
        let lock = lock.clone();
        spawn(async move {
            *lock.write().await? += 1;
            Ok::<_, Error>(())
        })
    };
    let (a, b) = (lock.try_read().unwrap(), lock.try_read().unwrap());
    let writer = writes(&lock);
    lab.settle().await;
    assert!(lock.try_read().is_err(), "a writer waits");
    let reader = reads(&lock);
    lab.settle().await;
    assert!(writer.cancel("gone"));
    drop(writer.outcome().await);
    assert_eq!(reader.await.unwrap(), 1);
    drop(a);
    let writer = writes(&lock);
    lab.settle().await;
    drop(b);
    writer.await.unwrap();
    let guard = lock.write().await.unwrap().downgrade();
    assert_eq!((*guard, *lock.read().await.unwrap()), (2, 2));
    assert!(lock.try_write().is_err());
}

/// io-6: a notification goes to one that waits, or is kept; one that is told or dropped
/// passes it on.
pub async fn io_6_a_notification_is_not_lost(lab: Lab) {
    let notify = Arc::new(Notify::new());
    let waits = || {
        let notify = notify.clone();
        spawn(async move { Ok::<_, Error>(notify.notified().await?) })
    };
    notify.notify_one();
    notify.notify_one();
    notify.notified().await.unwrap();
    assert!(!notify.try_notified(), "two are kept as one");

    let (first, second) = (waits(), waits());
    lab.settle().await;
    assert!(first.cancel("gone") && second.cancel("gone"));
    drop((first.outcome().await, second.outcome().await));
    notify.notify_one();
    assert!(notify.try_notified(), "nobody waited any more");

    let all: Vec<_> = (0..40).map(|_| waits()).collect();
    lab.settle().await;
    notify.notify_waiters();
    for task in all {
        task.await.unwrap();
    }
    assert!(!notify.try_notified());
}

/// io-6: a barrier waits for as many as it says; one that is told does not count.
pub async fn io_6_a_barrier_counts_those_who_are_there(lab: Lab) {
    let barrier = Arc::new(Barrier::new(3));
    let waits = || {
        let barrier = barrier.clone();
        spawn(async move { Ok::<_, Error>(barrier.wait().await?.is_leader()) })
    };
    let (gone, a, b) = (waits(), waits(), Box::new(waits));
    lab.settle().await;
    assert!(gone.cancel("gone"));
    assert!(gone.outcome().await.unwrap().is_cancelled());
    let b = b();
    lab.settle().await;
    assert_eq!(lab.snapshot().cycles().len(), 0);
    let c = waits();
    let leaders = [a.await.unwrap(), b.await.unwrap(), c.await.unwrap()];
    assert_eq!(leaders.iter().filter(|leader| **leader).count(), 1);
}

/// io-6: a cell is made by the first; if that one is told, by the next.
pub async fn io_6_a_cell_is_made_once(lab: Lab) {
    let (cell, made) = (Arc::new(OnceCell::new()), Arc::new(AtomicUsize::new(0)));
    let makes = || {
        let (cell, made) = (cell.clone(), made.clone());
        spawn(async move {
            let make = async || {
                sleep(10 * MS).await?;
                Ok::<_, Error>(made.fetch_add(1, SeqCst) + 7)
            };
            Ok::<_, Error>(*cell.get_or_try_init(make).await?)
        })
    };
    let first = makes();
    lab.settle().await;
    let (second, third) = (makes(), makes());
    lab.settle().await;
    assert!(first.cancel("gone"));
    assert!(first.outcome().await.unwrap().is_cancelled());
    assert_eq!((second.await.unwrap(), third.await.unwrap()), (7, 7));
    assert_eq!(cell.get(), Some(&7));
    assert_eq!(cell.set(8), Err(8));
    assert_eq!(*cell.get_or_init(async || 9).await.unwrap(), 7);
}
