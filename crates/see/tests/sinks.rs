//! Sinks that do not behave: they panic, block, cancel and spawn where they are called.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, mpsc};

use kinfolk_core::{
    Error, Event, EventKind, Interests, Job, JobId, JobState, ReasonKind, Sink, Tree, checkpoint,
    current_job, detach, park, scope, spawn, yield_now,
};
use kinfolk_runtime::Runtime;
use kinfolk_see::{Causes, Recorder, Sinks};
use kinfolk_testkit::{Sim, guarded};

/// Cancels a job and spawns detached ones from inside its calls.
#[derive(Default)]
struct Meddler {
    target: Mutex<Option<Job>>,
    inside: AtomicBool,
    nested: AtomicBool,
    spawned: AtomicUsize,
}

impl Sink for Meddler {
    fn event(&self, event: &Event) {
        let was = self.inside.swap(true, SeqCst);
        self.nested.fetch_or(was, SeqCst);
        if matches!(event.kind, EventKind::PollBegin) {
            let target = self.target.lock().unwrap().take();
            if let Some(job) = target {
                assert!(job.cancel("by the sink"));
            }
            if current_job().is_some() && self.spawned.fetch_add(1, SeqCst) < 20 {
                detach(async { checkpoint().await });
            }
        }
        self.inside.store(false, SeqCst);
    }

    fn interests(&self) -> Interests {
        Interests::ALL
    }
}

#[test]
fn see_4_a_sink_may_cancel_and_spawn_and_hears_of_it_after_its_call() {
    for seed in 0..50 {
        let (meddler, causes) = (Arc::new(Meddler::default()), Causes::new());
        let both = Sinks::of([meddler.clone(), causes.clone()]);
        let mut sim = Sim::builder(seed).sink(both).build();
        let slot = meddler.clone();
        let id = sim
            .run(async move {
                let task = spawn(park());
                *slot.target.lock().unwrap() = Some(task.job());
                let id = task.id();
                let ended = task.outcome().await?;
                assert!(ended.is_cancelled());
                yield_now().await?;
                Ok::<_, Error>(id)
            })
            .unwrap();
        sim.finish();
        assert!(!meddler.nested.load(SeqCst), "called inside its own call");
        let trace = causes.why_cancelled(id).unwrap();
        assert_eq!(trace.entry.text.as_deref(), Some("by the sink"));
        assert_eq!(trace.job.ended.unwrap().1, JobState::Cancelled);
    }
}

/// One worker is held up in a sink: the others go on.
#[test]
fn see_4_a_sink_that_blocks_one_worker_blocks_no_other() {
    struct Blocks {
        enter: AtomicBool,
        gate: Mutex<mpsc::Receiver<()>>,
    }
    impl Sink for Blocks {
        fn event(&self, event: &Event) {
            if event.worker.is_some()
                && event.kind == EventKind::PollBegin
                && !self.enter.swap(true, SeqCst)
            {
                let _ = self.gate.lock().unwrap().recv();
            }
        }

        fn interests(&self) -> Interests {
            Interests::TURNS
        }
    }
    guarded("a sink that blocks", |_| {
        let (open, gate) = mpsc::channel();
        let sink = Arc::new(Blocks {
            enter: AtomicBool::new(false),
            gate: Mutex::new(gate),
        });
        let rt = Runtime::builder()
            .workers(2)
            .sink(sink.clone())
            .build()
            .unwrap();
        rt.block_on(async {
            let first = spawn(async { yield_now().await });
            while !sink.enter.load(SeqCst) {
                yield_now().await?;
            }
            // The other worker does all of these.
            for _ in 0..100 {
                spawn(async { yield_now().await }).await?;
            }
            open.send(()).map_err(|_| Error::msg("gone"))?;
            first.await?;
            Ok::<_, Error>(())
        })
        .unwrap();
    });
}

