//! The native runtime: what the conformance suite cannot ask of every host.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use kinfolk_core::{
    Budget, Error, ErrorKind, JobKind, JobState, Main, Outcome, Patience, Pool, Result, Scope,
    StillThere, WaitKind, blocking, checkpoint, next_pump, on, park, scope, shield, sleep, spawn,
    timeout, with_world, yield_now,
};
use kinfolk_runtime::{Cause, HostClock, Runtime};
use kinfolk_testkit::{Gate, Log, guarded};

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

/// Polls it once, as part of whoever asks.
async fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    poll_fn(|cx| Poll::Ready(Pin::new(&mut *future).poll(cx))).await
}

/// Remembers where it was dropped.
struct DropsAt(Arc<Mutex<Option<ThreadId>>>);

impl kinfolk_core::Success for DropsAt {}

impl Drop for DropsAt {
    fn drop(&mut self) {
        *self.0.lock().unwrap() = Some(here());
    }
}

#[test]
fn block_on_gives_the_value_the_error_and_the_panic() {
    guarded("block_on", |_| {
        for workers in [0, 2] {
            let rt = rt(workers);
            let text = String::from("borrowed");
            assert_eq!(rt.block_on(async { text.len() }).unwrap(), 8);
            let failed = rt.block_on(async { Err::<(), _>(Error::msg("no")) });
            assert_eq!(failed.unwrap_err().kind(), ErrorKind::Failed);
            let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                rt.block_on(async {
                    if true {
                        panic!("out of the body")
                    }
                })
            }));
            assert_eq!(
                panicked.unwrap_err().downcast_ref::<&str>(),
                Some(&"out of the body")
            );
            assert_eq!(rt.counters().living(), 1, "{}", rt.snapshot());
        }
    });
}

#[test]
fn block_on_inside_a_job_is_an_error() {
    guarded("nested block_on", |_| {
        for workers in [0, 1] {
            let outer = rt(workers);
            let said = outer
                .block_on(async {
                    let inner = rt(0);
                    inner.block_on(async { 1 }).unwrap_err().to_string()
                })
                .unwrap();
            assert!(said.contains("inside a job"), "{said}");
        }
    });
}

#[test]
fn workers_have_the_name_they_were_given() {
    guarded("names", |_| {
        let rt = Runtime::builder()
            .workers(1)
            .name("digger")
            .build()
            .unwrap();
        let name = rt.block_on(on_pool(async {
            thread::current().name().map(String::from)
        }));
        assert_eq!(name.unwrap().as_deref(), Some("digger-0"));
    });
}

#[test]
fn several_runtimes_in_one_process_await_each_other() {
    guarded("several runtimes", |_| {
        let a = rt(1);
        let b = rt(1);
        let task = a.scope().spawn(async { 7 });
        assert_eq!(b.block_on(task).unwrap(), 7);
    });
}

/// Also: C1, C6.
#[test]
fn lane_1_each_lane_has_its_thread() {
    guarded("lanes", |_| {
        let rt = rt(2);
        let main = here();
        rt.block_on(async move {
            assert_eq!(here(), main);
            let pool = spawn(async move {
                let before = here();
                assert_ne!(before, main);
                // A hop to the main thread and back.
                let there = on(Main, async { here() }).await?;
                assert_eq!(there, main);
                assert_ne!(here(), main);
                Ok::<_, Error>(())
            });
            pool.await?;
            assert_eq!(here(), main, "the awaiter goes on on its own lane");
            assert_ne!(on(Pool, async { here() }).await?, main);
            Ok::<_, Error>(())
        })
        .unwrap();
    });
}

/// Also: C5.
#[test]
fn lane_1_what_is_not_send_stays_on_the_main_thread() {
    guarded("not send", |_| {
        let rt = rt(2);
        let main = here();
        rt.block_on(async move {
            let shared = Rc::new(Cell::new(0));
            let token = Main::here().expect("block_on runs on the main thread");
            let adds = {
                let shared = shared.clone();
                on(token, async move {
                    for _ in 0..3 {
                        yield_now().await?;
                        shared.set(shared.get() + 1);
                    }
                    Ok::<_, Error>(shared)
                })
            };
            assert!(Rc::ptr_eq(&adds.await?, &shared));
            assert_eq!(shared.get(), 3);
            // From a worker: a closure that makes it there.
            let made = spawn(async move {
                assert!(Main::here().is_none(), "a worker is not the main thread");
                kinfolk_core::Scope::current()
                    .unwrap()
                    .on(Main)
                    .spawn_with(move || {
                        let local = Rc::new(here());
                        async move {
                            yield_now().await?;
                            Ok::<_, Error>(*local)
                        }
                    })
                    .await
            });
            assert_eq!(made.await?, main);
            Ok::<_, Error>(())
        })
        .unwrap();
    });
}

#[test]
fn lane_1_a_future_that_stays_is_refused_elsewhere() {
    guarded("refused elsewhere", |_| {
        let a = rt(0);
        let (send, receive) = mpsc::channel();
        let (done, wait) = mpsc::channel::<()>();
        let other = thread::spawn(move || {
            let b = rt(0);
            send.send(b.handle().scope()).unwrap();
            wait.recv().unwrap();
        });
        let elsewhere = receive.recv().unwrap();
        let rc = Rc::new(1);
        let task = elsewhere.on(a.on_main()).spawn(async move { *rc });
        let said = a.block_on(task).unwrap_err().to_string();
        assert!(said.contains("main thread of its runtime"), "{said}");
        done.send(()).unwrap();
        other.join().unwrap();
    });
}

#[test]
fn case_o01_a_main_job_is_polled_and_dropped_on_the_main_thread() {
    guarded("o01", |_| {
        let rt = rt(2);
        let main = here();
        let dropped = Arc::new(Mutex::new(None));
        rt.block_on(async {
            let guard = DropsAt(dropped.clone());
            let stuck = on(Main, async move {
                let _guard = guard;
                park().await
            });
            yield_now().await?;
            let text = kinfolk_core::current_job().map(|_| rt.snapshot().to_string());
            assert!(
                text.as_ref().is_some_and(|text| text.contains(", on main")),
                "{text:?}"
            );
            let job = stuck.job();
            // Cancelled from a worker.
            spawn(async move { job.cancel("from a worker") }).await?;
            let ended = stuck.outcome().await?;
            assert!(ended.is_cancelled());
            Ok::<_, Error>(())
        })
        .unwrap();
        assert_eq!(*dropped.lock().unwrap(), Some(main));
    });
}

/// Where a hop from the main thread to a worker is when it is cancelled.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Leg {
    /// Queued; the worker is busy.
    Out,
    /// In its turn on the worker, which it ends with a value.
    There,
    /// In its turn on the worker, which it ends at a point.
    AtAPoint,
    /// Ended; the main thread has not gone on yet.
    Back,
}

