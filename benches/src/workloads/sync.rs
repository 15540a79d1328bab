//! Channels and locks. All contestants run on the same executor, tokio's, so that what
//! differs is the primitive: channels from one task to another and from four to one, locks
//! that one task wants alone, and locks whose holder yields while three others want them.

use std::sync::Arc;
use std::time::Instant;

use crate::contestant::{Bar, Bench, Contestant, Group, Target, Unit, native};
use crate::measure::per;
use crate::ways;

const SENT: u64 = 100_000;
const LOCKED: u64 = 100_000;
/// With a holder that yields.
const CONTENDED: u64 = 40_000;
const TASKS: u64 = 4;
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

/// Which runtime of tokio a bench runs on.
#[derive(Clone, Copy)]
enum On {
    One,
    Two,
}

impl On {
    fn run<F>(self, body: F) -> Vec<f64>
    where
        F: Future<Output = Vec<f64>> + Send + 'static,
    {
        match self {
            On::One => ways::tokio_one(body),
            On::Two => ways::tokio_two(body),
        }
    }
}

pub fn groups() -> Vec<Group> {
    let mut groups = Vec::new();
    groups.extend(channels());
    groups.extend(locks());
    groups
}

fn group(bench: Bench, contestants: Vec<Contestant>) -> Group {
    Group {
        benches: vec![bench],
        contestants,
        most_rounds: usize::MAX,
    }
}

// ------------------------------------------------------------------------------ channels

/// The sending side of a contestant's channel.
trait Sends: Clone + Send + 'static {
    fn send(&self, n: u64) -> impl Future<Output = ()> + Send;
}

/// The receiving side.
trait Receives: Send + 'static {
    fn recv(&mut self) -> impl Future<Output = Option<u64>> + Send;
}

fn channels() -> Vec<Group> {
    let benches = [
        (
            bench(
                "channel st",
                "A task sends numbers to another through a channel with room for 64. One thread \
                 of tokio.",
                "value",
            ),
            On::One,
            1,
        ),
        (
            bench(
                "channel mt",
                "A task sends numbers to another through a channel with room for 64. Two workers \
                 of tokio.",
                "value",
            ),
            On::Two,
            1,
        ),
        (
            bench(
                "channel of four st",
                "Four tasks send numbers to a fifth through a channel with room for 64. One \
                 thread of tokio.",
                "value",
            ),
            On::One,
            TASKS,
        ),
        (
            bench(
                "channel of four mt",
                "Four tasks send numbers to a fifth through a channel with room for 64. Two \
                 workers of tokio.",
                "value",
            ),
            On::Two,
            TASKS,
        ),
    ];
    let bounded = benches.into_iter().map(|(bench, on, senders)| {
        group(
            bench,
            vec![
                Contestant::ours("kinfolk", move || {
                    on.run(through(kinfolk_sync::mpmc::channel(ROOM), senders))
                }),
                Contestant::peer("tokio", move || {
                    on.run(through(tokio::sync::mpsc::channel(ROOM), senders))
                }),
                Contestant::variant("tokio, unconstrained", move || {
                    on.run(unconstrained(tokio::sync::mpsc::channel(ROOM), senders))
                }),
                Contestant::peer("async-channel", move || {
                    on.run(through(async_channel::bounded(ROOM), senders))
                }),
                Contestant::variant("flume", move || {
                    on.run(through(flume::bounded(ROOM), senders))
                }),
                Contestant::variant("kanal", move || {
                    on.run(through(kanal::bounded_async(ROOM), senders))
                }),
            ],
        )
    });
    let benches = [
        (
            bench(
                "unbounded channel st",
                "A task sends numbers to another through a channel without a limit. One thread \
                 of tokio.",
                "value",
            ),
            On::One,
        ),
        (
            bench(
                "unbounded channel mt",
                "A task sends numbers to another through a channel without a limit. Two workers \
                 of tokio.",
                "value",
            ),
            On::Two,
        ),
    ];
    let unbounded = benches.into_iter().map(|(bench, on)| {
        group(
            bench,
            vec![
                Contestant::ours("kinfolk", move || {
                    on.run(through(kinfolk_sync::mpmc::unbounded_channel(), 1))
                }),
                Contestant::peer("tokio", move || {
                    on.run(through(tokio::sync::mpsc::unbounded_channel(), 1))
                }),
                Contestant::peer("async-channel", move || {
                    on.run(through(async_channel::unbounded(), 1))
                }),
                Contestant::variant("flume", move || on.run(through(flume::unbounded(), 1))),
                Contestant::variant("kanal", move || {
                    on.run(through(kanal::unbounded_async(), 1))
                }),
            ],
        )
    });
    bounded.chain(unbounded).collect()
}

/// Times `senders` tasks that send as much as is asked for together, and one that receives.
async fn through(channel: (impl Sends, impl Receives), senders: u64) -> Vec<f64> {
    pass(channel, senders, true).await
}

