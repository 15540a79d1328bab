//! Snapshots, their text and their JSON from places where a program seldom looks: inside
//! destructors, hooks, sinks, wakers and other looks, while roots come and go.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use kinfolk_core::{
    Error, Event, ReasonKind, Scope, Sink, Tree, WeakTree, launch, on_cancel, park, sleep,
};
use kinfolk_runtime::Runtime;
use kinfolk_see::{Examine, WriteJson};
use kinfolk_testkit::{Sim, guarded};

const SECOND: Duration = Duration::from_secs(1);

/// Looks in every way there is.
fn look(tree: &Tree) -> usize {
    let snapshot = tree.snapshot();
    let walked: ControlFlow<()> = tree.look_at_each(|_| ControlFlow::Continue(()));
    assert_eq!(walked, ControlFlow::Continue(()));
    assert!(tree.to_json().ends_with("\n]}\n"));
    assert!(snapshot.to_string().lines().count() <= snapshot.len());
    assert!(!snapshot.findings().to_string().is_empty());
    assert!(snapshot.diff(&snapshot).grown.is_empty());
    drop(snapshot.stuck(Duration::ZERO).to_string());
    snapshot.len()
}

/// Looks when it is dropped, called, or woken.
struct Looks {
    tree: WeakTree,
    seen: Arc<AtomicUsize>,
}

impl Looks {
    fn new(tree: &Tree, seen: &Arc<AtomicUsize>) -> Looks {
        Looks {
            tree: tree.downgrade(),
            seen: seen.clone(),
        }
    }

    fn look(&self) {
        if let Some(tree) = self.tree.upgrade() {
            look(&tree);
            self.seen.fetch_add(1, SeqCst);
        }
    }
}

impl kinfolk_core::Success for Looks {}

impl Drop for Looks {
    fn drop(&mut self) {
        self.look();
    }
}

impl Wake for Looks {
    fn wake(self: Arc<Self>) {
        self.look();
    }
}

/// see-2: a look from the destructor of a future, of an output and of a future that is
/// dropped by force, from a hook, from a waker, and from the hooks of the tree.
#[test]
fn see_2_looks_in_destructors_hooks_and_wakers() {
    guarded("anywhere", |_| {
        for seed in 0..20 {
            let seen = Arc::new(AtomicUsize::new(0));
            let tree: Arc<OnceLock<WeakTree>> = Arc::default();
            let here = |seen: &Arc<AtomicUsize>| {
                let (tree, seen) = (tree.clone(), seen.clone());
                move || {
                    if let Some(tree) = tree.get().and_then(WeakTree::upgrade) {
                        look(&tree);
                        seen.fetch_add(1, SeqCst);
                    }
                }
            };
            let (failed, forced) = (here(&seen), here(&seen));
            let mut sim = Sim::builder(seed)
                .on_failure(move |_| failed())
                .on_forced(move |_| forced())
                .build();
            assert!(tree.set(sim.tree().downgrade()).is_ok());
            let root = sim.root();
            let value = Looks::new(sim.tree(), &seen);
            root.launch(async move {
                let _value = value;
                sleep(SECOND).await
            });
            let value = Looks::new(sim.tree(), &seen);
            root.launch(async move { Some(value) });
            let value = Looks::new(sim.tree(), &seen);
            root.launch(async move {
                let _value = value;
                std::future::pending::<()>().await;
            });
            let hooked = here(&seen);
            root.launch(async move {
                on_cancel(move |_| hooked()).keep();
                park().await
            });
            root.launch(async { Err::<(), _>(Error::msg("no")) });
            let task = root.task("joined").spawn(sleep(SECOND));
            let mut join = task.join();
            let waker = Waker::from(Arc::new(Looks::new(sim.tree(), &seen)));
            sim.settle();
            let polled = std::pin::Pin::new(&mut join).poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
            sim.advance(2 * SECOND);
            drop((join, waker, task));
            sim.tree().request_shutdown(ReasonKind::Shutdown);
            sim.advance(10 * SECOND);
            sim.finish();
            // Three destructors, a hook, two hooks of the tree, a waker.
            assert!(seen.load(SeqCst) >= 7, "seed {seed}: {seen:?}");
        }
    });
}

/// A sink that looks at the tree at every event.
#[derive(Default)]
struct LooksAtAll {
    tree: OnceLock<WeakTree>,
    seen: AtomicUsize,
}

