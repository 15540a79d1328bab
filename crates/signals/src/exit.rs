//! How a main has ended: what is said of it, and the exit code.

use std::process::ExitCode;
use std::time::Duration;

use kinfolk_core::host::say::{MOMENT, Topic, flush, say, say_error};
use kinfolk_core::{Error, ErrorKind, GRACE, Outcome, ReasonKind, Result, ShutdownReport};

/// The number of SIGTERM, on every system that has it.
const SIGTERM: i32 = 15;

/// How a host ends.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// How long after the cancel shields are lifted.
    pub grace: Duration,
    /// It says nothing of signals and of what was left.
    pub quiet: bool,
    /// After a signal the exit code is always 128 and its number.
    pub exit_by_signal: bool,
}

impl Default for Manner {
    /// Ten seconds of grace; it says what is to be said.
    fn default() -> Manner {
        Manner {
            grace: GRACE,
            quiet: false,
            exit_by_signal: false,
        }
    }
}

/// How main has ended.
#[derive(Debug)]
pub enum MainEnded {
    /// It returned a value.
    WithSuccess,
    /// It returned the Cancelled of the signal, or was dropped.
    AsTold,
    /// It failed, or was cancelled by something else than a signal.
    Failed(Error),
}

impl MainEnded {
    /// How a main ended with that outcome, after a signal or without one.
    pub fn of<T>(outcome: Outcome<T>, signal: bool) -> MainEnded {
        match outcome {
            // What it returned after it was told is returned all the same.
            Outcome::Completed(_) | Outcome::Cancelled { late: Some(_), .. } => {
                MainEnded::WithSuccess
            }
            Outcome::Failed(error) => MainEnded::Failed(error),
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

    /// Says what was in the way of the shutdown and how main failed, and waits a moment until
    /// that is written; the exit code. `signal` is the number of the first signal.
    ///
    /// # Panics
    /// A panic of main goes on here.
    pub fn exit_code(
        self,
        report: Result<ShutdownReport>,
        signal: Option<i32>,
        manner: Manner,
    ) -> ExitCode {
        let left = match &report {
            Ok(report) => has_cut_short(report),
            Err(_) => true,
        };
        match report {
            Ok(report) if report.is_clean() || manner.quiet => {}
            Ok(report) => say(Topic::Seldom, format_args!("kinfolk: {report}")),
            Err(error) => say(Topic::Seldom, format_args!("kinfolk: {error}")),
        }
        let by_signal = |signal: i32| ExitCode::from(128 + signal as u8);
        let code = match (&self, signal) {
            (_, Some(signal)) if manner.exit_by_signal => by_signal(signal),
            (MainEnded::Failed(_), _) => ExitCode::FAILURE,
            (_, Some(signal)) if left => by_signal(signal),
            (MainEnded::AsTold, Some(signal)) if signal != SIGTERM => by_signal(signal),
            (MainEnded::AsTold | MainEnded::WithSuccess, _) => ExitCode::SUCCESS,
        };
        if let MainEnded::Failed(error) = self {
            if error.kind() == ErrorKind::Panicked {
                flush(MOMENT);
            }
            say_error(&error.resume());
        }
        flush(MOMENT);
        code
    }
}

/// Some job was dropped before it was done, or is still there.
fn has_cut_short(report: &ShutdownReport) -> bool {
    !report.dropped.is_empty() || !report.stragglers.is_empty() || report.left_out > 0
}
