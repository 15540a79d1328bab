//! Branches whose future is a `Task`: one that loses is told and waited for, as
//! any loser; a borrowed one and a `join()` are not. handle-7, handle-2.

use std::time::Duration;

use kinfolk_core::{
    Arm, Error, ErrorKind, Reason, Result, Scope, Task, all, any, checkpoint, for_each_concurrent,
    local_scope, park, race, scope, select, shield, sleep, spawn, timeout,
};
use kinfolk_testkit::Lab;

use crate::interrupted::words;

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Told, it takes so long to clean up.
async fn cleans(wait: Duration) -> Result<u32> {
    let told = park().await.expect_err("told");
    shield(sleep(wait)).await?;
    Err(told.into())
}

/// Told, it takes so long, and returns a value.
async fn late(wait: Duration, value: u32) -> Result<u32> {
    let _ = park().await;
    shield(sleep(wait)).await?;
    Ok(value)
}

async fn after(wait: Duration, value: u32) -> Result<u32> {
    sleep(wait).await?;
    Ok(value)
}

async fn fails_after(wait: Duration, words: &'static str) -> Result<u32> {
    sleep(wait).await?;
    Err(Error::msg(words))
}

/// Cancels itself, which is no failure of its family.
async fn fails_nobody(wait: Duration) -> Result<()> {
    sleep(wait).await?;
    kinfolk_core::cancel_current("enough");
    Ok(checkpoint().await?)
}

fn reason_of(task: &kinfolk_core::Job) -> Reason {
    task.reason().expect("it was told")
}

/// handle-7: each verb tells a task that has lost, and waits for it.
/// Also: handle-2, cancel-7.
pub async fn handle_7_a_task_that_loses_is_waited_for(lab: Lab) {
    let mut start = lab.elapsed();
    let mut took = || {
        let took = lab.elapsed() - start;
        start = lab.elapsed();
        took
    };
    let task = spawn(cleans(20 * MS));
    let job = task.job();
    assert_eq!(race((task, after(5 * MS, 7))).await.unwrap(), 7);
    assert!(job.is_ended());
    assert!(!reason_of(&job).to_string().is_empty());
    assert_eq!(took(), 25 * MS, "race");
    let task = spawn(cleans(20 * MS));
    assert_eq!(any((task, after(5 * MS, 7))).await.unwrap(), 7);
    assert_eq!(took(), 25 * MS, "any");
    let task = spawn(cleans(20 * MS));
    let won = select!(task, sleep(5 * MS)).await.unwrap();
    assert!(matches!(won, Arm::B(())));
    assert_eq!(took(), 25 * MS, "select!");
    let task = spawn(cleans(20 * MS));
    all((task, fails_after(5 * MS, "no"))).await.unwrap_err();
    assert_eq!(took(), 25 * MS, "all");
    // Of many, each with a waker of its own.
    let tasks = [20, 5, 10].map(|ms| match ms {
        5 => spawn(after(5 * MS, 7)),
        ms => spawn(cleans(ms * MS)),
    });
    let jobs: Vec<_> = tasks.iter().map(Task::job).collect();
    assert_eq!(race(tasks).await.unwrap(), 7);
    assert!(jobs.iter().all(kinfolk_core::Job::is_ended));
    assert_eq!(took(), 25 * MS, "race of many");
    let each = for_each_concurrent(0..2, 2, |n| match n {
        0 => spawn(async { cleans(20 * MS).await.map(drop) }),
        _ => spawn(async { fails_nobody(5 * MS).await }),
    });
    assert_eq!(each.await.unwrap_err().kind(), ErrorKind::Stopped);
    assert_eq!(took(), 25 * MS, "for_each_concurrent");
    // What it returns all the same is late; `outcome()` gives what there is.
    let mut kept = Vec::new();
    let task = spawn(late(20 * MS, 3));
    let won = race((task, after(5 * MS, 7))).late(|value| kept.push(value));
    assert_eq!(won.await.unwrap(), 7);
    assert_eq!(kept, [3]);
    assert_eq!(took(), 25 * MS, "a late value");
    let task = spawn(cleans(20 * MS));
    select!(task.outcome(), sleep(5 * MS)).await.unwrap();
    assert_eq!(took(), 25 * MS, "outcome()");
}

