//! Trees a million deep and a million wide, on a stack of two megabytes.
//! `KINFOLK_SCALE` is the size of the million (100,000 unless set;
//! `scripts/scale` runs it in full).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use kinfolk_core::{Error, JobState, Scope, Task, launch, park, scope};
use kinfolk_testkit::{Sim, guarded};

fn size() -> usize {
    std::env::var("KINFOLK_SCALE")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(100_000)
}

type Body = std::pin::Pin<Box<dyn Future<Output = kinfolk_core::Result<()>> + Send>>;

/// A task that launches the next one below itself, and parks.
fn link(left: usize, fail_at_the_bottom: bool) -> Body {
    Box::pin(async move {
        if left > 0 {
            launch(link(left - 1, fail_at_the_bottom));
        } else if fail_at_the_bottom {
            return Err(Error::msg("the bottom"));
        }
        park().await?;
        Ok(())
    })
}

#[test]
fn tree_8_a_chain_a_million_deep_is_cancelled_without_recursion() {
    guarded("deep", |_| {
        let n = size();
        let mut sim = Sim::seeded(1);
        let top = sim.root().spawn(link(n, false));
        sim.settle();
        assert_eq!(sim.counters().living(), n as u64 + 2);
        assert_eq!(sim.snapshot().len(), n + 2);
        assert!(top.cancel("enough"));
        sim.settle();
        assert!(top.is_ended());
        assert_eq!(sim.counters().jobs_cancelled, n as u64 + 1);
        drop(top);
        sim.finish();
    });
}

#[test]
fn tree_8_a_failure_climbs_a_chain_a_million_deep() {
    guarded("deep failure", |_| {
        let n = size();
        let mut sim = Sim::builder(1).on_failure(|_| {}).build();
        let top = sim.root().spawn(link(n, true));
        let job = top.job();
        sim.settle();
        assert_eq!(job.state(), JobState::Failed);
        assert_eq!(sim.counters().jobs_failed, n as u64 + 1);
        drop(top);
        sim.finish();
    });
}

/// Each attach, each wake and each join costs the same however many there are:
/// a million of them would not come to an end otherwise.
/// Also: K22.
#[test]
fn tree_8_a_scope_a_million_wide_is_cancelled_in_one_walk() {
    guarded("wide", |_| {
        let n = size();
        let mut sim = Sim::seeded(1);
        let top = sim.root().spawn(async move {
            scope(async |s: Scope| {
                for _ in 0..n {
                    s.launch(async { park().await });
                }
                park().await?;
                Ok(())
            })
            .await
        });
        sim.settle();
        assert_eq!(sim.counters().living(), n as u64 + 3);
        assert!(top.cancel("enough"));
        sim.settle();
        assert!(top.is_ended());
        assert_eq!(sim.counters().jobs_cancelled, n as u64 + 2);
        drop(top);
        sim.finish();
    });
}

#[test]
fn tree_8_a_deep_tree_is_dropped_with_its_host() {
    guarded("drop", |_| {
        let n = size();
        let mut sim = Sim::builder(1).on_forced(|_| {}).build();
        let top: Task<()> = sim.root().spawn(link(n, false));
        sim.settle();
        drop(sim);
        assert!(top.is_ended());
    });
}

/// Completed jobs, the whole chain of them, end one after the other in a loop.
#[test]
fn tree_8_a_chain_a_million_deep_completes_from_below() {
    fn fall(left: usize, done: Arc<AtomicUsize>) -> Body {
        Box::pin(async move {
            if left > 0 {
                launch(fall(left - 1, done.clone()));
            }
            done.fetch_add(1, Relaxed);
            Ok(())
        })
    }
    guarded("complete", |_| {
        let n = size();
        let done = Arc::new(AtomicUsize::new(0));
        let mut sim = Sim::seeded(1);
        let inner = done.clone();
        let ended = sim.run(async move { launch(fall(n, inner)).join().await });
        assert!(ended.expect("main ends").is_completed());
        assert_eq!(done.load(Relaxed), n + 1);
        sim.finish();
    });
}
