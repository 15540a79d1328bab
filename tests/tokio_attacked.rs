//! Tokio used against its host: local roots by the thousand, ends in odd places, hostile wakers,
//! futures that are forgotten, runtimes inside runtimes, a clock that is paused in the
//! middle. Nothing hangs, and nothing is left.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use kinfolk_core::{
    Error, Event, Main, ReasonKind, Sink, blocking, cleanup, on_cancel, park, sleep, spawn,
};
use kinfolk_testkit::guarded;
use kinfolk_tokio::{AdoptExt, Root, block_in_place};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::LocalSet;

const HOUR: Duration = Duration::from_secs(3600);

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn workers() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).enable_all();
    builder.build().unwrap()
}

/// Runs it on each sort of runtime.
fn on_each(name: &'static str, test: fn(&Runtime)) {
    guarded(name, move |_| {
        for make in [one_thread as fn() -> Runtime, workers] {
            test(&make());
        }
    });
}

/// Waits until tokio has no task any more. The last of a root's go home on a worker, whose thread
/// may have to wait for a processor: however long that takes, the guard ends a wait for ever.
async fn no_task_is_left() {
    let metrics = tokio::runtime::Handle::current().metrics();
    while metrics.num_alive_tasks() > 0 {
        tokio::task::yield_now().await;
        std::thread::yield_now();
    }
}

/// Roots on a `LocalSet` come and go, with jobs and without.
#[test]
fn a_thousand_local_roots_leave_nothing() {
    on_each("local roots", |runtime| {
        LocalSet::new().block_on(runtime, async {
            for n in 0..1_000 {
                let root = Root::builder().local().build();
                match n % 4 {
                    0 => drop(root.run_local(async {}).await),
                    1 => {
                        let here = root.tree().on_main().unwrap();
                        drop(root.scope().task("parks").on(here).launch(park_on()));
                    }
                    2 => assert!(root.shutdown().await.unwrap().is_clean()),
                    _ => {}
                }
            }
            no_task_is_left().await;
        });
    });
}

async fn park_on() {
    let _ = park().await;
}

/// The last handle goes inside a job of its root, in its hook, and on a blocking thread.
#[test]
fn the_last_handle_of_a_root_goes_where_it_can() {
    on_each("last handle", |runtime| {
        for place in 0..4 {
            let (done, wait) = channel::<()>();
            runtime.block_on(async {
                let root = Root::builder().signals(place % 2 == 0).build();
                let other = root.clone();
                let job = root.scope().launch(async move {
                    let _done = done;
                    match place {
                        0 => drop(other),
                        1 => {
                            on_cancel(move |_| drop(other)).keep();
                        }
                        2 => blocking(move |_| drop(other)).await?,
                        _ => {
                            let parks = spawn(park());
                            drop(other);
                            drop(parks);
                        }
                    }
                    park().await?;
                    Ok::<_, Error>(())
                });
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
                if place == 1 {
                    // The hook has the last.
                    let tree = root.tree().clone();
                    drop(root);
                    tree.request_shutdown(ReasonKind::Shutdown);
                } else {
                    drop(root);
                }
                drop(job.join().await);
            });
            assert!(wait.recv().is_err(), "its body is gone");
        }
    });
}

/// A waker that panics, of a future that awaits a job, costs no driver.
#[test]
fn a_waker_that_panics_costs_no_driver() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            std::panic::resume_unwind(Box::new("a hostile waker"));
        }
    }
    on_each("wakers", |runtime| {
        runtime.block_on(async {
            let root = Root::builder().on_failure(Box::new(|_| {})).build();
            for _ in 0..100 {
                let (go, wait) = tokio::sync::oneshot::channel::<()>();
                let mut task = Box::pin(root.scope().spawn(async move { wait.await.is_err() }));
                let hostile = Waker::from(Arc::new(Panics));
                let polled = task.as_mut().poll(&mut Context::from_waker(&hostile));
                assert!(polled.is_pending());
                drop(go);
                assert!(root.run(async { true }).await.unwrap(), "drivers go on");
                assert!(task.await.unwrap());
            }
            assert!(root.shutdown().await.unwrap().is_clean());
        });
    });
}