/// Also: handle-2.
#[test]
fn case_o02_a_cancel_in_the_middle_of_a_hop_is_heard_back_on_main() {
    for leg in [Leg::Out, Leg::There, Leg::AtAPoint, Leg::Back] {
        guarded("o02", move |_| {
            let rt = rt(1);
            let main = here();
            let flag = || Arc::new(AtomicBool::new(false));
            let (busy, free, begun, go) = (flag(), flag(), flag(), flag());
            let wait = |flag: &AtomicBool| {
                while !flag.load(SeqCst) {
                    thread::yield_now();
                }
            };
            if leg == Leg::Out {
                let (holds, free) = (busy.clone(), free.clone());
                rt.scope().launch(async move {
                    holds.store(true, SeqCst);
                    wait(&free);
                });
                wait(&busy);
            }
            let log = Arc::new(Mutex::new(Vec::new()));
            let hopping = Arc::new(Mutex::new(None));
            let task = {
                let (log, hopping) = (log.clone(), hopping.clone());
                let (begun, go) = (begun.clone(), go.clone());
                rt.scope().on(Main).spawn(async move {
                    let hop = on(Pool, async move {
                        begun.store(true, SeqCst);
                        assert_ne!(here(), main);
                        wait(&go);
                        if leg == Leg::AtAPoint {
                            checkpoint().await?;
                        }
                        Ok::<_, Error>(7)
                    });
                    *hopping.lock().unwrap() = Some(hop.job());
                    let came = hop.await;
                    log.lock().unwrap().push(("came", here(), came.ok()));
                    let told = checkpoint().await;
                    log.lock()
                        .unwrap()
                        .push(("told", here(), told.as_ref().ok().map(|()| 0)));
                    told
                })
            };
            rt.pump(Budget::Turns(10)).unwrap();
            let hop = hopping.lock().unwrap().clone().expect("the hop has begun");
            match leg {
                Leg::Out => {
                    assert!(task.cancel("on its way out"));
                    free.store(true, SeqCst);
                }
                Leg::There | Leg::AtAPoint => {
                    wait(&begun);
                    assert!(task.cancel("while it is there"));
                    go.store(true, SeqCst);
                }
                Leg::Back => {
                    go.store(true, SeqCst);
                    while !hop.is_ended() {
                        thread::yield_now();
                    }
                    assert!(task.cancel("on its way back"));
                }
            }
            let outcome = rt.wait_for(task.outcome()).unwrap().unwrap();
            assert!(outcome.is_cancelled(), "{leg:?}: {outcome:?}");
            // A hop that gave a value gives it all the same; the point after
            // it fails. Both on the main thread, both once.
            let value = matches!(leg, Leg::There | Leg::Back).then_some(7);
            assert_eq!(
                *log.lock().unwrap(),
                [("came", main, value), ("told", main, None)],
                "{leg:?}"
            );
            assert_eq!(begun.load(SeqCst), leg != Leg::Out, "{leg:?}");
        });
    }
}

#[test]
fn lane_1_a_main_job_is_not_ended_on_another_runtimes_main_thread() {
    guarded("two main threads", |_| {
        let a = rt(0);
        let (give, take) = mpsc::channel();
        let (done, wait) = mpsc::channel::<()>();
        let dropped = Arc::new(Mutex::new(None));
        let other = {
            let dropped = dropped.clone();
            thread::spawn(move || {
                let b = rt(0);
                let value = DropsAt(dropped.clone());
                b.scope().on(b.on_main()).launch(async move {
                    // A scope that outlives its body: whoever drops it ends us.
                    let mut open = Box::pin(shield(std::future::pending::<()>()));
                    std::future::poll_fn(|cx| {
                        assert!(open.as_mut().poll(cx).is_pending());
                        std::task::Poll::Ready(())
                    })
                    .await;
                    give.send(open).unwrap();
                    value
                });
                while b.pump(Budget::Turns(10)).unwrap().more {}
                wait.recv().unwrap();
                while b.counters().living() > 1 {
                    b.pump(Budget::Turns(10)).unwrap();
                }
                assert_eq!(*dropped.lock().unwrap(), Some(here()));
            })
        };
        let open = take.recv().unwrap();
        a.block_on(async move { drop(open) }).unwrap();
        done.send(()).unwrap();
        other.join().unwrap();
    });
}

/// Outside every job there is no turn to be part of: then it is like `spawn`.
#[test]
fn handle_3_spawn_now_from_outside_runs_on_its_lane() {
    guarded("spawn_now from outside", |_| {
        let rt = rt(1);
        let task = rt.scope().spawn_now(async { here() });
        assert_ne!(rt.wait_for(task).unwrap().unwrap(), here());
        let other = self::rt(1);
        let there = other.block_on(async { rt.scope().spawn_now(async { here() }).await });
        assert_ne!(there.unwrap(), here());
    });
}

#[test]
fn lane_1_an_output_nobody_takes_is_dropped_on_its_lane() {
    guarded("output on its lane", |_| {
        let rt = rt(2);
        let main = here();
        let dropped = Arc::new(Mutex::new(None));
        rt.block_on(async {
            let value = DropsAt(dropped.clone());
            let (gate, open) = {
                let gate = Gate::new();
                (gate.clone(), gate)
            };
            let job = kinfolk_core::Scope::current()
                .unwrap()
                .on(Main)
                .launch(async move {
                    // The last child ends on a worker, after the body.
                    kinfolk_core::launch(async move { gate.wait().await });
                    value
                });
            yield_now().await?;
            spawn(async move { open.open() }).await?;
            let _ = job.join().await?;
            Ok::<_, Error>(())
        })
        .unwrap();
        assert_eq!(*dropped.lock().unwrap(), Some(main));
    });
}

/// cancel-10: what hears of the end of a job is called on the job's lane, also if its last
/// child ends on another.
#[test]
fn cancel_10_the_end_is_heard_on_the_lane_of_the_job() {
    guarded("on_end on its lane", |_| {
        let rt = rt(2);
        let main = here();
        let places = rt.block_on(async {
            let scope = Scope::current().unwrap();
            let mut places = Vec::new();
            for ends_on_main in [true, false] {
                let (gate, heard) = (Gate::new(), Arc::new(Mutex::new(Vec::new())));
                let held = gate.clone();
                // The last child ends on the other lane, after the body.
                let job = match ends_on_main {
                    false => scope.on(Main).launch(async move {
                        Scope::current().unwrap().on(Pool).launch(async move {
                            held.wait().await;
                        });
                    }),
                    true => scope.on(Pool).launch(async move {
                        Scope::current().unwrap().on(Main).launch(async move {
                            held.wait().await;
                        });
                    }),
                };
                for _ in 0..2 {
                    let heard = heard.clone();
                    job.on_end(move |_| heard.lock().unwrap().push(here()))
                        .keep();
                }
                // Until only the child is left.
                while job.state() != JobState::Completing {
                    yield_now().await?;
                }
                gate.open();
                let _ = job.join().await?;
                let heard = heard.lock().unwrap().clone();
                assert_eq!(heard.len(), 2);
                places.push(heard.iter().map(|at| *at == main).collect::<Vec<_>>());
            }
            Ok::<_, Error>(places)
        });
        // That of a job of the pool on a worker, that of a main job on the main thread.
        assert_eq!(places.unwrap(), [[false; 2], [true; 2]]);
    });
}

/// A job of the main lane whose last child has ended on a worker waits for its
/// thread to end it: a cancel that finds it so does not queue it again.
#[test]
fn lane_1_a_cancel_meets_an_end_that_waits_for_its_lane() {
    guarded("cancel before the end's turn", |_| {
        let (woken, wait) = mpsc::channel();
        let rt = Runtime::builder()
            .workers(1)
            .on_wake(move |_| woken.send(()).unwrap())
            .build()
            .unwrap();
        let gate = Gate::new();
        let held = gate.clone();
        let job = rt.scope().on(Main).launch(async move {
            kinfolk_core::launch(async move { held.wait().await });
        });
        wait.recv().unwrap();
        assert_eq!(rt.pump(Budget::Turns(9)).unwrap().ran, 1);
        assert!(!job.is_ended());
        gate.open();
        // Its end has been pushed to this thread.
        wait.recv().unwrap();
        assert!(job.cancel("too late to stop anything"));
        assert_eq!(rt.pump(Budget::Turns(9)).unwrap().ran, 1);
        assert!(job.is_ended());
        assert_eq!(rt.counters().living(), 1, "the root");
    });
}

/// Also: C7, C22.
#[test]
fn lane_3_the_main_thread_runs_no_pool_work() {
    guarded("lane 3", |_| {
        let rt = rt(1);
        assert_eq!(rt.workers(), 1);
        let main = here();
        rt.block_on(scope(async |s| {
            let tasks: Vec<_> = (0..200).map(|_| s.spawn(async { here() })).collect();
            for task in tasks {
                assert_ne!(task.await?, main);
            }
            Ok(())
        }))
        .unwrap();
    });
}

