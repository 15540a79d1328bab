//! The conformance suite on the native runtime: no workers, and two; by script
//! one and eight as well.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use kinfolk_core::Tree;
use kinfolk_runtime::Runtime;
use kinfolk_testkit::harness::{Case, Fixture, expect_completed, expect_nothing_left, seeds};
use kinfolk_testkit::{Gate, Lab, guarded};

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
fn at_rest(tree: &Tree) {
    while tree.counters().living() > 1 && tree.snapshot().len() <= 1 {
        std::thread::yield_now();
    }
}

fn on_native(name: &'static str, workers: usize, case: fn(Lab) -> Case) {
    guarded(name, move |watched| {
        for run in 0..runs() {
            let fixture = Fixture::new();
            let rt = Runtime::builder()
                .workers(workers)
                .on_failure(Box::new(fixture.failure_hook()))
                .on_forced(Box::new(|_| {}))
                .sink(fixture.events.clone())
                .clock(Arc::new(fixture.clock.clone()))
                .build()
                .expect("a runtime");
            watched.watch(rt.tree());
            let lab = fixture.lab(rt.tree(), run);
            // The case begins when its end is waited for, so that the wait of
            // this thread is no event of the case.
            let gate = Gate::new();
            let (open, case) = (gate.clone(), case(lab));
            let main = rt.scope().task("main").spawn(async move {
                gate.wait().await;
                case.await;
            });
            let mut ended = pin!(main.outcome());
            let mut waiting = false;
            let outcome = rt
                .wait_for(std::future::poll_fn(|cx| {
                    let polled = ended.as_mut().poll(cx);
                    if !std::mem::replace(&mut waiting, true) {
                        open.open();
                    }
                    polled
                }))
                .and_then(|outcome| Ok(outcome?))
                .expect("main is awaited outside any job");
            expect_completed(name, run, outcome);
            at_rest(rt.tree());
            expect_nothing_left(name, run, rt.tree());
            let tree = rt.tree().clone();
            let report = rt.shutdown(Duration::from_secs(1));
            assert!(
                report.as_ref().is_ok_and(|r| r.stragglers.is_empty()),
                "{report:?}"
            );
            assert_eq!(tree.counters().living(), 0, "{}", tree.counters());
            assert_eq!(tree.counters().waiters_pending(), 0, "{}", tree.counters());
        }
    });
}

macro_rules! on_no_workers {
    ($($module:ident: $($name:ident),* $(,)?);* $(;)?) => {
        mod no_workers {
            $($(#[test]
            fn $name() {
                super::on_native(
                    stringify!($name),
                    0,
                    |lab| Box::pin(kinfolk_conformance::$module::$name(lab)),
                );
            })*)*
        }
    };
}

macro_rules! on_two_workers {
    ($($module:ident: $($name:ident),* $(,)?);* $(;)?) => {
        mod workers {
            $($(#[test]
            fn $name() {
                if super::needs_one_thread(stringify!($name)) {
                    return;
                }
                super::on_native(
                    stringify!($name),
                    super::workers(),
                    |lab| Box::pin(kinfolk_conformance::$module::$name(lab)),
                );
            })*)*
        }
    };
}

/// Two, unless `KINFOLK_WORKERS` says otherwise.
fn workers() -> usize {
    std::env::var("KINFOLK_WORKERS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(2)
}

kinfolk_conformance::for_each_case!(on_no_workers);
kinfolk_conformance::for_each_case!(on_two_workers);
