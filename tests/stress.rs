//! Races on real threads, many times over: `KINFOLK_STRESS` says how often.
//! The small ones are also modelled with loom.

use std::panic::Location;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Barrier, Mutex, OnceLock};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use kinfolk_core::{
    Error, ErrorKind, Outcome, Patience, Pool, Result, Scope, Tree, checkpoint, current_job, on,
    on_cancel, park, scope, sleep, spawn, timeout, yield_now,
};
use kinfolk_runtime::Runtime;

fn from_environment(name: &str, otherwise: usize) -> usize {
    let text = std::env::var(name).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// How far a test has come, for the guard. A wake that is lost stops the rounds for
/// ever; a loaded machine makes each of them slow, and all of them together as slow
/// as one likes. So it is watched that rounds end, and not how long all take.
#[derive(Clone, Default)]
struct Rounds(Arc<Watched>);

#[derive(Default)]
struct Watched {
    begun: AtomicUsize,
    /// The lines in which the racers were seen last.
    lines: [AtomicU32; 3],
    tree: OnceLock<Tree>,
}

impl Rounds {
    /// Rounds as many as `KINFOLK_STRESS` says, or a part of them where each takes
    /// long.
    fn each(&self, part: usize) -> impl Iterator<Item = usize> + use<> {
        let count = from_environment("KINFOLK_STRESS", 2000).div_ceil(part);
        let this = self.clone();
        (0..count).inspect(move |_| this.begin())
    }

    fn begin(&self) {
        self.0.begun.fetch_add(1, SeqCst);
    }

    /// One of the racers has come to this line.
    #[track_caller]
    fn here(&self, racer: usize) {
        self.0.lines[racer].store(Location::caller().line(), Relaxed);
    }

    /// What there is to say of a round that does not end.
    fn report(&self) -> String {
        let mut words = format!("round {}", self.0.begun.load(SeqCst));
        for (racer, line) in self.0.lines.iter().enumerate() {
            match line.load(Relaxed) {
                0 => {}
                line => words += &format!("\nracer {racer} was last seen in line {line}"),
            }
        }
        if let Some(tree) = self.0.tree.get() {
            words += &format!("\n{}\n{}", tree.gauges(), tree.counters());
            words += &format!("\n{}", tree.snapshot());
        }
        words + &threads()
    }
}

/// What the system knows of the threads of this process: their name, whether they
/// run (R) or sleep (S), how long they had a processor (hundredths of a second, in
/// their own code and in the system's), and the system call that they are in.
fn threads() -> String {
    let mut words = String::new();
    let listed = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    for thread in listed.flatten() {
        let read = |name| std::fs::read_to_string(thread.path().join(name)).unwrap_or_default();
        let stat = read("stat");
        let fields: Vec<_> = stat
            .rsplit(") ")
            .next()
            .unwrap_or_default()
            .split(' ')
            .collect();
        let field = |n: usize| fields.get(n).copied().unwrap_or("?");
        let (state, own, system) = (field(0), field(11), field(12));
        let (name, call) = (read("comm"), read("syscall"));
        words += &format!(
            "\nthread {}: {state}, {own} + {system}, system call {}",
            name.trim(),
            call.trim(),
        );
    }
    words
}

/// Runs `test` on a thread of its own. Fails with a report if no round has ended for
/// as long as a whole test may take elsewhere (`KINFOLK_TEST_SECONDS`).
fn watched(name: &'static str, test: impl FnOnce(Rounds) + Send + 'static) {
    let seconds = from_environment("KINFOLK_TEST_SECONDS", 120);
    watched_for(Duration::from_secs(seconds as u64), name, test);
}

fn watched_for(quiet: Duration, name: &'static str, test: impl FnOnce(Rounds) + Send + 'static) {
    let rounds = Rounds::default();
    let inner = rounds.clone();
    let (done, over) = channel();
    let builder = std::thread::Builder::new()
        .name(name.into())
        .stack_size(2 << 20);
    let thread = builder.spawn(move || {
        test(inner);
        let _ = done.send(());
    });
    let thread = thread.expect("a thread for the test");
    let (mut seen, mut since) = (0, Instant::now());
    while let Err(RecvTimeoutError::Timeout) = over.recv_timeout(Duration::from_millis(100)) {
        let begun = rounds.0.begun.load(SeqCst);
        if begun != seen {
            (seen, since) = (begun, Instant::now());
        }
        if since.elapsed() > quiet {
            panic!(
                "{name}: no round has ended for {quiet:?}: {}",
                rounds.report()
            );
        }
    }
    if let Err(payload) = thread.join() {
        std::panic::resume_unwind(payload);
    }
}

/// Runs `body` on the pool of a runtime with two workers, or as many more as
/// `KINFOLK_WORKERS` says, and checks that nothing is left.
fn on_two_workers<F>(name: &'static str, body: impl FnOnce(Rounds) -> F + Send + 'static)
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    on_workers(from_environment("KINFOLK_WORKERS", 2).max(2), name, body);
}

