//! What a simulation on one thread in virtual time does not show.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use tokio::sync::mpsc;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

use crate::shared::{MS, Result, Run, side_by_side};

zoo! {
    alone no_point_between;
    alone published_too_weakly;
    alone computes_too_long;
    alone endless_queue;
}

async fn no_point_between(run: Run) -> Result {
    let count = Arc::new(AtomicU32::new(0));
    side_by_side(2, |_| {
        let count = count.clone();
        async move {
            match run.bug {
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

async fn published_too_weakly(run: Run) -> Result {
    use std::sync::atomic::Ordering::{Acquire, Release};
    let shared = Arc::new((AtomicU32::new(0), AtomicBool::new(false)));
    let other = shared.clone();
    let writes = tokio::spawn(async move {
        other.0.store(7, Relaxed);
        other.1.store(true, if run.bug { Relaxed } else { Release });
    });
    while !shared.1.load(if run.bug { Relaxed } else { Acquire }) {
        yield_now().await;
    }
    assert_eq!(shared.0.load(Relaxed), 7);
    writes.await?;
    Ok(())
}

async fn computes_too_long(run: Run) -> Result {
    let computes = tokio::spawn(async move {
        let mut sum = 0_u64;
        for number in 0..1000 {
            sum = sum.wrapping_add(number);
            if !run.bug && number % 100 == 0 {
                yield_now().await;
            }
        }
        sum
    });
    timeout(3 * MS, sleep(MS)).await?;
    computes.await?;
    Ok(())
}

async fn endless_queue(run: Run) -> Result {
    let (items, mut queue) = mpsc::unbounded_channel();
    let (some, mut few) = mpsc::channel(4);
    let producer = tokio::spawn(async move {
        for item in 0..20 {
            if run.bug {
                let _ = items.send(item);
            } else {
                let _ = some.send(item).await;
            }
        }
    });
    let mut count = 0;
    loop {
        let item = match run.bug {
            true => queue.recv().await,
            false => few.recv().await,
        };
        match item {
            Some(_) => count += 1,
            None => break,
        }
        sleep(MS).await;
    }
    assert_eq!(count, 20);
    producer.await?;
    Ok(())
}
