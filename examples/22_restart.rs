//! A supervisor whose children restart themselves: the mailer crashes now and then and is
//! run anew, alone, after a pause; each crash is reported. The clock beside it never notices.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use kinfolk::job::restarting;
use kinfolk::time::Backoff;
use kinfolk::{Error, Result, Scope, sleep};

const MS: Duration = Duration::from_millis(1);

#[kinfolk::main]
async fn main() -> Result<()> {
    let sent = run_for(500 * MS).await?;
    println!("{sent} letters were sent");
    Ok(())
}

/// Runs both for a while; how many letters were sent.
async fn run_for(time: Duration) -> Result<u32> {
    let sent = Arc::new(AtomicU32::new(0));
    let letters = sent.clone();
    let policy = Backoff::new().tries(5).first(10 * MS).longest(100 * MS);
    Scope::named("background")
        .supervisor()
        .timeout(time)
        .run(async |s| {
            s.task("mailer")
                .launch(restarting(policy, move || send(letters.clone())));
            s.task("clock").launch(tick());
            Ok(())
        })
        .or_none() // its own deadline is the planned end
        .await?;
    Ok(sent.load(Relaxed))
}

/// Sends a letter every 20 ms, and crashes after each third.
async fn send(letters: Arc<AtomicU32>) -> Result<()> {
    for _ in 0..3 {
        sleep(20 * MS).await?;
        letters.fetch_add(1, Relaxed);
    }
    Err(Error::msg("the mail server hung up"))
}

async fn tick() -> Result<()> {
    loop {
        sleep(100 * MS).await?;
    }
}

#[kinfolk::test(failures = "allowed")]
async fn the_mailer_goes_on_after_a_crash() {
    // Three letters in 60 ms, a pause, three more, and so on; the fifth crash is the last.
    let sent = run_for(Duration::from_secs(1)).await.unwrap();
    assert_eq!(sent, 15);
}
