//! Blocking calls in the seeded simulation: a call that waits for a task, or asks again
//! and again whether it is cancelled, goes on beside the tasks, and the seed decides how
//! as long as the call does nothing that the simulation cannot see.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kinfolk_core::{
    Budget, Caller, Error, ErrorKind, JobState, Main, OrFail, Outcome, blocking, now, scope, sleep,
    spawn, timeout, yield_now,
};
use kinfolk_testkit::{
    Log, Sim, TestOptions, cancel_everywhere, cancel_everywhere_then, guarded, run_test,
};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Runs `body` twice on each of these seeds, and checks that the log is the same; gives
/// the different ones.
fn replays<B>(seeds: u64, body: fn(Log) -> B) -> BTreeSet<String>
where
    B: Future<Output = Result<(), Error>> + Send + 'static,
{
    let mut all = BTreeSet::new();
    for seed in 0..seeds {
        let logs = [(); 2].map(|()| {
            let log = Log::new();
            let mut sim = Sim::builder(seed).explore().build();
            sim.run(body(log.clone())).unwrap();
            log.say(format!("{:?}", sim.elapsed()));
            sim.finish();
            log.text()
        });
        assert_eq!(logs[0], logs[1], "seed {seed}");
        let [log, _] = logs;
        all.insert(log);
    }
    all
}

/// Asks until it is cancelled.
fn asks(caller: &Caller) -> u32 {
    let mut asked = 0;
    while !caller.is_cancelled() {
        asked += 1;
    }
    asked
}

/// A call that asks in a loop whether it is cancelled lets tasks go on and time pass, and
/// how often it asked between two of their turns comes from the seed.
#[test]
fn test_2_a_call_that_asks_in_a_loop_replays() {
    guarded("a_call_that_asks_in_a_loop", |_| {
        let all = replays(30, |log: Log| async move {
            let said = log.clone();
            let call = spawn(async move {
                let mut asked = 0;
                let call = blocking(move |caller| {
                    while !caller.is_cancelled() {
                        asked += 1;
                        if asked < 50 {
                            said.say(format!("asked {asked}"));
                        }
                    }
                    asked
                });
                call.await
            });
            for n in 0..5 {
                yield_now().await?;
                log.say(format!("turn {n}"));
            }
            sleep(HOUR).await?;
            log.say("an hour");
            call.cancel("enough");
            let outcome = call.outcome().await?;
            log.say(format!("{outcome:?}"));
            Ok(())
        });
        assert!(all.len() > 5, "{} different runs", all.len());
    });
}

/// A call that receives what a task sends gets it, however late in virtual time; and the
/// order in which two such calls and the tasks go on comes from the seed.
#[test]
fn test_2_a_call_that_waits_for_a_task_replays() {
    guarded("a_call_that_waits_for_a_task", |_| {
        let all = replays(30, |log: Log| async move {
            let mut calls = Vec::new();
            for n in 0..2 {
                let (send, receive) = channel();
                let heard = log.clone();
                calls.push(spawn(async move {
                    blocking(move |_| {
                        for word in receive {
                            heard.say(format!("call {n} heard {word}"));
                        }
                    })
                    .await
                }));
                let said = log.clone();
                calls.push(spawn(async move {
                    for word in 0..3 {
                        said.say(format!("task {n} says {word}"));
                        send.send(word).or_fail()?;
                        yield_now().await?;
                    }
                    sleep(HOUR).await?;
                    said.say(format!("task {n} says goodbye"));
                    send.send(9).or_fail()
                }));
            }
            for call in calls {
                call.await?;
            }
            Ok(())
        });
        assert!(all.len() > 5, "{} different runs", all.len());
        for log in all {
            assert_eq!(log.matches("heard").count(), 8, "{log}");
            assert!(log.ends_with(" 3600s"), "{log}");
        }
    });
}

