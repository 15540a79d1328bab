//! Deadlines and budgets on real clocks and threads: a body is busy, and the
//! thread that keeps time tells the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use kinfolk_core::{
    Error, ErrorKind, Outcome, Result, Scope, checkpoint, is_cancelled, now, park, shield_for,
    spawn, timeout, timeout_at, yield_now,
};
use kinfolk_runtime::Runtime;
use kinfolk_testkit::guarded;

const MS: Duration = Duration::from_millis(1);

/// Longer than any of these may take, and shorter than the guard.
const LONG: Duration = Duration::from_secs(10);

fn rt(workers: usize) -> Runtime {
    Runtime::builder()
        .workers(workers)
        .on_forced(Box::new(|_| {}))
        .build()
        .expect("a runtime")
}

/// Keeps this thread busy until `done`; false if that takes too long.
fn spin_until(done: impl Fn() -> bool) -> bool {
    let began = Instant::now();
    while !done() {
        if began.elapsed() > LONG {
            return false;
        }
        std::hint::spin_loop();
    }
    true
}

fn work(lasting: Duration) {
    let began = Instant::now();
    spin_until(|| began.elapsed() >= lasting);
}

#[track_caller]
fn expect<T>(result: Result<T>, kind: ErrorKind) -> Error {
    let Err(error) = result else {
        panic!("it came to a value; expected {kind:?}");
    };
    assert_eq!(error.kind(), kind, "{error:?}");
    error
}

/// A child that parks, and what it says of that: it has begun, it was told.
#[derive(Clone, Default)]
struct Parks {
    begun: Arc<AtomicBool>,
    told: Arc<AtomicBool>,
}

impl Parks {
    fn launch(s: &Scope) -> Parks {
        let child = Parks::default();
        let this = child.clone();
        s.launch(async move {
            this.begun.store(true, SeqCst);
            let how = park().await;
            this.told.store(true, SeqCst);
            how.map(drop)
        });
        child
    }

    fn spin_until_told(&self) {
        let told = || self.told.load(SeqCst);
        assert!(spin_until(told), "the child was not told");
    }
}

/// Spawns a child that parks, and keeps its thread busy until that was told.
fn busy_until_child_is_told(s: &Scope) {
    let child = Parks::launch(s);
    assert!(
        spin_until(|| child.begun.load(SeqCst)),
        "the child never began"
    );
    child.spin_until_told();
}

/// Without workers nothing but the points looks; with them it makes no
/// difference to the body.
#[test]
fn time_5_a_loop_of_work_and_points_ends_at_its_deadline() {
    guarded("a loop of work and points", |_| {
        for workers in [0, 1, 2] {
            let points = rt(workers).block_on(async {
                let mut points = 0;
                let result = timeout(20 * MS, async {
                    while points < 1000 {
                        work(20 * MS);
                        points += 1;
                        checkpoint().await?;
                    }
                    Ok::<_, Error>(())
                });
                expect(result.await, ErrorKind::TimedOut);
                points
            });
            assert_eq!(points.unwrap(), 1, "{workers} workers");
        }
    });
}

#[test]
fn time_5_a_loop_that_asks_ends_at_its_deadline() {
    guarded("a loop that asks", |_| {
        for workers in [0, 1, 2] {
            let took = rt(workers).block_on(async {
                let began = Instant::now();
                let result = timeout(20 * MS, async {
                    assert!(spin_until(is_cancelled));
                    checkpoint().await
                });
                expect(result.await, ErrorKind::TimedOut);
                began.elapsed()
            });
            assert!(took.unwrap() >= 20 * MS, "{workers} workers");
        }
    });
}

/// The body holds the main thread, or a worker; the child is parked on another.
#[test]
fn time_5_a_parked_child_is_told_though_the_body_is_busy() {
    guarded("a parked child and a busy body", |_| {
        for workers in [1, 2, 8] {
            let rt = rt(workers);
            let on_main = rt.block_on(async {
                let busy = Scope::build().timeout(20 * MS).run(async |s| {
                    busy_until_child_is_told(&s);
                    checkpoint().await?;
                    Ok(())
                });
                expect(busy.await, ErrorKind::TimedOut);
            });
            on_main.unwrap();
            if workers == 1 {
                continue;
            }
            let on_worker = rt.block_on(async {
                spawn(async {
                    let busy = Scope::build().timeout(20 * MS).run(async |s| {
                        busy_until_child_is_told(&s);
                        Ok(7)
                    });
                    // A child was cut short.
                    expect(busy.await, ErrorKind::TimedOut);
                })
                .await
            });
            on_worker.unwrap();
        }
    });
}

