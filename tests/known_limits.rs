//! What a user of the native runtime can stumble over: limits that the docs state,
//! shown exactly as they state them, and traps that are gone.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::Write;
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::task::{Poll, Waker};
use std::time::Duration;

use kinfolk_core::{
    Budget, Error, JobKind, JobState, cleanup, park, scope, sleep, timeout, yield_now,
};
use kinfolk_runtime::net::TcpStream;
use kinfolk_runtime::{HostClock, Runtime};
use kinfolk_testkit::guarded;

const MS: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);

fn rt(workers: usize) -> Runtime {
    Runtime::builder()
        .workers(workers)
        .on_forced(Box::new(|_| {}))
        .build()
        .expect("a runtime")
}

/// Lets the runtime take a turn; for code outside any job.
async fn one_turn() {
    let mut waited = false;
    poll_fn(|cx| match std::mem::replace(&mut waited, true) {
        true => Poll::Ready(()),
        false => {
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await;
}

// --- shutdown-1: a runtime that ends inside a job ---

/// shutdown-1: inside a job `shutdown` is an error, and so is the wait of a drop. The
/// runtime is cancelled all the same, and its workers go on until its jobs have
/// ended, or the grace is over.
#[test]
fn shutdown_1_a_runtime_that_ends_inside_a_job_lets_its_tasks_clean_up() {
    guarded("shutdown inside, clean-up", |_| {
        for by_drop in [false, true] {
            for workers in [1, 2] {
                let outer = rt(0);
                let kept = Cell::new(None);
                let (say, heard) = mpsc::channel();
                outer
                    .block_on(async {
                        let inner = rt(workers);
                        let said = say.clone();
                        kept.set(Some(inner.scope().launch(async move {
                            said.send("began").unwrap();
                            let told = park().await;
                            cleanup(sleep(20 * MS)).await?;
                            said.send("cleaned").unwrap();
                            told.map(drop).map_err(Error::from)
                        })));
                        assert_eq!(heard.recv(), Ok("began"));
                        if by_drop {
                            return drop(inner);
                        }
                        let refused = inner.shutdown(60 * SEC).unwrap_err().to_string();
                        assert!(refused.contains("inside a job"), "{refused}");
                    })
                    .unwrap();
                let job = kept.take().expect("it was launched");
                assert!(job.cancel_requested());
                assert_eq!(heard.recv_timeout(60 * SEC), Ok("cleaned"));
                assert!(outer.wait_for(job.join()).unwrap().unwrap().is_cancelled());
            }
        }
    });
}

/// shutdown-1: the grace that was asked for holds where the call cannot wait.
#[test]
fn shutdown_1_a_runtime_that_ends_inside_a_job_forces_after_the_grace() {
    guarded("shutdown inside, forced", |_| {
        let outer = rt(0);
        let kept = Cell::new(None);
        outer
            .block_on(async {
                let inner = rt(1);
                let (say, heard) = mpsc::channel();
                kept.set(Some(inner.scope().launch(async move {
                    say.send(()).unwrap();
                    while park().await.is_err() {}
                })));
                heard.recv().unwrap();
                inner.shutdown(MS).unwrap_err();
            })
            .unwrap();
        let job = kept.take().expect("it was launched");
        assert!(outer.wait_for(job.join()).unwrap().unwrap().is_cancelled());
    });
}

/// shutdown-1: with no workers nothing turns the jobs of a runtime that ends inside
/// another's job: they are marked, and stay where they are.
#[test]
fn shutdown_1_a_runtime_without_workers_that_ends_inside_a_job_turns_no_more() {
    guarded("shutdown inside, no workers", |_| {
        let outer = rt(0);
        let inner = Cell::new(Some(rt(0)));
        let polls = Rc::new(Cell::new(0));
        let (job, counted) = {
            let inner = inner.take().expect("just built");
            let mine = polls.clone();
            let job = inner.scope().on(inner.on_main()).launch(async move {
                mine.set(mine.get() + 1);
                park().await
            });
            inner.wait_for(one_turn()).unwrap();
            let counted = polls.get();
            outer
                .block_on(async move {
                    inner.shutdown(Duration::ZERO).unwrap_err();
                })
                .unwrap();
            (job, counted)
        };
        assert!(job.cancel_requested());
        assert_eq!(job.state(), JobState::Cancelling);
        assert_eq!(polls.get(), counted);
    });
}

// --- cancel-6: what is never idle ---

/// Wakes itself without pause, and hears nothing.
async fn restless(polls: Arc<AtomicUsize>) {
    poll_fn::<(), _>(|cx| {
        polls.fetch_add(1, SeqCst);
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// cancel-6: a deaf task that wakes itself without pause is never parked, and patience
/// does not reach it, however much time goes by.
#[test]
fn cancel_6_a_task_that_wakes_itself_without_pause_is_out_of_patiences_reach() {
    guarded("wakes itself", |watched| {
        let clock = HostClock::new();
        clock.pause();
        let rt = Runtime::builder()
            .workers(0)
            .clock(clock.shared())
            .on_forced(Box::new(|_| {}))
            .build()
            .unwrap();
        watched.watch(rt.tree());
        let polls = Arc::new(AtomicUsize::new(0));
        let job = rt.scope().launch(restless(polls.clone()));
        let parked = rt.scope().launch(std::future::pending::<()>());
        let turns = || rt.pump(Budget::Turns(10)).map(|_| ()).unwrap();
        turns();
        assert!(job.cancel("it does not listen"));
        assert!(parked.cancel("it cannot listen"));
        for _ in 0..20 {
            turns();
            clock.advance(500 * MS);
        }
        turns();
        assert_eq!(parked.state(), JobState::Cancelled);
        assert_eq!(job.state(), JobState::Cancelling);
        assert!(polls.load(SeqCst) >= 20);
        let report = rt.shutdown(Duration::ZERO).unwrap();
        assert_eq!(report.dropped.len(), 1, "{report}");
        assert_eq!(job.state(), JobState::Cancelled);
    });
}

/// shutdown-1: such a task is dropped at the force, and the report names it.
/// Also: cancel-6.
#[test]
fn shutdown_1_a_task_that_wakes_itself_without_pause_is_dropped_and_named() {
    guarded("wakes itself, shutdown", |watched| {
        for workers in [0, 1] {
            let rt = rt(workers);
            watched.watch(rt.tree());
            let polls = Arc::new(AtomicUsize::new(0));
            let job = rt.scope().task("restless").launch(restless(polls.clone()));
            while polls.load(SeqCst) == 0 {
                rt.wait_for(one_turn()).unwrap();
            }
            let report = rt.shutdown(Duration::ZERO).unwrap();
            let names: Vec<_> = report.dropped.iter().map(|node| &*node.name).collect();
            assert_eq!(names, ["restless"], "{report}");
            assert!(report.took >= SEC, "{report}");
            assert_eq!(job.state(), JobState::Cancelled);
        }
    });
}

// --- host-1: operations with no workers ---

/// host-1: with no workers the end of an operation calls no `on_wake` hook. The pump
/// says that one is under way, and the next pump sees its end.
#[test]
fn host_1_with_no_workers_the_next_pump_sees_the_end_of_an_operation() {
    guarded("under way", |watched| {
        let asked = Arc::new(AtomicUsize::new(0));
        let hook = asked.clone();
        let rt = Runtime::builder()
            .workers(0)
            .on_wake(move |_| {
                hook.fetch_add(1, SeqCst);
            })
            .build()
            .unwrap();
        watched.watch(rt.tree());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connected = Arc::new(AtomicBool::new(false));
        let says = connected.clone();
        let task = rt.scope().spawn(async move {
            let stream = TcpStream::connect(address).await?;
            says.store(true, SeqCst);
            let (read, _) = stream.read(Vec::with_capacity(1)).await;
            Ok::<_, Error>(read?)
        });
        let pump = || rt.pump(Budget::Turns(64)).unwrap();
        while !connected.load(SeqCst) {
            pump();
        }
        let (mut peer, _) = listener.accept().unwrap();
        let mut pumped = pump();
        while pumped.more {
            pumped = pump();
        }
        assert_eq!(pumped.under_way, 1, "{pumped:?}");
        // On loopback the byte has arrived when the write returns.
        let before = asked.load(SeqCst);
        peer.write_all(b"x").unwrap();
        let job = task.into_job();
        assert!(!job.state().is_terminal());
        while !job.state().is_terminal() {
            pumped = pump();
        }
        assert_eq!(pumped.under_way, 0, "{pumped:?}");
        assert_eq!(asked.load(SeqCst), before, "the hook was called");
    });
}

// --- lane-4: short calls, with no workers ---

/// lane-4: however short the calls of a host are, what was spawned between them has
/// its turn, and a timer that is due fires.
#[test]
fn lane_4_short_calls_leave_turns_to_what_came_between_them() {
    guarded("short calls", |watched| {
        for pumps in [false, true] {
            for workers in [0, 1] {
                let rt = rt(workers);
                watched.watch(rt.tree());
                let call = || match pumps {
                    true => rt.pump(Budget::Turns(1)).map(|_| ()).unwrap(),
                    false => rt.wait_for(one_turn()).unwrap(),
                };
                let on_main = || rt.scope().task("spins").on(rt.on_main());
                let _spins = on_main().launch(async {
                    loop {
                        yield_now().await?;
                    }
                    #[expect(unreachable_code)]
                    Ok::<_, Error>(())
                });
                for _ in 0..10 {
                    call();
                }
                let ran = Rc::new(Cell::new(false));
                let mine = ran.clone();
                let _new = on_main().launch(async move { mine.set(true) });
                let slept = Rc::new(Cell::new(false));
                let mine = slept.clone();
                let _sleeps = on_main().launch(async move {
                    sleep(Duration::ZERO).await?;
                    sleep(MS).await?;
                    mine.set(true);
                    Ok::<_, Error>(())
                });
                for _ in 0..20 {
                    call();
                }
                assert!(ran.get(), "{workers} workers, pumps: {pumps}");
                std::thread::sleep(2 * MS);
                for _ in 0..20 {
                    call();
                }
                // With workers one of them keeps time.
                assert!(slept.get() || workers > 0, "pumps: {pumps}");
            }
        }
    });
}

/// lane-4: with no workers a row of the pool has its turns, whatever the pattern in
/// which tasks of the main lane wake each other.
#[test]
fn lane_4_two_tasks_of_the_main_lane_leave_the_pool_its_turns() {
    guarded("two lanes", |watched| {
        for before in 0..4 {
            let rt = rt(0);
            watched.watch(rt.tree());
            let on_main = || rt.scope().task("pair").on(rt.on_main());
            let waker = Rc::new(RefCell::new(None::<Waker>));
            let slot = waker.clone();
            let _woken = on_main().launch(poll_fn::<(), _>(move |cx| {
                *slot.borrow_mut() = Some(cx.waker().clone());
                Poll::Pending
            }));
            let _wakes = on_main().launch(async move {
                loop {
                    if let Some(waker) = waker.borrow_mut().take() {
                        waker.wake();
                    }
                    yield_now().await?;
                }
                #[expect(unreachable_code)]
                Ok::<_, Error>(())
            });
            for _ in 0..20 + before {
                rt.wait_for(one_turn()).unwrap();
            }
            let ran = Arc::new(AtomicBool::new(false));
            let mine = ran.clone();
            let _pool = rt.scope().launch(async move { mine.store(true, SeqCst) });
            rt.wait_for(async {
                for _ in 0..1000 {
                    one_turn().await;
                }
            })
            .unwrap();
            assert!(ran.load(SeqCst), "after {before}");
        }
    });
}

// --- handle-15: a hosted future that its owner forgets ---

/// handle-15: what hosts a future polls or drops it. Forgotten, it holds its scope and the
/// timeout around that until a shutdown forces it, which names it.
#[test]
fn handle_15_a_forgotten_hosted_future_holds_its_scope_until_shutdown() {
    guarded("a forgotten hosted future", |_| {
        let rt = rt(1);
        let job = rt.scope().launch(async {
            let forgetful = scope(async |s| {
                let mut hosted = Box::pin(s.host(park()));
                poll_fn(|cx| Poll::Ready(hosted.as_mut().poll(cx).is_pending())).await;
                std::mem::forget(hosted);
                Ok(())
            });
            timeout(MS, forgetful).await
        });
        rt.block_on(sleep(20 * MS)).unwrap();
        assert!(job.cancel("not heard by what is forgotten"));
        assert!(!job.is_ended());
        let report = rt.shutdown(MS).unwrap();
        assert!(job.is_ended());
        let dropped: Vec<_> = report.dropped.iter().map(|job| job.kind).collect();
        assert_eq!(dropped, [JobKind::Hosted]);
    });
}
