//! Waits that were begun in one runtime and are polled by a job of another, after the
//! first runtime is gone: they go on by the clock and the frames of the second.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use kinfolk_core::{Budget, next_pump, sleep, sleep_until, ticker};
use kinfolk_runtime::Runtime;
use kinfolk_testkit::guarded;

const MS: Duration = Duration::from_millis(1);

type Moved = Pin<Box<dyn Future<Output = bool> + Send>>;

fn rt(workers: usize) -> Runtime {
    Runtime::builder().workers(workers).build().unwrap()
}

/// Polls `wait` once in a runtime with so many workers, and shuts that down.
fn half_polled(wait: Moved, workers: usize) -> Moved {
    let place = Arc::new(Mutex::new(Some(wait)));
    let polled = place.clone();
    let first = rt(workers);
    let once = first.block_on(async move {
        poll_fn(|cx| {
            let mut place = polled.lock().unwrap();
            assert!(place.as_mut().unwrap().as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
    });
    once.unwrap();
    assert!(first.shutdown(Duration::ZERO).unwrap().is_clean());
    place.lock().unwrap().take().unwrap()
}

fn sleeps() -> [(&'static str, Moved); 3] {
    [
        ("sleep", Box::pin(async { sleep(20 * MS).await.is_ok() })),
        (
            "sleep_until",
            Box::pin(async { sleep_until(Instant::now() + 20 * MS).await.is_ok() }),
        ),
        (
            "ticker",
            Box::pin(async {
                let mut ticker = ticker(20 * MS).unwrap();
                ticker.tick().await.is_ok() && ticker.tick().await.is_ok()
            }),
        ),
    ]
}

#[test]
fn cancel_9_a_sleep_goes_on_in_the_runtime_that_polls_it() {
    guarded("sleeps that were moved", |_| {
        for workers in [0, 1] {
            for (name, wait) in sleeps() {
                let began = Instant::now();
                let wait = half_polled(wait, workers);
                let second = rt(1);
                assert!(second.block_on(wait).unwrap(), "{name}");
                assert!(began.elapsed() >= 20 * MS, "{name}");
                assert_eq!(second.counters().timers_set, second.counters().timers_fired);
            }
        }
    });
}

/// Without a job there is no clock to ask, once the runtime is gone whose clock it was.
#[test]
fn cancel_9_a_sleep_whose_runtime_is_gone_says_so_outside_every_job() {
    for (name, wait) in sleeps() {
        let mut wait = half_polled(wait, 0);
        let polled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        }));
        let said = polled.expect_err(name);
        let said = said.downcast_ref::<String>().unwrap();
        assert!(said.contains("outside any Kinfolk job"), "{name}: {said}");
    }
}

#[test]
fn cancel_9_next_pump_goes_on_in_the_runtime_that_polls_it() {
    for workers in [0, 1] {
        let wait = half_polled(Box::pin(async { next_pump().await.is_ok() }), workers);
        let second = rt(0);
        let task = second.scope().spawn(wait);
        second.pump(Budget::Turns(100)).unwrap();
        assert!(!task.is_ended(), "it waits for the next frame");
        second.pump(Budget::Turns(100)).unwrap();
        assert!(task.is_ended(), "that was the next frame");
    }
}
