//! Rules of the tree.

use kinfolk_core::{Error, JobState, checkpoint, launch, park, scope, sleep, spawn};
use std::time::Duration;

use crate::{Lab, Log, Tally};

const MS: Duration = Duration::from_millis(1);

/// tree-1: unlinked when it ends; a long-lived scope lists the living only.
pub async fn tree_1_a_scope_lists_only_living_children(lab: Lab) {
    scope(async |s| {
        let before = lab.counters().living();
        for _ in 0..50 {
            s.spawn(async {}).await?;
        }
        assert_eq!(lab.counters().living(), before);
        assert_eq!(lab.snapshot().children(s.job().id()).count(), 0);
        Ok(())
    })
    .await
    .unwrap();
}

/// tree-3: on success the end waits for every child, grandchildren included.
pub async fn tree_3_parent_waits_for_all_children(_lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let answer = scope(async move |s| {
        let inner = words.clone();
        s.launch(async move {
            let deep = inner.clone();
            launch(async move {
                sleep(20 * MS).await?;
                deep.say("grandchild");
                Ok::<_, Error>(())
            });
            sleep(10 * MS).await?;
            inner.say("child");
            Ok::<_, Error>(())
        });
        words.say("body");
        Ok(42)
    })
    .await;
    assert_eq!(answer.unwrap(), 42);
    assert_eq!(log.text(), "body child grandchild");
    checkpoint().await.unwrap();
}

/// tree-3: a child's locals are dropped before its outcome is visible.
pub async fn tree_3_locals_are_dropped_before_the_outcome_is_visible(_lab: Lab) {
    let tally = Tally::new();
    let guard = tally.guard();
    let task = spawn(async move {
        let _guard = guard;
        checkpoint().await?;
        Ok::<_, Error>(7)
    });
    assert_eq!(task.await.unwrap(), 7);
    assert_eq!(tally.drops(), 1);
}

/// tree-4: a cancel in the waiting phase goes to the children.
pub async fn tree_4_the_waiting_phase_is_not_a_point(lab: Lab) {
    let task = spawn(async {
        scope(async |s| {
            s.launch(async {
                let told = park().await;
                kinfolk_core::cleanup(sleep(100 * MS)).await?;
                told?;
                Ok::<_, Error>(())
            });
            Ok(1)
        })
        .await
    });
    lab.settle().await;
    let job = task.job();
    assert!(job.cancel("enough"));
    assert_eq!(job.state(), JobState::Cancelling);
    let before = lab.elapsed();
    let outcome = task.outcome().await.unwrap();
    assert!(outcome.is_cancelled(), "{outcome:?}");
    assert_eq!(lab.elapsed() - before, 100 * MS);
}
