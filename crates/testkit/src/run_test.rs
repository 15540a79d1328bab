//! The runner of `#[kinfolk::test]`.

use std::any::Any;
use std::cell::Cell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use kinfolk_core::host::ContainedPanics;
use kinfolk_core::host::say::{MOMENT, Topic, flush, say};
#[cfg(any(feature = "runtime", feature = "tokio"))]
use kinfolk_core::kit::{HeldClock, hold_clock};
use kinfolk_core::{IntoOutcome, Outcome};
#[cfg(any(feature = "runtime", feature = "tokio"))]
use kinfolk_core::{Result, Scope, Tree};

use crate::guard::{GuardedRun, WatchedRun, guarded};
use crate::io::side;
use crate::rewind::Tape;
use crate::seeds;
use crate::sim::Sim;
use crate::unheard::{Unheard, contained_panics};

/// How a test is run; the options of `#[kinfolk::test]`.
#[derive(Clone, Debug)]
pub struct TestOptions {
    seeds: Range<u64>,
    failures_allowed: bool,
    pub(crate) real_time: bool,
    time_slips: bool,
    rough: RoughSeeds,
}

/// The seeds on which i/o has the faults that every program must cope with.
#[derive(Clone, Copy, Debug)]
enum RoughSeeds {
    OddSeeds,
    All,
    None,
}

