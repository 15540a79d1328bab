//! Patience: a look at a cancel against the jobs that ask for one.

use std::future::{pending, poll_fn};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use kinfolk_core::{Task, Tree};
use loom::thread;

use crate::host::{Queue, Timers, finish, tree_with};

/// Each takes many steps: two preemptions at most.
fn model(check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 10_000;
    builder.preemption_bound = builder.preemption_bound.map(|most| most.min(2));
    builder.check(check);
}

const MILLI: Duration = Duration::from_millis(1);

/// A task in a foreign await, cancelled and parked, and a waker of its own:
/// its last turn has asked for a look in a millisecond.
fn deaf(tree: &Tree, queue: &Queue) -> (Task<()>, Waker) {
    let kept = Arc::new(Mutex::new(None));
    let keeps = kept.clone();
    let task = tree.root_scope().spawn(poll_fn(move |cx| {
        *keeps.lock().unwrap() = Some(cx.waker().clone());
        Poll::<()>::Pending
    }));
    queue.run_all();
    let waker = kept.lock().unwrap().take().unwrap();
    task.cancel("it does not hear");
    (task, waker)
}

/// Time goes on and nothing else happens: patience runs out.
fn wait_for(tree: &Tree, queue: &Queue, time: &Timers, task: &Task<()>) {
    for _ in 0..3 {
        time.pass(2);
        queue.run_all();
    }
    assert!(task.is_ended(), "{}", tree.snapshot());
}

/// The look comes while the job that asked for it is polled once more and goes
/// to park: the job is looked at again.
#[test]
fn look_vs_park() {
    model(|| {
        let (tree, queue, time) = tree_with(MILLI);
        let (task, waker) = deaf(&tree, &queue);
        queue.run_all();
        waker.wake();
        let clock = {
            let time = time.clone();
            thread::spawn(move || time.pass(1))
        };
        queue.run_all();
        clock.join().unwrap();
        queue.run_all();
        wait_for(&tree, &queue, &time, &task);
        drop(task);
        finish(tree, &queue);
        assert_eq!(time.set(), 0);
    });
}

/// A look at another cancel comes while a job asks for one at its own, and both
/// are due: the job is looked at, now or later.
#[test]
fn look_vs_ask() {
    model(|| {
        let (tree, queue, time) = tree_with(MILLI);
        let (other, _) = deaf(&tree, &queue);
        queue.run_all();
        let (task, waker) = deaf(&tree, &queue);
        let clock = {
            let time = time.clone();
            thread::spawn(move || time.pass(1))
        };
        queue.run_all();
        clock.join().unwrap();
        queue.run_all();
        // A job that is polled for nothing asks again.
        waker.wake();
        queue.run_all();
        wait_for(&tree, &queue, &time, &task);
        wait_for(&tree, &queue, &time, &other);
        drop((task, other));
        finish(tree, &queue);
        assert_eq!(time.set(), 0);
    });
}

/// A host forces the tree while a task that hears nothing is started in it: the
/// task is refused, or forced too.
#[test]
fn force_vs_attach() {
    model(|| {
        let (tree, queue, _) = tree_with(Duration::MAX);
        let forcer = {
            let tree = tree.clone();
            thread::spawn(move || tree.force())
        };
        let task = tree.root_scope().spawn(pending::<()>());
        forcer.join().unwrap();
        queue.run_all();
        assert!(task.is_ended(), "{}", tree.snapshot());
        drop(task);
        finish(tree, &queue);
    });
}

/// A host forces the tree while a task, which no cancel has reached, is polled and
/// goes to park: its future is dropped, and it ends cancelled.
#[test]
fn force_vs_turn() {
    model(|| {
        let (tree, queue, _) = tree_with(Duration::MAX);
        let task = tree.root_scope().spawn(pending::<()>());
        let forcer = {
            let tree = tree.clone();
            thread::spawn(move || tree.force())
        };
        queue.run_all();
        forcer.join().unwrap();
        queue.run_all();
        assert!(task.is_ended(), "{}", tree.snapshot());
        assert!(task.job().cancel_requested(), "{}", tree.snapshot());
        drop(task);
        finish(tree, &queue);
    });
}
