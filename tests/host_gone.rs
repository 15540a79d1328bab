//! The column "host gone" of `docs/semantics.md`: what each wait does when its
//! host is dropped. The simulation cancels everything, runs what can still
//! run, and drops the rest; time stands still. Tokio drops every body where it
//! waits. And scopes that are polled elsewhere when what they belong to goes.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use kinfolk_core::{
    Error, ErrorKind, Outcome, ReasonKind, Task, checkpoint, cleanup, launch, on_cancel, park,
    scope, shield, sleep, spawn, timeout, yield_now,
};
use kinfolk_runtime::Runtime;
use kinfolk_testkit::harness::seeds;
use kinfolk_testkit::{Gate, Log, Sim, Tally, guarded};
use kinfolk_tokio::Root;

const HOUR: Duration = Duration::from_secs(3600);

/// The outcome of a task that has ended.
fn outcome_of<T: std::fmt::Debug>(task: Task<T>) -> Outcome<T> {
    assert!(task.is_ended(), "{task:?}");
    let mut outcome = task.outcome();
    match Pin::new(&mut outcome).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(outcome)) => outcome,
        other => panic!("an ended task did not give its outcome: {other:?}"),
    }
}

/// Drops a simulation in which `body` waits, on every seed. The task has ended
/// Cancelled then; `words` is what it and its children had to say.
fn sim_gone<B>(name: &'static str, body: fn(Log) -> B, words: &'static str)
where
    B: Future<Output = Result<(), Error>> + Send + 'static,
{
    guarded(name, move |watched| {
        for seed in 0..seeds() {
            let mut sim = Sim::builder(seed).on_forced(|_| {}).build();
            watched.watch(sim.tree());
            let tree = sim.tree().clone();
            let root = sim.root();
            let log = Log::new();
            let tally = Tally::new();
            let task = root.spawn(tally.count(body(log.clone())));
            sim.settle();
            assert_eq!(log.text(), "", "seed {seed}");
            drop(sim);
            assert_eq!(log.text(), words, "seed {seed}");
            assert_eq!(tally.drops(), 1, "seed {seed}");
            match outcome_of(task) {
                Outcome::Cancelled { reason, late: None } => {
                    assert_eq!(reason.kind(), ReasonKind::Parent);
                    assert_eq!(reason.root_cause().kind(), ReasonKind::Shutdown);
                }
                other => panic!("seed {seed}: {other:?}"),
            }
            let counters = tree.counters();
            assert_eq!(counters.living(), 0, "seed {seed}: {counters}");
            assert_eq!(counters.timers_pending(), 0, "seed {seed}: {counters}");
            assert_eq!(counters.waiters_pending(), 0, "seed {seed}: {counters}");
            // Nothing starts any more.
            let refused = root.spawn(async {});
            let outcome = outcome_of(refused);
            let reason = outcome.reason().map(|reason| reason.kind());
            assert_eq!(reason, Some(ReasonKind::ScopeEnded), "seed {seed}");
        }
    });
}

/// Says what kind of error it got, if it did.
fn say<T>(log: &Log, result: &Result<T, Error>) {
    match result {
        Ok(_) => log.say("Ok"),
        Err(error) => log.say(format!("{:?}", error.kind())),
    }
}

#[test]
fn semantics_point_host_gone() {
    sim_gone(
        "point",
        |log| async move {
            let told = sleep(HOUR).await.map_err(Error::from);
            say(&log, &told);
            let again = checkpoint().await.map_err(Error::from);
            say(&log, &again);
            told
        },
        "Cancelled Cancelled",
    );
}

#[test]
fn semantics_await_host_gone() {
    sim_gone(
        "await",
        |log| async move {
            let late = spawn(async {
                assert!(park().await.is_err());
                Ok::<_, Error>(7)
            });
            let short = spawn(async { sleep(HOUR).await });
            let late = late.await;
            say(&log, &late);
            let short = short.await;
            say(&log, &short);
            short
        },
        "Ok Cancelled",
    );
}

#[test]
fn semantics_join_host_gone() {
    sim_gone(
        "join",
        |log| async move {
            let gate = Gate::new();
            let inner = (gate.clone(), log.clone());
            let job = launch(async move {
                let told = park().await;
                // It goes on after its joiner has left.
                inner.0.wait().await;
                inner.1.say("target");
                told.map(|_| ())
            });
            let told = job.join().await.map_err(Error::from);
            say(&log, &told);
            gate.open();
            told.map(|_| ())
        },
        "Cancelled target",
    );
}

#[test]
fn semantics_exit_host_gone() {
    sim_gone(
        "exit",
        |log| async move {
            let inner = log.clone();
            let answer = scope(async move |s| {
                s.launch(async move {
                    let told = park().await;
                    inner.say("child");
                    told.map(|_| ())
                });
                Ok(())
            })
            .await;
            say(&log, &answer);
            answer
        },
        "child Cancelled",
    );
}

