//! Timers: the cases of group N that need sleeping only.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use kinfolk_core::{Error, Sleep, launch, now, scope, sleep, sleep_until};

use kinfolk_testkit::{Lab, Log};

const MS: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);

/// Says its word when it is woken.
struct SayOnWake(Log, &'static str);

impl Wake for SayOnWake {
    fn wake(self: Arc<Self>) {
        self.0.say(self.1);
    }
}

/// Sets the timer of a sleep so that its firing says a word.
fn armed(mut sleep: Pin<Box<Sleep>>, log: &Log, word: &'static str) -> Pin<Box<Sleep>> {
    let waker = Waker::from(Arc::new(SayOnWake(log.clone(), word)));
    let polled = sleep.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    sleep
}

/// A sleep that is cancelled frees its timer there and then.
/// Also: time-4, T18.
pub async fn case_n01_a_cancelled_sleep_frees_its_timer(lab: Lab) {
    let before = lab.counters();
    scope(async |s| {
        for n in 0..100 {
            s.launch(sleep(n * SEC + SEC));
        }
        lab.settle().await;
        let pending = lab.counters().timers_pending();
        assert_eq!(pending, before.timers_pending() + 100);
        s.cancel("enough");
        lab.settle().await;
        assert_eq!(lab.counters().timers_pending(), before.timers_pending());
        Ok(())
    })
    .await
    .unwrap();
    let after = lab.counters();
    assert_eq!(after.timers_set - before.timers_set, 100);
    assert_eq!(after.timers_cancelled - before.timers_cancelled, 100);
    assert_eq!(after.timers_fired, before.timers_fired);
    assert_eq!(lab.elapsed(), Duration::ZERO);
}

/// So does a sleep that is dropped, and one that was never polled set none.
/// Also: time-4.
pub async fn case_n01_a_dropped_sleep_frees_its_timer(lab: Lab) {
    let before = lab.counters();
    drop(sleep(SEC));
    assert_eq!(lab.counters().timers_set, before.timers_set);
    let log = Log::new();
    let dropped = armed(Box::pin(sleep(SEC)), &log, "fired");
    assert_eq!(lab.counters().timers_pending(), before.timers_pending() + 1);
    drop(dropped);
    assert_eq!(lab.counters().timers_pending(), before.timers_pending());
    sleep(2 * SEC).await.unwrap();
    assert!(log.is_empty());
}

/// Equal instants fire in the order in which they were set, earlier ones
/// before them even if set later.
pub async fn case_n14_timers_fire_by_instant_then_by_age(lab: Lab) {
    let log = Log::new();
    let at = now() + 20 * MS;
    let kept = [
        armed(Box::pin(sleep_until(at)), &log, "a"),
        armed(Box::pin(sleep(30 * MS)), &log, "late"),
        armed(Box::pin(sleep(20 * MS)), &log, "b"),
        armed(Box::pin(sleep_until(at)), &log, "c"),
        armed(Box::pin(sleep(10 * MS)), &log, "early"),
        armed(Box::pin(sleep_until(at)), &log, "d"),
    ];
    // One that is given up leaves the order of the others alone.
    drop(armed(Box::pin(sleep_until(at)), &log, "gone"));
    sleep(19 * MS).await.unwrap();
    assert_eq!(log.text(), "early");
    sleep(2 * MS).await.unwrap();
    assert_eq!(log.text(), "early a b c d");
    sleep(20 * MS).await.unwrap();
    assert_eq!(log.text(), "early a b c d late");
    drop(kept);
    assert_eq!(lab.elapsed(), 41 * MS);
}

/// A sleep that is due sooner ends sooner, in whatever order the tasks began.
pub async fn case_n14_earlier_sleeps_end_first(lab: Lab) {
    let log = Log::new();
    for ms in [30_u32, 10, 20] {
        let log = log.clone();
        launch(async move {
            sleep(ms * MS).await?;
            log.say(ms.to_string());
            Ok::<_, Error>(())
        });
        lab.settle().await;
    }
    sleep(40 * MS).await.unwrap();
    assert_eq!(log.text(), "10 20 30");
}

/// Timers that are due at one look wake in the order of their deadlines, equal
/// ones in the order of setting.
pub async fn time_6_timers_due_together_wake_in_the_order_of_their_deadlines(lab: Lab) {
    let log = Log::new();
    let start = now();
    let words = ["50", "10", "30a", "30b", "20", "30c", "40", "10b"];
    let kept: Vec<_> = words
        .iter()
        .map(|word| {
            let after: u32 = word.trim_end_matches(char::is_alphabetic).parse().unwrap();
            armed(Box::pin(sleep_until(start + after * MS)), &log, word)
        })
        .collect();
    // A turn that lasts until all of them are due.
    lab.dawdle(100 * MS);
    sleep(MS).await.unwrap();
    assert_eq!(log.text(), "10 10b 20 30a 30b 30c 40 50");
    drop(kept);
}
