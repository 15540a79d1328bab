//! What `#[kinfolk::main(tokio)]` calls: a tokio runtime, a root, a main job, the exit code.

use std::process::ExitCode;
use std::time::Duration;

use kinfolk_core::IntoOutcome;
use tokio::runtime::{Builder, Runtime};

use crate::builder::RootBuilder;
use crate::root::Root;

/// How long the tokio runtime has to come home once every job has ended.
const HOME: Duration = Duration::from_millis(500);

/// Runs `future` as the main job on a tokio runtime of its own; when it has ended, shuts
/// the tree down. What goes wrong is said on standard error. The root is the current one of
/// that runtime, and hears Ctrl-C and SIGTERM: see [`RootBuilder::signals`], and
/// [`Root::run_main`] for the exit codes. The reason of their cancel names the line of the
/// caller.
///
/// # Panics
/// If a tokio runtime cannot be made, or if main panicked.
#[track_caller]
pub fn run_main<F>(future: F) -> ExitCode
where
    F: Future<Output: IntoOutcome<Value: Send>> + Send + 'static,
{
    run_main_with(main_options(), future)
}

/// As [`run_main`], and leaves signals alone.
///
/// # Panics
/// As [`run_main`].
#[track_caller]
pub fn run_main_without_signals<F>(future: F) -> ExitCode
where
    F: Future<Output: IntoOutcome<Value: Send>> + Send + 'static,
{
    run_main_with(main_options().signals(false), future)
}

/// The options of `#[kinfolk::main(tokio)]`: those of its root, and how many workers tokio
/// has.
#[doc(hidden)]
#[derive(Debug)]
#[must_use = "pass it to `run_main_with`"]
pub struct MainOptions {
    root: RootBuilder,
    workers: Option<usize>,
}

/// As they are without brackets: signals are heard, and tokio has as many workers as the
/// machine has processors.
#[doc(hidden)]
#[track_caller]
pub fn main_options() -> MainOptions {
    MainOptions {
        root: Root::builder().signals(true),
        workers: None,
    }
}

impl MainOptions {
    /// How many worker threads tokio has. With zero it is a current-thread runtime.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers);
        self
    }

    /// As [`RootBuilder::signals`].
    #[track_caller]
    pub fn signals(mut self, hear: bool) -> Self {
        self.root = self.root.signals(hear);
        self
    }

    /// As [`RootBuilder::grace`].
    pub fn grace(mut self, grace: Duration) -> Self {
        self.root = self.root.grace(grace);
        self
    }

    /// As [`RootBuilder::quiet`].
    pub fn quiet(mut self, quiet: bool) -> Self {
        self.root = self.root.quiet(quiet);
        self
    }

    /// As [`RootBuilder::exit_by_signal`].
    pub fn exit_by_signal(mut self, always: bool) -> Self {
        self.root = self.root.exit_by_signal(always);
        self
    }

    fn runtime(&self) -> Runtime {
        let mut builder = match self.workers {
            Some(0) => Builder::new_current_thread(),
            _ => Builder::new_multi_thread(),
        };
        if let Some(workers @ 1..) = self.workers {
            builder.worker_threads(workers);
        }
        let runtime = builder.enable_all().build();
        runtime.expect("a tokio runtime for #[kinfolk::main(tokio)]")
    }
}

/// A tokio runtime that is waited for a moment when it goes: a call that does not return
/// has been named, and is left behind.
struct ComesHome(Option<Runtime>);

impl Drop for ComesHome {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_timeout(HOME);
        }
    }
}

/// As [`run_main`], with these options.
#[doc(hidden)]
#[track_caller]
pub fn run_main_with<F>(options: MainOptions, future: F) -> ExitCode
where
    F: Future<Output: IntoOutcome<Value: Send>> + Send + 'static,
{
    let home = ComesHome(Some(options.runtime()));
    let runtime = home.0.as_ref().expect("it has not come home");
    let root = {
        let _inside = runtime.enter();
        let root = options.root.build_current();
        root.expect("the first root of a tokio runtime")
    };
    runtime.block_on(root.run_main(future))
}
