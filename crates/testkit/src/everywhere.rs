//! A cancel at every point: a scenario is run again and again, and each time
//! it is stopped one point later.

use std::fmt;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kinfolk_core::{
    Error, IntoOutcome, Job, JobId, OrCancel, Outcome, PointHeld, Scope, current_job, timeout,
};

use crate::gate::Gate;
use crate::guard::guarded;
use crate::io::side;
use crate::seeds;
use crate::sim::Sim;
use crate::unheard::{Injected, Unheard};

/// Schedules on which each scenario is tried, unless `KINFOLK_SEED` picks one.
const SEEDS: u64 = 3;

/// Points at which a scenario is stopped; of more, an even selection.
const MOST_POINTS: u64 = 1000;

/// Turns a scenario may take once it was stopped.
const MOST_TURNS: u64 = 200_000;

/// Points in a row until one yields, as a turn's budget would have it.
const FAIR: u64 = 128;

/// A deadline that does not come by itself.
const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// How a scenario is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// Its task is cancelled.
    Cancel,
    /// A timeout around it fires.
    Deadline,
    /// A child task beside it fails.
    Failure,
}

impl Stop {
    const ALL: [Stop; 3] = [Stop::Cancel, Stop::Deadline, Stop::Failure];
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stop::Cancel => "a cancel",
            Stop::Deadline => "a deadline",
            Stop::Failure => "a failure beside it",
        })
    }
}

/// One way through a scenario.
#[derive(Clone, Copy)]
struct Case {
    stop: Stop,
    seed: u64,
    /// What every program must bear goes wrong with its i/o.
    rough: bool,
}

/// What one run has come to.
struct Went {
    points: u64,
    forced: u64,
    /// It has begun an operation.
    has_io: bool,
}

/// What [`cancel_everywhere`] went through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Everywhere {
    /// How many points the scenario passes if nothing stops it; the most of
    /// all schedules.
    pub points: u64,
    /// How often it was run.
    pub runs: u64,
    /// How many futures did not hear that they were to stop and were dropped:
    /// they waited in a foreign await.
    pub forced: u64,
}

/// Runs a scenario on the simulation, and then again with a cancel at its first
/// point, at its second, and so on; and the same with a deadline that passes
/// there and with a failure of a task beside it. After each run no job and no
/// timer may be left, the counters must balance, and no job may have failed
/// without a handle that takes the failure. It is tried on a few schedules; with
/// more than a thousand points on an even selection of them.
///
/// With i/o, all of it is done again with what every program must bear
/// (`SimIo::rough`): short reads and writes, operations that are late, cancels that
/// come too late.
///
/// ```
/// # mod kinfolk { pub use {kinfolk_core::*, kinfolk_testkit as testkit}; }
/// # async fn transfer() -> kinfolk::Result<()> { Ok(()) }
/// kinfolk::testkit::cancel_everywhere(transfer);
/// ```
///
/// To check more after each run, see [`cancel_everywhere_then`]; for options, see
/// [`CancelEverywhere`].
///
/// # Panics
/// If a run panics, hangs, leaves something behind, or does not stop; if a
/// detached or supervised job of it fails unheard; and if the scenario does not
/// succeed when it is left alone. The message says which point it was;
/// `KINFOLK_SEED` runs that schedule alone.
#[track_caller]
pub fn cancel_everywhere<F, B>(scenario: F) -> Everywhere
where
    F: Fn() -> B + Send + 'static,
    B: Future<Output: IntoOutcome<Value: Send>> + Send + 'static,
{
    CancelEverywhere::new().run(scenario)
}

/// As [`cancel_everywhere`], and calls `check` after each run, whether it was
/// stopped or not: what the scenario holds on to must be in order.
///
/// ```
/// # mod kinfolk { pub use {kinfolk_core::*, kinfolk_testkit as testkit}; }
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
/// # mod kinfolk { pub use {kinfolk_core::*, kinfolk_testkit as testkit}; }
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
}

impl CancelEverywhere {
    /// As [`cancel_everywhere`] runs it.
    pub fn new() -> CancelEverywhere {
        CancelEverywhere::default()
    }

