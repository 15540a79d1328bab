//! What a tokio runtime leaves behind that is dropped under a tree: nothing. Every job
//! ends, forced, its host gone; and so does what comes later. What a single wait sees of
//! it is in `host_gone.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::time::Duration;

use kinfolk_core::{
    Error, Job, JobState, ReasonKind, Task, blocking, launch, park, shield, sleep, spawn,
};
use kinfolk_testkit::{GuardedRun, guarded};
use kinfolk_tokio::{Root, block_in_place};
use tokio::runtime::{Builder, Runtime};

const HOUR: Duration = Duration::from_secs(3600);

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn workers() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).enable_all();
    builder.build().unwrap()
}

/// How a runtime ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Dropped,
    InBackground,
    /// By a panic that unwinds past it.
    Unwound,
}

impl End {
    fn of(self, runtime: Runtime) {
        match self {
            End::Dropped => drop(runtime),
            End::InBackground => runtime.shutdown_background(),
            End::Unwound => {
                let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    let _runtime = runtime;
                    std::panic::resume_unwind(Box::new("past the runtime"));
                }));
                assert!(ended.is_err());
            }
        }
    }
}

/// Counts what is dropped.
struct Dropped(Arc<AtomicUsize>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

fn in_every_way(name: &'static str, test: fn(Runtime, End, &GuardedRun)) {
    guarded(name, move |watched| {
        for make in [one_thread as fn() -> Runtime, workers] {
            for end in [End::Dropped, End::InBackground, End::Unwound] {
                test(make(), end, &watched);
            }
        }
    });
}

fn root(runtime: &Runtime, watched: &GuardedRun) -> Root {
    let _inside = runtime.enter();
    let root = Root::builder().on_forced(Box::new(|_| {})).build();
    watched.watch(root.tree());
    root
}

/// Waits until nothing but the root is left. A runtime that ends in the background may
/// have a turn or two to go.
fn all_ended(root: &Root, end: End) {
    while root.counters().living() > 1 {
        std::thread::yield_now();
    }
    let counters = root.counters();
    assert_eq!(counters.waiters_pending(), 0, "{end:?}: {counters}");
    assert_eq!(counters.timers_pending(), 0, "{end:?}: {counters}");
    assert_eq!(root.snapshot().len(), 1, "{end:?}: {}", root.snapshot());
    let gauges = root.tree().gauges();
    assert_eq!(gauges.runnable, Some(0), "{end:?}: {gauges}");
}

fn gone(job: &Job, end: End) {
    assert_eq!(job.state(), JobState::Cancelled, "{end:?}");
    let reason = job.reason().expect("a reason");
    assert_eq!(reason.root_cause().kind(), ReasonKind::HostGone, "{end:?}");
}

/// Jobs of every kind of wait: all are dropped, once.
#[test]
fn jobs_that_wait_end_with_the_tokio_runtime() {
    in_every_way("jobs that wait", |runtime, end, watched| {
        let root = root(&runtime, watched);
        let drops = Arc::new(AtomicUsize::new(0));
        let jobs: Vec<Job> = (0..200)
            .map(|n| {
                let held = Dropped(drops.clone());
                root.scope().launch(async move {
                    let _held = held;
                    match n % 5 {
                        0 => sleep(HOUR).await?,
                        1 => tokio::time::sleep(HOUR).await,
                        2 => std::future::pending().await,
                        3 => shield(sleep(HOUR)).await?,
                        _ => spawn(async { sleep(HOUR).await }).await?,
                    }
                    Ok::<_, Error>(())
                })
            })
            .collect();
        runtime.block_on(async {
            while root.tree().gauges().runnable != Some(0) {
                tokio::task::yield_now().await;
            }
        });
        end.of(runtime);
        all_ended(&root, end);
        assert_eq!(drops.load(SeqCst), 200, "{end:?}");
        for job in &jobs {
            gone(job, end);
        }
    });
}

/// Jobs that were never polled, since no thread drives the runtime.
#[test]
fn jobs_that_are_queued_end_with_the_tokio_runtime() {
    guarded("jobs that are queued", |watched| {
        for end in [End::Dropped, End::InBackground, End::Unwound] {
            let runtime = one_thread();
            let root = root(&runtime, &watched);
            let drops = Arc::new(AtomicUsize::new(0));
            let jobs: Vec<Job> = (0..100)
                .map(|_| {
                    let held = Dropped(drops.clone());
                    root.scope().launch(async move { drop(held) })
                })
                .collect();
            end.of(runtime);
            all_ended(&root, end);
            assert_eq!(drops.load(SeqCst), 100, "{end:?}");
            jobs.iter().for_each(|job| gone(job, end));
        }
    });
}

/// Jobs that yield all the time, so that some are queued and some are in their turn.
#[test]
fn jobs_that_run_end_with_the_tokio_runtime() {
    in_every_way("jobs that run", |runtime, end, watched| {
        let root = root(&runtime, watched);
        let turns = Arc::new(AtomicUsize::new(0));
        let drops = Arc::new(AtomicUsize::new(0));
        for _ in 0..50 {
            let (turns, held) = (turns.clone(), Dropped(drops.clone()));
            root.scope().launch(async move {
                let _held = held;
                while turns.fetch_add(1, SeqCst) < usize::MAX {
                    // Not a point of ours: it is told nothing.
                    tokio::task::yield_now().await;
                }
            });
        }
        runtime.block_on(async {
            while turns.load(SeqCst) < 1000 {
                tokio::task::yield_now().await;
            }
        });
        end.of(runtime);
        all_ended(&root, end);
        assert_eq!(drops.load(SeqCst), 50, "{end:?}");
    });
}

/// A job blocks in place, and waits for what the end of the runtime lets go.
#[test]
fn a_job_that_blocks_ends_with_the_tokio_runtime() {
    guarded("a job that blocks", |watched| {
        for end in [End::Dropped, End::InBackground, End::Unwound] {
            let runtime = workers();
            let root = root(&runtime, &watched);
            let (enter, entered) = channel();
            let (keep, dropped) = channel::<()>();
            root.scope().launch(async move {
                let _keep = keep;
                std::future::pending::<()>().await;
            });
            let job = root.scope().launch(async move {
                block_in_place(|| {
                    enter.send(()).unwrap();
                    assert!(dropped.recv().is_err());
                });
                // It goes on to the end of its turn.
                park().await.map(|_| ())
            });
            entered.recv().unwrap();
            end.of(runtime);
            all_ended(&root, end);
            gone(&job, end);
        }
    });
}

/// A deep chain of jobs is dropped without recursion: the thread has a small stack.
#[test]
fn tree_8_a_deep_tree_ends_with_the_tokio_runtime() {
    in_every_way("a deep tree", |runtime, end, watched| {
        const DEEP: usize = 20_000;
        let root = root(&runtime, watched);
        type Body = std::pin::Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;
        fn below(deep: usize) -> Body {
            Box::pin(async move {
                if deep > 0 {
                    launch(below(deep - 1));
                }
                sleep(HOUR).await?;
                Ok(())
            })
        }
        root.scope().launch(below(DEEP));
        runtime.block_on(async {
            while root.counters().living() < DEEP as u64 + 2 {
                tokio::task::yield_now().await;
            }
        });
        end.of(runtime);
        all_ended(&root, end);
    });
}

/// After the end spawning, waking and blocking calls hang nothing and leave nothing.
#[test]
fn what_comes_after_the_tokio_runtime_ends_too() {
    in_every_way("after the runtime", |runtime, end, watched| {
        let root = root(&runtime, watched);
        let unused = self::root(&runtime, watched);
        let (tell, told) = tokio::sync::oneshot::channel::<()>();
        let (tell_late, late) = tokio::sync::oneshot::channel::<()>();
        let waits = root.scope().launch(async move { told.await.is_ok() });
        runtime.block_on(async {
            while root.tree().gauges().runnable != Some(0) {
                tokio::task::yield_now().await;
            }
        });
        end.of(runtime);
        all_ended(&root, end);
        gone(&waits, end);
        assert!(tell.send(()).is_err(), "its receiver is gone");
        for root in [&root, &unused] {
            let drops = Arc::new(AtomicUsize::new(0));
            let held = Dropped(drops.clone());
            let task: Task<()> = root.scope().spawn(async move { drop(held) });
            assert_eq!(drops.load(SeqCst), 1);
            gone(&task.job(), end);
            let calls = root.scope().launch(blocking(|_| {}));
            gone(&calls, end);
            all_ended(root, end);
        }
        assert!(tell_late.send(()).is_ok());
        drop(late);
    });
}

/// The last handle of a root is dropped in a job of it, and in no runtime at all.
#[test]
fn the_last_handle_of_a_root_goes_anywhere() {
    guarded("the last handle", |_| {
        for make in [one_thread as fn() -> Runtime, workers] {
            let runtime = make();
            let (over, is_over) = channel();
            runtime.block_on(async {
                let root = Root::builder().build();
                let inner = root.clone();
                let job = root.scope().launch(async move {
                    drop(inner);
                    over.send(()).unwrap();
                    park().await.map(|_| ())
                });
                drop(root);
                while !job.is_ended() {
                    tokio::task::yield_now().await;
                }
            });
            is_over.recv().unwrap();
            let outside = {
                let _inside = runtime.enter();
                Root::builder().build()
            };
            drop(runtime);
            drop(outside);
        }
    });
}