/// Each turn of a task is followed by all that it lets a call do.
#[test]
fn test_2_a_call_that_is_let_go_on_goes_before_the_next_turn() {
    guarded("a_call_that_is_let_go_on", |_| {
        for seed in 0..20 {
            let mut sim = Sim::seeded(seed);
            let (send, receive) = channel();
            let heard = Arc::new(AtomicU32::new(0));
            let hears = heard.clone();
            sim.run(async move {
                let call = spawn(blocking(move |_| {
                    for word in receive {
                        hears.store(word, SeqCst);
                    }
                }));
                // It may not have begun.
                while send.send(1).is_ok() && heard.load(SeqCst) != 1 {
                    yield_now().await?;
                }
                for word in 2..20 {
                    send.send(word).or_fail()?;
                    yield_now().await?;
                    assert_eq!(heard.load(SeqCst), word);
                }
                drop(send);
                call.await
            })
            .unwrap();
            sim.finish();
        }
    });
}

/// To ask now and then takes no virtual time: a call that computes in parts does not
/// come too late.
#[test]
fn test_1_a_call_that_asks_between_its_parts_takes_no_time() {
    guarded("asks_between_its_parts", |_| {
        for seed in 0..20 {
            let mut sim = Sim::seeded(seed);
            let call = timeout(
                MS,
                blocking(|caller| (0..5_000).filter(|_| !caller.is_cancelled()).count()),
            );
            assert_eq!(sim.run(call).unwrap(), 5_000);
            assert_eq!(sim.elapsed(), Duration::ZERO);
            sim.finish();
        }
    });
}

/// A call that sleeps for a moment of real time, or computes for one, is waited for: no
/// deadline fires meanwhile.
#[test]
fn test_1_the_clock_waits_for_a_call_that_takes_a_moment() {
    guarded("a_call_that_takes_a_moment", |_| {
        let mut sim = Sim::seeded(1);
        sim.run(async {
            let began = now();
            let sleeps = blocking(|_| std::thread::sleep(20 * MS));
            timeout(Duration::from_nanos(1), sleeps).await?;
            let computes = blocking(|_| {
                let real = Instant::now();
                while real.elapsed() < 150 * MS {}
            });
            timeout(Duration::from_nanos(1), computes).await?;
            assert_eq!(now(), began);
            Ok::<_, Error>(())
        })
        .unwrap();
        sim.finish();
    });
}

/// The same for longer than the simulation waits: tasks go on, the clock does not.
#[test]
fn test_1_tasks_go_on_beside_a_call_that_sleeps_for_long() {
    guarded("a_call_that_sleeps_for_long", |_| {
        let mut sim = Sim::seeded(1);
        sim.run(async {
            let began = now();
            let (begun, begins) = kinfolk_core::kit::completion();
            let (send, receive) = channel();
            let sleeps = spawn(blocking(move |_| {
                begins.complete(());
                // It polls, and does not ask.
                while let Err(RecvTimeoutError::Timeout) = receive.recv_timeout(MS) {}
                std::thread::sleep(300 * MS);
            }));
            begun.await?;
            send.send(()).or_fail()?;
            timeout(MS, sleeps).await?;
            assert_eq!(now(), began);
            Ok::<_, Error>(())
        })
        .unwrap();
        sim.finish();
    });
}

/// What a call waits for in a way that the simulation cannot see comes too, later.
#[test]
fn test_1_a_call_that_spins_until_a_task_has_slept() {
    guarded("a_call_that_spins", |_| {
        let mut sim = Sim::seeded(1);
        sim.run(async {
            let flag = Arc::new(AtomicBool::new(false));
            let seen = flag.clone();
            let spins = spawn(blocking(move |_| {
                while !seen.load(SeqCst) {
                    std::hint::spin_loop();
                }
            }));
            sleep(HOUR).await?;
            flag.store(true, SeqCst);
            spins.await
        })
        .unwrap();
        sim.finish();
    });
}

/// The usual loop of a thread that is to stop: it sleeps for a while and asks.
#[test]
fn test_1_time_passes_beside_a_call_that_sleeps_and_asks() {
    guarded("a_call_that_sleeps_and_asks", |_| {
        for seed in 0..3 {
            let mut sim = Sim::seeded(seed);
            let real = Instant::now();
            sim.run(async {
                let call = blocking(|caller| {
                    while !caller.is_cancelled() {
                        std::thread::sleep(10 * MS);
                    }
                });
                let began = now();
                // It hears of the deadline, and returns.
                timeout(HOUR, call).await?;
                assert_eq!(now(), began + HOUR);
                Ok::<_, Error>(())
            })
            .unwrap();
            sim.finish();
            assert!(real.elapsed() < Duration::from_secs(5));
        }
    });
}

