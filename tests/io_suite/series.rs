//! What arrives at a socket by itself: connections, and bytes in buffers of a
//! pool.

use std::collections::{BTreeSet, VecDeque};
use std::io::ErrorKind;
use std::net::{Shutdown, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kinfolk_core::{Error, Result, checkpoint, cleanup, sleep, spawn, timeout, yield_now};
use kinfolk_runtime::io::{BufferPool, Chunk};
use kinfolk_runtime::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use kinfolk_testkit::io::{Fault, OpKind};

use super::lab::IoLab;

const HERE: &str = "127.0.0.1:0";

/// Connects so many times.
async fn clients(addr: SocketAddr, count: usize) -> Result<(Vec<TcpStream>, BTreeSet<SocketAddr>)> {
    let mut clients = Vec::new();
    for _ in 0..count {
        clients.push(TcpStream::connect(addr).await?);
    }
    let from = clients.iter().map(TcpStream::local_addr);
    let from = from.collect::<std::io::Result<_>>()?;
    Ok((clients, from))
}

/// More than are kept.
const MANY: usize = 100;

pub async fn io_5_connections_come_by_themselves(lab: IoLab) -> Result<()> {
    let listener = TcpListener::bind(HERE).await?;
    let mut incoming = listener.incoming();
    let mut seen = BTreeSet::new();
    let mut open = Vec::new();
    let mut clients_of = Vec::new();
    let mut from = BTreeSet::new();
    for round in [1, MANY, 3] {
        let (clients, addrs) = clients(listener.local_addr()?, round).await?;
        clients_of.push(clients);
        from.extend(addrs);
        for _ in 0..round {
            let stream = incoming.next().await.expect("it never ends")?;
            assert!(seen.insert(stream.peer_addr()?), "one came twice");
            open.push(stream);
        }
    }
    assert_eq!(seen, from);
    // They are connections like any other.
    for (client, stream) in clients_of.iter().flatten().zip(&open).take(3) {
        client.write_all(lab.quarantine.filled("abc")).await.0?;
        let (read, buf) = stream.read_exact(lab.quarantine.buf(3)).await;
        read?;
        assert_eq!(&*buf, b"abc");
    }
    drop((open, clients_of, incoming));
    drop(listener);
    lab.until_under_way(0).await?;
    lab.assert_none_open();
    Ok(())
}

pub async fn io_5_what_a_dropped_stream_has_not_given_is_accepted_next(lab: IoLab) -> Result<()> {
    for round in 0..6 {
        let listener = TcpListener::bind(HERE).await?;
        let mut incoming = listener.incoming();
        let (_clients, from) = clients(listener.local_addr()?, 5).await?;
        let mut seen = BTreeSet::new();
        let first = incoming.next().await.expect("it never ends")?;
        seen.insert(first.peer_addr()?);
        for _ in 0..round {
            yield_now().await?;
        }
        drop(incoming);
        // By a single operation, by another stream, and by both at once.
        let (stream, peer) = listener.accept().await?;
        assert_eq!(stream.peer_addr()?, peer);
        seen.insert(peer);
        let mut incoming = listener.incoming();
        let second = incoming.next().await.expect("it never ends")?;
        seen.insert(second.peer_addr()?);
        for _ in 0..round {
            yield_now().await?;
        }
        drop(incoming);
        seen.insert(listener.accept().await?.1);
        seen.insert(listener.accept().await?.1);
        assert_eq!(seen, from);
        // And one that comes now.
        let (_client, from) = clients(listener.local_addr()?, 1).await?;
        assert!(from.contains(&listener.accept().await?.1));
    }
    lab.until_under_way(0).await?;
    lab.assert_none_open();
    Ok(())
}

pub async fn io_5_told_between_connections_none_is_lost(lab: IoLab) -> Result<()> {
    for round in 0..12 {
        let listener = Arc::new(TcpListener::bind(HERE).await?);
        let (addr, from) = (listener.local_addr()?, listener.clone());
        let seen = Arc::new(Mutex::new(BTreeSet::new()));
        let sees = seen.clone();
        let takes = spawn(async move {
            let mut incoming = from.incoming();
            let told = loop {
                match incoming.next().await.expect("it never ends") {
                    Ok(stream) => sees.lock().expect("no panics").insert(stream.peer_addr()?),
                    Err(told) => break Error::from(told),
                };
            };
            assert!(told.is_cancelled(), "{told}");
            // Told again, it takes nothing.
            let again = incoming.next().await.expect("it never ends");
            assert!(Error::from(again.expect_err("told")).is_cancelled());
            Ok::<_, Error>(())
        });
        lab.until_waiting(1).await?;
        let under_way = lab.under_way();
        assert!(under_way <= 1, "one operation for all: {under_way}");
        let (_clients, from) = clients(addr, 4).await?;
        for _ in 0..round {
            yield_now().await?;
        }
        takes.cancel("enough");
        assert!(takes.outcome().await?.is_cancelled());
        let mut seen = std::mem::take(&mut *seen.lock().expect("no panics"));
        // It went on after the end of its operation.
        assert_eq!(lab.under_way(), 0);
        while seen.len() < 4 {
            seen.insert(listener.accept().await?.1);
        }
        assert_eq!(seen, from);
    }
    lab.until_under_way(0).await?;
    lab.assert_none_open();
    Ok(())
}

pub async fn io_5_in_clean_up_connections_come(lab: IoLab) -> Result<()> {
    let listener = Arc::new(TcpListener::bind(HERE).await?);
    let (addr, from) = (listener.local_addr()?, listener.clone());
    let takes = spawn(async move {
        let mut incoming = from.incoming();
        let told = incoming.next().await.expect("it never ends");
        told.expect_err("nobody connects");
        cleanup(async {
            let (_clients, from) = clients(addr, 2).await?;
            for _ in 0..2 {
                let stream = incoming.next().await.expect("it never ends")?;
                assert!(from.contains(&stream.peer_addr()?));
            }
            Ok::<_, Error>(())
        })
        .await?;
        checkpoint().await?;
        Ok::<_, Error>(())
    });
    lab.until_waiting(1).await?;
    takes.cancel("enough");
    assert!(takes.outcome().await?.is_cancelled());
    Ok(())
}

/// Whoever is not taken is closed with the listener.
pub async fn io_5_connections_nobody_takes_are_closed(lab: IoLab) -> Result<()> {
    for round in 0..6 {
        let listener = TcpListener::bind(HERE).await?;
        let mut incoming = listener.incoming();
        let (clients, _) = clients(listener.local_addr()?, 5).await?;
        drop(incoming.next().await.expect("it never ends")?);
        for _ in 0..round {
            yield_now().await?;
        }
        drop(incoming);
        drop(listener);
        for client in clients {
            let (read, buf) = client.read(lab.quarantine.buf(4)).await;
            match read {
                Ok(bytes) => assert_eq!((bytes, buf.len()), (0, 0)),
                Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
            }
        }
    }
    lab.until_under_way(0).await?;
    lab.assert_none_open();
    Ok(())
}

pub async fn io_5_an_error_is_one_item_of_many(lab: IoLab) -> Result<()> {
    let path = lab.path("series");
    let listener = UnixListener::bind(&path).await?;
    let mut incoming = listener.incoming();
    lab.fault(OpKind::Accept, Fault::TooManyFiles);
    let one = UnixStream::connect(&path).await?;
    let failed = incoming.next().await.expect("it never ends");
    let failed = failed.expect_err("too many files");
    assert_eq!(failed.raw_os_error(), Some(libc::EMFILE));
    incoming.next().await.expect("it never ends")?;
    let two = UnixStream::connect(&path).await?;
    incoming.next().await.expect("it never ends")?;
    drop((one, two));
    Ok(())
}

/// A poll that is dropped, again and again.
pub async fn io_5_a_timeout_around_a_stream_loses_nothing(lab: IoLab) -> Result<()> {
    let listener = TcpListener::bind(HERE).await?;
    let mut incoming = listener.incoming();
    let mut seen = BTreeSet::new();
    let mut all = BTreeSet::new();
    let mut kept = Vec::new();
    for round in 0..8 {
        let (mut clients, from) = clients(listener.local_addr()?, 1).await?;
        kept.append(&mut clients);
        all.extend(from);
        let short = Duration::from_micros(round * 20);
        let next = async { Ok::<_, Error>(incoming.next().await.expect("it never ends")?) };
        match timeout(short, next).await {
            Ok(stream) => {
                seen.insert(stream.peer_addr()?);
            }
            Err(error) => assert_eq!(error.kind(), kinfolk_core::ErrorKind::TimedOut),
        }
    }
    while seen.len() < all.len() {
        let stream = incoming.next().await.expect("it never ends")?;
        seen.insert(stream.peer_addr()?);
    }
    assert_eq!(seen, all);
    drop(incoming);
    drop(listener);
    lab.until_under_way(0).await?;
    Ok(())
}

/// Two that are connected with each other.
async fn connected() -> Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind(HERE).await?;
    let one = TcpStream::connect(listener.local_addr()?).await?;
    Ok((one, listener.accept().await?.0))
}

