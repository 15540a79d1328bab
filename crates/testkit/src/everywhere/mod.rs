//! A stop at every point and before every turn: a scenario is run again and
//! again, and each time it is stopped a little later.

mod probe;
mod run;
mod stop;

use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kinfolk_core::IntoOutcome;
use kinfolk_core::host::say::{Topic, say};

use self::run::{StoppedRun, Went};
use self::stop::{Stop, StopCase, StopMoment};
use crate::guard::{GuardedRun, WatchedRun, guarded};
use crate::io::side::TestKernel;
use crate::rewind::Tape;
use crate::run_test::same_words;
use crate::seeds;

/// Schedules on which each scenario is tried by default.
const SEEDS: u64 = 3;

/// At most so many points, and turns, at which a scenario is stopped; of more, an
/// even selection.
const MOST: u64 = 1000;

/// A tour that takes longer is announced.
const LONG: Duration = Duration::from_secs(10);

/// What [`cancel_everywhere`] went through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Everywhere {
    /// How many points the scenario passes if it is not stopped; the most of
    /// all schedules.
    pub points: u64,
    /// How many turns the scenario takes if it is not stopped; the most of all
    /// schedules.
    pub turns: u64,
    /// How often the scenario was run.
    pub runs: u64,
    /// How many futures were dropped because they waited in a foreign await,
    /// where they are not told.
    pub forced: u64,
}

/// Runs a scenario on the simulation, and then again and again, stopped a little
/// later each time: at its first point, its second and so on, and before its
/// first turn, its second and so on, while it waits for a timer or an operation.
///
/// It is stopped in each of these ways: its task is cancelled; a deadline around it
/// passes; a task beside it fails; its task is interrupted; its future is dropped
/// half-way, as by a `select!` that drops its losers; its `Task` is dropped; its
/// runtime is shut down. If it takes more than a turn to stop, it is also cancelled
/// and then stopped a second time in the middle of its clean-up.
///
/// After each run no job and no timer may be left and the counters must balance. A
/// scenario that was stopped is cancelled or completes: one that fails by itself
/// fails the test, and so does a failure of a job that no handle takes, one beside
/// the injected one ([`suppressed`](kinfolk_core::Error::suppressed)), and clean-up
/// that runs out of time.
///
/// A body whose future is dropped is not told and cannot clean up: after those runs
/// failures that no handle takes do not count, and `check` is not called, unless
/// [`CancelEverywhere::may_be_dropped`] says that the scenario allows for it.
///
/// The scenario is tried on three schedules, or as many as
/// [`CancelEverywhere::seeds`] or `KINFOLK_SEEDS` says: cancelled on each, and
/// stopped in each other way on some of them, in turn; with more than a thousand
/// points or turns on an even selection of them. With i/o, all runs are repeated
/// with faults that every program must cope with (`SimIo::rough`): short reads and
/// writes, operations that are late, cancels that come too late.
///
/// ```
/// # mod kinfolk { pub use kinfolk_core::*; pub mod testkit { pub use kinfolk_testkit::*; } }
/// # async fn transfer() -> kinfolk::Result<()> { Ok(()) }
/// kinfolk::testkit::cancel_everywhere(transfer);
/// ```
///
/// To check more after each run, see [`cancel_everywhere_then`]; for options, see
/// [`CancelEverywhere`].
///
/// # Cost
/// A run at the n-th point passes n points, so that twice the points take four
/// times as long. If it will take more than ten seconds, a line on standard error
/// says so beforehand.
///
/// # Panics
/// If a run panics, hangs, leaves a job, timer, operation or file behind, or does not
/// stop; if a failure of a detached or supervised job in it reaches no handle; and if the
/// scenario does not succeed when it is not stopped. The message names the file and line
/// of the point (in a release build, the job that polled it), or what the jobs waited for
/// and where, and has the line to copy that runs it alone: `KINFOLK_SEED` is the schedule,
/// `KINFOLK_POINT` the run. For the message the run is made once more and recorded, and
/// the message names the files.
#[track_caller]
pub fn cancel_everywhere<F, B>(scenario: F) -> Everywhere
where
    F: Fn() -> B + Send + 'static,
    B: Future<Output: IntoOutcome<Value: Send>> + Send + 'static,
{
    CancelEverywhere::new().run(scenario)
}

