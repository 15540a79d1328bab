//! Blocking calls on real threads with virtual time: on the native runtime and on tokio. Calls
//! run beside the tasks; one that waits for a task, or does nothing but ask whether it is
//! cancelled, does not hold the clock. In the seeded simulation they take turns (`calls.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use kinfolk_core::{Caller, Error, Result, blocking, now, sleep, spawn, timeout};
use kinfolk_runtime::Runtime;
use kinfolk_testkit::{TestOptions, VirtualClock, guarded, run_native_test, run_tokio_test};
use kinfolk_tokio::Root;

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Runs `body` on each host with virtual time that makes calls on other threads.
fn on_real_threads<B>(name: &'static str, body: fn() -> B)
where
    B: Future<Output = Result<()>> + Send + 'static,
{
    on_hosts_that_are_asked(name, body);
    // Tokio's own clock, which is paused.
    run_tokio_test(name, TestOptions::default(), body);
}

/// The same, but for tokio's own clock.
fn on_hosts_that_are_asked<B>(name: &'static str, body: fn() -> B)
where
    B: Future<Output = Result<()>> + Send + 'static,
{
    guarded(name, move |watched| {
        for workers in [0, 2] {
            let rt = Runtime::builder()
                .workers(workers)
                .clock(Arc::new(VirtualClock::new()))
                .build()
                .unwrap();
            watched.watch(rt.tree());
            rt.block_on(body()).unwrap();
        }
        for workers in [0, 2] {
            let mut tokio = match workers {
                0 => tokio::runtime::Builder::new_current_thread(),
                _ => tokio::runtime::Builder::new_multi_thread(),
            };
            let tokio = tokio.worker_threads(workers.max(1)).enable_time().build();
            tokio.unwrap().block_on(async {
                let clock = Arc::new(VirtualClock::new());
                let root = Root::builder().clock(clock).build();
                watched.watch(root.tree());
                root.scope().spawn(body()).await.unwrap();
                assert!(root.shutdown_in(HOUR).await.unwrap().is_clean());
            });
        }
    });
}

/// Computes, so that its thread runs, for so long of real time.
fn computes(how_long: Duration) {
    let began = Instant::now();
    while began.elapsed() < how_long {
        std::hint::spin_loop();
    }
}

/// A call that waits for a task which sleeps does not keep that task asleep.
#[test]
fn test_1_on_real_threads_time_goes_on_while_a_call_waits_for_a_task() {
    on_real_threads("waits_for_a_task", || async {
        let began = now();
        let (says, word) = channel();
        let task = spawn(async move {
            sleep(HOUR).await?;
            says.send("the task").unwrap();
            Ok::<_, Error>(())
        });
        let word = blocking(move |_| word.recv().unwrap()).await?;
        assert_eq!(word, "the task");
        assert_eq!(now() - began, HOUR);
        task.await
    });
}

/// A call that a task has woken holds the clock again, until it has returned.
#[test]
fn test_1_on_real_threads_a_call_that_was_woken_holds_the_clock() {
    on_real_threads("was_woken", || async {
        let (says, word) = channel();
        let returned = Arc::new(AtomicBool::new(false));
        let seen = returned.clone();
        let call = spawn(blocking(move |_| {
            for _ in 0..2 {
                word.recv().unwrap();
                computes(30 * MS);
            }
            returned.store(true, SeqCst);
        }));
        sleep(HOUR).await?;
        says.send(()).unwrap();
        // It computes, then waits for the second word.
        sleep(HOUR).await?;
        assert!(!seen.load(SeqCst));
        says.send(()).unwrap();
        sleep(MS).await?;
        assert!(seen.load(SeqCst), "time has passed while the call computed");
        call.await
    });
}

/// A call that computes, or sleeps, holds the clock until it has returned.
#[test]
fn test_1_on_real_threads_a_call_that_goes_on_holds_the_clock() {
    on_real_threads("goes_on", || async {
        let began = now();
        timeout(MS, blocking(|_| computes(50 * MS))).await?;
        assert_eq!(now(), began);
        timeout(MS, blocking(|_| std::thread::sleep(50 * MS))).await?;
        assert_eq!(now(), began);
        Ok(())
    });
}

/// A call that does nothing but ask whether it is cancelled is told when its timeout has
/// passed; `pause` is what it does between two questions.
async fn asks(pause: fn()) -> Result<()> {
    let began = now();
    let asked = Arc::new(AtomicBool::new(false));
    let told = asked.clone();
    let call = move |caller: Caller| {
        while !caller.is_cancelled() {
            pause();
        }
        computes(30 * MS);
        told.store(true, SeqCst);
    };
    let later = spawn(async move {
        sleep(HOUR + MS).await?;
        Ok::<_, Error>(asked.load(SeqCst))
    });
    // Awaited until it has returned, timeout or not.
    let _ = timeout(HOUR, blocking(call)).await;
    assert_eq!(now() - began, HOUR);
    assert!(later.await?, "time has passed after it was told");
    Ok(())
}

#[test]
fn test_1_on_real_threads_time_goes_on_while_a_call_asks_in_a_loop() {
    on_hosts_that_are_asked("asks_in_a_loop", || asks(|| {}));
    on_hosts_that_are_asked("asks_and_sleeps", || asks(|| std::thread::sleep(MS)));
}

/// So it is with tokio's own clock, but that clock may move before the call hears of it.
#[test]
fn test_1_a_tokio_test_goes_on_while_a_call_asks_in_a_loop() {
    run_tokio_test("asks_on_tokio", TestOptions::default(), || async {
        for pause in [|| {}, || std::thread::sleep(MS)] {
            let began = now();
            let call = move |caller: Caller| {
                while !caller.is_cancelled() {
                    pause();
                }
            };
            let _ = timeout(HOUR, blocking(call)).await;
            assert_eq!(now() - began, HOUR);
        }
    });
}

/// One that asks now and then while it computes holds the clock.
#[test]
fn test_1_on_real_threads_a_call_that_asks_now_and_then_holds_the_clock() {
    on_real_threads("asks_now_and_then", || async {
        let call = |caller: Caller| {
            for _ in 0..20 {
                assert!(!caller.is_cancelled());
                computes(MS);
            }
        };
        timeout(MS, blocking(call)).await
    });
}

/// Two calls that ask, and one that waits for one of them, do not hold each other up.
#[test]
fn test_1_on_real_threads_calls_do_not_hold_each_other_up() {
    on_real_threads("many_calls", || async {
        let began = now();
        let (says, word) = channel();
        let waits = spawn(blocking(move |_| word.recv().unwrap()));
        let two = [says.clone(), says].map(|says| {
            spawn(async move {
                let call = move |caller: Caller| {
                    while !caller.is_cancelled() {}
                    let _ = says.send(7_u8);
                };
                let _ = timeout(HOUR, blocking(call)).await;
                Ok::<_, Error>(())
            })
        });
        for task in two {
            task.await?;
        }
        assert_eq!(waits.await?, 7);
        assert_eq!(now() - began, HOUR);
        Ok(())
    });
}

/// The same in a test with `flavor = "native"`.
#[test]
fn test_1_a_native_test_has_calls_that_wait_for_tasks() {
    run_native_test("calls_wait", TestOptions::default(), || async {
        let (says, word) = channel();
        let task = spawn(async move {
            sleep(MS).await?;
            says.send(7).unwrap();
            Ok::<_, Error>(())
        });
        assert_eq!(blocking(move |_| word.recv().unwrap()).await?, 7);
        task.await
    });
}
