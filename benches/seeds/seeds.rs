//! Two small tests, each on 10,000 seeds, for `scripts/seeds` to measure: one without
//! i/o, and one in which a client talks to a server. Each runs with the default options
//! of `#[kinfolk::test]`, and by hand, where each ready task has the same chance. The one
//! with i/o also runs in fair weather: by default i/o is rough on odd seeds, which is more
//! work for the test itself.
//!
//! The script builds this file against older versions of the testkit too. It uses nothing
//! that is newer, but for `io = "fair"`, which the script takes out where it is not known.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use kinfolk::net::{TcpListener, TcpStream};
use kinfolk::testkit::Sim;
use kinfolk::{Error, Result, checkpoint, sleep, spawn};

/// As many as the attributes below say.
const SEEDS: u64 = 10_000;

/// Four tasks count, pass a point, sleep, and count again.
async fn without_io() -> Result<()> {
    let count = Arc::new(AtomicU32::new(0));
    let tasks: Vec<_> = (0..4)
        .map(|n| {
            let count = count.clone();
            spawn(async move {
                count.fetch_add(1, SeqCst);
                checkpoint().await?;
                sleep(Duration::from_millis(n)).await?;
                count.fetch_add(1, SeqCst);
                Ok::<_, Error>(())
            })
        })
        .collect();
    for task in tasks {
        task.await?;
    }
    assert_eq!(count.load(SeqCst), 8);
    Ok(())
}

/// A client sends a message, and the server sends it back.
async fn with_io() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let addr = listener.local_addr()?;
    let server = spawn(async move {
        let (stream, _) = listener.accept().await?;
        let (read, message) = stream.read_exact(vec![0; 64]).await;
        read?;
        stream.write_all(message).await.0?;
        Ok::<_, Error>(())
    });
    let client = TcpStream::connect(addr).await?;
    client.write_all(vec![7; 64]).await.0?;
    let (read, answer) = client.read_exact(vec![0; 64]).await;
    read?;
    assert_eq!(answer, [7; 64]);
    server.await
}

fn by_hand<B>(test: impl Fn() -> B)
where
    B: Future<Output = Result<()>> + Send + 'static,
{
    for seed in 0..SEEDS {
        let mut sim = Sim::seeded(seed);
        sim.run(test()).expect("the test passes");
        sim.finish();
    }
}

#[kinfolk::test(seeds = 10000)]
async fn default_without_io() -> Result<()> {
    without_io().await
}

#[kinfolk::test(seeds = 10000)]
async fn default_with_io() -> Result<()> {
    with_io().await
}

#[kinfolk::test(seeds = 10000, io = "fair")]
async fn fair_with_io() -> Result<()> {
    with_io().await
}

#[test]
fn even_without_io() {
    by_hand(without_io);
}

#[test]
fn even_with_io() {
    by_hand(with_io);
}
