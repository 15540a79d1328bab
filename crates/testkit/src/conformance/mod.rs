//! The conformance suite: each rule and case of the contract is one function,
//! run on every host. A case is an async function that gets a [`Lab`]; it
//! asserts, and leaves nothing behind.

use std::sync::{Arc, Mutex};

use kinfolk_core::RingSink;

use crate::guard::guarded;
use crate::lab::{IdleWaiters, Lab};
use crate::sim::Sim;

mod list;

pub mod tree;

/// How many seeds a deterministic case runs on, unless `KINFOLK_SEEDS` says
/// otherwise.
const SEEDS: u64 = 100;

/// How many seeds to run.
pub fn seeds() -> u64 {
    std::env::var("KINFOLK_SEEDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(SEEDS)
}

/// Runs one case on the seeded simulation, on every seed.
pub fn on_sim<F, B>(name: &'static str, case: F)
where
    F: Fn(Lab) -> B + Send + 'static,
    B: Future<Output = ()> + Send + 'static,
{
    guarded(name, move |watched| {
        for seed in 0..seeds() {
            let failures = Arc::new(Mutex::new(Vec::new()));
            let hook = failures.clone();
            let events = Arc::new(RingSink::new(100_000).with_turns());
            let idle = IdleWaiters::default();
            let mut sim = Sim::builder(seed)
                .on_failure(move |error| {
                    hook.lock()
                        .unwrap_or_else(std::sync::PoisonError::into_inner)
                        .push(error.clone());
                })
                .sink(events.clone())
                .idle_waiters(idle.clone())
                .build();
            watched.watch(sim.tree());
            let lab = Lab {
                tree: sim.tree().clone(),
                idle,
                failures,
                events,
                start: sim.start(),
                seed,
            };
            let ended = sim.outcome(case(lab));
            if let kinfolk_core::Outcome::Completed(()) = ended {
                sim.assert_nothing_left();
                sim.finish();
            } else {
                eprintln!("{name} failed with seed {seed}");
                if let kinfolk_core::Outcome::Failed(error) = ended {
                    let error = error.resume();
                    panic!("{name}, seed {seed}: {error:?}");
                }
                panic!("{name}, seed {seed}: its main task was cancelled");
            }
        }
    });
}
