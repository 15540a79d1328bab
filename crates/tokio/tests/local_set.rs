//! Roots whose main lane is the thread of a `LocalSet`: futures that are not `Send`, what
//! goes to and fro between lanes, and the end of the set.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread::{ThreadId, current};
use std::time::Duration;

use kinfolk_core::{
    Error, Main, Pool, ReasonKind, Result, cleanup, on, park, scope, sleep, spawn, yield_now,
};
use kinfolk_tokio::Root;
use tokio::runtime::{Builder, Runtime};
use tokio::task::LocalSet;

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn two_workers() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

const RUNTIMES: [fn() -> Runtime; 2] = [one_thread, two_workers];

fn here() -> ThreadId {
    current().id()
}

/// lane-1: a future that is not `Send` is polled and dropped on the thread of the set, and
/// so is its value.
#[test]
fn lane_1_a_future_that_is_not_send_stays_on_the_thread_of_its_set() {
    struct Stays(ThreadId, Rc<Cell<u32>>);
    impl Drop for Stays {
        fn drop(&mut self) {
            assert_eq!(here(), self.0);
            self.1.set(self.1.get() + 1);
        }
    }
    for runtime in RUNTIMES {
        let runtime = runtime();
        let drops = Rc::new(Cell::new(0));
        let inner = drops.clone();
        LocalSet::new().block_on(&runtime, async move {
            let root = Root::builder().local().build();
            let main = here();
            let in_pool = Arc::new(AtomicUsize::new(0));
            let counted = in_pool.clone();
            let value = root.run_local(async move {
                let on_main = Main::here().expect("on the main lane");
                let stays = Stays(main, inner.clone());
                let child = scope(async |s| {
                    let theirs = Stays(main, inner.clone());
                    let child = s.task("child").on(on_main).spawn(async move {
                        yield_now().await?;
                        assert_eq!(here(), main);
                        Ok::<_, Error>(theirs)
                    });
                    // There and back, many times.
                    for _ in 0..100 {
                        let count = counted.clone();
                        on(Pool, async move { count.fetch_add(1, SeqCst) }).await?;
                        assert_eq!(here(), main);
                    }
                    child.await
                })
                .await?;
                drop(stays);
                Ok::<_, Error>(child)
            });
            drop(value.await.unwrap());
            assert_eq!(in_pool.load(SeqCst), 100);
            // From the pool to the main lane.
            let hop = root.run(async move {
                let there = on(Main, async { here() }).await?;
                assert!(Main::here().is_none_or(|_| here() == main));
                Ok::<_, Error>(there)
            });
            assert_eq!(hop.await.unwrap(), main);
            assert!(root.shutdown().await.unwrap().is_clean());
        });
        assert_eq!(drops.get(), 2);
    }
}

/// A cancel from another thread tells jobs of the main lane there, and they clean up.
#[test]
fn cancel_1_a_cancel_from_another_thread_reaches_the_main_lane() {
    for runtime in RUNTIMES {
        let runtime = runtime();
        LocalSet::new().block_on(&runtime, async {
            let root = Root::builder().local().build();
            let cleaned = Rc::new(Cell::new(0));
            let tasks: Vec<_> = (0..100)
                .map(|_| {
                    let cleaned = cleaned.clone();
                    let here = root.tree().on_main().unwrap();
                    root.scope().task("waits").on(here).spawn(async move {
                        let told = park().await;
                        cleanup(sleep(Duration::from_millis(1))).await?;
                        cleaned.set(cleaned.get() + 1);
                        told?;
                        Ok::<_, Error>(())
                    })
                })
                .collect();
            root.run(async { yield_now().await }).await.unwrap();
            let other = root.clone();
            std::thread::spawn(move || other.request_shutdown())
                .join()
                .unwrap();
            for task in tasks {
                assert!(task.await.is_err());
            }
            assert!(root.shutdown().await.unwrap().is_clean());
            // Those that had not begun never do.
            assert!(cleaned.get() <= 100);
        });
    }
}

