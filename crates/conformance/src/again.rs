//! Doing something again: `retry`, `forever`, and children that restart themselves.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kinfolk_core::{
    Backoff, Error, ErrorKind, JobState, Result, Scope, attempt, cancel_current, checkpoint,
    forever, launch, park, restarting, retry, scope, sleep, spawn, timeout,
};
use kinfolk_testkit::{Lab, Tally};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Panics without a word on standard error.
fn raise() -> Result<()> {
    std::panic::resume_unwind(Box::new("oops"))
}

fn words(lab: &Lab) -> Vec<String> {
    lab.take_failures().iter().map(Error::to_string).collect()
}

/// handle-14: tries again after each failure, with pauses that double, as often as the policy
/// says; the value, or the failure of the last try.
pub async fn handle_14_a_failure_is_tried_again(lab: Lab) {
    let tries = AtomicU32::new(0);
    let value = retry(Backoff::new().tries(5), async || {
        let n = tries.fetch_add(1, SeqCst) + 1;
        checkpoint().await?;
        if n < 4 {
            return Err(Error::msg("not yet"));
        }
        Ok(n)
    })
    .await;
    assert_eq!((value.unwrap(), lab.elapsed()), (4, 700 * MS));
    let tries = AtomicU32::new(0);
    let policy = Backoff::new().tries(3).first(MS).longest(MS);
    let error = retry(policy, async || {
        let n = tries.fetch_add(1, SeqCst) + 1;
        Err::<(), _>(Error::msg(format!("try {n}")))
    })
    .await
    .unwrap_err();
    assert_eq!(
        (error.to_string(), lab.elapsed()),
        ("try 3".into(), 702 * MS)
    );
    // One try is one try, and a value needs no second.
    let once = retry(Backoff::new().tries(0), async || {
        Err::<(), _>(Error::msg("once"))
    });
    assert_eq!(once.await.unwrap_err().to_string(), "once");
    assert_eq!(retry(Backoff::new(), async || 7).await.unwrap(), 7);
    assert_eq!(lab.elapsed(), 702 * MS);
    assert!(lab.take_failures().is_empty());
}

/// handle-14: a try that timed out, or awaited what was stopped, has failed.
pub async fn handle_14_a_try_that_timed_out_has_failed(lab: Lab) {
    let kinds = Mutex::new(Vec::new());
    let value = retry(Backoff::new().first(MS), async || {
        let tries = kinds.lock().unwrap().len();
        let how = match tries {
            0 => timeout(MS, sleep(HOUR)).await,
            1 => {
                let task = spawn(async { sleep(HOUR).await.map(|_| ()) });
                task.cancel("alone");
                task.await
            }
            _ => Ok(()),
        };
        kinds
            .lock()
            .unwrap()
            .push(how.as_ref().err().map(Error::kind));
        how
    });
    value.await.unwrap();
    assert_eq!(
        kinds.into_inner().unwrap(),
        [Some(ErrorKind::TimedOut), Some(ErrorKind::Stopped), None]
    );
    assert_eq!(lab.elapsed(), MS + MS + 2 * MS);
}

/// handle-14: a cancelled body that logs what a retry or a restarted body failed with, and tries
/// again, swallows cancellation: it waits as one around points does, and others have their turns.
pub async fn handle_14_a_loop_around_a_told_retry_swallows(lab: Lab) {
    for restarts in [false, true] {
        let before = lab.elapsed();
        let task = spawn(async move {
            cancel_current("enough");
            let policy = Backoff::new();
            for _ in 0..200 {
                let fails = async || Err::<(), _>(Error::msg("at once"));
                let error = match restarts {
                    false => retry(policy, fails).await,
                    true => restarting(policy, fails).await,
                };
                assert_eq!(error.unwrap_err().to_string(), "at once");
            }
        });
        assert!(task.outcome().await.unwrap().is_cancelled());
        assert!(lab.elapsed() - before >= 90 * MS, "{restarts}");
    }
    assert!(lab.take_failures().is_empty());
}

/// handle-14: a cancellation is never retried: told in a try, in a pause, or between the two;
/// wrapped by the author's own error too.
pub async fn handle_14_a_cancellation_is_never_retried(lab: Lab) {
    #[derive(Debug)]
    struct Wrapped(Error);
    impl std::fmt::Display for Wrapped {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("wrapped")
        }
    }
    impl std::error::Error for Wrapped {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.0)
        }
    }
    for how in 0..3 {
        let tries = Arc::new(AtomicU32::new(0));
        let count = tries.clone();
        let task = attempt(async move {
            retry(Backoff::new().first(HOUR).longest(HOUR), async || {
                count.fetch_add(1, SeqCst);
                match how {
                    0 => park().await.map(drop).map_err(|told| Wrapped(told.into())),
                    1 => Err(Wrapped(Error::msg("then a pause"))),
                    _ => {
                        cancel_current("between");
                        Err(Wrapped(Error::msg("failed when told")))
                    }
                }
            })
            .await
        });
        lab.settle().await;
        task.cancel("enough");
        let outcome = task.outcome().await.unwrap();
        assert_eq!(outcome.is_failed(), how == 2, "{how}: {outcome:?}");
        assert_eq!(tries.load(SeqCst), 1, "{how}");
    }
    assert_eq!(lab.elapsed(), Duration::ZERO);
    let failures = words(&lab);
    assert!(failures.is_empty(), "{failures:?}");
}