    /// Failures that reach the failure hook (of detached jobs, of children of a
    /// supervisor whose `Task` is gone) do not fail a run.
    pub fn allow_failures(mut self) -> CancelEverywhere {
        self.failures_allowed = true;
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
    /// [`cancel_everywhere_then`].
    ///
    /// # Panics
    /// As [`cancel_everywhere`], and if `check` does.
    #[track_caller]
    pub fn run_then<F, B>(self, scenario: F, check: impl FnMut() + Send + 'static) -> Everywhere
    where
        F: Fn() -> B + Send + 'static,
        B: Future<Output: IntoOutcome<Value: Send>> + Send + 'static,
    {
        everywhere(self, scenario, check, Location::caller())
    }
}

fn everywhere<F, B>(
    options: CancelEverywhere,
    scenario: F,
    check: impl FnMut() + Send + 'static,
    site: &'static Location<'static>,
) -> Everywhere
where
    F: Fn() -> B + Send + 'static,
    B: Future<Output: IntoOutcome<Value: Send>> + Send + 'static,
{
    let seeds = seeds::picked().unwrap_or(0..SEEDS);
    let went = Arc::new(Mutex::new(Everywhere::default()));
    let answer = went.clone();
    let name = format!("cancel_everywhere at {}:{}", site.file(), site.line());
    guarded(&name, move |watched| {
        let mut check = check;
        for (seed, stop) in seeds.flat_map(|seed| Stop::ALL.map(|stop| (seed, stop))) {
            let mut went = went.lock().unwrap_or_else(PoisonError::into_inner);
            let mut run = |case: Case, at: u64| {
                let run = Run::new(case, at, &scenario, options);
                watched.watch(run.sim.tree());
                let done = explained(case, at, || {
                    let done = run.go();
                    check();
                    done
                });
                went.runs += 1;
                went.forced += done.forced;
                went.points = went.points.max(match at {
                    u64::MAX => done.points,
                    _ => 0,
                });
                done
            };
            for rough in [false, true] {
                let case = Case { stop, seed, rough };
                let alone = run(case, u64::MAX);
                let step = alone.points.div_ceil(MOST_POINTS).max(1);
                let mut at = 1;
                while at <= alone.points {
                    run(case, at);
                    at += step;
                }
                if !alone.has_io {
                    break;
                }
            }
        }
    });
    let went = answer.lock().unwrap_or_else(PoisonError::into_inner);
    *went
}

/// Says of a panic during which run it happened.
fn explained<R>(case: Case, at: u64, run: impl FnOnce() -> R) -> R {
    let Case { stop, seed, rough } = case;
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = match panic.downcast_ref::<&str>() {
            Some(text) => (*text).to_string(),
            None => match panic.downcast_ref::<String>() {
                Some(text) => text.clone(),
                None => resume_unwind(panic),
            },
        };
        let when = match at {
            u64::MAX => "with nothing to stop it".to_string(),
            at => format!("with {stop} at point {at}"),
        };
        let weather = if rough { ", in rough weather" } else { "" };
        panic!("{when}{weather} (run it again with KINFOLK_SEED={seed}): {text}")
    })
}

/// What the points of one run are told.
#[derive(Default)]
struct Probe {
    passed: AtomicU64,
    at: AtomicU64,
    /// The point was reached, and the scenario is to be stopped.
    due: AtomicBool,
    /// Every point waits until it is stopped.
    holds: AtomicBool,
    /// Whose points do not count.
    spared: Mutex<Option<JobId>>,
    /// What is stopped: the job of the scenario.
    target: Mutex<Option<Job>>,
}

impl Probe {
    fn target(&self) -> Option<Job> {
        let target = self.target.lock().unwrap_or_else(PoisonError::into_inner);
        target.clone()
    }

    fn aim_at(&self, job: Option<Job>) {
        *self.target.lock().unwrap_or_else(PoisonError::into_inner) = job;
    }

    fn spare(&self, job: JobId) {
        *self.spared.lock().unwrap_or_else(PoisonError::into_inner) = Some(job);
    }

    fn point(&self, job: JobId) -> PointHeld {
        let spared = *self.spared.lock().unwrap_or_else(PoisonError::into_inner);
        if spared == Some(job) {
            return PointHeld::No;
        }
        if self.holds.load(SeqCst) {
            return PointHeld::Yes;
        }
        let passed = self.passed.fetch_add(1, SeqCst) + 1;
        if passed == self.at.load(SeqCst) {
            self.due.store(true, SeqCst);
            self.holds.store(true, SeqCst);
            return PointHeld::Yes;
        }
        match passed.is_multiple_of(FAIR) {
            true => PointHeld::Yes,
            false => PointHeld::No,
        }
    }
}

/// One run of a scenario.
struct Run<T> {
    sim: Sim,
    stop: Stop,
    probe: Arc<Probe>,
    /// Opened, it makes the task beside the scenario fail.
    fuse: Gate,
    task: kinfolk_core::Task<T>,
    left_alone: bool,
    unheard: Unheard,
    failures_allowed: bool,
}

