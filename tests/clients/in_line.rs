//! Tokio's locks under `or_cancel`: a wait that is told has lost its place in line. The other
//! rows of the table in `docs/sync.md` are tests of the crates sync and tokio.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use kinfolk::testkit::Sim;
use kinfolk::{Error, ErrorKind, OrCancel, Result, timeout};
use tokio::sync::{Mutex, Notify, RwLock, Semaphore, mpsc};

/// Whether it is ready when it is polled once.
async fn is_ready<F: Future>(mut future: Pin<&mut F>) -> bool {
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_ready())).await
}

/// A wait is told; `other` waits behind it, and it waits again. `other` comes first.
async fn loses_its_place<F: Future, G: Future>(
    wait: impl Fn() -> F,
    other: G,
    let_go: impl FnOnce(),
) -> Result<()> {
    let limited = timeout(Duration::from_millis(1), async {
        wait().or_cancel().await?;
        Ok::<_, Error>(())
    });
    let (mut told, mut other) = (pin!(limited), pin!(other));
    assert!(!is_ready(told.as_mut()).await);
    assert!(!is_ready(other.as_mut()).await);
    assert_eq!(told.await.unwrap_err().kind(), ErrorKind::TimedOut);
    let mut again = pin!(wait());
    assert!(!is_ready(again.as_mut()).await);
    let_go();
    assert!(!is_ready(again.as_mut()).await, "it has lost its place");
    assert!(is_ready(other.as_mut()).await, "the next one has it");
    Ok(())
}

fn run(test: impl Future<Output = Result<()>> + Send + 'static) {
    Sim::seeded(1).run(test).unwrap();
}

#[test]
fn io_6_tokio_locks_lose_the_place_in_line() {
    run(async {
        let lock = Mutex::new(());
        let held = lock.lock().await;
        loses_its_place(|| lock.lock(), lock.lock(), || drop(held)).await
    });
    run(async {
        let lock = RwLock::new(());
        let held = lock.write().await;
        loses_its_place(|| lock.read(), lock.write(), || drop(held)).await?;
        let held = lock.write().await;
        loses_its_place(|| lock.write(), lock.write(), || drop(held)).await
    });
    run(async {
        let permits = Semaphore::new(1);
        let held = permits.acquire().await;
        let wait = || permits.acquire();
        loses_its_place(wait, permits.acquire(), || drop(held)).await
    });
}

#[test]
fn io_6_tokio_reserve_and_notified_lose_the_place_in_line() {
    run(async {
        let (tx, mut rx) = mpsc::channel(1);
        tx.try_send(7).unwrap();
        let take = || assert_eq!(rx.try_recv(), Ok(7));
        loses_its_place(|| tx.reserve(), tx.reserve(), take).await
    });
    run(async {
        let notify = Notify::new();
        let wait = || notify.notified();
        loses_its_place(wait, notify.notified(), || notify.notify_one()).await
    });
}
