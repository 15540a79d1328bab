//! What is allocated, and what is kept alive by whom. Alone in its process:
//! it counts every allocation of it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::{Duration, Instant};

use kinfolk_core::host::{Host, TimerKey, TimerQueue, Turn, TurnRow};
use kinfolk_core::kit::Work;
use kinfolk_core::{
    Budget, Clock, Error, Main, Patience, ReasonKind, Scope, Tree, TreeOptions, checkpoint,
    next_pump, park, scope, shield, sleep, timeout,
};
use kinfolk_runtime::Runtime;

struct Counting;

static CALLS: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);

// SAFETY: passes every call on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.fetch_add(1, Relaxed);
        BYTES.fetch_add(layout.size(), Relaxed);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn calls<R>(f: impl FnOnce() -> R) -> (R, usize) {
    let before = CALLS.load(Relaxed);
    let answer = f();
    (answer, CALLS.load(Relaxed) - before)
}

/// A host whose queue never grows while we count.
#[derive(Clone)]
struct Bare(Arc<Mutex<VecDeque<Turn>>>, Instant);

impl Bare {
    fn run(&self) {
        loop {
            let turn = self.0.lock().unwrap().pop_front();
            match turn {
                Some(turn) => {
                    let again = turn.run();
                    self.0.lock().unwrap().extend(again);
                }
                None => return,
            }
        }
    }
}

impl Host for Bare {
    fn start(&self, turn: Turn) {
        self.0.lock().unwrap().push_back(turn);
    }

    fn schedule(&self, ready: TurnRow) {
        self.0.lock().unwrap().extend(ready);
    }

    fn run_blocking(&self, call: kinfolk_core::host::BlockingCall) {
        drop(call);
    }

    fn now(&self) -> Instant {
        self.1
    }

    fn set_timer(&self, at: Instant, waker: Waker) -> TimerKey {
        TimerQueue::new().insert(at, waker)
    }

    fn clear_timer(&self, _: TimerKey) -> Option<Waker> {
        None
    }
}

fn tree() -> (Tree, Bare) {
    let host = Bare(
        Arc::new(Mutex::new(VecDeque::with_capacity(100_000))),
        Instant::now(),
    );
    let options = TreeOptions {
        patience: Patience {
            unaware: Duration::MAX,
            cleanup: Duration::MAX,
        },
        ..TreeOptions::default()
    };
    (Tree::new(Box::new(host.clone()), options), host)
}

fn end(tree: Tree, host: &Bare) {
    tree.request_shutdown(ReasonKind::Shutdown);
    host.run();
    assert!(tree.root_job().is_ended(), "{}", tree.snapshot());
}

fn one_allocation_per_task() {
    let (tree, host) = tree();
    let root = tree.root_scope();
    drop(root.spawn(async {}));
    host.run();
    let (task, n) = calls(|| root.spawn(async { 7 }));
    assert_eq!(n, 1, "a spawned task is one allocation");
    let (job, n) = calls(|| root.launch(async {}));
    assert_eq!(n, 1, "a launched task is one allocation");
    let ((), n) = calls(|| host.run());
    assert_eq!(n, 0, "running and ending tasks allocates nothing");
    drop((task, job));

    let small = [1u8; 400];
    let (task, n) = calls(|| {
        root.spawn(async move {
            checkpoint().await?;
            Ok::<_, Error>(small.len())
        })
    });
    assert_eq!(n, 1, "a future below 512 bytes lives in the cell");
    drop(task);
    let large = [1u8; 600];
    let (task, n) = calls(|| {
        root.spawn(async move {
            checkpoint().await?;
            Ok::<_, Error>(large.len())
        })
    });
    assert_eq!(n, 2, "a larger one has an allocation of its own");
    drop(task);
    host.run();
    end(tree, &host);
}

fn an_ended_task_keeps_at_most_the_header_and_512_bytes() {
    let (tree, host) = tree();
    let root = tree.root_scope();
    let before = BYTES.load(Relaxed);
    let large = [1u8; 10_000];
    let job = root.launch(async move {
        checkpoint().await?;
        Ok::<_, Error>(large)
    });
    host.run();
    assert!(job.is_ended());
    let kept = BYTES.load(Relaxed) - before;
    assert!(kept <= 128 + 16 + 512, "an observer keeps {kept} bytes");
    drop(job);
    assert_eq!(BYTES.load(Relaxed), before, "and nothing when it is gone");
    end(tree, &host);
}

fn a_ready_point_allocates_nothing() {
    let (tree, host) = tree();
    let task = tree.root_scope().spawn(async {
        checkpoint().await?;
        let before = CALLS.load(Relaxed);
        for _ in 0..100 {
            checkpoint().await?;
        }
        assert_eq!(CALLS.load(Relaxed) - before, 0);
        Ok::<_, Error>(())
    });
    let ((), _) = calls(|| host.run());
    assert!(task.is_ended() && task.job().state() == kinfolk_core::JobState::Completed);
    drop(task);
    end(tree, &host);
}

