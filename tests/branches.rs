//! Combinators where a conformance case does not reach: outside any job, at
//! scale, in a shutdown, and what their futures weigh.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use kinfolk_core::{
    Error, ErrorKind, Event, EventKind, Job, Scope, Sink, TaskSet, all, any, checkpoint, cleanup,
    for_each_concurrent, local_scope, park, race, select, sleep,
};
use kinfolk_testkit::{Gate, Log, Sim, Tally, guarded};

const MS: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);

fn poll_here<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits"),
    }
}

/// Outside every job there is nobody to wait for a branch: an error that says
/// where.
#[test]
fn handle_7_outside_every_job() {
    let tally = Tally::new();
    let error = poll_here(all([tally.count(async { 1 })])).unwrap_err();
    assert!(error.to_string().contains("outside any Kinfolk job"));
    assert!(error.to_string().contains("branches.rs"), "{error}");
    for error in [
        poll_here(any((async { 1 }, async { 2 }))).unwrap_err(),
        poll_here(race([async { 1 }])).unwrap_err(),
        poll_here(select!(async { 1 }, park())).unwrap_err(),
        poll_here(for_each_concurrent([1], 1, |_| async {})).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Failed);
        assert!(error.to_string().contains("branch at"), "{error}");
    }
    assert_eq!(tally.polls(), 0);
    assert!(poll_here(all(Vec::<std::future::Ready<()>>::new())).is_ok());
    let made = catch_unwind(AssertUnwindSafe(|| drop(TaskSet::<()>::new())));
    assert!(made.is_err());
}

/// Ten thousand branches cost ten thousand branches: twice as many polls for
/// twice as many, whatever they wait for.
#[test]
fn handle_7_all_of_ten_thousand_is_not_quadratic() {
    let polls = |many: u32| {
        let mut sim = Sim::seeded(1);
        let tally = Tally::new();
        let branch = |n: u32| async move {
            checkpoint().await?;
            sleep(n % 100 * MS).await?;
            checkpoint().await?;
            Ok::<_, Error>(n)
        };
        let counts = tally.clone();
        let sum = sim.run(async move {
            let branches = (0..many).map(|n| counts.count(branch(n)));
            Ok::<_, Error>(all(branches).await?.into_iter().map(u64::from).sum::<u64>())
        });
        assert_eq!(sum.unwrap(), u64::from(many) * u64::from(many - 1) / 2);
        sim.finish();
        tally.polls()
    };
    let (few, many) = (polls(5_000), polls(10_000));
    assert!(many <= 40_000, "{many} polls");
    assert!(many * 10 <= few * 22, "{few} and {many} polls");
}

/// The losers of ten thousand are told, each once.
#[test]
fn handle_7_a_race_of_ten_thousand() {
    let mut sim = Sim::seeded(1);
    let told = Log::new();
    let words = told.clone();
    let won = sim.run(async move {
        race((0..10_000).map(|n| {
            let told = &words;
            async move {
                if n == 9_999 {
                    sleep(MS).await?;
                    return Ok(n);
                }
                let Err(cancelled) = park().await;
                told.say("x");
                Err::<u32, _>(Error::from(cancelled))
            }
        }))
        .await
    });
    assert_eq!((won.unwrap(), told.len()), (9_999, 9_999));
    assert_eq!(sim.elapsed(), MS);
    sim.finish();
}

/// Shutdown in the middle: branches are told and may clean up; one that cannot
/// hear goes with its patience, and what is in a set with the set.
#[test]
fn handle_7_shutdown_in_the_middle() {
    let mut sim = Sim::builder(1).on_forced(|_| {}).build();
    let log = Log::new();
    let words = log.clone();
    sim.root().launch(async move {
        let hears = async {
            let Err(told) = park().await;
            cleanup(sleep(MS)).await?;
            words.say("clean");
            Err::<(), _>(Error::from(told))
        };
        let deaf = async {
            Gate::new().wait().await;
            Ok::<_, Error>(())
        };
        let cut = race((hears, deaf)).await;
        words.say(format!("{:?}", cut.as_ref().unwrap_err().kind()));
        cut
    });
    sim.root().launch(async {
        let mut set = TaskSet::new();
        set.spawn(park()).await?;
        set.next().await?;
        Ok::<_, Error>(())
    });
    sim.settle();
    let report = sim.shutdown(5 * SEC);
    assert_eq!(report.took, SEC, "{report}");
    assert_eq!(log.text(), "clean Cancelled");
    assert_eq!(sim.elapsed(), SEC);
}

/// outcome-3: a shutdown that forces what is left, while losers clean up: what the
/// calls have taken in is reported. Also: handle-7.
#[test]
fn outcome_3_a_shutdown_by_force_loses_no_failure() {
    async fn fails() -> kinfolk_core::Result<u32> {
        sleep(MS).await?;
        Err(Error::msg("no"))
    }
    /// Told, it waits for something foreign that never comes.
    async fn stubborn() -> kinfolk_core::Result<u32> {
        let _ = park().await;
        Gate::new().wait().await;
        Ok(0)
    }
    async fn one(fails_first: bool) -> kinfolk_core::Result<u32> {
        match fails_first {
            true => fails().await,
            false => stubborn().await,
        }
    }
    let heard = Log::new();
    let hear = heard.clone();
    let mut sim = Sim::builder(1)
        .on_forced(|_| {})
        .on_failure(move |error| hear.say(error.to_string()))
        .build();
    sim.root()
        .launch(async { all((fails(), stubborn())).await.map(drop) });
    sim.root()
        .launch(async { race([true, false].map(one)).await.map(drop) });
    // A task that has lost, and does not end.
    sim.root().launch(async {
        let task = kinfolk_core::spawn(stubborn());
        race((task, async { 7 })).await.map(drop)
    });
    sim.run(sleep(10 * MS)).unwrap();
    let report = sim.shutdown(5 * SEC);
    assert_eq!(report.took, 6 * SEC, "{report}");
    assert_eq!(heard.text(), "no no");
}

