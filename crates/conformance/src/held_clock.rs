//! Virtual time and other threads: what holds the clock, and what does not.

use std::time::Duration;

use kinfolk_core::kit::{Work, completion, hold_clock};
use kinfolk_core::{Error, ErrorKind, now, park, scope, sleep, timeout};
use kinfolk_testkit::Lab;

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Calls `answer` on a thread that takes a moment for it. However long that moment
/// is, virtual time waits.
fn on_a_thread(answer: impl FnOnce() + Send + 'static) {
    drop(std::thread::spawn(move || {
        std::thread::sleep(2 * MS);
        answer();
    }));
}

/// A thread that carries out work of a job is about to answer: no timer fires before.
pub async fn test_1_open_work_holds_the_clock(_lab: Lab) {
    let began = now();
    scope(async |s| {
        let early = s.spawn(async {
            sleep(MS).await?;
            Ok::<_, Error>(now())
        });
        let (answer, completer) = completion::<u32>();
        let mut work = Work::here(|| {}).expect("in a job");
        on_a_thread(move || {
            completer.complete(7);
            work.finish();
        });
        assert_eq!(timeout(MS, answer).await?, 7);
        assert_eq!(now(), began, "the clock has moved");
        assert_eq!(early.await?, began + MS, "and it goes on");
        Ok(())
    })
    .await
    .unwrap();
}

/// Work that is dropped lets go of the clock too.
pub async fn test_1_dropped_work_lets_the_clock_go(_lab: Lab) {
    let began = now();
    let work = Work::here(|| {}).expect("in a job");
    on_a_thread(move || drop(work));
    sleep(HOUR).await.unwrap();
    assert_eq!(now(), began + HOUR);
}

/// Work that waits for long says so, and holds nothing.
pub async fn test_1_work_may_let_time_pass(_lab: Lab) {
    let began = now();
    let work = Work::here(|| {}).map(Work::lets_time_pass);
    let error = timeout(HOUR, park()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert_eq!(now(), began + HOUR);
    drop(work);
}

/// A lease does not hold the clock: jobs that wait for a timer have leases too.
pub async fn test_1_a_lease_does_not_hold_the_clock(_lab: Lab) {
    let began = now();
    scope(async |s| {
        let lease = s.lease().expect("it is open");
        sleep(HOUR).await?;
        drop(lease);
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(now(), began + HOUR);
}

/// A guard holds it for any other thread; two guards until the last is gone.
pub async fn test_1_a_guard_holds_the_clock_for_another_thread(_lab: Lab) {
    let began = now();
    let (first, one) = completion::<u32>();
    let (second, two) = completion::<u32>();
    for completer in [one, two] {
        let held = hold_clock();
        on_a_thread(move || {
            completer.complete(7);
            drop(held);
        });
    }
    assert_eq!(timeout(MS, first).await.unwrap(), 7);
    assert_eq!(timeout(MS, second).await.unwrap(), 7);
    assert_eq!(now(), began, "the clock has moved");
    sleep(HOUR).await.unwrap();
    assert_eq!(now(), began + HOUR);
}

/// A task that is busy for a while after the answer is not jumped over.
pub async fn test_1_an_answer_and_what_it_leads_to_come_before_time(_lab: Lab) {
    let began = now();
    let (answer, completer) = completion::<u32>();
    let held = hold_clock();
    let sleeper = kinfolk_core::spawn(async {
        sleep(MS).await?;
        Ok::<_, Error>(now())
    });
    on_a_thread(move || {
        completer.complete(7);
        drop(held);
    });
    answer.await.unwrap();
    for _ in 0..50 {
        kinfolk_core::yield_now().await.unwrap();
        assert_eq!(now(), began);
    }
    assert_eq!(sleeper.await.unwrap(), began + MS);
}
