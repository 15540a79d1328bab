//! Rules of shields: the guard, the block, and clean-up.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kinfolk_core::{
    Error, ErrorKind, IgnoreGuard, JobState, Outcome, Patience, Scope, Task, checkpoint, cleanup,
    current_job, ignore_cancellation, is_cancelled, launch, on_cancel, park, scope, shield,
    shield_for, sleep, spawn, timeout, try_shield,
};

use kinfolk_testkit::{Gate, Lab, Log, Tally};

const MS: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);

/// A body that waits to be told, and says when.
async fn told_at(lab: Lab, log: Log, name: &'static str) -> Result<(), Error> {
    let told = park().await;
    log.say(format!("{name}@{}", lab.elapsed().as_millis()));
    told?;
    Ok(())
}

/// Cancels and waits; how long that took.
async fn cancel_and_wait<T>(lab: &Lab, task: Task<T>) -> (Outcome<T>, Duration) {
    let before = lab.elapsed();
    assert!(task.cancel("enough"));
    let outcome = task.outcome().await.unwrap();
    (outcome, lab.elapsed() - before)
}

/// While a guard is held the job is marked, and no point in it fails.
/// Also: shield-1.
pub async fn src_t10_a_guarded_job_is_marked_but_not_told(lab: Lab) {
    let task = spawn(async {
        let guard = ignore_cancellation().await?;
        sleep(10 * MS).await?;
        let own = current_job().unwrap();
        assert!(own.cancel_requested());
        assert!(!is_cancelled());
        checkpoint().await?;
        sleep(10 * MS).await?;
        drop(guard);
        assert!(is_cancelled());
        checkpoint().await.unwrap_err();
        Ok::<_, Error>(7)
    });
    sleep(5 * MS).await.unwrap();
    let (outcome, took) = cancel_and_wait(&lab, task).await;
    assert_eq!(took, 15 * MS);
    let Outcome::Cancelled { late: Some(7), .. } = outcome else {
        panic!("{outcome:?}");
    };
}

/// Guards nest, and may go in any order: the last one to go delivers.
/// Also: shield-1.
pub async fn src_t11_guards_nest_in_any_order(lab: Lab) {
    let task = spawn(async {
        let first = ignore_cancellation().await?;
        let second = ignore_cancellation().await?;
        let third = ignore_cancellation().await?;
        sleep(10 * MS).await?;
        drop(first);
        checkpoint().await?;
        drop(third);
        checkpoint().await?;
        // Entered again while marked: the job is not effectively cancelled.
        let fourth = ignore_cancellation().await?;
        drop(second);
        checkpoint().await?;
        drop(fourth);
        checkpoint().await.unwrap_err();
        ignore_cancellation().await.unwrap_err();
        Ok::<_, Error>(7)
    });
    lab.settle().await;
    let (outcome, took) = cancel_and_wait(&lab, task).await;
    assert_eq!(took, 10 * MS);
    assert!(outcome.is_cancelled(), "{outcome:?}");
    assert_eq!(outcome.into_value(), Some(7));
}

/// Asking for a guard after a cancel fails, and the task ends cancelled.
/// Also: shield-1.
pub async fn src_t12_no_guard_after_a_cancel(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let gate = Gate::new();
    let opened = gate.clone();
    let task = spawn(async move {
        opened.wait().await;
        words.say("asks");
        let _guard = ignore_cancellation().await?;
        words.say("guarded");
        Ok::<_, Error>(())
    });
    lab.settle().await;
    task.cancel("enough");
    gate.open();
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(log.text(), "asks");
}

/// The walk to the children waits for the outermost guard.
/// Also: shield-1, T14.
pub async fn src_t13_the_walk_waits_for_the_guard(lab: Lab) {
    let log = Log::new();
    let task = spawn({
        let (lab, log) = (lab.clone(), log.clone());
        async move {
            let guard = ignore_cancellation().await?;
            let child = launch(told_at(lab.clone(), log.clone(), "child"));
            sleep(20 * MS).await?;
            assert!(current_job().unwrap().cancel_requested());
            assert!(!child.cancel_requested());
            assert!(log.is_empty());
            drop(guard);
            assert!(child.cancel_requested());
            checkpoint().await?;
            Ok::<_, Error>(())
        }
    });
    sleep(5 * MS).await.unwrap();
    let (outcome, took) = cancel_and_wait(&lab, task).await;
    assert!(outcome.is_cancelled());
    assert_eq!(took, 15 * MS);
    assert_eq!(log.text(), "child@20");
}

