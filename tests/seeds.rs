//! What the seeds of `#[kinfolk::test]` find, and what a failing one says. Tests that are
//! to hang or to fail run in a process of their own.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::future::poll_fn;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use kinfolk::testkit::{TestOptions, run_native_test, run_test};
use kinfolk::{Error, blocking, checkpoint, now, park, sleep, spawn, yield_now};

const MS: Duration = Duration::from_millis(1);

/// Adds one to `sum`, and lets others go between the look and the change.
async fn add(sum: Arc<AtomicU32>, pause: Duration) -> Result<(), Error> {
    let seen = sum.load(SeqCst);
    match pause {
        Duration::ZERO => checkpoint().await?,
        pause => sleep(pause - MS).await?,
    }
    sum.store(seen + 1, SeqCst);
    Ok(())
}

/// Two tasks each add one.
async fn two_add(pause: Duration) -> Result<(), Error> {
    let sum = Arc::new(AtomicU32::new(0));
    let tasks = [
        spawn(add(sum.clone(), pause)),
        spawn(add(sum.clone(), pause)),
    ];
    for task in tasks {
        task.await?;
    }
    assert_eq!(sum.load(SeqCst), 2, "an update is lost");
    Ok(())
}

#[kinfolk::test(seeds = 50)]
#[should_panic(expected = "an update is lost")]
async fn test_2_an_update_lost_across_a_checkpoint_is_found() -> Result<(), Error> {
    two_add(Duration::ZERO).await
}

#[kinfolk::test(seeds = 50)]
#[should_panic(expected = "an update is lost")]
async fn test_2_an_update_lost_across_a_sleep_of_no_time_is_found() -> Result<(), Error> {
    two_add(MS).await
}

/// A free lock is a ready point like any other: another task may come in before it is taken.
#[kinfolk::test(seeds = 50)]
#[should_panic(expected = "an update is lost")]
async fn test_2_an_update_lost_across_a_free_lock_is_found() -> Result<(), Error> {
    let sum = Arc::new(kinfolk::sync::Mutex::new(0));
    let tasks = [sum.clone(), sum.clone()].map(|sum| {
        spawn(async move {
            let seen = *sum.lock().await?;
            *sum.lock().await? = seen + 1;
            Ok::<_, Error>(())
        })
    });
    for task in tasks {
        task.await?;
    }
    assert_eq!(*sum.lock().await?, 2, "an update is lost");
    Ok(())
}

/// A task that must be away for twenty turns of another.
#[kinfolk::test(seeds = 50)]
#[should_panic(expected = "it was away")]
async fn test_2_a_task_that_is_away_for_long_is_seen() -> Result<(), Error> {
    let turns = Arc::new(AtomicU32::new(0));
    let counted = turns.clone();
    let other = spawn(async move {
        for _ in 0..20 {
            counted.fetch_add(1, SeqCst);
            yield_now().await?;
        }
        Ok::<_, Error>(())
    });
    let before = turns.load(SeqCst);
    yield_now().await?;
    assert!(turns.load(SeqCst) < before + 20, "it was away");
    other.await
}

/// The other way round: the one that waits in a loop for another gets there.
#[kinfolk::test(seeds = 100)]
async fn test_2_a_loop_that_waits_for_another_task_ends() -> Result<(), Error> {
    let done = Arc::new(AtomicBool::new(false));
    let says = done.clone();
    let other = spawn(async move {
        for _ in 0..20 {
            yield_now().await?;
        }
        says.store(true, SeqCst);
        Ok::<_, Error>(())
    });
    while !done.load(SeqCst) {
        yield_now().await?;
    }
    other.await
}

