//! Deadlines and budgets that pass while a body is busy: the rule time-5.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::Poll;
use std::time::Duration;

use kinfolk_core::{
    Error, ErrorKind, Patience, ReasonKind, Result, Scope, checkpoint, cleanup, current_job,
    ignore_cancellation, is_cancelled, local_scope, now, on_cancel, park, race, scope, shield,
    shield_for, sleep, spawn, timeout, timeout_at, yield_now,
};

use kinfolk_testkit::{Lab, Log};

const MS: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);

/// More rounds than any of these bodies may make.
const MANY: u32 = 50;

#[track_caller]
fn expect<T>(result: Result<T>, kind: ErrorKind) -> Error {
    let Err(error) = result else {
        panic!("it came to a value; expected {kind:?}");
    };
    assert_eq!(error.kind(), kind, "{error:?}");
    error
}

/// Works for `each` and passes a point, until a point tells it; how many points
/// went on.
async fn work(lab: &Lab, each: Duration) -> Result<u32> {
    for _ in 0..MANY {
        lab.dawdle(each);
        checkpoint().await?;
    }
    Ok(MANY)
}

/// Works for `each` until `is_cancelled` says so.
fn work_until_cancelled(lab: &Lab, each: Duration) {
    for _ in 0..MANY {
        if is_cancelled() {
            return;
        }
        lab.dawdle(each);
    }
}

/// time-5: a body that never waits is told at the first point after its
/// deadline, whatever point that is.
/// Also: cancel-2.
pub async fn time_5_a_busy_body_is_told_at_its_next_point(lab: Lab) {
    let error = expect(
        timeout(20 * MS, work(&lab, 20 * MS)).await,
        ErrorKind::TimedOut,
    );
    assert_eq!(error.reason().unwrap().kind(), ReasonKind::Deadline);
    assert_eq!(lab.elapsed(), 20 * MS);
    expect(
        timeout(20 * MS, work(&lab, 19 * MS)).await,
        ErrorKind::TimedOut,
    );
    assert_eq!(lab.elapsed(), 58 * MS);
    let asleep = timeout(10 * MS, async {
        lab.dawdle(10 * MS);
        sleep(SEC).await
    });
    expect(asleep.await, ErrorKind::TimedOut);
    let yielding = timeout(10 * MS, async {
        lab.dawdle(10 * MS);
        yield_now().await
    });
    expect(yielding.await, ErrorKind::TimedOut);
    assert_eq!(lab.elapsed(), 78 * MS);
    checkpoint().await.unwrap();
}

/// time-5: `is_cancelled` sees a deadline that has passed, and the mark with it.
/// Also: cancel-4.
pub async fn time_5_is_cancelled_sees_a_deadline_that_has_passed(lab: Lab) {
    let result = timeout(20 * MS, async {
        work_until_cancelled(&lab, 5 * MS);
        assert_eq!(lab.elapsed(), 20 * MS);
        assert!(current_job().unwrap().cancel_requested());
        checkpoint().await
    });
    expect(result.await, ErrorKind::TimedOut);
    assert!(!is_cancelled());
    let value = timeout(10 * MS, async {
        work_until_cancelled(&lab, 5 * MS);
        7
    });
    assert_eq!(value.await.unwrap(), 7, "a body without points keeps it");
    assert_eq!(lab.elapsed(), 30 * MS);
}

/// time-5: a task whose body is a timeout, and scopes between the deadline and
/// the point.
pub async fn time_5_scopes_between_hear_too(lab: Lab) {
    let busy = lab.clone();
    let task = spawn(async move {
        let deep = timeout(20 * MS, async {
            scope(async |_| scope(async |_| work(&busy, 5 * MS).await).await).await
        });
        let error = expect(deep.await, ErrorKind::TimedOut);
        assert_eq!(error.reason().unwrap().kind(), ReasonKind::Deadline);
    });
    task.await.unwrap();
    assert_eq!(lab.elapsed(), 20 * MS);
}