/// Like [`cancel_everywhere`], and calls `check` after each run, whether it was
/// stopped or not: the state that the scenario shares must be in order. Not
/// after its future was dropped, unless it [may
/// be](CancelEverywhere::may_be_dropped).
///
/// ```
/// # mod kinfolk { pub use kinfolk_core::*; pub mod testkit { pub use kinfolk_testkit::*; } }
/// use std::sync::{Arc, Mutex};
/// use kinfolk::checkpoint;
///
/// // A transfer that stops in the middle must put the money back.
/// let money = Arc::new(Mutex::new((100, 0)));
/// let seen = money.clone();
/// kinfolk::testkit::cancel_everywhere_then(
///     move || {
///         let money = money.clone();
///         async move {
///             money.lock().unwrap().0 -= 10;
///             let told = checkpoint().await;
///             let mut money = money.lock().unwrap();
///             match &told {
///                 Ok(()) => money.1 += 10,
///                 Err(_) => money.0 += 10,
///             }
///             told
///         }
///     },
///     move || {
///         let (a, b) = *seen.lock().unwrap();
///         assert_eq!(a + b, 100);
///     },
/// );
/// ```
///
/// # Panics
/// As [`cancel_everywhere`], and if `check` does.
#[track_caller]
pub fn cancel_everywhere_then<F, B>(scenario: F, check: impl FnMut() + Send + 'static) -> Everywhere
where
    F: Fn() -> B + Send + 'static,
    B: Future<Output: IntoOutcome<Value: Send>> + Send + 'static,
{
    CancelEverywhere::new().run_then(scenario, check)
}

/// [`cancel_everywhere`] with options.
///
/// ```
/// # mod kinfolk { pub use kinfolk_core::*; pub mod testkit { pub use kinfolk_testkit::*; } }
/// use kinfolk::testkit::CancelEverywhere;
///
/// // A job of the scenario may fail: that is for the failure hook of its runtime.
/// CancelEverywhere::new().allow_failures().run(|| {
///     kinfolk::Scope::build().supervisor().run(async |s| {
///         s.launch(async { Err::<(), _>(kinfolk::Error::msg("no such host")) });
///         Ok(())
///     })
/// });
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[must_use = "nothing is run until `run` is called"]
pub struct CancelEverywhere {
    failures_allowed: bool,
    cut_allowed: bool,
    dropped: bool,
    seeds: Option<u64>,
    most: Option<u64>,
}

impl CancelEverywhere {
    /// The options of [`cancel_everywhere`].
    pub fn new() -> CancelEverywhere {
        CancelEverywhere::default()
    }

    /// Failures of the scenario that come once it is stopped do not fail a run, and
    /// neither do those that reach the failure hook (of detached jobs, of children
    /// of a supervisor whose `Task` is gone). Its panics do.
    pub fn allow_failures(mut self) -> CancelEverywhere {
        self.failures_allowed = true;
        self
    }

    /// Clean-up that is cut short because its time is up
    /// ([`cleanup`](kinfolk_core::cleanup), [`Patience`](kinfolk_core::Patience))
    /// does not fail a run.
    pub fn allow_cut_cleanup(mut self) -> CancelEverywhere {
        self.cut_allowed = true;
        self
    }

    /// For code that its caller may drop half-way, in tokio's `select!` or
    /// behind [`or_cancel`](kinfolk_core::OrCancel::or_cancel): the check of
    /// [`run_then`](CancelEverywhere::run_then) must hold after that too, and
    /// every failure must reach a handle. Without this, a run whose future is
    /// dropped must only leave no job, timer, operation and open file behind: a
    /// body that is dropped is not told, and cannot clean up.
    pub fn may_be_dropped(mut self) -> CancelEverywhere {
        self.dropped = true;
        self
    }

    /// Tries the scenario on this many schedules, from seed 0 on.
    ///
    /// # Panics
    /// If it is zero: nothing would be tried.
    #[track_caller]
    pub fn seeds(mut self, seeds: u64) -> CancelEverywhere {
        assert!(seeds > 0, "CancelEverywhere::seeds(0) would try nothing");
        self.seeds = Some(seeds);
        self
    }

    /// Stops the scenario at no more than this many of its points, and before no
    /// more than this many of its turns: an even selection. The default is a
    /// thousand.
    ///
    /// # Panics
    /// If it is zero: nothing would be stopped.
    #[track_caller]
    pub fn most(mut self, most: u64) -> CancelEverywhere {
        assert!(most > 0, "CancelEverywhere::most(0) would stop nothing");
        self.most = Some(most);
        self
    }

    /// Runs the scenario; see [`cancel_everywhere`].
    ///
    /// # Panics
    /// As [`cancel_everywhere`].
    #[track_caller]
    pub fn run<F, B>(self, scenario: F) -> Everywhere
    where
        F: Fn() -> B + Send + 'static,
        B: Future<Output: IntoOutcome<Value: Send>> + Send + 'static,
    {
        self.run_then(scenario, || {})
    }

    /// Runs the scenario, and calls `check` after each run; see
    /// [`cancel_everywhere_then`]. With the feature `runtime`, `run_then_with_io` shows `check`
    /// the simulated disk too.
    ///
    /// # Panics
    /// As [`cancel_everywhere`], and if `check` does.
    #[track_caller]
    pub fn run_then<F, B>(self, scenario: F, check: impl FnMut() + Send + 'static) -> Everywhere
    where
        F: Fn() -> B + Send + 'static,
        B: Future<Output: IntoOutcome<Value: Send>> + Send + 'static,
    {
        let mut check = check;
        everywhere(self, scenario, move |_| check(), Location::caller())
    }
}

/// `check` gets the kernel of each run.
pub(crate) fn everywhere<F, B>(
    options: CancelEverywhere,
    scenario: F,
    check: impl FnMut(&TestKernel) + Send + 'static,
    site: &'static Location<'static>,
) -> Everywhere
where
    F: Fn() -> B + Send + 'static,
    B: Future<Output: IntoOutcome<Value: Send>> + Send + 'static,
{
    let many = options.seeds.or_else(seeds::how_many).unwrap_or(SEEDS);
    let seeds = seeds::picked().unwrap_or(0..many);
    let only = std::env::var_os("KINFOLK_POINT").map(|text| {
        text.to_str().and_then(StopCase::parse).unwrap_or_else(|| {
            panic!(
                "KINFOLK_POINT={} names no run: copy it from a message of cancel_everywhere, \
                 such as cancel@point:17 or drop-future@turn:3:rough",
                text.display()
            )
        })
    });
    let went = Arc::new(Mutex::new(Everywhere::default()));
    let answer = went.clone();
    let name = format!("cancel_everywhere at {}:{}", site.file(), site.line());
    let said = name.clone();
    guarded(&name, move |watched| {
        let mut tour = Tour {
            name: said,
            seeds: seeds.end - seeds.start,
            scenario,
            check,
            options,
            watched,
            went: Everywhere::default(),
            has_dropped: false,
            is_picked: only.is_some(),
        };
        if let Some(case) = only {
            for seed in seeds {
                let went = tour.run(case, seed);
                assert!(
                    went.stopped || case.at == StopMoment::Never,
                    "KINFOLK_POINT={} stops nothing: with seed {seed} the scenario has {} points \
                     and {} turns",
                    case.to_text(),
                    went.points,
                    went.moments
                );
            }
        } else {
            // The drops last: what they leave undone in the state that the runs
            // share is not for the check.
            for drops in [false, true] {
                for (number, seed) in seeds.clone().enumerate() {
                    let stops = stops_of(number as u64, tour.seeds);
                    stops
                        .filter(|stop| stop.drops() == drops)
                        .for_each(|stop| tour.all(stop, seed));
                }
            }
        }
        *went.lock().unwrap_or_else(PoisonError::into_inner) = tour.went;
    });
    let went = answer.lock().unwrap_or_else(PoisonError::into_inner);
    *went
}

/// All runs of one scenario.
struct Tour<F, C> {
    name: String,
    seeds: u64,
    scenario: F,
    check: C,
    options: CancelEverywhere,
    watched: GuardedRun,
    went: Everywhere,
    /// True after a run has dropped the scenario's future.
    has_dropped: bool,
    /// The environment picks the one run.
    is_picked: bool,
}

impl<F, B, C> Tour<F, C>
where
    F: Fn() -> B,
    B: Future<Output: IntoOutcome<Value: Send>> + Send + 'static,
    C: FnMut(&TestKernel),
{
    /// Stops the scenario in one way at every moment, with fair i/o and, if it does any,
    /// with rough.
    fn all(&mut self, stop: Stop, seed: u64) {
        let has_io = self.stopped(stop, seed, false);
        if has_io {
            self.stopped(stop, seed, true);
        }
    }

    /// Stops the scenario in one way at every moment; true if it does i/o.
    fn stopped(&mut self, stop: Stop, seed: u64, rough: bool) -> bool {
        let at = StopMoment::Never;
        let first = self.went.runs == 0;
        let began = Instant::now();
        let alone = self.run(StopCase { stop, at, rough }, seed);
        self.went.points = self.went.points.max(alone.points);
        self.went.turns = self.went.turns.max(alone.turns);
        let most = self.options.most.unwrap_or(MOST);
        if first {
            let runs = planned(&alone, most, self.seeds);
            if let Some(line) = announced(&alone, runs, began.elapsed(), LONG) {
                say(Topic::Seldom, format_args!("{}: {line}", self.name));
            }
        }
        // Other schedules and other ways to stop use other selections.
        let shift = seed.wrapping_mul(7).wrapping_add(stop.number());
        let points = evenly(alone.points, most, shift).map(StopMoment::Point);
        let turns = evenly(alone.moments, most, shift).map(StopMoment::Turn);
        for at in points.chain(turns) {
            let case = StopCase { stop, at, rough };
            let went = self.run(case, seed);
            if stop != Stop::Cancel {
                continue;
            }
            // In the middle of what it does to stop: at the first turn, half-way,
            // and at the last but one.
            let last = went.stopping.saturating_sub(1);
            let mut laters = vec![1, last / 2, last];
            laters.dedup();
            for later in laters
                .into_iter()
                .filter(|later| (1..=last).contains(later))
            {
                let stop = Stop::Twice { later };
                self.run(StopCase { stop, at, rough }, seed);
            }
        }
        alone.has_io
    }

    /// One run, and what must hold after it.
    fn run(&mut self, case: StopCase, seed: u64) -> Went {
        let place = SharedStoppedAt::default();
        let tape = self.is_picked.then(Tape::new);
        let went = match self.tried(case, seed, place.clone(), tape.as_ref()) {
            Ok(went) => went,
            Err(panic) => self.explain(case, seed, panic, &place),
        };
        self.has_dropped |= case.stop.drops();
        self.went.runs += 1;
        self.went.forced += went.forced;
        went
    }

    fn tried(
        &mut self,
        case: StopCase,
        seed: u64,
        place: SharedStoppedAt,
        tape: Option<&Tape>,
    ) -> std::thread::Result<Went> {
        catch_unwind(AssertUnwindSafe(|| {
            let run = StoppedRun::new(case, seed, &self.scenario, self.options, place, tape);
            let words = format!("{} ({})", case.in_words(), replay(case, seed));
            let (tree, this) = (run.sim.tree(), Some(WatchedRun::Point(words)));
            self.watched
                .watch_recorded(tree, this, tape, || self.recording(case, seed));
            let (went, kernel) = run.go();
            if !case.stop.drops() || self.options.dropped {
                (self.check)(&kernel);
            }
            went
        }))
    }

    /// The name of the recording of a run.
    fn recording(&self, case: StopCase, seed: u64) -> String {
        format!("{}-{seed}-{}", self.name, case.to_text())
    }

    /// A run has failed: says which it was, where it was stopped, and how to run it
    /// alone. For that it is run once more and recorded, and if it does not fail again that is
    /// said instead: something in it does not come from the seed.
    fn explain(
        &mut self,
        case: StopCase,
        seed: u64,
        panic: Box<dyn std::any::Any + Send>,
        place: &SharedStoppedAt,
    ) -> ! {
        let text = message_of(&*panic);
        let again_at = SharedStoppedAt::new(Mutex::new(StoppedAt::of_all_jobs()));
        let tape = Tape::new();
        let again = self.tried(case, seed, again_at.clone(), Some(&tape));
        // From the first run if it is known: state that the runs share may lead the
        // second run elsewhere.
        let place = [place, &again_at].into_iter().find_map(|place| {
            let place = place.lock().unwrap_or_else(PoisonError::into_inner);
            place.at.clone()
        });
        let place = place.map_or(String::new(), |place| format!(", {place}"));
        let when = case.in_words();
        let replay = match again {
            Err(again) if same_words(&message_of(&*again), &text) => replay(case, seed),
            Err(again) => format!(
                "the same run was tried again and failed in another way ({}): something in it does \
                 not come from the seed",
                message_of(&*again)
            ),
            Ok(_) => "the same run was tried again and did not fail: something in it does not \
                      come from the seed (the order of a HashMap, the clock of the system, \
                      what an earlier run has left in a static)"
                .to_string(),
        };
        let dropped = match self.has_dropped && !self.options.dropped {
            true => {
                "\nan earlier run has dropped the scenario's future half-way: if the runs share \
                 state, what it left there may be the cause; make that state inside the scenario"
            }
            false => "",
        };
        let words = format!("{when}{place} ({replay}): {text}{dropped}");
        let run = self.recording(case, seed);
        match tape.write(&run, &format!("{}: {words}", self.name)) {
            Some(recorded) => panic!("{words}\n{recorded}"),
            None => panic!("{words}"),
        }
    }
}

/// Where a run was stopped, once that is known.
#[derive(Default)]
struct StoppedAt {
    at: Option<String>,
    /// Described in full, although that reads all jobs.
    full: bool,
}

type SharedStoppedAt = Arc<Mutex<StoppedAt>>;

impl StoppedAt {
    fn of_all_jobs() -> StoppedAt {
        let (at, full) = (None, true);
        StoppedAt { at, full }
    }

    fn note(&mut self, describe: impl FnOnce(bool) -> Option<String>) {
        self.at = describe(self.full);
    }
}

/// The message of a panic, if it has one.
fn message_of(panic: &(dyn std::any::Any + Send)) -> String {
    match panic.downcast_ref::<&str>() {
        Some(text) => (*text).to_string(),
        None => (panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "a panic without a message".to_string()),
    }
}

/// How to repeat one run alone.
fn replay(case: StopCase, seed: u64) -> String {
    let point = case.to_text();
    format!("run it again with KINFOLK_SEED={seed} KINFOLK_POINT={point}")
}

/// How the scenario is stopped on the schedule of one seed, the `number`-th of so
/// many: by a cancel on each, and in each other way on at least one of them.
fn stops_of(number: u64, seeds: u64) -> impl Iterator<Item = Stop> {
    let others = Stop::ALONE.len() as u64 - 1;
    let shared = others.min(seeds);
    Stop::ALONE
        .into_iter()
        .enumerate()
        .filter_map(move |(way, stop)| {
            let on_this_one = (way as u64) % shared == number % shared;
            (stop == Stop::Cancel || on_this_one).then_some(stop)
        })
}

/// An even selection of `1..=all`, at most `most` of them; `shift` says which.
fn evenly(all: u64, most: u64, shift: u64) -> impl Iterator<Item = u64> {
    let step = all.div_ceil(most).max(1);
    (1 + shift % step..=all).step_by(usize::try_from(step).unwrap_or(usize::MAX))
}

/// How many runs there will be of a scenario with these counts.
fn planned(alone: &Went, most: u64, seeds: u64) -> u64 {
    let moments =
        evenly(alone.points, most, 0).count() + evenly(alone.moments, most, 0).count() + 1;
    let passes = if alone.has_io { 2 } else { 1 };
    let tours: usize = (0..seeds)
        .map(|number| stops_of(number, seeds).count())
        .sum();
    passes * tours as u64 * moments as u64
}

/// The line that announces many runs, of which the first took `one`.
fn announced(alone: &Went, runs: u64, one: Duration, long: Duration) -> Option<String> {
    // On average a run is stopped half-way.
    let about = one.checked_mul(u32::try_from(runs / 2).unwrap_or(u32::MAX))?;
    (about >= long).then(|| {
        format!(
            "{} points, {} turns, {runs} runs or more, about {} s; \
             CancelEverywhere::most and seeds take fewer",
            alone.points,
            alone.turns,
            about.as_secs()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn went(points: u64, moments: u64, has_io: bool) -> Went {
        Went {
            points,
            turns: moments,
            moments,
            stopped: false,
            stopping: 0,
            forced: 0,
            has_io,
        }
    }

    #[test]
    fn a_selection_is_even_and_no_longer_than_it_may_be() {
        assert_eq!(evenly(5, 10, 0).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
        assert_eq!(evenly(10, 4, 0).collect::<Vec<_>>(), [1, 4, 7, 10]);
        assert_eq!(evenly(0, 4, 0).count(), 0);
        for all in 1..200 {
            assert!(evenly(all, 7, all).count() <= 7);
        }
    }

    #[test]
    fn the_cost_is_told_only_if_it_is_long() {
        let alone = went(735, 700, true);
        let runs = planned(&alone, MOST, SEEDS);
        assert_eq!(runs, 2 * (3 + 6) * (735 + 700 + 1));
        assert_eq!(
            announced(&alone, runs, Duration::from_micros(10), LONG),
            None
        );
        let line = announced(&alone, runs, Duration::from_millis(1), LONG).unwrap();
        let (start, about) = ("735 points, 700 turns, 25848 runs", "about 12 s");
        assert!(line.starts_with(start) && line.contains(about), "{line}");
    }

    #[test]
    fn each_way_to_stop_is_tried_on_some_seed_and_a_cancel_on_all() {
        for seeds in 1..20 {
            let all: Vec<Vec<Stop>> = (0..seeds).map(|n| stops_of(n, seeds).collect()).collect();
            assert!(all.iter().all(|stops| stops.contains(&Stop::Cancel)));
            for stop in Stop::ALONE {
                let times = all.iter().filter(|stops| stops.contains(&stop)).count();
                assert!(times >= (seeds as usize / 6).max(1), "{seeds}: {stop:?}");
            }
        }
    }
}
