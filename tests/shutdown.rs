//! Shutdown from outside: its stages in virtual time, on the simulation and on
//! tokio, and the report that names the tasks that did not end.

use std::collections::VecDeque;
use std::panic::Location;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use kinfolk_core::host::{Host, ShutdownSteps, TimerKey, TimerQueue, Turn, TurnRow};
use kinfolk_core::{
    Error, FORCE, JobState, Lease, NodeSnapshot, OrCancel, Patience, ReasonKind, Scope,
    ShutdownReport, Task, Tree, TreeOptions, cleanup, ignore_cancellation, on_cancel, park, scope,
    shield, sleep, yield_now,
};
use kinfolk_testkit::harness::{Fixture, seeds};
use kinfolk_testkit::{Gate, Log, Sim, guarded};
use kinfolk_tokio::Root;
use tokio::runtime::Builder;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const GRACE: Duration = Duration::from_secs(5);

/// What a script leaves for its check.
type Kept = Arc<Mutex<Vec<Task<()>>>>;

/// Runs `script` on every host until everything is blocked, shuts down with
/// five seconds of grace, and lets `check` look at the report, the log and the
/// tree.
fn on_every_host(
    name: &'static str,
    script: fn(&Scope, &Log, &Kept),
    check: fn(&str, &ShutdownReport, &str, &Tree),
) {
    guarded(name, move |watched| {
        for seed in 0..seeds() {
            let (log, kept) = (Log::new(), Kept::default());
            let mut sim = Sim::builder(seed).on_forced(|_| {}).build();
            watched.watch(sim.tree());
            script(&sim.root(), &log, &kept);
            sim.settle();
            let report = sim.shutdown(GRACE);
            assert_eq!(report.took, sim.elapsed(), "seed {seed}");
            check(
                &format!("seed {seed}"),
                &report,
                &log.text(),
                &sim.tree().clone(),
            );
            at_rest(&format!("seed {seed}"), sim.tree());
        }
        for workers in [0, 2] {
            let mut builder = match workers {
                0 => Builder::new_current_thread(),
                _ => Builder::new_multi_thread(),
            };
            if workers > 0 {
                builder.worker_threads(workers);
            }
            let runtime = builder.enable_time().build().unwrap();
            let host = format!("tokio with {workers} workers");
            runtime.block_on(async {
                let (log, kept) = (Log::new(), Kept::default());
                let fixture = Fixture::new();
                let root = Root::builder()
                    .on_forced(Box::new(|_| {}))
                    .clock(Arc::new(fixture.clock.clone()))
                    .build();
                watched.watch(root.tree());
                let tree = root.tree().clone();
                // The clock stands until the job below has begun.
                tree.host().hold_clock(Location::caller());
                script(&root.scope(), &log, &kept);
                let lab = fixture.lab(root.tree(), 0);
                root.run(async move {
                    tree.host().release_clock(Location::caller());
                    lab.settle().await;
                    // From here on the clock waits for `Outside`.
                    tree.host().hold_clock(Location::caller());
                })
                .await
                .unwrap();
                let shutdown = Outside::new(root.tree(), root.tree().shutdown(GRACE, FORCE));
                let report = shutdown.await.unwrap();
                check(&host, &report, &log.text(), root.tree());
                at_rest(&host, root.tree());
            });
        }
    });
}

/// A future polled outside any job, for which the virtual clock waits as it does for
/// a task. The first poll is counted already.
struct Outside<F> {
    inner: F,
    bell: Arc<Bell>,
}

struct Bell {
    tree: Tree,
    counted: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        if !self.counted.swap(true, SeqCst) {
            self.tree.host().hold_clock(Location::caller());
        }
        if let Some(waker) = self.waker.lock().unwrap().take() {
            waker.wake();
        }
    }
}

impl<F: Future + Unpin> Outside<F> {
    fn new(tree: &Tree, inner: F) -> Outside<F> {
        let bell = Arc::new(Bell {
            tree: tree.clone(),
            counted: AtomicBool::new(true),
            waker: Mutex::default(),
        });
        Outside { inner, bell }
    }
}

impl<F: Future + Unpin> Future for Outside<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let bell = self.bell.clone();
        *bell.waker.lock().unwrap() = Some(cx.waker().clone());
        let counted = bell.counted.swap(false, SeqCst);
        let waker = Waker::from(bell.clone());
        let polled = Pin::new(&mut self.inner).poll(&mut Context::from_waker(&waker));
        if counted {
            bell.tree.host().release_clock(Location::caller());
        }
        polled
    }
}

