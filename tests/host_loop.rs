//! Hosts that own the main loop: the same cases on the simulation, over seeds,
//! and on the native runtime with a clock that stands still until it is moved.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use kinfolk_core::{
    Budget, Clock, Error, Main, MissedTicks, OnMain, Outcome, Pool, Pumped, Scope, TimerToken,
    Tree, blocking, next_pump, on, park, sleep, spawn, with_world, yield_now,
};
use kinfolk_runtime::{HostClock, Runtime};
use kinfolk_testkit::harness::seeds;
use kinfolk_testkit::{Sim, VirtualClock, guarded};

/// What a case needs of a host that owns its main loop.
trait Looped {
    fn tree(&self) -> Tree;
    fn now(&self) -> Instant;
    fn pump(&mut self, budget: Budget) -> Pumped;
    fn run_expired(&mut self, now: Instant) -> Pumped;
    fn run_expired_with(&mut self, world: &mut World, now: Instant) -> Pumped;
    fn next_deadline(&self) -> Option<Instant>;
    /// Moves the clock on; nothing runs for it.
    fn advance(&mut self, by: Duration);

    fn scope(&self) -> Scope {
        self.tree().root_scope()
    }

    fn on_main(&self) -> OnMain {
        self.tree().on_main().expect("the main thread")
    }

    fn run_expired_after(&mut self, by: Duration) -> Pumped {
        self.run_expired(self.now() + by)
    }
}

#[derive(Default)]
struct World {
    score: u32,
}

struct Simulated {
    clock: VirtualClock,
    sim: Sim,
}

impl Looped for Simulated {
    fn tree(&self) -> Tree {
        self.sim.tree().clone()
    }
    fn now(&self) -> Instant {
        self.clock.now()
    }
    fn pump(&mut self, budget: Budget) -> Pumped {
        self.sim.pump(budget)
    }
    fn run_expired(&mut self, now: Instant) -> Pumped {
        self.sim.run_expired(now)
    }
    fn run_expired_with(&mut self, world: &mut World, now: Instant) -> Pumped {
        self.sim.run_expired_with(world, now)
    }
    fn next_deadline(&self) -> Option<Instant> {
        self.sim.next_deadline()
    }
    fn advance(&mut self, by: Duration) {
        self.clock.move_to(self.clock.elapsed() + by);
    }
}

struct Native {
    clock: HostClock,
    rt: Runtime,
}

impl Looped for Native {
    fn tree(&self) -> Tree {
        self.rt.tree().clone()
    }
    fn now(&self) -> Instant {
        self.clock.now()
    }
    fn pump(&mut self, budget: Budget) -> Pumped {
        self.rt.pump(budget).unwrap()
    }
    fn run_expired(&mut self, now: Instant) -> Pumped {
        self.rt.run_expired(now).unwrap()
    }
    fn run_expired_with(&mut self, world: &mut World, now: Instant) -> Pumped {
        self.rt.run_expired_with(world, now).unwrap()
    }
    fn next_deadline(&self) -> Option<Instant> {
        self.rt.next_deadline()
    }
    fn advance(&mut self, by: Duration) {
        self.clock.advance(by);
    }
}

fn native(workers: usize) -> Native {
    let clock = HostClock::new();
    clock.pause();
    let rt = Runtime::builder()
        .workers(workers)
        .clock(clock.shared())
        .on_failure(Box::new(|_| {}))
        .build()
        .unwrap();
    Native { clock, rt }
}

/// Runs a case on both hosts. What is left is shut down, and must go.
fn on_both(name: &'static str, case: fn(&mut dyn Looped)) {
    guarded(name, move |_| {
        for seed in 0..seeds() {
            let clock = VirtualClock::new();
            let sim = Sim::builder(seed).clock(clock.clone()).on_failure(|_| {});
            let mut host = Simulated {
                clock,
                sim: sim.build(),
            };
            case(&mut host);
            host.sim.finish();
        }
        for workers in [0, 1, 2] {
            for _ in 0..seeds().div_ceil(10) {
                let mut host = native(workers);
                case(&mut host);
                let report = host.rt.shutdown(Duration::from_secs(60)).unwrap();
                assert!(report.is_clean(), "{report}");
            }
        }
    });
}

const SECOND: Duration = Duration::from_secs(1);

#[derive(Clone, Default)]
struct Count(Arc<AtomicUsize>);

impl Count {
    fn up(&self) {
        self.0.fetch_add(1, SeqCst);
    }
    fn get(&self) -> usize {
        self.0.load(SeqCst)
    }
}

