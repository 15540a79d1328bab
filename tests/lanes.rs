//! Pinned lanes on the native runtime: what the conformance suite cannot
//! ask of every host.

use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Poll, Waker};
use std::thread::{self, ThreadId};
use std::time::Duration;

use kinfolk_core::{Budget, Error, Pinned, on, park, shield, sleep, spawn, yield_now};
use kinfolk_runtime::Runtime;
use kinfolk_testkit::guarded;

fn rt(workers: usize) -> Runtime {
    Runtime::builder()
        .workers(workers)
        .on_forced(Box::new(|_| {}))
        .build()
        .expect("a runtime")
}

fn here() -> ThreadId {
    thread::current().id()
}

/// Remembers where it was dropped, and how often.
#[derive(Clone, Default)]
struct Places(Arc<Mutex<Vec<ThreadId>>>);

struct DropsAt(Places);

impl kinfolk_core::Success for DropsAt {}

impl Drop for DropsAt {
    fn drop(&mut self) {
        self.0.0.lock().unwrap().push(here());
    }
}

/// The thread of a pinned lane.
fn thread_of(rt: &Runtime, n: usize) -> ThreadId {
    rt.block_on(async move { on(Pinned(n), async { here() }).await })
        .unwrap()
}

#[test]
fn lane_5_each_worker_has_a_lane() {
    guarded("lanes of workers", |_| {
        for workers in [1, 2, 8] {
            let rt = rt(workers);
            let mut threads = Vec::new();
            for n in 0..workers {
                let first = thread_of(&rt, n);
                assert_eq!(first, thread_of(&rt, n));
                assert!(!threads.contains(&first) && first != here());
                threads.push(first);
            }
            let all = rt.block_on(async { Pinned::all().len() });
            assert_eq!(all.unwrap(), workers);
        }
        assert_eq!(Pinned::all().len(), 0, "outside any job");
        assert!(Pinned::here().is_none());
    });
}

/// With no workers the main thread stands for one, as long as it turns and when it drops.
#[test]
fn lane_5_with_no_workers_the_main_thread_has_the_one_lane() {
    guarded("no workers", |_| {
        let rt = rt(0);
        assert_eq!(thread_of(&rt, 0), here());
        let places = Places::default();
        let value = DropsAt(places.clone());
        rt.scope().on(Pinned(0)).launch(async move {
            let _value = value;
            pending::<()>().await;
        });
        while rt.pump(Budget::Turns(10)).unwrap().more {}
        drop(rt);
        assert_eq!(*places.0.lock().unwrap(), [here()]);
    });
}

/// No other worker helps out, however long the poll lasts; the stuck report names both. What
/// was cancelled meanwhile is told when the worker comes back.
#[test]
fn lane_5_what_is_pinned_waits_for_its_worker() {
    guarded("a worker in a long poll", |_| {
        let rt = rt(2);
        let (go, held) = mpsc::channel::<()>();
        let (began, begun) = mpsc::channel();
        let long = rt.scope().task("long").on(Pinned(0)).launch(async move {
            began.send(()).unwrap();
            held.recv().unwrap();
        });
        begun.recv().unwrap();
        let polled = Arc::new(AtomicBool::new(false));
        let seen = polled.clone();
        let waits = rt.scope().task("waits").on(Pinned(0)).launch(async move {
            seen.store(true, SeqCst);
            park().await
        });
        let later = rt.scope().task("later").on(Pinned(0)).launch(async {});
        // The other worker is idle, and the pool goes on.
        for _ in 0..50 {
            rt.block_on(async { spawn(async { yield_now().await }).await })
                .unwrap();
            rt.block_on(async { sleep(Duration::from_micros(200)).await })
                .unwrap();
        }
        assert!(!polled.load(SeqCst) && !long.is_ended());
        waits.cancel("enough");
        rt.block_on(async { sleep(Duration::from_millis(5)).await })
            .unwrap();
        let stuck = rt.snapshot().stuck(Duration::from_millis(1));
        let words = stuck.to_string();
        assert!(
            words.contains("\"long\"") && words.contains("\"waits\""),
            "{words}"
        );
        assert!(words.contains("pinned 0"), "{words}");
        go.send(()).unwrap();
        for job in [&long, &waits, &later] {
            let _ = rt.wait_for(job.join()).unwrap();
        }
        assert!(!polled.load(SeqCst), "cancelled before its first poll");
    });
}