/// A call may hold a lock while it asks. A task that takes this lock stops the whole
/// simulation; the call goes on by itself and lets go of it.
#[test]
fn test_2_a_call_that_asks_with_a_lock_in_its_hands() {
    guarded("a_lock_in_its_hands", |_| {
        for seed in 0..20 {
            let mut sim = Sim::seeded(seed);
            sim.run(async {
                let sum = Arc::new(Mutex::new(0));
                let held = sum.clone();
                let call = spawn(blocking(move |caller| {
                    for _ in 0..3 {
                        let mut sum = held.lock().unwrap();
                        let before = *sum;
                        let _ = caller.is_cancelled();
                        *sum = before + 1;
                    }
                }));
                for _ in 0..3 {
                    yield_now().await?;
                    *sum.lock().unwrap() += 1;
                }
                call.await?;
                assert_eq!(*sum.lock().unwrap(), 6);
                Ok::<_, Error>(())
            })
            .unwrap();
            sim.finish();
        }
    });
}

/// The message of what a closure panics with.
fn words(panics: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(panics)).expect_err("it panics");
    *panic.downcast::<String>().expect("words")
}

/// A call that never returns ends in a report that names it.
#[test]
fn test_2_a_call_that_never_returns_is_named() {
    guarded("a_call_that_never_returns", |_| {
        let (keep, receive) = channel::<()>();
        let receive = Arc::new(Mutex::new(receive));
        let waits = words(|| {
            let mut sim = Sim::seeded(3);
            let line = line!() + 1;
            let call = blocking(move |_| receive.lock().unwrap().recv().is_err());
            let at = format!("tests/calls.rs:{line} waits for another thread");
            let said = words(|| drop(sim.run(call)));
            assert!(said.contains(&at), "{said}");
            panic!("{said}");
        });
        assert!(waits.starts_with("deadlock: main has not ended"), "{waits}");
        assert!(waits.contains("seed 3"), "{waits}");
        drop(keep);

        let asks = words(|| {
            let mut sim = Sim::seeded(4);
            let _ = sim.run(blocking(|caller| asks(&caller)));
        });
        assert!(asks.contains("asks whether it is cancelled"), "{asks}");
        assert!(asks.contains("tests/calls.rs:"), "{asks}");
    });
}

/// A shutdown tells a call that asks, and names and leaves one that does not return.
#[test]
fn shutdown_1_a_call_that_waits_for_ever_is_named_and_left() {
    guarded("a_call_is_named_and_left", |_| {
        for seed in 0..10 {
            let mut sim = Sim::builder(seed).on_forced(|_| {}).build();
            let (keep, receive) = channel::<()>();
            let (came, hears) = channel();
            let asking = sim.root().task("asks").spawn(blocking(|c| asks(&c)));
            let waiting = sim.root().task("waits").spawn(blocking(move |_| {
                let _ = receive.recv();
                came.send(()).unwrap();
            }));
            sim.settle();
            let real = Instant::now();
            let report = sim.shutdown(HOUR);
            assert!(real.elapsed() < Duration::from_secs(10));
            assert!(asking.is_ended(), "{report}");
            assert_eq!(report.stragglers.len(), 1, "{report}");
            assert!(report.to_string().contains("waits"), "{report}");
            assert_eq!(waiting.job().state(), JobState::Cancelling);
            drop((asking, waiting, sim));
            // It was left to itself, and nothing else was.
            drop(keep);
            hears.recv().unwrap();
        }
    });
}

