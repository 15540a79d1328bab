//! What an operation costs when there is much of it: twice as much takes at most
//! two and a half times the work. Where the work can be counted it is counted;
//! elsewhere it is the time that the thread has had of a processor, the least of
//! several runs, for eight times as much, which leaves room for caches and still
//! tells a line from a square.

use std::error::Error as StdError;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use kinfolk::see::{Causes, Examine, FindingRule, Rules, WriteJson};
use kinfolk_core::kit::{self, Completion, Work, completion};
use kinfolk_core::{
    Error, Event, EventKind, HookGuard, Job, JobId, JobKind, JobState, Lane, Local, OrCancel,
    Outcome, Patience, ReasonKind, Result, Scope, SharedTask, Sink, Success, Task, TaskSet,
    TreeSnapshot, all, checkpoint, cleanup, current_job, for_each_concurrent, is_cancelled, launch,
    local_scope, on_cancel, park, scope, shield, spawn, yield_now,
};
use kinfolk_runtime::io::stdin;
use kinfolk_testkit::{Gate, Log, Sim, guarded};

/// The processor time of this thread.
fn busy() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: it writes one timespec, to the one that is given.
    let answer = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(answer, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// What `f` takes of a processor.
fn time(f: impl FnOnce()) -> Duration {
    let before = busy();
    f();
    busy() - before
}

/// Eight times as much: a line takes eight times as long, a square sixty-four. What
/// fits no more into the processor's caches costs up to four times as much each.
const MORE: usize = 8;
const AT_MOST: u32 = 40;

/// `cost(n)` is the time that n of something take.
fn is_a_line(name: &'static str, n: usize, cost: impl Fn(usize) -> Duration + Send + 'static) {
    guarded(name, move |_| {
        // The least of several runs is what it costs; what another program does
        // to the caches meanwhile only adds to it. So as long as the two do not
        // fit a line, both are measured again. A square never fits.
        let (mut few, mut many) = (Duration::MAX, Duration::MAX);
        for round in 0..12 {
            few = few.min(cost(n));
            many = many.min(cost(MORE * n));
            if round >= 2 && many <= AT_MOST * few {
                break;
            }
        }
        println!("{name}: {n} take {few:?}, {} take {many:?}", MORE * n);
        assert!(
            many <= AT_MOST * few,
            "{name}: {n} take {few:?}, {} take {many:?}",
            MORE * n
        );
    });
}

#[test]
#[should_panic(expected = "square: 1000 take")]
fn a_square_does_not_pass_for_a_line() {
    is_a_line("square", 1_000, |n| Duration::from_nanos((n * n) as u64));
}

type Body = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// A chain of tasks, each below the one before. All of them wait until they are
/// told; then each runs `at_end` once.
fn chain(left: usize, at_end: fn() -> Body) -> Body {
    Box::pin(async move {
        if left > 0 {
            launch(chain(left - 1, at_end));
        }
        let told = park().await;
        at_end().await?;
        told?;
        Ok(())
    })
}

/// What it takes until a chain of n that was cancelled is over.
fn end_of_chain(n: usize, at_end: fn() -> Body, top: fn(Body) -> Body) -> Duration {
    let mut sim = Sim::seeded(1);
    let task = sim.root().spawn(top(chain(n, at_end)));
    sim.settle();
    let took = time(|| {
        task.cancel("enough");
        sim.settle();
    });
    assert!(task.is_ended());
    drop(task);
    sim.finish();
    took
}

fn clean_up() -> Body {
    Box::pin(cleanup(async {}))
}

#[test]
fn shield_3_cleanup_costs_the_same_at_any_depth() {
    is_a_line("cleanup", 1_000, |n| end_of_chain(n, clean_up, |body| body));
}

/// Also where the patience was set far above.
#[test]
fn shield_3_cleanup_costs_the_same_however_far_its_patience() {
    is_a_line("patience", 1_000, |n| {
        end_of_chain(n, clean_up, |body| {
            let patience = Patience {
                unaware: Duration::from_secs(5),
                cleanup: Duration::from_secs(7),
            };
            Box::pin(Scope::build().patience(patience).run(|_| body))
        })
    });
}

/// A chain whose tasks all run `then` when the gate opens; how long that takes.
fn opened(n: usize, then: fn() -> Body, top: fn(Body) -> Body) -> Duration {
    fn link(left: usize, gate: Gate, then: fn() -> Body) -> Body {
        Box::pin(async move {
            if left > 0 {
                launch(link(left - 1, gate.clone(), then));
            }
            gate.wait().await;
            then().await
        })
    }
    let mut sim = Sim::seeded(1);
    let gate = Gate::new();
    let task = sim.root().spawn(top(link(n, gate.clone(), then)));
    sim.settle();
    let took = time(|| {
        gate.open();
        sim.settle();
    });
    assert_eq!(task.job().state(), JobState::Completed);
    drop(task);
    sim.finish();
    took
}

#[test]
fn shield_2_a_shield_costs_the_same_at_any_depth() {
    let shielded: fn() -> Body = || Box::pin(shield(async {}));
    is_a_line("shield", 1_000, move |n| opened(n, shielded, |body| body));
}

/// Also inside a shield that stands far above.
#[test]
fn shield_2_a_shield_costs_the_same_however_far_the_next() {
    let shielded: fn() -> Body = || Box::pin(shield(async {}));
    is_a_line("shields", 1_000, move |n| {
        opened(n, shielded, |body| Box::pin(shield(body)))
    });
}

static FAR: Local<usize> = Local::new();
static NEVER: Local<usize> = Local::new();

#[test]
fn handle_10_a_local_costs_the_same_at_any_depth() {
    let asks: fn() -> Body = || {
        Box::pin(async {
            assert_eq!(FAR.get(), Some(7));
            assert_eq!(NEVER.get(), None);
            Ok(())
        })
    };
    is_a_line("local", 1_000, move |n| {
        opened(n, asks, |body| Box::pin(FAR.scope(7, body)))
    });
}

static SHARED: Local<Job> = Local::new();

/// A waiter looks whether the other can end before it.
#[test]
fn handle_2_a_join_costs_the_same_at_any_depth() {
    let joins: fn() -> Body = || {
        Box::pin(async {
            let job = SHARED.get().expect("it is set above");
            assert!(job.join().await?.is_completed());
            Ok(())
        })
    };
    is_a_line("join", 1_000, move |n| {
        opened(n, joins, |body| {
            Box::pin(async move {
                let task = spawn(async {});
                let job = task.job();
                task.await?;
                SHARED.scope(job, body).await
            })
        })
    });
}

/// With no patience at all each job looks how much it has.
#[test]
fn cancel_6_being_dropped_at_once_costs_the_same_at_any_depth() {
    fn deaf(left: usize) -> Body {
        Box::pin(async move {
            if left > 0 {
                launch(deaf(left - 1));
            }
            std::future::pending::<()>().await;
            Ok(())
        })
    }
    is_a_line("deaf", 1_000, |n| {
        let patience = Patience {
            unaware: Duration::ZERO,
            cleanup: Duration::ZERO,
        };
        let mut sim = Sim::builder(1).on_forced(|_| {}).patience(patience).build();
        let task = sim.root().spawn(deaf(n));
        sim.settle();
        let took = time(|| {
            task.cancel("enough");
            sim.settle();
        });
        assert!(task.is_ended());
        assert_eq!(sim.counters().jobs_force_dropped, n as u64 + 1);
        drop(task);
        sim.finish();
        took
    });
}

#[test]
fn see_2_a_deep_snapshot_prints_in_a_line() {
    is_a_line("print", 1_500, |n| {
        let mut sim = Sim::seeded(1);
        let task = sim.root().spawn(chain(n, || Box::pin(async { Ok(()) })));
        sim.settle();
        let tree = sim.snapshot();
        let mut lines = 0;
        let took = time(|| lines = tree.to_string().lines().count());
        assert_eq!(lines, n + 2);
        task.cancel("enough");
        sim.settle();
        drop(task);
        sim.finish();
        took
    });
}

/// see-2: what is asked of a wide tree: as text, folded and not, its children one by one, as
/// JSON, its growth and its findings.
#[test]
fn see_2_questions_to_a_wide_snapshot_are_answered_in_a_line() {
    type Form = (&'static str, fn(&TreeSnapshot) -> usize);
    let forms: [Form; 6] = [
        ("text", |tree| tree.to_string().len()),
        ("unfolded", |tree| tree.text().unfolded().to_string().len()),
        ("children", |tree| {
            let jobs = tree.nodes().iter();
            jobs.map(|job| tree.children(job.id).count()).sum()
        }),
        ("json", |tree| tree.to_json().len()),
        ("diff", |tree| {
            tree.diff(&TreeSnapshot::default()).grown.len()
        }),
        ("findings", |tree| {
            Rules::default().check(tree, Some(tree)).all().len()
        }),
    ];
    for (name, ask) in forms {
        is_a_line(name, 1_500, move |n| {
            let mut sim = Sim::seeded(1);
            let s = sim.root();
            let tasks: Vec<_> = (0..n).map(|_| s.launch(park())).collect();
            sim.settle();
            // Without the index that the first question makes.
            let tree = sim.snapshot();
            let took = time(|| assert!(ask(&tree) > 0 || name == "findings"));
            drop(tasks);
            sim.tree().request_shutdown(ReasonKind::Shutdown);
            sim.settle();
            sim.finish();
            took
        });
    }
}

// ---------------------------------------------------------------- failures

/// T1: to ask whether one is cancelled costs the same with no child as with twenty
/// thousand.
#[test]
fn src_t1_asking_costs_the_same_whatever_the_children() {
    const ASKS: usize = 20_000;
    let cost = |children: usize| {
        let mut sim = Sim::seeded(1);
        let took = sim.run(scope(async move |s| {
            for _ in 0..children {
                s.launch(park());
            }
            yield_now().await?;
            let job = current_job().expect("inside a job");
            let took = time(|| {
                for _ in 0..ASKS {
                    assert!(!is_cancelled() && !job.cancel_requested());
                }
            });
            s.cancel("enough");
            Ok(took)
        }));
        sim.finish();
        took.unwrap_or_else(|error| panic!("{error:?}"))
    };
    guarded("asking", move |_| {
        let (mut few, mut many) = (Duration::MAX, Duration::MAX);
        for round in 0..12 {
            few = few.min(cost(0));
            many = many.min(cost(20_000));
            if round >= 2 && many <= 2 * few {
                return;
            }
        }
        panic!("{ASKS} questions take {few:?} alone and {many:?} with many children");
    });
}

/// A child is taken out of its parent's list in the same time wherever in it it
/// stands: the simulation draws which of many ends next.
#[test]
fn tree_1_a_child_is_unlinked_in_the_same_time_wherever_it_stands() {
    is_a_line("unlinking", 10_000, |n| {
        let mut sim = Sim::seeded(1);
        let gate = Gate::new();
        let opens = gate.clone();
        sim.root().launch(scope(async move |s| {
            for _ in 0..n {
                let gate = opens.clone();
                s.launch(async move { gate.wait().await });
            }
            Ok::<_, Error>(())
        }));
        sim.settle();
        assert!(sim.tree().counters().living() > n as u64);
        gate.open();
        let took = time(|| sim.settle());
        sim.finish();
        took
    });
}

/// An error that counts how often it is asked for its source.
struct Wrapped {
    inner: Option<Error>,
    asked: Arc<AtomicUsize>,
}

impl StdError for Wrapped {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.asked.fetch_add(1, Relaxed);
        self.inner.as_ref().map(|inner| inner as _)
    }
}

impl fmt::Display for Wrapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("wrapped")
    }
}

