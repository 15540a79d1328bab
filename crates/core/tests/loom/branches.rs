//! Those who wake one of many against the one who polls them all. The claim
//! stands at the head of `more/combine/wake_list.rs`.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use kinfolk_core::{Error, TaskSet, all, race, shield};
use loom::sync::Mutex;
use loom::thread;

use crate::host::{finish, tree};

/// A foreign wait that another thread ends.
#[derive(Clone, Default)]
struct Flag(Arc<Mutex<(bool, Option<Waker>)>>);

impl Flag {
    fn raise(&self) {
        let waker = {
            let mut inside = self.0.lock().unwrap();
            inside.0 = true;
            inside.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Future for Flag {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut inside = self.0.lock().unwrap();
        if inside.0 {
            return Poll::Ready(());
        }
        inside.1 = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// A branch is woken on another thread while its poller parks: either the
/// poller sees it listed, or the waker sees the poller.
#[test]
fn branch_wake_vs_park() {
    loom::model(|| {
        let (tree, queue) = tree();
        let flag = Flag::default();
        let waits = flag.clone();
        let parent = tree
            .root_scope()
            .spawn(async move { all([waits]).await.map(drop) });
        let other = thread::spawn(move || flag.raise());
        queue.run_all();
        other.join().unwrap();
        queue.run_all();
        assert!(parent.is_ended(), "{}", tree.snapshot());
        drop(parent);
        finish(tree, &queue);
    });
}

/// A task of a set ends on another thread while somebody asks for the next
/// result: it comes, once.
#[test]
fn set_next_vs_end() {
    loom::model(|| {
        let (tree, queue) = tree();
        let parent = tree.root_scope().spawn(async {
            let mut set = TaskSet::new();
            set.spawn(async { 7 }).await?;
            assert_eq!(set.next().await?.unwrap().unwrap(), 7);
            assert!(set.next().await?.is_none());
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
        assert_eq!(tree.counters().jobs_failed, 0);
        drop(parent);
        finish(tree, &queue);
    });
}

/// A branch that is a task has lost and begins to wait for that task, which goes on,
/// while another thread cancels the job around it: either the branch sees the mark, or
/// the cancel finds the leaf that it has listed there (`LoserWait::goes_on`).
#[test]
fn losing_task_vs_cancel_around_it() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(1);
    builder.max_branches = 10_000;
    builder.check(|| {
        let (tree, queue) = tree();
        let flag = Flag::default();
        // Deaf, until the flag is raised; nobody's child.
        let target = tree.root_scope().spawn(shield(flag.clone()));
        let quick = tree.root_scope().spawn(async { Ok::<_, Error>(()) });
        queue.run_all();
        // Branches of an iterator are polled when they are woken, and not before.
        let parent = tree
            .root_scope()
            .spawn(async move { race([target, quick]).await });
        let job = parent.job();
        let other = thread::spawn(move || job.cancel("enough"));
        queue.run_all();
        assert!(other.join().unwrap(), "it waits for the task");
        queue.run_all();
        assert!(parent.is_ended(), "{}", tree.snapshot());
        flag.raise();
        queue.run_all();
        drop(parent);
        finish(tree, &queue);
    });
}
