//! Starting a service: the readiness handshake.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kinfolk_core::{
    Error, ErrorKind, JobState, NeverReady, Ready, ReasonKind, Result, Scope, checkpoint, cleanup,
    current_job, launch, park, scope, shield_for, sleep, spawn, timeout,
};

use kinfolk_testkit::{Gate, Lab, Log, Tally};

const MS: Duration = Duration::from_millis(1);

/// Panics without a word on standard error.
fn raise() {
    std::panic::resume_unwind(Box::new("no port at all"))
}

/// A service that is ready with `value` after a while, and serves until told.
async fn serve(ready: Ready<u32>, value: u32) -> Result<()> {
    sleep(5 * MS).await?;
    ready.ready(value);
    park().await?;
    Ok(())
}

/// K09: the starter of a service goes on when it is ready, with its value and
/// its handle; from then on it is a service as any other. Also: handle-6.
pub async fn case_k09_whoever_starts_a_service_waits_until_it_is_ready(lab: Lab) {
    let began = lab.elapsed();
    let job = scope(async |s| {
        let (value, service) = s
            .task("server")
            .start_service(|ready| serve(ready, 7))
            .await?;
        assert_eq!((value, lab.elapsed() - began), (7, 5 * MS));
        let job = service.into_job();
        assert_eq!(job.name(), "server");
        lab.settle().await;
        assert_eq!(job.state(), JobState::Active);
        Ok(job)
    });
    let job = job.await.unwrap();
    assert!(job.is_ended());
    assert!(job.join().await.unwrap().is_cancelled());
    assert_eq!(job.reason().unwrap().kind(), ReasonKind::ScopeEnded);
}

/// K09: a service that fails or panics before it is ready: its starter
/// gets that, and the scope is not touched. Also: handle-6.
pub async fn case_k09_a_failure_before_it_is_ready_is_that_of_the_start(lab: Lab) {
    let value = scope(async |s| {
        let beside = s.spawn(async { sleep(10 * MS).await.map(|()| 1) });
        let failed = s.start_service(async |_: Ready<u32>| {
            checkpoint().await?;
            Err::<(), _>(Error::msg("no port"))
        });
        let error = failed.await.unwrap_err();
        assert_eq!(
            (error.kind(), error.to_string().as_str()),
            (ErrorKind::Failed, "no port")
        );

        let panicked = s.start_service(async |_: Ready<u32>| raise());
        let error = panicked.await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Panicked);

        // By a child of its own.
        let inside = s.start_service(async |_: Ready<u32>| {
            launch(async { Err::<(), _>(Error::msg("a child's")) });
            park().await?;
            Ok::<_, Error>(())
        });
        let error = inside.await.unwrap_err();
        assert_eq!(error.to_string(), "a child's");
        beside.await
    });
    assert_eq!(value.await.unwrap(), 1);
    assert_eq!(lab.take_failures().len(), 0);
}

/// K09: a service that ends without a word was never ready. Its `Ready` may go
/// before: that says nothing yet.
pub async fn case_k09_a_service_that_ends_without_a_word(_lab: Lab) {
    scope(async |s| {
        let silent = s.start_service(async |ready: Ready<u32>| {
            drop(ready);
            sleep(5 * MS).await?;
            Ok::<_, Error>(())
        });
        let error = silent.await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Failed);
        assert_eq!(error.downcast_ref::<NeverReady>(), Some(&NeverReady));
        Ok(())
    })
    .await
    .unwrap();
}

/// handle-6: once it is ready, a service's failure counts as any child's.
pub async fn handle_6_a_failure_after_it_was_ready_counts(lab: Lab) {
    let failed = scope(async |s| {
        let gate = Gate::new();
        let opened = gate.clone();
        let ((), service) = s
            .start_service(async move |ready: Ready<()>| {
                ready.ready(());
                opened.wait().await;
                Err::<(), _>(Error::msg("out of memory"))
            })
            .await?;
        drop(service.into_job());
        gate.open();
        park().await?;
        Ok(())
    });
    assert_eq!(failed.await.unwrap_err().to_string(), "out of memory");
    assert_eq!(lab.take_failures().len(), 0);
}

/// K09: a service that is cancelled before it is ready, or refused, has been
/// stopped; its starter is not.
pub async fn case_k09_a_service_that_is_stopped_before_it_is_ready(lab: Lab) {
    scope(async |s| {
        let starter = s.clone();
        let here = Arc::new(Mutex::new(None));
        let place = here.clone();
        let start = s.spawn(async move {
            let start = starter.start_service(async move |ready: Ready<u32>| {
                *place.lock().unwrap() = current_job();
                park().await?;
                ready.ready(7);
                Ok::<_, Error>(())
            });
            let error = start.await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Stopped);
            assert_eq!(error.reason().unwrap().text(), Some("by itself"));
            checkpoint().await
        });
        lab.settle().await;
        let inside = here.lock().unwrap().take().unwrap();
        assert!(inside.parent().unwrap().cancel("by itself"));
        start.await?;
        s.close();
        let refused = s.start_service(|ready| serve(ready, 7)).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Stopped);
        Ok(())
    })
    .await
    .unwrap();
}

