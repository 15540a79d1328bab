//! What `#[kinfolk::main]` calls: a main job from its start to the exit code.

use std::process::ExitCode;

use kinfolk_core::host::say::{MOMENT, Topic, flush, say, say_error};
use kinfolk_core::{Error, IntoOutcome, Outcome, ReasonKind, ShutdownReport};

use crate::{Builder, Runtime};

/// Runs `future` as the main job on a runtime of its own, with as many workers as the
/// machine has processors; see [`Runtime::run_main`]. The runtime hears Ctrl-C and
/// SIGTERM: see [`Builder::signals`]. The reason of their cancel names the line of the
/// caller.
///
/// # Panics
/// If the runtime cannot be made, or if main panicked.
#[track_caller]
pub fn run_main<F>(future: F) -> ExitCode
where
    F: Future<Output: IntoOutcome>,
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
    F: Future<Output: IntoOutcome>,
{
    run_main_with(main_options().signals(false), future)
}

/// The options of a runtime for `#[kinfolk::main]`: it hears signals, and has as many
/// workers as the machine has processors, since its main thread mostly waits.
#[doc(hidden)]
#[track_caller]
pub fn main_options() -> Builder {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    Runtime::builder().workers(processors).signals(true)
}

/// As [`run_main`], on a runtime with these options.
#[doc(hidden)]
#[track_caller]
pub fn run_main_with<F>(options: Builder, future: F) -> ExitCode
where
    F: Future<Output: IntoOutcome>,
{
    let runtime = options.build().expect("a runtime for #[kinfolk::main]");
    runtime.run_main(future)
}

/// How main has ended.
enum MainEnded {
    WithSuccess,
    /// It returned the Cancelled of the signal, or was dropped.
    AsTold,
    Failed(Error),
}

impl Runtime {
    /// Runs `future` as the main job, as [`block_on`](Runtime::block_on) does, then shuts
    /// the runtime down. What goes wrong is said on standard error: the error of main with
    /// the names of the jobs from the root to the one that failed, and what was in the way
    /// of the shutdown. The answer is for the `main` of the program to return.
    ///
    /// | main | exit code |
    /// |---|---|
    /// | returned a value | 0 |
    /// | failed | 1 |
    /// | returned the `Cancelled` of a [signal](Builder::signals) | 0 for SIGTERM, 130 for SIGINT: a shell that runs it in a loop must see its Ctrl-C |
    /// | did not fail, and after a signal some job was dropped or left | 128 and the number of the signal |
    ///
    /// ```
    /// # mod kinfolk { pub use kinfolk_runtime::Runtime; }
    /// use std::process::ExitCode;
    ///
    /// fn main() -> ExitCode {
    ///     let rt = kinfolk::Runtime::builder().workers(2).signals(true).build();
    ///     rt.expect("a runtime").run_main(async { println!("served") })
    /// }
    /// ```
    ///
    /// # Panics
    /// If main panicked, or if it is called inside a job.
    #[track_caller]
    pub fn run_main<F>(mut self, future: F) -> ExitCode
    where
        F: Future<Output: IntoOutcome>,
    {
        let outcome = match self.block_on_task(future, |task| task.outcome()) {
            Ok(outcome) => outcome,
            Err(error) => panic!("run_main: {error}"),
        };
        let ended = match outcome {
            Ok(outcome) => ended(outcome, self.first_signal().is_some()),
            Err(told) => MainEnded::Failed(told.into()),
        };
        let report = self.end();
        let left = match &report {
            Ok(report) => has_cut_short(report),
            Err(_) => true,
        };
        match report {
            Ok(report) if report.is_clean() || self.manner.quiet => {}
            Ok(report) => say(Topic::Seldom, format_args!("kinfolk: {report}")),
            Err(error) => say(Topic::Seldom, format_args!("kinfolk: {error}")),
        }
        let signal = self.first_signal();
        let by_signal = |signal: i32| ExitCode::from(128 + signal as u8);
        let always = self.manner.exit_by_signal;
        let code = match (&ended, signal) {
            (_, Some(signal)) if always => by_signal(signal),
            (MainEnded::Failed(_), _) => ExitCode::FAILURE,
            (_, Some(signal)) if left => by_signal(signal),
            (MainEnded::AsTold, Some(signal)) if signal != libc::SIGTERM => by_signal(signal),
            (MainEnded::AsTold | MainEnded::WithSuccess, _) => ExitCode::SUCCESS,
        };
        if let MainEnded::Failed(error) = ended {
            say_error(&error);
        }
        flush(MOMENT);
        code
    }
}

/// Some job was dropped before it was done, or is still there.
fn has_cut_short(report: &ShutdownReport) -> bool {
    !report.dropped.is_empty() || !report.stragglers.is_empty() || report.left_out > 0
}

/// How main has ended; a panic in it goes on here.
fn ended<T>(outcome: Outcome<T>, signal: bool) -> MainEnded {
    match outcome {
        // What it returned after it was told is returned all the same.
        Outcome::Completed(_) | Outcome::Cancelled { late: Some(_), .. } => MainEnded::WithSuccess,
        Outcome::Failed(error) => MainEnded::Failed(error.resume()),
        Outcome::Cancelled { reason, late: None } => {
            // Where the signal came before main began, the root may be over by then.
            let by_signal = [ReasonKind::Shutdown, ReasonKind::ScopeEnded];
            match signal && by_signal.contains(&reason.root_cause().kind()) {
                true => MainEnded::AsTold,
                false => MainEnded::Failed(Error::msg(format!("main was cancelled: {reason}"))),
            }
        }
    }
}
