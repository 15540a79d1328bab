//! `cancel_everywhere`: it goes through every point, finds what it should
//! find, and says where.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kinfolk_core::{
    Error, Reason, Scope, checkpoint, cleanup, current_job, detach, launch, park, scope, shield,
    sleep, spawn, yield_now,
};
use kinfolk_runtime::io::pipe;
use kinfolk_testkit::{CancelEverywhere, Gate, cancel_everywhere, cancel_everywhere_then};

const SECOND: Duration = Duration::from_secs(1);

/// What it says when it panics.
fn complaint(run: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(run)).expect_err("it finds nothing");
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic.downcast::<&str>().expect("a text").to_string(),
    }
}

#[test]
fn test_3_every_point_is_tried_in_each_way() {
    // Which points were passed, and why it was stopped after them.
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let told = seen.clone();
    let went = cancel_everywhere(move || {
        let told = told.clone();
        async move {
            for passed in 0..5 {
                if let Err(stopped) = checkpoint().await {
                    let why = stopped.reason().kind();
                    told.lock().unwrap().insert((passed, format!("{why:?}")));
                    return Err(stopped);
                }
            }
            Ok(())
        }
    });
    assert_eq!((went.points, went.forced), (5, 0));
    assert_eq!(went.runs, 3 * 3 * 6, "seeds, ways to stop, points and none");
    let seen = seen.lock().unwrap();
    let expected: BTreeSet<_> = (0..5)
        .flat_map(|passed| {
            ["Asked", "Deadline", "ChildFailed"].map(|why| (passed, why.to_string()))
        })
        .collect();
    assert_eq!(*seen, expected);
}

#[test]
fn test_3_points_of_children_and_of_cleanup_are_tried_too() {
    let reasons = Arc::new(Mutex::new(Vec::<Reason>::new()));
    let seen = reasons.clone();
    let went = cancel_everywhere(move || {
        let seen = seen.clone();
        scope(async move |s| {
            let child = s.spawn(async move {
                let slept = sleep(SECOND).await;
                if let Err(told) = &slept {
                    seen.lock().unwrap().push(told.reason().clone());
                    cleanup(async {
                        yield_now().await?;
                        sleep(SECOND).await
                    })
                    .await?;
                }
                slept?;
                Ok::<_, Error>(())
            });
            shield(async {
                yield_now().await?;
                Ok::<_, Error>(())
            })
            .await?;
            s.launch(sleep(2 * SECOND));
            child.await?;
            sleep(SECOND).await?;
            Ok(())
        })
    });
    assert!(went.points >= 7, "{went:?}");
    let kinds: BTreeSet<_> = reasons
        .lock()
        .unwrap()
        .iter()
        .map(|reason| format!("{:?}", reason.root_cause().kind()))
        .collect();
    assert_eq!(kinds.len(), 3, "{kinds:?}");
}

#[test]
fn test_3_what_is_lost_on_the_way_is_found() {
    // Takes an item out and puts it elsewhere, with a point in between.
    let rooms = Arc::new(Mutex::new((1, 0)));
    let seen = rooms.clone();
    let found = complaint(move || {
        let scenario = move || {
            let rooms = rooms.clone();
            async move {
                *rooms.lock().unwrap() = (1, 0);
                sleep(SECOND).await?;
                rooms.lock().unwrap().0 -= 1;
                sleep(SECOND).await?;
                rooms.lock().unwrap().1 += 1;
                sleep(SECOND).await
            }
        };
        cancel_everywhere_then(scenario, move || {
            let (here, there) = *seen.lock().unwrap();
            assert_eq!(here + there, 1, "an item is lost");
        });
    });
    // Each sleep is polled twice: the third poll begins the second one.
    assert!(
        found.contains("a cancel at point 3") && found.contains("an item is lost"),
        "{found}"
    );
    assert!(found.contains("KINFOLK_SEED=0"), "{found}");
}

#[test]
fn test_3_what_stays_behind_is_found() {
    let found = complaint(|| {
        cancel_everywhere(|| async {
            let stopped = checkpoint().await;
            if stopped.is_err() {
                detach(async { park().await });
            }
            stopped
        });
    });
    assert!(
        found.contains("at point 1") && found.contains("1 jobs and 0 timers left"),
        "{found}"
    );
}

#[test]
fn test_3_a_hang_after_a_cancel_is_found() {
    let found = complaint(|| {
        cancel_everywhere(|| async {
            let closed = Gate::new();
            let stopped = sleep(SECOND).await;
            if stopped.is_err() {
                shield(async move {
                    closed.wait().await;
                    Ok::<_, Error>(())
                })
                .await?;
            }
            Ok::<_, Error>(())
        });
    });
    assert!(
        found.contains("deadlock") && found.contains("scenario"),
        "{found}"
    );
}

