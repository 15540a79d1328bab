//! Why a job was cancelled: group R of the conformance cases.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kinfolk_core::{
    Error, ErrorKind, Reason, ReasonKind, Scope, checkpoint, current_job, launch, now, on_cancel,
    park, scope, sleep, spawn, timeout,
};

use kinfolk_testkit::{Gate, Lab, Log};

const MS: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// A body that waits in a point.
async fn parked() -> Result<(), Error> {
    park().await?;
    Ok(())
}

/// A place where a body leaves the reason it was told.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Option<Reason>>>);

impl Told {
    fn keep(&self, reason: &Reason) {
        let before = self.0.lock().unwrap().replace(reason.clone());
        assert!(before.is_none(), "told twice");
    }

    fn reason(&self) -> Reason {
        self.0.lock().unwrap().clone().expect("it was not told")
    }

    /// A body that waits in a point and leaves its reason here.
    async fn parked(self) -> Result<(), Error> {
        let told = park().await.unwrap_err();
        self.keep(told.reason());
        Err(told.into())
    }
}

/// R01: an explicit cancel: words, kind, source job and call site can be read
/// at the point, in the hook and in the outcome.
/// Also: outcome-8.
pub async fn case_r01_an_explicit_cancel(lab: Lab) {
    let (point, hook) = (Told::default(), Told::default());
    let (body, fired) = (point.clone(), hook.clone());
    let task = spawn(async move {
        on_cancel(move |reason| fired.keep(reason)).keep();
        body.parked().await
    });
    lab.settle().await;
    let (id, line) = (task.id(), line!() + 1);
    assert!(task.cancel("no longer needed"));
    let outcome = task.outcome().await.unwrap();
    let seen = outcome.reason().unwrap();
    for reason in [&point.reason(), &hook.reason(), seen] {
        assert_eq!(reason.kind(), ReasonKind::Asked);
        assert_eq!(reason.text(), Some("no longer needed"));
        assert_eq!(reason.origin(), id);
        assert_eq!(
            (reason.site().file(), reason.site().line()),
            (file!(), line)
        );
        assert!(reason.culprit().is_none());
        assert!(reason.same(seen));
    }
}

/// R02: a deadline: kind Deadline, with the scope's id.
pub async fn case_r02_a_deadline(lab: Lab) {
    let told = Told::default();
    let body = told.clone();
    let before = lab.elapsed();
    let slot = Arc::new(Mutex::new(None));
    let error = timeout(10 * MS, async {
        *slot.lock().unwrap() = current_job().map(|job| job.id());
        body.parked().await
    })
    .await
    .unwrap_err();
    assert_eq!(lab.elapsed() - before, 10 * MS);
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let id = slot.lock().unwrap().take().unwrap();
    for reason in [&told.reason(), error.reason().unwrap()] {
        assert_eq!(reason.kind(), ReasonKind::Deadline);
        assert_eq!((reason.origin(), reason.text()), (id, None));
    }
}

/// R02: a deadline that was shortened by hand is still a Deadline, also when
/// it was moved into the past.
pub async fn case_r02_a_deadline_shortened_by_hand(lab: Lab) {
    let before = lab.elapsed();
    for ahead in [5 * MS, Duration::ZERO] {
        let told = Told::default();
        let error = Scope::build()
            .timeout(HOUR)
            .run(async |s| {
                s.reschedule(Some(now() + ahead)).unwrap();
                told.clone().parked().await
            })
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert_eq!(told.reason().kind(), ReasonKind::Deadline);
        assert!(told.reason().same(error.reason().unwrap()));
    }
    assert_eq!(lab.elapsed() - before, 5 * MS);
}