/// Counts its runs, each of which goes round the pool a few times.
fn busy_interval(scope: &Scope, period: Duration) -> (Count, TimerToken) {
    let count = Count::default();
    let counted = count.clone();
    let token = scope.interval(period, move || {
        let count = counted.clone();
        async move {
            for _ in 0..3 {
                yield_now().await?;
            }
            count.up();
            Ok::<_, Error>(())
        }
    });
    (count, token.unwrap())
}

/// Also: C8, C9, C11, C12.
#[test]
fn host_1_run_expired_runs_what_is_due_and_no_more() {
    on_both("run_expired", |host| {
        let start = host.now();
        let (each_second, _token) = busy_interval(&host.scope(), SECOND);
        let (each_three, _token) = busy_interval(&host.scope(), 3 * SECOND);
        let late = Count::default();
        let delayed = late.clone();
        let _token = host.scope().delay(2 * SECOND, move || async move {
            delayed.up();
        });
        for seconds in 0..10 {
            let pumped = host.run_expired(start + seconds * SECOND);
            assert_eq!(each_second.get(), seconds as usize + 1);
            assert_eq!(each_three.get(), seconds as usize / 3 + 1);
            assert_eq!(late.get(), usize::from(seconds >= 2));
            let next = Some(start + (seconds + 1) * SECOND);
            assert_eq!(pumped.next_deadline, next);
            assert_eq!(host.next_deadline(), next);
            // Nothing is due twice.
            let again = host.run_expired(start + seconds * SECOND);
            assert_eq!((again.fired, each_second.get()), (0, seconds as usize + 1));
        }
    });
}

/// Also: C8.
#[test]
fn host_1_run_expired_waits_for_what_a_run_has_started() {
    on_both("run_expired, children", |host| {
        let done = Count::default();
        let counted = done.clone();
        let token = host.scope().interval(SECOND, move || {
            let done = counted.clone();
            async move {
                // A hop to the main lane, a child of the pool, and one that
                // nobody awaits.
                let main = thread::current().id();
                let hop = done.clone();
                on(Main, async move { hop.up() }).await?;
                let child = done.clone();
                spawn(async move {
                    yield_now().await?;
                    on(Pool, async { thread::current().id() }).await?;
                    child.up();
                    Ok::<_, Error>(main)
                })
                .await?;
                let launched = done.clone();
                kinfolk_core::launch(async move {
                    yield_now().await?;
                    launched.up();
                    Ok::<_, Error>(())
                });
                Ok::<_, Error>(())
            }
        });
        let _token = token.unwrap();
        let start = host.now();
        for seconds in 0..5 {
            host.run_expired(start + seconds * SECOND);
            assert_eq!(done.get(), 3 * (seconds as usize + 1));
        }
    });
}

/// Also: C8, C13.
#[test]
fn host_1_run_expired_leaves_a_run_that_waits() {
    on_both("run_expired, a waiting run", |host| {
        let (begun, ended) = (Count::default(), Count::default());
        let counted = (begun.clone(), ended.clone());
        let token = host.scope().interval(SECOND, move || {
            let (begun, ended) = counted.clone();
            async move {
                begun.up();
                sleep(SECOND * 5 / 2).await?;
                ended.up();
                Ok::<_, Error>(())
            }
        });
        let token = token.unwrap();
        let start = host.now();
        let mut seen = Vec::new();
        for half in 0..10 {
            host.run_expired(start + half * SECOND / 2);
            seen.push((begun.get(), ended.get()));
        }
        // Begun at 0 and 3 seconds; the first ended at 2.5.
        let one = [(1, 0); 5];
        let rest = [(1, 1), (2, 1), (2, 1), (2, 1), (2, 1)];
        assert_eq!(seen, [one, rest].concat());
        assert_eq!(token.skipped(), 2);
    });
}

/// A pool that is never empty does not keep `run_expired`.
#[test]
fn host_1_run_expired_does_not_wait_for_the_pool() {
    on_both("run_expired, a busy pool", |host| {
        let spinner = host.scope().spawn(async {
            loop {
                yield_now().await?;
            }
            #[expect(unreachable_code, reason = "names the error type")]
            Ok::<_, Error>(())
        });
        let (count, _token) = busy_interval(&host.scope(), SECOND);
        host.run_expired_after(Duration::ZERO);
        assert_eq!(count.get(), 1);
        host.run_expired_after(SECOND);
        assert_eq!(count.get(), 2);
        assert!(!spinner.is_ended());
        spinner.cancel("enough");
    });
}

