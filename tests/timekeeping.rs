//! The timers of real hosts: on time while workers are in long turns, a few
//! turns late at most where turns are long, and in the order of their deadlines.

use std::io::Write as _;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use kinfolk_core::{
    Budget, Clock, Error, ErrorKind, Main, Pool, Scope, checkpoint, on, on_cancel, park, scope,
    sleep, sleep_until, timeout, timeout_at, yield_now,
};
use kinfolk_runtime::net::UnixStream;
use kinfolk_runtime::{Builder, Handle, HostClock, Runtime};
use kinfolk_testkit::{Gate, Log, VirtualClock, guarded};
use kinfolk_tokio::Root;

const MS: Duration = Duration::from_millis(1);

/// A turn of a test that does not return ends after this long all the same: a
/// test that waits for it fails, and does not hang.
const AT_MOST: Duration = Duration::from_secs(10);

/// What is on time on a machine that has other things to do. A shutdown takes 1.7 s of
/// it: its grace, its force and the way home of its threads.
const ON_TIME: Duration = Duration::from_secs(5);

fn builder(workers: usize) -> Builder {
    Runtime::builder()
        .workers(workers)
        .on_forced(Box::new(|_| {}))
}

/// As many turns that do not return as there are workers.
struct Spinners(Arc<AtomicBool>);

impl Spinners {
    /// All of them spin when this returns.
    fn start(handle: &Handle) -> Spinners {
        let over = Arc::new(AtomicBool::new(false));
        let spinning = Arc::new(AtomicUsize::new(0));
        for _ in 0..handle.workers() {
            let (over, spinning) = (over.clone(), spinning.clone());
            handle.scope().task("spinning").launch(async move {
                spinning.fetch_add(1, SeqCst);
                spin_until(&over);
            });
        }
        while spinning.load(SeqCst) < handle.workers() {
            std::thread::yield_now();
        }
        Spinners(over)
    }
}

