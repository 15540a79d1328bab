//! Readers, writers and copies over streams: nothing is lost by a wait that is told or dropped.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use kinfolk_core::{
    Error, ErrorKind, Result, checkpoint, cleanup, current_job, scope, sleep, spawn, timeout,
};
use kinfolk_runtime::io::{self, BufReader, BufWriter, pipe};
use kinfolk_runtime::net::{TcpListener, TcpStream, UnixStream};

use super::lab::IoLab;

async fn connected() -> Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let addr = listener.local_addr()?;
    scope(async move |s| {
        let there = s.spawn(async move { Ok::<_, Error>(TcpStream::connect(addr).await?) });
        let (here, _) = listener.accept().await?;
        Ok((here, there.await?))
    })
    .await
}

/// The reader takes seven bytes at once, so that lines lie across reads.
pub async fn io_7_lines_are_read_whole(_lab: IoLab) -> Result<()> {
    let (reader, writer) = pipe()?;
    let long = "x".repeat(1000);
    let sent = format!("one\r\n\ntwo\n{long}\nlast");
    let task = spawn(async move {
        writer.write_all(sent).await.0?;
        Ok::<_, Error>(())
    });
    let mut lines = BufReader::with_capacity(7, reader).lines();
    let mut seen = Vec::new();
    while let Some(line) = lines.next().await {
        seen.push(line?);
    }
    assert_eq!(seen, ["one", "", "two", &long, "last"]);
    task.await
}

pub async fn io_7_parts_are_read_whole(_lab: IoLab) -> Result<()> {
    let (here, there) = connected().await?;
    let task = spawn(async move {
        there.write_all("key=value;12345rest").await.0?;
        Ok::<_, Error>(())
    });
    let mut reader = BufReader::with_capacity(5, &here);
    assert_eq!(reader.read_until(b'=').await?, b"key=");
    assert_eq!(reader.read_until(b';').await?, b"value;");
    let (read, five) = reader.read_exact([0; 5]).await;
    read?;
    assert_eq!(&five, b"12345");
    // Too many: they stay for the next.
    let (read, _) = reader.read_exact([0; 9]).await;
    let error = read.expect_err("it ends before");
    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
    assert_eq!(reader.read_to_end().await?, b"rest");
    assert_eq!(reader.read_until(b'=').await?, b"");
    task.await
}

pub async fn io_7_a_line_that_is_no_text_or_too_long_is_an_error(_lab: IoLab) -> Result<()> {
    let (reader, writer) = pipe()?;
    writer
        .write_all(&b"\xff\ngood\nmuch too long\n"[..])
        .await
        .0?;
    drop(writer);
    let mut lines = BufReader::new(reader).lines().at_most(8);
    let error = lines.next().await.expect("a line").expect_err("no text");
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidData);
    let inner = error.into_inner().expect("what it was");
    let bytes = inner
        .downcast::<std::string::FromUtf8Error>()
        .expect("the bytes");
    assert_eq!(bytes.into_bytes(), b"\xff");
    assert_eq!(lines.next().await.transpose()?.as_deref(), Some("good"));
    for _ in 0..2 {
        let error = lines.next().await.expect("a line").expect_err("too long");
        assert!(error.to_string().contains("longer than 8 bytes"), "{error}");
    }
    let mut reader = lines.into_reader();
    assert_eq!(reader.read_to_end().await?, b"much too long\n");
    Ok(())
}