/// time-5: local tasks and branches are polled inside the same task, and their
/// points look too.
/// Also: handle-7, handle-8.
pub async fn time_5_local_tasks_and_branches_hear_too(lab: Lab) {
    let result = timeout(20 * MS, async {
        local_scope(async |s| s.spawn(work(&lab, 5 * MS)).await).await
    });
    expect(result.await, ErrorKind::TimedOut);
    assert_eq!(lab.elapsed(), 20 * MS);
    let result = timeout(20 * MS, race([work(&lab, 5 * MS), work(&lab, 5 * MS)]));
    expect(result.await, ErrorKind::TimedOut);
    // The second works once more, to its own next point.
    assert_eq!(lab.elapsed(), 45 * MS);
}

/// time-5: of nested equal deadlines that a point finds, the outermost reports.
/// Also: time-3.
pub async fn time_5_a_point_fires_the_outermost_of_equal_deadlines(lab: Lab) {
    let at = now() + 10 * MS;
    let result = Scope::named("outer").deadline(at).run(async |s| {
        let outer = s.job().id();
        let inner = timeout_at(at, async {
            lab.dawdle(15 * MS);
            let told = checkpoint().await.unwrap_err();
            assert_eq!(told.origin(), outer, "{told:?}");
            Err::<(), _>(told)
        });
        Err::<(), _>(expect(inner.await, ErrorKind::Cancelled))
    });
    let error = expect(result.await, ErrorKind::TimedOut);
    assert_eq!(error.job_name(), Some("outer"));
    assert_eq!(lab.elapsed(), 15 * MS);
}

/// time-5: a deadline that is moved into the past is heard at the next point,
/// also by a scope that was open when there was none yet, and from outside.
/// Also: time-1.
pub async fn time_5_reschedule_into_the_past_is_heard_at_the_next_point(lab: Lab) {
    lab.dawdle(10 * MS);
    let moved = Scope::build().timeout(SEC).run(async |s| {
        checkpoint().await?;
        s.reschedule(Some(now() - MS)).unwrap();
        assert!(is_cancelled());
        checkpoint().await?;
        Ok(())
    });
    expect(moved.await, ErrorKind::TimedOut);
    let given = scope(async |s| {
        let inner = scope(async |_| {
            checkpoint().await?;
            s.reschedule(Some(now())).unwrap();
            checkpoint().await?;
            Ok(())
        });
        Err::<(), _>(expect(inner.await, ErrorKind::Cancelled))
    });
    expect(given.await, ErrorKind::TimedOut);
    let taken_away = Scope::build().timeout(MS).run(async |s| {
        s.reschedule(None).unwrap();
        lab.dawdle(10 * MS);
        checkpoint().await?;
        Ok(7)
    });
    assert_eq!(taken_away.await.unwrap(), 7);
    // Parked, and moved by another task.
    let (give, take) = std::sync::mpsc::channel();
    let parked = spawn(async move {
        let parked = scope(async |s| {
            give.send(s).unwrap();
            park().await?;
            Ok(())
        });
        expect(parked.await, ErrorKind::TimedOut);
    });
    lab.settle().await;
    let before = lab.elapsed();
    take.recv().unwrap().reschedule(Some(now())).unwrap();
    parked.await.unwrap();
    assert_eq!(lab.elapsed(), before);
}