impl Drop for Spinners {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

fn spin_until(over: &AtomicBool) {
    let began = Instant::now();
    while !over.load(SeqCst) && began.elapsed() < AT_MOST {
        std::hint::spin_loop();
    }
}

/// Runs `case` with each number of workers, all of which are in a long turn.
fn with_spinners(name: &'static str, case: fn(Runtime, &Spinners)) {
    guarded(name, move |watched| {
        for workers in [1, 2] {
            let rt = builder(workers).grace(200 * MS).build().unwrap();
            watched.watch(rt.tree());
            let spinners = Spinners::start(&rt);
            let began = Instant::now();
            case(rt, &spinners);
            let took = began.elapsed();
            drop(spinners);
            assert!(took < ON_TIME, "{workers} workers: {took:?}");
        }
    });
}

/// Also: lane-4.
#[test]
fn shutdown_1_is_on_time_while_every_worker_is_in_a_long_turn() {
    with_spinners("shutdown", |rt, _| {
        let workers = rt.workers();
        let report = rt.shutdown(200 * MS).unwrap();
        let names: Vec<_> = report.stragglers.iter().map(|node| &*node.name).collect();
        assert_eq!(names, vec!["spinning"; workers], "{report}");
    });
}

/// Also: lane-4.
#[test]
fn shutdown_1_a_drop_is_on_time_while_every_worker_is_in_a_long_turn() {
    with_spinners("drop", |rt, _| drop(rt));
}

#[test]
fn lane_4_a_sleep_ends_while_every_worker_is_in_a_long_turn() {
    with_spinners("block_on", |rt, spinners| {
        rt.block_on(sleep(10 * MS)).unwrap();
        let late = rt.block_on(timeout(10 * MS, Gate::new().wait()));
        assert_eq!(late.unwrap_err().kind(), ErrorKind::TimedOut);
        let asleep = rt.scope().task("main").on(Main).spawn(sleep(10 * MS));
        rt.wait_for(asleep).unwrap().unwrap();
        // It ends on a worker, so that it needs one at last.
        rt.scope_blocking(|s| {
            let waits = rt.scope().task("main").on(Main).spawn(sleep(10 * MS));
            s.wait(waits).unwrap();
            spinners.0.store(true, SeqCst);
        })
        .unwrap();
        rt.shutdown(MS).unwrap();
    });
}

/// The main thread has something to do all the time, and looks at the clock all
/// the same.
#[test]
fn lane_4_a_busy_main_lane_keeps_time_while_every_worker_is_in_a_long_turn() {
    with_spinners("busy main", |rt, _| {
        let spun = rt.block_on(async {
            let asleep = on(Main, sleep(10 * MS));
            let job = asleep.job();
            while !job.is_ended() {
                yield_now().await?;
            }
            asleep.await?;
            let points = async {
                loop {
                    checkpoint().await?;
                }
                #[expect(unreachable_code)]
                Ok::<_, Error>(())
            };
            Ok::<_, Error>(timeout(10 * MS, points).await)
        });
        assert_eq!(spun.unwrap().unwrap_err().kind(), ErrorKind::TimedOut);
        rt.shutdown(MS).unwrap();
    });
}

/// Opens a gate when it is woken.
struct Opens(Gate);

impl Wake for Opens {
    fn wake(self: Arc<Self>) {
        self.0.open();
    }
}

/// The main thread sleeps already, for good or until a later timer, when a
/// worker that does not come back sets one.
#[test]
fn lane_4_a_timer_that_a_busy_worker_sets_wakes_the_main_thread() {
    guarded("set by a worker", |watched| {
        for later in [false, true] {
            let rt = builder(1).build().unwrap();
            watched.watch(rt.tree());
            let _later = later.then(|| rt.scope().spawn(sleep(3600 * 1000 * MS)));
            let fired = Gate::new();
            let over = Arc::new(AtomicBool::new(false));
            let (inner, ended) = (fired.clone(), over.clone());
            let handle = rt.handle().clone();
            let worker = rt.scope().task("setter").spawn(async move {
                // Nothing else tells when the main thread sleeps. If it does not
                // yet, it looks at the timers before it does.
                let began = Instant::now();
                while began.elapsed() < 20 * MS {
                    std::hint::spin_loop();
                }
                let mut asleep = pin!(sleep(10 * MS));
                let waker = Waker::from(Arc::new(Opens(inner)));
                assert!(
                    asleep
                        .as_mut()
                        .poll(&mut Context::from_waker(&waker))
                        .is_pending()
                );
                spin_until(&ended);
                drop(handle);
            });
            let began = Instant::now();
            rt.wait_for(fired.wait()).unwrap();
            let took = began.elapsed();
            over.store(true, SeqCst);
            rt.wait_for(worker).unwrap().unwrap();
            assert!(took < ON_TIME, "{took:?}");
        }
    });
}

/// The worker that slept until the timer is woken for a turn that does not
/// return.
#[test]
fn lane_4_a_timer_fires_although_its_keeper_went_to_work() {
    guarded("the keeper works", |watched| {
        let rt = builder(1).build().unwrap();
        watched.watch(rt.tree());
        let over = Arc::new(AtomicBool::new(false));
        let (ended, scope) = (over.clone(), rt.scope());
        let began = Instant::now();
        rt.block_on(async move {
            let asleep = on(Main, sleep(50 * MS));
            on(Pool, sleep(MS)).await?;
            scope
                .task("spinning")
                .launch(async move { spin_until(&ended) });
            asleep.await
        })
        .unwrap();
        let took = began.elapsed();
        over.store(true, SeqCst);
        assert!(took < ON_TIME, "{took:?}");
    });
}

/// Turns of a millisecond, and how many of them begin after something is due.
#[derive(Clone)]
struct LongTurns {
    over: Arc<AtomicBool>,
    epoch: Instant,
    /// Since when something is due, in nanoseconds since `epoch`; the greatest
    /// number while nothing is.
    due: Arc<AtomicU64>,
    late: Arc<AtomicUsize>,
}

/// How many tasks take such turns.
const BUSY: usize = 2;

/// How many of them may begin until what is due has its turn: each task has one,
/// since the queue is fair; a few go by until a thread looks.
const FEW: usize = BUSY + 4;

impl LongTurns {
    fn start(scope: &Scope, main: bool) -> LongTurns {
        let turns = LongTurns {
            over: Arc::new(AtomicBool::new(false)),
            epoch: Instant::now(),
            due: Arc::new(AtomicU64::new(u64::MAX)),
            late: Arc::new(AtomicUsize::new(0)),
        };
        for _ in 0..BUSY {
            let turns = turns.clone();
            let body = async move {
                while !turns.over.load(SeqCst) {
                    turns.turn();
                    yield_now().await?;
                }
                Ok::<_, Error>(())
            };
            match main {
                true => scope.task("busy").on(Main).launch(body),
                false => scope.task("busy").launch(body),
            };
        }
        turns
    }