/// A simulation that is dropped lets calls go that ask or wait for its tasks.
#[test]
fn shutdown_1_a_simulation_that_is_dropped_lets_its_calls_go() {
    guarded("a_dropped_simulation", |_| {
        for seed in 0..10 {
            let (came, hears) = channel();
            let mut sim = Sim::seeded(seed);
            for waits in [false, true] {
                let came = came.clone();
                let (send, receive) = channel::<()>();
                sim.root().launch(async move {
                    blocking(move |caller| {
                        match waits {
                            true => drop(receive.recv()),
                            false => drop(asks(&caller)),
                        }
                        came.send(waits).unwrap();
                    })
                    .await
                });
                sim.root().launch(async move {
                    sleep(HOUR).await?;
                    send.send(()).or_fail()
                });
            }
            for _ in 0..seed {
                sim.step();
            }
            drop((sim, came));
            // Some have not begun. What has begun has returned, or this hangs.
            drop(hears.into_iter().collect::<Vec<_>>());
        }
    });
}

/// Abandoned, a call that waits is left to the root, and what it returns in the end is
/// dropped; a panic in it harms no job.
#[test]
fn io_5_calls_that_wait_are_abandoned_and_panic() {
    guarded("calls_that_wait_are_abandoned", |_| {
        for seed in 0..20 {
            let mut sim = Sim::seeded(seed);
            let dropped = Arc::new(AtomicBool::new(false));
            struct Drops(Arc<AtomicBool>);
            impl Drop for Drops {
                fn drop(&mut self) {
                    self.0.store(true, SeqCst);
                }
            }
            let late = Drops(dropped.clone());
            sim.run(async move {
                let (begun, begins) = kinfolk_core::kit::completion();
                let (send, receive) = channel::<()>();
                let waits = spawn(
                    blocking(move |_| {
                        begins.complete(());
                        receive.recv().unwrap();
                        late
                    })
                    .abandon(),
                );
                begun.await?;
                waits.cancel("enough");
                assert!(waits.outcome().await?.is_cancelled());
                sleep(HOUR).await?;
                assert!(!dropped.load(SeqCst));
                send.send(()).or_fail()?;
                sleep(HOUR).await?;
                assert!(dropped.load(SeqCst));

                let (send, receive) = channel::<()>();
                let hangs_up = spawn(async move {
                    let _send = send;
                    sleep(HOUR).await
                });
                let panicked = blocking(move |_| receive.recv().unwrap()).await;
                assert_eq!(panicked.unwrap_err().kind(), ErrorKind::Panicked);
                hangs_up.await
            })
            .unwrap();
            sim.finish();
        }
    });
}

/// A call whose waiter is cancelled while it waits is waited for, and gives its value
/// late.
#[test]
fn io_5_a_call_that_waits_gives_its_value_late() {
    guarded("a_value_that_is_late", |_| {
        for seed in 0..20 {
            let mut sim = Sim::seeded(seed);
            sim.run(async {
                let (begun, begins) = kinfolk_core::kit::completion();
                let (send, receive) = channel();
                let waits = spawn(blocking(move |_| {
                    begins.complete(());
                    receive.recv().unwrap()
                }));
                begun.await?;
                waits.cancel("enough");
                spawn(async move {
                    sleep(HOUR).await?;
                    send.send(7).or_fail()
                })
                .await?;
                match waits.outcome().await? {
                    Outcome::Cancelled { late, .. } => assert_eq!(late, Some(7)),
                    other => panic!("{other:?}"),
                }
                Ok::<_, Error>(())
            })
            .unwrap();
            sim.finish();
        }
    });
}

/// Stopped at every point and before every turn, calls that ask and calls that wait leave
/// nothing behind.
#[test]
fn test_3_calls_that_wait_are_stopped_everywhere() {
    let went = cancel_everywhere(async || {
        scope(async |s| {
            s.launch(blocking(|caller| asks(&caller)));
            sleep(MS).await?;
            s.cancel("enough");
            Ok(())
        })
        .await
    });
    assert_eq!(went.forced, 0);
    assert!(went.runs > 20, "{went:?}");

    let under_way = Arc::new(AtomicU32::new(0));
    let left = under_way.clone();
    let scenario = move || {
        let under_way = under_way.clone();
        async move {
            scope(async move |s| {
                let (send, receive) = channel::<u32>();
                let sum = s.spawn(blocking(move |_| {
                    under_way.fetch_add(1, SeqCst);
                    let sum = receive.into_iter().sum::<u32>();
                    under_way.fetch_sub(1, SeqCst);
                    sum
                }));
                for word in 0..3 {
                    send.send(word).or_fail()?;
                    sleep(MS).await?;
                }
                drop(send);
                sum.await
            })
            .await
        }
    };
    let went = cancel_everywhere_then(scenario, move || assert_eq!(left.load(SeqCst), 0));
    assert_eq!(went.forced, 0);
    assert!(went.runs > 20, "{went:?}");
}