#[test]
fn see_4_of_several_sinks_one_that_panics_is_called_no_more() {
    struct Fragile(AtomicUsize);
    impl Sink for Fragile {
        fn event(&self, _: &Event) {
            if self.0.fetch_add(1, SeqCst) == 3 {
                std::panic::resume_unwind(Box::new("no more"));
            }
        }
    }
    let (fragile, recorder) = (Arc::new(Fragile(AtomicUsize::new(0))), Recorder::new());
    let both = Sinks::of([fragile.clone(), recorder.clone()]);
    assert_eq!(both.interests(), recorder.interests());
    let mut sim = Sim::builder(1).sink(both.clone()).build();
    sim.run(async {
        for _ in 0..10 {
            spawn(async { 1 }).await?;
        }
        Ok::<_, Error>(())
    })
    .unwrap();
    sim.tree();
    let events = recorder.recording().events.len();
    assert!(events > 50, "{events}");
    assert_eq!((fragile.0.load(SeqCst), both.broken()), (4, 1));
}

/// Says that it has heard of trouble, or nothing; and cancels a job meanwhile.
#[derive(Default)]
struct Hears {
    answer: Option<&'static str>,
    target: Mutex<Option<Job>>,
    inside: AtomicBool,
    nested: AtomicBool,
    heard: Mutex<Vec<String>>,
    tree: Mutex<Option<Tree>>,
}

impl Hears {
    fn new(answer: Option<&'static str>) -> Arc<Hears> {
        let rest = Hears::default();
        Arc::new(Hears { answer, ..rest })
    }
}

impl Sink for Hears {
    fn event(&self, event: &Event) {
        let was = self.inside.load(SeqCst);
        self.nested.fetch_or(was, SeqCst);
        let tree = self.tree.lock().unwrap().clone();
        if let Some(tree) = tree {
            assert_eq!(tree.tell_of_trouble("inside of a call"), None);
        }
        if matches!(event.kind, EventKind::CancelRequest { .. }) {
            self.heard.lock().unwrap().push("cancel".into());
        }
    }

    fn trouble(&self, what: &str) -> Option<String> {
        self.inside.store(true, SeqCst);
        self.heard.lock().unwrap().push(what.into());
        let target = self.target.lock().unwrap().take();
        if let Some(job) = target {
            job.cancel("by the sink");
        }
        self.inside.store(false, SeqCst);
        self.answer.map(String::from)
    }
}

/// Each of several sinks is told of trouble. What a sink does meanwhile is told after it, and
/// no trouble is told inside a call of a sink.
#[test]
fn see_4_trouble_is_told_to_each_sink_and_never_inside_a_call() {
    struct Breaks;
    impl Sink for Breaks {
        fn event(&self, _: &Event) {}

        fn trouble(&self, _: &str) -> Option<String> {
            std::panic::resume_unwind(Box::new("no trouble"))
        }
    }
    let (one, silent, other) = (
        Hears::new(Some("one")),
        Hears::new(None),
        Hears::new(Some("other")),
    );
    let all: [Arc<dyn Sink>; 4] = [one.clone(), Arc::new(Breaks), silent.clone(), other.clone()];
    let all = Sinks::of(all);
    let mut sim = Sim::builder(1).sink(all.clone()).build();
    let tree = sim.tree().clone();
    *other.tree.lock().unwrap() = Some(tree.clone());
    let parked = sim.root().launch(park());
    sim.settle();
    *one.target.lock().unwrap() = Some(parked);
    assert_eq!(tree.tell_of_trouble("a flood"), Some("one; other".into()));
    assert_eq!(all.broken(), 1);
    for sink in [one, silent, other] {
        assert_eq!(*sink.heard.lock().unwrap(), ["a flood", "cancel"]);
        assert!(!sink.nested.load(SeqCst), "called inside its own call");
        sink.tree.lock().unwrap().take();
    }
    sim.settle();
    sim.finish();

    let alone = Sim::builder(1)
        .sink(Arc::new(Breaks))
        .on_failure(|_| {})
        .build();
    assert_eq!(alone.tree().tell_of_trouble("once"), None);
    assert_eq!(alone.tree().tell_of_trouble("twice"), None);
    assert_eq!(Sim::seeded(1).tree().tell_of_trouble("no sink"), None);
}