/// time-5: a shield's budget that is spent is heard at the next point inside,
/// and seen by `is_cancelled`; and so is that of a clean-up.
/// Also: shield-2, shield-3.
pub async fn time_5_a_spent_budget_is_heard_at_the_next_point(lab: Lab) {
    let patience = Patience {
        cleanup: 20 * MS,
        ..Patience::default()
    };
    let result = Scope::build().patience(patience).run(async |s| {
        s.cancel("enough");
        let began = lab.elapsed();
        let budgeted = shield_for(20 * MS, async { work(&lab, 5 * MS).await.map(drop) });
        expect(budgeted.await, ErrorKind::Cancelled);
        assert_eq!(lab.elapsed() - began, 20 * MS);
        let polite = shield_for(20 * MS, async {
            scope(async |_| {
                work_until_cancelled(&lab, 5 * MS);
                checkpoint().await?;
                Ok(())
            })
            .await
        });
        expect(polite.await, ErrorKind::Cancelled);
        assert_eq!(lab.elapsed() - began, 40 * MS);
        let tidying = cleanup(async { work(&lab, 5 * MS).await.map(drop) });
        expect(tidying.await, ErrorKind::Cancelled);
        assert_eq!(lab.elapsed() - began, 60 * MS);
        checkpoint().await?;
        Ok(())
    });
    expect(result.await, ErrorKind::Stopped);
}

/// time-5: a deadline that passes outside a shield with a budget is held back
/// from then on, though nothing but the points inside look at the clock.
/// Also: shield-2.
pub async fn time_5_a_budget_counts_from_when_the_deadline_passed(lab: Lab) {
    let result = timeout(10 * MS, async {
        shield_for(20 * MS, async { work(&lab, 5 * MS).await.map(drop) }).await
    });
    expect(result.await, ErrorKind::TimedOut);
    assert_eq!(lab.elapsed(), 30 * MS);
}

/// time-5: a deadline in a shield in a deadline: the inner one is heard inside,
/// the outer one at the first point after the shield.
/// Also: shield-2.
pub async fn time_5_a_deadline_inside_a_shield_inside_a_deadline(lab: Lab) {
    let result = timeout(10 * MS, async {
        let inner = shield(timeout(20 * MS, work(&lab, 5 * MS)));
        expect(inner.await, ErrorKind::TimedOut);
        assert_eq!(lab.elapsed(), 20 * MS);
        shield(async {
            checkpoint().await?;
            assert!(!is_cancelled());
            Ok::<_, Error>(())
        })
        .await
        .unwrap();
        assert!(is_cancelled());
        checkpoint().await
    });
    let error = expect(result.await, ErrorKind::TimedOut);
    assert_eq!(error.reason().unwrap().kind(), ReasonKind::Deadline);
}

/// time-5: a guard holds a deadline back that a point finds.
/// Also: shield-1.
pub async fn time_5_a_guard_holds_it_back(lab: Lab) {
    let result = timeout(10 * MS, async {
        let guard = ignore_cancellation().await?;
        lab.dawdle(20 * MS);
        checkpoint().await?;
        assert!(!is_cancelled());
        assert!(current_job().unwrap().cancel_requested());
        drop(guard);
        checkpoint().await?;
        Ok::<_, Error>(())
    });
    expect(result.await, ErrorKind::TimedOut);
    assert_eq!(lab.elapsed(), 20 * MS);
}

/// time-5: points look, so a timeout around a future that is ready sets no
/// timer; with its first child, or when it first waits, it sets one.
/// Also: time-4.
pub async fn time_5_the_timer_is_set_when_it_is_needed(lab: Lab) {
    let set = lab.counters().timers_set;
    let rose = || lab.counters().timers_set - set;
    let value = timeout(SEC, async {
        for _ in 0..3 {
            checkpoint().await?;
            assert!(!is_cancelled());
        }
        Ok::<_, Error>(7)
    });
    assert_eq!(value.await.unwrap(), 7);
    shield_for(SEC, checkpoint()).await.unwrap();
    assert_eq!(rose(), 0);
    let before = lab.counters().timers_pending();
    let value = Scope::build().timeout(SEC).run(async |s| {
        let child = s.spawn(async { 1 });
        assert_eq!(rose(), 1, "its first child");
        let second = s.spawn(async { 1 });
        assert_eq!(rose(), 1);
        Ok(child.await? + second.await?)
    });
    assert_eq!(value.await.unwrap(), 2);
    assert_eq!(rose(), 1);
    timeout(SEC, sleep(MS)).await.unwrap();
    assert_eq!(rose(), 3, "it waits, and the sleep");
    assert_eq!(lab.counters().timers_pending(), before);
}

