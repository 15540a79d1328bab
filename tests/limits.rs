//! Limits and bad company: more children than a job may have, a host that is
//! gone, two runtimes at once, sinks and hooks that panic, shutdown. These
//! need a simulation of their own.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use kinfolk_core::host::{Host, TimerKey, TimerQueue, Turn, TurnRow};
use kinfolk_core::{
    Cancelled, Error, ErrorKind, Event, JobState, Outcome, ReasonKind, RingSink, Scope, Sink, Task,
    Tree, TreeOptions, checkpoint, cleanup, detach, ignore_cancellation, launch, park, scope,
    shield, sleep, spawn, yield_now,
};
use kinfolk_testkit::{Gate, Log, Sim, SimBuilder, Tally};

const MS: Duration = Duration::from_millis(1);

/// How many seeds each of these runs on.
const SEEDS: u64 = 50;

/// Panics without a word on standard error.
fn raise<T>(words: &'static str) -> T {
    std::panic::resume_unwind(Box::new(words))
}

/// Polls once, outside any job.
fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// The outcome of a task that has ended.
fn outcome<T>(task: Task<T>) -> Outcome<T> {
    match poll_once(&mut task.outcome()) {
        Poll::Ready(Ok(outcome)) => outcome,
        Poll::Ready(Err(told)) => panic!("nobody is cancelled here: {told}"),
        Poll::Pending => panic!("it has not ended"),
    }
}

/// A simulation and the failures that were not taken.
fn with_failures(builder: SimBuilder) -> (Sim, Arc<Mutex<Vec<Error>>>) {
    let failures = Arc::new(Mutex::new(Vec::new()));
    let hook = failures.clone();
    let sim = builder
        .on_failure(move |error| hook.lock().unwrap().push(error.clone()))
        .build();
    (sim, failures)
}

// --- too many roots ---

/// As many as one likes, one after another: one that is over leaves its place
/// and all it held.
#[test]
fn a_root_that_has_ended_makes_room_for_another() {
    let sink = Arc::new(RingSink::new(10));
    for seed in 0..5000 {
        let mut sim = Sim::builder(seed).sink(sink.clone()).build();
        sim.run(async {}).unwrap();
        sim.finish();
        assert_eq!(Arc::strong_count(&sink), 1);
    }
}

/// Also if a job watches a job whose failure has been taken.
#[test]
fn an_observer_keeps_no_tree() {
    let sink = Arc::new(RingSink::new(10));
    let mut sim = Sim::builder(0).sink(sink.clone()).build();
    let task = sim
        .root()
        .spawn(async { Err::<(), _>(Error::msg("broken")) });
    let job = task.job();
    sim.settle();
    assert!(outcome(task).is_failed());
    sim.finish();
    assert_eq!(Arc::strong_count(&sink), 1);
    assert!(job.is_ended());
}

// --- too many children ---

