//! A pool of connections by semaphore: so many at a time, first come, first served. A
//! request that is told to stop while it waits takes nothing; one that is told while it
//! works gives its connection back.

use std::time::Duration;

use kinfolk::sync::{Mutex, Semaphore};
use kinfolk::{Result, cleanup, scope, sleep, timeout};

const MS: Duration = Duration::from_millis(1);

#[kinfolk::main]
async fn main() -> Result<()> {
    let (answered, late) = rush(5).await?;
    println!("{answered} requests were answered, {late} gave up");
    Ok(())
}

/// A few connections, and a permit for each.
struct Pool {
    free: Mutex<Vec<u32>>,
    permits: Semaphore,
}

impl Pool {
    fn new(connections: u32) -> Pool {
        Pool {
            free: Mutex::new((0..connections).collect()).named("free connections"),
            permits: Semaphore::new(connections as usize).named("connections"),
        }
    }

    /// Waits for a connection, uses it, and puts it back, whatever happens meanwhile.
    async fn ask(&self) -> Result<u32> {
        let _permit = self.permits.acquire().await?; // goes back when it is dropped
        let connection = self.free.lock().await?.pop().expect("one for each permit");
        let answer = sleep(20 * MS).await; // the request itself
        cleanup(self.put_back(connection)).await?;
        answer?;
        Ok(connection)
    }

    async fn put_back(&self, connection: u32) -> Result<()> {
        self.free.lock().await?.push(connection);
        Ok(())
    }
}

/// Twelve requests at once to a small pool, each with a limit: how many were answered, and
/// how many gave up.
async fn rush(connections: u32) -> Result<(usize, usize)> {
    let pool = std::sync::Arc::new(Pool::new(connections));
    let counts = scope(async |s| {
        let requests: Vec<_> = (0..12)
            .map(|_| {
                let pool = pool.clone();
                s.spawn(async move { timeout(45 * MS, pool.ask()).await.is_ok() })
            })
            .collect();
        let (mut answered, mut late) = (0, 0);
        for request in requests {
            match request.await? {
                true => answered += 1,
                false => late += 1,
            }
        }
        Ok((answered, late))
    })
    .await?;
    assert_eq!(pool.permits.available_permits(), connections as usize);
    assert_eq!(pool.free.lock().await?.len(), connections as usize);
    Ok(counts)
}

#[kinfolk::test]
async fn every_connection_comes_back() {
    let (answered, late) = rush(3).await.unwrap();
    assert_eq!((answered, late), (6, 6), "three at a time, in two rounds");
}
