//! Rules of time.

use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use kinfolk_core::{
    Error, ErrorKind, Job, ReasonKind, RescheduleError, Result, Scope, checkpoint, deadline,
    detach, now, park, scope, sleep, sleep_until, spawn, timeout, timeout_at,
};

use kinfolk_testkit::{Lab, Log, Tally};

const MS: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);

#[track_caller]
fn expect<T>(result: Result<T>, kind: ErrorKind) -> Error {
    let Err(error) = result else {
        panic!("it came to a value; expected {kind:?}");
    };
    assert_eq!(error.kind(), kind, "{error:?}");
    error
}

/// Cancels a job when it is woken.
struct CancelOnWake(Job);

impl Wake for CancelOnWake {
    fn wake(self: Arc<Self>) {
        self.0.cancel("at the same instant");
    }
}

/// time-1: the four ways to say a limit all fire at their instant.
pub async fn time_1_every_form_of_limit_fires_at_its_instant(lab: Lab) {
    expect(timeout(10 * MS, park()).await, ErrorKind::TimedOut);
    assert_eq!(lab.elapsed(), 10 * MS);
    expect(
        timeout_at(now() + 10 * MS, park()).await,
        ErrorKind::TimedOut,
    );
    assert_eq!(lab.elapsed(), 20 * MS);
    let limited = Scope::build().timeout(10 * MS).run_future(park());
    expect(limited.await, ErrorKind::TimedOut);
    assert_eq!(lab.elapsed(), 30 * MS);
    let limited = Scope::build().deadline(now() + 10 * MS).run_future(park());
    expect(limited.await, ErrorKind::TimedOut);
    assert_eq!(lab.elapsed(), 40 * MS);
}

/// time-1: the limit holds for children too; the scope waits for them.
pub async fn time_1_a_deadline_reaches_children(lab: Lab) {
    let result = Scope::build().timeout(10 * MS).run(async |s| {
        let child = s.spawn(async {
            let told = park().await.unwrap_err();
            assert_eq!(told.reason().kind(), ReasonKind::Parent);
            assert_eq!(told.reason().root_cause().kind(), ReasonKind::Deadline);
            Err::<(), _>(told)
        });
        child.await
    });
    expect(result.await, ErrorKind::TimedOut);
    assert_eq!(lab.elapsed(), 10 * MS);
}

/// time-1: a scope whose body is done and whose child is cut short by the
/// scope's own deadline is TimedOut.
/// Also: outcome-6.
pub async fn time_1_the_deadline_fires_in_the_waiting_phase_too(lab: Lab) {
    let result = Scope::build().timeout(10 * MS).run(async |s| {
        s.launch(async { park().await.map(drop) });
        Ok(1)
    });
    expect(result.await, ErrorKind::TimedOut);
    assert_eq!(lab.elapsed(), 10 * MS);
}

/// time-1: once the deadline has fired it cannot be moved.
pub async fn time_1_reschedule_is_an_error_once_fired(lab: Lab) {
    let result = Scope::build().timeout(10 * MS).run(async |s| {
        let told = park().await;
        let refused = s.reschedule(Some(now() + SEC)).unwrap_err();
        assert_eq!(refused, RescheduleError::Cancelled);
        assert_eq!(s.reschedule(None), Err(RescheduleError::Cancelled));
        checkpoint().await.unwrap_err();
        told?;
        Ok(())
    });
    expect(result.await, ErrorKind::TimedOut);
    assert_eq!(lab.elapsed(), 10 * MS);
}

/// time-1: a scope that had no deadline can be given one.
pub async fn time_1_a_scope_can_be_given_a_deadline(lab: Lab) {
    let result = scope(async |s| {
        s.reschedule(Some(now() + 10 * MS)).unwrap();
        assert_eq!(deadline(), Some(now() + 10 * MS));
        park().await?;
        Ok(())
    });
    expect(result.await, ErrorKind::TimedOut);
    assert_eq!(lab.elapsed(), 10 * MS);
}

/// time-1: `Duration::MAX` is never, for timeouts and for sleeps.
pub async fn time_1_max_is_never(lab: Lab) {
    let set = lab.counters().timers_set;
    let value = timeout(Duration::MAX, async {
        assert_eq!(deadline(), None);
        checkpoint().await?;
        Ok::<_, Error>(7)
    });
    assert_eq!(value.await.unwrap(), 7);
    assert_eq!(lab.counters().timers_set, set);
    let task = spawn(sleep(Duration::MAX));
    sleep(1_000_000 * SEC).await.unwrap();
    assert!(!task.is_ended());
    task.cancel("enough");
    assert!(task.outcome().await.unwrap().is_cancelled());
}