/// The one worker is in a long turn, and pool work waits behind it, from wherever it
/// came: the main thread leaves it alone, whatever it does and waits for meanwhile.
#[test]
fn lane_3_the_main_thread_leaves_pool_work_to_a_busy_worker() {
    guarded("lane 3, busy", |watched| {
        let rt = rt(1);
        watched.watch(rt.tree());
        let main = here();
        let (begun, over) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicBool::new(false)),
        );
        let (begins, ends) = (begun.clone(), over.clone());
        rt.scope().launch(async move {
            begins.store(true, SeqCst);
            while !ends.load(SeqCst) {
                thread::yield_now();
            }
        });
        while !begun.load(SeqCst) {
            thread::yield_now();
        }
        let ran = Arc::new(Mutex::new(Vec::new()));
        let count = Arc::new(AtomicUsize::new(0));
        let work = || {
            count.fetch_add(1, SeqCst);
            let ran = ran.clone();
            async move { ran.lock().unwrap().push(here()) }
        };
        // From the main thread, from another, from a task of the main lane, and by a
        // timer, which the main thread fires while the worker is busy.
        for _ in 0..100 {
            rt.scope().launch(work());
        }
        let handle = rt.handle().clone();
        let elsewhere = work();
        let other = thread::spawn(move || drop(handle.scope().launch(elsewhere)));
        other.join().unwrap();
        let (from_main, behind_a_timer) = (work(), work());
        let later = rt.scope().clone();
        rt.block_on(async {
            later.launch(from_main);
            let fires = rt.scope().on(Main).spawn(async move {
                sleep(Duration::from_millis(2)).await?;
                Ok::<_, Error>(later.launch(behind_a_timer))
            });
            for _ in 0..100 {
                yield_now().await?;
            }
            fires.await.map(drop)
        })
        .unwrap();
        rt.pump(Budget::Turns(100)).unwrap();
        rt.run_expired(Instant::now()).unwrap();
        rt.wait_for(rt.scope().on(Main).spawn(async {}))
            .unwrap()
            .unwrap();
        assert_eq!(*ran.lock().unwrap(), []);
        over.store(true, SeqCst);
        // Nor when it shuts down.
        let told = Arc::new(Mutex::new(None));
        let says = told.clone();
        rt.scope().launch(async move {
            let told = park().await;
            *says.lock().unwrap() = Some(here());
            told
        });
        while ran.lock().unwrap().len() < count.load(SeqCst) {
            thread::yield_now();
        }
        assert!(rt.shutdown(Duration::from_secs(5)).unwrap().is_clean());
        assert!(ran.lock().unwrap().iter().all(|thread| *thread != main));
        assert!(told.lock().unwrap().is_none_or(|thread| thread != main));
    });
}

/// With no workers there is nobody else.
#[test]
fn lane_3_with_no_workers_the_main_thread_runs_pool_work() {
    guarded("lane 3, alone", |_| {
        let rt = rt(0);
        let main = here();
        let task = rt.scope().spawn(async { here() });
        assert_eq!(rt.block_on(on_pool(async { here() })).unwrap(), main);
        assert_eq!(rt.wait_for(task).unwrap().unwrap(), main);
    });
}

#[test]
fn lane_4_a_flood_starves_nobody() {
    guarded("lane 4", |_| {
        for workers in [0, 1, 2] {
            let rt = rt(workers);
            let stop = Arc::new(AtomicBool::new(false));
            rt.block_on(scope(async |s| {
                // Twice as many floods as workers, on both lanes.
                for _ in 0..2 * workers.max(1) {
                    for main in [false, true] {
                        let stop = stop.clone();
                        let flood = async move {
                            while !stop.load(SeqCst) {
                                yield_now().await?;
                            }
                            Ok::<_, Error>(())
                        };
                        match main {
                            true => drop(s.on(Main).launch(flood)),
                            false => drop(s.launch(flood)),
                        }
                    }
                }
                // Timers, the pool, and the main lane are all served.
                sleep(Duration::from_millis(2)).await?;
                assert_eq!(on(Pool, async { 1 }).await?, 1);
                assert_eq!(on(Main, async { 2 }).await?, 2);
                spawn(async { sleep(Duration::from_millis(2)).await }).await?;
                stop.store(true, SeqCst);
                Ok(())
            }))
            .unwrap();
        }
    });
}

/// Also: C4.
/// A loop of nothing but points is ended by its timeout, by the real clock, and
/// keeps its thread from nobody.
/// Also: lane-4, time-1.
#[test]
fn case_f32_a_loop_of_points_is_ended_by_its_timeout() {
    guarded("a loop of points", |_| {
        for workers in [0, 1] {
            let laps = Arc::new(AtomicUsize::new(0));
            let other = laps.clone();
            let spun = rt(workers).block_on(async move {
                let _beside = spawn(async move {
                    loop {
                        yield_now().await?;
                        other.fetch_add(1, SeqCst);
                    }
                    #[expect(unreachable_code)]
                    Ok::<_, Error>(())
                });
                let spin = async {
                    loop {
                        checkpoint().await?;
                    }
                    #[expect(unreachable_code)]
                    Ok::<_, Error>(())
                };
                Ok::<_, Error>(timeout(Duration::from_millis(50), spin).await)
            });
            let error = spun.unwrap().expect_err("it does not end by itself");
            assert_eq!(error.kind(), ErrorKind::TimedOut);
            assert!(laps.load(SeqCst) > 1, "somebody else made progress");
        }
    });
}

#[test]
fn lane_4_what_waits_behind_a_long_turn_is_taken_over() {
    guarded("taken over", |_| {
        let rt = rt(2);
        rt.block_on(on_pool(async {
            let (said, heard) = mpsc::channel();
            // One goes into the slot, the others into the ring.
            for n in 0..3 {
                let said = said.clone();
                kinfolk_core::launch(async move { said.send(n).unwrap() });
            }
            // A turn that does not return before they have run.
            let mut got: Vec<_> = (0..3).map(|_| heard.recv().unwrap()).collect();
            got.sort_unstable();
            assert_eq!(got, [0, 1, 2]);
        }))
        .unwrap();
    });
}

/// More than the queue of one worker holds at first.
const MANY: usize = 3_000;

#[test]
fn lane_4_many_tasks_that_yield_take_turns() {
    guarded("many take turns", |_| {
        for workers in [0, 1] {
            let laps: Arc<Vec<AtomicUsize>> =
                Arc::new((0..MANY).map(|_| AtomicUsize::new(0)).collect());
            rt(workers)
                .block_on(on_pool(scope(async move |s| {
                    for n in 0..MANY {
                        let laps = laps.clone();
                        s.launch(async move {
                            for lap in 0..5 {
                                // The one opposite is half a round ahead or behind.
                                let other = laps[(n + MANY / 2) % MANY].load(SeqCst);
                                assert!(other.abs_diff(lap) <= 1, "{n}: lap {lap}, {other}");
                                laps[n].store(lap + 1, SeqCst);
                                yield_now().await?;
                            }
                            Ok::<_, Error>(())
                        });
                    }
                    Ok::<_, Error>(())
                })))
                .unwrap();
        }
    });
}

/// Runs `case` as a task, once on each lane that one thread turns. It is told
/// whether that is the main lane.
fn on_each_lane<F>(name: &'static str, case: fn(bool) -> F)
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    guarded(name, move |watched| {
        for (workers, main) in [(0, false), (0, true), (1, false), (1, true)] {
            let rt = rt(workers);
            watched.watch(rt.tree());
            let task = match main {
                true => rt.scope().on(Main).spawn(case(main)),
                false => rt.scope().spawn(case(main)),
            };
            let ended = rt.wait_for(task).unwrap();
            ended.unwrap_or_else(|e| panic!("{workers} workers, main lane {main}: {e:?}"));
        }
    });
}

/// Starts `body` beside the caller, on the caller's lane.
fn beside<F>(s: &Scope, main: bool, body: F)
where
    F: Future<Output: kinfolk_core::IntoOutcome<Value: Send>> + Send + 'static,
{
    match main {
        true => drop(s.on(Main).launch(body)),
        false => drop(s.launch(body)),
    }
}

