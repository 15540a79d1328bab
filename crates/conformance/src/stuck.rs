//! The stuck report: who was to stop and is still there, and which polls last.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use futures_util::future::poll_fn;
use kinfolk_core::{
    Error, JobKind, Patience, Scope, Spawner, StillThere, StuckReport, WaitKind, blocking,
    checkpoint, cleanup, current_job, ignore_cancellation, park, scope, shield, sleep, timeout,
    yield_now,
};
use kinfolk_see::WriteJson;
use kinfolk_testkit::{Gate, Lab};

const MS: Duration = Duration::from_millis(1);

/// A task of that name, with which everybody has patience.
fn named(name: &'static str) -> Spawner {
    let patience = Patience {
        unaware: Duration::MAX,
        cleanup: Duration::MAX,
    };
    Scope::current()
        .expect("inside a job")
        .task(name)
        .patience(patience)
}

fn why(report: &StuckReport, name: &str) -> StillThere {
    let found = report.find(name);
    found
        .unwrap_or_else(|| panic!("no {name} in\n{report}"))
        .why
        .clone()
}

/// Gives its thread away once, and is no point.
async fn foreign_yield() {
    let mut again = true;
    poll_fn(move |cx| {
        if std::mem::replace(&mut again, false) {
            cx.waker().wake_by_ref();
            return std::task::Poll::Pending;
        }
        std::task::Poll::Ready(())
    })
    .await
}

/// see-6: a shield and a guard are named by where they were made, also a
/// shield that was opened to clean up; and one in a shield is in the place that
/// it waits at.
pub async fn see_6_what_holds_a_cancel_back(lab: Lab) {
    let gate = Gate::new();
    let door = gate.clone();
    let shield_at = line!() + 2;
    let shielded = named("shielded").spawn(async move {
        shield(async { door.wait().await }).await?;
        checkpoint().await?;
        Ok::<_, Error>(())
    });
    let door = gate.clone();
    let guard_at = line!() + 2;
    let guarded = named("guarded").spawn(async move {
        let _guard = ignore_cancellation().await?;
        door.wait().await;
        Ok::<_, Error>(())
    });
    let door = gate.clone();
    let own = lab.clone();
    let cleanup_at = line!() + 4;
    let cleaning = named("cleaning").spawn(async move {
        let told = park().await;
        own.dawdle(5 * MS);
        cleanup(Scope::named("flush").run(async |_| {
            door.wait().await;
            Ok::<_, Error>(())
        }))
        .await?;
        told.map(|_| ())?;
        Ok::<_, Error>(())
    });
    lab.settle().await;
    for job in [shielded.job(), guarded.job(), cleaning.job()] {
        job.cancel("enough");
    }
    lab.settle().await;
    lab.dawdle(100 * MS);
    let report = lab.snapshot().stuck(100 * MS);
    assert_eq!(report.jobs.len(), 3, "{report}");
    for (name, line) in [
        ("shielded", shield_at),
        ("guarded", guard_at),
        ("cleaning", cleanup_at),
    ] {
        let StillThere::Shielded(Some(at)) = why(&report, name) else {
            panic!("{name}: {report}");
        };
        assert_eq!((at.file(), at.line()), (file!(), line), "{name}");
    }
    let cleaning_at = &report.find("cleaning").unwrap().job;
    assert_eq!(cleaning_at.name, "flush", "where it is held up");
    gate.open();
    assert!(shielded.outcome().await.unwrap().is_cancelled());
    assert!(guarded.outcome().await.unwrap().is_cancelled());
    assert!(cleaning.outcome().await.unwrap().is_cancelled());
    assert!(lab.snapshot().stuck(Duration::ZERO).jobs.is_empty());
}

/// see-6: of two guards the one that is left is not taken for the other.
pub async fn see_6_a_guard_that_is_gone_is_not_named(lab: Lab) {
    let gate = Gate::new();
    let door = gate.clone();
    let guarded = named("guarded").spawn(async move {
        let first = ignore_cancellation().await?;
        let second = ignore_cancellation().await?;
        drop(first);
        door.wait().await;
        drop(second);
        checkpoint().await?;
        Ok::<_, Error>(())
    });
    lab.settle().await;
    guarded.cancel("enough");
    let report = lab.snapshot().stuck(Duration::ZERO);
    assert_eq!(why(&report, "guarded"), StillThere::Shielded(None));
    gate.open();
    assert!(guarded.outcome().await.unwrap().is_cancelled());
}

