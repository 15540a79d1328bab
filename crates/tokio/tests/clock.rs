//! The clock of a root on tokio is tokio's: where a test has paused it, timers
//! of the tree wait for it as tokio's own do, and nothing goes round meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use kinfolk_core::{Clock, Error, ErrorKind, blocking, now, park, sleep, spawn, timeout};
use kinfolk_tokio::Root;

const SEC: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Tokio's time; counts how often it is asked.
#[derive(Default)]
struct Counting {
    asked: AtomicUsize,
}

impl Clock for Counting {
    fn now(&self) -> Instant {
        self.asked.fetch_add(1, SeqCst);
        tokio::time::Instant::now().into_std()
    }
}

/// An hour in which a far timer is set, and one in which none is: the keeper does
/// not stir.
#[tokio::test(start_paused = true)]
async fn the_keeper_sleeps_until_something_is_due() {
    let clock = Arc::new(Counting::default());
    let root = Root::builder().clock(clock.clone()).build();
    for far in [None, Some(10 * HOUR)] {
        let _asleep = far.map(|far| root.scope().spawn(sleep(far)));
        tokio::time::sleep(SEC).await;
        let before = clock.asked.load(SeqCst);
        tokio::time::sleep(HOUR).await;
        let asked = clock.asked.load(SeqCst) - before;
        assert!(asked < 10, "the clock was asked {asked} times in an hour");
    }
}

/// It is woken by a timer that is due earlier than what it sleeps for, and by one
/// that is set while none is.
#[tokio::test(start_paused = true)]
async fn an_earlier_timer_wakes_the_keeper() {
    let root = Root::builder().build();
    let began = tokio::time::Instant::now();
    tokio::time::sleep(SEC).await;
    let far = root.scope().spawn(sleep(10 * HOUR));
    tokio::time::sleep(SEC).await;
    root.run(sleep(SEC)).await.unwrap();
    assert_eq!(began.elapsed().as_secs(), 3);
    assert!(!far.is_ended());
}

/// Timers of the tree and tokio's own come in one order, in no time.
#[tokio::test(start_paused = true)]
async fn a_paused_clock_is_followed() {
    let real = Instant::now();
    let root = Root::builder().build();
    let began = tokio::time::Instant::now();
    let late = root
        .run(async {
            let began = now();
            tokio::time::sleep(HOUR).await;
            assert!(now() - began >= HOUR);
            sleep(HOUR).await?;
            assert!(now() - began >= 2 * HOUR);
            timeout(HOUR, park()).await
        })
        .await;
    assert_eq!(late.unwrap_err().kind(), ErrorKind::TimedOut);
    let took = began.elapsed();
    assert!(took >= 3 * HOUR && took < 3 * HOUR + SEC, "{took:?}");
    let report = root.shutdown_in(HOUR).await.unwrap();
    assert!(report.is_clean(), "{report}");
    assert!(real.elapsed() < 60 * SEC, "{:?}", real.elapsed());
}

/// The system's clock on a paused runtime: it is waited for, without going round.
#[tokio::test(start_paused = true)]
async fn the_systems_clock_is_waited_for_where_tokios_is_paused() {
    struct System(AtomicUsize);
    impl Clock for System {
        fn now(&self) -> Instant {
            self.0.fetch_add(1, SeqCst);
            Instant::now()
        }
    }
    let clock = Arc::new(System(AtomicUsize::new(0)));
    let root = Root::builder().clock(clock.clone()).build();
    let began = Instant::now();
    root.run(sleep(SEC / 10)).await.unwrap();
    assert!(began.elapsed() >= SEC / 10);
    let asked = clock.0.load(SeqCst);
    assert!(asked < 1000, "the clock was asked {asked} times");
}

/// The keeper and the driver go with their root.
#[tokio::test(start_paused = true)]
async fn keeper_and_driver_go_with_their_root() {
    let tasks = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    let before = tasks();
    let root = Root::builder().build();
    root.run(async {}).await.unwrap();
    assert_eq!(tasks(), before + 2);
    drop(root);
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(tasks(), before);
}

/// Jumps to the next timer when everything is idle.
struct Jumping {
    start: Instant,
    seconds: AtomicU64,
}

impl Clock for Jumping {
    fn now(&self) -> Instant {
        self.start + Duration::from_secs(self.seconds.load(SeqCst))
    }

    fn is_virtual(&self) -> bool {
        true
    }

    fn idle(&self, next: Option<Instant>) -> bool {
        if let Some(next) = next {
            self.seconds.store((next - self.start).as_secs(), SeqCst);
        }
        next.is_some()
    }
}

/// A blocking call is not over, and everything else waits: the clock stands still.
/// The call goes on when the thread of the runtime has nothing more to do.
#[test]
fn test_1_the_clock_does_not_jump_over_a_blocking_call() {
    let parks = Arc::new(AtomicUsize::new(0));
    let counts = parks.clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .on_thread_park(move || {
            counts.fetch_add(1, SeqCst);
        })
        .build()
        .unwrap();
    runtime.block_on(async {
        let clock = Arc::new(Jumping {
            start: Instant::now(),
            seconds: AtomicU64::new(0),
        });
        let root = Root::builder().clock(clock.clone()).build();
        let there = clock.clone();
        let ran = root.run(async move {
            let asleep = spawn(sleep(HOUR));
            let before = parks.load(SeqCst);
            let during = blocking(move |_| {
                let began = Instant::now();
                while parks.load(SeqCst) == before {
                    assert!(began.elapsed() < 60 * SEC, "the runtime never rests");
                    std::thread::yield_now();
                }
                there.seconds.load(SeqCst)
            });
            assert_eq!(during.await?, 0, "the clock has jumped");
            asleep.await?;
            Ok::<_, Error>(())
        });
        ran.await.unwrap();
        assert_eq!(clock.seconds.load(SeqCst), HOUR.as_secs());
    });
}
