//! A completion: whoever completes it against a cancel and against the drop of
//! the wait. The claim stands at the head of `more/kit/completion.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Waker};

use kinfolk_core::Outcome;
use kinfolk_core::kit::{Abort, completion};
use loom::thread;

use crate::host::{finish, tree};
use crate::watch::now_or_never;

/// Completed on another thread while the waiter parks: no lost wake. The same
/// for a completer that goes.
#[test]
fn completion_vs_park() {
    for dropped in [false, true] {
        loom::model(move || {
            let (tree, queue) = tree();
            let (wait, completer) = completion();
            let task = tree.root_scope().spawn(async move { wait.await.ok() });
            let other = thread::spawn(move || match dropped {
                false => assert!(completer.complete(7)),
                true => drop(completer),
            });
            queue.run_all();
            other.join().unwrap();
            queue.run_all();
            let value = now_or_never(task).unwrap().unwrap();
            assert_eq!(value, (!dropped).then_some(7));
            finish(tree, &queue);
        });
    }
}

/// The value is returned or undelivered: one of both, once, whatever `complete`
/// has said.
#[test]
fn completion_vs_cancel() {
    loom::model(|| {
        let (tree, queue) = tree();
        let undelivered = Arc::new(AtomicUsize::new(0));
        let (wait, completer) = completion();
        let count = undelivered.clone();
        let wait = wait.on_undelivered(move |value: u32| {
            assert_eq!(value, 7);
            count.fetch_add(1, SeqCst);
        });
        let task = tree.root_scope().spawn(wait);
        queue.run_all();
        let other = thread::spawn(move || completer.complete(7));
        assert!(task.cancel("now"));
        queue.run_all();
        let accepted = other.join().unwrap();
        queue.run_all();
        let outcome = now_or_never(task.outcome()).unwrap().unwrap();
        let Outcome::Cancelled { late, .. } = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(late, None, "told comes first");
        assert_eq!(undelivered.load(SeqCst), 1, "accepted: {accepted}");
        finish(tree, &queue);
    });
}

/// Without `on_undelivered`, a value that was accepted is returned: it came
/// before the waiter was told.
#[test]
fn completion_that_was_accepted_vs_cancel() {
    loom::model(|| {
        let (tree, queue) = tree();
        let (wait, completer) = completion();
        let task = tree.root_scope().spawn(wait);
        queue.run_all();
        let other = thread::spawn(move || completer.complete(7));
        assert!(task.cancel("now"));
        queue.run_all();
        let accepted = other.join().unwrap();
        queue.run_all();
        let outcome = now_or_never(task.outcome()).unwrap().unwrap();
        assert!(outcome.is_cancelled());
        assert_eq!(outcome.into_value().is_some(), accepted);
        finish(tree, &queue);
    });
}

/// An operation that cannot be stopped brings its value, whenever that comes.
#[test]
fn completion_that_stays_vs_cancel() {
    loom::model(|| {
        let (tree, queue) = tree();
        let (wait, completer) = completion();
        let wait = wait.abort_with(|| Abort::NotNow);
        let task = tree.root_scope().spawn(wait);
        queue.run_all();
        let other = thread::spawn(move || assert!(completer.complete(7)));
        assert!(task.cancel("now"));
        queue.run_all();
        other.join().unwrap();
        queue.run_all();
        let outcome = now_or_never(task.outcome()).unwrap().unwrap();
        assert!(outcome.is_cancelled());
        assert_eq!(outcome.into_value(), Some(7));
        finish(tree, &queue);
    });
}

/// Dropped while it is completed: nobody got the value, and that is known once.
#[test]
fn completion_vs_drop() {
    loom::model(|| {
        let undelivered = Arc::new(AtomicUsize::new(0));
        let asked = Arc::new(AtomicUsize::new(0));
        let (wait, completer) = completion();
        let (count, stop) = (undelivered.clone(), asked.clone());
        let wait = wait.on_undelivered(move |_| {
            count.fetch_add(1, SeqCst);
        });
        let mut wait = Box::pin(wait.abort_with(move || {
            stop.fetch_add(1, SeqCst);
            Abort::Done
        }));
        let polled = wait.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
        let other = thread::spawn(move || completer.complete(7));
        drop(wait);
        let accepted = other.join().unwrap();
        assert_eq!(undelivered.load(SeqCst), 1);
        assert_eq!(asked.load(SeqCst), usize::from(!accepted));
    });
}