fn at_rest(host: &str, tree: &Tree) {
    assert!(tree.root_job().is_ended(), "{host}");
    let counters = tree.counters();
    assert_eq!(counters.living(), 0, "{host}: {counters}");
    assert_eq!(counters.timers_pending(), 0, "{host}: {counters}");
    assert_eq!(counters.waiters_pending(), 0, "{host}: {counters}");
}

/// The names of the tasks in a list of a report.
fn names(list: &[NodeSnapshot]) -> Vec<String> {
    let mut names: Vec<_> = list
        .iter()
        .map(|node| node.task.as_ref().unwrap().name.to_string())
        .collect();
    names.sort();
    names
}

// --- the stages ---

/// L10: shutdown ends cooperative tasks at once, and says that all is well.
#[test]
fn case_l10_shutdown_of_cooperative_tasks_is_clean() {
    on_every_host(
        "cooperative",
        |root, log, _| {
            let words = log.clone();
            root.task("cleaner").launch(async move {
                let told = park().await;
                cleanup(sleep(SECOND)).await?;
                words.say("cleaned");
                told.map(|_| ()).map_err(Error::from)
            });
            for _ in 0..3 {
                root.launch(sleep(HOUR));
            }
        },
        |host, report, log, tree| {
            assert!(report.is_clean(), "{host}: {report}");
            assert_eq!(report.took, SECOND, "{host}");
            assert_eq!(log, "cleaned", "{host}");
            assert_eq!(tree.counters().jobs_force_dropped, 0, "{host}");
            let words = "shutdown: every job ended by itself in 1s";
            assert_eq!(report.to_string(), words, "{host}");
        },
    );
}

/// L10: shutdown with stubborn tasks returns the list of them, each once, in
/// the list of how it ended.
/// Also: shutdown-1.
#[test]
fn case_l10_shutdown_names_stubborn_tasks() {
    on_every_host(
        "stubborn",
        |root, log, kept| {
            // Cannot hear: patience drops it long before the grace.
            let gate = Gate::new();
            let keep = |task| kept.lock().unwrap().push(task);
            keep(root.task("foreign").spawn(async move {
                gate.wait().await;
            }));
            // Hears at the grace, and ends by itself.
            let words = log.clone();
            keep(root.task("shielded").spawn(async move {
                let told = shield(sleep(HOUR)).await;
                words.say(told.is_err().to_string());
            }));
            let words = log.clone();
            keep(root.task("guarded").spawn(async move {
                let guard = ignore_cancellation().await.unwrap();
                let told = sleep(HOUR).await;
                words.say(told.is_err().to_string());
                drop(guard);
            }));
            // Hears, and cleans up for ever.
            let words = log.clone();
            keep(root.task("slow").spawn(async move {
                let told = park().await;
                words.say(told.is_err().to_string());
                let told = shield(sleep(HOUR)).await;
                words.say(told.is_err().to_string());
                let told = shield(sleep(HOUR)).await;
                words.say(told.is_err().to_string());
            }));
        },
        |host, report, log, tree| {
            assert_eq!(
                names(&report.dropped),
                ["foreign", "slow"],
                "{host}: {report}"
            );
            assert_eq!(
                names(&report.late),
                ["guarded", "shielded"],
                "{host}: {report}"
            );
            assert!(report.stragglers.is_empty(), "{host}: {report}");
            assert_eq!(report.took, GRACE + FORCE, "{host}");
            assert_eq!(log, "true true true true", "{host}");
            assert_eq!(tree.counters().jobs_force_dropped, 2, "{host}");
            assert!(!report.is_clean());
        },
    );
}

/// shutdown-1: a lease holds its scope until the grace; then it is revoked.
#[test]
fn shutdown_1_a_lease_is_revoked_at_the_grace() {
    static LEASES: Mutex<Vec<Lease>> = Mutex::new(Vec::new());
    on_every_host(
        "lease",
        |root, _, _| {
            root.task("leased").launch(async {
                let lease = Scope::current().unwrap().lease().unwrap();
                LEASES.lock().unwrap().push(lease);
            });
        },
        |host, report, _, _| {
            assert_eq!(names(&report.late), ["leased"], "{host}: {report}");
            assert_eq!(report.took, GRACE, "{host}");
            let words = report.to_string();
            assert!(words.contains("a lease holds it open"), "{words}");
            assert!(words.contains("help: drop the lease"), "{words}");
            LEASES.lock().unwrap().clear();
        },
    );
}

