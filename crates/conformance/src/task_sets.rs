//! `TaskSet`: results as they come, and no result lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use kinfolk_core::{
    Arm, Error, ErrorKind, Job, ReasonKind, Result, Scope, TaskSet, checkpoint, cleanup,
    is_cancelled, park, scope, select, sleep, spawn, timeout,
};

use kinfolk_testkit::{Gate, Lab, Log, Tally};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

async fn after(wait: Duration, value: u32) -> Result<u32> {
    sleep(wait).await?;
    Ok(value)
}

/// Is told and returns a value all the same.
async fn late(value: u32) -> Result<u32> {
    let _ = park().await;
    Ok(value)
}

/// handle-7: results come in the order in which the tasks end; none when all have
/// been taken, without waiting.
pub async fn handle_7_results_as_they_come(lab: Lab) {
    scope(async |s| {
        let mut set = TaskSet::new();
        assert!(set.is_empty() && set.next().await?.is_none());
        for n in [30, 10, 20] {
            let job: Job = set.spawn(after(n * MS, n)).await?;
            assert_eq!(job.parent(), Some(s.job()));
        }
        assert_eq!(set.len(), 3);
        let mut got = Vec::new();
        while let Some(result) = set.next().await? {
            got.push((result?, lab.elapsed()));
        }
        assert_eq!(got, [(10, 10 * MS), (20, 20 * MS), (30, 30 * MS)]);
        assert!(set.is_empty());
        Ok(())
    })
    .await
    .unwrap();
}

/// handle-7: with a limit `spawn` waits for one to end; results that were not taken
/// yet do not count.
pub async fn handle_7_a_limit_makes_spawn_wait(lab: Lab) {
    let running = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
    let sum = scope(async |_| {
        let mut set = TaskSet::new().limit(3)?;
        for n in 0..9 {
            let running = running.clone();
            set.spawn(async move {
                let now = running.0.fetch_add(1, SeqCst) + 1;
                running.1.fetch_max(now, SeqCst);
                sleep(10 * MS).await?;
                running.0.fetch_sub(1, SeqCst);
                Ok::<u32, Error>(n)
            })
            .await?;
            assert_eq!(lab.elapsed(), n / 3 * 10 * MS);
        }
        assert_eq!(set.len(), 9);
        let mut sum = 0;
        while let Some(n) = set.next().await? {
            sum += n?;
        }
        Ok(sum)
    });
    assert_eq!(sum.await.unwrap(), 36);
    assert_eq!(running.1.load(SeqCst), 3);
    assert_eq!(lab.elapsed(), 30 * MS);
}

/// handle-7: a limit of zero is an error that says so.
pub async fn handle_7_a_limit_of_zero_is_an_error(_: Lab) {
    let error = Scope::named("pages")
        .run(async |_| TaskSet::<()>::new().limit(0).map(drop))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Failed);
    assert!(
        error.to_string().starts_with("TaskSet::limit of zero"),
        "{error}"
    );
    assert_eq!(error.job_name(), Some("pages"));
}

/// handle-7: `next` is a point that takes nothing when it is told: what has ended
/// is still there, late values too, for the job that cleans up.
/// Also: cancel-3.
pub async fn handle_7_no_result_is_lost_in_a_cancel(lab: Lab) {
    let task = spawn(async {
        let mut set = TaskSet::new();
        set.spawn(after(Duration::ZERO, 1)).await?;
        set.spawn(late(2)).await?;
        set.spawn(after(HOUR, 3)).await?;
        park().await.unwrap_err();
        for _ in 0..2 {
            assert!(set.next().await.is_err());
            assert_eq!(set.len(), 3);
        }
        assert!(set.spawn(after(MS, 4)).await.is_err());
        cleanup(async {
            let (mut values, mut stopped) = (Vec::new(), 0);
            while let Some(result) = set.next().await? {
                match result {
                    Ok(value) => values.push(value),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Stopped, "{error:?}");
                        assert!(error.job_name().is_some());
                        stopped += 1;
                    }
                }
            }
            values.sort_unstable();
            assert_eq!((values, stopped), (vec![1, 2], 1));
            Ok::<_, Error>(())
        })
        .await
    });
    sleep(MS).await.unwrap();
    lab.settle().await;
    task.cancel("enough");
    assert!(task.outcome().await.unwrap().is_cancelled());
}

