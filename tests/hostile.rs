//! Hostile values: random small programs built from types whose destructor,
//! `Display`, `source`, wake or call panics, or asks, cancels, spawns into or
//! drops handles of the very job that they belong to; on every host.
//!
//! Nothing is said of how such a program ends, only that it does: no job, no
//! timer and no waiter is left, the counters balance, and every value was dropped
//! once.
//!
//! `hostile/types.rs` has the types, `hostile/program.rs` makes the programs, of the
//! steps in the files beside it. `scripts/hostile` runs many more of them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kinfolk_adapters::hyper::serve;
use kinfolk_core::{Budget, ErrorKind, Tree, blocking, launch, shield, sleep};
use kinfolk_runtime::Runtime;
use kinfolk_runtime::io::{
    BufReader, IoBuf, IoBufMut, ReadStream, Slice, StreamEnd, StreamRead, StreamWrite, WriteStream,
    copy, copy_bidirectional, pipe,
};
use kinfolk_testkit::{Rng, Sim, VirtualClock, guarded};
use kinfolk_tokio::Root;

#[path = "hostile/branches.rs"]
mod branches;
#[path = "hostile/children.rs"]
mod children;
#[path = "hostile/io.rs"]
mod io;
#[path = "hostile/locks.rs"]
mod locks;
#[path = "hostile/plain.rs"]
mod plain;
#[path = "hostile/program.rs"]
mod program;
#[path = "hostile/scopes.rs"]
mod scopes;
#[path = "hostile/types.rs"]
mod types;

use types::{HostileSink, Thing, World, foreign_thread};

fn number_from(variable: &str, default: u64) -> u64 {
    let set = std::env::var(variable).ok();
    set.map_or(default, |text| text.parse().expect("a number"))
}

/// How many programs a host runs.
fn programs() -> u64 {
    number_from("KINFOLK_HOSTILE", 300)
}

/// The seeds of a run: from `KINFOLK_SEED` on, so that each can be run alone.
fn seeds(count: u64) -> std::ops::Range<u64> {
    let first = number_from("KINFOLK_SEED", 0);
    first..first + count
}

/// The failure hook of every host: asks the error what a log would.
fn ask(error: &kinfolk_core::Error) {
    let _ = (error.to_string(), format!("{error:?}"), error.path().len());
}

/// One program, and a friend who waits until nothing is left of it: drops what
/// lies about, and cancels it in the end. The friend is the only other job.
async fn run(world: Arc<World>, tree: Tree) {
    let mut rng = Rng::new(world.seed());
    let body = program::steps(&world, rng.next_u64(), 4);
    let task = tree.root_scope().task("program").spawn(body);
    let job = task.job();
    world.put(Thing::Task(task));
    let cancelled_at = rng.below(60);
    // Much longer than any wait of a program takes, one after the other.
    for tick in 0..100_000 {
        if tick >= 3 {
            world.clear_shelf();
        }
        if tick == cancelled_at {
            job.cancel("enough");
        }
        if tick > cancelled_at && tree.counters().living() <= 2 {
            return;
        }
        sleep(Duration::from_millis(1))
            .await
            .expect("not cancelled");
    }
    panic!(
        "seed {}: it does not end\n{}",
        world.seed(),
        tree.snapshot()
    );
}

/// Nothing is left: all that was made is gone. On several threads the last hands
/// on a job let go a moment after its end is counted. `turn` turns the main lane: an
/// output of one of its tasks that is not taken is dropped there.
#[track_caller]
fn check(world: &World, tree: &Tree, turn: impl Fn()) {
    let since = Instant::now();
    let complaint = loop {
        // What is dropped may leave something behind.
        world.clear();
        turn();
        let counters = tree.counters();
        let left = counters.living() > 1
            || counters.timers_pending() != 0
            || counters.waiters_pending() != 0;
        let complaint = match left {
            true => Some(format!("left behind: {counters}")),
            false => world.complaint(),
        };
        match complaint {
            Some(_) if since.elapsed() < Duration::from_secs(5) => std::thread::yield_now(),
            complaint => break complaint,
        }
    };
    if let Some(complaint) = complaint {
        panic!("seed {}: {complaint}\n{}", world.seed(), tree.snapshot());
    }
}