/// shutdown-1: a lease that is taken after the others were revoked does not
/// hold shutdown up: it goes with the force.
#[test]
fn shutdown_1_a_lease_taken_after_the_grace_holds_nothing_up() {
    static LEASES: Mutex<Vec<Lease>> = Mutex::new(Vec::new());
    on_every_host(
        "late lease",
        |root, log, _| {
            let words = log.clone();
            root.task("leased").launch(async move {
                assert!(shield(sleep(HOUR)).await.is_err());
                let lease = Scope::current().unwrap().lease();
                words.say(lease.is_some().to_string());
                LEASES.lock().unwrap().extend(lease);
            });
        },
        |host, report, log, _| {
            assert_eq!(log, "true", "{host}: a cancelled job gives leases");
            assert!(report.stragglers.is_empty(), "{host}: {report}");
            assert_eq!(report.took, GRACE + FORCE, "{host}");
            LEASES.lock().unwrap().clear();
        },
    );
}

/// shutdown-1: a body that swallows every Cancelled never blocks. The
/// simulation moves its clock nevertheless, and the force ends it.
#[test]
fn shutdown_1_a_body_that_swallows_cancellation_is_dropped() {
    let mut sim = Sim::builder(1).on_forced(|_| {}).build();
    let deaf = sim.root().task("deaf").launch(async {
        let mut told = 0_u64;
        while told < u64::MAX {
            told += u64::from(yield_now().await.is_err());
        }
    });
    let report = sim.shutdown(GRACE);
    assert_eq!(report.took, GRACE + FORCE);
    assert_eq!(names(&report.dropped), ["deaf"], "{report}");
    let words = report.to_string();
    assert!(words.contains("help: it swallows cancellation"), "{words}");
    assert_eq!(deaf.state(), JobState::Cancelled);
    at_rest("deaf", sim.tree());
}

/// shutdown-1: inside a job it is an error; the simulation cannot be asked
/// there, but its tree can.
#[test]
fn shutdown_1_awaiting_it_inside_a_job_is_an_error() {
    let mut sim = Sim::seeded(1);
    let tree = sim.tree().clone();
    let words = sim.run(async move {
        let error = tree.shutdown(GRACE, FORCE).await.unwrap_err();
        assert!(!tree.root_job().cancel_requested());
        error.to_string()
    });
    assert!(words.unwrap().contains("request_shutdown"));
    sim.finish();
}

/// shutdown-1: a grace beyond all time lifts nothing; what cannot end is a
/// deadlock, and is said with the tree.
#[test]
#[should_panic(expected = "shutdown does not end")]
fn shutdown_1_a_grace_without_end_reports_a_deadlock() {
    let mut sim = Sim::builder(1)
        .patience(Patience {
            unaware: Duration::MAX,
            cleanup: Duration::MAX,
        })
        .on_forced(|_| {})
        .build();
    let gate = Gate::new();
    sim.root().launch(async move { gate.wait().await });
    sim.shutdown(Duration::MAX);
}

// --- each straggler once ---

/// shutdown-1: patience with a lifted shield and the force run out at the same
/// instant. Whichever comes first, the task is named once, with the innermost
/// place it was stuck in.
#[test]
fn shutdown_1_a_straggler_is_named_once() {
    on_every_host(
        "once",
        |root, _, _| {
            let gate = Gate::new();
            root.task("stuck").launch(async move {
                let inner = gate.clone();
                let _ = shield(Scope::named("inner").run_future(async move {
                    inner.wait().await;
                }))
                .await;
                gate.wait().await;
            });
        },
        |host, report, _, _| {
            assert_eq!(names(&report.dropped), ["stuck"], "{host}: {report}");
            assert!(report.late.is_empty(), "{host}: {report}");
            assert!(report.stragglers.is_empty(), "{host}: {report}");
            assert_eq!(report.dropped[0].name, "inner", "{host}: {report}");
            assert_eq!(report.took, GRACE + FORCE, "{host}");
        },
    );
}

