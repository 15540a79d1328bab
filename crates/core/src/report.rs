//! What shutting down came to: who was in the way, each task once, in words
//! that say what to do about it.

use std::collections::HashSet;
use std::collections::hash_map::{Entry, HashMap};
use std::fmt;
use std::panic::Location;
use std::time::Duration;

use crate::cancel::wait::WaitKind;
use crate::job::id::JobId;
use crate::job::{NodeSnapshot, TreeSnapshot};

/// What shutting down came to.
///
/// Each task that was in the way stands in one of the three lists, once, as
/// the innermost job in which it was held up longest: itself or a scope in it.
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
    /// Puts each task into the last of the lists that it has come to.
    ///
    /// `late` are those [in the way](in_the_way) at the grace, `stragglers`
    /// those who still are; `dropped` is what was dropped, in order.
    pub(crate) fn new(
        took: Duration,
        late: Vec<NodeSnapshot>,
        dropped: Vec<NodeSnapshot>,
        stragglers: Vec<NodeSnapshot>,
    ) -> ShutdownReport {
        let stragglers = once_per_task(stragglers);
        let mut known = tasks(&stragglers);
        let mut dropped = once_per_task(dropped);
        if dropped.iter().any(is_held_up_itself) {
            // The others waited for these, and were dropped along with them.
            dropped.retain(is_held_up_itself);
        }
        dropped.retain(|node| !known.contains(&task(node)));
        known.extend(tasks(&dropped));
        let mut late = once_per_task(late);
        late.retain(|node| !known.contains(&task(node)));
        ShutdownReport {
            took,
            late,
            dropped,
            stragglers,
        }
    }

    /// True if every job ended by itself, in time.
    pub fn is_clean(&self) -> bool {
        self.late.is_empty() && self.dropped.is_empty() && self.stragglers.is_empty()
    }
}

/// Who is in the way: jobs that wait for no other. Services that have not been
/// cancelled, with all below them, only wait for their turn to go.
pub(crate) fn in_the_way(tree: &TreeSnapshot) -> Vec<NodeSnapshot> {
    let mut spared = usize::MAX;
    let concerned: Vec<_> = tree
        .nodes()
        .iter()
        .filter(|node| {
            if node.depth <= spared {
                let waits = node.service && node.cancelled_since.is_none();
                spared = if waits { node.depth } else { usize::MAX };
            }
            spared == usize::MAX && node.parent.is_some()
        })
        .collect();
    let parents: HashSet<_> = concerned.iter().filter_map(|node| node.parent).collect();
    concerned
        .into_iter()
        .filter(|node| !parents.contains(&node.id) || is_held_up_itself(node))
        .cloned()
        .collect()
}

/// True if it would not end even if all its children did.
fn is_held_up_itself(node: &NodeSnapshot) -> bool {
    match node.waits_on {
        Some((kind, _, _)) => !waits_for_others(kind),
        None => node.running,
    }
}

fn waits_for_others(kind: WaitKind) -> bool {
    matches!(
        kind,
        WaitKind::Task | WaitKind::Join | WaitKind::Scope | WaitKind::Children
    )
}

/// The task by which a job is known in a report.
fn task(node: &NodeSnapshot) -> JobId {
    node.task.as_ref().map_or(node.id, |task| task.id)
}

fn tasks(nodes: &[NodeSnapshot]) -> HashSet<JobId> {
    nodes.iter().map(task).collect()
}

/// For how long a job was held up where it was, and how deep that is.
fn held_up(node: &NodeSnapshot) -> (Duration, usize) {
    let since = node.waits_on.map_or(Duration::ZERO, |(_, _, since)| since);
    (since, node.depth)
}

/// Of the jobs of one task the one that was held up longest; of equals the
/// innermost. In the order in which the tasks come.
fn once_per_task(nodes: Vec<NodeSnapshot>) -> Vec<NodeSnapshot> {
    let mut kept: Vec<NodeSnapshot> = Vec::new();
    let mut places: HashMap<JobId, usize> = HashMap::new();
    for node in nodes {
        match places.entry(task(&node)) {
            Entry::Vacant(place) => {
                place.insert(kept.len());
                kept.push(node);
            }
            Entry::Occupied(place) => {
                let other = &mut kept[*place.get()];
                if held_up(&node) > held_up(other) {
                    *other = node;
                }
            }
        }
    }
    kept
}