/// A guard defers the walk to everything below: grandchildren and scopes.
/// Also: shield-1.
pub async fn src_t14_a_guard_protects_the_whole_subtree(lab: Lab) {
    let log = Log::new();
    let task = spawn({
        let (lab, log) = (lab.clone(), log.clone());
        async move {
            let guard = ignore_cancellation().await?;
            launch({
                let (lab, log) = (lab.clone(), log.clone());
                async move {
                    launch(told_at(lab, log, "grandchild"));
                    park().await.map(drop)
                }
            });
            let result = scope(async |s| {
                s.launch(told_at(lab.clone(), log.clone(), "scope"));
                sleep(20 * MS).await?;
                assert!(!is_cancelled());
                drop(guard);
                checkpoint().await?;
                Ok(())
            });
            assert_eq!(result.await.unwrap_err().kind(), ErrorKind::Cancelled);
            checkpoint().await?;
            Ok::<_, Error>(())
        }
    });
    sleep(5 * MS).await.unwrap();
    let (outcome, _) = cancel_and_wait(&lab, task).await;
    assert!(outcome.is_cancelled());
    let mut words: Vec<_> = log.text().split(' ').map(str::to_owned).collect();
    words.sort();
    assert_eq!(words, ["grandchild@20", "scope@20"]);
}

/// Into a guarded job that is marked, spawning works and hooks wait; both
/// hear when the guard goes. Into an effectively cancelled one, at once.
/// Also: shield-1, cancel-8.
pub async fn src_t15_publishing_into_a_guarded_job_is_deferred(lab: Lab) {
    let log = Log::new();
    let task = spawn({
        let (lab, log) = (lab.clone(), log.clone());
        async move {
            let guard = ignore_cancellation().await?;
            sleep(10 * MS).await?;
            assert!(current_job().unwrap().cancel_requested());
            let refused = lab.counters().jobs_refused;
            launch(told_at(lab.clone(), log.clone(), "child"));
            let word = log.clone();
            let hook = on_cancel(move |_| word.say("hook"));
            assert_eq!(spawn(async { 7 }).await?, 7);
            assert_eq!(lab.counters().jobs_refused, refused);
            sleep(10 * MS).await?;
            assert!(log.is_empty());
            drop(guard);
            lab.settle().await;
            assert!(!hook.disarm());
            assert_eq!(log.text(), "hook child@20");
            let word = log.clone();
            on_cancel(move |_| word.say("at once")).keep();
            assert_eq!(log.text(), "hook child@20 at once");
            let tally = Tally::new();
            let late = spawn(tally.count(async { 7 }));
            assert!(late.is_ended());
            assert_eq!((tally.polls(), tally.drops()), (0, 1));
            assert_eq!(lab.counters().jobs_refused, refused + 1);
            checkpoint().await?;
            Ok::<_, Error>(())
        }
    });
    sleep(5 * MS).await.unwrap();
    let (outcome, took) = cancel_and_wait(&lab, task).await;
    assert!(outcome.is_cancelled());
    assert_eq!(took, 15 * MS);
}

/// However often a guard is entered and left, one cancel is delivered once.
/// Also: T2, cancel-8.
pub async fn src_t16_one_cancel_is_delivered_once(lab: Lab) {
    let log = Log::new();
    let task = spawn({
        let (lab, log) = (lab.clone(), log.clone());
        async move {
            let word = log.clone();
            let _hook = on_cancel(move |_| word.say("hook"));
            launch(told_at(lab, log, "child"));
            for _ in 0..3 {
                drop(ignore_cancellation().await?);
            }
            let guard = ignore_cancellation().await?;
            sleep(10 * MS).await?;
            for _ in 0..3 {
                drop(ignore_cancellation().await?);
            }
            drop(guard);
            for _ in 0..3 {
                ignore_cancellation().await.unwrap_err();
            }
            Ok::<_, Error>(())
        }
    });
    lab.settle().await;
    assert!(task.cancel("once"));
    assert!(!task.cancel("twice"));
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(log.text(), "hook child@10");
}

/// shield-1: `try_shield` gives the value, holds the cancel back for the body
/// and the children, and delivers it after.
pub async fn shield_1_try_shield_holds_back_for_body_and_children(lab: Lab) {
    let log = Log::new();
    let task = spawn({
        let (lab, log) = (lab.clone(), log.clone());
        async move {
            launch(told_at(lab.clone(), log.clone(), "child"));
            let value = try_shield(async {
                sleep(20 * MS).await?;
                checkpoint().await?;
                Ok::<_, Error>(7)
            });
            assert_eq!(value.await??, 7);
            checkpoint().await?;
            Ok::<_, Error>(())
        }
    });
    sleep(5 * MS).await.unwrap();
    let (outcome, took) = cancel_and_wait(&lab, task).await;
    assert!(outcome.is_cancelled());
    assert_eq!(took, 15 * MS);
    assert_eq!(log.text(), "child@20");
}