/// The same with as many workers as there are racers: each of them holds one.
fn on_workers<F>(
    workers: usize,
    name: &'static str,
    body: impl FnOnce(Rounds) -> F + Send + 'static,
) where
    F: Future<Output = Result<()>> + Send + 'static,
{
    watched(name, move |rounds| {
        let rt = Runtime::builder()
            .workers(workers)
            .on_failure(Box::new(|_| {}))
            .build()
            .unwrap();
        let _ = rounds.0.tree.set(rt.tree().clone());
        let body = body(rounds);
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

/// A round that does not end is told of, with what each racer, the tree and the
/// threads are at.
#[test]
fn a_round_that_does_not_end_explains_itself() {
    let (let_go, stays) = channel::<()>();
    let line = line!() + 9;
    let stuck = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        watched_for(Duration::from_millis(300), "stuck", move |rounds| {
            let rt = Runtime::builder().workers(1).name("stuck").build().unwrap();
            let _ = rounds.0.tree.set(rt.tree().clone());
            let _waits = rt.scope().task("it waits").spawn(park());
            for _ in 0..3 {
                rounds.begin();
            }
            rounds.here(1);
            let _ = stays.recv();
        });
    }));
    drop(let_go);
    let words = stuck.expect_err("it is stuck");
    let words = words.downcast_ref::<String>().expect("words");
    for said in [
        "stuck: no round has ended for 300ms: round 3",
        &format!("racer 1 was last seen in line {line}"),
        "it waits",
        "thread stuck-0: ",
    ] {
        assert!(words.contains(said), "no `{said}` in {words}");
    }
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
    on_two_workers("m01", |rounds| async move {
        for _ in rounds.each(1) {
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
    on_two_workers("m03", |rounds| async move {
        for _ in rounds.each(1) {
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
    on_workers(3, "m04", |rounds| async move {
        for _ in rounds.each(1) {
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
    on_two_workers("m06", |rounds| async move {
        for round in rounds.each(1) {
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
    on_two_workers("m07", |rounds| async move {
        let long = spawn(park());
        let job = long.job();
        let before = Scope::current().unwrap().job();
        for _ in rounds.each(1) {
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
    on_two_workers("m10", |rounds| async move {
        let few = cancel(1000).await?.min(cancel(1000).await?);
        rounds.begin();
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
    on_two_workers("m12", |rounds| async move {
        for round in rounds.each(1) {
            let resumed = Arc::new(AtomicUsize::new(0));
            let here = Arc::new(AtomicUsize::new(0));
            let sleeper = {
                let (here, resumed) = (here.clone(), resumed.clone());
                let rounds = rounds.clone();
                spawn(async move {
                    rounds.here(1);
                    meet(&here, 2);
                    rounds.here(1);
                    let slept = sleep(Duration::from_micros(20)).await;
                    rounds.here(1);
                    resumed.fetch_add(1, SeqCst);
                    slept
                })
            };
            rounds.here(0);
            meet(&here, 2);
            rounds.here(0);
            // We hold our worker: the other one sets the timer, keeps it and
            // fires it, some time about now.
            let at = Instant::now() + Duration::from_micros(round as u64 % 200);
            hold(|| Instant::now() >= at);
            let moved = sleeper.cancel("about now");
            rounds.here(0);
            let outcome = sleeper.outcome().await?;
            rounds.here(0);
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
    on_two_workers("m17", |rounds| async move {
        for _ in rounds.each(1) {
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
    watched("patience", |rounds| {
        let rt = Runtime::builder()
            .workers(4)
            .patience(Patience {
                unaware: Duration::from_millis(1),
                ..Patience::default()
            })
            .on_forced(Box::new(|_| {}))
            .build()
            .unwrap();
        let _ = rounds.0.tree.set(rt.tree().clone());
        let all_rounds = rounds.each(20);
        let count = all_rounds.size_hint().0;
        let all = async move {
            for _ in all_rounds {
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
        assert_eq!(counters.jobs_force_dropped, (count * JOBS) as u64);
        assert_eq!(counters.living(), 0, "{counters}");
        assert_eq!(counters.timers_pending(), 0, "{counters}");
        assert_eq!(counters.waiters_pending(), 0, "{counters}");
    });
}

/// Wakes from threads that are none of ours, while workers come and go.
#[test]
fn lane_6_wakes_from_foreign_threads() {
    on_two_workers("foreign wakes", |rounds| async move {
        let barrier = Arc::new(Barrier::new(2));
        for _ in rounds.each(10) {
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
    on_two_workers("ending", |rounds| async move {
        for _ in rounds.each(20) {
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
