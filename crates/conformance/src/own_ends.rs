//! A scope or timeout that ends itself: `or_none`, and whether the deadline passed.

use std::time::Duration;

use kinfolk_core::{
    Error, ErrorKind, Result, Scope, checkpoint, cleanup, is_cancelled, launch, park, scope,
    shield, sleep, spawn, timeout,
};
use kinfolk_testkit::{Lab, Tally};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

async fn after(wait: Duration, value: u32) -> Result<u32> {
    sleep(wait).await?;
    Ok(value)
}

fn words(lab: &Lab) -> Vec<String> {
    let mut words: Vec<_> = lab.take_failures().iter().map(Error::to_string).collect();
    words.sort_unstable();
    words
}

/// time-7: its own deadline is none; a value, a failure and a panic are unchanged.
pub async fn time_7_an_own_deadline_is_none(lab: Lab) {
    let none = timeout(MS, after(HOUR, 1)).or_none().await;
    assert_eq!(none.unwrap(), None);
    assert_eq!(lab.elapsed(), MS);
    let some = timeout(MS, after(Duration::ZERO, 1)).or_none().await;
    assert_eq!(some.unwrap(), Some(1));
    let failed = timeout(MS, async { Err::<(), _>(Error::msg("bad")) });
    assert_eq!(failed.or_none().await.unwrap_err().to_string(), "bad");
    let panicked = timeout(MS, async {
        std::panic::resume_unwind(Box::new("oops"));
        #[expect(unreachable_code, reason = "says what the body returns")]
        Ok::<(), Error>(())
    });
    let error = panicked.or_none().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Panicked);
    let named = Scope::named("page")
        .timeout(MS)
        .run(async |_| after(HOUR, 1).await);
    assert_eq!(named.or_none().await.unwrap(), None);
    // What cannot hear is dropped, and that is none too.
    let deaf = timeout(MS, std::future::pending::<Result<()>>());
    assert_eq!(deaf.or_none().await.unwrap(), None);
    assert_eq!(lab.counters().timers_pending(), 0);
}

/// time-7: an own cancel is one that was asked of that scope, by whichever job; what failed
/// in it is a failure all the same.
pub async fn time_7_an_own_cancel_is_none(lab: Lab) {
    let by_body = scope(async |s| {
        s.launch(after(HOUR, 1));
        s.cancel("enough");
        checkpoint().await?;
        Ok(1)
    });
    assert_eq!(by_body.or_none().await.unwrap(), None);
    let by_child = scope(async |s| {
        let other = s.clone();
        s.launch(async move {
            other.cancel("found it");
        });
        park().await?;
        Ok(1)
    });
    assert_eq!(by_child.or_none().await.unwrap(), None);
    let born = Scope::build().cancelled("at once").run(async |_| {
        checkpoint().await?;
        Ok(1)
    });
    assert_eq!(born.or_none().await.unwrap(), None);
    let kept = scope(async |s| {
        s.cancel("but there is a value");
        Ok(1)
    });
    assert_eq!(kept.or_none().await.unwrap(), Some(1));
    let failed = scope(async |s| {
        s.cancel("enough");
        Err::<(), _>(Error::msg("could not clean up"))
    });
    let error = failed.or_none().await.unwrap_err();
    assert_eq!(error.to_string(), "could not clean up");
    let child = scope(async |s| {
        s.launch(async {
            let _ = park().await;
            Err::<(), _>(Error::msg("could not clean up"))
        });
        lab.settle().await;
        s.cancel("enough");
        checkpoint().await?;
        Ok(())
    });
    let error = child.or_none().await.unwrap_err();
    assert_eq!(error.to_string(), "could not clean up");
    assert!(lab.take_failures().is_empty());
}

/// time-7: what is not the scope's own goes on: an inner timeout that escapes, a task that was
/// stopped, an enclosing cancel, an outer deadline, a failed child.
pub async fn time_7_what_is_not_its_own_is_not_swallowed(lab: Lab) {
    let inner = timeout(HOUR, async { timeout(MS, after(HOUR, 1)).await });
    let error = inner.or_none().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let stopped = scope(async |s| {
        let task = s.spawn(after(HOUR, 1));
        task.cancel("alone");
        task.await
    });
    assert_eq!(
        stopped.or_none().await.unwrap_err().kind(),
        ErrorKind::Stopped
    );
    // The child says that it was stopped by the cancel of its scope; the body returns it.
    let by_the_child = scope(async |s| {
        let task = s.spawn(async { park().await.map(|_| ()) });
        lab.settle().await;
        s.cancel("enough");
        shield(task).await
    });
    let error = by_the_child.or_none().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stopped);
    let outer = timeout(MS, async { timeout(HOUR, after(HOUR, 1)).or_none().await });
    assert_eq!(outer.or_none().await.unwrap(), None);
    let task = spawn(async {
        let told = timeout(HOUR, after(HOUR, 1)).or_none().await;
        assert!(told.as_ref().unwrap_err().is_cancelled());
        told
    });
    lab.settle().await;
    task.cancel("from outside");
    assert!(task.outcome().await.unwrap().is_cancelled());
    let error = scope(async |s| {
        s.launch(async { Err::<(), _>(Error::msg("child")) });
        park().await?;
        Ok(())
    })
    .or_none()
    .await
    .unwrap_err();
    assert_eq!(error.to_string(), "child");
    assert!(lab.take_failures().is_empty());
}

