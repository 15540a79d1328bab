//! Channels and locks on real threads, with tasks that are cancelled at any moment:
//! `scripts/sync` runs them for long, in release. `KINFOLK_ITEMS` says how many values go
//! through each channel.
#![cfg(not(loom))]

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll};

use kinfolk_core::{Error, Result, scope, spawn, yield_now};
use kinfolk_runtime::Runtime;
use kinfolk_sync::{Mutex, mpmc};

fn items() -> usize {
    let items = std::env::var("KINFOLK_ITEMS").ok();
    items.map_or(100_000, |items| items.parse().expect("a number"))
}

/// A sequence of numbers that looks like none.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// What has become of each value.
struct Fate {
    received: Vec<AtomicU8>,
    back: Vec<AtomicU8>,
}

impl Fate {
    fn new(items: usize) -> Arc<Fate> {
        let none = || (0..items).map(|_| AtomicU8::new(0)).collect();
        Arc::new(Fate {
            received: none(),
            back: none(),
        })
    }
}

/// Sends `n`, `n + 4` and so on from `next` on, until it is told.
async fn produce(tx: mpmc::Sender<usize>, next: Arc<AtomicUsize>, fate: Arc<Fate>) -> Result<()> {
    loop {
        let value = next.fetch_add(4, SeqCst);
        if value >= fate.back.len() {
            return Ok(());
        }
        if let Err(error) = tx.send(value).await {
            fate.back[*error.get_ref()].fetch_add(1, SeqCst);
            return Err(error.into());
        }
    }
}

async fn consume(rx: mpmc::Receiver<usize>, fate: Arc<Fate>) -> Result<()> {
    while let Some(value) = rx.recv().await? {
        fate.received[value].fetch_add(1, SeqCst);
    }
    Ok(())
}

/// Runs what `make` makes, cancelled at random, until it is done by itself. How often it
/// was cancelled.
async fn again_and_again<F: Future<Output = Result<()>> + Send + 'static>(
    seed: u64,
    make: impl Fn() -> F,
) -> Result<usize> {
    let (mut dice, mut cancels) = (Dice(seed), 0);
    loop {
        let task = spawn(make());
        for _ in 0..dice.below(50) {
            yield_now().await?;
            if task.job().is_ended() {
                break;
            }
        }
        task.cancel("at random");
        match task.outcome().await? {
            outcome if outcome.is_cancelled() => cancels += 1,
            _ => return Ok(cancels),
        }
    }
}

/// Four producers, four consumers, each cancelled at random: each value is received once or
/// given back once.
#[test]
fn io_6_each_value_is_received_or_given_back_once() {
    let items = items();
    for (room, seed) in [(0, 1), (1, 2), (16, 3), (1024, 4)] {
        let fate = Fate::new(items);
        let rt = Runtime::builder().workers(4).build().unwrap();
        let seen = fate.clone();
        let cancels = rt.block_on(async move {
            let (tx, rx) = mpmc::channel(room);
            let cancels = scope(async |s| {
                let mut producers = Vec::new();
                for n in 0..4 {
                    let (tx, next, fate) = (
                        tx.clone(),
                        Arc::new(AtomicUsize::new(n as usize)),
                        seen.clone(),
                    );
                    producers.push(s.spawn(again_and_again(seed * 100 + n, move || {
                        produce(tx.clone(), next.clone(), fate.clone())
                    })));
                }
                let consumers: Vec<_> = (0..4)
                    .map(|n| {
                        let (rx, fate) = (rx.clone(), seen.clone());
                        s.spawn(again_and_again(seed * 1000 + n, move || {
                            consume(rx.clone(), fate.clone())
                        }))
                    })
                    .collect();
                drop((tx, rx));
                let mut cancels = 0;
                for task in producers.into_iter().chain(consumers) {
                    cancels += task.await?;
                }
                Ok(cancels)
            })
            .await?;
            Ok::<_, Error>(cancels)
        });
        let cancels = cancels.unwrap();
        drop(rt.shutdown(std::time::Duration::from_secs(10)));
        let (mut received, mut back) = (0, 0);
        for (value, (r, b)) in fate.received.iter().zip(&fate.back).enumerate() {
            let (r, b) = (r.load(SeqCst), b.load(SeqCst));
            assert_eq!(
                r + b,
                1,
                "value {value}: received {r} times, given back {b} times"
            );
            received += usize::from(r);
            back += usize::from(b);
        }
        println!("room for {room}: {received} received, {back} given back, {cancels} cancels");
        assert!(cancels > 0);
    }
}

