//! The reaper of a process: waits for its end, stops it when told, reaps it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use kinfolk_core::{shield, timeout};

use super::record::ProcessRecord;

/// What the reaper has in its hands. Dropped by force, the process goes with it.
struct Hold(Arc<ProcessRecord>);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

/// The body of the reaper, from its first point on. Never fails.
pub(super) async fn reap_when_ended(process: Arc<ProcessRecord>, grace: Duration) {
    let hold = Hold(process);
    let mut ended = hold.0.ended().await;
    if ended.is_err() {
        // Told; or the system cannot say when it ends. It never goes on unwatched.
        let stopped = shield(async { Ok::<_, io::Error>(stop(&hold.0, grace).await) }).await;
        ended = stopped.unwrap_or_else(|lifted| Err(io::Error::other(lifted)));
    }
    if ended.is_ok() {
        hold.0.reap();
    }
}

/// SIGTERM; after the grace SIGKILL. Ok once it has ended.
async fn stop(process: &ProcessRecord, grace: Duration) -> io::Result<()> {
    let _ = process.signal(libc::SIGTERM);
    if timeout(grace, process.ended()).await.is_ok() {
        return Ok(());
    }
    // Too late, or the shield was lifted.
    let _ = process.signal(libc::SIGKILL);
    process.ended().await
}
