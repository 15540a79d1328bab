//! Shields: the cases of group H.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use kinfolk_core::{
    Error, ErrorKind, HookGuard, JobState, Scope, checkpoint, current_job, deadline,
    ignore_cancellation, is_cancelled, is_shielded, on_cancel, park, scope, shield, sleep, spawn,
    timeout, try_shield,
};

use kinfolk_testkit::{Gate, Lab, Log, Tally};

const MS: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);

/// A hook that says a word.
fn hook(log: &Log, word: &'static str) -> HookGuard {
    let log = log.clone();
    on_cancel(move |_| log.say(word))
}

/// A cancel that comes while the body is in a shield is told at the first
/// point after it.
/// Also: shield-2.
pub async fn case_h01_a_cancel_waits_for_the_end_of_the_shield(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let task = spawn(async move {
        let value = shield(async {
            for _ in 0..3 {
                sleep(10 * MS).await?;
                checkpoint().await?;
            }
            words.say("shielded");
            Ok::<_, Error>(7)
        })
        .await?;
        words.say(value.to_string());
        checkpoint().await?;
        words.say("went on");
        Ok::<_, Error>(())
    });
    sleep(5 * MS).await.unwrap();
    assert!(task.cancel("enough"));
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(log.text(), "shielded 7");
    assert_eq!(lab.elapsed(), 30 * MS);
}

/// A shield that is entered after the cancel runs to its end.
/// Also: shield-2.
pub async fn case_h02_a_shield_can_be_entered_after_a_cancel(lab: Lab) {
    let task = spawn(async {
        let told = park().await;
        let value = shield(async {
            sleep(10 * MS).await?;
            checkpoint().await?;
            Ok::<_, Error>(7)
        });
        assert_eq!(value.await?, 7);
        told?;
        Ok::<_, Error>(())
    });
    lab.settle().await;
    assert!(task.cancel("enough"));
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(lab.elapsed(), 10 * MS);
}

/// Two shields one after the other both run; a point between and after fails.
/// Also: shield-2.
pub async fn case_h03_two_shields_in_a_row_both_run(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let task = spawn(async move {
        let _told = park().await.unwrap_err();
        shield(sleep(10 * MS)).await?;
        words.say("one");
        checkpoint().await.unwrap_err();
        shield(sleep(10 * MS)).await?;
        words.say("two");
        checkpoint().await?;
        words.say("went on");
        Ok::<_, Error>(())
    });
    lab.settle().await;
    task.cancel("enough");
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(log.text(), "one two");
    assert_eq!(lab.elapsed(), 20 * MS);
}

/// `try_shield` after a cancel fails, and its future is never polled.
/// Also: shield-1, T12.
pub async fn case_h04_try_shield_after_a_cancel_is_refused(lab: Lab) {
    let tally = Tally::new();
    let counted = tally.count(async { 7 });
    let task = spawn(async move {
        let told = park().await.unwrap_err();
        let refused = try_shield(counted).await.unwrap_err();
        assert!(refused.reason().same(told.reason()));
        Err::<(), _>(refused)
    });
    lab.settle().await;
    task.cancel("enough");
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!((tally.polls(), tally.drops()), (0, 1));
}

/// Two guards: leaving the inner one changes nothing, leaving the outer one
/// delivers; the hook and the child hear of it once.
/// Also: shield-1, T2, T11.
pub async fn case_h05_only_the_outermost_guard_delivers(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let task = spawn({
        let lab = lab.clone();
        async move {
            let hook = hook(&words, "hook");
            let child = words.clone();
            spawn(async move {
                let told = park().await;
                child.say("child");
                told.map(drop)
            })
            .into_job();
            let outer = ignore_cancellation().await?;
            let inner = ignore_cancellation().await?;
            sleep(10 * MS).await?;
            assert!(current_job().unwrap().cancel_requested());
            drop(inner);
            words.say("inner");
            checkpoint().await?;
            lab.settle().await;
            words.say("outer");
            drop(outer);
            lab.settle().await;
            checkpoint().await.unwrap_err();
            assert!(!hook.disarm());
            checkpoint().await?;
            Ok::<_, Error>(())
        }
    });
    sleep(5 * MS).await.unwrap();
    assert!(task.cancel("enough"));
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(log.text(), "inner outer hook child");
}