/// time-7: failures that stood beside `TimedOut` go to the failure hook, in one report.
/// Also: outcome-3, outcome-5.
pub async fn time_7_what_was_suppressed_is_reported(lab: Lab) {
    let late = Scope::build().timeout(MS).run(async |s| {
        for words in ["first", "second"] {
            s.launch(async move {
                let _ = park().await;
                cleanup(sleep(MS * if words == "first" { 1 } else { 2 })).await?;
                Err::<(), _>(Error::msg(words))
            });
        }
        park().await?;
        Ok(1)
    });
    assert_eq!(late.or_none().await.unwrap(), None);
    let failures = lab.take_failures();
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert_eq!(failures[0].to_string(), "first (and 1 more)");
    assert_eq!(failures[0].suppressed()[0].to_string(), "second");
    // As an error they stand beside it, and are the caller's.
    let late = Scope::build().timeout(MS).run(async |s| {
        s.launch(async {
            let _ = park().await;
            Err::<(), _>(Error::msg("late"))
        });
        park().await?;
        Ok(1)
    });
    assert_eq!(late.await.unwrap_err().suppressed_count(), 1);
    assert!(lab.take_failures().is_empty());
}

/// time-7: a scope with an error type of its author's own.
pub async fn time_7_or_none_of_an_own_error(_: Lab) {
    #[derive(Debug)]
    struct Mine(Option<Error>);
    impl std::fmt::Display for Mine {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("mine")
        }
    }
    impl std::error::Error for Mine {}
    impl From<Error> for Mine {
        fn from(error: Error) -> Mine {
            Mine(Some(error))
        }
    }
    let none = Scope::build().timeout(MS).run_as::<Mine, _>(async |_| {
        after(HOUR, 1).await.map_err(Mine::from)?;
        Ok(1)
    });
    // The body has put its Cancelled where no source shows it: that is a failure.
    assert!(none.or_none().await.is_err());
    let none = Scope::build().timeout(MS).run_as::<Error, _>(async |_| {
        after(HOUR, 1).await?;
        Ok(1)
    });
    assert_eq!(none.or_none().await.unwrap(), None);
    let own = scope(async |_| Ok(1));
    assert_eq!(own.or_none().await.unwrap(), Some(1));
    let failed = Scope::build()
        .timeout(HOUR)
        .run_as::<Mine, _>(async |_| Err::<u32, _>(Mine(None)));
    assert!(matches!(failed.or_none().await, Err(Mine(None))));
}

/// time-7: the value together with whether the deadline passed.
pub async fn time_7_a_value_that_came_too_late_says_so(lab: Lab) {
    let in_time = timeout(MS, async { 1 }).with_deadline_passed();
    assert_eq!(in_time.await.unwrap(), (1, false));
    // A handler that makes a response of every error.
    let hidden = timeout(MS, async {
        match after(HOUR, 1).await {
            Ok(_) => 200,
            Err(_) => 500,
        }
    });
    assert_eq!(hidden.with_deadline_passed().await.unwrap(), (500, true));
    let error = timeout(MS, after(HOUR, 1)).with_deadline_passed().await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::TimedOut);
    // Not its own: a cancel, or a deadline further out that came first.
    let cancelled = Scope::build().timeout(HOUR).run(async |s| {
        s.cancel("enough");
        let _ = checkpoint().await;
        Ok(1)
    });
    assert_eq!(cancelled.with_deadline_passed().await.unwrap(), (1, false));
    let outer = timeout(MS, async {
        let inner = timeout(HOUR, async {
            let _ = park().await;
            1
        });
        Ok::<_, Error>(inner.with_deadline_passed().await?.1)
    });
    assert_eq!(outer.with_deadline_passed().await.unwrap(), (false, true));
    assert!(lab.take_failures().is_empty());
}

/// time-7: inside, the scope says so itself, to a busy body too, and to others.
/// Also: time-5.
pub async fn time_7_a_scope_says_that_its_deadline_passed(lab: Lab) {
    let value = Scope::named("plan").timeout(10 * MS).run(async |s| {
        assert!(!s.deadline_passed());
        sleep(5 * MS).await?;
        assert!(!s.deadline_passed());
        let watcher = s.clone();
        let other = s.spawn(async move {
            let _ = park().await;
            Ok::<_, Error>(watcher.deadline_passed())
        });
        let mut steps = 0;
        while !s.deadline_passed() {
            steps += 1;
            if sleep(MS).await.is_err() {
                break;
            }
        }
        assert!(s.deadline_passed() && is_cancelled());
        assert!(other.await?);
        Ok(steps)
    });
    let (steps, late) = value.with_deadline_passed().await.unwrap();
    assert!(late && steps == 5, "{steps}");
    let cancelled = Scope::build().timeout(MS).run(async |s| {
        s.cancel("before");
        let _ = cleanup(sleep(5 * MS)).await;
        assert!(!s.deadline_passed());
        Ok(())
    });
    cancelled.await.unwrap();
    scope(async |s| {
        assert!(!s.deadline_passed());
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(lab.elapsed(), 15 * MS);
}

/// time-7: dropped half-way, it is a scope that is dropped half-way.
/// Also: handle-5.
pub async fn time_7_or_none_is_dropped_half_way(lab: Lab) {
    let tally = Tally::new();
    let guard = tally.guard();
    let dropped = timeout(MS, async {
        let _ = timeout(HOUR, async move {
            launch(async move {
                let _guard = guard;
                park().await.map(|_| ())
            });
            std::future::pending::<Result<()>>().await
        })
        .or_none()
        .await;
    });
    assert!(dropped.or_none().await.unwrap().is_some());
    assert_eq!(tally.drops(), 1);
    assert!(words(&lab).is_empty());
}
