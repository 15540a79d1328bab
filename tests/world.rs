//! What goes wrong in the world outside, in a simulation: each sort happens within a
//! few seeds, a correct program bears it, and the same seed gives the same run.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use kinfolk_core::{Error, Result, now, scope, sleep, spawn, timeout};
use kinfolk_runtime::fs::{self, File, OpenOptions};
use kinfolk_runtime::net::{TcpListener, TcpStream, UdpSocket};
use kinfolk_testkit::io::{Fault, OpKind, SimIo, SimKernel, machine_at};
use kinfolk_testkit::{Log, Sim, guarded};

const HERE: &str = "127.0.0.1:0";
const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// Runs it on so many seeds; how often it said yes.
fn yes<B: Future<Output = Result<bool>> + Send + 'static>(
    seeds: u64,
    io: fn() -> SimIo,
    body: fn(SimKernel) -> B,
) -> usize {
    let yes = Arc::new(AtomicUsize::new(0));
    let counted = yes.clone();
    guarded("world", move |watched| {
        for seed in 0..seeds {
            let mut sim = Sim::builder(seed).io(io()).build();
            watched.watch(sim.tree());
            let ran = sim.run(body(sim.io()));
            let said = ran.unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
            counted.fetch_add(usize::from(said), Relaxed);
            sim.finish();
        }
    });
    yes.load(Relaxed)
}

async fn pair() -> Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind(HERE).await?;
    let one = TcpStream::connect(listener.local_addr()?).await?;
    let (two, _) = listener.accept().await?;
    Ok((one, two))
}

/// The numbers that arrive of those from 0 to 9, in order.
async fn numbers() -> Result<Vec<u8>> {
    let (one, two) = (UdpSocket::bind(HERE).await?, UdpSocket::bind(HERE).await?);
    for number in 0..10 {
        one.send_to([number], two.local_addr()?).await.0?;
    }
    let mut got = Vec::new();
    while let Ok(Ok(number)) = timeout(SECOND, async {
        let (received, buf) = two.recv([0]).await;
        Ok::<_, Error>(received.map(|_| buf[0]))
    })
    .await
    {
        got.push(number);
    }
    Ok(got)
}

#[test]
fn messages_are_lost() {
    let io = || SimIo::new().lost(0.1);
    let lost = yes(20, io, |_| async { Ok(numbers().await?.len() < 10) });
    assert!((5..20).contains(&lost), "{lost}");
}

#[test]
fn messages_arrive_twice() {
    let io = || SimIo::new().doubled(0.1);
    let twice = yes(20, io, |_| async {
        let got = numbers().await?;
        let all: BTreeSet<u8> = got.iter().copied().collect();
        assert_eq!(all, (0..10).collect(), "none is lost");
        Ok(got.len() > 10)
    });
    assert!((5..20).contains(&twice), "{twice}");
}

#[test]
fn messages_overtake_each_other() {
    let io = || SimIo::new().late(0.5, MS).overtaken(0.2, 5 * MS);
    let disordered = yes(20, io, |_| async {
        let got = numbers().await?;
        assert_eq!(got.len(), 10, "none is lost");
        Ok(!got.is_sorted())
    });
    assert!((5..20).contains(&disordered), "{disordered}");
}

/// A question over UDP, asked until it is answered.
#[test]
fn who_asks_again_and_knows_the_answer_bears_it() {
    let io = || {
        SimIo::rough()
            .lost(0.3)
            .doubled(0.3)
            .overtaken(0.3, 50 * MS)
    };
    let answered = yes(100, io, |_| async {
        let server = UdpSocket::bind(HERE).await?;
        let addr = server.local_addr()?;
        let serves = spawn(async move {
            loop {
                let (asked, buf) = server.recv_from([0]).await;
                let (_, from) = asked?;
                server.send_to([buf[0], buf[0] * 2], from).await.0?;
            }
            #[allow(unreachable_code)]
            Ok::<_, Error>(())
        });
        let client = UdpSocket::bind(HERE).await?;
        for number in 0..5_u8 {
            loop {
                client.send_to([number], addr).await.0?;
                let answer = timeout(20 * MS, async {
                    loop {
                        let (received, buf) = client.recv([0; 2]).await;
                        // A late answer to another question is none.
                        if received? == 2 && buf[0] == number {
                            return Ok::<_, Error>(buf[1]);
                        }
                    }
                });
                if let Ok(answer) = answer.await {
                    assert_eq!(answer, number * 2);
                    break;
                }
            }
        }
        serves.cancel("enough");
        assert!(serves.outcome().await?.is_cancelled());
        Ok(true)
    });
    assert_eq!(answered, 100);
}

