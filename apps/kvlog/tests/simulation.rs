//! The store in the simulation: on a disk that is full, slow and in parts, with
//! writers that are stopped anywhere.

mod book;

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use book::{Book, Fate, replay};
use kinfolk::net::{Shutdown, TcpListener, TcpStream};
use kinfolk::testkit::io::{Fault, OpKind, SimIo, SimKernel};
use kinfolk::testkit::{Rng, Sim, cancel_everywhere, guarded};
use kinfolk::{Error, ErrorKind, Result, all, cleanup, fs, now, scope, sleep, spawn, timeout};
use kvlog::http;
use kvlog::record::{BEGINNING, Record};
use kvlog::store::{self, Store};

const LOG: &str = "/data/log";

fn record(id: &str) -> Record {
    Record {
        id: id.into(),
        key: "key".into(),
        value: Some(id.into()),
    }
}

/// Runs a body beside a committer.
async fn with_store<T>(body: impl AsyncFnOnce(Arc<Store>) -> Result<T>) -> Result<T> {
    let (store, committer) = store::open(Path::new("/data")).await?;
    scope(async |s| {
        s.spawn_atomic(committer.run()).into_job();
        body(store).await
    })
    .await
}

fn fate(written: &Result<()>) -> Fate {
    let Err(error) = written else {
        return Fate::Written;
    };
    let io = error.downcast_ref::<io::Error>().map(io::Error::kind);
    match error.kind() {
        ErrorKind::Cancelled | ErrorKind::TimedOut => Fate::NotWritten,
        _ if io.is_some_and(store::is_full) => Fate::NotWritten,
        _ => Fate::Unknown,
    }
}

/// Writes with little time; what was refused is tried again, or not.
async fn writer(store: Arc<Store>, book: Book, mut rng: Rng) -> Result<()> {
    for _ in 0..8 {
        let record = book.invent(&mut rng);
        loop {
            let limit = Duration::from_micros(rng.below(4000) as u64);
            let written = timeout(limit, store.write(record.clone())).await;
            book.note(&record.id, fate(&written));
            if written.is_ok() || rng.chance(0.5) {
                break;
            }
            book.note(&record.id, Fate::Unknown);
        }
    }
    Ok(())
}

/// At any moment: what a process that is killed now leaves behind, and what is
/// left if the power goes.
async fn audit(disk: SimKernel, book: Book, mut rng: Rng) -> Result<()> {
    loop {
        book.check(&disk.get(LOG).expect("a log"));
        let saved = disk.power_cut(rng.next_u64());
        book.check(&saved.get(LOG).expect("a log"));
        sleep(Duration::from_micros(50)).await?;
    }
}

#[test]
fn what_is_acknowledged_is_there_whatever_goes_wrong() {
    guarded("kvlog", |watched| {
        let (mut written, mut refused) = (0, 0);
        for seed in 0..200 {
            let weather = SimIo::rough().no_space(0.1);
            let mut sim = Sim::builder(seed).io(weather).build();
            watched.watch(sim.tree());
            let (kernel, book) = (sim.io(), Book::default());
            let audit = audit(kernel.clone(), book.clone(), Rng::new(seed));
            let clients = book.clone();
            let body = with_store(async move |store| {
                scope(async |s| {
                    s.spawn_service(audit).into_job();
                    for client in 0..4 {
                        let rng = Rng::new(seed * 4 + client);
                        s.launch(writer(store.clone(), clients.clone(), rng));
                    }
                    Ok(())
                })
                .await
            });
            let ran = sim.run(body);
            ran.unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
            let log = kernel.get(LOG).expect("a log");
            book.check(&log);
            assert_eq!(replay(&log).1, log.len(), "seed {seed}: a torn end");
            assert_eq!(book.count(Fate::Unknown), 0, "seed {seed}");
            written += book.count(Fate::Written);
            refused += book.count(Fate::NotWritten);
            sim.finish();
        }
        assert!(written > 1000 && refused > 500, "{written} and {refused}");
    });
}