/// What is handed over goes first, but not for ever.
#[test]
fn lane_4_a_chain_of_awaits_does_not_keep_many_from_their_turns() {
    on_each_lane("a chain", |main| {
        scope(async move |s| {
            let left = Arc::new(AtomicUsize::new(MANY));
            for _ in 0..MANY {
                let left = left.clone();
                beside(&s, main, async move {
                    for _ in 0..5 {
                        yield_now().await?;
                    }
                    left.fetch_sub(1, SeqCst);
                    Ok::<_, Error>(())
                });
            }
            let mut links = 0;
            while left.load(SeqCst) > 0 {
                match main {
                    true => s.on(Main).spawn(async {}).await?,
                    false => s.spawn(async {}).await?,
                }
                links += 1;
                // Each of the many has six turns; between two of theirs there are
                // a few of the chain.
                assert!(links < 20 * 6 * MANY, "{} have no turn", left.load(SeqCst));
            }
            Ok::<_, Error>(())
        })
    });
}

/// Others are queued; the child that is awaited goes before them, and so does the
/// one who awaits it when the child has ended: no trip through a queue.
#[test]
fn lane_2_a_child_that_is_awaited_goes_first() {
    on_each_lane("hand over", |main| {
        scope(async move |s| {
            let log = Log::new();
            for n in 0..4 {
                let log = log.clone();
                beside(&s, main, async move { log.say(n.to_string()) });
            }
            for _ in 0..2 {
                let said = log.clone();
                let child = async move { said.say("child") };
                match main {
                    true => s.on(Main).spawn(child).await?,
                    false => s.spawn(child).await?,
                }
                log.say("parent");
            }
            // They have their turns.
            while log.len() < 8 {
                yield_now().await?;
            }
            assert_eq!(log.text(), "child parent child parent 0 1 2 3");
            Ok(())
        })
    });
}

#[test]
fn lane_4_many_behind_a_long_turn_are_taken_over() {
    guarded("many are taken over", |_| {
        let rt = rt(2);
        rt.block_on(on_pool(async {
            let (said, heard) = mpsc::channel();
            for n in 0..MANY {
                let said = said.clone();
                kinfolk_core::launch(async move { said.send(n).unwrap() });
            }
            // A turn that does not return before they have run, each of them once.
            let mut got: Vec<_> = (0..MANY).map(|_| heard.recv().unwrap()).collect();
            got.sort_unstable();
            assert!(got.into_iter().eq(0..MANY));
        }))
        .unwrap();
    });
}

/// Also: shutdown-1.
#[test]
fn lane_4_many_that_are_queued_go_with_their_runtime() {
    guarded("many go", |_| {
        for _ in 0..10 {
            let rt = rt(1);
            let held = Arc::new(());
            let (kept, (said, heard)) = (held.clone(), mpsc::channel());
            rt.scope().launch(async move {
                for _ in 0..MANY {
                    let kept = kept.clone();
                    kinfolk_core::launch(async move {
                        let _kept = kept;
                        kinfolk_core::park().await
                    });
                }
                said.send(()).unwrap();
            });
            heard.recv().unwrap();
            drop(rt);
            assert_eq!(Arc::strong_count(&held), 1, "all of them have gone");
        }
    });
}

/// The other worker always has work of its own, and takes its share all the same.
#[test]
fn lane_4_what_one_worker_has_too_much_of_is_shared() {
    // Few, too, if that one does none of it.
    for count in [MANY, 40] {
        guarded("shared", move |_| shared(count));
    }
}

fn shared(count: usize) {
    let rt = rt(2);
    let stop = Arc::new(AtomicBool::new(false));
    let floods = |laps: &Arc<AtomicUsize>| {
        let (laps, stop) = (laps.clone(), stop.clone());
        async move {
            while !stop.load(SeqCst) {
                laps.fetch_add(1, SeqCst);
                yield_now().await?;
            }
            Ok::<_, Error>(())
        }
    };
    let (own, shared) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (busy, many) = (floods(&own), (0..count).map(|_| floods(&shared)));
    let (many, ends) = (many.collect::<Vec<_>>(), stop.clone());
    rt.block_on(on_pool(async move {
        kinfolk_core::launch(busy);
        let has_laps = |laps: &AtomicUsize| {
            while laps.load(SeqCst) < 100 {
                thread::yield_now();
            }
        };
        // Taken over: this turn does not return.
        has_laps(&own);
        for flood in many {
            kinfolk_core::launch(flood);
        }
        has_laps(&shared);
        ends.store(true, SeqCst);
    }))
    .unwrap();
}

#[test]
fn lane_4_the_one_child_behind_a_long_turn_is_taken_over() {
    guarded("one child", |_| {
        let rt = rt(2);
        for _ in 0..20 {
            // Both workers come to rest in between.
            while rt.gauges().runnable != Some(0) {
                thread::yield_now();
            }
            thread::park_timeout(Duration::from_millis(3));
            rt.block_on(on_pool(async {
                let (said, heard) = mpsc::channel();
                kinfolk_core::launch(async move { said.send(7).unwrap() });
                // A turn that does not return before it has run.
                assert_eq!(heard.recv().unwrap(), 7);
            }))
            .unwrap();
        }
    });
}

#[test]
fn shutdown_1_a_paused_clock_does_not_hold_it_up() {
    guarded("paused shutdown", |_| {
        for workers in [0, 1] {
            let clock = HostClock::new();
            let rt = Runtime::builder()
                .workers(workers)
                .clock(clock.shared())
                .on_forced(Box::new(|_| {}))
                .build()
                .unwrap();
            let begun = Arc::new(AtomicBool::new(false));
            let inner = begun.clone();
            rt.scope().launch(async move {
                inner.store(true, SeqCst);
                Gate::new().wait().await;
            });
            while !begun.load(SeqCst) {
                rt.pump(Budget::Turns(1)).unwrap();
            }
            clock.pause();
            let report = rt.shutdown(Duration::from_millis(10)).unwrap();
            assert_eq!(report.dropped.len(), 1, "{report}");
        }
    });
}

async fn on_pool<F>(future: F) -> Result<<F::Output as kinfolk_core::IntoOutcome>::Value>
where
    F: Future<Output: kinfolk_core::IntoOutcome<Value: Send>> + Send + 'static,
{
    on(Pool, future).await
}

/// Also: C2, C3.
#[test]
fn lane_2_a_long_chain_of_awaits_does_not_grow_the_stack() {
    fn chain(left: u32) -> std::pin::Pin<Box<dyn Future<Output = Result<u32>> + Send>> {
        Box::pin(async move {
            match left {
                0 => Ok(0),
                _ => Ok(spawn(chain(left - 1)).await? + 1),
            }
        })
    }
    guarded("long chain", |_| {
        for workers in [0, 2] {
            let rt = rt(workers);
            assert_eq!(rt.block_on(on_pool(chain(100_000))).unwrap(), 100_000);
        }
    });
}

#[test]
fn host_1_a_pump_keeps_to_its_budget_and_never_waits() {
    guarded("pump", |_| {
        let rt = rt(0);
        let turns = Rc::new(Cell::new(0));
        let task = {
            let turns = turns.clone();
            rt.scope().on(rt.on_main()).spawn(async move {
                loop {
                    turns.set(turns.get() + 1);
                    yield_now().await?;
                }
                #[expect(unreachable_code, reason = "names the error type")]
                Ok::<_, Error>(())
            })
        };
        let pumped = rt.pump(Budget::Turns(10)).unwrap();
        assert_eq!((pumped.ran, pumped.fired, pumped.more), (10, 0, true));
        assert_eq!(turns.get(), 10);
        let began = Instant::now();
        let pumped = rt.pump(Budget::Time(Duration::from_millis(3))).unwrap();
        assert!(pumped.ran > 1 && began.elapsed() >= Duration::from_millis(3));
        task.cancel("enough");
        while !task.is_ended() {
            rt.pump(Budget::Turns(1)).unwrap();
        }
        let idle = rt.pump(Budget::Turns(1)).unwrap();
        assert_eq!((idle.ran, idle.more, idle.next_deadline), (0, false, None));
    });
}