/// The same for a shield's budget: a cancel is held back, and the body inside is
/// busy when the budget is spent.
#[test]
fn time_5_a_parked_child_is_told_when_the_budget_is_spent() {
    guarded("a parked child in a shield", |_| {
        for workers in [1, 2] {
            let result = rt(workers).block_on(async {
                let result = Scope::build().run(async |s| {
                    s.cancel("enough");
                    let shielded = shield_for(20 * MS, async {
                        busy_until_child_is_told(&Scope::current().unwrap());
                        checkpoint().await
                    });
                    expect(shielded.await, ErrorKind::Cancelled);
                    // The cancel comes while it is busy.
                    checkpoint().await?;
                    Ok(())
                });
                expect(result.await, ErrorKind::Stopped);
                let result = Scope::build().timeout(20 * MS).run(async |_| {
                    shield_for(20 * MS, async {
                        busy_until_child_is_told(&Scope::current().unwrap());
                        checkpoint().await
                    })
                    .await
                });
                expect(result.await, ErrorKind::TimedOut);
            });
            result.unwrap();
        }
    });
}

/// A deadline that another thread moves into the past tells the children of a
/// busy body.
#[test]
fn time_5_a_deadline_moved_from_outside_is_told() {
    guarded("moved from outside", |_| {
        let result = rt(2).block_on(async {
            let result = Scope::build().timeout(LONG * 10).run(async |s| {
                let moved = s.clone();
                let mover = std::thread::spawn(move || {
                    moved.reschedule(Some(Instant::now())).unwrap();
                });
                busy_until_child_is_told(&s);
                mover.join().unwrap();
                assert!(is_cancelled());
                checkpoint().await?;
                Ok(())
            });
            expect(result.await, ErrorKind::TimedOut);
        });
        result.unwrap();
    });
}

/// Equal deadlines of a scope and of a task in it, which two threads may fire.
/// Also: time-3.
#[test]
fn time_5_equal_deadlines_report_at_the_outermost() {
    guarded("equal deadlines", |_| {
        let rt = rt(4);
        for round in 0..300_u32 {
            let result = rt.block_on(async move {
                let at = now() + Duration::from_micros(u64::from(round % 7) * 100);
                let result = Scope::named("outer").deadline(at).run(async |s| {
                    let children: Vec<_> = (0..3)
                        .map(|_| {
                            s.spawn(async move {
                                let inner = timeout_at(at, async {
                                    loop {
                                        checkpoint().await?;
                                    }
                                    #[expect(unreachable_code, reason = "says what it returns")]
                                    Ok::<(), Error>(())
                                });
                                Err::<(), _>(expect(inner.await, ErrorKind::Cancelled))
                            })
                        })
                        .collect();
                    for child in children {
                        let how = child.outcome().await?;
                        assert!(matches!(how, Outcome::Cancelled { .. }), "{how:?}");
                    }
                    checkpoint().await?;
                    Ok(())
                });
                let error = expect(result.await, ErrorKind::TimedOut);
                assert_eq!(error.job_name(), Some("outer"));
                assert_eq!(error.suppressed_count(), 0, "{error:?}");
            });
            result.unwrap();
        }
        assert_eq!(rt.counters().timers_pending(), 0, "{}", rt.counters());
    });
}

/// On tokio the driver keeps time, on another of its threads. Were the child not
/// to begin in time, it would be told before that.
#[test]
fn time_5_a_parked_child_is_told_on_tokio() {
    guarded("a parked child on tokio", |_| {
        let tokio = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(3)
            .enable_time()
            .build()
            .expect("a tokio runtime");
        let result = tokio.block_on(kinfolk_tokio::run(async {
            spawn(async {
                let busy = Scope::build().timeout(50 * MS).run(async |s| {
                    let child = Parks::launch(&s);
                    // A neighbour does not take over what a task of tokio's has
                    // woken last before that lets go of its thread.
                    while !child.begun.load(SeqCst) && yield_now().await.is_ok() {}
                    child.spin_until_told();
                    checkpoint().await?;
                    Ok(())
                });
                expect(busy.await, ErrorKind::TimedOut);
            })
            .await
        }));
        result.unwrap();
    });
}