/// The set is dropped under living jobs: each ends, futures of the main lane are dropped on
/// their thread, and what the root still gets ends too.
#[test]
fn shutdown_1_jobs_of_a_set_that_is_dropped_end_with_it() {
    struct OnMain(ThreadId, Rc<Cell<u32>>);
    impl Drop for OnMain {
        fn drop(&mut self) {
            assert_eq!(here(), self.0);
            self.1.set(self.1.get() + 1);
        }
    }
    for runtime in RUNTIMES {
        let runtime = runtime();
        let set = LocalSet::new();
        let dropped = Rc::new(Cell::new(0));
        let (root, jobs) = set.block_on(&runtime, async {
            let root = Root::builder().local().build();
            let scope = root.scope();
            let mut jobs = vec![scope.launch(async { drop(park().await) })];
            for parks in [false, true] {
                let guard = OnMain(here(), dropped.clone());
                let on_main = root.tree().on_main().unwrap();
                jobs.push(scope.task("main").on(on_main).launch(async move {
                    let _guard = guard;
                    if parks {
                        std::future::pending::<()>().await;
                    }
                    let _child = spawn(park());
                    park().await.map(drop)
                }));
            }
            yield_now_outside().await;
            (root, jobs)
        });
        drop(set);
        assert_eq!(dropped.get(), 2);
        for job in &jobs {
            assert!(job.is_ended(), "{}", root.snapshot());
            let reason = job.reason().expect("cancelled");
            assert_eq!(reason.root_cause().kind(), ReasonKind::HostGone);
        }
        // Nothing is turned any more, on either lane.
        let late = runtime.block_on(async { root.run(async {}).await });
        assert!(late.is_err());
        let late = runtime.block_on(async { root.run_local(async {}).await });
        assert!(late.is_err());
    }
}

async fn yield_now_outside() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

/// The tokio runtime goes first, with all of its workers, and the set after it.
#[test]
fn shutdown_1_the_runtime_goes_before_the_set() {
    for runtime in RUNTIMES {
        let runtime = runtime();
        let set = LocalSet::new();
        let (root, job) = set.block_on(&runtime, async {
            let root = Root::builder().local().build();
            let on_main = root.tree().on_main().unwrap();
            let rc = Rc::new(());
            let job = root.scope().task("rc").on(on_main).launch(async move {
                let _rc = rc;
                park().await.map(drop)
            });
            yield_now_outside().await;
            (root, job)
        });
        // A runtime that a thread of its own drops.
        std::thread::spawn(move || drop(runtime)).join().unwrap();
        drop(set);
        assert!(job.is_ended(), "{}", root.snapshot());
    }
}

/// Outside a set there is no main lane, and the words say so.
#[test]
fn lane_1_a_local_root_needs_a_set() {
    let runtime = one_thread();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        runtime.block_on(async { Root::builder().local().build() })
    }));
    assert!(panicked.is_err());
    let error: Result<()> = runtime.block_on(async {
        let root = Root::builder().build();
        root.run_local(async {}).await
    });
    let error = error.unwrap_err().to_string();
    assert!(error.contains("LocalSet"), "{error}");
}

/// A job of the main lane that never gives its thread back holds up no job of the pool.
#[test]
fn lane_4_a_long_turn_on_the_set_holds_up_no_pool() {
    let runtime = two_workers();
    LocalSet::new().block_on(&runtime, async {
        let root = Root::builder().local().build();
        let ran = Arc::new(AtomicUsize::new(0));
        let theirs = ran.clone();
        let done = root.run_local(async move {
            let seen = theirs.clone();
            let other = spawn(async move { seen.fetch_add(1, SeqCst) });
            while theirs.load(SeqCst) == 0 {
                std::thread::yield_now();
            }
            other.await
        });
        assert_eq!(done.await.unwrap(), 0);
        assert!(root.shutdown().await.unwrap().is_clean());
    });
}

/// A `LocalRuntime` is a set with a runtime of its own.
#[test]
fn lane_1_a_local_runtime_is_a_set_too() {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build_local(tokio::runtime::LocalOptions::default())
        .unwrap();
    let (root, job) = runtime.block_on(async {
        let root = Root::builder().local().build();
        let seven = Rc::new(7);
        let value = root.run_local(async move {
            sleep(Duration::from_millis(1)).await?;
            Ok::<_, Error>(*seven + on(Pool, async { 1 }).await?)
        });
        assert_eq!(value.await.unwrap(), 8);
        let on_main = root.tree().on_main().unwrap();
        let rc = Rc::new(());
        let job = root.scope().task("rc").on(on_main).launch(async move {
            let _rc = rc;
            park().await.map(drop)
        });
        yield_now_outside().await;
        (root, job)
    });
    drop(runtime);
    assert!(job.is_ended(), "{}", root.snapshot());
}
