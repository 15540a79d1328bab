//! Streams: the ticker and a set of tasks as one, items of one, a point of any.

use std::pin::Pin;
use std::time::Duration;

use futures_util::StreamExt;
use kinfolk_core::{
    Error, OrCancelStream as _, TaskSet, for_each_concurrent, park, shield, sleep, spawn, ticker,
    timeout,
};
use kinfolk_testkit::{Log, Sim};

const SEC: Duration = Duration::from_secs(1);

#[test]
fn host_2_a_ticker_is_a_stream() {
    let mut sim = Sim::seeded(1);
    let start = sim.start();
    let ticks = sim.run(async {
        let ticks: Vec<_> = ticker(SEC)?.take(4).collect().await;
        ticks
            .into_iter()
            .collect::<Result<Vec<_>, _>>()
            .map_err(Error::from)
    });
    let expected: Vec<_> = (0..4).map(|n| start + n * SEC).collect();
    assert_eq!(ticks.unwrap(), expected);
    sim.finish();
}

#[test]
fn cancel_3_a_ticker_as_a_stream_is_told() {
    let mut sim = Sim::seeded(1);
    sim.run(async {
        let task = spawn(async {
            let mut ticks = ticker(SEC)?;
            while let Some(tick) = ticks.next().await {
                tick?;
            }
            Err::<(), _>(Error::msg("a ticker has ended"))
        });
        let _ = timeout(3 * SEC, park()).await;
        task.cancel("enough");
        assert!(task.outcome().await?.is_cancelled());
        Ok::<_, Error>(())
    })
    .unwrap();
    assert_eq!(sim.elapsed(), 3 * SEC);
    sim.finish();
}

async fn after(wait: Duration, value: u32) -> Result<u32, Error> {
    sleep(wait).await?;
    Ok(value)
}

#[test]
fn handle_7_a_task_set_is_a_stream() {
    let mut sim = Sim::seeded(1);
    let got = sim.run(async {
        let mut set = TaskSet::new();
        for n in [3, 1, 2] {
            set.spawn(after(n * SEC, n)).await?;
        }
        let got: Vec<_> = Pin::new(&mut set).collect().await;
        assert!(set.is_empty());
        got.into_iter().collect::<Result<Vec<_>, _>>()
    });
    assert_eq!(got.unwrap(), [1, 2, 3]);
    assert_eq!(sim.elapsed(), 3 * SEC);
    sim.finish();
}

/// What it is told comes as an item, and no result is lost for it.
#[test]
fn handle_7_a_task_set_as_a_stream_is_told() {
    let mut sim = Sim::seeded(1);
    sim.run(async {
        let task = spawn(async {
            let mut set = TaskSet::new();
            set.spawn(after(Duration::ZERO, 7)).await?;
            let _ = park().await;
            for _ in 0..2 {
                let told = StreamExt::next(&mut set).await.unwrap();
                assert!(told.unwrap_err().is_cancelled());
            }
            let kept = shield(async { StreamExt::next(&mut set).await.unwrap() });
            assert_eq!(kept.await?, 7);
            Ok::<_, Error>(())
        });
        let _ = timeout(SEC, park()).await;
        task.cancel("enough");
        assert!(task.outcome().await?.is_cancelled());
        Ok::<_, Error>(())
    })
    .unwrap();
    sim.finish();
}

/// A body for each item of a stream, which waits for its items.
#[test]
fn handle_7_for_each_concurrent_takes_a_stream() {
    let mut sim = Sim::seeded(1);
    let log = Log::new();
    let words = log.clone();
    sim.run(async move {
        let ticks = ticker(SEC)?.take(5).enumerate();
        for_each_concurrent(ticks, 2, |(n, tick)| {
            let words = &words;
            async move {
                tick?;
                words.say(format!("+{n}"));
                sleep(3 * SEC / 2).await?;
                words.say(format!("-{n}"));
                Ok::<_, Error>(())
            }
        })
        .await
    })
    .unwrap();
    assert_eq!(log.text(), "+0 +1 -0 +2 -1 +3 -2 +4 -3 -4");
    assert_eq!(sim.elapsed(), 4 * SEC + 3 * SEC / 2);
    sim.finish();
}

/// A cancel ends the wait for an item that never comes.
#[test]
fn handle_7_for_each_concurrent_over_a_stream_is_told() {
    let mut sim = Sim::seeded(1);
    sim.run(async {
        let task = spawn(async {
            let never = futures_util::stream::pending::<u8>();
            for_each_concurrent(never, 2, |_| async {}).await
        });
        let _ = timeout(SEC, park()).await;
        task.cancel("enough");
        assert!(task.outcome().await?.is_cancelled());
        Ok::<_, Error>(())
    })
    .unwrap();
    assert_eq!(sim.elapsed(), SEC);
    sim.finish();
}

/// A stream whose next item is a point: told at each, it loses none.
#[test]
fn cancel_5_a_stream_made_a_point() {
    let mut sim = Sim::seeded(1);
    sim.run(async {
        let task = spawn(async {
            let numbers = futures_util::stream::iter(1..4);
            let mut numbers = numbers.chain(futures_util::stream::pending()).or_cancel();
            assert_eq!(numbers.next().await.unwrap()?, 1);
            let _ = park().await;
            for _ in 0..2 {
                assert!(numbers.next().await.unwrap().is_err());
            }
            shield(async {
                assert_eq!(numbers.next().await.unwrap()?, 2);
                Ok::<_, Error>(())
            })
            .await
        });
        // Waiting for an item that never comes.
        let waits = spawn(async {
            let mut never = futures_util::stream::pending::<u8>().or_cancel();
            never.next().await.unwrap().map(drop)
        });
        let _ = timeout(SEC, park()).await;
        for task in [&task.job(), &waits.job()] {
            task.cancel("enough");
        }
        assert!(task.outcome().await?.is_cancelled());
        assert!(waits.outcome().await?.is_cancelled());
        let mut ends = futures_util::stream::iter([1]).or_cancel();
        assert_eq!(ends.next().await.unwrap()?, 1);
        assert!(ends.next().await.is_none());
        Ok::<_, Error>(())
    })
    .unwrap();
    assert_eq!(sim.elapsed(), SEC);
    sim.finish();
}
