//! The timer of a deadline, which marks from the thread that keeps time, against
//! everything that can happen to its scope meanwhile. The claims stand in
//! `engine/CANCELLING.md`.

use std::sync::Arc;
use std::time::Duration;

use kinfolk_core::{ErrorKind, ReasonKind, Scope, launch, park, timeout_at};
use loom::sync::Mutex;
use loom::thread;

use crate::host::{Timers, finish, timed_tree};
use crate::watch::Gate;

/// Firing climbs, and takes many more steps than cancelling: two preemptions, or
/// one where several jobs are on the way. The other thread's whole step in the
/// middle of one's own is in that.
fn model(preemptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    builder.check(f);
}

const SOON: Duration = Duration::from_millis(1);
const LATE: Duration = Duration::from_secs(1);

/// The clock passes the deadline on a thread of its own, which fires one timer.
fn fires(timers: &Timers) -> thread::JoinHandle<()> {
    let timers = timers.clone();
    thread::spawn(move || {
        timers.move_to(SOON);
        timers.fire_one();
    })
}

/// The timer comes while the scope ends: it gives its value or is TimedOut, ends
/// once, and no timer is left. With a child, which is told or has ended.
#[test]
fn timer_vs_end() {
    for child in [false, true] {
        model(if child { 1 } else { 2 }, move || {
            let (tree, queue, timers) = timed_tree();
            let gate = Gate::default();
            let opened = gate.clone();
            let at = timers.at(SOON);
            let task = tree.root_scope().spawn(async move {
                let result = timeout_at(at, async {
                    if child {
                        launch(async move { opened.wait().await });
                    } else {
                        opened.wait().await;
                    }
                    7
                });
                match result.await {
                    Ok(value) => assert_eq!(value, 7),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::TimedOut, "{error:?}"),
                }
            });
            queue.run_all();
            assert_eq!(timers.set(), 1);
            let timer = fires(&timers);
            gate.open();
            queue.run_all();
            timer.join().unwrap();
            queue.run_all();
            assert!(task.is_ended(), "{}", tree.snapshot());
            assert_eq!(timers.set(), 0);
            let counters = tree.counters();
            assert_eq!(counters.timers_pending(), 0, "{counters}");
            assert!(counters.cancellations_requested <= 1, "{counters}");
            drop(task);
            finish(tree, &queue);
        });
    }
}

/// The timer comes while the deadline is moved: it was moved, and nothing fires;
/// or it has fired, and moving it is an error. Moved, it has its timer.
#[test]
fn timer_vs_reschedule() {
    model(2, || {
        let (tree, queue, timers) = timed_tree();
        let handle: Arc<Mutex<Option<Scope>>> = Arc::default();
        let (mine, at) = (handle.clone(), timers.at(SOON));
        let task = tree.root_scope().spawn(async move {
            let limited = Scope::build().deadline(at).run(async |s| {
                *mine.lock().unwrap() = Some(s);
                park().await?;
                Ok(())
            });
            let error = limited.await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimedOut, "{error:?}");
        });
        queue.run_all();
        let scope = handle.lock().unwrap().take().expect("it was polled");
        let timer = fires(&timers);
        let moved = scope.reschedule(Some(timers.at(LATE)));
        timer.join().unwrap();
        assert_eq!(scope.cancel_requested(), moved.is_err(), "{scope:?}");
        if moved.is_ok() {
            assert_eq!(timers.next(), Some(timers.at(LATE)));
            timers.move_to(LATE);
            timers.fire_one();
        }
        queue.run_all();
        assert_eq!(scope.cancel_reason().unwrap().kind(), ReasonKind::Deadline);
        assert!(task.is_ended(), "{}", tree.snapshot());
        assert_eq!(timers.set(), 0);
        let counters = tree.counters();
        assert_eq!(counters.timers_pending(), 0, "{counters}");
        drop((task, scope));
        finish(tree, &queue);
    });
}

/// Two nested deadlines at one instant, each fired by a thread of its own: the
/// outermost reports, and the inner scope is told of that one.
#[test]
fn nested_deadlines_on_two_threads() {
    model(1, || {
        let (tree, queue, timers) = timed_tree();
        let at = timers.at(SOON);
        let task = tree.root_scope().spawn(async move {
            let outer = Scope::build().deadline(at).run(async |s| {
                let outer = s.job().id();
                let inner = timeout_at(at, async {
                    let told = park().await.unwrap_err();
                    assert_eq!(told.origin(), outer);
                    Err::<(), _>(told)
                });
                let error = inner.await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Cancelled, "{error:?}");
                Err::<(), _>(error)
            });
            let error = outer.await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimedOut, "{error:?}");
        });
        queue.run_all();
        assert_eq!(timers.set(), 2);
        timers.move_to(SOON);
        let other = fires(&timers);
        timers.fire_one();
        other.join().unwrap();
        queue.run_all();
        assert!(task.is_ended(), "{}", tree.snapshot());
        let counters = tree.counters();
        assert_eq!(counters.jobs_failed, 0, "{counters}");
        assert_eq!(counters.cancellations_requested, 1, "{counters}");
        assert_eq!(counters.timers_pending(), 0, "{counters}");
        drop(task);
        finish(tree, &queue);
    });
}