impl fmt::Debug for Wrapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wrapped")
    }
}

/// A loop that tries n times, two tasks each time: one fails, and the other as
/// it is told. The errors of both have the last attempt's as their source. How
/// often sources are asked for in all, and in the last attempt.
fn retries(n: usize) -> (usize, usize) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counts = asked.clone();
    let mut sim = Sim::seeded(1);
    let last = sim.run(async move {
        let (mut inner, mut before) = (None::<Error>, 0);
        for _ in 0..n {
            before = counts.load(Relaxed);
            let tried = scope(async |s: Scope| {
                let wrapped = || Wrapped {
                    inner: inner.clone(),
                    asked: counts.clone(),
                };
                let (one, other) = (wrapped(), wrapped());
                // Polled at once: one that has not begun would never begin.
                let waits = s.spawn_now(async move {
                    let _told = park().await;
                    Err::<(), _>(one)
                });
                drop(waits.into_job());
                s.launch(async move { Err::<(), _>(other) });
                Ok(())
            });
            let error = tried.await.expect_err("it fails");
            assert_eq!(error.suppressed_count(), 1);
            inner = Some(error);
        }
        Ok::<_, Error>(counts.load(Relaxed) - before)
    });
    sim.finish();
    (asked.load(Relaxed), last.expect("it ends"))
}