/// Futures that the program forgets half-way are given up by a shutdown that forces.
#[test]
fn futures_that_are_forgotten_hold_no_shutdown() {
    on_each("forgotten", |runtime| {
        runtime.block_on(async {
            let root = Root::builder().on_forced(Box::new(|_| {})).build();
            let adopted = tokio::spawn(std::future::pending::<()>());
            let abort = adopted.abort_handle();
            let scope = root.scope();
            let mut hosted = Box::pin(root.enter(async move {
                let child = spawn(async { cleanup(sleep(HOUR)).await });
                std::mem::forget(child);
                std::future::pending::<()>().await;
            }));
            let polled = futures_poll(hosted.as_mut()).await;
            assert!(polled.is_pending());
            std::mem::forget(hosted);
            std::mem::forget(scope.adopt(adopted));
            std::mem::forget(scope.spawn(park()));
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            let report = root.shutdown_in(Duration::from_millis(20)).await.unwrap();
            assert!(report.stragglers.is_empty(), "{report}");
            assert!(root.tree().root_job().is_ended());
            while !abort.is_finished() {
                tokio::task::yield_now().await;
            }
        });
    });
}

/// Polls once.
async fn futures_poll<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
}

/// A job of one runtime awaits one of another, which goes half-way, in a job.
#[test]
fn a_runtime_that_goes_under_a_job_of_another() {
    on_each("nested", |outer| {
        outer.block_on(async {
            let root = Root::builder().build();
            for inner in [one_thread as fn() -> Runtime, workers] {
                for goes in [false, true] {
                    let ended = root.run(async move {
                        let ended = blocking(move |_| {
                            let runtime = inner();
                            let (theirs, task) = runtime.block_on(async {
                                let theirs = Root::current();
                                let task = theirs.scope().spawn(async move {
                                    match goes {
                                        true => park().await.map(drop),
                                        false => Ok(()),
                                    }
                                });
                                let _ = theirs.run(async {}).await;
                                (theirs, task)
                            });
                            match goes {
                                true => drop(runtime),
                                false => runtime.shutdown_background(),
                            }
                            drop(theirs);
                            task
                        })
                        .await?;
                        Ok::<_, Error>(ended.await.is_err())
                    });
                    // One that had ended before keeps its value.
                    let failed = ended.await.unwrap();
                    assert!(failed || !goes);
                }
            }
            assert!(root.shutdown().await.unwrap().is_clean());
        });
    });
}

/// Jobs that are polled on a runtime inside a poll of another's job: each at its own driver.
#[test]
fn jobs_of_a_runtime_inside_a_job_of_another() {
    guarded("inside", |_| {
        let outer = workers();
        let sum = outer.block_on(async {
            let root = Root::builder().build();
            let sum = root.run(async {
                let inner = block_in_place(|| {
                    let runtime = one_thread();
                    runtime.block_on(async {
                        let root = Root::builder().build();
                        let mine = root.run(async {
                            let tasks: Vec<_> = (0..100).map(|n| spawn(async move { n })).collect();
                            let mut sum = 0;
                            for task in tasks {
                                sum += task.await?;
                            }
                            Ok::<i32, Error>(sum)
                        });
                        mine.await
                    })
                });
                let here = spawn(async { 50 });
                Ok::<_, Error>(inner? + here.await?)
            });
            sum.await
        });
        assert_eq!(sum.unwrap(), 5_000);
    });
}

/// Tokio's clock is paused, moved and let go again in the middle.
#[test]
fn tokios_clock_is_paused_in_the_middle() {
    guarded("paused", |_| {
        one_thread().block_on(async {
            let root = Root::builder().build();
            let before = root.scope().spawn(sleep(HOUR));
            root.run(sleep(Duration::from_millis(1))).await.unwrap();
            tokio::time::pause();
            let began = tokio::time::Instant::now();
            before.await.unwrap();
            assert!(began.elapsed() >= HOUR - Duration::from_secs(1));
            let moved = root.scope().spawn(sleep(HOUR));
            tokio::time::advance(2 * HOUR).await;
            moved.await.unwrap();
            tokio::time::resume();
            root.run(sleep(Duration::from_millis(1))).await.unwrap();
            tokio::time::pause();
            let deaf = root.scope().launch(std::future::pending::<()>());
            let report = root.shutdown_in(HOUR).await.unwrap();
            assert!(deaf.is_ended(), "{report}");
        });
    });
}