/// The power goes somewhere, and comes back: the store is opened on what is left,
/// and goes on.
#[test]
fn what_is_acknowledged_outlives_a_power_cut() {
    guarded("power_cut", |watched| {
        let mut written = 0;
        for seed in 0..200 {
            let mut sim = Sim::builder(seed).io(SimIo::rough()).build();
            watched.watch(sim.tree());
            let (kernel, book) = (sim.io(), Book::default());
            let clients = book.clone();
            let body = with_store(async move |store| {
                scope(async |s| {
                    for client in 0..4 {
                        let rng = Rng::new(seed * 4 + client);
                        s.launch(writer(store.clone(), clients.clone(), rng));
                    }
                    sleep(Duration::from_micros(seed * 100)).await?;
                    Ok((kernel.power_cut(seed), clients.copy()))
                })
                .await
            });
            let (disk, book) = sim.run(body).expect("a store");
            sim.finish();
            written += book.count(Fate::Written);

            let mut sim = Sim::builder(seed).io(SimIo::rough().on_disk(disk)).build();
            watched.watch(sim.tree());
            let clients = book.clone();
            sim.run(with_store(async move |store| {
                writer(store, clients, Rng::new(seed)).await
            }))
            .unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
            book.check(&sim.io().get(LOG).expect("a log"));
            sim.finish();
        }
        assert!(written > 1000, "{written}");
    });
}

/// A sync fails, and the next one says that all is well: what was not on the disk by
/// then never comes there, unless it is written again. Whoever starts the store anew
/// sees it in the memory of the system.
#[test]
fn what_a_failed_sync_has_left_in_memory_is_not_taken_for_written() {
    let mut unknown = 0;
    for seed in 0..100 {
        let weather = SimIo::new().fault(OpKind::Write, 2, Fault::Broken);
        let mut sim = Sim::builder(seed).io(weather).build();
        let book = Book::default();
        let records: Vec<Record> = (0..2).map(|n| book.invent(&mut Rng::new(n))).collect();
        for _ in 0..2 {
            let (records, noted) = (records.clone(), book.clone());
            let ran = sim.run(with_store(async move |store| {
                for record in &records {
                    let written = store.write(record.clone()).await;
                    noted.note(&record.id, fate(&written));
                    written?;
                }
                Ok(())
            }));
            unknown += usize::from(ran.is_err());
            let left = sim.io().power_cut(seed).get(LOG).expect("a log");
            book.check(&left);
        }
        sim.finish();
    }
    assert_eq!(
        unknown, 100,
        "the second write fails, and none of the others"
    );
}

/// Anything on the disk may fail. The store gives up then, and is started anew; what
/// nobody knows of is sent again.
#[test]
fn what_is_acknowledged_outlives_a_broken_disk() {
    guarded("broken_disk", |watched| {
        let (mut written, mut failed) = (0, 0);
        for seed in 0..200 {
            let weather = SimIo::rough().broken(0.05).no_space(0.02);
            let mut sim = Sim::builder(seed).io(weather).build();
            watched.watch(sim.tree());
            let (book, mut rng) = (Book::default(), Rng::new(seed));
            let records: Vec<Record> = (0..12).map(|_| book.invent(&mut rng)).collect();
            for start in 0..6 {
                let (all, noted) = (records.clone(), book.clone());
                let ran = sim.run(with_store(async move |store| {
                    for record in all {
                        if noted.fate(&record.id) == Fate::Written {
                            continue;
                        }
                        noted.note(&record.id, Fate::Unknown);
                        let sent = store.write(record.clone()).await;
                        noted.note(&record.id, fate(&sent));
                        if fate(&sent) == Fate::Unknown {
                            sent?;
                        }
                    }
                    Ok(())
                }));
                failed += usize::from(ran.is_err());
                if let Some(log) = sim.io().power_cut(seed * 6 + start).get(LOG) {
                    book.check(&log);
                }
            }
            written += book.count(Fate::Written);
            sim.finish();
        }
        assert!(written > 1000 && failed > 200, "{written} and {failed}");
    });
}

