//! Races on real threads, many times over: `KINFOLK_STRESS` says how often.
//! The small ones are also modelled with loom.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use kinfolk_core::{
    Error, ErrorKind, Outcome, Patience, Pool, Result, Scope, checkpoint, current_job, on,
    on_cancel, park, scope, sleep, spawn, timeout, yield_now,
};
use kinfolk_runtime::Runtime;
use kinfolk_testkit::guarded;

fn rounds() -> usize {
    std::env::var("KINFOLK_STRESS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(2000)
}

/// Runs `body` on the pool of a runtime with two workers, and checks that
/// nothing is left.
fn on_two_workers<F>(name: &'static str, body: impl FnOnce() -> F + Send + 'static)
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    on_workers(2, name, body);
}

/// The same with as many workers as there are racers: each of them holds one.
fn on_workers<F>(workers: usize, name: &'static str, body: impl FnOnce() -> F + Send + 'static)
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    guarded(name, move |watched| {
        let rt = Runtime::builder()
            .workers(workers)
            .on_failure(Box::new(|_| {}))
            .build()
            .unwrap();
        watched.watch(rt.tree());
        let body = body();
        rt.block_on(async move { on(Pool, body).await }).unwrap();
        let tree = rt.tree().clone();
        let report = rt.shutdown(Duration::from_secs(5)).unwrap();
        assert!(report.is_clean(), "{report}");
        let counters = tree.counters();
        assert_eq!(counters.living(), 0, "{counters}");
        assert_eq!(counters.timers_pending(), 0, "{counters}");
        assert_eq!(counters.waiters_pending(), 0, "{counters}");
    });
}

/// The racers meet before they go on. Each holds its worker until all have
/// come, so no worker plays two of them, and all go on at once.
fn meet(here: &AtomicUsize, of: usize) {
    here.fetch_add(1, SeqCst);
    hold(|| here.load(SeqCst) >= of);
}

/// Holds the worker until `come`. A neighbour takes over what lies behind this
/// turn.
fn hold(come: impl Fn() -> bool) {
    let mut looks = 0_u32;
    while !come() {
        looks += 1;
        match looks.is_multiple_of(256) {
            // There may be fewer processors than racers.
            true => std::thread::yield_now(),
            false => std::hint::spin_loop(),
        }
    }
}

/// A child is attached while its parent is cancelled: it is never polled, or
/// its failure is in the parent's outcome.
#[test]
fn case_m01_attach_against_cancel() {
    on_two_workers("m01", || async {
        for _ in 0..rounds() {
            let polled = Arc::new(AtomicBool::new(false));
            let here = Arc::new(AtomicUsize::new(0));
            let s = Scope::current().unwrap();
            let ended = Scope::build()
                .supervisor()
                .run(async |outer| {
                    let parent = outer.spawn(park());
                    let inner = Scope::of_job(&parent.job());
                    let other = {
                        let (here, polled) = (here.clone(), polled.clone());
                        s.spawn(async move {
                            meet(&here, 2);
                            let child = inner.spawn(async move {
                                polled.store(true, SeqCst);
                                Err::<(), _>(Error::msg("child"))
                            });
                            drop(child.into_job());
                        })
                    };
                    meet(&here, 2);
                    parent.cancel("now");
                    other.await?;
                    let job = parent.job();
                    let outcome = parent.outcome().await?;
                    assert!(job.is_ended());
                    Ok(outcome.map_to_failed())
                })
                .await?;
            // Polled means that it failed, and nothing swallows a failure.
            assert_eq!(ended, polled.load(SeqCst));
        }
        Ok(())
    });
}

trait MapToFailed {
    fn map_to_failed(self) -> bool;
}

impl<T> MapToFailed for Outcome<T> {
    fn map_to_failed(self) -> bool {
        matches!(self, Outcome::Failed(_))
    }
}

/// A lazy task is started while it is cancelled: one of the two.
#[test]
fn case_m03_start_against_cancel() {
    on_two_workers("m03", || async {
        for _ in 0..rounds() {
            let here = Arc::new(AtomicUsize::new(0));
            let ran = Arc::new(AtomicUsize::new(0));
            let s = Scope::current().unwrap();
            let lazy = {
                let ran = ran.clone();
                s.task("lazy").spawn_lazy(async move {
                    ran.fetch_add(1, SeqCst);
                    7
                })
            };
            let job = lazy.job();
            let other = {
                let here = here.clone();
                spawn(async move {
                    meet(&here, 2);
                    job.cancel("now")
                })
            };
            meet(&here, 2);
            lazy.start();
            let moved = other.await?;
            match lazy.outcome().await? {
                Outcome::Completed(7) => assert!(!moved && ran.load(SeqCst) == 1),
                Outcome::Cancelled { late, .. } => {
                    assert!(moved);
                    assert_eq!(late.is_some(), ran.load(SeqCst) == 1);
                }
                other => panic!("{other:?}"),
            }
        }
        Ok(())
    });
}