/// shield-1: the guard belongs to its job: the code that drops the value ends the
/// protection, and that wakes the body.
pub async fn shield_1_a_guard_may_be_dropped_elsewhere(lab: Lab) {
    let held: Arc<Mutex<Option<IgnoreGuard>>> = Arc::default();
    let log = Log::new();
    let task = spawn({
        let (lab, log, held) = (lab.clone(), log.clone(), held.clone());
        async move {
            let guard = ignore_cancellation().await?;
            *held.lock().unwrap() = Some(guard);
            told_at(lab, log, "body").await
        }
    });
    sleep(5 * MS).await.unwrap();
    assert!(task.cancel("enough"));
    sleep(5 * MS).await.unwrap();
    assert!(log.is_empty());
    // The holder is not protected by it.
    timeout(Duration::ZERO, checkpoint()).await.unwrap_err();
    drop(held.lock().unwrap().take());
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(log.text(), "body@10");
}

/// shield-1: the guard lapses when its body has ended, though the value is
/// held elsewhere: what waits below is told then.
pub async fn shield_1_a_guard_lapses_with_its_body(lab: Lab) {
    let held: Arc<Mutex<Option<IgnoreGuard>>> = Arc::default();
    let log = Log::new();
    let task = spawn({
        let (lab, log, held) = (lab.clone(), log.clone(), held.clone());
        async move {
            launch(told_at(lab, log, "child"));
            let guard = ignore_cancellation().await?;
            *held.lock().unwrap() = Some(guard);
            sleep(10 * MS).await?;
            Ok::<_, Error>(7)
        }
    });
    let job = task.job();
    sleep(5 * MS).await.unwrap();
    let (outcome, took) = cancel_and_wait(&lab, task).await;
    assert_eq!(took, 5 * MS);
    assert!(outcome.is_cancelled(), "{outcome:?}");
    assert_eq!(outcome.into_value(), Some(7));
    assert_eq!(log.text(), "child@10");
    drop(held.lock().unwrap().take());
    assert_eq!(job.state(), JobState::Cancelled);
}

/// shield-1: a guard that lapsed protects nothing in the waiting phase: a
/// cancel that comes then reaches the children at once.
pub async fn shield_1_a_lapsed_guard_does_not_hold_the_waiting_phase(lab: Lab) {
    let held: Arc<Mutex<Option<IgnoreGuard>>> = Arc::default();
    let log = Log::new();
    let task = spawn({
        let (lab, log, held) = (lab.clone(), log.clone(), held.clone());
        async move {
            launch(told_at(lab, log, "child"));
            *held.lock().unwrap() = Some(ignore_cancellation().await?);
            Ok::<_, Error>(7)
        }
    });
    sleep(5 * MS).await.unwrap();
    let (outcome, took) = cancel_and_wait(&lab, task).await;
    assert!(outcome.is_cancelled());
    assert_eq!(took, Duration::ZERO);
    assert_eq!(log.text(), "child@5");
    drop(held);
}

/// shield-1: a guard taken in a scope is the scope's: the task around it is
/// told right after.
pub async fn shield_1_a_guard_is_of_the_job_it_was_taken_in(lab: Lab) {
    let log = Log::new();
    let task = spawn({
        let (lab, log) = (lab.clone(), log.clone());
        async move {
            launch(told_at(lab.clone(), log.clone(), "sibling"));
            let kept = scope(async |s| {
                let _guard = ignore_cancellation().await?;
                s.launch(told_at(lab.clone(), log.clone(), "inside"));
                sleep(20 * MS).await?;
                checkpoint().await?;
                Ok(())
            });
            // Its child was cut short by a cancel from outside.
            let error = kept.await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Cancelled);
            checkpoint().await?;
            Ok::<_, Error>(())
        }
    });
    sleep(5 * MS).await.unwrap();
    let (outcome, took) = cancel_and_wait(&lab, task).await;
    assert!(outcome.is_cancelled());
    assert_eq!(took, 15 * MS);
    assert_eq!(log.text(), "sibling@5 inside@20");
}