/// time-1: `deadline()` looks through tasks up to the root; a detached job has
/// none.
/// Also: tree-6.
pub async fn time_1_deadline_is_seen_in_child_tasks(_lab: Lab) {
    let at = now() + 100 * MS;
    timeout_at(at, async move {
        let child = spawn(async { scope(async |_| Ok(deadline())).await });
        assert_eq!(child.await?, Some(at));
        let detached = detach(async { assert_eq!(deadline(), None) });
        assert!(detached.join().await?.is_completed());
        Ok::<_, Error>(())
    })
    .await
    .unwrap();
}

/// time-1: in a cancelled job `deadline()` is the instant of the cancel, to
/// the microsecond.
pub async fn time_1_deadline_is_the_exact_instant_of_the_cancel(_lab: Lab) {
    let task = spawn(async {
        park().await.unwrap_err();
        deadline()
    });
    sleep(Duration::from_micros(1500)).await.unwrap();
    let at = now();
    task.cancel("enough");
    let told = task.outcome().await.unwrap().into_value().flatten();
    assert_eq!(told, Some(at));
}

/// time-2: with a zero or past limit the body runs to its first point, in the
/// poll in which it was entered.
/// Also: P18, tree-7.
pub async fn time_2_zero_or_past_marks_at_first_poll(lab: Lab) {
    sleep(10 * MS).await.unwrap();
    let log = Log::new();
    let tally = Tally::new();
    let both = tally.count(async {
        let zero = timeout(Duration::ZERO, async {
            log.say("zero");
            let told = checkpoint().await.unwrap_err();
            assert_eq!(told.reason().kind(), ReasonKind::Deadline);
            log.say("told");
            Err::<(), _>(told)
        });
        expect(zero.await, ErrorKind::TimedOut);
        let past = timeout_at(now() - 10 * MS, async {
            log.say("past");
            checkpoint().await?;
            log.say("went on");
            Ok::<_, Error>(())
        });
        expect(past.await, ErrorKind::TimedOut);
    });
    both.await;
    assert_eq!(log.text(), "zero told past");
    assert_eq!(tally.polls(), 1);
    assert_eq!(lab.elapsed(), 10 * MS);
}

/// time-2: a body without a point keeps its value, however late it is.
/// Also: outcome-6.
pub async fn time_2_zero_keeps_the_value_of_a_body_without_points(lab: Lab) {
    let set = lab.counters().timers_set;
    assert_eq!(timeout(Duration::ZERO, async { 7 }).await.unwrap(), 7);
    assert_eq!(lab.counters().timers_set, set);
    checkpoint().await.unwrap();
}

/// time-2: a zero timeout on a task that has not started never starts it.
pub async fn time_2_a_zero_timeout_never_starts_a_task(lab: Lab) {
    let tally = Tally::new();
    let here = Scope::current().unwrap();
    let task = here.spawn(tally.count(async { 7 }));
    let lazy = here.spawn_lazy(tally.count(async { 7 }));
    for task in [task, lazy] {
        let job = task.job();
        expect(timeout(Duration::ZERO, task).await, ErrorKind::TimedOut);
        assert!(job.join().await.unwrap().is_cancelled());
    }
    assert_eq!((tally.polls(), tally.drops()), (0, 2));
    assert_eq!(lab.elapsed(), Duration::ZERO);
    checkpoint().await.unwrap();
}

/// time-2: what is spawned into a scope whose limit was zero never starts.
/// Also: tree-5.
pub async fn time_2_a_zero_scope_starts_no_children(lab: Lab) {
    let tally = Tally::new();
    let refused = lab.counters().jobs_refused;
    let result = Scope::build().timeout(Duration::ZERO).run(async |s| {
        let child = s.spawn(tally.count(async { 7 }));
        assert!(child.is_ended());
        assert_eq!((tally.polls(), tally.drops()), (0, 1));
        let outcome = child.outcome().await?;
        assert!(outcome.is_cancelled(), "{outcome:?}");
        checkpoint().await?;
        Ok(())
    });
    expect(result.await, ErrorKind::TimedOut);
    assert_eq!(lab.counters().jobs_refused, refused + 1);
}