/// A future that takes any poll for the wake it waits for.
#[kinfolk::test(seeds = 100)]
#[should_panic(expected = "nothing has come")]
async fn test_2_a_future_that_trusts_every_wake_is_found() -> Result<(), Error> {
    let came = Arc::new(AtomicBool::new(false));
    let seen = came.clone();
    let waits = spawn(async move {
        let mut polled = false;
        poll_fn(move |_| match std::mem::replace(&mut polled, true) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
        assert!(seen.load(SeqCst), "nothing has come");
        Ok::<_, Error>(())
    });
    for _ in 0..20 {
        yield_now().await?;
    }
    came.store(true, SeqCst);
    waits.cancel("over");
    let _ = waits.outcome().await?;
    Ok(())
}

/// Two that sleep: does the first find its own instant?
async fn sleeps_beside_another() -> Result<(), Error> {
    let began = now();
    let other = spawn(async { sleep(11 * MS).await });
    sleep(10 * MS).await?;
    assert_eq!(now() - began, 10 * MS, "it is later");
    other.await
}

/// Whatever the seed, time jumps when everything is idle and not before.
#[kinfolk::test(seeds = 200)]
async fn test_1_a_sleep_ends_at_its_instant_on_every_seed() -> Result<(), Error> {
    sleeps_beside_another().await
}

#[kinfolk::test(seeds = 50, time = "slips")]
#[should_panic(expected = "it is later")]
async fn test_2_time_may_slip_while_a_task_is_ready() -> Result<(), Error> {
    sleeps_beside_another().await
}

/// Runs one of the tests below in a process of its own.
fn run(test: &str, variable: &str, value: &str) -> (bool, String) {
    run_in(test, [(variable, value.into())])
}

/// The same, with these variables in the environment.
fn run_in<const N: usize>(test: &str, variables: [(&str, OsString); N]) -> (bool, String) {
    let me = std::env::current_exe().expect("this test");
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new(me)
        .args([test, "--exact", "--ignored", "--nocapture"])
        .env_remove("KINFOLK_SEED")
        .env_remove("KINFOLK_SEEDS")
        .env_remove("KINFOLK_REPLAY")
        .envs(variables)
        .output()
        .expect("it runs");
    let words = String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr);
    (status.success(), words)
}

static RUNS: AtomicUsize = AtomicUsize::new(0);

#[kinfolk::test]
#[ignore = "run by another"]
async fn counts() {
    counts_up();
}

fn counts_up() {
    let runs = RUNS.fetch_add(1, SeqCst) + 1;
    println!("run {runs}.");
}

#[test]
fn test_2_the_environment_says_which_seeds() {
    let (ok, words) = run("counts", "KINFOLK_SEEDS", "37");
    assert!(
        ok && words.contains("run 37.") && !words.contains("run 38."),
        "{words}"
    );
    let (ok, words) = run("counts", "KINFOLK_SEED", "5");
    assert!(
        ok && words.contains("run 1.") && !words.contains("run 2."),
        "{words}"
    );
    for (variable, value) in [
        ("KINFOLK_SEED", "seven"),
        ("KINFOLK_SEEDS", "many"),
        ("KINFOLK_SEEDS", "0"),
    ] {
        let (ok, words) = run("counts", variable, value);
        assert!(!ok && words.contains(variable), "{words}");
    }
}

#[kinfolk::test(seed = 7)]
#[ignore = "run by another"]
async fn counts_on_one_seed() {
    counts_up();
}

/// A test for one seed stays with it, and one seed goes before a number of them.
#[test]
fn test_2_one_seed_goes_before_many() {
    let (ok, words) = run("counts_on_one_seed", "KINFOLK_SEEDS", "37");
    assert!(
        ok && words.contains("run 1.") && !words.contains("run 2."),
        "{words}"
    );
    let both = [("KINFOLK_SEED", "5"), ("KINFOLK_SEEDS", "37")];
    let (ok, words) = run_in("counts", both.map(|(name, value)| (name, value.into())));
    assert!(
        ok && words.contains("run 1.") && !words.contains("run 2."),
        "{words}"
    );
}

/// What cannot be read is said, whatever is in it.
#[test]
fn test_2_an_unreadable_variable_fails_the_test() {
    use std::os::unix::ffi::OsStringExt;
    let texts = ["", " ", "-1", "0x10", "1e3", "18446744073709551616"].map(OsString::from);
    let no_text = OsString::from_vec(vec![0xff]);
    for text in texts.into_iter().chain([no_text]) {
        let (ok, words) = run_in("counts", [("KINFOLK_SEED", text)]);
        assert!(
            !ok && words.contains("KINFOLK_SEED must be a number, not "),
            "{words}"
        );
        assert!(!words.contains("run 1."), "{words}");
    }
    let (ok, words) = run("counts", "KINFOLK_SEED", &u64::MAX.to_string());
    assert!(
        !ok && words.contains("must be less than 18446744073709551615"),
        "{words}"
    );
    let (ok, words) = run("counts", "KINFOLK_TEST_SECONDS", "soon");
    assert!(
        !ok && words.contains("KINFOLK_TEST_SECONDS must be a number, not "),
        "{words}"
    );
}