/// Bytes that show when one is missing, or at the wrong place.
fn bytes(range: std::ops::Range<usize>) -> Vec<u8> {
    range.map(|n| (n / 7) as u8 ^ n as u8).collect()
}

pub async fn io_5_bytes_come_in_chunks_of_a_pool(lab: IoLab) -> Result<()> {
    let (one, two) = connected().await?;
    let pool = BufferPool::new(3, 10);
    let (own, all) = (lab.clone(), bytes(0..400));
    let sent = all.clone();
    let sends = spawn(async move {
        for part in sent.chunks(50) {
            one.write_all(own.quarantine.filled(part)).await.0?;
        }
        one.shutdown(Shutdown::Write).await?;
        // Back come the same, written from the chunks themselves.
        let mut back = Vec::new();
        loop {
            let (read, buf) = one.read(own.quarantine.buf(16)).await;
            match read? {
                0 => return Ok::<_, Error>(back),
                _ => back.extend_from_slice(&buf),
            }
        }
    });
    let (mut chunks, mut seen) = (two.chunks(&pool), Vec::new());
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk?;
        assert!((1..=10).contains(&chunk.len()), "{chunk:?}");
        seen.extend_from_slice(&chunk);
        two.write_all(chunk).await.0?;
    }
    assert!(chunks.next().await.is_none(), "it has ended");
    two.shutdown(Shutdown::Write).await?;
    assert_eq!(seen, all);
    assert_eq!(sends.await?, all);
    Ok(())
}

