//! Children that are cancelled without their parent, a task that is stopped, callbacks for the
//! end of another job, and which job asked.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::Context;
use std::time::Duration;

use kinfolk_core::{
    Error, ErrorKind, JobState, Outcome, ReasonKind, Result, Scope, checkpoint, cleanup,
    current_job, launch, park, scope, sleep, spawn, timeout,
};
use kinfolk_testkit::{Lab, Log, Tally};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

async fn forever() -> Result<()> {
    sleep(HOUR).await?;
    Ok(())
}

/// handle-11: the children are cancelled, the scope and its body go on and take new ones.
/// Services are passed over, and so are the scopes of the body.
pub async fn handle_11_the_children_are_cancelled_alone(lab: Lab) {
    let inner = Arc::new(Mutex::new(None));
    let seen = inner.clone();
    let answer = scope(async |s| {
        let first = s.spawn(forever());
        let lazy = s.spawn_lazy(forever());
        let nested = s.spawn(async { spawn(forever()).await });
        let service = s.spawn_service(forever());
        let here = s.clone();
        scope(async |body| {
            let own = body.spawn(async { after(5).await });
            lab.settle().await;
            assert_eq!(here.cancel_children("a newer query"), 3);
            assert_eq!(here.cancel_children("again"), 0);
            own.await
        })
        .await?;
        checkpoint().await?;
        for task in [first, lazy, nested] {
            let error = task.await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Stopped);
            let reason = error.reason().unwrap();
            assert_eq!(reason.kind(), ReasonKind::Asked);
            assert_eq!(reason.text(), Some("a newer query"));
        }
        assert_eq!(service.job().state(), JobState::Active);
        assert!(!s.cancel_requested());
        *seen.lock().unwrap() = Some(service.into_job());
        s.spawn(after(1)).await
    })
    .await;
    assert_eq!(answer.unwrap(), 1);
    assert!(inner.lock().unwrap().take().unwrap().is_ended());
    assert!(lab.take_failures().is_empty());
}

/// handle-11: futures that the scope hosts are children too. Also: handle-15.
pub async fn handle_11_hosted_futures_are_children(lab: Lab) {
    scope(async |s| {
        let mut hosted = Box::pin(s.host(forever()));
        let waker = std::task::Waker::noop();
        let polled = hosted.as_mut().poll(&mut Context::from_waker(waker));
        assert!(polled.is_pending());
        assert_eq!(s.cancel_children("a newer query"), 1);
        let error = hosted.await.unwrap_err();
        assert_eq!(error.reason().unwrap().text(), Some("a newer query"));
        assert!(!s.cancel_requested());
        Ok(())
    })
    .await
    .unwrap();
    assert!(lab.take_failures().is_empty());
}

async fn after(millis: u32) -> Result<u32> {
    sleep(millis * MS).await?;
    Ok(millis)
}

/// handle-11: asked of another job, also by a child of it, which is cancelled with the others.
/// A job that has ended has no children.
pub async fn handle_11_the_children_of_another_job(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let family = spawn(async move {
        let child = spawn(forever());
        let words = words.clone();
        let asks = launch(async move {
            let family = current_job()
                .and_then(|job| job.parent())
                .expect("a parent");
            assert_eq!(family.cancel_children("all of us"), 2);
            let told = checkpoint().await.unwrap_err();
            words.say(told.reason().text().unwrap_or_default().to_string());
            Err::<(), Error>(told.into())
        });
        assert_eq!(child.await.unwrap_err().kind(), ErrorKind::Stopped);
        assert!(asks.join().await?.is_cancelled());
        Ok::<_, Error>(7)
    });
    let job = family.job();
    assert_eq!(family.await.unwrap(), 7);
    assert_eq!(log.text(), "all of us");
    assert_eq!(job.cancel_children("too late"), 0);
    assert!(lab.take_failures().is_empty());
}