/// The bytes come one by one, and the wait after each is told unless its line is complete.
pub async fn io_7_a_told_wait_keeps_its_part_of_a_line(_lab: IoLab) -> Result<()> {
    let (here, there) = UnixStream::pair()?;
    let mut lines = BufReader::new(here).lines();
    let mut seen = Vec::new();
    for byte in "begin\nend\n".bytes() {
        there.write_all(vec![byte]).await.0?;
        let wanted = seen.len() + usize::from(byte == b'\n');
        // Told before the byte was there, it is asked again.
        while seen.len() < wanted || lines.get_ref().buffer().last() != Some(&byte) {
            let line = timeout(Duration::from_micros(20), async {
                lines.next().await.transpose().map_err(Error::from)
            });
            match line.await {
                Ok(line) => seen.extend(line),
                Err(error) => assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}"),
            }
            if byte == b'\n' && seen.len() == wanted {
                break;
            }
        }
    }
    drop(there);
    while let Some(line) = lines.next().await {
        seen.push(line?);
    }
    assert_eq!(seen, ["begin", "end"]);
    Ok(())
}

/// cancel-3: told at entry, a line that is there is left.
pub async fn io_7_told_at_entry_a_line_is_left(_lab: IoLab) -> Result<()> {
    let (reader, writer) = pipe()?;
    writer.write_all("one\ntwo\n").await.0?;
    drop(writer);
    let lines = Arc::new(Mutex::new(Some(BufReader::new(reader).lines())));
    let own = lines.clone();
    let task = spawn(async move {
        let mut lines = own.lock().expect("the lines").take().expect("here");
        assert_eq!(lines.next().await.transpose()?.as_deref(), Some("one"));
        current_job().expect("a job").cancel("enough");
        let told = lines.next().await;
        *own.lock().expect("the lines") = Some(lines);
        told.transpose()?;
        Ok::<_, Error>(())
    });
    assert!(task.outcome().await?.is_cancelled());
    let mut lines = lines.lock().expect("the lines").take().expect("kept");
    assert_eq!(lines.next().await.transpose()?.as_deref(), Some("two"));
    assert!(lines.next().await.is_none());
    Ok(())
}

/// A wait that is dropped while its read is in flight leaves the bytes to the next wait.
pub async fn io_7_a_dropped_wait_loses_no_byte(lab: IoLab) -> Result<()> {
    let (reader, writer) = pipe()?;
    let mut lines = BufReader::new(reader).lines();
    for round in 0..10 {
        let sent = format!("line {round}\n");
        {
            let mut wait = pin!(lines.next());
            let begun = std::future::poll_fn(|cx| Poll::Ready(wait.as_mut().poll(cx))).await;
            assert!(begun.is_pending());
            // The read has perhaps been answered when its wait is dropped.
            writer.write_all(sent.clone()).await.0?;
            if round % 2 == 0 {
                checkpoint().await?;
            }
        }
        let line = lines.next().await.transpose()?;
        assert_eq!(line.as_deref(), Some(sent.trim_end()));
    }
    drop((lines, writer));
    lab.until_under_way(0).await?;
    Ok(())
}

/// A receiver that takes nothing: the flush is told, says how much was written, and goes on
/// in the clean-up.
pub async fn io_7_a_told_flush_says_what_is_written(lab: IoLab) -> Result<()> {
    const ALL: usize = 3_000_000;
    let (here, there) = UnixStream::pair()?;
    let reads = Arc::new(Mutex::new(None));
    let own = reads.clone();
    let task = spawn(async move {
        let mut out = BufWriter::new(here);
        out.write_all(vec![7; ALL]).await?;
        assert_eq!((out.written(), out.unwritten()), (0, ALL));
        let told = out.flush().await.expect_err("nothing is read");
        assert!(io::told(&told).is_some(), "{told}");
        assert!(out.written() > 0, "some of it fits");
        assert_eq!(out.written() as usize + out.unwritten(), ALL);
        let before = out.written();
        // A told write takes nothing.
        out.write_all("more").await.expect_err("it was told");
        assert_eq!(out.written() as usize + out.unwritten(), ALL);
        *own.lock().expect("the reader") = Some(spawn_reader(&lab, there));
        cleanup(out.shutdown()).await?;
        assert_eq!((out.written(), out.unwritten()), (ALL as u64, 0));
        assert!(before < ALL as u64);
        Err::<(), Error>(told.into())
    });
    // It waits until nothing more fits.
    sleep(Duration::from_millis(20)).await?;
    task.cancel("enough");
    assert!(task.outcome().await?.is_cancelled());
    let all = reads.lock().expect("the reader").take().expect("begun");
    assert_eq!(all.await?, ALL);
    Ok(())
}

