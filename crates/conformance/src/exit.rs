//! Leaving a scope: the drain, spawns into a closing scope, `cancel()` from
//! inside, and panics in unexpected places.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kinfolk_core::{
    Error, ErrorKind, JobState, Outcome, ReasonKind, Scope, Success, checkpoint, cleanup,
    current_job, is_cancelled, launch, park, scope, sleep, spawn, timeout,
};

use kinfolk_testkit::{Gate, Lab, Log, Tally};

const MS: Duration = Duration::from_millis(1);

/// Panics without a word on standard error.
fn raise<T>(words: &'static str) -> T {
    std::panic::resume_unwind(Box::new(words))
}

/// K01: children may spawn siblings while the scope drains; it waits for
/// those too.
pub async fn case_k01_siblings_spawned_in_the_drain_are_waited_for(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let before = lab.elapsed();
    let value = scope(async move |s| {
        let into = s.clone();
        let said = words.clone();
        s.launch(async move {
            sleep(10 * MS).await?;
            into.launch(async move {
                sleep(10 * MS).await?;
                said.say("sibling");
                Ok::<_, Error>(())
            });
            Ok::<_, Error>(())
        });
        words.say("body");
        Ok(5)
    })
    .await;
    assert_eq!(value.unwrap(), 5);
    assert_eq!(log.text(), "body sibling");
    assert_eq!(lab.elapsed() - before, 20 * MS);
}

/// K02: a spawn into a finished scope is born Cancelled, its future dropped
/// by the call; `try_spawn` hands it back.
pub async fn case_k02_spawn_into_a_finished_scope(_lab: Lab) {
    let tally = Tally::new();
    let over = scope(async |s| Ok(s)).await.unwrap();
    let guard = tally.guard();
    let task = over.spawn(tally.count(async move {
        drop(guard);
        1
    }));
    assert_eq!((tally.polls(), tally.drops()), (0, 2));
    assert_eq!(task.job().reason().unwrap().kind(), ReasonKind::ScopeEnded);
    assert_eq!(task.await.unwrap_err().kind(), ErrorKind::Stopped);
    let refused = over.try_spawn(tally.count(async { 2 })).unwrap_err();
    assert!(refused.is_ended());
    assert_eq!(tally.drops(), 2);
    assert_eq!(refused.future.await, 2);
}

/// K03: an empty scope in a cancelled task neither yields nor fails.
pub async fn case_k03_an_empty_scope_in_a_cancelled_task_does_nothing(lab: Lab) {
    let tally = Tally::new();
    let task = spawn(tally.count(async {
        current_job().unwrap().cancel("me");
        assert!(is_cancelled());
        scope(async |_| Ok(())).await.unwrap();
        scope(async |_| Ok(())).await.unwrap();
        7
    }));
    match task.outcome().await.unwrap() {
        Outcome::Cancelled { late, .. } => assert_eq!(late, Some(7)),
        other => panic!("{other:?}"),
    }
    assert_eq!(tally.polls(), 1);
    assert_eq!(lab.counters().jobs_force_dropped, 0);
}

/// K04: `s.cancel()` ends children and body; the caller goes on. Twice is
/// once, and after the exit it is nothing.
pub async fn case_k04_cancel_from_inside_ends_with_the_scope(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let kept = Arc::new(Mutex::new(None));
    let place = kept.clone();
    let before = lab.counters().cancellations_requested;
    let stopped = scope(async move |s| {
        *place.lock().unwrap() = Some(s.clone());
        let said = words.clone();
        s.launch(async move {
            let told = park().await;
            said.say("child");
            told?;
            Ok::<_, Error>(())
        });
        let canceller = s.clone();
        s.launch(async move {
            sleep(MS).await?;
            assert!(canceller.cancel("early"));
            assert!(!canceller.cancel("again"));
            Ok::<_, Error>(())
        });
        let told = park().await;
        words.say("body");
        told?;
        Ok(())
    })
    .await
    .unwrap_err();
    assert_eq!(stopped.kind(), ErrorKind::Stopped);
    assert_eq!(stopped.reason().unwrap().text(), Some("early"));
    assert!(matches!(&*log.text(), "child body" | "body child"));
    checkpoint().await.unwrap();
    let over = kept.lock().unwrap().take().unwrap();
    assert!(!over.cancel("late"));
    assert_eq!(over.job().state(), JobState::Cancelled);
    assert_eq!(lab.counters().cancellations_requested - before, 1);
}

