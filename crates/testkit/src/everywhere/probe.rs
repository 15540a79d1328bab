//! What the points of one run are told, and where the scenario was stopped.

use std::backtrace::Backtrace;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};

use kinfolk_core::{Event, EventKind, Job, JobId, NodeSnapshot, PointHeld, Sink};

/// Points in a row until one yields, as a turn's budget would have it.
const FAIR: u64 = 128;

/// One run, as its points and the tree see it.
#[derive(Default)]
pub(super) struct Probe {
    passed: AtomicU64,
    /// The point at which it is stopped; zero for none.
    pub(super) at: AtomicU64,
    /// The point was reached, and the scenario is to be stopped.
    pub(super) due: AtomicBool,
    /// Every point waits until it is stopped.
    pub(super) holds: AtomicBool,
    seen: Mutex<Seen>,
    /// The place of the point is to be found out.
    names_places: bool,
}

#[derive(Default)]
struct Seen {
    /// The job whose points do not count.
    spared: Option<JobId>,
    /// The job that is stopped.
    target: Option<Job>,
    /// Where in the code the point is at which the scenario was stopped.
    place: Option<String>,
    /// Clean-up that did not come to its end, in words.
    cut: Vec<String>,
}

impl Probe {
    pub(super) fn new(names_places: bool) -> Probe {
        Probe {
            names_places,
            ..Probe::default()
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn target(&self) -> Option<Job> {
        self.seen().target.clone()
    }

    pub(super) fn aim_at(&self, job: Option<Job>) {
        self.seen().target = job;
    }

    pub(super) fn spare(&self, job: JobId) {
        self.seen().spared = Some(job);
    }

    pub(super) fn place(&self) -> Option<String> {
        self.seen().place.clone()
    }

    pub(super) fn points(&self) -> u64 {
        self.passed.load(SeqCst)
    }

    pub(super) fn point(&self, job: JobId) -> PointHeld {
        if self.seen().spared == Some(job) {
            return PointHeld::No;
        }
        if self.holds.load(SeqCst) {
            return PointHeld::Yes;
        }
        let passed = self.passed.fetch_add(1, SeqCst) + 1;
        if passed == self.at.load(SeqCst) {
            if self.names_places {
                self.seen().place = place_of_await();
            }
            self.due.store(true, SeqCst);
            self.holds.store(true, SeqCst);
            return PointHeld::Yes;
        }
        match passed.is_multiple_of(FAIR) {
            true => PointHeld::Yes,
            false => PointHeld::No,
        }
    }

    /// A future was dropped before it was done. One that was never told waited in
    /// a foreign await, where a drop is all that can be done; one that was told
    /// was cleaning up.
    pub(super) fn forced(&self, job: &NodeSnapshot) {
        if job.told_since.is_some() {
            self.seen().cut.push(format!(
                "{:?} at {}:{} was dropped while it cleaned up",
                job.name,
                job.site.file(),
                job.site.line()
            ));
        }
    }

    /// Clean-up that did not come to its end; a line for each.
    pub(super) fn cut(&self) -> Vec<String> {
        self.seen().cut.clone()
    }
}

/// Hears of clean-up whose time is up.
pub(super) struct Lifted(pub(super) std::sync::Arc<Probe>);

impl Sink for Lifted {
    fn event(&self, event: &Event) {
        if let EventKind::ShieldLifted { site } = event.kind {
            self.0.seen().cut.push(format!(
                "the clean-up or shield at {}:{} ran out of time",
                site.file(),
                site.line()
            ));
        }
    }
}

/// The file and line of the await in which this is called: the innermost frame of the
/// stack that is not ours and not a library's. None without debug information.
fn place_of_await() -> Option<String> {
    place_in(&Backtrace::force_capture().to_string())
}

/// The same, of a backtrace as text: a line with the function, and one with its place.
fn place_in(trace: &str) -> Option<String> {
    const NOT_THE_USERS: [&str; 12] = [
        "kinfolk_core::",
        "kinfolk_runtime::",
        "kinfolk_testkit::",
        "kinfolk_tokio::",
        "kinfolk::",
        "core::",
        "std::",
        "alloc::",
        "tokio::",
        "futures_",
        "hyper::",
        "__rust",
    ];
    let mut users = false;
    for line in trace.lines() {
        let line = line.trim_start();
        if let Some(place) = line.strip_prefix("at ") {
            if users {
                // Without the column.
                let (place, _) = place.rsplit_once(':')?;
                return Some(place.strip_prefix("./").unwrap_or(place).to_string());
            }
            continue;
        }
        let (_, function) = line.split_once(": ")?;
        let path = function.trim_start_matches(['<', '&']);
        // A name without a path is not Rust's.
        users = path.contains("::") && !NOT_THE_USERS.iter().any(|own| path.starts_with(own));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_frame_that_is_not_ours_is_the_place() {
        let trace = "   0: std::backtrace::Backtrace::force_capture\n\
                     \x20            at /rustc/std/src/backtrace.rs:312:13\n\
                     \x20  1: kinfolk_testkit::everywhere::probe::place_of_await\n\
                     \x20            at ./crates/testkit/src/everywhere/probe.rs:1:1\n\
                     \x20  2: <kinfolk_core::cancel::point::Checkpoint as core::future::future::Future>::poll\n\
                     \x20            at ./crates/core/src/cancel/point.rs:238:9\n\
                     \x20  3: shop::pay::{{closure}}\n\
                     \x20            at ./src/shop.rs:17:22\n\
                     \x20  4: shop::main::{{closure}}\n\
                     \x20            at ./src/shop.rs:40:5\n";
        assert_eq!(place_in(trace).as_deref(), Some("src/shop.rs:17"));
        // Without debug information there are no places but those of C.
        let bare = "   0: kinfolk_core::x\n   1: shop::pay::{{closure}}\n\
                    \x20  2: start_thread\n\
                    \x20            at ./nptl/pthread_create.c:442:8\n";
        assert_eq!(place_in(bare), None);
    }
}
