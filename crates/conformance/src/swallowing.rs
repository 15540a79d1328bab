//! Bodies that swallow Cancelled and go on: they are named, and from their hundredth
//! Cancelled on their points wait a millisecond before they fail.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use kinfolk_core::{
    Error, Scope, Spawner, cancel_current, checkpoint, cleanup, park, race, scope, sleep, spawn,
    timeout, yield_now,
};
use kinfolk_testkit::{Gate, Lab};

const MS: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

fn named(name: &'static str) -> Spawner {
    Scope::current().expect("inside a job").task(name)
}

/// True if a living job of that name is said to swallow cancellation.
fn is_named(lab: &Lab, name: &str) -> bool {
    let tree = lab.snapshot();
    tree.find(name).expect("it lives").swallows_cancellation
}

/// Every timer that was set has fired or was given up.
fn no_timer_is_left(lab: &Lab) {
    let counters = lab.counters();
    assert_eq!(
        counters.timers_set,
        counters.timers_fired + counters.timers_cancelled,
        "{counters:?}"
    );
}

/// Swallows a hundred Cancelleds.
async fn swallow_a_hundred() {
    cancel_current("swallowed");
    for _ in 0..100 {
        checkpoint().await.unwrap_err();
    }
}

/// cancel-3: the hundredth names it; until then no time passes.
pub async fn cancel_3_a_body_that_has_swallowed_a_hundred_is_named(lab: Lab) {
    let gate = Gate::new();
    let (held, watching) = (gate.clone(), lab.clone());
    let task = named("glutton").spawn(async move {
        let before = watching.elapsed();
        cancel_current("swallowed");
        for _ in 0..99 {
            checkpoint().await.unwrap_err();
        }
        assert!(!is_named(&watching, "glutton"));
        checkpoint().await.unwrap_err();
        assert_eq!(watching.elapsed(), before);
        held.wait().await;
    });
    lab.settle().await;
    assert!(is_named(&lab, "glutton"));
    assert!(lab.snapshot().to_string().contains("swallows cancellation"));
    gate.open();
    assert!(task.outcome().await.unwrap().is_cancelled());
}

/// cancel-3: from then on each of its points waits a millisecond on the clock of the host
/// before it fails, and other tasks and timers go on meanwhile.
pub async fn cancel_3_from_the_hundredth_on_a_point_waits_a_millisecond(lab: Lab) {
    let watching = lab.clone();
    let rings = named("rings").spawn(async {
        sleep(10 * MS).await?;
        Ok::<_, Error>(())
    });
    let task = spawn(async move {
        swallow_a_hundred().await;
        let before = watching.elapsed();
        for _ in 0..10 {
            checkpoint().await.unwrap_err();
            yield_now().await.unwrap_err();
            let _ = sleep(HOUR).await;
        }
        let passed = watching.elapsed() - before;
        assert!(passed >= 30 * MS && passed < SEC, "{passed:?}");
    });
    assert!(task.outcome().await.unwrap().is_cancelled());
    rings.await.unwrap();
    no_timer_is_left(&lab);
}

/// cancel-3: a loop that only ends when another task says so. Its wait is one of ours:
/// no patience ends it, and no timer of it stays behind.
pub async fn cancel_3_a_loop_that_swallows_waits_and_is_not_dropped(lab: Lab) {
    let stop = Arc::new(AtomicBool::new(false));
    let its = stop.clone();
    let task = spawn(async move {
        cancel_current("swallowed");
        while !its.load(SeqCst) {
            let _ = sleep(HOUR).await;
        }
    });
    let before = lab.counters().jobs_force_dropped;
    sleep(5 * SEC).await.unwrap();
    stop.store(true, SeqCst);
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(lab.counters().jobs_force_dropped, before);
    no_timer_is_left(&lab);
}