/// T22: a job takes so many children and no more; the error says what to do,
/// and there is room again when one has ended.
#[test]
fn src_t22_too_many_children_are_refused() {
    for seed in 0..SEEDS {
        let (mut sim, failures) = with_failures(Sim::builder(seed).most_children(3));
        let counters = sim.tree().clone();
        let tally = Tally::new();
        sim.run(async move {
            let stopped = scope(async |s| {
                let gate = Gate::new();
                for n in 0..3 {
                    let gate = gate.clone();
                    s.launch(async move {
                        gate.wait().await;
                        if n > 0 {
                            park().await.map(|_| ())
                        } else {
                            Ok(())
                        }
                    });
                }
                let created = counters.counters().jobs_created;
                let refused = s.try_spawn(tally.count(async { 1 })).unwrap_err();
                assert!(refused.is_full());
                assert!(!refused.is_ended() && !refused.is_cancelled());
                assert!(
                    refused
                        .to_string()
                        .contains("as many children as one job may have")
                );
                assert_eq!(tally.drops(), 0);

                let task = s.spawn(refused.future);
                assert_eq!((tally.polls(), tally.drops()), (0, 1));
                match task.outcome().await? {
                    Outcome::Failed(error) => {
                        assert!(error.to_string().contains("wait for some to end"));
                    }
                    other => panic!("{other:?}"),
                }
                s.launch(tally.count(async {}));
                assert_eq!((tally.polls(), tally.drops()), (0, 2));
                assert_eq!(counters.counters().jobs_refused, 3);
                assert_eq!(counters.counters().jobs_created, created);

                // The parent is not harmed, and scopes are not refused.
                checkpoint().await?;
                assert_eq!(
                    scope(async |inner| inner.spawn(async { 2 }).await).await?,
                    2
                );

                gate.open();
                sleep(MS).await?;
                let again = s.spawn(park());
                assert!(s.try_spawn(async {}).unwrap_err().is_full());
                s.cancel("enough");
                drop(again);
                checkpoint().await?;
                Ok(())
            })
            .await;
            assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Stopped);
        })
        .unwrap();
        let failures = failures.lock().unwrap();
        assert_eq!(failures.len(), 1, "the launched one: {failures:?}");
        sim.assert_nothing_left();
        sim.finish();
    }
}

// --- a host that is gone ---

/// shutdown-1: a handle that outlives its runtime has an outcome, Cancelled,
/// wherever its task was.
#[test]
fn shutdown_1_a_handle_outlives_its_runtime() {
    for seed in 0..SEEDS {
        let mut sim = Sim::seeded(seed);
        let tree = sim.tree().clone();
        let tally = Tally::new();
        let root = sim.root();
        let gate = Gate::new();
        let mut tasks = vec![
            root.task("parked").spawn(tally.count(async {
                park().await?;
                Ok::<_, Error>(())
            })),
            root.task("sleeping").spawn(tally.count(async {
                sleep(3_600_000 * MS).await?;
                Ok::<_, Error>(())
            })),
            root.task("foreign").spawn(tally.count({
                let gate = gate.clone();
                async move {
                    gate.wait().await;
                    Ok::<_, Error>(())
                }
            })),
            root.task("shielded").spawn(tally.count({
                let gate = gate.clone();
                async move {
                    shield(gate.wait()).await?;
                    Ok::<_, Error>(())
                }
            })),
            root.task("guarded").spawn(tally.count(async {
                let _guard = ignore_cancellation().await?;
                sleep(3_600_000 * MS).await?;
                Ok::<_, Error>(())
            })),
            root.task("cleaning").spawn(tally.count(async {
                let _ = park().await;
                cleanup(sleep(3_600_000 * MS)).await?;
                Ok::<_, Error>(())
            })),
            root.task("deaf").spawn(tally.count(deaf())),
            root.task("parent").spawn(async {
                launch(park());
                Ok::<_, Error>(())
            }),
            root.task("lazy")
                .spawn_lazy(tally.count(async { Ok::<_, Error>(()) })),
        ];
        for _ in 0..200 {
            sim.step();
        }
        tasks.push(
            root.task("unpolled")
                .spawn(tally.count(async { Ok::<_, Error>(()) })),
        );
        assert_eq!(tally.drops(), 0);
        let jobs: Vec<_> = tasks.iter().map(Task::job).collect();
        drop(sim);
        assert_eq!(
            tally.drops(),
            tasks.len() - 1,
            "seed {seed}: all but the parent"
        );
        for (task, job) in tasks.into_iter().zip(jobs) {
            let name = job.name();
            let ended = outcome(task);
            assert!(ended.is_cancelled(), "seed {seed}: {name}: {ended:?}");
            assert_eq!(job.state(), JobState::Cancelled, "{name}");
            let reason = job.reason().unwrap();
            assert_eq!(reason.root_cause().kind(), ReasonKind::Shutdown, "{name}");
        }
        let counters = tree.counters();
        assert_eq!(counters.living(), 0, "seed {seed}: {counters}");
        assert_eq!(counters.waiters_pending(), 0, "{counters}");
        assert_eq!(counters.timers_pending(), 0, "{counters}");

        // Nothing can be had from it any more, and nothing hangs.
        let late = root.spawn(async { 1 });
        assert!(matches!(
            outcome(late),
            Outcome::Cancelled { reason, .. } if reason.kind() == ReasonKind::ScopeEnded
        ));
        assert!(root.lease().is_none());
        assert!(tree.snapshot().is_empty());
        gate.open();
    }
}