/// handle-7: also one whose branch has not begun when it is decided.
pub async fn handle_7_a_task_whose_branch_has_not_begun_is_waited_for(lab: Lab) {
    let task = spawn(cleans(20 * MS));
    lab.settle().await;
    let job = task.job();
    assert_eq!(race((async { 7 }, task)).await.unwrap(), 7);
    assert!(job.is_ended());
    assert_eq!(lab.elapsed(), 20 * MS);
    // One that has ended has a late value.
    let ended = spawn(async { 3 });
    lab.settle().await;
    let mut kept = Vec::new();
    let won = race((async { 7 }, ended)).late(|value| kept.push(value));
    assert_eq!(won.await.unwrap(), 7);
    assert_eq!(kept, [3]);
    // From an iterator.
    let tasks: Vec<_> = (0..3)
        .map(|n| match n {
            0 => spawn(async { Ok::<u32, Error>(7) }),
            _ => spawn(cleans(20 * MS)),
        })
        .collect();
    lab.settle().await;
    let jobs: Vec<_> = tasks.iter().map(Task::job).collect();
    assert_eq!(any(tasks).await.unwrap(), 7);
    assert!(jobs.iter().all(kinfolk_core::Job::is_ended));
    assert_eq!(lab.elapsed(), 40 * MS);
}

/// handle-2: what is not the task itself leaves it at once: a borrowed handle, an
/// async block around it; `join()` leaves it alone.
/// Also: handle-7.
pub async fn handle_2_a_borrowed_task_that_loses_is_left(lab: Lab) {
    let mut task = spawn(cleans(20 * MS));
    assert_eq!(race((&mut task, after(5 * MS, 7))).await.unwrap(), 7);
    assert!(task.job().cancel_requested() && !task.is_ended());
    let wrapped = spawn(cleans(20 * MS));
    let job = wrapped.job();
    #[expect(
        clippy::redundant_async_block,
        reason = "the block is what makes the difference here"
    )]
    let won = race((async { wrapped.await }, after(5 * MS, 7))).await;
    assert_eq!(won.unwrap(), 7);
    assert!(job.cancel_requested() && !job.is_ended());
    let joined = spawn(after(HOUR, 3));
    select!(joined.join(), sleep(5 * MS)).await.unwrap();
    assert!(!joined.job().cancel_requested());
    assert_eq!(lab.elapsed(), 15 * MS);
}