/// Reads to the end, in a job of the root; how much.
fn spawn_reader(lab: &IoLab, from: UnixStream) -> kinfolk_core::Task<usize> {
    lab.root().spawn(async move {
        let all = BufReader::with_capacity(64 * 1024, from)
            .read_to_end()
            .await?;
        Ok::<_, Error>(all.len())
    })
}

pub async fn io_7_small_writes_go_together(lab: IoLab) -> Result<()> {
    let (reader, writer) = pipe()?;
    let mut out = BufWriter::with_capacity(10, &writer);
    let before = lab.audit.submitted();
    for part in ["one ", "two "] {
        out.write_all(part).await?;
    }
    assert_eq!((lab.audit.submitted() - before, out.unwritten()), (0, 8));
    out.write_all("three").await?;
    assert_eq!((out.written(), out.unwritten()), (8, 5));
    out.flush().await?;
    assert_eq!((out.written(), out.unwritten()), (13, 0));
    drop(out);
    drop(writer);
    let all = BufReader::new(reader).read_to_end().await?;
    assert_eq!(all, b"one two three");
    Ok(())
}

pub async fn io_7_a_copy_copies_to_the_end(_lab: IoLab) -> Result<()> {
    let (from, source) = pipe()?;
    let (target, to) = pipe()?;
    let sent: Vec<u8> = (0..200_000_u32).map(|n| n as u8).collect();
    let wanted = sent.clone();
    scope(async move |s| {
        s.launch(async move {
            source.write_all(sent).await.0?;
            Ok::<_, Error>(())
        });
        s.launch(async move {
            assert_eq!(io::copy(from, to).await?, 200_000);
            Ok::<_, Error>(())
        });
        let all = BufReader::new(target).read_to_end().await?;
        assert!(all == wanted);
        Ok(())
    })
    .await
}

/// Stopped again and again, a copy goes on from where it was.
pub async fn io_7_a_told_copy_keeps_its_progress(_lab: IoLab) -> Result<()> {
    let (here, there) = UnixStream::pair()?;
    let (target, to) = pipe()?;
    let task = spawn(async move {
        for n in 0..40_u8 {
            there.write_all(vec![n; 10]).await.0?;
            sleep(Duration::from_micros(25)).await?;
        }
        Ok::<_, Error>(())
    });
    let mut copy = io::copy(here, to);
    let mut told = 0;
    loop {
        let before = copy.written();
        let copied = timeout(Duration::from_micros(40), async {
            (&mut copy).await.map_err(Error::from)
        });
        match copied.await {
            Ok(bytes) => {
                assert_eq!(bytes, 400);
                break;
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}"),
        }
        told += 1;
        copy.flush().await?;
        assert!(copy.written() >= before);
        assert_eq!(copy.read(), copy.written());
    }
    assert!(told > 0, "it was never told");
    drop(copy);
    let all = BufReader::new(target).read_to_end().await?;
    let wanted: Vec<u8> = (0..40_u8).flat_map(|n| [n; 10]).collect();
    assert_eq!(all, wanted);
    task.await
}

/// The client ends its direction first, and gets the answer after that.
pub async fn io_7_a_half_close_is_passed_on(_lab: IoLab) -> Result<()> {
    let (client, near) = connected().await?;
    let (far, server) = connected().await?;
    scope(async move |s| {
        let proxy = s.spawn(async move {
            let both = io::copy_bidirectional(&near, &far).await?;
            Ok::<_, Error>(both)
        });
        s.launch(async move {
            let asked = BufReader::new(&server).read_to_end().await?;
            assert_eq!(asked, b"question");
            let mut out = BufWriter::new(&server);
            out.write_all("the answer").await?;
            out.shutdown().await?;
            Ok::<_, Error>(())
        });
        let mut out = BufWriter::new(&client);
        out.write_all("question").await?;
        out.shutdown().await?;
        assert_eq!(BufReader::new(&client).read_to_end().await?, b"the answer");
        assert_eq!(proxy.await?, (8, 10));
        Ok(())
    })
    .await
}

