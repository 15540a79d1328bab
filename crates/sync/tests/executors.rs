//! Outside every job: in plain tokio and smol tasks, on threads, and between them. Nothing
//! is ever told there.
#![cfg(not(loom))]

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use kinfolk_core::{Budget, Error, Main};
use kinfolk_runtime::Runtime;
use kinfolk_sync::{
    Barrier, Mutex, Notify, OnceCell, RwLock, Semaphore, broadcast, mpmc, oneshot, watch,
};

/// One round through everything that waits. Each await returns a result that is never
/// `Cancelled`.
async fn everything() {
    let mutex = Mutex::new(1);
    *mutex.lock().await.unwrap() += 1;
    let lock = RwLock::new(1);
    assert_eq!(*lock.read().await.unwrap(), 1);
    *lock.write().await.unwrap() += 1;
    let semaphore = Semaphore::new(2);
    assert_eq!(semaphore.acquire_many(2).await.unwrap().num_permits(), 2);
    let notify = Notify::new();
    notify.notify_one();
    notify.notified().await.unwrap();
    assert!(Barrier::new(1).wait().await.unwrap().is_leader());
    assert_eq!(*OnceCell::new().get_or_init(async || 3).await.unwrap(), 3);
    let (tx, rx) = mpmc::channel(1);
    tx.send(1).await.unwrap();
    assert_eq!(rx.recv().await.unwrap(), Some(1));
    let (tx, rx) = oneshot::channel();
    tx.send(1).unwrap();
    assert_eq!(rx.await.unwrap(), 1);
    let (tx, mut rx) = watch::channel(0);
    tx.send(1).unwrap();
    assert!(rx.changed().await.unwrap());
    let (tx, mut rx) = broadcast::channel(2);
    tx.send(1).unwrap();
    assert_eq!(rx.recv().await.unwrap(), Some(1));
}

/// A pipe through a small channel, from one task to another.
async fn ship(tx: mpmc::Sender<u32>) {
    for n in 0..1000 {
        tx.send(n).await.unwrap();
    }
}

async fn unload(rx: mpmc::Receiver<u32>) -> u32 {
    let mut sum = 0;
    while let Some(n) = rx.recv().await.unwrap() {
        sum += n;
    }
    sum
}

const SUM: u32 = 999 * 1000 / 2;

#[test]
fn io_6_works_in_plain_tokio_tasks() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    runtime.block_on(async {
        tokio::spawn(everything()).await.unwrap();
        for room in [0, 1, 7] {
            let (tx, rx) = mpmc::channel(room);
            let ships = tokio::spawn(ship(tx));
            assert_eq!(tokio::spawn(unload(rx)).await.unwrap(), SUM);
            ships.await.unwrap();
        }
    });
}

#[test]
fn io_6_works_in_plain_smol_tasks() {
    smol::block_on(async {
        smol::spawn(everything()).await;
        let (tx, rx) = mpmc::channel(1);
        let ships = smol::spawn(ship(tx));
        assert_eq!(smol::spawn(unload(rx)).await, SUM);
        ships.await;
    });
}

#[test]
fn io_6_works_between_threads() {
    for room in [0, 1, 7] {
        let (tx, rx) = mpmc::channel(room);
        let sends = thread::spawn(move || (0..1000).for_each(|n| tx.blocking_send(n).unwrap()));
        let sum: u32 = std::iter::from_fn(|| rx.blocking_recv()).sum();
        sends.join().unwrap();
        assert_eq!(sum, SUM);
    }
    let mutex = Arc::new(Mutex::new(0));
    let lock = Arc::new(RwLock::new(0));
    let semaphore = Arc::new(Semaphore::new(1));
    let barrier = Arc::new(Barrier::new(4));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (mutex, lock) = (mutex.clone(), lock.clone());
            let (semaphore, barrier) = (semaphore.clone(), barrier.clone());
            thread::spawn(move || {
                for _ in 0..500 {
                    *mutex.blocking_lock() += 1;
                    *lock.blocking_write() += 1;
                    assert!(*lock.blocking_read() > 0);
                    drop(semaphore.blocking_acquire().unwrap());
                }
                barrier.blocking_wait().is_leader()
            })
        })
        .collect();
    let leaders = threads
        .into_iter()
        .filter(|_| true)
        .map(|t| t.join().unwrap());
    assert_eq!(leaders.filter(|leader| *leader).count(), 1);
    assert_eq!(
        (*mutex.blocking_lock(), *lock.blocking_read()),
        (2000, 2000)
    );
}

#[test]
fn io_6_other_blocking_forms() {
    let (tx, mut rx) = watch::channel(0);
    let (once, answer) = oneshot::channel();
    let notify = Arc::new(Notify::new());
    let wakes = notify.clone();
    let (news, mut hears) = broadcast::channel(2);
    let other = thread::spawn(move || {
        tx.send(1).unwrap();
        once.send(7).unwrap();
        wakes.notify_one();
        news.send(8).unwrap();
    });
    assert!(rx.blocking_changed());
    assert_eq!(answer.blocking_recv(), Ok(7));
    notify.blocking_notified();
    assert_eq!(hears.blocking_recv().unwrap(), Some(8));
    other.join().unwrap();
    assert_eq!(hears.blocking_recv().unwrap(), None, "its sender is gone");
    assert!(!rx.blocking_changed(), "the sender is gone");
}

