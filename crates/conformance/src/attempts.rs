//! Attempts: child tasks whose failure goes to their handle and to nothing else.

use std::time::Duration;

use kinfolk_core::{
    Error, ErrorKind, JobState, ReasonKind, Result, TaskSet, all, attempt, cleanup, local_scope,
    park, scope, sleep, spawn,
};
use kinfolk_testkit::{Lab, Tally};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

async fn fail_after(wait: Duration) -> Result<u32> {
    sleep(wait).await?;
    Err(Error::msg("refused"))
}

async fn after(wait: Duration, value: u32) -> Result<u32> {
    sleep(wait).await?;
    Ok(value)
}

fn words(lab: &Lab) -> Vec<String> {
    let mut words: Vec<_> = lab.take_failures().iter().map(Error::to_string).collect();
    words.sort_unstable();
    words
}

/// outcome-10: the failure of an attempt is what its await returns; the scope, its body and
/// its other children go on. A panic is such a failure, and so is that of a child of the
/// attempt.
pub async fn outcome_10_a_failed_attempt_touches_nobody(lab: Lab) {
    let sum = scope(async |s| {
        let sibling = s.spawn(after(20 * MS, 1));
        let failed = s.attempt(fail_after(MS));
        let panicked = attempt(async {
            sleep(2 * MS).await?;
            std::panic::resume_unwind(Box::new("oops"));
            #[expect(unreachable_code, reason = "says what the body returns")]
            Ok::<u32, Error>(0)
        });
        let nested = s.task("nested").attempt(async {
            spawn(fail_after(3 * MS)).await?;
            Ok::<u32, Error>(0)
        });
        let error = failed.await.unwrap_err();
        assert_eq!(
            (error.kind(), error.to_string()),
            (ErrorKind::Failed, "refused".into())
        );
        assert_eq!(panicked.await.unwrap_err().kind(), ErrorKind::Panicked);
        let error = nested.await.unwrap_err();
        assert!(
            error.path().iter().any(|name| name == "nested"),
            "{:?}",
            error.path()
        );
        assert!(!s.cancel_requested() && !sibling.job().cancel_requested());
        sibling.await
    })
    .await;
    assert_eq!((sum.unwrap(), lab.elapsed()), (1, 20 * MS));
    assert!(lab.take_failures().is_empty());
}

/// outcome-10: what no handle takes goes to the failure hook, once: the handle is dropped
/// before the end or after it, given up, or there never was one. An observer takes nothing.
pub async fn outcome_10_a_failure_that_is_not_taken_is_reported(lab: Lab) {
    scope(async |s| {
        let dropped = s.attempt(async {
            let _ = park().await;
            Err::<(), _>(Error::msg("dropped before"))
        });
        let given_up = s.attempt(async {
            sleep(MS).await?;
            Err::<(), _>(Error::msg("given up"))
        });
        let ended = s.attempt(async { Err::<(), _>(Error::msg("dropped after")) });
        s.task("launched")
            .attempted()
            .launch(async { Err::<(), _>(Error::msg("launched")) });
        lab.settle().await;
        drop(dropped);
        let _observer = given_up.into_job();
        let watched = s.attempt(fail_after(MS));
        let outcome = watched.job().join().await?;
        assert!(outcome.is_failed());
        assert!(watched.join().await?.is_failed());
        assert_eq!(watched.job().state(), JobState::Failed);
        // The observers took nothing.
        assert_eq!(watched.await.unwrap_err().to_string(), "refused");
        assert!(ended.is_ended());
        drop(ended);
        Ok(())
    })
    .await
    .unwrap();
    let all = ["dropped after", "dropped before", "given up", "launched"];
    assert_eq!(words(&lab), all);
}