/// The same with tasks that tokio's budget does not stop. Tokio's channel spends it, 128
/// operations for each turn of a worker: a sender that fills the channel and a receiver that
/// empties it use it up together, and so stay on one worker. The other channels do not know of
/// it, and their tasks move between workers.
async fn unconstrained(channel: (impl Sends, impl Receives), senders: u64) -> Vec<f64> {
    pass(channel, senders, false).await
}

fn task<F>(body: F, budget: bool) -> tokio::task::JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    match budget {
        true => tokio::spawn(body),
        false => tokio::spawn(tokio::task::unconstrained(body)),
    }
}

async fn pass((tx, mut rx): (impl Sends, impl Receives), senders: u64, budget: bool) -> Vec<f64> {
    let each = SENT / senders;
    let start = Instant::now();
    let sends: Vec<_> = (0..senders)
        .map(|_| {
            let tx = tx.clone();
            let sends = async move {
                for n in 0..each {
                    tx.send(n).await;
                }
            };
            task(sends, budget)
        })
        .collect();
    drop(tx);
    let receives = async move {
        let mut sum = 0;
        while let Some(n) = rx.recv().await {
            sum += n;
        }
        sum
    };
    let receives = task(receives, budget);
    assert_eq!(
        receives.await.expect("it receives"),
        senders * (each * (each - 1) / 2)
    );
    for task in sends {
        task.await.expect("it sends");
    }
    vec![per(start.elapsed(), SENT)]
}

impl Sends for kinfolk_sync::mpmc::Sender<u64> {
    async fn send(&self, n: u64) {
        self.send(n).await.expect("open");
    }
}

impl Sends for kinfolk_sync::mpmc::UnboundedSender<u64> {
    async fn send(&self, n: u64) {
        self.send(n).expect("open");
    }
}

impl Receives for kinfolk_sync::mpmc::Receiver<u64> {
    async fn recv(&mut self) -> Option<u64> {
        kinfolk_sync::mpmc::Receiver::recv(self)
            .await
            .expect("outside any job")
    }
}

impl Sends for tokio::sync::mpsc::Sender<u64> {
    async fn send(&self, n: u64) {
        self.send(n).await.expect("open");
    }
}

impl Sends for tokio::sync::mpsc::UnboundedSender<u64> {
    async fn send(&self, n: u64) {
        self.send(n).expect("open");
    }
}

impl Receives for tokio::sync::mpsc::Receiver<u64> {
    async fn recv(&mut self) -> Option<u64> {
        self.recv().await
    }
}

impl Receives for tokio::sync::mpsc::UnboundedReceiver<u64> {
    async fn recv(&mut self) -> Option<u64> {
        self.recv().await
    }
}

impl Sends for async_channel::Sender<u64> {
    async fn send(&self, n: u64) {
        self.send(n).await.expect("open");
    }
}

impl Receives for async_channel::Receiver<u64> {
    async fn recv(&mut self) -> Option<u64> {
        async_channel::Receiver::recv(self).await.ok()
    }
}

impl Sends for flume::Sender<u64> {
    async fn send(&self, n: u64) {
        self.send_async(n).await.expect("open");
    }
}

impl Receives for flume::Receiver<u64> {
    async fn recv(&mut self) -> Option<u64> {
        self.recv_async().await.ok()
    }
}

impl Sends for kanal::AsyncSender<u64> {
    async fn send(&self, n: u64) {
        self.send(n).await.expect("open");
    }
}

impl Receives for kanal::AsyncReceiver<u64> {
    async fn recv(&mut self) -> Option<u64> {
        kanal::AsyncReceiver::recv(self).await.ok()
    }
}

// --------------------------------------------------------------------------------- locks

/// What one task at a time has.
trait Locks: Send + Sync + 'static {
    fn new() -> Self;
    /// Takes it, yields if `yields` says so, and lets go.
    fn lock(&self, yields: bool) -> impl Future<Output = ()> + Send;
}

/// What the holder of a lock does.
async fn hold(yields: bool) {
    if yields {
        tokio::task::yield_now().await;
    }
}

/// A lock alone and contended, on one thread and on two.
fn of_a_lock<K: Locks, T: Locks, A: Locks>(benches: [Bench; 4]) -> impl Iterator<Item = Group> {
    let ways = [
        (On::One, 1, LOCKED),
        (On::Two, 1, LOCKED),
        (On::One, TASKS, CONTENDED),
        (On::Two, TASKS, CONTENDED),
    ];
    benches
        .into_iter()
        .zip(ways)
        .map(|(bench, (on, tasks, times))| {
            group(
                bench,
                vec![
                    Contestant::ours("kinfolk", move || on.run(locked::<K>(tasks, times))),
                    Contestant::peer("tokio", move || on.run(locked::<T>(tasks, times))),
                    Contestant::peer("async-lock", move || on.run(locked::<A>(tasks, times))),
                ],
            )
        })
}

