//! Shutting a tree down: ask, then lift what protects, then drop what is
//! parked, then say who was in the way.

use std::fmt;
use std::pin::Pin;
use std::sync::PoisonError;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::cancel::reason::ReasonKind;
use crate::cancel::sweep;
use crate::context;
use crate::error::{Error, Result};
use crate::host::TimerKey;
use crate::job::handle::Join;
use crate::job::{NodeSnapshot, TreeSnapshot};
use crate::tree::Tree;

/// How long after the grace parked futures are dropped.
pub const FORCE: Duration = Duration::from_secs(1);

/// How long the last step waits for dropped futures to be gone.
const LAST: Duration = Duration::from_millis(100);

/// What shutting down came to.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// How long it took.
    pub took: Duration,
    /// Jobs that had not ended when the grace was over, as they were then.
    pub late: Vec<NodeSnapshot>,
    /// Jobs whose future was dropped before it was done, as they were then.
    pub dropped: Vec<NodeSnapshot>,
    /// Jobs that are still there: they run without returning, or nobody turns
    /// the lane they are on. Their memory is leaked.
    pub stragglers: Vec<NodeSnapshot>,
}

impl ShutdownReport {
    /// True if every job ended by itself, in time.
    pub fn is_clean(&self) -> bool {
        self.late.is_empty() && self.dropped.is_empty() && self.stragglers.is_empty()
    }
}

impl fmt::Display for ShutdownReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_clean() {
            return write!(f, "shutdown: every job ended by itself in {:?}", self.took);
        }
        write!(f, "shutdown: took {:?}", self.took)?;
        let list = |f: &mut fmt::Formatter<'_>, what: &str, nodes: &[NodeSnapshot]| {
            for node in nodes {
                write!(f, "\n{what}: {} \"{}\"", node.kind, node.name)?;
                write!(
                    f,
                    "\n  --> spawned at {}:{}:{}",
                    node.site.file(),
                    node.site.line(),
                    node.site.column()
                )?;
                if let Some(task) = node.task.as_ref().filter(|task| **task != node.name) {
                    write!(f, "\n   = part of task \"{task}\"")?;
                }
                if let Some((kind, site, since)) = &node.waits_on {
                    write!(f, "\n   = waits on {kind}")?;
                    if let Some(site) = site {
                        write!(f, " at {}:{}", site.file(), site.line())?;
                    }
                    if !since.is_zero() {
                        write!(f, " for {since:?}")?;
                    }
                }
                if let Some(cancelled) = node.cancelled_since {
                    write!(f, "\n   = was cancelled {cancelled:?} before")?;
                }
                match node.told_since {
                    Some(told) => write!(f, "\n   = was told {told:?} before")?,
                    None => write!(f, "\n   = was never told: no point was reached")?,
                }
                if node.shielded {
                    write!(f, "\n   = a shield held the cancel back")?;
                }
                if node.swallows_cancellation {
                    write!(f, "\n   = swallows cancellation")?;
                }
            }
            Ok(())
        };
        list(f, "late", &self.late)?;
        list(f, "dropped", &self.dropped)?;
        list(f, "still running", &self.stragglers)
    }
}

enum Phase {
    Start,
    Asked,
    Lifted,
    Dropped,
}

/// The future of [`Tree::shutdown`]. Polled outside every job.
///
/// # Cancellation
/// *Not a point.*
#[must_use = "futures do nothing unless awaited"]
pub struct Shutdown {
    tree: Tree,
    grace: Duration,
    force: Duration,
    phase: Phase,
    began: Option<Instant>,
    join: Option<Join>,
    timer: Option<TimerKey>,
    late: Vec<NodeSnapshot>,
}

impl Shutdown {
    pub(crate) fn new(tree: Tree, grace: Duration, force: Duration) -> Shutdown {
        Shutdown {
            tree,
            grace,
            force,
            phase: Phase::Start,
            began: None,
            join: None,
            timer: None,
            late: Vec::new(),
        }
    }

    fn clear(&mut self) {
        if let Some(key) = self.timer.take() {
            drop(self.tree.host().clear_timer(key));
        }
    }

    fn report(&mut self, now: Instant) -> ShutdownReport {
        self.clear();
        let stragglers = leaves(&self.tree.snapshot());
        let dropped = std::mem::take(
            &mut *self
                .tree
                .shared()
                .forced
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        let known = |node: &NodeSnapshot| {
            stragglers
                .iter()
                .chain(&dropped)
                .any(|other| other.id == node.id)
        };
        let late = self.late.drain(..).filter(|node| !known(node)).collect();
        ShutdownReport {
            took: self.began.map_or(Duration::ZERO, |began| now - began),
            late,
            dropped,
            stragglers,
        }
    }

    /// Goes on to the next phase if its time has come; when to look again.
    fn advance(&mut self, now: Instant) -> Option<Instant> {
        let began = *self.began.get_or_insert(now);
        let at = |wait: Duration| began.checked_add(wait);
        loop {
            match self.phase {
                Phase::Start => {
                    self.tree.request_shutdown(ReasonKind::Shutdown);
                    self.phase = Phase::Asked;
                }
                Phase::Asked => match at(self.grace) {
                    Some(due) if due <= now => {
                        self.late = leaves(&self.tree.snapshot());
                        sweep::lift_all(self.tree.shared());
                        self.phase = Phase::Lifted;
                    }
                    due => return due,
                },
                Phase::Lifted => match at(self.grace.saturating_add(self.force)) {
                    Some(due) if due <= now => {
                        self.tree.force();
                        self.phase = Phase::Dropped;
                    }
                    due => return due,
                },
                Phase::Dropped => {
                    return at(self.grace.saturating_add(self.force).saturating_add(LAST));
                }
            }
        }
    }
}

/// Jobs without children: what the others wait for.
fn leaves(tree: &TreeSnapshot) -> Vec<NodeSnapshot> {
    let nodes = tree.nodes();
    nodes
        .iter()
        .enumerate()
        .filter(|(n, node)| {
            node.parent.is_some()
                && nodes
                    .get(n + 1)
                    .is_none_or(|next| next.parent != Some(node.id))
        })
        .map(|(_, node)| node.clone())
        .collect()
}

impl Future for Shutdown {
    type Output = Result<ShutdownReport>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if context::current().is_some() {
            return Poll::Ready(Err(Error::msg(
                "shutdown was awaited inside a job, which it would wait for: \
                 call request_shutdown there, and await shutdown outside every job",
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