#[test]
fn a_write_can_be_cancelled_anywhere() {
    let went = cancel_everywhere(async || {
        let book = Book::default();
        let ran = with_store(async |store| {
            let write = async |seed| {
                let record = book.invent(&mut Rng::new(seed));
                let written = store.write(record.clone()).await;
                book.note(&record.id, fate(&written));
                written
            };
            all((write(1), write(2))).await
        })
        .await;
        if let Ok(log) = cleanup(fs::read(LOG)).await {
            book.check(&log);
        }
        assert_eq!(book.count(Fate::Unknown), 0);
        ran.map(drop)
    });
    assert_eq!(went.forced, 0, "everything hears");
    assert!(went.points > 10, "{went:?}");
}

#[test]
fn a_log_that_is_torn_anywhere_keeps_its_whole_records() {
    let (mut log, mut ends) = (BEGINNING.to_vec(), Vec::new());
    for id in ["a", "b", "c"] {
        let mut batch = Vec::new();
        record(id).append_to(&mut batch, log.len() as u64);
        log.extend(batch);
        ends.push(log.len());
    }
    for cut in 0..=log.len() {
        let whole = ends.iter().filter(|end| **end <= cut).count();
        let mut sim = Sim::seeded(cut as u64);
        sim.io().put(LOG, &log[..cut]);
        sim.run(with_store(async move |store| {
            assert_eq!(store.get("key").is_some(), whole > 0);
            store.write(record("a")).await?; // there, if it is whole
            store.write(record("next")).await
        }))
        .expect("a store");
        let (records, end) = replay(&sim.io().get(LOG).expect("a log"));
        let ids: Vec<&str> = records.iter().map(|record| &*record.id).collect();
        let expected = [&["a", "next"][..], &["a", "next"], &["a", "b", "next"]];
        let all = ["a", "b", "c", "next"];
        assert_eq!(
            ids,
            expected.get(whole).unwrap_or(&&all[..]).to_vec(),
            "{cut}"
        );
        assert_eq!(end, sim.io().get(LOG).expect("a log").len());
        sim.finish();
    }
}

#[test]
fn a_full_disk_refuses_and_leaves_nothing() {
    for full in [Fault::NoSpace, Fault::OverQuota] {
        // The first part of the write is there, then there is no more room.
        let weather =
            SimIo::new()
                .fault(OpKind::Write, 1, Fault::Short)
                .fault(OpKind::Write, 2, full);
        let mut sim = Sim::builder(7).io(weather).build();
        sim.run(with_store(async move |store| {
            let full = store.write(record("a")).await;
            assert_eq!(fate(&full), Fate::NotWritten);
            assert_eq!(store.get("key"), None);
            store.write(record("b")).await
        }))
        .unwrap_or_else(|error| panic!("{full:?}: {error:?}"));
        let (records, _) = replay(&sim.io().get(LOG).expect("a log"));
        assert_eq!(records, [record("b")]);
        sim.finish();
    }
}

/// Reads go on, and so do writes once there is room.
#[test]
fn the_server_outlives_a_full_disk() {
    let weather = SimIo::new().for_files(|files| files.no_space(0.5));
    let mut sim = Sim::builder(7).io(weather).build();
    let body = with_server(async |addr| {
        let mut refused = 0;
        for id in 0..20 {
            let get = format!("GET /{id} HTTP/1.1\r\nhost: x\r\n\r\n");
            loop {
                let head = format!("PUT /{id}?id={id} HTTP/1.1\r\nhost: x\r\n");
                match &*ask(addr, &format!("{head}content-length: 2\r\n\r\nhi")).await? {
                    "200" => break,
                    "507" => refused += 1,
                    other => panic!("{other}"),
                }
                assert_eq!(ask(addr, &get).await?, "404");
            }
            assert_eq!(ask(addr, &get).await?, "200");
        }
        assert!(refused > 5, "{refused}");
        Ok(())
    });
    sim.run(body).expect("it goes on");
    sim.finish();
}

