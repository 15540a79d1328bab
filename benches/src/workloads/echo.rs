//! Echo over TCP on this machine: a server on one thread, and clients in a process
//! of their own, the same for all. What counts is what the server spends.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use smol::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::contestant::{Bar, Bench, Contestant, Group, Target, Unit, native};
use crate::measure::per;
use crate::ways::{self, Way};

/// The first word of the command line of the clients' process.
pub const CLIENTS: &str = "--echo-clients";

const KIB_16: usize = 16 * 1024;

/// How many connections, how long a message, how many of them in all.
#[derive(Clone, Copy)]
struct Load {
    connections: usize,
    size: usize,
    messages: u64,
}

/// Of what the server spends.
const TARGETS: &[Target] = &[native(Bar::Of("tokio", 1.0))];

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
    let load = |connections, size, messages| Load {
        connections,
        size,
        // A test wants to see that it works.
        messages: if cfg!(test) {
            connections as u64
        } else {
            messages
        },
    };
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

/// Processor time of this process so far.
fn cpu() -> Duration {
    // SAFETY: all zeroes is a value of it, and it is a place for the answer.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let time = |t: libc::timeval| {
        Duration::from_secs(t.tv_sec as u64) + Duration::from_micros(t.tv_usec as u64)
    };
    time(usage.ru_utime) + time(usage.ru_stime)
}

/// Clients that were let loose on a server; what they say is collected once that
/// is done.
#[cfg(not(test))]
struct Clients(std::process::Child);

#[cfg(not(test))]
impl Clients {
    fn start(addr: SocketAddr, load: Load) -> Clients {
        let this = std::env::current_exe().expect("a program has a path");
        let child = std::process::Command::new(this)
            .args([CLIENTS, &addr.to_string()])
            .args([load.connections, load.size, load.messages as usize].map(|n| n.to_string()))
            .stdout(std::process::Stdio::piped())
            .spawn();
        Clients(child.expect("the clients start"))
    }

    fn said(self) -> String {
        let output = self.0.wait_with_output().expect("the clients end");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// A test is another program: its clients are a thread.
#[cfg(test)]
struct Clients(std::thread::JoinHandle<String>);

#[cfg(test)]
impl Clients {
    fn start(addr: SocketAddr, load: Load) -> Clients {
        let run = move || run_clients(addr, load).expect("the clients end");
        Clients(std::thread::spawn(run))
    }

    fn said(self) -> String {
        self.0.join().expect("the clients end")
    }
}

/// What a round comes to: the server's time and what the clients say.
struct Round {
    load: Load,
    cpu: Duration,
    clients: Clients,
}

impl Round {
    fn begin(addr: SocketAddr, load: Load) -> Round {
        Round {
            load,
            clients: Clients::start(addr, load),
            cpu: cpu(),
        }
    }

    fn end(self) -> Vec<f64> {
        let spent = cpu() - self.cpu;
        let said = self.clients.said();
        let mut numbers = vec![per(spent, self.load.messages)];
        numbers.extend(
            said.split_whitespace()
                .filter_map(|word| word.parse::<f64>().ok()),
        );
        assert_eq!(numbers.len(), 4, "the clients said {said:?}");
        numbers
    }
}

/// The process of the clients.
pub fn child(mut words: impl Iterator<Item = String>) -> Result<(), Box<dyn Error>> {
    let addr: SocketAddr = words.next().ok_or("an address")?.parse()?;
    let mut number = || Ok::<u64, Box<dyn Error>>(words.next().ok_or("a number")?.parse()?);
    let load = Load {
        connections: number()? as usize,
        size: number()? as usize,
        messages: number()?,
    };
    println!("{}", run_clients(addr, load)?);
    Ok(())
}

/// Everything that the clients do; the time for each message, and the times that
/// half of them and all but one in a hundred took at most.
fn run_clients(addr: SocketAddr, load: Load) -> io::Result<String> {
    let Load {
        connections,
        size,
        messages,
    } = load;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (wall, mut times) = runtime.block_on(async move {
        let mut streams = Vec::new();
        for _ in 0..connections {
            let stream = tokio::net::TcpStream::connect(addr).await?;
            stream.set_nodelay(true)?;
            streams.push(stream);
        }
        let start = Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for mut stream in streams {
            tasks.spawn(async move {
                let (message, mut back) = (vec![7_u8; size], vec![0_u8; size]);
                let mut times = Vec::new();
                for _ in 0..messages / connections as u64 {
                    let begin = Instant::now();
                    stream.write_all(&message).await?;
                    stream.read_exact(&mut back).await?;
                    times.push(begin.elapsed());
                }
                Ok::<_, io::Error>(times)
            });
        }
        let mut times = Vec::new();
        while let Some(done) = tasks.join_next().await {
            times.extend(done.expect("no panic")?);
        }
        Ok::<_, io::Error>((start.elapsed(), times))
    })?;
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_nanos();
    Ok(format!("{} {} {}", per(wall, messages), at(0.5), at(0.99)))
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

fn group(benches: [Bench; 4], load: Load) -> Group {
    let readiness = |body| {
        let rt = kinfolk_runtime::Runtime::builder()
            .workers(0)
            .io(kinfolk_runtime::io::IoDriver::Readiness)
            .build();
        let rt = rt.expect("a runtime");
        rt.block_on(body).expect("the body succeeds")
    };
    let contestants = vec![
        Contestant::ours(Way::NativeOne.name(), move || {
            Way::NativeOne.run(kinfolk(load))
        }),
        Contestant::variant("kinfolk, readiness", move || readiness(kinfolk(load))),
        Contestant::peer("tokio", move || ways::tokio_one(tokio_echo(load))),
        Contestant::peer("smol", move || {
            ways::smol_one(move |executor| smol_echo(executor, load))
        }),
    ];
    Group {
        benches: benches.into(),
        contestants,
        most_rounds: 9,
    }
}
