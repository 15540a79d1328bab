//! Supervisors: a child's failure cancels no other job.

use std::time::Duration;

use kinfolk_core::{
    Error, JobState, OrFail, ReasonKind, Scope, checkpoint, cleanup, park, scope, sleep, spawn,
};

use kinfolk_testkit::{Lab, Log};

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

/// What the failure hook got, sorted.
fn reported(lab: &Lab) -> Vec<&'static str> {
    let mut words: Vec<_> = lab.take_failures().iter().map(oops).collect();
    words.sort_unstable();
    words
}

/// Two children fail, the body returns: Ok, and the failure hook got both.
/// Also: K13, outcome-3.
pub async fn case_c01_failing_children_leave_a_supervisor_alone(lab: Lab) {
    let answer = Scope::build()
        .supervisor()
        .run(async |s| {
            s.launch(async { Err::<(), _>(Oops("one")) });
            s.launch(async {
                sleep(10 * MS).await?;
                fail("two")
            });
            Ok("OK")
        })
        .await;
    assert_eq!(answer.unwrap(), "OK");
    assert_eq!(lab.elapsed(), 10 * MS);
    assert_eq!(reported(&lab), ["one", "two"]);
}

/// The sibling of a failed child goes on until it is cancelled itself.
/// Also: K13.
pub async fn case_c02_a_sibling_of_a_failed_child_goes_on(lab: Lab) {
    Scope::build()
        .supervisor()
        .run(async |s| {
            let sibling = s.launch(async { park().await.map(|_| ()) });
            let bad = s.launch(async { Err::<(), _>(Oops("bad")) });
            lab.settle().await;
            assert_eq!(bad.state(), JobState::Failed);
            assert_eq!(sibling.state(), JobState::Active);
            assert!(!sibling.cancel_requested() && !s.cancel_requested());
            sleep(1000 * MS).await?;
            assert_eq!(sibling.state(), JobState::Active);
            assert!(sibling.cancel("now"));
            let outcome = sibling.join().await?;
            assert_eq!(outcome.reason().and_then(|r| r.text()), Some("now"));
            Ok(())
        })
        .await
        .unwrap();
    assert_eq!(reported(&lab), ["bad"]);
}

/// A supervisor whose body fails cancels its children, waits for them and is
/// Failed with the body's error.
pub async fn case_c03_a_failing_supervisor_body_cancels_its_children(lab: Lab) {
    let mut children = Vec::new();
    let mut node = None;
    let error = Scope::build()
        .supervisor()
        .run(async |s| {
            node = Some(s.job());
            for _ in 0..2 {
                children.push(s.launch(async {
                    let told = park().await;
                    cleanup(sleep(10 * MS)).await?;
                    told?;
                    Ok::<_, Error>(())
                }));
            }
            lab.settle().await;
            fail("body")
        })
        .await
        .unwrap_err();
    assert_eq!(oops(&error), "body");
    assert!(error.suppressed().is_empty());
    assert_eq!(lab.elapsed(), 10 * MS);
    assert_eq!(node.unwrap().state(), JobState::Failed);
    for child in children {
        let outcome = child.join().await.unwrap();
        let reason = outcome.reason().unwrap().root_cause();
        assert_eq!(reason.kind(), ReasonKind::BodyFailed);
    }
    assert!(lab.take_failures().is_empty());
}

/// Cancelling the job that runs a supervisor reaches the children, which are
/// waited for.
pub async fn case_c05_a_cancel_from_outside_goes_through_a_supervisor(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let task = spawn(async move {
        Scope::build()
            .supervisor()
            .run(async move |s| {
                for _ in 0..2 {
                    let words = words.clone();
                    s.launch(async move {
                        let told = park().await.unwrap_err();
                        assert_eq!(told.reason().kind(), ReasonKind::Parent);
                        assert_eq!(told.reason().text(), Some("outside"));
                        cleanup(sleep(10 * MS)).await?;
                        words.say("cleaned");
                        Err::<(), Error>(told.into())
                    });
                }
                park().await?;
                Ok(())
            })
            .await
    });
    lab.settle().await;
    assert!(task.cancel("outside"));
    let outcome = task.outcome().await.unwrap();
    assert_eq!(outcome.reason().and_then(|r| r.text()), Some("outside"));
    assert_eq!(log.text(), "cleaned cleaned");
    assert_eq!(lab.elapsed(), 10 * MS);
    assert!(lab.take_failures().is_empty());
}

/// A task whose supervisor's body failed fails the scope around it; one whose
/// supervisor was cancelled does not.
pub async fn case_c06_a_failing_supervisor_body_goes_to_its_caller(lab: Lab) {
    scope(async |s| {
        let task = s.spawn(async {
            Scope::build()
                .supervisor()
                .run(async |s| {
                    s.launch(async { Err::<(), _>(Oops("child")) });
                    park().await?;
                    Ok(())
                })
                .await
        });
        lab.settle().await;
        task.cancel("you");
        assert!(task.outcome().await?.is_cancelled());
        checkpoint().await?;
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(reported(&lab), ["child"]);

    let error = scope(async |s| {
        s.launch(async {
            Scope::build()
                .supervisor()
                .run(async |_| fail("body"))
                .await
        });
        let told = park().await.unwrap_err();
        assert_eq!(told.reason().kind(), ReasonKind::ChildFailed);
        Ok(())
    })
    .await
    .unwrap_err();
    assert_eq!(oops(&error), "body");
    assert!(lab.take_failures().is_empty());
}

/// A cancelled child of a supervisor never reaches the failure hook.
/// Also: outcome-4.
pub async fn case_c09_a_cancelled_child_is_never_reported(lab: Lab) {
    Scope::build()
        .supervisor()
        .run(async |s| {
            let parked = s.launch(async { park().await.map(|_| ()) });
            let unpolled = s.launch(async { checkpoint().await });
            unpolled.cancel("at once");
            let dropped = s.spawn(async { park().await.map(|_| ()) });
            let itself = s.launch(async {
                kinfolk_core::cancel_current("me");
                checkpoint().await
            });
            lab.settle().await;
            parked.cancel("you");
            let dropped = {
                let job = dropped.job();
                drop(dropped);
                job
            };
            for job in [parked, unpolled, dropped, itself] {
                assert!(job.join().await?.is_cancelled());
            }
            Ok(())
        })
        .await
        .unwrap();
    assert!(lab.take_failures().is_empty());
}

/// A child's failure leaves a supervisor and its other children alone; the
/// supervisor completes if nothing of its own failed.
pub async fn src_k13_a_supervisor_completes_though_children_fail(lab: Lab) {
    let mut node = None;
    let answer = Scope::build()
        .supervisor()
        .run(async |s| {
            node = Some(s.job());
            let bad = s.spawn(async { Err::<(), _>(Oops("bad")) });
            let good = s.spawn(async {
                sleep(10 * MS).await?;
                Ok::<_, Error>(1)
            });
            let error = bad.await.unwrap_err();
            assert_eq!(oops(&error), "bad");
            assert_eq!(s.job().state(), JobState::Active);
            good.await
        })
        .await;
    assert_eq!(answer.unwrap(), 1);
    assert_eq!(node.unwrap().state(), JobState::Completed);
    assert!(lab.take_failures().is_empty());
}