/// shield-1: a scope's own deadline is held back by a guard taken in it.
pub async fn shield_1_a_guard_holds_back_its_own_deadline(lab: Lab) {
    let result = Scope::build().timeout(10 * MS).run(async |s| {
        let guard = ignore_cancellation().await?;
        sleep(30 * MS).await?;
        assert!(s.cancel_requested());
        drop(guard);
        checkpoint().await?;
        Ok(())
    });
    assert_eq!(result.await.unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(lab.elapsed(), 30 * MS);
}

/// shield-1: a value returned under a guard after a cancel is a late value;
/// the task is not Completed.
/// Also: outcome-6.
pub async fn shield_1_a_guarded_value_after_a_cancel_is_late(lab: Lab) {
    let task = spawn(async {
        let _guard = ignore_cancellation().await?;
        sleep(10 * MS).await?;
        Ok::<_, Error>(7)
    });
    lab.settle().await;
    let (outcome, _) = cancel_and_wait(&lab, task).await;
    assert!(outcome.is_cancelled(), "{outcome:?}");
    assert_eq!(outcome.into_value(), Some(7));
}

/// shield-1: once the guard is gone, a body that cannot hear is dropped after
/// its patience, as any other.
/// Also: cancel-6.
pub async fn shield_1_after_the_guard_a_deaf_body_is_dropped(lab: Lab) {
    let gate = Gate::new();
    let never = Gate::new();
    let tally = Tally::new();
    let opened = gate.clone();
    let dropped = tally.guard();
    let task = spawn(async move {
        let _dropped = dropped;
        let guard = ignore_cancellation().await?;
        opened.wait().await;
        drop(guard);
        never.wait().await;
        Ok::<_, Error>(())
    });
    lab.settle().await;
    assert!(task.cancel("enough"));
    sleep(5 * SEC).await.unwrap();
    assert_eq!(tally.drops(), 0);
    gate.open();
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(tally.drops(), 1);
    assert_eq!(lab.elapsed(), 6 * SEC);
}

/// shield-2: the block protects itself and what is spawned in it, nothing
/// else of its task.
pub async fn shield_2_only_what_is_inside_is_protected(lab: Lab) {
    let log = Log::new();
    let task = spawn({
        let (lab, log) = (lab.clone(), log.clone());
        async move {
            launch(told_at(lab.clone(), log.clone(), "outside"));
            shield(async {
                let own = Scope::current().unwrap();
                launch(told_at(lab.clone(), log.clone(), "inside"));
                sleep(20 * MS).await?;
                own.cancel("done");
                Ok::<_, Error>(())
            })
            .await?;
            checkpoint().await?;
            Ok::<_, Error>(())
        }
    });
    sleep(5 * MS).await.unwrap();
    let (outcome, took) = cancel_and_wait(&lab, task).await;
    assert!(outcome.is_cancelled());
    assert_eq!(took, 15 * MS);
    assert_eq!(log.text(), "outside@5 inside@20");
}

/// shield-2: protection follows the parent: a child spawned from inside into
/// the scope around is told; one spawned from outside into the shield is not.
pub async fn shield_2_protection_follows_the_parent(lab: Lab) {
    let log = Log::new();
    let inner: Arc<Mutex<Option<Scope>>> = Arc::default();
    let task = spawn({
        let (lab, log, inner) = (lab.clone(), log.clone(), inner.clone());
        async move {
            let around = Scope::current().unwrap();
            shield(async {
                let own = Scope::current().unwrap();
                *inner.lock().unwrap() = Some(own.clone());
                around.launch(told_at(lab.clone(), log.clone(), "around"));
                sleep(20 * MS).await?;
                own.cancel("done");
                Ok::<_, Error>(())
            })
            .await?;
            checkpoint().await?;
            Ok::<_, Error>(())
        }
    });
    sleep(5 * MS).await.unwrap();
    let shield = inner.lock().unwrap().take().unwrap();
    shield.launch(told_at(lab.clone(), log.clone(), "in the shield"));
    let (outcome, took) = cancel_and_wait(&lab, task).await;
    assert!(outcome.is_cancelled());
    assert_eq!(took, 15 * MS);
    assert_eq!(log.text(), "around@5 in the shield@20");
}

/// shield-2: a shield waits for its children, and they stay protected until
/// they have ended.
pub async fn shield_2_a_shield_waits_for_its_children(lab: Lab) {
    let log = Log::new();
    let task = spawn({
        let log = log.clone();
        async move {
            shield(async {
                let word = log.clone();
                launch(async move {
                    sleep(30 * MS).await?;
                    launch(async move {
                        sleep(10 * MS).await?;
                        word.say("grandchild");
                        Ok::<_, Error>(())
                    });
                    Ok::<_, Error>(())
                });
            })
            .await?;
            log.say("left");
            checkpoint().await?;
            Ok::<_, Error>(())
        }
    });
    sleep(5 * MS).await.unwrap();
    let (outcome, took) = cancel_and_wait(&lab, task).await;
    assert!(outcome.is_cancelled());
    assert_eq!(took, 35 * MS);
    assert_eq!(log.text(), "grandchild left");
}

/// shield-2: leaving an inner shield leaves the outer one in force.
pub async fn shield_2_shields_nest(lab: Lab) {
    let task = spawn(async {
        let value = shield(async {
            shield(sleep(10 * MS)).await?;
            assert!(!is_cancelled());
            sleep(10 * MS).await?;
            Ok::<_, Error>(7)
        })
        .await?;
        checkpoint().await.unwrap_err();
        Ok::<_, Error>(value)
    });
    lab.settle().await;
    let (outcome, took) = cancel_and_wait(&lab, task).await;
    assert_eq!(took, 20 * MS);
    assert!(outcome.is_cancelled());
    assert_eq!(outcome.into_value(), Some(7));
}

/// shield-2: a failure inside goes to the caller, cancelled or not.
/// Also: outcome-2, outcome-5.
pub async fn shield_2_a_failure_inside_goes_to_the_caller(lab: Lab) {
    let task = spawn(async {
        let told = park().await;
        let error = shield(async {
            spawn(async { Err::<(), _>(Error::msg("child")) }).into_job();
            park().await?;
            Ok::<_, Error>(())
        })
        .await
        .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Failed);
        assert_eq!(error.to_string(), "child");
        told?;
        Ok::<_, Error>(())
    });
    lab.settle().await;
    let (outcome, took) = cancel_and_wait(&lab, task).await;
    assert!(outcome.is_cancelled(), "{outcome:?}");
    assert_eq!(took, Duration::ZERO);
}

