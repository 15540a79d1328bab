//! What `#[kinfolk::main]` calls.

use std::process::ExitCode;

use kinfolk_core::IntoOutcome;
use kinfolk_core::host::say::{MOMENT, Topic, flush, say, say_error};
use tokio::runtime::Builder;

use crate::root::Root;

/// Runs `future` as the main job on a tokio runtime of its own; when it has
/// ended, shuts the tree down. What goes wrong is printed.
///
/// # Panics
/// If a tokio runtime cannot be made, or if main panicked.
pub fn run_main<F>(future: F) -> ExitCode
where
    F: Future<Output: IntoOutcome<Value: Send>> + Send + 'static,
{
    let runtime = Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a tokio runtime for #[kinfolk::main]");
    let code = runtime.block_on(async {
        let root = Root::current();
        let result = root.run(future).await;
        match root.shutdown().await {
            Ok(report) if report.is_clean() => {}
            Ok(report) => say(Topic::Seldom, format_args!("kinfolk: {report}")),
            Err(error) => say(Topic::Seldom, format_args!("kinfolk: {error}")),
        }
        match result {
            Ok(_) => ExitCode::SUCCESS,
            Err(error) => {
                say_error(&error.resume());
                ExitCode::FAILURE
            }
        }
    });
    flush(MOMENT);
    code
}
