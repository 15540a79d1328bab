//! The simulation itself: its clock, its seeds, and what it says when a test
//! gets stuck or leaves something behind.

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::Poll;
use std::time::{Duration, Instant};

use kinfolk_core::{
    Error, EventKind, JobId, Pinned, RingSink, Scope, checkpoint, cleanup, detach, now, on, park,
    scope, sleep, sleep_until, spawn, timeout, yield_now,
};
use kinfolk_runtime::fs::File;
use kinfolk_runtime::io::pipe;
use kinfolk_runtime::net::{TcpListener, UdpSocket};
use kinfolk_testkit::io::{Fault, OpKind, SimIo};
use kinfolk_testkit::{Gate, Lab, Log, Sim, harness};

const MS: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);

/// What a panic said.
fn words_of(run: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(run)).expect_err("it did not panic");
    match payload.downcast::<String>() {
        Ok(words) => *words,
        Err(payload) => (*payload.downcast::<&str>().expect("words")).to_string(),
    }
}

/// A task below the root that says a word after a while.
fn say_after(sim: &Sim, log: &Log, wait: Duration, word: &'static str) {
    let log = log.clone();
    sim.root().launch(async move {
        sleep(wait).await?;
        log.say(word);
        Ok::<_, Error>(())
    });
}

/// Shutdown cancels a timer of the root at once, and waits for its run.
#[test]
fn host_3_shutdown_ends_a_timer_of_the_root() {
    for seed in 0..20 {
        let mut sim = Sim::seeded(seed);
        let (log, words) = (Log::new(), Log::new());
        let (said, beat) = (words.clone(), log.clone());
        sim.root()
            .interval(SEC, move || {
                beat.say("run");
                async {}
            })
            .unwrap()
            .keep();
        sim.root()
            .delay(SEC, move || async move {
                let told = park().await;
                cleanup(sleep(SEC)).await?;
                said.say("clean");
                told?;
                Ok::<_, Error>(())
            })
            .keep();
        // Others take their time to end: no run meanwhile.
        sim.root().launch(async {
            let told = park().await;
            cleanup(sleep(10 * SEC)).await?;
            told?;
            Ok::<_, Error>(())
        });
        sim.advance(1_500 * MS);
        sim.finish();
        assert_eq!(
            (log.text().as_str(), words.text().as_str()),
            ("run run", "clean")
        );
    }
}

#[test]
fn case_q01_virtual_time_takes_no_real_time() {
    let real = Instant::now();
    let mut sim = Sim::seeded(1);
    let took = sim.run(async {
        let start = now();
        for n in 0..10 {
            let before = now();
            sleep(n * 10 * SEC).await?;
            assert_eq!(now() - before, n * 10 * SEC);
        }
        Ok::<_, Error>(now() - start)
    });
    assert_eq!(took.unwrap(), 450 * SEC);
    assert_eq!(sim.elapsed(), 450 * SEC);
    assert!(real.elapsed() < SEC, "{:?}", real.elapsed());
    sim.assert_nothing_left();
    sim.finish();
}

#[test]
fn case_q02_advancing_to_an_instant_runs_what_is_due_at_it() {
    for seed in 0..100 {
        let log = Log::new();
        let mut sim = Sim::seeded(seed);
        say_after(&sim, &log, 15 * MS, "a");
        say_after(&sim, &log, 16 * MS, "b");
        say_after(&sim, &log, 40 * MS, "c");
        sim.advance_to_before(15 * MS);
        assert_eq!((sim.elapsed(), log.text().as_str()), (15 * MS, ""));
        sim.advance(Duration::ZERO);
        assert_eq!((sim.elapsed(), log.text().as_str()), (15 * MS, "a"));
        sim.advance(MS);
        assert_eq!((sim.elapsed(), log.text().as_str()), (16 * MS, "a b"));
        sim.advance(23 * MS);
        assert_eq!((sim.elapsed(), log.text().as_str()), (39 * MS, "a b"));
        sim.advance(10 * MS);
        assert_eq!((sim.elapsed(), log.text().as_str()), (49 * MS, "a b c"));
        sim.assert_nothing_left();
        sim.finish();
    }
}