#[test]
fn test_3_one_that_does_not_stop_is_found() {
    let found = complaint(|| {
        cancel_everywhere(|| async {
            // Swallows it, and goes on for ever.
            let mut rounds = 0;
            while rounds < 3 {
                rounds += i32::from(checkpoint().await.is_ok());
            }
        });
    });
    assert!(
        found.contains("told to stop and goes on") && found.contains("swallows"),
        "{found}"
    );
}

#[test]
fn test_3_a_panic_after_a_cancel_is_found() {
    let found = complaint(|| {
        cancel_everywhere(|| async {
            yield_now().await.expect("nobody cancels me");
        });
    });
    assert!(
        found.contains("at point 1") && found.contains("nobody cancels me"),
        "{found}"
    );
}

#[test]
fn test_3_a_scenario_that_fails_by_itself_is_no_scenario() {
    let found = complaint(|| {
        cancel_everywhere(|| async { Err::<(), _>(Error::msg("out of luck")) });
    });
    assert!(
        found.contains("nothing to stop it") && found.contains("out of luck"),
        "{found}"
    );
}

#[test]
fn test_3_a_foreign_await_is_dropped_and_counted() {
    let went = cancel_everywhere(|| {
        let open = Gate::new();
        async move {
            let opener = open.clone();
            spawn(async move {
                sleep(SECOND).await?;
                opener.open();
                Ok::<_, Error>(())
            })
            .into_job();
            open.wait().await;
            Ok::<_, Error>(())
        }
    });
    assert!(went.forced > 0, "{went:?}");
}

#[test]
fn test_3_more_points_than_can_be_tried() {
    let went = cancel_everywhere(|| async {
        for _ in 0..5000 {
            checkpoint().await?;
        }
        Ok::<_, Error>(())
    });
    // Every 128th yields and is asked once more.
    assert!((5000..5050).contains(&went.points), "{went:?}");
    assert!(went.runs <= 3 * 3 * 1001, "{went:?}");
}

#[test]
fn test_3_many_jobs_at_once() {
    let went = cancel_everywhere(|| {
        scope(async |s| {
            for n in 0..8 {
                s.launch(async move {
                    let job = current_job().expect("inside");
                    assert!(!job.is_ended());
                    sleep(n * SECOND).await?;
                    launch(async { yield_now().await });
                    Ok::<_, Error>(())
                });
            }
            Ok(())
        })
    });
    assert!(went.points >= 24, "{went:?}");
}

/// With i/o every point is tried twice: in fair weather and in rough.
#[test]
fn test_3_io_is_tried_in_rough_weather_too() {
    let went = cancel_everywhere(async || {
        let (reader, writer) = pipe()?;
        writer.write_all("four").await.0?;
        drop(writer);
        let mut seen = 0;
        while seen < 4 {
            seen += reader.read([0; 4]).await.0?;
        }
        Ok::<_, Error>(())
    });
    let fair = cancel_everywhere(async || checkpoint().await);
    assert_eq!(fair.runs, 3 * 3 * (1 + fair.points), "once");
    assert!(went.runs > 2 * 3 * 3 * 2, "{went:?}");
    // One that takes a part for all.
    let found = complaint(|| {
        cancel_everywhere(async || {
            let (reader, writer) = pipe()?;
            for _ in 0..4 {
                writer.write_all("four").await.0?;
                let (read, _) = reader.read([0; 4]).await;
                assert_eq!(read?, 4);
            }
            Ok::<_, Error>(())
        });
    });
    assert!(
        found.contains(", in rough weather (run it again with"),
        "{found}"
    );
}

#[test]
fn test_3_a_failure_that_no_handle_takes_is_found() {
    let found = complaint(|| {
        cancel_everywhere(|| async {
            let stopped = checkpoint().await;
            if stopped.is_err() {
                let nursery = Scope::build().supervisor().run(async |s| {
                    s.launch(async { assert_eq!(1 + 1, 3, "in clean-up") });
                    Ok(())
                });
                let _ = cleanup(nursery).await;
            }
            stopped
        });
    });
    assert!(
        found.contains("at point 1")
            && found.contains("everywhere.rs")
            && found.contains("in clean-up"),
        "{found}"
    );
    let went = CancelEverywhere::new().allow_failures().run(|| async {
        let nursery = Scope::build().supervisor().run(async |s| {
            s.launch(async { Err::<(), _>(Error::msg("no such host")) });
            yield_now().await?;
            Ok(())
        });
        nursery.await
    });
    assert!(went.runs > 9, "{went:?}");
}