#[test]
fn host_1_the_hook_says_why() {
    guarded("wake hook", |_| {
        let causes = Arc::new(Mutex::new(Vec::new()));
        let rt = {
            let causes = causes.clone();
            Runtime::builder()
                .workers(1)
                .on_wake(move |cause| causes.lock().unwrap().push(cause))
                .build()
                .unwrap()
        };
        let task = rt.scope().on(Main).spawn(async { 5 });
        assert_eq!(*causes.lock().unwrap(), [Cause::Task]);
        rt.pump(Budget::Turns(5)).unwrap();
        assert!(task.is_ended());
        assert_eq!(rt.wait_for(task).unwrap().unwrap(), 5);

        let causes = Arc::new(Mutex::new(Vec::new()));
        let rt = {
            let causes = causes.clone();
            Runtime::builder()
                .workers(0)
                .on_wake(move |cause| causes.lock().unwrap().push(cause))
                .build()
                .unwrap()
        };
        let at = Instant::now() + Duration::from_millis(1);
        let _sleeper = rt.scope().on(Main).spawn(kinfolk_core::sleep_until(at));
        rt.pump(Budget::Turns(5)).unwrap();
        assert_eq!(rt.next_deadline(), Some(at));
        // Set by the pump itself: it says so in its answer, not by the hook.
        assert_eq!(*causes.lock().unwrap(), [Cause::Task]);
        let mut fired = 0;
        while fired == 0 {
            fired = rt.pump(Budget::Turns(5)).unwrap().fired;
        }
        assert_eq!(fired, 1);
    });
}

#[test]
fn host_1_next_pump_is_the_next_frame_and_never_this_one() {
    guarded("next_pump", |_| {
        for workers in [0, 2] {
            let rt = rt(workers);
            let frames = Rc::new(RefCell::new(Vec::new()));
            let frame = Rc::new(Cell::new(0));
            let task = {
                let (frames, frame) = (frames.clone(), frame.clone());
                rt.scope().on(rt.on_main()).spawn(async move {
                    for _ in 0..4 {
                        next_pump().await?;
                        frames.borrow_mut().push(frame.get());
                    }
                    Ok::<_, Error>(())
                })
            };
            for n in 1..=5 {
                frame.set(n);
                rt.pump(Budget::Turns(100)).unwrap();
            }
            assert_eq!(*frames.borrow(), [2, 3, 4, 5]);
            assert!(task.is_ended());
        }
    });
}

#[test]
fn host_1_next_pump_is_a_point_and_leaves_nothing() {
    guarded("next_pump cancelled", |_| {
        let rt = rt(0);
        let task = rt.scope().on(Main).spawn(async { next_pump().await });
        rt.pump(Budget::Turns(5)).unwrap();
        task.cancel("no more frames");
        let ended = rt.wait_for(task.outcome()).unwrap().unwrap();
        assert!(ended.is_cancelled());
        assert_eq!(rt.pump(Budget::Turns(5)).unwrap().ran, 0);
    });
}

#[derive(Default)]
struct World {
    score: u32,
}

#[test]
fn host_1_main_tasks_reach_the_hosts_state_while_it_pumps() {
    guarded("world", |_| {
        let rt = rt(0);
        let mut world = World::default();
        let task = rt.scope().on(Main).spawn(async {
            let first = with_world(|world: &mut World| {
                world.score += 1;
                let nested = with_world(|_: &mut World| ()).unwrap_err().to_string();
                assert!(nested.contains("in use"), "{nested}");
                world.score
            })?;
            let wrong = with_world(|_: &mut String| ()).unwrap_err().to_string();
            assert!(
                wrong.contains("lends a") && wrong.contains("World"),
                "{wrong}"
            );
            next_pump().await?;
            let outside = with_world(|_: &mut World| ()).unwrap_err().to_string();
            assert!(outside.contains("pump_with"), "{outside}");
            next_pump().await?;
            with_world(|world: &mut World| world.score += 10)?;
            let off = spawn(async { with_world(|_: &mut World| ()).unwrap_err().to_string() });
            let off = off.await?;
            assert!(off.contains("off the main lane"), "{off}");
            Ok::<_, Error>(first)
        });
        rt.pump_with(&mut world, Budget::Turns(10)).unwrap();
        assert_eq!(world.score, 1);
        rt.pump(Budget::Turns(10)).unwrap();
        rt.pump_with(&mut world, Budget::Turns(10)).unwrap();
        assert_eq!(world.score, 11);
        assert_eq!(rt.wait_for(task).unwrap().unwrap(), 1);
    });
}

#[test]
fn host_1_a_clock_may_be_paused_and_scaled() {
    guarded("host clock", |_| {
        for workers in [0, 1] {
            let clock = HostClock::new();
            let rt = Runtime::builder()
                .workers(workers)
                .clock(clock.shared())
                .build()
                .unwrap();
            // An hour at a million times the rate.
            clock.set_rate(1e6);
            rt.block_on(sleep(Duration::from_secs(3600))).unwrap();
            // Paused while somebody sleeps: a thread lets it go on.
            clock.set_rate(1000.0);
            clock.pause();
            let paused = kinfolk_core::Clock::now(&clock);
            let resumes = {
                let clock = clock.clone();
                move || {
                    assert!(clock.is_paused());
                    clock.resume();
                }
            };
            let slept = rt
                .block_on(async move {
                    let asleep = spawn(sleep(Duration::from_secs(1)));
                    yield_now().await?;
                    let helper = thread::spawn(resumes);
                    asleep.await?;
                    helper.join().expect("it resumes");
                    Ok::<_, Error>(kinfolk_core::now() - paused)
                })
                .unwrap();
            assert!(slept >= Duration::from_secs(1), "{slept:?}");
        }
    });
}

#[test]
fn handle_8_children_of_a_blocking_scope_borrow() {
    guarded("scope_blocking", |_| {
        for workers in [0, 2] {
            let rt = rt(workers);
            let numbers: Vec<u64> = (0..1000).collect();
            let total = AtomicUsize::new(0);
            let sum = rt
                .scope_blocking(|s| {
                    let halves: Vec<_> = numbers
                        .chunks(500)
                        .map(|half| {
                            s.spawn(async {
                                total.fetch_add(half.len(), SeqCst);
                                yield_now().await?;
                                Ok::<_, Error>(half.iter().sum::<u64>())
                            })
                        })
                        .collect();
                    halves
                        .into_iter()
                        .map(|half| s.wait(half))
                        .sum::<Result<u64>>()
                })
                .unwrap()
                .unwrap();
            assert_eq!((sum, total.into_inner()), (499_500, 1000));
            assert_eq!(rt.counters().living(), 1, "{}", rt.snapshot());
        }
    });
}

#[test]
fn handle_8_a_blocking_scope_waits_for_all_whatever_happens() {
    guarded("scope_blocking ends", |_| {
        let rt = rt(2);
        let ended = AtomicUsize::new(0);
        struct Ends<'a>(&'a AtomicUsize);
        impl Drop for Ends<'_> {
            fn drop(&mut self) {
                self.0.fetch_add(1, SeqCst);
            }
        }
        // A child fails: the others are cancelled.
        let failed = rt.scope_blocking(|s| {
            let held = Ends(&ended);
            let waits = s.spawn(async move {
                let _held = held;
                park().await
            });
            let _ = waits.into_job();
            let fails = s.spawn(async { Err::<(), _>(Error::msg("first")) });
            let _ = fails.into_job();
        });
        assert_eq!(failed.unwrap_err().to_string(), "first");
        assert_eq!(ended.load(SeqCst), 1);
        // Also if the body has waited for it: it is the scope's all the same, and what is
        // spawned after it is refused.
        let failed = rt.scope_blocking(|s| {
            let fails = s.spawn(async { Err::<(), _>(Error::msg("waited for")) });
            assert!(s.wait(fails).is_err());
            assert!(s.wait(s.spawn(async { 3 })).is_err());
        });
        assert_eq!(failed.unwrap_err().to_string(), "waited for");
        // One that may fail alone returns its error as a value.
        let alone = rt.scope_blocking(|s| {
            let alone = Err::<(), _>(Error::msg("alone"));
            let fails = s.spawn(async { Ok::<_, Error>(alone) });
            assert!(s.wait(fails).unwrap().is_err());
            s.wait(s.spawn(async { 3 })).unwrap()
        });
        assert_eq!(alone.unwrap(), 3);
        // The body panics.
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            rt.scope_blocking(|s| {
                let held = Ends(&ended);
                let _ = s
                    .spawn(async move {
                        let _held = held;
                        park().await
                    })
                    .into_job();
                panic!("in the body");
            })
        }));
        assert!(panicked.is_err());
        assert_eq!(ended.load(SeqCst), 2);
        // Inside a job it is an error.
        let said = rt.block_on(async {
            let inner = Runtime::builder().workers(0).build()?;
            inner.scope_blocking(|_| ())
        });
        assert!(said.unwrap_err().to_string().contains("inside a job"));
        assert_eq!(rt.counters().living(), 1, "{}", rt.snapshot());
    });
}