#[test]
fn hostile_programs_end_on_the_simulation() {
    guarded("hostile_programs_end_on_the_simulation", |watched| {
        for seed in seeds(programs()) {
            let sink = HostileSink::of(seed);
            let mut sim = Sim::builder(seed).on_failure(ask).on_forced(|_| {});
            if let Some(sink) = &sink {
                sim = sim.sink(sink.clone());
            }
            let mut sim = sim.build();
            watched.watch(sim.tree());
            let world = World::new(seed, None, sink.as_deref());
            let tree = sim.tree().clone();
            let outcome = sim.outcome(run(world.clone(), tree.clone()));
            assert!(outcome.is_completed(), "seed {seed}: {outcome:?}");
            // A call that was called off is still in the queue.
            sim.settle();
            check(&world, &tree, || {});
            sim.finish();
        }
    });
}

/// Some programs on one runtime, one after the other.
const TOGETHER: usize = 20;

fn on_native(name: &'static str, workers: usize) {
    guarded(name, move |watched| {
        let seeds: Vec<u64> = seeds(programs()).collect();
        for seeds in seeds.chunks(TOGETHER) {
            let sink = HostileSink::of(seeds[0]);
            let mut rt = Runtime::builder()
                .workers(workers)
                .blocking_threads(2)
                .on_failure(Box::new(ask))
                .on_forced(Box::new(|_| {}))
                .clock(Arc::new(VirtualClock::new()));
            if let Some(sink) = &sink {
                rt = rt.sink(sink.clone());
            }
            let rt = rt.build().expect("a runtime");
            watched.watch(rt.tree());
            let foreign = foreign_thread();
            for &seed in seeds {
                let world = World::new(seed, Some(foreign.clone()), sink.as_deref());
                let body = run(world.clone(), rt.tree().clone());
                let main = rt.scope().task("main").spawn(body);
                let ended = rt.wait_for(main).expect("outside any job");
                ended.unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
                check(&world, rt.tree(), || drop(rt.pump(Budget::Turns(100))));
            }
            let report = rt.shutdown(Duration::from_secs(5)).expect("outside");
            assert!(report.stragglers.is_empty(), "{report}");
        }
    });
}

#[test]
fn hostile_programs_end_without_workers() {
    on_native("hostile_programs_end_without_workers", 0);
}

#[test]
fn hostile_programs_end_on_one_worker() {
    on_native("hostile_programs_end_on_one_worker", 1);
}

#[test]
fn hostile_programs_end_on_two_workers() {
    on_native("hostile_programs_end_on_two_workers", 2);
}

#[test]
fn hostile_programs_end_on_eight_workers() {
    on_native("hostile_programs_end_on_eight_workers", 8);
}

fn on_tokio(name: &'static str, make: fn() -> tokio::runtime::Runtime) {
    guarded(name, move |watched| {
        let seeds: Vec<u64> = seeds(programs()).collect();
        for seeds in seeds.chunks(TOGETHER) {
            make().block_on(async {
                let sink = HostileSink::of(seeds[0]);
                let mut root = Root::builder()
                    .on_failure(Box::new(ask))
                    .on_forced(Box::new(|_| {}))
                    .clock(Arc::new(VirtualClock::new()));
                if let Some(sink) = &sink {
                    root = root.sink(sink.clone());
                }
                let root = root.build();
                watched.watch(root.tree());
                let foreign = foreign_thread();
                for &seed in seeds {
                    let world = World::new(seed, Some(foreign.clone()), sink.as_deref());
                    let ended = root.run(run(world.clone(), root.tree().clone())).await;
                    ended.unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
                    check(&world, root.tree(), || {});
                }
                let report = root.shutdown_in(Duration::from_secs(5)).await;
                let report = report.expect("outside any job");
                assert!(report.stragglers.is_empty(), "{report}");
            });
        }
    });
}

