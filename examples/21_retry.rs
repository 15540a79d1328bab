//! A request that is tried again after a failure or a timeout, with pauses that grow, and
//! never after a cancellation.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use kinfolk::time::Backoff;
use kinfolk::{Error, Result, retry, sleep, timeout};

const MS: Duration = Duration::from_millis(1);

/// A server that is slow at first, then fails once, then answers.
#[derive(Default)]
struct Server {
    asked: AtomicU32,
}

impl Server {
    async fn answer(&self) -> Result<u32> {
        match self.asked.fetch_add(1, Relaxed) {
            0 => sleep(Duration::from_secs(3600)).await?,
            1 => return Err(Error::msg("503")),
            _ => sleep(MS).await?,
        }
        Ok(42)
    }
}

#[kinfolk::main]
async fn main() -> Result<()> {
    let server = Server::default();
    println!("{}", ask(&server, 4).await?);
    println!("asked {} times", server.asked.load(Relaxed));
    Ok(())
}

/// At most so many tries of 50 ms each, with pauses of 10 ms, 20 ms and so on.
async fn ask(server: &Server, tries: u32) -> Result<u32> {
    let policy = Backoff::new().tries(tries).first(10 * MS);
    retry(policy, async || timeout(50 * MS, server.answer()).await).await
}

#[kinfolk::test]
async fn it_is_tried_until_it_answers() {
    let server = Server::default();
    assert_eq!(ask(&server, 4).await.unwrap(), 42);
    assert_eq!(server.asked.load(Relaxed), 3);
    // Two tries are not enough: the last failure is the answer.
    let error = ask(&Server::default(), 2).await.unwrap_err();
    assert_eq!(error.to_string(), "503");
}

/// Stopped at each of its points in turn, it makes no further try.
#[test]
fn a_retry_can_be_stopped_anywhere() {
    let went = kinfolk::testkit::cancel_everywhere(async || {
        let server = Server::default();
        ask(&server, 4).await
    });
    assert_eq!(went.forced, 0, "every wait hears it");
}
