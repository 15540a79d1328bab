//! Nested scopes, and whose a cancellation is: group E of the conformance
//! cases.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kinfolk_core::{
    Error, ErrorKind, JobState, ReasonKind, Scope, checkpoint, launch, park, scope, sleep, spawn,
    timeout,
};

use kinfolk_testkit::{Gate, Lab, Log, Tally};

const MS: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);

/// A body that waits in a point.
async fn parked() -> Result<(), Error> {
    park().await?;
    Ok(())
}

/// E01: three scopes; the innermost is cancelled, then the middle one: the
/// middle one absorbs, the outer one is untouched.
/// Also: request-3.
pub async fn case_e01_the_outermost_cancelled_scope_absorbs(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let scopes = Arc::new(Mutex::new(Vec::<Scope>::new()));
    let list = scopes.clone();
    let task = spawn(async move {
        scope(async |one| {
            list.lock().unwrap().push(one);
            let middle = scope(async |two| {
                list.lock().unwrap().push(two);
                let inner = scope(async |three| {
                    list.lock().unwrap().push(three);
                    parked().await
                })
                .await;
                words.say(format!("{:?}", inner.as_ref().unwrap_err().kind()));
                checkpoint().await?;
                words.say("missed");
                inner
            })
            .await;
            words.say(format!("{:?}", middle.unwrap_err().kind()));
            checkpoint().await?;
            Ok(7)
        })
        .await
    });
    lab.settle().await;
    let [one, two, three] = &scopes.lock().unwrap().clone()[..] else {
        panic!("three scopes are open");
    };
    assert!(three.cancel("three"));
    assert!(two.cancel("two"));
    assert_eq!(task.await.unwrap(), 7);
    assert_eq!(log.text(), "Cancelled Stopped");
    assert!(three.cancel_requested() && two.cancel_requested());
    assert!(!one.cancel_requested());
    assert_eq!(three.cancel_reason().unwrap().text(), Some("three"));
    assert_eq!(one.job().state(), JobState::Completed);
}

/// E02: the inner scope is cancelled; while it unwinds, so is the outer one:
/// the inner one does not absorb.
pub async fn case_e02_an_outer_cancel_while_the_inner_unwinds(_lab: Lab) {
    let log = Log::new();
    let outer = scope(async |outer| {
        let inner = scope(async |inner| {
            assert!(inner.cancel("inner"));
            let told = checkpoint().await.unwrap_err();
            log.say(told.reason().text().unwrap());
            assert!(outer.cancel("outer"));
            Err::<(), Error>(told.into())
        })
        .await
        .unwrap_err();
        log.say(format!("{:?}", inner.kind()));
        log.say(inner.reason().unwrap().text().unwrap());
        checkpoint().await?;
        log.say("missed");
        Ok(())
    })
    .await
    .unwrap_err();
    assert_eq!(outer.kind(), ErrorKind::Stopped);
    assert_eq!(outer.reason().unwrap().text(), Some("outer"));
    assert_eq!(log.text(), "inner Cancelled outer");
    checkpoint().await.unwrap();
}

/// E05: the outer scope is cancelled; an inner one that cancels itself does
/// not absorb, the outer one does.
pub async fn case_e05_an_inner_self_cancel_in_a_cancelled_scope(_lab: Lab) {
    let log = Log::new();
    let outer = scope(async |outer| {
        assert!(outer.cancel("outer"));
        let inner = scope(async |inner| {
            assert!(!inner.cancel("inner"));
            parked().await
        })
        .await;
        log.say(format!("{:?}", inner.as_ref().unwrap_err().kind()));
        inner?;
        log.say("missed");
        Ok(())
    })
    .await
    .unwrap_err();
    assert_eq!(outer.kind(), ErrorKind::Stopped);
    assert_eq!(outer.reason().unwrap().text(), Some("outer"));
    assert_eq!(log.text(), "Cancelled");
    checkpoint().await.unwrap();
}

/// E05: the same when the inner one was cancelled first: what it was told is
/// its own, what leaves it is the outer one's.
pub async fn case_e05_an_inner_cancel_before_the_outer_one(_lab: Lab) {
    let outer = scope(async |outer| {
        let inner = scope(async |inner| {
            assert!(inner.cancel("inner"));
            assert!(outer.cancel("outer"));
            let told = park().await.unwrap_err();
            assert_eq!(told.reason().text(), Some("inner"));
            Err::<(), Error>(told.into())
        })
        .await
        .unwrap_err();
        assert_eq!(inner.kind(), ErrorKind::Cancelled);
        Err::<(), Error>(inner)
    })
    .await
    .unwrap_err();
    assert_eq!(outer.kind(), ErrorKind::Stopped);
    assert_eq!(outer.reason().unwrap().text(), Some("outer"));
}