/// Every worker blocks, with tokio's own function, and each waits for a job that is spawned
/// there.
#[test]
fn every_worker_blocks_in_tokios_own_way() {
    guarded("blocks", |_| {
        let runtime = workers();
        runtime.block_on(async {
            let root = Root::builder().build();
            let ran = Arc::new(AtomicUsize::new(0));
            let tasks: Vec<_> = (0..8)
                .map(|_| {
                    let ran = ran.clone();
                    root.scope().spawn(async move {
                        let (sender, wait) = channel();
                        let child = spawn(async move { sender.send(()).unwrap() });
                        tokio::task::block_in_place(|| wait.recv().unwrap());
                        ran.fetch_add(1, SeqCst);
                        child.await
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
            assert_eq!(ran.load(SeqCst), 8);
            assert!(root.shutdown().await.unwrap().is_clean());
        });
    });
}

/// What awaits a main is dropped half-way: main is told, and the root goes on.
#[test]
fn shutdown_2_a_main_that_is_dropped_half_way_is_cancelled() {
    on_each("dropped main", |runtime| {
        runtime.block_on(async {
            let root = Root::builder().signals(true).build();
            {
                let mut main = Box::pin(root.run_main(async { drop(park().await) }));
                assert!(futures_poll(main.as_mut()).await.is_pending());
            }
            while root.counters().living() > 1 {
                tokio::task::yield_now().await;
            }
            assert_eq!(root.run(async { 7 }).await.unwrap(), 7);
            assert!(root.shutdown().await.unwrap().is_clean());
        });
    });
}

/// A sink that asks for the current root whenever it is told something.
struct AsksForRoot(AtomicUsize);

impl Sink for AsksForRoot {
    fn event(&self, _: &Event) {
        // What it makes by asking has no sink.
        if Handle::try_current().is_ok() {
            drop(Root::current());
            self.0.fetch_add(1, SeqCst);
        }
    }
}

/// The sink of a root that is built as the current one is called outside the lock of the list
/// of current roots. The root that it has asked for is the current one then.
#[test]
fn a_sink_asks_for_the_current_root_while_that_is_built() {
    on_each("sink", |runtime| {
        runtime.block_on(async {
            let sink = Arc::new(AsksForRoot(AtomicUsize::new(0)));
            let built = Root::builder().sink(sink.clone()).build_current();
            assert!(sink.0.load(SeqCst) > 0, "it was told of the new root");
            let error = built.expect_err("there is a current root already");
            assert!(error.to_string().contains("already"), "{error}");
            let here = Root::current();
            assert_eq!(here.tree().root_job(), Root::current().tree().root_job());
            assert!(here.shutdown().await.unwrap().is_clean());
        });
    });
}

/// Counts its end.
struct Ends(Arc<AtomicUsize>);

impl kinfolk_core::Success for Ends {}

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// lane-1: the handle of an output of the main lane goes on another thread when its set is gone.
#[test]
fn lane_1_an_output_whose_set_is_gone_goes_with_its_handle() {
    on_each("output", |runtime| {
        let ended = Arc::new(AtomicUsize::new(0));
        let set = LocalSet::new();
        let (root, task) = set.block_on(runtime, async {
            let root = Root::builder().local().build();
            let value = Ends(ended.clone());
            let task = root.scope().on(Main).spawn(async move { value });
            drop(task.join().await);
            (root, task)
        });
        drop(set);
        std::thread::spawn(move || drop(task)).join().unwrap();
        assert_eq!(ended.load(SeqCst), 1);
        drop(root);
    });
}

/// shutdown-1: a set goes on the only thread of its runtime, and so no driver takes the turns of
/// the pool: they are dropped there, and every job has ended then.
#[test]
fn shutdown_1_a_set_that_goes_on_the_only_thread_ends_the_pool_too() {
    guarded("set on one thread", |_| {
        let runtime = one_thread();
        let set = LocalSet::new();
        let (root, job) = set.block_on(&runtime, async {
            let root = Root::builder().local().build();
            let job = root.scope().launch(park_on());
            while root.gauges().runnable != Some(0) {
                tokio::task::yield_now().await;
            }
            (root, job)
        });
        // Its turn is brought to a driver, which is not polled any more.
        root.request_shutdown();
        drop(set);
        assert!(job.is_ended(), "{}", root.snapshot());
    });
}
