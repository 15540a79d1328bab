//! Scopes that are left open: the body that opened one is over, and its future
//! is kept somewhere else. handle-5.

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{Either, select};
use kinfolk_core::kit::Work;
use kinfolk_core::{
    Error, ErrorKind, JobState, Patience, ReasonKind, Scope, all, any, checkpoint, cleanup,
    ignore_cancellation, local_scope, on_cancel, park, race, scope, shield, sleep, spawn, timeout,
};
use kinfolk_testkit::{Lab, Log, Tally};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

type Kept = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// A body that parks, cleans up for 20 ms once told, and says so.
async fn stubborn(log: Log, word: &'static str) -> Result<(), Error> {
    let told = park().await;
    cleanup(sleep(20 * MS)).await?;
    log.say(word);
    told?;
    Ok(())
}

async fn parked() -> Result<(), Error> {
    park().await?;
    Ok(())
}

/// What a scope that was left open returns.
fn assert_left(how: Result<(), Error>) {
    let error = how.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
    assert_eq!(
        error.reason().unwrap().root_cause().kind(),
        ReasonKind::ScopeEnded
    );
}

/// Polls `kept` in the body of a timeout for a second, and leaves it open.
async fn leave(kept: &mut Kept) {
    timeout(10 * SECOND, async {
        match select(kept, pin!(sleep(SECOND))).await {
            Either::Left((how, _)) => panic!("it was to stay open: {how:?}"),
            Either::Right((slept, _)) => slept,
        }
    })
    .await
    .unwrap();
}

/// handle-5: a scope left open does not keep the timeout whose body opened it.
/// Its children are told and waited for, it is reported once with both places,
/// and its future gets that Cancelled.
pub async fn handle_5_a_scope_left_open_is_cancelled_with_the_body_around_it(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let node = Arc::new(Mutex::new(None));
    let place = node.clone();
    let before = lab.elapsed();
    let mut work: Kept = Box::pin(Scope::named("work").run(async move |s| {
        s.launch(stubborn(words, "child"));
        *place.lock().unwrap() = Some(s.job());
        park().await?;
        Ok(())
    }));
    leave(&mut work).await;
    assert_eq!(lab.elapsed() - before, SECOND + 20 * MS);
    assert_eq!(log.text(), "child");
    let job = node.lock().unwrap().take().unwrap();
    assert_eq!(job.state(), JobState::Cancelled);
    assert_eq!(job.reason().unwrap().kind(), ReasonKind::ScopeEnded);
    let failures = lab.take_failures();
    assert_eq!(failures.len(), 1);
    let text = failures[0].to_string();
    assert_eq!(text.matches("left_open.rs:").count(), 2, "{text}");
    assert_eq!(failures[0].job_name(), Some("work"));
    assert_left(work.await);
    assert!(lab.take_failures().is_empty());
}

/// handle-5: the same in the waiting phase, in which the body's share has gone
/// before; and the future is dropped later, which does nothing.
pub async fn handle_5_a_scope_left_open_in_its_waiting_phase(lab: Lab) {
    for polled in [true, false] {
        let log = Log::new();
        let words = log.clone();
        let before = lab.elapsed();
        let mut work: Kept = Box::pin(scope(async move |s| {
            s.launch(stubborn(words, "child"));
            Ok(())
        }));
        leave(&mut work).await;
        assert_eq!(lab.elapsed() - before, SECOND + 20 * MS);
        assert_eq!(log.text(), "child");
        assert_eq!(lab.take_failures().len(), 1);
        let counters = lab.counters();
        match polled {
            true => assert_left(work.await),
            false => drop(work),
        }
        assert_eq!(lab.counters(), counters);
    }
}

/// handle-5: a task hands an open scope out as its value: it ends all the same.
pub async fn handle_5_a_scope_that_leaves_its_task_as_a_value(lab: Lab) {
    let tally = Tally::new();
    let count = tally.guard();
    let task = spawn(async move {
        let mut work: Kept = Box::pin(scope(async move |_| {
            let _count = count;
            parked().await
        }));
        assert!(futures_util::poll!(&mut work).is_pending());
        Some(work)
    });
    let work = task.await.unwrap().unwrap();
    assert_eq!(tally.drops(), 0);
    assert_left(work.await);
    assert_eq!(tally.drops(), 1);
    assert_eq!(lab.take_failures().len(), 1);
}

