//! A small job, stopped at each of its points in turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use kinfolk::testkit::{Everywhere, cancel_everywhere_then};
use kinfolk::{any, cleanup, for_each_concurrent, sleep};

const MS: Duration = Duration::from_millis(1);

/// What was begun in the store, and what became of it.
#[derive(Default)]
struct Ledger {
    begun: AtomicUsize,
    stored: AtomicUsize,
    undone: AtomicUsize,
}

async fn mirror(wait: Duration, parts: usize) -> kinfolk::Result<usize> {
    sleep(wait).await?;
    Ok(parts)
}

async fn save(ledger: &Ledger) -> kinfolk::Result<()> {
    ledger.begun.fetch_add(1, SeqCst);
    if let Err(told) = sleep(5 * MS).await {
        // Told in the middle: undone, with a wait that works in here.
        cleanup(sleep(MS)).await?;
        ledger.undone.fetch_add(1, SeqCst);
        return Err(told.into());
    }
    ledger.stored.fetch_add(1, SeqCst);
    Ok(())
}

/// The first mirror that answers, then its parts, two at a time.
async fn download(ledger: Arc<Ledger>) -> kinfolk::Result<()> {
    let parts = any([mirror(30 * MS, 5), mirror(10 * MS, 5)]).await?;
    for_each_concurrent(0..parts, 2, |_| save(&ledger)).await
}

/// Stops it everywhere, and checks after each run that nothing is half done.
pub fn measure() -> Everywhere {
    let ledger = Arc::new(Ledger::default());
    let seen = ledger.clone();
    cancel_everywhere_then(
        move || download(ledger.clone()),
        move || {
            let ended = seen.stored.load(SeqCst) + seen.undone.load(SeqCst);
            assert_eq!(seen.begun.load(SeqCst), ended, "a record is half done");
        },
    )
}

#[test]
fn a_download_can_be_stopped_anywhere() {
    assert_eq!(measure().forced, 0, "every wait hears it");
}
