//! First come, first served: what a newcomer may not do, and what the seeds of a simulation
//! may and may not change.
#![cfg(not(loom))]

use std::collections::HashSet;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex as StdMutex};
use std::task::{Context, Poll, Waker};

use kinfolk_core::{Error, Result, Scope, scope, sleep, yield_now};
use kinfolk_sync::{
    Mutex, OnceCell, RwLock, Semaphore, TryAcquireError, TryRecvError, TrySendError, mpmc,
};
use kinfolk_testkit::Sim;

fn poll<F: Future>(future: &mut Pin<Box<F>>) -> Option<F::Output> {
    match future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// Polled once: it stands in line.
fn in_line<F: Future>(future: F) -> Pin<Box<F>> {
    let mut future = Box::pin(future);
    assert!(poll(&mut future).is_none());
    future
}

#[test]
fn io_6_no_try_form_overtakes_a_lock_that_was_handed_over() {
    let mutex = Mutex::new(0);
    let guard = mutex.try_lock().unwrap();
    let mut waits = in_line(mutex.lock());
    drop(guard);
    assert!(mutex.try_lock().is_err(), "it was handed over");
    assert!(poll(&mut waits).unwrap().is_ok());

    let lock = RwLock::new(0);
    let reads = lock.try_read().unwrap();
    let mut writes = in_line(lock.write());
    assert!(lock.try_read().is_err(), "a writer stands in line");
    drop(reads);
    assert!(lock.try_write().is_err(), "it was handed over");
    drop(poll(&mut writes).unwrap());

    let semaphore = Semaphore::new(1);
    let _large = in_line(semaphore.acquire_many(2));
    assert_eq!(
        semaphore.try_acquire().map(drop),
        Err(TryAcquireError::NoPermits),
        "a large request stands in line"
    );

    let cell = OnceCell::new();
    let mut makes = in_line(cell.get_or_init(std::future::pending::<u32>));
    assert_eq!(cell.set(7), Err(7), "a task is about to make it");
    assert!(poll(&mut makes).is_none());
}

#[test]
fn io_6_no_try_form_overtakes_in_a_channel() {
    let (tx, rx) = mpmc::channel(1);
    tx.try_send(1).unwrap();
    let mut sends = in_line(tx.send(2));
    assert_eq!(rx.try_recv(), Ok(1));
    assert!(matches!(tx.try_send(3), Err(TrySendError::Full(3))));
    poll(&mut sends).unwrap().unwrap();
    assert_eq!(rx.try_recv(), Ok(2));

    let mut receives = in_line(rx.recv());
    tx.try_send(4).unwrap();
    assert_eq!(rx.try_recv(), Err(TryRecvError::Empty), "it was promised");
    assert_eq!(poll(&mut receives).unwrap().unwrap(), Some(4));
}

/// Two receivers wait in a rendezvous, and a sender has come for the first of them: what
/// `try_send` brings for the second does not go before what that sender has.
#[test]
fn io_6_no_try_send_overtakes_a_sender_in_a_rendezvous() {
    let (tx, rx) = mpmc::rendezvous();
    let mut first = in_line(rx.recv());
    let mut second = in_line(rx.recv());
    let mut sends = in_line(tx.send(1));
    assert!(matches!(tx.try_send(2), Err(TrySendError::Full(2))));
    assert_eq!(poll(&mut first).unwrap().unwrap(), Some(1));
    poll(&mut sends).unwrap().unwrap();
    // No sender waits any more, and a receiver does.
    tx.try_send(2).unwrap();
    assert_eq!(poll(&mut second).unwrap().unwrap(), Some(2));
}

/// Notes when its future was first polled, under `name`.
async fn noted<F: Future>(name: u32, came: &StdMutex<Vec<u32>>, future: F) -> F::Output {
    let mut future = pin!(future);
    let mut first = true;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut first, false) {
            came.lock().unwrap().push(name);
        }
        future.as_mut().poll(cx)
    })
    .await
}

const TASKS: u32 = 5;

