//! Echo over TCP on this machine: a server on one thread. What counts is what it
//! spends.

use smol::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::contestant::{Bar, Bench, Contestant, Group, Target, Unit, native};
use crate::ways::{self, Way};

use super::clients::{Load, Round, Talk};

const KIB_16: usize = 16 * 1024;

/// Ours that receives in chunks of a pool.
const CHUNKS: &str = "kinfolk, chunks";

/// Of what the server spends.
const TARGETS: &[Target] = &[
    native(Bar::Of("tokio", 1.0)),
    Target {
        contestant: CHUNKS,
        bar: Bar::Of("tokio", 1.0),
    },
];

/// The four numbers of a load.
macro_rules! benches {
    ($label:literal, $what:literal) => {
        [
            Bench {
                name: concat!("echo ", $label, ", server cpu"),
                what: concat!($what, " Processor time of the server."),
                per: "message",
                unit: Unit::Nanoseconds,
                targets: TARGETS,
            },
            Bench {
                name: concat!("echo ", $label, ", wall"),
                what: concat!($what, " Time of the whole, for all clients together."),
                per: "message",
                unit: Unit::Nanoseconds,
                targets: &[],
            },
            Bench {
                name: concat!("echo ", $label, ", p50"),
                what: concat!($what, " How long half of the messages take at most."),
                per: "message",
                unit: Unit::Nanoseconds,
                targets: &[],
            },
            Bench {
                name: concat!("echo ", $label, ", p99"),
                what: concat!($what, " How long all but one in a hundred take at most."),
                per: "message",
                unit: Unit::Nanoseconds,
                targets: &[],
            },
        ]
    };
}

pub fn groups() -> Vec<Group> {
    let load = |connections, size, messages| Load::new(connections, Talk::Echo(size), messages);
    vec![
        group(
            benches!("1 × 64 B", "One connection, 64 bytes to and fro."),
            load(1, 64, 10_000),
        ),
        group(
            benches!("64 × 64 B", "64 connections, 64 bytes to and fro."),
            load(64, 64, 64_000),
        ),
        group(
            benches!("64 × 16 KiB", "64 connections, 16 KiB to and fro."),
            load(64, KIB_16, 32_000),
        ),
        group(
            benches!("1000 × 64 B", "1,000 connections, 64 bytes to and fro."),
            load(1000, 64, 50_000),
        ),
    ]
}

async fn kinfolk(load: Load) -> kinfolk_core::Result<Vec<f64>> {
    use kinfolk_runtime::net::TcpListener;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let round = Round::begin(listener.local_addr()?, load);
    kinfolk_core::scope(async |scope| {
        for _ in 0..load.connections {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            scope.launch(async move {
                let mut buf = Vec::with_capacity(KIB_16);
                loop {
                    let (read, back) = stream.read(buf).await;
                    if read? == 0 {
                        return Ok::<_, kinfolk_core::Error>(());
                    }
                    let (written, back) = stream.write_all(back).await;
                    written?;
                    buf = back;
                }
            });
        }
        Ok(())
    })
    .await?;
    Ok(round.end())
}

/// One operation receives for as long as the connection is there, and buffers are
/// shared by all: what was received is sent back as it lies there.
async fn kinfolk_chunks(load: Load) -> kinfolk_core::Result<Vec<f64>> {
    use kinfolk_runtime::io::BufferPool;
    use kinfolk_runtime::net::TcpListener;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    // They may all receive at once, so it has as many as there are connections.
    let pool = BufferPool::new(load.connections.max(64), KIB_16);
    let round = Round::begin(listener.local_addr()?, load);
    kinfolk_core::scope(async |scope| {
        for _ in 0..load.connections {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let pool = pool.clone();
            scope.launch(async move {
                let mut chunks = stream.chunks(&pool);
                while let Some(chunk) = chunks.next().await {
                    stream.write_all(chunk?).await.0?;
                }
                Ok::<_, kinfolk_core::Error>(())
            });
        }
        Ok(())
    })
    .await?;
    Ok(round.end())
}