/// shutdown-1: a service that is dropped by force ends Cancelled: it was not
/// done.
#[test]
fn shutdown_1_a_service_dropped_by_force_ends_cancelled() {
    for seed in 0..SEEDS {
        let mut sim = Sim::seeded(seed);
        let tree = sim.tree().clone();
        // An ordinary task that does not end, so that the service goes on.
        let deaf = sim.root().spawn(deaf());
        let service = sim.root().spawn_service(park());
        for _ in 0..20 {
            sim.step();
        }
        let job = service.job();
        drop(sim);
        assert_eq!(job.state(), JobState::Cancelled, "seed {seed}");
        assert!(outcome(service).is_cancelled());
        assert!(outcome(deaf).is_cancelled());
        assert_eq!(tree.counters().jobs_completed, 0);
        assert_eq!(tree.counters().living(), 0);
    }
}

/// shutdown-1: a task spawned inside a shield that is dropped by force ends
/// Cancelled too.
#[test]
fn shutdown_1_a_shielded_child_dropped_by_force_ends_cancelled() {
    for seed in 0..SEEDS {
        let mut sim = Sim::seeded(seed);
        let tree = sim.tree().clone();
        let kept = Arc::new(Mutex::new(None));
        let place = kept.clone();
        let outer = sim.root().spawn(async move {
            shield(async move {
                let child = spawn(async {
                    park().await?;
                    Ok::<_, Error>(())
                });
                *place.lock().unwrap() = Some(child);
                park().await?;
                Ok::<_, Error>(())
            })
            .await
        });
        sim.settle();
        let child = kept.lock().unwrap().take().unwrap();
        let job = child.job();
        drop(sim);
        assert_eq!(job.state(), JobState::Cancelled, "seed {seed}");
        assert!(outcome(child).is_cancelled());
        assert!(outcome(outer).is_cancelled());
        assert_eq!(tree.counters().jobs_completed, 0);
        assert_eq!(tree.counters().living(), 0);
    }
}

/// Swallows every Cancelled.
async fn deaf() -> Result<(), Error> {
    loop {
        let _ = yield_now().await;
    }
}

/// A host that drops every turn it is given.
struct Nowhere(Mutex<TimerQueue>);

impl Host for Nowhere {
    fn run_blocking(&self, call: kinfolk_core::host::BlockingCall) {
        drop(call);
    }

    fn start(&self, turn: Turn) {
        drop(turn);
    }

    fn schedule(&self, ready: TurnRow) {
        drop(ready);
    }

    fn now(&self) -> Instant {
        Instant::now()
    }

    fn set_timer(&self, at: Instant, waker: Waker) -> TimerKey {
        self.0.lock().unwrap().insert(at, waker)
    }

    fn clear_timer(&self, key: TimerKey) -> Option<Waker> {
        self.0.lock().unwrap().remove(key)
    }
}

/// outcome-9: a job whose host dropped it ends Cancelled, for that reason.
#[test]
fn outcome_9_a_host_that_drops_its_turns() {
    let tree = Tree::new(Box::new(Nowhere(Mutex::default())), TreeOptions::default());
    let tally = Tally::new();
    let task = tree.root_scope().spawn(tally.count(async { 1 }));
    assert_eq!((tally.polls(), tally.drops()), (0, 1));
    match outcome(task) {
        Outcome::Cancelled { reason, late: None } => {
            assert_eq!(reason.kind(), ReasonKind::HostGone);
        }
        other => panic!("{other:?}"),
    }
    tree.request_shutdown(ReasonKind::Shutdown);
    assert!(tree.root_job().is_ended());
    assert_eq!(tree.counters().living(), 0);
}