/// outcome-5: in a job that is cancelled, a shield that was cancelled by itself
/// ends with the job's cancel: that is the one to pass on.
/// Also: shield-2.
pub async fn outcome_5_an_enclosing_cancel_wins_over_the_shields_own(lab: Lab) {
    let task = spawn(async {
        park().await.expect_err("cancelled");
        let stopped = shield(async {
            assert!(current_job().unwrap().cancel("of the shield"));
            park().await
        })
        .await
        .unwrap_err();
        assert_eq!(stopped.kind(), ErrorKind::Cancelled);
        assert_eq!(stopped.reason().unwrap().text(), Some("enough"));
        Err::<(), _>(stopped)
    });
    lab.settle().await;
    let (outcome, _) = cancel_and_wait(&lab, task).await;
    assert!(outcome.is_cancelled(), "{outcome:?}");
}

/// outcome-5: a scope inside a shield that another job polls, and whose body
/// brings in the cancel from around the shield, tells its poller of the poller's
/// own.
/// Also: cancel-9, outcome-8.
pub async fn outcome_5_a_moved_scope_tells_of_its_pollers_cancel(lab: Lab) {
    let handed = Arc::new(Mutex::new(None));
    let [bring, done] = [Gate::new(), Gate::new()];
    let (hand, brought, until) = (handed.clone(), bring.clone(), done.clone());
    let opens = spawn(async move {
        let told = park().await.expect_err("cancelled");
        shield(async move {
            let mut inner = Box::pin(scope(async move |_| {
                brought.wait().await;
                Err::<(), Error>(told.into())
            }));
            assert!(futures_util::poll!(&mut inner).is_pending());
            *hand.lock().unwrap() = Some(inner);
            until.wait().await;
        })
        .await
    });
    lab.settle().await;
    assert!(opens.cancel("around the shield"));
    lab.settle().await;
    let moved = handed.lock().unwrap().take().expect("it was opened");
    let polls = spawn(async move {
        let stopped = moved.await.unwrap_err();
        assert_eq!(stopped.kind(), ErrorKind::Cancelled);
        assert_eq!(stopped.reason().unwrap().text(), Some("of the poller"));
        done.open();
        Err::<(), _>(stopped)
    });
    lab.settle().await;
    assert!(polls.cancel("of the poller"));
    bring.open();
    assert!(polls.outcome().await.unwrap().is_cancelled());
    assert!(!opens.outcome().await.unwrap().is_failed());
}

/// shield-2: a body that left a shield and then sits in a foreign await has
/// its whole patience from there on.
/// Also: cancel-6.
pub async fn shield_2_patience_counts_from_after_the_shield(lab: Lab) {
    let gate = Gate::new();
    let opened = gate.clone();
    let task = spawn(async move {
        shield(sleep(5 * SEC)).await?;
        opened.wait().await;
        Ok::<_, Error>(7)
    });
    lab.settle().await;
    assert!(task.cancel("enough"));
    sleep(5 * SEC + 500 * MS).await.unwrap();
    gate.open();
    let outcome = task.outcome().await.unwrap();
    assert!(outcome.is_cancelled());
    assert_eq!(outcome.into_value(), Some(7));
}

/// shield-2: the budget counts from when a cancel is held back, not from the
/// entry; when it is spent the cancel is delivered inside.
pub async fn shield_2_a_budget_counts_from_the_cancel(lab: Lab) {
    let log = Log::new();
    let task = spawn({
        let (lab, log) = (lab.clone(), log.clone());
        async move {
            let result = shield_for(50 * MS, told_at(lab, log, "inside")).await;
            Err::<(), _>(result.unwrap_err())
        }
    });
    sleep(100 * MS).await.unwrap();
    let (outcome, took) = cancel_and_wait(&lab, task).await;
    assert_eq!(outcome.reason().unwrap().text(), Some("enough"));
    assert_eq!(took, 50 * MS);
    assert_eq!(log.text(), "inside@150");
}