/// shutdown-1: what was dropped before the shutdown began is not in its way.
#[test]
fn shutdown_1_forced_drops_of_before_are_not_in_the_report() {
    let mut sim = Sim::builder(1).on_forced(|_| {}).build();
    let gate = Gate::new();
    let task = sim.root().spawn(async move { gate.wait().await });
    sim.settle();
    task.cancel("enough");
    sim.advance(2 * SECOND);
    assert_eq!(sim.counters().jobs_force_dropped, 1);
    let report = sim.shutdown(GRACE);
    assert!(report.is_clean(), "{report}");
}

/// shutdown-1: every straggler is named, however many there are.
#[test]
fn shutdown_1_every_straggler_is_named() {
    let mut sim = Sim::builder(1).on_forced(|_| {}).build();
    let gate = Gate::new();
    for n in 0..200 {
        let gate = gate.clone();
        let task = sim.root().task(format!("task {n}"));
        task.launch(async move { gate.wait().await });
    }
    sim.settle();
    let report = sim.shutdown(GRACE);
    let mut named = names(&report.dropped);
    named.dedup();
    assert_eq!(named.len(), 200);
}

/// shutdown-1: a job that is stuck itself is named though it has children, and
/// a service that only waits for it is not.
#[test]
fn shutdown_1_a_parent_that_is_stuck_itself_is_named() {
    on_every_host(
        "parent",
        |root, _, _| {
            root.task("parent").launch(async {
                let s = Scope::current().unwrap();
                let service = s.task("service").spawn_service(park());
                s.task("child").launch(shield(sleep(HOUR)));
                let guard = ignore_cancellation().await?;
                sleep(HOUR).await?;
                drop((guard, service));
                Ok::<_, Error>(())
            });
        },
        |host, report, _, _| {
            let late = names(&report.late);
            assert_eq!(late, ["child", "parent"], "{host}: {report}");
            assert!(report.dropped.is_empty(), "{host}: {report}");
            assert_eq!(report.took, GRACE, "{host}");
        },
    );
}

// --- a lane that no thread turns ---

/// A host whose turns are run by hand.
#[derive(Clone)]
struct ByHand(Arc<Mutex<Hands>>);

struct Hands {
    ready: VecDeque<Turn>,
    timers: TimerQueue,
    now: Instant,
}

impl ByHand {
    fn tree() -> (ByHand, Tree) {
        let host = ByHand(Arc::new(Mutex::new(Hands {
            ready: VecDeque::new(),
            timers: TimerQueue::new(),
            now: Instant::now(),
        })));
        let options = TreeOptions {
            forced_hook: None,
            ..TreeOptions::default()
        };
        let tree = Tree::new(Box::new(host.clone()), options);
        (host, tree)
    }

    fn turn(&self) {
        let turn = self.0.lock().unwrap().ready.pop_front();
        let again = turn.unwrap().run();
        assert!(again.is_none(), "it waits");
    }

    fn turn_all(&self) {
        loop {
            let turn = self.0.lock().unwrap().ready.pop_front();
            let Some(turn) = turn else { return };
            let again = turn.run();
            self.0.lock().unwrap().ready.extend(again);
        }
    }

    fn advance(&self, by: Duration) {
        self.0.lock().unwrap().now += by;
    }

    /// Wakes those whose time has come.
    fn fire(&self) {
        loop {
            let due = {
                let mut hands = self.0.lock().unwrap();
                let now = hands.now;
                hands.timers.pop_due(now)
            };
            match due {
                Some(waker) => waker.wake(),
                None => break,
            }
        }
    }
}

impl Host for ByHand {
    fn run_blocking(&self, call: kinfolk_core::host::BlockingCall) {
        drop(call);
    }

    fn start(&self, turn: Turn) {
        self.0.lock().unwrap().ready.push_back(turn);
    }

    fn schedule(&self, ready: TurnRow) {
        self.0.lock().unwrap().ready.extend(ready);
    }

    fn now(&self) -> Instant {
        self.0.lock().unwrap().now
    }

    fn set_timer(&self, at: Instant, waker: Waker) -> TimerKey {
        self.0.lock().unwrap().timers.insert(at, waker)
    }

    fn clear_timer(&self, key: TimerKey) -> Option<Waker> {
        self.0.lock().unwrap().timers.remove(key)
    }
}

