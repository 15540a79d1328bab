//! The tree as plain data, taken by reading: nothing is polled, nothing is
//! stopped. Flat, in the order in which it prints, so that a tree a million
//! deep is copied, printed and dropped without recursion.

use std::collections::{HashMap, HashSet};
use std::ops::{ControlFlow, Range};
use std::sync::OnceLock;
use std::time::Duration;

use crate::base::id::JobId;
use crate::base::observe::node::NodeSnapshot;
use crate::engine::children::older_children;
use crate::engine::look::{TaskLook, look_at, task_of};
use crate::engine::poll_record;
use crate::engine::tree::{Shared, Tree};
use crate::more::see::cycles::{self, WaitedFor};

/// The living jobs of one root. Each is consistent in itself; a listed child
/// was its parent's at some instant of the call; no job that lived through the
/// call is missing. Exact when nothing moves meanwhile.
///
/// It prints as a tree: see [`text`](TreeSnapshot::text).
#[derive(Clone, Debug, Default)]
pub struct TreeSnapshot {
    nodes: Vec<NodeSnapshot>,
    taken: Duration,
    /// Made by the first question that needs it.
    index: OnceLock<TreeIndex>,
}

/// Where each job stands, and where its subtree ends.
#[derive(Clone, Debug)]
struct TreeIndex {
    places: HashMap<JobId, usize>,
    ends: Vec<usize>,
}

impl TreeIndex {
    fn new(nodes: &[NodeSnapshot]) -> TreeIndex {
        let mut ends = vec![nodes.len(); nodes.len()];
        // The jobs whose subtree goes on, the outermost first.
        let mut open: Vec<usize> = Vec::new();
        for (at, node) in nodes.iter().enumerate() {
            while let Some(last) = open.pop_if(|last| nodes[*last].depth >= node.depth) {
                ends[last] = at;
            }
            open.push(at);
        }
        let places = nodes.iter().enumerate().map(|(at, node)| (node.id, at));
        TreeIndex {
            places: places.collect(),
            ends,
        }
    }
}

impl TreeSnapshot {
    /// The jobs, each before its children, the oldest child first.
    pub fn nodes(&self) -> &[NodeSnapshot] {
        &self.nodes
    }

    /// How many there are, the root included.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// True if the root has ended.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns when the snapshot was taken: how long after the tree began, by the clock of
    /// its host.
    pub fn taken(&self) -> Duration {
        self.taken
    }

    /// The first job of that name.
    pub fn find(&self, name: &str) -> Option<&NodeSnapshot> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// Returns the job of that identity.
    pub fn get(&self, id: JobId) -> Option<&NodeSnapshot> {
        Some(&self.nodes[*self.index().places.get(&id)?])
    }

    /// The children of a job, the oldest first. Each step costs the same, however large the
    /// tree is.
    pub fn children(&self, id: JobId) -> impl Iterator<Item = &NodeSnapshot> {
        let place = self.index().places.get(&id);
        let places = place.map(|at| self.children_at(*at)).into_iter().flatten();
        places.map(|at| &self.nodes[at])
    }

    /// Returns a job and all jobs below it, each before its children; nothing if the job is
    /// not in this snapshot.
    pub fn subtree(&self, id: JobId) -> &[NodeSnapshot] {
        match self.index().places.get(&id) {
            Some(at) => &self.nodes[self.subtree_at(*at)],
            None => &[],
        }
    }

    /// The places in [`nodes`](TreeSnapshot::nodes) of the children of the job at that place.
    pub fn children_at(&self, at: usize) -> impl Iterator<Item = usize> {
        let ends = &self.index().ends;
        let below = Range {
            start: at + 1,
            end: ends[at],
        };
        let first = Some(below.start);
        let inside = move |at: &usize| *at < below.end;
        std::iter::successors(first.filter(inside), move |at| {
            Some(ends[*at]).filter(inside)
        })
    }

    /// The places in [`nodes`](TreeSnapshot::nodes) of the job at that place and of all
    /// jobs below it.
    pub fn subtree_at(&self, at: usize) -> Range<usize> {
        at..self.index().ends[at]
    }

    fn index(&self) -> &TreeIndex {
        self.index.get_or_init(|| TreeIndex::new(&self.nodes))
    }
}

