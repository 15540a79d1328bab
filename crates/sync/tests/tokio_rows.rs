//! Tokio's own primitives under `or_cancel`: what is lost when a wait is told. Each test is a
//! row of the table in `docs/sync.md`.
#![cfg(not(loom))]

use std::sync::Arc;

use kinfolk_core::{Error, OrCancel, spawn, yield_now};
use kinfolk_testkit::Sim;
use tokio::sync::{
    Barrier, Mutex, Notify, OnceCell, RwLock, Semaphore, broadcast, mpsc, oneshot, watch,
};

/// A task waits for `future` under `or_cancel`, and is told while it waits.
fn told<F: Future<Output: Send> + Send + 'static>(future: F) {
    let waits = async {
        let task = spawn(async move {
            future.or_cancel().await?;
            Ok::<_, Error>(())
        });
        for _ in 0..10 {
            yield_now().await?;
        }
        assert!(!task.job().is_ended(), "it waits");
        task.cancel("told");
        Ok::<_, Error>(task.outcome().await?.is_cancelled())
    };
    assert!(Sim::seeded(1).run(waits).unwrap());
}

/// Ready at the first poll, or not at all.
fn now<F: Future>(future: F) -> Option<F::Output> {
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut cx) {
        std::task::Poll::Ready(output) => Some(output),
        std::task::Poll::Pending => None,
    }
}

/// What a told future borrows, to be looked at after.
fn kept<T>(value: T) -> (Arc<Mutex<T>>, Arc<Mutex<T>>) {
    let kept = Arc::new(Mutex::new(value));
    (kept.clone(), kept)
}

#[test]
fn io_6_tokio_mpsc_recv_takes_nothing() {
    let (tx, rx) = mpsc::channel(1);
    let (rx, lent) = kept(rx);
    told(async move { lent.lock().await.recv().await });
    tx.try_send(7).unwrap();
    assert_eq!(rx.try_lock().unwrap().try_recv(), Ok(7));

    let (tx, rx) = mpsc::unbounded_channel();
    let (rx, lent) = kept(rx);
    told(async move { lent.lock().await.recv().await });
    tx.send(7).unwrap();
    assert_eq!(rx.try_lock().unwrap().try_recv(), Ok(7));
}

#[test]
fn io_6_tokio_mpsc_recv_many_takes_nothing() {
    let (tx, rx) = mpsc::channel(1);
    let (rx, lent) = kept(rx);
    told(async move { lent.lock().await.recv_many(&mut Vec::new(), 4).await });
    tx.try_send(7).unwrap();
    assert_eq!(rx.try_lock().unwrap().try_recv(), Ok(7));
}

#[test]
fn io_6_tokio_mpsc_send_loses_the_value() {
    let (tx, mut rx) = mpsc::channel(1);
    tx.try_send(Arc::new(0)).unwrap();
    let value = Arc::new(7);
    let sent = value.clone();
    told(async move { tx.send(sent).await.is_ok() });
    assert_eq!(Arc::strong_count(&value), 1, "it went with the future");
    assert_eq!(rx.try_recv().as_deref(), Ok(&0));
    assert!(rx.try_recv().is_err());
}

#[test]
fn io_6_tokio_mpsc_reserve_loses_only_its_place() {
    let (tx, mut rx) = mpsc::channel(1);
    tx.try_send(0).unwrap();
    let lent = tx.clone();
    told(async move { lent.reserve().await.is_ok() });
    assert_eq!(rx.try_recv(), Ok(0));
    now(tx.reserve())
        .expect("the room is there")
        .unwrap()
        .send(7);
    assert_eq!(rx.try_recv(), Ok(7));
}

#[test]
fn io_6_tokio_oneshot_by_value_loses_the_value() {
    let (tx, rx) = oneshot::channel();
    let (rx, lent) = kept(rx);
    told(async move { (&mut *lent.lock().await).await });
    tx.send(7).unwrap();
    assert_eq!(rx.try_lock().unwrap().try_recv(), Ok(7), "by reference");

    let (tx, rx) = oneshot::channel();
    let value = Arc::new(7);
    tx.send(value.clone()).unwrap();
    let at_entry = async {
        let task = spawn(async move { Ok::<_, Error>(rx.or_cancel().await?.is_ok()) });
        task.cancel("before it begins");
        Ok::<_, Error>(task.outcome().await?.is_cancelled())
    };
    assert!(Sim::seeded(1).run(at_entry).unwrap());
    assert_eq!(Arc::strong_count(&value), 1, "by value it was dropped");
}

#[test]
fn io_6_tokio_watch_misses_no_change() {
    let (tx, rx) = watch::channel(0);
    let (rx, lent) = kept(rx);
    let also = lent.clone();
    told(async move { lent.lock().await.changed().await.is_ok() });
    told(async move { also.lock().await.wait_for(|n| *n == 7).await.is_ok() });
    tx.send(7).unwrap();
    let mut rx = rx.try_lock().unwrap();
    assert!(now(rx.changed()).is_some() && *rx.borrow() == 7);
}

#[test]
fn io_6_tokio_broadcast_recv_takes_nothing() {
    let (tx, rx) = broadcast::channel(1);
    let (rx, lent) = kept(rx);
    told(async move { lent.lock().await.recv().await });
    tx.send(7).unwrap();
    assert_eq!(rx.try_lock().unwrap().try_recv(), Ok(7));
}

#[test]
fn io_6_tokio_locks_are_not_held() {
    let mutex = Arc::new(Mutex::new(()));
    let guard = mutex.try_lock().unwrap();
    let lent = mutex.clone();
    told(async move { drop(lent.lock().await) });
    drop(guard);
    assert!(mutex.try_lock().is_ok());

    let lock = Arc::new(RwLock::new(()));
    let guard = lock.try_write().unwrap();
    let (reads, writes) = (lock.clone(), lock.clone());
    told(async move { drop(reads.read().await) });
    told(async move { drop(writes.write().await) });
    drop(guard);
    assert!(lock.try_write().is_ok());

    let semaphore = Arc::new(Semaphore::new(1));
    let permit = semaphore.try_acquire().unwrap();
    let lent = semaphore.clone();
    told(async move { lent.acquire().await.map(drop).is_ok() });
    drop(permit);
    assert!(semaphore.try_acquire().is_ok());
}

#[test]
fn io_6_tokio_notify_passes_on() {
    let notify = Notify::new();
    let mut first = Box::pin(notify.notified());
    let mut second = Box::pin(notify.notified());
    assert!(now(first.as_mut()).is_none() && now(second.as_mut()).is_none());
    notify.notify_one();
    drop(first);
    assert!(now(second.as_mut()).is_some(), "it went to the next");
}

#[test]
fn io_6_tokio_barrier_counts_what_is_gone() {
    let barrier = Arc::new(Barrier::new(2));
    let lent = barrier.clone();
    told(async move { lent.wait().await.is_leader() });
    assert!(now(barrier.wait()).is_some(), "one of two is enough");
}

#[test]
fn io_6_tokio_once_cell_is_made_by_the_next() {
    let cell = Arc::new(OnceCell::new());
    let lent = cell.clone();
    told(async move { *lent.get_or_init(std::future::pending::<u32>).await });
    assert_eq!(now(cell.get_or_init(async || 7)), Some(&7));
}