/// cancel-3: a body that gives a point up while it waits, and ends, leaves no timer.
pub async fn cancel_3_a_body_that_ends_while_a_point_waits_leaves_no_timer(lab: Lab) {
    let task = spawn(async {
        swallow_a_hundred().await;
        let mut point = pin!(checkpoint());
        poll_fn(|cx| {
            assert!(point.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
    });
    assert!(task.outcome().await.unwrap().is_cancelled());
    no_timer_is_left(&lab);
}

/// cancel-3: points that wait beside each other wait for the same millisecond.
pub async fn cancel_3_points_beside_each_other_wait_together(lab: Lab) {
    let watching = lab.clone();
    let task = spawn(async move {
        swallow_a_hundred().await;
        let before = watching.elapsed();
        let mut points: FuturesUnordered<_> = (0..300).map(|_| checkpoint()).collect();
        while let Some(told) = points.next().await {
            told.unwrap_err();
        }
        let passed = watching.elapsed() - before;
        assert!(passed >= MS && passed < 100 * MS, "{passed:?}");
    });
    assert!(task.outcome().await.unwrap().is_cancelled());
    no_timer_is_left(&lab);
}

/// cancel-3: many points that one cancel finds waiting count as one, and so do many
/// branches: their body has swallowed nothing.
pub async fn cancel_3_many_waits_told_together_count_as_one(lab: Lab) {
    let watching = lab.clone();
    let task = named("crowd").spawn(async move {
        let mut waits: FuturesUnordered<_> = (0..300).map(|_| sleep(HOUR)).collect();
        while let Some(told) = waits.next().await {
            told.unwrap_err();
        }
        assert!(!is_named(&watching, "crowd"));
        checkpoint().await?;
        Ok::<_, Error>(())
    });
    let branches = named("branches").spawn(async {
        kinfolk_core::all((0..300).map(|_| sleep(HOUR))).await?;
        Ok::<_, Error>(())
    });
    lab.settle().await;
    let before = lab.elapsed();
    task.cancel("enough");
    branches.cancel("enough");
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert!(branches.outcome().await.unwrap().is_cancelled());
    assert_eq!(lab.elapsed(), before);
}

/// cancel-3: a loop around a scope, a timeout, a race or a task that is refused swallows
/// as well: each of them ends in turn, and the others have their turns meanwhile.
pub async fn cancel_3_a_loop_around_a_scope_swallows_too(lab: Lab) {
    type Round = fn() -> std::pin::Pin<Box<dyn Future<Output = bool> + Send>>;
    let rounds: [(&'static str, Round); 5] = [
        ("scope", || {
            Box::pin(async { scope(async |_| Ok(park().await?)).await.is_err() })
        }),
        ("timeout", || {
            Box::pin(async { timeout(SEC, sleep(HOUR)).await.is_err() })
        }),
        ("nested", || {
            Box::pin(async {
                let inner = scope(async |_| Ok(sleep(HOUR).await?));
                timeout(SEC, inner).await.is_err()
            })
        }),
        ("race", || {
            Box::pin(async { race([sleep(HOUR), sleep(HOUR)]).await.is_err() })
        }),
        ("spawn", || {
            Box::pin(async { spawn(async { sleep(HOUR).await }).await.is_err() })
        }),
    ];
    for (name, round) in rounds {
        let stop = Arc::new(AtomicBool::new(false));
        let its = stop.clone();
        let task = named(name).spawn(async move {
            cancel_current("swallowed");
            while !its.load(SeqCst) {
                assert!(round().await);
            }
        });
        sleep(SEC).await.unwrap();
        assert!(is_named(&lab, name), "{name}");
        stop.store(true, SeqCst);
        assert!(task.outcome().await.unwrap().is_cancelled(), "{name}");
    }
    no_timer_is_left(&lab);
}

/// cancel-3: a braked point that is polled under ever new wakers keeps few of them, on a clock
/// that stands still as well; and it fails in the end.
pub async fn cancel_3_a_braked_point_keeps_few_wakers(_: Lab) {
    struct Counted(#[expect(dead_code, reason = "counted")] Arc<()>);

    impl Wake for Counted {
        fn wake(self: Arc<Self>) {}
    }

    let task = named("glutton").spawn(async {
        swallow_a_hundred().await;
        let kept = Arc::new(());
        let mut most = 0;
        let mut point = pin!(checkpoint());
        for _ in 0..50_000 {
            let waker = Waker::from(Arc::new(Counted(kept.clone())));
            let polled = point.as_mut().poll(&mut Context::from_waker(&waker));
            drop(waker);
            most = most.max(Arc::strong_count(&kept) - 1);
            if polled.is_ready() {
                break;
            }
        }
        assert!(most < 10_000, "{most} wakers are kept");
    });
    assert!(task.outcome().await.unwrap().is_cancelled());
}

/// cancel-3: what is awaited in clean-up counts for nothing, however much it is.
pub async fn cancel_3_a_long_clean_up_swallows_nothing(lab: Lab) {
    let watching = lab.clone();
    let task = named("tidy").spawn(async move {
        cancel_current("enough");
        let told = checkpoint().await;
        for _ in 0..200 {
            let flush = scope(async |_| Ok(yield_now().await?));
            cleanup(flush).await?;
        }
        assert!(!is_named(&watching, "tidy"));
        told?;
        Ok::<_, Error>(())
    });
    assert!(task.outcome().await.unwrap().is_cancelled());
}
