//! Failure: whom the failure of a child or a body reaches, and whom it does
//! not.

use std::time::Duration;

use kinfolk_core::{
    Error, ErrorKind, JobState, OrFail, Outcome, ReasonKind, Scope, checkpoint, cleanup,
    current_job, launch, park, scope, sleep,
};

use kinfolk_testkit::{Gate, Lab, Log, Tally};

const MS: Duration = Duration::from_millis(1);

#[derive(Debug)]
struct Oops(&'static str);

impl std::fmt::Display for Oops {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Oops {}

fn fail(word: &'static str) -> Result<(), Error> {
    Err(Oops(word)).or_fail()
}

fn oops(error: &Error) -> &'static str {
    error.downcast_ref::<Oops>().expect("an Oops").0
}

/// A failing child cancels its sibling and the body; the scope is Failed with
/// its error, and nothing after the scope runs.
/// Also: K12, outcome-2.
pub async fn case_b01_a_failing_child_stops_siblings_and_body(_lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let all = async move {
        let (body, sibling, after) = (words.clone(), words.clone(), words.clone());
        scope(async move |s| {
            s.launch(async move {
                let told = park().await;
                sibling.say("sibling-told");
                told.map(|_| ())
            });
            s.launch(async {
                sleep(10 * MS).await?;
                fail("child")
            });
            let told = park().await;
            body.say("body-told");
            told?;
            Ok(())
        })
        .await?;
        after.say("after");
        Ok::<_, Error>(())
    };
    let error = all.await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Failed);
    assert_eq!(oops(&error), "child");
    let mut said: Vec<_> = log.text().split(' ').map(String::from).collect();
    said.sort();
    assert_eq!(said, ["body-told", "sibling-told"]);
}

/// A failing child wakes the body, whose Cancelled names that child.
/// Also: K12.
pub async fn case_b02_the_body_is_told_which_child_failed(_lab: Lab) {
    let error = scope(async |s| {
        let child = s.task("bad").launch(async {
            sleep(10 * MS).await?;
            Err::<(), Error>(Error::msg("child"))
        });
        let told = park().await.unwrap_err();
        assert_eq!(told.reason().kind(), ReasonKind::ChildFailed);
        assert_eq!(told.reason().culprit(), Some((child.id(), "bad")));
        assert_eq!(told.origin(), s.job().id());
        Err::<(), Error>(told.into())
    })
    .await
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Failed);
    assert_eq!(error.to_string(), "child");
    assert!(error.suppressed().is_empty());
}

/// A failing body cancels its children and waits for them.
pub async fn case_b03_a_failing_body_cancels_and_awaits_its_children(lab: Lab) {
    let mut child = None;
    let error = scope(async |s| {
        child = Some(s.launch(async {
            let told = sleep(1000 * MS).await;
            cleanup(sleep(30 * MS)).await?;
            told?;
            Ok::<_, Error>(())
        }));
        sleep(10 * MS).await?;
        fail("body")
    })
    .await
    .unwrap_err();
    assert_eq!(oops(&error), "body");
    assert_eq!(lab.elapsed(), 40 * MS);
    let outcome = child.unwrap().join().await.unwrap();
    let reason = outcome.reason().unwrap();
    assert_eq!(reason.kind(), ReasonKind::Parent);
    assert_eq!(reason.root_cause().kind(), ReasonKind::BodyFailed);
}

/// Children of a body that fails before they ran are never polled, and what
/// they captured is dropped.
pub async fn case_b04_children_of_a_failed_body_never_start(_lab: Lab) {
    let tally = Tally::new();
    let mut jobs = Vec::new();
    let error = scope(async |s| {
        for _ in 0..3 {
            jobs.push(s.launch(tally.count(async { checkpoint().await })));
        }
        assert_eq!(tally.drops(), 0);
        fail("body")
    })
    .await
    .unwrap_err();
    assert_eq!(oops(&error), "body");
    assert_eq!((tally.polls(), tally.drops()), (0, 3));
    for job in jobs {
        let outcome = job.join().await.unwrap();
        let reason = outcome.reason().unwrap();
        assert_eq!(reason.root_cause().kind(), ReasonKind::BodyFailed);
    }
}

