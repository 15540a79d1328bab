//! [`Audit`]: counts and checks the traffic with any driver.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use kinfolk_core::host::say::{Topic, say};
use kinfolk_runtime::io::Request;
use kinfolk_runtime::io::driver::{Answer, Driver, Notifier, OpId, WaitMode};

#[derive(Default)]
struct AuditCounts {
    submitted: AtomicU64,
    completed: AtomicU64,
    cancels: AtomicU64,
    partial: AtomicU64,
    wrong: Mutex<Vec<String>>,
}

/// Counts the operations that go to the drivers of a host and come back, and
/// notes what must not happen: an operation that completes twice, or was never
/// begun. Clones count together.
#[derive(Clone, Default)]
pub struct Audit(Arc<AuditCounts>);

impl Audit {
    /// An audit without counts.
    pub fn new() -> Audit {
        Audit::default()
    }

    /// Returns the driver, watched.
    pub fn watch(&self, driver: Box<dyn Driver>) -> Box<dyn Driver> {
        Box::new(AuditedDriver {
            driver,
            under_way: UnderWayIds::default(),
            seen: self.0.clone(),
        })
    }

    /// How many operations were begun.
    pub fn submitted(&self) -> u64 {
        self.0.submitted.load(SeqCst)
    }

    /// How many of them have completed.
    pub fn completed(&self) -> u64 {
        self.0.completed.load(SeqCst)
    }

    /// How many cancels were requested.
    pub fn cancels(&self) -> u64 {
        self.0.cancels.load(SeqCst)
    }

    /// How many answers of a series were not its last.
    pub fn partial(&self) -> u64 {
        self.0.partial.load(SeqCst)
    }

    /// Panics unless every operation that was begun has completed, each once.
    #[track_caller]
    pub fn check(&self) {
        let wrong = self.0.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(wrong.is_empty(), "the driver: {}", wrong.join("; "));
        assert_eq!(
            self.submitted(),
            self.completed(),
            "operations submitted and completed"
        );
    }
}

impl std::fmt::Debug for Audit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Audit")
            .field("submitted", &self.submitted())
            .field("completed", &self.completed())
            .field("cancels", &self.cancels())
            .field("partial", &self.partial())
            .finish_non_exhaustive()
    }
}

struct AuditedDriver {
    driver: Box<dyn Driver>,
    under_way: UnderWayIds,
    seen: Arc<AuditCounts>,
}

/// The operations under way: at each index at most one, of this generation. Indices are few,
/// because they are used again.
#[derive(Default)]
struct UnderWayIds(Vec<Option<u32>>);

impl UnderWayIds {
    /// False if an operation is under way at that index.
    fn insert(&mut self, id: OpId) -> bool {
        let index = id.index as usize;
        if index >= self.0.len() {
            self.0.resize(index + 1, None);
        }
        self.0[index].replace(id.generation).is_none()
    }

    fn contains(&self, id: OpId) -> bool {
        self.0.get(id.index as usize) == Some(&Some(id.generation))
    }

    /// False if the operation was not under way.
    fn remove(&mut self, id: OpId) -> bool {
        let is_there = self.contains(id);
        if is_there {
            self.0[id.index as usize] = None;
        }
        is_there
    }
}

impl AuditedDriver {
    fn complain(&self, what: String) {
        let name = self.driver.name();
        say(Topic::Seldom, format_args!("{name} driver: {what}"));
        let mut wrong = self
            .seen
            .wrong
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        wrong.push(what);
    }
}

// SAFETY: each submission is collected once, after the last touch of its memory,
// with no more bytes than requested.
unsafe impl Driver for AuditedDriver {
    unsafe fn submit(&mut self, id: OpId, request: &Request) {
        self.seen.submitted.fetch_add(1, SeqCst);
        if !self.under_way.insert(id) {
            self.complain(format!("operation {id:?} was begun twice"));
        }
        // SAFETY: as promised by the caller.
        unsafe { self.driver.submit(id, request) };
    }

    fn cancel(&mut self, id: OpId) {
        self.seen.cancels.fetch_add(1, SeqCst);
        self.driver.cancel(id);
    }

    fn poll(&mut self, wait: WaitMode, answers: &mut Vec<Answer>) -> io::Result<()> {
        let before = answers.len();
        let turned = self.driver.poll(wait, answers);
        let mut over = 0;
        for Answer { id, more, .. } in &answers[before..] {
            if *more {
                self.seen.partial.fetch_add(1, SeqCst);
                if !self.under_way.contains(*id) {
                    self.complain(format!("operation {id:?} goes on, and was not under way"));
                }
                continue;
            }
            over += 1;
            if !self.under_way.remove(*id) {
                self.complain(format!("operation {id:?} is over, and was not under way"));
            }
        }
        self.seen.completed.fetch_add(over, SeqCst);
        turned
    }

    fn notifier(&self) -> Arc<dyn Notifier> {
        self.driver.notifier()
    }

    fn wants_nonblocking(&self) -> bool {
        self.driver.wants_nonblocking()
    }

    fn name(&self) -> &'static str {
        self.driver.name()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kinfolk_runtime::io::request::NopArgs;

    /// Answers what the test has set.
    struct Says(Vec<Answer>);

    struct Silent;

    impl Notifier for Silent {
        fn notify(&self) {}
    }

    // SAFETY: each submission is collected once, unless a test wants to see what
    // happens otherwise; no memory is touched.
    unsafe impl Driver for Says {
        unsafe fn submit(&mut self, _id: OpId, _request: &Request) {}

        fn cancel(&mut self, _id: OpId) {}

        fn poll(&mut self, _wait: WaitMode, answers: &mut Vec<Answer>) -> io::Result<()> {
            answers.append(&mut self.0);
            Ok(())
        }

        fn notifier(&self) -> Arc<dyn Notifier> {
            Arc::new(Silent)
        }

        fn wants_nonblocking(&self) -> bool {
            false
        }

        fn name(&self) -> &'static str {
            "says"
        }
    }

    /// Begins one operation; the driver reports these as complete.
    fn audit(over: &[u32]) -> Audit {
        seen_by(Audit::new(), over)
    }

    fn seen_by(audit: Audit, over: &[u32]) -> Audit {
        let id = |index| OpId {
            index,
            generation: 0,
        };
        let said = over.iter().map(|index| Answer::last(id(*index), 0));
        let mut driver = audit.watch(Box::new(Says(said.collect())));
        // SAFETY: the request has no pointers.
        unsafe { driver.submit(id(1), &Request::Nop(NopArgs)) };
        driver.cancel(id(1));
        driver.poll(WaitMode::No, &mut Vec::new()).expect("a turn");
        audit
    }

    #[test]
    fn one_that_is_over_once_is_right() {
        let audit = audit(&[1]);
        audit.check();
        let counts = (audit.submitted(), audit.completed(), audit.cancels());
        assert_eq!(counts, (1, 1, 1));
    }

    #[test]
    #[should_panic(expected = "operations submitted and completed")]
    fn one_that_is_never_over_is_missed() {
        audit(&[]).check();
    }

    #[test]
    #[should_panic(expected = "operation 1.0 is over, and was not under way")]
    fn one_that_is_over_twice_is_noticed() {
        audit(&[1, 1]).check();
    }

    /// The end of a simulation asks the audit of its driver.
    #[test]
    #[should_panic(expected = "operations submitted and completed")]
    fn the_end_of_a_simulation_misses_one_that_is_never_over() {
        let sim = crate::Sim::seeded(1);
        seen_by(sim.io_audit(), &[]);
        sim.finish();
    }
}