/// A host that is cut off one day: what it is given from then on it drops.
struct CutOff(Arc<Line>);

#[derive(Default)]
struct Line {
    turns: Mutex<Vec<Turn>>,
    cut: AtomicBool,
    host_is_gone: AtomicBool,
}

impl Line {
    fn run(&self) {
        while let Some(turn) = { self.turns.lock().unwrap().pop() } {
            self.turns.lock().unwrap().extend(turn.run());
        }
    }
}

impl Drop for CutOff {
    fn drop(&mut self) {
        self.0.host_is_gone.store(true, SeqCst);
    }
}

impl Host for CutOff {
    fn run_blocking(&self, call: kinfolk_core::host::BlockingCall) {
        drop(call);
    }

    fn start(&self, turn: Turn) {
        let line = self.0.clone();
        if line.cut.load(SeqCst) {
            drop(turn);
            assert!(!line.host_is_gone.load(SeqCst), "in a call of its own");
        } else {
            line.turns.lock().unwrap().push(turn);
        }
    }

    fn schedule(&self, ready: TurnRow) {
        for turn in ready {
            self.start(turn);
        }
    }

    fn now(&self) -> Instant {
        Instant::now()
    }

    fn set_timer(&self, at: Instant, waker: Waker) -> TimerKey {
        TimerQueue::new().insert(at, waker)
    }

    fn clear_timer(&self, _: TimerKey) -> Option<Waker> {
        None
    }
}

/// outcome-9: the last job may end inside a call of the host, by its turn
/// being dropped there; the tree and the host in it live until the call is
/// over, though nobody else holds them.
#[test]
fn outcome_9_the_host_outlives_the_call_in_which_the_last_job_ends() {
    let line = Arc::new(Line::default());
    let tree = Tree::new(Box::new(CutOff(line.clone())), TreeOptions::default());
    let waker = Arc::new(Mutex::new(None::<Waker>));
    let kept = waker.clone();
    let tally = Tally::new();
    tree.root_scope().launch(tally.count(async move {
        std::future::poll_fn(|cx| {
            *kept.lock().unwrap() = Some(cx.waker().clone());
            Poll::<()>::Pending
        })
        .await;
    }));
    line.run();
    tree.request_shutdown(ReasonKind::Shutdown);
    line.run();
    drop(tree);
    assert!(!line.host_is_gone.load(SeqCst), "a job is left");
    line.cut.store(true, SeqCst);
    let waker = waker.lock().unwrap().take().unwrap();
    waker.wake();
    assert_eq!(tally.drops(), 1);
    assert!(line.host_is_gone.load(SeqCst));
}

// --- two runtimes ---

/// handle-2: a task of another runtime can be awaited and joined.
#[test]
fn handle_2_awaiting_a_task_of_another_runtime() {
    for seed in 0..SEEDS {
        let (mut here, mut there) = (Sim::seeded(seed), Sim::seeded(seed + 1));
        let target = there.root().spawn(async {
            sleep(10 * MS).await?;
            Ok::<_, Error>(5)
        });
        let watched = target.job();
        let joiner = here
            .root()
            .spawn(async move { watched.join().await.map(|_| ()) });
        let waiter = here
            .root()
            .spawn(async move { Ok::<_, Error>(target.await? + 1) });
        here.settle();
        there.settle();
        here.settle();
        assert!(!waiter.is_ended() && !joiner.is_ended());
        assert_eq!(there.counters().waiters_pending(), 2);
        here.advance(100 * MS);
        assert!(!waiter.is_ended(), "clocks are each runtime's own");
        there.advance(10 * MS);
        assert!(!waiter.is_ended(), "it is resumed by its own host only");
        assert_eq!(here.ready(), 2);
        here.settle();
        assert!(matches!(outcome(waiter), Outcome::Completed(6)));
        assert!(outcome(joiner).is_completed());
        here.assert_nothing_left();
        there.assert_nothing_left();
        here.finish();
        there.finish();
    }
}