pub async fn io_5_what_dropped_chunks_have_not_given_is_read_next(lab: IoLab) -> Result<()> {
    for round in 0..8 {
        let (one, two) = connected().await?;
        let pool = BufferPool::new(4, 8);
        let mut chunks = two.chunks(&pool);
        one.write_all(lab.quarantine.filled(bytes(0..24))).await.0?;
        let first = chunks.next().await.expect("bytes")?;
        let mut seen = first.to_vec();
        for _ in 0..round {
            yield_now().await?;
        }
        drop(chunks);
        // It was given away, and lies in its buffer as it was.
        assert_eq!(*first, bytes(0..24)[..first.len()]);
        one.write_all(lab.quarantine.filled(bytes(24..40)))
            .await
            .0?;
        one.shutdown(Shutdown::Write).await?;
        // Some by single reads, the rest by other chunks.
        for _ in 0..2 {
            let (read, buf) = two.read(lab.quarantine.buf(5)).await;
            assert_eq!(read?, buf.len());
            seen.extend_from_slice(&buf);
        }
        // Another pool does as well.
        let mut chunks = two.chunks(&BufferPool::new(1, 3));
        while let Some(chunk) = chunks.next().await {
            seen.extend_from_slice(&chunk?);
        }
        assert_eq!(seen, bytes(0..40), "round {round}");
        let (read, _) = two.read(lab.quarantine.buf(5)).await;
        assert_eq!(read?, 0, "the end is still there");
    }
    lab.until_under_way(0).await?;
    lab.assert_none_open();
    Ok(())
}