/// handle-5: whatever kind of scope it is, and however deep the open ones are
/// nested, with guards and shields that hold a cancel back.
pub async fn handle_5_every_kind_of_scope_may_be_left_open(lab: Lab) {
    let log = Log::new();
    let words = log.clone();
    let all_kinds: Vec<(&str, Kept)> = vec![
        ("timeout", Box::pin(timeout(3600 * SECOND, parked()))),
        (
            "shield",
            Box::pin(shield(async { sleep(3600 * SECOND).await })),
        ),
        (
            "cleanup",
            Box::pin(cleanup(std::future::pending::<Result<(), Error>>())),
        ),
        (
            "guarded",
            Box::pin(scope(async |_| {
                let _guard = ignore_cancellation().await?;
                std::future::pending::<()>().await;
                Ok(())
            })),
        ),
        (
            "nested",
            Box::pin(scope(async move |_| {
                shield(timeout(
                    3600 * SECOND,
                    scope(async move |s| {
                        s.launch(stubborn(words, "nested"));
                        std::future::pending::<()>().await;
                        Ok(())
                    }),
                ))
                .await
            })),
        ),
        (
            "all",
            Box::pin(async { all([parked(), parked()]).await.map(drop) }),
        ),
        ("any", Box::pin(any([parked(), parked()]))),
        ("race", Box::pin(race([parked(), parked()]))),
        (
            "local",
            Box::pin(local_scope(async |s| {
                let task = s.spawn(parked());
                s.launch(async { scope(async |_| parked().await).await });
                task.await
            })),
        ),
        (
            "local, waiting",
            Box::pin(local_scope(async |s| {
                s.launch(std::future::pending::<()>());
                Ok(())
            })),
        ),
    ];
    for (name, mut work) in all_kinds {
        let before = lab.elapsed();
        leave(&mut work).await;
        let took = lab.elapsed() - before;
        let more = if name == "nested" {
            20 * MS
        } else {
            Duration::ZERO
        };
        assert_eq!(took, SECOND + more, "{name}");
        assert!(!lab.take_failures().is_empty(), "{name}");
        assert_left(work.await);
    }
    assert_eq!(log.text(), "nested");
}

/// handle-5: what goes on beside the body of a scope that is left open is asked
/// to end, and its hooks are called.
pub async fn handle_5_work_and_hooks_of_a_scope_left_open(lab: Lab) {
    let calls = Arc::new(AtomicUsize::new(0));
    let seen = calls.clone();
    let kept = Arc::new(Mutex::new(None::<Work>));
    let place = kept.clone();
    let mut work: Kept = Box::pin(scope(async move |_| {
        let stopped = place.clone();
        let called = seen.clone();
        let piece = Work::here(move || {
            called.fetch_add(1, SeqCst);
            drop(stopped.lock().unwrap().take());
        })
        .map(Work::lets_time_pass);
        *place.lock().unwrap() = piece;
        let called = seen.clone();
        let _hook = on_cancel(move |_| {
            called.fetch_add(10, SeqCst);
        });
        parked().await
    }));
    leave(&mut work).await;
    assert_eq!(calls.load(SeqCst), 11);
    assert_eq!(lab.take_failures().len(), 1);
    assert_left(work.await);
}

/// handle-5: the body around it is dropped by force.
pub async fn handle_5_a_scope_left_open_by_a_body_that_is_dropped(lab: Lab) {
    let place = Arc::new(Mutex::new(None::<Kept>));
    let given = place.clone();
    let task = Scope::current()
        .unwrap()
        .task("deaf")
        .patience(Patience {
            unaware: 10 * MS,
            ..Patience::default()
        })
        .spawn(async move {
            let mut work: Kept = Box::pin(scope(async |_| parked().await));
            assert!(futures_util::poll!(&mut work).is_pending());
            *given.lock().unwrap() = Some(work);
            std::future::pending::<()>().await;
        });
    lab.settle().await;
    task.cancel("it does not hear");
    let outcome = task.outcome().await.unwrap();
    assert!(outcome.is_cancelled());
    assert_eq!(lab.take_failures().len(), 1);
    let work = place.lock().unwrap().take().unwrap();
    // The cancel of the task was first.
    let error = work.await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    assert_eq!(
        error.reason().unwrap().root_cause().text(),
        Some("it does not hear")
    );
    checkpoint().await.unwrap();
}