/// handle-2: a cancelled waiter of another runtime's task is told at once,
/// and the task is cancelled.
#[test]
fn handle_2_a_cancelled_waiter_of_another_runtime() {
    for seed in 0..SEEDS {
        let (mut here, mut there) = (Sim::seeded(seed), Sim::seeded(seed + 1));
        let target = there.root().spawn(async {
            let told = park().await;
            cleanup(sleep(10 * MS)).await?;
            told?;
            Ok::<_, Error>(())
        });
        let job = target.job();
        let waiter = here.root().spawn(async move {
            let told = target.await.unwrap_err();
            assert_eq!(told.kind(), ErrorKind::Cancelled);
            assert_eq!(told.reason().unwrap().text(), Some("enough"));
            Err::<(), _>(told)
        });
        here.settle();
        there.settle();
        assert!(waiter.cancel("enough"));
        here.settle();
        assert!(outcome(waiter).is_cancelled(), "at once");
        assert_eq!(job.state(), JobState::Cancelling);
        assert_eq!(job.reason().unwrap().kind(), ReasonKind::HandleDropped);
        there.advance(10 * MS);
        assert_eq!(job.state(), JobState::Cancelled);
        here.assert_nothing_left();
        there.assert_nothing_left();
        here.finish();
        there.finish();
    }
}

/// handle-2: a waiter whose target's runtime goes away gets Stopped, and goes
/// on.
#[test]
fn handle_2_the_other_runtime_goes_away() {
    for seed in 0..SEEDS {
        let (mut here, mut there) = (Sim::seeded(seed), Sim::seeded(seed + 1));
        let target = there.root().spawn(async {
            park().await?;
            Ok::<_, Error>(())
        });
        let watched = target.job();
        let waiter = here.root().spawn(async move {
            let error = target.await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Stopped);
            assert!(watched.join().await?.is_cancelled());
            checkpoint().await?;
            Ok::<_, Error>(1)
        });
        here.settle();
        there.settle();
        drop(there);
        here.settle();
        assert!(matches!(outcome(waiter), Outcome::Completed(1)));
        here.assert_nothing_left();
        here.finish();
    }
}

/// handle-2: the other way round: the waiter's runtime goes away, and the
/// target is cancelled with the handle.
#[test]
fn handle_2_the_waiters_runtime_goes_away() {
    for seed in 0..SEEDS {
        let (mut here, mut there) = (Sim::seeded(seed), Sim::seeded(seed + 1));
        let target = there.root().spawn(async {
            park().await?;
            Ok::<_, Error>(())
        });
        let job = target.job();
        let waiter = here.root().spawn(target);
        here.settle();
        there.settle();
        drop(here);
        assert!(outcome(waiter).is_cancelled());
        there.settle();
        assert_eq!(job.state(), JobState::Cancelled);
        there.assert_nothing_left();
        there.finish();
    }
}

// --- bad company ---

struct LoudSink(AtomicUsize);

impl Sink for LoudSink {
    fn event(&self, _: &Event) {
        self.0.fetch_add(1, SeqCst);
        raise("in a sink")
    }

    fn interests(&self) -> kinfolk_core::Interests {
        kinfolk_core::Interests::ALL
    }
}

/// A bit of everything; the log it must write.
async fn script(log: Log) -> Result<(), Error> {
    let words = log.clone();
    let error = scope(async move |s| {
        s.launch(async move {
            let told = park().await;
            cleanup(sleep(10 * MS)).await?;
            words.say("cleaned");
            told?;
            Ok::<_, Error>(())
        });
        s.launch(async {
            sleep(5 * MS).await?;
            Err::<(), _>(Error::msg("fails"))
        });
        park().await?;
        Ok(())
    })
    .await
    .unwrap_err();
    log.say(error.to_string());
    log.say(spawn(async { "done".to_string() }).await?);
    Ok(())
}

