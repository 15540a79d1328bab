//! The host on tokio: its drivers beside tokio's own tasks, its i/o, its budget and its
//! blocking calls. What happens when the tokio runtime goes is in `tokio_end.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use kinfolk_core::{Error, checkpoint, launch, park, scope, sleep, spawn};
use kinfolk_testkit::guarded;
use kinfolk_tokio::{Root, block_in_place};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Builder, Handle, Runtime, RuntimeFlavor};

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn workers(workers: usize) -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(workers).enable_all();
    builder.build().unwrap()
}

/// Runs `test` on a root of its own, and watches it.
fn on<F>(name: &'static str, make: impl FnOnce() -> Runtime + Send + 'static, test: fn(Root) -> F)
where
    F: Future<Output = ()> + 'static,
{
    guarded(name, move |watched| {
        make().block_on(async {
            let root = Root::builder().build();
            watched.watch(root.tree());
            test(root.clone()).await;
            assert!(root.shutdown().await.unwrap().is_clean());
        });
    });
}

/// cancel-5: two jobs that drain full channels of tokio's spend its budget; a third,
/// which waits for a channel of its own, has its turn meanwhile.
#[test]
fn cancel_5_a_spent_budget_of_tokio_starves_no_other_job() {
    on("a spent budget", one_thread, |root| async move {
        const MANY: usize = 100_000;
        let drained = Arc::new(AtomicUsize::new(0));
        let worst = Arc::new(AtomicUsize::new(0));
        let (counted, seen) = (drained.clone(), worst.clone());
        let run = root.run(async move {
            scope(async |s| {
                let mut hogs = Vec::new();
                for _ in 0..2 {
                    let (send, mut take) = tokio::sync::mpsc::unbounded_channel();
                    for n in 0..MANY {
                        send.send(n).unwrap();
                    }
                    drop(send);
                    let counted = counted.clone();
                    hogs.push(s.spawn(async move {
                        while take.recv().await.is_some() {
                            counted.fetch_add(1, SeqCst);
                        }
                    }));
                }
                let (send, mut take) = tokio::sync::mpsc::channel(1);
                let talker = s.spawn(async move {
                    for n in 0..100 {
                        if send.send(n).await.is_err() {
                            return;
                        }
                    }
                });
                let mut last = counted.load(SeqCst);
                while take.recv().await.is_some() {
                    let now = counted.load(SeqCst);
                    seen.fetch_max(now - last, SeqCst);
                    last = now;
                }
                talker.await?;
                for hog in hogs {
                    hog.await?;
                }
                Ok(())
            })
            .await
        });
        run.await.unwrap();
        assert_eq!(drained.load(SeqCst), 2 * MANY);
        // A budget is 128, and there are two of them.
        let worst = worst.load(SeqCst);
        assert!(worst <= 1024, "{worst} messages of others between two");
    });
}

/// cancel-5: a turn has a budget of ours and one of tokio's, and what spends one leaves the
/// other. So a turn takes a hundred messages of tokio's and as many points of ours, and ends
/// when either has had enough.
#[test]
fn cancel_5_a_turn_has_our_budget_and_tokios() {
    use std::cell::Cell;
    use std::future::Future;
    use std::pin::pin;
    use tokio::task::coop::has_budget_remaining;

    thread_local! {
        /// How many turns the body has had.
        static TURNS: Cell<usize> = const { Cell::new(0) };
    }

    /// Counts the turns of `body`.
    async fn counted<F: Future>(body: F) -> F::Output {
        let mut body = pin!(body);
        std::future::poll_fn(|cx| {
            TURNS.set(TURNS.get() + 1);
            body.as_mut().poll(cx)
        })
        .await
    }

    on("two budgets", one_thread, |root| async move {
        let (send, mut take) = tokio::sync::mpsc::unbounded_channel();
        for n in 0..2_000 {
            send.send(n).unwrap();
        }
        let run = root.run(counted(async move {
            let mut fresh = TURNS.get();
            // Points of ours spend none of tokio's.
            for _ in 0..1_000 {
                checkpoint().await?;
                assert!(has_budget_remaining());
            }
            let turns = TURNS.get() - fresh;
            assert!((4..=20).contains(&turns), "{turns} turns for 1,000 points");
            // Messages of tokio's spend its budget.
            fresh = TURNS.get();
            for _ in 0..1_000 {
                take.recv().await.unwrap();
            }
            let turns = TURNS.get() - fresh;
            assert!(
                (4..=20).contains(&turns),
                "{turns} turns for 1,000 messages"
            );
            // Both in turns: none spends the other's.
            fresh = TURNS.get();
            for _ in 0..1_000 {
                take.recv().await.unwrap();
                checkpoint().await?;
            }
            let turns = TURNS.get() - fresh;
            assert!((4..=24).contains(&turns), "{turns} turns for 1,000 of each");
            Ok::<_, Error>(())
        }));
        run.await.unwrap();
    });
}

