//! Timers and shutdown while threads of tokio's are held up, by a turn of a job, by a hook,
//! by every worker at once, and when the runtime is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use kinfolk_core::{Clock, blocking, cleanup, on_cancel, park, sleep, timeout};
use kinfolk_tokio::Root;
use tokio::runtime::{Builder, Runtime};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);
/// Whatever takes so long has hung.
const LONG: Duration = Duration::from_secs(20);

fn multi(workers: usize) -> Runtime {
    let mut builder = Builder::new_multi_thread();
    let built = builder.worker_threads(workers).enable_time().build();
    built.expect("a runtime")
}

fn root_on(runtime: &Runtime) -> Root {
    let root = Root::builder().on_forced(Box::new(|_| {}));
    runtime.block_on(async { root.build() })
}

/// Keeps its thread until it is so; false if that takes for ever.
fn spin_until(is_so: impl Fn() -> bool) -> bool {
    let began = Instant::now();
    while !is_so() {
        if began.elapsed() > LONG {
            return false;
        }
        std::hint::spin_loop();
    }
    true
}

/// Polls a future outside every runtime.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = std::pin::pin!(future);
    loop {
        if let Poll::Ready(ready) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return ready;
        }
        std::thread::park();
    }
}

/// A turn sets the first timer of all, which wakes the keeper on its own worker, and does
/// not return: timers of others are fired all the same.
#[test]
fn lane_4_a_turn_that_has_set_a_timer_holds_up_no_other_timer() {
    let runtime = multi(3);
    let root = root_on(&runtime);
    for _ in 0..5 {
        let fired = Arc::new(AtomicBool::new(false));
        let fires = fired.clone();
        let waits = root.scope().spawn(async move {
            sleep(20 * MS).await?;
            fires.store(true, SeqCst);
            Ok::<_, kinfolk_core::Error>(())
        });
        let holds_up = root.scope().spawn(async move {
            let mut first = std::pin::pin!(sleep(5 * MS));
            let begun = first.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(begun.is_pending());
            spin_until(|| fired.load(SeqCst))
        });
        assert!(runtime.block_on(holds_up).unwrap(), "it was not fired");
        runtime.block_on(waits).unwrap();
    }
}

/// A hook that a deadline calls does not return: the timers behind it are fired.
#[test]
fn lane_4_a_hook_that_a_timer_calls_holds_up_no_other_timer() {
    let runtime = multi(3);
    let root = root_on(&runtime);
    for _ in 0..5 {
        let fired = Arc::new(AtomicBool::new(false));
        let (fires, waits) = (fired.clone(), fired.clone());
        let hooked = root.scope().spawn(async move {
            let (tell, told) = mpsc::channel();
            let hook = move |_: &_| {
                let _ = tell.send(spin_until(|| waits.load(SeqCst)));
            };
            let body = async {
                on_cancel(hook).keep();
                park().await
            };
            let _ = timeout(10 * MS, body).await;
            told.recv().unwrap_or(false)
        });
        runtime
            .block_on(root.run(async move {
                sleep(30 * MS).await?;
                fires.store(true, SeqCst);
                Ok::<_, kinfolk_core::Error>(())
            }))
            .unwrap();
        assert!(runtime.block_on(hooked).unwrap(), "it was not fired");
    }
}

/// Every worker of tokio's is in a turn that does not return before the shutdown has.
#[test]
fn shutdown_1_every_worker_in_a_long_turn_does_not_keep_it() {
    for workers in [1, 2] {
        let runtime = multi(workers);
        let root = root_on(&runtime);
        let over = Arc::new(AtomicBool::new(false));
        let (tell, told) = mpsc::channel();
        for _ in 0..workers {
            let (over, tell) = (over.clone(), tell.clone());
            root.scope().launch(async move {
                tell.send(()).unwrap();
                spin_until(|| over.load(SeqCst));
            });
        }
        for _ in 0..workers {
            told.recv().unwrap();
        }
        let report = runtime.block_on(root.shutdown_in(50 * MS)).unwrap();
        assert_eq!(report.stragglers.len(), workers, "{report}");
        over.store(true, SeqCst);
    }
}