/// What is in a shield is not told: it goes on as long as it need not wait for
/// the clock or for strangers.
#[test]
fn semantics_shield_host_gone() {
    sim_gone(
        "shield",
        |log| async move {
            let gate = Gate::new();
            let inner = gate.clone();
            launch(async move {
                let told = park().await;
                inner.open();
                told.map(|_| ())
            });
            let kept = shield(async {
                gate.wait().await;
                checkpoint().await?;
                Ok::<_, Error>(())
            })
            .await;
            say(&log, &kept);
            let told = checkpoint().await.map_err(Error::from);
            say(&log, &told);
            told
        },
        "Ok Cancelled",
    );
}

/// What still waits in a shield, or cleans up, is dropped there.
#[test]
fn semantics_shield_host_gone_and_it_waits() {
    sim_gone(
        "shield that waits",
        |log| async move {
            let kept = shield(sleep(HOUR)).await;
            say(&log, &kept);
            kept
        },
        "",
    );
    sim_gone(
        "cleanup that waits",
        |log| async move {
            let told = park().await.map_err(Error::from);
            say(&log, &told);
            let kept = cleanup(sleep(HOUR)).await;
            say(&log, &kept);
            kept
        },
        "Cancelled",
    );
}

#[test]
fn semantics_timeout_host_gone() {
    sim_gone(
        "timeout",
        |log| async move {
            let answer = timeout(Duration::from_millis(10), sleep(HOUR)).await;
            say(&log, &answer);
            answer
        },
        "Cancelled",
    );
}

