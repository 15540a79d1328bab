//! Create, run and join one child, then the next.

use std::hint::black_box;

use crate::contestant::{Bar, Bench, Contestant, Group, Unit, native, on_tokio};
use crate::floor::Floor;
use crate::measure::timed;
use crate::ways::{self, Way};

const COUNT: u64 = 20_000;

const ONE: Bench = Bench {
    name: "spawn+join st",
    what: "One child is created, runs and is joined; then the next. One thread.",
    per: "child",
    unit: Unit::Nanoseconds,
    targets: &[
        native(Bar::Of("glommio", 1.2)),
        native(Bar::Of("tokio in block_on", 0.15)),
        on_tokio(Bar::Over("tokio", 150.0)),
    ],
};

const TWO: Bench = Bench {
    name: "spawn+join mt",
    what: "One child is created, runs and is joined; then the next. Two workers.",
    per: "child",
    unit: Unit::Nanoseconds,
    targets: &[],
};

pub fn groups() -> Vec<Group> {
    vec![one_thread(), two_workers()]
}

async fn kinfolk() -> kinfolk_core::Result<Vec<f64>> {
    kinfolk_core::scope(async |scope| {
        let child = |i| scope.spawn(async move { black_box(i) });
        Ok(vec![timed(COUNT, child).await])
    })
    .await
}

/// The child is polled inside the call that creates it, where the host can: in
/// a task of the pool, since it is the pool's.
async fn kinfolk_now() -> kinfolk_core::Result<Vec<f64>> {
    let body = kinfolk_core::scope(async |scope| {
        let child = |i| scope.spawn_now(async move { black_box(i) });
        Ok(vec![timed(COUNT, child).await])
    });
    kinfolk_core::on(kinfolk_core::Pool, body).await
}

async fn tokio() -> Vec<f64> {
    vec![timed(COUNT, |i| tokio::spawn(async move { black_box(i) })).await]
}

fn one_thread() -> Group {
    let mut contestants = Vec::new();
    for &way in Way::ONE {
        let [queued, now] = way.names_of(["", ", spawn_now"]);
        contestants.push(Contestant::ours(queued, move || way.run(kinfolk())));
        contestants.push(Contestant::variant(now, move || way.run(kinfolk_now())));
    }
    contestants.extend([
        Contestant::peer("tokio", || ways::tokio_one(tokio())),
        Contestant::peer("tokio in block_on", || ways::tokio_one_block_on(tokio())),
        Contestant::peer("smol", || {
            ways::smol_one(async |executor| {
                vec![timed(COUNT, |i| executor.spawn(async move { black_box(i) })).await]
            })
        }),
        Contestant::peer("glommio", || {
            ways::glommio(async {
                let child = |i| glommio::spawn_local(async move { black_box(i) });
                vec![timed(COUNT, child).await]
            })
        }),
        Contestant::peer("glommio, queued", || {
            ways::glommio(async {
                let child = |i| ways::glommio_queued(async move { black_box(i) });
                vec![timed(COUNT, child).await]
            })
        }),
        Contestant::floor(|| {
            let floor = std::cell::RefCell::new(Floor::default());
            let child = |i| {
                let mut floor = floor.borrow_mut();
                let child = floor.spawn(std::future::ready(black_box(i)));
                floor.run();
                std::future::ready(child.take())
            };
            vec![ways::tokio_one_block_on(timed(COUNT, child))]
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
        Contestant::peer("smol", || {
            ways::smol_two(async |executor| {
                vec![timed(COUNT, |i| executor.spawn(async move { black_box(i) })).await]
            })
        }),
    ]);
    Group {
        benches: vec![TWO],
        contestants,
        most_rounds: usize::MAX,
    }
}