/// see-4: a sink that panics harms no other job.
#[test]
fn see_4_a_sink_that_panics_harms_nobody() {
    for seed in 0..SEEDS {
        let sink = Arc::new(LoudSink(AtomicUsize::new(0)));
        let reported = Arc::new(AtomicUsize::new(0));
        let reports = reported.clone();
        let mut sim = Sim::builder(seed)
            .sink(sink.clone())
            .on_failure(move |_| {
                reports.fetch_add(1, SeqCst);
            })
            .build();
        let log = Log::new();
        sim.run(script(log.clone())).unwrap();
        assert_eq!(log.text(), "cleaned fails done");
        assert_eq!(reported.load(SeqCst), 1, "once");
        assert_eq!(sink.0.load(SeqCst), 1, "it is called no more");
        sim.assert_nothing_left();
        sim.finish();
    }
}

/// see-4: no sink, one without turns and one with them: the run is the same.
#[test]
fn see_4_a_sink_changes_nothing() {
    for seed in 0..SEEDS {
        let mut texts = Vec::new();
        for way in 0..3 {
            let ring = RingSink::new(1000);
            let ring = Arc::new(if way == 2 { ring.with_turns() } else { ring });
            let mut builder = Sim::builder(seed);
            if way > 0 {
                builder = builder.sink(ring.clone());
            }
            let mut sim = builder.build();
            let log = Log::new();
            sim.run(script(log.clone())).unwrap();
            texts.push((log.text(), sim.elapsed(), sim.counters()));
            sim.finish();
            let turns = ring
                .events()
                .iter()
                .any(|event| matches!(event.kind, kinfolk_core::EventKind::PollBegin));
            assert_eq!(turns, way == 2);
            assert_eq!(ring.events().is_empty(), way == 0);
        }
        assert_eq!(texts[0], texts[1]);
        assert_eq!(texts[0], texts[2]);
    }
}

struct LoudError;

impl fmt::Debug for LoudError {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        raise("in Debug")
    }
}

impl fmt::Display for LoudError {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        raise("in Display")
    }
}

impl std::error::Error for LoudError {}

/// outcome-3: a failure hook that panics harms no other job, and an error whose
/// `Display` panics does not either when the default hook prints it.
#[test]
fn outcome_3_a_failure_hook_that_panics_harms_nobody() {
    for seed in 0..SEEDS {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        let mut sim = Sim::builder(seed)
            .on_failure(move |_| {
                counted.fetch_add(1, SeqCst);
                raise("in the failure hook")
            })
            .build();
        let log = Log::new();
        detached_failures(&mut sim, log.clone());
        assert_eq!(calls.load(SeqCst), 3);
        assert_eq!(log.text(), "cleaned fails done");
    }
    // The default hook prints.
    let mut sim = Sim::seeded(0);
    let log = Log::new();
    detached_failures(&mut sim, log.clone());
    assert_eq!(log.text(), "cleaned fails done");
}

/// Three failures that are not taken, then the script.
fn detached_failures(sim: &mut Sim, log: Log) {
    let before = sim.counters().jobs_failed;
    sim.run(async move {
        detach(async { Err::<(), _>(LoudError) });
        let supervised = Scope::build().supervisor().run(async |s| {
            s.launch(async { Err::<(), _>(LoudError) });
            let task = s.spawn(async { Err::<(), _>(LoudError) });
            let _ = task.join().await?;
            drop(task);
            Ok(())
        });
        supervised.await.map_err(|_| Error::msg("the supervisor"))?;
        script(log).await
    })
    .unwrap();
    assert_eq!(sim.counters().jobs_failed - before, 5);
    sim.assert_nothing_left();
}

// --- shutdown ---