/// Drops a tokio runtime in which `body` waits. No job is told: every future
/// is dropped where it waits, and its job ends.
fn tokio_gone<B>(name: &'static str, body: fn(Log) -> B)
where
    B: Future<Output = Result<(), Error>> + Send + 'static,
{
    guarded(name, move |watched| {
        let tokio = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a tokio runtime");
        let log = Log::new();
        let tally = Tally::new();
        let (root, task) = tokio.block_on(async {
            let root = Root::builder().on_forced(Box::new(|_| {})).build();
            let task = root.scope().spawn(tally.count(body(log.clone())));
            // Turns enough for all of them to wait.
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            (root, task)
        });
        watched.watch(root.tree());
        assert!(tally.polls() > 0);
        let job = task.job();
        drop(tokio);
        assert_eq!(log.text(), "", "{name}");
        assert_eq!(tally.drops(), 1, "{name}");
        assert!(job.is_ended(), "{name}:\n{}", root.snapshot());
        match outcome_of(task) {
            Outcome::Cancelled { reason, late: None } => {
                assert_eq!(reason.root_cause().kind(), ReasonKind::HostGone, "{name}");
            }
            other => panic!("{name}: {other:?}"),
        }
        // The root is left, with no job below it.
        assert_eq!(root.counters().living(), 1, "{name}: {}", root.counters());
    });
}

/// Where a tokio runtime lies until it is dropped.
type Lies = Arc<Mutex<Option<tokio::runtime::Runtime>>>;

/// Drops a tokio runtime, at the latest when it is dropped itself.
struct Drops(Lies);

impl Drops {
    fn now(&self) {
        let runtime = self.0.lock().unwrap().take();
        drop(runtime);
    }
}

impl Drop for Drops {
    fn drop(&mut self) {
        self.now();
    }
}

/// Cancels a task of a tokio runtime whose body `make` makes. Something in that body
/// drops the runtime in the middle of the walk: the walk has claimed the task whose
/// future goes, and ends it when it lets go.
fn gone_in_a_walk<B>(name: &'static str, make: fn(Drops) -> B)
where
    B: Future<Output = Result<(), Error>> + Send + 'static,
{
    guarded(name, move |watched| {
        let tokio = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a tokio runtime");
        let place: Lies = Arc::default();
        let drops = Drops(place.clone());
        let tally = Tally::new();
        let (root, task) = tokio.block_on(async {
            let root = Root::builder().on_forced(Box::new(|_| {})).build();
            let task = root.scope().spawn(tally.count(make(drops)));
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            (root, task)
        });
        watched.watch(root.tree());
        *place.lock().unwrap() = Some(tokio);
        assert!(task.cancel("and the runtime goes"));
        assert!(place.lock().unwrap().is_none(), "the walk has dropped it");
        assert_eq!(tally.drops(), 1);
        assert!(outcome_of(task).is_cancelled());
        assert_eq!(root.counters().living(), 1, "{}", root.counters());
    });
}

#[test]
fn shutdown_1_a_hook_that_drops_its_runtime_on_tokio() {
    gone_in_a_walk("a hook drops its runtime", |drops| async move {
        let _hook = on_cancel(move |_| drops.now());
        launch(park());
        park().await?;
        Ok(())
    });
}

/// What a hook has captured goes after its call.
#[test]
fn shutdown_1_what_a_hook_holds_drops_its_runtime_on_tokio() {
    gone_in_a_walk("a capture drops its runtime", |drops| async move {
        on_cancel(move |_| assert!(drops.0.lock().unwrap().is_some())).keep();
        launch(park());
        park().await?;
        Ok(())
    });
}

/// Two jobs below each other, and the hook of the outer one drops the runtime before the
/// walk has called the inner one's.
#[test]
fn shutdown_1_a_hook_above_others_drops_its_runtime_on_tokio() {
    gone_in_a_walk("an outer hook drops its runtime", |drops| async move {
        on_cancel(move |_| drops.now()).keep();
        scope(async |s| {
            on_cancel(|_| ()).keep();
            s.launch(async {
                on_cancel(|_| ()).keep();
                park().await
            });
            park().await?;
            Ok(())
        })
        .await
    });
}

/// A foreign waker, which drops a runtime when it is woken or when it goes.
struct Foreign {
    drops: Drops,
    when_woken: bool,
}

impl Wake for Foreign {
    fn wake(self: Arc<Self>) {
        if self.when_woken {
            self.drops.now();
        }
    }
}

async fn under_a_foreign_waker(drops: Drops, when_woken: bool) -> Result<(), Error> {
    launch(park());
    let mut leaf = Box::pin(park());
    let waker = Waker::from(Arc::new(Foreign { drops, when_woken }));
    assert!(
        leaf.as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    // The leaf alone has it.
    drop(waker);
    park().await?;
    Ok(())
}

#[test]
fn shutdown_1_a_waker_that_drops_its_runtime_on_tokio() {
    gone_in_a_walk("a wake drops its runtime", |drops| {
        under_a_foreign_waker(drops, true)
    });
}

#[test]
fn shutdown_1_a_waker_that_goes_drops_its_runtime_on_tokio() {
    gone_in_a_walk("a waker drops its runtime", |drops| {
        under_a_foreign_waker(drops, false)
    });
}

#[test]
fn semantics_point_host_gone_on_tokio() {
    tokio_gone("point", |log| async move {
        let told = sleep(HOUR).await.map_err(Error::from);
        say(&log, &told);
        told
    });
}

#[test]
fn semantics_await_host_gone_on_tokio() {
    tokio_gone("await", |log| async move {
        let told = spawn(async { sleep(HOUR).await }).await;
        say(&log, &told);
        told
    });
}

#[test]
fn semantics_join_host_gone_on_tokio() {
    tokio_gone("join", |log| async move {
        let told = launch(async { sleep(HOUR).await }).join().await;
        log.say("past");
        told.map(|_| ()).map_err(Error::from)
    });
}

#[test]
fn semantics_exit_host_gone_on_tokio() {
    tokio_gone("exit", |log| async move {
        let answer = scope(async |s| {
            s.launch(async { sleep(HOUR).await });
            Ok(())
        })
        .await;
        say(&log, &answer);
        answer
    });
}

#[test]
fn semantics_shield_host_gone_on_tokio() {
    tokio_gone("shield", |log| async move {
        let kept = shield(sleep(HOUR)).await;
        say(&log, &kept);
        kept
    });
}

#[test]
fn semantics_timeout_host_gone_on_tokio() {
    tokio_gone("timeout", |log| async move {
        let answer = timeout(HOUR, park()).await;
        say(&log, &answer);
        answer.map(|_| ())
    });
}

/// handle-4: the last lease of a job whose tokio runtime is gone is dropped in a job of
/// the main lane of another host. The job ends there.
#[test]
fn handle_4_the_last_lease_of_a_host_that_is_gone_is_dropped_on_a_main_lane() {
    guarded("handle_4_the_last_lease_of_a_host_that_is_gone", |_| {
        let shelf = Arc::new(Mutex::new(None));
        let place = shelf.clone();
        let tokio = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let root = tokio.block_on(async {
            let root = Root::builder().build();
            let job = root.scope().launch(async move {
                *place.lock().unwrap() = kinfolk_core::Scope::current().unwrap().lease();
            });
            while shelf.lock().unwrap().is_none() {
                tokio::task::yield_now().await;
            }
            assert!(!job.is_ended(), "the lease holds it open");
            root
        });
        drop(tokio);
        let lease = shelf.lock().unwrap().take();
        assert!(lease.is_some());
        let rt = kinfolk_runtime::Runtime::builder()
            .workers(1)
            .build()
            .unwrap();
        rt.block_on(async move { drop(lease) }).unwrap();
        assert_eq!(root.counters().living(), 1, "the root: {}", root.snapshot());
    });
}

/// handle-5: a poll elsewhere that unwinds, because the waker that it is given panics
/// when it is cloned, leaves the scope to the end of the body that opened it.
#[test]
fn handle_5_a_poll_elsewhere_that_unwinds_keeps_no_scope_open() {
    use std::task::{RawWaker, RawWakerVTable};
    fn waker() -> Waker {
        const TABLE: RawWakerVTable =
            RawWakerVTable::new(|_| panic!("the clone of a waker"), |_| {}, |_| {}, |_| {});
        // SAFETY: its functions do nothing with the pointer.
        unsafe { Waker::from_raw(RawWaker::new(std::ptr::null(), &TABLE)) }
    }
    type Kept = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;
    #[derive(Clone, Copy, Debug)]
    enum Then {
        Drop,
        Poll,
        Forget,
    }
    for then in [Then::Drop, Then::Poll, Then::Forget] {
        for seed in 0..seeds() {
            let mut sim = Sim::builder(seed).on_failure(|_| {}).build();
            let shelf = Arc::new(Mutex::new(None::<Kept>));
            let (place, gate) = (shelf.clone(), Gate::new());
            let over = gate.clone();
            let opens = sim.root().spawn(async move {
                let mut kept: Kept =
                    Box::pin(scope(async |_| sleep(HOUR).await.map_err(Error::from)));
                std::future::poll_fn(|cx| {
                    assert!(kept.as_mut().poll(cx).is_pending());
                    Poll::Ready(())
                })
                .await;
                *place.lock().unwrap() = Some(kept);
                over.wait().await;
            });
            sim.settle();
            let polls = sim.root().spawn(async move {
                let mut kept = shelf.lock().unwrap().take().unwrap();
                let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    let waker = waker();
                    let _ = kept.as_mut().poll(&mut Context::from_waker(&waker));
                }));
                assert!(unwound.is_err());
                match then {
                    Then::Drop => drop(kept),
                    Then::Poll => drop(kept.await),
                    Then::Forget => std::mem::forget(kept),
                }
            });
            sim.settle();
            gate.open();
            sim.settle();
            assert!(
                opens.is_ended(),
                "{then:?}, seed {seed}: {}",
                sim.snapshot()
            );
            assert!(
                polls.is_ended(),
                "{then:?}, seed {seed}: {}",
                sim.snapshot()
            );
            if !matches!(then, Then::Forget) {
                sim.finish();
            }
        }
    }
}