/// Its children run at the same time: each waits for the other in a turn.
#[test]
fn handle_8_children_of_a_blocking_scope_run_in_parallel() {
    guarded("scope_blocking, parallel", |watched| {
        let rt = rt(2);
        watched.watch(rt.tree());
        let here = AtomicUsize::new(0);
        rt.scope_blocking(|s| {
            let meet = || async {
                here.fetch_add(1, SeqCst);
                while here.load(SeqCst) < 2 {
                    thread::yield_now();
                }
            };
            let both = [s.spawn(meet()), s.spawn(meet())];
            for one in both {
                s.wait(one).unwrap();
            }
        })
        .unwrap();
    });
}

/// It is an error where it would block a thread that has others to turn: in a job,
/// on its main thread and on a worker, and on a main thread that turns.
#[test]
fn handle_8_a_blocking_scope_is_an_error_on_a_runtimes_thread() {
    fn refused(scope: Result<()>) {
        let said = scope.unwrap_err().to_string();
        assert!(said.contains("inside a job"), "{said}");
    }
    guarded("scope_blocking, refused", |_| {
        for workers in [0, 1] {
            let rt = rt(workers);
            let ran = Cell::new(false);
            rt.block_on(async {
                refused(rt.scope_blocking(|_| ran.set(true)));
            })
            .unwrap();
            rt.wait_for(async {
                refused(rt.scope_blocking(|_| ran.set(true)));
            })
            .unwrap();
            assert!(!ran.get(), "its body has run");
            let elsewhere = on_pool(async {
                let inner = Runtime::builder().workers(0).build()?;
                refused(inner.scope_blocking(|_| ()));
                Ok::<_, Error>(())
            });
            rt.block_on(elsewhere).unwrap();
            // And after all that it works.
            rt.scope_blocking(|_| ran.set(true)).unwrap();
            assert!(ran.get());
        }
    });
}

#[test]
fn shutdown_1_every_straggler_is_named() {
    guarded("stragglers", |_| {
        let rt = rt(2);
        let scope = rt.scope();
        let never = Gate::new();
        let begun = Arc::new(AtomicUsize::new(0));
        {
            let never = never.clone();
            let begun = begun.clone();
            scope.task("foreign").launch(async move {
                begun.fetch_add(1, SeqCst);
                never.wait().await;
            });
        };
        scope.task("shielded").launch(async move {
            shield(async {
                let _ = park().await;
            })
            .await
        });
        let spin = Arc::new(AtomicBool::new(true));
        {
            let (begun, spin) = (begun.clone(), spin.clone());
            scope.task("spinning").launch(async move {
                begun.fetch_add(1, SeqCst);
                while spin.load(SeqCst) {
                    std::hint::spin_loop();
                }
            });
        }
        let (unblock, blocked) = mpsc::channel::<()>();
        {
            let begun = begun.clone();
            scope.task("blocked").launch(async move {
                blocking(move |_| {
                    begun.fetch_add(1, SeqCst);
                    let _ = blocked.recv();
                })
                .await
            });
        }
        // A lease that another thread holds on to.
        let (give, take) = mpsc::channel();
        scope.task("leased").launch(async move {
            give.send(kinfolk_core::Scope::current().unwrap().lease())
                .unwrap();
        });
        let lease = take.recv().unwrap();
        // All of them have begun.
        while begun.load(SeqCst) < 3 {
            thread::yield_now();
        }
        let began = Instant::now();
        let grace = Duration::from_millis(50);
        let report = rt.shutdown(grace).unwrap();
        let took = began.elapsed();
        spin.store(false, SeqCst);
        drop(unblock);
        let text = report.to_string();
        for name in ["foreign", "shielded", "spinning", "blocked", "leased"] {
            assert!(text.contains(&format!("\"{name}\"")), "{name} in:\n{text}");
        }
        for name in ["spinning", "blocked"] {
            let still = report.stragglers.iter().any(|node| node.name == name);
            assert!(still, "{name} is still there:\n{text}");
        }
        assert!(report.dropped.iter().any(|node| node.name == "foreign"));
        assert!(took < Duration::from_secs(5), "{took:?}");
        drop(lease);
    });
}

#[test]
fn a_runtime_may_be_dropped_in_every_state() {
    guarded("dropped", |_| {
        // With work in every state.
        for workers in [0, 1, 2] {
            let rt = Runtime::builder()
                .workers(workers)
                .grace(Duration::from_millis(10))
                .on_forced(Box::new(|_| {}))
                .build()
                .unwrap();
            let dropped = Arc::new(Mutex::new(None));
            for main in [false, true] {
                let guard = DropsAt(dropped.clone());
                let stuck = async move {
                    let _guard = guard;
                    Gate::new().wait().await;
                };
                match main {
                    true => drop(rt.scope().on(Main).launch(stuck)),
                    false => drop(rt.scope().launch(stuck)),
                }
                rt.scope()
                    .launch(async { sleep(Duration::from_secs(3600)).await });
            }
            drop(rt);
            assert!(dropped.lock().unwrap().is_some());
        }
        // While unwinding.
        let unwound = std::panic::catch_unwind(|| {
            let rt = rt(1);
            rt.scope().launch(park());
            panic!("on the way");
        });
        assert!(unwound.is_err());
    });
}

#[test]
fn shutdown_inside_a_job_is_an_error() {
    guarded("shutdown inside", |_| {
        let outer = rt(0);
        let said = outer
            .block_on(async {
                let inner = rt(0);
                inner.shutdown(Duration::ZERO).unwrap_err().to_string()
            })
            .unwrap();
        assert!(said.contains("inside a job"), "{said}");
    });
}

#[test]
fn case_o04_a_blocking_call_is_waited_for_unless_abandoned() {
    guarded("o04", |_| {
        let rt = rt(1);
        let dropped = Arc::new(Mutex::new(None));
        let (go, wait) = mpsc::channel::<()>();
        let (began, begins) = mpsc::channel();
        // Waited for, though the waiter is cancelled; the call hears of it.
        let task = rt.scope().task("waits").spawn(async move {
            blocking(move |caller| {
                began.send(()).unwrap();
                wait.recv().unwrap();
                while !caller.is_cancelled() {
                    thread::yield_now();
                }
                7
            })
            .await
        });
        begins.recv().unwrap();
        assert!(task.cancel("while it runs"));
        while !rt.snapshot().to_string().contains("a blocking call") {
            thread::yield_now();
        }
        assert!(!task.is_ended());
        go.send(()).unwrap();
        let outcome = rt.wait_for(task.outcome()).unwrap().unwrap();
        assert!(
            matches!(outcome, Outcome::Cancelled { late: Some(7), .. }),
            "{outcome:?}"
        );

        // Abandoned: the waiter goes on at once, the call below the root.
        let (go, wait) = mpsc::channel::<()>();
        let (began, begins) = mpsc::channel();
        let value = DropsAt(dropped.clone());
        let task = rt.scope().task("leaves").spawn(async move {
            blocking(move |_| {
                began.send(()).unwrap();
                wait.recv().unwrap();
                value
            })
            .abandon()
            .await
        });
        begins.recv().unwrap();
        task.cancel("while it runs");
        let outcome = rt.wait_for(task.outcome()).unwrap().unwrap();
        assert!(matches!(outcome, Outcome::Cancelled { late: None, .. }));
        let text = rt.snapshot().to_string();
        assert!(text.contains("\"blocking\""), "{text}");
        assert_eq!(*dropped.lock().unwrap(), None);
        go.send(()).unwrap();
        while rt.counters().living() > 1 {
            thread::yield_now();
        }
        assert!(
            dropped.lock().unwrap().is_some(),
            "what it returned is dropped"
        );
    });
}