/// What runs on the way sees the time at which it was due, not the new time.
#[test]
fn case_q02_what_runs_on_the_way_sees_its_own_instant() {
    let log = Log::new();
    let mut sim = Sim::seeded(3);
    let words = log.clone();
    sim.root().launch(async move {
        let start = now();
        for _ in 0..3 {
            sleep(10 * MS).await?;
            words.say((now() - start).as_millis().to_string());
        }
        Ok::<_, Error>(())
    });
    sim.advance(SEC);
    assert_eq!(log.text(), "10 20 30");
    assert_eq!(sim.elapsed(), SEC);
    sim.finish();
}

#[test]
fn case_q03_the_clock_never_goes_back() {
    let mut sim = Sim::seeded(4);
    sim.advance(10 * MS);
    sim.advance(Duration::ZERO);
    sim.advance_to_before(Duration::ZERO);
    assert_eq!(sim.elapsed(), 10 * MS);
    let past = sim.start() + 3 * MS;
    let ran = sim.run(async move {
        let before = now();
        sleep_until(past).await?;
        assert_eq!(now(), before);
        sleep(5 * MS).await?;
        Ok::<_, Error>(now() - before)
    });
    assert_eq!(ran.unwrap(), 5 * MS);
    assert_eq!(sim.elapsed(), 15 * MS);
    sim.settle();
    assert_eq!(sim.elapsed(), 15 * MS);
    sim.finish();
}

/// A run as a list of words, with jobs numbered in the order in which they
/// were made.
fn trace(seed: u64) -> Vec<String> {
    let events = Arc::new(RingSink::new(100_000).with_turns());
    let mut sim = Sim::builder(seed).sink(events.clone()).build();
    sim.run(async {
        scope(async |s| {
            for n in 0..6_u32 {
                s.launch(async move {
                    for _ in 0..n {
                        yield_now().await?;
                    }
                    let child = spawn(async move {
                        sleep((n % 3) * MS).await?;
                        Ok::<_, Error>(n)
                    });
                    child.await?;
                    if n == 5 {
                        park().await?;
                    }
                    Ok::<_, Error>(())
                });
            }
            sleep(10 * MS).await?;
            s.cancel("enough");
            checkpoint().await.unwrap_err();
            Ok(())
        })
        .await
    })
    .unwrap();
    sim.assert_nothing_left();
    sim.finish();
    let mut numbers: BTreeMap<JobId, usize> = BTreeMap::new();
    let mut number = |id: JobId| {
        let next = numbers.len();
        *numbers.entry(id).or_insert(next)
    };
    let events = events.events();
    let mut words = Vec::new();
    for event in &events {
        let job = number(event.job);
        let what = match event.kind {
            EventKind::Attach { parent } => format!("attached to {}", number(parent)),
            other => format!("{other:?}"),
        };
        words.push(format!("{job} {} {what}", event.at));
    }
    words
}

/// Also: test-2.
#[test]
fn case_q05_the_same_seed_gives_the_same_run() {
    let first = trace(7);
    assert!(first.len() > 100, "{}", first.len());
    for _ in 0..9 {
        assert_eq!(trace(7), first);
    }
}

/// Also: test-2.
#[test]
fn case_q05_different_seeds_give_different_runs() {
    let runs: BTreeSet<Vec<String>> = (0..10).map(trace).collect();
    assert!(runs.len() >= 2, "{} distinct runs", runs.len());
}