/// A pool that hands out a connection whose other side has closed: the first request is
/// taken and lost. Who waits for the answer finds out, and asks again.
#[test]
fn a_request_on_a_connection_that_was_closed_is_lost() {
    let lost = yes(20, SimIo::new, |_| async {
        let (one, two) = pair().await?;
        drop(two);
        let (written, _) = one.write("request").await;
        assert_eq!(written?, 7, "the system takes it");
        let (read, _) = one.read([0; 8]).await;
        assert_eq!(read?, 0, "and there is no answer");
        let again = one.write("request").await.0.expect_err("it knows now");
        assert_eq!(again.kind(), ErrorKind::BrokenPipe);
        Ok(true)
    });
    assert_eq!(lost, 20);
}

#[test]
fn connections_are_refused_and_time_out() {
    let io = || SimIo::new().refused(0.3).timed_out(0.3);
    let mut kinds = BTreeSet::new();
    for seed in 0..20 {
        let mut sim = Sim::builder(seed).io(io()).build();
        let failed = sim.run(async {
            let listener = TcpListener::bind(HERE).await?;
            let (addr, began) = (listener.local_addr()?, now());
            let mut failed = Vec::new();
            // Whoever tries again gets through.
            while let Err(error) = TcpStream::connect(addr).await {
                let took = now() - began;
                assert!(error.kind() != ErrorKind::TimedOut || took > 60 * SECOND);
                failed.push(error.kind());
            }
            Ok::<_, Error>(failed)
        });
        kinds.extend(
            failed
                .expect("it gets through")
                .iter()
                .map(|kind| format!("{kind:?}")),
        );
        sim.finish();
    }
    let both = ["ConnectionRefused", "TimedOut"].map(String::from);
    assert_eq!(kinds, both.into());
}

/// A connection that is gone before it was accepted is no reason to stop.
#[test]
fn a_server_goes_on_after_an_aborted_accept() {
    let io = || SimIo::rough().aborted(0.3);
    let aborted = yes(20, io, |_| async {
        let listener = TcpListener::bind(HERE).await?;
        let addr = listener.local_addr()?;
        let serves = spawn(async move {
            let mut aborted = false;
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => {
                        stream.write_all("hello").await.0?;
                        return Ok::<_, Error>(aborted);
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::ConnectionAborted);
                        aborted = true;
                    }
                }
            }
        });
        loop {
            let stream = TcpStream::connect(addr).await?;
            let (read, words) = stream.read_exact([0; 5]).await;
            match read {
                Ok(()) => break assert_eq!(&words, b"hello"),
                Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
            }
        }
        serves.await
    });
    assert!((3..20).contains(&aborted), "{aborted}");
}

/// Bytes that were sent before a reset may be lost, from some place on.
#[test]
fn connections_break() {
    let io = || SimIo::rough().resets(0.1);
    let broken = yes(50, io, |_| async {
        let (one, two) = pair().await?;
        let sends = spawn(async move {
            for number in 0..20_u8 {
                if let Err(error) = one.write_all([number]).await.0 {
                    let gone = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
                    assert!(gone.contains(&error.kind()), "{error}");
                    break;
                }
            }
        });
        let (mut got, mut broken) = (Vec::new(), false);
        loop {
            let (read, buf) = two.read([0; 8]).await;
            match read {
                Ok(0) => break,
                Ok(bytes) => got.extend_from_slice(&buf[..bytes]),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
                    broken = true;
                    break;
                }
            }
        }
        let expected: Vec<u8> = (0..got.len() as u8).collect();
        assert_eq!(got, expected, "the first of them, in order");
        drop(two);
        sends.await?;
        Ok(broken)
    });
    assert!((10..50).contains(&broken), "{broken}");
}

