//! The end of a job against everything that looks at it meanwhile.

use kinfolk_core::{Error, Scope, launch, park, scope};
use loom::thread;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};

use crate::host::{finish, main_tree, tree};
use crate::watch::now_or_never;

struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// The last child and the body end at once: the parent ends exactly once, and
/// not before both.
#[test]
fn last_child_vs_body_end() {
    loom::model(|| {
        let (tree, queue) = tree();
        let parent = tree.root_scope().spawn(async {
            launch(async {});
        });
        // The parent's first turn makes the child; then both threads race.
        let runner = {
            let queue = queue.clone();
            thread::spawn(move || queue.run_all())
        };
        queue.run_all();
        runner.join().unwrap();
        queue.run_all();
        assert!(parent.is_ended(), "{}", tree.snapshot());
        drop(parent);
        finish(tree, &queue);
    });
}

/// A task awaits its own child, which ends on another thread: the waiter in the
/// slot has no reference of its own. It finds the outcome before it is woken,
/// ends, and goes; nobody touches it after that.
#[test]
fn own_child_vs_await() {
    loom::model(|| {
        let (tree, queue) = tree();
        // Nobody else holds the parent.
        drop(tree.root_scope().launch(async {
            let mut child = kinfolk_core::spawn(async { 7 });
            std::future::poll_fn(|cx| {
                if Pin::new(&mut child).poll(cx).is_pending() {
                    let _ = Pin::new(&mut child).poll(cx);
                }
                Poll::Ready(())
            })
            .await;
            // Dropping it would cancel: another race.
            std::mem::forget(child);
        }));
        let runner = {
            let queue = queue.clone();
            thread::spawn(move || queue.run_all())
        };
        queue.run_all();
        runner.join().unwrap();
        finish(tree, &queue);
    });
}

/// A scope waits for its child, which ends on another thread: its poller is
/// woken, the scope ends once.
#[test]
fn last_child_vs_scope_exit() {
    loom::model(|| {
        let (tree, queue) = tree();
        let parent = tree.root_scope().spawn(async {
            scope(async |s| {
                s.launch(async {});
                Ok(())
            })
            .await
        });
        queue.run_one();
        let runner = {
            let queue = queue.clone();
            thread::spawn(move || queue.run_all())
        };
        queue.run_all();
        runner.join().unwrap();
        queue.run_all();
        assert!(parent.is_ended(), "{}", tree.snapshot());
        drop(parent);
        finish(tree, &queue);
    });
}

/// A scope is polled by the task whose waker it keeps, while somebody else takes
/// that waker out to wake it, and its last child ends. The poll may not have
/// seen that the waker is gone, and the child's end may find nobody to wake: the
/// wake that took it gives the poll that ends the scope.
#[test]
fn kept_waker_vs_wake() {
    loom::model(|| {
        let (tree, queue) = tree();
        let out = Arc::new(std::sync::Mutex::new(None::<Scope>));
        let into = out.clone();
        let parent = tree.root_scope().spawn(async move {
            scope(async |s| {
                s.launch(async {});
                *into.lock().unwrap() = Some(s);
                Ok(())
            })
            .await
        });
        // Opened and polled once, and woken to be polled again.
        queue.run_one();
        let inner = out.lock().unwrap().take().unwrap();
        inner.reschedule(None).unwrap();
        let waker = {
            let queue = queue.clone();
            thread::spawn(move || {
                let _ended_or_not = inner.reschedule(None);
                queue.run_one();
            })
        };
        queue.run_all();
        waker.join().unwrap();
        queue.run_all();
        assert!(parent.is_ended(), "{}", tree.snapshot());
        drop(parent);
        finish(tree, &queue);
    });
}

