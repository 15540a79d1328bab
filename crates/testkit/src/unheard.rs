//! Failures that no handle took: they reach the failure hook of the tree, and
//! fail a test only by way of this module.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use kinfolk_core::host::say::escaped_path;
use kinfolk_core::{Error, ErrorKind};

/// A failure that a tool injects itself, and that does not count.
#[derive(Debug)]
pub(crate) struct Injected;

impl fmt::Display for Injected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a failure beside the scenario")
    }
}

impl std::error::Error for Injected {}

/// The failures that have reached the hook of one tree.
#[derive(Clone, Default)]
pub(crate) struct Unheard(Arc<Mutex<Vec<Error>>>);

impl Unheard {
    /// The failure hook.
    pub(crate) fn hook(&self) -> impl Fn(&Error) + Send + Sync + 'static {
        let unheard = self.0.clone();
        move |error| {
            if error.downcast_ref::<Injected>().is_none() {
                let mut unheard = unheard.lock().unwrap_or_else(PoisonError::into_inner);
                unheard.push(error.clone());
            }
        }
    }

    /// One line for each failure: the job, where it was spawned, its message.
    /// None if there was no failure.
    pub(crate) fn complaint(&self) -> Option<String> {
        self.complaint_of(|_| true)
    }

    /// The same for panics alone, where failures are allowed.
    pub(crate) fn panics(&self) -> Option<String> {
        self.complaint_of(|error| error.kind() == ErrorKind::Panicked)
    }

    fn complaint_of(&self, counts: fn(&Error) -> bool) -> Option<String> {
        let mut unheard =
            std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        unheard.retain(counts);
        if unheard.is_empty() {
            return None;
        }
        let lines: Vec<String> = unheard.iter().map(line).collect();
        Some(format!(
            "{} no handle took and the failure hook got:\n{}",
            match lines.len() {
                1 => "a failure that".to_string(),
                many => format!("{many} failures that"),
            },
            lines.join("\n")
        ))
    }
}

fn line(error: &Error) -> String {
    let job = match error.path() {
        [] => "a job".to_string(),
        path => escaped_path(path),
    };
    let site = error.site().map_or_else(String::new, |site| {
        format!(", spawned at {}:{}", site.file(), site.line())
    });
    let what = match error.kind() {
        ErrorKind::Panicked => "panicked",
        _ => "failed",
    };
    format!("  {job}{site}, {what}: {error}")
}

/// The message about panics that the tree has contained; none if there were
/// none.
pub(crate) fn contained_panics(messages: &[String]) -> Option<String> {
    (!messages.is_empty()).then(|| {
        format!(
            "code that Kinfolk called for no job (a destructor, a waker, a callback) panicked:\n  {}",
            messages.join("\n  ")
        )
    })
}
