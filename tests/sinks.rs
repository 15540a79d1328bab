//! Sinks that do not behave.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::task::Waker;
use std::time::{Duration, Instant};

use kinfolk_core::host::{BlockingCall, Host, TimerKey, TimerQueue, Turn, TurnRow};
use kinfolk_core::{
    Error, ErrorKind, Event, EventKind, Interests, Job, JobState, Sink, Tree, TreeOptions,
    checkpoint, launch, park, spawn,
};
use kinfolk_runtime::Runtime;
use kinfolk_testkit::{Sim, guarded};

/// Panics at the event after so many.
struct Fragile {
    calls: AtomicUsize,
    bears: usize,
}

impl Fragile {
    fn new(bears: usize) -> Arc<Fragile> {
        Arc::new(Fragile {
            calls: AtomicUsize::new(0),
            bears,
        })
    }
}

impl Sink for Fragile {
    fn event(&self, _: &Event) {
        if self.calls.fetch_add(1, SeqCst) >= self.bears {
            std::panic::resume_unwind(Box::new("no more"));
        }
    }

    fn interests(&self) -> Interests {
        Interests::ALL
    }
}

type Seen = Arc<Mutex<Vec<Error>>>;

fn hook(seen: &Seen) -> impl Fn(&Error) + Send + Sync + 'static {
    let seen = seen.clone();
    move |error| seen.lock().unwrap().push(error.clone())
}

fn is_reported_once(seen: &Seen) {
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert_eq!(seen[0].kind(), ErrorKind::Panicked);
    let words = seen[0].to_string();
    assert!(
        words.contains("the sink") && words.ends_with("no more"),
        "{words}"
    );
}

#[test]
fn see_4_a_sink_that_panics_is_called_no_more_and_reported() {
    // The first event, the root's, comes before anything runs.
    for bears in [0, 1, 7] {
        let (sink, seen) = (Fragile::new(bears), Seen::default());
        let mut sim = Sim::builder(1)
            .sink(sink.clone())
            .on_failure(hook(&seen))
            .build();
        let ran = sim.run(async {
            for _ in 0..10 {
                let _ = launch(async { checkpoint().await }).join().await?;
            }
            Ok::<_, Error>(10)
        });
        assert_eq!(ran.unwrap(), 10);
        sim.finish();
        assert_eq!(sink.calls.load(SeqCst), bears + 1);
        is_reported_once(&seen);
    }
}

/// On several threads that tell it at once it may be called by each of them.
#[test]
fn see_4_a_sink_that_panics_on_several_threads_is_reported_once() {
    guarded("a sink that panics", |_| {
        let (sink, seen) = (Fragile::new(40), Seen::default());
        let rt = Runtime::builder()
            .workers(2)
            .sink(sink.clone())
            .on_failure(Box::new(hook(&seen)))
            .build()
            .unwrap();
        let ran = rt.block_on(async {
            let tasks: Vec<_> = (0..200)
                .map(|_| kinfolk_core::spawn(async { checkpoint().await }))
                .collect();
            for task in tasks {
                task.await?;
            }
            Ok::<_, Error>(())
        });
        ran.unwrap();
        drop(rt);
        assert!(sink.calls.load(SeqCst) <= 40 + 3);
        is_reported_once(&seen);
    });
}

/// A clock that goes on with each look at it, and notes at which looks the jobs that it watches
/// were not cancelled yet.
#[derive(Default)]
struct Ticks {
    ticks: AtomicU64,
    turns: Mutex<Vec<Turn>>,
    watched: Mutex<Vec<(Job, u64)>>,
}

struct TickingHost(Arc<Ticks>, Instant);

impl Host for TickingHost {
    fn start(&self, turn: Turn) {
        self.0.turns.lock().unwrap().push(turn);
    }

    fn schedule(&self, ready: TurnRow) {
        self.0.turns.lock().unwrap().extend(ready);
    }

    fn now(&self) -> Instant {
        let tick = self.0.ticks.fetch_add(1, SeqCst);
        for (job, untouched) in self.0.watched.lock().unwrap().iter_mut() {
            if job.state() == JobState::Active {
                *untouched = tick;
            }
        }
        self.1 + Duration::from_nanos(tick)
    }

    fn virtual_time(&self) -> bool {
        true
    }

    fn set_timer(&self, at: Instant, waker: Waker) -> TimerKey {
        TimerQueue::new().insert(at, waker)
    }

    fn clear_timer(&self, _: TimerKey) -> Option<Waker> {
        None
    }

    fn run_blocking(&self, call: BlockingCall) {
        drop(call);
    }
}

/// Keeps all events.
#[derive(Default)]
struct Keeps(Mutex<Vec<Event>>);

impl Sink for Keeps {
    fn event(&self, event: &Event) {
        self.0.lock().unwrap().push(*event);
    }

    fn interests(&self) -> Interests {
        Interests::CAUSES
    }
}

/// A request and a hop have a time at which the job was not cancelled yet: whatever the cancel
/// brings about on another thread is not older.
#[test]
fn see_5_a_cancel_is_older_than_all_it_brings_about() {
    let (clock, events) = (Arc::new(Ticks::default()), Arc::new(Keeps::default()));
    let options = TreeOptions {
        sink: Some(events.clone()),
        ..TreeOptions::default()
    };
    let host = TickingHost(clock.clone(), Instant::now());
    let tree = Tree::new(Box::new(host), options);
    let inner = Arc::new(Mutex::new(None));
    let says = inner.clone();
    let outer = tree.root_scope().launch(async move {
        let task = spawn(park());
        *says.lock().unwrap() = Some(task.job());
        task.await
    });
    let run = || loop {
        let turns = std::mem::take(&mut *clock.turns.lock().unwrap());
        if turns.is_empty() {
            return;
        }
        for turn in turns {
            assert!(turn.run().is_none());
        }
    };
    run();
    let inner = inner.lock().unwrap().take().unwrap();
    let first = clock.ticks.load(SeqCst);
    *clock.watched.lock().unwrap() = vec![(outer.clone(), first), (inner.clone(), first)];
    assert!(outer.cancel("enough"));
    run();
    let watched = std::mem::take(&mut *clock.watched.lock().unwrap());
    let time_of = |job: &Job, is: fn(&EventKind) -> bool| {
        let events = events.0.lock().unwrap();
        let mut of_job = events.iter().filter(|event| event.job == job.id());
        of_job.find(|event| is(&event.kind)).unwrap().at
    };
    let asked = time_of(&outer, |kind| {
        matches!(kind, EventKind::CancelRequest { .. })
    });
    let came = time_of(&inner, |kind| matches!(kind, EventKind::CancelHop { .. }));
    // The tree has looked at the clock once before its own begins.
    assert!(
        first < asked && asked <= watched[0].1,
        "{asked} {watched:?}"
    );
    assert!(asked < came && came <= watched[1].1, "{came} {watched:?}");
}
