//! The virtual clock and what it cannot see: threads of the program's own, and sockets
//! whose other side is about to answer. The cases that every host passes are in
//! `conformance/src/held_clock.rs`.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use kinfolk_core::kit::{Work, completion};
use kinfolk_core::{Budget, Error, ErrorKind, now, park, scope, sleep, spawn, timeout};
use kinfolk_runtime::io::IoDriver;
use kinfolk_runtime::net::{TcpListener, TcpStream};
use kinfolk_runtime::{Runtime, io};
use kinfolk_testkit::{Sim, VirtualClock, guarded};
use kinfolk_tokio::Root;

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Runs `case` on native runtimes with virtual time: with no workers and with two, on
/// either driver.
fn on_native(name: &'static str, case: fn(&Runtime)) {
    guarded(name, move |watched| {
        for driver in [IoDriver::Ring, IoDriver::Readiness] {
            for workers in [0, 2] {
                let rt = Runtime::builder()
                    .workers(workers)
                    .io(driver)
                    .clock(Arc::new(VirtualClock::new()))
                    .build()
                    .unwrap();
                watched.watch(rt.tree());
                case(&rt);
            }
        }
    });
}

async fn pair() -> Result<(TcpStream, TcpStream), Error> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let client = TcpStream::connect(listener.local_addr()?).await?;
    Ok((client, listener.accept().await?.0))
}

async fn echo(stream: TcpStream) -> Result<(), Error> {
    loop {
        let (read, buf) = stream.read(Vec::with_capacity(16)).await;
        if read? == 0 {
            return Ok(());
        }
        stream.write_all(buf).await.0?;
    }
}

/// A client and a server in one test: no deadline fires while bytes are on their way
/// between them, however short it is.
#[test]
fn test_1_the_clock_does_not_jump_over_an_answer_on_a_socket() {
    on_native("the_clock_does_not_jump_over_a_socket", |rt| {
        rt.block_on(async {
            let (client, server) = pair().await?;
            let server = spawn(echo(server));
            let began = now();
            for n in 0..200_u8 {
                let answer = async {
                    client.write_all(vec![n]).await.0?;
                    let (read, buf) = client.read_exact(vec![0]).await;
                    read?;
                    Ok::<_, Error>(buf)
                };
                assert_eq!(timeout(Duration::from_nanos(1), answer).await?, [n]);
            }
            assert_eq!(now(), began, "the clock has moved");
            drop(client);
            server.await
        })
        .unwrap();
    });
}

/// If both sides wait for each other, time goes on: a timeout around a read fires, at
/// its instant and at once in real time.
#[test]
fn test_1_a_timeout_around_a_silent_socket_fires() {
    on_native("a_timeout_around_a_silent_socket", |rt| {
        let real = Instant::now();
        rt.block_on(async {
            let (client, server) = pair().await?;
            let began = now();
            let other = spawn(async move { server.read(vec![0; 8]).await.0 });
            let silent = timeout(HOUR, async {
                client.read(vec![0; 8]).await.0?;
                Ok::<_, Error>(())
            });
            assert_eq!(silent.await.unwrap_err().kind(), ErrorKind::TimedOut);
            assert_eq!(now(), began + HOUR);
            drop(client);
            assert_eq!(other.await?, 0);
            Ok::<_, Error>(())
        })
        .unwrap();
        assert!(real.elapsed() < Duration::from_secs(10));
    });
}

/// Sockets that wait and are quiet do not make each jump of the clock cost a moment.
#[test]
fn test_1_a_quiet_listener_costs_time_once() {
    on_native("a_quiet_listener", |rt| {
        let real = Instant::now();
        rt.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let accepts = spawn(async move { listener.accept().await.map(drop) });
            for _ in 0..5_000 {
                sleep(HOUR).await?;
            }
            accepts.cancel("over");
            let _ = accepts.outcome().await?;
            Ok::<_, Error>(())
        })
        .unwrap();
        // A moment each would be 25 s.
        assert!(real.elapsed() < Duration::from_secs(10));
    });
}

/// A pipe that another thread writes to is waited for while that thread holds the
/// clock.
#[test]
fn test_1_a_thread_that_writes_to_a_pipe_holds_the_clock() {
    on_native("a_thread_that_writes_to_a_pipe", |rt| {
        rt.block_on(async {
            let (reader, writer) = io::pipe()?;
            let (go, wait) = channel::<()>();
            let held = kinfolk_testkit::hold_clock();
            let began = now();
            let handle = spawn(async move {
                wait.recv().expect("a word");
                let wrote = writer.write_all("x").await.0;
                drop(held);
                wrote
            });
            go.send(()).expect("it waits");
            let (read, _) =
                timeout(MS, async { Ok::<_, Error>(reader.read(vec![0]).await) }).await?;
            assert_eq!(read?, 1);
            assert_eq!(now(), began);
            handle.await
        })
        .unwrap();
    });
}