/// Also: C1, C11.
#[test]
fn host_2_runs_of_the_main_lane_happen_there() {
    on_both("main-lane timers", |host| {
        let home = thread::current().id();
        let ran = Count::default();
        let counted = ran.clone();
        let token = host
            .scope()
            .timer("steps")
            .on(Main)
            .interval(SECOND, move || {
                assert_eq!(thread::current().id(), home, "the factory");
                let ran = counted.clone();
                async move {
                    on(Pool, async {}).await?;
                    assert_eq!(thread::current().id(), home, "the run");
                    ran.up();
                    Ok::<_, Error>(())
                }
            });
        let _token = token.unwrap();
        // Not Send: it never leaves.
        let stays = Rc::new(Cell::new(0));
        let once = stays.clone();
        let main = host.on_main();
        let at = host.now() + SECOND;
        let _once = host
            .scope()
            .timer("once")
            .on(main)
            .at(at, move || async move {
                once.set(once.get() + 100);
            });
        let often = stays.clone();
        let token = host
            .scope()
            .timer("often")
            .on(main)
            .interval(SECOND, move || {
                let often = often.clone();
                async move { often.set(often.get() + 1) }
            });
        let _token = token.unwrap();
        assert_eq!(
            (ran.get(), stays.get()),
            (0, 0),
            "not before the first turn"
        );
        host.run_expired_after(Duration::ZERO);
        assert_eq!((ran.get(), stays.get()), (1, 1));
        host.run_expired_after(SECOND);
        assert_eq!((ran.get(), stays.get()), (2, 102));
        // A late host makes up for one and goes back to the grid.
        host.run_expired_after(SECOND * 7 / 2);
        assert_eq!((ran.get(), stays.get()), (3, 103));
        host.run_expired_after(SECOND / 2);
        assert_eq!((ran.get(), stays.get()), (4, 104));
    });
}

#[test]
fn host_2_a_failing_run_of_the_main_lane_does_not_stop_the_interval() {
    on_both("a failing run", |host| {
        let runs = Rc::new(Cell::new(0));
        let counted = runs.clone();
        let token = host
            .scope()
            .timer("fails")
            .on(host.on_main())
            .missed(MissedTicks::Delay)
            .interval(SECOND, move || {
                let runs = counted.clone();
                async move {
                    runs.set(runs.get() + 1);
                    match runs.get() {
                        1 => panic!("the first one"),
                        _ => Err::<(), _>(Error::msg("the others")),
                    }
                }
            })
            .unwrap();
        for _ in 0..3 {
            host.run_expired_after(SECOND);
        }
        assert_eq!(runs.get(), 3);
        assert!(token.cancel());
        host.run_expired_after(SECOND);
        assert_eq!(runs.get(), 3);
        assert!(token.is_finished());
    });
}

#[test]
fn host_1_run_expired_is_a_frame_and_lends_the_world() {
    on_both("frames", |host| {
        let frames = Rc::new(RefCell::new(Vec::new()));
        let frame = Rc::new(Cell::new(0));
        let task = {
            let (frames, frame) = (frames.clone(), frame.clone());
            host.scope().on(host.on_main()).spawn(async move {
                for _ in 0..3 {
                    next_pump().await?;
                    frames.borrow_mut().push(frame.get());
                    if frame.get() == 2 {
                        with_world(|world: &mut World| world.score += 7)?;
                    }
                }
                Ok::<_, Error>(())
            })
        };
        let mut world = World::default();
        for n in 0..4 {
            frame.set(n);
            match n {
                2 => drop(host.run_expired_with(&mut world, host.now())),
                1 => drop(host.pump(Budget::Time(SECOND))),
                _ => drop(host.run_expired(host.now())),
            }
        }
        assert_eq!(*frames.borrow(), [1, 2, 3]);
        assert_eq!(world.score, 7);
        assert!(task.is_ended());
    });
}

#[test]
fn host_1_a_pump_takes_as_many_turns_as_it_may() {
    on_both("budget", |host| {
        let turns = Rc::new(Cell::new(0));
        let counted = turns.clone();
        let task = host.scope().on(host.on_main()).spawn(async move {
            loop {
                counted.set(counted.get() + 1);
                yield_now().await?;
            }
            #[expect(unreachable_code, reason = "names the error type")]
            Ok::<_, Error>(())
        });
        let pumped = host.pump(Budget::Turns(10));
        assert_eq!((pumped.ran, pumped.more, turns.get()), (10, true, 10));
        let pumped = host.pump(Budget::Time(Duration::ZERO));
        assert_eq!((pumped.ran, pumped.more, turns.get()), (1, true, 11));
        task.cancel("enough");
        let pumped = host.pump(Budget::Turns(10));
        assert!(pumped.ran <= 2 && !pumped.more && task.is_ended());
        assert_eq!(host.pump(Budget::Turns(10)).ran, 0);
    });
}

