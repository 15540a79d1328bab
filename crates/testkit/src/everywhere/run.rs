//! One run of a scenario, which is stopped at one moment or left alone.

use std::pin::Pin;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use kinfolk_core::host::{CollectGuard, ContainedPanics};
use kinfolk_core::{
    Error, ErrorKind, IntoOutcome, Job, OrCancel, Outcome, ReasonKind, Scope, Sink, Task,
    current_job, timeout,
};
use kinfolk_see::Sinks;

use super::probe::{Lifted, Probe};
use super::stop::{Stop, StopCase, StopMoment};
use super::{CancelEverywhere, SharedStoppedAt};
use crate::gate::Gate;
use crate::io::side::{self, TestKernel};
use crate::rewind::Tape;
use crate::sim::Sim;
use crate::unheard::{Injected, Unheard, contained_panics};

/// Turns that a scenario may take after it was stopped.
const MOST_TURNS: u64 = 200_000;

/// A deadline that does not pass by itself.
const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// The result of one run.
pub(super) struct Went {
    pub(super) points: u64,
    pub(super) turns: u64,
    /// At how many moments between two turns the scenario could have been stopped:
    /// after each turn, and after each move of the clock.
    pub(super) moments: u64,
    /// The scenario was stopped.
    pub(super) stopped: bool,
    /// How many turns there were between the stop and the end.
    pub(super) stopping: u64,
    pub(super) forced: u64,
    /// The scenario has begun an operation.
    pub(super) has_io: bool,
}

/// One run of a scenario.
pub(super) struct StoppedRun<T> {
    pub(super) sim: Sim,
    case: StopCase,
    probe: Arc<Probe>,
    /// Opening it makes the task beside the scenario fail.
    fuse: Gate,
    /// Opening it drops the scenario's future.
    trapdoor: Trapdoor,
    /// Returns none if the future was dropped.
    task: Option<Task<Option<T>>>,
    unheard: Unheard,
    /// The panics that were contained in this run.
    collected: CollectGuard,
    options: CancelEverywhere,
    /// Where the scenario was when it was stopped.
    place: SharedStoppedAt,
    /// The recorder of the run.
    tape: Option<Tape>,
}

/// A simulation whose points, forced drops and events `probe` sees, and whose failures
/// go to `unheard`.
fn watched_sim(
    seed: u64,
    rough: bool,
    probe: &Arc<Probe>,
    unheard: &Unheard,
    tape: Option<&Tape>,
) -> Sim {
    let (points, forced) = (probe.clone(), probe.clone());
    let lifted = Arc::new(Lifted(probe.clone()));
    let sink: Arc<dyn Sink> = match tape {
        Some(tape) => Sinks::of([lifted, tape.sink()]),
        None => lifted,
    };
    let mut builder = Sim::builder(seed)
        .explore()
        .on_point(move |job, site| points.point(job, site))
        .on_failure(unheard.hook())
        .on_forced(move |job| forced.forced(job))
        .sink(sink);
    if rough {
        builder.io = side::rough();
    }
    builder.build()
}

impl<T: Send + 'static> StoppedRun<T> {
    pub(super) fn new<F, B>(
        case: StopCase,
        seed: u64,
        scenario: &F,
        options: CancelEverywhere,
        place: SharedStoppedAt,
        tape: Option<&Tape>,
    ) -> StoppedRun<T>
    where
        F: Fn() -> B,
        B: Future<Output: IntoOutcome<Value = T>> + Send + 'static,
    {
        let collected = ContainedPanics::collect();
        let probe = Arc::new(Probe::default());
        if let StopMoment::Point(at) = case.at {
            probe.at.store(at, SeqCst);
        }
        let unheard = Unheard::default();
        let sim = watched_sim(seed, case.rough, &probe, &unheard, tape);
        let (fuse, trapdoor) = (Gate::new(), Trapdoor::default());
        let root = sim.root().task("scenario");
        let (scenario, aimed, lit) = (scenario(), probe.clone(), fuse.clone());
        let task = match case.stop {
            Stop::Cancel
            | Stop::Interrupt
            | Stop::DropTask
            | Stop::Shutdown
            | Stop::Twice { .. } => {
                let task = root.spawn(async move { scenario.await.into_result().map(Some) });
                probe.aim_at(Some(task.job()));
                task
            }
            Stop::Deadline => root.spawn(timeout(FAR, async move {
                aimed.aim_at(current_job());
                scenario.await.into_result().map(Some)
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
                    scenario.await.into_result().map(Some)
                });
                beside.await
            }),
            Stop::DropFuture => {
                let inner = async move { scenario.await.into_result() };
                let falls = Falls {
                    inner: Some(Box::pin(inner)),
                    trapdoor: trapdoor.clone(),
                };
                let task = root.spawn(falls);
                probe.aim_at(Some(task.job()));
                task
            }
        };
        StoppedRun {
            sim,
            case,
            probe,
            fuse,
            trapdoor,
            task: Some(task),
            unheard,
            collected,
            options,
            place,
            tape: tape.cloned(),
        }
    }
}