/// R03: a sibling cancelled by a failing child: ChildFailed, naming that job.
/// The parent's own body sees it as it was stored, the sibling as its
/// parent's.
/// Also: outcome-2.
pub async fn case_r03_a_child_failed(lab: Lab) {
    let (sibling, body) = (Told::default(), Told::default());
    let gate = Gate::new();
    let held = gate.clone();
    let ids = Arc::new(Mutex::new(None));
    let error = scope(async |s| {
        s.launch(sibling.clone().parked());
        let culprit = s.task("culprit").launch(async move {
            held.wait().await;
            Err::<(), Error>(Error::msg("broken"))
        });
        *ids.lock().unwrap() = Some((s.job().id(), culprit.id()));
        lab.settle().await;
        gate.open();
        body.clone().parked().await
    })
    .await
    .unwrap_err();
    assert_eq!(
        (error.kind(), error.to_string()),
        (ErrorKind::Failed, "broken".into())
    );
    let (parent, culprit) = ids.lock().unwrap().take().unwrap();
    assert_eq!(body.reason().kind(), ReasonKind::ChildFailed);
    assert_eq!(sibling.reason().kind(), ReasonKind::Parent);
    let cause = sibling.reason().root_cause();
    assert_eq!(cause.kind(), ReasonKind::ChildFailed);
    assert_eq!(cause.culprit(), Some((culprit, "culprit")));
    assert_eq!(cause.origin(), parent);
    assert!(cause.same(&body.reason()));
}

/// R03: a body that fails: its children see BodyFailed, naming the owner.
pub async fn case_r03_a_body_failed(lab: Lab) {
    let child = Told::default();
    let slot = Arc::new(Mutex::new(None));
    let error = Scope::named("owner")
        .run(async |s| {
            *slot.lock().unwrap() = Some(s.job().id());
            s.launch(child.clone().parked());
            lab.settle().await;
            Err::<(), Error>(Error::msg("broken"))
        })
        .await
        .unwrap_err();
    assert_eq!(error.to_string(), "broken");
    let owner = slot.lock().unwrap().take().unwrap();
    let reason = child.reason();
    assert_eq!(reason.kind(), ReasonKind::Parent);
    let cause = reason.root_cause();
    assert_eq!(cause.kind(), ReasonKind::BodyFailed);
    assert_eq!(cause.culprit(), Some((owner, "owner")));
    assert_eq!(cause.origin(), owner);
}

/// R04: an explicit reason stays when a deadline passes after it.
/// Also: K15, outcome-9.
pub async fn case_r04_an_explicit_reason_is_not_overwritten(lab: Lab) {
    let before = lab.elapsed();
    let error = Scope::build()
        .timeout(10 * MS)
        .run(async |s| {
            assert!(s.cancel("by hand"));
            let told = park().await.unwrap_err();
            kinfolk_core::cleanup(sleep(20 * MS)).await?;
            assert!(!s.cancel("second"));
            let reason = s.cancel_reason().unwrap();
            assert_eq!(
                (reason.kind(), reason.text()),
                (ReasonKind::Asked, Some("by hand"))
            );
            Err::<(), Error>(told.into())
        })
        .await
        .unwrap_err();
    assert_eq!(lab.elapsed() - before, 20 * MS);
    assert_eq!(error.kind(), ErrorKind::Stopped);
    let reason = error.reason().unwrap();
    assert_eq!(
        (reason.kind(), reason.text()),
        (ReasonKind::Asked, Some("by hand"))
    );
}