    fn turn(&self) {
        let began = Instant::now();
        if (began - self.epoch).as_nanos() as u64 >= self.due.load(SeqCst) {
            self.late.fetch_add(1, SeqCst);
        }
        while began.elapsed() < MS {
            std::hint::spin_loop();
        }
    }

    fn due_at(&self, at: Instant) {
        self.late.store(0, SeqCst);
        self.due.store((at - self.epoch).as_nanos() as u64, SeqCst);
    }

    /// Has its turn: how many came first.
    fn late(&self) -> usize {
        self.due.store(u64::MAX, SeqCst);
        self.late.load(SeqCst)
    }
}

const ROUNDS: usize = 12;

/// The middle one: what a loaded machine does to one round decides nothing.
fn middle(mut late: Vec<usize>) -> usize {
    late.sort_unstable();
    eprintln!("turns that came first: {late:?}");
    late[late.len() / 2]
}

/// Runs `case` as a task among long turns of its own lane, on a thread that turns
/// that lane alone.
fn among_long_turns<F>(name: &'static str, case: fn(LongTurns) -> F)
where
    F: Future<Output = Result<Vec<usize>, Error>> + Send + 'static,
{
    guarded(name, move |watched| {
        for (workers, main) in [(0, false), (0, true), (1, false), (1, true)] {
            let rt = builder(workers).build().unwrap();
            watched.watch(rt.tree());
            let turns = LongTurns::start(&rt.scope(), main);
            let body = case(turns.clone());
            let task = match main {
                true => rt.scope().task("case").on(Main).spawn(body),
                false => rt.scope().task("case").spawn(body),
            };
            let late = rt.wait_for(task).unwrap().unwrap();
            turns.over.store(true, SeqCst);
            let late = middle(late);
            assert!(
                late <= FEW,
                "{workers} workers, main lane {main}: {late} turns came first"
            );
        }
    });
}

#[test]
fn lane_4_a_timer_waits_for_few_long_turns() {
    among_long_turns("timer", |turns| async move {
        let mut late = Vec::new();
        for _ in 0..ROUNDS {
            turns.due_at(Instant::now() + MS);
            sleep(MS).await?;
            late.push(turns.late());
        }
        Ok(late)
    });
}

/// Nothing was to be done for a while: the first long turns are noticed soon.
#[test]
fn lane_4_a_timer_waits_for_few_long_turns_after_a_rest() {
    guarded("after a rest", |_| {
        for workers in [0, 1] {
            let rt = builder(workers).build().unwrap();
            let scope = rt.scope();
            let late = rt.scope().spawn(async move {
                // Many short turns.
                for _ in 0..1000 {
                    yield_now().await?;
                }
                let mut late = Vec::new();
                for _ in 0..ROUNDS {
                    sleep(5 * MS).await?;
                    let turns = LongTurns::start(&scope, false);
                    turns.due_at(Instant::now() + MS);
                    sleep(MS).await?;
                    late.push(turns.late());
                    turns.over.store(true, SeqCst);
                }
                Ok::<_, Error>(late)
            });
            let late = middle(rt.wait_for(late).unwrap().unwrap());
            assert!(late <= FEW, "{workers} workers: {late} turns came first");
        }
    });
}

#[test]
fn lane_4_input_waits_for_few_long_turns() {
    among_long_turns("i/o", |turns| async move {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let ours = UnixStream::try_from(ours)?;
        let mut theirs = theirs;
        let mut late = Vec::new();
        for _ in 0..ROUNDS {
            let mut writer = theirs.try_clone()?;
            let there = turns.clone();
            let thread = std::thread::spawn(move || {
                std::thread::yield_now();
                there.due_at(Instant::now());
                writer.write_all(b"x").unwrap();
            });
            let (read, _) = ours.read(Vec::with_capacity(1)).await;
            assert_eq!(read?, 1);
            late.push(turns.late());
            thread.join().unwrap();
        }
        theirs.flush()?;
        Ok(late)
    });
}

#[test]
fn lane_4_a_wake_from_another_thread_waits_for_few_long_turns() {
    among_long_turns("wake", |turns| async move {
        let mut late = Vec::new();
        for _ in 0..ROUNDS {
            let gate = Gate::new();
            let (open, there) = (gate.clone(), turns.clone());
            let thread = std::thread::spawn(move || {
                there.due_at(Instant::now());
                open.open();
            });
            gate.wait().await;
            late.push(turns.late());
            thread.join().unwrap();
        }
        Ok(late)
    });
}

/// Tasks that say their number when they wake, at so many milliseconds after
/// `start`; all of them sleep when `asleep` says so.
fn sleepers(scope: &Scope, main: bool, start: Instant, after: &[u32]) -> (Log, Arc<AtomicUsize>) {
    let log = Log::new();
    let asleep = Arc::new(AtomicUsize::new(0));
    for (n, after) in after.iter().enumerate() {
        let (log, asleep) = (log.clone(), asleep.clone());
        let at = start + *after * MS;
        let body = async move {
            let mut slept = pin!(sleep_until(at));
            std::future::poll_fn(|cx| {
                let polled = slept.as_mut().poll(cx);
                asleep.fetch_max(n + 1, SeqCst);
                polled
            })
            .await?;
            log.say(n.to_string());
            Ok::<_, Error>(())
        };
        match main {
            true => scope.task("sleeper").on(Main).launch(body),
            false => scope.task("sleeper").launch(body),
        };
    }
    (log, asleep)
}

/// When each is due, and the order: equal ones as they were set.
const DUE: [u32; 8] = [50, 10, 30, 30, 20, 30, 40, 10];
const ORDER: &str = "1 7 4 2 3 5 6 0";

#[test]
fn time_6_timers_due_together_run_in_order_where_one_thread_turns_a_lane() {
    guarded("order", |_| {
        for _ in 0..20 {
            for (workers, main) in [(0, false), (0, true), (1, false), (1, true), (2, true)] {
                let clock = HostClock::new();
                clock.pause();
                let rt = builder(workers).clock(clock.shared()).build().unwrap();
                let start = clock.now() + MS;
                // One after the other, so that they are set in this order.
                let (log, asleep) = sleepers(&rt.scope(), main, start, &DUE);
                rt.wait_for(async {
                    std::future::poll_fn(|cx| match asleep.load(SeqCst) == DUE.len() {
                        true => std::task::Poll::Ready(()),
                        false => {
                            cx.waker().wake_by_ref();
                            std::task::Poll::Pending
                        }
                    })
                    .await;
                })
                .unwrap();
                clock.advance(100 * MS);
                rt.block_on(async {
                    while log.text().split_whitespace().count() < DUE.len() {
                        yield_now().await?;
                    }
                    Ok::<_, Error>(())
                })
                .unwrap();
                assert_eq!(log.text(), ORDER, "{workers} workers, main lane {main}");
            }
        }
    });
}

/// One is fired by a worker, which leaves it to the main thread, and the later one
/// by the main thread itself, in one frame.
#[test]
fn time_6_what_a_worker_has_fired_goes_before_what_a_pump_fires() {
    guarded("fired elsewhere", |_| {
        let clock = HostClock::new();
        clock.pause();
        let rt = builder(1).clock(clock.shared()).build().unwrap();
        let (log, asleep) = sleepers(&rt.scope(), true, clock.now(), &[20, 10]);
        while asleep.load(SeqCst) < 2 {
            rt.pump(Budget::Turns(10)).unwrap();
        }
        clock.advance(15 * MS);
        while rt.gauges().queue("main") != Some(1) {
            std::thread::yield_now();
        }
        // The worker, which keeps the timers, may fire it too: then it is no test,
        // but no failure either.
        clock.advance(15 * MS);
        while log.text().split_whitespace().count() < 2 {
            rt.pump(Budget::Turns(10)).unwrap();
        }
        assert_eq!(log.text(), "1 0");
    });
}

/// One is fired by a pump while the only worker is in a long turn, and the later
/// one by that worker.
#[test]
fn time_6_what_a_pump_has_fired_goes_before_what_the_only_worker_fires() {
    guarded("fired by the pump", |_| {
        let clock = HostClock::new();
        clock.pause();
        let rt = builder(1).clock(clock.shared()).build().unwrap();
        let (log, asleep) = sleepers(&rt.scope(), false, clock.now(), &[20, 10]);
        while asleep.load(SeqCst) < 2 {
            std::thread::yield_now();
        }
        let (over, spinning) = (Arc::new(AtomicBool::new(false)), Gate::new());
        let (ended, begun) = (over.clone(), spinning.clone());
        rt.scope().task("busy").launch(async move {
            // Long turns, so that the worker looks after each.
            for _ in 0..8 {
                let began = Instant::now();
                while began.elapsed() < MS {
                    std::hint::spin_loop();
                }
                yield_now().await?;
            }
            begun.open();
            spin_until(&ended);
            yield_now().await
        });
        rt.wait_for(spinning.wait()).unwrap();
        clock.advance(15 * MS);
        assert_eq!(rt.pump(Budget::Turns(10)).unwrap().fired, 1);
        clock.advance(15 * MS);
        over.store(true, SeqCst);
        while log.text().split_whitespace().count() < 2 {
            std::thread::yield_now();
        }
        assert_eq!(log.text(), "1 0");
    });
}

/// Also on tokio, with one thread of its own or one worker.
#[test]
fn time_6_timers_due_together_run_in_order_on_one_thread_of_tokio() {
    guarded("tokio", |_| {
        for workers in [0, 1] {
            let tokio = match workers {
                0 => tokio::runtime::Builder::new_current_thread()
                    .enable_time()
                    .build(),
                _ => tokio::runtime::Builder::new_multi_thread()
                    .worker_threads(workers)
                    .enable_time()
                    .build(),
            };
            tokio.unwrap().block_on(async {
                let root = Root::builder().build();
                let start = Instant::now() + 200 * MS;
                let (log, asleep) = sleepers(&root.scope(), false, start, &DUE);
                while asleep.load(SeqCst) < DUE.len() {
                    tokio::task::yield_now().await;
                }
                // A turn of the only thread in which all of them come due.
                root.run(async move {
                    while Instant::now() < start + 100 * MS {
                        std::hint::spin_loop();
                    }
                })
                .await
                .unwrap();
                root.run(async {
                    sleep(10 * MS).await?;
                    Ok::<_, Error>(())
                })
                .await
                .unwrap();
                assert_eq!(log.text(), ORDER, "{workers} workers");
            });
        }
    });
}

/// A virtual clock that counts how often everything was idle.
struct Counting(VirtualClock, Arc<AtomicUsize>);

impl Clock for Counting {
    fn now(&self) -> Instant {
        self.0.now()
    }

    fn is_virtual(&self) -> bool {
        true
    }

    fn idle(&self, next: Option<Instant>) -> bool {
        // What goes round for ever ends with the test.
        self.1.fetch_add(1, SeqCst) < 10_000 && self.0.idle(next)
    }
}

/// More often than that and it goes round for nothing.
const OFTEN: usize = 10;

/// True if every thread of this process whose name begins so is asleep, and `main` too.
fn are_asleep(names: &str, main: libc::pid_t) -> bool {
    let tasks = std::fs::read_dir("/proc/self/task").expect("the threads of a process");
    tasks.flatten().all(|task| {
        // One that has just ended has none.
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        let named = stat
            .split_once('(')
            .is_some_and(|(_, rest)| rest.starts_with(names));
        let is_main = task.file_name().to_str() == Some(&main.to_string());
        let state = stat
            .rsplit_once(')')
            .map_or("", |(_, rest)| rest.trim_start());
        !(named || is_main) || state.starts_with('S')
    })
}

/// A timer that a virtual clock cannot reach is never: no thread turns round it.
#[test]
fn test_1_a_timer_out_of_reach_does_not_keep_a_thread_busy() {
    guarded("out of reach", |_| {
        for workers in [0, 1, 2] {
            let idle = Arc::new(AtomicUsize::new(0));
            let clock = Counting(VirtualClock::new(), idle.clone());
            let rt = builder(workers)
                .name("far")
                .clock(Arc::new(clock))
                .build()
                .unwrap();
            let never = rt.scope().spawn(sleep(Duration::from_millis(u64::MAX)));
            let gate = Gate::new();
            let open = gate.clone();
            let seen = idle.clone();
            // SAFETY: no arguments.
            let main = unsafe { libc::gettid() };
            let other = std::thread::spawn(move || {
                // Until the clock was idle and all have gone to sleep, for many looks. A
                // thread that goes round is ready to run, however slow the machine.
                let mut looks = 0;
                while looks < 50 && seen.load(SeqCst) < OFTEN {
                    let asleep = seen.load(SeqCst) > 0 && are_asleep("far", main);
                    looks = if asleep { looks + 1 } else { 0 };
                    std::thread::yield_now();
                }
                open.open();
            });
            rt.wait_for(gate.wait()).unwrap();
            other.join().unwrap();
            let times = idle.load(SeqCst);
            assert!(
                times < OFTEN,
                "{workers} workers: it was idle {times} times"
            );
            drop(never);
        }
    });
}

#[test]
fn test_1_a_timer_out_of_reach_does_not_keep_tokio_busy() {
    guarded("out of reach on tokio", |_| {
        let idle = Arc::new(AtomicUsize::new(0));
        let tokio = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        tokio.block_on(async {
            let clock = Counting(VirtualClock::new(), idle.clone());
            let root = Root::builder().clock(Arc::new(clock)).build();
            let _never = root.scope().spawn(sleep(Duration::from_millis(u64::MAX)));
            while idle.load(SeqCst) == 0 {
                tokio::task::yield_now().await;
            }
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            let times = idle.load(SeqCst);
            assert!(times < OFTEN, "it was idle {times} times");
        });
    });
}

/// How long sleeps and echoes took.
#[derive(Default)]
struct Measured {
    slept: Vec<Duration>,
    echoed: Vec<Duration>,
}

impl Measured {
    fn print(mut self, name: &str) {
        self.slept.sort_unstable();
        self.echoed.sort_unstable();
        let of = |all: &[Duration]| (all[5], all[25], all[45]);
        eprintln!(
            "{name}: sleep(1 ms) {:?}, an echo {:?} (tenth, half, nine tenths)",
            of(&self.slept),
            of(&self.echoed)
        );
    }
}

async fn measured_here() -> Result<Measured, Error> {
    let mut measured = Measured::default();
    for _ in 0..50 {
        let began = Instant::now();
        sleep(MS).await?;
        measured.slept.push(began.elapsed());
    }
    let (stream, theirs) = UnixStream::pair()?;
    let server = Scope::current().unwrap().spawn(async move {
        let stream = theirs;
        for _ in 0..50 {
            let (read, bytes) = stream.read(Vec::with_capacity(1)).await;
            assert_eq!(read?, 1);
            stream.write_all(bytes).await.0?;
        }
        Ok::<_, Error>(())
    });
    for _ in 0..50 {
        let began = Instant::now();
        stream.write_all(vec![1]).await.0?;
        let (read, _) = stream.read(Vec::with_capacity(1)).await;
        assert_eq!(read?, 1);
        measured.echoed.push(began.elapsed());
    }
    server.await?;
    Ok(measured)
}

/// The same with tokio's own means.
async fn measured_on_tokio() -> Measured {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut measured = Measured::default();
    for _ in 0..50 {
        let began = Instant::now();
        tokio::time::sleep(MS).await;
        measured.slept.push(began.elapsed());
    }
    let (mut stream, mut theirs) = tokio::net::UnixStream::pair().unwrap();
    let server = tokio::spawn(async move {
        for _ in 0..50 {
            let byte = theirs.read_u8().await.unwrap();
            theirs.write_u8(byte).await.unwrap();
        }
    });
    for _ in 0..50 {
        let began = Instant::now();
        stream.write_u8(1).await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), 1);
        measured.echoed.push(began.elapsed());
    }
    server.await.unwrap();
    measured
}

