//! Operations on files and pipes, and series on sockets, that are awaited, dropped,
//! cancelled and timed out at random. Afterwards every operation that was begun is
//! over, every buffer was given back and not touched again, no byte of a stream is
//! missing, and no file is open.
//!
//! One test, alone in its process, because it counts the open files. CI runs a
//! few thousand operations, `scripts/io-random` a million.

mod io_support;
mod stopped_series;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use io_support::drivers;
use kinfolk_core::{Error, Result, scope};
use kinfolk_runtime::Runtime;
use kinfolk_runtime::fs::File;
use kinfolk_runtime::io::{
    IoBuf, IoDriver, PipeReader, PipeWriter, RegisteredBufs, nop, pipe, registered,
};
use kinfolk_testkit::io::{Audit, FaultPlan, HeldPages, OpenFiles, Quarantine, SimIo};
use kinfolk_testkit::{Rng, Sim, guarded};
use stopped_series::{MOST_BYTE, Operation, Place, accept, end, receive};

/// The memory of pools is watched after its end, as that of single buffers is.
#[global_allocator]
static PAGES: HeldPages = HeldPages::new();

/// Jobs that operate at the same time.
const JOBS: u64 = 16;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// How many on each driver, for each number of workers.
fn operations() -> u64 {
    number("KINFOLK_IO_OPS").unwrap_or(4_000)
}

/// How many on the simulation in each fault_plan: as many, unless `KINFOLK_SIM_OPS`
/// says.
fn simulated_operations() -> u64 {
    number("KINFOLK_SIM_OPS").unwrap_or_else(operations)
}

/// How many workers, beside none at all: two, unless `KINFOLK_WORKERS` says.
fn workers() -> usize {
    number("KINFOLK_WORKERS").map_or(2, |workers| workers as usize)
}

/// What all jobs share.
struct Yard {
    dir: PathBuf,
    quarantine: Quarantine,
    registered: RegisteredBufs,
    pipes: Vec<(PipeReader, PipeWriter)>,
    file: File,
    left: AtomicU64,
}

/// Some operation.
fn operation(yard: &Yard, rng: &mut Rng) -> Operation {
    let (reader, writer) = &yard.pipes[rng.below(yard.pipes.len())];
    let len = 1 + rng.below(512);
    let at = rng.below(4096) as u64;
    let byte = rng.below(usize::from(MOST_BYTE)) as u8;
    let filled = |len: usize| yard.quarantine.filled(vec![byte; len]);
    let room = |len: usize| yard.quarantine.buf(len);
    let check = |read: std::io::Result<usize>, buf: &[u8]| {
        if read.is_ok() {
            let wrong = buf.iter().find(|byte| **byte >= MOST_BYTE);
            assert_eq!(wrong, None, "bytes of a buffer that was given back");
        }
    };
    // From a pool; sometimes from one that is gone before the operation is over.
    let from_pool = match rng.below(4) {
        0 => registered(1, 512).try_take(),
        _ => yard.registered.try_take(),
    };
    match rng.below(11) {
        0 | 1 => {
            let read = yard.file.read_at(room(len), at);
            Box::pin(async move {
                let (read, buf) = read.await;
                check(read, &buf);
            })
        }
        2 => {
            let write = yard.file.write_at(filled(len), at);
            Box::pin(async move { drop(write.await) })
        }
        3 | 4 => {
            let read = reader.read(room(len));
            Box::pin(async move {
                let (read, buf) = read.await;
                check(read, &buf);
            })
        }
        5 => {
            let write = writer.write(filled(len));
            Box::pin(async move { drop(write.await) })
        }
        6 => {
            let open = File::create(yard.dir.join(format!("{}", rng.below(4))));
            let (buf, closes) = (filled(len), rng.below(2) == 0);
            Box::pin(async move {
                if let Ok(file) = open.await {
                    drop(file.write_at(buf, 0).await);
                    if closes {
                        let _ = file.close().await;
                    }
                }
            })
        }
        7 | 8 => match from_pool {
            Some(buf) => {
                let read = yard.file.read_at(buf.slice(..len), at);
                Box::pin(async move {
                    let (read, buf) = read.await;
                    let bytes = *read.as_ref().unwrap_or(&0);
                    check(read, &buf[..bytes]);
                })
            }
            None => Box::pin(async { drop(nop().await) }),
        },
        9 => match from_pool {
            Some(mut buf) => {
                buf.fill(byte);
                let write = yard.file.write_at(buf.slice(..len), at);
                Box::pin(async move { drop(write.await) })
            }
            None => Box::pin(async { drop(nop().await) }),
        },
        _ => Box::pin(async { drop(nop().await) }),
    }
}

/// How many buffers a pool has.
const POOL: u32 = 8;

