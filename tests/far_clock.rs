//! A host's clock at the end of what it can show, a clock that panics, and the
//! most roots that a process can have.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::Waker;
use std::time::{Duration, Instant};

use kinfolk_core::host::{BlockingCall, Host, TimerKey, TimerQueue, Turn, TurnRow};
use kinfolk_core::{Clock, Tree, TreeOptions, shield, sleep};
use kinfolk_runtime::{HostClock, Runtime};
use kinfolk_testkit::guarded;

const HOUR: Duration = Duration::from_secs(3600);

/// The latest instant there is.
fn latest() -> Instant {
    let mut far = Instant::now();
    let mut step = Duration::from_secs(1 << 62);
    while !step.is_zero() {
        match far.checked_add(step) {
            Some(later) => far = later,
            None => step /= 2,
        }
    }
    far
}

/// Moves the clock of a runtime with a task that outlasts the grace, and shuts it
/// down.
fn shuts_down_after(name: &'static str, far: impl Fn(&Runtime, &HostClock) + Send + 'static) {
    guarded(name, move |watched| {
        for workers in [0, 2] {
            let clock = HostClock::new();
            clock.pause();
            let rt = Runtime::builder()
                .workers(workers)
                .clock(clock.shared())
                .on_forced(Box::new(|_| {}))
                .build()
                .unwrap();
            watched.watch(rt.tree());
            rt.block_on(async {}).unwrap();
            far(&rt, &clock);
            let end = clock.now();
            assert!(clock.now() >= end, "it went back");
            let begun = Arc::new(AtomicBool::new(false));
            let begins = begun.clone();
            rt.scope().launch(async move {
                begins.store(true, SeqCst);
                shield(sleep(HOUR)).await
            });
            while !begun.load(SeqCst) {
                rt.block_on(async {}).unwrap();
            }
            let (grace, began) = (Duration::from_millis(20), Instant::now());
            let report = rt.shutdown(grace).unwrap();
            assert!(report.stragglers.is_empty(), "{report}");
            assert!(report.took >= grace, "{report}");
            assert!(began.elapsed() >= grace, "the grace is real");
        }
    });
}

#[test]
fn shutdown_1_a_clock_that_was_set_to_the_latest_instant_still_shuts_down() {
    shuts_down_after("latest", |rt, clock| {
        rt.run_expired(latest()).unwrap();
        assert!(clock.real_time_until(latest()).is_none());
        clock.resume();
    });
}

#[test]
fn shutdown_1_a_clock_that_was_moved_on_without_end_still_shuts_down() {
    shuts_down_after("moved on", |_, clock| {
        clock.advance(Duration::MAX);
        clock.advance(Duration::MAX);
        clock.resume();
    });
}

#[test]
fn shutdown_1_a_clock_at_the_highest_rate_still_shuts_down() {
    shuts_down_after("rate", |rt, clock| {
        clock.resume();
        for rate in [1e18, f64::MAX, f64::MIN_POSITIVE, f64::MAX] {
            clock.set_rate(rate);
            let _ = clock.now();
            // A worker waits for a timer meanwhile.
            rt.scope().launch(async { sleep(HOUR).await });
            rt.block_on(async {}).unwrap();
        }
        while clock.now() != clock.now() {
            std::thread::yield_now();
        }
    });
}

/// A clock that panics, once it is told to.
struct Panics(Arc<AtomicBool>);

impl Clock for Panics {
    fn now(&self) -> Instant {
        if self.0.load(SeqCst) {
            // No words on standard error but ours.
            std::panic::resume_unwind(Box::new("the clock has stopped"));
        }
        Instant::now()
    }
}

/// Runs one test of this file alone, as a process of its own.
fn alone(test: &str) -> Option<std::process::Output> {
    if std::env::var_os("KINFOLK_ALONE").is_some() {
        return None;
    }
    let me = std::env::current_exe().expect("this test");
    let out = Command::new(me)
        .args(["--exact", test, "--test-threads", "1", "--nocapture"])
        .env("KINFOLK_ALONE", "1")
        .output()
        .expect("it runs");
    Some(out)
}

/// The process that runs this test alone is gone, and has said why.
fn aborted(test: &str, words: &str) -> bool {
    let Some(out) = alone(test) else { return false };
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success(), "{said}");
    assert!(said.contains(words), "{said}");
    true
}

/// A runtime whose clock panics when a timer is due, which has been set.
fn breaks(workers: usize) -> Runtime {
    let broken = Arc::new(AtomicBool::new(false));
    let rt = Runtime::builder()
        .workers(workers)
        .clock(Arc::new(Panics(broken.clone())))
        .build()
        .unwrap();
    // Again, if one was over before it was seen.
    while rt.next_deadline().is_none() {
        rt.scope()
            .launch(async { sleep(Duration::from_millis(500)).await });
        rt.block_on(sleep(Duration::from_millis(1))).unwrap();
    }
    broken.store(true, SeqCst);
    rt
}

/// The counts of a worker that unwinds outside any job are wrong: it does not
/// go on.
#[test]
fn a_worker_that_panics_outside_every_job_aborts_the_process() {
    let name = "a_worker_that_panics_outside_every_job_aborts_the_process";
    if aborted(name, "a worker panicked outside any job") {
        return;
    }
    let _rt = breaks(2);
    // The process is gone long before that.
    std::thread::sleep(Duration::from_secs(20));
    std::process::exit(0);
}

/// So does the main thread, which would unwind for ever.
#[test]
fn a_main_thread_that_panics_outside_every_job_aborts_the_process() {
    let name = "a_main_thread_that_panics_outside_every_job_aborts_the_process";
    if aborted(name, "the main thread panicked outside any job") {
        return;
    }
    std::thread::spawn(|| {
        std::thread::sleep(Duration::from_secs(20));
        std::process::exit(0);
    });
    let rt = breaks(0);
    let _ = rt.wait_for(std::future::pending::<()>());
}

/// A host that does nothing.
struct Still;

impl Host for Still {
    fn start(&self, turn: Turn) {
        drop(turn);
    }

    fn schedule(&self, ready: TurnRow) {
        drop(ready);
    }

    fn run_blocking(&self, call: BlockingCall) {
        drop(call);
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

/// tree-8: an error where the call returns one, else a panic with the same words; and
/// there is room again once a root has ended.
#[test]
fn tree_8_a_root_beyond_the_most_of_a_process_is_an_error() {
    let name = "tree_8_a_root_beyond_the_most_of_a_process_is_an_error";
    if let Some(out) = alone(name) {
        assert!(out.status.success(), "{out:?}");
        return;
    }
    let build = || Runtime::builder().workers(1).build();
    let trees: Vec<Tree> = (0..4095)
        .map(|_| Tree::new(Box::new(Still), TreeOptions::default()))
        .collect();
    let error = build().expect_err("there is no room").to_string();
    assert!(
        error.contains("4095 Kinfolk roots exist already"),
        "{error}"
    );
    assert!(error.contains("shut some down"), "{error}");
    let panicked = std::panic::catch_unwind(|| {
        drop(Tree::new(Box::new(Still), TreeOptions::default()));
    });
    let words = panicked.expect_err("there is no room");
    let words = words.downcast_ref::<String>().expect("words");
    assert!(
        words.contains("4095 Kinfolk roots exist already"),
        "{words}"
    );
    for tree in trees {
        tree.request_shutdown(kinfolk_core::ReasonKind::Shutdown);
    }
    assert_eq!(build().unwrap().block_on(async { 7 }).unwrap(), 7);
}