/// A shutdown waits for a thread that holds the clock for as long as its grace says, in
/// real time, and then goes on without it.
#[test]
fn shutdown_1_work_that_never_ends_does_not_keep_a_shutdown_for_ever() {
    let grace = 50 * MS;
    guarded("work_that_never_ends", move |watched| {
        let (keep, kept) = channel();
        let body = move || {
            let keep = keep.clone();
            async move {
                keep.send(Work::here(|| {})).expect("it is kept");
                park().await?;
                Ok::<_, Error>(())
            }
        };
        let mut sim = Sim::seeded(1);
        watched.watch(sim.tree());
        sim.root().launch(body());
        sim.settle();
        let mut works: Vec<_> = kept.try_iter().collect();
        let report = sim.shutdown(grace);
        assert!(!report.is_clean(), "{report}");

        for workers in [0, 2] {
            let rt = Runtime::builder()
                .workers(workers)
                .clock(Arc::new(VirtualClock::new()))
                .build()
                .unwrap();
            watched.watch(rt.tree());
            rt.scope().launch(body());
            while works.len() < 2 + workers / 2 {
                rt.pump(Budget::Turns(10)).unwrap();
                works.extend(kept.try_iter());
            }
            let report = rt.shutdown(grace).unwrap();
            assert!(!report.is_clean(), "{report}");
        }

        let tokio = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let report = tokio.block_on(async {
            let clock = Arc::new(VirtualClock::new());
            let root = Root::builder().clock(clock).build();
            watched.watch(root.tree());
            root.scope().launch(body());
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
            root.shutdown_in(grace).await.unwrap()
        });
        assert!(!report.is_clean(), "{report}");
        drop((works, kept));
    });
}

/// False in the test that was started: it runs again in a process of its own, in which a
/// test may take a second, which is read from the environment.
fn has_a_second(test: &str) -> bool {
    if std::env::var_os("KINFOLK_TEST_SECONDS").is_some() {
        return true;
    }
    let me = std::env::current_exe().expect("this test");
    let out = std::process::Command::new(me)
        .args([test, "--exact"])
        .env("KINFOLK_TEST_SECONDS", "1")
        .output()
        .expect("it runs");
    assert!(out.status.success(), "{out:?}");
    false
}

/// Whoever holds the clock of a simulation and neither answers nor lets go is named.
#[test]
fn test_1_a_clock_that_is_never_let_go_is_named() {
    if !has_a_second("test_1_a_clock_that_is_never_let_go_is_named") {
        return;
    }
    let held = std::panic::catch_unwind(|| {
        let mut sim = Sim::seeded(3);
        let _held = sim.hold_clock();
        sim.run(async { sleep(HOUR).await })
    });
    let words = *held.unwrap_err().downcast::<String>().expect("words");
    assert!(words.contains("the clock is still held by"), "{words}");
    assert!(words.contains("tests/held_clock.rs:"), "{words}");
    assert!(words.contains("seed 3"), "{words}");
}

/// To move the clock by hand waits for whatever holds it.
#[test]
fn test_1_advancing_waits_for_a_thread_that_holds_the_clock() {
    guarded("advancing_waits", |_| {
        let mut sim = Sim::seeded(5);
        let (answer, completer) = completion::<u32>();
        let task = sim
            .root()
            .spawn(async move { scope(async |_| Ok(timeout(MS, answer).await?)).await });
        let held = sim.hold_clock();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(5 * MS);
            completer.complete(7);
            drop(held);
        });
        sim.advance(HOUR);
        assert_eq!(sim.run(task).unwrap(), 7);
        thread.join().expect("it answers");
        sim.finish();
    });
}

/// A simulation that is finished while its clock is held for ever says where the hold was taken.
#[test]
fn test_1_a_hold_that_is_left_at_the_end_is_named() {
    if !has_a_second("test_1_a_hold_that_is_left_at_the_end_is_named") {
        return;
    }
    let held = std::panic::catch_unwind(|| {
        let sim = Sim::seeded(5);
        std::mem::forget(sim.hold_clock());
        sim.finish();
    });
    let words = *held.unwrap_err().downcast::<String>().expect("words");
    assert!(words.contains("the simulation is over"), "{words}");
    assert!(words.contains("tests/held_clock.rs:"), "{words}");
    assert!(words.contains("seed 5"), "{words}");
}

/// A thread that has answered and is about to let go of the clock is no mistake: the end of
/// the simulation waits for it.
#[test]
fn test_1_the_end_waits_for_a_thread_that_holds_the_clock() {
    guarded("the_end_waits", |_| {
        let mut sim = Sim::seeded(5);
        let (answer, completer) = completion::<u32>();
        let held = sim.hold_clock();
        let thread = std::thread::spawn(move || {
            completer.complete(7);
            std::thread::sleep(5 * MS);
            drop(held);
        });
        assert_eq!(sim.run(timeout(MS, answer)).unwrap(), 7);
        sim.finish();
        thread.join().expect("it answers");
    });
}
