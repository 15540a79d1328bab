//! Connections and messages.

use std::io::ErrorKind;
use std::net::Shutdown;
use std::sync::Arc;

use kinfolk_core::{Error, Result, checkpoint, scope, spawn, yield_now};
use kinfolk_runtime::net::{TcpListener, TcpStream, UdpSocket, UnixListener, UnixStream};
use kinfolk_testkit::io::{Fault, OpKind};

use super::lab::IoLab;

const HERE: &str = "127.0.0.1:0";

/// Sends back what comes, to the end.
async fn echo(lab: &IoLab, stream: &TcpStream) -> Result<()> {
    loop {
        let (read, buf) = stream.read(lab.quarantine.buf(32)).await;
        if read? == 0 {
            stream.shutdown(Shutdown::Write).await?;
            return Ok(());
        }
        stream.write_all(buf).await.0?;
    }
}

/// Reads to the end.
async fn rest(lab: &IoLab, stream: &TcpStream) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let (read, buf) = stream.read(lab.quarantine.buf(16)).await;
        match read? {
            0 => return Ok(all),
            _ => all.extend_from_slice(&buf),
        }
    }
}

pub async fn io_5_a_server_sends_every_byte_back(lab: IoLab) -> Result<()> {
    let listener = TcpListener::bind(HERE).await?;
    let addr = listener.local_addr()?;
    let own = lab.clone();
    scope(async move |s| {
        let serving = own.clone();
        s.launch(async move {
            for _ in 0..5 {
                let (stream, _) = listener.accept().await?;
                let lab = serving.clone();
                kinfolk_core::launch(async move { echo(&lab, &stream).await });
            }
            Ok::<_, Error>(())
        });
        for client in 0..5_u8 {
            let lab = own.clone();
            s.launch(async move {
                let sent: Vec<u8> = (0..200).map(|n| n ^ client).collect();
                let stream = TcpStream::connect(addr).await?;
                assert_eq!(stream.peer_addr()?, addr);
                stream.write_all(lab.quarantine.filled(&sent)).await.0?;
                stream.shutdown(Shutdown::Write).await?;
                assert_eq!(rest(&lab, &stream).await?, sent);
                Ok::<_, Error>(())
            });
        }
        Ok::<_, Error>(())
    })
    .await?;
    Ok(())
}

pub async fn io_5_accepted_for_nobody_it_is_closed(lab: IoLab) -> Result<()> {
    for round in 0..6 {
        let listener = Arc::new(TcpListener::bind(HERE).await?);
        let addr = listener.local_addr()?;
        let from = listener.clone();
        let accepts = spawn(async move {
            let (stream, _) = from.accept().await?;
            drop(stream);
            checkpoint().await?;
            Ok::<_, Error>(())
        });
        lab.until_waiting(1).await?;
        let stream = TcpStream::connect(addr).await?;
        for _ in 0..round {
            yield_now().await?;
        }
        accepts.cancel("enough");
        drop(accepts.outcome().await?);
        drop(listener);
        // Accepted or not, nobody is at the other end.
        match rest(&lab, &stream).await {
            Ok(bytes) => assert_eq!(bytes, b""),
            Err(error) => {
                let error = error.downcast_ref::<std::io::Error>().map(|e| e.kind());
                assert_eq!(error, Some(ErrorKind::ConnectionReset));
            }
        }
    }
    lab.assert_none_open();
    Ok(())
}