impl NodeSnapshot {
    /// Returns how many waits for the job's end are outside any job.
    pub fn waiters_outside(&self) -> usize {
        self.waiters - self.waited_for_by.len()
    }
}

impl Tree {
    /// The tree as plain data, with at most `most` jobs.
    pub(crate) fn look_at_some(&self, most: usize) -> TreeSnapshot {
        take_some(self.shared(), most)
    }

    /// The tree as plain data.
    pub fn snapshot(&self) -> TreeSnapshot {
        take(self.shared())
    }

    /// Reads the jobs one by one and keeps none of them: for trees whose
    /// [snapshot](Tree::snapshot) would need too much memory. Each job comes before its
    /// children, the oldest child first, until `each` breaks off.
    ///
    /// Memory is needed only for references to the siblings of the jobs on the way down.
    /// Jobs that wait for others, or hold what others wait for, are identified without
    /// their names, which come with the jobs themselves. `each` is called under no lock;
    /// while it runs, the tree goes on, and jobs that end meanwhile are left out.
    pub fn look_at_each<B>(
        &self,
        mut each: impl FnMut(NodeSnapshot) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let waited_for = WaitedFor::now();
        walk(self.shared(), &mut |mut node| {
            node.waits_for = waited_for.by(&node);
            each(node)
        })
    }

    /// How long ago the tree began, by the clock of its host.
    pub fn age(&self) -> Duration {
        self.shared().age()
    }
}

pub(crate) fn take(tree: &Shared) -> TreeSnapshot {
    take_some(tree, usize::MAX)
}

/// Like [`take`], with at most `most` jobs.
pub(crate) fn take_some(tree: &Shared, most: usize) -> TreeSnapshot {
    let taken = tree.age();
    let mut nodes = Vec::new();
    let _: ControlFlow<()> = walk(tree, &mut |node| {
        if nodes.len() == most {
            return ControlFlow::Break(());
        }
        nodes.push(node);
        ControlFlow::Continue(())
    });
    name_waiters(&mut nodes);
    cycles::name_resources(&mut nodes);
    TreeSnapshot {
        nodes,
        taken,
        index: OnceLock::new(),
    }
}

/// Reads each job of the tree, a parent before its children.
///
/// Jobs that are made meanwhile are left out, with the jobs below them: else the walk
/// through a tree that grows faster than it is read would not end.
fn walk<B>(tree: &Shared, each: &mut dyn FnMut(NodeSnapshot) -> ControlFlow<B>) -> ControlFlow<B> {
    let before = tree.counters.numbered();
    let mut todo = vec![(tree.root_job(), None, 0usize)];
    poll_record::look();
    // The task to which each level belongs.
    let mut tasks: Vec<Option<TaskLook>> = Vec::new();
    while let Some((job, parent, depth)) = todo.pop() {
        if job.state.load().ended() {
            continue;
        }
        let others = todo.len();
        // The newest is first in the list, so the oldest is popped first.
        older_children(tree, &job, before, &mut |child| {
            todo.push((child, Some(job.id), depth + 1));
        });
        let above = depth.checked_sub(1).and_then(|up| tasks[up].clone());
        let task = task_of(tree, &job).or(above);
        let node = look_at(tree, &job, parent, depth, task.as_ref());
        tasks.truncate(depth);
        tasks.push(task);
        if job.state.load().ended() {
            // The job ended during this call, and so did all jobs below it: nothing
            // is listed below a job that has ended.
            todo.truncate(others);
            continue;
        }
        each(node)?;
    }
    ControlFlow::Continue(())
}

/// Fills in the names of the waiting jobs, which are in the snapshot
/// themselves.
fn name_waiters(nodes: &mut [NodeSnapshot]) {
    if nodes.iter().all(|node| node.waited_for_by.is_empty()) {
        return;
    }
    let waits: HashSet<JobId> = nodes
        .iter()
        .flat_map(|node| node.waited_for_by.iter().map(|waiter| waiter.id))
        .collect();
    let names: HashMap<JobId, String> = nodes
        .iter()
        .filter(|node| waits.contains(&node.id))
        .map(|node| (node.id, node.name.clone()))
        .collect();
    for waiter in nodes.iter_mut().flat_map(|node| &mut node.waited_for_by) {
        waiter.name = names.get(&waiter.id).cloned();
    }
}