impl<T: Send + 'static> Run<T> {
    fn new<F, B>(case: Case, at: u64, scenario: &F, options: CancelEverywhere) -> Run<T>
    where
        F: Fn() -> B,
        B: Future<Output: IntoOutcome<Value = T>> + Send + 'static,
    {
        let Case { stop, seed, rough } = case;
        let probe = Arc::new(Probe::default());
        probe.at.store(at, SeqCst);
        let hook = probe.clone();
        let unheard = Unheard::default();
        let mut builder = Sim::builder(seed)
            .on_point(move |job| hook.point(job))
            .on_failure(unheard.hook())
            .on_forced(|_| {});
        if rough {
            builder.io = side::rough();
        }
        let sim = builder.build();
        let fuse = Gate::new();
        let root = sim.root().task("scenario");
        let (scenario, aimed, lit) = (scenario(), probe.clone(), fuse.clone());
        let task = match stop {
            Stop::Cancel => {
                let task = root.spawn(async move { scenario.await.into_result() });
                probe.aim_at(Some(task.job()));
                task
            }
            Stop::Deadline => root.spawn(timeout(FAR, async move {
                aimed.aim_at(current_job());
                scenario.await.into_result()
            })),
            Stop::Failure => root.spawn(async move {
                let beside = Scope::named("scenario and another").run(async move |s| {
                    let fails = s.task("fails").spawn_service(async move {
                        lit.wait().or_cancel().await?;
                        Err::<(), Error>(Error::from_boxed(Box::new(Injected)))
                    });
                    aimed.spare(fails.id());
                    aimed.aim_at(Some(s.job()));
                    drop(fails.into_job());
                    scenario.await.into_result()
                });
                beside.await
            }),
        };
        Run {
            sim,
            stop,
            probe,
            fuse,
            task,
            left_alone: at == u64::MAX,
            unheard,
            failures_allowed: options.failures_allowed,
        }
    }

    /// Runs it to its end.
    fn go(mut self) -> Went {
        let job = self.task.job();
        let (probe, fuse, stop) = (&self.probe, &self.fuse, self.stop);
        let mut stopped_at = None;
        self.sim.drive_until("the scenario has not ended", |sim| {
            if probe.due.swap(false, SeqCst) {
                stopped_at = Some(sim.turns());
                stop_now(stop, sim, probe, fuse);
            }
            if probe.holds.load(SeqCst)
                && probe
                    .target()
                    .is_none_or(|job| job.cancel_requested() || job.is_ended())
            {
                probe.holds.store(false, SeqCst);
            }
            if let Some(since) = stopped_at {
                let turns = sim.turns() - since;
                assert!(
                    turns < MOST_TURNS,
                    "it was told to stop and goes on, for {turns} turns so far:\n{}",
                    sim.snapshot()
                );
            }
            job.is_ended()
        });
        match self.sim.outcome_of(self.task) {
            Outcome::Failed(error) if error.kind() == kinfolk_core::ErrorKind::Panicked => {
                panic!("it panicked: {error}")
            }
            Outcome::Completed(_) => {}
            other if self.left_alone => panic!("it did not succeed: {}", in_words(&other)),
            _ => {}
        }
        let (unheard, allowed) = (&self.unheard, self.failures_allowed);
        let heard = || {
            if let Some(complaint) = unheard.complaint()
                && !allowed
            {
                panic!(
                    "it left {complaint}\n\
                     take the outcome of that job, or use CancelEverywhere::allow_failures"
                );
            }
        };
        // Before what is left: a job that failed may be why.
        heard();
        self.sim.assert_nothing_left();
        let counters = self.sim.counters();
        self.sim.finish();
        heard();
        Went {
            points: self.probe.passed.load(SeqCst),
            forced: counters.jobs_force_dropped,
            has_io: counters.io_submitted > 0,
        }
    }
}

fn in_words<T>(outcome: &Outcome<T>) -> String {
    match outcome {
        Outcome::Completed(_) => "it completed".into(),
        Outcome::Failed(error) => error.to_string(),
        Outcome::Cancelled { reason, .. } => reason.to_string(),
    }
}

fn stop_now(stop: Stop, sim: &Sim, probe: &Probe, fuse: &Gate) {
    let Some(job) = probe.target() else { return };
    match stop {
        Stop::Cancel => {
            job.cancel("cancel_everywhere");
        }
        // It may have ended, or be cancelled by itself: then nothing is left to
        // stop.
        Stop::Deadline => {
            let _ = Scope::of_job(&job).reschedule(Some(sim.start() + sim.elapsed()));
        }
        Stop::Failure => fuse.open(),
    }
}