/// In a host loop, with frames and with moments, calls that ask and calls that wait for a
/// task of the main lane go on.
#[test]
fn host_1_calls_go_on_beside_the_frames_of_the_simulation() {
    guarded("calls_beside_frames", |_| {
        for seed in 0..20 {
            let mut sim = Sim::seeded(seed);
            let (send, receive) = channel();
            let waits = sim
                .root()
                .spawn(async move { blocking(move |_| receive.recv().unwrap()).await });
            let asking = sim.root().spawn(blocking(|caller| asks(&caller)));
            let says = sim.root().on(Main).spawn(async move {
                sleep(10 * MS).await?;
                let world = kinfolk_core::with_world(|world: &mut u32| *world)?;
                send.send(world).or_fail()
            });
            let mut frames = 0;
            while !(waits.is_ended() && asking.is_ended() && says.is_ended()) {
                let now = sim.start() + sim.elapsed();
                match seed % 2 {
                    0 => drop(sim.run_expired_with(&mut 7_u32, now + MS)),
                    _ => {
                        sim.pump_with(&mut 7_u32, Budget::Turns(1));
                        sim.advance_with(&mut 7_u32, MS);
                    }
                }
                if frames == 20 {
                    asking.cancel("enough");
                }
                frames += 1;
                assert!(frames < 1000, "seed {seed}: {}", sim.snapshot());
            }
            assert_eq!(sim.run(waits).unwrap(), 7);
            drop((asking, says));
            sim.finish();
        }
    });
}

/// The threads of the calls of one seed are used again by the next.
#[test]
fn test_2_the_threads_of_calls_are_used_again() {
    guarded("threads_are_used_again", |_| {
        let threads = Arc::new(Mutex::new(Vec::new()));
        for seed in 0..50 {
            let mut sim = Sim::seeded(seed);
            let seen = threads.clone();
            sim.run(async move {
                for _ in 0..3 {
                    let seen = seen.clone();
                    blocking(move |_| seen.lock().unwrap().push(std::thread::current().id()))
                        .await?;
                }
                Ok::<_, Error>(())
            })
            .unwrap();
            sim.finish();
        }
        let mut threads = threads.lock().unwrap().clone();
        assert_eq!(threads.len(), 150);
        threads.dedup();
        assert_eq!(threads.len(), 1);
        assert_ne!(threads[0], std::thread::current().id());
    });
}

/// A test whose seed does not decide all because of such a call says which call that is.
#[test]
fn test_2_a_call_that_the_seed_does_not_decide_about_is_named() {
    let runs = Arc::new(AtomicU32::new(0));
    let said = words(|| {
        run_test(
            "sleeps_for_long",
            TestOptions::default().seeds(0..1),
            move || {
                let first = runs.fetch_add(1, SeqCst) == 0;
                async move {
                    let flag = Arc::new(AtomicBool::new(false));
                    let seen = flag.clone();
                    let sleeps = spawn(blocking(move |_| {
                        // No task goes on until the simulation does not wait any more.
                        while !seen.load(SeqCst) {
                            std::thread::sleep(10 * MS);
                        }
                    }));
                    sleep(MS).await?;
                    flag.store(true, SeqCst);
                    sleeps.await?;
                    match first {
                        true => Err(Error::msg("the first time")),
                        false => Ok(()),
                    }
                }
            },
        );
    });
    assert!(said.contains("the test does not replay"), "{said}");
    assert!(said.contains("blocking call that sleeps"), "{said}");
    assert!(said.contains("tests/calls.rs:"), "{said}");
}