/// What contradicts itself at the runner is refused as the attribute refuses it.
#[test]
fn test_2_the_runner_refuses_options_that_run_nothing() {
    let options = kinfolk::testkit::TestOptions::default;
    let backwards = std::ops::Range { start: 5, end: 3 };
    for (options, complaint) in [
        (options().seeds(backwards), "has no seeds to run on"),
        (options().real_time(), "a simulation has no real time"),
    ] {
        let run = || kinfolk::testkit::run_test("refused", options, async || {});
        let panic = std::panic::catch_unwind(run).expect_err("it is refused");
        let words = panic.downcast_ref::<String>().expect("words");
        assert!(words.contains(complaint), "{words}");
    }
}

#[kinfolk::test(seeds = 20)]
#[ignore = "run by another"]
async fn takes_its_time() {
    std::thread::sleep(100 * MS);
}

#[kinfolk::test(seed = 6)]
#[ignore = "run by another"]
async fn hangs() {
    loop {
        std::thread::park();
    }
}

/// The guard in real time is for one seed, and a hang says which.
#[test]
fn test_1_the_guard_is_for_each_seed() {
    let (ok, words) = run("takes_its_time", "KINFOLK_TEST_SECONDS", "1");
    assert!(ok, "{words}");
    let (ok, words) = run("hangs", "KINFOLK_TEST_SECONDS", "1");
    assert!(!ok && words.contains("hangs after 1 s"), "{words}");
    assert!(words.contains("KINFOLK_SEED=6 cargo test"), "{words}");
}

#[test]
#[ignore = "run by another"]
fn hangs_once_stopped() {
    kinfolk::testkit::cancel_everywhere(|| async {
        while checkpoint().await.is_err() {
            std::thread::park();
        }
    });
}

/// A run of `cancel_everywhere` that does not come back says which one it is.
#[test]
fn test_3_a_hang_has_a_line_that_repeats_it() {
    let (ok, words) = run("hangs_once_stopped", "KINFOLK_TEST_SECONDS", "1");
    assert!(!ok && words.contains("hangs after 1 s"), "{words}");
    let line = "(run it again with KINFOLK_SEED=0 KINFOLK_POINT=cancel@point:1)";
    assert!(words.contains(line), "{words}");
}

#[test]
#[ignore = "run by another"]
fn takes_long_and_fails_soon() {
    kinfolk::testkit::cancel_everywhere(|| async {
        assert_eq!(RUNS.fetch_add(1, SeqCst), 0, "the second run");
        std::thread::sleep(100 * MS);
        for _ in 0..100 {
            checkpoint().await?;
        }
        Ok::<_, Error>(())
    });
}

/// What many runs of `cancel_everywhere` will cost is said after the first one.
#[test]
fn test_3_the_cost_is_told_beforehand() {
    let (ok, words) = run("takes_long_and_fails_soon", "RUST_BACKTRACE", "0");
    assert!(!ok && words.contains("the second run"), "{words}");
    let told = words.lines().find(|line| line.contains("100 points, "));
    let told = told.unwrap_or_else(|| panic!("the cost is not told: {words}"));
    assert!(
        told.starts_with("cancel_everywhere at tests/seeds.rs:"),
        "{told}"
    );
    assert!(told.contains(" runs or more, about "), "{told}");
}

#[test]
#[ignore = "run by another"]
fn can_be_stopped() {
    kinfolk::testkit::cancel_everywhere(|| sleep(MS));
}

/// A line that was copied before the code changed must not look like a mended bug.
#[test]
fn test_3_a_point_that_is_not_reached_is_an_error() {
    let (ok, words) = run("can_be_stopped", "KINFOLK_POINT", "cancel@point:1");
    assert!(ok, "{words}");
    for point in ["cancel@point:99", "drop-task@turn:99"] {
        let (ok, words) = run("can_be_stopped", "KINFOLK_POINT", point);
        assert!(!ok && words.contains("stops nothing"), "{point}: {words}");
    }
    for point in ["cancel@point:0", "cancel@turn:0", "twice@turn:1+0"] {
        let (ok, words) = run("can_be_stopped", "KINFOLK_POINT", point);
        assert!(!ok && words.contains("names no run"), "{point}: {words}");
    }
}

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("in a destructor");
    }
}