/// The rest of the forms for threads, each while another thread makes it wait, and the `try_`
/// forms that keep the `Arc`.
#[test]
fn io_6_every_wait_has_a_blocking_form() {
    // `waits` begins while `held` is held, and ends once it was dropped.
    fn until_dropped<H: Send + 'static, R: Send + 'static>(
        held: H,
        waits: impl FnOnce() -> R + Send + 'static,
    ) -> R {
        let waiting = thread::spawn(waits);
        assert!(!waiting.is_finished());
        drop(held);
        waiting.join().unwrap()
    }
    let mutex = Arc::new(Mutex::new(1));
    let (held, waits) = (mutex.clone().try_lock_owned().unwrap(), mutex.clone());
    assert_eq!(*until_dropped(held, || waits.blocking_lock_owned()), 1);

    let lock = Arc::new(RwLock::new(1));
    let held = lock.clone().try_write_owned().unwrap();
    assert!(lock.clone().try_read_owned().is_err());
    let waits = lock.clone();
    assert_eq!(*until_dropped(held, || waits.blocking_read_owned()), 1);
    let held = lock.clone().try_read_owned().unwrap();
    assert!(lock.clone().try_write_owned().is_err());
    let waits = lock.clone();
    *until_dropped(held, || waits.blocking_write_owned()) += 1;
    assert_eq!(*lock.try_read().unwrap(), 2);

    let semaphore = Arc::new(Semaphore::new(2));
    let held = semaphore.clone().try_acquire_many_owned(2).unwrap();
    let waits = semaphore.clone();
    let one = until_dropped(held, || waits.blocking_acquire_owned()).unwrap();
    let waits = semaphore.clone();
    let two = until_dropped(one, || waits.blocking_acquire_many_owned(2)).unwrap();
    assert_eq!((two.num_permits(), semaphore.available_permits()), (2, 0));
    semaphore.close();
    assert!(semaphore.blocking_acquire_owned().is_err());

    let cell = Arc::new(OnceCell::new());
    let threads: Vec<_> = (0..4)
        .map(|n| {
            let cell = cell.clone();
            thread::spawn(move || *cell.blocking_get_or_init(|| n))
        })
        .collect();
    for made in threads {
        assert_eq!(Some(&made.join().unwrap()), cell.get());
    }

    let (tx, mut rx) = watch::channel(0);
    let last = rx.clone();
    let found = thread::spawn(move || rx.blocking_wait_for(|n| *n > 1).map(|n| *n));
    for n in 1..=2 {
        tx.send(n).unwrap();
    }
    assert_eq!(found.join().unwrap(), Some(2));
    until_dropped(last, move || tx.blocking_closed());

    let (mut tx, rx) = oneshot::channel::<u32>();
    until_dropped(rx, move || tx.blocking_closed());
}

/// A blocking form inside a job would block the thread of its host: it says so.
#[test]
fn io_6_blocking_inside_a_job_panics() {
    let outcome = kinfolk_testkit::Sim::seeded(1).run(async {
        let mutex = Mutex::new(0);
        let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            drop(mutex.blocking_lock());
        }));
        Ok::<_, kinfolk_core::Error>(panics.is_err())
    });
    assert!(outcome.unwrap());
}

/// A loop that does not await is woken by the channel's own hook: once for what comes while
/// it is empty, and when it is closed.
#[test]
fn io_6_a_channel_wakes_a_host_loop() {
    let (tx, rx) = mpmc::unbounded_channel();
    let calls = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counts = calls.clone();
    let called = || calls.swap(0, std::sync::atomic::Ordering::SeqCst);
    tx.send(0).unwrap();
    rx.on_ready(move || {
        counts.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        panic!("it is contained");
    });
    assert_eq!(called(), 1, "there was something already");
    tx.send(1).unwrap();
    assert_eq!(called(), 0, "it has been called for that");
    assert_eq!((rx.try_recv(), rx.try_recv()), (Ok(0), Ok(1)));
    assert!(rx.try_recv().is_err());
    tx.send(2).unwrap();
    assert_eq!(called(), 1);
    assert_eq!(rx.try_recv(), Ok(2));
    drop(tx);
    assert_eq!(called(), 1, "it was closed");
}

/// A task of the main lane awaits a value: one that comes from another thread wakes the host
/// loop, and its next pump hands it over.
#[test]
fn io_6_a_channel_wakes_the_loop_of_the_main_lane() {
    let (woken, wait) = std::sync::mpsc::channel();
    let rt = Runtime::builder()
        .workers(1)
        .on_wake(move |_| {
            let _sent_while_it_listens = woken.send(());
        })
        .build()
        .unwrap();
    let wakes = || wait.recv_timeout(Duration::from_secs(20)).is_ok();
    let (tx, rx) = mpmc::channel(1);
    let got = rt
        .scope()
        .on(Main)
        .spawn(async move { Ok::<_, Error>(rx.recv().await?) });
    assert!(wakes(), "the task is new");
    rt.pump(Budget::Turns(9)).unwrap();
    assert!(!got.is_ended(), "it waits for a value");
    assert!(wait.try_recv().is_err());
    let other = thread::spawn(move || tx.blocking_send(7).unwrap());
    assert!(wakes(), "a value is there");
    other.join().unwrap();
    rt.pump(Budget::Turns(9)).unwrap();
    assert!(got.is_ended());
    assert_eq!(rt.wait_for(got).unwrap().unwrap(), Some(7));
}
