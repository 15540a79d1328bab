//! One task, several waiters of its value.

use std::sync::Arc;
use std::time::Duration;

use kinfolk_core::{
    Error, ErrorKind, JobState, Result, Scope, Success, attempt, park, race, scope, sleep, spawn,
    timeout,
};
use kinfolk_testkit::{Lab, Tally};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

/// handle-13: each waiter gets the value, also one that comes later; it was made once.
pub async fn handle_13_each_waiter_gets_the_value(lab: Lab) {
    scope(async |s| {
        let value = s.spawn(async {
            sleep(5 * MS).await?;
            Ok::<_, Error>(Arc::new(7))
        });
        let value = value.shared();
        let waiters: Vec<_> = (0..3).map(|_| s.spawn(value.clone())).collect();
        let mut all = Vec::new();
        for waiter in waiters {
            all.push(waiter.await?);
        }
        assert_eq!(lab.elapsed(), 5 * MS);
        all.push(value.clone().await?);
        assert!(value.job().is_ended());
        assert!(all.iter().all(|it| **it == 7 && Arc::ptr_eq(it, &all[0])));
        drop(value);
        assert_eq!(Arc::strong_count(&all[0]), 4);
        Ok(())
    })
    .await
    .unwrap();
}

/// handle-13: a failure is for each waiter; taken once it is not reported, taken by none it is.
/// A task that was cancelled is `Stopped` for each.
pub async fn handle_13_a_failure_is_for_each_waiter(lab: Lab) {
    let failing = || async {
        sleep(MS).await?;
        Err::<u8, _>(Error::msg("refused"))
    };
    let shared = attempt(failing()).shared();
    for waiter in [shared.clone(), shared] {
        assert_eq!(waiter.await.unwrap_err().to_string(), "refused");
    }
    assert!(lab.take_failures().is_empty());
    let shared = attempt(failing()).shared();
    let other = shared.clone();
    sleep(5 * MS).await.unwrap();
    drop(shared);
    assert!(lab.take_failures().is_empty());
    drop(other);
    assert_eq!(lab.take_failures().len(), 1);
    let shared = spawn(async { sleep(HOUR).await.map(|()| 1) }).shared();
    shared.job().cancel("alone");
    for waiter in [shared.clone(), shared] {
        let error = waiter.await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Stopped);
        assert_eq!(error.reason().unwrap().text(), Some("alone"));
    }
    let error = scope(async |s| {
        let shared = s.spawn(failing()).shared();
        shared.await?;
        Ok(())
    });
    assert_eq!(error.await.unwrap_err().to_string(), "refused");
    assert!(lab.take_failures().is_empty());
}

/// handle-13: the last handle dropped cancels the task, and none before it; a waiter that is
/// told leaves the task alone.
pub async fn handle_13_the_last_handle_cancels(lab: Lab) {
    let shared = spawn(async { park().await.map(|_| ()) }).shared();
    let job = shared.job();
    let other = shared.clone();
    let waiter = spawn(shared.clone());
    lab.settle().await;
    waiter.cancel("this one");
    assert!(waiter.outcome().await.unwrap().is_cancelled());
    let late = timeout(MS, shared.clone()).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::TimedOut);
    let first = race((async { Ok::<_, Error>(()) }, shared.clone())).await;
    first.unwrap();
    drop(shared);
    assert_eq!(job.state(), JobState::Active);
    drop(other);
    assert!(job.cancel_requested());
    assert!(job.join().await.unwrap().is_cancelled());
    assert!(lab.take_failures().is_empty());
}

/// handle-13: waiting is a point; a task cannot wait for itself by a handle of its own.
/// Also: handle-2, cancel-3.
pub async fn handle_13_a_waiter_is_at_a_point(lab: Lab) {
    let told = spawn(async {
        let ready = spawn(async { 1 }).shared();
        let _ = park().await;
        assert!(ready.clone().await.unwrap_err().is_cancelled());
        Err::<(), _>(ready.await.unwrap_err())
    });
    lab.settle().await;
    told.cancel("enough");
    assert!(told.outcome().await.unwrap().is_cancelled());
    let (send, receive) = futures_channel();
    let circle = attempt(async move {
        let itself: kinfolk_core::SharedTask<u8> =
            receive.recv().expect("sent before its first turn");
        itself.await
    });
    let here = circle.shared();
    send.send(here.clone()).expect("it is there");
    let error = here.await.unwrap_err();
    assert!(error.to_string().contains("waits for"), "{error}");
    assert!(lab.take_failures().is_empty());
}

fn futures_channel<T>() -> (std::sync::mpsc::Sender<T>, std::sync::mpsc::Receiver<T>) {
    std::sync::mpsc::channel()
}

/// handle-13: clones and drops of the value are the user's, and may panic.
/// Also: outcome-1.
pub async fn handle_13_a_value_may_be_hostile(lab: Lab) {
    struct Bomb(Tally);
    impl Success for Bomb {}
    impl Clone for Bomb {
        fn clone(&self) -> Bomb {
            std::panic::resume_unwind(Box::new("not to be cloned"))
        }
    }
    impl Drop for Bomb {
        fn drop(&mut self) {
            drop(self.0.guard());
            std::panic::resume_unwind(Box::new("dropped"))
        }
    }
    let tally = Tally::new();
    let bomb = Bomb(tally.clone());
    let shared = spawn(async move { bomb }).shared();
    let here = Scope::current().expect("inside a job");
    let waiter = here.attempt({
        let shared = shared.clone();
        async move {
            let _bomb = std::mem::ManuallyDrop::new(shared.await?);
            Ok::<_, Error>(())
        }
    });
    assert_eq!(waiter.await.unwrap_err().kind(), ErrorKind::Panicked);
    let again: Result<()> = attempt(async move { shared.await.map(std::mem::forget) }).await;
    assert_eq!(again.unwrap_err().kind(), ErrorKind::Panicked);
    assert_eq!(tally.drops(), 1);
    assert!(lab.take_failures().is_empty());
}
