//! What a simulation on one thread in virtual time does not show.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use kinfolk::{Error, OrCancel, Result, sleep, spawn, timeout};
use tokio::sync::mpsc;

use crate::{MS, side_by_side};

zoo! {
    no_point_between test "two tasks read a counter and write it back, with no point between"
        out_of_reach "between two points of a task nothing else runs: two real workers show it (`flavor = \"native\"`)";
    published_too_weakly test "a flag says with `Relaxed` that the value beside it is there"
        out_of_reach "one thread sees its own writes in order: that is for loom and ThreadSanitizer";
    computes_too_long test "a computation without a point makes everything else late"
        out_of_reach "computing takes no virtual time: measure it on the real runtime";
    endless_queue test "a producer that is faster than its consumer fills a queue without bound"
        out_of_reach "memory is not counted: give queues a bound, and look at the length of those that have none";
}

async fn no_point_between(bug: bool) -> Result<()> {
    let count = Arc::new(AtomicU32::new(0));
    side_by_side(2, |_| {
        let count = count.clone();
        async move {
            match bug {
                true => count.store(count.load(Relaxed) + 1, Relaxed),
                false => _ = count.fetch_add(1, Relaxed),
            }
            Ok(())
        }
    })
    .await?;
    assert_eq!(count.load(Relaxed), 2);
    Ok(())
}

async fn published_too_weakly(bug: bool) -> Result<()> {
    use std::sync::atomic::Ordering::{Acquire, Release};
    let shared = Arc::new((AtomicU32::new(0), AtomicBool::new(false)));
    let other = shared.clone();
    let writes = spawn(async move {
        other.0.store(7, Relaxed);
        other.1.store(true, if bug { Relaxed } else { Release });
        Ok::<_, Error>(())
    });
    while !shared.1.load(if bug { Relaxed } else { Acquire }) {
        kinfolk::yield_now().await?;
    }
    assert_eq!(shared.0.load(Relaxed), 7);
    writes.await
}

async fn computes_too_long(bug: bool) -> Result<()> {
    let computes = spawn(async move {
        let mut sum = 0_u64;
        for number in 0..1000 {
            sum = sum.wrapping_add(number);
            if !bug && number % 100 == 0 {
                kinfolk::checkpoint().await?;
            }
        }
        Ok::<_, Error>(sum)
    });
    timeout(2 * MS, sleep(MS)).await?;
    computes.await?;
    Ok(())
}

async fn endless_queue(bug: bool) -> Result<()> {
    let (items, mut queue) = mpsc::unbounded_channel();
    let (some, mut few) = mpsc::channel(4);
    let producer = spawn(async move {
        for item in 0..20 {
            if bug {
                let _ = items.send(item);
            } else {
                let _ = some.send(item).or_cancel().await?;
            }
        }
        Ok::<_, Error>(())
    });
    let mut count = 0;
    loop {
        let item = match bug {
            true => queue.recv().or_cancel().await?,
            false => few.recv().or_cancel().await?,
        };
        match item {
            Some(_) => count += 1,
            None => break,
        }
        sleep(MS).await?;
    }
    assert_eq!(count, 20);
    producer.await
}
