//! `drain` while its caller is asked to stop, and the place it names. handle-9,
//! request-1, request-3.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kinfolk_core::{Error, Scope, Task, checkpoint, park, scope, sleep, spawn, try_shield};

use crate::interrupted::{me, words};
use kinfolk_testkit::Lab;

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

/// request-1: an interrupt of a body that drains its own scope is told there, at
/// once; the children live on, as nothing but the grace ends them.
/// Also: request-3, handle-9.
pub async fn request_1_drain_inside_its_scope_tells_an_interrupt(lab: Lab) {
    let before = lab.elapsed();
    let task = spawn(scope(async |s| {
        let child = s.spawn(async {
            sleep(30 * MS).await?;
            Ok::<_, Error>(7)
        });
        let told = s.drain(HOUR).await.unwrap_err();
        assert_eq!(words(&told), "look up");
        assert!(s.is_closed() && !s.cancel_requested());
        assert!(!child.job().cancel_requested(), "it was not the grace");
        checkpoint().await?;
        assert!(s.drain(HOUR).await?.is_completed(), "it can be asked again");
        child.await
    }));
    sleep(10 * MS).await.unwrap();
    assert!(task.interrupt("look up"));
    assert_eq!(task.await.unwrap(), 7);
    assert_eq!(lab.elapsed() - before, 30 * MS);
}

/// request-1: so it is told where it was asked before the first poll.
pub async fn request_1_drain_tells_what_was_asked_before(_lab: Lab) {
    spawn(scope(async |s| {
        let child = s.spawn(sleep(MS));
        me().interrupt("before");
        assert_eq!(words(&s.drain(HOUR).await.unwrap_err()), "before");
        assert_eq!(me().interrupts(), 1);
        checkpoint().await?;
        child.await?;
        Ok(())
    }))
    .await
    .unwrap();
}

/// A scope elsewhere that ends by itself in 30 ms, and its task.
async fn family(lab: &Lab) -> (Scope, Task<i32>) {
    let shared = Arc::new(Mutex::new(None));
    let place = shared.clone();
    let task = spawn(async move {
        scope(async |s| {
            *place.lock().unwrap() = Some(s.clone());
            s.launch(sleep(30 * MS));
            Ok(1)
        })
        .await
    });
    lab.settle().await;
    let s = shared.lock().unwrap().take();
    (s.unwrap(), task)
}

/// request-1: an interrupt of a task that drains another's scope is told there;
/// that scope is closed, and goes on.
/// Also: request-3, handle-9.
pub async fn request_1_drain_from_outside_tells_an_interrupt(lab: Lab) {
    let before = lab.elapsed();
    let (s, task) = family(&lab).await;
    let drained = s.clone();
    let drainer = spawn(async move {
        let told = drained.drain(HOUR).await.unwrap_err();
        assert_eq!(words(&told), "look up");
        checkpoint().await.unwrap();
    });
    sleep(10 * MS).await.unwrap();
    assert!(drainer.interrupt("look up"));
    drainer.await.unwrap();
    assert_eq!(lab.elapsed() - before, 10 * MS);
    assert!(s.is_closed() && !s.cancel_requested());
    assert_eq!(task.await.unwrap(), 1);
    assert_eq!(lab.elapsed() - before, 30 * MS);
}

/// handle-9: a task that is cancelled while it drains another's scope is told at
/// once. The scope is closed; before the grace is over nothing in it is cancelled.
pub async fn handle_9_drain_from_outside_is_a_point(lab: Lab) {
    let before = lab.elapsed();
    let (s, task) = family(&lab).await;
    let drained = s.clone();
    let drainer = spawn(async move { drained.drain(HOUR).await.map(|_| ()) });
    sleep(10 * MS).await.unwrap();
    drainer.cancel("enough");
    assert!(drainer.outcome().await.unwrap().is_cancelled());
    assert_eq!(lab.elapsed() - before, 10 * MS);
    assert!(s.is_closed() && !s.cancel_requested());
    assert_eq!(task.await.unwrap(), 1);
    assert_eq!(lab.elapsed() - before, 30 * MS);
}

/// outcome-8: the reason of a child that `drain` has cancelled names the line that
/// called `drain`, inside the scope and outside it.
/// Also: handle-9.
pub async fn outcome_8_drain_names_the_line_that_called_it(lab: Lab) {
    scope(async |s| {
        let child = s.spawn(park());
        let line = line!() + 1;
        assert!(s.drain(MS).await?.is_cancelled());
        let site = child.outcome().await?.reason().unwrap().site();
        assert_eq!((site.file(), site.line()), (file!(), line));
        Ok(())
    })
    .await
    .unwrap();
    let (s, task) = family(&lab).await;
    let line = line!() + 1;
    assert!(s.drain(MS).await.unwrap().is_cancelled());
    let site = s.cancel_reason().unwrap().site();
    assert_eq!((site.file(), site.line()), (file!(), line));
    assert_eq!(task.await.unwrap(), 1);
}

/// see-1: a snapshot shows `drain` and `try_shield` at the line that called them.
pub async fn see_1_drain_and_try_shield_stand_at_their_caller(lab: Lab) {
    let (s, task) = family(&lab).await;
    let line = line!() + 1;
    let drainer = spawn(async move { s.drain(HOUR).await.map(|_| ()) });
    let guarded = spawn(async { try_shield(async { drop(park().await) }).await });
    lab.settle().await;
    guarded.cancel("held back");
    let snapshot = lab.snapshot();
    let waits = snapshot.children(drainer.job().id()).next().unwrap();
    let id = guarded.job().id();
    let held = snapshot.nodes().iter().find(|node| node.id == id).unwrap();
    let wait = waits.waits_on.unwrap().1.unwrap();
    for (site, line) in [
        (waits.site, line),
        (wait, line),
        (held.shielded_at.unwrap(), line + 1),
    ] {
        assert_eq!((site.file(), site.line()), (file!(), line));
    }
    drainer.cancel("enough");
    drop(drainer);
    drop(guarded);
    task.await.unwrap();
}
