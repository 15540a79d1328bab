//! Random families with timers and i/o, series too, cancelled and with faults, for a
//! while, on two workers: memory and open files stay as they are, no byte and no
//! connection is lost, and the counters balance.
//!
//! One test, alone in its process, because it looks at the memory and the open
//! files of all of it. CI runs two seconds of it, `scripts/soak` twenty minutes.

mod stopped_series;

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use kinfolk_core::{
    Error, Result, Scope, checkpoint, cleanup, race, scope, shield, sleep, spawn, timeout,
    yield_now,
};
use kinfolk_runtime::Runtime;
use kinfolk_runtime::fs::File;
use kinfolk_runtime::io::{IoDriver, at_most, pipe};
use kinfolk_runtime::net::{TcpListener, TcpStream};
use kinfolk_testkit::io::{Audit, FaultPlan, HeldPages, OpenFiles, Quarantine, SimIo};
use kinfolk_testkit::{Rng, guarded};
use stopped_series::{Place, accept, receive};

/// The memory of pools is watched after its end.
#[global_allocator]
static PAGES: HeldPages = HeldPages::new();

/// How often something panicked: families contain it, and nobody would see it.
static PANICS: AtomicUsize = AtomicUsize::new(0);

fn number(name: &str, otherwise: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// Resident memory of this process.
fn resident() -> u64 {
    let said = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = said.split(' ').nth(1).and_then(|word| word.parse().ok());
    pages.unwrap_or(0) * 4096
}

/// What all families share.
#[derive(Clone)]
struct Town {
    dir: PathBuf,
    server: std::net::SocketAddr,
    /// None where few operations may be under way at once: of these, both sides are
    /// ours, and one would wait for the place of the other.
    series: Option<Arc<Place>>,
}

type Piece = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

fn micros(rng: &mut Rng, most: usize) -> Duration {
    Duration::from_micros(rng.below(most) as u64)
}

/// Something to do. What a fault or a cancel makes of it does not matter: that
/// it ends, and leaves nothing, does.
fn piece(town: &Arc<Town>, rng: &mut Rng, depth: usize) -> Piece {
    let (town, mut rng) = (town.clone(), Rng::new(rng.next_u64()));
    let kinds = if depth == 0 { 8 } else { 14 };
    match rng.below(kinds) {
        0 => Box::pin(async move { Ok(sleep(micros(&mut rng, 500)).await?) }),
        1 => Box::pin(async move { talk(&town, &mut rng).await }),
        2 => Box::pin(async move { through_a_pipe(&mut rng).await }),
        3 => Box::pin(async move { write_and_read(&town, &mut rng).await }),
        4 => Box::pin(async move {
            for _ in 0..rng.below(50) {
                yield_now().await?;
            }
            Ok(())
        }),
        5 => Box::pin(async move {
            let told = sleep(micros(&mut rng, 2_000)).await;
            cleanup(sleep(micros(&mut rng, 50))).await?;
            Ok(told?)
        }),
        6 | 7 => Box::pin(async move {
            match &town.series {
                None => Ok(()),
                Some(place) if rng.below(2) == 0 => receive(place, &mut rng).await,
                Some(place) => accept(place, &mut rng).await,
            }
        }),
        8 => Box::pin(async move {
            let inner = piece(&town, &mut rng, depth - 1);
            timeout(micros(&mut rng, 1_000), inner).await
        }),
        9 => Box::pin(async move {
            let (one, two) = (
                piece(&town, &mut rng, depth - 1),
                piece(&town, &mut rng, depth - 1),
            );
            race((one, two)).await.map(drop)
        }),
        10 => Box::pin(async move { shield(piece(&town, &mut rng, depth - 1)).await }),
        11 => {
            let town = Town {
                series: None,
                ..Town::clone(&town)
            };
            let inner = piece(&Arc::new(town), &mut rng, depth - 1);
            Box::pin(async move { at_most(1 + rng.below(3), inner).await })
        }
        12 => Box::pin(async move {
            let task = spawn(piece(&town, &mut rng, depth - 1));
            yield_now().await?;
            task.cancel("soaked");
            drop(task.outcome().await?);
            Ok(())
        }),
        _ => Box::pin(async move { family(&town, &mut rng, depth - 1).await }),
    }
}

/// A scope with children of every sort.
async fn family(town: &Arc<Town>, rng: &mut Rng, depth: usize) -> Result<()> {
    let scope = Scope::named("family").supervisor();
    scope
        .run(async |s| {
            for _ in 0..1 + rng.below(4) {
                let child = piece(town, rng, depth);
                match rng.below(4) {
                    0 => drop(s.spawn(child)),
                    1 => drop(s.spawn_service(child).into_job()),
                    2 => s.spawn(child).await.unwrap_or(()),
                    _ => drop(s.launch(child)),
                }
            }
            Ok(())
        })
        .await
}

/// A client of the echo server, which may hang up at any time.
async fn talk(town: &Town, rng: &mut Rng) -> Result<()> {
    let stream = TcpStream::connect(town.server).await?;
    for _ in 0..rng.below(5) {
        let message = vec![7_u8; 1 + rng.below(2_000)];
        let (written, message) = stream.write_all(message).await;
        written?;
        let (read, back) = stream.read_exact(vec![0; message.len()]).await;
        read?;
        assert!(back == message, "an echo is what was said");
    }
    Ok(())
}

async fn through_a_pipe(rng: &mut Rng) -> Result<()> {
    let (reader, writer) = pipe()?;
    let read = reader.start_read(Vec::with_capacity(64));
    if rng.chance(0.7) {
        writer.write(vec![1; 1 + rng.below(64)]).await.0?;
    }
    match rng.below(3) {
        0 => drop(read),
        1 => {
            read.cancel();
            let _ = read.await;
        }
        _ => {
            drop(writer);
            let _ = read.await;
        }
    }
    Ok(())
}

async fn write_and_read(town: &Town, rng: &mut Rng) -> Result<()> {
    let path = town.dir.join(rng.below(8).to_string());
    let file = File::create(path).await?;
    let (written, buf) = file.write_all_at(vec![3_u8; 1 + rng.below(9_000)], 0).await;
    written?;
    checkpoint().await?;
    file.read_at(buf, 0).await.0?;
    if rng.chance(0.5) {
        file.close().await?;
    }
    Ok(())
}

/// Echoes until its scope ends.
async fn serve(listener: TcpListener) -> Result<()> {
    Scope::named("server")
        .supervisor()
        .run(async |s| {
            loop {
                // A fault may keep a connection from us.
                let Ok((stream, _)) = listener.accept().await else {
                    checkpoint().await?;
                    continue;
                };
                s.launch(async move {
                    let mut buf = Vec::with_capacity(4096);
                    loop {
                        let (read, back) = stream.read(buf).await;
                        if read? == 0 {
                            return Ok::<_, Error>(());
                        }
                        let (written, back) = stream.write_all(back).await;
                        written?;
                        buf = back;
                    }
                });
            }
        })
        .await
}

#[test]
fn io_3_soaked_for_a_while() {
    let seconds = number("KINFOLK_SOAK_SECONDS", 2);
    let seed = number("KINFOLK_SEED", 7);
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        PANICS.fetch_add(1, SeqCst);
        hook(panic);
    }));
    guarded("soak", move |watched| {
        for driver in [IoDriver::Ring, IoDriver::Readiness] {
            println!("{driver:?}, seed {seed}, {} s", seconds / 2);
            soak(driver, seed, Duration::from_secs(seconds) / 2, |rt| {
                watched.watch(rt.tree());
            });
        }
    });
}

