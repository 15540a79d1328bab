//! The ticker as a stream.

use std::time::Duration;

use futures_util::StreamExt as _;
use kinfolk_core::{Error, park, spawn, ticker, timeout};
use kinfolk_testkit::Sim;

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