/// outcome-10: it is an option of every spawning verb.
pub async fn outcome_10_an_attempt_is_an_option_of_every_verb(lab: Lab) {
    scope(async |s| {
        let build = |name: &'static str| s.task(name).attempted();
        let mut tasks = vec![
            build("now").spawn_now(fail_after(Duration::ZERO)),
            build("lazy").spawn_lazy(fail_after(MS)),
            build("atomic").spawn_atomic(fail_after(MS)),
            build("service").spawn_service(fail_after(MS)),
        ];
        tasks.push(build("tried").try_spawn(fail_after(MS)).expect("room"));
        for task in tasks {
            assert_eq!(task.await.unwrap_err().to_string(), "refused");
        }
        assert!(!s.cancel_requested());
        Ok(())
    })
    .await
    .unwrap();
    assert!(lab.take_failures().is_empty());
}

/// outcome-10: a child that borrows may be an attempt too: its failure or panic is what its
/// await returns, and the scope, its body and its other children go on.
/// Also: handle-8.
pub async fn outcome_10_a_local_child_may_be_an_attempt(lab: Lab) {
    let words_of_it = String::from("refused");
    let sum = local_scope(async |s| {
        let sibling = s.spawn(after(20 * MS, 1));
        let failed = s.task("fails").attempt(async {
            sleep(MS).await?;
            Err::<u32, _>(Error::msg(words_of_it.as_str()))
        });
        let panicked = s.task("panics").attempted().spawn(async {
            sleep(2 * MS).await?;
            std::panic::resume_unwind(Box::new("oops"));
            #[expect(unreachable_code, reason = "says what the body returns")]
            Ok::<u32, Error>(0)
        });
        let fine = s.task("fine").attempt(after(MS, 2));
        let error = failed.await.unwrap_err();
        assert_eq!(
            (error.kind(), error.to_string()),
            (ErrorKind::Failed, "refused".into())
        );
        assert!(error.path().iter().any(|name| name == "fails"), "{error:?}");
        assert_eq!(panicked.await.unwrap_err().kind(), ErrorKind::Panicked);
        assert!(!s.scope().cancel_requested() && !sibling.job().cancel_requested());
        Ok(sibling.await? + fine.await?)
    })
    .await;
    assert_eq!((sum.unwrap(), lab.elapsed()), (3, 20 * MS));
    assert!(lab.take_failures().is_empty());
}

/// outcome-10: what no handle of a local attempt takes goes to the failure hook, once: the
/// handle is dropped before the end or after it, given up, or there never was one.
/// Also: handle-8.
pub async fn outcome_10_a_failure_of_a_local_attempt_that_is_not_taken_is_reported(lab: Lab) {
    let fails = async |wait: Duration, text: &'static str| {
        sleep(wait).await?;
        Err::<(), _>(Error::msg(text))
    };
    local_scope(async |s| {
        let begin = |name: &'static str| s.task(name).attempted();
        let dropped = begin("dropped").spawn(async {
            let _ = park().await;
            Err::<(), _>(Error::msg("dropped before"))
        });
        let given_up = begin("given up").spawn(fails(MS, "given up"));
        let ended = begin("ended").spawn(fails(Duration::ZERO, "dropped after"));
        let ended_given_up = begin("ended").spawn(fails(Duration::ZERO, "given up after"));
        begin("launched").launch(fails(MS, "launched"));
        let taken = begin("taken").spawn(fails(MS, "taken"));
        sleep(MS / 2).await?;
        assert!(ended.is_ended() && ended_given_up.is_ended());
        assert!(lab.take_failures().is_empty(), "the handles may take them");
        drop(dropped);
        let _observer = given_up.into_job();
        drop(ended);
        let observer = ended_given_up.into_job();
        assert!(observer.join().await?.is_failed());
        assert!(taken.job().join().await?.is_failed());
        assert_eq!(taken.await.unwrap_err().to_string(), "taken");
        Ok(())
    })
    .await
    .unwrap();
    let all = [
        "dropped after",
        "dropped before",
        "given up",
        "given up after",
        "launched",
    ];
    assert_eq!(words(&lab), all);
}