/// A deadlock is reported with the seed and the tree.
#[test]
fn test_2_a_deadlock_is_reported_with_the_seed_and_the_tree() {
    let words = words_of(|| {
        let mut sim = Sim::seeded(4711);
        let ended = sim.run(async {
            scope(async |s| {
                s.task("waits for ever").spawn(park()).await?;
                Ok(())
            })
            .await
        });
        panic!("it ended: {ended:?}");
    });
    assert!(words.starts_with("deadlock: "), "{words}");
    assert!(words.contains("seed 4711"), "{words}");
    let tree: Vec<&str> = words.lines().skip(1).collect();
    assert_eq!(tree.len(), 4, "{words}");
    assert!(tree[0].starts_with("root \"root\""), "{words}");
    assert!(tree[1].contains("task \"main\""), "{words}");
    assert!(tree[2].contains("scope \""), "{words}");
    assert!(tree[3].contains("task \"waits for ever\""), "{words}");
    assert!(tree[3].contains("waits on park at "), "{words}");
}

/// Two tasks that wait for each other in foreign awaits are a deadlock too.
#[test]
fn test_2_a_deadlock_in_foreign_awaits_is_reported() {
    let words = words_of(|| {
        let mut sim = Sim::seeded(12);
        let (left, right) = (Gate::new(), Gate::new());
        let ended = sim.run(async move {
            scope(async |s| {
                let (wait, open) = (left.clone(), right.clone());
                s.task("left").launch(async move {
                    wait.wait().await;
                    open.open();
                });
                let (wait, open) = (right.clone(), left.clone());
                s.task("right").launch(async move {
                    wait.wait().await;
                    open.open();
                });
                Ok(())
            })
            .await
        });
        panic!("it ended: {ended:?}");
    });
    assert!(words.contains("seed 12"), "{words}");
    for name in ["left", "right"] {
        let line = words
            .lines()
            .find(|line| line.contains(&format!("task \"{name}\"")));
        let line = line.unwrap_or_else(|| panic!("{name} is not listed: {words}"));
        assert!(line.contains("waits on a foreign await"), "{line}");
    }
}

/// A timer that the clock of a simulation cannot reach is never.
#[test]
fn test_2_a_timer_out_of_reach_is_a_deadlock() {
    let words = words_of(|| {
        let mut sim = Sim::seeded(6);
        let ended = sim.run(async {
            scope(async |s| {
                s.launch(sleep(Duration::from_millis(u64::MAX)));
                s.task("waits for ever").spawn(park()).await?;
                Ok(())
            })
            .await
        });
        panic!("it ended: {ended:?}");
    });
    assert!(words.starts_with("deadlock: "), "{words}");
    assert!(words.contains("waits for ever"), "{words}");
}

/// However far a simulation is moved on, it stops at the end of its clock.
#[test]
fn test_2_a_timer_out_of_reach_does_not_fire() {
    let mut sim = Sim::seeded(6);
    let never = sim.root().spawn(sleep(Duration::from_millis(u64::MAX)));
    sim.advance(SEC);
    sim.advance(Duration::MAX);
    assert_eq!(sim.elapsed(), Duration::from_nanos(u64::MAX));
    assert!(!never.is_ended());
    sim.finish();
}

/// A timer that is set is no deadlock, however far away.
#[test]
fn test_2_a_far_timer_is_no_deadlock() {
    let mut sim = Sim::seeded(5);
    let year = 365 * 24 * 3600 * SEC;
    let done = sim.run(async move {
        sleep(year).await?;
        Ok::<_, Error>(7)
    });
    assert_eq!(done.unwrap(), 7);
    assert_eq!(sim.elapsed(), year);
    sim.finish();
}

/// A task that wakes itself for ever is called a busy loop, soon, with its name, where
/// it was spawned, and the seed.
#[test]
fn test_2_a_busy_loop_is_named() {
    let words = words_of(|| {
        let mut sim = Sim::seeded(9);
        sim.run(async {
            let waits = Scope::current().unwrap().task("spinner").spawn(async {
                loop {
                    yield_now().await?;
                }
                #[allow(unreachable_code)]
                Ok::<_, Error>(())
            });
            waits.await
        })
        .unwrap();
    });
    assert!(words.starts_with("busy loop: "), "{words}");
    assert!(words.contains("spinner"), "{words}");
    assert!(words.contains("tests/simulation.rs:"), "{words}");
    assert!(words.contains("seed 9"), "{words}");
}