/// handle-2: an enclosing deadline, before or after it is decided.
/// Also: handle-7, time-1.
pub async fn handle_2_a_deadline_leaves_a_task_in_a_branch_at_once(lab: Lab) {
    let task = spawn(cleans(HOUR));
    let waits = timeout(10 * MS, async { select!(task, sleep(HOUR)).await });
    assert_eq!(waits.await.unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(lab.elapsed(), 10 * MS);
    let task = spawn(cleans(HOUR));
    let waits = timeout(10 * MS, select!(task, sleep(5 * MS)));
    assert!(matches!(waits.await.unwrap(), Arm::B(())));
    assert_eq!(lab.elapsed(), 20 * MS);
    // The same of many.
    let tasks: Vec<_> = (0..3)
        .map(|n| match n {
            2 => spawn(after(5 * MS, 7)),
            _ => spawn(cleans(HOUR)),
        })
        .collect();
    assert_eq!(timeout(10 * MS, race(tasks)).await.unwrap(), 7);
    assert_eq!(lab.elapsed(), 30 * MS);
}

/// handle-2: an enclosing cancel while it is waited for.
/// Also: handle-7.
pub async fn handle_2_a_cancel_leaves_a_task_in_a_branch_at_once(lab: Lab) {
    for many in [false, true] {
        let start = lab.elapsed();
        let outside = spawn(cleans(HOUR));
        let task = spawn(async move {
            match many {
                false => race((outside, after(5 * MS, 7))).await,
                true => race([outside, spawn(after(5 * MS, 7))]).await,
            }
        });
        sleep(10 * MS).await.unwrap();
        task.cancel("enough");
        let outcome = task.outcome().await.unwrap();
        assert!(outcome.is_cancelled(), "{outcome:?}");
        assert_eq!(lab.elapsed() - start, 10 * MS);
    }
}

/// handle-2: an interrupt while it is waited for; it is told at the next point.
/// Also: handle-7, request-1.
pub async fn handle_2_an_interrupt_leaves_a_task_in_a_branch_at_once(lab: Lab) {
    for many in [false, true] {
        let start = lab.elapsed();
        let outside = spawn(cleans(HOUR));
        let task = spawn(async move {
            let won = match many {
                false => race((outside, after(5 * MS, 7))).await?,
                true => race([outside, spawn(after(5 * MS, 7))]).await?,
            };
            let told = checkpoint().await.expect_err("nothing has heard it");
            assert_eq!(words(&told), "stop");
            checkpoint().await?;
            Ok::<_, Error>(won)
        });
        sleep(10 * MS).await.unwrap();
        assert!(task.interrupt("stop"));
        assert_eq!(task.await.unwrap(), 7);
        assert_eq!(lab.elapsed() - start, 10 * MS);
    }
    // One that decides: the task beside it is left.
    let start = lab.elapsed();
    let outside = spawn(cleans(HOUR));
    let task = spawn(async move {
        let parked = async {
            park().await?;
            Ok::<u32, Error>(0)
        };
        race((parked, outside)).await
    });
    lab.settle().await;
    assert!(task.interrupt("stop"));
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(lab.elapsed(), start);
}

/// handle-7: a task that loses and fails: its family has the failure, or the
/// failure hook gets it, once.
/// Also: outcome-3.
pub async fn handle_7_a_task_that_loses_and_fails(lab: Lab) {
    let fails = || async {
        let _ = park().await;
        shield(sleep(20 * MS)).await?;
        Err::<u32, _>(Error::msg("in its clean-up"))
    };
    let supervised = Scope::build().supervisor().run(async |s| {
        let task = s.spawn(fails());
        race((task, after(5 * MS, 7))).await
    });
    assert_eq!(supervised.await.unwrap(), 7);
    let [error] = <[Error; 1]>::try_from(lab.take_failures()).expect("once");
    assert_eq!(error.to_string(), "in its clean-up");
    let family = scope(async |s| {
        let task = s.spawn(fails());
        race((task, after(5 * MS, 7))).await
    });
    let error = family.await.unwrap_err();
    assert_eq!(error.to_string(), "in its clean-up");
    assert!(lab.take_failures().is_empty());
    // Beside a failed winner it is suppressed.
    let supervised = Scope::build().supervisor().run(async |s| {
        let task = s.spawn(fails());
        all((task, fails_after(5 * MS, "no"))).await
    });
    let error = supervised.await.unwrap_err();
    assert_eq!(error.to_string(), "no (and 1 more)");
    assert_eq!(error.suppressed()[0].to_string(), "in its clean-up");
    assert!(lab.take_failures().is_empty());
}

/// handle-7: a late value whose destructor panics, many of them.
/// Also: outcome-1.
pub async fn handle_7_late_values_of_tasks_may_panic_when_dropped(_lab: Lab) {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new("a bomb"));
        }
    }
    let mut tasks: Vec<_> = (0..20)
        .map(|_| {
            spawn(async {
                let _ = park().await;
                Ok::<_, Error>(Some(Bomb))
            })
        })
        .collect();
    tasks.push(spawn(async {
        sleep(5 * MS).await?;
        Ok::<_, Error>(None)
    }));
    let won = race(tasks).await.unwrap();
    assert!(won.is_none());
}

/// handle-7: ten thousand tasks, of which one wins; and a deadline while the
/// others are waited for.
pub async fn handle_7_ten_thousand_tasks_lose(lab: Lab) {
    if lab.seed() > 1 {
        return; // Slow, and the order does not matter to it.
    }
    let tasks = |clean: Duration| -> Vec<Task<u32>> {
        let of = move |n: u32| match n {
            5_000 => spawn(after(5 * MS, 7)),
            _ => spawn(cleans(clean)),
        };
        (0..10_000).map(of).collect()
    };
    let start = lab.elapsed();
    assert_eq!(any(tasks(20 * MS)).await.unwrap(), 7);
    assert_eq!(lab.elapsed() - start, 25 * MS);
    let hurried = timeout(10 * MS, any(tasks(HOUR)));
    assert_eq!(hurried.await.unwrap(), 7);
    assert_eq!(lab.elapsed() - start, 35 * MS);
}

/// handle-8: a local task is waited for in the same way, and left at once at a
/// deadline.
/// Also: handle-7.
pub async fn handle_8_a_local_task_that_loses_is_waited_for(lab: Lab) {
    let won = local_scope(async |s| {
        let task = s.spawn(cleans(20 * MS));
        let won = race((task, after(5 * MS, 7))).await?;
        assert_eq!(lab.elapsed(), 25 * MS);
        let task = s.spawn(cleans(20 * MS));
        let hurried = timeout(10 * MS, race((task, after(5 * MS, 7))));
        assert_eq!(hurried.await?, 7);
        assert_eq!(lab.elapsed(), 35 * MS);
        Ok(won)
    });
    assert_eq!(won.await.unwrap(), 7);
}