/// True once it was woken.
#[derive(Default)]
struct Flag(AtomicBool);

impl std::task::Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

/// A blocking call panics, before its future is dropped or awaited or after that. True
/// if the future returned the panic; and what the failure hook got.
fn panicking_call(abandon: bool, taken: bool, over_first: bool) -> (bool, Vec<Error>) {
    let reported = Arc::new(Mutex::new(Vec::new()));
    let hook = reported.clone();
    let rt = Runtime::builder()
        .workers(1)
        .on_failure(Box::new(move |error| {
            hook.lock().unwrap().push(error.clone())
        }))
        .build()
        .unwrap();
    let task = rt.scope().task("asks").spawn(async move {
        let (go, wait) = mpsc::channel::<()>();
        let (began, begins) = mpsc::channel();
        let call = blocking(move |_| -> () {
            began.send(()).unwrap();
            wait.recv().unwrap();
            panic!("words of its own");
        });
        let mut call = if abandon { call.abandon() } else { call };
        let woken = Arc::new(Flag::default());
        let waker = Waker::from(woken.clone());
        let polled = Pin::new(&mut call).poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        begins.recv().unwrap();
        if over_first {
            go.send(()).unwrap();
            while !woken.0.load(SeqCst) {
                thread::yield_now();
            }
        }
        if taken {
            let _ = go.send(());
            return call.await.unwrap_err().kind() == ErrorKind::Panicked;
        }
        drop(call);
        let _ = go.send(());
        false
    });
    let returned = rt.wait_for(task).unwrap().unwrap();
    assert!(rt.shutdown(Duration::from_secs(60)).unwrap().is_clean());
    let reported = std::mem::take(&mut *reported.lock().unwrap());
    (returned, reported)
}

/// The future returns the panic, or the failure hook gets it: never both, never neither.
#[test]
fn outcome_3_a_panic_of_a_blocking_call_is_reported_if_no_future_takes_it() {
    guarded("panics of calls", |_| {
        for (abandon, over_first) in [(false, false), (false, true), (true, false), (true, true)] {
            let case = format!("abandon {abandon}, over first {over_first}");
            let (returned, reported) = panicking_call(abandon, true, over_first);
            assert!(returned && reported.is_empty(), "{case}: {reported:?}");
            let (_, reported) = panicking_call(abandon, false, over_first);
            assert_eq!(reported.len(), 1, "{case}: {reported:?}");
            assert_eq!(reported[0].kind(), ErrorKind::Panicked, "{case}");
            assert_eq!(reported[0].job_name(), Some("asks"), "{case}");
            let words = reported[0].to_string();
            assert!(
                words.contains("in a blocking call: words of its own"),
                "{words}"
            );
        }
    });
}

#[test]
fn io_5_a_call_in_the_queue_is_called_off() {
    guarded("called off", |_| {
        let rt = Runtime::builder()
            .workers(1)
            .blocking_threads(1)
            .build()
            .unwrap();
        let (go, wait) = mpsc::channel::<()>();
        let first = rt
            .scope()
            .spawn(async move { blocking(move |_| wait.recv().unwrap()).await });
        let ran = Arc::new(AtomicBool::new(false));
        let second = {
            let ran = ran.clone();
            rt.scope()
                .spawn(async move { blocking(move |_| ran.store(true, SeqCst)).await })
        };
        while rt.gauges().queue("blocking") != Some(1) {
            thread::yield_now();
        }
        second.cancel("before it began");
        assert!(
            rt.wait_for(second.outcome())
                .unwrap()
                .unwrap()
                .is_cancelled()
        );
        go.send(()).unwrap();
        rt.wait_for(first).unwrap().unwrap();
        drop(rt);
        assert!(!ran.load(SeqCst), "it never began");
    });
}

#[test]
fn io_5_a_job_stays_open_while_its_call_runs() {
    guarded("stays open", |_| {
        let rt = rt(1);
        let (go, wait) = mpsc::channel::<()>();
        let (began, begins) = mpsc::channel();
        let task = rt.scope().spawn(async move {
            let mut call = std::pin::pin!(blocking(move |_| {
                began.send(()).unwrap();
                wait.recv().unwrap();
            }));
            // Polled once, then dropped half-way.
            std::future::poll_fn(|cx| {
                assert!(call.as_mut().poll(cx).is_pending());
                std::task::Poll::Ready(())
            })
            .await;
            begins.recv().unwrap();
        });
        for _ in 0..100 {
            thread::yield_now();
            assert!(!task.is_ended());
        }
        go.send(()).unwrap();
        rt.wait_for(task).unwrap().unwrap();
    });
}

/// see-6: a poll that does not return is seen from another thread, for as long
/// as it lasts, and the thread that ends is looked at no more.
#[test]
fn see_6_a_poll_that_does_not_return_is_seen_from_outside() {
    guarded("a poll that lasts", |_| {
        const LONG: Duration = Duration::from_millis(5);
        for _ in 0..3 {
            let rt = rt(1);
            let (release, released) = mpsc::channel::<()>();
            let job = rt.scope().task("cruncher").launch(async move {
                let _ = released.recv();
                park().await.map(|_| ())
            });
            let report = loop {
                let report = rt.snapshot().stuck(LONG);
                if !report.polls.is_empty() {
                    break report;
                }
                thread::yield_now();
            };
            assert_eq!(report.polls.len(), 1, "{report}");
            assert_eq!(report.polls[0].name, "cruncher");
            assert!(report.jobs.is_empty(), "nobody was to stop: {report}");
            job.cancel("enough");
            while rt.snapshot().stuck(LONG).jobs.is_empty() {
                thread::yield_now();
            }
            let report = rt.snapshot().stuck(LONG);
            assert_eq!(report.find("cruncher").unwrap().why, StillThere::NoPoint);
            drop(release);
            while !rt.snapshot().stuck(Duration::ZERO).is_empty() {
                thread::yield_now();
            }
        }
    });
}

/// see-6: a poll that lasted is not laid to the next one on its thread.
#[test]
fn see_6_a_poll_is_not_taken_for_the_one_before() {
    guarded("the next poll", |_| {
        const LONG: Duration = Duration::from_millis(100);
        let rt = rt(1);
        let (release, released) = mpsc::channel::<Instant>();
        let (begin, begins) = mpsc::channel::<Instant>();
        let first = rt.scope().task("first").spawn(async move {
            begin.send(released.recv().unwrap()).unwrap();
        });
        while rt.snapshot().stuck(LONG).polls.is_empty() {
            thread::yield_now();
        }
        let tree = rt.tree().clone();
        let second = rt.scope().task("second").spawn(async move {
            let began_after = begins.recv().unwrap();
            let polled_for = tree.snapshot().find("second").unwrap().polled_for;
            (polled_for.unwrap(), began_after.elapsed())
        });
        release.send(Instant::now()).unwrap();
        rt.wait_for(first).unwrap().unwrap();
        let (polled_for, at_most) = rt.wait_for(second).unwrap().unwrap();
        // The coarse clock may be some milliseconds behind when it begins.
        let at_most = at_most + Duration::from_millis(20);
        assert!(polled_for <= at_most, "{polled_for:?} of {at_most:?}");
    });
}