const SERVER: [u8; 4] = [10, 0, 0, 1];
const CLIENT: [u8; 4] = [10, 0, 0, 2];
const OTHER: [u8; 4] = [10, 0, 0, 3];

/// A connection between two machines.
async fn machines() -> Result<(TcpListener, TcpStream, TcpStream)> {
    let listener = machine_at(SERVER.into(), TcpListener::bind("0.0.0.0:80")).await?;
    let client = machine_at(CLIENT.into(), TcpStream::connect("10.0.0.1:80")).await?;
    let (served, from) = listener.accept().await?;
    assert_eq!(from.ip(), IpAddr::from(CLIENT));
    assert_eq!(served.local_addr()?.ip(), IpAddr::from(SERVER));
    Ok((listener, client, served))
}

#[test]
fn the_way_between_two_machines_takes_time() {
    let as_said = yes(20, SimIo::new, |net| async move {
        net.latency(SERVER.into(), CLIENT.into(), 30 * MS);
        let began = now();
        let (_listener, client, served) = machines().await?;
        assert_eq!(now() - began, 60 * MS, "there and back");
        client.write_all("ping").await.0?;
        client.write_all("!").await.0?;
        assert_eq!(now() - began, 60 * MS, "the system has it");
        let (read, words) = served.read_exact([0; 5]).await;
        read?;
        assert_eq!((&words, now() - began), (b"ping!", 90 * MS));
        drop(client);
        assert_eq!(served.read([0]).await.0?, 0);
        assert_eq!(now() - began, 120 * MS, "so does the end");
        // Others are not concerned.
        let other = machine_at(OTHER.into(), TcpStream::connect("10.0.0.1:80")).await?;
        assert_eq!((now() - began, other.peer_addr()?.port()), (120 * MS, 80));
        Ok(true)
    });
    assert_eq!(as_said, 20);
}

/// Nobody waits for what is on its way, and time goes on.
#[test]
fn bytes_arrive_while_nobody_waits_for_them() {
    let as_said = yes(20, SimIo::new, |net| async move {
        net.latency(SERVER.into(), CLIENT.into(), 30 * MS);
        let (_listener, client, served) = machines().await?;
        client.write_all("ping").await.0?;
        let from = machine_at(CLIENT.into(), UdpSocket::bind("0.0.0.0:0")).await?;
        let to = machine_at(SERVER.into(), UdpSocket::bind("0.0.0.0:53")).await?;
        from.send_to("ping", "10.0.0.1:53".parse().unwrap())
            .await
            .0?;
        let began = now();
        sleep(SECOND).await?;
        let (read, words) = served.read([0; 8]).await;
        assert_eq!(&words[..read?], b"ping");
        let (received, words) = to.recv([0; 8]).await;
        assert_eq!(&words[..received?], b"ping");
        // And some is still on its way at the end.
        client.write_all("pong").await.0?;
        Ok(now() - began == SECOND)
    });
    assert_eq!(as_said, 20);
}

