//! Gauges: what only one host can say. What all hosts say alike is a case of
//! the conformance suite.

use std::path::PathBuf;
use std::time::Duration;

use kinfolk_core::{Error, IoGauges, Task, Tree, all, current_job, park, sleep, spawn, yield_now};
use kinfolk_runtime::Runtime;
use kinfolk_runtime::fs::File;
use kinfolk_runtime::io::{IoDriver, PipeReader, nop, pipe};
use kinfolk_testkit::io::{Fault, FaultPlan, OpKind, SimIo};
use kinfolk_testkit::{Sim, guarded};
use kinfolk_tokio::Root;

const HOUR: Duration = Duration::from_secs(3600);

/// see-1: a wait is as old as it is, whatever was polled before it on that thread.
#[test]
fn see_1_a_wait_counts_from_its_own_poll() {
    let mut sim = Sim::seeded(1);
    let second = Duration::from_secs(1);
    sim.root().task("late").launch(async move {
        sleep(5 * second).await?;
        park().await
    });
    sim.settle();
    sim.advance(8 * second);
    let snapshot = sim.snapshot();
    let late = snapshot.find("late").and_then(|node| node.waits_on);
    let (_, _, waits_for) = late.expect("it waits");
    assert_eq!(waits_for, 3 * second, "{snapshot}");
}

/// see-3: the simulation knows its ready queue, and counts whom it polls.
#[test]
fn see_3_gauges_of_the_simulation() {
    let mut sim = Sim::seeded(1);
    assert_eq!(
        sim.tree().gauges().to_string(),
        "1 living, 0 runnable, 0 in ready, 0 in timers"
    );
    for _ in 0..3 {
        sim.root().launch(sleep(HOUR));
    }
    let tree = sim.tree().clone();
    let (tell, told) = std::sync::mpsc::channel();
    sim.root()
        .launch(async move { tell.send(tree.gauges()).unwrap() });
    assert_eq!(sim.tree().gauges().queue("ready"), Some(4));
    assert_eq!(sim.tree().gauges().runnable, Some(4));
    sim.settle();
    let inside = told.recv().unwrap();
    let queued = inside.queue("ready").unwrap();
    assert_eq!(inside.runnable, Some(queued + 1), "and the one that asks");
    let gauges = sim.tree().gauges();
    assert_eq!((gauges.living, gauges.runnable), (4, Some(0)));
    assert_eq!(gauges.next_deadline_in, Some(HOUR));
    assert_eq!(gauges.queue("timers"), Some(3));
    assert_eq!(gauges.queue("no such queue"), None);
    sim.finish();
}

/// see-3: on tokio, too, what waits for a turn is counted, wherever it lies.
#[test]
fn see_3_gauges_of_tokio_count_what_waits_for_a_turn() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let root = Root::builder().build();
        let sleeper = root.scope().spawn(sleep(HOUR));
        let parked = root.scope().spawn(park());
        let gauges = root.tree().gauges();
        assert_eq!((gauges.living, gauges.runnable), (3, Some(2)), "{gauges}");
        // The first was brought to the driver, which slept.
        let queues = (gauges.queue("drivers"), gauges.queue("injected"));
        assert_eq!(queues, (Some(1), Some(1)));
        while root.tree().gauges().queue("timers") != Some(1) {
            tokio::task::yield_now().await;
        }
        let gauges = root.tree().gauges();
        assert_eq!((gauges.living, gauges.runnable), (3, Some(0)));
        let left = gauges.next_deadline_in.unwrap();
        assert!(left <= HOUR && left > HOUR / 2, "{left:?}");
        assert!(gauges.queue("tokio's global queue").is_some());
        let inside = root.tree().clone();
        let (tell, told) = std::sync::mpsc::channel();
        let asks = async move {
            drop(spawn(park()));
            tell.send(inside.gauges()).unwrap();
        };
        root.run(asks).await.unwrap();
        let gauges = told.recv().unwrap();
        assert_eq!(gauges.runnable, Some(2), "the one that asks, and its child");
        assert_eq!(gauges.queue("drivers"), Some(1));
        drop((sleeper, parked));
        assert!(root.shutdown().await.unwrap().is_clean());
        let gauges = root.tree().gauges();
        assert_eq!((gauges.living, gauges.next_deadline_in), (0, None));
    });
}

/// Waits until the operations stand so: in flight, waiting.
async fn stand(tree: &Tree, wanted: (usize, usize)) -> Result<IoGauges, Error> {
    loop {
        let io = tree.gauges().io.expect("this host has i/o");
        if (io.in_flight, io.waiting) == wanted {
            return Ok(io);
        }
        yield_now().await?;
    }
}

/// Five reads of a pipe in one job, and so at one thread.
fn five(reader: &PipeReader) -> Task<Vec<usize>> {
    let reads = (0..5).map(|_| reader.read(vec![0; 1]));
    let reads: Vec<_> = reads.map(|read| async { read.await.0 }).collect();
    spawn(all(reads))
}

/// Five that a disk does not answer, in one job.
fn five_stuck(file: File) -> Task<Vec<usize>> {
    spawn(async move {
        let reads = (0..5).map(|_| file.read_at(vec![0; 1], 0));
        let reads: Vec<_> = reads.map(|read| async { read.await.0 }).collect();
        all(reads).await
    })
}