/// E06: a scope cancelled before it is entered: its body runs to its first
/// point, and the scope absorbs.
pub async fn case_e06_a_scope_cancelled_before_it_is_entered(lab: Lab) {
    let log = Log::new();
    let before = lab.elapsed();
    let error = Scope::named("early")
        .cancelled("from the start")
        .run(async |s| {
            assert!(s.cancel_requested());
            log.say("entered");
            sleep(SEC).await?;
            log.say("missed");
            Ok(())
        })
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stopped);
    assert_eq!(error.reason().unwrap().text(), Some("from the start"));
    assert_eq!(error.reason().unwrap().kind(), ReasonKind::Asked);
    assert_eq!(log.text(), "entered");
    assert_eq!(lab.elapsed(), before);
    checkpoint().await.unwrap();
}

/// E08: the children of an inner and an outer scope fail in the same tick:
/// the inner one yields its error, its handler runs, then the outer one's
/// cancellation is told and the outer one yields its own.
pub async fn case_e08_inner_and_outer_fail_in_the_same_tick(lab: Lab) {
    let gate = Gate::new();
    let log = Log::new();
    let fails = |word: &'static str| {
        let gate = gate.clone();
        async move {
            gate.wait().await;
            Err::<(), Error>(Error::msg(word))
        }
    };
    let (first, second, words) = (fails("inner"), fails("outer"), log.clone());
    let task = spawn(async move {
        let outer = scope(async |outer| {
            outer.launch(second);
            let inner = scope(async |inner| {
                inner.launch(first);
                parked().await
            })
            .await
            .unwrap_err();
            assert_eq!(inner.kind(), ErrorKind::Failed);
            words.say(inner.to_string());
            // The outer child may still be about to fail.
            let told = park().await.unwrap_err();
            words.say(format!("{:?}", told.reason().kind()));
            Err::<(), Error>(told.into())
        })
        .await
        .unwrap_err();
        assert_eq!(outer.kind(), ErrorKind::Failed);
        assert!(outer.suppressed().is_empty());
        words.say(outer.to_string());
        checkpoint().await
    });
    lab.settle().await;
    gate.open();
    task.await.unwrap();
    assert_eq!(log.text(), "inner ChildFailed outer");
}

/// E10: an external cancel inside a timeout is Cancelled, never TimedOut.
/// Also: request-3.
pub async fn case_e10_an_external_cancel_inside_a_timeout(lab: Lab) {
    let task = spawn(async {
        let error = timeout(10 * SEC, parked()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled);
        assert_eq!(error.reason().unwrap().text(), Some("from outside"));
        Err::<(), Error>(error)
    });
    lab.settle().await;
    sleep(3 * SEC).await.unwrap();
    let before = lab.elapsed();
    assert!(task.cancel("from outside"));
    let outcome = task.outcome().await.unwrap();
    assert_eq!(outcome.reason().unwrap().kind(), ReasonKind::Asked);
    assert_eq!(lab.elapsed(), before);
    assert_eq!(lab.counters().timers_pending(), 0);
}

/// E11: one task cancels a scope inside another: only that block unwinds, and
/// the other task goes on and completes.
pub async fn case_e11_a_scope_cancelled_by_another_task(lab: Lab) {
    let slot = Arc::new(Mutex::new(None));
    let kept = slot.clone();
    let log = Log::new();
    let words = log.clone();
    let task = spawn(async move {
        let error = scope(async |s| {
            *kept.lock().unwrap() = Some(s);
            parked().await?;
            words.say("missed");
            Ok(())
        })
        .await
        .unwrap_err();
        words.say(format!("{:?}", error.kind()));
        checkpoint().await?;
        Ok::<_, Error>(7)
    });
    lab.settle().await;
    let inside: Scope = slot.lock().unwrap().take().unwrap();
    spawn(async move { assert!(inside.cancel("from a sibling")) })
        .await
        .unwrap();
    let outcome = task.outcome().await.unwrap();
    assert_eq!(outcome.completed(), Some(7));
    assert_eq!(log.text(), "Stopped");
}

