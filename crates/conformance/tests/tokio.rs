//! The conformance suite on tokio: current-thread, and two workers.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use kinfolk_core::Tree;
use kinfolk_testkit::harness::{Case, Fixture, expect_completed, expect_nothing_left, seeds};
use kinfolk_testkit::{Gate, Lab, guarded};
use kinfolk_tokio::Root;
use tokio::runtime::{Builder, Runtime};

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

/// The end of a job is visible a moment before it is counted and out of the
/// tree: waits for that moment to pass. The guard bounds the wait.
async fn at_rest(tree: &Tree) {
    while tree.counters().living() > 1 && tree.snapshot().len() <= 1 {
        tokio::task::yield_now().await;
    }
}

fn on_tokio(name: &'static str, make: fn() -> Runtime, case: fn(Lab) -> Case) {
    guarded(name, move |watched| {
        for run in 0..runs() {
            let fixture = Fixture::new();
            make().block_on(async {
                let root = Root::builder()
                    .on_failure(Box::new(fixture.failure_hook()))
                    .on_forced(Box::new(|_| {}))
                    .sink(fixture.events.clone())
                    .clock(Arc::new(fixture.clock.clone()))
                    .build();
                watched.watch(root.tree());
                let lab = fixture.lab(root.tree(), run);
                // The case begins when its end is waited for, so that the wait
                // of this thread is no event of the case.
                let gate = Gate::new();
                let (open, case) = (gate.clone(), case(lab));
                let main = root.scope().task("main").spawn(async move {
                    gate.wait().await;
                    case.await;
                });
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
                expect_completed(name, run, outcome);
                at_rest(root.tree()).await;
                expect_nothing_left(name, run, root.tree());
                let report = root.shutdown_in(Duration::from_secs(1)).await;
                assert!(
                    report.as_ref().is_ok_and(|r| r.stragglers.is_empty()),
                    "{report:?}"
                );
                assert_eq!(root.counters().living(), 0, "{}", root.counters());
                assert_eq!(root.counters().waiters_pending(), 0, "{}", root.counters());
            });
        }
    });
}

fn current_thread() -> Runtime {
    Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a tokio runtime")
}

fn two_workers() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(2)
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
                    super::current_thread,
                    |lab| Box::pin(kinfolk_conformance::$module::$name(lab)),
                );
            })*)*
        }
    };
}

macro_rules! on_two_workers {
    ($($module:ident: $($name:ident),* $(,)?);* $(;)?) => {
        mod two_workers {
            $($(#[test]
            fn $name() {
                if super::needs_one_thread(stringify!($name)) {
                    return;
                }
                super::on_tokio(
                    stringify!($name),
                    super::two_workers,
                    |lab| Box::pin(kinfolk_conformance::$module::$name(lab)),
                );
            })*)*
        }
    };
}

kinfolk_conformance::for_each_case!(on_current_thread);
kinfolk_conformance::for_each_case!(on_two_workers);
