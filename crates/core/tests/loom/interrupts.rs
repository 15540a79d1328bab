//! An interrupt against everything that can happen to the same task meanwhile.
//! The claims stand in `engine/CANCELLING.md`.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};

use kinfolk_core::{Error, Outcome, checkpoint, ignore_cancellation, park, scope, spawn};
use loom::sync::Mutex;
use loom::thread;

use crate::host::{finish, tree};
use crate::watch::now_or_never;

/// Asking takes more steps than cancelling: two preemptions, not three.
fn model(f: impl Fn() + Sync + Send + 'static) {
    model_with(2, f);
}

fn model_with(preemptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    // Three tasks that wait for each other take more than a thousand.
    builder.max_branches = 10_000;
    builder.check(f);
}

/// A task that parks in a point while it is asked is told: no lost wake. So is
/// one that opens a scope meanwhile and parks in that, and one that is asked twice.
#[test]
fn interrupt_vs_park() {
    // Asked twice there are very many orders: one preemption.
    for (inner, twice, most) in [
        (false, false, 2),
        (true, false, 2),
        (false, true, 1),
        (true, true, 1),
    ] {
        model_with(most, move || {
            let (tree, queue) = tree();
            let task = tree.root_scope().spawn(async move {
                match inner {
                    false => park().await.map(drop).map_err(Error::from),
                    true => scope(async |_| Ok(park().await.map(drop)?)).await,
                }
            });
            let runner = {
                let queue = queue.clone();
                thread::spawn(move || queue.run_one())
            };
            assert!(task.interrupt("now"));
            if twice {
                task.interrupt("again");
            }
            runner.join().unwrap();
            queue.run_all();
            assert!(task.is_ended(), "{}", tree.snapshot());
            drop(task);
            finish(tree, &queue);
        });
    }
}

/// `interrupt` returned true: it was heard, or the task does not complete, and
/// its value is late. False: completed.
#[test]
fn interrupt_vs_body_end() {
    model(|| {
        let (tree, queue) = tree();
        let task = tree.root_scope().spawn(async { 7 });
        let job = task.job();
        let runner = {
            let queue = queue.clone();
            thread::spawn(move || queue.run_all())
        };
        let asked = job.interrupt("now");
        runner.join().unwrap();
        queue.run_all();
        match now_or_never(task.outcome()).unwrap().unwrap() {
            Outcome::Completed(value) => assert!(!asked && value == 7),
            Outcome::Cancelled { late, .. } => {
                assert!(asked);
                assert!(late.is_none_or(|value| value == 7));
            }
            Outcome::Failed(error) => panic!("{error:?}"),
        }
        assert_eq!(job.interrupts(), usize::from(asked));
        drop(job);
        finish(tree, &queue);
    });
}

/// Asked and taken back while the body passes its points: heard once or never,
/// and nothing is left behind.
#[test]
fn interrupt_vs_delivery_vs_uninterrupt() {
    model(|| {
        let (tree, queue) = tree();
        let heard = Arc::new(AtomicUsize::new(0));
        let count = heard.clone();
        let task = tree.root_scope().spawn(async move {
            for _ in 0..2 {
                if checkpoint().await.is_err() {
                    count.fetch_add(1, SeqCst);
                }
            }
        });
        let job = task.job();
        let runner = {
            let queue = queue.clone();
            thread::spawn(move || queue.run_one())
        };
        let asked = job.interrupt("now");
        let left = job.uninterrupt();
        runner.join().unwrap();
        queue.run_all();
        let heard = heard.load(SeqCst);
        match now_or_never(task.outcome()).unwrap().unwrap() {
            Outcome::Completed(()) => assert!(heard == 0 || (asked && heard == 1)),
            // Before its first turn, or after its last point.
            Outcome::Cancelled { .. } => assert!(asked && heard == 0),
            Outcome::Failed(error) => panic!("{error:?}"),
        }
        // Taken back, unless it had ended before.
        assert!(left == 0 || (left == 1 && heard <= 1));
        drop(job);
        finish(tree, &queue);
    });
}

/// A guard that is let go while its task is asked: told, by one or the other.
#[test]
fn guard_vs_interrupt() {
    model(|| {
        let (tree, queue) = tree();
        let kept = Arc::new(Mutex::new(None));
        let keep = kept.clone();
        let task = tree.root_scope().spawn(async move {
            let guard = ignore_cancellation().await?;
            *keep.lock().unwrap() = Some(guard);
            park().await.map(drop)
        });
        queue.run_all();
        let guard = kept.lock().unwrap().take();
        let dropper = thread::spawn(move || drop(guard));
        assert!(task.interrupt("now"));
        dropper.join().unwrap();
        queue.run_all();
        assert!(task.is_ended(), "{}", tree.snapshot());
        drop(task);
        finish(tree, &queue);
    });
}

