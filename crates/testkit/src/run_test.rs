//! What `#[kinfolk::test]` calls.

use std::ops::Range;

use kinfolk_core::{IntoOutcome, Outcome};

use crate::guard::guarded;
use crate::sim::Sim;

/// Runs a test on the simulation once for each seed: virtual time, a check
/// that no job and no timer is left, a guard in real time. `KINFOLK_SEED`
/// picks one seed.
///
/// # Panics
/// If the test fails on some seed: the message says which.
pub fn run_test<F, B>(name: &'static str, seeds: Range<u64>, test: F)
where
    F: Fn() -> B + Send + 'static,
    B: Future<Output: IntoOutcome<Value: Send>> + Send + 'static,
{
    let chosen = std::env::var("KINFOLK_SEED")
        .ok()
        .and_then(|text| text.parse::<u64>().ok());
    let seeds = chosen.map_or(seeds, |seed| seed..seed + 1);
    guarded(name, move |watched| {
        for seed in seeds {
            let mut sim = Sim::seeded(seed);
            watched.watch(sim.tree());
            let replay = format!("run it again with KINFOLK_SEED={seed}");
            match sim.outcome(test()) {
                Outcome::Completed(_) => {}
                Outcome::Failed(error) => {
                    eprintln!("{name} failed with seed {seed}: {replay}");
                    let error = error.resume();
                    panic!("{name} failed with seed {seed}: {error}\n{error:?}\n{replay}");
                }
                Outcome::Cancelled { reason, .. } => {
                    panic!("{name} was cancelled with seed {seed}: {reason}\n{replay}");
                }
            }
            sim.assert_nothing_left();
            sim.finish();
        }
    });
}