/// Prints how long a sleep and an echo take while four tasks take turns of a
/// millisecond, here and on tokio.
#[test]
#[ignore = "a measurement"]
fn the_time_of_a_sleep_and_of_an_echo_among_long_turns() {
    for workers in [0, 1] {
        let rt = builder(workers).build().unwrap();
        let turns = LongTurns::start(&rt.scope(), false);
        let more = LongTurns::start(&rt.scope(), false);
        let measured = rt.scope().spawn(measured_here());
        let measured = rt.wait_for(measured).unwrap().unwrap();
        turns.over.store(true, SeqCst);
        more.over.store(true, SeqCst);
        measured.print(&format!("{workers} workers"));
        let mut builder = match workers {
            0 => tokio::runtime::Builder::new_current_thread(),
            _ => tokio::runtime::Builder::new_multi_thread(),
        };
        let tokio = builder.worker_threads(1).enable_all().build().unwrap();
        tokio.block_on(async {
            let over = Arc::new(AtomicBool::new(false));
            for _ in 0..2 * BUSY {
                let over = over.clone();
                tokio::spawn(async move {
                    while !over.load(SeqCst) {
                        let began = Instant::now();
                        while began.elapsed() < MS {
                            std::hint::spin_loop();
                        }
                        tokio::task::yield_now().await;
                    }
                });
            }
            let measured = tokio::spawn(measured_on_tokio()).await.unwrap();
            over.store(true, SeqCst);
            measured.print(&format!("tokio, {workers} workers"));
        });
    }
}