/// So it is with a quota that is used up: a write is refused, and the next one is not.
#[test]
fn the_server_outlives_a_full_quota() {
    // In each round the client's two requests and their answers are writes too: the
    // second of five is that of the log.
    let weather = SimIo::new()
        .fault(OpKind::Write, 2, Fault::OverQuota)
        .fault(OpKind::Write, 7, Fault::OverQuota);
    let mut sim = Sim::builder(7).io(weather).build();
    let body = with_server(async |addr| {
        let put = "PUT /k?id=1 HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nhi";
        let get = "GET /k HTTP/1.1\r\nhost: x\r\n\r\n";
        for (written, read) in [("507", "404"), ("507", "404"), ("200", "200")] {
            assert_eq!(ask(addr, put).await?, written);
            assert_eq!(ask(addr, get).await?, read);
        }
        Ok(())
    });
    sim.run(body).expect("it goes on");
    sim.finish();
}

/// A client may say that it has said everything, and listen.
#[test]
fn a_client_that_closes_its_half_is_answered() {
    for seed in 0..20 {
        let mut sim = Sim::builder(seed).io(SimIo::rough()).build();
        let body = with_server(async |addr| {
            let stream = TcpStream::connect(addr).await?;
            let put = "PUT /k?id=1 HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nhi";
            stream.write_all(put).await.0?;
            stream.shutdown(Shutdown::Write).await?;
            let (read, line) = stream.read_exact([0; 12]).await;
            read?;
            assert_eq!(&line, b"HTTP/1.1 200");
            Ok(())
        });
        let ran = sim.run(timeout(Duration::from_secs(60), body));
        ran.unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
        sim.finish();
    }
}

/// Nor is one kept that says nothing, or takes a whole day for a request.
#[test]
fn a_client_that_never_reads_is_not_kept() {
    let big = "x".repeat(1 << 20);
    let put = format!(
        "PUT /k?id=1 HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{big}",
        big.len()
    );
    let get = "GET /k HTTP/1.1\r\nhost: x\r\n\r\n".repeat(20);
    for first in [get, "GET /k HTT".into(), String::new()] {
        let mut sim = Sim::seeded(7);
        let (tree, put) = (sim.tree().clone(), put.clone());
        let body = with_server(async move |addr| {
            assert_eq!(ask(addr, &put).await?, "200");
            let stream = TcpStream::connect(addr).await?;
            stream.write_all(first.clone()).await.0?;
            sleep(Duration::from_secs(120)).await?;
            let jobs = tree.snapshot().to_string();
            assert!(!jobs.contains("connection from"), "{first:.20}: {jobs}");
            Ok(())
        });
        sim.run(body).expect("a server");
        sim.finish();
    }
}

#[test]
fn a_broken_disk_stops_everything() {
    let weather = SimIo::new().fault(OpKind::Write, 1, Fault::Broken);
    let mut sim = Sim::builder(7).io(weather).build();
    let ran = sim.run(with_store(async move |store| {
        let lost = store.write(record("a")).await;
        assert_eq!(lost.expect_err("broken").kind(), ErrorKind::Failed);
        store.write(record("b")).await
    }));
    let error = ran.expect_err("broken");
    assert_eq!(error.kind(), ErrorKind::Failed, "{error:?}");
    sim.finish();
}

/// A deadline that comes when the record was taken changes nothing: the answer is
/// late, and true. One that comes before leaves nothing behind.
#[test]
fn a_deadline_is_a_definite_answer() {
    let second = Duration::from_secs(1);
    let weather = SimIo::new().fault(OpKind::Write, 1, Fault::Late(second));
    let mut sim = Sim::builder(7).io(weather).build();
    sim.run(with_store(async move |store| {
        let begun = now();
        let taken = timeout(second / 2, store.write(record("taken")));
        let waiting = async {
            sleep(second / 4).await?; // by now the other is being written
            let late = timeout(second / 4, store.write(record("waiting"))).await;
            assert_eq!(late.expect_err("late").kind(), ErrorKind::TimedOut);
            assert!(now() - begun < second);
            Ok::<_, Error>(())
        };
        all((taken, waiting)).await?;
        assert!(now() - begun >= second);
        Ok(())
    }))
    .expect("one is written");
    let (records, _) = replay(&sim.io().get(LOG).expect("a log"));
    assert_eq!(records, [record("taken")]);
    sim.finish();
}

