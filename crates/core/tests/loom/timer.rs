//! Factory timers: the token against the run, and against the driver that goes
//! to sleep.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use loom::thread;

use crate::host::{finish, tree};

/// A token is dropped or cancelled while its run is due: one of them wins.
#[test]
fn token_vs_run() {
    loom::model(|| {
        let (tree, queue) = tree();
        let calls = Arc::new(AtomicUsize::new(0));
        let ran = calls.clone();
        let token = tree.root_scope().delay(Duration::ZERO, move || {
            ran.fetch_add(1, SeqCst);
            async {}
        });
        let runner = {
            let queue = queue.clone();
            thread::spawn(move || queue.run_all())
        };
        let won = token.cancel();
        runner.join().unwrap();
        queue.run_all();
        assert!(token.is_finished(), "{}", tree.snapshot());
        assert_eq!(token.is_cancelled(), won);
        assert_eq!(calls.load(SeqCst), usize::from(!won));
        drop(token);
        finish(tree, &queue);
    });
}

/// A token is dropped while the driver goes to sleep: it wakes, and the factory
/// is dropped. No lost wake.
#[test]
fn token_vs_sleep() {
    loom::model(|| {
        let (tree, queue) = tree();
        let factory = Arc::new(());
        let kept = factory.clone();
        let token = tree.root_scope().delay(Duration::MAX, move || {
            drop(kept);
            async {}
        });
        let job = token.job();
        let runner = {
            let queue = queue.clone();
            thread::spawn(move || queue.run_all())
        };
        drop(token);
        runner.join().unwrap();
        queue.run_all();
        assert!(job.is_ended(), "{}", tree.snapshot());
        assert_eq!(Arc::strong_count(&factory), 1);
        drop(job);
        finish(tree, &queue);
    });
}