/// A child that is cancelled alone is no failure: its sibling and the scope
/// complete.
/// Also: outcome-4.
pub async fn case_b05_cancelling_one_child_leaves_the_others(_lab: Lab) {
    scope(async |s| {
        let one = s.spawn(async { park().await.map(|_| ()) });
        let two = s.spawn(async {
            sleep(10 * MS).await?;
            Ok::<_, Error>(2)
        });
        sleep(MS).await?;
        assert!(one.cancel("you"));
        assert!(one.outcome().await?.is_cancelled());
        assert_eq!(two.outcome().await?.completed(), Some(2));
        checkpoint().await?;
        Ok(())
    })
    .await
    .unwrap();
}

/// Cancelling a child leaves its parent Active; a failing one makes it
/// Cancelling.
/// Also: K12.
pub async fn case_b06_a_cancelled_child_is_no_failure_of_its_parent(lab: Lab) {
    let error = scope(async |s| {
        let child = s.launch(async { park().await.map(|_| ()) });
        lab.settle().await;
        child.cancel("you");
        lab.settle().await;
        assert_eq!(child.state(), JobState::Cancelled);
        assert_eq!(s.job().state(), JobState::Active);

        let child = s.launch(async { Err::<(), _>(Oops("child")) });
        lab.settle().await;
        assert_eq!(child.state(), JobState::Failed);
        assert_eq!(s.job().state(), JobState::Cancelling);
        Ok(())
    })
    .await
    .unwrap_err();
    assert_eq!(oops(&error), "child");
}

/// A spawn into a scope that is failing is refused: the handle is born
/// Cancelled, the future is dropped unpolled, and the error stays what it was.
pub async fn case_b10_no_new_children_after_a_failure(lab: Lab) {
    let tally = Tally::new();
    let refused = tally.clone();
    let before = lab.counters().jobs_refused;
    let error = scope(async |s| {
        let family = s.clone();
        s.launch(async move {
            let told = park().await;
            let child = family.spawn(refused.count(async { Err::<(), _>(Oops("other")) }));
            assert!(child.is_ended());
            assert_eq!((refused.polls(), refused.drops()), (0, 1));
            let outcome = child.outcome().await?;
            let reason = outcome.reason().unwrap();
            assert_eq!(reason.root_cause().kind(), ReasonKind::ChildFailed);
            told?;
            Ok::<_, Error>(())
        });
        s.launch(async {
            sleep(10 * MS).await?;
            fail("first")
        });
        Ok(())
    })
    .await
    .unwrap_err();
    assert_eq!(oops(&error), "first");
    assert!(error.suppressed().is_empty());
    assert_eq!((tally.polls(), tally.drops()), (0, 1));
    assert_eq!(lab.counters().jobs_refused - before, 1);
}

/// A failure four levels deep comes out as it was, once, with the names on its
/// way.
/// Also: outcome-7.
pub async fn case_b12_a_deep_failure_arrives_unwrapped(_lab: Lab) {
    let error = Scope::named("top")
        .run(async |s| {
            s.task("a").launch(async {
                let a = Scope::current().unwrap();
                a.task("b").launch(async {
                    let b = Scope::current().unwrap();
                    b.task("c").launch(async {
                        let c = Scope::current().unwrap();
                        c.task("d").launch(async {
                            sleep(10 * MS).await?;
                            fail("deep")
                        });
                    });
                });
            });
            Ok(())
        })
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Failed);
    assert_eq!(error.to_string(), "deep");
    assert_eq!(oops(&error), "deep");
    assert!(error.suppressed().is_empty());
    assert!(std::error::Error::source(&error).is_none());
    assert_eq!(error.job_name(), Some("d"));
    let path = error.path();
    assert_eq!(path.first().unwrap(), "root");
    assert_eq!(path[path.len() - 5..], ["top", "a", "b", "c", "d"]);
}