/// A wait that notes how often others took the lock while it stood in line.
struct Noted<F> {
    inner: F,
    taken: Arc<AtomicUsize>,
    since: Option<usize>,
}

impl<F: Future> Future for Noted<F> {
    type Output = (F::Output, usize);

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: `inner` is not moved.
        let this = unsafe { self.get_unchecked_mut() };
        // SAFETY: it is pinned with its owner.
        match unsafe { Pin::new_unchecked(&mut this.inner) }.poll(cx) {
            Poll::Ready(output) => {
                let now = this.taken.load(SeqCst);
                Poll::Ready((output, now - this.since.unwrap_or(now)))
            }
            Poll::Pending => {
                this.since.get_or_insert_with(|| this.taken.load(SeqCst));
                Poll::Pending
            }
        }
    }
}

const LOCKERS: usize = 8;

struct Contest {
    lock: Mutex<usize>,
    held: AtomicBool,
    taken: Arc<AtomicUsize>,
    /// The most that others took it while one stood in line.
    overtaken: AtomicUsize,
    rounds: usize,
}

async fn contend(contest: Arc<Contest>) -> Result<()> {
    while contest.taken.load(SeqCst) < contest.rounds {
        let noted = Noted {
            inner: contest.lock.lock(),
            taken: contest.taken.clone(),
            since: None,
        };
        let (guard, others) = noted.await;
        let mut guard = guard?;
        assert!(!contest.held.swap(true, SeqCst), "two hold it");
        contest.taken.fetch_add(1, SeqCst);
        contest.overtaken.fetch_max(others, SeqCst);
        *guard += 1;
        // Half of them are cancelled while they hold it.
        let yielded = if *guard % 2 == 0 {
            yield_now().await
        } else {
            Ok(())
        };
        contest.held.store(false, SeqCst);
        drop(guard);
        yielded?;
    }
    Ok(())
}

/// Holders and waiters of a lock are cancelled at any moment: it is never lost, never held
/// twice, and whoever stands in line is overtaken by nobody: each of the others takes it
/// once at the most meanwhile.
#[test]
fn io_6_overtaking_is_none() {
    let rounds = items();
    let contest = Arc::new(Contest {
        lock: Mutex::new(0),
        held: AtomicBool::new(false),
        taken: Arc::default(),
        overtaken: AtomicUsize::new(0),
        rounds,
    });
    let rt = Runtime::builder().workers(4).build().unwrap();
    let all = contest.clone();
    let cancels = rt.block_on(async move {
        let mut cancels = 0;
        let tasks: Vec<_> = (0..LOCKERS as u64)
            .map(|n| {
                let contest = all.clone();
                spawn(again_and_again(n + 7, move || contend(contest.clone())))
            })
            .collect();
        for task in tasks {
            cancels += task.await?;
        }
        Ok::<_, Error>(cancels)
    });
    let cancels = cancels.unwrap();
    drop(rt.shutdown(std::time::Duration::from_secs(10)));
    let taken = contest.taken.load(SeqCst);
    assert_eq!(*contest.lock.try_lock().expect("the lock is lost"), taken);
    let most = contest.overtaken.load(SeqCst);
    println!(
        "taken {taken} times, {cancels} cancels, at most {most} others came before one in line"
    );
    assert!(
        most < LOCKERS,
        "{most} others came before one that stood in line"
    );
    assert!(cancels > 0);
}
