//! More operations than a thread gives to its driver. A disk that does not answer
//! keeps the places: what waits for another side takes none.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use kinfolk_core::{Error, Result, all, checkpoint, sleep, spawn};
use kinfolk_runtime::fs::{File, rename};
use kinfolk_runtime::io::pipe;
use kinfolk_runtime::net::{TcpListener, TcpStream};
use kinfolk_testkit::io::{Fault, OpKind};

use super::hosts::Case;
use super::lab::IoLab;

/// A file that can be read.
async fn file(lab: &IoLab) -> Result<Arc<File>> {
    Ok(Arc::new(File::create(lab.path("stuck")).await?))
}

/// Reads that the disk does not answer and that take all places of a thread but so
/// many, in one job.
fn fill(
    lab: &IoLab,
    file: &Arc<File>,
    but: usize,
) -> Vec<impl Future<Output = Result<()>> + Send + use<>> {
    let count = lab.limit - but;
    lab.faults(OpKind::Read, count, Fault::Stuck);
    let read = |_| {
        let (file, buf) = (file.clone(), lab.quarantine.buf(1));
        async move {
            let (read, _) = file.read_at(buf, 0).await;
            Err::<(), _>(Error::from(read.expect_err("it is cancelled")))
        }
    };
    (0..count).map(read).collect()
}

/// One place is left: those that wait for it get it in the order they came. Each of
/// them needs what the one before it has done.
pub async fn io_3_beyond_the_limit_they_wait_in_order(lab: IoLab) -> Result<()> {
    const MANY: usize = 50;
    let file = file(&lab).await?;
    File::create(lab.path("0")).await?.close().await?;
    let left = Arc::new(AtomicUsize::new(MANY));
    // In one job, and so on one thread, begun in this order.
    let reads = fill(&lab, &file, 1);
    let renames = (0..MANY).map(|n| {
        let renamed = rename(lab.path(&n.to_string()), lab.path(&(n + 1).to_string()));
        let left = left.clone();
        async move {
            renamed.await?;
            left.fetch_sub(1, SeqCst);
            Ok::<_, Error>(())
        }
    });
    let renames: Vec<_> = renames.collect();
    let task = spawn(async move { all((all(reads), all(renames))).await });
    while left.load(SeqCst) > 0 {
        assert!(!task.is_ended(), "one was begun too early");
        assert!(lab.under_way() <= lab.limit as u64);
        sleep(Duration::from_micros(50)).await?;
    }
    task.cancel("enough");
    assert!(task.outcome().await?.is_cancelled());
    let last = File::open(lab.path(&MANY.to_string())).await?;
    last.close().await?;
    Ok(())
}

pub async fn io_3_beyond_the_limit_they_are_cancelled_there(lab: IoLab) -> Result<()> {
    let file = file(&lab).await?;
    let before = lab.audit.submitted();
    let own = lab.clone();
    let task = spawn(async move {
        // None of them is answered, so those that wait have nothing to wait for.
        own.faults(OpKind::Read, own.limit * 10, Fault::Stuck);
        let reads = (0..own.limit * 10).map(|_| {
            let read = file.read_at(own.quarantine.buf(1), 0);
            async move {
                let (read, _) = read.await;
                let error = Error::from(read.expect_err("no answer comes"));
                assert!(error.is_cancelled());
                Err::<(), Error>(error)
            }
        });
        let ended = all(reads.collect::<Vec<_>>()).await;
        assert!(ended.is_err());
        checkpoint().await?;
        Ok::<_, Error>(())
    });
    lab.until_under_way(lab.limit as u64).await?;
    task.cancel("enough");
    assert!(task.outcome().await?.is_cancelled());
    // Those at another thread are cancelled one by one while it goes on letting
    // others in, perhaps all of them; after an interrupt some are begun again.
    if lab.alone {
        let most = if lab.rough { 5 } else { 1 };
        assert!(
            lab.audit.submitted() - before <= most * lab.limit as u64,
            "{:?}: those that waited never reached the driver",
            lab.audit
        );
    }
    // But for the file, which is closed behind them.
    lab.until_under_way(0).await
}

pub async fn io_1_a_close_beyond_the_limit_closes_though_told(lab: IoLab) -> Result<()> {
    let file = File::create(lab.path("a")).await?;
    let stuck = self::file(&lab).await?;
    let own = lab.clone();
    let task = spawn(async move {
        let reads = fill(&own, &stuck, 0);
        drop(stuck);
        let close = file.close();
        let ended = all((all(reads), async { Ok::<_, Error>(close.await?) })).await;
        assert!(ended.is_err_and(|error| error.is_cancelled()));
        checkpoint().await?;
        Ok::<_, Error>(())
    });
    lab.until_under_way(lab.limit as u64).await?;
    task.cancel("enough");
    assert!(task.outcome().await?.is_cancelled());
    lab.until_under_way(0).await?;
    lab.assert_none_open();
    Ok(())
}

/// Many that wait for another side: to accept, to receive, to send, to read a pipe and
/// to write to one. None of them takes a place: others are served beside them.
pub async fn io_3_who_waits_for_another_side_takes_no_place(lab: IoLab) -> Result<()> {
    let many = 2 * lab.limit;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let connect = async || -> Result<(TcpStream, TcpStream)> {
        let one = TcpStream::connect(listener.local_addr()?).await?;
        Ok((one, listener.accept().await?.0))
    };
    let (one, other) = connect().await?;
    let (silent, _client) = connect().await?;
    let (full, _reader) = connect().await?;
    let (reader, _writer) = pipe()?;
    let (_blocked, writer) = pipe()?;
    let shared = Arc::new((silent, full, reader, writer));
    let deaf = Arc::new(TcpListener::bind("127.0.0.1:0").await?);
    let own = lab.clone();
    let task = spawn(async move {
        let mut waits: Vec<Case> = Vec::new();
        for n in 0..many {
            let (shared, deaf, own) = (shared.clone(), deaf.clone(), own.clone());
            waits.push(Box::pin(async move {
                let (silent, full, reader, writer) = &*shared;
                let buf = own.quarantine.buf(1);
                match n % 4 {
                    0 => drop(deaf.accept().await?),
                    1 => drop(silent.read(buf).await.0?),
                    2 => drop(reader.read(buf).await.0?),
                    // More than there is room for: it waits sooner or later.
                    _ if n % 8 == 3 => loop {
                        full.write(own.quarantine.filled([0; 4096])).await.0?;
                    },
                    _ => loop {
                        writer.write(own.quarantine.filled([0; 4096])).await.0?;
                    },
                }
                Ok(())
            }));
        }
        all(waits).await
    });
    // All of them are with the driver: more than there are places.
    while lab.under_way() < many as u64 {
        assert!(!task.is_ended());
        sleep(Duration::from_micros(50)).await?;
    }
    // A connection and a file are served as ever.
    one.write_all(lab.quarantine.filled("echo")).await.0?;
    let (read, buf) = other.read_exact(lab.quarantine.buf(4)).await;
    read?;
    assert_eq!(&*buf, b"echo");
    drop(buf);
    let file = File::create(lab.path("served")).await?;
    let (wrote, _) = file.write_all_at(lab.quarantine.filled("bytes"), 0).await;
    wrote?;
    file.close().await?;
    assert!(!task.is_ended(), "they wait still");
    task.cancel("enough");
    assert!(task.outcome().await?.is_cancelled());
    Ok(())
}
