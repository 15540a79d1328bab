//! A timer is set and cleared before it fires, as a timeout usually is; and one
//! fires, and whoever waits for it goes on a little later.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::hint::black_box;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use crate::contestant::{Bar, Bench, Contestant, Group, Unit, native};
use crate::measure::per;
use crate::ways::{self, Way};

const CHUNK: u64 = 64;
const CHUNKS: u64 = 500;

const ONE: Bench = Bench {
    name: "timer st",
    what: "A sleep of 1 to 60 s is polled once and dropped. One thread.",
    per: "insert + cancel",
    unit: Unit::Nanoseconds,
    targets: &[native(Bar::AtMost(100.0))],
};

const TWO: Bench = Bench {
    name: "timer mt",
    what: "A sleep of 1 to 60 s is polled once and dropped. Two workers.",
    per: "insert + cancel",
    unit: Unit::Nanoseconds,
    targets: &[],
};

const LATE_ONE: Bench = Bench {
    name: "timer lateness st",
    what: "A sleep of 1 to 2 ms: by how much its waiter goes on too late, the median of a round. One thread.",
    per: "sleep",
    unit: Unit::Nanoseconds,
    targets: &[native(Bar::AtMost(50_000.0))],
};

const LATE_TWO: Bench = Bench {
    name: "timer lateness mt",
    what: "A sleep of 1 to 2 ms: by how much its waiter goes on too late, the median of a round. Two workers.",
    per: "sleep",
    unit: Unit::Nanoseconds,
    targets: &[native(Bar::AtMost(50_000.0))],
};

/// How many sleeps are in a round, and how many rounds: they take as long as
/// they take.
const SLEEPS: u64 = 51;
const LATE_ROUNDS: usize = 9;

pub fn groups() -> Vec<Group> {
    vec![one_thread(), two_workers(), late_one(), late_two()]
}

/// Sleeps, one after the other, and how late each was: the median.
async fn lateness<F: Future>(sleep: impl Fn(Duration) -> F) -> Vec<f64> {
    let mut late = Vec::new();
    for i in 0..SLEEPS {
        let length = Duration::from_micros(1_000 + length(i).as_millis() as u64 % 1_000);
        let due = Instant::now() + length;
        sleep(length).await;
        late.push(due.elapsed());
    }
    late.sort_unstable();
    vec![late[late.len() / 2].as_nanos() as f64]
}

async fn kinfolk_late() -> kinfolk_core::Result<Vec<f64>> {
    Ok(lateness(kinfolk_core::sleep).await)
}

fn late_one() -> Group {
    let mut contestants = Vec::new();
    for &way in Way::ONE {
        contestants.push(Contestant::ours(way.name(), move || {
            way.run(kinfolk_late())
        }));
    }
    contestants.extend([
        Contestant::peer("tokio", || ways::tokio_one(lateness(tokio::time::sleep))),
        Contestant::peer("smol", || ways::smol_one(|_| lateness(smol::Timer::after))),
        Contestant::peer("glommio", || {
            ways::glommio(lateness(glommio::timer::Timer::new))
        }),
    ]);
    Group {
        benches: vec![LATE_ONE],
        contestants,
        most_rounds: LATE_ROUNDS,
    }
}

fn late_two() -> Group {
    let mut contestants = Vec::new();
    for &way in Way::TWO {
        contestants.push(Contestant::ours(way.name(), move || {
            way.run(kinfolk_late())
        }));
    }
    contestants.extend([
        Contestant::peer("tokio", || ways::tokio_two(lateness(tokio::time::sleep))),
        Contestant::peer("smol", || ways::smol_two(|_| lateness(smol::Timer::after))),
    ]);
    Group {
        benches: vec![LATE_TWO],
        contestants,
        most_rounds: LATE_ROUNDS,
    }
}

/// From 1 to 60 s, in no order.
fn length(i: u64) -> Duration {
    Duration::from_millis(1_000 + i.wrapping_mul(0x9E37_79B9_7F4A_7C15) % 59_000)
}

/// Sets and clears; lets others run after each chunk, untimed, because a task
/// that never does is made to wait.
async fn timers<F: Future, P: Future>(
    sleep: impl Fn(Duration) -> F,
    pause: impl Fn() -> P,
) -> Vec<f64> {
    let mut time = Duration::ZERO;
    for chunk in 0..CHUNKS {
        let start = Instant::now();
        for i in 0..CHUNK {
            let mut sleep = pin!(sleep(length(chunk * CHUNK + i)));
            poll_fn(|cx| {
                assert!(sleep.as_mut().poll(cx).is_pending());
                Poll::Ready(())
            })
            .await;
        }
        time += start.elapsed();
        pause().await;
    }
    vec![per(time, CHUNK * CHUNKS)]
}

async fn kinfolk() -> kinfolk_core::Result<Vec<f64>> {
    Ok(timers(kinfolk_core::sleep, kinfolk_core::yield_now).await)
}

async fn tokio() -> Vec<f64> {
    timers(tokio::time::sleep, tokio::task::yield_now).await
}

async fn smol() -> Vec<f64> {
    timers(smol::Timer::after, smol::future::yield_now).await
}

/// A sorted map of deadlines that nobody else looks at.
fn floor() -> Vec<f64> {
    let mut map = BTreeMap::new();
    let start = Instant::now();
    for i in 0..CHUNK * CHUNKS {
        let key = (Instant::now() + length(i), i);
        map.insert(key, ());
        black_box(map.remove(&key));
    }
    vec![per(start.elapsed(), CHUNK * CHUNKS)]
}

fn one_thread() -> Group {
    let mut contestants = Vec::new();
    for &way in Way::ONE {
        contestants.push(Contestant::ours(way.name(), move || way.run(kinfolk())));
    }
    contestants.extend([
        Contestant::peer("tokio", || ways::tokio_one(tokio())),
        Contestant::peer("smol", || ways::smol_one(|_| smol())),
        Contestant::peer("glommio", || {
            ways::glommio(timers(glommio::timer::Timer::new, smol::future::yield_now))
        }),
        Contestant::floor(floor),
    ]);
    Group {
        benches: vec![ONE],
        contestants,
        most_rounds: usize::MAX,
    }
}

fn two_workers() -> Group {
    let mut contestants = Vec::new();
    for &way in Way::TWO {
        contestants.push(Contestant::ours(way.name(), move || way.run(kinfolk())));
    }
    contestants.extend([
        Contestant::peer("tokio", || ways::tokio_two(tokio())),
        Contestant::peer("smol", || ways::smol_two(|_| smol())),
    ]);
    Group {
        benches: vec![TWO],
        contestants,
        most_rounds: usize::MAX,
    }
}