/// A worker that sleeps is woken for what is pinned to it, and for nothing else: a task of each
/// lane is woken from a foreign thread, over and over, and no wake is lost.
#[test]
fn lane_5_no_wake_up_of_a_pinned_task_is_lost() {
    guarded("wakes of pinned tasks", |_| {
        let rounds = std::env::var("KINFOLK_WAKES")
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or(4_000_usize);
        for workers in [1, 2, 8] {
            let rt = rt(workers);
            for n in 0..workers {
                let (send, take) = mpsc::channel::<(Waker, Arc<AtomicBool>)>();
                let waker = thread::spawn(move || {
                    while let Ok((waker, set)) = take.recv() {
                        set.store(true, SeqCst);
                        waker.wake();
                    }
                });
                let rounds = rounds / workers;
                let task = rt.scope().on(Pinned(n)).spawn(async move {
                    let home = here();
                    for _ in 0..rounds {
                        let set = Arc::new(AtomicBool::new(false));
                        let mut sent = false;
                        poll_fn(|cx| {
                            if set.load(SeqCst) {
                                return Poll::Ready(());
                            }
                            if !std::mem::replace(&mut sent, true) {
                                send.send((cx.waker().clone(), set.clone())).unwrap();
                            }
                            Poll::Pending
                        })
                        .await;
                        assert_eq!(here(), home);
                    }
                });
                rt.wait_for(task).unwrap().unwrap();
                waker.join().unwrap();
            }
        }
    });
}

/// Counted in turns: while the lane is never empty at most every ninth turn
/// is one of the pool; while the pool is never empty the lane has its goes.
#[test]
fn lane_5_a_lane_and_the_pool_have_turns_by_turns() {
    guarded("goes", |_| {
        let rt = rt(1);
        let log = Arc::new(Mutex::new(Vec::<u8>::new()));
        let stop = Arc::new(AtomicBool::new(false));
        // Tasks that yield: each is queued again behind the others of its kind.
        let seen = log.clone();
        let yields = move |kind: u8| {
            let (log, stop) = (seen.clone(), stop.clone());
            async move {
                while !stop.load(SeqCst) {
                    let full = {
                        let mut log = log.lock().unwrap();
                        log.push(kind);
                        log.len() > 4_000
                    };
                    if full {
                        stop.store(true, SeqCst);
                    }
                    yield_now().await?;
                }
                Ok::<_, Error>(())
            }
        };
        let (lane, pool): (Vec<_>, Vec<_>) = rt
            .block_on(async move {
                on(Pinned(0), async move {
                    let s = kinfolk_core::Scope::current().unwrap();
                    let lane: Vec<_> = (0..5).map(|_| s.on(Pinned(0)).spawn(yields(1))).collect();
                    let pool: Vec<_> = (0..5).map(|_| s.spawn(yields(0))).collect();
                    // They hang from this task, which waits for them at its end.
                    (
                        lane.into_iter().map(|task| task.into_job()).collect(),
                        pool.into_iter().map(|task| task.into_job()).collect(),
                    )
                })
                .await
            })
            .unwrap();
        for job in lane.iter().chain(&pool) {
            assert!(job.is_ended());
        }
        let log = log.lock().unwrap();
        let both = &log[50..4_000];
        let longest = |kind| both.split(|seen| *seen != kind).map(<[u8]>::len).max();
        assert!(longest(1) <= Some(8), "{:?}", longest(1));
        assert!(longest(0) <= Some(2), "{:?}", longest(0));
    });
}