/// see-6: what happened a moment ago inside does not hide what is old around
/// it: a shielded task in which a timeout has just fired.
pub async fn see_6_what_is_young_inside_hides_nothing(lab: Lab) {
    let gate = Gate::new();
    let door = gate.clone();
    let old = named("old").spawn(async move {
        let inside = timeout(50 * MS, shield(async { door.wait().await }));
        let _ = shield(inside).await;
        checkpoint().await?;
        Ok::<_, Error>(())
    });
    lab.settle().await;
    old.cancel("enough");
    sleep(60 * MS).await.unwrap();
    for after in [10 * MS, 11 * MS, 60 * MS] {
        let report = lab.snapshot().stuck(after);
        assert_eq!(
            report.find("old").map(|old| old.since),
            Some(60 * MS),
            "{after:?}: {report}"
        );
    }
    assert!(lab.snapshot().stuck(61 * MS).is_empty());
    gate.open();
    assert!(old.outcome().await.unwrap().is_cancelled());
}

/// see-6: a foreign await, and a job that waits for one that is in it.
pub async fn see_6_a_foreign_await_and_whoever_waits_for_it(lab: Lab) {
    let gate = Gate::new();
    let door = gate.clone();
    let parent = named("parent").spawn(async move {
        let mut spared = None;
        scope(async |s| {
            spared = Some(s.task("spared").spawn_service(park()));
            s.task("first").launch(async move { door.wait().await });
            for _ in 0..2 {
                let door = Gate::new();
                s.launch(async move { shield(sleep(50 * MS)).await.map(|_| door) });
            }
            Ok(())
        })
        .await?;
        drop(spared);
        Ok::<_, Error>(())
    });
    let job = parent.job();
    let heir = named("heir").spawn(async move {
        let got = shield(async { job.join().await }).await;
        got.map(|_| ())
    });
    lab.settle().await;
    parent.cancel("enough");
    lab.settle().await;
    lab.dawdle(10 * MS);
    let report = lab.snapshot().stuck(10 * MS);
    assert_eq!(why(&report, "first"), StillThere::ForeignAwait);
    let StillThere::WaitsFor { first, others } = why(&report, "parent") else {
        panic!("{report}");
    };
    assert_eq!(first.unwrap().name.as_deref(), Some("first"));
    assert_eq!(others, 2);
    assert_eq!(report.jobs.len(), 4, "heir was not asked: {report}");
    // It waits for the parent now, and is asked.
    heir.cancel("you too");
    lab.dawdle(10 * MS);
    let report = lab.snapshot().stuck(10 * MS);
    assert!(matches!(why(&report, "heir"), StillThere::Shielded(_)));
    gate.open();
    assert!(parent.outcome().await.unwrap().is_cancelled());
    assert!(heir.outcome().await.unwrap().is_cancelled());
}

/// see-6: one that runs without a point, one that runs on after it was told.
pub async fn see_6_no_point_since(lab: Lab) {
    let over = Arc::new(AtomicBool::new(false));
    let its = over.clone();
    let busy = named("busy").spawn(async move {
        while !its.load(Relaxed) {
            foreign_yield().await;
        }
        checkpoint().await
    });
    busy.cancel("enough");
    // Not before it has been polled for the first time, which a cancel stops.
    assert!(busy.outcome().await.unwrap().is_cancelled());

    let its = over.clone();
    let busy = named("busy").spawn(async move {
        while !its.load(Relaxed) {
            foreign_yield().await;
        }
        checkpoint().await
    });
    while lab
        .snapshot()
        .find("busy")
        .is_some_and(|job| job.polls == 0)
    {
        yield_now().await.unwrap();
    }
    busy.cancel("enough");
    lab.dawdle(10 * MS);
    let report = lab.snapshot().stuck(10 * MS);
    let seen = why(&report, "busy");
    assert!(
        matches!(seen, StillThere::Queued | StillThere::NoPoint),
        "{report}"
    );
    assert!(report.to_string().contains("checkpoint().await?"));
    over.store(true, Relaxed);
    assert!(busy.outcome().await.unwrap().is_cancelled());
}

