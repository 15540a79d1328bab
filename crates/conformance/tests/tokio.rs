//! The conformance suite on tokio: current-thread, two workers, and a `LocalSet` whose
//! thread is the main lane, with the case itself on that lane; by script one worker and
//! eight, and a runtime whose own clock is paused, as well.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use kinfolk_core::{Main, Tree};
use kinfolk_testkit::harness::{Case, Fixture, expect_completed, expect_nothing_left, seeds};
use kinfolk_testkit::{Gate, Lab, guarded};
use kinfolk_tokio::Root;
use tokio::runtime::{Builder, Runtime};
use tokio::task::LocalSet;

/// There is no seed to sweep here: a few runs each are what CI has time for.
fn runs() -> u64 {
    (seeds() / 30).max(1)
}

/// Cases that need a host with one thread, with the reason for each.
const ONE_THREAD: &str = include_str!("one_thread.txt");

fn needs_one_thread(name: &str) -> bool {
    ONE_THREAD
        .lines()
        .any(|line| line.split(" # ").next() == Some(name))
}

/// Cases that cannot hold where the case runs on the main lane and its children in the
/// pool, with the reason for each.
const LOCAL_SET: &str = include_str!("local_set.txt");

fn needs_one_lane(name: &str) -> bool {
    LOCAL_SET
        .lines()
        .any(|line| line.split(" # ").next() == Some(name))
}

/// Where the main job of a case runs.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Pool,
    /// On the thread of a `LocalSet`.
    Set,
}

/// The end of a job is visible a moment before it is counted and out of the
/// tree: waits for that moment to pass. The guard bounds the wait.
async fn at_rest(tree: &Tree) {
    while tree.counters().living() > 1 && tree.snapshot().len() <= 1 {
        tokio::task::yield_now().await;
    }
}

fn on_tokio(name: &'static str, place: Place, make: fn() -> Runtime, case: fn(Lab) -> Case) {
    guarded(name, move |watched| {
        for number in 0..runs() {
            let fixture = Fixture::new();
            let run = async {
                let root = Root::builder()
                    .on_failure(Box::new(fixture.failure_hook()))
                    .on_forced(Box::new(|_| {}))
                    .sink(fixture.events.clone())
                    .clock(Arc::new(fixture.clock.clone()));
                let root = match place {
                    Place::Pool => root.build(),
                    Place::Set => root.local().build(),
                };
                watched.watch(root.tree());
                let lab = fixture.lab(root.tree(), number);
                // The case begins when its end is waited for, so that the wait
                // of this thread is no event of the case.
                let gate = Gate::new();
                let (open, case) = (gate.clone(), case(lab));
                let main = async move {
                    gate.wait().await;
                    case.await;
                };
                let spawner = root.scope().task("main");
                let main = match place {
                    Place::Pool => spawner.spawn(main),
                    Place::Set => spawner.on(Main).spawn(main),
                };
                let mut ended = pin!(main.outcome());
                let mut waiting = false;
                let outcome = std::future::poll_fn(|cx| {
                    let polled = ended.as_mut().poll(cx);
                    if !std::mem::replace(&mut waiting, true) {
                        open.open();
                    }
                    polled
                })
                .await
                .expect("main is awaited outside any job");
                expect_completed(name, number, outcome);
                at_rest(root.tree()).await;
                expect_nothing_left(name, number, root.tree());
                let report = root.shutdown_in(Duration::from_secs(1)).await;
                assert!(
                    report.as_ref().is_ok_and(|r| r.stragglers.is_empty()),
                    "{report:?}"
                );
                assert_eq!(root.counters().living(), 0, "{}", root.counters());
                assert_eq!(root.counters().waiters_pending(), 0, "{}", root.counters());
            };
            match place {
                Place::Pool => make().block_on(run),
                Place::Set => LocalSet::new().block_on(&make(), run),
            }
        }
    });
}

fn current_thread() -> Runtime {
    Builder::new_current_thread()
        .enable_time()
        .start_paused(std::env::var_os("KINFOLK_PAUSED").is_some())
        .build()
        .expect("a tokio runtime")
}

/// With two workers, unless `KINFOLK_WORKERS` says otherwise.
fn workers() -> Runtime {
    let workers = std::env::var("KINFOLK_WORKERS");
    let workers = workers.ok().and_then(|text| text.parse().ok());
    Builder::new_multi_thread()
        .worker_threads(workers.unwrap_or(2))
        .enable_time()
        .build()
        .expect("a tokio runtime")
}

macro_rules! on_current_thread {
    ($($module:ident: $($name:ident),* $(,)?);* $(;)?) => {
        mod current_thread {
            $($(#[test]
            fn $name() {
                super::on_tokio(
                    stringify!($name),
                    super::Place::Pool,
                    super::current_thread,
                    |lab| Box::pin(kinfolk_conformance::$module::$name(lab)),
                );
            })*)*
        }
    };
}

macro_rules! on_workers {
    ($($module:ident: $($name:ident),* $(,)?);* $(;)?) => {
        mod workers {
            $($(#[test]
            fn $name() {
                if super::needs_one_thread(stringify!($name)) {
                    return;
                }
                super::on_tokio(
                    stringify!($name),
                    super::Place::Pool,
                    super::workers,
                    |lab| Box::pin(kinfolk_conformance::$module::$name(lab)),
                );
            })*)*
        }
    };
}

macro_rules! on_local_set {
    ($($module:ident: $($name:ident),* $(,)?);* $(;)?) => {
        mod local_set {
            $($(#[test]
            fn $name() {
                if super::needs_one_lane(stringify!($name)) {
                    return;
                }
                super::on_tokio(
                    stringify!($name),
                    super::Place::Set,
                    super::current_thread,
                    |lab| Box::pin(kinfolk_conformance::$module::$name(lab)),
                );
            })*)*
        }
    };
}

kinfolk_conformance::for_each_case!(on_current_thread);
kinfolk_conformance::for_each_case!(on_workers);
kinfolk_conformance::for_each_case!(on_local_set);