/// So is one of a foreign future, and one in `advance`.
#[test]
fn test_2_a_busy_loop_is_named_where_the_clock_is_moved_by_hand() {
    let words = words_of(|| {
        let mut sim = Sim::seeded(9);
        sim.root().task("spinner").launch(poll_fn(|cx| {
            cx.waker().wake_by_ref();
            Poll::<()>::Pending
        }));
        sim.advance(Duration::from_secs(1));
    });
    assert!(words.starts_with("busy loop: "), "{words}");
    assert!(words.contains("spinner"), "{words}");
}

/// A task that takes many turns at one instant while others wait is no busy loop.
#[test]
fn test_2_a_long_computation_is_no_busy_loop() {
    Sim::seeded(2)
        .run(async {
            for _ in 0..3_000_000 {
                checkpoint().await?;
            }
            Ok::<_, Error>(())
        })
        .unwrap();
}

/// A task that sleeps and looks again for what never comes ends long before the guard in real
/// time, and is named.
#[test]
fn test_2_a_wait_in_a_loop_is_named() {
    let found = words_of(|| {
        let mut sim = Sim::seeded(4);
        let flag = Arc::new(AtomicBool::new(false));
        let polls = sim.root().task("polls").spawn(async move {
            while !flag.load(SeqCst) {
                sleep(MS).await?;
            }
            Ok::<_, Error>(())
        });
        let _ = sim.run(polls);
    });
    assert!(found.contains("wait in a loop"), "{found}");
    assert!(
        found.contains("sleep and look again for ever: polls"),
        "{found}"
    );
    assert!(found.contains("tests/simulation.rs:"), "{found}");
    assert!(found.contains("seed 4"), "{found}");
}

/// A long wait in a loop is none, as long as something else goes on.
#[test]
fn test_2_a_wait_beside_jobs_that_come_and_go_is_none() {
    let mut sim = Sim::seeded(4);
    sim.root().launch(async {
        loop {
            sleep(MS).await?;
        }
        #[expect(unreachable_code)]
        Ok::<_, Error>(())
    });
    let goes_on = async {
        for _ in 0..3 {
            sleep(900 * SEC).await?;
            spawn(async {}).await?;
        }
        Ok::<_, Error>(())
    };
    sim.run(goes_on).unwrap();
}

/// A simulation by hand is red if a job of it has panicked and no handle took that.
#[test]
fn test_2_a_panic_that_no_handle_takes_fails_the_end() {
    let found = words_of(|| {
        let mut sim = Sim::seeded(4);
        let worker = sim.root().task("worker");
        worker.launch(async { assert_eq!(1 + 1, 3, "in a worker") });
        sim.settle();
        sim.finish();
    });
    assert!(
        found.contains("seed 4: the simulation left a failure"),
        "{found}"
    );
    assert!(
        found.contains("worker, spawned at tests/simulation.rs:"),
        "{found}"
    );
    assert!(found.contains("in a worker"), "{found}");
    // Taken, or heard by the test's own hook, it is none.
    let mut sim = Sim::seeded(4);
    let task = sim.root().spawn(async { assert_eq!(1 + 1, 3, "taken") });
    assert!(sim.wait_for(task.outcome()).unwrap().is_failed());
    sim.finish();
    let mut sim = Sim::builder(4).on_failure(|_| {}).build();
    sim.root().launch(async { assert_eq!(1 + 1, 3, "heard") });
    sim.settle();
    sim.finish();
}

