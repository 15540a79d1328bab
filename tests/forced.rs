//! Jobs that are started while shutdown drops what is parked: none of them
//! outlives it.

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use kinfolk_core::{FORCE, ReasonKind, cleanup, launch, on_cancel, park, scope, shield, sleep};
use kinfolk_runtime::Runtime;
use kinfolk_testkit::harness::seeds;
use kinfolk_testkit::{Sim, Tally, guarded};

const HOUR: Duration = Duration::from_secs(3600);
const GRACE: Duration = Duration::from_secs(5);

/// The hook of a job that is being forced starts a task beside it, in a shield
/// that was opened after the others were lifted.
#[test]
fn shutdown_1_what_a_hook_starts_while_it_is_forced_is_refused() {
    guarded("shutdown_1_hook", |watched| {
        for seed in 0..seeds() {
            let mut sim = Sim::builder(seed).on_forced(|_| {}).build();
            watched.watch(sim.tree());
            let (helper, refusal) = (Tally::new(), Arc::new(Mutex::new(None)));
            let (counted, said) = (helper.clone(), refusal.clone());
            sim.root().launch(async move {
                // The second is told when shutdown lifts the shield.
                let _ = park().await;
                let _ = shield(park()).await;
                let _ = shield(scope(async move |s| {
                    let into = s.clone();
                    s.launch(async move {
                        let _hook = on_cancel(move |_| {
                            let helps = counted.count(async { shield(sleep(HOUR)).await });
                            let task = into.spawn_atomic(helps);
                            *said.lock().unwrap() = task.job().reason().map(|reason| reason.kind());
                        });
                        park().await
                    });
                    Ok(sleep(HOUR).await?)
                }))
                .await;
            });
            sim.settle();
            let report = sim.shutdown(GRACE);
            assert!(report.stragglers.is_empty(), "seed {seed}: {report}");
            assert_eq!(sim.tree().counters().living(), 0, "seed {seed}");
            assert_eq!((helper.polls(), helper.drops()), (0, 1), "seed {seed}");
            assert_eq!(
                *refusal.lock().unwrap(),
                Some(ReasonKind::Shutdown),
                "seed {seed}"
            );
        }
    });
}

/// A task that starts another of its kind when it is told.
fn begets(started: Arc<AtomicUsize>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        started.fetch_add(1, SeqCst);
        let _ = park().await;
        let _ = cleanup(async {
            launch(begets(started));
            sleep(HOUR).await
        })
        .await;
    })
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls outside any job, on this thread.
fn wait_for<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        thread::park();
    }
}

/// Bodies run on four workers while shutdown forces them, and each that is told
/// starts another.
#[test]
fn shutdown_1_bodies_that_start_others_while_they_are_forced_leave_nothing() {
    guarded("shutdown_1_begets", |watched| {
        for _ in 0..10 {
            let rt = Runtime::builder()
                .workers(4)
                .on_failure(Box::new(|_| {}))
                .on_forced(Box::new(|_| {}))
                .build()
                .unwrap();
            watched.watch(rt.tree());
            let started = Arc::new(AtomicUsize::new(0));
            for _ in 0..200 {
                rt.scope().launch(begets(started.clone()));
            }
            while started.load(SeqCst) < 200 {
                thread::yield_now();
            }
            let tree = rt.tree().clone();
            wait_for(tree.shutdown(Duration::from_millis(50), FORCE / 10)).unwrap();
            // The report does not wait for a machine that is slow; the workers
            // go on.
            let began = Instant::now();
            while tree.counters().living() > 0 && began.elapsed() < Duration::from_secs(5) {
                thread::yield_now();
            }
            assert_eq!(tree.counters().living(), 0, "{}", tree.snapshot());
        }
    });
}