/// K04: a body that returns a value after `s.cancel()` keeps it.
pub async fn case_k04_an_early_exit_value_is_kept(lab: Lab) {
    let value = scope(async |s| {
        s.launch(park());
        lab.settle().await;
        s.cancel("found it");
        Ok(42)
    })
    .await;
    assert_eq!(value.unwrap(), 42);
    checkpoint().await.unwrap();
}

/// K05: `s.cancel()` and a real error, in either order: the error wins.
pub async fn case_k05_a_real_error_beats_the_scopes_own_cancel(lab: Lab) {
    let after = scope(async |s| {
        s.cancel("early");
        Err::<(), _>(Error::msg("real"))
    })
    .await
    .unwrap_err();
    assert_eq!(after.kind(), ErrorKind::Failed);
    assert_eq!(after.to_string(), "real");
    assert_eq!(after.during().unwrap().text(), Some("early"));

    // The child's failure first, then the cancel.
    let before = scope(async |s| {
        let job = s.launch(async { Err::<(), _>("real") });
        lab.settle().await;
        assert_eq!(job.state(), JobState::Failed);
        s.cancel("too late");
        Ok(())
    })
    .await
    .unwrap_err();
    assert_eq!(before.kind(), ErrorKind::Failed);
    assert_eq!(before.to_string(), "real");

    // The cancel first, then the child's failure in its clean-up.
    let child = scope(async |s| {
        s.launch(async {
            let _ = park().await;
            Err::<(), _>("real")
        });
        lab.settle().await;
        s.cancel("early");
        Ok(())
    })
    .await
    .unwrap_err();
    assert_eq!(child.kind(), ErrorKind::Failed);
    assert_eq!(child.to_string(), "real");
}

/// K06: of three competitors made ready at once only the one that cancels the
/// scope finishes.
pub async fn case_k06_a_race_has_one_winner(lab: Lab) {
    let gate = Gate::new();
    let finished = Arc::new(Mutex::new(Vec::new()));
    let stopped = scope(async |s| {
        for n in 0..3 {
            let (s, gate, finished) = (s.clone(), gate.clone(), finished.clone());
            s.clone().launch(async move {
                gate.wait().await;
                checkpoint().await?;
                finished.lock().unwrap().push(n);
                s.cancel("won");
                Ok::<_, Error>(())
            });
        }
        lab.settle().await;
        gate.open();
        park().await?;
        Ok(())
    })
    .await
    .unwrap_err();
    assert_eq!(stopped.kind(), ErrorKind::Stopped);
    assert_eq!(finished.lock().unwrap().len(), 1);
}

/// K07: a cancel that arrives while the scope drains does not cut the wait
/// short, and is still there afterwards.
pub async fn case_k07_a_cancel_in_the_drain_does_not_cut_it_short(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let task = spawn(async move {
        let value = scope(async |s| {
            s.launch(async {
                let told = park().await;
                cleanup(sleep(100 * MS)).await?;
                told?;
                Ok::<_, Error>(())
            });
            Ok(1)
        })
        .await;
        words.say(format!("{:?}", value.unwrap_err().kind()));
        assert!(checkpoint().await.is_err());
        words.say("pending");
        Ok::<_, Error>(())
    });
    lab.settle().await;
    let before = lab.elapsed();
    task.cancel("enough");
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(lab.elapsed() - before, 100 * MS);
    assert_eq!(log.text(), "Cancelled pending");
}

/// K13: a scope is never left with living children, even if its body left
/// early with `?` or panicked.
pub async fn case_k13_no_exit_with_living_children(lab: Lab) {
    for panics in [false, true] {
        let before = lab.elapsed();
        let tally = Tally::new();
        let counts = tally.clone();
        let inner = lab.clone();
        let left = scope(async move |s| {
            s.launch(counts.count(async {
                let told = park().await;
                cleanup(sleep(10 * MS)).await?;
                told?;
                Ok::<_, Error>(())
            }));
            inner.settle().await;
            if panics {
                raise::<()>("loud");
            }
            "x".parse::<u32>()?;
            Ok(())
        })
        .await
        .unwrap_err();
        assert_eq!(tally.drops(), 1);
        assert_eq!(lab.elapsed() - before, 10 * MS);
        if panics {
            assert_eq!(left.kind(), ErrorKind::Panicked);
            assert!(left.to_string().contains("loud"));
        } else {
            assert_eq!(left.kind(), ErrorKind::Failed);
            assert!(left.downcast_ref::<std::num::ParseIntError>().is_some());
        }
    }
}

