//! A thousand tasks that yield a thousand times each.

use std::future::Future;
use std::time::Instant;

use crate::contestant::{Bar, Bench, Contestant, Group, Unit, native};
use crate::floor::{Floor, Yields};
use crate::measure::per;
use crate::ways::{self, Way};

const TASKS: u32 = 1_000;
const TIMES: u32 = 1_000;

const ONE: Bench = Bench {
    name: "yield st",
    what: "A thousand tasks yield a thousand times each. One thread.",
    per: "yield",
    unit: Unit::Nanoseconds,
    targets: &[native(Bar::OfBest(1.0))],
};

const TWO: Bench = Bench {
    name: "yield mt",
    what: "A thousand tasks yield a thousand times each. Two workers.",
    per: "yield",
    unit: Unit::Nanoseconds,
    targets: &[native(Bar::OfBest(1.0))],
};

pub fn groups() -> Vec<Group> {
    vec![one_thread(), two_workers()]
}

/// Creates the tasks and joins them all.
async fn storm<H: Future>(create: impl Fn() -> H) -> Vec<f64> {
    let start = Instant::now();
    let tasks: Vec<_> = (0..TASKS).map(|_| create()).collect();
    for task in tasks {
        task.await;
    }
    vec![per(start.elapsed(), u64::from(TASKS) * u64::from(TIMES))]
}

async fn kinfolk() -> kinfolk_core::Result<Vec<f64>> {
    let task = || {
        kinfolk_core::spawn(async {
            for _ in 0..TIMES {
                kinfolk_core::yield_now().await?;
            }
            Ok::<_, kinfolk_core::Cancelled>(())
        })
    };
    Ok(storm(task).await)
}

async fn tokio() -> Vec<f64> {
    let task = || {
        tokio::spawn(async {
            for _ in 0..TIMES {
                tokio::task::yield_now().await;
            }
        })
    };
    storm(task).await
}

/// A task for those without a `yield_now` of their own, and for tokio with its
/// slower one left aside: it wakes itself.
async fn wakes_itself() {
    for _ in 0..TIMES {
        smol::future::yield_now().await;
    }
}

fn one_thread() -> Group {
    let mut contestants = Vec::new();
    for &way in Way::ONE {
        contestants.push(Contestant::ours(way.name(), move || way.run(kinfolk())));
    }
    contestants.extend([
        Contestant::peer("tokio", || ways::tokio_one(tokio())),
        Contestant::peer("tokio, wakes itself", || {
            ways::tokio_one(storm(|| tokio::spawn(wakes_itself())))
        }),
        Contestant::peer("smol", || {
            ways::smol_one(async |executor| storm(|| executor.spawn(wakes_itself())).await)
        }),
        Contestant::peer("glommio", || {
            ways::glommio(storm(|| glommio::spawn_local(wakes_itself())))
        }),
        Contestant::floor(|| {
            let start = Instant::now();
            let mut floor = Floor::default();
            for _ in 0..TASKS {
                floor.spawn(Yields(TIMES));
            }
            floor.run();
            vec![per(start.elapsed(), u64::from(TASKS) * u64::from(TIMES))]
        }),
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
        Contestant::peer("tokio, wakes itself", || {
            ways::tokio_two(storm(|| tokio::spawn(wakes_itself())))
        }),
        Contestant::peer("smol", || {
            ways::smol_two(async |executor| storm(|| executor.spawn(wakes_itself())).await)
        }),
    ]);
    Group {
        benches: vec![TWO],
        contestants,
        most_rounds: usize::MAX,
    }
}
