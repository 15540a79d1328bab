//! Priorities, counted in turns: how long each waits, on one thread of each host, and that
//! several threads and the end of a host lose none.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::task::Waker;
use std::thread;
use std::time::Duration;

use kinfolk_core::{
    Budget, Cancelled, Clock, Error, Priority, Result, Scope, cleanup, park, scope, sleep, spawn,
    yield_now,
};
use kinfolk_runtime::{HostClock, Runtime};
use kinfolk_testkit::guarded;
use kinfolk_tokio::Root;

use Priority::{High, Low, Normal};

const ALL: [Priority; 3] = [Low, Normal, High];

/// The bounds of the contract: so many high turns in a row, and one low turn in so many.
const HIGH_ROW: usize = 16;
const LOW_EVERY: usize = 32;

fn rt(workers: usize) -> Runtime {
    Runtime::builder()
        .workers(workers)
        .on_forced(Box::new(|_| {}))
        .build()
        .expect("a runtime")
}

fn tokio_rt(workers: usize) -> tokio::runtime::Runtime {
    let mut builder = match workers {
        0 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    builder.worker_threads(workers.max(1)).enable_all();
    builder.build().expect("a tokio runtime")
}

/// Runs what `test` makes as a task of the pool on each host that has one thread for it.
fn on_one_thread<F>(name: &'static str, test: fn() -> F)
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    guarded(name, move |_| {
        for workers in [0, 1] {
            let rt = rt(workers);
            rt.block_on(async move { kinfolk_core::on(kinfolk_core::Pool, test()).await })
                .unwrap_or_else(|error| panic!("{workers} workers: {error}"));
            let tokio = tokio_rt(workers);
            tokio.block_on(async move {
                let root = Root::builder().build();
                let answer = root.run(test()).await;
                answer.unwrap_or_else(|error| panic!("tokio, {workers} workers: {error}"));
                assert!(root.shutdown().await.unwrap().is_clean());
            });
        }
    });
}

/// The turns of some tasks, one after the other.
#[derive(Clone, Default)]
struct Order(Arc<Mutex<Vec<Priority>>>, Arc<AtomicBool>);

impl Order {
    /// Goes round until `turns` were taken by all together.
    async fn rounds(self, own: Priority, turns: usize) -> Result<(), Cancelled> {
        loop {
            {
                let mut order = self.0.lock().unwrap();
                if order.len() >= turns {
                    return Ok(());
                }
                if self.1.load(SeqCst) {
                    order.push(own);
                }
            }
            yield_now().await?;
        }
    }

    /// From here on turns are written down.
    fn begin(&self) {
        self.1.store(true, SeqCst);
    }

    /// The most turns of others in a row.
    fn most_without(&self, priority: Priority) -> usize {
        let order = self.0.lock().unwrap();
        let others = order.split(|one| *one == priority);
        others.map(<[_]>::len).max().expect("one piece at least")
    }
}

/// lane-5: while tasks of all three go round for ever on one thread, at most 16 turns in a
/// row are high, and one in 32 is low.
#[test]
fn lane_5_the_bounds_of_each_priority_on_one_thread() {
    on_one_thread("the bounds", || async {
        const TURNS: usize = 40_000;
        for (highs, lows) in [(40, 2), (1, 1), (3, 500)] {
            let order = Order::default();
            scope(async |s| {
                for (priority, count) in [(High, highs), (Normal, 2), (Low, lows)] {
                    for _ in 0..count {
                        let rounds = order.clone().rounds(priority, TURNS);
                        s.task("round").priority(priority).launch(rounds);
                    }
                }
                // Every one of them has had a turn by then.
                for _ in 0..2_000 {
                    yield_now().await?;
                }
                order.begin();
                Ok(())
            })
            .await?;
            let (high, normal, low) = (
                order.most_without(High),
                order.most_without(Normal),
                order.most_without(Low),
            );
            // A normal turn, a low one, and a tick at which the injector is served.
            assert!(high <= 3, "{high} turns without a high one");
            assert!(
                normal <= HIGH_ROW + 1,
                "{normal} turns without a normal one"
            );
            assert!(low < LOW_EVERY, "{low} turns without a low one");
        }
        Ok(())
    });
}

/// How many turns of others go by until a task that yields ten times is done, beside 10,000
/// normal tasks that go round for ever.
async fn turns_of_a_request(priority: Priority) -> Result<usize> {
    const OTHERS: usize = 10_000;
    let (turns, done) = (
        Arc::new(AtomicUsize::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    scope(async |s| {
        for _ in 0..OTHERS {
            let (turns, done) = (turns.clone(), done.clone());
            s.launch(async move {
                while !done.load(SeqCst) {
                    turns.fetch_add(1, SeqCst);
                    yield_now().await?;
                }
                Ok::<_, Cancelled>(())
            });
        }
        while turns.load(SeqCst) < 2 * OTHERS {
            yield_now().await?;
        }
        let request = s.task("request").priority(priority).spawn({
            let turns = turns.clone();
            async move {
                let before = turns.load(SeqCst);
                for _ in 0..10 {
                    yield_now().await?;
                }
                Ok::<_, Cancelled>(turns.load(SeqCst) - before)
            }
        });
        let took = request.await?;
        done.store(true, SeqCst);
        Ok(took)
    })
    .await
}

/// lane-5: what priorities are for. A high request of ten steps is through after a few turns,
/// however many tasks go round; a normal one stands behind all of them ten times.
#[test]
fn lane_5_a_high_task_does_not_wait_for_ten_thousand() {
    on_one_thread("a request", || async {
        let high = turns_of_a_request(High).await?;
        let normal = turns_of_a_request(Normal).await?;
        eprintln!("a request of ten steps waits for {high} turns if high, {normal} if normal");
        assert!(high <= 2, "{high} turns");
        assert!(normal >= 10 * 9_000, "{normal} turns");
        Ok(())
    });
}

/// lane-5: what a turn spawns with a priority is taken by another thread if the turn lasts.
#[test]
fn lane_5_another_thread_takes_what_waits_behind_a_long_turn() {
    async fn held(priority: Priority) -> Result<()> {
        let (send, take) = mpsc::channel();
        let scope = Scope::current().expect("a job");
        scope.task("behind").priority(priority).launch(async move {
            let _ = send.send(());
        });
        // The thread is held until another has run it.
        take.recv().map_err(|_| Error::msg("it never ran"))
    }
    guarded("a long turn", |_| {
        let rt = rt(2);
        let tokio = tokio_rt(2);
        for priority in [Low, High] {
            for _ in 0..20 {
                rt.block_on(
                    async move { kinfolk_core::on(kinfolk_core::Pool, held(priority)).await },
                )
                .unwrap();
                tokio.block_on(async move {
                    let root = Root::builder().build();
                    root.run(async move { spawn(held(priority)).await })
                        .await
                        .unwrap();
                    root.shutdown().await.unwrap();
                });
            }
        }
    });
}

/// Waits for a wake from outside.
#[derive(Clone, Default)]
struct Bell(Arc<Mutex<(usize, Option<Waker>)>>);

impl Bell {
    fn ring(&self) {
        let waker = {
            let mut bell = self.0.lock().unwrap();
            bell.0 += 1;
            bell.1.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }

    async fn heard(&self, times: usize) {
        std::future::poll_fn(|cx| {
            let mut bell = self.0.lock().unwrap();
            if bell.0 >= times {
                return std::task::Poll::Ready(());
            }
            bell.1 = Some(cx.waker().clone());
            std::task::Poll::Pending
        })
        .await
    }
}

/// lane-6: a thread that is no worker wakes high and low tasks, one at a time, while all
/// workers go to sleep again and again: none is lost.
#[test]
fn lane_6_no_wake_of_a_high_or_low_task_is_lost() {
    const ROUNDS: usize = 2_000;
    fn family(scope: &Scope) -> Vec<(Bell, mpsc::Receiver<()>)> {
        let mut all = Vec::new();
        for priority in ALL {
            let (bell, (send, take)) = (Bell::default(), mpsc::channel());
            let hears = bell.clone();
            scope.task("hears").priority(priority).launch(async move {
                for n in 1..=ROUNDS {
                    hears.heard(n).await;
                    let _ = send.send(());
                }
            });
            all.push((bell, take));
        }
        all
    }
    fn play(family: &[(Bell, mpsc::Receiver<()>)]) {
        for n in 0..ROUNDS {
            // One alone, or all three at once.
            let some = match n % 4 {
                3 => family,
                one => &family[one..=one],
            };
            some.iter().for_each(|(bell, _)| bell.ring());
            for (_, take) in some {
                take.recv().expect("it goes on");
            }
        }
        family
            .iter()
            .for_each(|(bell, _)| (0..ROUNDS).for_each(|_| bell.ring()));
    }
    guarded("wakes from outside", |_| {
        for workers in [1, 2, 4] {
            let rt = rt(workers);
            play(&family(&rt.scope()));
            let tokio = tokio_rt(workers);
            let root = {
                let _inside = tokio.enter();
                Root::builder().build()
            };
            play(&family(&root.scope()));
            tokio.block_on(async { root.shutdown().await }).unwrap();
        }
    });
}

/// Counts the low turns, and holds the thread of the next one on demand.
#[derive(Default)]
struct LowTurns {
    count: AtomicUsize,
    hold: AtomicBool,
    held: AtomicBool,
    done: AtomicBool,
}

impl LowTurns {
    async fn rounds(self: Arc<Self>) -> Result<(), Cancelled> {
        while !self.done.load(SeqCst) {
            self.count.fetch_add(1, SeqCst);
            while self.hold.load(SeqCst) {
                self.held.store(true, SeqCst);
                thread::yield_now();
            }
            self.held.store(false, SeqCst);
            yield_now().await?;
        }
        Ok(())
    }

    /// Holds the thread of the other worker while `f` runs on this one; how many low turns
    /// there were until then.
    fn without(&self, f: impl FnOnce()) -> usize {
        self.hold.store(true, SeqCst);
        while !self.held.load(SeqCst) {
            thread::yield_now();
        }
        f();
        let count = self.count.load(SeqCst);
        self.hold.store(false, SeqCst);
        count
    }
}

/// lane-5: a worker that has nothing but low tasks takes normal ones of its neighbour before
/// them. The neighbour is in a long turn, which has spawned more than it can do soon: the
/// next turns of this worker are those. Its look at how much others have to do comes once in
/// 127 turns, and would find them late.
#[test]
fn lane_5_normal_work_of_a_neighbour_goes_before_low_work() {
    const ROUNDS: usize = 30;
    const SPAWNED: usize = 300;
    const FIRST: usize = 32;
    guarded("a neighbour", |_| {
        let rt = rt(2);
        let lows = Arc::new(LowTurns::default());
        for _ in 0..8 {
            rt.scope()
                .task("low")
                .priority(Low)
                .launch(lows.clone().rounds());
        }
        let mut waited = 0;
        for _ in 0..ROUNDS {
            let (ran, low) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let (send, take) = mpsc::channel();
            let (turns, counts, until) = (lows.clone(), ran.clone(), low.clone());
            rt.scope().launch(async move {
                let scope = Scope::current().expect("a job");
                let before = turns.without(|| {
                    for _ in 0..SPAWNED {
                        let (turns, ran, low) = (turns.clone(), counts.clone(), until.clone());
                        scope.launch(async move {
                            if ran.fetch_add(1, SeqCst) + 1 == FIRST {
                                low.store(turns.count.load(SeqCst), SeqCst);
                            }
                        });
                    }
                });
                // This thread takes none of them before the other one has.
                while counts.load(SeqCst) < FIRST {
                    thread::yield_now();
                }
                let _ = send.send(before);
            });
            let before = take.recv().expect("the long turn");
            while ran.load(SeqCst) < SPAWNED {
                thread::yield_now();
            }
            waited += low.load(SeqCst) - before;
        }
        lows.done.store(true, SeqCst);
        assert!(
            waited <= 4 * ROUNDS,
            "{waited} low turns went before normal ones in {ROUNDS} rounds"
        );
        assert!(rt.shutdown(Duration::from_secs(10)).unwrap().is_clean());
    });
}

/// lane-5, time-6: timers that are due together run their tasks in the order of their
/// deadlines within one priority, and the high ones first.
#[test]
fn lane_5_timers_run_in_order_within_a_priority() {
    guarded("timers", |_| {
        let clock = HostClock::new();
        clock.pause();
        let rt = Runtime::builder()
            .workers(0)
            .clock(clock.shared())
            .build()
            .unwrap();
        let order: Arc<Mutex<Vec<(Priority, u64)>>> = Arc::default();
        for n in [3, 1, 5, 2, 4] {
            for priority in ALL {
                let order = order.clone();
                rt.scope()
                    .task("waits")
                    .priority(priority)
                    .launch(async move {
                        sleep(Duration::from_millis(n)).await?;
                        order.lock().unwrap().push((priority, n));
                        Ok::<_, Cancelled>(())
                    });
            }
        }
        while rt.pump(Budget::Turns(100)).unwrap().more {}
        let due = clock.now() + Duration::from_millis(10);
        clock.advance_to(due);
        while rt.pump(Budget::Turns(100)).unwrap().more {}
        let expected: Vec<_> = [High, Normal, Low]
            .into_iter()
            .flat_map(|priority| (1..=5).map(move |n| (priority, n)))
            .collect();
        assert_eq!(*order.lock().unwrap(), expected);
    });
}

/// lane-5: at shutdown low tasks clean up beside high ones that take their time.
#[test]
fn lane_5_low_tasks_clean_up_at_shutdown() {
    guarded("a shutdown", |_| {
        for workers in [0, 1, 2] {
            let rt = rt(workers);
            let (cleaned, high) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            for _ in 0..4 {
                let (cleaned, high) = (cleaned.clone(), high.clone());
                rt.scope().task("high").priority(High).launch(async move {
                    let _ = park().await;
                    // It goes round until all the low ones are through.
                    cleanup(async {
                        while cleaned.load(SeqCst) < 100 {
                            high.fetch_add(1, SeqCst);
                            yield_now().await?;
                        }
                        Ok::<_, Cancelled>(())
                    })
                    .await
                });
            }
            for _ in 0..100 {
                let cleaned = cleaned.clone();
                rt.scope().task("low").priority(Low).launch(async move {
                    let _ = park().await;
                    cleanup(async {
                        for _ in 0..3 {
                            yield_now().await?;
                        }
                        cleaned.fetch_add(1, SeqCst);
                        Ok::<_, Cancelled>(())
                    })
                    .await
                });
            }
            // All of them have parked.
            let all_wait = || {
                let seen = rt.snapshot();
                seen.nodes()
                    .iter()
                    .all(|node| node.parent.is_none() || node.polls > 0)
            };
            while rt.pump(Budget::Turns(1000)).unwrap().more || !all_wait() {}
            assert!(rt.shutdown(Duration::from_secs(30)).unwrap().is_clean());
            assert_eq!(cleaned.load(SeqCst), 100);
        }
    });
}

/// Counts what is dropped.
struct Dropped(Arc<AtomicUsize>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// lane-5: turns that wait in the queues of high and low tasks are dropped with their host,
/// and their jobs end.
#[test]
fn lane_5_queued_turns_go_with_their_host() {
    fn fill(scope: &Scope, drops: &Arc<AtomicUsize>) {
        for n in 0..300 {
            let held = Dropped(drops.clone());
            scope
                .task("queued")
                .priority(ALL[n % 3])
                .launch(async move {
                    let _held = held;
                    loop {
                        yield_now().await?;
                    }
                    #[allow(unreachable_code)]
                    Ok::<_, Cancelled>(())
                });
        }
    }
    guarded("the end of a host", |_| {
        for workers in [0, 1, 2] {
            let drops = Arc::new(AtomicUsize::new(0));
            let rt = rt(workers);
            fill(&rt.scope(), &drops);
            drop(rt);
            assert_eq!(drops.load(SeqCst), 300, "{workers} workers");
            for polled in [false, true] {
                let drops = Arc::new(AtomicUsize::new(0));
                let tokio = tokio_rt(workers);
                let root = {
                    let _inside = tokio.enter();
                    Root::builder().on_forced(Box::new(|_| {})).build()
                };
                fill(&root.scope(), &drops);
                if polled {
                    tokio.block_on(async {
                        for _ in 0..5 {
                            tokio::task::yield_now().await;
                        }
                    });
                }
                drop(tokio);
                while root.counters().living() > 1 {
                    thread::yield_now();
                }
                assert_eq!(
                    drops.load(SeqCst),
                    300,
                    "tokio, {workers} workers, {polled}"
                );
                assert_eq!(root.tree().gauges().runnable, Some(0));
                // What comes later goes at once.
                fill(&root.scope(), &drops);
                assert_eq!(
                    drops.load(SeqCst),
                    600,
                    "tokio, {workers} workers, {polled}"
                );
            }
        }
    });
}

/// lane-5: the gauges count what waits in both queues.
#[test]
fn lane_5_gauges_show_what_waits() {
    let rt = rt(0);
    for priority in [High, Low, Low] {
        rt.scope().task("waits").priority(priority).launch(async {});
    }
    let gauges = rt.tree().gauges();
    let queued = |name| {
        gauges
            .queues
            .iter()
            .find(|(queue, _)| *queue == name)
            .unwrap()
            .1
    };
    assert_eq!(
        (queued("high"), queued("low"), gauges.runnable),
        (1, 2, Some(3))
    );
    assert!(rt.pump(Budget::Turns(1)).unwrap().more);
    while rt.pump(Budget::Turns(1)).unwrap().more {}
    assert_eq!(rt.tree().gauges().runnable, Some(0));
}
