//! What arrives at a socket by itself: connections.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use kinfolk_core::{Error, Result, checkpoint, cleanup, spawn, timeout, yield_now};
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
        let short = std::time::Duration::from_micros(round * 20);
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