/// Three children fail at once: one primary, two suppressed, all different.
#[test]
fn case_m04_three_failures_at_once() {
    on_workers(3, "m04", || async {
        for _ in 0..rounds() {
            let here = Arc::new(AtomicUsize::new(0));
            let failed = scope(async |s| {
                for n in 0..3 {
                    let here = here.clone();
                    s.launch(async move {
                        meet(&here, 3);
                        Err::<(), _>(Error::msg(format!("child {n}")))
                    });
                }
                Ok(())
            })
            .await
            .unwrap_err();
            // The primary says how many more there are.
            let primary = failed.to_string();
            assert!(primary.ends_with(" (and 2 more)"), "{primary}");
            let mut words = vec![primary.replace(" (and 2 more)", "")];
            words.extend(failed.suppressed().iter().map(ToString::to_string));
            words.sort();
            assert_eq!(words, ["child 0", "child 1", "child 2"]);
        }
        Ok(())
    });
}

/// Members of a group are cancelled while all of them are waited for.
#[test]
fn case_m06_waiting_for_all_against_cancel_of_one() {
    on_two_workers("m06", || async {
        for round in 0..rounds() {
            let here = Arc::new(AtomicUsize::new(0));
            let tasks: Vec<_> = (0..4)
                .map(|_| {
                    spawn(async {
                        for _ in 0..3 {
                            yield_now().await?;
                        }
                        Ok::<_, Error>(1)
                    })
                })
                .collect();
            let victim = tasks[round % 4].job();
            let other = {
                let here = here.clone();
                spawn(async move {
                    meet(&here, 2);
                    victim.cancel("one of them")
                })
            };
            meet(&here, 2);
            let mut stopped = 0;
            for task in tasks {
                match task.await {
                    Ok(value) => assert_eq!(value, 1),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Stopped);
                        stopped += 1;
                    }
                }
            }
            // A task that was moved never completes; a late value is not lost
            // but it is no Ok.
            assert_eq!(stopped, usize::from(other.await?));
        }
        Ok(())
    });
}

/// Joiners with heavy captures come and go on one long job: nothing stays.
#[test]
fn case_m07_cancelled_joiners_leave_nothing() {
    on_two_workers("m07", || async {
        let long = spawn(park());
        let job = long.job();
        let before = Scope::current().unwrap().job();
        for _ in 0..rounds() {
            let job = job.clone();
            let here = Arc::new(AtomicUsize::new(0));
            let joiner = {
                let here = here.clone();
                spawn(async move {
                    let heavy = vec![1_u8; 100_000];
                    meet(&here, 2);
                    let _ = job.join().await?;
                    Ok::<_, Error>(heavy.len())
                })
            };
            meet(&here, 2);
            joiner.cancel("enough");
            assert!(joiner.outcome().await?.is_cancelled());
        }
        drop(before);
        drop(long);
        Ok(())
    });
}

/// A thousand and a hundred thousand siblings: each is woken once, all end
/// cancelled, and the time is about linear.
#[test]
fn case_m10_many_siblings() {
    async fn cancel(siblings: usize) -> Result<Duration> {
        let told = Arc::new(AtomicUsize::new(0));
        let polls = Arc::new(AtomicUsize::new(0));
        let began = Arc::new(std::sync::Mutex::new(Instant::now()));
        let stopped = scope(async |s| {
            for _ in 0..siblings {
                let (told, polls) = (told.clone(), polls.clone());
                s.launch(async move {
                    let mut parked = std::pin::pin!(park());
                    let end = std::future::poll_fn(|cx| {
                        let polled = parked.as_mut().poll(cx);
                        // Not before: whoever counts to the last may cancel it then.
                        polls.fetch_add(1, SeqCst);
                        polled
                    })
                    .await;
                    told.fetch_add(1, SeqCst);
                    end.map(|_| ())
                });
            }
            while polls.load(SeqCst) < siblings {
                yield_now().await?;
            }
            *began.lock().unwrap() = Instant::now();
            s.cancel("all of them");
            checkpoint().await?;
            Ok(())
        })
        .await;
        let took = began.lock().unwrap().elapsed();
        assert!(stopped.is_err());
        assert_eq!(told.load(SeqCst), siblings);
        assert_eq!(polls.load(SeqCst), 2 * siblings, "one wake each");
        Ok(took)
    }
    on_two_workers("m10", || async {
        let few = cancel(1000).await?.min(cancel(1000).await?);
        let many = cancel(100_000).await?;
        // A hundred times as many; far from a hundred times a hundred.
        assert!(many < few * 2500, "{few:?} and {many:?}");
        Ok(())
    });
}

/// A timer fires while its sleeper is cancelled: the task resumes once, and
/// the counters say which of the two it was.
#[test]
fn case_m12_timer_against_cancel() {
    on_two_workers("m12", || async {
        for round in 0..rounds() {
            let resumed = Arc::new(AtomicUsize::new(0));
            let here = Arc::new(AtomicUsize::new(0));
            let sleeper = {
                let (here, resumed) = (here.clone(), resumed.clone());
                spawn(async move {
                    meet(&here, 2);
                    let slept = sleep(Duration::from_micros(20)).await;
                    resumed.fetch_add(1, SeqCst);
                    slept
                })
            };
            meet(&here, 2);
            // We hold our worker: the other one sets the timer, keeps it and
            // fires it, some time about now.
            let at = Instant::now() + Duration::from_micros(round as u64 % 200);
            hold(|| Instant::now() >= at);
            let moved = sleeper.cancel("about now");
            let outcome = sleeper.outcome().await?;
            match outcome {
                Outcome::Completed(()) => assert!(!moved),
                Outcome::Cancelled { .. } => assert!(moved),
                other => panic!("{other:?}"),
            }
            assert!(resumed.load(SeqCst) <= 1);
        }
        Ok(())
    });
}