/// A scope that fails because of a child yields that failure though its task
/// was cancelled meanwhile; the task's next point tells it.
/// Also: K14, outcome-5.
pub async fn case_b13_a_failing_scope_in_a_cancelled_task(lab: Lab) {
    let (fails, gate) = (Gate::new(), Gate::new());
    let (fail, held) = (fails.clone(), gate.clone());
    let handled = Log::new();
    let handles = handled.clone();
    let host = kinfolk_core::spawn(async move {
        let error = scope(async move |s| {
            s.launch(async move {
                let told = park().await;
                held.wait().await;
                told.map(|_| ())
            });
            s.launch(async move {
                fail.wait().await;
                Err::<(), _>(Oops("child"))
            });
            park().await?;
            Ok(())
        })
        .await
        .unwrap_err();
        assert_eq!(oops(&error), "child");
        assert_eq!(error.during().map(|r| r.kind()), None);
        handles.say("handled");
        assert!(current_job().unwrap().cancel_requested());
        checkpoint().await?;
        handles.say("went on");
        Ok::<_, Error>(())
    });
    lab.settle().await;
    fails.open();
    lab.settle().await;
    assert!(!host.job().cancel_requested());
    assert!(host.cancel("outside"));
    lab.settle().await;
    assert!(handled.is_empty(), "the scope still waits");
    gate.open();
    let outcome = host.outcome().await.unwrap();
    assert_eq!(outcome.reason().and_then(|r| r.text()), Some("outside"));
    assert_eq!(handled.text(), "handled");
}

/// A scope body that returns an error after its job was cancelled, without a
/// point in between, fails with that error.
/// Also: K14.
pub async fn case_b14_a_body_error_beats_an_unseen_cancel(_lab: Lab) {
    let task = kinfolk_core::spawn(async {
        let me = current_job().unwrap();
        let error = scope(async |_| {
            assert!(me.cancel("outside"));
            fail("body")
        })
        .await
        .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Failed);
        assert_eq!(oops(&error), "body");
        let during = error.during().unwrap();
        assert_eq!(during.root_cause().text(), Some("outside"));
        checkpoint().await.unwrap_err();
    });
    assert!(task.outcome().await.unwrap().is_cancelled());
}

/// A job that is cancelled and fails is Failed, whichever came first.
/// Also: K14, outcome-5.
pub async fn case_b15_failure_beats_cancellation_in_both_orders(lab: Lab) {
    Scope::build()
        .supervisor()
        .run(async |s| {
            let cancelled_first = s.spawn(async {
                let _told = park().await;
                Err::<(), _>(Oops("one"))
            });
            let gate = Gate::new();
            let held = gate.clone();
            let failed_first = s.spawn(async move {
                launch(async {
                    let _told = park().await;
                    cleanup(sleep(10 * MS)).await
                });
                held.wait().await;
                Err::<(), _>(Oops("two"))
            });
            lab.settle().await;
            assert!(cancelled_first.cancel("enough"));
            gate.open();
            lab.settle().await;
            let job = failed_first.job();
            assert_eq!(job.state(), JobState::Cancelling);
            assert!(!job.cancel("enough"), "its failure moved it");

            let outcome = cancelled_first.outcome().await?;
            let error = outcome.error().unwrap();
            assert_eq!(oops(error), "one");
            assert_eq!(error.during().unwrap().text(), Some("enough"));

            let outcome = failed_first.outcome().await?;
            let error = outcome.error().unwrap();
            assert_eq!(oops(error), "two");
            assert!(error.during().is_none());
            Ok(())
        })
        .await
        .unwrap();
}

/// A panicking child is a failed one: its siblings are cancelled, the scope
/// reports it with what it carried, and the host goes on.
/// Also: outcome-1.
pub async fn case_b16_a_panicking_child_is_a_failure(_lab: Lab) {
    let mut sibling = None;
    let error = scope(async |s| {
        sibling = Some(s.launch(async { park().await.map(|_| ()) }));
        s.task("bad").launch(async {
            if sleep(10 * MS).await.is_ok() {
                std::panic::panic_any(17_u32);
            }
        });
        Ok(())
    })
    .await
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Panicked);
    assert_eq!(error.job_name(), Some("bad"));
    let payload = error.take_panic().unwrap();
    assert_eq!(payload.downcast_ref::<u32>(), Some(&17));
    let outcome = sibling.unwrap().join().await.unwrap();
    let reason = outcome.reason().unwrap().root_cause();
    assert_eq!(reason.kind(), ReasonKind::ChildFailed);
    assert_eq!(kinfolk_core::spawn(async { 1 }).await.unwrap(), 1);
}