#[test]
fn hostile_programs_end_on_a_tokio_thread() {
    on_tokio("hostile_programs_end_on_a_tokio_thread", || {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a tokio runtime")
    });
}

#[test]
fn hostile_programs_end_on_tokio_workers() {
    on_tokio("hostile_programs_end_on_tokio_workers", || {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_time()
            .build()
            .expect("a tokio runtime")
    });
}

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        std::panic::resume_unwind(Box::new("a bomb"))
    }
}

/// The value of a call whose waiter is gone goes off on the thread of the pool.
/// There is one thread, and it is still there.
#[test]
fn io_5_hostile_calls_cost_no_thread() {
    guarded("io_5_hostile_calls_cost_no_thread", |_| {
        let rt = Runtime::builder()
            .workers(1)
            .blocking_threads(1)
            .build()
            .expect("a runtime");
        rt.block_on(async {
            for _ in 0..3 {
                let (begun, wait) = std::sync::mpsc::channel();
                let (go_on, told) = std::sync::mpsc::channel::<()>();
                let mut call = Box::pin(blocking(move |_| {
                    let _ = begun.send(());
                    let _ = told.recv();
                    Bomb
                }));
                std::future::poll_fn(|cx| {
                    assert!(call.as_mut().poll(cx).is_pending());
                    std::task::Poll::Ready(())
                })
                .await;
                wait.recv().expect("it has begun");
                drop(call);
                drop(go_on);
                blocking(|_| ()).await?;
            }
            Ok::<_, kinfolk_core::Error>(())
        })
        .expect("each was made");
        let report = rt.shutdown(Duration::from_secs(5)).expect("outside");
        assert!(report.is_clean(), "{report}");
    });
}

/// A stream whose operations never end. All of it goes off when it is dropped.
struct MinedStream(Bomb);

impl ReadStream for MinedStream {
    fn read_into(&self, _: Vec<u8>) -> StreamRead {
        let bomb = Bomb;
        StreamRead::new(async move {
            let _bomb = bomb;
            std::future::pending().await
        })
    }
}

impl WriteStream for MinedStream {
    fn write_from(&self, _: Slice<Vec<u8>>) -> StreamWrite {
        unreachable!("nothing is read")
    }

    fn end(&self) -> StreamEnd {
        unreachable!("nothing is read")
    }
}

/// Polls `future` once, and drops it half-way. What a second destructor that panics in one
/// unwinding would do to the process cannot be caught.
async fn dropped_half_way(future: impl Future) {
    let mut future = Box::pin(future);
    std::future::poll_fn(|cx| {
        assert!(future.as_mut().poll(cx).is_pending());
        std::task::Poll::Ready(())
    })
    .await;
    types::drop_alone(future);
}

/// Both streams of a copy go off when it is dropped, and so do the operations of both.
#[test]
fn io_7_streams_of_a_copy_that_go_off_are_dropped_one_by_one() {
    let rt = Runtime::builder().workers(0).build().expect("a runtime");
    rt.block_on(async {
        let (a, b) = (MinedStream(Bomb), MinedStream(Bomb));
        dropped_half_way(copy_bidirectional(a, b)).await;
        dropped_half_way(copy(MinedStream(Bomb), MinedStream(Bomb))).await;
        let mut reader = BufReader::new(MinedStream(Bomb));
        dropped_half_way(reader.read_line()).await;
        types::drop_alone(reader);
    })
    .expect("outside any job");
}

/// A connection and the closure that is to stop it go off together.
#[test]
fn io_5_a_connection_and_its_stop_that_go_off_are_dropped_one_by_one() {
    let rt = Runtime::builder().workers(0).build().expect("a runtime");
    rt.block_on(async {
        let (connection, stop) = (Bomb, Bomb);
        let serving = serve(
            async move {
                let _connection = connection;
                std::future::pending::<Result<(), std::io::Error>>().await
            },
            move |_| drop(stop),
        );
        dropped_half_way(serving).await;
    })
    .expect("outside any job");
}