/// A call that returns when all others have been told, or very late. How many had been
/// told when it returned.
#[derive(Clone, Default)]
struct SlowCall {
    told: Arc<AtomicUsize>,
    told_before: Arc<AtomicUsize>,
}

const OTHERS: usize = 5;

impl SlowCall {
    fn call(&self) {
        let began = Instant::now();
        while self.told.load(SeqCst) < OTHERS && began.elapsed() < AT_MOST {
            std::thread::yield_now();
        }
        self.told_before.store(self.told.load(SeqCst), SeqCst);
    }
}

/// Makes the call, and then wakes.
struct SlowWaker(SlowCall, Waker);

impl Wake for SlowWaker {
    fn wake(self: Arc<Self>) {
        self.0.call();
        self.1.wake_by_ref();
    }
}

type Body = std::pin::Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// Waits until its deadline, with a hook that is slow.
fn with_slow_hook(slow: SlowCall, at: Instant) -> Body {
    Box::pin(timeout_at(at, async move {
        on_cancel(move |_| slow.call()).keep();
        std::future::pending::<Result<(), Error>>().await
    }))
}

/// Sleeps under a waker that is slow.
fn under_slow_waker(slow: SlowCall, at: Instant) -> Body {
    Box::pin(async move {
        let mut slept = pin!(sleep_until(at));
        std::future::poll_fn(|cx| {
            let waker = Waker::from(Arc::new(SlowWaker(slow.clone(), cx.waker().clone())));
            slept.as_mut().poll(&mut Context::from_waker(&waker))
        })
        .await?;
        Ok(())
    })
}

