//! Runs a case on a host: the fixture with which the host is made, and the
//! checks after the case. The conformance suite uses it, and so do tests that
//! need a host on many seeds.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use kinfolk_core::host::say::{MOMENT, Topic, flush, say};
use kinfolk_core::{Error, Interests, Outcome, RingSink, Tree};

use crate::clock::VirtualClock;
use crate::guard::{WatchedRun, guarded};
use crate::lab::Lab;
use crate::sim::Sim;

/// How many seeds a deterministic case runs on, unless `KINFOLK_SEEDS` says
/// otherwise.
const SEEDS: u64 = 100;

/// How many seeds to run.
pub fn seeds() -> u64 {
    crate::seeds::how_many().unwrap_or(SEEDS)
}

/// The parts with which a host is made for a case, and which the checks read
/// afterwards.
#[derive(Clone, Debug)]
pub struct Fixture {
    /// The clock of the host.
    pub clock: VirtualClock,
    /// The sink of the host.
    pub events: Arc<RingSink>,
    failures: Arc<Mutex<Vec<Error>>>,
}

impl Fixture {
    /// A fresh one.
    pub fn new() -> Fixture {
        Fixture {
            clock: VirtualClock::new(),
            events: Arc::new(RingSink::new(100_000).with(Interests::ALL)),
            failures: Arc::default(),
        }
    }

    /// The failure hook of the host.
    pub fn failure_hook(&self) -> impl Fn(&Error) + Send + Sync + 'static {
        let failures = self.failures.clone();
        move |error| {
            failures
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(error.clone());
        }
    }

    /// What the case gets.
    pub fn lab(&self, tree: &Tree, seed: u64) -> Lab {
        Lab {
            tree: tree.clone(),
            clock: self.clock.clone(),
            failures: self.failures.clone(),
            events: self.events.clone(),
            seed,
        }
    }
}

impl Default for Fixture {
    fn default() -> Self {
        Fixture::new()
    }
}

/// Panics with the name and the seed unless a case has completed.
#[track_caller]
pub fn expect_completed(name: &str, seed: u64, outcome: Outcome<()>) {
    match outcome {
        Outcome::Completed(()) => {}
        Outcome::Failed(error) => {
            say(
                Topic::Seldom,
                format_args!("{name} failed with seed {seed}"),
            );
            flush(MOMENT);
            let error = error.resume();
            panic!("{name}, seed {seed}: {error:?}");
        }
        Outcome::Cancelled { reason, .. } => {
            panic!("{name}, seed {seed}: its main task was cancelled: {reason}")
        }
    }
}

/// Panics if a job but the root is left, or a timer.
#[track_caller]
pub fn expect_nothing_left(name: &str, seed: u64, tree: &Tree) {
    let counters = tree.counters();
    assert!(
        counters.living() == 1 && counters.timers_pending() == 0,
        "{name} (seed {seed}) left {} jobs and {} timers behind:\n{}",
        counters.living() - 1,
        counters.timers_pending(),
        tree.snapshot()
    );
}

/// A case that has been given its lab. Boxed, so that a harness is compiled
/// once and not for every case.
pub type Case = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs one case on the seeded simulation, on every seed. On half of the seeds the
/// simulation explores, as in a user's test: ready points may yield, and tasks are not drawn
/// evenly.
pub fn on_sim(name: &'static str, case: fn(Lab) -> Case) {
    on_seeds(name, case, true);
}

/// The same for a case that counts turns: tasks are drawn evenly, and ready points go on.
pub fn on_even_sim(name: &'static str, case: fn(Lab) -> Case) {
    on_seeds(name, case, false);
}

fn on_seeds(name: &'static str, case: fn(Lab) -> Case, explores: bool) {
    guarded(name, move |watched| {
        for seed in 0..seeds() {
            let fixture = Fixture::new();
            let mut builder = Sim::builder(seed);
            if explores && seed >= seeds() / 2 {
                builder = builder.explore();
            }
            let mut sim = builder
                .on_failure(fixture.failure_hook())
                .on_forced(|_| {})
                .sink(fixture.events.clone())
                .clock(fixture.clock.clone())
                .build();
            watched.watch_run(sim.tree(), WatchedRun::Seed(name, seed));
            let lab = fixture.lab(sim.tree(), seed);
            let outcome = sim.outcome(case(lab));
            expect_completed(name, seed, outcome);
            expect_nothing_left(name, seed, sim.tree());
            sim.finish();
        }
    });
}