/// outcome-10: cancelled, it is told and waited for as any child; its body's failure is the
/// body's, and one that comes while it is told is still its handle's.
/// Also: outcome-4, outcome-5, outcome-6.
pub async fn outcome_10_an_attempt_that_is_cancelled(lab: Lab) {
    let task = spawn(async {
        let clean = attempt(async {
            let told = park().await.unwrap_err();
            assert_eq!(told.reason().kind(), ReasonKind::Parent);
            cleanup(sleep(5 * MS)).await?;
            Err::<(), Error>(told.into())
        });
        let broken = attempt(async {
            let _ = park().await;
            Err::<(), _>(Error::msg("broken while told"))
        });
        let alone = attempt(async { park().await.map(|_| ()) });
        alone.cancel("alone");
        assert_eq!(alone.await.unwrap_err().kind(), ErrorKind::Stopped);
        assert!(park().await.is_err());
        let error = broken.await.unwrap_err();
        assert_eq!(error.to_string(), "broken while told");
        assert!(error.during().is_some());
        assert!(clean.await.unwrap_err().is_cancelled());
        Ok::<_, Error>(7)
    });
    lab.settle().await;
    task.cancel("enough");
    let outcome = task.outcome().await.unwrap();
    assert!(outcome.is_cancelled());
    assert_eq!(outcome.into_value(), Some(7));
    assert_eq!(lab.elapsed(), 5 * MS);
    assert!(lab.take_failures().is_empty());
}

/// outcome-10: refused, its handle is born cancelled; one whose failure leaves the body by
/// `?` is the body's failure, listed once.
pub async fn outcome_10_an_attempt_that_is_passed_on(lab: Lab) {
    let closed = scope(async |s| {
        s.close();
        let refused = s.attempt(async { 1 });
        assert_eq!(refused.await.unwrap_err().kind(), ErrorKind::Stopped);
        Ok(())
    });
    closed.await.unwrap();
    let error = scope(async |s| {
        s.spawn(after(HOUR, 1)).into_job();
        s.attempt(fail_after(MS)).await?;
        Ok(())
    })
    .await
    .unwrap_err();
    assert_eq!(error.to_string(), "refused");
    assert!(error.suppressed().is_empty());
    assert_eq!(lab.elapsed(), MS);
    assert!(lab.take_failures().is_empty());
}

/// outcome-10: a `TaskSet` gives the failures of its attempts as results; what is in it when
/// it goes is reported.
/// Also: handle-7.
pub async fn outcome_10_attempts_in_a_set(lab: Lab) {
    let mut good = 0;
    let mut bad = 0;
    scope(async |s| {
        let mut set = TaskSet::within(&s).limit(2)?;
        for n in 0..6 {
            set.attempt(async move {
                sleep(n * MS).await?;
                if n % 2 == 0 {
                    Ok(n)
                } else {
                    Err(Error::msg("odd"))
                }
            })
            .await?;
        }
        while let Some(result) = set.next().await? {
            match result {
                Ok(_) => good += 1,
                Err(error) => bad += usize::from(error.to_string() == "odd"),
            }
        }
        set.attempt(async { Err(Error::msg("left in the set")) })
            .await?;
        lab.settle().await;
        drop(set);
        assert!(!s.cancel_requested());
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!((good, bad), (3, 3));
    assert_eq!(words(&lab), ["left in the set"]);
}

/// outcome-10: as branches: a failure that a combinator returns was taken, and a call that is
/// dropped loses none.
/// Also: handle-7, outcome-3.
pub async fn outcome_10_attempts_as_branches(lab: Lab) {
    scope(async |s| {
        let error = all([s.attempt(after(HOUR, 1)), s.attempt(fail_after(MS))])
            .await
            .unwrap_err();
        assert_eq!(error.to_string(), "refused");
        assert!(!s.cancel_requested());
        Ok(())
    })
    .await
    .unwrap();
    assert!(lab.take_failures().is_empty());
}

/// outcome-10: its future is dropped before its failure is visible, also where it is forced.
/// Also: tree-3.
pub async fn outcome_10_an_attempt_leaves_nothing_behind(_: Lab) {
    let tally = Tally::new();
    let held = tally.guard();
    let task = attempt(async move {
        let _held = held;
        sleep(MS).await?;
        Err::<(), _>(Error::msg("refused"))
    });
    assert!(task.await.is_err());
    assert_eq!(tally.drops(), 1);
}