/// One whose timer calls something slow is set first; the deadlines of the others pass
/// at the same time, and a little later. All are told while that call goes on, whichever
/// thread makes it: one worker at least is left to turn them.
fn slow_call_holds_up_no_other(workers: usize, slow_body: fn(SlowCall, Instant) -> Body) {
    let rt = builder(workers).build().unwrap();
    let slow = SlowCall::default();
    let at = Instant::now() + 100 * MS;
    let first = rt.scope().spawn(slow_body(slow.clone(), at));
    while rt.counters().timers_pending() == 0 {
        std::thread::yield_now();
    }
    for n in 0..OTHERS {
        let told = slow.told.clone();
        rt.scope().launch(async move {
            let at = at + MS * (n as u32 / 3);
            let over = timeout_at(at, std::future::pending::<()>()).await;
            assert_eq!(over.unwrap_err().kind(), ErrorKind::TimedOut);
            told.fetch_add(1, SeqCst);
        });
    }
    let over = rt.wait_for(first.outcome()).unwrap();
    drop(over);
    let told = slow.told_before.load(SeqCst);
    assert_eq!(
        told, OTHERS,
        "{workers} workers: told while the call went on"
    );
}

#[test]
fn time_5_a_slow_hook_holds_up_no_other_deadline() {
    guarded("a slow hook", |_| {
        for workers in [2, 4] {
            slow_call_holds_up_no_other(workers, with_slow_hook);
        }
    });
}