/// cancel-6: patience does not depend on how old the tree is: after two months,
/// too, whoever was told has its time to clean up, and no more.
#[test]
fn cancel_6_patience_is_the_same_in_an_old_tree() {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    for days in [0, 13, 49, 50, 60, 100] {
        let (host, tree) = ByHand::tree();
        host.advance(DAY * days);
        let gate = Gate::new();
        let never = gate.clone();
        let job = tree.root_scope().task("slow").launch(async move {
            let _ = park().await;
            never.wait().await;
        });
        host.turn();
        host.advance(SECOND);
        let waits = tree.snapshot().find("slow").unwrap().waits_on.unwrap();
        assert_eq!(waits.2, SECOND, "after {days} days");
        job.cancel("enough");
        host.turn();
        // Thirty seconds are for cleaning up.
        for _ in 0..29 {
            host.advance(SECOND);
            host.fire();
            assert!(host.0.lock().unwrap().ready.is_empty(), "after {days} days");
        }
        assert_eq!(
            tree.snapshot().find("slow").unwrap().told_since,
            Some(29 * SECOND)
        );
        host.advance(SECOND);
        host.fire();
        host.turn();
        assert_eq!(job.state(), JobState::Cancelled, "after {days} days");
    }
}

/// shutdown-1: a task on a lane that no thread turns is named, and its end is not
/// faked. It never hangs for ever.
#[test]
fn shutdown_1_a_task_that_nobody_turns_is_a_straggler() {
    let (host, tree) = ByHand::tree();
    let line = line!() + 1;
    let job = tree.root_scope().task("abandoned").launch(park());
    host.turn();
    let mut shutdown = tree.shutdown(GRACE, FORCE);
    let mut poll = || Pin::new(&mut shutdown).poll(&mut Context::from_waker(Waker::noop()));
    assert!(poll().is_pending());
    host.advance(GRACE);
    assert!(poll().is_pending());
    host.advance(FORCE);
    assert!(poll().is_pending());
    host.advance(SECOND);
    let Poll::Ready(Ok(report)) = poll() else {
        panic!("it hangs");
    };
    assert_eq!(names(&report.stragglers), ["abandoned"]);
    assert!(report.late.is_empty() && report.dropped.is_empty());
    assert_eq!(job.state(), JobState::Cancelling);
    let words = format!(
        "shutdown: took 7s, 1 task was in the way
still there: task \"abandoned\" has not ended; its memory is leaked
  --> spawned at {}:{line}:51
   = is queued for a turn on the pool lane
   = was cancelled 7s before, and never told
   = help: run its lane, and check that no other task keeps the thread; \
put `checkpoint().await?` into a loop that only wakes itself",
        file!()
    );
    assert_eq!(report.to_string(), words);
    host.turn();
    assert_eq!(job.state(), JobState::Cancelled);
}

/// A hook of a task that is being forced lets the others have their turns, as other
/// threads would: what was parked is dropped, and hears nothing.
#[test]
fn shutdown_1_what_is_parked_does_not_hear_that_it_is_forced() {
    let (host, tree) = ByHand::tree();
    let (log, hands) = (Log::new(), host.clone());
    let said = log.clone();
    tree.root_scope().launch(scope(async move |s| {
        let service = s.spawn_service(async move {
            let _hook = on_cancel(move |_| hands.turn_all());
            park().await
        });
        s.launch(async move {
            let told = park().await;
            said.say("heard");
            told
        });
        park().await?;
        drop(service);
        Ok(())
    }));
    host.turn_all();
    tree.force();
    host.turn_all();
    assert_eq!(log.text(), "");
    let counters = tree.counters();
    assert_eq!((counters.jobs_force_dropped, tree.snapshot().len()), (3, 1));
}

// --- the message ---

/// shutdown-1: the report reads like a compiler's message: who, where, what it
/// waits on and since when, since when it was told, and what to do about it.
/// As for a signal: in its words, and whether it was the first to ask.
#[test]
fn shutdown_2_whoever_is_cancelled_knows_who_asked() {
    guarded("who asked", |_| {
        for seed in 0..seeds() {
            let mut sim = Sim::seeded(seed);
            sim.root().launch(async { park().await });
            sim.settle();
            let (tree, site) = (sim.tree().clone(), Location::caller());
            let ask = || tree.request_shutdown_for(ReasonKind::Shutdown, "SIGTERM", site);
            assert!(ask(), "seed {seed}: the first");
            assert!(!ask(), "seed {seed}: the second");
            sim.settle();
            assert!(tree.root_job().is_ended(), "seed {seed}");
            let reason = tree.root_job().reason().expect("cancelled");
            assert_eq!(
                (reason.kind(), reason.text(), reason.site()),
                (ReasonKind::Shutdown, Some("SIGTERM"), site),
                "seed {seed}"
            );
        }
    });
}