/// handle-11: `stop` cancels at once and waits: a late value and a failure are in the outcome.
pub async fn handle_11_a_task_is_stopped_and_waited_for(lab: Lab) {
    let late = spawn(async {
        let _ = park().await;
        cleanup(sleep(5 * MS)).await?;
        Ok::<_, Error>(7)
    });
    lab.settle().await;
    let outcome = late.stop("enough").await.unwrap();
    assert_eq!(lab.elapsed(), 5 * MS);
    assert_eq!(outcome.reason().and_then(|r| r.text()), Some("enough"));
    assert_eq!(outcome.into_value(), Some(7));

    let broken = kinfolk_core::attempt(async {
        let _ = park().await;
        Err::<(), _>(Error::msg("broken"))
    });
    lab.settle().await;
    let outcome = broken.stop("enough").await.unwrap();
    assert_eq!(outcome.error().unwrap().to_string(), "broken");

    let ended = spawn(async { 3 });
    lab.settle().await;
    assert_eq!(ended.stop("too late").await.unwrap().completed(), Some(3));

    // It is cancelled by the call, not by the wait.
    let task = spawn(forever());
    let job = task.job();
    let stop = task.stop("enough");
    assert!(job.cancel_requested());
    drop(stop);
    assert!(job.join().await.unwrap().is_cancelled());
    assert!(lab.take_failures().is_empty());
}

