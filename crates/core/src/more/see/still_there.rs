//! One task in a report: its name, where it is held up, why it has not ended,
//! and what to do about it.

use std::collections::hash_map::{Entry, HashMap};
use std::fmt;
use std::panic::Location;
use std::time::Duration;

use crate::base::escape::quoted;
use crate::base::id::JobId;
use crate::base::lane::Lane;
use crate::base::observe::node::{NodeSnapshot, WaitingJob};
use crate::base::wait_kind::WaitKind;

/// Why a cancelled job has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StillThere {
    /// A shield or a guard holds the cancel back: the one that was made at this
    /// place, if it is known.
    Shielded(Option<&'static Location<'static>>),
    /// The job awaits a future that is not a cancellation point; it may have been told
    /// before.
    ForeignAwait,
    /// The job is being polled, and has reached no point since the cancel.
    NoPoint,
    /// The job is queued for a turn, and has reached no point since the cancel:
    /// no thread runs its lane, many others are queued before it, or it wakes
    /// itself again and again.
    Queued,
    /// The job waits for a child, or for another job.
    WaitsFor {
        /// The first job that it waits for, if that is known.
        first: Option<WaitingJob>,
        /// How many more children it has.
        others: usize,
    },
    /// The body of the job has ignored a hundred `Cancelled`s, and goes on.
    SwallowsCancellation,
    /// The job is in a wait that does not end at once: a blocking call, an operation that the
    /// system has not completed, its own clean-up.
    Waits(WaitKind),
    /// The job has never been polled: no thread runs its lane, or its host is
    /// gone.
    NotStarted,
    /// The body of the job is over, and a lease holds the job open.
    Leased,
}

impl StillThere {
    /// The cause that the job itself shows; the tree shows the jobs it waits
    /// for.
    pub(super) fn of(node: &NodeSnapshot) -> StillThere {
        if node.swallows_cancellation {
            return StillThere::SwallowsCancellation;
        }
        if node.shielded || node.cancelled_since.is_none() {
            return StillThere::Shielded(node.shielded_at);
        }
        match node.waits_on {
            None if node.polled_for.is_some() => StillThere::NoPoint,
            None if node.polls == 0 => StillThere::NotStarted,
            None if node.running => StillThere::Queued,
            None => held_open(node),
            Some((WaitKind::Foreign, _, _)) => StillThere::ForeignAwait,
            Some((kind, _, _)) if waits_for_others(kind) => StillThere::WaitsFor {
                first: None,
                others: 0,
            },
            Some((kind, _, _)) => StillThere::Waits(kind),
        }
    }

    /// What to do about it, for a job that has been told or has not.
    pub(super) fn help(&self, told: bool) -> &'static str {
        match self {
            StillThere::SwallowsCancellation => {
                "it swallows cancellation: return the `Cancelled` that its points return"
            }
            StillThere::Shielded(_) => {
                "bound the shield with `shield_for`, or hold the guard for less long"
            }
            StillThere::NoPoint => {
                "let its poll return: move blocking work to another thread, \
                 and put `checkpoint().await?` into long loops"
            }
            StillThere::Queued => {
                "run its lane, and check that no other task keeps the thread; \
                 put `checkpoint().await?` into a loop that only wakes itself"
            }
            StillThere::NotStarted => "keep its host running until the task has ended",
            StillThere::Leased => "drop the lease sooner",
            StillThere::ForeignAwait if !told => {
                "make the await a point, with `.or_cancel()`, so that it hears of the cancel"
            }
            StillThere::WaitsFor { .. } => {
                "look at the job that it waits for: that one has not ended"
            }
            StillThere::ForeignAwait | StillThere::Waits(_) => {
                "return soon after `Cancelled`, or bound the cleanup with `timeout`"
            }
        }
    }
}

impl fmt::Display for StillThere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StillThere::Shielded(Some(at)) => {
                write!(f, "a shield holds the cancel back, from {}", AtSite(at))
            }
            StillThere::Shielded(None) => f.write_str("a shield holds the cancel back"),
            StillThere::ForeignAwait => {
                f.write_str("awaits a future that is not a cancellation point")
            }
            StillThere::NoPoint => f.write_str("runs, and has reached no cancellation point since"),
            StillThere::Queued => {
                f.write_str("is queued, and has reached no cancellation point since")
            }
            StillThere::WaitsFor { first, others } => {
                f.write_str("waits for ")?;
                match first {
                    Some(first) => first.fmt(f)?,
                    None => f.write_str("another job")?,
                }
                match others {
                    0 => Ok(()),
                    n => write!(f, " and {n} more"),
                }
            }
            StillThere::SwallowsCancellation => f.write_str("swallows cancellation"),
            StillThere::Waits(kind) => write!(f, "waits on {kind}, which has not finished"),
            StillThere::NotStarted => f.write_str("has never been polled"),
            StillThere::Leased => f.write_str("a lease holds it open"),
        }
    }
}