/// shield-2: entered after the cancel, the budget counts from the entry.
pub async fn shield_2_a_budget_after_a_cancel_counts_from_the_entry(lab: Lab) {
    let log = Log::new();
    let task = spawn({
        let (lab, log) = (lab.clone(), log.clone());
        async move {
            let told = park().await;
            shield(sleep(20 * MS)).await?;
            let result = shield_for(50 * MS, told_at(lab, log, "inside")).await;
            assert_eq!(result.unwrap_err().kind(), ErrorKind::Cancelled);
            told?;
            Ok::<_, Error>(())
        }
    });
    lab.settle().await;
    let (outcome, took) = cancel_and_wait(&lab, task).await;
    assert!(outcome.is_cancelled());
    assert_eq!(took, 70 * MS);
    assert_eq!(log.text(), "inside@70");
}

/// shield-2: without a cancel there is no limit, and no timer.
pub async fn shield_2_a_budget_without_a_cancel_is_no_limit(lab: Lab) {
    let set = lab.counters().timers_set;
    shield_for(10 * MS, sleep(SEC)).await.unwrap();
    assert_eq!(lab.elapsed(), SEC);
    assert_eq!(lab.counters().timers_set, set + 1);
}

/// shield-2: a body that is done within its budget keeps its value, and the
/// budget's timer is gone.
/// Also: time-4.
pub async fn shield_2_a_body_within_its_budget_is_never_told(lab: Lab) {
    let pending = lab.counters().timers_pending();
    let task = spawn(async {
        let told = park().await;
        let value = shield_for(50 * MS, async {
            sleep(49 * MS).await?;
            checkpoint().await?;
            Ok::<_, Error>(7)
        });
        assert_eq!(value.await?, 7);
        told?;
        Ok::<_, Error>(())
    });
    lab.settle().await;
    let (outcome, took) = cancel_and_wait(&lab, task).await;
    assert!(outcome.is_cancelled());
    assert_eq!(took, 49 * MS);
    assert_eq!(lab.counters().timers_pending(), pending);
}

/// shield-2: a zero budget in a cancelled job tells at the first point.
pub async fn shield_2_a_zero_budget_tells_at_the_first_point(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let task = spawn(async move {
        let told = park().await;
        let result = shield_for(Duration::ZERO, async {
            words.say("entered");
            checkpoint().await?;
            words.say("went on");
            Ok::<_, Error>(())
        });
        assert_eq!(result.await.unwrap_err().kind(), ErrorKind::Cancelled);
        told?;
        Ok::<_, Error>(())
    });
    lab.settle().await;
    let (outcome, took) = cancel_and_wait(&lab, task).await;
    assert!(outcome.is_cancelled());
    assert_eq!(took, Duration::ZERO);
    assert_eq!(log.text(), "entered");
}

/// shield-2: a spent budget reaches children, scopes and hooks inside.
pub async fn shield_2_a_spent_budget_reaches_everything_inside(lab: Lab) {
    let log = Log::new();
    let task = spawn({
        let (lab, log) = (lab.clone(), log.clone());
        async move {
            let told = park().await;
            let result = shield_for(20 * MS, async {
                let word = log.clone();
                on_cancel(move |reason| word.say(reason.text().unwrap_or_default())).keep();
                launch(told_at(lab.clone(), log.clone(), "child"));
                let inner = scope(async |_| told_at(lab.clone(), log.clone(), "scope").await);
                inner.await
            });
            assert_eq!(result.await.unwrap_err().kind(), ErrorKind::Cancelled);
            told?;
            Ok::<_, Error>(())
        }
    });
    lab.settle().await;
    let (outcome, took) = cancel_and_wait(&lab, task).await;
    assert!(outcome.is_cancelled());
    assert_eq!(took, 20 * MS);
    // Tasks without hooks are handed over before hooks are called: on several threads the child
    // may be the first.
    let text = log.text();
    assert!(text.contains("enough"), "{text}");
    assert!(text.contains("child@20"), "{text}");
    assert!(text.contains("scope@20"), "{text}");
}

/// shield-2: nested budgets count once, opened after the cancel: the inner
/// one has what is left of its budget since the cancel was held back.
pub async fn shield_2_nested_budgets_count_once_after_a_cancel(lab: Lab) {
    let log = Log::new();
    let task = spawn({
        let (lab, log) = (lab.clone(), log.clone());
        async move {
            let told = park().await;
            let result = shield_for(100 * MS, async {
                sleep(30 * MS).await?;
                let inner = shield_for(100 * MS, told_at(lab.clone(), log.clone(), "inner"));
                let error = inner.await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Cancelled);
                Err::<(), _>(error)
            });
            assert_eq!(result.await.unwrap_err().kind(), ErrorKind::Cancelled);
            told?;
            Ok::<_, Error>(())
        }
    });
    lab.settle().await;
    let (outcome, took) = cancel_and_wait(&lab, task).await;
    assert!(outcome.is_cancelled());
    assert_eq!(took, 100 * MS);
    assert_eq!(log.text(), "inner@100");
}