/// A scope's future is dropped while its last child ends: exactly one of them
/// ends the node. In the body, and in the waiting phase.
#[test]
fn last_child_vs_scope_drop() {
    for in_body in [true, false] {
        loom::model(move || {
            let (tree, queue) = tree();
            let parent = tree.root_scope().spawn(async move {
                {
                    let mut inner = Box::pin(scope(async |s| {
                        s.launch(async {});
                        if in_body {
                            park().await?;
                        }
                        Ok(())
                    }));
                    std::future::poll_fn(|cx| {
                        let _ = inner.as_mut().poll(cx);
                        Poll::Ready(())
                    })
                    .await;
                    // Dropped here, in the middle.
                }
                Ok::<_, Error>(())
            });
            let runner = {
                let queue = queue.clone();
                thread::spawn(move || queue.run_all())
            };
            queue.run_all();
            runner.join().unwrap();
            queue.run_all();
            assert!(parent.is_ended(), "{}", tree.snapshot());
            drop(parent);
            finish(tree, &queue);
        });
    }
}

/// The last lease of a scope goes while its poller leaves: the scope ends once,
/// in its poller's turn.
#[test]
fn lease_drop_vs_scope_exit() {
    loom::model(|| {
        let (tree, queue) = tree();
        let kept = Arc::new(std::sync::Mutex::new(None));
        let place = kept.clone();
        let parent = tree.root_scope().spawn(async move {
            scope(async |s| {
                *place.lock().unwrap() = s.lease();
                kinfolk_core::yield_now().await?;
                Ok(())
            })
            .await
        });
        queue.run_one();
        let lease = kept.lock().unwrap().take().unwrap();
        let dropper = thread::spawn(move || drop(lease));
        queue.run_all();
        dropper.join().unwrap();
        queue.run_all();
        assert!(parent.is_ended(), "{}", tree.snapshot());
        drop(parent);
        finish(tree, &queue);
    });
}

/// The last lease goes while the parent's body ends: the parent ends once.
#[test]
fn lease_drop_vs_body_end() {
    loom::model(|| {
        let (tree, queue) = tree();
        let parent = tree.root_scope().spawn(async {});
        let lease = Scope::of_job(&parent.job()).lease().unwrap();
        let dropper = thread::spawn(move || drop(lease));
        queue.run_all();
        dropper.join().unwrap();
        queue.run_all();
        assert!(parent.is_ended(), "{}", tree.snapshot());
        drop(parent);
        finish(tree, &queue);
    });
}

/// An observer registers while the job ends: it finds the outcome or is woken.
#[test]
fn waiter_add_vs_end() {
    loom::model(|| {
        let (tree, queue) = tree();
        let mut task = tree.root_scope().spawn(async { 7 });
        let job = task.job();
        let runner = {
            let queue = queue.clone();
            thread::spawn(move || queue.run_all())
        };
        let bell = Arc::new(Bell(AtomicUsize::new(0)));
        let waker = Waker::from(bell.clone());
        let mut cx = Context::from_waker(&waker);
        let mut join = job.join();
        let joined = Pin::new(&mut join).poll(&mut cx).is_ready();
        let taken = Pin::new(&mut task).poll(&mut cx);
        runner.join().unwrap();
        let waiting = usize::from(!joined) + usize::from(taken.is_pending());
        assert_eq!(bell.0.load(SeqCst), waiting);
        if !joined {
            assert!(Pin::new(&mut join).poll(&mut cx).is_ready());
        }
        match taken {
            Poll::Ready(value) => assert_eq!(value.unwrap(), 7),
            Poll::Pending => assert_eq!(now_or_never(&mut task).unwrap().unwrap(), 7),
        }
        drop((join, task));
        finish(tree, &queue);
    });
}

