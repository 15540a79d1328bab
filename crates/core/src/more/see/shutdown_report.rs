//! [`ShutdownReport`]: the tasks that did not end in time.

use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

use crate::base::escape::quoted;
use crate::base::id::JobId;
use crate::base::observe::node::NodeSnapshot;
use crate::more::see::snapshot::TreeSnapshot;
use crate::more::see::still_there::{
    StillThere, once_per_task, task, task_name, told_since, waits_for_others, write_place,
};

/// The result of a shutdown: the tasks that did not end in time.
///
/// Each such task is in one of the three lists, once: as the innermost job in which it was
/// held up longest, the task itself or a scope in it.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// How long the shutdown took.
    pub took: Duration,
    /// Jobs that had not ended when the grace was over, as they were then.
    pub late: Vec<NodeSnapshot>,
    /// Jobs whose future was dropped before it completed, as they were then.
    pub dropped: Vec<NodeSnapshot>,
    /// Jobs that have not ended: their poll does not return, or no thread runs their lane.
    /// Their memory is leaked.
    pub stragglers: Vec<NodeSnapshot>,
    /// How many more jobs there were, approximately, than the 100,000 that a report examines.
    pub left_out: usize,
}

impl ShutdownReport {
    /// Puts each task into the last list that it belongs to.
    ///
    /// `late` are the jobs [in the way](in_the_way) at the grace, `stragglers`
    /// those that are in the way now; `dropped` are the forced drops, in order.
    pub(crate) fn new(
        took: Duration,
        late: Vec<NodeSnapshot>,
        dropped: Vec<NodeSnapshot>,
        stragglers: Vec<NodeSnapshot>,
    ) -> ShutdownReport {
        let stragglers = once_per_task(stragglers, |node| node);
        let mut known = tasks(&stragglers);
        let mut dropped = once_per_task(dropped, |node| node);
        if dropped.iter().any(is_held_up_itself) {
            // The others waited for these, and were dropped along with them.
            dropped.retain(is_held_up_itself);
        }
        dropped.retain(|node| !known.contains(&task(node)));
        known.extend(tasks(&dropped));
        let mut late = once_per_task(late, |node| node);
        late.retain(|node| !known.contains(&task(node)));
        ShutdownReport {
            took,
            late,
            dropped,
            stragglers,
            left_out: 0,
        }
    }

    /// Returns true if every job ended by itself, in time.
    pub fn is_clean(&self) -> bool {
        let named = self.late.len() + self.dropped.len() + self.stragglers.len();
        named + self.left_out == 0
    }
}

/// The jobs that hold a shutdown up: those that wait for no other. A service that has not been
/// cancelled only waits until it is its turn to be cancelled, and so do the jobs below it.
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

/// True if the job would not end even if all its children did.
fn is_held_up_itself(node: &NodeSnapshot) -> bool {
    match node.waits_on {
        Some((kind, _, _)) => !waits_for_others(kind),
        None => node.running,
    }
}

fn tasks(nodes: &[NodeSnapshot]) -> HashSet<JobId> {
    nodes.iter().map(task).collect()
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
        if self.left_out > 0 {
            write!(f, "\n{} more jobs were not looked at", self.left_out)?;
        }
        Ok(())
    }
}

fn write_entry(
    f: &mut fmt::Formatter<'_>,
    node: &NodeSnapshot,
    list: &str,
    what: &str,
) -> fmt::Result {
    write!(f, "\n{list}: task {} {what}", quoted(task_name(node)))?;
    let why = StillThere::of(node);
    write_place(f, node, &why)?;
    let told = told_since(node);
    match (node.cancelled_since, told) {
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
    write!(f, "\n   = help: {}", why.help(told.is_some()))
}
