//! A scope of a thousand children that have nothing to wait for.

use std::future::Future;
use std::hint::black_box;

use tokio::task::JoinSet;

use crate::contestant::{Bar, Bench, Contestant, Group, Unit, native, on_tokio};
use crate::floor::Floor;
use crate::measure::timed;
use crate::ways::{self, Way};

const CHILDREN: u64 = 1_000;
const TIMES: u64 = 20;

const ONE: Bench = Bench {
    name: "scope of 1,000 st",
    what: "A scope is opened, a thousand children run in it, and it ends when all have. One thread.",
    per: "child",
    unit: Unit::Nanoseconds,
    targets: &[
        native(Bar::Of("tokio JoinSet", 0.2)),
        on_tokio(Bar::Of("tokio JoinSet", 1.0)),
    ],
};

const TWO: Bench = Bench {
    name: "scope of 1,000 mt",
    what: "A scope is opened, a thousand children run in it, and it ends when all have. Two workers.",
    per: "child",
    unit: Unit::Nanoseconds,
    targets: &[
        native(Bar::Of("tokio JoinSet", 0.2)),
        on_tokio(Bar::Of("tokio JoinSet", 1.0)),
    ],
};

pub fn groups() -> Vec<Group> {
    vec![one_thread(), two_workers()]
}

async fn scopes<F: Future>(scope: impl Fn(u64) -> F) -> Vec<f64> {
    vec![timed(TIMES, scope).await / CHILDREN as f64]
}

async fn child(i: u64) {
    black_box(i);
}

async fn kinfolk() -> kinfolk_core::Result<Vec<f64>> {
    let one = |_| {
        kinfolk_core::scope(async |scope| {
            for i in 0..CHILDREN {
                scope.launch(child(i));
            }
            Ok(())
        })
    };
    Ok(scopes(one).await)
}

/// Every child's `Task` is held and awaited.
async fn kinfolk_tasks() -> kinfolk_core::Result<Vec<f64>> {
    let one = |_| {
        kinfolk_core::scope(async |scope| {
            let tasks: Vec<_> = (0..CHILDREN).map(|i| scope.spawn(child(i))).collect();
            for task in tasks {
                task.await?;
            }
            Ok(())
        })
    };
    Ok(scopes(one).await)
}

async fn tokio() -> Vec<f64> {
    let one = |_| async {
        let mut set = JoinSet::new();
        for i in 0..CHILDREN {
            set.spawn(child(i));
        }
        while let Some(end) = set.join_next().await {
            end.expect("the child succeeds");
        }
    };
    scopes(one).await
}

async fn glommio(create: impl Fn(u64) -> glommio::Task<()>) -> Vec<f64> {
    let one = async |_| {
        for task in (0..CHILDREN).map(&create).collect::<Vec<_>>() {
            task.await;
        }
    };
    scopes(one).await
}

fn ours(ways: &[Way]) -> Vec<Contestant> {
    let mut contestants = Vec::new();
    for &way in ways {
        let [launched, held] = way.names_of(["", ", Task held"]);
        contestants.push(Contestant::ours(launched, move || way.run(kinfolk())));
        contestants.push(Contestant::variant(held, move || way.run(kinfolk_tasks())));
    }
    contestants
}

fn one_thread() -> Group {
    let mut contestants = ours(Way::ONE);
    contestants.extend([
        Contestant::peer("tokio JoinSet", || ways::tokio_one(tokio())),
        Contestant::peer("smol", || {
            ways::smol_one(async |executor| {
                let one = async |_| {
                    let tasks: Vec<_> = (0..CHILDREN).map(|i| executor.spawn(child(i))).collect();
                    for task in tasks {
                        task.await;
                    }
                };
                scopes(one).await
            })
        }),
        Contestant::peer("glommio", || {
            ways::glommio(glommio(|i| glommio::spawn_local(child(i))))
        }),
        Contestant::peer("glommio, queued", || {
            ways::glommio(glommio(|i| ways::glommio_queued(child(i))))
        }),
        Contestant::floor(|| {
            let one = async |_| {
                let mut floor = Floor::default();
                for i in 0..CHILDREN {
                    floor.spawn(std::future::ready(black_box(i)));
                }
                floor.run();
            };
            ways::tokio_one_block_on(scopes(one))
        }),
    ]);
    Group {
        benches: vec![ONE],
        contestants,
        most_rounds: usize::MAX,
    }
}

fn two_workers() -> Group {
    let mut contestants = ours(Way::TWO);
    contestants.extend([
        Contestant::peer("tokio JoinSet", || ways::tokio_two(tokio())),
        Contestant::peer("smol", || {
            ways::smol_two(|executor| async move {
                let one = |_| async {
                    let tasks: Vec<_> = (0..CHILDREN).map(|i| executor.spawn(child(i))).collect();
                    for task in tasks {
                        task.await;
                    }
                };
                scopes(one).await
            })
        }),
    ]);
    Group {
        benches: vec![TWO],
        contestants,
        most_rounds: usize::MAX,
    }
}
