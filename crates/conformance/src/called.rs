//! Hooks and wakers that a cancel calls: in which order, one that panics, and one that
//! comes when its job is over.

use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use kinfolk_core::{
    Error, ErrorKind, Outcome, ReasonKind, Scope, current_job, ignore_cancellation, launch,
    on_cancel, on_cancel_or_end, park, scope, shield, sleep, spawn, timeout,
};

use kinfolk_testkit::{Gate, Lab, Log};

const MS: Duration = Duration::from_millis(1);

/// Panics without a word on standard error.
fn raise<T>(words: &'static str) -> T {
    std::panic::resume_unwind(Box::new(words))
}

/// cancel-1: it fails no job, the failure hook gets it with its job, and the others are
/// called all the same.
pub async fn cancel_1_a_hook_that_panics_is_reported(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let task = Scope::current().unwrap().task("hooked").spawn(async move {
        on_cancel(|_| raise("first")).keep();
        on_cancel(move |_| words.say("second")).keep();
        launch(async {
            on_cancel(|_| raise("below")).keep();
            park().await
        });
        park().await?;
        Ok::<_, Error>(())
    });
    lab.settle().await;
    assert!(task.cancel("enough"));
    let seen = lab.take_failures();
    let said: Vec<_> = seen.iter().map(Error::to_string).collect();
    assert_eq!(said.len(), 2, "{said:?}");
    assert_eq!(said[0], "hooked panicked: in a hook: first");
    assert!(said[1].ends_with("panicked: in a hook: below"), "{said:?}");
    for error in &seen {
        assert_eq!(error.kind(), ErrorKind::Panicked);
        let during = error.during().expect("a cancel went on");
        assert_eq!(during.root_cause().kind(), ReasonKind::Asked);
    }
    assert_eq!(seen[0].job(), Some(task.id()));
    assert_eq!(log.text(), "second");
    assert!(task.outcome().await.unwrap().is_cancelled());

    // At the end of a job that was not cancelled.
    let job = launch(async {
        on_cancel_or_end(|reason| {
            assert!(reason.is_none());
            raise("at the end")
        })
        .keep();
    });
    assert!(matches!(job.join().await.unwrap(), Outcome::Completed(())));
    let seen = lab.take_failures();
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert!(seen[0].to_string().ends_with("in a hook: at the end"));
    assert_eq!(seen[0].job(), Some(job.id()));
    assert!(seen[0].during().is_none());

    // And where it is called at once.
    let job = launch(async {
        assert!(park().await.is_err());
        on_cancel(|_| raise("at once")).keep();
    });
    lab.settle().await;
    job.cancel("enough");
    assert!(job.join().await.unwrap().is_cancelled());
    assert_eq!(lab.take_failures().len(), 1);
}

struct Loud;

impl Wake for Loud {
    fn wake(self: Arc<Self>) {
        raise("woken")
    }
}

fn poll_loudly<F: Future + Unpin>(future: &mut F) {
    let waker = Waker::from(Arc::new(Loud));
    let polled = std::pin::Pin::new(future).poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
}

/// cancel-1: of a leaf, and of a scope, that are polled under wakers of others. An
/// interrupt wakes the same, and its task.
pub async fn cancel_1_a_waker_that_panics_is_reported(lab: Lab) {
    for interrupt in [false, true] {
        let task = Scope::current().unwrap().task("woken").spawn(async move {
            let mut leaf = park();
            poll_loudly(&mut leaf);
            let mut inner = Box::pin(scope(async |_| {
                park().await?;
                Ok(())
            }));
            poll_loudly(&mut inner);
            park().await?;
            Ok::<_, Error>(())
        });
        lab.settle().await;
        if interrupt {
            assert!(task.interrupt("enough"));
        } else {
            assert!(task.cancel("enough"));
        }
        let seen = lab.take_failures();
        let said: Vec<_> = seen.iter().map(Error::to_string).collect();
        // The scope has a leaf of its own.
        assert!(said.len() >= 2, "{said:?}");
        assert!(said.contains(&"woken panicked: in a waker: woken".to_string()));
        assert!(
            said.iter().any(|words| words.starts_with("scope@")),
            "{said:?}"
        );
        assert!(
            said.iter()
                .all(|words| words.ends_with("in a waker: woken"))
        );
        assert!(task.outcome().await.unwrap().is_cancelled());
        lab.take_failures();
    }
}

