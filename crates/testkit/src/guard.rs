//! The real-time guard: a test that hangs is a failure that prints the tree.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kinfolk_core::Tree;

use crate::rewind::{self, Tape};
use crate::seeds;

/// A run of a test that can be repeated alone.
#[derive(Clone)]
pub(crate) enum WatchedRun {
    /// The test of this name on this seed.
    Seed(&'static str, u64),
    /// The run of `cancel_everywhere` that these words describe and repeat.
    Point(String),
}

impl WatchedRun {
    fn in_words(&self) -> String {
        match self {
            WatchedRun::Seed(name, seed) => seeds::line(name, *seed),
            WatchedRun::Point(words) => words.clone(),
        }
    }
}

/// Whether a run is recorded from its start.
#[derive(Clone)]
enum RecordedRun {
    Never,
    /// It would be, if the environment picked it.
    IfPicked,
    /// On this tape, under this name.
    On(Tape, String),
}

/// Where a guarded test says which tree to print if it hangs.
#[derive(Clone)]
pub struct GuardedRun(Arc<Mutex<WatchedTree>>);

struct WatchedTree {
    tree: Option<Tree>,
    /// The run that is watched.
    run: Option<WatchedRun>,
    recorded: RecordedRun,
    /// From when on its time counts.
    since: Instant,
}

impl GuardedRun {
    fn new() -> GuardedRun {
        GuardedRun(Arc::new(Mutex::new(WatchedTree {
            tree: None,
            run: None,
            recorded: RecordedRun::Never,
            since: Instant::now(),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, WatchedTree> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// If the test hangs from here on, this tree is printed. The time limit begins
    /// here again: a test that goes through many seeds has the whole time for each.
    pub fn watch(&self, tree: &Tree) {
        self.set(tree, None, RecordedRun::Never);
    }

    /// The same; the message also says how to repeat this run.
    pub(crate) fn watch_run(&self, tree: &Tree, run: WatchedRun) {
        self.set(tree, Some(run), RecordedRun::Never);
    }

    /// The same; what the tape has by then is written under that name. Without a tape the run
    /// has one if it is picked.
    pub(crate) fn watch_recorded(
        &self,
        tree: &Tree,
        run: Option<WatchedRun>,
        tape: Option<&Tape>,
        name: impl FnOnce() -> String,
    ) {
        let recorded = match tape {
            Some(tape) => RecordedRun::On(tape.clone(), name()),
            None if run.is_some() => RecordedRun::IfPicked,
            None => RecordedRun::Never,
        };
        self.set(tree, run, recorded);
    }

    fn set(&self, tree: &Tree, run: Option<WatchedRun>, recorded: RecordedRun) {
        let watch = WatchedTree {
            tree: Some(tree.clone()),
            run,
            recorded,
            since: Instant::now(),
        };
        let before = std::mem::replace(&mut *self.lock(), watch);
        // Outside the lock: this may be the last reference to the tree.
        drop(before);
    }
}

impl std::fmt::Debug for GuardedRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("GuardedRun")
    }
}

/// How long a guarded test may take in real time, unless
/// `KINFOLK_TEST_SECONDS` says otherwise.
const SECONDS: u64 = 120;

/// How long a guarded test may take in real time.
pub(crate) fn limit() -> Duration {
    Duration::from_secs(seeds::number("KINFOLK_TEST_SECONDS").unwrap_or(SECONDS))
}

/// Runs `test` on a thread of its own with the stack that a worker would have.
/// If the test takes too long in real time, prints the tree that it watches and
/// panics.
pub fn guarded(name: &str, test: impl FnOnce(GuardedRun) + Send + 'static) {
    let limit = limit();
    let watched = GuardedRun::new();
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
    loop {
        let left = limit.saturating_sub(watched.lock().since.elapsed());
        match wait.recv_timeout(left) {
            Ok(()) | Err(RecvTimeoutError::Disconnected) => {
                if let Err(payload) = thread.join() {
                    std::panic::resume_unwind(payload);
                }
                return;
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        let watch = watched.lock();
        if watch.since.elapsed() < limit {
            // The test has begun another round meanwhile.
            continue;
        }
        let (tree, run) = (watch.tree.clone(), watch.run.clone());
        let recorded = watch.recorded.clone();
        drop(watch);
        let line = run.map_or(String::new(), |run| format!("\n{}", run.in_words()));
        let tree = tree.map_or(String::new(), |tree| format!(":\n{}", tree.snapshot()));
        let words = format!("{name} hangs after {} s{tree}{line}", limit.as_secs());
        let recorded = match recorded {
            RecordedRun::On(tape, file) => tape.write(&file, &words),
            RecordedRun::IfPicked => rewind::is_wanted()
                .then(|| "run again like that, it is recorded, also if it hangs".to_string()),
            RecordedRun::Never => None,
        };
        match recorded {
            Some(line) => panic!("{words}\n{line}"),
            None => panic!("{words}"),
        }
    }
}