/// An arm weighs little more than its future.
#[test]
fn handle_7_select_is_small() {
    let arms = select!(sleep(SEC), sleep(SEC));
    let size = size_of_val(&arms);
    assert!(size <= 512, "{size} bytes");
}

/// How many laps each of many has run.
#[derive(Clone)]
struct Laps(Arc<Vec<AtomicUsize>>);

impl Laps {
    fn of(many: usize) -> Laps {
        Laps(
            (0..many)
                .map(|_| AtomicUsize::new(0))
                .collect::<Vec<_>>()
                .into(),
        )
    }

    /// A branch that is ready whenever it is polled: five laps.
    async fn run(self, n: usize) -> Result<(), Error> {
        for lap in 1..=5 {
            self.0[n].store(lap, SeqCst);
            let last = self.0.iter().map(|laps| laps.load(SeqCst)).min();
            assert!(
                last >= Some(lap - 1),
                "{n} is in lap {lap}, another in {last:?}"
            );
            // One of the points that a turn has.
            checkpoint().await?;
            let mut polled = false;
            poll_fn(|cx| {
                cx.waker().wake_by_ref();
                match std::mem::replace(&mut polled, true) {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                }
            })
            .await;
        }
        Ok(())
    }
}

/// There are more that are always ready than points in a turn: each has its turn
/// before one has two more.
/// Also: cancel-5, lane-4.
#[test]
fn handle_7_branches_that_are_always_ready_starve_none() {
    const MANY: usize = 600;
    guarded("starving", |watched| {
        for seed in 0..3 {
            let mut sim = Sim::seeded(seed);
            watched.watch(sim.tree());
            let ran = sim.run(async {
                let laps = Laps::of(MANY);
                all((0..MANY).map(|n| laps.clone().run(n))).await?;
                let laps = Laps::of(MANY);
                for_each_concurrent(0..MANY, MANY, |n| laps.clone().run(n)).await?;
                let laps = Laps::of(MANY);
                local_scope(async |s| {
                    for n in 0..MANY {
                        s.launch(laps.clone().run(n));
                    }
                    Ok::<_, Error>(())
                })
                .await
            });
            ran.unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
            sim.finish();
        }
    });
}

/// Calls a function with a job as soon as the next job is created.
struct AtNextCreate {
    armed: AtomicBool,
    job: Mutex<Option<Job>>,
    call: fn(&Job) -> bool,
}

impl Sink for AtNextCreate {
    fn event(&self, event: &Event) {
        if matches!(event.kind, EventKind::Create { .. }) && self.armed.swap(false, SeqCst) {
            let job = self
                .job
                .lock()
                .unwrap()
                .take()
                .expect("the one that spawns");
            assert!((self.call)(&job));
        }
    }
}

/// What a job that starts a task in a set is told at its next wait for the set, and what
/// becomes of that task, if `call` comes to the job while the set starts the task.
fn told_while_a_set_starts_a_task(call: fn(&Job) -> bool) -> String {
    let sink = Arc::new(AtNextCreate {
        armed: AtomicBool::new(false),
        job: Mutex::new(None),
        call,
    });
    let mut sim = Sim::builder(1).sink(sink.clone()).build();
    let log = Log::new();
    let words = log.clone();
    sim.run(async move {
        let around = Scope::current().expect("a job");
        let arms = sink.clone();
        let job = around.task("spawns").spawn(async move {
            let mut set = TaskSet::within(&around);
            arms.armed.store(true, SeqCst);
            let spawned = set.spawn(sleep(MS)).await;
            assert!(spawned.is_ok() && !arms.armed.load(SeqCst));
            words.say(format!("told {}", set.next().await.is_err()));
            let left = cleanup(async { set.next().await }).await?;
            words.say(format!("task {:?}", left.map(|ended| ended.is_ok())));
            Ok::<_, Error>(())
        });
        *sink.job.lock().unwrap() = Some(job.job());
        let _ = job.outcome().await;
        Ok::<_, Error>(())
    })
    .unwrap();
    assert_eq!(sim.elapsed(), MS);
    sim.finish();
    log.text()
}

/// request-3: a set waits for its tasks in no job's name. A job that is cancelled or
/// interrupted while it starts one hears it at its own next point, and the task hears nothing.
/// Also: handle-2.
#[test]
fn request_3_a_set_passes_nothing_on_to_the_tasks_that_it_starts() {
    let calls: [fn(&Job) -> bool; 2] = [|job| job.interrupt("look up"), |job| job.cancel("now")];
    for call in calls {
        let told = told_while_a_set_starts_a_task(call);
        assert_eq!(told, "told true task Some(true)");
    }
}