/// see-6: a body that swallows cancellation.
pub async fn see_6_one_that_swallows_cancellation(lab: Lab) {
    let over = Arc::new(AtomicBool::new(false));
    let its = over.clone();
    let deaf = named("deaf").spawn(async move {
        while !its.load(Relaxed) {
            let _ = checkpoint().await;
        }
        Ok::<_, Error>(())
    });
    while lab
        .snapshot()
        .find("deaf")
        .is_some_and(|job| job.polls == 0)
    {
        yield_now().await.unwrap();
    }
    deaf.cancel("enough");
    loop {
        let report = lab.snapshot().stuck(Duration::ZERO);
        if why(&report, "deaf") == StillThere::SwallowsCancellation {
            break;
        }
        yield_now().await.unwrap();
    }
    over.store(true, Relaxed);
    assert!(deaf.outcome().await.unwrap().is_cancelled());
}

/// see-6: not before the time, and not without a cancel; and a scope that was
/// cancelled by itself, in a task that was not.
pub async fn see_6_only_those_who_were_asked_and_long_ago(lab: Lab) {
    let gate = Gate::new();
    let door = gate.clone();
    let fine = named("fine").spawn(async move { door.wait().await });
    let door = gate.clone();
    let waits = named("waits").spawn(async move {
        let got = timeout(5 * MS, shield(async { door.wait().await })).await;
        got.map_err(|_| Error::msg("too late"))
    });
    lab.settle().await;
    sleep(20 * MS).await.unwrap();
    assert!(lab.snapshot().stuck(16 * MS).is_empty());
    let report = lab.snapshot().stuck(15 * MS);
    assert_eq!(report.jobs.len(), 1, "{report}");
    let waiting = report.find("waits").unwrap();
    assert_eq!(waiting.since, 15 * MS);
    assert_eq!(waiting.job.kind, JobKind::Shield);
    assert!(matches!(waiting.why, StillThere::Shielded(Some(_))));
    gate.open();
    fine.await.unwrap();
    waits.await.expect("what a shield brings is kept");
    let words = lab.snapshot().stuck(15 * MS).to_string();
    assert!(words.starts_with("stuck: no task"), "{words}");
}

/// see-6: a poll that lasts, cancelled or not, is listed while it does, and
/// what is only queued is not.
pub async fn see_6_polls_that_last(lab: Lab) {
    let own = lab.clone();
    let busy = named("busy").spawn(async move {
        // Time passes when the one who waits is in no poll, whatever thread it is on.
        sleep(MS).await?;
        scope(async |_| {
            own.dawdle(30 * MS);
            let report = own.snapshot().stuck(30 * MS);
            assert!(report.jobs.is_empty(), "{report}");
            let polls: Vec<_> = report.polls.iter().map(|job| &*job.name).collect();
            assert_eq!(polls, ["busy"]);
            assert!(report.polls[0].polled_for >= Some(30 * MS));
            let words = report.to_string();
            assert!(words.contains("long poll: task \"busy\""), "{words}");
            assert!(own.snapshot().to_json().contains(",\"polled_ms\":"));
            Ok(())
        })
        .await
    });
    busy.await.unwrap();

    // A poll that is inside another one hides it no more than it is hidden.
    let own = lab.clone();
    let outer = named("outer").spawn(async move {
        sleep(MS).await?;
        let inner = named("inner").spawn_now(async move {
            own.dawdle(30 * MS);
            let report = own.snapshot().stuck(30 * MS);
            let polls: Vec<_> = report.polls.iter().map(|job| &*job.name).collect();
            assert_eq!(polls, ["outer", "inner"], "{report}");
        });
        inner.await
    });
    outer.await.unwrap();

    let queued = named("queued").spawn(async { 7 });
    let report = lab.snapshot().stuck(Duration::ZERO);
    let polls: Vec<_> = report.polls.iter().map(|job| job.id).collect();
    let me = current_job().expect("inside").id();
    assert!(polls.contains(&me), "{report}");
    assert_eq!(queued.await.unwrap(), 7);
}

/// see-6: a blocking call that has begun is a wait that takes its time.
pub async fn see_6_a_wait_that_takes_its_time(lab: Lab) {
    let own = lab.clone();
    let call = named("call").spawn(async move {
        let me = current_job().expect("inside a job");
        blocking(move |_| {
            me.cancel("enough");
            own.snapshot().stuck(Duration::ZERO)
        })
        .await
    });
    let report = call.outcome().await.unwrap().into_value().unwrap();
    let seen = why(&report, "call");
    // On several threads its task may not have gone to rest yet.
    assert!(
        matches!(
            seen,
            StillThere::Waits(WaitKind::Blocking) | StillThere::NoPoint | StillThere::Queued
        ),
        "{report}"
    );
}