impl fmt::Display for ShutdownReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_clean() {
            return write!(f, "shutdown: every job ended by itself in {:?}", self.took);
        }
        let tasks = self.late.len() + self.dropped.len() + self.stragglers.len();
        let were = if tasks == 1 { "task was" } else { "tasks were" };
        write!(
            f,
            "shutdown: took {:?}, {tasks} {were} in the way",
            self.took
        )?;
        for node in &self.late {
            write_entry(f, node, "late", "ended, but after the grace")?;
        }
        for node in &self.dropped {
            write_entry(f, node, "dropped", "was dropped before it was done")?;
        }
        for node in &self.stragglers {
            write_entry(
                f,
                node,
                "still there",
                "has not ended; its memory is leaked",
            )?;
        }
        Ok(())
    }
}

/// Since when the task has been told, whichever scope of it was.
fn told_since(node: &NodeSnapshot) -> Option<Duration> {
    let told = node.task.as_ref().and_then(|task| task.told_since);
    told.max(node.told_since)
}

struct At(&'static Location<'static>);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.0.file(), self.0.line(), self.0.column())
    }
}

fn write_entry(
    f: &mut fmt::Formatter<'_>,
    node: &NodeSnapshot,
    list: &str,
    what: &str,
) -> fmt::Result {
    let (name, site) = match &node.task {
        Some(task) => (&*task.name, task.site),
        None => (&*node.name, node.site),
    };
    write!(f, "\n{list}: task \"{name}\" {what}")?;
    write!(f, "\n  --> spawned at {}", At(site))?;
    if task(node) != node.id {
        let at = At(node.site);
        write!(
            f,
            "\n   = in {} \"{}\", opened at {at}",
            node.kind, node.name
        )?;
    }
    match node.waits_on {
        Some((kind, site, since)) => {
            write!(f, "\n   = waits on {kind}")?;
            if let Some(site) = site {
                write!(f, " at {}", At(site))?;
            }
            write!(f, " for {since:?}")?;
        }
        None if node.running => f.write_str("\n   = is being polled, or queued for it")?,
        None if node.polls == 0 => f.write_str("\n   = was never polled")?,
        None => f.write_str("\n   = its body is over, and a lease holds it open")?,
    }
    match (node.cancelled_since, told_since(node)) {
        (Some(cancelled), Some(told)) => {
            write!(
                f,
                "\n   = was cancelled {cancelled:?} before, and told {told:?} before"
            )?;
        }
        (Some(cancelled), None) => {
            write!(
                f,
                "\n   = was cancelled {cancelled:?} before, and never told"
            )?;
        }
        (None, _) => f.write_str("\n   = was not cancelled: a shield held the cancel back")?,
    }
    write!(f, "\n   = help: {}", help(node))
}

/// What to do about it.
fn help(node: &NodeSnapshot) -> &'static str {
    let told = told_since(node).is_some();
    if node.swallows_cancellation {
        return "it swallows cancellation: return the `Cancelled` that its points give";
    }
    if node.shielded || node.cancelled_since.is_none() {
        return "bound the shield with `shield_for`, or hold the guard for less long";
    }
    match node.waits_on {
        None if node.running => {
            "let its poll return: move blocking work to another thread, \
             and put `checkpoint().await?` into long loops"
        }
        None if node.polls == 0 => "see that its host runs until the shutdown is over",
        None => "give the lease back sooner",
        Some((WaitKind::Foreign, _, _)) if !told => {
            "make the await a point, with `.or_cancel()`, so that it hears of the cancel"
        }
        Some((kind, _, _)) if waits_for_others(kind) => {
            "look at what it waits for: that has not ended"
        }
        Some(_) => "return soon after `Cancelled`, or bound the cleanup with `timeout`",
    }
}