/// A caller that handled the failure of a scope is not cancelled.
/// Also: outcome-2.
pub async fn case_b18_a_handled_failure_leaves_no_cancellation(_lab: Lab) {
    let error = scope(async |s| {
        s.launch(async { Err::<(), _>(Oops("child")) });
        park().await?;
        Ok(())
    })
    .await
    .unwrap_err();
    assert_eq!(oops(&error), "child");
    assert!(!current_job().unwrap().cancel_requested());
    assert!(!kinfolk_core::is_cancelled());
    checkpoint().await.unwrap();
    sleep(10 * MS).await.unwrap();
    assert_eq!(kinfolk_core::spawn(async { 1 }).await.unwrap(), 1);
}

/// The first failing child moves its parent to Cancelling, its siblings are
/// cancelled, and the parent ends Failed with the first error.
pub async fn src_k12_the_first_failing_child_decides(lab: Lab) {
    Scope::build()
        .supervisor()
        .run(async |s| {
            let (first, second) = (Gate::new(), Gate::new());
            let (one, two) = (first.clone(), second.clone());
            let parent = s.spawn(async move {
                launch(async move {
                    one.wait().await;
                    Err::<(), _>(Oops("first"))
                });
                launch(async move {
                    two.wait().await;
                    Err::<(), _>(Oops("second"))
                });
                launch(async { park().await.map(|_| ()) });
            });
            let job = parent.job();
            lab.settle().await;
            assert_eq!(job.state(), JobState::Completing);
            first.open();
            lab.settle().await;
            assert_eq!(job.state(), JobState::Cancelling);
            let snapshot = lab.snapshot();
            let left: Vec<_> = snapshot.children(job.id()).map(|node| node.state).collect();
            assert_eq!(left, [JobState::Cancelling], "the parked one has gone");
            second.open();
            match parent.outcome().await? {
                Outcome::Failed(error) => {
                    assert_eq!(oops(&error), "first");
                    assert_eq!(error.suppressed().len(), 1);
                    assert_eq!(oops(&error.suppressed()[0]), "second");
                }
                other => panic!("{other:?}"),
            }
            assert_eq!(job.state(), JobState::Failed);
            Ok(())
        })
        .await
        .unwrap();
}

/// Failure dominates a cancellation from outside; a scope that timed out stays
/// timed out.
/// Also: outcome-5, K24.
pub async fn src_k14_failure_dominates_but_not_a_timeout(lab: Lab) {
    let slow_failure = || async {
        let _told = park().await;
        cleanup(sleep(10 * MS)).await?;
        fail("child")
    };
    let task = kinfolk_core::spawn(async move {
        let error = scope(async move |s| {
            s.launch(slow_failure());
            Ok(())
        })
        .await
        .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Failed);
        assert_eq!(oops(&error), "child");
        let during = error.during().unwrap();
        assert_eq!(during.root_cause().text(), Some("enough"));
    });
    lab.settle().await;
    task.cancel("enough");
    assert!(task.outcome().await.unwrap().is_cancelled());

    let mut node = None;
    let error = Scope::build()
        .timeout(20 * MS)
        .run(async |s| {
            node = Some(s.job());
            s.launch(slow_failure());
            Ok(())
        })
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert_eq!(oops(&error.suppressed()[0]), "child");
    let node = node.unwrap();
    assert_eq!(node.state(), JobState::Cancelled);
    assert_eq!(node.reason().unwrap().kind(), ReasonKind::Deadline);
}

/// outcome-5: a failure inside a `cleanup` or a shield of a cancelled job, and of
/// a task that was spawned in there, remembers that cancellation.
pub async fn outcome_5_a_failure_in_clean_up_remembers_the_cancellation(_lab: Lab) {
    let task = kinfolk_core::spawn(async {
        let told = park().await;
        let failed = cleanup(async { fail("in clean-up") }).await.unwrap_err();
        assert_eq!(failed.during().and_then(|r| r.text()), Some("outside"));
        let deep = kinfolk_core::shield(scope(async |s| {
            s.spawn(async { fail("deep") }).await?;
            Ok(())
        }));
        let failed = deep.await.unwrap_err();
        assert_eq!(oops(&failed), "deep");
        assert_eq!(
            failed.during().unwrap().root_cause().text(),
            Some("outside")
        );
        told.map(drop)
    });
    let job = task.job();
    kinfolk_core::yield_now().await.unwrap();
    job.cancel("outside");
    let outcome = task.outcome().await.unwrap();
    assert!(outcome.is_cancelled(), "{outcome:?}");
}