/// A buffer that panics when it is filled, and when it is dropped.
struct MinedBuf(Vec<u8>, Bomb);

// SAFETY: as that of `Vec`, whose bytes these are.
unsafe impl IoBuf for MinedBuf {
    fn ptr(&self) -> *const u8 {
        self.0.ptr()
    }

    fn filled(&self) -> usize {
        self.0.filled()
    }
}

// SAFETY: as above.
unsafe impl IoBufMut for MinedBuf {
    fn ptr_mut(&mut self) -> *mut u8 {
        self.0.ptr_mut()
    }

    fn room(&self) -> usize {
        self.0.room()
    }

    unsafe fn set_filled(&mut self, _: usize) {
        std::panic::resume_unwind(Box::new("filled"))
    }
}

/// A buffer that panics when it is filled fails the body that waits for it, and none if the
/// wait is gone; what its destructor does meanwhile ends there.
#[test]
fn io_3_a_buffer_that_goes_off_twice_fails_its_body_alone() {
    guarded(
        "io_3_a_buffer_that_goes_off_twice_fails_its_body_alone",
        |_| {
            let rt = Runtime::builder().workers(1).build().expect("a runtime");
            rt.block_on(async {
                let mined = || MinedBuf(Vec::with_capacity(4), Bomb);
                let (reader, writer) = pipe()?;
                writer.write(vec![1; 4]).await.0?;
                let reads = shield(async { drop(reader.read(mined()).await) });
                assert_eq!(reads.await.unwrap_err().kind(), ErrorKind::Panicked);
                writer.write(vec![1; 4]).await.0?;
                let mut buffered = BufReader::new(&reader);
                let reads = shield(async { drop(buffered.read(mined()).await) });
                assert_eq!(reads.await.unwrap_err().kind(), ErrorKind::Panicked);
                // Given up, and then filled.
                dropped_half_way(reader.read(mined())).await;
                writer.write(vec![1; 4]).await.0?;
                drop((reader, writer));
                Ok::<_, kinfolk_core::Error>(())
            })
            .expect("the worker goes on");
            let report = rt.shutdown(Duration::from_secs(5)).expect("outside");
            assert!(report.is_clean(), "{report}");
        },
    );
}

/// As many failures as there are workers and more, each with an error that goes
/// off: every worker is still there.
#[test]
fn outcome_1_hostile_errors_cost_no_worker() {
    #[derive(Debug)]
    struct Mine;
    impl std::fmt::Display for Mine {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a mine")
        }
    }
    impl std::error::Error for Mine {}
    impl Drop for Mine {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new("a mine"))
        }
    }
    guarded("outcome_1_hostile_errors_cost_no_worker", |_| {
        let rt = Runtime::builder()
            .workers(2)
            .on_failure(Box::new(|_| {}))
            .build()
            .expect("a runtime");
        for _ in 0..20 {
            rt.scope().launch(async { Err::<(), _>(Mine) });
        }
        let ended = rt.wait_for(rt.scope().spawn(async {
            for _ in 0..20 {
                launch(async {}).join().await?.completed();
            }
            Ok::<_, kinfolk_core::Error>(())
        }));
        ended.expect("outside").expect("the workers go on");
        let report = rt.shutdown(Duration::from_secs(5)).expect("outside");
        assert!(report.is_clean(), "{report}");
    });
}

/// The friend hears of a value that was dropped twice or not at all.
#[test]
fn a_value_that_is_not_dropped_is_noticed() {
    let world = World::new(1, None, None);
    let value = types::Value::new(&world, &mut Rng::new(3));
    assert!(world.complaint().is_some());
    drop(catch_unwind(AssertUnwindSafe(|| drop(value))));
    assert_eq!(world.complaint(), None);
}