/// lane-4: a task of tokio's own is polled while a thousand jobs yield all the time.
#[test]
fn lane_4_a_tokio_task_is_polled_beside_jobs_that_yield() {
    on("beside jobs", one_thread, |root| async move {
        let over = Arc::new(AtomicBool::new(false));
        let turns = Arc::new(AtomicUsize::new(0));
        for _ in 0..1000 {
            let (over, turns) = (over.clone(), turns.clone());
            root.scope().launch(async move {
                while !over.load(SeqCst) {
                    turns.fetch_add(1, SeqCst);
                    kinfolk_core::yield_now().await?;
                }
                Ok::<_, Error>(())
            });
        }
        let count = turns.clone();
        let task = tokio::spawn(async move {
            let (mut worst, mut last) = (0, count.load(SeqCst));
            for _ in 0..1000 {
                tokio::task::yield_now().await;
                let now = count.load(SeqCst);
                worst = worst.max(now - last);
                last = now;
            }
            worst
        });
        let worst = task.await.unwrap();
        over.store(true, SeqCst);
        assert!(turns.load(SeqCst) > 1000);
        assert!(worst <= 256, "{worst} turns between two polls");
    });
}

/// lane-4: sockets of tokio's are served while jobs yield all the time, and in jobs.
#[test]
fn lane_4_tokios_io_is_served_beside_jobs_that_yield() {
    for make in [one_thread as fn() -> Runtime, || workers(2)] {
        on("i/o beside jobs", make, |root| async move {
            let over = Arc::new(AtomicBool::new(false));
            for _ in 0..100 {
                let over = over.clone();
                root.scope().launch(async move {
                    while !over.load(SeqCst) {
                        kinfolk_core::yield_now().await?;
                    }
                    Ok::<_, Error>(())
                });
            }
            let (mut here, mut there) = tokio::net::UnixStream::pair().unwrap();
            let echo = root.scope().spawn(async move {
                let mut byte = [0];
                while there.read(&mut byte).await.unwrap() > 0 {
                    there.write_all(&byte).await.unwrap();
                }
            });
            for n in 0..200 {
                here.write_all(&[n]).await.unwrap();
                let mut byte = [0];
                here.read_exact(&mut byte).await.unwrap();
                assert_eq!(byte, [n]);
            }
            drop(here);
            echo.await.unwrap();
            over.store(true, SeqCst);
        });
    }
}

