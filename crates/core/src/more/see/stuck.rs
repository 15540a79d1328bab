//! [`StuckReport`]: cancelled jobs that have not ended, and polls that have not returned.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::panic::Location;
use std::time::Duration;

use crate::base::escape::quoted;
use crate::base::id::JobId;
use crate::base::lane::Lane;
use crate::base::observe::node::{NodeSnapshot, WaitingJob};
use crate::base::wait_kind::WaitKind;
use crate::more::see::snapshot::TreeSnapshot;
use crate::more::see::still_there::{
    StillThere, held_open, once_per_task, task, task_name, told_since, write_place,
};

/// The jobs that were cancelled some time ago and have not ended, with the cause; and the
/// polls that have not returned for that time. See [`TreeSnapshot::stuck`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct StuckReport {
    /// The time after which a job or a poll is listed.
    pub after: Duration,
    /// Tasks that were cancelled, or a scope in them, each once, in the order of the tree.
    pub jobs: Vec<StuckJob>,
    /// Tasks whose poll has not returned for that time, cancelled or not.
    pub polls: Vec<NodeSnapshot>,
}

/// A task that was cancelled and has not ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StuckJob {
    /// The task, or the scope in it in which it has been held up longest.
    pub job: NodeSnapshot,
    /// How long ago it was cancelled.
    pub since: Duration,
    /// Why it has not ended.
    pub why: StillThere,
}

impl StuckReport {
    /// Returns true if no task is stuck.
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty() && self.polls.is_empty()
    }

    /// Returns the entry of the task with that name.
    pub fn find(&self, name: &str) -> Option<&StuckJob> {
        self.jobs.iter().find(|stuck| task_name(&stuck.job) == name)
    }
}

impl TreeSnapshot {
    /// Lists the jobs that were cancelled at least `after` ago and have not ended, with the
    /// cause, and the tasks whose poll has lasted that long. Services that are not cancelled
    /// yet, and jobs of other tasks that a shield protects, are not listed.
    pub fn stuck(&self, after: Duration) -> StuckReport {
        let mut asked = asked(self.nodes());
        asked.retain(|one| one.since >= after);
        let inner: HashSet<JobId> = asked
            .iter()
            .filter(|one| one.inside)
            .filter_map(|one| one.node.parent)
            .collect();
        let innermost = asked
            .into_iter()
            .filter(|one| one.node.swallows_cancellation || !inner.contains(&one.node.id))
            .collect();
        let links = WaitLinks::new(self.nodes());
        StuckReport {
            after,
            jobs: once_per_task(innermost, |one| one.node)
                .into_iter()
                .map(|one| StuckJob {
                    job: one.node.clone(),
                    since: one.since,
                    why: links.why(&one),
                })
                .collect(),
            polls: self
                .nodes()
                .iter()
                .filter(|node| task(node) == node.id)
                .filter(|node| node.polled_for.is_some_and(|lasted| lasted >= after))
                .cloned()
                .collect(),
        }
    }
}

/// A job that must stop.
struct Asked<'a> {
    node: &'a NodeSnapshot,
    since: Duration,
    /// The shield or guard that holds the cancel back from it, if there is one.
    held: Option<Option<&'static Location<'static>>>,
    /// Its parent is of the same task, and must stop too.
    inside: bool,
}

/// The jobs that must stop: those that are marked, and, where a mark is held
/// back, the scopes of the same task from there on downwards.
fn asked(nodes: &[NodeSnapshot]) -> Vec<Asked<'_>> {
    let mut found: Vec<Asked<'_>> = Vec::new();
    // For each level its place in the list of these jobs.
    let mut levels: Vec<Option<usize>> = Vec::new();
    for node in nodes {
        levels.truncate(node.depth);
        let above = levels
            .last()
            .copied()
            .flatten()
            .map(|at| &found[at])
            .filter(|above| task(above.node) == task(node));
        let held = above.and_then(|above| above.held);
        let asked = match node.cancelled_since {
            Some(since) => {
                // A cancel that is held back further out counts too.
                let since = above
                    .filter(|_| held.is_some())
                    .map_or(since, |above| since.max(above.since));
                Some((since, node.shielded.then_some(node.shielded_at)))
            }
            None => above
                .filter(|_| held.is_some() || node.shielded)
                .map(|above| (above.since, held.or(Some(node.shielded_at)))),
        };
        let asked = asked.filter(|_| node.parent.is_some());
        levels.push(asked.is_some().then_some(found.len()));
        if let Some((since, held)) = asked {
            let inside = above.is_some();
            found.push(Asked {
                node,
                since,
                held,
                inside,
            });
        }
    }
    found
}