/// handle-6: the starter of a service is told, or drops the start: the service
/// is cancelled, and its scope waits for it. Told at entry, it never begins.
pub async fn handle_6_giving_up_the_start_cancels_the_service(lab: Lab) {
    for told in [true, false] {
        let log = Log::new();
        let words = log.clone();
        scope(async |s| {
            let start = s.start_service(async move |ready: Ready<u32>| {
                let told = park().await.unwrap_err();
                words.say(format!("{:?}", told.reason().root_cause().kind()));
                ready.ready(7);
                Err::<(), Error>(told.into())
            });
            match told {
                true => {
                    let task = spawn(start);
                    lab.settle().await;
                    assert!(task.cancel("no more"));
                    assert!(task.outcome().await?.is_cancelled());
                }
                false => {
                    let mut start = Box::pin(start);
                    let soon = futures_util::future::select(&mut start, Box::pin(sleep(MS)));
                    drop(soon.await);
                    drop(start);
                }
            }
            Ok(())
        })
        .await
        .unwrap();
        assert_eq!(log.text(), "HandleDropped", "told: {told}");
    }
    let never = Tally::new();
    let body = never.clone();
    let out = Scope::build()
        .cancelled("from the start")
        .run(async move |s| {
            let start = s.start_service(move |_: Ready<u32>| body.count(park()));
            let error = start.await.unwrap_err();
            assert!(error.is_cancelled());
            Err::<(), _>(error)
        });
    assert_eq!(out.await.unwrap_err().kind(), ErrorKind::Stopped);
    assert_eq!(never.polls(), 0);
}

/// handle-6: a failure that comes when no job waits for the start any more is
/// not lost: the failure hook gets it, and the scope is not touched.
pub async fn handle_6_a_failure_after_the_start_was_given_up(lab: Lab) {
    scope(async |s| {
        let start = s.start_service(async |_: Ready<u32>| {
            let _ = park().await;
            Err::<(), _>(Error::msg("could not undo it"))
        });
        let late = timeout(5 * MS, start).await.map(drop);
        assert_eq!(late.unwrap_err().kind(), ErrorKind::TimedOut);
        Ok(())
    })
    .await
    .unwrap();
    let failures = lab.take_failures();
    assert_eq!(failures.len(), 1);
    assert_eq!(failures[0].to_string(), "could not undo it");
}

/// handle-6: a service whose start is given up has not failed, whether it says that it
/// is ready afterwards or ends without a word.
pub async fn handle_6_a_start_that_is_given_up_is_no_failure(lab: Lab) {
    for says in [true, false] {
        scope(async |s| {
            let start = s.start_service(async move |ready: Ready<u32>| {
                let _ = park().await;
                if says {
                    ready.ready(7);
                }
                Ok::<_, Error>(())
            });
            let late = timeout(5 * MS, start).await.map(drop);
            assert_eq!(late.unwrap_err().kind(), ErrorKind::TimedOut);
            Ok(())
        })
        .await
        .unwrap();
        let failures = lab.take_failures();
        assert!(failures.is_empty(), "{failures:?}");
    }
}

/// handle-6: a service that is cancelled while somebody else holds its `Ready` is
/// stopped for its starter, and its word counts no more.
pub async fn handle_6_a_word_that_went_elsewhere_keeps_nobody(lab: Lab) {
    let kept = Arc::new(Mutex::new(None));
    let other = Scope::named("other").run(async |s| {
        let stash = kept.clone();
        let elsewhere = s.clone();
        let starting = spawn(async move {
            let started = elsewhere.start_service(move |ready: Ready<u32>| async move {
                *stash.lock().unwrap() = Some(ready);
                park().await?;
                Ok::<_, Error>(())
            });
            started.await.map(|(value, _)| value)
        });
        lab.settle().await;
        let word = kept.lock().unwrap().take().expect("it began");
        s.cancel("over");
        let error = starting.await.unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::Stopped | ErrorKind::Cancelled),
            "{error:?}"
        );
        word.ready(1);
        Ok(())
    });
    let _ = other.await;
}

/// handle-6: a cancel passes over the services of its job: what a service sets
/// itself goes on, its deadlines as well as its shields. Also: time-1, shield-2.
pub async fn handle_6_time_goes_on_in_a_service_of_a_cancelled_job(lab: Lab) {
    let task = spawn(async {
        let here = Scope::current().expect("inside a job");
        let hurried = here.spawn_service(async {
            let late = timeout(10 * MS, sleep(60 * MS)).await;
            Ok::<_, Error>(late.map_err(|error| error.kind()))
        });
        let shielded = here.spawn_service(async {
            sleep(5 * MS).await?;
            // Nothing is held back here, so no budget is spent.
            shield_for(MS, sleep(10 * MS)).await
        });
        park().await.expect_err("cancelled");
        cleanup(async { Ok::<_, Error>((hurried.await?, shielded.await)) }).await
    });
    lab.settle().await;
    let began = lab.elapsed();
    assert!(task.cancel("over"));
    let outcome = task.outcome().await.unwrap();
    let (hurried, shielded) = outcome.into_value().expect("a late value");
    assert_eq!(hurried, Err(ErrorKind::TimedOut));
    shielded.expect("nobody told it");
    assert_eq!(lab.elapsed() - began, 15 * MS);
}

/// outcome-8: a cancel that has passed a service over has not reached it: a
/// service that returns it has failed. Also: handle-6.
pub async fn outcome_8_a_cancel_has_not_reached_the_services_of_its_job(lab: Lab) {
    let task = spawn(async {
        let (tell, told) = (Gate::new(), Arc::new(Mutex::new(None)));
        let (wait, passed) = (tell.clone(), told.clone());
        let supervised = Scope::build().supervisor().run(async move |s| {
            let service = s.spawn_service(async move {
                wait.wait().await;
                let told: Option<Error> = passed.lock().unwrap().take();
                Err::<(), Error>(told.expect("passed to it"))
            });
            let error = park().await.expect_err("cancelled");
            *told.lock().unwrap() = Some(error.into());
            tell.open();
            Ok(cleanup(service.outcome()).await?.is_failed())
        });
        supervised.await
    });
    lab.settle().await;
    assert!(task.cancel("over"));
    let outcome = task.outcome().await.unwrap();
    assert_eq!(outcome.into_value(), Some(true));
}
