//! A small store: requests are high and go first, compaction is low and runs when there is
//! nothing else to do. Neither starves: a request waits for a turn or two of the compaction at
//! most, and compaction goes on under a flood of requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use kinfolk::job::Priority;
use kinfolk::{Error, Result, scope, yield_now};

#[kinfolk::main(workers = 1)]
async fn main() -> Result<()> {
    let merged = serve(1_000, 100).await?;
    println!("100 requests were answered when {merged} of 1,000 segments were merged");
    Ok(())
}

/// Merges segments and answers requests meanwhile; how many segments were merged when the last
/// request was answered.
async fn serve(segments: usize, requests: usize) -> Result<usize> {
    let merged = Arc::new(AtomicUsize::new(0));
    scope(async |s| {
        // What the compaction spawns is low too.
        s.task("compaction")
            .priority(Priority::Low)
            .launch(compact(segments, merged.clone()));
        let requests: Vec<_> = (0..requests)
            .map(|id| {
                let request = s.task("request").priority(Priority::High);
                request.spawn(answer(id, merged.clone()))
            })
            .collect();
        let mut last = 0;
        for request in requests {
            last = last.max(request.await?);
        }
        Ok(last)
        // The scope waits for the compaction.
    })
    .await
}

/// One request, in a few short steps; how many segments were merged when it was answered.
async fn answer(id: usize, merged: Arc<AtomicUsize>) -> Result<usize> {
    for _ in 0..id % 4 {
        yield_now().await?;
    }
    Ok(merged.load(Relaxed))
}

/// Merges each segment by a task of its own.
async fn compact(segments: usize, merged: Arc<AtomicUsize>) -> Result<()> {
    scope(async |s| {
        for _ in 0..segments {
            let merged = merged.clone();
            s.launch(async move {
                yield_now().await?;
                merged.fetch_add(1, Relaxed);
                Ok::<_, Error>(())
            });
        }
        Ok(())
    })
    .await
}

#[kinfolk::test]
async fn requests_are_answered_while_segments_are_merged() {
    assert!(serve(40, 20).await.unwrap() <= 40);
}

/// Told at any of its points, it leaves nothing behind.
#[test]
fn a_store_can_be_stopped_anywhere() {
    let went = kinfolk::testkit::cancel_everywhere(async || serve(5, 2).await.map(drop));
    assert_eq!(went.forced, 0, "every wait hears it");
}
