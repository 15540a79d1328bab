//! Work that goes on beside the body of a job, such as i/o.

use std::future::poll_fn;
use std::sync::{Arc, Mutex};

use kinfolk_core::kit::{Reap, Work, cancelled_here};
use kinfolk_core::{Error, JobState, Scope, cancel_current, park, shield, spawn};
use kinfolk_testkit::{Gate, Lab, Log};

/// Where the work of a job is kept while it goes on.
type Kept = Arc<Mutex<Option<Work>>>;

fn keep(kept: &Kept, work: Option<Work>) {
    *kept.lock().expect("not poisoned") = work;
}

/// Work that no other thread carries out: the host may settle meanwhile.
fn beside(stop: impl FnOnce() + Send + 'static) -> Option<Work> {
    Work::here(stop).map(Work::lets_time_pass)
}

/// Work holds its job open; when the body is over it is asked to stop, once.
pub async fn io_2_work_is_asked_to_stop_when_the_body_is_over(lab: Lab) {
    let (kept, log) = (Kept::default(), Log::new());
    let task = spawn({
        let (kept, log) = (kept.clone(), log.clone());
        async move {
            let stopped = log.clone();
            keep(&kept, beside(move || stopped.say("stop")));
            log.say("body");
        }
    });
    let job = task.job();
    lab.settle().await;
    assert_eq!(log.text(), "body stop");
    assert_eq!(job.state(), JobState::Completing, "{job:?}");
    keep(&kept, None);
    task.await.expect("it has completed");
    assert_eq!(log.text(), "body stop");
}

/// A cancel leaves work alone while the body runs.
pub async fn src_m13_a_cancel_leaves_work_alone(lab: Lab) {
    let (kept, log) = (Kept::default(), Log::new());
    let gate = Gate::new();
    let task = spawn({
        let (kept, log, gate) = (kept.clone(), log.clone(), gate.clone());
        async move {
            let stopped = log.clone();
            keep(&kept, beside(move || stopped.say("stop")));
            park().await.expect_err("it is cancelled");
            log.say("told");
            shield(async { gate.wait().await }).await?;
            log.say("over");
            Ok::<_, Error>(())
        }
    });
    lab.settle().await;
    task.cancel("enough");
    lab.settle().await;
    assert_eq!(log.text(), "told");
    gate.open();
    lab.settle().await;
    assert_eq!(log.text(), "told over stop");
    keep(&kept, None);
    let _ = task.outcome().await;
}

async fn reap() -> usize {
    let mut reap = Reap::new();
    poll_fn(move |cx| reap.poll_reap(cx)).await
}

/// What is finished is taken note of once, and then forgotten.
pub async fn src_m08_finished_work_is_reaped_once(lab: Lab) {
    let task = spawn(async {
        let mut works: Vec<_> = (0..3).filter_map(|_| Work::here(|| {})).collect();
        works[1].finish();
        assert_eq!(reap().await, 2);
        works[0].finish();
        // Whoever has its result needs no note of it.
        drop(works.remove(0));
        works[1].finish();
        assert_eq!(reap().await, 0);
        assert_eq!(reap().await, 0, "there is none");
        assert_eq!(works.len(), 2);
    });
    task.await.expect("it has completed");
    drop(lab);
}

/// Outside a job, and in one whose body is over, there is none.
pub async fn io_2_work_belongs_to_a_job_whose_body_runs(lab: Lab) {
    let over = spawn(async { Ok::<_, Error>(Scope::current().expect("a scope")) })
        .await
        .expect("a scope");
    assert!(Work::of_task(&over, || {}).is_none());
    assert!(cancelled_here().is_none());
    let told = spawn(async {
        cancel_current("enough");
        assert!(cancelled_here().is_some());
        assert!(shield(async { cancelled_here().is_none() }).await?);
        Ok::<_, Error>(())
    });
    let _ = told.outcome().await;
    drop(lab);
}
