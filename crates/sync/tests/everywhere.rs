//! In the simulation: a cancel at every point of each primitive, and deadlocks that name
//! their circle.
#![cfg(not(loom))]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use kinfolk_core::{Error, Result, Scope, checkpoint, scope, yield_now};
use kinfolk_sync::{
    Barrier, Mutex, Notify, OnceCell, RwLock, Semaphore, broadcast, mpmc, oneshot, watch,
};
use kinfolk_testkit::{Sim, cancel_everywhere_then};

/// Runs the scenario with a stop at every point; `whole` is asked after each, when every
/// task has ended.
fn everywhere<T: Send + Sync + 'static, F: Future<Output = Result<()>> + Send + 'static>(
    make: impl Fn() -> T + Send + Sync + 'static,
    scenario: impl Fn(Arc<T>) -> F + Send + Sync + Clone + 'static,
    whole: impl Fn(&T) + Send + Sync + 'static,
) {
    let last: Arc<std::sync::Mutex<Option<Arc<T>>>> = Arc::default();
    let kept = last.clone();
    let went = cancel_everywhere_then(
        move || {
            let thing = Arc::new(make());
            *kept.lock().unwrap() = Some(thing.clone());
            scenario(thing)
        },
        move || {
            if let Some(thing) = last.lock().unwrap().take() {
                whole(&thing);
            }
        },
    );
    assert!(went.points > 3, "{went:?}");
}

/// Three children, side by side.
async fn three<F: Future<Output = Result<()>> + Send + 'static>(
    make: impl Fn(u32) -> F,
) -> Result<()> {
    scope(async |s: Scope| {
        for n in 0..3 {
            s.launch(make(n));
        }
        Ok(())
    })
    .await
}

#[test]
fn test_3_a_lock_is_whole_after_a_cancel_anywhere() {
    everywhere(
        || (Mutex::new(0), RwLock::new(0), Semaphore::new(2)),
        |locks| {
            three(move |n| {
                let locks = locks.clone();
                async move {
                    let mut guard = locks.0.lock().await?;
                    yield_now().await?;
                    *guard += 1;
                    drop(guard);
                    let permits = locks.2.acquire_many(1 + n as usize % 2).await?;
                    if n == 0 {
                        *locks.1.write().await? += 1;
                    } else {
                        let _read = locks.1.read().await?;
                        yield_now().await?;
                    }
                    drop(permits);
                    Ok(())
                }
            })
        },
        |(mutex, lock, semaphore)| {
            assert!(mutex.try_lock().is_ok(), "the mutex is lost");
            assert!(lock.try_write().is_ok(), "the lock is lost");
            assert_eq!(semaphore.available_permits(), 2, "a permit is lost");
        },
    );
}

#[test]
fn test_3_a_channel_is_whole_after_a_cancel_anywhere() {
    for room in [0, 1, 2] {
        everywhere(
            move || {
                let back = std::sync::Mutex::new(Vec::new());
                (mpmc::channel(room), back)
            },
            |thing| {
                three(move |n| {
                    let thing = thing.clone();
                    async move {
                        let ((tx, rx), seen) = &*thing;
                        if n < 2 {
                            if let Err(error) = tx.send(n).await {
                                seen.lock().unwrap().push(*error.get_ref());
                                return Err(error.into());
                            }
                            seen.lock().unwrap().push(10 + n);
                        } else {
                            for _ in 0..2 {
                                let got = rx.recv().await?.unwrap();
                                seen.lock().unwrap().push(20 + got);
                            }
                        }
                        Ok(())
                    }
                })
            },
            |((_, rx), seen)| {
                let mut seen = std::mem::take(&mut *seen.lock().unwrap());
                seen.extend(std::iter::from_fn(|| rx.try_recv().ok()).map(|n| 20 + n));
                let count = |word| seen.iter().filter(|seen| **seen == word).count();
                for n in 0..2 {
                    assert_eq!(count(10 + n), count(20 + n), "{n} was sent: {seen:?}");
                    assert!(count(n) + count(20 + n) <= 1, "{seen:?}");
                }
            },
        );
    }
}