impl<T: Send + 'static> StoppedRun<T> {
    /// Runs the scenario to its end. Returns the result, and the run's kernel.
    pub(super) fn go(mut self) -> (Went, TestKernel) {
        let recorded = self.tape.as_ref().map(Tape::until_dropped);
        let (moments, stopped_after) = self.drive();
        let turns = self.sim.turns();
        self.judge();
        let StoppedRun {
            sim,
            case,
            probe,
            unheard,
            collected,
            options,
            ..
        } = self;
        // Dropped before the simulation.
        let _recorded = recorded;
        // A future that is dropped returns no outcome.
        let failures_allowed = options.failures_allowed || case.stop.drops() && !options.dropped;
        let heard = || {
            let complaint = match failures_allowed {
                true => unheard.panics(),
                false => unheard.complaint(),
            };
            if let Some(complaint) = complaint {
                panic!(
                    "the scenario left {complaint}\n\
                     take the outcome of that job, or use CancelEverywhere::allow_failures, which \
                     lets failures pass, but no panics"
                );
            }
            if let Some(complaint) = contained_panics(&collected.panics().take()) {
                panic!("{complaint}");
            }
        };
        // Before the check for leftovers: a job that failed may be the cause.
        heard();
        let shut_down = matches!(case.stop, Stop::Shutdown | Stop::Twice { .. });
        if !shut_down || stopped_after.is_none() {
            sim.assert_nothing_left();
        }
        let (counters, kernel) = (sim.counters(), sim.io.kernel());
        sim.finish();
        heard();
        let cut = probe.cut();
        if !cut.is_empty() && !options.cut_allowed {
            panic!(
                "clean-up did not finish:\n  {}\n\
                 bound it with a timeout, or use CancelEverywhere::allow_cut_cleanup",
                cut.join("\n  ")
            );
        }
        let went = Went {
            points: probe.points(),
            turns,
            moments,
            stopped: stopped_after.is_some(),
            stopping: stopped_after.map_or(0, |after| turns - after),
            forced: counters.jobs_force_dropped,
            has_io: counters.io_submitted > 0,
        };
        (went, kernel)
    }

    /// Drives the scenario until it has ended, and stops it on the way. Returns
    /// how many moments there were between two turns, and after how many turns
    /// the scenario was stopped, if it was.
    fn drive(&mut self) -> (u64, Option<u64>) {
        let StoppedRun {
            sim,
            case,
            probe,
            fuse,
            trapdoor,
            task,
            place,
            ..
        } = self;
        let job = task.as_ref().map(Task::job).expect("a task that runs");
        let root = sim.tree().root_job();
        let mut moment = 0;
        let mut stopped_after = None;
        sim.drive_until("the scenario has not ended", |sim| {
            moment += 1;
            let before_turn = case.at == StopMoment::Turn(moment);
            if probe.due.swap(false, SeqCst) || before_turn {
                stopped_after = Some(sim.turns());
                let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
                place.note(|full| describe(sim, probe, before_turn, full));
                drop(place);
                stop_now(case.stop, sim, probe, fuse, trapdoor, task);
            }
            if probe.holds.load(SeqCst) && has_taken_effect(case.stop, probe) {
                probe.holds.store(false, SeqCst);
            }
            if let Some(since) = stopped_after {
                let turns = sim.turns() - since;
                if case.stop == (Stop::Twice { later: turns }) && !job.is_ended() {
                    sim.tree().request_shutdown(ReasonKind::Shutdown);
                }
                assert!(
                    turns < MOST_TURNS,
                    "the scenario was told to stop and is still running after {turns} turns:\n{}",
                    sim.snapshot()
                );
            }
            let all = stopped_after.is_some() && case.stop == Stop::Shutdown;
            job.is_ended() && (!all || root.is_ended())
        });
        (moment, stopped_after)
    }

    /// The scenario must have ended as a stopped one may, or as one that was
    /// not stopped.
    fn judge(&mut self) {
        let Some(task) = self.task.take() else {
            // The failure goes to the failure hook.
            return;
        };
        let target = self.probe.target();
        match self.sim.outcome_of(task) {
            Outcome::Completed(_) => {}
            Outcome::Failed(error) => {
                let left_alone = self.case.at == StopMoment::Never;
                let own = own_failures(&error, target.as_ref());
                if let Some(panic) = own.iter().find(|e| e.kind() == ErrorKind::Panicked) {
                    panic!("the scenario panicked: {panic}");
                }
                assert!(!left_alone, "the scenario did not succeed: {error}");
                if let Some(own) = own.first()
                    && !self.options.failures_allowed
                {
                    panic!(
                        "the scenario was stopped and failed: {own}\n\
                         a scenario that is stopped returns the Cancelled it is told with, or a value; \
                         an error of its own must name that Cancelled as its source. \
                         If the failure is meant, use CancelEverywhere::allow_failures"
                    );
                }
            }
            Outcome::Cancelled { reason, .. } => {
                let left_alone = self.case.at == StopMoment::Never;
                assert!(!left_alone, "the scenario did not succeed: {reason}");
            }
        }
    }
}