/// The runtime is gone, and nothing keeps time but the shutdown itself.
#[test]
fn shutdown_1_a_runtime_that_is_gone_does_not_keep_it() {
    let runtime = multi(2);
    let root = root_on(&runtime);
    let over = Arc::new(AtomicBool::new(false));
    let returned = Arc::new(AtomicBool::new(false));
    let (ends, returns) = (over.clone(), returned.clone());
    let (tell, told) = mpsc::channel();
    root.scope().launch(async move {
        blocking(move |_| {
            tell.send(()).unwrap();
            spin_until(|| ends.load(SeqCst));
            returns.store(true, SeqCst);
        })
        .await
    });
    told.recv().unwrap();
    runtime.shutdown_background();
    let report = block_on(root.shutdown_in(50 * MS)).unwrap();
    assert!(!report.is_clean(), "{report}");
    assert!(!returned.load(SeqCst), "it has waited for the call");
    over.store(true, SeqCst);
}

/// A clock that shows one time for ever.
struct Still {
    at: Instant,
    is_virtual: bool,
}

impl Clock for Still {
    fn now(&self) -> Instant {
        self.at
    }

    fn is_virtual(&self) -> bool {
        self.is_virtual
    }

    fn real_time_until(&self, _: Instant) -> Option<Duration> {
        None
    }
}

/// The root's own clock stands still: its shutdown, and what cleans up in it, goes by real
/// time.
#[test]
fn shutdown_1_a_clock_that_stands_still_does_not_keep_it() {
    for workers in [0, 2] {
        let runtime = match workers {
            0 => Builder::new_current_thread().enable_time().build().unwrap(),
            _ => multi(workers),
        };
        runtime.block_on(async {
            let (at, is_virtual) = (Instant::now(), false);
            let clock = Arc::new(Still { at, is_virtual });
            let root = Root::builder().clock(clock).build();
            let (tell, told) = tokio::sync::oneshot::channel();
            root.scope().launch(async move {
                tell.send(()).unwrap();
                let _ = park().await;
                cleanup(sleep(5 * MS)).await
            });
            told.await.unwrap();
            let report = root.shutdown_in(HOUR).await.unwrap();
            assert!(report.is_clean() && report.took >= 5 * MS, "{report}");
        });
    }
}

/// A virtual clock that never jumps has the grace in real time, and then real time takes
/// its place.
#[test]
fn shutdown_1_a_virtual_clock_that_never_jumps_does_not_keep_it() {
    let runtime = multi(2);
    runtime.block_on(async {
        let (at, is_virtual) = (Instant::now(), true);
        let clock = Arc::new(Still { at, is_virtual });
        let root = Root::builder().clock(clock).on_forced(Box::new(|_| {}));
        let root = root.build();
        let (tell, told) = tokio::sync::oneshot::channel();
        root.scope().launch(async move {
            tell.send(()).unwrap();
            let _ = park().await;
            cleanup(sleep(HOUR)).await
        });
        told.await.unwrap();
        let report = root.shutdown_in(50 * MS).await.unwrap();
        assert!(!report.is_clean(), "{report}");
    });
}

/// Tokio's clock is paused, and a call under way keeps it from moving.
#[test]
fn shutdown_1_a_paused_clock_and_a_call_under_way_do_not_keep_it() {
    let mut builder = Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let ends = over.clone();
    runtime.block_on(async {
        let root = Root::builder().on_forced(Box::new(|_| {})).build();
        let (tell, told) = tokio::sync::oneshot::channel();
        root.scope().launch(async move {
            blocking(move |_| {
                tell.send(()).unwrap();
                spin_until(|| ends.load(SeqCst));
            })
            .await
        });
        told.await.unwrap();
        let report = root.shutdown_in(50 * MS).await.unwrap();
        assert!(!report.is_clean(), "{report}");
        over.store(true, SeqCst);
    });
}

/// A runtime without timers is refused where the root is made.
#[test]
fn a_runtime_without_timers_is_refused() {
    let single = Builder::new_current_thread().build().unwrap();
    let multi = Builder::new_multi_thread().worker_threads(2).build();
    for runtime in [single, multi.unwrap()] {
        for make in [Root::current, || Root::builder().build()] {
            let made = || runtime.block_on(async { drop(make()) });
            let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(made));
            assert!(made.is_err(), "it was made");
        }
    }
}
