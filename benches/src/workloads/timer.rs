//! A timer is set and cleared before it fires, as a timeout usually is.

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

pub fn groups() -> Vec<Group> {
    vec![one_thread(), two_workers()]
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