/// shield-2: the same for shields that were open when the cancel came: the
/// longer inner budget does not start when the outer one is spent.
pub async fn shield_2_nested_budgets_count_once_before_a_cancel(lab: Lab) {
    let log = Log::new();
    let task = spawn({
        let (lab, log) = (lab.clone(), log.clone());
        async move {
            let result = shield_for(50 * MS, async {
                launch(told_at(lab.clone(), log.clone(), "outer"));
                shield_for(80 * MS, told_at(lab.clone(), log.clone(), "inner")).await
            });
            Err::<(), _>(result.await.unwrap_err())
        }
    });
    sleep(10 * MS).await.unwrap();
    let (outcome, took) = cancel_and_wait(&lab, task).await;
    assert!(outcome.is_cancelled(), "{outcome:?}");
    assert_eq!(took, 80 * MS);
    assert_eq!(log.text(), "outer@60 inner@90");
}

/// shield-2: what an outer shield protects includes an inner one whose budget
/// is spent: the cancel comes in when the outer one lets it through.
pub async fn shield_2_an_outer_shield_protects_a_spent_inner_one(lab: Lab) {
    let log = Log::new();
    let task = spawn({
        let (lab, log) = (lab.clone(), log.clone());
        async move {
            let told = park().await;
            let outer = shield_for(80 * MS, async {
                sleep(10 * MS).await?;
                let inner = shield_for(30 * MS, told_at(lab.clone(), log.clone(), "inner"));
                assert_eq!(inner.await.unwrap_err().kind(), ErrorKind::Cancelled);
                assert!(is_cancelled());
                sleep(10 * MS).await?;
                Ok::<_, Error>(())
            });
            assert_eq!(outer.await.unwrap_err().kind(), ErrorKind::Cancelled);
            told?;
            Ok::<_, Error>(())
        }
    });
    lab.settle().await;
    let (outcome, took) = cancel_and_wait(&lab, task).await;
    assert!(outcome.is_cancelled(), "{outcome:?}");
    assert_eq!(took, 80 * MS);
    assert_eq!(log.text(), "inner@80");
}

/// shield-2: the same for shields that were open when the cancel came.
pub async fn shield_2_an_outer_shield_protects_a_spent_inner_one_when_open(lab: Lab) {
    let log = Log::new();
    let task = spawn({
        let (lab, log) = (lab.clone(), log.clone());
        async move {
            let outer = shield_for(80 * MS, async {
                let inner = shield_for(30 * MS, told_at(lab.clone(), log.clone(), "inner"));
                assert_eq!(inner.await.unwrap_err().kind(), ErrorKind::Cancelled);
                Ok::<_, Error>(())
            });
            outer.await?;
            checkpoint().await?;
            Ok::<_, Error>(())
        }
    });
    sleep(10 * MS).await.unwrap();
    let (outcome, took) = cancel_and_wait(&lab, task).await;
    assert!(outcome.is_cancelled(), "{outcome:?}");
    assert_eq!(log.text(), "inner@90");
    assert_eq!(took, 80 * MS);
}

/// shield-2: when a budget is spent, a body inside that cannot hear is dropped
/// after its patience, and its caller goes on with Cancelled.
/// Also: cancel-6.
pub async fn shield_2_a_deaf_body_is_dropped_once_the_budget_is_spent(lab: Lab) {
    let never = Gate::new();
    let task = spawn(async move {
        let told = park().await;
        let error = shield_for(100 * MS, never.wait()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled);
        told?;
        Ok::<_, Error>(())
    });
    lab.settle().await;
    let (outcome, took) = cancel_and_wait(&lab, task).await;
    assert!(outcome.is_cancelled());
    assert_eq!(took, SEC + 100 * MS);
}

/// shield-3: in clean-up everything works that had stopped working: sleeps,
/// spawns, scopes, timeouts, guards.
pub async fn shield_3_clean_up_can_wait_and_spawn(lab: Lab) {
    let log = Log::new();
    let task = spawn({
        let log = log.clone();
        async move {
            let told = park().await;
            checkpoint().await.unwrap_err();
            let value = cleanup(async {
                checkpoint().await?;
                sleep(10 * MS).await?;
                let child = spawn(async {
                    sleep(10 * MS).await?;
                    Ok::<_, Error>(3)
                });
                let scoped = scope(async |s| s.spawn(async { 4 }).await).await?;
                let error = timeout(10 * MS, park()).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::TimedOut);
                drop(ignore_cancellation().await?);
                Ok::<_, Error>(child.await? + scoped)
            })
            .await?;
            log.say(value.to_string());
            checkpoint().await.unwrap_err();
            told?;
            Ok::<_, Error>(())
        }
    });
    lab.settle().await;
    let (outcome, took) = cancel_and_wait(&lab, task).await;
    assert!(outcome.is_cancelled(), "{outcome:?}");
    assert_eq!(took, 20 * MS);
    assert_eq!(log.text(), "7");
}