/// K15: a scope without children is done with its body, at once.
pub async fn case_k15_a_scope_without_children_is_done_at_once(lab: Lab) {
    let before = (lab.elapsed(), lab.counters().jobs_completed);
    let mut empty = Box::pin(scope(async |_| Ok(3)));
    let polled = futures_util::poll!(&mut empty);
    assert!(matches!(polled, std::task::Poll::Ready(Ok(3))));
    let after = (lab.elapsed(), lab.counters().jobs_completed);
    assert_eq!(after, (before.0, before.1 + 1));
}

/// outcome-1: a panic in a body is caught and means failed; the payload is
/// kept, the siblings are cancelled, nothing else is harmed.
pub async fn outcome_1_a_panic_in_a_body_is_a_failure(lab: Lab) {
    let before = lab.counters();
    let sibling = Arc::new(Mutex::new(None));
    let place = sibling.clone();
    let error = scope(async move |s| {
        *place.lock().unwrap() = Some(s.launch(park()));
        s.task("loud").launch(async {
            checkpoint().await?;
            std::panic::resume_unwind(Box::new(String::from("words")));
            #[expect(unreachable_code)]
            Ok::<_, Error>(())
        });
        park().await?;
        Ok(())
    })
    .await
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Panicked);
    assert_eq!(error.job_name(), Some("loud"));
    assert_eq!(error.to_string(), "loud panicked: words");
    let payload = error.take_panic().unwrap();
    assert_eq!(payload.downcast_ref::<String>().unwrap(), "words");
    let sibling = sibling.lock().unwrap().take().unwrap();
    assert_eq!(sibling.state(), JobState::Cancelled);
    let after = lab.counters();
    assert_eq!(after.jobs_failed - before.jobs_failed, 2);
    assert_eq!(after.living(), before.living());
    checkpoint().await.unwrap();
}

struct PanicsWhenDropped;

impl Success for PanicsWhenDropped {}

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        raise("in a destructor")
    }
}

/// outcome-1: a future whose destructor panics has failed, after a value as
/// well as when it was cancelled, polled or not.
pub async fn outcome_1_a_panic_in_a_futures_destructor_is_a_failure(lab: Lab) {
    let before = lab.counters();
    Scope::build()
        .supervisor()
        .run(async |s| {
            let ready = s.spawn(Bomb(std::future::ready(1)));
            assert_eq!(ready.await.unwrap_err().kind(), ErrorKind::Panicked);

            let polled = s.spawn(Bomb(park()));
            let unpolled = s.spawn(Bomb(park()));
            unpolled.cancel("before its first poll");
            lab.settle().await;
            polled.cancel("while it waits");
            for task in [unpolled, polled] {
                let outcome = task.outcome().await?;
                let error = outcome.error().expect("it failed");
                assert_eq!(error.kind(), ErrorKind::Panicked);
                assert!(error.to_string().contains("in a destructor"));
            }
            Ok(())
        })
        .await
        .unwrap();
    let after = lab.counters();
    assert_eq!(after.jobs_failed - before.jobs_failed, 3);
    assert_eq!(after.living(), before.living());
    assert!(lab.take_failures().is_empty(), "the handles took them");
}

/// A future whose destructor panics.
struct Bomb<F>(F);

impl<F: Future + Unpin> Future for Bomb<F> {
    type Output = F::Output;

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<F::Output> {
        std::pin::Pin::new(&mut self.0).poll(cx)
    }
}

impl<F> Drop for Bomb<F> {
    fn drop(&mut self) {
        raise("in a destructor")
    }
}

/// outcome-1: the same for the body of a scope: the call returns `Panicked`.
pub async fn outcome_1_a_panic_in_the_destructor_of_a_scopes_body(lab: Lab) {
    let before = lab.counters();
    let error = timeout(MS, Bomb(std::future::ready(1))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Panicked);
    // Dropped half-way: there is nobody to return it to.
    let mut dropped = Box::pin(timeout(MS, Bomb(park())));
    assert!(futures_util::poll!(&mut dropped).is_pending());
    drop(dropped);
    checkpoint().await.unwrap();
    assert_eq!(lab.counters().living(), before.living());
    assert_eq!(lab.counters().timers_pending(), before.timers_pending());
}