/// handle-14: dropped half-way, and with a try that panics.
pub async fn handle_14_a_retry_that_is_dropped_or_panics(lab: Lab) {
    let tally = Tally::new();
    let late = timeout(MS, async {
        let guard = tally.guard();
        retry(Backoff::new(), async || {
            let _held = &guard;
            std::future::pending::<Result<()>>().await
        })
        .await
    });
    assert_eq!(late.await.unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(tally.drops(), 1);
    let tries = Arc::new(AtomicU32::new(0));
    let count = tries.clone();
    let error = attempt(retry(Backoff::new(), move || {
        count.fetch_add(1, SeqCst);
        async { raise() }
    }))
    .await
    .unwrap_err();
    assert_eq!((error.kind(), tries.load(SeqCst)), (ErrorKind::Panicked, 1));
    assert!(lab.take_failures().is_empty());
}

/// handle-14: round after round, until a failure; a body that swallows what it is told is
/// stopped before the next round. `Infallible` is what a body may return that never ends.
pub async fn handle_14_forever_ends_with_an_error_only(lab: Lab) {
    let rounds = AtomicU32::new(0);
    let error = forever(async || {
        let round = rounds.fetch_add(1, SeqCst) + 1;
        sleep(MS).await?;
        if round == 3 {
            Err(Error::msg("third"))
        } else {
            Ok(round)
        }
    })
    .await
    .unwrap_err();
    assert_eq!((error.to_string(), lab.elapsed()), ("third".into(), 3 * MS));

    let swallowed = Arc::new(AtomicU32::new(0));
    let count = swallowed.clone();
    let task = spawn(async move {
        let never: Result<Infallible> = forever(async || {
            if sleep(HOUR).await.is_err() {
                count.fetch_add(1, SeqCst);
            }
        })
        .await;
        never
    });
    lab.settle().await;
    task.cancel("enough");
    let outcome: kinfolk_core::Outcome<Infallible> = task.outcome().await.unwrap();
    assert!(outcome.is_cancelled());
    assert_eq!(swallowed.load(SeqCst), 1);

    let never = spawn(async {
        sleep(MS).await?;
        let never: Result<Infallible> = forever(async || sleep(MS).await).await;
        never
    });
    sleep(2 * MS).await.unwrap();
    never.cancel("enough");
    assert!(never.outcome().await.unwrap().is_cancelled());
}

/// outcome-3: under a supervisor a child that restarts itself is run anew when it fails or
/// panics; each failure is reported, its siblings are not touched, and a value ends it.
pub async fn outcome_3_a_child_is_restarted_alone(lab: Lab) {
    let runs = Arc::new(AtomicU32::new(0));
    let count = runs.clone();
    let mut total = None;
    Scope::named("background")
        .supervisor()
        .run(async |s| {
            let sibling = s.spawn(async { sleep(HOUR).await.map(|()| 1) });
            let restarted = s.task("mail").spawn(restarting(Backoff::new(), move || {
                let run = count.fetch_add(1, SeqCst);
                async move {
                    sleep(MS).await?;
                    match run {
                        0 => Err(Error::msg("first run")),
                        1 => std::panic::resume_unwind(Box::new("second run")),
                        2 => {
                            launch(async { Err::<(), _>(Error::msg("a child of the third")) });
                            park().await?;
                            Ok(0)
                        }
                        run => Ok(run),
                    }
                }
            }));
            assert_eq!(restarted.await?, 3);
            assert_eq!(lab.elapsed(), 100 * MS + 200 * MS + 400 * MS + 4 * MS);
            assert_eq!(sibling.job().state(), JobState::Active);
            total = Some(sibling.await?);
            Ok(())
        })
        .await
        .unwrap();
    assert_eq!((runs.load(SeqCst), total), (4, Some(1)));
    let failures = lab.take_failures();
    let kinds: Vec<_> = failures.iter().map(Error::kind).collect();
    assert_eq!(
        kinds,
        [ErrorKind::Failed, ErrorKind::Panicked, ErrorKind::Failed]
    );
    for failure in failures {
        assert!(
            failure.path().contains(&"mail".to_string()),
            "{:?}",
            failure.path()
        );
    }
}

/// outcome-3: the limit: the last failure is the child's own. A run that has gone well lets the
/// count begin anew. What a run has started has ended before the next begins.
pub async fn outcome_3_restarts_have_a_limit(lab: Lab) {
    let policy = Backoff::new().tries(3).first(MS).longest(10 * MS);
    let alive = Arc::new(AtomicU32::new(0));
    let here = alive.clone();
    let runs = Arc::new(AtomicU32::new(0));
    let count = runs.clone();
    Scope::named("background")
        .supervisor()
        .run(async |s| {
            let task = s.spawn(restarting(policy, move || {
                let (run, here) = (count.fetch_add(1, SeqCst), here.clone());
                async move {
                    assert_eq!(here.fetch_add(1, SeqCst), 0, "the run before has ended");
                    let left = here.clone();
                    launch(async move {
                        let _ = park().await;
                        left.fetch_sub(1, SeqCst);
                    });
                    // The second run goes well for a while.
                    sleep(if run == 1 { 10_000 * MS } else { MS }).await?;
                    Err::<(), _>(Error::msg(format!("run {run}")))
                }
            }));
            let error = task.await.unwrap_err();
            assert_eq!(error.to_string(), "run 3");
            Ok(())
        })
        .await
        .unwrap();
    assert_eq!(runs.load(SeqCst), 4);
    assert_eq!(words(&lab), ["run 0", "run 1", "run 2"]);
    // In a family that fails fast, the last failure is one as any other.
    let error = scope(async |s| {
        s.launch(restarting(policy.tries(1), async || {
            Err::<(), _>(Error::msg("once"))
        }));
        park().await?;
        Ok(())
    })
    .await
    .unwrap_err();
    assert_eq!(error.to_string(), "once");
    assert!(lab.take_failures().is_empty());
}

/// outcome-3: runs that are longer than the longest pause, and still short, reach the limit.
pub async fn outcome_3_runs_longer_than_their_pauses_have_a_limit(lab: Lab) {
    let policy = Backoff::new().tries(3).first(MS).longest(10 * MS);
    let runs = AtomicU32::new(0);
    let error = restarting(policy, async || {
        let run = runs.fetch_add(1, SeqCst);
        // It would never come to an end.
        if run == 99 {
            return Ok(());
        }
        sleep(9_999 * MS).await?;
        Err::<(), _>(Error::msg(format!("run {run}")))
    })
    .await
    .unwrap_err();
    assert_eq!(error.to_string(), "run 2");
    assert_eq!(words(&lab), ["run 0", "run 1"]);
}

/// outcome-3: a run whose own scope is cancelled has failed, and the child goes on.
pub async fn outcome_3_a_run_that_is_cancelled_alone_is_followed_by_another(lab: Lab) {
    let policy = Backoff::new().tries(3).first(MS);
    let runs = AtomicU32::new(0);
    let value = restarting(policy, async || {
        if runs.fetch_add(1, SeqCst) == 0 {
            Scope::current().unwrap().cancel("this run");
            park().await?;
        }
        Ok::<_, Error>(runs.load(SeqCst))
    })
    .await;
    assert_eq!(value.unwrap(), 2);
    let reported = lab.take_failures();
    assert_eq!(reported.len(), 1);
    assert_eq!(reported[0].kind(), ErrorKind::Stopped);
}

/// outcome-3: a policy without pauses has a limit too.
pub async fn outcome_3_restarts_without_pauses_have_a_limit(lab: Lab) {
    let policy = Backoff::new()
        .tries(3)
        .first(Duration::ZERO)
        .longest(Duration::ZERO);
    let runs = AtomicU32::new(0);
    let error = restarting(policy, async || {
        let run = runs.fetch_add(1, SeqCst);
        match run {
            1 => drop(sleep(MS).await?),
            // It would never come to an end.
            99 => return Ok(()),
            _ => {}
        }
        Err::<(), _>(Error::msg(format!("run {run}")))
    })
    .await
    .unwrap_err();
    assert_eq!(error.to_string(), "run 2");
    assert_eq!(words(&lab), ["run 0", "run 1"]);
}

/// outcome-3: a cancellation is no reason to begin anew, in a run and in a pause; a failure
/// while it cleans up is returned.
pub async fn outcome_3_a_cancelled_child_is_not_restarted(lab: Lab) {
    for how in 0..3 {
        let runs = Arc::new(AtomicU32::new(0));
        let count = runs.clone();
        Scope::named("background")
            .supervisor()
            .run(async |s| {
                let policy = Backoff::new().first(HOUR).longest(HOUR);
                let task = s.spawn(restarting(policy, move || {
                    count.fetch_add(1, SeqCst);
                    async move {
                        match how {
                            0 => park().await.map(drop).map_err(Error::from),
                            1 => Err(Error::msg("then a pause")),
                            _ => {
                                let _ = park().await;
                                Err(Error::msg("in the clean-up"))
                            }
                        }
                    }
                }));
                lab.settle().await;
                task.cancel("enough");
                let outcome = task.outcome().await?;
                assert_eq!(outcome.is_failed(), how == 2, "{how}");
                Ok(())
            })
            .await
            .unwrap();
        assert_eq!(runs.load(SeqCst), 1, "{how}");
        let expected: &[&str] = if how == 1 { &["then a pause"] } else { &[] };
        assert_eq!(words(&lab), expected, "{how}");
    }
}
