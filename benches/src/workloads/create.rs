//! The call that creates a child, alone; and awaiting a child that is
//! finished. Both come from the same rounds: a thousand are created, they run
//! while nobody looks at the clock, then they are awaited.

use std::cell::Cell;
use std::future::Future;
use std::hint::black_box;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::contestant::{Bar, Bench, Contestant, Group, Unit, native};
use crate::floor::Floor;
use crate::measure::per;
use crate::ways::{self, Way};

const CHILDREN: u64 = 1_000;
const TIMES: u64 = 20;

const ONE: [Bench; 2] = [
    Bench {
        name: "create st",
        what: "The call that creates a child, a thousand held. One thread.",
        per: "call",
        unit: Unit::Nanoseconds,
        targets: &[native(Bar::Of("tokio", 0.3))],
    },
    Bench {
        name: "await finished st",
        what: "Awaiting a child that has ended. One thread.",
        per: "await",
        unit: Unit::Nanoseconds,
        targets: &[native(Bar::OfBest(1.0))],
    },
];

const TWO: [Bench; 2] = [
    Bench {
        name: "create mt",
        what: "The call that creates a child, a thousand held, while a second worker may begin to run them.",
        per: "call",
        unit: Unit::Nanoseconds,
        targets: &[native(Bar::Of("tokio", 0.3))],
    },
    Bench {
        name: "await finished mt",
        what: "Awaiting a child that has ended. Two workers.",
        per: "await",
        unit: Unit::Nanoseconds,
        targets: &[native(Bar::OfBest(1.0))],
    },
];

pub fn groups() -> Vec<Group> {
    vec![one_thread(), two_workers()]
}

/// `pause` lets the children run; `finished` says whether all of these are.
async fn batches<H: Future, P: Future>(
    create: impl Fn(u64) -> H,
    finished: impl Fn(&[H]) -> bool,
    pause: impl Fn() -> P,
) -> Vec<f64> {
    let (mut creating, mut awaiting) = (Duration::ZERO, Duration::ZERO);
    let mut children = Vec::with_capacity(CHILDREN as usize);
    // The first one warms up.
    for time in 0..=TIMES {
        let start = Instant::now();
        for i in 0..CHILDREN {
            children.push(create(i));
        }
        let created = start.elapsed();
        while !finished(&children) {
            pause().await;
        }
        let start = Instant::now();
        for child in children.drain(..) {
            black_box(child.await);
        }
        if time > 0 {
            creating += created;
            awaiting += start.elapsed();
        }
    }
    let count = CHILDREN * TIMES;
    vec![per(creating, count), per(awaiting, count)]
}

async fn kinfolk() -> kinfolk_core::Result<Vec<f64>> {
    kinfolk_core::scope(async |scope| {
        let numbers = batches(
            |i| scope.spawn(async move { black_box(i) }),
            |children| children.iter().all(|child| child.is_ended()),
            kinfolk_core::yield_now,
        );
        Ok(numbers.await)
    })
    .await
}

async fn tokio() -> Vec<f64> {
    batches(
        |i| tokio::spawn(async move { black_box(i) }),
        |children| children.iter().all(|child| child.is_finished()),
        tokio::task::yield_now,
    )
    .await
}

async fn glommio(queued: bool) -> Vec<f64> {
    // Its handle does not say whether the task is finished: count.
    let ended = Rc::new(Cell::new(0));
    let create = |i| {
        let ended = ended.clone();
        let child = async move {
            ended.set(ended.get() + 1);
            black_box(i)
        };
        match queued {
            false => glommio::spawn_local(child),
            true => ways::glommio_queued(child),
        }
    };
    let finished = |_: &[_]| ended.get() == CHILDREN && ended.replace(0) > 0;
    batches(create, finished, smol::future::yield_now).await
}

fn floor() -> Vec<f64> {
    let (mut creating, mut awaiting) = (Duration::ZERO, Duration::ZERO);
    let mut floor = Floor::default();
    let mut children = Vec::with_capacity(CHILDREN as usize);
    for _ in 0..TIMES {
        let start = Instant::now();
        for i in 0..CHILDREN {
            children.push(floor.spawn(std::future::ready(black_box(i))));
        }
        creating += start.elapsed();
        floor.run();
        let start = Instant::now();
        for child in children.drain(..) {
            black_box(child.take());
        }
        awaiting += start.elapsed();
    }
    let count = CHILDREN * TIMES;
    vec![per(creating, count), per(awaiting, count)]
}

fn one_thread() -> Group {
    let mut contestants = Vec::new();
    for &way in Way::ONE {
        contestants.push(Contestant::ours(way.name(), move || way.run(kinfolk())));
    }
    contestants.extend([
        Contestant::peer("tokio", || ways::tokio_one(tokio())),
        Contestant::peer("smol", || {
            ways::smol_one(async |executor| {
                batches(
                    |i| executor.spawn(async move { black_box(i) }),
                    |children| children.iter().all(|child| child.is_finished()),
                    smol::future::yield_now,
                )
                .await
            })
        }),
        Contestant::peer("glommio", || ways::glommio(glommio(false))),
        Contestant::peer("glommio, queued", || ways::glommio(glommio(true))),
        Contestant::floor(floor),
    ]);
    Group {
        benches: ONE.to_vec(),
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
        Contestant::peer("smol", || {
            ways::smol_two(async |executor| {
                batches(
                    |i| executor.spawn(async move { black_box(i) }),
                    |children| children.iter().all(|child| child.is_finished()),
                    smol::future::yield_now,
                )
                .await
            })
        }),
    ]);
    Group {
        benches: TWO.to_vec(),
        contestants,
        most_rounds: usize::MAX,
    }
}
