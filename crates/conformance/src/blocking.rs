//! Blocking calls, as far as every host can show them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use kinfolk_core::{Error, ErrorKind, Outcome, blocking, cancel_current, checkpoint, current_job};

use kinfolk_testkit::Lab;

/// io-5: a blocking call gives its value to the job that awaits it.
pub async fn io_5_a_blocking_call_gives_its_value(lab: Lab) {
    let value = blocking(|caller| {
        assert!(!caller.is_cancelled());
        42
    })
    .await;
    assert_eq!(value.unwrap(), 42);
    assert_eq!(lab.counters().living(), 2);
}

/// io-5: told before it began, it never begins.
pub async fn io_5_told_before_it_began_it_never_begins(lab: Lab) {
    let ran = Arc::new(AtomicBool::new(false));
    let inner = ran.clone();
    let task = lab.root().spawn(async move {
        cancel_current("before the call");
        blocking(move |_| inner.store(true, SeqCst)).await?;
        Ok::<_, Error>(())
    });
    assert!(task.outcome().await.unwrap().is_cancelled());
    lab.settle().await;
    assert!(!ran.load(SeqCst));
}

/// io-5: a call that has taken effect gives its value although its waiter is
/// cancelled, and the next point tells.
pub async fn io_5_a_call_that_ran_gives_its_value_to_a_cancelled_waiter(lab: Lab) {
    let task = lab.root().spawn(async move {
        let me = current_job().unwrap();
        let value = blocking(move |_| {
            me.cancel("while it runs");
            5
        })
        .await?;
        assert!(checkpoint().await.is_err());
        Ok::<_, Error>(value)
    });
    match task.outcome().await.unwrap() {
        Outcome::Cancelled { late, .. } => assert_eq!(late, Some(5)),
        other => panic!("{other:?}"),
    }
}

/// io-5: a panic in the call is an error of kind Panicked, and harms no other job.
pub async fn io_5_a_panic_in_the_call_is_an_error(_lab: Lab) {
    let failed = blocking(|_| {
        if true {
            panic!("in the call");
        }
    })
    .await;
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::Panicked);
    assert_eq!(blocking(|_| 1).await.unwrap(), 1);
}