#[test]
fn lane_4_a_slow_waker_holds_up_no_other_timer() {
    guarded("a slow waker", |_| {
        for workers in [2, 4] {
            slow_call_holds_up_no_other(workers, under_slow_waker);
        }
    });
}

/// A hook of one child is slow: its siblings have been told before it returns.
#[test]
fn cancel_1_a_slow_hook_keeps_no_sibling_from_its_turn() {
    guarded("a slow hook beside siblings", |_| {
        let rt = builder(2).build().unwrap();
        let slow = SlowCall::default();
        let parked = Arc::new(AtomicUsize::new(0));
        let family = rt.scope().spawn(scope({
            let (slow, parked) = (slow.clone(), parked.clone());
            async move |s| {
                let hook = slow.clone();
                for n in 0..=OTHERS {
                    let (told, parked) = (slow.told.clone(), parked.clone());
                    let hook = (n == OTHERS / 2).then(|| hook.clone());
                    s.launch(async move {
                        if let Some(hook) = hook {
                            on_cancel(move |_| hook.call()).keep();
                            parked.fetch_add(1, SeqCst);
                            return park().await.map(|_| ());
                        }
                        parked.fetch_add(1, SeqCst);
                        let over = park().await.map(|_| ());
                        told.fetch_add(1, SeqCst);
                        over
                    });
                }
                Ok(())
            }
        }));
        while parked.load(SeqCst) <= OTHERS {
            std::thread::yield_now();
        }
        family.cancel("enough");
        assert_eq!(slow.told_before.load(SeqCst), OTHERS);
        assert!(
            rt.wait_for(family.outcome())
                .unwrap()
                .unwrap()
                .is_cancelled()
        );
    });
}