/// Also: host-3, C16, C17.
#[test]
fn host_3_the_run_in_progress_outlives_its_token_and_is_seen() {
    on_both("token", |host| {
        let parked = Arc::new(Mutex::new(None));
        let seen = parked.clone();
        let timer = host.scope().timer("saver").on(Main);
        let token = timer.delay(SECOND, move || {
            let seen = seen.clone();
            async move {
                *seen.lock().unwrap() = kinfolk_core::current_job();
                park().await
            }
        });
        assert!(parked.lock().unwrap().is_none());
        host.run_expired_after(SECOND);
        let run = parked.lock().unwrap().clone().expect("it runs");
        let tree = host.tree().snapshot().to_string();
        assert!(tree.contains("saver"), "{tree}");
        drop(token);
        host.run_expired_after(SECOND);
        assert!(!run.is_ended(), "the run in progress goes on");
        run.cancel("enough");
        host.run_expired_after(Duration::ZERO);
        assert!(run.is_ended());
    });
}

/// Tasks of the main lane that say their number when they wake, so many seconds
/// from now. They are set in the order of their numbers.
fn sleepers(host: &mut dyn Looped, after: &[u32]) -> Arc<Mutex<Vec<usize>>> {
    let said = Arc::new(Mutex::new(Vec::new()));
    for (n, after) in after.iter().enumerate() {
        let (said, wait) = (said.clone(), *after * SECOND);
        host.scope().on(Main).launch(async move {
            sleep(wait).await?;
            said.lock().unwrap().push(n);
            Ok::<_, Error>(())
        });
        host.pump(Budget::Turns(1));
    }
    said
}

/// When each is due, and the order: equal ones as they were set.
const DUE: [u32; 8] = [5, 1, 3, 3, 2, 3, 4, 1];
const ORDER: [usize; 8] = [1, 7, 4, 2, 3, 5, 6, 0];

/// Also: host-1.
#[test]
fn time_6_timers_due_in_one_late_frame_run_in_the_order_of_their_deadlines() {
    on_both("a late frame", |host| {
        let said = sleepers(host, &DUE);
        host.advance(10 * SECOND);
        // With workers one of them may fire some a moment later.
        while said.lock().unwrap().len() < DUE.len() {
            host.pump(Budget::Turns(100));
        }
        assert_eq!(*said.lock().unwrap(), ORDER);
    });
}

/// Also: host-1.
#[test]
fn time_6_what_has_expired_runs_in_the_order_of_its_deadlines() {
    on_both("expired", |host| {
        let said = sleepers(host, &DUE);
        host.run_expired_after(10 * SECOND);
        assert_eq!(*said.lock().unwrap(), ORDER);
    });
}

/// Also: host-2.
#[test]
fn time_6_factory_timers_run_in_the_order_of_their_deadlines() {
    guarded("factories", |_| {
        for workers in [0, 1, 2] {
            let mut host = native(workers);
            let said = Arc::new(Mutex::new(Vec::new()));
            let tokens: Vec<_> = (DUE.iter().enumerate())
                .map(|(n, after)| {
                    let said = said.clone();
                    let timer = host.scope().timer("due").on(Main);
                    let token = timer.delay(*after * SECOND, move || async move {
                        said.lock().unwrap().push(n);
                    });
                    // They are set in the order of their numbers.
                    host.run_expired_after(Duration::ZERO);
                    token
                })
                .collect();
            host.run_expired_after(10 * SECOND);
            assert_eq!(*said.lock().unwrap(), ORDER, "{workers} workers");
            drop(tokens);
        }
    });
}

#[test]
fn host_1_a_time_that_has_not_come_is_an_error() {
    guarded("the future", |_| {
        let rt = Runtime::builder().workers(1).build().unwrap();
        let ahead = Instant::now() + Duration::from_secs(3600);
        let error = rt.run_expired(ahead).unwrap_err().to_string();
        assert!(error.contains("HostClock"), "{error}");
        rt.run_expired(Instant::now()).unwrap();
        let inside = rt.block_on(async { kinfolk_core::current_job().is_some() });
        assert!(inside.unwrap());
    });
}