/// The handle is dropped while the task ends: the output is dropped once.
#[test]
fn handle_drop_vs_end() {
    struct Counts(Arc<AtomicUsize>);
    impl Drop for Counts {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    impl kinfolk_core::Success for Counts {}

    loom::model(|| {
        let (tree, queue) = tree();
        let drops = Arc::new(AtomicUsize::new(0));
        let value = Counts(drops.clone());
        let task = tree.root_scope().spawn(async move { value });
        let runner = {
            let queue = queue.clone();
            thread::spawn(move || queue.run_all())
        };
        drop(task);
        runner.join().unwrap();
        queue.run_all();
        assert_eq!(drops.load(SeqCst), 1);
        finish(tree, &queue);
    });
}

/// The handle of a task of the main lane is dropped on another thread while the
/// main thread ends the task: the output is dropped once, on the main thread.
#[test]
fn main_output_vs_handle_drop() {
    struct Goes(Arc<AtomicUsize>, thread::ThreadId);
    impl Drop for Goes {
        fn drop(&mut self) {
            assert_eq!(thread::current().id(), self.1);
            self.0.fetch_add(1, SeqCst);
        }
    }
    impl kinfolk_core::Success for Goes {}

    loom::model(|| {
        let (tree, queue) = main_tree();
        let drops = Arc::new(AtomicUsize::new(0));
        let value = Goes(drops.clone(), thread::current().id());
        let task = (tree.root_scope().on(kinfolk_core::Main)).spawn(async move { value });
        let dropper = thread::spawn(move || drop(task));
        queue.run_all();
        dropper.join().unwrap();
        queue.run_all();
        assert_eq!(drops.load(SeqCst), 1);
        finish(tree, &queue);
    });
}

/// `parent()` from outside while the job ends, and its parent with it: a living
/// parent or none.
#[test]
fn parent_lookup_vs_end() {
    loom::model(|| {
        let (tree, queue) = tree();
        let kept = Arc::new(std::sync::Mutex::new(None));
        let place = kept.clone();
        // Nobody observes the parent: it is freed when it ends.
        drop(tree.root_scope().task("parent").launch(async move {
            *place.lock().unwrap() = Some(launch(async {}));
        }));
        queue.run_one();
        let child = kept.lock().unwrap().take().unwrap();
        let runner = {
            let queue = queue.clone();
            thread::spawn(move || queue.run_all())
        };
        if let Some(parent) = child.parent() {
            assert_eq!(parent.name(), "parent");
        }
        runner.join().unwrap();
        drop(child);
        finish(tree, &queue);
    });
}

/// A task is woken while it runs: it gets another turn.
#[test]
fn wake_while_running() {
    loom::model(|| {
        let (tree, queue) = tree();
        let shared: Arc<loom::sync::Mutex<(bool, Option<Waker>)>> =
            Arc::new(loom::sync::Mutex::new((false, None)));
        let inside = shared.clone();
        let task = tree.root_scope().spawn(std::future::poll_fn(move |cx| {
            let mut state = inside.lock().unwrap();
            if state.0 {
                return Poll::Ready(());
            }
            state.1 = Some(cx.waker().clone());
            Poll::Pending
        }));
        let runner = {
            let queue = queue.clone();
            thread::spawn(move || queue.run_all())
        };
        let waker = {
            let mut state = shared.lock().unwrap();
            state.0 = true;
            state.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        runner.join().unwrap();
        queue.run_all();
        assert!(task.is_ended(), "{}", tree.snapshot());
        drop(task);
        finish(tree, &queue);
    });
}

/// A task yields, which takes no step on its word, while it is woken and
/// cancelled from outside: it gets its turns, hears of it, and ends once.
#[test]
fn yield_while_woken_and_cancelled() {
    loom::model(|| {
        let (tree, queue) = tree();
        let job = tree.root_scope().launch(async {
            kinfolk_core::yield_now().await?;
            kinfolk_core::park().await.map(|_| ())
        });
        let runner = {
            let queue = queue.clone();
            thread::spawn(move || queue.run_all())
        };
        assert!(job.cancel("enough"));
        runner.join().unwrap();
        queue.run_all();
        assert!(job.is_ended(), "{}", tree.snapshot());
        drop(job);
        finish(tree, &queue);
    });
}

/// The body ends while its only service ends by itself: the parent ends once,
/// and nobody touches it afterwards.
#[test]
fn last_service_vs_body_end() {
    loom::model(|| {
        let (tree, queue) = tree();
        // Nobody observes the parent: it is freed when it ends.
        drop(tree.root_scope().launch(async {
            let here = Scope::current().unwrap();
            drop(here.spawn_service(async {}).into_job());
        }));
        let runner = {
            let queue = queue.clone();
            thread::spawn(move || queue.run_all())
        };
        queue.run_all();
        runner.join().unwrap();
        queue.run_all();
        assert_eq!(tree.counters().living(), 1, "{}", tree.snapshot());
        finish(tree, &queue);
    });
}

/// A wake by an atomic flag alone: what the waker wrote before it woke is seen
/// by the turn that follows, also if the task had been woken already.
#[test]
fn wake_with_a_relaxed_flag() {
    use loom::sync::atomic::{AtomicBool, Ordering::Relaxed};

    loom::model(|| {
        let (tree, queue) = tree();
        let flag = Arc::new(AtomicBool::new(false));
        let slot: Arc<std::sync::Mutex<Option<Waker>>> = Arc::default();
        let (seen, kept) = (flag.clone(), slot.clone());
        let task = tree.root_scope().spawn(std::future::poll_fn(move |cx| {
            let mut kept = kept.lock().unwrap();
            if kept.is_none() {
                *kept = Some(cx.waker().clone());
            }
            if seen.load(Relaxed) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        }));
        queue.run_all();
        let waker = slot.lock().unwrap().clone().unwrap();
        // Queued and notified.
        waker.wake_by_ref();
        waker.wake_by_ref();
        let setter = thread::spawn(move || {
            flag.store(true, Relaxed);
            waker.wake();
        });
        queue.run_all();
        setter.join().unwrap();
        queue.run_all();
        assert!(task.is_ended(), "{}", tree.snapshot());
        drop(task);
        finish(tree, &queue);
    });
}

/// A body ends in one step while somebody attaches a child and cancels from
/// above: the child is told by a living origin, or was refused.
#[test]
fn body_end_vs_attach_then_cancel_from_above() {
    // Three preemptions do not reach it.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(5);
    model.check(|| {
        let (tree, queue) = tree();
        let parent = tree.root_scope().spawn(park());
        queue.run_one();
        // Its first turn ends its body.
        let task = Scope::of_job(&parent.job()).spawn(async {});
        let inside = Scope::of_job(&task.job());
        let parent_job = parent.job();
        let other = thread::spawn(move || {
            let child = inside.spawn(park());
            parent_job.cancel("from above");
            child
        });
        queue.run_one();
        let child = other.join().unwrap();
        queue.run_all();
        assert!(child.is_ended() && task.is_ended() && parent.is_ended());
        if let Some(Ok(outcome)) = now_or_never(child.outcome()) {
            assert!(outcome.is_cancelled());
        }
        drop((task, parent));
        finish(tree, &queue);
    });
}

/// A child fails while the family's own body joins it: the body is told, and
/// never gets the outcome to go on with.
#[test]
fn failing_child_vs_join() {
    let mut model = loom::model::Builder::new();
    // The body is overtaken once, between its point and its look at the child.
    model.preemption_bound = Some(1);
    model.check(|| {
        let (tree, queue) = tree();
        let parent = tree.root_scope().spawn(async {
            let child = kinfolk_core::spawn(async { Err::<(), _>(Error::msg("no")) });
            kinfolk_core::yield_now().await?;
            match child.join().await {
                Ok(outcome) => panic!("the family's own body got {outcome:?}"),
                Err(told) => Err::<(), Error>(told.into()),
            }
        });
        // Its first turn makes the child; then each thread takes one turn.
        queue.run_one();
        let runner = {
            let queue = queue.clone();
            thread::spawn(move || queue.run_one())
        };
        queue.run_one();
        runner.join().unwrap();
        queue.run_all();
        let outcome = now_or_never(parent.outcome()).unwrap().unwrap();
        let kinfolk_core::Outcome::Failed(error) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(error.to_string(), "no");
        finish(tree, &queue);
    });
}

/// The future of a scope, kept where somebody else finds it.
type Inner = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;
type Kept = std::sync::Mutex<Option<Inner>>;

/// The body of a task is over while the scope it has opened is polled, or
/// dropped, elsewhere: exactly one of them gives the scope up, and the task ends.
/// In the body of the scope, and in its waiting phase. What is polled later gets
/// the cancellation, and touches nothing.
fn scope_left_open_vs(in_body: bool, elsewhere: fn(Inner) -> Option<Inner>) {
    let mut builder = loom::model::Builder::new();
    // Many steps on both sides. One does not reach the body that ends while its scope waits
    // elsewhere, and ends there.
    builder.preemption_bound = Some(2);
    builder.max_branches = 10_000;
    builder.check(move || {
        let (tree, queue) = tree();
        let kept = Arc::new(Kept::default());
        let place = kept.clone();
        let task = tree.root_scope().spawn(async move {
            let mut inner: Inner = Box::pin(scope(async move |s| {
                if in_body {
                    park().await?;
                } else {
                    s.launch(async { park().await });
                }
                Ok(())
            }));
            std::future::poll_fn(|cx| {
                let _ = inner.as_mut().poll(cx);
                Poll::Ready(())
            })
            .await;
            *place.lock().unwrap() = Some(inner);
            kinfolk_core::yield_now().await
        });
        // Its first turn opens the scope, its second is its last.
        queue.run_one();
        let inner = kept.lock().unwrap().take().unwrap();
        let other = thread::spawn(move || elsewhere(inner));
        queue.run_all();
        let kept = other.join().unwrap();
        queue.run_all();
        assert!(task.is_ended(), "{}", tree.snapshot());
        drop(task);
        finish(tree, &queue);
        if let Some(inner) = kept {
            assert!(now_or_never(inner).unwrap().unwrap_err().is_cancelled());
        }
    });
}

#[test]
fn scope_left_open_vs_poll_elsewhere() {
    for in_body in [true, false] {
        scope_left_open_vs(in_body, |mut inner| {
            let mut cx = Context::from_waker(Waker::noop());
            for _ in 0..2 {
                if let Poll::Ready(how) = inner.as_mut().poll(&mut cx) {
                    // Told in the middle of this poll, it has ended by itself.
                    let error = how.unwrap_err();
                    assert_eq!(error.kind(), kinfolk_core::ErrorKind::Cancelled);
                    let kind = error.reason().unwrap().kind();
                    assert_eq!(kind, kinfolk_core::ReasonKind::ScopeEnded);
                    return None;
                }
            }
            Some(inner)
        });
    }
}

#[test]
fn scope_left_open_vs_drop_elsewhere() {
    for in_body in [true, false] {
        scope_left_open_vs(in_body, |_| None);
    }
}

/// The host goes while somebody cancels the task: whichever of the two claims it pushes
/// it, and the turn that the host drops ends it. No task is attached after that.
#[test]
fn host_gone_vs_cancel() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let (tree, queue) = tree();
        let task = tree.root_scope().spawn(async { park().await });
        queue.run_all();
        let job = task.job();
        let canceller = thread::spawn(move || job.cancel("now"));
        tree.host_gone();
        canceller.join().unwrap();
        queue.drop_all();
        assert!(task.is_ended(), "{}", tree.snapshot());
        drop(task);
        let late = tree.root_scope().spawn(async {});
        assert!(late.is_ended(), "{}", tree.snapshot());
        drop(late);
        finish(tree, &queue);
    });
}
