//! What it adds to an await of something ready that it can be cancelled.

use std::future::{Future, ready};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};

use kinfolk_core::OrCancel;
use tokio_util::sync::CancellationToken;

use crate::contestant::{Bar, Bench, Contestant, Group, Unit, native};
use crate::measure::timed;
use crate::ways::{self, Way};

const COUNT: u64 = 100_000;

const BENCH: Bench = Bench {
    name: "ready point",
    what: "Awaiting a ready future so that a cancel would be heard: what that adds to the bare await.",
    per: "await",
    unit: Unit::Nanoseconds,
    targets: &[native(Bar::AtMost(3.0))],
};

/// The difference to a bare await, by the best of three each.
async fn added<F: Future>(point: impl Fn(u64) -> F) -> Vec<f64> {
    let (mut with, mut without) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..3 {
        without = without.min(timed(COUNT, async |i| ready(black_box(i)).await).await);
        with = with.min(timed(COUNT, &point).await);
    }
    vec![with - without]
}

async fn kinfolk() -> kinfolk_core::Result<Vec<f64>> {
    Ok(added(|i| ready(black_box(i)).or_cancel()).await)
}

async fn kinfolk_checkpoint() -> kinfolk_core::Result<Vec<f64>> {
    let point = |i| async move {
        kinfolk_core::checkpoint().await?;
        Ok::<_, kinfolk_core::Cancelled>(ready(black_box(i)).await)
    };
    Ok(added(point).await)
}

async fn select() -> Vec<f64> {
    let token = CancellationToken::new();
    let point = async |i| {
        tokio::select! {
            value = ready(black_box(i)) => Some(value),
            () = token.cancelled() => None,
        }
    };
    added(point).await
}

async fn run_until_cancelled() -> Vec<f64> {
    let token = CancellationToken::new();
    let point = async |i| token.run_until_cancelled(ready(black_box(i))).await;
    added(point).await
}

async fn floor() -> Vec<f64> {
    let flag = AtomicBool::new(false);
    let point = async |i| match flag.load(Ordering::Acquire) {
        false => Some(ready(black_box(i)).await),
        true => None,
    };
    added(point).await
}

pub fn groups() -> Vec<Group> {
    let mut contestants = Vec::new();
    for &way in Way::ONE {
        let [or_cancel, checkpoint] = way.names_of(["", ", checkpoint"]);
        contestants.push(Contestant::ours(or_cancel, move || way.run(kinfolk())));
        contestants.push(Contestant::variant(checkpoint, move || {
            way.run(kinfolk_checkpoint())
        }));
    }
    contestants.extend([
        Contestant::peer("tokio select!", || ways::tokio_one_block_on(select())),
        Contestant::peer("tokio run_until_cancelled", || {
            ways::tokio_one_block_on(run_until_cancelled())
        }),
        Contestant::floor(|| ways::tokio_one_block_on(floor())),
    ]);
    vec![Group {
        benches: vec![BENCH],
        contestants,
        most_rounds: usize::MAX,
    }]
}
