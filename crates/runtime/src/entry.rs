//! What `#[kinfolk::main]` calls.

use std::panic::Location;
use std::process::ExitCode;

use kinfolk_core::host::say::{MOMENT, Topic, flush, say};
use kinfolk_core::{GRACE, IntoOutcome};

use crate::Runtime;
use crate::signals::MainSignals;

/// Runs `future` as the main job on a runtime of its own; when it has ended,
/// shuts the runtime down. What goes wrong is printed.
///
/// The first Ctrl-C or SIGTERM cancels everything, the second drops what is
/// parked, the third aborts. The reason of the cancel says which it was, and names
/// the line of the caller.
///
/// # Panics
/// If the runtime cannot be made, or if main panicked.
#[track_caller]
pub fn run_main<F>(future: F) -> ExitCode
where
    F: Future<Output: IntoOutcome>,
{
    run(Some(Location::caller()), future)
}

/// As [`run_main`], and leaves signals alone.
///
/// # Panics
/// As [`run_main`].
pub fn run_main_without_signals<F>(future: F) -> ExitCode
where
    F: Future<Output: IntoOutcome>,
{
    run(None, future)
}

/// Hears signals, if it is to, in the name of a place in the code.
fn run<F>(signals: Option<&'static Location<'static>>, future: F) -> ExitCode
where
    F: Future<Output: IntoOutcome>,
{
    let runtime = Runtime::new().expect("a runtime for #[kinfolk::main]");
    let heard = signals.map(|site| {
        let heard = MainSignals::listen(runtime.handle().clone(), site);
        heard.expect("signal handlers for #[kinfolk::main]")
    });
    let result = runtime.block_on(future);
    match runtime.shutdown(GRACE) {
        Ok(report) if report.is_clean() => {}
        Ok(report) => say(Topic::Seldom, format_args!("kinfolk: {report}")),
        Err(error) => say(Topic::Seldom, format_args!("kinfolk: {error}")),
    }
    let signal = heard.as_ref().and_then(MainSignals::first);
    let code = match (result, signal) {
        (_, Some(signal)) => ExitCode::from(128 + signal as u8),
        (Ok(_), None) => ExitCode::SUCCESS,
        (Err(error), None) => {
            say(Topic::Seldom, format_args!("Error: {error}"));
            ExitCode::FAILURE
        }
    };
    flush(MOMENT);
    code
}