/// handle-11: the waiter of a `stop` is told, as one of an outcome is: a task of another family
/// is left at once, and is cancelled.
pub async fn handle_11_the_waiter_of_a_stop_is_told(lab: Lab) {
    let slow = spawn(async {
        let _ = park().await;
        cleanup(sleep(50 * MS)).await?;
        Ok::<_, Error>(())
    });
    let job = slow.job();
    lab.settle().await;
    let late = timeout(5 * MS, async move {
        let _how = slow.stop("enough").await?;
        Ok::<_, Error>(())
    });
    assert_eq!(late.await.unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(lab.elapsed(), 5 * MS);
    assert!(job.join().await.unwrap().is_cancelled());
    assert_eq!(lab.elapsed(), 50 * MS);
}

/// What `on_end` was called with, in order.
type Heard = Arc<Mutex<Vec<String>>>;

fn hear(heard: &Heard, name: &'static str) -> impl FnOnce(&Outcome<()>) + Send + 'static {
    let heard = heard.clone();
    move |how| {
        assert!(current_job().is_none(), "it runs outside every job");
        let how = match how {
            Outcome::Completed(()) => "completed".to_string(),
            Outcome::Failed(error) => format!("failed: {error}"),
            Outcome::Cancelled { reason, .. } => {
                format!("cancelled: {}", reason.text().unwrap_or_default())
            }
        };
        heard.lock().unwrap().push(format!("{name} {how}"));
    }
}

/// cancel-10: called once with how the job ended, before its waiter goes on and its parent
/// ends, in the order of registration; never by the cancel; at once if it has ended.
pub async fn cancel_10_the_end_of_another_job_is_heard(lab: Lab) {
    let heard = Heard::default();
    let parent = launch({
        let heard = heard.clone();
        async move {
            let good = spawn(async { after(5).await });
            good.job().on_end(hear(&heard, "one")).keep();
            good.job().on_end(hear(&heard, "two")).keep();
            drop(good.job().on_end(hear(&heard, "never")));
            assert!(good.job().on_end(hear(&heard, "disarmed")).disarm());
            good.await?;
            let told = spawn(async {
                let told = park().await.unwrap_err();
                cleanup(sleep(5 * MS)).await?;
                Err::<(), Error>(told.into())
            });
            told.job().on_end(hear(&heard, "told")).keep();
            lab.settle().await;
            told.cancel("enough");
            lab.settle().await;
            assert_eq!(heard.lock().unwrap().len(), 2, "the cancel is not the end");
            drop(told);
            let job = kinfolk_core::attempt(async { Err::<(), _>(Error::msg("bad")) });
            job.job().on_end(hear(&heard, "bad")).keep();
            let bad = job.job();
            assert!(job.await.is_err());
            bad.on_end(hear(&heard, "late")).keep();
            let never_begun = spawn(forever());
            never_begun.job().on_end(hear(&heard, "unpolled")).keep();
            never_begun.cancel("at once");
            let _ = never_begun.outcome().await?;
            Ok::<_, Error>(())
        }
    });
    parent.on_end(hear(&heard, "parent")).keep();
    assert!(parent.join().await.unwrap().is_completed());
    let mut heard = heard.lock().unwrap().clone();
    let told = heard.iter().position(|it| it == "told cancelled: enough");
    heard.remove(told.expect("it was heard before its parent ended"));
    let expected = [
        "one completed",
        "two completed",
        "bad failed: bad",
        "late failed: bad",
        "unpolled cancelled: at once",
        "parent completed",
    ];
    assert_eq!(heard, expected);
}

/// cancel-10: scopes end too; a hook that panics, or whose captures do, harms no job.
/// Also: outcome-1.
pub async fn cancel_10_a_hook_for_the_end_may_panic(lab: Lab) {
    struct Bomb(Tally);
    impl Drop for Bomb {
        fn drop(&mut self) {
            drop(self.0.guard());
            std::panic::resume_unwind(Box::new("dropped"))
        }
    }
    let heard = Heard::default();
    let tally = Tally::new();
    let bomb = Bomb(tally.clone());
    scope(async |s| {
        s.job().on_end(hear(&heard, "scope")).keep();
        let task = s.spawn(after(1));
        task.job()
            .on_end(|_| std::panic::resume_unwind(Box::new("hostile")))
            .keep();
        task.job().on_end(hear(&heard, "task")).keep();
        drop(task.job().on_end(move |_| drop(bomb)));
        task.await
    })
    .await
    .unwrap();
    assert_eq!(
        *heard.lock().unwrap(),
        ["task completed", "scope completed"]
    );
    assert_eq!(tally.drops(), 1);
    let failures = lab.take_failures();
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert_eq!(failures[0].kind(), ErrorKind::Panicked);
}

/// cancel-10: a hook may take itself away, register another, cancel, and end a scope.
pub async fn cancel_10_a_hook_for_the_end_may_ask_for_more(lab: Lab) {
    let count = Arc::new(AtomicUsize::new(0));
    let (again, total) = (count.clone(), count.clone());
    let error = scope(async |s| {
        let task = s.spawn(after(1));
        let (job, here) = (task.job(), s.clone());
        task.job()
            .on_end(move |_| {
                job.on_end(move |_| {
                    again.fetch_add(1, SeqCst);
                })
                .keep();
                here.cancel("its end was heard");
            })
            .keep();
        task.await?;
        park().await?;
        Ok(())
    })
    .await
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stopped);
    assert_eq!(error.reason().unwrap().text(), Some("its end was heard"));
    assert_eq!(
        error.reason().unwrap().asked_by(),
        None,
        "outside every job"
    );
    assert_eq!(total.load(SeqCst), 1);
    assert!(lab.take_failures().is_empty());
}

/// outcome-9: a reason names the job that asked.
pub async fn outcome_9_a_reason_names_the_job_that_asked(lab: Lab) {
    let victim = spawn(async {
        let told = park().await.unwrap_err();
        let (id, name) = told.reason().asked_by().expect("a job asked");
        assert_eq!(name, "canceller");
        assert!(told.to_string().contains("by canceller"), "{told}");
        Err::<(), Error>(told.into()).map(|()| id)
    });
    let job = victim.job();
    lab.settle().await;
    let here = Scope::current().expect("inside a job");
    let canceller = here.task("canceller").spawn(async move {
        job.cancel("by name");
        current_job().expect("inside a job").id().number()
    });
    let id = canceller.await.unwrap();
    let outcome = victim.outcome().await.unwrap();
    let reason = outcome.reason().expect("cancelled");
    assert_eq!(reason.asked_by().map(|(id, _)| id.number()), Some(id));
    // One without a name has the name of its kind and site.
    let other = spawn(forever());
    let job = other.job();
    spawn(async move { job.cancel("again") }).await.unwrap();
    let outcome = other.outcome().await.unwrap();
    let (_, name) = outcome.reason().unwrap().asked_by().expect("a job asked");
    assert!(name.starts_with("task@stopping.rs:"), "{name}");
    // An interrupt is asked for too; a deadline is not.
    let asked = spawn(async { park().await.map(|_| ()) });
    lab.settle().await;
    asked.interrupt("look up");
    let outcome = asked.outcome().await.unwrap();
    assert!(outcome.reason().unwrap().asked_by().is_some());
    let error = timeout(MS, forever()).await.unwrap_err();
    assert_eq!(error.reason().unwrap().asked_by(), None);
}