/// time-3: a cancel and the deadline are both there at wake-up: it is
/// Cancelled.
/// Also: P15.
pub async fn time_3_a_cancel_wins_over_a_deadline_at_the_same_instant(lab: Lab) {
    let task = spawn(async {
        let result = timeout(10 * MS, park()).await;
        Err::<(), _>(expect(result, ErrorKind::Cancelled))
    });
    // Its timer cancels the task before anybody gets a turn at that instant.
    let waker = Waker::from(Arc::new(CancelOnWake(task.job())));
    let mut alarm = Box::pin(sleep(10 * MS));
    let first = alarm.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(first.is_pending());
    let outcome = task.outcome().await.unwrap();
    let reason = outcome.reason().unwrap();
    assert_eq!(reason.text(), Some("at the same instant"), "{outcome:?}");
    assert_eq!(lab.elapsed(), 10 * MS);
}

/// time-3: the deadline has fired, and then an enclosing cancel comes before
/// the scope is left: Cancelled wins at the exit.
/// Also: request-3.
pub async fn time_3_an_enclosing_cancel_wins_at_the_exit(lab: Lab) {
    let result = scope(async |outer| {
        let inner = timeout(10 * MS, async {
            let told = park().await.unwrap_err();
            assert_eq!(told.reason().kind(), ReasonKind::Deadline);
            assert!(outer.cancel("outer"));
            Err::<(), _>(told)
        });
        let error = expect(inner.await, ErrorKind::Cancelled);
        assert_eq!(error.reason().unwrap().text(), Some("outer"));
        Err::<(), _>(error)
    });
    let error = expect(result.await, ErrorKind::Stopped);
    assert_eq!(error.reason().unwrap().text(), Some("outer"));
    assert_eq!(lab.elapsed(), 10 * MS);
}

/// time-3: of four nested limits due at one instant the outermost of the due
/// ones fires first and reports; those further out are left alone.
pub async fn time_3_every_enclosing_deadline_that_is_due_fires(lab: Lab) {
    let log = Log::new();
    let at = now() + 10 * MS;
    let result = Scope::build().timeout(11 * MS).run(async |far| {
        let due = Scope::named("a").deadline(at).run(async |a| {
            let middle = Scope::named("b").deadline(at).run(async |_| {
                let inner = Scope::named("c").deadline(at).run(async |_| {
                    let told = park().await.unwrap_err();
                    assert_eq!(told.origin(), a.job().id());
                    Err::<(), _>(told.into())
                });
                let error = expect(inner.await, ErrorKind::Cancelled);
                log.say("c");
                Err::<(), _>(error)
            });
            let error = expect(middle.await, ErrorKind::Cancelled);
            log.say("b");
            Err::<(), _>(error)
        });
        let error = expect(due.await, ErrorKind::TimedOut);
        assert_eq!(error.job_name(), Some("a"));
        assert!(!far.cancel_requested());
        checkpoint().await?;
        Ok(())
    });
    result.await.unwrap();
    assert_eq!(log.text(), "c b");
    assert_eq!(lab.elapsed(), 10 * MS);
}

/// time-3: that holds through tasks: a child's deadline at the same instant
/// does not report in place of its parent's, whichever is polled first.
pub async fn time_3_equal_deadlines_in_a_child_task(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let at = now() + 10 * MS;
    let result = Scope::named("outer").deadline(at).run(async |s| {
        let outer = s.job().id();
        s.launch(async move {
            let inner = timeout_at(at, async {
                let told = park().await.unwrap_err();
                assert_eq!(told.origin(), outer, "{told:?}");
                words.say("child");
                Err::<(), _>(told)
            });
            Err::<(), _>(expect(inner.await, ErrorKind::Cancelled))
        });
        park().await?;
        Ok(())
    });
    let error = expect(result.await, ErrorKind::TimedOut);
    assert_eq!(error.job_name(), Some("outer"));
    assert_eq!(error.suppressed_count(), 0, "{error:?}");
    assert_eq!(log.text(), "child");
    assert_eq!(lab.elapsed(), 10 * MS);
}

