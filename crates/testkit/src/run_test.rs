//! What `#[kinfolk::test]` calls.

use std::ops::Range;

use kinfolk_core::host::say::{MOMENT, Topic, flush, say};
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
                    // At once: a panic that goes on does not name the seed.
                    say(
                        Topic::Seldom,
                        format_args!("{name} failed with seed {seed}: {replay}"),
                    );
                    flush(MOMENT);
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

/// Runs a test on the native runtime with two workers and virtual time, ten
/// times: a check that no job and no timer is left, a guard in real time.
///
/// # Panics
/// If the test fails.
#[cfg(feature = "runtime")]
pub fn run_native_test<F, B>(name: &'static str, test: F)
where
    F: Fn() -> B + Send + 'static,
    B: Future<Output: IntoOutcome<Value: Send>> + Send + 'static,
{
    guarded(name, move |watched| {
        for _ in 0..10 {
            let rt = kinfolk_runtime::Runtime::builder()
                .workers(2)
                .clock(std::sync::Arc::new(crate::VirtualClock::new()))
                .build()
                .unwrap_or_else(|error| panic!("{name}: no runtime: {error}"));
            watched.watch(rt.tree());
            let task = rt.scope().task("main").spawn(test());
            match rt.wait_for(task.outcome()).and_then(|ended| Ok(ended?)) {
                Ok(Outcome::Completed(_)) => {}
                Ok(Outcome::Failed(error)) | Err(error) => {
                    let error = error.resume();
                    panic!("{name} failed: {error}\n{error:?}");
                }
                Ok(Outcome::Cancelled { reason, .. }) => panic!("{name} was cancelled: {reason}"),
            }
            // The end is visible a moment before it is counted.
            while rt.counters().living() > 1 && rt.snapshot().len() <= 1 {
                std::thread::yield_now();
            }
            let (living, timers) = (rt.counters().living(), rt.counters().timers_pending());
            assert!(
                living == 1 && timers == 0,
                "{name} ended with {} jobs and {timers} timers left:\n{}",
                living - 1,
                rt.snapshot()
            );
        }
    });
}
