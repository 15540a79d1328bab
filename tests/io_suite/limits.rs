//! More operations than a station gives to its driver.

use std::sync::Arc;

use kinfolk_core::{Error, Result, all, checkpoint, spawn};
use kinfolk_runtime::fs::File;
use kinfolk_runtime::io::{PipeReader, pipe};

use super::lab::IoLab;

/// Reads that fill a station up to its limit but for one, in one job.
fn fill(
    lab: &IoLab,
    reader: &Arc<PipeReader>,
    but: usize,
) -> Vec<impl Future<Output = Result<()>> + Send + use<>> {
    (0..lab.limit - but)
        .map(|_| {
            let read = reader.read(lab.quarantine.buf(1));
            async move {
                let (read, _) = read.await;
                assert_eq!(read?, 0, "nothing is written");
                Ok::<_, Error>(())
            }
        })
        .collect()
}

/// One place is left: whoever waits gets it in turn.
pub async fn io_3_beyond_the_limit_they_wait_in_order(lab: IoLab) -> Result<()> {
    let (blocked, end) = pipe()?;
    let (blocked, end) = (Arc::new(blocked), Some(end));
    let (reader, writer) = pipe()?;
    let mut end = end;
    // In one job, and so on one station, begun in this order.
    let reads = fill(&lab, &blocked, 1);
    let left = Arc::new(std::sync::atomic::AtomicUsize::new(50));
    let writes = (0..50_u8).map(|n| {
        let write = writer.write(lab.quarantine.filled([n]));
        let left = left.clone();
        async move {
            let (written, _) = write.await;
            assert_eq!(written?, 1);
            left.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
            Ok::<_, Error>(())
        }
    });
    let writes: Vec<_> = writes.collect();
    let done = left.clone();
    let own = lab.clone();
    let both = async {
        all((all(reads), all(writes), async {
            while done.load(std::sync::atomic::Ordering::SeqCst) > 0 {
                // Begun again it may be at another station, with its own limit.
                assert!(own.under_way() <= own.limit as u64 || own.rough);
                kinfolk_core::sleep(std::time::Duration::from_micros(50)).await?;
            }
            drop(end.take());
            Ok::<_, Error>(())
        }))
        .await
    };
    both.await?;
    let mut seen = Vec::new();
    while seen.len() < 50 {
        let (read, buf) = reader.read(lab.quarantine.buf(64)).await;
        assert!(read? > 0);
        seen.extend_from_slice(&buf);
    }
    if lab.rough {
        // One that was interrupted stands at the end of the row again.
        seen.sort_unstable();
    }
    assert_eq!(seen, (0..50).collect::<Vec<u8>>());
    Ok(())
}

pub async fn io_3_beyond_the_limit_they_are_cancelled_there(lab: IoLab) -> Result<()> {
    let (blocked, end) = pipe()?;
    let blocked = Arc::new(blocked);
    let own = lab.clone();
    let task = spawn(async move {
        let reads = (0..own.limit * 10).map(|_| {
            let read = blocked.read(own.quarantine.buf(1));
            async move {
                let (read, _) = read.await;
                let error = Error::from(read.expect_err("nothing is written"));
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
    // Those at another station are cancelled one by one while it goes on letting
    // others in, perhaps all of them; after an interrupt some are begun again.
    if lab.alone {
        let most = if lab.rough { 5 } else { 1 };
        assert!(
            lab.witness.submitted() <= most * lab.limit as u64,
            "{:?}: those that waited never reached the driver",
            lab.witness
        );
    }
    lab.until_under_way(0).await?;
    drop(end);
    Ok(())
}

pub async fn io_1_a_close_beyond_the_limit_closes_though_told(lab: IoLab) -> Result<()> {
    let file = File::create(lab.path("a")).await?;
    let (blocked, end) = pipe()?;
    let blocked = Arc::new(blocked);
    let own = lab.clone();
    let task = spawn(async move {
        let reads = fill(&own, &blocked, 0);
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
    drop(end);
    lab.assert_none_open();
    Ok(())
}