/// time-4: a timeout that did not fire leaves no timer, however it was left.
pub async fn time_4_no_timer_is_left_however_a_timeout_ends(lab: Lab) {
    let pending = lab.counters().timers_pending();
    let left = || lab.counters().timers_pending() - pending;

    timeout(SEC, sleep(MS)).await.unwrap();
    assert_eq!(left(), 0, "done");

    let failed = timeout(SEC, async {
        sleep(MS).await?;
        Err::<(), _>(Error::msg("no"))
    });
    expect(failed.await, ErrorKind::Failed);
    assert_eq!(left(), 0, "failed");

    let panicked = timeout(SEC, async {
        sleep(MS).await?;
        if lab.elapsed() > Duration::ZERO {
            panic!("a case");
        }
        Ok::<_, Error>(())
    });
    expect(panicked.await, ErrorKind::Panicked);
    assert_eq!(left(), 0, "panicked");

    let task = spawn(async { timeout(SEC, sleep(SEC)).await });
    lab.settle().await;
    assert_eq!(left(), 2);
    task.cancel("enough");
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(left(), 0, "cancelled");

    {
        let mut dropped = Box::pin(timeout(SEC, sleep(SEC)));
        let polled = dropped
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
        assert_eq!(left(), 2);
    }
    assert_eq!(left(), 0, "dropped");

    let fired = timeout(MS, sleep(SEC));
    expect(fired.await, ErrorKind::TimedOut);
    assert_eq!(left(), 0, "fired");

    let moved = Scope::build().timeout(SEC).run(async |s| {
        for n in 2..10 {
            s.reschedule(Some(now() + n * SEC)).unwrap();
            sleep(MS).await?;
        }
        s.reschedule(None).unwrap();
        sleep(MS).await?;
        assert_eq!(left(), 0, "taken away");
        Ok(())
    });
    moved.await.unwrap();
    assert_eq!(left(), 0, "moved");
}

/// time-4: a timer's firing against a cancel at the same instant is decided
/// once: the body is told exactly if the cancel came first, and each timer is
/// counted as fired or as cancelled, once.
/// Also: T18.
pub async fn time_4_fired_against_cancelled_is_decided_once(lab: Lab) {
    let before = lab.counters();
    scope(async |s| {
        let mut tasks = Vec::new();
        for _ in 0..4 {
            tasks.push(s.spawn(sleep(10 * MS)));
        }
        sleep(10 * MS).await?;
        for task in tasks {
            let moved = task.cancel("a tie");
            let outcome = task.outcome().await?;
            assert_eq!(outcome.is_cancelled(), moved, "{outcome:?}");
            assert_eq!(outcome.is_completed(), !moved, "{outcome:?}");
        }
        Ok(())
    })
    .await
    .unwrap();
    let after = lab.counters();
    assert_eq!(after.timers_set - before.timers_set, 5);
    let fired = after.timers_fired - before.timers_fired;
    let cancelled = after.timers_cancelled - before.timers_cancelled;
    assert_eq!(fired + cancelled, 5);
    assert_eq!(lab.elapsed(), 10 * MS);
}

/// Cancelling a sleeping task wakes it at once; its timer is gone, and when
/// its time comes nothing happens.
pub async fn src_t18_cancelling_a_sleeping_task_wakes_it(lab: Lab) {
    let tally = Tally::new();
    let before = lab.counters();
    let task = spawn(tally.count(async { sleep(10 * MS).await }));
    let job = task.job();
    sleep(3 * MS).await.unwrap();
    assert_eq!(tally.polls(), 1);
    assert!(task.cancel("enough"));
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(lab.elapsed(), 3 * MS);
    assert_eq!((tally.polls(), tally.drops()), (2, 1));
    let after = lab.counters();
    assert_eq!(after.timers_cancelled, before.timers_cancelled + 1);
    sleep(20 * MS).await.unwrap();
    assert_eq!((tally.polls(), tally.drops()), (2, 1));
    assert!(!job.cancel("again"));
}

/// A sleep that is over leaves nothing for a later cancel to take.
/// Also: time-4.
pub async fn src_t18_a_fired_timer_is_not_cancelled_as_well(lab: Lab) {
    let before = lab.counters();
    let until = now() + 5 * MS;
    let task = spawn(async move {
        sleep_until(until).await?;
        park().await.map(drop)
    });
    sleep(8 * MS).await.unwrap();
    assert!(task.cancel("enough"));
    assert!(task.outcome().await.unwrap().is_cancelled());
    let after = lab.counters();
    assert_eq!(after.timers_set - before.timers_set, 2);
    assert_eq!(after.timers_fired - before.timers_fired, 2);
    assert_eq!(after.timers_cancelled, before.timers_cancelled);
}