/// A child on another worker inside a timeout that never fires.
#[test]
fn case_m17_a_timeout_around_a_child_elsewhere() {
    on_two_workers("m17", || async {
        for _ in 0..rounds() {
            let value = timeout(Duration::from_secs(5), async {
                let child = spawn(async {
                    yield_now().await?;
                    Ok::<_, Error>(3)
                });
                let _ = child.join().await?;
                child.await
            })
            .await?;
            assert_eq!(value, 3);
        }
        Ok(())
    });
}

/// Many jobs in foreign awaits are cancelled together, so that patience with the
/// first runs out while others have not heard of it yet, and some are woken for
/// nothing: each is dropped, and the scope around them ends.
#[test]
fn cancel_6_patience_forgets_no_job() {
    const JOBS: usize = 1000;
    guarded("patience", |watched| {
        let rounds = rounds().div_ceil(20);
        let rt = Runtime::builder()
            .workers(4)
            .patience(Patience {
                unaware: Duration::from_millis(1),
                ..Patience::default()
            })
            .on_forced(Box::new(|_| {}))
            .build()
            .unwrap();
        watched.watch(rt.tree());
        let all = async move {
            for _ in 0..rounds {
                let wakers = Arc::new(Mutex::new(vec![None::<Waker>; JOBS]));
                let stopped = scope(async |s| {
                    for n in 0..JOBS {
                        let wakers = wakers.clone();
                        let foreign = std::future::poll_fn(move |cx| {
                            wakers.lock().unwrap()[n] = Some(cx.waker().clone());
                            Poll::<()>::Pending
                        });
                        match n % 2 {
                            0 => s.launch(foreign),
                            // Half of them have a scope around it.
                            _ => s.launch(scope(async move |_| {
                                foreign.await;
                                Ok(())
                            })),
                        };
                    }
                    while wakers.lock().unwrap().iter().any(Option::is_none) {
                        yield_now().await?;
                    }
                    let wakers = wakers.lock().unwrap().clone();
                    s.cancel("they do not hear");
                    wakers.iter().flatten().for_each(Waker::wake_by_ref);
                    checkpoint().await?;
                    Ok(())
                })
                .await;
                assert!(stopped.is_err());
            }
            Ok::<_, Error>(())
        };
        rt.block_on(async move { on(Pool, all).await }).unwrap();
        let tree = rt.tree().clone();
        let report = rt.shutdown(Duration::from_secs(5)).unwrap();
        assert!(report.is_clean(), "{report}");
        let counters = tree.counters();
        assert_eq!(counters.jobs_force_dropped, (rounds * JOBS) as u64);
        assert_eq!(counters.living(), 0, "{counters}");
        assert_eq!(counters.timers_pending(), 0, "{counters}");
        assert_eq!(counters.waiters_pending(), 0, "{counters}");
    });
}

/// Wakes from threads that are none of ours, while workers come and go.
#[test]
fn lane_6_wakes_from_foreign_threads() {
    on_two_workers("foreign wakes", || async {
        let barrier = Arc::new(Barrier::new(2));
        for _ in 0..rounds() / 10 {
            let (done, wait) = futures_util::future::abortable(std::future::pending::<()>());
            let inner = barrier.clone();
            let thread = std::thread::spawn(move || {
                inner.wait();
                wait.abort();
            });
            let task = spawn(async move {
                let _ = done.await;
            });
            barrier.wait();
            task.await?;
            thread.join().expect("the thread ends");
        }
        Ok(())
    });
}

/// The walk of a cancel sees that a job has a child, and when it comes to it both
/// are gone.
#[test]
fn tree_5_a_cancel_meets_a_job_that_is_ending() {
    on_two_workers("ending", || async {
        for _ in 0..rounds() / 20 {
            let stopped = scope(async |s| {
                let inside = Arc::new(AtomicBool::new(false));
                let hooked = Arc::new(AtomicBool::new(false));
                let (there, called) = (inside.clone(), hooked.clone());
                s.launch(async move {
                    let job = current_job().expect("a job");
                    let calls = called.clone();
                    let _hook = on_cancel(move |_| {
                        calls.store(true, SeqCst);
                        hold(|| job.is_ended());
                    });
                    scope(async |_| {
                        there.store(true, SeqCst);
                        hold(|| called.load(SeqCst));
                        Ok(())
                    })
                    .await
                });
                hold(|| inside.load(SeqCst));
                s.cancel("while it has a child");
                Ok(())
            });
            stopped.await?;
        }
        Ok(())
    });
}