/// handle-5: the body around a scope ends in the middle of a poll elsewhere, in which the
/// body of the scope returns a value and its last child has ended as it was told. The
/// poll gives the cancellation, as it does when the scope was given up before.
#[test]
fn handle_5_a_scope_left_open_in_the_middle_of_a_poll_elsewhere() {
    type Kept = Pin<Box<dyn Future<Output = Result<u8, Error>> + Send>>;
    guarded("left open in a poll", |_| {
        let rt = Runtime::builder()
            .workers(2)
            .on_failure(Box::new(|_| {}))
            .build()
            .unwrap();
        let shelf = Arc::new(Mutex::new(None::<Kept>));
        let inside = Arc::new(AtomicBool::new(false));
        let (place, polled) = (shelf.clone(), inside.clone());
        let opens = rt.scope().launch(async move {
            let enters = polled.clone();
            let mut kept: Kept = Box::pin(scope(async move |s| {
                let child = s.launch(async { park().await.map(drop) });
                let mut first = true;
                std::future::poll_fn(|_| {
                    if std::mem::take(&mut first) {
                        return Poll::Pending;
                    }
                    enters.store(true, SeqCst);
                    while !child.is_ended() {
                        std::thread::yield_now();
                    }
                    Poll::Ready(())
                })
                .await;
                Ok(7)
            }));
            std::future::poll_fn(|cx| {
                assert!(kept.as_mut().poll(cx).is_pending());
                Poll::Ready(())
            })
            .await;
            *place.lock().unwrap() = Some(kept);
            while !polled.load(SeqCst) {
                yield_now().await?;
            }
            Ok::<_, Error>(())
        });
        let mut kept = loop {
            if let Some(kept) = shelf.lock().unwrap().take() {
                break kept;
            }
            std::thread::yield_now();
        };
        let mut cx = Context::from_waker(Waker::noop());
        let Poll::Ready(answer) = kept.as_mut().poll(&mut cx) else {
            panic!("body and children are over");
        };
        let told = answer.expect_err("the value goes with its scope");
        assert_eq!(told.kind(), ErrorKind::Cancelled, "{told:?}");
        assert_eq!(told.reason().unwrap().kind(), ReasonKind::ScopeEnded);
        drop(kept);
        let _ = rt.wait_for(opens.join()).unwrap();
        let report = rt.shutdown(Duration::from_secs(60)).unwrap();
        assert!(report.is_clean(), "{report}");
    });
}
