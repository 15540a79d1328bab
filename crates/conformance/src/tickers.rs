//! The ticker.

use std::task::{Context, Waker};
use std::time::Duration;

use kinfolk_core::{
    ErrorKind, MissedTicks, Result, Ticker, cleanup, now, sleep, spawn, ticker, timeout,
};

use kinfolk_testkit::{Lab, Log};

const MS: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);

/// Takes `count` ticks and says when each came, in milliseconds.
async fn say_ticks(lab: &Lab, ticker: &mut Ticker, count: usize) -> Result<String> {
    let log = Log::new();
    for _ in 0..count {
        ticker.tick().await?;
        log.say(lab.elapsed().as_millis().to_string());
    }
    Ok(log.text())
}

/// The first tick comes at once, counted from the first poll, and the others
/// on the grid, however long the body takes in between.
/// Also: C12.
pub async fn case_n02_a_ticker_ticks_at_once_and_then_on_its_grid(lab: Lab) {
    let mut ticker = ticker(SEC).unwrap();
    assert_eq!(ticker.period(), SEC);
    sleep(5 * MS).await.unwrap();
    let start = now();
    for n in 0..5 {
        assert_eq!(ticker.tick().await.unwrap(), start + n * SEC);
        assert_eq!(now(), start + n * SEC);
        sleep(300 * MS).await.unwrap();
    }
    assert_eq!(lab.elapsed(), 4_305 * MS);
    assert_eq!(ticker.skipped(), 0);
}

/// A body that takes too long gets one late tick and is then back on the grid.
pub async fn host_2_a_ticker_skips_what_it_missed(lab: Lab) {
    let mut ticker = ticker(100 * MS).unwrap();
    ticker.tick().await.unwrap();
    lab.dawdle(250 * MS);
    let start = now() - 250 * MS;
    // Planned for 100, taken at 250; 200 is skipped.
    assert_eq!(ticker.tick().await.unwrap(), start + 100 * MS);
    assert_eq!(now(), start + 250 * MS);
    assert_eq!(ticker.skipped(), 1);
    assert_eq!(say_ticks(&lab, &mut ticker, 2).await.unwrap(), "300 400");
    // What is due at the instant of a late tick goes with it.
    sleep(200 * MS).await.unwrap();
    assert_eq!(say_ticks(&lab, &mut ticker, 2).await.unwrap(), "600 700");
    assert_eq!(ticker.skipped(), 2);
}

/// `Burst` makes up for every missed tick; `Delay` moves the grid.
pub async fn host_2_a_ticker_bursts_or_delays_when_told_to(lab: Lab) {
    let mut burst = ticker(100 * MS).unwrap().missed(MissedTicks::Burst);
    burst.tick().await.unwrap();
    sleep(250 * MS).await.unwrap();
    let ticks = say_ticks(&lab, &mut burst, 4).await.unwrap();
    assert_eq!(ticks, "250 250 300 400");
    let mut delay = ticker(100 * MS).unwrap().missed(MissedTicks::Delay);
    delay.tick().await.unwrap();
    sleep(250 * MS).await.unwrap();
    let ticks = say_ticks(&lab, &mut delay, 3).await.unwrap();
    assert_eq!(ticks, "650 750 850");
    assert_eq!((burst.skipped(), delay.skipped()), (0, 0));
    // The policy may change on the way.
    let mut delay = delay.missed(MissedTicks::Skip);
    sleep(250 * MS).await.unwrap();
    let ticks = say_ticks(&lab, &mut delay, 2).await.unwrap();
    assert_eq!(ticks, "1100 1150");
    assert_eq!(delay.skipped(), 1);
}

/// `reset` puts the next tick a period from now, before the first tick, in
/// time and when one is overdue.
pub async fn case_n16_reset_rebases_the_next_tick(lab: Lab) {
    let mut ticker = ticker(100 * MS).unwrap();
    sleep(5 * MS).await.unwrap();
    ticker.reset();
    assert_eq!(say_ticks(&lab, &mut ticker, 2).await.unwrap(), "105 205");
    sleep(25 * MS).await.unwrap();
    ticker.reset();
    assert_eq!(say_ticks(&lab, &mut ticker, 2).await.unwrap(), "330 430");
    sleep(250 * MS).await.unwrap();
    ticker.reset();
    assert_eq!(say_ticks(&lab, &mut ticker, 2).await.unwrap(), "780 880");
    assert_eq!(ticker.skipped(), 0);
}

/// A period of zero is an error with words, and one without end never ticks
/// again.
pub async fn case_n09_a_ticker_needs_a_period(lab: Lab) {
    let refused = ticker(Duration::ZERO).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Failed);
    assert!(refused.to_string().contains("zero"), "{refused}");
    let mut ticker = ticker(Duration::MAX).unwrap();
    ticker.tick().await.unwrap();
    let cut = timeout(SEC, ticker.tick()).await.unwrap_err();
    assert_eq!(cut.kind(), ErrorKind::TimedOut);
    assert_eq!(lab.elapsed(), SEC);
}

/// A tick is a point: it fails at entry although it is due, and in the middle.
/// The tick is not lost: clean-up takes it.
pub async fn cancel_3_a_tick_is_a_point_and_loses_nothing(lab: Lab) {
    let here = lab.clone();
    let task = spawn(async move {
        let mut ticker = ticker(100 * MS)?;
        let start = ticker.tick().await?;
        ticker.tick().await.unwrap_err();
        assert_eq!(here.elapsed(), 50 * MS);
        here.dawdle(100 * MS);
        let told = ticker.tick().await;
        let planned = cleanup(ticker.tick()).await?;
        assert_eq!(planned, start + 100 * MS);
        told?;
        Ok::<_, kinfolk_core::Error>(())
    });
    sleep(50 * MS).await.unwrap();
    task.cancel("enough");
    assert!(task.outcome().await.unwrap().is_cancelled());
    assert_eq!(lab.elapsed(), 150 * MS);
}

/// A tick that is dropped half-way leaves no timer behind, and the next call
/// waits for the same tick.
pub async fn time_4_a_dropped_tick_leaves_no_timer(lab: Lab) {
    let before = lab.counters().timers_pending();
    let mut ticker = ticker(100 * MS).unwrap();
    ticker.tick().await.unwrap();
    let mut half = Box::pin(ticker.tick());
    let polled = half.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending());
    assert_eq!(lab.counters().timers_pending(), before + 1);
    drop(half);
    assert_eq!(lab.counters().timers_pending(), before);
    assert_eq!(say_ticks(&lab, &mut ticker, 2).await.unwrap(), "100 200");
}