/// A parked point under its job's own waker registers nothing.
fn parking_and_being_told_allocates_nothing() {
    let (tree, host) = tree();
    let job = tree.root_scope().launch(async { park().await });
    let ((), n) = calls(|| host.run());
    assert_eq!(n, 0, "parking");
    job.cancel("enough");
    let ((), n) = calls(|| host.run());
    // Only what the body makes of it: the error it returns.
    assert!(n <= 2, "being told took {n} allocations");
    end(tree, &host);
}

fn the_walk_allocates_nothing() {
    let cancel = |width: usize| {
        let (tree, host) = tree();
        let top = tree.root_scope().launch(async move {
            scope(async |s: Scope| {
                for _ in 0..width {
                    s.launch(async {
                        kinfolk_core::launch(async { park().await });
                        park().await
                    });
                }
                park().await?;
                Ok(())
            })
            .await
        });
        host.run();
        let (moved, n) = calls(|| top.cancel("enough"));
        assert!(moved);
        host.run();
        end(tree, &host);
        n
    };
    let (few, many) = (cancel(10), cancel(1000));
    assert_eq!(few, many, "the walk does not allocate per job");
    assert!(many <= 4, "a cancel takes {many} allocations");
}

/// A clock that its test moves on.
#[derive(Clone)]
struct ByHand(Arc<Mutex<Instant>>);

impl Clock for ByHand {
    fn now(&self) -> Instant {
        *self.0.lock().unwrap()
    }
}

/// A frame in which nothing is spawned: tasks of the main lane that await the
/// next frame, and one whose timer fires in it.
fn a_frame_allocates_nothing() {
    const FRAME: Duration = Duration::from_millis(16);
    let clock = ByHand(Arc::new(Mutex::new(Instant::now())));
    let rt = Runtime::builder()
        .workers(0)
        .clock(Arc::new(clock.clone()))
        .build()
        .expect("a runtime");
    for _ in 0..10 {
        rt.scope().on(Main).launch(async {
            loop {
                next_pump().await?;
            }
            #[allow(unreachable_code)]
            Ok::<_, Error>(())
        });
    }
    let slept = rt.scope().on(Main).spawn(async {
        let mut slept = 0;
        while slept < 60 {
            sleep(FRAME).await?;
            slept += 1;
        }
        Ok::<_, Error>(slept)
    });
    let frame = |budget| {
        *clock.0.lock().unwrap() += FRAME;
        rt.pump(budget).expect("outside any job")
    };
    // The tables grow to what they need.
    frame(Budget::Turns(100));
    frame(Budget::Turns(100));
    for n in 0..50 {
        let budget = match n % 2 {
            0 => Budget::Turns(100),
            _ => Budget::Time(FRAME),
        };
        let (pumped, calls) = calls(|| frame(budget));
        assert_eq!(pumped.fired, 1, "frame {n}");
        assert_eq!(pumped.ran, 11, "frame {n}");
        assert_eq!(calls, 0, "frame {n} allocates");
    }
    assert!(!slept.is_ended());
    drop(slept);
    rt.shutdown(Duration::ZERO).expect("outside any job");
}

/// Work that is done and gone leaves nothing behind, also while there is always
/// some under way.
fn work_that_is_over_keeps_nothing() {
    let (tree, host) = tree();
    let task = tree.root_scope().spawn(async {
        let mut under_way = Work::here(|| {}).expect("in a job");
        let mut before = 0;
        for n in 0..20_000 {
            if n == 10_000 {
                before = BYTES.load(Relaxed);
            }
            let next = Work::here(|| {}).expect("in a job");
            let mut over = std::mem::replace(&mut under_way, next);
            over.finish();
        }
        assert_eq!(BYTES.load(Relaxed), before);
        Ok::<_, Error>(())
    });
    host.run();
    assert_eq!(task.job().state(), kinfolk_core::JobState::Completed);
    drop(task);
    end(tree, &host);
}

/// Neither the root nor the tree outlives the last handle.
fn a_root_that_has_ended_keeps_nothing() {
    let come_and_go = || {
        let (tree, host) = tree();
        end(tree, &host);
    };
    // What a thread keeps for good.
    come_and_go();
    let before = BYTES.load(Relaxed);
    come_and_go();
    assert_eq!(BYTES.load(Relaxed), before);
}

/// Nesting adds, it does not multiply.
fn futures_are_small() {
    let nested = size_of_val(&timeout(Duration::ZERO, shield(sleep(Duration::ZERO))));
    assert!(nested < 256, "timeout(shield(sleep)) is {nested} bytes");
    let point = size_of_val(&checkpoint());
    assert!(point <= 8, "a checkpoint is {point} bytes");
}

/// One test, since the counters are the process's.
/// Also: K28.
#[test]
fn src_t23_allocations_header_size_and_pinning() {
    // Each cell from the allocator, so that they can be counted.
    // SAFETY: the only test of its process; nobody else looks meanwhile.
    unsafe { std::env::set_var("KINFOLK_CELLS", "malloc") };
    one_allocation_per_task();
    an_ended_task_keeps_at_most_the_header_and_512_bytes();
    a_ready_point_allocates_nothing();
    parking_and_being_told_allocates_nothing();
    the_walk_allocates_nothing();
    a_frame_allocates_nothing();
    work_that_is_over_keeps_nothing();
    a_root_that_has_ended_keeps_nothing();
    futures_are_small();
}
