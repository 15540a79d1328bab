//! Shutting a tree down: cancel it, then lift shields and guards, then drop
//! parked futures by force, then report which jobs held the shutdown up.

use std::fmt;
use std::pin::Pin;
use std::sync::PoisonError;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::base::error::{Error, Result};
use crate::base::observe::node::NodeSnapshot;
use crate::base::reason::ReasonKind;
use crate::base::timer_queue::TimerKey;
use crate::engine::context;
use crate::engine::tree::{MOST_NAMED, Tree};
use crate::more::see::{ShutdownReport, in_the_way};
use crate::surface::handle::Join;

/// How long a shutdown waits before it lifts shields, unless told otherwise.
pub const GRACE: Duration = Duration::from_secs(10);

/// How long after the grace parked futures are dropped.
pub const FORCE: Duration = Duration::from_secs(1);

/// How long the last step waits for the end of dropped futures.
const LAST: Duration = Duration::from_millis(100);

enum ShutdownPhase {
    Start,
    Asked,
    Lifted,
    Dropped,
}

/// What a shutdown has seen, and its report: for a host whose own thread times the
/// shutdown, with [`Tree::request_shutdown`], [`Tree::lift`] and [`Tree::force`], instead
/// of the host's clock. [`Tree::shutdown`] does all of it by the clock of the host.
pub struct ShutdownSteps {
    tree: Tree,
    /// The jobs in the way at the grace.
    late: Vec<NodeSnapshot>,
    /// How many jobs were not examined then.
    left_out: usize,
}

impl ShutdownSteps {
    /// Nothing has been seen yet.
    pub fn new(tree: Tree) -> ShutdownSteps {
        ShutdownSteps {
            tree,
            late: Vec::new(),
            left_out: 0,
        }
    }

    /// The grace is over: the jobs that are in the way now are late.
    pub fn note_late(&mut self) {
        self.late = self.in_the_way();
    }

    /// The report, after `took`.
    pub fn report(&mut self, took: Duration) -> ShutdownReport {
        let stragglers = self.in_the_way();
        let forced = std::mem::take(
            &mut *self
                .tree
                .shared()
                .forced
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        let late = std::mem::take(&mut self.late);
        let mut report = ShutdownReport::new(took, late, forced.seen, stragglers);
        report.left_out = self.left_out.max(forced.more);
        report
    }

    /// The jobs that are in the way now. The number of jobs examined is limited, so
    /// that the shutdown goes on soon, whatever the size of the tree.
    fn in_the_way(&mut self) -> Vec<NodeSnapshot> {
        let seen = self.tree.look_at_some(MOST_NAMED);
        if seen.len() == MOST_NAMED {
            let living = usize::try_from(self.tree.counters().living()).unwrap_or(usize::MAX);
            self.left_out = self.left_out.max(living.saturating_sub(MOST_NAMED));
        }
        in_the_way(&seen)
    }
}

impl fmt::Debug for ShutdownSteps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let late = self.late.len();
        f.debug_struct("ShutdownSteps")
            .field("late", &late)
            .finish()
    }
}

/// The future of [`Tree::shutdown`]. Polled outside any job.
///
/// # Cancellation
/// *Not a point.*
#[must_use = "futures do nothing unless awaited"]
pub struct Shutdown {
    tree: Tree,
    grace: Duration,
    force: Duration,
    phase: ShutdownPhase,
    began: Option<Instant>,
    join: Option<Join>,
    timer: Option<TimerKey>,
    steps: ShutdownSteps,
}

impl Tree {
    /// Shuts the tree down: cancels every job and waits; at `grace` lifts
    /// shields and guards and revokes leases; `force` later drops every parked
    /// future; then reports which jobs were in the way. Await it outside every
    /// job.
    pub fn shutdown(&self, grace: Duration, force: Duration) -> Shutdown {
        Shutdown::new(self.clone(), grace, force)
    }
}

impl Shutdown {
    pub(crate) fn new(tree: Tree, grace: Duration, force: Duration) -> Shutdown {
        Shutdown {
            steps: ShutdownSteps::new(tree.clone()),
            tree,
            grace,
            force,
            phase: ShutdownPhase::Start,
            began: None,
            join: None,
            timer: None,
        }
    }

    fn clear(&mut self) {
        if let Some(key) = self.timer.take() {
            crate::base::unwind::discard(self.tree.host().clear_timer(key));
        }
    }

    fn report(&mut self, now: Instant) -> ShutdownReport {
        self.clear();
        let took = self.began.map_or(Duration::ZERO, |began| now - began);
        self.steps.report(took)
    }

    /// Enters the next phase if its time has come; returns when to look again.
    fn advance(&mut self, now: Instant) -> Option<Instant> {
        let began = *self.began.get_or_insert(now);
        let at = |wait: Duration| began.checked_add(wait);
        loop {
            match self.phase {
                ShutdownPhase::Start => {
                    self.tree.request_shutdown(ReasonKind::Shutdown);
                    self.phase = ShutdownPhase::Asked;
                }
                ShutdownPhase::Asked => match at(self.grace) {
                    Some(due) if due <= now => {
                        self.steps.note_late();
                        self.tree.lift();
                        self.phase = ShutdownPhase::Lifted;
                    }
                    due => return due,
                },
                ShutdownPhase::Lifted => match at(self.grace.saturating_add(self.force)) {
                    Some(due) if due <= now => {
                        self.tree.force();
                        self.phase = ShutdownPhase::Dropped;
                    }
                    due => return due,
                },
                ShutdownPhase::Dropped => {
                    return at(self.grace.saturating_add(self.force).saturating_add(LAST));
                }
            }
        }
    }
}

impl Future for Shutdown {
    type Output = Result<ShutdownReport>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if context::current().is_some() {
            return Poll::Ready(Err(Error::msg(
                "shutdown was awaited inside a job, which it would wait for: \
                 call request_shutdown there, and await shutdown outside any job",
            )));
        }
        let now = this.tree.host().now();
        let next = this.advance(now);
        let root = this.tree.root_job();
        let join = this.join.get_or_insert_with(|| root.join());
        if Pin::new(join).poll(cx).is_ready() {
            return Poll::Ready(Ok(this.report(now)));
        }
        match next {
            Some(at) if at <= now => Poll::Ready(Ok(this.report(now))),
            Some(at) => {
                this.set(at, cx.waker());
                Poll::Pending
            }
            None => Poll::Pending,
        }
    }
}

impl Shutdown {
    fn set(&mut self, at: Instant, waker: &Waker) {
        self.clear();
        self.timer = Some(self.tree.host().set_timer(at, waker.clone()));
    }
}

impl Drop for Shutdown {
    fn drop(&mut self) {
        self.clear();
    }
}

impl fmt::Debug for Shutdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shutdown")
    }
}
