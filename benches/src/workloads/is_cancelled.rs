//! Asking whether to stop, alone and while a second thread asks the same job.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use kinfolk_core::Scope;
use tokio_util::sync::CancellationToken;

use crate::contestant::{Bar, Bench, Contestant, Group, Unit, native};
use crate::measure::per;
use crate::ways::Way;

const COUNT: u64 = 500_000;

const BENCHES: [Bench; 2] = [
    Bench {
        name: "is_cancelled",
        what: "Asking whether the current job is cancelled.",
        per: "question",
        unit: Unit::Nanoseconds,
        targets: &[native(Bar::AtMost(1.0))],
    },
    Bench {
        name: "is_cancelled, contended",
        what: "The same, while a second thread asks the same job without pause.",
        per: "question",
        unit: Unit::Nanoseconds,
        targets: &[native(Bar::AtMost(1.0))],
    },
];

/// Asks `here`, first alone, then while another thread asks `there`.
fn questions(here: impl Fn() -> bool, there: impl Fn() -> bool + Sync) -> Vec<f64> {
    let ask = || {
        let start = Instant::now();
        for _ in 0..COUNT {
            black_box(here());
        }
        per(start.elapsed(), COUNT)
    };
    // Warms up.
    ask();
    let alone = ask();
    let (started, enough) = (AtomicBool::new(false), AtomicBool::new(false));
    let contended = std::thread::scope(|threads| {
        threads.spawn(|| {
            while !enough.load(Ordering::Relaxed) {
                for _ in 0..100 {
                    black_box(there());
                }
                started.store(true, Ordering::Relaxed);
            }
        });
        while !started.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
        let contended = ask();
        enough.store(true, Ordering::Relaxed);
        contended
    });
    vec![alone, contended]
}

/// The current job, found through the thread-local.
async fn kinfolk() -> kinfolk_core::Result<Vec<f64>> {
    let scope = Scope::current().expect("a body has a job");
    Ok(questions(kinfolk_core::is_cancelled, || {
        scope.cancel_requested()
    }))
}

/// A scope at hand.
async fn kinfolk_scope() -> kinfolk_core::Result<Vec<f64>> {
    let scope = Scope::current().expect("a body has a job");
    Ok(questions(
        || scope.cancel_requested(),
        || scope.cancel_requested(),
    ))
}

pub fn groups() -> Vec<Group> {
    let mut contestants = Vec::new();
    for &way in Way::ONE {
        let [here, scope] = way.names_of(["", ", Scope::cancel_requested"]);
        contestants.push(Contestant::ours(here, move || way.run(kinfolk())));
        contestants.push(Contestant::variant(scope, move || way.run(kinfolk_scope())));
    }
    contestants.extend([
        Contestant::peer("tokio token", || {
            let token = CancellationToken::new();
            questions(|| token.is_cancelled(), || token.is_cancelled())
        }),
        Contestant::floor(|| {
            let flag = AtomicBool::new(false);
            let look = || flag.load(Ordering::Acquire);
            questions(look, look)
        }),
    ]);
    vec![Group {
        benches: BENCHES.to_vec(),
        contestants,
        most_rounds: usize::MAX,
    }]
}