/// Polls what is inside only when its own waker was woken, as a combinator
/// does.
struct Relay<F> {
    inner: F,
    bell: Arc<Bell>,
}

#[derive(Default)]
struct Bell(Mutex<(bool, Option<Waker>)>);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        let outer = {
            let mut bell = self.0.lock().unwrap();
            bell.0 = true;
            bell.1.take()
        };
        if let Some(outer) = outer {
            outer.wake();
        }
    }
}

impl<F: Future + Unpin> Future for Relay<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let outer = cx.waker().clone();
        let rung = {
            let mut bell = self.bell.0.lock().unwrap();
            bell.1 = Some(outer);
            std::mem::take(&mut bell.0)
        };
        if !rung {
            return Poll::Pending;
        }
        let waker = Waker::from(self.bell.clone());
        Pin::new(&mut self.inner).poll(&mut Context::from_waker(&waker))
    }
}

/// A leaf under a foreign waker that comes to wait while its task is asked is
/// told.
#[test]
fn leaf_publish_vs_interrupt() {
    model(|| {
        let (tree, queue) = tree();
        let task = tree.root_scope().spawn(async {
            let bell = Arc::new(Bell::default());
            bell.0.lock().unwrap().0 = true;
            let inner = park();
            Relay { inner, bell }.await.map(drop)
        });
        let runner = {
            let queue = queue.clone();
            thread::spawn(move || queue.run_all())
        };
        assert!(task.interrupt("now"));
        runner.join().unwrap();
        queue.run_all();
        assert!(task.is_ended(), "{}", tree.snapshot());
        drop(task);
        finish(tree, &queue);
    });
}

/// An await passes it on while its target ends: it is heard below, or here.
#[test]
fn forward_vs_target_end() {
    model(|| {
        let (tree, queue) = tree();
        let task = tree.root_scope().spawn(async {
            let target = spawn(async { 7 });
            let value = target.await;
            // Its value came, late or not: then it is heard here.
            (value.is_err() || checkpoint().await.is_err()).then_some(7)
        });
        queue.run_one();
        let runner = {
            let queue = queue.clone();
            thread::spawn(move || queue.run_all())
        };
        let asked = task.interrupt("now");
        runner.join().unwrap();
        queue.run_all();
        match now_or_never(task.outcome()).unwrap().unwrap() {
            Outcome::Completed(heard) => assert_eq!(heard.is_some(), asked),
            // It had passed its last point.
            Outcome::Cancelled { late, .. } => assert!(asked && late == Some(None)),
            Outcome::Failed(error) => panic!("{error:?}"),
        }
        finish(tree, &queue);
    });
}

/// An await is given up while its target passes on what it was passed: nobody
/// has heard it, so whoever gave up does.
#[test]
fn give_up_vs_forward() {
    // One preemption is enough to come between two steps of the turn; two take
    // a minute.
    model_with(1, || {
        let (tree, queue) = tree();
        let bell = Arc::new(Bell::default());
        let kept = Arc::new(Mutex::new(None));
        let (rung, keep) = (bell.clone(), kept.clone());
        let top = tree.root_scope().spawn(async move {
            let mut middle = spawn(async move {
                let inner = std::future::ready(());
                spawn(Relay { inner, bell: rung }).await
            });
            // Passes on what it is asked, and awaits no more.
            let mut turns = 0;
            std::future::poll_fn(|cx| {
                turns += 1;
                assert!(Pin::new(&mut middle).poll(cx).is_pending());
                if turns == 1 {
                    Poll::Pending
                } else {
                    Poll::Ready(())
                }
            })
            .await;
            *keep.lock().unwrap() = Some(middle);
            park().await.is_err()
        });
        queue.run_all();
        assert!(top.interrupt("now"));
        queue.run_one();
        let middle = kept.lock().unwrap().take();
        let dropper = thread::spawn(move || drop(middle));
        queue.run_one();
        dropper.join().unwrap();
        bell.wake();
        queue.run_all();
        assert!(top.is_ended(), "{}", tree.snapshot());
        let outcome = now_or_never(top.outcome()).unwrap().unwrap();
        assert!(matches!(outcome, Outcome::Completed(true)), "{outcome:?}");
        finish(tree, &queue);
    });
}
