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

#[kinfolk::test(seed = 5)]
#[should_panic(expected = "attributes.rs:")]
async fn test_1_a_detached_job_that_panics_fails_the_test() {
    kinfolk::detach(async { assert_eq!(1 + 1, 3, "in a detached job") });
    sleep(Duration::from_secs(1)).await.unwrap();
}

#[kinfolk::test(seed = 5)]
#[should_panic(expected = "KINFOLK_SEED=5")]
async fn test_1_a_supervised_job_that_fails_names_the_seed() {
    kinfolk::Scope::named("nursery")
        .supervisor()
        .run(async |s| {
            s.launch(async { Err::<(), _>(Error::msg("lost")) });
            Ok(())
        })
        .await
        .unwrap();
}

/// Where a test is over before the job that fails: at its clean-up.
#[kinfolk::test(seeds = 3)]
#[should_panic(expected = "failed: lost at the end")]
async fn test_1_a_failure_at_the_end_of_a_test_is_heard() {
    kinfolk::Scope::named("nursery")
        .supervisor()
        .run(async |s| {
            s.launch(async {
                let _ = kinfolk::park().await;
                Err::<(), _>(Error::msg("lost at the end"))
            });
            sleep(Duration::from_secs(1)).await?;
            s.cancel("over");
            Ok(())
        })
        .await
        .unwrap();
}

#[kinfolk::test(seeds = 3, failures = "allowed")]
async fn test_1_a_test_may_allow_failures() {
    kinfolk::detach(async { assert_eq!(1 + 1, 3, "expected") });
    sleep(Duration::from_secs(1)).await.unwrap();
}

#[kinfolk::test(flavor = "native")]
#[should_panic(expected = "panicked: assertion")]
async fn test_1_a_detached_job_that_panics_fails_a_native_test() {
    kinfolk::detach(async { assert_eq!(1 + 1, 3, "in a detached job") });
    sleep(Duration::from_secs(1)).await.unwrap();
}

#[kinfolk::test(flavor = "native", failures = "allowed")]
async fn test_1_a_native_test_may_allow_failures() {
    kinfolk::detach(async { assert_eq!(1 + 1, 3, "expected") });
    sleep(Duration::from_secs(1)).await.unwrap();
}

/// With `time = "real"` a sleep takes as long as it says.
#[kinfolk::test(flavor = "native", time = "real")]
async fn test_1_a_native_test_may_run_in_real_time() -> kinfolk::Result<()> {
    let real = std::time::Instant::now();
    sleep(Duration::from_millis(20)).await?;
    assert!(real.elapsed() >= Duration::from_millis(20));
    Ok(())
}

/// On tokio the clock of both worlds jumps, in no real time.
#[kinfolk::test(flavor = "tokio")]
async fn test_1_a_test_on_tokio_with_its_clock_paused() -> kinfolk::Result<()> {
    let real = std::time::Instant::now();
    let (ours, theirs) = (kinfolk::now(), tokio::time::Instant::now());
    let day = Duration::from_secs(86_400);
    let task = spawn(async move {
        tokio::time::sleep(day).await;
        sleep(day).await?;
        Ok::<_, Error>(7)
    });
    assert_eq!(task.await?, 7);
    for passed in [kinfolk::now() - ours, theirs.elapsed()] {
        assert!(
            passed >= 2 * day && passed < 2 * day + Duration::from_secs(1),
            "{passed:?}"
        );
    }
    assert!(real.elapsed() < Duration::from_secs(60));
    // What the program runs on tokio by itself finds the same root.
    let found = kinfolk::tokio::Root::current().snapshot();
    assert!(found.find("main").is_some(), "{found}");
    Ok(())
}

/// What holds the clock, and a blocking call, are waited for.
#[kinfolk::test(flavor = "tokio")]
async fn test_1_on_tokio_what_holds_the_clock_is_waited_for() -> kinfolk::Result<()> {
    let began = kinfolk::now();
    let hour = spawn(sleep(Duration::from_secs(3600)));
    kinfolk::yield_now().await?;
    let real = Duration::from_millis(20);
    kinfolk::blocking(move |_| std::thread::sleep(real)).await?;
    assert_eq!(kinfolk::now(), began, "a blocking call was under way");
    for _ in 0..2 {
        let held = kinfolk::kit::hold_clock();
        let (done, told) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            std::thread::sleep(real);
            let _ = done.send(());
            drop(held);
        });
        told.await.expect("the thread sends");
    }
    assert_eq!(kinfolk::now(), began, "it has not moved");
    hour.await?;
    assert!(kinfolk::now() - began >= Duration::from_secs(3600));
    Ok(())
}

#[kinfolk::test(flavor = "tokio")]
#[should_panic(expected = "1 jobs and 1 timers left")]
async fn test_1_a_test_on_tokio_that_leaves_something_fails() {
    kinfolk::detach(async { sleep(Duration::from_secs(5)).await });
    sleep(Duration::from_secs(1)).await.unwrap();
}

