//! Two tasks of one thread pass a number to and fro. What carries it is the
//! same for all, a word and a waker on each side: what differs is the way from
//! a wake to a poll.

use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Poll, Waker};
use std::time::Instant;

use crate::contestant::{Bar, Bench, Contestant, Group, Unit, native};
use crate::measure::per;
use crate::ways::{self, Way};

const TRIPS: u64 = 20_000;

const BENCH: Bench = Bench {
    name: "hand-over",
    what: "A number goes from one task to another and back. One thread.",
    per: "round trip",
    unit: Unit::Nanoseconds,
    targets: &[native(Bar::AtMost(100.0))],
};

/// Where a task gets its numbers. Nought is nothing.
#[derive(Default)]
struct Inbox {
    number: AtomicU64,
    owner: OnceLock<Waker>,
}

impl Inbox {
    fn put(&self, number: u64) {
        self.number.store(number, Ordering::Release);
        if let Some(owner) = self.owner.get() {
            owner.wake_by_ref();
        }
    }

    /// The next number. Always awaited by the same task.
    async fn take(&self) -> u64 {
        poll_fn(|cx| {
            let owner = self.owner.get_or_init(|| cx.waker().clone());
            assert!(owner.will_wake(cx.waker()), "the owner has another waker");
            match self.number.load(Ordering::Acquire) {
                0 => Poll::Pending,
                number => {
                    self.number.store(0, Ordering::Relaxed);
                    Poll::Ready(number)
                }
            }
        })
        .await
    }
}

/// The two sides: what goes to and what comes from the one that echoes.
#[derive(Default)]
struct Pair {
    to: Inbox,
    fro: Inbox,
}

async fn echo(pair: Arc<Pair>) {
    // The starting side's first number is one for warming up.
    for _ in 0..=TRIPS {
        let number = pair.to.take().await;
        pair.fro.put(number);
    }
}

async fn start(pair: Arc<Pair>) -> f64 {
    pair.to.put(1);
    pair.fro.take().await;
    let start = Instant::now();
    for number in 1..=TRIPS {
        pair.to.put(number);
        assert_eq!(pair.fro.take().await, number);
    }
    per(start.elapsed(), TRIPS)
}

/// Lets two tasks do it.
async fn trips<E: Future, S: Future>(
    spawn_echo: impl FnOnce(Arc<Pair>) -> E,
    spawn_start: impl FnOnce(Arc<Pair>) -> S,
) -> S::Output {
    let pair = Arc::new(Pair::default());
    let echo = spawn_echo(pair.clone());
    let answer = spawn_start(pair).await;
    echo.await;
    answer
}

async fn kinfolk() -> kinfolk_core::Result<Vec<f64>> {
    let time = trips(
        |pair| kinfolk_core::spawn(echo(pair)),
        |pair| kinfolk_core::spawn(async { Ok::<_, kinfolk_core::Error>(start(pair).await) }),
    );
    Ok(vec![time.await?])
}

/// The same with a point at each wait.
async fn kinfolk_points() -> kinfolk_core::Result<Vec<f64>> {
    use kinfolk_core::{Error, OrCancel};
    let echo = |pair: Arc<Pair>| {
        kinfolk_core::spawn(async move {
            for _ in 0..=TRIPS {
                let number = pair.to.take().or_cancel().await?;
                pair.fro.put(number);
            }
            Ok::<_, Error>(())
        })
    };
    let start = |pair: Arc<Pair>| {
        kinfolk_core::spawn(async move {
            pair.to.put(1);
            pair.fro.take().or_cancel().await?;
            let start = Instant::now();
            for number in 1..=TRIPS {
                pair.to.put(number);
                assert_eq!(pair.fro.take().or_cancel().await?, number);
            }
            Ok::<_, Error>(per(start.elapsed(), TRIPS))
        })
    };
    Ok(vec![trips(echo, start).await?])
}

async fn tokio() -> Vec<f64> {
    let time = trips(
        |pair| tokio::spawn(echo(pair)),
        |pair| tokio::spawn(start(pair)),
    );
    vec![time.await.expect("the task succeeds")]
}

/// With a channel for each answer, as users of tokio would write it.
async fn tokio_oneshot() -> Vec<f64> {
    type Answer = tokio::sync::oneshot::Sender<u64>;
    let (to, mut from) = tokio::sync::mpsc::channel::<(u64, Answer)>(1);
    let echo = tokio::spawn(async move {
        while let Some((number, answer)) = from.recv().await {
            answer.send(number).expect("somebody waits");
        }
    });
    let start = tokio::spawn(async move {
        let start = Instant::now();
        for number in 1..=TRIPS {
            let (answer, wait) = tokio::sync::oneshot::channel();
            to.send((number, answer)).await.expect("somebody waits");
            assert_eq!(wait.await, Ok(number));
        }
        per(start.elapsed(), TRIPS)
    });
    let time = start.await.expect("the task succeeds");
    echo.await.expect("the task succeeds");
    vec![time]
}

pub fn groups() -> Vec<Group> {
    let mut contestants = Vec::new();
    for &way in Way::ONE {
        let [bare, points] = way.names_of(["", ", at points"]);
        contestants.push(Contestant::ours(bare, move || way.run(kinfolk())));
        contestants.push(Contestant::variant(points, move || {
            way.run(kinfolk_points())
        }));
    }
    contestants.extend([
        Contestant::peer("tokio", || ways::tokio_one(tokio())),
        Contestant::variant("tokio, mpsc + oneshot", || ways::tokio_one(tokio_oneshot())),
        Contestant::peer("smol", || {
            ways::smol_one(async |executor| {
                let time = trips(
                    |pair| executor.spawn(echo(pair)),
                    |pair| executor.spawn(start(pair)),
                );
                vec![time.await]
            })
        }),
        Contestant::peer("glommio", || {
            ways::glommio(async {
                let time = trips(
                    |pair| glommio::spawn_local(echo(pair)),
                    |pair| glommio::spawn_local(start(pair)),
                );
                vec![time.await]
            })
        }),
    ]);
    vec![Group {
        benches: vec![BENCH],
        contestants,
        most_rounds: usize::MAX,
    }]
}