/// A panic that the tree contains fails no job, but it fails the test.
#[kinfolk::test(seeds = 4)]
#[should_panic(expected = "panicked:\n  in a destructor")]
async fn test_1_a_contained_panic_fails_the_test() -> Result<(), Error> {
    let task = spawn(async { Ok::<_, Error>(Box::new(Bomb) as Box<dyn Send>) });
    let _ended = task.join().await?;
    drop(task);
    Ok(())
}

/// On the thread of a blocking call too.
#[kinfolk::test(seeds = 4)]
#[should_panic(expected = "panicked:\n  in a destructor")]
async fn test_1_a_panic_that_a_call_contains_fails_the_test() -> Result<(), Error> {
    let (answer, asked) = std::sync::mpsc::channel::<()>();
    let mut call = Box::pin(blocking(move |_| {
        let _gone = asked.recv();
        Box::new(Bomb) as Box<dyn Send>
    }));
    // It begins, and is given up: no future takes its value.
    std::future::poll_fn(|cx| {
        assert!(call.as_mut().poll(cx).is_pending());
        std::task::Poll::Ready(())
    })
    .await;
    sleep(MS).await?;
    drop(call);
    drop(answer);
    Ok(())
}

/// Where failures are allowed it does not.
#[kinfolk::test(failures = "allowed")]
async fn test_1_a_contained_panic_may_be_allowed() -> Result<(), Error> {
    let task = spawn(async { Ok::<_, Error>(Box::new(Bomb) as Box<dyn Send>) });
    let _ended = task.join().await?;
    drop(task);
    Ok(())
}

/// A branch of `any` that panics has lost, and has a bug.
#[kinfolk::test(seeds = 4)]
#[should_panic(expected = "panicked: in a branch")]
async fn test_1_a_branch_that_panics_fails_the_test() -> Result<(), Error> {
    let branches = [false, true].map(async |wins| match wins {
        true => Ok::<_, Error>(sleep(MS).await?),
        false => panic!("in a branch"),
    });
    kinfolk::any(branches).await
}

static OTHERS: AtomicU32 = AtomicU32::new(0);

#[kinfolk::test(seed = 4)]
#[ignore = "run by another"]
async fn fails_with_a_number() {
    panic!("lost {} messages", OTHERS.fetch_add(1, SeqCst));
}

/// A second run that fails with another number is no replay.
#[test]
fn test_2_another_number_is_no_replay() {
    let (ok, words) = run("fails_with_a_number", "KINFOLK_SEED", "4");
    assert!(!ok && words.contains("the test does not replay"), "{words}");
}

/// A test that would run on no seed is refused: it would be green for nothing.
#[test]
#[should_panic(expected = "has no seeds to run on")]
fn test_2_no_seeds_are_refused() {
    let none = kinfolk::testkit::TestOptions::default().seeds(3..3);
    kinfolk::testkit::run_test("none", none, async || {});
}

#[kinfolk::test(seed = 4)]
#[ignore = "run by another"]
async fn fails_once() {
    assert_ne!(RUNS.fetch_add(1, SeqCst), 0, "the first time");
}

#[kinfolk::test(seed = 4)]
#[ignore = "run by another"]
async fn fails() {
    checkpoint().await.unwrap();
    panic!("every time");
}

#[kinfolk::test(seed = 4)]
#[ignore = "run by another"]
async fn waits_for_ever() {
    park().await.unwrap();
}

#[kinfolk::test(seed = 4)]
#[ignore = "run by another"]
async fn leaves_a_job() {
    kinfolk::detach(async { park().await.map(drop) });
}

/// Each way to fail ends with a line to copy.
#[test]
fn test_2_a_failure_has_a_line_to_copy() {
    for (test, what) in [
        ("fails", "every time"),
        ("waits_for_ever", "deadlock"),
        ("leaves_a_job", "1 jobs"),
    ] {
        let (ok, words) = run(test, "RUST_BACKTRACE", "0");
        assert!(!ok && words.contains(what), "{words}");
        let line = format!("to run it again: KINFOLK_SEED=4 cargo test -p kinfolk-tests {test}");
        assert!(words.contains(&line), "{words}");
        assert!(!words.contains("does not replay"), "{words}");
    }
}