#[test]
fn a_partition_holds_bytes_back_until_it_heals() {
    let as_said = yes(20, SimIo::new, |net| async move {
        let (listener, client, served) = machines().await?;
        let (one, two) = (IpAddr::from(SERVER), IpAddr::from(CLIENT));
        net.partition(one, two);
        client.write_all("held").await.0?;
        let wait = async { Ok::<_, Error>(served.read([0; 8]).await) };
        let early = timeout(SECOND, wait).await;
        assert!(early.map_or(true, |(read, _)| read.is_err()));
        // A third one gets through, the client does not.
        machine_at(OTHER.into(), TcpStream::connect("10.0.0.1:80")).await?;
        let began = now();
        let connect = machine_at(CLIENT.into(), TcpStream::connect("10.0.0.1:80"));
        let late = connect.await.expect_err("nobody answers");
        let kind = late.downcast_ref::<std::io::Error>().map(|e| e.kind());
        assert_eq!(kind, Some(ErrorKind::TimedOut));
        assert!(now() - began > 120 * SECOND);
        // And messages are lost.
        let messages = machine_at(SERVER.into(), UdpSocket::bind("0.0.0.0:53")).await?;
        let from = machine_at(CLIENT.into(), UdpSocket::bind("0.0.0.0:0")).await?;
        from.send_to("lost", "10.0.0.1:53".parse().unwrap())
            .await
            .0?;
        net.heal(two, one);
        let (read, words) = served.read_exact([0; 4]).await;
        read?;
        assert_eq!(&words, b"held");
        from.send_to("found", "10.0.0.1:53".parse().unwrap())
            .await
            .0?;
        let (received, words) = messages.recv([0; 8]).await;
        assert_eq!(&words[..received?], b"found");
        drop(listener);
        Ok(true)
    });
    assert_eq!(as_said, 20);
}

/// It heals while a task tries to connect.
#[test]
fn a_connect_goes_through_when_a_partition_heals() {
    let as_said = yes(20, SimIo::new, |net| async move {
        let _listener = machine_at(SERVER.into(), TcpListener::bind("0.0.0.0:80")).await?;
        let (one, two) = (IpAddr::from(SERVER), IpAddr::from(CLIENT));
        net.partition(one, two);
        let connects = spawn(machine_at(two, TcpStream::connect("10.0.0.1:80")));
        sleep(10 * SECOND).await?;
        assert!(!connects.is_ended());
        net.heal(one, two);
        let began = now();
        let _stream = connects.await?;
        Ok(now() - began <= 2 * SECOND)
    });
    assert_eq!(as_said, 20);
}

/// Writes a file that is there whole or not at all, and says so; as must be done.
async fn replace(words: &'static str) -> Result<()> {
    let new = File::create("/var/state.new").await?;
    new.write_then_sync(words, 0).await.0?;
    new.close().await?;
    fs::rename("/var/state.new", "/var/state").await?;
    File::open("/var").await?.sync_all().await?;
    Ok(())
}

#[test]
fn creating_renaming_resizing_and_closing_fail_too() {
    let mut failed = BTreeSet::new();
    for seed in 0..100 {
        let mut sim = Sim::builder(seed).io(SimIo::new().broken(0.1)).build();
        let which = sim.run(async {
            let mut which = Vec::new();
            let mut note = |what, came: std::io::Result<()>| {
                if let Err(error) = came {
                    assert_eq!(error.raw_os_error(), Some(libc::EIO));
                    which.push(what);
                }
            };
            note("make a directory", fs::create_dir("/var/d").await);
            match File::create("/var/a").await {
                Ok(file) => {
                    note("write", file.write_at("words", 0).await.0.map(drop));
                    note("cut", file.set_len(2).await);
                    note("room", file.allocate(0, 100).await);
                    note("sync", file.sync_all().await);
                    note("close", file.close().await);
                }
                Err(error) => note("create", Err(error)),
            }
            if fs::metadata("/var/a").await.is_ok() {
                note("rename", fs::rename("/var/a", "/var/b").await);
            }
            if fs::metadata("/var/b").await.is_ok() {
                note("remove", fs::remove_file("/var/b").await);
            }
            Ok::<_, Error>(which)
        });
        failed.extend(which.expect("errors are no failure"));
        sim.finish();
    }
    let all = [
        "make a directory",
        "create",
        "write",
        "cut",
        "room",
        "sync",
        "close",
        "rename",
        "remove",
    ];
    assert_eq!(failed, all.into());
}