/// lane-6: what is queued behind a turn that does not return is taken over.
#[test]
fn lane_6_a_long_turn_on_tokio_holds_up_no_other_job() {
    on(
        "a long turn",
        || workers(2),
        |root| async move {
            for _ in 0..20 {
                let (done, wait) = channel();
                let job = root.scope().spawn(async move {
                    for n in 0..10 {
                        let done = done.clone();
                        launch(async move { done.send(n).unwrap() });
                    }
                    // They run while this turn goes on, or the guard says so.
                    let mut all: Vec<i32> = wait.iter().take(10).collect();
                    all.sort_unstable();
                    assert_eq!(all, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
                });
                job.await.unwrap();
            }
        },
    );
}

/// A job that waits in `wait` for a child of its own, `deep` of them inside each other.
fn nested(deep: usize, wait: fn(std::sync::mpsc::Receiver<usize>) -> usize) -> usize {
    if deep == 0 {
        return 0;
    }
    let (done, over) = channel();
    launch(async move { done.send(nested(deep - 1, wait)).unwrap() });
    wait(over) + 1
}

/// lane-6: a job blocks its thread until a child has run, on one worker; and so does the
/// child, deeper than there are workers.
#[test]
fn lane_6_jobs_on_tokio_that_block_in_place_wait_for_others() {
    for (many, deep) in [(1, 1), (1, 6), (2, 6), (2, 40)] {
        guarded("block_in_place", move |watched| {
            workers(many).block_on(async {
                let root = Root::builder().build();
                watched.watch(root.tree());
                let ours = |over: std::sync::mpsc::Receiver<usize>| {
                    block_in_place(move || over.recv().unwrap())
                };
                let ran = root.run(async move { nested(deep, ours) }).await;
                assert_eq!(ran.unwrap(), deep);
                // tokio's own says nothing to us: it is seen.
                let tokios = |over: std::sync::mpsc::Receiver<usize>| {
                    tokio::task::block_in_place(move || over.recv().unwrap())
                };
                let deep = deep.min(6);
                let ran = root.run(async move { nested(deep, tokios) }).await;
                assert_eq!(ran.unwrap(), deep);
                assert!(root.shutdown().await.unwrap().is_clean());
            });
        });
    }
}

/// More jobs block at once than there may be extra drivers: none is lost, and those that
/// wait go on when the first return.
#[test]
fn more_jobs_block_in_place_than_there_are_drivers_for() {
    on(
        "too many block",
        || workers(1),
        |root| async move {
            let entered = Arc::new(AtomicUsize::new(0));
            let leave = Arc::new(AtomicBool::new(false));
            let jobs: Vec<_> = (0..70)
                .map(|_| {
                    let (entered, leave) = (entered.clone(), leave.clone());
                    root.scope().spawn(async move {
                        block_in_place(|| {
                            entered.fetch_add(1, SeqCst);
                            while !leave.load(SeqCst) {
                                std::thread::yield_now();
                            }
                        });
                    })
                })
                .collect();
            // One regular driver and sixty-four extra ones.
            while entered.load(SeqCst) < 65 {
                tokio::task::yield_now().await;
            }
            assert_eq!(entered.load(SeqCst), 65);
            leave.store(true, SeqCst);
            for job in jobs {
                job.await.unwrap();
            }
            assert_eq!(entered.load(SeqCst), 70);
        },
    );
}

/// Extra drivers go home, and no tokio task is left of a root.
#[test]
fn tokio_tasks_of_a_root_go_with_it() {
    // Not watched: whoever has the tree keeps its drivers.
    guarded("tokio tasks go", |_| {
        for make in [one_thread as fn() -> Runtime, || workers(1), || workers(2)] {
            let runtime = make();
            let alive = runtime.handle().metrics();
            runtime.block_on(async {
                let before = alive.num_alive_tasks();
                let root = Root::builder().build();
                if Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread {
                    let wait = |over: std::sync::mpsc::Receiver<usize>| {
                        block_in_place(move || over.recv().unwrap())
                    };
                    root.run(async move { nested(10, wait) }).await.unwrap();
                    // The regular drivers, the keeper and the watch stay.
                    let most = alive.num_workers() + 2;
                    while alive.num_alive_tasks() > before + most {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                }
                let short = async { spawn(sleep(Duration::from_millis(1))).await };
                root.run(short).await.unwrap();
                drop(root);
                while alive.num_alive_tasks() > before {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            });
        }
    });
}

/// lane-6: wakes between a thread that is nobody's and jobs: none is lost.
#[test]
fn lane_6_wakes_from_other_threads_are_not_lost_on_tokio() {
    for make in [one_thread as fn() -> Runtime, || workers(2)] {
        on("wakes from threads", make, |root| async move {
            let (ask, mut asked) = tokio::sync::mpsc::channel::<u32>(1);
            let (answer, answers) = channel();
            let echo = root.scope().spawn(async move {
                while let Some(n) = asked.recv().await {
                    answer.send(n).unwrap();
                }
            });
            let thread = std::thread::spawn(move || {
                for n in 0..20_000 {
                    ask.blocking_send(n).unwrap();
                    assert_eq!(answers.recv(), Ok(n));
                }
            });
            echo.await.unwrap();
            thread.join().unwrap();
        });
    }
}

/// Wakes between a task of tokio's and a job, each way: none is lost.
#[test]
fn lane_6_wakes_between_tokio_tasks_and_jobs_are_not_lost() {
    for make in [one_thread as fn() -> Runtime, || workers(1), || workers(2)] {
        on("wakes from tasks", make, |root| async move {
            let (ask, mut asked) = tokio::sync::mpsc::channel::<u32>(1);
            let (answer, mut answers) = tokio::sync::mpsc::channel(1);
            let echo = root.scope().spawn(async move {
                while let Some(n) = asked.recv().await {
                    answer.send(n).await.unwrap();
                }
            });
            let task = tokio::spawn(async move {
                for n in 0..20_000 {
                    ask.send(n).await.unwrap();
                    assert_eq!(answers.recv().await, Some(n));
                }
            });
            task.await.unwrap();
            echo.await.unwrap();
        });
    }
}

/// Jobs run side by side on as many workers as there are.
#[test]
fn jobs_on_tokio_run_in_parallel() {
    on(
        "in parallel",
        || workers(2),
        |root| async move {
            // Each of two waits for the other to be in its turn too.
            for _ in 0..100 {
                let both = Arc::new(std::sync::Barrier::new(2));
                let run = root.run(async move {
                    let (one, two) = (both.clone(), both);
                    let one = spawn(async move { one.wait().is_leader() });
                    let two = spawn(async move { two.wait().is_leader() });
                    Ok::<_, Error>(one.await? != two.await?)
                });
                assert!(run.await.unwrap());
            }
        },
    );
}

/// An idle tree stirs nothing: its drivers are not polled.
#[test]
fn lane_6_idle_drivers_are_not_polled() {
    on(
        "idle",
        || workers(2),
        |root| async move {
            let waits: Vec<_> = (0..10).map(|_| root.scope().spawn(park())).collect();
            root.run(checkpoint()).await.unwrap();
            let metrics = Handle::current().metrics();
            // Whether the watch has gone to rest shows in what tokio polls.
            let polls = || -> u64 {
                (0..metrics.num_workers())
                    .map(|n| metrics.worker_park_count(n))
                    .sum()
            };
            let began = Instant::now();
            loop {
                let before = polls();
                std::thread::sleep(Duration::from_millis(50));
                if polls() - before <= 2 {
                    break;
                }
                assert!(began.elapsed() < Duration::from_secs(60), "something stirs");
            }
            drop(waits);
        },
    );
}