impl RoughSeeds {
    fn io(self, seed: u64) -> side::IoOptions {
        match self {
            RoughSeeds::OddSeeds if seed % 2 == 1 => side::rough(),
            RoughSeeds::All => side::rough(),
            RoughSeeds::OddSeeds | RoughSeeds::None => side::IoOptions::default(),
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
            rough: RoughSeeds::OddSeeds,
            time_slips: false,
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

    /// Time is the system's. For [`run_native_test`](crate::run_native_test) and
    /// `run_tokio_test`: a simulation has no real time.
    pub fn real_time(mut self) -> TestOptions {
        self.real_time = true;
        self
    }

    /// I/o is rough on every seed: short reads and writes, operations that are late,
    /// cancels that come too late. None of these faults is an error.
    pub fn rough_io(mut self) -> TestOptions {
        self.rough = RoughSeeds::All;
        self
    }

    /// I/o is rough on no seed: every operation moves as many bytes as
    /// possible, and takes no time.
    pub fn fair_io(mut self) -> TestOptions {
        self.rough = RoughSeeds::None;
        self
    }

    /// On odd seeds time also moves while tasks are ready; see
    /// [`SimBuilder::time_slips`](crate::SimBuilder::time_slips).
    pub fn time_slips(mut self) -> TestOptions {
        self.time_slips = true;
        self
    }

    /// Fails the test if panics were contained.
    #[track_caller]
    fn check_contained(&self, name: &str, panics: &ContainedPanics) {
        if let Some(complaint) = contained_panics(&panics.take())
            && !self.failures_allowed
        {
            panic!(
                "{name}: {complaint}\n\
                 fix it, or write #[kinfolk::test(failures = \"allowed\")]"
            );
        }
    }

    /// Fails the test if a failure reached no handle.
    #[track_caller]
    pub(crate) fn check(&self, name: &str, unheard: &Unheard) {
        if let Some(complaint) = unheard.complaint()
            && !self.failures_allowed
        {
            panic!(
                "{name} left {complaint}\n\
                 take the outcome of that job, or write #[kinfolk::test(failures = \"allowed\")]"
            );
        }
    }
}

/// Runs a test on the simulation once for each seed: virtual time, a check that
/// no job and no timer is left and that every failure reached a handle, a guard
/// in real time for each seed. On the odd seeds i/o is rough, unless the options
/// say otherwise. `KINFOLK_SEED` picks one seed; `KINFOLK_SEEDS` says how many;
/// with `KINFOLK_REPLAY=1` each seed is run twice, and a test fails whose runs
/// differ.
///
/// # Panics
/// If there is no seed to run it on, or the options request real time. If the test fails on
/// some seed: the message says which, and has a line to copy that runs it again. Before, that
/// seed is run once more, and recorded: if it does not fail in the same way, the message says
/// so, and it names the files of the recording. `KINFOLK_RECORDINGS` is the folder for these
/// files; none are written if it is empty.
pub fn run_test<F, B>(name: &'static str, options: TestOptions, test: F)
where
    F: Fn() -> B + Send + 'static,
    B: Future<Output: IntoOutcome<Value = ()>> + Send + 'static,
{
    let seeds = seeds::chosen(options.seeds.clone());
    assert!(
        !seeds.is_empty(),
        "{name} has no seeds to run on: give at least one"
    );
    assert!(
        !options.real_time,
        "{name}: a simulation has no real time; run_native_test and run_tokio_test have"
    );
    let is_picked = seeds::picked().is_some();
    let twice = seeds::twice();
    guarded(name, move |watched| {
        for seed in seeds {
            let run =
                |tape: Option<&Tape>| options.run_once(name, (seed, twice), &test, &watched, tape);
            let first = is_picked.then(Tape::new);
            let Err(failure) = run(first.as_ref()) else {
                continue;
            };
            let tape = Tape::new();
            let again = run(Some(&tape));
            let line = failure.last_lines(name, seed, &again, &tape);
            failure.go_on(name, seed, &line)
        }
    });
}

/// How a test failed on one seed.
struct RunFailure {
    words: String,
    /// The payload of the test's own panic.
    payload: Option<Box<dyn Any + Send>>,
    /// Where the blocking calls were made that the seed does not decide.
    unseen: Option<String>,
}

impl RunFailure {
    /// The sentence for a seed whose second run differed.
    fn differs(&self, again: &Result<(), RunFailure>) -> Option<String> {
        let what = match again {
            Err(again) if same_words(&again.words, &self.words) => return None,
            Err(again) => format!("failed in another way: {}", again.words),
            Ok(()) => "did not fail".to_string(),
        };
        let calls = self.unseen.as_ref().map_or(String::new(), |sites| {
            format!(
                ", or a blocking call that sleeps, computes for long or waits for the system \
                 ({sites})"
            )
        });
        Some(format!(
            "the test does not replay: run again with the same seed it {what}\n\
             something that the seed does not control decides: the order of a HashMap, the time \
             of the system, a static that is left from the first run, another thread{calls}"
        ))
    }

    /// The end of the message: whether the second run, `again`, failed in the same way,
    /// how to run the seed, and where the second run is recorded.
    fn last_lines(
        &self,
        name: &str,
        seed: u64,
        again: &Result<(), RunFailure>,
        tape: &Tape,
    ) -> String {
        let line = seeds::line(name, seed);
        let line = match self.differs(again) {
            Some(how) => format!("{how}\n{line}"),
            None => line,
        };
        let words = format!("{}\n{name} failed with seed {seed}\n{line}", self.words);
        match tape.write(&format!("{name}-{seed}"), &words) {
            Some(recorded) => format!("{line}\n{recorded}"),
            None => line,
        }
    }

    #[track_caller]
    fn go_on(self, name: &str, seed: u64, line: &str) -> ! {
        let Some(payload) = self.payload else {
            panic!("{}\n{line}", self.words);
        };
        // In the panic, not on standard error: the harness shows it with the failure of
        // this test, wherever the output of other tests goes.
        if !self.words.is_empty() {
            panic!("{}\n{name} failed with seed {seed}\n{line}", self.words);
        }
        // A payload without words is passed on unchanged, and does not name the
        // seed.
        say(
            Topic::Seldom,
            format_args!("{name} failed with seed {seed}\n{line}"),
        );
        flush(MOMENT);
        resume_unwind(payload)
    }
}

/// True if two runs of one seed failed alike. Addresses may differ from run to run.
pub(crate) fn same_words(one: &str, other: &str) -> bool {
    without_addresses(one) == without_addresses(other)
}

fn without_addresses(words: &str) -> String {
    let mut kept = String::with_capacity(words.len());
    for (at, part) in words.split("0x").enumerate() {
        let part = match at {
            0 => part,
            _ => part.trim_start_matches(|c: char| c.is_ascii_hexdigit()),
        };
        kept.push_str(part);
    }
    kept
}

impl TestOptions {
    /// Runs the test on one seed; twice, if both runs must be compared. The first run is
    /// recorded on the tape if there is one.
    fn run_once<F, B>(
        &self,
        name: &'static str,
        (seed, twice): (u64, bool),
        test: &F,
        watched: &GuardedRun,
        tape: Option<&Tape>,
    ) -> Result<(), RunFailure>
    where
        F: Fn() -> B,
        B: Future<Output: IntoOutcome<Value = ()>> + Send + 'static,
    {
        let first = self.run_seed(name, seed, test, watched, tape)?;
        if !twice {
            return Ok(());
        }
        let second = self.run_seed(name, seed, test, watched, None)?;
        if first == second {
            return Ok(());
        }
        let ((turns, _, time), (again, _, later)) = (first, second);
        Err(RunFailure {
            words: format!(
                "{name} does not replay on seed {seed}: one run took {turns} turns and {time:?} of \
                 virtual time, the next one {again} and {later:?}"
            ),
            payload: None,
            unseen: None,
        })
    }

    /// Runs the test on one seed, once; returns the trail that a second run must have
    /// in common with it.
    fn run_seed<F, B>(
        &self,
        name: &'static str,
        seed: u64,
        test: &F,
        watched: &GuardedRun,
        tape: Option<&Tape>,
    ) -> Result<(u64, u64, Duration), RunFailure>
    where
        F: Fn() -> B,
        B: Future<Output: IntoOutcome<Value = ()>> + Send + 'static,
    {
        // True if the test itself panics.
        let own = Cell::new(false);
        let unseen = Cell::new(None);
        let run = || {
            let unheard = Unheard::default();
            let collected = ContainedPanics::collect();
            let mut builder = Sim::builder(seed).explore().on_failure(unheard.hook());
            builder.io = self.rough.io(seed);
            if self.time_slips {
                builder = builder.time_slips();
            }
            if let Some(tape) = tape {
                builder = builder.sink(tape.sink());
            }
            let mut sim = builder.build();
            let _recorded = tape.map(Tape::until_dropped);
            let this = Some(WatchedRun::Seed(name, seed));
            watched.watch_recorded(sim.tree(), this, tape, || format!("{name}-{seed}"));
            unseen.set(Some(sim.unseen_calls()));
            match sim.outcome(test()) {
                Outcome::Completed(_) => {}
                Outcome::Failed(error) => {
                    own.set(true);
                    let error = error.resume();
                    own.set(false);
                    panic!("{name} failed with seed {seed}: {error}\n{error:?}");
                }
                Outcome::Cancelled { reason, .. } => {
                    panic!("{name} was cancelled with seed {seed}: {reason}");
                }
            }
            // Before the check for leftovers: a job that failed may be the
            // cause.
            self.check(name, &unheard);
            sim.assert_nothing_left();
            let trail = sim.trail();
            sim.finish();
            self.check(name, &unheard);
            self.check_contained(name, collected.panics());
            trail
        };
        catch_unwind(AssertUnwindSafe(run)).map_err(|payload| {
            let words = words_of(&*payload);
            let payload = own.get().then_some(payload);
            let unseen = unseen.take().and_then(|unseen| unseen.sites());
            RunFailure {
                words,
                payload,
                unseen,
            }
        })
    }
}

/// Runs a test on the native runtime with two workers and virtual time, ten times, or once in
/// real time: a check that no job and no timer is left and that every failure reached a handle, a
/// guard in real time. Seeds have no effect here.
///
/// Each run is recorded, since no second one repeats it. A run that fails or hangs leaves its
/// recording, as with [`run_test`].
///
/// # Panics
/// If the test fails.
#[cfg(feature = "runtime")]
pub fn run_native_test<F, B>(name: &'static str, options: TestOptions, test: F)
where
    F: Fn() -> B + Send + 'static,
    B: Future<Output: IntoOutcome<Value = ()>> + Send + 'static,
{
    guarded(name, move |watched| {
        let runs = if options.real_time { 1 } else { 10 };
        let run = |tape: Option<&Tape>| {
            let unheard = Unheard::default();
            let builder = kinfolk_runtime::Runtime::builder()
                .workers(2)
                .on_failure(Box::new(unheard.hook()));
            let builder = match options.real_time {
                true => builder,
                false => builder.clock(std::sync::Arc::new(crate::VirtualClock::new())),
            };
            let builder = match tape {
                Some(tape) => builder.sink(tape.sink()),
                None => builder,
            };
            let rt = builder
                .build()
                .unwrap_or_else(|error| panic!("{name}: no runtime: {error}"));
            let recorded = tape.map(Tape::until_dropped);
            watched.watch_recorded(rt.tree(), None, tape, || format!("{name}-native"));
            let task = rt.scope().task("test").spawn(until_clock_is_held(test()));
            let held = completed(name, rt.wait_for(task).and_then(|ended| ended));
            // The end is visible a moment before it is counted.
            while rt.counters().living() > 1 && rt.snapshot().len() <= 1 {
                std::thread::yield_now();
            }
            options.check(name, &unheard);
            nothing_left(name, rt.tree());
            drop(recorded);
            drop(held);
            drop(rt);
            options.check(name, &unheard);
        };
        (0..runs).for_each(|_| on_tape(name, "native", run));
    });
}

/// One run on real threads, which is recorded. If it panics, the message also names its
/// recording.
#[cfg(any(feature = "runtime", feature = "tokio"))]
pub(crate) fn on_tape(name: &str, host: &str, run: impl FnOnce(Option<&Tape>)) {
    let tape = Tape::of_threads();
    let Err(payload) = catch_unwind(AssertUnwindSafe(|| run(tape.as_ref()))) else {
        return;
    };
    let words = words_of(&*payload);
    let written = tape.and_then(|tape| {
        let file = format!("{name}-{host}");
        tape.write(&file, &format!("{words}\n{name} failed on {host}"))
    });
    match written {
        Some(line) if !words.is_empty() => panic!("{words}\n{line}"),
        Some(line) => {
            say(Topic::Seldom, format_args!("{name}: {line}"));
            flush(MOMENT);
            resume_unwind(payload)
        }
        None => resume_unwind(payload),
    }
}

/// What a panic has said; nothing if that is no text.
fn words_of(payload: &(dyn Any + Send)) -> String {
    match payload.downcast_ref::<&str>() {
        Some(words) => (*words).to_string(),
        None => payload
            .downcast_ref::<String>()
            .cloned()
            .unwrap_or_default(),
    }
}

/// Runs the body of a test as a job beside a clock that is held from the end of the body on:
/// what is left then would end before it is looked at.
#[cfg(any(feature = "runtime", feature = "tokio"))]
pub(crate) async fn until_clock_is_held<B>(body: B) -> Result<(Outcome<()>, HeldClock)>
where
    B: Future<Output: IntoOutcome<Value = ()>> + Send + 'static,
{
    let around = Scope::named("test").supervisor().run(async move |s| {
        let ended = s.task("main").spawn(body).outcome().await?;
        Ok((ended, hold_clock()))
    });
    around.await
}

/// Panics unless the body of a test has completed; returns the held clock.
#[cfg(any(feature = "runtime", feature = "tokio"))]
#[track_caller]
pub(crate) fn completed(name: &str, ended: Result<(Outcome<()>, HeldClock)>) -> HeldClock {
    match ended {
        Ok((Outcome::Completed(_), held)) => held,
        Ok((Outcome::Failed(error), _)) | Err(error) => {
            let error = error.resume();
            panic!("{name} failed: {error}\n{error:?}");
        }
        Ok((Outcome::Cancelled { reason, .. }, _)) => {
            panic!("{name} was cancelled: {reason}")
        }
    }
}

/// Panics if a job but the root is left, or a timer.
#[cfg(any(feature = "runtime", feature = "tokio"))]
#[track_caller]
pub(crate) fn nothing_left(name: &str, tree: &Tree) {
    let (living, timers) = (tree.counters().living(), tree.counters().timers_pending());
    assert!(
        living == 1 && timers == 0,
        "{name} ended with {} jobs and {timers} timers left:\n{}",
        living - 1,
        tree.snapshot()
    );
}
