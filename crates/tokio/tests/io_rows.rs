//! Tokio's i/o under `or_cancel`: what is lost when a wait is told. Each test is a row of the
//! table in `docs/sync.md`.

use std::time::Duration;

use kinfolk_core::{Error, ErrorKind, OrCancel, timeout};
use kinfolk_tokio::Root;
use tokio::io::{
    AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream, copy, duplex,
};
use tokio::net::{TcpListener, UdpSocket};

/// A job waits for `future` under `or_cancel`, and is told while it waits.
async fn told<F: Future>(future: F) {
    let limit = Duration::from_millis(5);
    let waits = timeout(limit, async move {
        future.or_cancel().await?;
        Ok::<(), Error>(())
    });
    assert_eq!(waits.await.unwrap_err().kind(), ErrorKind::TimedOut);
}

/// Runs `test` as a job, on tokio's paused clock.
fn on<F>(test: impl FnOnce(DuplexStream, DuplexStream) -> F)
where
    F: Future<Output = std::io::Result<()>> + Send + 'static,
{
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build().unwrap();
    let (ours, theirs) = duplex(4);
    let test = test(ours, theirs);
    runtime.block_on(async {
        let root = Root::builder().build();
        root.run(test).await.unwrap();
        assert!(root.shutdown().await.unwrap().is_clean());
    });
}

#[test]
fn io_6_tokio_read_takes_nothing() {
    on(|mut ours, mut theirs| async move {
        let mut buf = [0; 4];
        told(ours.read(&mut buf)).await;
        theirs.write_all(b"ab").await?;
        assert_eq!(ours.read(&mut buf).await?, 2);
        Ok(())
    });
}

#[test]
fn io_6_tokio_read_exact_loses_what_it_has_read() {
    on(|mut ours, mut theirs| async move {
        theirs.write_all(b"ab").await?;
        let mut buf = [0; 3];
        told(ours.read_exact(&mut buf)).await;
        theirs.write_all(b"cde").await?;
        ours.read_exact(&mut buf).await?;
        assert_eq!(&buf, b"cde", "`ab` is gone");
        Ok(())
    });
}

#[test]
fn io_6_tokio_read_to_end_and_read_until_keep_what_they_have_read_in_their_buffer() {
    on(|ours, mut theirs| async move {
        let mut ours = BufReader::new(ours);
        theirs.write_all(b"ab").await?;
        let mut line = Vec::new();
        told(ours.read_until(b'\n', &mut line)).await;
        assert_eq!(line, b"ab");
        theirs.write_all(b"c\n").await?;
        ours.read_until(b'\n', &mut line).await?;
        assert_eq!(line, b"abc\n");
        let mut all = Vec::new();
        theirs.write_all(b"d").await?;
        told(ours.read_to_end(&mut all)).await;
        assert_eq!(all, b"d");
        Ok(())
    });
}

#[test]
fn io_6_tokio_next_line_takes_nothing() {
    on(|ours, mut theirs| async move {
        let mut lines = BufReader::new(ours).lines();
        theirs.write_all(b"ab").await?;
        told(lines.next_line()).await;
        theirs.write_all(b"c\n").await?;
        assert_eq!(lines.next_line().await?.as_deref(), Some("abc"));
        Ok(())
    });
}

#[test]
fn io_6_tokio_read_line_loses_what_it_has_read() {
    on(|ours, mut theirs| async move {
        let mut ours = BufReader::new(ours);
        theirs.write_all(b"ab").await?;
        let mut line = String::new();
        told(ours.read_line(&mut line)).await;
        assert!(line.is_empty());
        theirs.write_all(b"c\n").await?;
        ours.read_line(&mut line).await?;
        assert_eq!(line, "c\n", "`ab` is gone");
        Ok(())
    });
}

#[test]
fn io_6_tokio_write_has_written_nothing() {
    on(|mut ours, mut theirs| async move {
        ours.write_all(b"abcd").await?;
        told(ours.write(b"never")).await;
        let mut buf = [0; 8];
        assert_eq!(theirs.read(&mut buf).await?, 4);
        Ok(())
    });
}

#[test]
fn io_6_tokio_write_all_forgets_how_much_it_has_written() {
    on(|mut ours, mut theirs| async move {
        told(ours.write_all(b"abcdef")).await;
        let mut buf = [0; 8];
        assert_eq!(theirs.read(&mut buf).await?, 4, "some of it is written");
        Ok(())
    });
}

#[test]
fn io_6_tokio_copy_loses_what_it_has_read() {
    on(|mut ours, mut theirs| async move {
        let (mut to, mut out) = duplex(1);
        theirs.write_all(b"abc").await?;
        told(copy(&mut ours, &mut to)).await;
        theirs.write_all(b"d").await?;
        drop(theirs);
        let copies = tokio::spawn(async move { copy(&mut ours, &mut to).await });
        let mut all = String::new();
        out.read_to_string(&mut all).await?;
        copies.await??;
        assert_eq!(all, "ad", "`bc` is gone");
        Ok(())
    });
}

#[test]
fn io_6_tokio_accept_and_recv_from_take_nothing() {
    on(|_, _| async move {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        told(listener.accept()).await;
        let _client = tokio::net::TcpStream::connect(listener.local_addr()?).await?;
        listener.accept().await?;

        let ours = UdpSocket::bind("127.0.0.1:0").await?;
        let mut buf = [0; 4];
        told(ours.recv_from(&mut buf)).await;
        let theirs = UdpSocket::bind("127.0.0.1:0").await?;
        theirs.send_to(b"ab", ours.local_addr()?).await?;
        assert_eq!(ours.recv_from(&mut buf).await?.0, 2);
        Ok(())
    });
}
