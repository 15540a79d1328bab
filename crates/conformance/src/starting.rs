//! Starting an ordinary child that says when it is ready.

use std::time::Duration;

use kinfolk_core::{
    Error, ErrorKind, JobState, NeverReady, Ready, Result, Scope, checkpoint, launch, park, scope,
    sleep, spawn, timeout,
};
use kinfolk_testkit::{Lab, Tally};

const MS: Duration = Duration::from_millis(1);

/// Panics without a word on standard error.
fn raise() {
    std::panic::resume_unwind(Box::new("oops"))
}

/// handle-12: the caller goes on with the value and the handle when the child is ready; the
/// child is an ordinary one, for which the scope waits.
pub async fn handle_12_the_caller_waits_until_the_child_is_ready(lab: Lab) {
    let job = scope(async |s| {
        let (value, child) = s
            .task("mail")
            .start(async |ready: Ready<u32>| {
                sleep(5 * MS).await?;
                ready.ready(7);
                sleep(20 * MS).await?;
                Ok::<_, Error>("letters")
            })
            .await?;
        assert_eq!((value, lab.elapsed()), (7, 5 * MS));
        assert_eq!(child.job().name(), "mail");
        let (_, other) = s
            .start(async |ready: Ready<()>| {
                ready.ready(());
                sleep(MS).await?;
                Ok::<_, Error>(9)
            })
            .await?;
        assert_eq!(other.await?, 9);
        Ok(child.into_job())
    })
    .await
    .unwrap();
    assert_eq!(job.state(), JobState::Completed);
    assert_eq!(lab.elapsed(), 25 * MS);
    assert!(lab.take_failures().is_empty());
}

/// handle-12: a failure or panic before it is ready is that of the start alone, one after it
/// counts as any child's; an end without a word is `NeverReady`.
pub async fn handle_12_a_failure_before_it_is_ready_is_the_starts(lab: Lab) {
    let value = scope(async |s| {
        let beside = s.spawn(async { sleep(10 * MS).await.map(|()| 1) });
        let failed = s.start(async |_: Ready<u32>| {
            checkpoint().await?;
            Err::<(), _>(Error::msg("no route"))
        });
        assert_eq!(failed.await.unwrap_err().to_string(), "no route");
        let panicked = s.start(async |_: Ready<u32>| raise());
        let error = panicked.await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Panicked);
        let silent = s.start(async |ready: Ready<u32>| {
            drop(ready);
            sleep(MS).await
        });
        let error = silent.await.unwrap_err();
        assert_eq!(error.downcast_ref::<NeverReady>(), Some(&NeverReady));
        let inside = s.start(async |_: Ready<u32>| {
            launch(async { Err::<(), _>(Error::msg("a child's")) });
            park().await?;
            Ok::<_, Error>(())
        });
        assert_eq!(inside.await.unwrap_err().to_string(), "a child's");
        beside.await
    });
    assert_eq!(value.await.unwrap(), 1);
    let error = scope(async |s| {
        let ((), child) = s
            .start(async |ready: Ready<()>| {
                ready.ready(());
                sleep(MS).await?;
                Err::<(), _>(Error::msg("later"))
            })
            .await?;
        drop(child.into_job());
        park().await?;
        Ok(())
    })
    .await
    .unwrap_err();
    assert_eq!(error.to_string(), "later");
    assert!(lab.take_failures().is_empty());
}

/// handle-12: told, or dropped before it is over, the start cancels the child, and the scope
/// waits for it; told at entry, nothing is spawned; what the child still fails with goes to the
/// failure hook.
pub async fn handle_12_a_start_that_is_given_up(lab: Lab) {
    let tally = Tally::new();
    let guard = tally.guard();
    scope(async |s| {
        let slow = s.start(async move |_: Ready<u32>| {
            let _guard = guard;
            let _ = park().await;
            Err::<(), _>(Error::msg("while it was given up"))
        });
        let late = timeout(MS, async { slow.await.map(drop) });
        assert_eq!(late.await.unwrap_err().kind(), ErrorKind::TimedOut);
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(tally.drops(), 1);
    let failures = lab.take_failures();
    assert_eq!(failures.len(), 1, "{failures:?}");
    let told = spawn(async {
        let here = Scope::current().expect("inside a job");
        let _ = park().await;
        let never = here.start(async |ready: Ready<u32>| {
            ready.ready(1);
            Ok::<_, Error>(())
        });
        let error = never.await.unwrap_err();
        assert!(error.is_cancelled());
        Err::<(), _>(error)
    });
    lab.settle().await;
    let before = lab.counters().jobs_created;
    told.cancel("enough");
    assert!(told.outcome().await.unwrap().is_cancelled());
    assert_eq!(lab.counters().jobs_created, before);
    let refused: Result<()> = scope(async |s| {
        s.close();
        let refused = s.start(async |ready: Ready<u32>| ready.ready(1));
        assert_eq!(refused.await.unwrap_err().kind(), ErrorKind::Stopped);
        Ok(())
    })
    .await;
    refused.unwrap();
}