/// E12: cancelling a scope inside a child task leaves the parent scope
/// uncancelled.
pub async fn case_e12_a_scope_inside_a_child_task(lab: Lab) {
    let answer = scope(async |parent| {
        let slot = Arc::new(Mutex::new(None));
        let kept = slot.clone();
        let child = parent.spawn(async move {
            let inner = scope(async |s| {
                *kept.lock().unwrap() = Some(s);
                parked().await
            })
            .await;
            assert_eq!(inner.unwrap_err().kind(), ErrorKind::Stopped);
            checkpoint().await
        });
        lab.settle().await;
        let inside: Scope = slot.lock().unwrap().take().unwrap();
        assert!(inside.cancel("only this"));
        assert!(!child.job().cancel_requested());
        child.await?;
        assert!(!parent.cancel_requested());
        checkpoint().await?;
        Ok(7)
    })
    .await;
    assert_eq!(answer.unwrap(), 7);
}

/// E16: a timeout fires inside a scope whose last statement cancels it: no
/// Cancelled escapes.
pub async fn case_e16_no_cancelled_escapes(lab: Lab) {
    let before = lab.elapsed();
    let answer = scope(async |s| {
        let moved_on = timeout(10 * MS, parked()).await;
        assert_eq!(moved_on.unwrap_err().kind(), ErrorKind::TimedOut);
        checkpoint().await?;
        assert!(s.cancel("at the end"));
        Ok(7)
    })
    .await;
    assert_eq!(answer.unwrap(), 7);
    assert_eq!(lab.elapsed() - before, 10 * MS);
    checkpoint().await.unwrap();
}

/// E18: a child that starts in a cancelled scope and opens a scope of its own:
/// that one does not absorb. One spawned after the cancel never starts.
/// Also: tree-5.
pub async fn case_e18_a_childs_own_scope_does_not_absorb(_lab: Lab) {
    let log = Log::new();
    let tally = Tally::new();
    let (words, counted) = (log.clone(), tally.count(parked()));
    let error = scope(async |s| {
        let child = s.spawn_atomic(async move {
            let inner = scope(async |_| parked().await).await;
            words.say(format!("{:?}", inner.as_ref().unwrap_err().kind()));
            inner?;
            words.say("missed");
            Ok::<_, Error>(())
        });
        assert!(s.cancel("before its start"));
        let late = s.spawn(counted);
        assert_eq!(late.job().state(), JobState::Cancelled);
        child.await?;
        Ok(())
    })
    .await
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stopped);
    assert_eq!(log.text(), "Cancelled");
    assert_eq!((tally.polls(), tally.drops()), (0, 1));
}

/// E20: a scope is cancelled, but its body returns an error of its own: that
/// passes through untouched.
/// Also: outcome-5.
pub async fn case_e20_a_real_error_passes_through(_lab: Lab) {
    let error = scope(async |s| {
        assert!(s.cancel("no matter"));
        checkpoint().await.unwrap_err();
        let parsed: i32 = "seven".parse()?;
        Ok(parsed)
    })
    .await
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Failed);
    assert!(error.downcast_ref::<std::num::ParseIntError>().is_some());
    assert_eq!(error.during().unwrap().text(), Some("no matter"));
    assert!(error.suppressed().is_empty());
    checkpoint().await.unwrap();
}

/// E20: the same with two failures of children and no error of the body: both
/// come out, and no Cancelled among them.
pub async fn case_e20_an_aggregate_passes_through(lab: Lab) {
    let gate = Gate::new();
    let fails = |word: &'static str| {
        let gate = gate.clone();
        async move {
            gate.wait().await;
            Err::<(), Error>(Error::msg(word))
        }
    };
    let (a, b) = (fails("a"), fails("b"));
    let error = scope(async |s| {
        s.launch(a);
        s.launch(b);
        launch(parked());
        lab.settle().await;
        assert!(s.cancel("no matter"));
        gate.open();
        checkpoint().await?;
        Ok(())
    })
    .await
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Failed);
    assert_eq!(error.suppressed_count(), 1);
    let other = &error.suppressed()[0];
    assert_eq!(other.kind(), ErrorKind::Failed);
    let mut words = [&error, other].map(|error| error.to_string().chars().next());
    words.sort_unstable();
    assert_eq!(words, [Some('a'), Some('b')]);
    checkpoint().await.unwrap();
}