fn twice(name: &str, few: usize, many: usize) {
    println!("{name}: {few} and {many}");
    assert!(2 * many <= 5 * few, "{name}: {few} and {many}");
}

#[test]
fn outcome_2_an_attempt_costs_what_has_failed_before() {
    guarded("attempt", |_| {
        twice("an attempt", retries(7).1, retries(14).1);
    });
}

/// However long it goes on: what is far behind is not looked at.
#[test]
fn outcome_2_attempts_without_end() {
    guarded("attempts", |_| {
        twice("attempts", retries(800).0, retries(1_600).0);
    });
}

/// A failure that climbs, and gains a context at each step.
#[test]
fn outcome_2_a_chain_of_failures_is_a_line() {
    fn link(left: usize, asked: Arc<AtomicUsize>) -> Body {
        Box::pin(async move {
            let inner = match left {
                0 => None,
                _ => spawn(link(left - 1, asked.clone())).await.err(),
            };
            Err(Error::from_boxed(Box::new(Wrapped { inner, asked })))
        })
    }
    let failures = |n: usize| {
        let asked = Arc::new(AtomicUsize::new(0));
        let mut sim = Sim::builder(1).on_failure(|_| {}).build();
        let task = sim.root().spawn(link(n, asked.clone()));
        sim.settle();
        assert_eq!(task.job().state(), JobState::Failed);
        drop(task);
        sim.finish();
        asked.load(Relaxed)
    };
    guarded("failures", move |_| {
        twice("a chain of failures", failures(1_500), failures(3_000));
    });
}

/// A failure that climbs, and is joined by one of each body on its way.
#[test]
fn outcome_2_a_failure_that_is_joined_by_many_is_a_line() {
    fn link(left: usize) -> Body {
        Box::pin(async move {
            if left == 0 {
                return Err(Error::msg("the first"));
            }
            launch(link(left - 1));
            let _told = park().await;
            Err(Error::msg("one more"))
        })
    }
    is_a_line("joined", 250, |n| {
        let mut sim = Sim::builder(1).on_failure(|_| {}).build();
        let task = sim.root().spawn(link(n));
        let took = time(|| sim.settle());
        let error = task.job().join();
        let ended = sim.run(async move { Ok::<_, Error>(error.await?) });
        match ended.expect("it ends") {
            Outcome::Failed(error) => {
                assert_eq!(error.to_string(), format!("the first (and {n} more)"));
            }
            other => panic!("{other:?}"),
        }
        drop(task);
        sim.finish();
        took
    });
}