/// time-5: an interrupt is heard where a deadline is, and each of them once.
/// Also: request-1.
pub async fn time_5_an_interrupt_and_a_deadline_are_both_heard(lab: Lab) {
    let busy = lab.clone();
    let task = spawn(async move {
        let me = current_job().unwrap();
        let result = timeout(20 * MS, async {
            checkpoint().await?;
            assert!(!is_cancelled());
            me.interrupt("look up");
            assert!(is_cancelled());
            let told = checkpoint().await.unwrap_err();
            assert_eq!(told.reason().kind(), ReasonKind::Interrupted);
            assert!(!is_cancelled());
            checkpoint().await?;
            me.interrupt("twice");
            assert_eq!(me.uninterrupt(), 1);
            assert_eq!(me.uninterrupt(), 0);
            checkpoint().await?;
            work(&busy, 5 * MS).await
        });
        expect(result.await, ErrorKind::TimedOut);
        assert_eq!(me.interrupts(), 0);
        checkpoint().await
    });
    task.await.unwrap();
    assert_eq!(lab.elapsed(), 20 * MS);
}

/// time-5: the point that finds the deadline passed runs the hooks, and tells
/// the children before it tells.
/// Also: cancel-1, cancel-8.
pub async fn time_5_the_point_marks_the_subtree_before_it_tells(lab: Lab) {
    let log = Log::new();
    let result = Scope::build().timeout(10 * MS).run(async |s| {
        let words = log.clone();
        on_cancel(move |reason| words.say(format!("{:?}", reason.kind()))).keep();
        let child = s.launch(async { park().await.map(drop) });
        lab.dawdle(10 * MS);
        let told = checkpoint().await.unwrap_err();
        assert!(child.cancel_requested());
        assert_eq!(log.text(), "Deadline");
        Err::<(), _>(told.into())
    });
    expect(result.await, ErrorKind::TimedOut);
}

/// time-5: a future that cannot hear and is marked in the middle of its poll is
/// polled once more before it is dropped.
/// Also: cancel-7.
pub async fn time_5_marked_in_the_middle_of_a_poll_it_is_polled_once_more(lab: Lab) {
    let polls = Arc::new(AtomicUsize::new(0));
    let deaf = |ready_at: usize| {
        let (lab, polls) = (lab.clone(), polls.clone());
        poll_fn(move |_| {
            let before = polls.fetch_add(1, SeqCst);
            if before == 0 {
                lab.dawdle(20 * MS);
                assert!(is_cancelled());
            }
            if before == ready_at {
                Poll::Ready(7)
            } else {
                Poll::Pending
            }
        })
    };
    expect(timeout(10 * MS, deaf(9)).await, ErrorKind::TimedOut);
    assert_eq!(polls.swap(0, SeqCst), 2);
    assert_eq!(timeout(10 * MS, deaf(1)).await.unwrap(), 7);
    assert_eq!(lab.elapsed(), 40 * MS);
    assert_eq!(lab.counters().jobs_force_dropped, 0);
}

/// time-5: a scope that is over before the timer comes is not cancelled by it,
/// and what a late timer finds moved is left alone.
/// Also: time-4.
pub async fn time_5_a_timer_that_is_late_does_nothing(lab: Lab) {
    let before = lab.counters();
    let moved = Scope::build().timeout(10 * MS).run(async |s| {
        s.launch(sleep(15 * MS));
        s.reschedule(Some(now() + 20 * MS)).unwrap();
        sleep(15 * MS).await?;
        s.reschedule(Some(now() + 10 * MS)).unwrap();
        sleep(9 * MS).await?;
        Ok(7)
    });
    assert_eq!(moved.await.unwrap(), 7);
    sleep(SEC).await.unwrap();
    let after = lab.counters();
    assert_eq!(
        after.cancellations_requested,
        before.cancellations_requested
    );
    assert_eq!(after.timers_pending(), before.timers_pending());
}