#[test]
fn test_3_the_rest_is_whole_after_a_cancel_anywhere() {
    everywhere(
        || (Barrier::new(3), Notify::new(), OnceCell::new()),
        |thing| {
            three(move |n| {
                let thing = thing.clone();
                async move {
                    let make = async || {
                        checkpoint().await?;
                        Ok::<_, Error>(n)
                    };
                    thing.2.get_or_try_init(make).await?;
                    thing.1.notify_one();
                    thing.0.wait().await?;
                    Ok(())
                }
            })
        },
        |(barrier, notify, _)| {
            assert!(barrier.try_wait().is_none(), "somebody is still there");
            notify.try_notified();
            assert!(!notify.try_notified());
        },
    );
    everywhere(
        || (),
        |_| async {
            let (tx, mut rx) = watch::channel(0);
            let (all, mut hears) = broadcast::channel(2);
            let (once, answer) = oneshot::channel();
            scope(async |s: Scope| {
                s.launch(async move {
                    while rx.changed().await? {}
                    Ok::<_, Error>(())
                });
                s.launch(async move {
                    while hears.recv().await?.is_some() {}
                    Ok::<_, Error>(())
                });
                s.launch(async move {
                    match answer.await {
                        // Its sender was stopped before it had sent.
                        Err(error) if error.is_closed() => Ok(()),
                        other => other.map(drop).map_err(Error::from),
                    }
                });
                yield_now().await?;
                let _ = (tx.send(1), all.send(1), once.send(1));
                drop((tx, all));
                Ok(())
            })
            .await
        },
        |()| {},
    );
}

/// Two wait for a notification each: one that was given and not heard is kept.
#[test]
fn test_3_a_notification_is_whole_after_a_cancel_anywhere() {
    everywhere(
        || (Notify::new(), AtomicUsize::new(0), AtomicUsize::new(0)),
        |thing| {
            three(move |n| {
                let thing = thing.clone();
                async move {
                    let (notify, given, heard) = &*thing;
                    if n < 2 {
                        notify.notified().await?;
                        heard.fetch_add(1, SeqCst);
                        yield_now().await?;
                        return Ok(());
                    }
                    for n in 0..2 {
                        given.fetch_add(1, SeqCst);
                        notify.notify_one();
                        // Two that are kept are kept as one.
                        while heard.load(SeqCst) <= n {
                            yield_now().await?;
                        }
                    }
                    Ok(())
                }
            })
        },
        |(notify, given, heard)| {
            let (given, heard) = (given.load(SeqCst), heard.load(SeqCst));
            assert!(heard <= given);
            assert_eq!(notify.try_notified(), heard < given, "{heard} of {given}");
            assert!(!notify.try_notified());
        },
    );
}

#[test]
fn test_3_the_other_waits_are_whole_after_a_cancel_anywhere() {
    everywhere(
        || {
            let counts = (AtomicUsize::new(0), AtomicUsize::new(0));
            let (level, _) = watch::channel(0);
            (mpmc::unbounded_channel(), level, RwLock::new(0), counts)
        },
        |thing| {
            three(move |n| {
                let thing = thing.clone();
                async move {
                    let ((tx, rx), level, lock, (sent, got)) = &*thing;
                    match n {
                        0 => {
                            for _ in 0..2 {
                                tx.send(1)?;
                                sent.fetch_add(1, SeqCst);
                                yield_now().await?;
                            }
                            let _read = lock.read().await?;
                            yield_now().await?;
                        }
                        1 => {
                            for _ in 0..2 {
                                got.fetch_add(rx.recv().await?.unwrap(), SeqCst);
                            }
                            let read = lock.write().await?.downgrade();
                            yield_now().await?;
                            drop(read);
                        }
                        _ => {
                            let mut sees = level.subscribe();
                            level.send(1)?;
                            sees.wait_for(|level| *level == 1).await?;
                            drop(sees);
                            level.closed().await?;
                            let (mut asks, answers) = oneshot::channel::<u32>();
                            drop(answers);
                            asks.closed().await?;
                        }
                    }
                    Ok(())
                }
            })
        },
        |((_, rx), _, lock, (sent, got))| {
            let left = std::iter::from_fn(|| rx.try_recv().ok()).count();
            assert_eq!(sent.load(SeqCst), got.load(SeqCst) + left);
            assert!(lock.try_write().is_ok(), "the lock is lost");
        },
    );
}