/// What another thread pins to a busy worker is seen at its next look: after 16 turns at most.
#[test]
fn lane_5_a_turn_from_elsewhere_waits_for_few_turns() {
    guarded("from elsewhere", |_| {
        let rt = rt(1);
        let turns = Arc::new(AtomicUsize::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        for _ in 0..10 {
            let (turns, stop) = (turns.clone(), stop.clone());
            rt.scope().launch(async move {
                while !stop.load(SeqCst) {
                    turns.fetch_add(1, SeqCst);
                    yield_now().await?;
                }
                Ok::<_, Error>(())
            });
        }
        let (ask, asked) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let (pushed, is_pushed) = mpsc::channel();
        let (scope, counted) = (rt.scope(), turns.clone());
        let helper = thread::spawn(move || {
            for began in asked {
                let (counted, tell) = (counted.clone(), tell.clone());
                scope.on(Pinned(0)).launch(async move {
                    tell.send(counted.load(SeqCst) - began).unwrap();
                });
                pushed.send(()).unwrap();
            }
        });
        let worst = rt.scope().spawn(async move {
            let mut worst = 0;
            for _ in 0..50 {
                // The worker is held in this turn until it is pushed.
                ask.send(turns.load(SeqCst)).unwrap();
                is_pushed.recv().unwrap();
                let waited = loop {
                    match told.try_recv() {
                        Ok(waited) => break waited,
                        Err(_) => yield_now().await?,
                    }
                };
                worst = worst.max(waited);
            }
            Ok::<usize, Error>(worst)
        });
        let worst = rt.wait_for(worst).unwrap().unwrap();
        stop.store(true, SeqCst);
        helper.join().unwrap();
        assert!(worst <= 17, "{worst} turns");
    });
}

/// A hand-over chain of the lane, which is never empty, leaves the pool its turns.
#[test]
fn lane_5_a_chain_on_a_lane_does_not_keep_the_pool_away() {
    guarded("a chain on a lane", |_| {
        let rt = rt(1);
        let turns = Arc::new(AtomicUsize::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let (seen, halt) = (turns.clone(), stop.clone());
        rt.block_on(async move {
            on(Pinned(0), async move {
                let over = halt.clone();
                let bystander = spawn(async move {
                    for _ in 0..100 {
                        yield_now().await?;
                    }
                    over.store(true, SeqCst);
                    Ok::<_, Error>(())
                });
                // Each awaits a child that is handed the turn.
                while !halt.load(SeqCst) {
                    on(Pinned(0), async {}).await?;
                    seen.fetch_add(2, SeqCst);
                }
                bystander.await
            })
            .await
        })
        .unwrap();
        let turns = turns.load(SeqCst);
        assert!(
            turns <= 100 * 12,
            "{turns} turns of the lane beside 100 of the pool"
        );
    });
}

/// The runtime is dropped with pinned tasks parked: each is dropped by its worker.
#[test]
fn lane_5_what_is_pinned_goes_with_its_runtime_on_its_lane() {
    guarded("dropped with pinned tasks", |_| {
        for workers in [1, 2, 8] {
            let rt = Runtime::builder()
                .workers(workers)
                .grace(Duration::from_millis(5))
                .on_forced(Box::new(|_| {}))
                .build()
                .unwrap();
            let lanes: Vec<_> = (0..workers)
                .map(|n| (thread_of(&rt, n), Places::default()))
                .collect();
            for (n, (_, places)) in lanes.iter().enumerate() {
                for how in 0..3 {
                    let value = DropsAt(places.clone());
                    rt.scope().on(Pinned(n)).launch(async move {
                        let _value = value;
                        match how {
                            0 => drop(park().await?),
                            1 => pending::<()>().await,
                            _ => shield(pending::<()>()).await?,
                        }
                        Ok::<_, Error>(())
                    });
                }
            }
            drop(rt);
            for (home, places) in &lanes {
                assert_eq!(*places.0.lock().unwrap(), [*home; 3]);
            }
        }
    });
}

/// A worker that does not come back: a shutdown ends, names what is pinned to it, and leaves it.
/// When it does come back it drops that.
#[test]
fn lane_5_a_worker_that_is_stuck_is_left_with_its_lane() {
    guarded("a worker that is stuck", |_| {
        let rt = rt(2);
        let places = Places::default();
        let home = thread_of(&rt, 1);
        let (go, held) = mpsc::channel::<()>();
        let (began, begun) = mpsc::channel();
        rt.scope().task("stuck").on(Pinned(1)).launch(async move {
            began.send(()).unwrap();
            let _ = held.recv();
        });
        begun.recv().unwrap();
        for n in 0..100 {
            let value = DropsAt(places.clone());
            rt.scope()
                .task(format!("behind {n}"))
                .on(Pinned(1))
                .launch(async move { drop(value) });
        }
        let report = rt.shutdown(Duration::from_millis(5)).unwrap();
        let named: Vec<_> = report.stragglers.iter().map(|job| &*job.name).collect();
        assert_eq!(named.len(), 101, "{report}");
        assert!(named.contains(&"stuck") && named.contains(&"behind 99"));
        assert_eq!(
            places.0.lock().unwrap().len(),
            0,
            "no other thread may drop them"
        );
        go.send(()).unwrap();
        while places.0.lock().unwrap().len() < 100 {
            thread::yield_now();
        }
        let places = places.0.lock().unwrap();
        assert!(places.iter().all(|place| *place == home));
    });
}

/// A handle that another worker of the same runtime drops leaves the output to its own.
#[test]
fn lane_5_an_output_goes_to_its_own_worker() {
    guarded("an output among workers", |_| {
        for workers in [2, 8] {
            let rt = rt(workers);
            let homes: Vec<_> = (0..workers).map(|n| thread_of(&rt, n)).collect();
            for (n, home) in homes.iter().enumerate() {
                for other in 0..workers {
                    let places = Places::default();
                    let value = DropsAt(places.clone());
                    let task = rt.scope().on(Pinned(n)).spawn(async move { value });
                    let _ = rt.wait_for(task.job().join()).unwrap();
                    rt.block_on(async move { on(Pinned(other), async move { drop(task) }).await })
                        .unwrap();
                    // Behind what was left to it.
                    assert_eq!(thread_of(&rt, n), *home);
                    assert_eq!(*places.0.lock().unwrap(), [*home]);
                }
            }
        }
    });
}

/// Once the root has ended an output goes with its handle.
#[test]
fn lane_5_an_output_whose_root_has_ended_goes_with_its_handle() {
    guarded("an output too late", |_| {
        let rt = rt(2);
        let places = Places::default();
        let value = DropsAt(places.clone());
        let task = rt.scope().on(Pinned(1)).spawn(async move { value });
        let _ = rt.wait_for(task.job().join()).unwrap();
        rt.shutdown(Duration::from_secs(5)).unwrap();
        assert_eq!(places.0.lock().unwrap().len(), 0);
        drop(task);
        assert_eq!(*places.0.lock().unwrap(), [here()]);
    });
}

/// Worker 0 of one runtime is not worker 0 of another.
#[test]
fn lane_5_a_pinned_job_is_not_ended_on_another_runtimes_worker() {
    guarded("two runtimes", |_| {
        let (a, b) = (rt(1), rt(1));
        let home = thread_of(&b, 0);
        let places = Places::default();
        let value = DropsAt(places.clone());
        let (give, take) = mpsc::channel();
        let job = b.scope().on(Pinned(0)).launch(async move {
            // A scope that outlives its body: whoever drops it ends us.
            let mut open = Box::pin(shield(pending::<()>()));
            poll_fn(|cx| {
                assert!(Pin::new(&mut open).poll(cx).is_pending());
                Poll::Ready(())
            })
            .await;
            give.send(open).unwrap();
            value
        });
        let open = take.recv().unwrap();
        a.block_on(async move { on(Pinned(0), async move { drop(open) }).await })
            .unwrap();
        let _ = b.wait_for(job.join()).unwrap();
        assert_eq!(*places.0.lock().unwrap(), [home]);
        // And a handle that goes there does not take the output along.
        let value = DropsAt(places.clone());
        let task = b.scope().on(Pinned(0)).spawn(async move { value });
        let _ = b.wait_for(task.job().join()).unwrap();
        a.block_on(async move { on(Pinned(0), async move { drop(task) }).await })
            .unwrap();
        b.shutdown(Duration::from_secs(5)).unwrap();
        assert_eq!(*places.0.lock().unwrap(), [home, home]);
    });
}

/// Ten thousand at one lane, ended and cancelled, with destructors that panic, spawn and
/// cancel.
#[test]
fn lane_5_many_on_one_lane() {
    guarded("many on one lane", |_| {
        struct Hostile(usize, Places);
        impl Drop for Hostile {
            fn drop(&mut self) {
                self.1.0.lock().unwrap().push(here());
                match self.0 % 7 {
                    0 => std::panic::resume_unwind(Box::new("a destructor")),
                    1 => drop(kinfolk_core::current_job().map(|job| job.cancel("again"))),
                    2 if kinfolk_core::current_job().is_some() => {
                        drop(on(Pinned(0), async {}));
                    }
                    _ => {}
                }
            }
        }
        for workers in [1, 2] {
            let rt = Runtime::builder()
                .workers(workers)
                .on_forced(Box::new(|_| {}))
                .on_failure(Box::new(|_| {}))
                .build()
                .unwrap();
            let home = thread_of(&rt, 0);
            let places = Places::default();
            for n in 0..10_000 {
                let value = Hostile(n, places.clone());
                rt.scope().on(Pinned(0)).launch(async move {
                    let _value = value;
                    match n % 3 {
                        0 => pending::<()>().await,
                        1 => drop(park().await?),
                        _ => yield_now().await?,
                    }
                    Ok::<_, Error>(())
                });
            }
            let _ = rt.shutdown(Duration::from_secs(20)).unwrap();
            let places = places.0.lock().unwrap();
            assert_eq!(places.len(), 10_000);
            assert!(places.iter().all(|place| *place == home));
        }
    });
}
