//! Shutdown with a clock that is not the system's: paused, standing still, virtual and
//! never moved. A shutdown ends in real time, and leaves the clock as it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use kinfolk_core::{Clock, cleanup, park, sleep};
use kinfolk_runtime::{HostClock, Runtime};
use kinfolk_testkit::guarded;

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

fn rt(workers: usize, clock: Arc<dyn Clock>) -> Runtime {
    Runtime::builder()
        .workers(workers)
        .clock(clock)
        .on_forced(Box::new(|_| {}))
        .build()
        .unwrap()
}

/// Begins a job that, when told, does `first` and then sleeps in its clean-up.
fn cleans_up(rt: &Runtime, nap: Duration, first: impl FnOnce() + Send + 'static) {
    let begun = Arc::new(AtomicBool::new(false));
    let begins = begun.clone();
    rt.scope().launch(async move {
        begins.store(true, SeqCst);
        let _ = park().await;
        first();
        let _ = cleanup(sleep(nap)).await;
    });
    while !begun.load(SeqCst) {
        rt.block_on(async {}).unwrap();
    }
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
}

#[test]
fn shutdown_1_a_clock_that_is_paused_meanwhile_does_not_stop_it() {
    guarded("paused meanwhile", |_| {
        for workers in [0, 1, 2] {
            let clock = HostClock::new();
            let pauses = clock.clone();
            let rt = rt(workers, clock.shared());
            cleans_up(&rt, 5 * MS, move || pauses.pause());
            let report = rt.shutdown(HOUR).unwrap();
            assert!(report.is_clean(), "{report}");
            assert!(report.took >= 5 * MS, "{report}");
            assert!(clock.is_paused(), "it is the program's");
        }
    });
}

#[test]
fn shutdown_1_a_clock_that_stands_still_does_not_stop_it() {
    guarded("stands still", |_| {
        for workers in [0, 1, 2] {
            let at = Instant::now();
            let still = |is_virtual| Arc::new(Still { at, is_virtual });
            let one = rt(workers, still(false));
            cleans_up(&one, 5 * MS, || {});
            let report = one.shutdown(HOUR).unwrap();
            assert!(report.is_clean(), "{report}");
            // Neither does a virtual one that never jumps.
            let one = rt(workers, still(true));
            cleans_up(&one, 5 * MS, || {});
            let report = one.shutdown(20 * MS).unwrap();
            assert!(report.stragglers.is_empty(), "{report}");
        }
    });
}

/// A clean-up that takes too long is dropped in real time.
#[test]
fn shutdown_1_the_grace_is_real_with_a_clock_that_stands_still() {
    guarded("the grace", |_| {
        let still = Still {
            at: Instant::now(),
            is_virtual: false,
        };
        let rt = rt(1, Arc::new(still));
        cleans_up(&rt, HOUR, || {});
        let began = Instant::now();
        let report = rt.shutdown(20 * MS).unwrap();
        assert!(report.stragglers.is_empty(), "{report}");
        assert!(began.elapsed() >= 20 * MS);
    });
}

#[test]
fn shutdown_1_a_clock_that_two_runtimes_have_is_left_alone() {
    guarded("a shared clock", |_| {
        let clock = HostClock::new();
        clock.set_rate(2.0);
        let first = rt(0, clock.shared());
        let second = rt(1, clock.shared());
        clock.pause();
        let shown = clock.now();
        let task = second.scope().spawn(async { sleep(HOUR).await });
        while second.next_deadline().is_none() {
            std::thread::yield_now();
        }
        assert!(first.shutdown(HOUR).unwrap().is_clean());
        assert!(clock.is_paused() && clock.now() == shown);
        assert!(format!("{clock:?}").contains("rate: 2.0"), "{clock:?}");
        assert!(!task.is_ended());
        clock.advance(HOUR);
        assert!(second.wait_for(task).unwrap().is_ok());
    });
}