/// Which job waits for which.
struct WaitLinks<'a> {
    children: HashMap<JobId, Vec<&'a NodeSnapshot>>,
    awaited: HashMap<JobId, &'a NodeSnapshot>,
}

impl<'a> WaitLinks<'a> {
    fn new(nodes: &'a [NodeSnapshot]) -> WaitLinks<'a> {
        let mut links = WaitLinks {
            children: HashMap::new(),
            awaited: HashMap::new(),
        };
        for node in nodes {
            // A service that is spared waits for the others, and no job waits
            // for it.
            let spared = node.service && node.cancelled_since.is_none();
            if let Some(parent) = node.parent.filter(|_| !spared) {
                links.children.entry(parent).or_default().push(node);
            }
            for waiter in &node.waited_for_by {
                links.awaited.insert(waiter.id, node);
            }
        }
        links
    }

    fn why(&self, one: &Asked<'_>) -> StillThere {
        if let (Some(at), false) = (one.held, one.node.swallows_cancellation) {
            return StillThere::Shielded(at);
        }
        match StillThere::of(one.node) {
            StillThere::WaitsFor { .. } => self.waits_for(one.node),
            StillThere::Leased | StillThere::Waits(WaitKind::Blocking)
                if one.node.waits_on.is_none() && self.children.contains_key(&one.node.id) =>
            {
                self.waits_for(one.node)
            }
            why => why,
        }
    }

    fn waits_for(&self, node: &NodeSnapshot) -> StillThere {
        let awaits = matches!(node.waits_on, Some((WaitKind::Task | WaitKind::Join, _, _)));
        let awaited = self.awaited.get(&node.id).filter(|_| awaits);
        let children = self.children.get(&node.id).map_or(&[][..], |all| &all[..]);
        if !awaits && children.is_empty() {
            return held_open(node);
        }
        let (first, others) = match awaited {
            Some(awaited) => (Some(*awaited), 0),
            None => (children.first().copied(), children.len().saturating_sub(1)),
        };
        StillThere::WaitsFor {
            first: first.map(|node| WaitingJob {
                id: node.id,
                name: Some(node.name.clone()),
            }),
            others,
        }
    }
}

impl fmt::Display for StuckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let after = self.after;
        if self.is_empty() {
            return write!(
                f,
                "stuck: no task has outlived its cancel by {after:?}, and no poll has lasted that long"
            );
        }
        let jobs = match self.jobs.len() {
            0 => None,
            1 => Some(format!("1 task has not ended {after:?} after its cancel")),
            n => Some(format!(
                "{n} tasks have not ended {after:?} after their cancel"
            )),
        };
        let polls = match self.polls.len() {
            0 => None,
            1 => Some(format!("1 poll has lasted for {after:?}")),
            n => Some(format!("{n} polls have lasted for {after:?}")),
        };
        let both: Vec<_> = jobs.into_iter().chain(polls).collect();
        write!(f, "stuck: {}", both.join(", "))?;
        for StuckJob { job, since, why } in &self.jobs {
            let told = told_since(job);
            let millis = since.as_millis();
            write!(
                f,
                "\nstill there: task {} was cancelled {millis} ms ago",
                quoted(task_name(job))
            )?;
            match told {
                Some(told) => write!(f, ", told {} ms ago", told.as_millis())?,
                None => f.write_str(", not told")?,
            }
            write_place(f, job, why)?;
            write!(
                f,
                "\n   = why: {why}\n   = help: {}",
                why.help(told.is_some())
            )?;
        }
        for job in &self.polls {
            write!(
                f,
                "\nlong poll: task {} keeps its thread",
                quoted(task_name(job))
            )?;
            if job.lane != Lane::Pool {
                write!(f, " and its lane, {}", job.lane)?;
            }
            write_place(f, job, &StillThere::NoPoint)?;
            write!(f, "\n   = help: {}", StillThere::NoPoint.help(false))?;
        }
        Ok(())
    }
}