/// The line stands with the failure that the harness shows, not somewhere above.
#[test]
fn test_2_the_line_to_copy_stands_with_the_failure() {
    for test in ["fails", "waits_for_ever", "leaves_a_job"] {
        let me = std::env::current_exe().expect("this test");
        let output = Command::new(me)
            .args([test, "--exact", "--ignored"])
            .env_remove("KINFOLK_SEED")
            .env_remove("KINFOLK_SEEDS")
            .output()
            .expect("it runs");
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        let begin = format!("---- {test} stdout ----");
        let (_, own) = shown.split_once(&begin).expect("what the test has said");
        let line = format!("to run it again: KINFOLK_SEED=4 cargo test -p kinfolk-tests {test}");
        assert!(own.contains(&line), "{shown}");
    }
}

/// A failure that the seed does not repeat says so.
#[test]
fn test_2_a_failure_that_does_not_replay_says_so() {
    let (ok, words) = run("fails_once", "RUST_BACKTRACE", "0");
    assert!(!ok && words.contains("does not replay"), "{words}");
    assert!(words.contains("did not fail"), "{words}");
}

#[kinfolk::test(seeds = 1)]
#[ignore = "run by another"]
async fn takes_another_turn_the_second_time() -> Result<(), Error> {
    for _ in 0..RUNS.fetch_add(1, SeqCst) {
        yield_now().await?;
    }
    Ok(())
}

/// With `KINFOLK_REPLAY` each seed is run twice, and a test whose runs differ fails although
/// both runs pass.
#[test]
fn test_2_each_seed_may_be_run_twice() {
    let test = "takes_another_turn_the_second_time";
    let (ok, words) = run(test, "KINFOLK_REPLAY", "0");
    assert!(ok, "{words}");
    let (ok, words) = run(test, "KINFOLK_REPLAY", "1");
    assert!(
        !ok && words.contains("does not replay on seed 0"),
        "{words}"
    );
    let (ok, words) = run("counts", "KINFOLK_REPLAY", "1");
    assert!(ok && words.contains("run 20."), "{words}");
}

/// On which of the first 40 seeds i/o is rough: where a read brings less than there is.
fn rough_seeds(options: TestOptions) -> BTreeSet<usize> {
    let found = Arc::new(Mutex::new((0, BTreeSet::new())));
    let seen = found.clone();
    run_test("which_are_rough", options.seeds(0..40), move || {
        let found = found.clone();
        async move {
            let (reader, writer) = kinfolk::io::pipe()?;
            writer.write_all([7; 64]).await.0?;
            let read = reader.read([0; 64]).await.0?;
            let mut found = found.lock().unwrap();
            let seed = found.0;
            found.0 += 1;
            if read < 64 {
                found.1.insert(seed);
            }
            Ok::<_, Error>(())
        }
    });
    std::mem::take(&mut seen.lock().unwrap().1)
}

#[test]
fn test_1_io_is_rough_on_odd_seeds_or_as_the_test_says() {
    let odd = rough_seeds(TestOptions::default());
    assert!(
        odd.len() > 5 && odd.iter().all(|seed| seed % 2 == 1),
        "{odd:?}"
    );
    let all = rough_seeds(TestOptions::default().rough_io());
    assert!(all.iter().any(|seed| seed % 2 == 0), "{all:?}");
    assert!(all.iter().any(|seed| seed % 2 == 1), "{all:?}");
    assert_eq!(
        rough_seeds(TestOptions::default().fair_io()),
        BTreeSet::new()
    );
}

/// A wait that was begun and is neither awaited nor dropped leaves its timer.
async fn leaves_a_timer() {
    let mut wait = Box::pin(sleep(MS));
    poll_fn(|cx| {
        assert!(wait.as_mut().poll(cx).is_pending());
        Poll::Ready(())
    })
    .await;
    std::mem::forget(wait);
}

#[test]
#[should_panic(expected = "ended with 0 jobs and 1 timers left")]
fn test_1_a_timer_that_is_left_fails_the_test() {
    run_test("leaves_a_timer", TestOptions::default(), leaves_a_timer);
}

#[test]
#[should_panic(expected = "ended with 0 jobs and 1 timers left")]
fn test_1_a_timer_that_is_left_fails_a_native_test() {
    run_native_test("leaves_a_timer", TestOptions::default(), leaves_a_timer);
}