/// The failures in `error` that were not injected: itself and those suppressed
/// in it.
fn own_failures(error: &Error, target: Option<&Job>) -> Vec<Error> {
    let mut own = Vec::new();
    let mut todo = vec![error.clone()];
    while let Some(error) = todo.pop() {
        let injected = error.downcast_ref::<Injected>().is_some()
            || error.kind() == ErrorKind::Cancelled
            || error.kind() == ErrorKind::TimedOut
                && target.is_some_and(|target| error.job() == Some(target.id()));
        // The later ones first, so that the first is taken out first.
        todo.extend(error.suppressed().iter().rev().cloned());
        if !injected {
            own.push(error);
        }
    }
    own
}

fn stop_now<T>(
    stop: Stop,
    sim: &Sim,
    probe: &Probe,
    fuse: &Gate,
    trapdoor: &Trapdoor,
    task: &mut Option<Task<T>>,
) {
    // None: the scenario has not begun, and cannot be stopped.
    let Some(job) = probe.target() else { return };
    match stop {
        Stop::Cancel | Stop::Twice { .. } => {
            job.cancel("cancel_everywhere");
        }
        // The scenario may have ended, or be cancelled by itself: then there is
        // nothing to stop.
        Stop::Deadline => {
            let _ = Scope::of_job(&job).reschedule(Some(sim.start() + sim.elapsed()));
        }
        Stop::Failure => fuse.open(),
        Stop::Interrupt => {
            job.interrupt("cancel_everywhere");
        }
        Stop::DropFuture => trapdoor.open(),
        Stop::DropTask => drop(task.take()),
        Stop::Shutdown => {
            sim.tree().request_shutdown(ReasonKind::Shutdown);
        }
    }
}

/// True if points need not wait any longer: the next one sees the stop.
fn has_taken_effect(stop: Stop, probe: &Probe) -> bool {
    match stop {
        Stop::Deadline | Stop::Failure => probe
            .target()
            .is_none_or(|job| job.cancel_requested() || job.is_ended()),
        _ => true,
    }
}

/// Where the scenario is: the place of the point (without it, the job that polls it), or
/// what its jobs wait for. With `full` although that reads all jobs.
fn describe(sim: &Sim, probe: &Probe, before_turn: bool, full: bool) -> Option<String> {
    let reached = probe.reached().filter(|_| !before_turn);
    if let Some((_, Some(site))) = reached {
        return Some(format!("at {}:{}", site.file(), site.line()));
    }
    if !full {
        return None;
    }
    let snapshot = sim.snapshot();
    let polled_by = reached.map(|(job, _)| job);
    if let Some(job) = polled_by.and_then(|id| snapshot.nodes().iter().find(|job| job.id == id)) {
        return Some(format!(
            "in {:?} of {}:{}",
            job.name,
            job.site.file(),
            job.site.line()
        ));
    }
    let waits = snapshot.nodes().iter().filter_map(|job| {
        let (kind, site, _) = job.waits_on?;
        let site = site?;
        Some(format!(
            "{} waits in {kind} at {}:{}",
            job.name,
            site.file(),
            site.line()
        ))
    });
    let waits: Vec<String> = waits.take(4).collect();
    Some(match waits.is_empty() {
        true => "while no job of it waits".to_string(),
        false => format!("while {}", waits.join(", ")),
    })
}

/// A switch that drops a future.
#[derive(Clone, Default)]
struct Trapdoor(Arc<Mutex<(bool, Option<Waker>)>>);

impl Trapdoor {
    fn open(&self) {
        let mut door = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        door.0 = true;
        let waker = door.1.take();
        drop(door);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn is_open(&self, waker: &Waker) -> bool {
        let mut door = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        door.1 = Some(waker.clone());
        door.0
    }
}

/// A scenario that is dropped when its trapdoor opens.
struct Falls<F> {
    inner: Option<Pin<Box<F>>>,
    trapdoor: Trapdoor,
}

impl<T, F: Future<Output = kinfolk_core::Result<T>>> Future for Falls<F> {
    type Output = kinfolk_core::Result<Option<T>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.trapdoor.is_open(cx.waker()) {
            self.inner = None;
            return Poll::Ready(Ok(None));
        }
        let inner = self.inner.as_mut().expect("a scenario that is not done");
        inner.as_mut().poll(cx).map(|ended| ended.map(Some))
    }
}