fn soak(driver: IoDriver, seed: u64, span: Duration, watch: impl FnOnce(&Runtime)) {
    let dir = std::env::temp_dir().join(format!("kinfolk-soak-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a scratch directory");
    let before = OpenFiles::now();
    let audit = Audit::new();
    let fault_plan = FaultPlan::new(SimIo::rough(), seed);
    let rt = {
        let audit = audit.clone();
        Runtime::builder()
            .workers(2)
            .io(driver)
            .wrap_io(move |driver| audit.watch(fault_plan.wrap(driver)))
            .on_failure(Box::new(|_| {}))
            .on_forced(Box::new(|_| {}))
            .build()
            .expect("a runtime")
    };
    watch(&rt);
    let handle = rt.handle().clone();
    let (scratch, quarantine) = (dir.clone(), Quarantine::at_most(1 << 20));
    let bufs = quarantine.clone();
    rt.block_on(async move {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let series = Arc::new(Place::new(scratch.clone(), bufs));
        let town = Arc::new(Town {
            series: Some(series.clone()),
            dir: scratch,
            server: listener.local_addr()?,
        });
        scope(async |s| {
            s.spawn_service(serve(listener)).into_job();
            let (mut rng, start) = (Rng::new(seed), Instant::now());
            let (mut rounds, mut warm) = (0_u64, None);
            while start.elapsed() < span {
                let families: Vec<_> = (0..16)
                    .map(|_| {
                        let (town, mut rng) = (town.clone(), Rng::new(rng.next_u64()));
                        s.spawn(async move {
                            let _ = family(&town, &mut rng, 3).await;
                        })
                    })
                    .collect();
                for family in families {
                    family.await?;
                }
                rounds += 1;
                if warm.is_none() && start.elapsed() > span / 5 {
                    warm = Some((resident(), OpenFiles::now().len()));
                }
            }
            // Connections that the server has not seen the end of yet.
            while handle.counters().living() > 6 {
                sleep(Duration::from_millis(1)).await?;
            }
            series.check().await?;
            let (memory, files) = warm.unwrap_or_default();
            let (now, open) = (resident(), OpenFiles::now().len());
            println!(
                "{rounds} rounds; memory {} KiB when warm, {} KiB at the end; files {files}, {open}",
                memory / 1024,
                now / 1024,
            );
            assert!(
                now < memory + memory / 4 + (16 << 20),
                "memory grows: {memory} bytes when warm, {now} at the end"
            );
            Ok(())
        })
        .await
    })
    .expect("it soaks");
    let tree = rt.tree().clone();
    let report = rt.shutdown(Duration::from_secs(5)).expect("a report");
    assert!(report.stragglers.is_empty(), "{report}");
    audit.check();
    assert_eq!(quarantine.living(), 0, "a buffer was lost");
    quarantine.check();
    PAGES.check();
    let counters = tree.counters();
    assert_eq!(counters.living(), 0, "{counters}");
    assert_eq!(counters.timers_pending(), 0, "{counters}");
    println!(
        "{} operations begun, {} over; {counters}",
        audit.submitted(),
        audit.completed()
    );
    before.assert_no_more();
    assert_eq!(PANICS.load(SeqCst), 0, "panics, as printed above");
    std::fs::remove_dir_all(&dir).expect("the scratch directory");
}