/// Why a job without children has not ended although its body is over.
pub(super) fn held_open(node: &NodeSnapshot) -> StillThere {
    match node.leases {
        0 => StillThere::Waits(WaitKind::Blocking),
        _ => StillThere::Leased,
    }
}

/// True for a wait that ends with another job.
pub(super) fn waits_for_others(kind: WaitKind) -> bool {
    matches!(
        kind,
        WaitKind::Task | WaitKind::Join | WaitKind::Scope | WaitKind::Children
    )
}

/// The task that a report names for a job.
pub(super) fn task(node: &NodeSnapshot) -> JobId {
    node.task.as_ref().map_or(node.id, |task| task.id)
}

/// For how long a job has been held up, and its depth.
fn held_up(node: &NodeSnapshot) -> (Duration, usize) {
    let since = node.waits_on.map_or(Duration::ZERO, |(_, _, since)| since);
    (since, node.depth)
}

/// For each task the job in it that was held up longest; of equals the
/// innermost. In the order of the tasks.
pub(super) fn once_per_task<T>(jobs: Vec<T>, node: impl Fn(&T) -> &NodeSnapshot) -> Vec<T> {
    let mut kept: Vec<T> = Vec::new();
    let mut places: HashMap<JobId, usize> = HashMap::new();
    for job in jobs {
        match places.entry(task(node(&job))) {
            Entry::Vacant(place) => {
                place.insert(kept.len());
                kept.push(job);
            }
            Entry::Occupied(place) => {
                let other = &mut kept[*place.get()];
                if held_up(node(&job)) > held_up(node(other)) {
                    *other = job;
                }
            }
        }
    }
    kept
}

/// A place in the code.
pub(super) struct AtSite(pub(super) &'static Location<'static>);

impl fmt::Display for AtSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.0.file(), self.0.line(), self.0.column())
    }
}

/// The name of the task that a job is part of.
pub(super) fn task_name(node: &NodeSnapshot) -> &str {
    node.task.as_ref().map_or(&node.name, |task| &task.name)
}

/// For how long the task has been told, in whichever of its scopes.
pub(super) fn told_since(node: &NodeSnapshot) -> Option<Duration> {
    let told = node.task.as_ref().and_then(|task| task.told_since);
    told.max(node.told_since)
}

/// Writes where the job was spawned, in which scope it is and what it does
/// there.
pub(super) fn write_place(
    f: &mut fmt::Formatter<'_>,
    node: &NodeSnapshot,
    why: &StillThere,
) -> fmt::Result {
    let site = node.task.as_ref().map_or(node.site, |task| task.site);
    write!(f, "\n  --> spawned at {}", AtSite(site))?;
    if task(node) != node.id {
        let at = AtSite(node.site);
        write!(
            f,
            "\n   = in {} {}, opened at {at}",
            node.kind,
            quoted(&node.name)
        )?;
    }
    if let Some((kind, site, since)) = node.waits_on {
        write!(f, "\n   = waits on {kind}")?;
        if let Some(site) = site {
            write!(f, " at {}", AtSite(site))?;
        }
        write!(f, " for {since:?}")?;
        return match &node.waits_for {
            Some(waits_for) => write!(f, "\n   = waits for {waits_for}"),
            None => Ok(()),
        };
    }
    match node.polled_for {
        Some(lasted) => write!(f, "\n   = has been polled for {lasted:?} without a pause"),
        None if node.polls == 0 && node.lane == Lane::Pool => {
            f.write_str("\n   = was never polled")
        }
        None if node.polls == 0 => {
            write!(
                f,
                "\n   = was never polled, and is for the {} lane",
                node.lane
            )
        }
        None if node.running => write!(f, "\n   = is queued for a turn on the {} lane", node.lane),
        None => f.write_str(match why {
            StillThere::Leased => "\n   = its body is over, and a lease holds it open",
            StillThere::Waits(_) => "\n   = its body is over, and a blocking call of it is not",
            _ => "\n   = its body is over",
        }),
    }
}