/// see-6: a job whose body is over stays while a blocking call of it goes on, and
/// that is what it says, not that it was lent.
#[test]
fn see_6_a_blocking_call_that_nobody_waits_for_holds_its_job() {
    guarded("a call that goes on", |_| {
        let rt = rt(1);
        let (release, released) = mpsc::channel::<()>();
        let (begin, begun) = mpsc::channel::<()>();
        let job = rt.scope().task("caller").launch(async move {
            let call = blocking(move |_| {
                begin.send(()).unwrap();
                let _ = released.recv();
            });
            let mut call = Box::pin(call);
            let polled = poll_once(&mut call).await;
            assert!(polled.is_pending());
            begun.recv().unwrap();
        });
        while job.state() != JobState::Completing {
            thread::yield_now();
        }
        job.cancel("too late");
        let report = rt.snapshot().stuck(Duration::ZERO);
        let caller = report.find("caller").expect("it stays");
        assert_eq!(
            caller.why,
            StillThere::Waits(WaitKind::Blocking),
            "{report}"
        );
        drop(release);
        assert!(rt.wait_for(job.join()).unwrap().unwrap().is_cancelled());
    });
}

/// cancel-6: a job that was told and then waits where it cannot hear is dropped
/// when its patience is over, whichever clock says so. One in the tree that has
/// none makes for early looks.
#[test]
fn cancel_6_patience_ends_on_the_systems_clock() {
    guarded("patience", |_| {
        let rt = rt(1);
        let none = Patience {
            unaware: Duration::ZERO,
            cleanup: Duration::from_millis(10),
        };
        for _ in 0..30 {
            let never = Gate::new();
            let job = rt.scope().task("deaf").patience(none).launch(async move {
                let _ = park().await;
                never.wait().await;
            });
            while rt
                .snapshot()
                .find("deaf")
                .is_some_and(|job| job.waits_on.is_none())
            {
                thread::yield_now();
            }
            job.cancel("enough");
            assert!(rt.wait_for(job.join()).unwrap().unwrap().is_cancelled());
        }
        assert_eq!(rt.counters().jobs_force_dropped, 30);
    });
}

/// cancel-9: a scope that another executor polls, on a thread that takes no turns,
/// comes past its points; and it is not older than its last poll, though nobody
/// there says that time has passed.
#[test]
fn cancel_9_a_scope_with_another_executor_goes_on_there() {
    guarded("elsewhere", |_| {
        let rt = rt(1);
        let (give, given) = mpsc::channel();
        let back = Gate::new();
        let came = back.clone();
        let rounds = Arc::new(AtomicUsize::new(0));
        let its_rounds = rounds.clone();
        let task = rt.scope().spawn(async move {
            let mut scope = Box::pin(scope(async move |_| {
                loop {
                    sleep(Duration::from_millis(1)).await?;
                    its_rounds.fetch_add(1, SeqCst);
                }
                #[expect(unreachable_code, reason = "says what it fails with")]
                Ok::<(), Error>(())
            }));
            assert!(poll_once(&mut scope).await.is_pending());
            give.send(scope).unwrap();
            came.wait().await;
        });
        let mut scope = given.recv().unwrap();
        let begun = Instant::now();
        let mut last = begun;
        while last - begun < Duration::from_millis(100) {
            last = Instant::now();
            let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
            assert!(scope.as_mut().poll(&mut cx).is_pending());
        }
        let tree = loop {
            let tree = rt.snapshot();
            if tree.nodes().iter().all(|node| !node.running) {
                break tree;
            }
            thread::yield_now();
        };
        let node = tree.nodes().iter().find(|node| node.kind == JobKind::Scope);
        let node = node.expect("the scope");
        assert!(rounds.load(SeqCst) > 0, "it has come past no point: {tree}");
        let (_, _, waits_for) = node.waits_on.expect("its task rests");
        let at_most = last.elapsed() + Duration::from_millis(20);
        assert!(waits_for <= at_most, "{waits_for:?} of {at_most:?}");
        drop(scope);
        back.open();
        rt.wait_for(task).unwrap().unwrap();
    });
}

/// What the process has of threads and open files.
fn resources() -> (usize, usize) {
    let count = |path: &str| std::fs::read_dir(path).map_or(0, Iterator::count);
    (count("/proc/self/task"), count("/proc/self/fd"))
}

#[test]
fn a_hundred_runtimes_leave_nothing_behind() {
    // Other tests run beside this one: a process of its own.
    if std::env::var_os("KINFOLK_ALONE").is_none() {
        let me = std::env::current_exe().unwrap();
        let alone = std::process::Command::new(me)
            .args(["--exact", "a_hundred_runtimes_leave_nothing_behind"])
            .args(["--test-threads", "1", "--nocapture"])
            .env("KINFOLK_ALONE", "1")
            .status()
            .unwrap();
        assert!(alone.success());
        return;
    }
    let once = || {
        let rt = rt(3);
        rt.block_on(scope(async |s| {
            for _ in 0..10 {
                s.launch(async { checkpoint().await });
            }
            Ok(())
        }))
        .unwrap();
        drop(rt);
    };
    once();
    let before = resources();
    for _ in 0..100 {
        once();
    }
    assert_eq!(resources(), before, "threads and files");
}

#[test]
fn lane_6_no_wake_up_is_lost_between_threads() {
    guarded("ping-pong", |_| {
        let rounds: usize = std::env::var("KINFOLK_WAKES")
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or(20_000);
        for workers in [1, 2] {
            let rt = rt(workers);
            let (a, b) = (
                Arc::new(Turnstile::default()),
                Arc::new(Turnstile::default()),
            );
            rt.block_on(scope(async |s| {
                let (mine, theirs) = (a.clone(), b.clone());
                s.launch(async move {
                    for _ in 0..rounds {
                        mine.pass().await;
                        theirs.open();
                    }
                });
                // On the main thread: each round crosses over twice.
                for _ in 0..rounds {
                    a.open();
                    b.pass().await;
                }
                Ok(())
            }))
            .unwrap();
        }
    });
}

/// Lets one through each time it is opened.
#[derive(Default)]
struct Turnstile(Mutex<(usize, Option<std::task::Waker>)>);

impl Turnstile {
    fn open(&self) {
        let waker = {
            let mut state = self.0.lock().unwrap();
            state.0 += 1;
            state.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn pass(&self) -> impl Future<Output = ()> {
        std::future::poll_fn(|cx| {
            let mut state = self.0.lock().unwrap();
            if state.0 > 0 {
                state.0 -= 1;
                return std::task::Poll::Ready(());
            }
            state.1 = Some(cx.waker().clone());
            std::task::Poll::Pending
        })
    }
}

/// How often the threads of this name have gone to sleep and been preempted.
fn switches(of: &str) -> u64 {
    let mut sum = 0;
    for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        if !name.starts_with(of) {
            continue;
        }
        let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
        sum += status
            .lines()
            .filter(|line| line.contains("ctxt_switches"))
            .filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok())
            .sum::<u64>();
    }
    sum
}

/// When nothing is queued and nobody runs, nothing wakes, though a timer is set.
/// `scripts/idle` looks for five seconds (`KINFOLK_IDLE`), else it is 300 ms: many
/// times the millisecond after which a sentinel looks again.
#[test]
fn lane_6_an_idle_runtime_does_not_stir() {
    let idle = std::env::var("KINFOLK_IDLE").ok();
    let idle = idle.map_or(300, |millis| millis.parse().expect("milliseconds"));
    guarded("idle", move |_| {
        // Its threads have a name of their own: other tests run beside this one.
        let rt = Runtime::builder()
            .workers(2)
            .name("idling")
            .build()
            .unwrap();
        let _later = rt.scope().spawn(sleep(Duration::from_secs(3600)));
        // Some work first, so that everybody has been awake.
        rt.block_on(on_pool(async {
            for _ in 0..100 {
                spawn(async { yield_now().await }).await?;
            }
            Ok::<_, Error>(())
        }))
        .unwrap();
        assert!(switches("idling") > 0, "they have another name");
        // On their way to sleep they stir. The guard bounds the wait.
        let mut before = switches("idling");
        let stirs = loop {
            thread::park_timeout(Duration::from_millis(50));
            match switches("idling") {
                same if same == before => break same,
                more => before = more,
            }
        };
        thread::park_timeout(Duration::from_millis(idle));
        let switches = switches("idling") - stirs;
        assert_eq!(switches, 0, "context switches in {idle} idle milliseconds");
    });
}
