//! A `tokio::spawn` in a job is reported to the hook that asks for it, and nothing else is.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use kinfolk_core::{Event, EventKind, Scope, Sink, scope, spawn, yield_now};
use kinfolk_tokio::{AdoptExt, BareSpawns, Root, RootBuilder};
use tokio::runtime::{Builder, Runtime};

fn single() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}

/// What the hook was told: the name of the job, and how many tasks.
type Found = Arc<Mutex<Vec<(String, usize)>>>;

fn reporting() -> (RootBuilder, Found) {
    let found = Found::default();
    let theirs = found.clone();
    let hook = move |bare: &BareSpawns| {
        let name = bare.job.name();
        theirs.lock().unwrap().push((name, bare.tasks));
    };
    (Root::builder().on_bare_spawn(Box::new(hook)), found)
}

fn taken(found: &Found) -> Vec<(String, usize)> {
    std::mem::take(&mut *found.lock().unwrap())
}

#[test]
fn cancel_9_a_bare_tokio_spawn_is_reported() {
    single().block_on(async {
        let (root, found) = reporting();
        let root = root.build();
        let bare = root.scope().task("bare").spawn(async {
            drop(tokio::spawn(async {}));
            yield_now().await?;
            drop(tokio::spawn(std::future::pending::<()>()));
            drop(tokio::spawn(std::future::pending::<()>()));
            Ok::<_, kinfolk_core::Error>(())
        });
        bare.await.unwrap();
        let told = [("bare".to_owned(), 1), ("bare".to_owned(), 2)];
        assert_eq!(taken(&found), told);
        root.shutdown().await.unwrap();
        assert!(taken(&found).is_empty());
    });
}

#[test]
fn cancel_9_what_has_a_scope_is_not_reported() {
    single().block_on(async {
        let (root, found) = reporting();
        let root = root.build();
        // Of others, between turns: not the job's.
        drop(tokio::spawn(std::future::pending::<()>()));
        let kept = root.scope().task("kept").spawn(scope(async |s: Scope| {
            let (one, other) = (s.spawn(async { 20 }), spawn(async { 1 }));
            let adopted = s.adopt(tokio::spawn(async { 21 }));
            Ok(one.await? + other.await? + adopted.await?)
        }));
        assert_eq!(kept.await.unwrap(), 42);
        root.shutdown().await.unwrap();
        assert!(taken(&found).is_empty());
    });
}

/// A sink of the program still gets its events, and no more than it wants.
#[test]
fn see_4_a_sink_beside_the_report_of_bare_spawns() {
    #[derive(Default)]
    struct Counts {
        jobs: AtomicUsize,
        turns: AtomicUsize,
    }

    impl Sink for Counts {
        fn event(&self, event: &Event) {
            match event.kind {
                EventKind::Create { .. } => self.jobs.fetch_add(1, SeqCst),
                EventKind::PollBegin | EventKind::PollEnd => self.turns.fetch_add(1, SeqCst),
                _ => 0,
            };
        }
    }

    single().block_on(async {
        let counts = Arc::new(Counts::default());
        let (root, found) = reporting();
        let root = root.sink(counts.clone()).build();
        root.scope()
            .spawn(async { drop(tokio::spawn(async {})) })
            .await
            .unwrap();
        root.shutdown().await.unwrap();
        assert_eq!(taken(&found).len(), 1);
        assert!(counts.jobs.load(SeqCst) > 0);
        assert_eq!(counts.turns.load(SeqCst), 0);
    });
}

/// On several workers what is new may be any thread's.
#[test]
fn cancel_9_on_workers_nothing_is_reported() {
    let mut workers = Builder::new_multi_thread();
    let workers = workers.worker_threads(2).enable_time().build().unwrap();
    workers.block_on(async {
        let (root, found) = reporting();
        let root = root.build();
        let bare = root.scope().spawn(async { drop(tokio::spawn(async {})) });
        bare.await.unwrap();
        root.shutdown().await.unwrap();
        assert!(taken(&found).is_empty());
    });
}