impl Sink for LooksAtAll {
    fn event(&self, _: &Event) {
        if let Some(tree) = self.tree.get().and_then(WeakTree::upgrade) {
            look(&tree);
            self.seen.fetch_add(1, SeqCst);
        }
    }
}

/// see-2: a look from inside a sink, at every event of a family that fails, on the
/// simulation and on two workers.
#[test]
fn see_2_looks_inside_a_sink() {
    guarded("in a sink", |_| {
        let family = || async {
            for n in 0..20u32 {
                launch(async move {
                    launch(park());
                    sleep(n * Duration::from_millis(1)).await?;
                    match n {
                        10 => Err(Error::msg("no")),
                        _ => Ok(()),
                    }
                });
            }
            park().await.map(|_| ())
        };
        let sink = Arc::new(LooksAtAll::default());
        let mut sim = Sim::builder(1)
            .sink(sink.clone())
            .on_failure(|_| {})
            .build();
        assert!(sink.tree.set(sim.tree().downgrade()).is_ok());
        sim.root().launch(family());
        sim.advance(SECOND);
        sim.finish();
        assert!(sink.seen.load(SeqCst) > 100);

        let sink = Arc::new(LooksAtAll::default());
        let rt = Runtime::builder()
            .workers(2)
            .sink(sink.clone())
            .on_failure(Box::new(|_| {}))
            .build()
            .unwrap();
        assert!(sink.tree.set(rt.tree().downgrade()).is_ok());
        let family = rt.scope().launch(family());
        let _ = rt.wait_for(family.join()).unwrap().unwrap();
        assert!(sink.seen.load(SeqCst) > 100);
    });
}

/// see-2: a look inside a look, one that cancels what it sees, and one that panics.
#[test]
fn see_2_looks_inside_a_look() {
    guarded("in a look", |_| {
        let mut sim = Sim::seeded(1);
        let jobs: Vec<_> = (0..20).map(|_| sim.root().launch(park())).collect();
        sim.settle();
        let tree = sim.tree().clone();
        let mut seen = 0;
        let walked: ControlFlow<()> = tree.look_at_each(|node| {
            seen += 1;
            assert_eq!(look(&tree), 21);
            for job in jobs.iter().filter(|job| job.id() == node.id) {
                job.cancel("it was seen");
            }
            ControlFlow::Continue(())
        });
        assert_eq!((walked, seen), (ControlFlow::Continue(()), 21));
        let panics = std::panic::AssertUnwindSafe(|| {
            tree.look_at_each(|node| -> ControlFlow<()> { panic!("at {}", node.id) })
        });
        assert!(std::panic::catch_unwind(panics).is_err());
        assert_eq!(
            tree.look_at_each(|node| ControlFlow::Break(node.depth)),
            ControlFlow::Break(0)
        );
        sim.settle();
        assert_eq!(look(&tree), 1);
        sim.finish();
    });
}

/// see-2: looks at roots that are dropped at the same time, from threads that keep no root.
#[test]
fn see_2_looks_while_roots_come_and_go() {
    guarded("roots", |_| {
        let current: Arc<Mutex<Option<Tree>>> = Arc::default();
        let rounds = 60;
        let done = Arc::new(AtomicUsize::new(0));
        thread::scope(|threads| {
            for _ in 0..3 {
                threads.spawn(|| {
                    while done.load(SeqCst) < rounds {
                        let tree = current.lock().unwrap().clone();
                        match tree {
                            // Of one that ends meanwhile any part may be seen.
                            Some(tree) => {
                                let text = tree.snapshot().to_string();
                                let json = tree.to_json();
                                assert!(json.ends_with("]}\n"), "{text}");
                            }
                            None => thread::yield_now(),
                        }
                    }
                });
            }
            for round in 0..rounds {
                let rt = Runtime::builder().workers(1 + round % 2).build().unwrap();
                *current.lock().unwrap() = Some(rt.tree().clone());
                for _ in 0..20 {
                    rt.scope().launch(async {
                        let s = Scope::current().expect("a scope");
                        s.task("child").launch(park());
                        park().await
                    });
                }
                drop(rt);
                done.store(round + 1, SeqCst);
            }
        });
        *current.lock().unwrap() = None;
    });
}