/// Hands everything on to `causes`, and the first cancel only once its job is over.
struct LateCancel {
    held: AtomicBool,
    causes: Arc<Causes>,
    over: Mutex<Vec<JobId>>,
    one_more: Condvar,
}

impl Sink for LateCancel {
    fn event(&self, event: &Event) {
        let cancel = matches!(event.kind, EventKind::CancelRequest { .. });
        if cancel && !self.held.swap(true, SeqCst) {
            let mut over = self.over.lock().unwrap();
            while !over.contains(&event.job) {
                over = self.one_more.wait(over).unwrap();
            }
        }
        self.causes.event(event);
        if matches!(event.kind, EventKind::Finalize { .. }) {
            self.over.lock().unwrap().push(event.job);
            self.one_more.notify_all();
        }
    }

    fn interests(&self) -> Interests {
        Interests::CAUSES
    }
}

/// The thread that cancels is held up between its mark and what it says of it, until the task
/// has heard, and has left the tree: the cancel is known, and is older than the end.
#[test]
fn see_5_a_cancel_that_is_told_after_the_end() {
    guarded("a cancel that is told after the end", |_| {
        let sink = Arc::new(LateCancel {
            held: AtomicBool::new(false),
            causes: Causes::new(),
            over: Mutex::default(),
            one_more: Condvar::new(),
        });
        let rt = Runtime::builder()
            .workers(1)
            .sink(sink.clone())
            .build()
            .unwrap();
        let id = rt
            .block_on(async {
                let runs = Arc::new(AtomicBool::new(false));
                let says_so = runs.clone();
                let task = spawn(async move {
                    says_so.store(true, SeqCst);
                    while checkpoint().await.is_ok() {}
                    Ok::<_, Error>(())
                });
                // On the worker, so that it ends while this thread is held up.
                while !runs.load(SeqCst) {
                    yield_now().await?;
                }
                task.cancel("enough");
                let id = task.id();
                let _ = task.outcome().await?;
                Ok::<_, Error>(id)
            })
            .unwrap();
        let trace = sink.causes.why_cancelled(id).expect("it was cancelled");
        assert_eq!(trace.entry.reason, ReasonKind::Asked);
        let (ended, state) = trace.job.ended.unwrap();
        assert_eq!(state, JobState::Cancelled);
        assert!(ended >= trace.entry.at, "{trace:?}");
    });
}

/// The same cancels on eight threads: each that was cancelled has its way, and nothing is kept
/// of those that were not.
#[test]
fn see_5_causes_on_eight_threads() {
    guarded("causes on eight threads", |_| {
        let causes = Causes::keeping(10_000);
        let rt = Runtime::builder()
            .workers(8)
            .sink(causes.clone())
            .build()
            .unwrap();
        let ids = rt
            .block_on(async {
                let mut all = Vec::new();
                for _ in 0..50 {
                    let made = scope(async |s| {
                        let tasks: Vec<_> = (0..8)
                            .map(|_| {
                                s.spawn(async {
                                    let inner = spawn(park());
                                    let id = inner.id();
                                    let _ = spawn(async { Ok::<_, Error>(1) }).await;
                                    let _ = inner.await;
                                    Ok::<_, Error>(id)
                                })
                            })
                            .collect();
                        yield_now().await?;
                        let ids: Vec<_> = tasks.iter().map(|task| task.id()).collect();
                        for task in &tasks {
                            task.cancel("enough");
                        }
                        for task in tasks {
                            let _ = task.outcome().await?;
                        }
                        Ok(ids)
                    });
                    all.extend(made.await?);
                }
                Ok::<_, Error>(all)
            })
            .unwrap();
        drop(rt);
        assert_eq!(ids.len(), 400);
        for id in ids {
            let trace = causes.why_cancelled(id).expect("it was cancelled");
            assert_eq!((trace.entry.job.id, trace.hops.len()), (id, 0));
            assert!(trace.job.ended.unwrap().0 >= trace.entry.at);
        }
        assert_eq!(causes.forgotten(), 0);
    });
}