/// Told in both directions: what was read is written in the clean-up, and nothing is left
/// with the driver.
pub async fn io_7_a_told_copy_in_both_directions_reports(lab: IoLab) -> Result<()> {
    let (client, near) = connected().await?;
    let (far, server) = connected().await?;
    let task = spawn(async move {
        let mut copy = io::copy_bidirectional(near, far);
        let told = (&mut copy).await.expect_err("neither side ends");
        assert!(io::told(&told).is_some(), "{told}");
        cleanup(copy.flush()).await?;
        assert_eq!(copy.read(), copy.written());
        let (up, down) = copy.written();
        assert!(up <= 2 && down <= 3, "{up} {down}");
        drop(copy);
        Err::<(), Error>(told.into())
    });
    client.write_all("ab").await.0?;
    server.write_all("cde").await.0?;
    let (read, got) = server.read(Vec::with_capacity(8)).await;
    read?;
    assert!(b"ab".starts_with(&got));
    task.cancel("enough");
    assert!(task.outcome().await?.is_cancelled());
    lab.until_under_way(0).await?;
    let rest = BufReader::new(&server).read_to_end().await;
    if let Ok(rest) = rest {
        assert!(b"ab".starts_with(&[got, rest].concat()));
    }
    Ok(())
}

/// An interrupt is told once only: the other direction is stopped all the same, and the copy
/// goes on from where it was.
pub async fn io_7_an_interrupt_stops_both_directions(_lab: IoLab) -> Result<()> {
    let (client, near) = connected().await?;
    let (far, server) = connected().await?;
    let task = spawn(async move {
        let mut copy = io::copy_bidirectional(near, far);
        let told = (&mut copy).await.expect_err("it was interrupted");
        assert!(io::told(&told).is_some(), "{told}");
        copy.await.map_err(Error::from)
    });
    client.write_all("ab").await.0?;
    let mut from_client = BufReader::new(&server);
    let (read, got) = from_client.read_exact([0; 2]).await;
    read?;
    assert_eq!(&got, b"ab");
    task.interrupt("look up");
    server.write_all("cde").await.0?;
    let (read, got) = client.read_exact([0; 3]).await;
    read?;
    assert_eq!(&got, b"cde");
    client.write_all("f").await.0?;
    client.shutdown(std::net::Shutdown::Write).await?;
    assert_eq!(from_client.read_to_end().await?, b"f");
    server.shutdown(std::net::Shutdown::Write).await?;
    assert_eq!(task.await?, (3, 3));
    Ok(())
}

/// What readers, writers and copies have with the driver ends with the host.
pub async fn shutdown_1_streams_that_wait_end(lab: IoLab) -> Result<()> {
    let (client, near) = connected().await?;
    let (far, server) = connected().await?;
    let (silent, other) = UnixStream::pair()?;
    lab.root().launch(async move {
        let mut lines = BufReader::new(silent).lines();
        let told = lines.next().await.expect("an error");
        assert!(Error::from(told.expect_err("nothing comes")).is_cancelled());
        checkpoint().await?;
        drop(other);
        Ok::<_, Error>(())
    });
    lab.root().launch(async move {
        let told = io::copy_bidirectional(near, far).await;
        assert!(Error::from(told.expect_err("neither ends")).is_cancelled());
        drop((client, server));
        checkpoint().await?;
        Ok::<_, Error>(())
    });
    sleep(Duration::from_micros(10)).await?;
    Ok(())
}