#[kinfolk::test(flavor = "tokio")]
#[should_panic(expected = "test_1_a_test_on_tokio_that_fails failed: lost")]
async fn test_1_a_test_on_tokio_that_fails() -> kinfolk::Result<()> {
    Err(Error::msg("lost"))
}

#[kinfolk::test(flavor = "tokio")]
#[should_panic(expected = "panicked: assertion")]
async fn test_1_a_detached_job_that_panics_fails_a_test_on_tokio() {
    kinfolk::detach(async { assert_eq!(1 + 1, 3, "in a detached job") });
    sleep(Duration::from_secs(1)).await.unwrap();
}

#[kinfolk::test(flavor = "tokio", failures = "allowed")]
async fn test_1_a_test_on_tokio_may_allow_failures() {
    kinfolk::detach(async { assert_eq!(1 + 1, 3, "expected") });
    sleep(Duration::from_secs(1)).await.unwrap();
}

/// With `time = "real"` a sleep takes as long as it says, and there are two workers.
#[kinfolk::test(flavor = "tokio", time = "real")]
async fn test_1_a_test_on_tokio_may_run_in_real_time() -> kinfolk::Result<()> {
    let here = tokio::runtime::Handle::current();
    assert_eq!(here.metrics().num_workers(), 2);
    let real = std::time::Instant::now();
    sleep(Duration::from_millis(20)).await?;
    assert!(real.elapsed() >= Duration::from_millis(20));
    Ok(())
}

static POLLS: AtomicUsize = AtomicUsize::new(0);

#[kinfolk::test(flavor = "tokio")]
async fn ten_days() -> kinfolk::Result<()> {
    let runtime = tokio::runtime::Handle::current();
    for _ in 0..10 {
        sleep(Duration::from_secs(86_400)).await?;
    }
    // What tokio polled: driver and keeper, a few times for each sleep.
    let polls = runtime.metrics().worker_park_unpark_count(0);
    POLLS.fetch_max(polls as usize, SeqCst);
    Ok(())
}

/// Nothing goes round while the clock is paused.
#[test]
fn test_1_a_test_on_tokio_does_not_spin() {
    ten_days();
    let polls = POLLS.load(SeqCst);
    assert!((10..500).contains(&polls), "{polls} times awake");
}

/// `#[kinfolk::main]` with options, as a function to call.
mod with_options {
    #[kinfolk::main(workers = 1, grace = "1s", signals = false, exit = "signal", quiet)]
    async fn main() -> kinfolk::Result<()> {
        let pool = kinfolk::spawn(async { std::thread::current().name().map(String::from) });
        assert_eq!(pool.await?.as_deref(), Some("kinfolk-0"));
        Ok(())
    }

    #[test]
    fn main_takes_options() {
        let success = std::process::ExitCode::SUCCESS;
        assert_eq!(format!("{:?}", main()), format!("{success:?}"));
    }
}

/// The same on tokio, with one worker; and with none, where the runtime has one thread.
mod on_tokio {
    use tokio::runtime::{Handle, RuntimeFlavor};

    mod with_a_worker {
        #[kinfolk::main(tokio, workers = 1, grace = "1s", signals = false, quiet)]
        async fn main() -> kinfolk::Result<()> {
            let here = super::Handle::current();
            assert_eq!(here.runtime_flavor(), super::RuntimeFlavor::MultiThread);
            assert_eq!(here.metrics().num_workers(), 1);
            // `run` finds the root of main.
            assert_eq!(
                kinfolk::tokio::Root::current().snapshot().len(),
                2,
                "the root and main"
            );
            Ok(())
        }

        #[test]
        fn main_takes_options() {
            let success = std::process::ExitCode::SUCCESS;
            assert_eq!(format!("{:?}", main()), format!("{success:?}"));
        }
    }

    mod with_none {
        #[kinfolk::main(tokio, workers = 0, signals = false)]
        async fn main() -> kinfolk::Result<()> {
            let here = super::Handle::current();
            assert_eq!(here.runtime_flavor(), super::RuntimeFlavor::CurrentThread);
            // Its timers and its i/o are there.
            kinfolk::sleep(std::time::Duration::from_millis(1)).await?;
            ::tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            Ok(())
        }

        #[test]
        fn main_takes_options() {
            let success = std::process::ExitCode::SUCCESS;
            assert_eq!(format!("{:?}", main()), format!("{success:?}"));
        }
    }
}

/// Main's own thread mostly waits: it has as many workers as there are processors; a
/// runtime that is built by hand has one less.
#[test]
fn main_has_a_worker_for_each_processor() {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let main = kinfolk::__main::main_options().signals(false).build();
    assert_eq!(main.expect("a runtime").workers(), processors);
    let own = kinfolk::Runtime::new().expect("a runtime");
    assert_eq!(own.workers(), (processors - 1).max(1));
}
