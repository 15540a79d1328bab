//! What `#[kinfolk::main]` calls.

use std::process::ExitCode;

use kinfolk_core::{GRACE, IntoOutcome};

use crate::Runtime;
use crate::signals::Signals;

/// Runs `future` as the main job on a runtime of its own; when it has ended,
/// shuts the runtime down. What goes wrong is printed.
///
/// The first Ctrl-C or SIGTERM cancels everything, the second drops what is
/// parked, the third aborts.
///
/// # Panics
/// If the runtime cannot be made, or if main panicked.
pub fn run_main<F>(future: F) -> ExitCode
where
    F: Future<Output: IntoOutcome>,
{
    run(true, future)
}

/// As [`run_main`], and leaves signals alone.
///
/// # Panics
/// As [`run_main`].
pub fn run_main_without_signals<F>(future: F) -> ExitCode
where
    F: Future<Output: IntoOutcome>,
{
    run(false, future)
}

fn run<F>(signals: bool, future: F) -> ExitCode
where
    F: Future<Output: IntoOutcome>,
{
    let runtime = Runtime::new().expect("a runtime for #[kinfolk::main]");
    let heard = signals.then(|| {
        Signals::listen(runtime.handle().clone()).expect("signal handlers for #[kinfolk::main]")
    });
    let result = runtime.block_on(future);
    match runtime.shutdown(GRACE) {
        Ok(report) if report.is_clean() => {}
        Ok(report) => eprintln!("kinfolk: {report}"),
        Err(error) => eprintln!("kinfolk: {error}"),
    }
    let signal = heard.as_ref().and_then(Signals::first);
    match (result, signal) {
        (_, Some(signal)) => ExitCode::from(128 + signal as u8),
        (Ok(_), None) => ExitCode::SUCCESS,
        (Err(error), None) => {
            eprintln!("Error: {error}");
            ExitCode::FAILURE
        }
    }
}
