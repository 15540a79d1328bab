//! [`ServeReport`]: how a server has ended, and what was late.

use std::fmt;
use std::time::Duration;

use kinfolk_core::host::say::{Topic, brief, grouped, quoted, say};
use kinfolk_core::{JobId, JobKind, NodeSnapshot, TreeSnapshot};

/// How many jobs are named on standard error.
const NAMED: usize = 10;

/// How a [`Server`](crate::Server) has ended.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ServeReport {
    /// How many connections were accepted.
    pub connections: u64,
    /// How long it took from the cancel to the end.
    pub took: Duration,
    /// The tasks that had not ended when the grace was over, as they were then: requests first,
    /// with what they have spawned, then connections. They were told then.
    pub late: Vec<NodeSnapshot>,
}

impl fmt::Display for ServeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ServeReport {
            connections, took, ..
        } = self;
        write!(f, "served {connections} connections; ended in {took:?}")?;
        for node in &self.late {
            write!(f, "\nlate: {}", LateTask(node))?;
        }
        Ok(())
    }
}

/// One task that was late.
struct LateTask<'a>(&'a NodeSnapshot);

impl fmt::Display for LateTask<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let node = self.0;
        write!(f, "{}, {} old", quoted(&node.name), brief(node.age))?;
        if let Some((kind, _, since)) = node.waits_on {
            write!(f, ", in {kind} for {}", brief(since))?;
        }
        Ok(())
    }
}

/// The tasks below a job.
pub(crate) fn living_below(tree: &TreeSnapshot, job: JobId) -> Vec<NodeSnapshot> {
    let below = tree.subtree(job).iter().skip(1);
    let tasks = below.filter(|node| node.kind == JobKind::Task);
    tasks.cloned().collect()
}

/// Names those that were late.
pub(crate) fn say_late(late: &[NodeSnapshot], grace: Duration) {
    let mut lines = String::new();
    for node in late.iter().take(NAMED) {
        lines.push_str("\n  ");
        lines.push_str(&LateTask(node).to_string());
    }
    if late.len() > NAMED {
        lines.push_str(&format!("\n  and {} more", late.len() - NAMED));
    }
    say(
        Topic::Seldom,
        format_args!(
            "kinfolk: the server stops; what has not ended in its grace of {} is told now, \
             {} in all:{lines}",
            brief(grace),
            grouped(late.len()),
        ),
    );
}