/// Whatever fails: what was said to be safe is.
#[test]
fn what_is_replaced_is_there_whatever_fails() {
    let (mut done, mut gone) = (0, 0);
    for seed in 0..300 {
        let faults = SimIo::rough().broken(0.05).no_space(0.05);
        let mut sim = Sim::builder(seed).io(faults).build();
        sim.io().put("/var/state", "old");
        let replaced = sim.run(replace("new words"));
        let left = sim.io().power_cut(seed).get("/var/state");
        let left = left.expect("one of them is there");
        match replaced {
            Ok(()) => assert_eq!(left, b"new words", "seed {seed}"),
            Err(_) => assert!([&b"old"[..], b"new words"].contains(&&left[..])),
        }
        done += usize::from(replaced.is_ok());
        gone += usize::from(left == b"old");
        sim.finish();
    }
    assert!(done > 100 && gone > 20, "{done} and {gone}");
}

/// Tries a sync again that has failed, and believes it.
async fn sync_again() -> Result<()> {
    let file = OpenOptions::new().write(true).create(true);
    let file = file.open("/var/state").await?;
    file.write_all_at("new", 0).await.0?;
    while file.sync_data().await.is_err() {}
    Ok(())
}

/// The same, and writes again what it does not know to be there.
async fn write_again() -> Result<()> {
    let file = OpenOptions::new().write(true).create(true);
    let file = file.open("/var/state").await?;
    loop {
        file.write_all_at("new", 0).await.0?;
        if file.sync_data().await.is_ok() {
            return Ok(());
        }
    }
}

type Body = std::pin::Pin<Box<dyn Future<Output = Result<()>> + Send>>;

#[test]
fn a_sync_that_is_tried_again_lies() {
    let lost = |body: fn() -> Body| {
        let lost = (0..50).filter(|seed| {
            let faults = SimIo::new().fault(OpKind::Sync, 1, Fault::Broken);
            let mut sim = Sim::builder(*seed).io(faults).build();
            sim.io().put("/var/state", "old");
            sim.run(body()).expect("it says that all is well");
            assert_eq!(sim.io().get("/var/state").as_deref(), Some(&b"new"[..]));
            let left = sim.io().power_cut(*seed).get("/var/state");
            sim.finish();
            left.as_deref() != Some(b"new")
        });
        lost.count()
    };
    let believed = lost(|| Box::pin(sync_again()));
    assert!((10..40).contains(&believed), "{believed}");
    assert_eq!(lost(|| Box::pin(write_again())), 0);
}

#[test]
fn a_disk_is_full_after_a_part() {
    let (mut parts, mut nothing) = (0, 0);
    for seed in 0..50 {
        let faults = SimIo::new().no_space(0.3);
        let mut sim = Sim::builder(seed).io(faults).build();
        let came = sim.run(async {
            let file = File::create("/tmp/a").await?;
            let (written, _) = file.write_all_at(vec![1; 1000], 0).await;
            let len = file.metadata().await?.len();
            Ok::<_, Error>((written.map_err(|error| error.kind()), len))
        });
        match came.expect("errors are no failure") {
            (Ok(()), len) => assert_eq!(len, 1000),
            (Err(kind), len) => {
                assert_eq!(kind, ErrorKind::StorageFull);
                parts += usize::from(len > 0);
                nothing += usize::from(len == 0);
            }
        }
        sim.finish();
    }
    assert!(parts > 3 && nothing > 3, "{parts} and {nothing}");
}