/// Where the buffers come from.
#[derive(Clone)]
struct Bufs(Quarantine, RegisteredBufs);

impl Bufs {
    fn new() -> Bufs {
        Bufs(Quarantine::new(), registered(POOL, 512))
    }
}

async fn at_random(dir: PathBuf, bufs: Bufs, seed: u64, ops: u64) -> Result<()> {
    // In a storm it takes several attempts.
    let mut pipes = Vec::new();
    while pipes.len() < 4 {
        pipes.extend(pipe());
    }
    let file = loop {
        if let Ok(file) = File::create(dir.join("shared")).await {
            break file;
        }
    };
    let place = Arc::new(Place::new(dir.clone(), bufs.0.clone()));
    let series = place.clone();
    let yard = Arc::new(Yard {
        dir,
        quarantine: bufs.0,
        registered: bufs.1,
        pipes,
        file,
        left: AtomicU64::new(ops),
    });
    let shared = yard.clone();
    scope(async move |s| {
        for job in 0..JOBS {
            let (yard, place) = (shared.clone(), series.clone());
            s.launch(async move {
                let mut rng = Rng::new(seed ^ (job << 32));
                while yard
                    .left
                    .fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1))
                    .is_ok()
                {
                    match rng.below(24) {
                        0 => receive(&place, &mut rng).await?,
                        1 => accept(&place, &mut rng).await?,
                        _ => {
                            let operation = operation(&yard, &mut rng);
                            end(operation, &mut rng).await?;
                        }
                    }
                }
                Ok::<_, Error>(())
            });
        }
        Ok::<_, Error>(())
    })
    .await?;
    place.check().await
}

fn clean(what: &str, audit: &Audit, bufs: &Bufs) {
    let Bufs(quarantine, pool) = bufs;
    let free = pool.free();
    assert_eq!(free, POOL as usize, "{what}: a buffer of a pool was lost");
    println!("{what}: {audit:?}, {quarantine:?}");
    audit.check();
    assert_eq!(quarantine.living(), 0, "{what}: a buffer was lost");
    quarantine.check();
    PAGES.check();
}

/// Errors as well.
fn stormy() -> SimIo {
    SimIo::rough()
        .would_block(0.05)
        .no_space(0.05)
        .too_many_files(0.05)
        .not_taken(0.05)
}

fn on_sim(options: fn() -> SimIo, seeds: u64, ops: u64) {
    for seed in 0..seeds {
        // Enough room for all, or a queue.
        let room = if seed % 2 == 0 { 64 } else { 8 };
        let mut sim = Sim::builder(seed).io(options().in_flight(room)).build();
        let bufs = Bufs::new();
        sim.run(at_random("/tmp".into(), bufs.clone(), seed, ops))
            .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let audit = sim.io_audit();
        sim.finish();
        clean(&format!("simulation, seed {seed}"), &audit, &bufs);
    }
}

fn on_native(dir: &Path, driver: IoDriver, workers: usize, options: SimIo, ops: u64) {
    let before = OpenFiles::now();
    let (audit, bufs) = (Audit::new(), Bufs::new());
    let (seen, fault_plan) = (audit.clone(), FaultPlan::new(options, 1));
    let rt = Runtime::builder()
        .workers(workers)
        .io(driver)
        .io_in_flight(64)
        .wrap_io(move |driver| seen.watch(fault_plan.wrap(driver)))
        .build()
        .expect("a runtime");
    let main = at_random(dir.to_path_buf(), bufs.clone(), 1, ops);
    let main = rt.scope().task("main").spawn(main);
    let ended = rt.wait_for(main).expect("outside any job");
    ended.expect("operations at random");
    let report = rt.shutdown(Duration::from_secs(10)).expect("a report");
    assert!(report.stragglers.is_empty(), "{report}");
    let what = format!("{driver:?}, {workers} workers");
    clean(&what, &audit, &bufs);
    before.assert_no_more();
}

/// Also: io-1.
#[test]
fn io_3_dropped_cancelled_and_timed_out_at_random() {
    let ops = operations();
    guarded("at random", move |_| {
        for options in [SimIo::new, SimIo::rough, stormy] {
            on_sim(options, 10, simulated_operations() / 10);
        }
        let dir = std::env::temp_dir().join(format!("kinfolk-random-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a scratch directory");
        for (driver, _) in drivers() {
            for workers in [0, workers()] {
                on_native(&dir, driver, workers, SimIo::new(), ops);
            }
            on_native(&dir, driver, workers(), SimIo::rough(), ops / 10);
            on_native(&dir, driver, workers(), stormy(), ops / 10);
        }
        std::fs::remove_dir_all(&dir).expect("a scratch directory");
    });
}