pub async fn io_5_told_between_chunks_no_byte_is_lost(lab: IoLab) -> Result<()> {
    for round in 0..12 {
        let (one, two) = connected().await?;
        let (two, pool) = (Arc::new(two), BufferPool::new(4, 8));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (from, sees) = (two.clone(), seen.clone());
        let takes = spawn(async move {
            let mut chunks = from.chunks(&pool);
            let told = loop {
                match chunks.next().await.expect("it does not end") {
                    Ok(chunk) => sees.lock().expect("no panics").extend_from_slice(&chunk),
                    Err(told) => break Error::from(told),
                }
            };
            assert!(told.is_cancelled(), "{told}");
            let again = chunks.next().await.expect("it does not end");
            assert!(Error::from(again.expect_err("told")).is_cancelled());
            Ok::<_, Error>(())
        });
        lab.until_waiting(1).await?;
        let under_way = lab.under_way();
        assert!(under_way <= 1, "one operation for all: {under_way}");
        one.write_all(lab.quarantine.filled(bytes(0..50))).await.0?;
        for _ in 0..round {
            yield_now().await?;
        }
        takes.cancel("enough");
        assert!(takes.outcome().await?.is_cancelled());
        // It went on after the end of its operation.
        assert_eq!(lab.under_way(), 0);
        let mut seen = std::mem::take(&mut *seen.lock().expect("no panics"));
        let (read, buf) = two.read_exact(lab.quarantine.buf(50 - seen.len())).await;
        read?;
        seen.extend_from_slice(&buf);
        assert_eq!(seen, bytes(0..50), "round {round}");
    }
    Ok(())
}

/// Takes chunks and keeps them.
async fn keep(from: &TcpStream, pool: &BufferPool, kept: &Mutex<VecDeque<Chunk>>) -> Result<()> {
    let mut chunks = from.chunks(pool);
    while let Some(chunk) = chunks.next().await {
        kept.lock().expect("no panics").push_back(chunk?);
    }
    Ok(())
}

/// The pool is empty, because a job keeps its chunks.
pub async fn io_5_without_a_buffer_it_waits_for_one(lab: IoLab) -> Result<()> {
    let (one, two) = connected().await?;
    let kept = Arc::new(Mutex::new(VecDeque::new()));
    one.write_all(lab.quarantine.filled(bytes(0..60))).await.0?;
    one.shutdown(Shutdown::Write).await?;
    let (to, over) = (kept.clone(), Arc::new(AtomicBool::new(false)));
    let ended = over.clone();
    let keeps = spawn(async move {
        let kept = keep(&two, &BufferPool::new(2, 4), &to).await;
        ended.store(true, Ordering::SeqCst);
        kept
    });
    let mut seen = Vec::new();
    loop {
        let over = over.load(Ordering::SeqCst);
        let (first, count) = {
            let mut kept = kept.lock().expect("no panics");
            let count = kept.len();
            (kept.pop_front(), count)
        };
        // Two for each worker, and for the one beside them.
        assert!(count <= 6, "{count}");
        match first {
            Some(chunk) => seen.extend_from_slice(&chunk),
            None if over => break,
            None => {}
        }
        sleep(Duration::from_micros(100)).await?;
    }
    keeps.await?;
    assert_eq!(seen, bytes(0..60));
    Ok(())
}