/// A shield holds back what comes from outside; a scope inside it can be
/// cancelled and times out as ever.
/// Also: shield-2.
pub async fn case_h07_scopes_inside_a_shield_can_be_cancelled(lab: Lab) {
    let task = spawn({
        let lab = lab.clone();
        async move {
            let told = park().await;
            shield(async {
                let inner = scope(async |s| {
                    assert!(s.cancel("inner"));
                    checkpoint().await?;
                    Ok(())
                });
                let error = inner.await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Stopped);
                assert_eq!(error.reason().unwrap().text(), Some("inner"));
                checkpoint().await?;
                let error = timeout(10 * MS, park()).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::TimedOut);
                assert_eq!(lab.elapsed(), 10 * MS);
                checkpoint().await?;
                Ok::<_, Error>(())
            })
            .await?;
            told?;
            Ok::<_, Error>(())
        }
    });
    lab.settle().await;
    task.cancel("outer");
    let outcome = task.outcome().await.unwrap();
    assert_eq!(outcome.reason().unwrap().text(), Some("outer"));
}

/// Cancelling the shield itself is delivered inside it, and ends with it.
/// Also: shield-2.
pub async fn case_h08_the_shield_itself_can_be_cancelled(lab: Lab) {
    let error = shield(async {
        let own = Scope::current().unwrap();
        spawn(async move {
            sleep(10 * MS).await?;
            assert!(own.cancel("the shield"));
            Ok::<_, Error>(())
        })
        .into_job();
        let told = park().await.unwrap_err();
        assert_eq!(told.reason().text(), Some("the shield"));
        assert!(is_cancelled());
        Err::<(), _>(told)
    })
    .await
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stopped);
    assert_eq!(lab.elapsed(), 10 * MS);
    checkpoint().await.unwrap();
}

/// What is spawned inside a shield is protected by it; an explicit cancel of
/// the scope it is in still reaches it.
/// Also: shield-2.
pub async fn case_h10_children_of_a_shield_are_protected(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let task = spawn(async move {
        shield(async {
            let word = words.clone();
            let child = spawn(async move {
                sleep(20 * MS).await?;
                word.say("child");
                Ok::<_, Error>(())
            });
            let inner = scope(async |s| {
                let word = words.clone();
                s.launch(async move {
                    let told = park().await.unwrap_err();
                    word.say(told.reason().text().unwrap_or_default());
                    Err::<(), _>(told)
                });
                sleep(30 * MS).await?;
                s.cancel("inside");
                Ok(())
            });
            inner.await?;
            child.await
        })
        .await?;
        words.say("left");
        checkpoint().await?;
        Ok::<_, Error>(())
    });
    sleep(10 * MS).await.unwrap();
    assert!(task.cancel("outside"));
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(log.text(), "child inside left");
    assert_eq!(lab.elapsed(), 30 * MS);
}