/// L07: detached jobs are cancelled at shutdown and waited for.
#[test]
fn case_l07_shutdown_cancels_detached_jobs_and_waits() {
    for seed in 0..SEEDS {
        let mut sim = Sim::seeded(seed);
        let log = Log::new();
        let words = log.clone();
        let tree = sim.tree().clone();
        sim.run(async move {
            detach(async move {
                let told = park().await.unwrap_err();
                let reason: &kinfolk_core::Reason = Cancelled::reason(&told);
                assert_eq!(reason.root_cause().kind(), ReasonKind::Shutdown);
                cleanup(sleep(50 * MS)).await?;
                words.say("cleaned");
                Err::<(), Error>(told.into())
            });
        })
        .unwrap();
        sim.settle();
        assert_eq!(sim.counters().living(), 2);
        let before = sim.elapsed();
        let ended = tree.root_job();
        sim.finish();
        assert!(ended.is_ended());
        assert_eq!(log.text(), "cleaned", "seed {seed}");
        assert_eq!(tree.counters().jobs_force_dropped, 0);
        assert_eq!(before, Duration::ZERO);
    }
}

/// L10: shutdown ends a cooperative task at once, and cancels what spawns on.
#[test]
fn case_l10_shutdown_ends_cooperative_tasks() {
    for seed in 0..SEEDS {
        let mut sim = Sim::seeded(seed);
        let tally = Tally::new();
        for _ in 0..5 {
            let counts = tally.clone();
            sim.root().launch(tally.count(async move {
                launch(counts.count(park()));
                checkpoint().await?;
                park().await?;
                Ok::<_, Error>(())
            }));
        }
        sim.settle();
        assert_eq!(sim.counters().living(), 11);
        let tree = sim.tree().clone();
        assert!(tree.request_shutdown(ReasonKind::Shutdown));
        assert!(!tree.request_shutdown(ReasonKind::Shutdown));
        sim.settle();
        assert!(tree.root_job().is_ended());
        assert_eq!(tally.drops(), 10);
        assert_eq!(sim.elapsed(), Duration::ZERO);
        assert_eq!(tree.counters().jobs_force_dropped, 0);
        sim.finish();
    }
}

/// A value that is taken while the drop of a waker panics is dropped once.
#[test]
fn handle_2_a_waker_whose_drop_panics_costs_no_value_twice() {
    use std::pin::Pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::task::{Context, Poll, Wake, Waker};

    struct Bomb;
    impl Wake for Bomb {
        fn wake(self: Arc<Self>) {}
    }
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("the drop of a waker");
        }
    }
    struct Counted(Arc<AtomicUsize>);
    impl kinfolk_core::Success for Counted {}
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    let drops = Arc::new(AtomicUsize::new(0));
    let counted = drops.clone();
    let mut sim = Sim::seeded(1);
    let ended = sim.outcome(async move {
        let mut task = kinfolk_core::spawn(async move {
            kinfolk_core::sleep(std::time::Duration::from_secs(1)).await?;
            Ok::<_, Error>(Counted(counted))
        });
        let job = task.job();
        {
            let bomb = Waker::from(Arc::new(Bomb));
            let polled = Pin::new(&mut task).poll(&mut Context::from_waker(&bomb));
            assert!(polled.is_pending());
        }
        // Woken under the bomb, so this one is not: look again later.
        while !job.is_ended() {
            kinfolk_core::sleep(std::time::Duration::from_secs(1)).await?;
        }
        let again = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut cx = Context::from_waker(Waker::noop());
            match Pin::new(&mut task).poll(&mut cx) {
                Poll::Ready(value) => drop(value),
                Poll::Pending => panic!("it has ended"),
            }
        }));
        // Whether or not the bomb went off in there.
        drop(again);
        drop(task);
        Ok::<_, Error>(())
    });
    assert!(
        matches!(ended, kinfolk_core::Outcome::Completed(())),
        "{ended:?}"
    );
    drop(sim);
    assert_eq!(drops.load(SeqCst), 1);
}
