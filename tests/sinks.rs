//! Sinks that do not behave.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use kinfolk_core::{Error, ErrorKind, Event, Interests, Sink, checkpoint, launch};
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