/// A context around a failure takes its place, also around a wide one.
#[test]
fn outcome_2_a_wide_failure_is_known_again() {
    let error = Sim::seeded(1).run(async {
        scope(async |s: Scope| {
            let task = s.spawn(async {
                scope(async |s: Scope| {
                    for n in 0..33 {
                        s.launch(async move { Err::<(), _>(Error::msg(n.to_string())) });
                    }
                    Ok(())
                })
                .await
            });
            let inner = task.await.err();
            let asked = Arc::new(AtomicUsize::new(0));
            Err::<(), _>(Error::from_boxed(Box::new(Wrapped { inner, asked })))
        })
        .await
    });
    let error = error.expect_err("it fails");
    assert_eq!(error.to_string(), "wrapped", "{error:?}");
    assert_eq!(error.suppressed_count(), 0, "{error:?}");
}

// ---------------------------------------------------------------- branches

#[test]
fn handle_7_all_that_are_ready_together() {
    is_a_line("all", 20_000, |n| {
        let mut sim = Sim::seeded(1);
        let took = time(|| {
            let done = sim.run(async move {
                all((0..n).map(|_| async { checkpoint().await })).await?;
                Ok::<_, Error>(())
            });
            done.expect("it ends");
        });
        sim.finish();
        took
    });
}

#[test]
fn handle_7_bodies_that_are_ready_together() {
    is_a_line("for_each", 20_000, |n| {
        let mut sim = Sim::seeded(1);
        let took = time(|| {
            let done = sim.run(for_each_concurrent(0..n, n, |_| async {
                checkpoint().await?;
                checkpoint().await
            }));
            done.expect("it ends");
        });
        sim.finish();
        took
    });
}

#[test]
fn handle_8_local_children_that_are_ready_together() {
    is_a_line("local_scope", 20_000, |n| {
        let mut sim = Sim::seeded(1);
        let took = time(|| {
            let done = sim.run(local_scope(async move |s| {
                for _ in 0..n {
                    s.launch(async { checkpoint().await });
                }
                Ok(())
            }));
            done.expect("it ends");
        });
        sim.finish();
        took
    });
}

#[test]
fn handle_7_a_set_of_tasks_that_end_together() {
    is_a_line("set", 10_000, |n| {
        let mut sim = Sim::seeded(1);
        let took = time(|| {
            let done = sim.run(async move {
                let mut set = TaskSet::new();
                for _ in 0..n {
                    set.spawn(async {}).await?;
                }
                let mut ended = 0;
                while set.next().await?.is_some() {
                    ended += 1;
                }
                assert_eq!(ended, n);
                Ok::<_, Error>(())
            });
            done.expect("it ends");
        });
        sim.finish();
        took
    });
}

// ------------------------------------------------------------------- hooks

/// Tasks each of whose hooks cancels the next task.
fn row_of_hooks(sim: &Sim, n: usize) -> Vec<Job> {
    let mut jobs: Vec<Job> = Vec::new();
    for _ in 0..=n {
        let next = jobs.last().cloned();
        jobs.push(sim.root().launch(async move {
            on_cancel(move |_| {
                if let Some(next) = next {
                    assert!(next.cancel("the one before is"));
                    assert!(next.cancel_requested());
                }
            })
            .keep();
            park().await
        }));
    }
    jobs
}

#[test]
fn cancel_8_hooks_that_cancel_the_next_job_do_not_recurse() {
    is_a_line("hooks", 6_250, |n| {
        let mut sim = Sim::seeded(1);
        let jobs = row_of_hooks(&sim, n);
        sim.settle();
        let took = time(|| {
            jobs[n].cancel("the first");
            // When the outermost cancel has returned nothing is left to do.
            assert!(jobs.iter().all(Job::cancel_requested));
            sim.settle();
        });
        assert!(jobs.iter().all(|job| job.state() == JobState::Cancelled));
        drop(jobs);
        sim.finish();
        took
    });
}

/// The same with wakers in the place of hooks: of scopes that are polled under
/// wakers of somebody else's, and of leaves in them.
#[test]
fn cancel_1_wakers_that_cancel_the_next_job_do_not_recurse() {
    struct Next(Option<Job>);

    impl Wake for Next {
        fn wake(self: Arc<Self>) {
            if let Some(next) = &self.0 {
                next.cancel("the one before is");
            }
        }
    }

    /// Polls a future under a waker that cancels the next job.
    struct Under<F>(F, Waker);

    impl<F: Future + Unpin> Future for Under<F> {
        type Output = F::Output;

        fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
            let waker = self.1.clone();
            let polled = Pin::new(&mut self.0).poll(&mut Context::from_waker(&waker));
            if polled.is_pending() && kinfolk_core::is_cancelled() {
                cx.waker().wake_by_ref();
            }
            polled
        }
    }

    for in_scope in [false, true] {
        is_a_line("wakers", 1_250, move |n| {
            let mut sim = Sim::seeded(1);
            let mut jobs: Vec<Job> = Vec::new();
            for _ in 0..=n {
                let waker = Waker::from(Arc::new(Next(jobs.last().cloned())));
                jobs.push(sim.root().launch(async move {
                    match in_scope {
                        false => drop(Under(Box::pin(park()), waker).await),
                        true => {
                            let inner = Box::pin(scope(async |_| {
                                park().await?;
                                Ok(())
                            }));
                            drop(Under(inner, waker).await);
                        }
                    }
                }));
            }
            sim.settle();
            let took = time(|| {
                jobs[n].cancel("the first");
                assert!(jobs.iter().all(Job::cancel_requested));
                sim.settle();
            });
            assert!(jobs.iter().all(Job::is_ended));
            drop(jobs);
            sim.finish();
            took
        });
    }
}