fn locks() -> Vec<Group> {
    let mutex =
        of_a_lock::<kinfolk_sync::Mutex<u64>, tokio::sync::Mutex<u64>, async_lock::Mutex<u64>>([
            bench(
                "lock st",
                "A task takes a lock that nothing else wants. One thread of tokio.",
                "lock",
            ),
            bench(
                "lock mt",
                "A task takes a lock that nothing else wants. Two workers of tokio.",
                "lock",
            ),
            bench(
                "lock, contended st",
                "Four tasks take one lock, each again and again, and yield while they hold it. One \
             thread of tokio.",
                "lock",
            ),
            bench(
                "lock, contended mt",
                "Four tasks take one lock, each again and again, and yield while they hold it. Two \
             workers of tokio.",
                "lock",
            ),
        ]);
    let rwlock = of_a_lock::<
        kinfolk_sync::RwLock<u64>,
        tokio::sync::RwLock<u64>,
        async_lock::RwLock<u64>,
    >([
        bench(
            "read and write st",
            "A task takes a read-write lock for reading and for writing. One thread of tokio.",
            "pair",
        ),
        bench(
            "read and write mt",
            "A task takes a read-write lock for reading and for writing. Two workers of tokio.",
            "pair",
        ),
        bench(
            "read and write, contended st",
            "Four tasks take one read-write lock for reading and for writing, and yield while \
             they write. One thread of tokio.",
            "pair",
        ),
        bench(
            "read and write, contended mt",
            "Four tasks take one read-write lock for reading and for writing, and yield while \
             they write. Two workers of tokio.",
            "pair",
        ),
    ]);
    let semaphore = of_a_lock::<
        kinfolk_sync::Semaphore,
        tokio::sync::Semaphore,
        async_lock::Semaphore,
    >([
        bench(
            "permit st",
            "A task takes one of two permits. One thread of tokio.",
            "permit",
        ),
        bench(
            "permit mt",
            "A task takes one of two permits. Two workers of tokio.",
            "permit",
        ),
        bench(
            "permit, contended st",
            "Four tasks take one of two permits, each again and again, and yield while they hold \
             it. One thread of tokio.",
            "permit",
        ),
        bench(
            "permit, contended mt",
            "Four tasks take one of two permits, each again and again, and yield while they hold \
             it. Two workers of tokio.",
            "permit",
        ),
    ]);
    mutex.chain(rwlock).chain(semaphore).collect()
}

/// Times `tasks` tasks that lock as often as is asked for together; with several, each
/// yields while it holds.
async fn locked<L: Locks>(tasks: u64, times: u64) -> Vec<f64> {
    let lock = Arc::new(L::new());
    let start = Instant::now();
    let tasks: Vec<_> = (0..tasks)
        .map(|_| {
            let lock = lock.clone();
            tokio::spawn(async move {
                for _ in 0..times / tasks {
                    lock.lock(tasks > 1).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("it locks");
    }
    vec![per(start.elapsed(), times)]
}

impl Locks for kinfolk_sync::Mutex<u64> {
    fn new() -> Self {
        Self::new(0)
    }

    async fn lock(&self, yields: bool) {
        let mut held = kinfolk_sync::Mutex::lock(self)
            .await
            .expect("outside any job");
        *held += 1;
        hold(yields).await;
    }
}

impl Locks for tokio::sync::Mutex<u64> {
    fn new() -> Self {
        Self::new(0)
    }

    async fn lock(&self, yields: bool) {
        let mut held = tokio::sync::Mutex::lock(self).await;
        *held += 1;
        hold(yields).await;
    }
}

impl Locks for async_lock::Mutex<u64> {
    fn new() -> Self {
        Self::new(0)
    }

    async fn lock(&self, yields: bool) {
        let mut held = async_lock::Mutex::lock(self).await;
        *held += 1;
        hold(yields).await;
    }
}

impl Locks for kinfolk_sync::RwLock<u64> {
    fn new() -> Self {
        Self::new(0)
    }

    async fn lock(&self, yields: bool) {
        let before = *self.read().await.expect("outside any job");
        let mut held = self.write().await.expect("outside any job");
        *held = before + 1;
        hold(yields).await;
    }
}

impl Locks for tokio::sync::RwLock<u64> {
    fn new() -> Self {
        Self::new(0)
    }

    async fn lock(&self, yields: bool) {
        let before = *self.read().await;
        let mut held = self.write().await;
        *held = before + 1;
        hold(yields).await;
    }
}

impl Locks for async_lock::RwLock<u64> {
    fn new() -> Self {
        Self::new(0)
    }

    async fn lock(&self, yields: bool) {
        let before = *self.read().await;
        let mut held = self.write().await;
        *held = before + 1;
        hold(yields).await;
    }
}

impl Locks for kinfolk_sync::Semaphore {
    fn new() -> Self {
        Self::new(2)
    }

    async fn lock(&self, yields: bool) {
        let _held = self.acquire().await.expect("open");
        hold(yields).await;
    }
}

impl Locks for tokio::sync::Semaphore {
    fn new() -> Self {
        Self::new(2)
    }

    async fn lock(&self, yields: bool) {
        let _held = self.acquire().await.expect("open");
        hold(yields).await;
    }
}

impl Locks for async_lock::Semaphore {
    fn new() -> Self {
        Self::new(2)
    }

    async fn lock(&self, yields: bool) {
        let _held = self.acquire().await;
        hold(yields).await;
    }
}