pub async fn io_5_told_while_it_accepts_connects_and_receives(lab: IoLab) -> Result<()> {
    let listener = Arc::new(TcpListener::bind(HERE).await?);
    let from = listener.clone();
    let accepts = spawn(async move {
        let told = from.accept().await.expect_err("nobody connects");
        Err::<(), Error>(told.into())
    });
    lab.until_waiting(1).await?;
    accepts.cancel("enough");
    assert!(accepts.outcome().await?.is_cancelled());
    let stream = TcpStream::connect(listener.local_addr()?).await?;
    let (other, peer) = listener.accept().await?;
    assert_eq!(peer, stream.local_addr()?);
    let other = Arc::new(other);
    let (own, from) = (lab.clone(), other.clone());
    let receives = spawn(async move {
        let (read, buf) = from.read(own.quarantine.buf(8)).await;
        assert_eq!(buf.len(), 0);
        Err::<(), Error>(read.expect_err("nothing comes").into())
    });
    lab.until_waiting(1).await?;
    receives.cancel("enough");
    assert!(receives.outcome().await?.is_cancelled());
    // The connection has not suffered.
    stream.write_all(lab.quarantine.filled("abc")).await.0?;
    drop(stream);
    assert_eq!(rest(&lab, &other).await?, b"abc");
    Ok(())
}

pub async fn io_5_a_connection_that_is_refused_or_reset(lab: IoLab) -> Result<()> {
    let listener = TcpListener::bind(HERE).await?;
    let addr = listener.local_addr()?;
    let stream = TcpStream::connect(addr).await?;
    let (other, _) = listener.accept().await?;
    drop(listener);
    let refused = TcpStream::connect(addr).await.expect_err("nobody listens");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    lab.fault(OpKind::Read, Fault::Reset);
    let (read, _) = stream.read(lab.quarantine.buf(8)).await;
    let reset = read.expect_err("it was reset");
    assert_eq!(reset.kind(), ErrorKind::ConnectionReset);
    if lab.kernel.is_some() {
        let (read, _) = other.read(lab.quarantine.buf(8)).await;
        let reset = read.expect_err("for the other side too");
        assert_eq!(reset.kind(), ErrorKind::ConnectionReset);
    }
    Ok(())
}

pub async fn io_5_messages_stay_whole(lab: IoLab) -> Result<()> {
    let (one, two) = (UdpSocket::bind(HERE).await?, UdpSocket::bind(HERE).await?);
    let (at_one, at_two) = (one.local_addr()?, two.local_addr()?);
    let buf = lab.quarantine.filled("hello");
    assert_eq!(one.send_to(buf, at_two).await.0?, 5);
    let (received, buf) = two.recv_from(lab.quarantine.buf(64)).await;
    assert_eq!((received?, &*buf), ((5, at_one), &b"hello"[..]));
    two.connect(at_one).await?;
    two.send("one").await.0?;
    two.send("two").await.0?;
    for words in ["one", "two"] {
        let (received, buf) = one.recv(lab.quarantine.buf(64)).await;
        assert_eq!((received?, &*buf), (3, words.as_bytes()));
    }
    Ok(())
}

pub async fn io_5_sockets_with_a_name_on_the_disk(lab: IoLab) -> Result<()> {
    let path = lab.path("socket");
    let missing = UnixStream::connect(&path).await.expect_err("not there");
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    let listener = UnixListener::bind(&path).await?;
    let taken = UnixListener::bind(&path).await.expect_err("taken");
    assert_eq!(taken.kind(), ErrorKind::AddrInUse);
    let stream = UnixStream::connect(&path).await?;
    let (other, _) = listener.accept().await?;
    stream.write_all(lab.quarantine.filled("abc")).await.0?;
    let (read, buf) = other.read_exact(vec![0; 3]).await;
    read?;
    assert_eq!(buf, b"abc");
    drop(listener);
    let refused = UnixStream::connect(&path)
        .await
        .expect_err("nobody listens");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    let (one, two) = UnixStream::pair()?;
    one.write_all("ping").await.0?;
    let (read, buf) = two.read_exact(vec![0; 4]).await;
    read?;
    assert_eq!(buf, b"ping");
    drop(one);
    let (read, _) = two.read(lab.quarantine.buf(8)).await;
    assert_eq!(read?, 0);
    let (written, _) = two.write("x").await;
    assert_eq!(written.expect_err("gone").kind(), ErrorKind::BrokenPipe);
    Ok(())
}
