//! Cancel against everything that can happen to the same job meanwhile.

use kinfolk_core::{Error, Outcome, Scope, ignore_cancellation, launch, park};
use loom::thread;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crate::host::{finish, tree};
use crate::watch::now_or_never;

/// `cancel` returned true: never completed, and the value is kept as late.
/// False: completed.
#[test]
fn cancel_vs_completion() {
    loom::model(|| {
        let (tree, queue) = tree();
        let task = tree.root_scope().spawn(async { 7 });
        let job = task.job();
        let runner = {
            let queue = queue.clone();
            thread::spawn(move || queue.run_all())
        };
        let moved = job.cancel("now");
        runner.join().unwrap();
        queue.run_all();
        match now_or_never(task.outcome()).unwrap().unwrap() {
            Outcome::Completed(value) => assert!(!moved && value == 7),
            Outcome::Cancelled { late, .. } => {
                assert!(moved);
                assert!(late.is_none_or(|value| value == 7));
            }
            Outcome::Failed(error) => panic!("{error:?}"),
        }
        finish(tree, &queue);
    });
}

/// A task that parks in a point while it is cancelled is told: no lost wake.
#[test]
fn cancel_vs_park() {
    loom::model(|| {
        let (tree, queue) = tree();
        let task = tree.root_scope().spawn(async { park().await });
        let runner = {
            let queue = queue.clone();
            thread::spawn(move || queue.run_all())
        };
        assert!(task.cancel("now"));
        runner.join().unwrap();
        queue.run_all();
        assert!(task.is_ended(), "{}", tree.snapshot());
        drop(task);
        finish(tree, &queue);
    });
}

/// A child attached while its parent is cancelled is either found by the walk
/// or refused; the parent never ends with it alive.
#[test]
fn attach_vs_cancel() {
    loom::model(|| {
        let (tree, queue) = tree();
        let parent = tree.root_scope().spawn(async { park().await });
        queue.run_all();
        let spawner = {
            let scope = Scope::of_job(&parent.job());
            thread::spawn(move || scope.launch(async { park().await }))
        };
        parent.cancel("now");
        let child = spawner.join().unwrap();
        queue.run_all();
        assert!(parent.is_ended(), "{}", tree.snapshot());
        assert!(child.is_ended(), "{}", tree.snapshot());
        drop((parent, child));
        finish(tree, &queue);
    });
}

/// A hook published while its job is cancelled fires exactly once.
#[test]
fn hook_publish_vs_cancel() {
    loom::model(|| {
        let (tree, queue) = tree();
        let task = tree.root_scope().spawn(async { park().await });
        queue.run_all();
        let fired = Arc::new(AtomicUsize::new(0));
        let publisher = {
            let scope = Scope::of_job(&task.job());
            let fired = fired.clone();
            thread::spawn(move || {
                scope
                    .on_cancel(move |_| {
                        fired.fetch_add(1, SeqCst);
                    })
                    .keep();
            })
        };
        task.cancel("now");
        publisher.join().unwrap();
        assert_eq!(fired.load(SeqCst), 1);
        queue.run_all();
        drop(task);
        finish(tree, &queue);
    });
}

/// Of cancel and disarm exactly one gets the hook.
#[test]
fn hook_disarm_vs_cancel() {
    loom::model(|| {
        let (tree, queue) = tree();
        let task = tree.root_scope().spawn(async { park().await });
        queue.run_all();
        let fired = Arc::new(AtomicUsize::new(0));
        let seen = fired.clone();
        let guard = Scope::of_job(&task.job()).on_cancel(move |_| {
            seen.fetch_add(1, SeqCst);
        });
        let disarmer = thread::spawn(move || guard.disarm());
        task.cancel("now");
        let disarmed = disarmer.join().unwrap();
        assert_eq!(fired.load(SeqCst) + usize::from(disarmed), 1);
        queue.run_all();
        drop(task);
        finish(tree, &queue);
    });
}

/// A guard is entered or the cancel comes first; held back, it is delivered
/// when the guard goes, to the task and to the child it has.
#[test]
fn guard_vs_cancel() {
    loom::model(|| {
        let (tree, queue) = tree();
        let task = tree.root_scope().spawn(async {
            launch(async { park().await });
            if let Ok(guard) = ignore_cancellation().await {
                drop(guard);
            }
            Ok::<_, Error>(())
        });
        let job = task.job();
        let canceller = thread::spawn(move || job.cancel("now"));
        queue.run_all();
        canceller.join().unwrap();
        queue.run_all();
        // Its child waits for nothing but the cancel.
        assert!(task.is_ended(), "{}", tree.snapshot());
        drop(task);
        finish(tree, &queue);
    });
}

/// Two cancels of one job: exactly one moves it, and the reason that is stored
/// belongs to the one that did.
#[test]
fn two_cancels_one_entry() {
    loom::model(|| {
        let (tree, queue) = tree();
        let task = tree.root_scope().spawn(async { park().await });
        queue.run_all();
        let job = task.job();
        let other = thread::spawn(move || job.cancel("b"));
        let first = task.cancel("a");
        let second = other.join().unwrap();
        assert!(first != second);
        let wanted = if first { "a" } else { "b" };
        assert_eq!(task.job().reason().unwrap().text(), Some(wanted));
        queue.run_all();
        drop(task);
        finish(tree, &queue);
    });
}

/// A walk from above meets a child that is ending: if it is marked in time it
/// ends cancelled, and its reason can be read.
#[test]
fn walk_from_above_vs_end() {
    loom::model(|| {
        let (tree, queue) = tree();
        let task = tree.root_scope().spawn(async { 7 });
        let root = tree.root_job();
        let runner = {
            let queue = queue.clone();
            thread::spawn(move || queue.run_all())
        };
        root.cancel("all");
        runner.join().unwrap();
        queue.run_all();
        match now_or_never(task.outcome()).unwrap().unwrap() {
            Outcome::Completed(value) => assert_eq!(value, 7),
            Outcome::Cancelled { reason, .. } => assert_eq!(reason.text(), Some("all")),
            Outcome::Failed(error) => panic!("{error:?}"),
        }
        finish(tree, &queue);
    });
}