/// Told while there is no buffer, or soon will be.
pub async fn io_5_told_without_a_buffer_no_byte_is_lost(lab: IoLab) -> Result<()> {
    let (one, two) = connected().await?;
    let two = Arc::new(two);
    let kept = Arc::new(Mutex::new(VecDeque::new()));
    let (from, to, pool) = (two.clone(), kept.clone(), BufferPool::new(2, 4));
    let keeps = spawn(async move { keep(&from, &pool, &to).await });
    one.write_all(lab.quarantine.filled(bytes(0..60))).await.0?;
    while kept.lock().expect("no panics").len() < 2 {
        sleep(Duration::from_micros(100)).await?;
    }
    lab.until_waiting(1).await?;
    keeps.cancel("enough");
    assert!(keeps.outcome().await?.is_cancelled());
    assert_eq!(lab.under_way(), 0);
    let kept = std::mem::take(&mut *kept.lock().expect("no panics"));
    let mut seen: Vec<u8> = kept.iter().flat_map(|chunk| chunk.to_vec()).collect();
    // Chunks are given back wherever they are dropped.
    spawn(async move {
        drop(kept);
        Ok::<_, Error>(())
    })
    .await?;
    let (read, buf) = two.read_exact(lab.quarantine.buf(60 - seen.len())).await;
    read?;
    seen.extend_from_slice(&buf);
    assert_eq!(seen, bytes(0..60));
    Ok(())
}

pub async fn io_5_a_connection_that_is_reset_is_an_item(lab: IoLab) -> Result<()> {
    let (_one, two) = connected().await?;
    let pool = BufferPool::new(4, 8);
    lab.fault(OpKind::Read, Fault::Reset);
    let mut chunks = two.chunks(&pool);
    let failed = chunks.next().await.expect("an item");
    assert_eq!(
        failed.expect_err("it was reset").kind(),
        ErrorKind::ConnectionReset
    );
    Ok(())
}

/// Far more streams than buffers: those that wait need none.
pub async fn io_5_idle_streams_share_a_few_buffers(lab: IoLab) -> Result<()> {
    let pool = BufferPool::new(2, 16);
    // More than are with the driver at once, too.
    let (mut ones, mut waiting) = (Vec::new(), Vec::new());
    for n in 0..2 * lab.limit {
        let (one, two) = connected().await?;
        ones.push(one);
        let pool = pool.clone();
        waiting.push(spawn(async move {
            let mut chunks = two.chunks(&pool);
            let mut seen = Vec::new();
            while let Some(chunk) = chunks.next().await {
                seen.extend_from_slice(&chunk?);
            }
            Ok::<_, Error>((n, seen))
        }));
    }
    lab.until_waiting(waiting.len()).await?;
    for round in 0..3_u8 {
        for (n, one) in ones.iter().enumerate() {
            one.write_all(lab.quarantine.filled([n as u8, round]))
                .await
                .0?;
        }
    }
    drop(ones);
    for task in waiting {
        let (n, seen) = task.await?;
        let n = n as u8;
        assert_eq!(seen, [n, 0, n, 1, n, 2]);
    }
    Ok(())
}

/// Takes all chunks; how many bytes there were.
async fn count(from: &TcpStream, pool: &BufferPool) -> Result<usize> {
    let (mut chunks, mut bytes) = (from.chunks(pool), 0);
    while let Some(chunk) = chunks.next().await {
        bytes += chunk?.len();
    }
    Ok(bytes)
}

/// A stream that has ended shows it, though its pool is dry. One that has bytes
/// before its end waits for a buffer.
pub async fn io_5_the_end_of_a_stream_needs_no_buffer(lab: IoLab) -> Result<()> {
    for early in [false, true] {
        let pool = BufferPool::new(1, 4);
        let (one, two) = connected().await?;
        one.write_all(lab.quarantine.filled("kept")).await.0?;
        let kept = two.chunks(&pool).next().await.expect("bytes")?;
        let (three, four) = connected().await?;
        let (five, six) = connected().await?;
        five.write_all(lab.quarantine.filled("more")).await.0?;
        let three = (!early).then_some(three);
        drop(five);
        let [ended, more] = [four, six].map(|from| {
            let pool = pool.clone();
            spawn(async move { count(&from, &pool).await })
        });
        if !early {
            // With several workers there may be a buffer for the other.
            lab.until_waiting(1 + usize::from(lab.alone)).await?;
        }
        drop(three);
        assert_eq!(timeout(Duration::from_secs(20), ended).await?, 0);
        drop(kept);
        assert_eq!(timeout(Duration::from_secs(20), more).await?, 4);
    }
    Ok(())
}