/// Also: host-3.
#[test]
fn host_3_timers_of_the_runtime_hang_from_the_root() {
    guarded("rt.interval", |_| {
        let host = native(2);
        let (ran, rt) = (Count::default(), &host.rt);
        let (a, b, c, d) = (ran.clone(), ran.clone(), ran.clone(), ran.clone());
        let often = rt.interval(SECOND, move || {
            let a = a.clone();
            async move { a.up() }
        });
        let often = often.unwrap();
        let delay = rt.delay(SECOND, move || async move { b.up() });
        let at = rt.at(host.clock.now(), move || async move { c.up() });
        let named = rt
            .timer("named")
            .delay(SECOND, move || async move { d.up() });
        assert!(rt.interval(Duration::ZERO, || async {}).is_err());
        for token in [&often, &delay, &at, &named] {
            let parent = token.job().parent().map(|parent| parent.id());
            assert!(token.job().is_ended() || parent == Some(rt.tree().root_job().id()));
        }
        rt.run_expired(host.clock.now()).unwrap();
        assert_eq!(ran.get(), 2);
        host.clock.advance(SECOND);
        rt.run_expired(host.clock.now()).unwrap();
        assert_eq!(ran.get(), 5);
        let outcome = rt.wait_for(delay.job().join()).unwrap().unwrap();
        assert!(matches!(outcome, Outcome::Completed(())), "{outcome:?}");
    });
}

/// Frames in which nothing is due do not keep the pool, nor blocking calls, from going
/// on.
#[test]
fn host_1_the_pool_goes_on_during_frames_of_the_simulation() {
    for seed in 0..20 {
        let mut sim = Sim::seeded(seed);
        let task = sim.root().spawn(async {
            blocking(|_| 7).await?;
            Ok::<_, Error>(7)
        });
        let mut frames = 0;
        while !task.is_ended() {
            let now = sim.start() + sim.elapsed();
            match seed % 2 {
                0 => sim.run_expired_with(&mut 0_u32, now),
                _ => sim.pump_with(&mut 0_u32, Budget::Turns(1)),
            };
            frames += 1;
            assert!(frames < 1000, "seed {seed}: {}", sim.snapshot());
        }
        drop(task);
        sim.finish();
    }
}

/// Adds to the world once its time has come, and at its end.
async fn adds() -> Result<(), Error> {
    sleep(Duration::from_secs(1)).await?;
    with_world(|sum: &mut u32| *sum += 1)?;
    let told = park().await;
    with_world(|sum: &mut u32| *sum += 10)?;
    told?;
    Ok(())
}

/// Whatever turns the main lane of a simulation can lend the world.
#[test]
fn host_1_the_simulation_lends_the_world() {
    let mut sim = Sim::seeded(3);
    let mut sum = 0_u32;
    sim.root().task("adds").on(Main).launch(adds());
    sim.advance_with(&mut sum, Duration::from_secs(2));
    assert_eq!(sum, 1);
    let once = sim.root().task("once").on(Main).spawn(async {
        with_world(|sum: &mut u32| *sum += 100)?;
        Ok::<_, Error>(())
    });
    sim.wait_for_with(&mut sum, once).unwrap();
    assert_eq!(sum, 101);
    let report = sim.shutdown_with(&mut sum, Duration::from_secs(10));
    assert!(report.is_clean(), "{report}");
    assert_eq!(sum, 111);
}

/// And so can whatever turns that of a runtime.
#[test]
fn host_1_a_runtime_lends_the_world() {
    guarded("a_runtime_lends_the_world", |_| {
        for workers in [0, 2] {
            let rt = Runtime::builder()
                .workers(workers)
                .clock(Arc::new(VirtualClock::new()))
                .build()
                .unwrap();
            let mut sum = 0_u32;
            rt.scope().task("adds").on(Main).launch(adds());
            let slept = rt.scope().spawn(sleep(Duration::from_secs(2)));
            rt.wait_for_with(&mut sum, slept).unwrap().unwrap();
            assert_eq!(sum, 1);
            let once = async {
                with_world(|sum: &mut u32| *sum += 100)?;
                Ok::<_, Error>(())
            };
            rt.block_on_with(&mut sum, once).unwrap();
            assert_eq!(sum, 101);
            let report = rt.shutdown_with(&mut sum, Duration::from_secs(10));
            assert!(report.unwrap().is_clean());
            assert_eq!(sum, 111);
        }
    });
}
