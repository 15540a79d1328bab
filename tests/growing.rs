//! Trees that grow while they are looked at or shut down, faster than that goes: a look
//! ends, and so does a shutdown.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kinfolk_core::{Clock, Error, Scope, launch, park, shield};
use kinfolk_runtime::Runtime;
use kinfolk_testkit::guarded;

/// A clock that makes the tree grow whenever it is asked, by a child of the job that it
/// made last.
#[derive(Default)]
struct Grows {
    last: Mutex<Option<Scope>>,
    left: AtomicUsize,
    growing: AtomicBool,
}

impl Clock for Grows {
    fn now(&self) -> Instant {
        let grows = self.left.load(SeqCst) > 0 && !self.growing.swap(true, SeqCst);
        if grows {
            self.left.fetch_sub(1, SeqCst);
            let last = self.last.lock().unwrap().take().unwrap();
            let job = last.launch(park());
            *self.last.lock().unwrap() = Some(Scope::of_job(&job));
            self.growing.store(false, SeqCst);
        }
        Instant::now()
    }
}

/// A snapshot asks the clock at every job.
#[test]
fn see_2_a_snapshot_does_not_run_after_what_is_made_meanwhile() {
    const MOST: usize = 10_000;
    let clock = Arc::new(Grows::default());
    let rt = Runtime::builder()
        .workers(0)
        .clock(clock.clone())
        .build()
        .unwrap();
    let first = rt.scope().task("first").launch(park());
    *clock.last.lock().unwrap() = Some(Scope::of_job(&first));
    clock.left.store(MOST, SeqCst);
    let tree = rt.snapshot();
    assert!(clock.left.swap(0, SeqCst) < MOST, "it has grown meanwhile");
    assert!(tree.find("first").is_some(), "what lived is listed");
    // Threads take the numbers of jobs in blocks: some of the first are listed too.
    assert!(tree.len() < 200, "{} jobs", tree.len());
}

/// A report looks at so many jobs and no more, however many there are.
#[test]
fn shutdown_1_the_report_is_bounded() {
    guarded("a report", |_| {
        const LOOKED_AT: usize = 100_000;
        let rt = Runtime::builder()
            .workers(0)
            .on_forced(Box::new(|_| {}))
            .build()
            .unwrap();
        for _ in 0..LOOKED_AT + 10 {
            rt.scope().launch(std::future::pending::<()>());
        }
        rt.block_on(async {}).unwrap();
        let at_once = rt.tree().shutdown(Duration::ZERO, Duration::ZERO);
        let report = rt.wait_for(at_once).unwrap().unwrap();
        for list in [&report.late, &report.dropped, &report.stragglers] {
            assert!(list.len() <= LOOKED_AT, "{}", list.len());
        }
        // The root is looked at too.
        assert_eq!(report.left_out, 11);
        let said = report.to_string();
        assert!(said.ends_with("\n11 more jobs were not looked at"));
        assert!(!report.is_clean());
    });
}

type Body = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// How many jobs a chain has, which ends after so many.
const END: usize = 2_000_000;

/// A job that makes another that makes another.
#[derive(Clone, Copy)]
enum Chain {
    Plain,
    Atomic,
    Shielded,
}

impl Chain {
    fn link(self, made: Arc<AtomicUsize>) -> Body {
        Box::pin(async move {
            if made.fetch_add(1, SeqCst) == END {
                return Ok(());
            }
            let next = self.link(made);
            match self {
                Chain::Plain => drop(launch(next)),
                Chain::Atomic => {
                    let here = Scope::current().unwrap();
                    drop(here.spawn_atomic(next).into_job());
                }
                Chain::Shielded => {
                    let inside = async {
                        drop(launch(next));
                        Ok::<_, Error>(())
                    };
                    shield(inside).await?;
                }
            }
            Ok(())
        })
    }
}

/// Lets a chain grow, and calls `meanwhile`. Answers how many jobs it had after that.
fn while_it_grows(chain: Chain, workers: usize, meanwhile: impl FnOnce(&Runtime)) -> usize {
    let made = Arc::new(AtomicUsize::new(0));
    let rt = Runtime::builder()
        .workers(workers)
        .on_forced(Box::new(|_| {}))
        .build()
        .unwrap();
    rt.scope().launch(chain.link(made.clone()));
    while made.load(SeqCst) < 1000 {
        std::thread::yield_now();
    }
    meanwhile(&rt);
    let had = made.load(SeqCst);
    rt.shutdown(Duration::ZERO).unwrap();
    had
}

#[test]
fn see_2_a_snapshot_ends_while_the_tree_grows() {
    guarded("a snapshot", |_| {
        let had = while_it_grows(Chain::Plain, 1, |rt| drop(rt.snapshot()));
        assert!(had < END, "it ended when the tree grew no more");
    });
}

#[test]
fn shutdown_1_it_ends_while_the_tree_grows() {
    guarded("a shutdown", |_| {
        for chain in [Chain::Atomic, Chain::Shielded] {
            for workers in [1, 2] {
                let had = while_it_grows(chain, workers, |rt| {
                    let at_once = rt.tree().shutdown(Duration::ZERO, Duration::ZERO);
                    let report = rt.wait_for(at_once).unwrap().unwrap();
                    assert!(!report.is_clean());
                });
                assert!(had < END, "it ended when the tree grew no more");
            }
        }
    });
}