/// A waker that owns the wait before it.
struct OwnsWait(#[expect(dead_code, reason = "dropped")] Mutex<BoxedWait>);

type BoxedWait = Option<Pin<Box<dyn Future<Output = ()> + Send>>>;

impl Wake for OwnsWait {
    fn wake(self: Arc<Self>) {}
}

/// A row of waits, each of which keeps a waker that owns the wait before it: the last
/// is dropped, and all of them with it.
#[test]
fn cancel_5_wakers_that_hold_the_wait_before_are_dropped_by_a_loop() {
    fn row_of_waits(n: usize, wait: impl Fn() -> BoxedWait) -> BoxedWait {
        let mut last = None;
        for _ in 0..n {
            let waker = Waker::from(Arc::new(OwnsWait(Mutex::new(last.take()))));
            let mut next = wait().expect("a wait");
            let polled = next.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
            last = Some(next);
        }
        last
    }

    is_a_line("waits in wakers", 12_500, |n| {
        let completers = Arc::new(Mutex::new(Vec::new()));
        let kept = completers.clone();
        let last = row_of_waits(n, move || {
            let (wait, completer) = kit::completion::<()>();
            kept.lock().unwrap().push(completer);
            Some(Box::pin(async { drop(wait.await) }))
        });
        let took = time(|| drop(last));
        assert_eq!(completers.lock().unwrap().len(), n);
        assert!(!completers.lock().unwrap()[0].complete(()));
        took
    });
    is_a_line("branches in wakers", 2_500, |n| {
        let mut sim = Sim::seeded(1);
        let took = sim.run(async move {
            let last = row_of_waits(n, || Some(Box::pin(async { drop(all([park()]).await) })));
            Ok::<_, Error>(time(|| drop(last)))
        });
        sim.finish();
        took.unwrap()
    });
}

/// A value that holds the handle of the task before it.
struct Link(#[expect(dead_code, reason = "dropped")] Option<Box<Task<Link>>>);

impl Success for Link {}

/// A row of tasks that have ended, each of whose values holds the handle of the one
/// before: the last handle is dropped, and all values with it.
#[test]
fn handle_1_values_that_hold_the_handle_before_are_dropped_by_a_loop() {
    is_a_line("handles in values", 12_500, |n| {
        let mut sim = Sim::seeded(1);
        let mut last = sim.root().spawn(async { Link(None) });
        sim.settle();
        for _ in 0..n {
            let before = Box::new(last);
            last = sim.root().spawn(async { Link(Some(before)) });
            sim.settle();
        }
        let took = time(|| drop(last));
        sim.finish();
        took
    });
}

/// A hook of a cancelled job registers the next one there, which fires at once.
#[test]
fn cancel_8_hooks_that_register_the_next_do_not_recurse() {
    fn arm(scope: Scope, left: usize, fired: Arc<AtomicUsize>) {
        let at = scope.clone();
        let hook = move |_: &_| {
            fired.fetch_add(1, Relaxed);
            if left > 1 {
                arm(at, left - 1, fired);
            }
        };
        scope.on_cancel(hook).keep();
    }
    is_a_line("hooks in hooks", 12_500, |n| {
        let mut sim = Sim::seeded(1);
        let task = sim.root().spawn(park());
        sim.settle();
        let fired = Arc::new(AtomicUsize::new(0));
        arm(Scope::of_job(&task.job()), n, fired.clone());
        let took = time(|| assert!(task.cancel("all")));
        assert_eq!(fired.load(Relaxed), n, "before the cancel returns");
        sim.settle();
        drop(task);
        sim.finish();
        took
    });
}

/// Hooks that are kept in shields inside each other go on at the enclosing job one after the
/// other, in their order, and are called there.
#[test]
fn cancel_8_hooks_kept_in_nested_shields_move_as_one() {
    fn deep(left: usize, called: Arc<AtomicUsize>) -> Body {
        Box::pin(async move {
            let hook = called.clone();
            shield(async move {
                on_cancel(move |_| {
                    hook.fetch_add(1, Relaxed);
                })
                .keep();
                match left {
                    1 => Ok(()),
                    _ => deep(left - 1, called).await,
                }
            })
            .await
        })
    }
    is_a_line("hooks in nested shields", 125, |n| {
        let mut sim = Sim::seeded(1);
        let called = Arc::new(AtomicUsize::new(0));
        let its = called.clone();
        let left = Arc::new(Mutex::new(Duration::MAX));
        let took = left.clone();
        let task = sim.root().spawn(async move {
            let before = busy();
            for _ in 0..4 {
                deep(n, its.clone()).await.unwrap();
            }
            *took.lock().unwrap() = busy() - before;
            park().await
        });
        sim.settle();
        task.cancel("all");
        assert_eq!(called.load(Relaxed), 4 * n);
        sim.settle();
        drop(task);
        sim.finish();
        *left.lock().unwrap()
    });
}

/// A hook that has captured the guard of the one before, and so on: the last guard is
/// dropped, and all with it.
#[test]
fn cancel_8_hooks_that_hold_the_guard_before_are_dropped_by_a_loop() {
    is_a_line("guards in hooks", 12_500, |n| {
        let mut sim = Sim::seeded(1);
        let task = sim.root().spawn(park());
        sim.settle();
        let job = task.job();
        let mut took = Duration::ZERO;
        for of_end in [false, true] {
            let mut last: Option<HookGuard> = None;
            for _ in 0..n {
                let before = last.take();
                last = Some(match of_end {
                    true => job.on_end(move |_| drop(before)),
                    false => Scope::of_job(&job).on_cancel(move |_| drop(before)),
                });
            }
            took += time(|| drop(last));
        }
        drop(task);
        sim.finish();
        took
    });
}

/// The same with the values of shared tasks and of completions.
#[test]
fn handle_13_values_that_hold_the_one_before_are_dropped_by_a_loop() {
    #[derive(Clone)]
    struct SharedLink(#[expect(dead_code, reason = "dropped")] Option<Arc<SharedTask<SharedLink>>>);
    impl Success for SharedLink {}

    struct WaitLink(#[expect(dead_code, reason = "dropped")] Option<Box<Completion<WaitLink>>>);

    is_a_line("shared tasks in values", 6_250, |n| {
        let mut sim = Sim::seeded(1);
        let mut last: Option<SharedTask<SharedLink>> = None;
        for _ in 0..n {
            let before = last.take().map(Arc::new);
            let shared = sim.root().spawn(async { SharedLink(before) }).shared();
            sim.settle();
            drop(sim.wait_for(shared.clone()).unwrap());
            last = Some(shared);
        }
        let took = time(|| drop(last));
        sim.finish();
        took
    });
    is_a_line("waits in values", 12_500, |n| {
        let mut last: Option<Box<Completion<WaitLink>>> = None;
        for _ in 0..n {
            let (wait, completer) = completion();
            completer.complete(WaitLink(last.take()));
            last = Some(Box::new(wait));
        }
        time(|| drop(last))
    });
}

/// A job with n child tasks that is interrupted n times, and hears each.
#[test]
fn request_1_an_interrupt_costs_the_same_however_many_children() {
    is_a_line("interrupts of a wide job", 1_000, |n| {
        interrupted_wide(n, |n| {
            Box::pin(async move {
                let me = current_job().expect("inside a job");
                for _ in 0..n {
                    me.interrupt("again");
                    checkpoint().await.unwrap_err();
                }
                Ok(())
            })
        })
    });
}

/// The same where the job has a scope open and hears none before the last. The request
/// stands all the time, so all but the first find no waiter to tell.
#[test]
fn request_1_an_interrupt_that_finds_one_pending_costs_the_same() {
    is_a_line("interrupts that merge", 1_000, |n| {
        interrupted_wide(n, |n| {
            Box::pin(scope(async move |_| {
                let me = current_job().expect("inside a job");
                for _ in 0..n {
                    me.interrupt("again");
                }
                checkpoint().await.unwrap_err();
                Ok(())
            }))
        })
    });
}

/// What `then(n)` costs in a job with n child tasks.
fn interrupted_wide(n: usize, then: fn(usize) -> Body) -> Duration {
    let mut sim = Sim::seeded(1);
    let gate = Gate::new();
    let opened = gate.clone();
    let task = sim.root().spawn(async move {
        let children: Vec<_> = (0..n).map(|_| spawn(park())).collect();
        opened.wait().await;
        then(n).await?;
        drop(children);
        Ok::<_, Error>(())
    });
    sim.settle();
    let took = time(|| {
        gate.open();
        sim.settle();
    });
    assert_eq!(task.job().state(), JobState::Completed);
    drop(task);
    sim.finish();
    took
}

/// Tasks each of which waits under a waker that interrupts the next one. An interrupt
/// wakes the waiter in its task, so that one leads to the other.
#[test]
fn request_1_wakers_that_interrupt_the_next_task_do_not_recurse() {
    struct Next(Option<Job>);

    impl Wake for Next {
        fn wake(self: Arc<Self>) {
            if let Some(next) = &self.0 {
                next.interrupt("the one before is");
            }
        }
    }

    for in_scope in [false, true] {
        is_a_line("interrupts", 1_250, move |n| {
            let mut sim = Sim::seeded(1);
            let mut jobs: Vec<Job> = Vec::new();
            for _ in 0..=n {
                let waker = Waker::from(Arc::new(Next(jobs.last().cloned())));
                jobs.push(sim.root().launch(async move {
                    let mut leaf = park();
                    let mut inner = Box::pin(scope(async |_| {
                        park().await?;
                        Ok(())
                    }));
                    let polled = match in_scope {
                        false => Pin::new(&mut leaf)
                            .poll(&mut Context::from_waker(&waker))
                            .map(drop),
                        true => (inner.as_mut())
                            .poll(&mut Context::from_waker(&waker))
                            .map(drop),
                    };
                    assert!(polled.is_pending());
                    park().await
                }));
            }
            sim.settle();
            let took = time(|| {
                jobs[n].interrupt("the first");
                // When it has returned, all have been asked.
                assert!(jobs.iter().all(|job| job.interrupts() > 0));
                sim.settle();
            });
            assert!(jobs.iter().all(Job::is_ended));
            drop(jobs);
            sim.finish();
            took
        });
    }
}

/// A sink that cancels the next job when it hears of one that is cancelled. What
/// happens in its call is told when the call has returned.
#[test]
fn see_4_a_sink_that_cancels_does_not_recurse() {
    #[derive(Default)]
    struct Chain {
        jobs: std::sync::Mutex<Vec<Job>>,
        inside: std::sync::atomic::AtomicBool,
        told: AtomicUsize,
    }

    impl Sink for Chain {
        fn event(&self, event: &Event) {
            if !matches!(event.kind, EventKind::CancelRequest { .. }) {
                return;
            }
            assert!(!self.inside.swap(true, Relaxed), "it is called in itself");
            self.told.fetch_add(1, Relaxed);
            let next = self.jobs.lock().expect("not poisoned").pop();
            if let Some(next) = next {
                next.cancel("the one before is");
            }
            self.inside.store(false, Relaxed);
        }
    }

    is_a_line("sinks", 6_250, |n| {
        let chain = Arc::new(Chain::default());
        let mut sim = Sim::builder(1).sink(chain.clone()).build();
        let jobs: Vec<Job> = (0..n).map(|_| sim.root().launch(park())).collect();
        *chain.jobs.lock().expect("not poisoned") = jobs.clone();
        let first = sim.root().launch(park());
        sim.settle();
        let took = time(|| {
            assert!(first.cancel("the first"));
            assert!(jobs.iter().all(Job::cancel_requested));
            sim.settle();
        });
        assert_eq!(chain.told.load(Relaxed), n + 1);
        drop((first, jobs));
        sim.finish();
        took
    });
}

/// What a cancel inside a hook has done when it returns: everything below is
/// marked, however deep the hooks are nested; and when the outermost returns,
/// every hook has run, the outer ones first.
#[test]
fn cancel_1_a_cancel_in_a_hook_marks_at_once() {
    const DEEP: usize = 40;
    let mut sim = Sim::seeded(1);
    let log = Log::new();
    let mut next: Option<(Job, Job)> = None;
    for n in 0..DEEP {
        let (log, before) = (log.clone(), next.take());
        let below = Arc::new(std::sync::Mutex::new(None));
        let place = below.clone();
        let job = sim.root().launch(async move {
            on_cancel(move |_| {
                if let Some((job, below)) = before {
                    assert!(job.cancel("in a hook"));
                    assert!(below.cancel_requested(), "what is below is marked");
                }
                log.say(n.to_string());
            })
            .keep();
            let child = launch(async {
                scope(async |_| {
                    park().await?;
                    Ok(())
                })
                .await
            });
            *place.lock().expect("not poisoned") = Some(child);
            park().await
        });
        sim.settle();
        let child = below.lock().expect("not poisoned").take();
        next = Some((job, child.expect("a child")));
    }
    let (first, _) = next.expect("the first");
    assert!(first.cancel("from outside"));
    assert_eq!(log.len(), DEEP, "all hooks have run: {}", log.text());
    sim.settle();
    sim.finish();
}

// --------------------------------------------------------- what is left over

/// A wait for finished work that was given up leaves no waker behind.
#[test]
fn src_m08_given_up_waits_for_work_keep_no_waker() {
    struct Nothing;

    impl Wake for Nothing {
        fn wake(self: Arc<Self>) {}
    }

    let waker = Arc::new(Nothing);
    let kept = waker.clone();
    let mut sim = Sim::seeded(1);
    sim.run(async move {
        let work = Work::here(|| {}).expect("in a job");
        for _ in 0..1000 {
            let own = Waker::from(Arc::new(Nothing));
            for waker in [&own, &Waker::from(kept.clone())] {
                let mut reap = kit::Reap::new();
                let polled = reap.poll_reap(&mut Context::from_waker(waker));
                assert!(polled.is_pending());
            }
        }
        assert_eq!(Arc::strong_count(&kept), 2);
        drop(work);
        Ok::<_, Error>(())
    })
    .expect("it ends");
    assert_eq!(Arc::strong_count(&waker), 1);
    sim.finish();
}

/// A value goes with its scope, also if that was dropped half-way: not before
/// what is below it is over, and not only with the last handle.
#[test]
fn handle_10_a_value_goes_with_a_scope_that_was_dropped_half_way() {
    static HELD: Local<Arc<()>> = Local::new();
    for with_child in [false, true] {
        let value = Arc::new(());
        let given = value.clone();
        let gate = Gate::new();
        let opens = gate.clone();
        let mut sim = Sim::seeded(1);
        let job = sim
            .run(async move {
                let place = std::sync::Mutex::new(None);
                let inner = HELD.scope(given, async {
                    *place.lock().expect("not poisoned") = current_job();
                    if with_child {
                        launch(async move {
                            shield(async { gate.wait().await }).await?;
                            assert!(HELD.get().is_some(), "until what is below is over");
                            Ok::<_, Error>(())
                        });
                    }
                    park().await?;
                    Ok::<_, Error>(())
                });
                let mut inner = Box::pin(inner);
                for _ in 0..3 {
                    std::future::poll_fn(|cx| {
                        assert!(inner.as_mut().poll(cx).is_pending());
                        Poll::Ready(())
                    })
                    .await;
                    yield_now().await?;
                }
                drop(inner);
                let job = place.into_inner().expect("not poisoned");
                opens.open();
                Ok::<_, Error>(job.expect("it was polled"))
            })
            .expect("it ends");
        sim.settle();
        assert!(job.is_ended());
        assert_eq!(Arc::strong_count(&value), 1, "with a child: {with_child}");
        drop(job);
        sim.finish();
    }
}

/// Also without a point in between: `or_cancel` drops what it holds.
#[test]
fn handle_10_a_value_goes_with_a_scope_that_lost() {
    static HELD: Local<Arc<()>> = Local::new();
    let value = Arc::new(());
    let given = value.clone();
    let mut sim = Sim::seeded(1);
    let place = Arc::new(std::sync::Mutex::new(None));
    let job = place.clone();
    let task = sim.root().spawn(async move {
        let inner = HELD.scope(given, async {
            *place.lock().expect("not poisoned") = current_job();
            std::future::pending::<()>().await;
        });
        inner.or_cancel().await?
    });
    sim.settle();
    task.cancel("enough");
    sim.settle();
    assert!(task.is_ended());
    let job = job.lock().expect("not poisoned").take();
    let job = job.expect("it was polled");
    assert!(job.is_ended());
    assert_eq!(Arc::strong_count(&value), 1);
    drop((task, job));
    sim.finish();
}

/// Tasks of the main lane whose timers are due at one instant, turned by a simulated host loop
/// and by the simulation itself.
#[test]
fn time_6_main_lane_timers_of_one_instant() {
    fn cost(n: usize, turn: fn(&mut Sim, Duration)) -> Duration {
        let instant = Duration::from_secs(1);
        let mut sim = Sim::seeded(1);
        for _ in 0..n {
            let sleeper = sim.root().task("sleeper").on(kinfolk_core::Main);
            sleeper.launch(kinfolk_core::sleep(instant));
        }
        sim.advance_to_before(instant);
        let took = time(|| turn(&mut sim, instant));
        assert_eq!(sim.counters().living(), 1);
        sim.finish();
        took
    }
    is_a_line("timers of one instant", 1_000, |n| {
        cost(n, |sim, _| sim.advance(Duration::ZERO))
    });
    is_a_line("timers of one instant in a frame", 1_000, |n| {
        cost(n, |sim, instant| {
            let at = sim.start() + instant;
            sim.run_expired(at);
            sim.settle();
        })
    });
}

/// Lines that were all typed before the first is read.
#[test]
fn io_7_lines_of_standard_input() {
    is_a_line("lines of standard input", 8_000, |n| {
        let mut sim = Sim::seeded(1);
        let keyboard = sim.io();
        keyboard.type_in("abcdefghij\n".repeat(n));
        keyboard.end_of_input();
        let task = sim.root().spawn(async move {
            let (mut lines, mut count) = (stdin().lines(), 0);
            while lines.next().await.transpose()?.is_some() {
                count += 1;
            }
            assert_eq!(count, n);
            Ok::<_, Error>(())
        });
        let took = time(|| sim.settle());
        assert_eq!(task.job().state(), JobState::Completed);
        drop(task);
        sim.finish();
        took
    });
}

/// Tasks in timeouts in tasks, whose deadlines are all near.
#[test]
fn see_6_nested_deadlines_that_are_near() {
    const HOUR: Duration = Duration::from_secs(3_600);

    fn nested(left: usize) -> Body {
        Box::pin(kinfolk_core::timeout(HOUR, async move {
            if left > 0 {
                launch(nested(left - 1));
            }
            park().await?;
            Ok::<_, Error>(())
        }))
    }

    is_a_line("nested deadlines", 4_000, |n| {
        let mut sim = Sim::seeded(1);
        let task = sim.root().spawn(nested(n));
        sim.settle();
        sim.advance(HOUR - HOUR / 100);
        let tree = sim.snapshot();
        let rules = Rules::default().limit(FindingRule::DeadlineNear, Duration::MAX);
        let mut found = 0;
        let took = time(|| {
            found = rules
                .check(&tree, None)
                .of(FindingRule::DeadlineNear)
                .count()
        });
        assert_eq!(found, n + 1);
        task.cancel("enough");
        drop(task);
        sim.settle();
        sim.finish();
        took
    });
}

/// Jobs that end deep in the tree, while one elsewhere has been cancelled and has not ended.
#[test]
fn see_5_ends_beside_a_job_that_is_stopping() {
    let job = |n: usize| JobId::from_bits(n as u64).unwrap();
    is_a_line("ends beside a stop", 500, move |n| {
        let causes = Causes::new();
        let site = std::panic::Location::caller();
        let tell = |job, kind| causes.event(&Event::new(job, 0, kind));
        let born = |number: usize, parent: usize| {
            let (kind, lane) = (JobKind::Task, Lane::Pool);
            tell(job(number), EventKind::Create { kind, site, lane });
            let parent = job(parent);
            tell(job(number), EventKind::Attach { parent });
        };
        let (first, stops) = (2, n + 10);
        for number in first..first + n {
            born(number, number - 1);
        }
        born(stops, 1);
        let reason = ReasonKind::Asked;
        let by = None;
        tell(job(stops), EventKind::CancelRequest { reason, site, by });
        time(|| {
            for leaf in 0..n {
                let number = stops + 1 + leaf;
                born(number, first + n - 1);
                tell(job(number), EventKind::Finalize { cancelled: false });
            }
        })
    });
}