/// Tasks come to `wait` in the order that the seed decides: in which order they came, and in
/// which they were served.
fn orders<F: Future<Output = Result<()>> + Send + 'static>(
    seed: u64,
    wait: impl Fn(u32, Arc<StdMutex<Vec<u32>>>, Arc<StdMutex<Vec<u32>>>) -> F + Send + Sync + 'static,
    open: impl FnOnce() + Send + 'static,
) -> (Vec<u32>, Vec<u32>) {
    let (came, served) = (Arc::default(), Arc::default());
    let kept: [Arc<StdMutex<Vec<u32>>>; 2] = [Arc::clone(&came), Arc::clone(&served)];
    let run = Sim::seeded(seed).run(async move {
        scope(async |s: Scope| {
            for n in 0..TASKS {
                s.launch(wait(n, came.clone(), served.clone()));
            }
            // All stand in line when it opens.
            sleep(std::time::Duration::from_millis(1)).await?;
            assert_eq!(came.lock().unwrap().len(), TASKS as usize);
            open();
            Ok(())
        })
        .await
    });
    run.unwrap();
    let [came, served] = kept.map(|list| std::mem::take(&mut *list.lock().unwrap()));
    (came, served)
}

/// The seed decides who comes first. Who is served first follows from that alone: locks,
/// places in a channel and values are handed out in the order in which they were waited for,
/// on every seed.
#[test]
fn io_6_seeds_reorder_only_what_fairness_leaves_open() {
    let (mut seen, mut served_so) = (HashSet::new(), HashSet::new());
    for seed in 0..60 {
        // A lock.
        let mutex = Arc::new(Mutex::new(()));
        let held = mutex.clone().try_lock_owned().unwrap();
        let (came, served) = orders(
            seed,
            move |n, came, served| {
                let mutex = mutex.clone();
                async move {
                    let guard = noted(n, &came, mutex.lock()).await?;
                    served.lock().unwrap().push(n);
                    yield_now().await?;
                    drop(guard);
                    Ok(())
                }
            },
            move || drop(held),
        );
        assert_eq!(came, served, "the lock, seed {seed}");
        seen.insert(came);

        // Readers and writers: each waits for all before it.
        let lock = Arc::new(RwLock::new(()));
        let held = lock.clone().try_write_owned().unwrap();
        let (came, served) = orders(
            seed,
            move |n, came, served| {
                let lock = lock.clone();
                async move {
                    let guard = noted(n, &came, lock.write()).await?;
                    served.lock().unwrap().push(n);
                    yield_now().await?;
                    drop(guard.downgrade());
                    Ok(())
                }
            },
            move || drop(held),
        );
        assert_eq!(came, served, "the read-write lock, seed {seed}");

        // Senders: the values stand in the channel in the order of their senders.
        let (tx, rx) = mpmc::channel(1);
        tx.try_send(TASKS).unwrap();
        let values = Arc::new(StdMutex::new(Vec::new()));
        let receives = values.clone();
        let (came, _) = orders(
            seed,
            move |n, came, _| {
                let tx = tx.clone();
                async move { Ok(noted(n, &came, tx.send(n)).await?) }
            },
            move || {
                let got = std::iter::from_fn(|| rx.try_recv().ok());
                receives.lock().unwrap().extend(got);
            },
        );
        assert_eq!(
            values.lock().unwrap()[1..],
            came,
            "the senders, seed {seed}"
        );

        // Permits for two at a time are handed over in order; which of two that have theirs
        // goes on first is the seed's.
        let semaphore = Arc::new(Semaphore::new(0));
        let opens = semaphore.clone();
        let (came, served) = orders(
            seed,
            move |n, came, served| {
                let semaphore = semaphore.clone();
                async move {
                    let _permit = noted(n, &came, semaphore.acquire()).await?;
                    served.lock().unwrap().push(n);
                    sleep(std::time::Duration::from_millis(1)).await?;
                    Ok::<_, Error>(())
                }
            },
            move || opens.add_permits(2),
        );
        for (came, served) in came.chunks(2).zip(served.chunks(2)) {
            let sorted = |pair: &[u32]| {
                let mut pair = pair.to_vec();
                pair.sort_unstable();
                pair
            };
            assert_eq!(sorted(came), sorted(served), "the permits, seed {seed}");
        }
        served_so.insert(came == served);
    }
    assert!(seen.len() > 10, "the seeds decide who comes first");
    assert_eq!(
        served_so.len(),
        2,
        "and who of those that were served goes on first"
    );
}