/// Inside a shield nothing shows of a cancel from outside: not the flag, not
/// the deadline. After it every point fails.
/// Also: cancel-4, time-1.
pub async fn case_h13_inside_a_shield_no_cancel_shows(lab: Lab) {
    let result = Scope::build().timeout(10 * MS).run(async |s| {
        shield(async {
            sleep(20 * MS).await?;
            assert!(s.cancel_requested());
            assert!(!is_cancelled());
            assert!(is_shielded());
            assert_eq!(deadline(), None);
            checkpoint().await?;
            Ok::<_, Error>(())
        })
        .await?;
        assert!(is_cancelled());
        assert!(!is_shielded());
        assert!(deadline().is_some());
        checkpoint().await.unwrap_err();
        checkpoint().await?;
        Ok(())
    });
    assert_eq!(result.await.unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(lab.elapsed(), 20 * MS);
}

/// From outside the mark is seen at once; the task in its shield sees none.
/// Also: cancel-4.
pub async fn case_h14_outside_sees_the_mark_inside_does_not(lab: Lab) {
    let gate = Gate::new();
    let opened = gate.clone();
    let task = spawn(async move {
        shield(async {
            opened.wait().await;
            assert!(!is_cancelled());
            checkpoint().await
        })
        .await?;
        assert!(is_cancelled());
        checkpoint().await?;
        Ok::<_, Error>(())
    });
    let job = task.job();
    lab.settle().await;
    assert!(!job.cancel_requested());
    assert!(task.cancel("enough"));
    assert!(job.cancel_requested());
    assert_eq!(job.state(), JobState::Cancelling);
    lab.settle().await;
    assert!(!job.is_ended());
    gate.open();
    assert!(task.outcome().await.unwrap().is_cancelled());
}

/// A hook registered in a shield does not fire in it; if it is still armed at
/// the exit and a cancel has come, it fires there.
/// Also: cancel-8.
pub async fn case_h15_a_hook_made_in_a_shield_fires_at_its_exit(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let task = spawn(async move {
        let (kept, disarmed) = shield(async {
            let kept = hook(&words, "kept");
            let disarmed = hook(&words, "disarmed");
            let gone = hook(&words, "gone");
            sleep(10 * MS).await?;
            assert!(gone.disarm());
            words.say("leaving");
            Ok::<_, Error>((kept, disarmed.disarm()))
        })
        .await?;
        words.say("left");
        assert!(disarmed);
        assert!(!kept.disarm());
        checkpoint().await?;
        Ok::<_, Error>(())
    });
    sleep(5 * MS).await.unwrap();
    assert!(task.cancel("enough"));
    assert!(log.is_empty());
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(log.text(), "leaving kept left");
    assert_eq!(lab.elapsed(), 10 * MS);
}

/// A hook registered in a shield that is not cancelled goes on at the job
/// around it, and fires with a later cancel, once.
/// Also: cancel-8, T16.
pub async fn case_h15_a_hook_made_in_a_shield_goes_on_outside(lab: Lab) {
    let fired = Arc::new(AtomicUsize::new(0));
    let count = fired.clone();
    let task = spawn(async move {
        let _hook = shield(shield(async move {
            Ok::<_, Error>(on_cancel(move |reason| {
                assert_eq!(reason.text(), Some("later"));
                count.fetch_add(1, SeqCst);
            }))
        }))
        .await?;
        park().await?;
        Ok::<_, Error>(())
    });
    lab.settle().await;
    assert_eq!(fired.load(SeqCst), 0);
    assert!(task.cancel("later"));
    assert_eq!(fired.load(SeqCst), 1);
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(fired.load(SeqCst), 1);
}

/// `is_shielded` speaks of the task that asks, and of no other.
pub async fn case_h18_being_shielded_is_the_current_tasks_own(lab: Lab) {
    assert!(!is_shielded());
    let other = spawn({
        let lab = lab.clone();
        async move {
            lab.settle().await;
            is_shielded()
        }
    });
    let held = shield(async {
        assert!(is_shielded());
        assert!(scope(async |_| Ok(is_shielded())).await?);
        let other = other.await?;
        Ok::<_, Error>(other)
    });
    assert!(!held.await.unwrap());
    assert!(!is_shielded());
    let guard = ignore_cancellation().await.unwrap();
    assert!(is_shielded());
    let other = spawn(async { is_shielded() });
    assert!(!other.await.unwrap());
    drop(guard);
    assert!(!is_shielded());
    assert!(!timeout(SEC, async { is_shielded() }).await.unwrap());
}