/// outcome-1: an output that is not taken may panic in its destructor: its
/// job completed, and nothing else is harmed.
pub async fn outcome_1_an_output_nobody_takes_may_panic_when_dropped(lab: Lab) {
    let before = lab.counters();
    scope(async |s| {
        s.launch(async { PanicsWhenDropped });
        let unread = s.spawn(async { PanicsWhenDropped });
        lab.settle().await;
        assert!(unread.is_ended());
        drop(unread.into_job());
        let dropped = s.spawn(async { PanicsWhenDropped });
        lab.settle().await;
        drop(dropped);
        checkpoint().await?;
        Ok(())
    })
    .await
    .unwrap();
    let after = lab.counters();
    assert_eq!(after.jobs_completed - before.jobs_completed, 4);
    assert_eq!(after.living(), before.living());
}

/// outcome-1: an output that is given up because a child failed may panic in
/// its destructor: the job that awaits the task gets the failure.
pub async fn outcome_1_an_output_given_up_for_a_failure_may_panic_when_dropped(lab: Lab) {
    Scope::build()
        .supervisor()
        .run(async |s| {
            let task = s.spawn(async {
                launch(async {
                    sleep(MS).await?;
                    Err::<(), Error>(Error::msg("child"))
                });
                PanicsWhenDropped
            });
            match task.outcome().await? {
                Outcome::Failed(error) => assert_eq!(error.to_string(), "child"),
                _ => panic!("it has not failed"),
            }
            Ok(())
        })
        .await
        .unwrap();
    checkpoint().await.unwrap();
    assert!(lab.take_failures().is_empty());
}

/// outcome-1: a value that a scope gives up because a child was cut short may
/// panic in its destructor.
pub async fn outcome_1_a_scopes_value_given_up_may_panic_when_dropped(lab: Lab) {
    let error = Scope::build()
        .timeout(10 * MS)
        .run(async |s| {
            s.launch(park());
            Ok(PanicsWhenDropped)
        })
        .await
        .map(|_| ())
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let error = scope(async |s| {
        s.launch(async {
            sleep(MS).await?;
            Err::<(), Error>(Error::msg("child"))
        });
        Ok(PanicsWhenDropped)
    })
    .await
    .map(|_| ())
    .unwrap_err();
    assert_eq!(error.to_string(), "child");
    checkpoint().await.unwrap();
    assert!(lab.take_failures().is_empty());
}

/// outcome-1: a payload whose own destructor panics.
pub async fn outcome_1_a_payload_may_panic_when_dropped(lab: Lab) {
    let before = lab.counters();
    Scope::build()
        .supervisor()
        .run(async |s| {
            s.launch(async {
                std::panic::resume_unwind(Box::new(PanicsWhenDropped));
                #[expect(unreachable_code)]
                ()
            });
            Ok(())
        })
        .await
        .unwrap();
    let mut failures = lab.take_failures();
    assert_eq!(failures.len(), 1);
    let failure = failures.remove(0);
    assert_eq!(failure.kind(), ErrorKind::Panicked);
    std::mem::forget(failure.take_panic());
    let after = lab.counters();
    assert_eq!(after.jobs_failed - before.jobs_failed, 1);
    assert_eq!(after.living(), before.living());
}

struct LoudError(Arc<AtomicUsize>);

impl fmt::Debug for LoudError {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fetch_add(1, SeqCst);
        raise("in Debug")
    }
}

impl fmt::Display for LoudError {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fetch_add(1, SeqCst);
        raise("in Display")
    }
}

impl std::error::Error for LoudError {}

/// outcome-1: an error whose `Display` panics is a failure like any other:
/// it is not printed unasked.
pub async fn outcome_1_an_error_whose_display_panics(lab: Lab) {
    let before = lab.counters();
    let printed = Arc::new(AtomicUsize::new(0));
    let loud = LoudError(printed.clone());
    let error = scope(async move |s| {
        s.launch(async move { Err::<(), _>(loud) });
        park().await?;
        Ok(())
    })
    .await;
    // Not `unwrap_err`, which might print it.
    let Err(error) = error else {
        panic!("it has not failed");
    };
    assert_eq!(error.kind(), ErrorKind::Failed);
    assert!(error.downcast_ref::<LoudError>().is_some());
    assert_eq!(printed.load(SeqCst), 0);

    let loud = LoudError(printed.clone());
    let unheard = Scope::build().supervisor().run(async move |s| {
        s.launch(async move { Err::<(), _>(loud) });
        Ok(())
    });
    assert!(unheard.await.is_ok());
    assert_eq!(lab.take_failures().len(), 1);
    let after = lab.counters();
    assert_eq!(after.living(), before.living());
    assert_eq!(after.jobs_failed - before.jobs_failed, 3);
    checkpoint().await.unwrap();
}
