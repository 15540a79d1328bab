//! Channels and locks. All contestants run on the same executor, tokio's, so that what
//! differs is the primitive: a channel from one task to another, a lock that nobody else
//! wants, a lock that four want.

use std::sync::Arc;
use std::time::Instant;

use crate::contestant::{Bar, Bench, Contestant, Group, Target, Unit, native};
use crate::measure::per;
use crate::ways;

const SENT: u64 = 100_000;
const LOCKED: u64 = 100_000;
const LOCKERS: u64 = 4;
const ROOM: usize = 64;

/// At least level with the best.
const TARGETS: &[Target] = &[native(Bar::OfBest(1.0))];

const fn bench(name: &'static str, what: &'static str, per: &'static str) -> Bench {
    Bench {
        name,
        what,
        per,
        unit: Unit::Nanoseconds,
        targets: TARGETS,
    }
}

const CHANNEL_ONE: Bench = bench(
    "channel st",
    "A task sends numbers to another through a channel with room for 64. One thread of tokio.",
    "value",
);
const CHANNEL_TWO: Bench = bench(
    "channel mt",
    "A task sends numbers to another through a channel with room for 64. Two workers of tokio.",
    "value",
);
const LOCK_ONE: Bench = bench(
    "lock st",
    "A task takes a lock that nobody else wants. One thread of tokio.",
    "lock",
);
const LOCK_TWO: Bench = bench(
    "lock mt",
    "Four tasks take one lock, each again and again. Two workers of tokio.",
    "lock",
);

pub fn groups() -> Vec<Group> {
    let group = |bench: Bench, contestants| Group {
        benches: vec![bench],
        contestants,
        most_rounds: usize::MAX,
    };
    vec![
        group(
            CHANNEL_ONE,
            vec![
                Contestant::ours("kinfolk", || ways::tokio_one(kinfolk_channel())),
                Contestant::peer("tokio", || ways::tokio_one(tokio_channel())),
                Contestant::peer("async-channel", || ways::tokio_one(async_channel())),
                Contestant::variant("flume", || ways::tokio_one(flume_channel())),
                Contestant::variant("kanal", || ways::tokio_one(kanal_channel())),
            ],
        ),
        group(
            CHANNEL_TWO,
            vec![
                Contestant::ours("kinfolk", || ways::tokio_two(kinfolk_channel())),
                Contestant::peer("tokio", || ways::tokio_two(tokio_channel())),
                Contestant::peer("async-channel", || ways::tokio_two(async_channel())),
                Contestant::variant("flume", || ways::tokio_two(flume_channel())),
                Contestant::variant("kanal", || ways::tokio_two(kanal_channel())),
            ],
        ),
        group(
            LOCK_ONE,
            vec![
                Contestant::ours("kinfolk", || ways::tokio_one(kinfolk_lock(1))),
                Contestant::peer("tokio", || ways::tokio_one(tokio_lock(1))),
                Contestant::peer("async-lock", || ways::tokio_one(async_lock(1))),
            ],
        ),
        group(
            LOCK_TWO,
            vec![
                Contestant::ours("kinfolk", || ways::tokio_two(kinfolk_lock(LOCKERS))),
                Contestant::peer("tokio", || ways::tokio_two(tokio_lock(LOCKERS))),
                Contestant::peer("async-lock", || ways::tokio_two(async_lock(LOCKERS))),
            ],
        ),
    ]
}

/// Times a task that sends and one that receives.
async fn through(
    sends: impl Future<Output = ()> + Send + 'static,
    receives: impl Future<Output = u64> + Send + 'static,
) -> Vec<f64> {
    let start = Instant::now();
    let sends = tokio::spawn(sends);
    let sum = tokio::spawn(receives).await.expect("it receives");
    sends.await.expect("it sends");
    assert_eq!(sum, SENT * (SENT - 1) / 2);
    vec![per(start.elapsed(), SENT)]
}

async fn kinfolk_channel() -> Vec<f64> {
    let (tx, rx) = kinfolk_sync::mpmc::channel(ROOM);
    let sends = async move {
        for n in 0..SENT {
            tx.send(n).await.expect("open");
        }
    };
    let receives = async move {
        let mut sum = 0;
        while let Some(n) = rx.recv().await.expect("outside every job") {
            sum += n;
        }
        sum
    };
    through(sends, receives).await
}

async fn tokio_channel() -> Vec<f64> {
    let (tx, mut rx) = tokio::sync::mpsc::channel(ROOM);
    let sends = async move {
        for n in 0..SENT {
            tx.send(n).await.expect("open");
        }
    };
    let receives = async move {
        let mut sum = 0;
        while let Some(n) = rx.recv().await {
            sum += n;
        }
        sum
    };
    through(sends, receives).await
}

async fn async_channel() -> Vec<f64> {
    let (tx, rx) = async_channel::bounded(ROOM);
    let sends = async move {
        for n in 0..SENT {
            tx.send(n).await.expect("open");
        }
    };
    let receives = async move {
        let mut sum = 0;
        while let Ok(n) = rx.recv().await {
            sum += n;
        }
        sum
    };
    through(sends, receives).await
}

async fn flume_channel() -> Vec<f64> {
    let (tx, rx) = flume::bounded(ROOM);
    let sends = async move {
        for n in 0..SENT {
            tx.send_async(n).await.expect("open");
        }
    };
    let receives = async move {
        let mut sum = 0;
        while let Ok(n) = rx.recv_async().await {
            sum += n;
        }
        sum
    };
    through(sends, receives).await
}

async fn kanal_channel() -> Vec<f64> {
    let (tx, rx) = kanal::bounded_async(ROOM);
    let sends = async move {
        for n in 0..SENT {
            tx.send(n).await.expect("open");
        }
    };
    let receives = async move {
        let mut sum = 0;
        while let Ok(n) = rx.recv().await {
            sum += n;
        }
        sum
    };
    through(sends, receives).await
}

/// Times `tasks` tasks that lock as often as is asked for together.
async fn locked<F: Future<Output = ()> + Send + 'static>(
    tasks: u64,
    locks: impl Fn(u64) -> F,
) -> Vec<f64> {
    let start = Instant::now();
    let tasks: Vec<_> = (0..tasks)
        .map(|_| tokio::spawn(locks(LOCKED / tasks)))
        .collect();
    for task in tasks {
        task.await.expect("it locks");
    }
    vec![per(start.elapsed(), LOCKED)]
}

async fn kinfolk_lock(tasks: u64) -> Vec<f64> {
    let lock = Arc::new(kinfolk_sync::Mutex::new(0_u64));
    let locks = |times| {
        let lock = lock.clone();
        async move {
            for _ in 0..times {
                *lock.lock().await.expect("outside every job") += 1;
            }
        }
    };
    locked(tasks, locks).await
}

async fn tokio_lock(tasks: u64) -> Vec<f64> {
    let lock = Arc::new(tokio::sync::Mutex::new(0_u64));
    let locks = |times| {
        let lock = lock.clone();
        async move {
            for _ in 0..times {
                *lock.lock().await += 1;
            }
        }
    };
    locked(tasks, locks).await
}

async fn async_lock(tasks: u64) -> Vec<f64> {
    let lock = Arc::new(async_lock::Mutex::new(0_u64));
    let locks = |times| {
        let lock = lock.clone();
        async move {
            for _ in 0..times {
                *lock.lock().await += 1;
            }
        }
    };
    locked(tasks, locks).await
}