async fn tokio_echo(load: Load) -> Vec<f64> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("a listener");
    let round = Round::begin(listener.local_addr().expect("an address"), load);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..load.connections {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        stream.set_nodelay(true).expect("an option");
        tasks.spawn(async move {
            let mut buf = vec![0; KIB_16];
            loop {
                match stream.read(&mut buf).await.expect("bytes") {
                    0 => return,
                    n => stream.write_all(&buf[..n]).await.expect("room"),
                }
            }
        });
    }
    while tasks.join_next().await.is_some() {}
    round.end()
}

async fn smol_echo(executor: std::rc::Rc<smol::LocalExecutor<'static>>, load: Load) -> Vec<f64> {
    let listener = smol::net::TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("a listener");
    let round = Round::begin(listener.local_addr().expect("an address"), load);
    let mut tasks = Vec::new();
    for _ in 0..load.connections {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        stream.set_nodelay(true).expect("an option");
        tasks.push(executor.spawn(async move {
            let mut buf = vec![0; KIB_16];
            loop {
                match stream.read(&mut buf).await.expect("bytes") {
                    0 => return,
                    n => stream.write_all(&buf[..n]).await.expect("room"),
                }
            }
        }));
    }
    for task in tasks {
        task.await;
    }
    round.end()
}

async fn monoio_echo(load: Load) -> Vec<f64> {
    use monoio::io::{AsyncReadRent, AsyncWriteRentExt};
    let listener = monoio::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
    let round = Round::begin(listener.local_addr().expect("an address"), load);
    let mut tasks = Vec::new();
    for _ in 0..load.connections {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        stream.set_nodelay(true).expect("an option");
        tasks.push(monoio::spawn(async move {
            let mut buf = Vec::with_capacity(KIB_16);
            loop {
                let (read, back) = stream.read(buf).await;
                if read.expect("bytes") == 0 {
                    return;
                }
                let (written, back) = stream.write_all(back).await;
                written.expect("room");
                buf = back;
            }
        }));
    }
    for task in tasks {
        task.await;
    }
    round.end()
}

async fn compio_echo(load: Load) -> Vec<f64> {
    use compio::BufResult;
    use compio::io::{AsyncRead, AsyncWriteExt};
    let listener = compio::net::TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("a listener");
    let round = Round::begin(listener.local_addr().expect("an address"), load);
    let mut tasks = Vec::new();
    for _ in 0..load.connections {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        stream.set_nodelay(true).expect("an option");
        tasks.push(compio::runtime::spawn(async move {
            let mut buf = Vec::with_capacity(KIB_16);
            loop {
                let BufResult(read, back) = stream.read(buf).await;
                if read.expect("bytes") == 0 {
                    return;
                }
                let BufResult(written, back) = stream.write_all(back).await;
                written.expect("room");
                buf = back;
                buf.clear();
            }
        }));
    }
    for task in tasks {
        task.await.expect("the task ends");
    }
    round.end()
}

fn group(benches: [Bench; 4], load: Load) -> Group {
    let contestants = vec![
        Contestant::ours(Way::NativeOne.name(), move || {
            Way::NativeOne.run(kinfolk(load))
        }),
        Contestant::ours(CHUNKS, move || Way::NativeOne.run(kinfolk_chunks(load))),
        Contestant::variant("kinfolk, readiness", move || {
            ways::native_readiness(kinfolk(load))
        }),
        Contestant::peer("tokio", move || ways::tokio_one(tokio_echo(load))),
        Contestant::peer("smol", move || {
            ways::smol_one(move |executor| smol_echo(executor, load))
        }),
        Contestant::peer("monoio", move || ways::monoio(monoio_echo(load))),
        Contestant::peer("compio", move || ways::compio(compio_echo(load))),
    ];
    Group {
        benches: benches.into(),
        contestants,
        most_rounds: 9,
    }
}