/// shutdown-2: the steps one by one, for a thread that times them itself.
#[test]
fn shutdown_2_the_steps_can_be_timed_from_outside() {
    guarded("steps", |_| {
        for seed in 0..seeds() {
            let mut sim = Sim::builder(seed).on_forced(|_| {}).build();
            sim.root()
                .task("held")
                .launch(async { shield(park()).await });
            sim.root().task("deaf").launch(std::future::pending::<()>());
            sim.root()
                .task("both")
                .launch(shield(std::future::pending::<()>()));
            sim.settle();
            let tree = sim.tree().clone();
            let mut steps = ShutdownSteps::new(tree.clone());
            assert!(tree.request_shutdown(ReasonKind::Shutdown), "seed {seed}");
            sim.advance(2 * SECOND);
            let lives = |sim: &Sim, name| sim.snapshot().find(name).is_some();
            assert!(!lives(&sim, "deaf") && lives(&sim, "held") && lives(&sim, "both"));
            steps.note_late();
            tree.lift();
            sim.settle();
            assert!(!lives(&sim, "held") && lives(&sim, "both"), "seed {seed}");
            tree.force();
            sim.settle();
            let report = steps.report(3 * SECOND);
            assert_eq!(names(&report.late), ["held"], "seed {seed}: {report}");
            assert_eq!(
                names(&report.dropped),
                ["both", "deaf"],
                "seed {seed}: {report}"
            );
            assert!(report.stragglers.is_empty(), "seed {seed}: {report}");
            assert_eq!(report.took, 3 * SECOND);
            at_rest("steps", sim.tree());
        }
    });
}

#[test]
fn shutdown_1_the_report_says_what_to_do() {
    let mut sim = Sim::builder(1).on_forced(|_| {}).build();
    let root = sim.root();
    let gate = Gate::new();
    let late = line!() + 1;
    root.task("flush").launch(async {
        shield(sleep(HOUR)).await?;
        Ok::<_, Error>(())
    });
    let door = gate.clone();
    let dropped = line!() + 1;
    root.task("fetch").launch(async move {
        let _ = park().await;
        Scope::named("close")
            .run_future(async move { door.wait().await })
            .await
    });
    sim.settle();
    let report = sim.shutdown(SECOND);
    let file = file!();
    let words = format!(
        "shutdown: took 2s, 2 tasks were in the way
late: task \"flush\" ended, but after the grace
  --> spawned at {file}:{late}:24
   = in shield \"shield@shutdown.rs:{shield}\", opened at {file}:{shield}:9
   = waits on sleep at {file}:{shield}:16 for 1s
   = was not cancelled: a shield held the cancel back
   = help: bound the shield with `shield_for`, or hold the guard for less long
dropped: task \"fetch\" was dropped before it was done
  --> spawned at {file}:{dropped}:24
   = in scope \"close\", opened at {file}:{close}:9
   = waits on a foreign await for 2s
   = was cancelled 2s before, and told 2s before
   = help: return soon after `Cancelled`, or bound the cleanup with `timeout`",
        shield = late + 1,
        close = dropped + 2,
    );
    assert_eq!(report.to_string(), words);
}

/// shutdown-1: a task in a foreign await that was never told is told about
/// `or_cancel`; with it, it ends in time.
#[test]
fn shutdown_1_or_cancel_is_the_cure_for_a_foreign_await() {
    let mut sim = Sim::builder(1).on_forced(|_| {}).build();
    let gate = Gate::new();
    let (deaf, hears) = (gate.clone(), gate.clone());
    sim.root()
        .task("deaf")
        .launch(async move { deaf.wait().await });
    sim.root()
        .task("hears")
        .launch(async move { hears.wait().or_cancel().await });
    sim.settle();
    let report = sim.shutdown(GRACE);
    assert_eq!(names(&report.dropped), ["deaf"], "{report}");
    let words = report.to_string();
    assert!(words.contains("and never told"), "{words}");
    assert!(words.contains("help: make the await a point"), "{words}");
}