/// Runs a body beside a server.
async fn with_server<T>(body: impl AsyncFnOnce(SocketAddr) -> Result<T>) -> Result<T> {
    with_store(async |store| {
        let listener = TcpListener::bind("127.0.0.1:80").await?;
        let addr = listener.local_addr()?;
        let server = spawn(http::serve(listener, store));
        let ran = body(addr).await;
        server.cancel("enough");
        assert!(server.outcome().await?.is_cancelled());
        ran
    })
    .await
}

/// The status of an answer.
async fn ask(addr: SocketAddr, request: &str) -> Result<String> {
    let stream = TcpStream::connect(addr).await?;
    stream.write_all(request.to_owned()).await.0?;
    let (read, line) = stream.read_exact([0; 12]).await;
    read?;
    Ok(String::from_utf8_lossy(&line[9..]).into())
}

#[test]
fn the_whole_server_in_the_simulation() {
    for seed in 0..20 {
        let mut sim = Sim::builder(seed).io(SimIo::rough()).build();
        let body = with_store(async |store| {
            let listener = TcpListener::bind("127.0.0.1:80").await?;
            let addr = listener.local_addr()?;
            let server = spawn(http::serve(listener, store));
            let put = "HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nhi";
            let plain = "HTTP/1.1\r\nhost: x\r\n\r\n";
            let cut = "HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nhi";
            for (request, status) in [
                (format!("GET /k {plain}"), "404"),
                (format!("PUT /k?id=1 {put}"), "200"),
                (format!("GET /k {plain}"), "200"),
                (format!("DELETE /k?id=2 {plain}"), "200"),
                (format!("PUT /k?id=1 {put}"), "200"), // made before: it stays deleted
                (format!("GET /k {plain}"), "404"),
                (format!("PUT /k {plain}"), "400"),
                (format!("POST /k {plain}"), "405"),
                (format!("PUT /k?id=3&within=2000 {cut}"), "504"), // the rest never comes
            ] {
                assert_eq!(ask(addr, &request).await?, status, "{request}");
            }
            let _idle = TcpStream::connect("127.0.0.1:80").await?;
            let begun = now();
            server.cancel("enough");
            assert!(server.outcome().await?.is_cancelled());
            assert!(
                now() - begun < Duration::from_secs(1),
                "nobody waits for the idle"
            );
            Ok(())
        });
        let ran = sim.run(body);
        ran.unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
        let (records, _) = replay(&sim.io().get(LOG).expect("a log"));
        assert_eq!(records.len(), 2, "seed {seed}");
        sim.finish();
    }
}

/// In the grace what is under way is answered, and nobody else is taken.
#[test]
fn a_server_that_stops_listens_no_more() {
    let mut sim = Sim::seeded(7);
    let body = with_store(async |store| {
        let listener = TcpListener::bind("127.0.0.1:80").await?;
        let addr = listener.local_addr()?;
        let server = spawn(http::serve(listener, store));
        let slow = TcpStream::connect(addr).await?;
        let head = "PUT /k?id=1 HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n";
        slow.write_all(head).await.0?;
        sleep(Duration::from_millis(100)).await?;
        server.cancel("enough");
        sleep(Duration::from_millis(100)).await?;
        assert!(!server.is_ended(), "one is under way");
        assert!(TcpStream::connect(addr).await.is_err());
        slow.write_all("the value").await.0?;
        let (read, line) = slow.read_exact([0; 12]).await;
        read?;
        assert_eq!(&line, b"HTTP/1.1 200");
        assert!(server.outcome().await?.is_cancelled());
        Ok(())
    });
    sim.run(body).expect("a server");
    sim.finish();
}