/// A fault that a test asks for and that never comes would test nothing.
#[test]
fn test_2_a_fault_that_never_comes_fails_the_end() {
    let writes_once = |io: SimIo| {
        let mut sim = Sim::builder(4).io(io).build();
        sim.io().faults(OpKind::Write, 5, Fault::Late(MS));
        let body = async {
            let file = File::create("/a").await?;
            file.write_at("four", 0).await.0?;
            Ok::<_, Error>(())
        };
        sim.run(body).unwrap();
        sim.finish();
    };
    // Of those for the next five writes one is enough.
    writes_once(SimIo::new().fault(OpKind::Write, 1, Fault::Short));
    let found = words_of(|| writes_once(SimIo::new().fault(OpKind::Write, 3, Fault::NoSpace)));
    assert!(
        found.contains("seed 4") && found.contains("NoSpace of a Write, for which 2 more"),
        "{found}"
    );
}

/// The end of a simulation looks at what it has counted: here a timer that nothing gives up,
/// because the wait that set it was forgotten.
#[test]
fn test_2_what_was_forgotten_fails_the_end() {
    let found = words_of(|| {
        let mut sim = Sim::seeded(4);
        let forgets = async {
            let mut wait = Box::pin(sleep(SEC));
            poll_fn(|cx| Poll::Ready(wait.as_mut().poll(cx).is_pending())).await;
            std::mem::forget(wait);
            Ok::<_, Error>(())
        };
        sim.run(forgets).unwrap();
        sim.finish();
    });
    assert!(
        found.contains("seed 4: the simulation is over, and 1 timers"),
        "{found}"
    );
    assert!(found.contains("timers_set               1"), "{found}");
}

/// So does a file that is left open.
#[test]
fn test_2_a_file_that_is_left_open_fails_the_end() {
    let mut kept = None;
    let found = words_of(|| {
        let mut sim = Sim::seeded(4);
        kept = sim
            .run(async { Ok::<_, Error>(File::create("/tmp/left").await?) })
            .ok();
        sim.finish();
    });
    assert!(kept.is_some());
    assert!(found.contains("seed 4: 1 files are left open: "), "{found}");
    assert!(found.contains("file /tmp/left"), "{found}");
}

async fn leaves_a_job(lab: Lab) {
    lab.root().task("leftover").launch(park());
}

async fn leaves_a_cancelling_job(lab: Lab) {
    let job = lab.root().task("leftover").launch(async {
        let told = park().await;
        cleanup(sleep(SEC)).await?;
        told.map(drop).map_err(Error::from)
    });
    lab.settle().await;
    assert!(job.cancel("too late"));
}

async fn leaves_a_timer(_lab: Lab) {
    detach(sleep(SEC));
    sleep(MS).await.unwrap();
}

async fn leaves_nothing(_lab: Lab) {
    sleep(MS).await.unwrap();
}

/// Also: test-1.
#[test]
fn case_q11_a_case_that_leaves_a_job_fails_and_names_it() {
    let words = words_of(|| harness::on_sim("leaves_a_job", |lab| Box::pin(leaves_a_job(lab))));
    assert!(words.contains("left 1 jobs and 0 timers behind"), "{words}");
    assert!(words.contains("seed 0"), "{words}");
    assert!(words.contains("task \"leftover\""), "{words}");
}

/// Also: test-1.
#[test]
fn case_q11_a_job_that_is_cancelling_already_is_left_behind_too() {
    let words =
        words_of(|| harness::on_sim("cancelling", |lab| Box::pin(leaves_a_cancelling_job(lab))));
    assert!(words.contains("left"), "{words}");
    assert!(words.contains("task \"leftover\"  Cancelling"), "{words}");
    assert!(words.contains("too late"), "{words}");
}

/// Also: test-1.
#[test]
fn case_q11_a_timer_that_is_left_is_counted() {
    let words = words_of(|| harness::on_sim("leaves_a_timer", |lab| Box::pin(leaves_a_timer(lab))));
    assert!(words.contains("left 1 jobs and 1 timers behind"), "{words}");
    assert!(words.contains("simulation.rs"), "{words}");
    harness::on_sim("leaves_nothing", |lab| Box::pin(leaves_nothing(lab)));
}

