//! What only the simulation promises: the same run for the same seed, exact
//! times, and words for what is left behind.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use kinfolk_core::{Budget, Error, Main, Result, now, scope, sleep, timeout};
use kinfolk_runtime::fs::File;
use kinfolk_runtime::io::{nop, pipe};
use kinfolk_testkit::io::{Fault, OpKind, SimIo};
use kinfolk_testkit::{Log, Sim, cancel_everywhere};

const MS: Duration = Duration::from_millis(1);

fn words_of(run: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(run)).expect_err("it did not panic");
    match panic.downcast::<String>() {
        Ok(words) => *words,
        Err(panic) => (*panic.downcast::<&str>().expect("words")).to_string(),
    }
}

/// Some jobs, a pipe between them, and what happened when.
fn run(seed: u64, log: &Log) {
    let mut sim = Sim::builder(seed).io(SimIo::rough()).build();
    let said = log.clone();
    sim.run(async move {
        let began = now();
        let (reader, writer) = pipe()?;
        let reader = Arc::new(reader);
        scope(async |s| {
            for who in 0..3 {
                let (reader, said) = (reader.clone(), said.clone());
                s.launch(async move {
                    loop {
                        let read = timeout(MS, async { Ok::<_, Error>(reader.read([0; 4]).await) });
                        let Ok((Ok(bytes), buf)) = read.await else {
                            said.say(format!("{who}:late@{:?}", now() - began));
                            continue;
                        };
                        if bytes == 0 {
                            return Ok::<_, Error>(());
                        }
                        said.say(format!("{who}:{:?}@{:?}", &buf[..bytes], now() - began));
                    }
                });
            }
            for n in 0..20_u8 {
                writer.write([n; 3]).await.0?;
                sleep(MS / 2).await?;
            }
            drop(writer);
            Ok::<_, Error>(())
        })
        .await
    })
    .expect("a pipe");
    sim.finish();
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let mut different = std::collections::BTreeSet::new();
    for seed in 0..20 {
        let (one, two) = (Log::new(), Log::new());
        run(seed, &one);
        run(seed, &two);
        assert_eq!(one.text(), two.text(), "seed {seed}");
        different.insert(one.text());
    }
    assert!(different.len() > 10, "seeds make a difference");
}

#[test]
fn a_late_operation_is_over_at_its_instant() {
    let late = SimIo::new().fault(OpKind::Other, 1, Fault::Late(3 * MS));
    let mut sim = Sim::builder(1).io(late).build();
    let task = sim.root().spawn(nop());
    sim.advance(2 * MS);
    assert!(!task.is_ended());
    sim.advance_to_before(MS);
    assert!(!task.is_ended());
    sim.advance(Duration::ZERO);
    assert!(task.is_ended());
    assert_eq!(sim.elapsed(), 3 * MS);
    drop(task);
    sim.finish();
}

#[test]
fn host_loops_get_their_completions() {
    for seed in 0..20 {
        let late = SimIo::new().late(1.0, MS);
        let mut sim = Sim::builder(seed).io(late).build();
        let task = sim.root().task("main lane").on(Main).spawn(async {
            for _ in 0..5 {
                nop().await?;
            }
            Ok::<_, Error>(())
        });
        for _ in 0..200 {
            sim.pump(Budget::Turns(1));
            let next = sim.start() + sim.elapsed() + MS;
            sim.run_expired(next);
        }
        assert!(task.is_ended(), "seed {seed}");
        drop(task);
        sim.finish();
    }
}

#[test]
fn who_waits_for_bytes_that_never_come_is_named() {
    let words = words_of(|| {
        let _ = Sim::seeded(1).run(async {
            let (reader, _writer) = pipe()?;
            reader.read(vec![0; 8]).await.0?;
            Ok::<_, Error>(())
        });
    });
    assert!(words.contains("no i/o will be over"), "{words}");
    assert!(words.contains("waits on i/o at"), "{words}");
}