/// Everything at once, and what each side saw.
fn storm(seed: u64, log: &Log) {
    let faults = SimIo::rough()
        .resets(0.05)
        .refused(0.1)
        .aborted(0.1)
        .lost(0.1)
        .doubled(0.1)
        .overtaken(0.1, MS)
        .no_space(0.1)
        .broken(0.05);
    let mut sim = Sim::builder(seed).io(faults).build();
    let (net, said) = (sim.io(), log.clone());
    net.latency(SERVER.into(), CLIENT.into(), 3 * MS);
    let ran = sim.run(async move {
        let listener = machine_at(SERVER.into(), TcpListener::bind("0.0.0.0:80")).await?;
        let (listener, began) = (Arc::new(listener), now());
        scope(async move |s| {
            for who in 0..3 {
                let (listener, said) = (listener.clone(), said.clone());
                s.launch(async move {
                    let came = listener.accept().await.map(drop).map_err(|e| e.kind());
                    said.say(format!("server {who}: {came:?}@{:?}", now() - began));
                    let said_to = said.clone();
                    let client = machine_at(CLIENT.into(), async move {
                        let stream = TcpStream::connect("10.0.0.1:80").await?;
                        stream.write_all("words").await.0?;
                        let read = stream.read([0; 8]).await.0;
                        said_to.say(format!("read {read:?}"));
                        fs::write("/tmp/a", "words").await.0?;
                        Ok::<_, Error>(())
                    });
                    let came = timeout(SECOND, client).await.map_err(|e| e.to_string());
                    said.say(format!("client {who}: {came:?}@{:?}", now() - began));
                    Ok::<_, Error>(())
                });
            }
            for _ in 0..3 {
                let _ = machine_at(CLIENT.into(), TcpStream::connect("10.0.0.1:80")).await;
                net.partition(SERVER.into(), CLIENT.into());
                sleep(MS).await?;
                net.heal(SERVER.into(), CLIENT.into());
            }
            let numbers = numbers().await?;
            said.say(format!("numbers {numbers:?}"));
            Err::<(), _>(Error::msg("enough"))
        })
        .await
    });
    drop(ran);
    log.say(format!("{:?}", sim.io().power_cut(seed).get("/tmp/a")));
    sim.finish();
}

#[test]
fn the_same_seed_gives_the_same_storm() {
    guarded("storm", |_| {
        let mut different = BTreeSet::new();
        for seed in 0..30 {
            let (one, two) = (Log::new(), Log::new());
            storm(seed, &one);
            storm(seed, &two);
            assert_eq!(one.text(), two.text(), "seed {seed}");
            different.insert(one.text());
        }
        assert!(different.len() > 20, "{} are different", different.len());
    });
}

/// A way that is cut in one direction: what is sent there waits, what comes back arrives, and
/// nothing connects.
#[test]
fn test_2_a_way_can_be_cut_in_one_direction() {
    for seed in 0..50 {
        let mut sim = Sim::seeded(seed);
        let net = sim.io();
        net.latency(SERVER.into(), CLIENT.into(), MS);
        let body = async move {
            let listener = machine_at(SERVER.into(), TcpListener::bind("0.0.0.0:80")).await?;
            let connect = || machine_at(CLIENT.into(), TcpStream::connect("10.0.0.1:80"));
            let asks = connect().await?;
            let (answers, _) = listener.accept().await?;
            net.partition_one_way(SERVER.into(), CLIENT.into());
            asks.write_all("?").await.0?;
            assert_eq!(answers.read([0; 8]).await.0?, 1);
            answers.write_all("!").await.0?;
            let hears = async { asks.read([0; 8]).await.0 };
            assert!(timeout(SECOND, hears).await.is_err(), "through a cut");
            assert!(timeout(SECOND, connect()).await.is_err(), "one way is cut");
            // The same from the other side.
            net.heal(SERVER.into(), CLIENT.into());
            assert_eq!(asks.read([0; 8]).await.0?, 1);
            net.partition_one_way(CLIENT.into(), SERVER.into());
            answers.write_all("!").await.0?;
            let healed = now();
            assert_eq!(asks.read([0; 8]).await.0?, 1);
            assert_eq!(now() - healed, MS);
            asks.write_all("?").await.0?;
            let hears = async { answers.read([0; 8]).await.0 };
            assert!(timeout(SECOND, hears).await.is_err(), "through a cut");
            assert!(timeout(SECOND, connect()).await.is_err(), "one way is cut");
            net.heal(CLIENT.into(), SERVER.into());
            assert_eq!(answers.read([0; 8]).await.0?, 1);
            connect().await.map(drop)
        };
        sim.run(body).unwrap();
        sim.finish();
    }
}