/// cancel-8: those of one job in the order in which they were registered, before those
/// of the jobs below it.
pub async fn cancel_8_hooks_run_in_the_order_of_registration_before_the_childrens(lab: Lab) {
    for at_end in [false, true] {
        let log = Log::new();
        let words = log.clone();
        let gate = Gate::new();
        let open = gate.clone();
        let hook = move |name: &'static str| {
            let words = words.clone();
            on_cancel_or_end(move |_| words.say(name)).keep();
        };
        let job = launch(async move {
            hook("a1");
            let below = hook.clone();
            let held = gate.clone();
            let child = launch(async move {
                below("b1");
                let inner = scope(async |_| {
                    below("c1");
                    below("c2");
                    held.wait().await;
                    Ok(())
                });
                inner.await?;
                Ok::<_, Error>(())
            });
            hook("a2");
            // The last one comes when the child has its own.
            sleep(Duration::from_millis(1)).await?;
            hook("a3");
            let _ = child.join().await?;
            Ok::<_, Error>(())
        });
        sleep(Duration::from_millis(2)).await.unwrap();
        lab.settle().await;
        if at_end {
            // Each job's at its own end: the children's come first.
            open.open();
            let _ = job.join().await.unwrap();
            assert_eq!(log.text(), "c1 c2 b1 a1 a2 a3");
        } else {
            assert!(job.cancel("enough"));
            assert_eq!(log.text(), "a1 a2 a3 b1 c1 c2");
            let _ = job.join().await.unwrap();
        }
    }
}

/// cancel-8: publishing into a cancelled job calls at once, also if that job has ended.
pub async fn cancel_8_a_hook_for_a_cancelled_job_that_has_ended_is_called_at_once(lab: Lab) {
    let log = Log::new();
    let task = spawn(async {
        let s = Scope::current().unwrap();
        assert!(park().await.is_err());
        Ok::<_, Error>(s)
    });
    lab.settle().await;
    assert!(task.cancel("enough"));
    let Outcome::Cancelled {
        late: Some(ended), ..
    } = task.outcome().await.unwrap()
    else {
        panic!("a late value");
    };
    let words = log.clone();
    let guard = ended.on_cancel(move |reason| {
        assert_eq!(reason.kind(), ReasonKind::Asked);
        assert_eq!(reason.text(), Some("enough"));
        words.say("called");
    });
    assert_eq!(log.text(), "called");
    assert!(!guard.disarm(), "it has been called");

    // One that ended by itself is never cancelled any more.
    let done = spawn(async { Ok::<_, Error>(Scope::current().unwrap()) });
    let done = done.await.unwrap();
    let words = log.clone();
    done.on_cancel(move |_| words.say("never")).keep();
    assert_eq!(log.text(), "called");
}

/// cancel-8: however an ended job was cancelled, a hook for it is called at once. A
/// cancel that a shield has held back has not reached what was inside.
pub async fn cancel_8_whatever_cancelled_an_ended_job_its_hook_is_called(_lab: Lab) {
    let kept = Arc::new(Mutex::new(None));
    let keep = kept.clone();
    let here = move || *keep.lock().unwrap() = Some(Scope::current().unwrap());
    let reason_now = || {
        let ended: Scope = kept.lock().unwrap().take().expect("it has begun");
        let heard = Arc::new(Mutex::new(None));
        let told = heard.clone();
        ended
            .on_cancel(move |reason| *told.lock().unwrap() = Some(reason.kind()))
            .keep();
        *heard.lock().unwrap()
    };
    let told = scope(async |s| {
        here();
        s.cancel("by itself");
        Ok(())
    });
    told.await.expect("its value");
    assert_eq!(reason_now(), Some(ReasonKind::Asked), "a scope");
    let late = timeout(MS, async {
        here();
        park().await
    });
    late.await.expect_err("late");
    assert_eq!(reason_now(), Some(ReasonKind::Deadline), "a timeout");
    let failed = scope(async |s| {
        s.launch(async { Err::<(), _>(Error::msg("broken")) });
        here();
        park().await?;
        Ok(())
    });
    failed.await.expect_err("a child failed");
    assert_eq!(reason_now(), Some(ReasonKind::ChildFailed), "a failure");
    let here_too = here.clone();
    let outlives = Arc::new(Mutex::new(None));
    let place = outlives.clone();
    let guarded = spawn(async move {
        here_too();
        let guard = ignore_cancellation().await?;
        current_job().unwrap().cancel("behind a guard");
        // It lapses with the body.
        *place.lock().unwrap() = Some(guard);
        Ok::<_, Error>(())
    });
    assert!(guarded.outcome().await.unwrap().is_cancelled());
    assert_eq!(reason_now(), Some(ReasonKind::Asked), "behind a guard");
    drop(outlives.lock().unwrap().take());
    // A shield that has held a cancel back was not cancelled.
    let shielded = spawn(async move {
        current_job().unwrap().cancel("outside the shield");
        shield(async { here() }).await
    });
    assert!(shielded.outcome().await.unwrap().is_cancelled());
    assert_eq!(reason_now(), None, "a shield");
}
