//! What `#[kinfolk::test]` calls.

use std::ops::Range;

use kinfolk_core::host::say::{MOMENT, Topic, flush, say};
use kinfolk_core::{IntoOutcome, Outcome};

use crate::guard::guarded;
use crate::io::side;
use crate::sim::Sim;
use crate::unheard::Unheard;

/// How a test is run; the options of `#[kinfolk::test]`.
#[derive(Clone, Debug)]
pub struct TestOptions {
    seeds: Range<u64>,
    failures_allowed: bool,
    real_time: bool,
    weather: Weather,
}

/// On which seeds i/o is as rough as every program must bear.
#[derive(Clone, Copy, Debug)]
enum Weather {
    OddSeeds,
    All,
    None,
}

impl Weather {
    fn io(self, seed: u64) -> side::Options {
        match self {
            Weather::OddSeeds if seed % 2 == 1 => side::rough(),
            Weather::All => side::rough(),
            Weather::OddSeeds | Weather::None => side::Options::default(),
        }
    }
}

impl Default for TestOptions {
    /// Ten seeds, and a failure that no handle takes fails the test. On the odd seeds
    /// i/o is rough.
    fn default() -> Self {
        TestOptions {
            seeds: 0..10,
            failures_allowed: false,
            real_time: false,
            weather: Weather::OddSeeds,
        }
    }
}

impl TestOptions {
    /// The schedules to run the test on.
    pub fn seeds(mut self, seeds: Range<u64>) -> TestOptions {
        self.seeds = seeds;
        self
    }

    /// Failures that reach the failure hook (of detached jobs, of children of a
    /// supervisor whose `Task` is gone) do not fail the test.
    pub fn allow_failures(mut self) -> TestOptions {
        self.failures_allowed = true;
        self
    }

    /// Time is the system's. For [`run_native_test`](crate::run_native_test) alone: a
    /// simulation has no real time.
    pub fn real_time(mut self) -> TestOptions {
        self.real_time = true;
        self
    }

    /// I/o is rough on every seed: short reads and writes, operations that are late,
    /// cancels that come too late. None of it is an error.
    pub fn rough_io(mut self) -> TestOptions {
        self.weather = Weather::All;
        self
    }

    /// I/o is rough on no seed: every operation takes all it can, and no time.
    pub fn fair_io(mut self) -> TestOptions {
        self.weather = Weather::None;
        self
    }

    /// What a failure that no handle took says of the test.
    #[track_caller]
    fn check(&self, name: &str, unheard: &Unheard, replay: &str) {
        if let Some(complaint) = unheard.complaint()
            && !self.failures_allowed
        {
            panic!(
                "{name} left {complaint}\n\
                 take the outcome of that job, or write #[kinfolk::test(failures = \"allowed\")]\n\
                 {replay}"
            );
        }
    }
}

/// Runs a test on the simulation once for each seed: virtual time, a check
/// that no job and no timer is left and that no failure went unheard, a guard in
/// real time. On the odd seeds i/o is rough, unless the options say otherwise.
/// `KINFOLK_SEED` picks one seed.
///
/// # Panics
/// If the test fails on some seed: the message says which.
pub fn run_test<F, B>(name: &'static str, options: TestOptions, test: F)
where
    F: Fn() -> B + Send + 'static,
    B: Future<Output: IntoOutcome<Value: Send>> + Send + 'static,
{
    let chosen = std::env::var("KINFOLK_SEED")
        .ok()
        .and_then(|text| text.parse::<u64>().ok());
    let seeds = chosen.map_or(options.seeds.clone(), |seed| seed..seed + 1);
    assert!(
        !seeds.is_empty(),
        "{name} would run on no seed at all: give at least one"
    );
    guarded(name, move |watched| {
        for seed in seeds {
            let unheard = Unheard::default();
            let mut builder = Sim::builder(seed).on_failure(unheard.hook());
            builder.io = options.weather.io(seed);
            let mut sim = builder.build();
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
            // Before what is left: a job that failed may be why.
            options.check(name, &unheard, &replay);
            sim.assert_nothing_left();
            sim.finish();
            options.check(name, &unheard, &replay);
        }
    });
}

/// Runs a test on the native runtime with two workers and virtual time, ten
/// times, or once in real time: a check that no job and no timer is left and that no failure went
/// unheard, a guard in real time. Seeds mean nothing here.
///
/// # Panics
/// If the test fails.
#[cfg(feature = "runtime")]
pub fn run_native_test<F, B>(name: &'static str, options: TestOptions, test: F)
where
    F: Fn() -> B + Send + 'static,
    B: Future<Output: IntoOutcome<Value: Send>> + Send + 'static,
{
    guarded(name, move |watched| {
        let runs = if options.real_time { 1 } else { 10 };
        for _ in 0..runs {
            let unheard = Unheard::default();
            let builder = kinfolk_runtime::Runtime::builder()
                .workers(2)
                .on_failure(Box::new(unheard.hook()));
            let builder = match options.real_time {
                true => builder,
                false => builder.clock(std::sync::Arc::new(crate::VirtualClock::new())),
            };
            let rt = builder
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
            let replay = "it ran on two worker threads: no seed replays it";
            options.check(name, &unheard, replay);
            let (living, timers) = (rt.counters().living(), rt.counters().timers_pending());
            assert!(
                living == 1 && timers == 0,
                "{name} ended with {} jobs and {timers} timers left:\n{}",
                living - 1,
                rt.snapshot()
            );
            drop(rt);
            options.check(name, &unheard, replay);
        }
    });
}