/// One that is served, five that take no room and come to their end, and five that are
/// cancelled with room for two. `stick` makes the next reads stuck.
async fn operations_are_counted(
    tree: Tree,
    driver: &'static str,
    path: PathBuf,
    stick: impl FnOnce(u64),
) -> Result<(), Error> {
    let io = tree.gauges().io.expect("this host has i/o");
    assert_eq!(io, IoGauges::default(), "nothing was begun yet");
    nop().await?;
    let io = stand(&tree, (0, 0)).await?;
    assert_eq!((io.driver, io.submitted), (Some(driver), 1));
    assert_eq!((io.completed, io.cancelled), (1, 0));

    // What waits for another side needs no room.
    let (reader, writer) = pipe()?;
    let task = five(&reader);
    stand(&tree, (5, 0)).await?;
    drop(writer);
    assert_eq!(task.await?, [0; 5], "the end");
    let counters = tree.counters();
    assert_eq!((counters.io_submitted, counters.io_completed), (6, 6));
    assert_eq!((counters.io_cancelled, counters.io_pending()), (0, 0));

    // A file that is opened, and is closed at the end of the task.
    let file = File::create(path).await?;
    // All of them: a read that waits may reach the driver when the first two are cancelled,
    // before its own cancel does.
    stick(5);
    let task = five_stuck(file);
    let io = stand(&tree, (2, 3)).await?;
    assert_eq!((io.submitted, io.completed, io.cancelled), (12, 7, 0));
    assert_eq!(tree.counters().io_pending(), 5);
    let words = tree.gauges().to_string();
    let wanted = format!(", 2 with {driver}, 3 before it");
    assert!(words.ends_with(&wanted), "{words}");
    task.cancel("enough");
    assert!(task.outcome().await?.is_cancelled());
    let io = stand(&tree, (0, 0)).await?;
    assert_eq!((io.submitted, io.completed, io.cancelled), (12, 12, 5));
    let words = tree.counters().to_string();
    assert!(words.contains("io_submitted             12"), "{words}");

    // Told before it begins, it is not begun.
    let late = spawn(async {
        current_job().expect("a job").cancel("already");
        nop().await
    });
    assert!(late.outcome().await?.is_cancelled());
    assert_eq!(tree.counters().io_submitted, 12);
    Ok(())
}

/// see-3: counters and gauges of i/o, on both drivers.
#[test]
fn see_3_operations_are_counted_by_driver() {
    guarded("operations_are_counted", |watched| {
        for (driver, name) in [
            (IoDriver::Ring, "io_uring"),
            (IoDriver::Readiness, "readiness"),
        ] {
            for workers in [0, 2] {
                let fault_plan = FaultPlan::new(SimIo::new(), 1);
                let wrapped = fault_plan.clone();
                let rt = Runtime::builder()
                    .workers(workers)
                    .io(driver)
                    .io_in_flight(2)
                    .wrap_io(move |driver| wrapped.wrap(driver))
                    .build()
                    .expect("a runtime");
                watched.watch(rt.tree());
                let tree = rt.tree().clone();
                let path = format!("kinfolk-gauges-{}-{workers}", std::process::id());
                let path = std::env::temp_dir().join(path);
                let stick = |count| fault_plan.faults(OpKind::Read, count, Fault::Stuck);
                let counted = operations_are_counted(tree, name, path.clone(), stick);
                let run = rt.block_on(counted);
                run.unwrap_or_else(|error| panic!("{name}, {workers} workers: {error:?}"));
                let report = rt.shutdown(Duration::from_secs(1)).expect("a report");
                assert!(report.is_clean(), "{report}");
                std::fs::remove_file(path).expect("the file");
            }
        }
    });
}

/// see-3: the same in the simulation.
#[test]
fn see_3_operations_of_the_simulation_are_counted() {
    for seed in 0..20 {
        let mut sim = Sim::builder(seed).io(SimIo::new().in_flight(2)).build();
        let tree = sim.tree().clone();
        let kernel = sim.io();
        let stick = move |count| kernel.faults(OpKind::Read, count, Fault::Stuck);
        let path = PathBuf::from("/tmp/file");
        sim.run(operations_are_counted(tree, "simulation", path, stick))
            .unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
        sim.finish();
    }
}

/// see-3: seen from outside, while the worker sleeps in its driver.
#[test]
fn see_3_operations_of_a_worker_that_sleeps_are_counted() {
    guarded("a_worker_that_sleeps", |watched| {
        for driver in [IoDriver::Ring, IoDriver::Readiness] {
            let rt = Runtime::builder()
                .workers(1)
                .io(driver)
                .build()
                .expect("a runtime");
            watched.watch(rt.tree());
            let task = rt.scope().spawn(async {
                let (reader, _writer) = pipe()?;
                five(&reader).await
            });
            let flying = || rt.tree().gauges().io.expect("i/o").in_flight;
            while flying() != 5 {
                std::thread::yield_now();
            }
            drop(task);
            let report = rt.shutdown(Duration::from_secs(1)).expect("a report");
            assert!(report.is_clean(), "{report}");
        }
    });
}
