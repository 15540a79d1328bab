//! Receivers as streams, senders as sinks.
#![cfg(not(loom))]

use std::sync::Arc;

use futures_util::{SinkExt, StreamExt};
use kinfolk_core::{Error, cancel_current, spawn};
use kinfolk_sync::{Notify, mpmc};
use kinfolk_testkit::Sim;

#[test]
fn io_6_a_stream_and_a_sink_lose_nothing() {
    let run = Sim::seeded(7).run(async {
        let (tx, rx) = mpmc::channel(1);
        let mut items = rx.into_stream();
        let end = Arc::new(Notify::new());
        let ended = end.clone();
        let feeds = spawn(async move {
            let mut sink = tx.into_sink();
            for n in 0..5 {
                sink.send(n).await?;
            }
            sink.close().await?;
            // Closed, it is a sender no longer: the stream ends though it is there.
            let late = sink.send(5).await.expect_err("it is closed");
            assert_eq!(late.into_inner(), 5);
            ended.notified().await?;
            drop(sink);
            Ok::<_, Error>(())
        });
        let mut got = Vec::new();
        while let Some(item) = items.next().await {
            got.push(item?);
        }
        end.notify_one();
        feeds.await?;
        assert_eq!(got, [0, 1, 2, 3, 4]);

        let (tx, rx) = mpmc::channel(1);
        tx.send(7).await?;
        let told = spawn(async move {
            cancel_current("now");
            let mut items = rx.into_stream();
            assert!(
                items.next().await.unwrap().is_err(),
                "told, it takes nothing"
            );
            assert_eq!(items.get_ref().try_recv(), Ok(7));
            let mut sink = tx.into_sink();
            sink.feed(8).await?;
            let back = sink.flush().await.unwrap_err();
            assert!(back.is_cancelled());
            assert_eq!(back.into_inner(), 8);
            Ok::<_, Error>(())
        });
        drop(told.outcome().await);
        Ok::<_, Error>(())
    });
    run.unwrap();
}