#[test]
fn what_is_left_open_is_named() {
    let mut kept = None;
    let words = words_of(|| {
        let mut sim = Sim::seeded(1);
        let file = sim.run(async {
            let file = File::create("/tmp/left").await?;
            Ok::<_, Error>(file)
        });
        kept = file.ok();
        sim.finish();
    });
    assert!(kept.is_some());
    assert!(words.contains("1 files are left open"), "{words}");
    assert!(words.contains("file /tmp/left"), "{words}");
}

/// What is begun or dropped outside a turn reaches the kernel all the same.
#[test]
fn operations_of_nobody_s_turn() {
    let mut sim = Sim::seeded(3);
    let (reader, writer) = sim.run(async { Ok::<_, Error>(pipe()?) }).expect("a pipe");
    let mut read = Box::pin(reader.read(vec![0; 8]));
    sim.run(async move {
        let over = poll_fn(|cx| Poll::Ready(read.as_mut().poll(cx).is_ready())).await;
        assert!(!over);
        Ok::<_, Error>(read)
    })
    .map(drop)
    .expect("begun, and dropped out here");
    assert_eq!(sim.io().submitted(), 1);
    sim.settle();
    assert_eq!(sim.io().completed(), 1);
    drop((reader, writer));
    sim.finish();
}

#[test]
fn a_disk_can_be_looked_at() {
    let mut sim = Sim::seeded(1);
    let disk = sim.io();
    disk.put("/data/in", "abc");
    assert_eq!(disk.get("/data"), None, "a directory");
    sim.run(async {
        let from = File::open("/data/in").await?;
        let (read, buf) = from.read_at(Vec::with_capacity(8), 0).await;
        read?;
        let to = File::create("/data/out").await?;
        to.write_all_at(buf, 0).await.0?;
        Ok::<_, Error>(())
    })
    .expect("a copy");
    assert_eq!(disk.get("/data/out").as_deref(), Some(&b"abc"[..]));
    assert_eq!(disk.files(), ["/data/in", "/data/out"]);
    assert_eq!(disk.open_files(), [""; 0]);
    let words = words_of(|| disk.put("/data", "x"));
    assert!(words.contains("/data cannot be put on the disk"), "{words}");
    sim.finish();
}

async fn copies() -> Result<()> {
    let (reader, writer) = pipe()?;
    let file = File::create("/tmp/copy").await?;
    file.write_all_at("some words", 0).await.0?;
    let (read, buf) = file.read_exact_at(vec![0; 10], 0).await;
    read?;
    writer.write(buf).await.0?;
    let (read, _) = reader.read(vec![0; 10]).await;
    read?;
    file.close().await?;
    Ok(())
}

/// Stopped at each of its points, it leaves nothing open: `finish` looks.
#[test]
fn i_o_is_stopped_everywhere() {
    let went = cancel_everywhere(copies);
    assert!(went.points >= 6, "{went:?}");
    assert_eq!(went.forced, 0);
}

/// Everything that can go wrong by chance does, and is heard of.
#[test]
fn rates_of_errors_are_heard_of() {
    let stormy = || {
        SimIo::new()
            .would_block(0.2)
            .no_space(0.2)
            .too_many_files(0.2)
            .not_taken(0.1)
    };
    let mut heard = std::collections::BTreeSet::new();
    for seed in 0..50 {
        let mut sim = Sim::builder(seed).io(stormy()).build();
        let errors = sim.run(async {
            let mut errors = Vec::new();
            for _ in 0..5 {
                match pipe() {
                    Ok((_reader, writer)) => errors.push(writer.write("x").await.0.err()),
                    Err(error) => errors.push(Some(error)),
                }
                match File::create("/tmp/a").await {
                    Ok(file) => errors.push(file.write_at("x", 0).await.0.err()),
                    Err(error) => errors.push(Some(error)),
                }
            }
            Ok::<_, Error>(errors)
        });
        let errors = errors.expect("errors are no failure");
        heard.extend(
            errors
                .into_iter()
                .flatten()
                .filter_map(|e| e.raw_os_error()),
        );
        sim.finish();
    }
    let all = [libc::EAGAIN, libc::ENOMEM, libc::EMFILE, libc::ENOSPC];
    assert_eq!(heard, all.into());
}