/// A writer waits for two readers, of which the first waits for what the writer holds: the
/// circle goes through that one, whichever of them came last.
#[test]
fn test_2_a_deadlock_with_one_of_several_readers_is_named() {
    for reads in 1..=8 {
        let run = || {
            Sim::seeded(reads).run(async move {
                let table = Arc::new(RwLock::new(()).named("table"));
                let log = Arc::new(Mutex::new(()).named("log"));
                scope(async |s: Scope| {
                    let (lock, then) = (table.clone(), log.clone());
                    s.task("first").launch(async move {
                        let _read = lock.read().await?;
                        kinfolk_core::sleep(std::time::Duration::from_secs(2)).await?;
                        let _log = then.lock().await?;
                        Ok::<_, Error>(())
                    });
                    kinfolk_core::sleep(std::time::Duration::from_millis(1)).await?;
                    for _ in 1..reads {
                        let lock = table.clone();
                        s.task("other").launch(async move {
                            // One that has come and gone leaves its place to the next.
                            drop(lock.read().await?);
                            let _read = lock.read().await?;
                            kinfolk_core::park().await?;
                            Ok::<_, Error>(())
                        });
                    }
                    kinfolk_core::sleep(std::time::Duration::from_secs(1)).await?;
                    let (lock, first) = (table.clone(), log.clone());
                    s.task("writer").launch(async move {
                        let _log = first.lock().await?;
                        let _write = lock.write().await?;
                        Ok::<_, Error>(())
                    });
                    Ok(())
                })
                .await
            })
        };
        let panic = catch_unwind(AssertUnwindSafe(run)).expect_err("it is a deadlock");
        let words = panic.downcast_ref::<String>().expect("words");
        assert!(
            words.contains("deadlock: 2 jobs wait for each other"),
            "{reads} readers: {words}"
        );
        assert!(
            words.contains("for the rwlock \"table\" made at"),
            "{words}"
        );
        assert!(words.contains("held by \"first\" since"), "{words}");
    }
}

/// A deadlock in the simulation names the jobs that wait for each other, their locks and
/// the places.
#[test]
fn test_2_a_deadlock_names_its_circle() {
    let run = || {
        Sim::seeded(3).run(async {
            let left = Arc::new(Mutex::new(()).named("left"));
            let right = Arc::new(Mutex::new(()).named("right"));
            scope(async |s: Scope| {
                for (name, first, second) in [("a", &left, &right), ("b", &right, &left)] {
                    let (first, second) = (first.clone(), second.clone());
                    s.task(name).launch(async move {
                        let _first = first.lock().await?;
                        kinfolk_core::sleep(std::time::Duration::from_secs(1)).await?;
                        let _second = second.lock().await?;
                        Ok::<_, Error>(())
                    });
                }
                Ok(())
            })
            .await
        })
    };
    let panic = catch_unwind(AssertUnwindSafe(run)).expect_err("it is a deadlock");
    let words = panic.downcast_ref::<String>().expect("words");
    assert!(
        words.contains("deadlock: 2 jobs wait for each other"),
        "{words}"
    );
    assert!(words.contains("for the mutex \"left\" made at"), "{words}");
    assert!(words.contains("everywhere.rs"), "{words}");
}