/// K15: an explicit user reason replaces a deadline's; nothing else does.
/// Also: outcome-9.
pub async fn src_k15_an_explicit_reason_replaces_a_deadlines(lab: Lab) {
    let words = Log::new();
    let error = Scope::build()
        .timeout(10 * MS)
        .run(async |s| {
            let told = park().await.unwrap_err();
            words.say(format!("{:?}", told.reason().kind()));
            // The job is cancelled already: the call does not move it.
            assert!(!s.cancel("by hand"));
            words.say(format!("{:?}", s.cancel_reason().unwrap().kind()));
            assert!(!s.cancel("by another hand"));
            Err::<(), Error>(told.into())
        })
        .await
        .unwrap_err();
    assert_eq!(words.text(), "Deadline Asked");
    assert_eq!(error.kind(), ErrorKind::Stopped);
    assert_eq!(error.reason().unwrap().text(), Some("by hand"));

    // A failing child does not replace it.
    let error = Scope::build()
        .timeout(10 * MS)
        .run(async |s| {
            let child = s.spawn(async {
                let _told = park().await;
                Err::<(), Error>(Error::msg("late"))
            });
            let told = park().await.unwrap_err();
            lab.settle().await;
            assert!(child.is_ended());
            let reason = s.cancel_reason().unwrap();
            assert_eq!(reason.kind(), ReasonKind::Deadline);
            Err::<(), Error>(told.into())
        })
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert_eq!(error.suppressed()[0].to_string(), "late");
}

/// R06: descendants get kind Parent, with the origin's own reason as root
/// cause, at any depth and in every kind of job.
/// Also: outcome-9.
pub async fn case_r06_descendants_see_their_parents_reason(lab: Lab) {
    let all: [Told; 4] = Default::default();
    let [child, inner, limited, deep] = all.clone();
    let task = spawn(async move {
        launch(child.parked());
        launch(async move {
            scope(async |_| {
                launch(inner.parked());
                launch(timeout(HOUR, limited.parked()));
                launch(async move {
                    launch(async move {
                        launch(deep.parked());
                        parked().await
                    });
                    parked().await
                });
                Ok(())
            })
            .await
        });
        parked().await
    });
    lab.settle().await;
    assert!(task.cancel("from the top"));
    let outcome = task.outcome().await.unwrap();
    let origin = outcome.reason().unwrap();
    assert_eq!(origin.kind(), ReasonKind::Asked);
    for told in &all {
        let reason = told.reason();
        assert_eq!(reason.kind(), ReasonKind::Parent);
        assert_eq!(reason.text(), Some("from the top"));
        let cause = reason.root_cause();
        assert_eq!(cause.kind(), ReasonKind::Asked);
        assert_eq!(cause.origin(), origin.origin());
        assert!(cause.same(origin));
    }
}

/// R06: a scope that is cancelled itself sees its own reason, and keeps it
/// when an enclosing job is cancelled later: first wins.
pub async fn case_r06_the_first_reason_of_a_job_stays(lab: Lab) {
    let told = Told::default();
    let body = told.clone();
    let slot = Arc::new(Mutex::new(None));
    let kept = slot.clone();
    let gate = Gate::new();
    let held = gate.clone();
    let task = spawn(async move {
        scope(async |s| {
            *kept.lock().unwrap() = Some(s);
            held.wait().await;
            body.parked().await
        })
        .await
    });
    lab.settle().await;
    let inner: Scope = slot.lock().unwrap().take().unwrap();
    assert!(inner.cancel("inner"));
    assert!(task.cancel("outer"));
    gate.open();
    let outcome = task.outcome().await.unwrap();
    assert_eq!(outcome.reason().unwrap().text(), Some("outer"));
    let reason = told.reason();
    assert_eq!(
        (reason.kind(), reason.text()),
        (ReasonKind::Asked, Some("inner"))
    );
    checkpoint().await.unwrap();
}

/// R08: the words given to a timeout appear in its error.
pub async fn case_r08_the_words_of_a_timeout(lab: Lab) {
    let before = lab.elapsed();
    let error = Scope::named("lookup")
        .timeout(2 * SEC)
        .reason("the directory does not answer")
        .run_future(parked())
        .await
        .unwrap_err();
    assert_eq!(lab.elapsed() - before, 2 * SEC);
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let reason = error.reason().unwrap();
    assert_eq!(reason.text(), Some("the directory does not answer"));
    let text = error.to_string();
    assert!(text.contains("the directory does not answer"), "{text}");
    assert!(text.contains("lookup") && text.contains("2s"), "{text}");
}
