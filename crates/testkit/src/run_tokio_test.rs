//! The runner of `#[kinfolk::test(flavor = "tokio")]`.

use std::time::Duration;

use kinfolk_core::IntoOutcome;
use kinfolk_tokio::Root;
use tokio::runtime::{Builder, Runtime};

use crate::guard::guarded;
use crate::rewind::Tape;
use crate::run_test::{TestOptions, completed, nothing_left, on_tape, until_clock_is_held};
use crate::unheard::Unheard;

/// How long leftover tasks of a test have to end, and its runtime to shut down.
const GRACE: Duration = Duration::from_secs(1);

/// Runs a test on a current-thread tokio runtime whose clock is paused, ten times; or in
/// real time on one with two workers, once: a check that no job and no timer is left and
/// that every failure reached a handle, a guard in real time. The clock jumps when no task
/// of tokio's and no job can go on, no blocking call is under way and nothing holds the
/// clock. Seeds have no effect here.
///
/// Each run is recorded, since no second one repeats it. A run that fails or hangs leaves its
/// recording, as with [`run_test`](crate::run_test).
///
/// # Panics
/// If the test fails.
pub fn run_tokio_test<F, B>(name: &'static str, options: TestOptions, test: F)
where
    F: Fn() -> B + Send + 'static,
    B: Future<Output: IntoOutcome<Value = ()>> + Send + 'static,
{
    guarded(name, move |watched| {
        let runs = if options.real_time { 1 } else { 10 };
        let run = |tape: Option<&Tape>| {
            let unheard = Unheard::default();
            let runtime = TestRuntime(Some(runtime(options.real_time)));
            runtime.block_on(async {
                let root = Root::builder().on_failure(Box::new(unheard.hook()));
                let root = match options.real_time {
                    true => root,
                    false => root.paused_clock(),
                };
                let root = match tape {
                    Some(tape) => root.sink(tape.sink()),
                    None => root,
                };
                let root = root.build_current().expect("the root of a new runtime");
                let recorded = tape.map(Tape::until_dropped);
                watched.watch_recorded(root.tree(), None, tape, || format!("{name}-tokio"));
                let task = root.scope().task("test").spawn(until_clock_is_held(test()));
                let held = completed(name, task.await);
                // The end is visible a moment before it is counted.
                while root.counters().living() > 1 && root.snapshot().len() <= 1 {
                    tokio::task::yield_now().await;
                }
                options.check(name, &unheard);
                nothing_left(name, root.tree());
                drop(recorded);
                drop(held);
                let report = root.shutdown_in(GRACE).await;
                assert!(
                    report.as_ref().is_ok_and(|report| report.is_clean()),
                    "{name}: {report:?}"
                );
            });
            options.check(name, &unheard);
        };
        (0..runs).for_each(|_| on_tape(name, "tokio", run));
    });
}

fn runtime(real_time: bool) -> Runtime {
    let runtime = match real_time {
        true => Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build(),
        false => Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build(),
    };
    runtime.expect("a tokio runtime for the test")
}

/// Waits for the threads of a test that has failed, for a limited time.
struct TestRuntime(Option<Runtime>);

impl std::ops::Deref for TestRuntime {
    type Target = Runtime;
    fn deref(&self) -> &Runtime {
        self.0.as_ref().expect("until it is dropped")
    }
}

impl Drop for TestRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_timeout(GRACE);
        }
    }
}