/// A slow disk and a quick network, and the other way round.
#[test]
fn test_2_files_and_sockets_have_weather_of_their_own() {
    let slow = |options: SimIo| options.late(1.0, SEC);
    let never = Duration::ZERO;
    for (faults, slow_disk) in [
        (SimIo::new().for_files(slow), true),
        (SimIo::new().for_sockets(slow), false),
        (slow(SimIo::new()).for_sockets(|w| w.late(0.0, SEC)), true),
    ] {
        let mut sim = Sim::builder(7).io(faults).build();
        sim.run(async move {
            let begun = now();
            let file = File::create("/tmp/a").await?;
            file.write_all_at("abc", 0).await.0?;
            let disk = now() - begun;
            let (reader, writer) = pipe()?;
            writer.write_all("abc").await.0?;
            reader.read([0; 3]).await.0?;
            let wires = now() - begun - disk;
            assert_eq!((disk > never, wires > never), (slow_disk, !slow_disk));
            Ok::<_, Error>(())
        })
        .expect("no fault");
        sim.finish();
    }
}

/// The port of a process that was killed is free after some milliseconds.
#[test]
fn io_5_an_address_in_use_is_asked_for_again() {
    let mut sim = Sim::seeded(7);
    let ran = sim.run(scope(async |s| {
        let any = [TcpListener::bind("127.0.0.1:0").await?];
        let addr = any[0].local_addr()?;
        let udp = UdpSocket::bind("127.0.0.1:0").await?;
        let udp_addr = udp.local_addr()?;
        s.launch(async move {
            sleep(43 * MS).await?;
            drop((any, udp));
            Ok::<_, Error>(())
        });
        let began = now();
        let again = TcpListener::bind(addr).await?;
        assert!(now() - began >= 43 * MS);
        let other = UdpSocket::bind(udp_addr).await?;

        // One that is not given up is an error, in time.
        let began = now();
        let taken = TcpListener::bind(addr).await.expect_err("taken");
        assert_eq!(taken.kind(), ErrorKind::AddrInUse);
        assert!(now() - began < 200 * MS, "{:?}", now() - began);
        // Another that can be had is had at once.
        let began = now();
        let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        TcpListener::bind(&[addr, any][..]).await?;
        assert_eq!(now(), began);
        // And whoever waits hears.
        let told = timeout(5 * MS, TcpListener::bind(addr)).await;
        assert_eq!(
            told.expect_err("late").kind(),
            kinfolk_core::ErrorKind::TimedOut
        );
        assert!(now() - began < 10 * MS);
        drop((again, other));
        Ok(())
    }));
    ran.expect("sockets");
    sim.finish();
}

/// A simulation has as many pinned lanes as it was built with, and the seed says in which
/// order they go on.
#[test]
fn lane_5_a_simulation_has_the_lanes_it_was_built_with() {
    let mut orders = BTreeSet::new();
    for seed in 0..40 {
        let log = Log::new();
        let words = log.clone();
        let lanes = Sim::builder(seed).workers(3).build().run(async move {
            scope(async |s| {
                for lane in Pinned::all() {
                    let words = words.clone();
                    s.on(lane).launch(async move {
                        let here = Pinned::here().expect("a lane").lane();
                        assert_eq!(here, lane);
                        words.say(lane.0.to_string());
                    });
                }
                Ok(Pinned::all().len())
            })
            .await
        });
        assert_eq!(lanes.unwrap(), 3);
        orders.insert(log.text());
    }
    assert_eq!(orders.len(), 6, "{orders:?}");
    let refused = Sim::builder(1).workers(0).build().run(async {
        assert!(Pinned::here().is_none());
        on(Pinned(0), async {}).await
    });
    let words = refused.unwrap_err().to_string();
    assert!(words.contains("has no pinned lanes"), "{words}");
}