/// handle-7: a waiter in `next` is woken by a cancel and told.
/// Also: cancel-2.
pub async fn handle_7_a_waiter_for_the_next_is_told(lab: Lab) {
    let task = spawn(async {
        let mut set = TaskSet::new();
        set.spawn(after(HOUR, 1)).await?;
        let told = set.next().await.unwrap_err();
        assert_eq!(told.reason().text(), Some("enough"));
        let mut full = TaskSet::new().limit(1)?;
        Err::<(), _>(Error::from(full.spawn(late(1)).await.unwrap_err()))
    });
    lab.settle().await;
    task.cancel("enough");
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(lab.elapsed(), Duration::ZERO);
}

/// handle-7: a `spawn` that is told, or given up, at the limit has made no job; its
/// future is dropped unpolled and the set is as it was.
pub async fn handle_7_a_spawn_that_is_told_has_spawned_nothing(lab: Lab) {
    let tally = Tally::new();
    scope(async |_| {
        let mut set = TaskSet::new().limit(1)?;
        set.spawn(after(20 * MS, 1)).await?;
        let made = lab.counters().jobs_created;
        let waits = set.spawn(tally.count(after(MS, 2)));
        let error = timeout(10 * MS, waits).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert_eq!((tally.polls(), tally.drops()), (0, 1));
        assert_eq!(lab.counters().jobs_created, made + 1);
        assert_eq!(set.len(), 1);
        // Given up half-way.
        let never = select!(sleep(MS), set.spawn(tally.count(after(MS, 2))));
        assert!(matches!(never.await?, Arm::A(())));
        assert_eq!(tally.drops(), 2);
        assert_eq!(set.next().await?.unwrap()?, 1);
        // One that is spawned inside a timeout is the scope's, not the timeout's.
        timeout(MS, set.spawn(after(9 * MS, 3))).await?;
        assert_eq!(set.next().await?.unwrap()?, 3);
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(lab.elapsed(), 29 * MS);
}

/// handle-7: dropping the set cancels what is in it, and the scope waits.
pub async fn handle_7_dropping_a_set_cancels_what_is_in_it(lab: Lab) {
    let log = Log::new();
    let tally = Tally::new();
    scope(async |_| {
        let mut set = TaskSet::new();
        let (words, kept) = (log.clone(), tally.guard());
        set.spawn(async move {
            let Err(told) = park().await;
            assert_eq!(told.reason().kind(), ReasonKind::HandleDropped);
            cleanup(sleep(5 * MS)).await?;
            words.say("clean");
            Ok::<_, Error>(Some(kept))
        })
        .await?;
        let kept = tally.guard();
        set.spawn(async move { Some(kept) }).await?;
        lab.settle().await;
        drop(set);
        // The result that was not taken goes with it.
        assert_eq!(tally.drops(), 1);
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!((log.text().as_str(), tally.drops()), ("clean", 2));
    assert_eq!(lab.elapsed(), 5 * MS);
}

/// handle-7: in a supervisor a failure is a result like any other, a panic too.
/// Also: outcome-3.
pub async fn handle_7_failures_as_they_come(lab: Lab) {
    let supervised = Scope::build().supervisor().run(async |_| {
        let mut set = TaskSet::new();
        set.spawn(async { Err::<u32, _>(Error::msg("no")) }).await?;
        set.spawn(async {
            sleep(MS).await?;
            if !is_cancelled() {
                std::panic::resume_unwind(Box::new("boom"));
            }
            Ok::<u32, Error>(0)
        })
        .await?;
        set.spawn(after(2 * MS, 7)).await?;
        let error = set.next().await?.unwrap().unwrap_err();
        assert_eq!(
            (error.kind(), error.to_string()),
            (ErrorKind::Failed, "no".into())
        );
        assert!(error.job_name().unwrap().starts_with("task@task_sets.rs"));
        let error = set.next().await?.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Panicked);
        assert_eq!(set.next().await?.unwrap()?, 7);
        Ok(())
    });
    supervised.await.unwrap();
    assert!(lab.take_failures().is_empty());
}

/// handle-7: in a fail-fast scope a failure is the scope's.
/// Also: outcome-2.
pub async fn handle_7_a_failure_in_a_fail_fast_scope(lab: Lab) {
    let log = Log::new();
    let error = scope(async |_| {
        let mut set = TaskSet::new().limit(1)?;
        set.spawn(async {
            sleep(MS).await?;
            Err::<u32, _>(Error::msg("no"))
        })
        .await?;
        let told = set.spawn(after(HOUR, 1)).await.unwrap_err();
        log.say(format!("{:?}", told.reason().kind()));
        Err::<(), _>(told.into())
    });
    let error = error.await.unwrap_err();
    assert_eq!(error.to_string(), "no");
    assert_eq!(log.text(), "ChildFailed");
    assert_eq!(lab.elapsed(), MS);
    checkpoint().await.unwrap();
}

/// handle-7: `next` as an arm that loses leaves the tasks alone and takes nothing.
/// Also: handle-2.
pub async fn handle_7_the_next_result_as_an_arm(lab: Lab) {
    scope(async |_| {
        let mut set = TaskSet::new();
        for n in 1..=3 {
            set.spawn(after(n * 5 * MS, n)).await?;
        }
        let (mut got, mut pauses) = (Vec::new(), 0);
        loop {
            match select!(set.next(), sleep(2 * MS)).await? {
                Arm::A(Some(result)) => got.push(result?),
                Arm::A(None) => break,
                Arm::B(()) => pauses += 1,
            }
        }
        assert_eq!((got, pauses), (vec![1, 2, 3], 6));
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(lab.elapsed(), 15 * MS);
}

/// handle-7: a set may belong to another scope than the one it is used in; one that
/// is closed refuses, and the result says so.
pub async fn handle_7_a_set_of_another_scope(lab: Lab) {
    scope(async |s| {
        let mut set = TaskSet::within(&s);
        let job = scope(async |_| Ok(set.spawn(after(MS, 1)).await?)).await?;
        assert_eq!(
            (job.parent(), lab.elapsed()),
            (Some(s.job()), Duration::ZERO)
        );
        assert_eq!(set.next().await?.unwrap()?, 1);
        s.close();
        set.spawn(after(MS, 2)).await?;
        let error = set.next().await?.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Stopped);
        assert_eq!(error.reason().unwrap().kind(), ReasonKind::ScopeEnded);
        Ok(())
    })
    .await
    .unwrap();
}

/// handle-7: each task registers for its end once and is looked at when it ends:
/// the cost is that of what has ended.
pub async fn handle_7_a_large_set_costs_what_has_ended(lab: Lab) {
    const MANY: u32 = 300;
    let before = lab.counters();
    let gate = Gate::new();
    scope(async |_| {
        let mut set = TaskSet::new();
        for n in 0..MANY {
            set.spawn(after(n * MS, n)).await?;
        }
        let sleeper = gate.clone();
        set.spawn(async move {
            sleeper.wait().await;
            MANY
        })
        .await?;
        for n in 0..MANY {
            assert_eq!(set.next().await?.unwrap()?, n);
        }
        gate.open();
        assert_eq!(set.next().await?.unwrap()?, MANY);
        Ok(())
    })
    .await
    .unwrap();
    let registered = lab.counters().waiters_registered - before.waiters_registered;
    assert!(registered <= u64::from(MANY) + 1, "{registered}");
    assert_eq!(lab.elapsed(), (MANY - 1) * MS);
}

/// outcome-3: a failure under a supervisor that a set has looked at, and that
/// nothing takes out of it, goes to the failure hook when the set goes.
/// Also: handle-7.
pub async fn outcome_3_a_set_under_a_supervisor_loses_no_failure(lab: Lab) {
    Scope::build()
        .supervisor()
        .run(async |s| {
            let mut set = TaskSet::within(&s);
            for word in ["one", "two"] {
                set.spawn(async move { Err::<(), _>(Error::msg(word)) })
                    .await?;
            }
            // Looks at both, takes one.
            lab.settle().await;
            set.next().await?.unwrap().unwrap_err();
            assert_eq!(lab.take_failures().len(), 0);
            assert_eq!(set.len(), 1);
            drop(set);
            assert_eq!(lab.take_failures().len(), 1);
            Ok(())
        })
        .await
        .unwrap();
    assert_eq!(lab.take_failures().len(), 0);

    // In a family that fails fast the failure is the family's.
    let failed = scope(async |_| {
        let mut set = TaskSet::new();
        set.spawn(async { Err::<(), _>(Error::msg("one")) }).await?;
        lab.settle().await;
        let told = set.next().await.unwrap_err();
        drop(set);
        Err::<(), Error>(told.into())
    })
    .await;
    assert_eq!(failed.unwrap_err().to_string(), "one");
    assert_eq!(lab.take_failures().len(), 0);
}
