//! The real-time guard: a test that hangs is a failure that prints the tree.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kinfolk_core::Tree;

/// Where a guarded test says which tree to print if it hangs.
#[derive(Clone, Default)]
pub struct Watched(Arc<Mutex<Option<Tree>>>);

impl Watched {
    /// If the test hangs from here on, print this tree.
    pub fn watch(&self, tree: &Tree) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(tree.clone());
    }
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Watched")
    }
}

/// How long a guarded test may take in real time, unless
/// `KINFOLK_TEST_SECONDS` says otherwise.
const SECONDS: u64 = 120;

/// How long a guarded test may take in real time.
pub(crate) fn limit() -> Duration {
    let seconds = std::env::var("KINFOLK_TEST_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(SECONDS);
    Duration::from_secs(seconds)
}

/// Runs `test` on a thread of its own with the stack a worker would have. If
/// it takes too long in real time, prints the tree it watches and panics.
pub fn guarded(name: &str, test: impl FnOnce(Watched) + Send + 'static) {
    let limit = limit();
    let seconds = limit.as_secs();
    let watched = Watched::default();
    let inner = watched.clone();
    let (done, wait) = channel();
    let thread = std::thread::Builder::new()
        .name(name.to_string())
        .stack_size(2 << 20)
        .spawn(move || {
            test(inner);
            let _ = done.send(());
        })
        .expect("a thread for the test");
    match wait.recv_timeout(limit) {
        Ok(()) | Err(RecvTimeoutError::Disconnected) => {
            if let Err(payload) = thread.join() {
                std::panic::resume_unwind(payload);
            }
        }
        Err(RecvTimeoutError::Timeout) => {
            let tree = watched.0.lock().unwrap_or_else(PoisonError::into_inner);
            match &*tree {
                Some(tree) => panic!("{name} hangs after {seconds} s:\n{}", tree.snapshot()),
                None => panic!("{name} hangs after {seconds} s"),
            }
        }
    }
}
