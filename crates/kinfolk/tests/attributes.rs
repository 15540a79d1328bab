//! The attribute macros: what they accept, what they run, what they print.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use kinfolk::{Error, sleep, spawn};

static RUNS: AtomicUsize = AtomicUsize::new(0);

#[kinfolk::test(seeds = 25)]
async fn counted() {
    RUNS.fetch_add(1, SeqCst);
    sleep(Duration::from_secs(3600)).await.unwrap();
}

#[test]
fn a_test_runs_once_for_each_seed() {
    let before = RUNS.load(SeqCst);
    counted();
    assert!(RUNS.load(SeqCst) - before >= 25);
}

#[kinfolk::test]
async fn test_1_virtual_time_does_not_wait() -> kinfolk::Result<()> {
    let before = kinfolk::now();
    let task = spawn(async {
        sleep(Duration::from_secs(86_400)).await?;
        Ok::<_, Error>(7)
    });
    assert_eq!(task.await?, 7);
    assert_eq!(kinfolk::now() - before, Duration::from_secs(86_400));
    Ok(())
}

#[kinfolk::test(seed = 3)]
#[should_panic(expected = "failed with seed 3: lost")]
async fn test_2_a_failure_prints_its_seed() -> kinfolk::Result<()> {
    Err(Error::msg("lost"))
}

#[kinfolk::test(seeds = 1)]
#[should_panic(expected = "1 jobs and 1 timers left")]
async fn test_1_what_is_left_behind_fails_the_test() {
    kinfolk::detach(async { sleep(Duration::from_secs(5)).await });
    // Long enough for the other one to have begun.
    sleep(Duration::from_secs(1)).await.unwrap();
}

#[kinfolk::test(flavor = "native")]
async fn test_1_a_test_on_real_threads_with_virtual_time() -> kinfolk::Result<()> {
    let main = std::thread::current().id();
    let before = kinfolk::now();
    let slept = spawn(async {
        sleep(Duration::from_secs(3600)).await?;
        Ok::<_, Error>(std::thread::current().id())
    });
    slept.await?;
    assert_eq!(kinfolk::now() - before, Duration::from_secs(3600));
    assert_ne!(
        kinfolk::on(kinfolk::Main, async { std::thread::current().id() }).await?,
        main
    );
    Ok(())
}

#[kinfolk::test(flavor = "native")]
#[should_panic(expected = "1 jobs and 1 timers left")]
async fn test_1_a_native_test_that_leaves_something_fails() {
    kinfolk::detach(async { sleep(Duration::from_secs(5)).await });
    sleep(Duration::from_secs(1)).await.unwrap();
}