/// shield-3: clean-up is bounded by the patience of the place: the runtime's
/// thirty seconds, unless said otherwise.
pub async fn shield_3_clean_up_is_bounded_by_the_default(lab: Lab) {
    let log = Log::new();
    let task = spawn({
        let (lab, log) = (lab.clone(), log.clone());
        async move {
            let told = park().await;
            let error = cleanup(told_at(lab, log, "cleanup")).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Cancelled);
            told?;
            Ok::<_, Error>(())
        }
    });
    lab.settle().await;
    let (outcome, took) = cancel_and_wait(&lab, task).await;
    assert!(outcome.is_cancelled());
    assert_eq!(took, Patience::default().cleanup);
    assert_eq!(log.text(), "cleanup@30000");
}

/// shield-3: the nearest patience counts: a task's own, or a scope's.
pub async fn shield_3_the_nearest_patience_bounds_clean_up(lab: Lab) {
    let log = Log::new();
    let patience = |cleanup: Duration| Patience {
        cleanup,
        ..Patience::default()
    };
    let spawner = Scope::current().unwrap().task("worker");
    let task = spawner.patience(patience(40 * MS)).spawn({
        let (lab, log) = (lab.clone(), log.clone());
        async move {
            let told = park().await;
            let inner = Scope::build().patience(patience(10 * MS)).run(async |_| {
                cleanup(told_at(lab.clone(), log.clone(), "scope")).await?;
                Ok(())
            });
            assert_eq!(inner.await.unwrap_err().kind(), ErrorKind::Cancelled);
            let error = cleanup(told_at(lab, log, "task")).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Cancelled);
            told?;
            Ok::<_, Error>(())
        }
    });
    lab.settle().await;
    let (outcome, took) = cancel_and_wait(&lab, task).await;
    assert!(outcome.is_cancelled());
    assert_eq!(took, 50 * MS);
    assert_eq!(log.text(), "scope@10 task@50");
}

/// shield-3: with a patience of MAX clean-up has no bound.
pub async fn shield_3_clean_up_without_a_bound(lab: Lab) {
    let strict = Patience {
        unaware: Duration::MAX,
        cleanup: Duration::MAX,
    };
    let spawner = Scope::current().unwrap().task("strict");
    let task = spawner.patience(strict).spawn(async {
        let told = park().await;
        cleanup(sleep(1_000_000 * SEC)).await?;
        told?;
        Ok::<_, Error>(())
    });
    lab.settle().await;
    let (outcome, took) = cancel_and_wait(&lab, task).await;
    assert!(outcome.is_cancelled(), "{outcome:?}");
    assert_eq!(took, 1_000_000 * SEC);
}

/// shield-3: clean-up inside clean-up does not start the clock again.
pub async fn shield_3_nested_clean_up_counts_once(lab: Lab) {
    let log = Log::new();
    let task = spawn({
        let (lab, log) = (lab.clone(), log.clone());
        async move {
            let told = park().await;
            let result = cleanup(async {
                sleep(20 * SEC).await?;
                cleanup(told_at(lab.clone(), log.clone(), "inner")).await
            });
            assert_eq!(result.await.unwrap_err().kind(), ErrorKind::Cancelled);
            told?;
            Ok::<_, Error>(())
        }
    });
    lab.settle().await;
    let (outcome, took) = cancel_and_wait(&lab, task).await;
    assert!(outcome.is_cancelled());
    assert_eq!(took, 30 * SEC);
    assert_eq!(log.text(), "inner@30000");
}

/// shield-3: clean-up that sits in a foreign await is bounded too: told when
/// the time is up, and dropped when it does not hear.
/// Also: cancel-6.
pub async fn shield_3_deaf_clean_up_is_dropped(lab: Lab) {
    let never = Gate::new();
    let tally = Tally::new();
    let counted = tally.count(async move { never.wait().await });
    let task = spawn(async move {
        let told = park().await;
        let error = cleanup(counted).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled);
        told?;
        Ok::<_, Error>(())
    });
    lab.settle().await;
    let (outcome, took) = cancel_and_wait(&lab, task).await;
    assert!(outcome.is_cancelled());
    assert_eq!(tally.drops(), 1);
    assert_eq!(took, 31 * SEC);
}
