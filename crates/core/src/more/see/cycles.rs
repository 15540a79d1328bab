//! Jobs that wait for each other in a circle, found in a snapshot of the tree.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::panic::Location;

use crate::base::escape::quoted;
use crate::base::id::JobId;
use crate::base::kind::JobKind;
use crate::base::observe::node::{HeldBy, NodeSnapshot, WaitsFor};
use crate::base::wait_kind::WaitKind;
use crate::more::kit::resource::{self, ResourceLook};
use crate::more::see::snapshot::TreeSnapshot;

/// `file:line` of a place in the code.
fn place(site: &'static Location<'static>) -> String {
    format!("{}:{}", site.file(), site.line())
}

impl fmt::Display for WaitsFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the {}", self.kind)?;
        if let Some(name) = &self.name {
            write!(f, " {}", quoted(name))?;
        }
        write!(f, " made at {}", place(self.site))?;
        for (n, held) in self.held_by.iter().enumerate() {
            f.write_str(if n == 0 { ", held by " } else { " and " })?;
            match &held.name {
                Some(name) => quoted(name).fmt(f)?,
                None => held.id.fmt(f)?,
            }
            write!(f, " since {}", place(held.site))?;
        }
        Ok(())
    }
}

/// The locks and channels that jobs wait for, by the waiting jobs.
pub(super) struct WaitedFor {
    looks: Vec<ResourceLook>,
    by_waiter: HashMap<JobId, Vec<(usize, &'static Location<'static>)>>,
}

impl WaitedFor {
    pub(super) fn now() -> WaitedFor {
        let looks = resource::waited_for();
        let mut by_waiter: HashMap<JobId, Vec<(usize, &'static Location<'static>)>> =
            HashMap::new();
        for (n, look) in looks.iter().enumerate() {
            for (job, site) in &look.waiters {
                by_waiter.entry(*job).or_default().push((n, *site));
            }
        }
        WaitedFor { looks, by_waiter }
    }

    /// What a job waits for; its holders are named by their identities alone.
    pub(super) fn by(&self, node: &NodeSnapshot) -> Option<WaitsFor> {
        let (_, at, _) = node.waits_on?;
        let at = at?;
        // A job may wait in several branches at once: the latest wait is shown.
        let waits = self.by_waiter.get(&node.id)?;
        let (n, _) = waits.iter().find(|(_, site)| std::ptr::eq(*site, at))?;
        let look = &self.looks[*n];
        let held_by = look.holders.iter().map(|(id, site)| HeldBy {
            id: *id,
            name: None,
            site,
        });
        Some(WaitsFor {
            kind: look.kind,
            name: look.name.clone(),
            site: look.site,
            held_by: held_by.collect(),
        })
    }
}

/// Notes in each job that waits for a lock or a channel which one it is.
pub(super) fn name_resources(nodes: &mut [NodeSnapshot]) {
    // The list has a lock for each of its parts, and at the end of a clean shutdown there is
    // no job left to ask it for.
    if nodes.iter().all(|node| node.waits_on.is_none()) {
        return;
    }
    let waited_for = WaitedFor::now();
    if waited_for.looks.is_empty() {
        return;
    }
    let mut names: HashMap<JobId, Option<String>> = HashMap::new();
    for node in &mut *nodes {
        node.waits_for = waited_for.by(node);
        let held_by = node.waits_for.iter().flat_map(|waits| &waits.held_by);
        names.extend(held_by.map(|held| (held.id, None)));
    }
    for node in &*nodes {
        if let Some(name) = names.get_mut(&node.id) {
            *name = Some(node.name.clone());
        }
    }
    let waits = nodes.iter_mut().filter_map(|node| node.waits_for.as_mut());
    for held in waits.flat_map(|waits| &mut waits.held_by) {
        held.name = names.get(&held.id).cloned().flatten();
    }
}

/// Jobs of which each waits for the next, and the last for the first: none of them goes
/// on without help. See [`TreeSnapshot::cycles`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WaitCycle {
    /// The jobs, each as it was when it was read. Each waits for the next.
    pub jobs: Vec<NodeSnapshot>,
}

impl fmt::Display for WaitCycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.jobs.len() {
            1 => f.write_str("deadlock: a job waits for itself")?,
            n => write!(f, "deadlock: {n} jobs wait for each other")?,
        }
        for (n, job) in self.jobs.iter().enumerate() {
            let next = &self.jobs[(n + 1) % self.jobs.len()];
            write!(f, "\n  {} {} waits", job.kind, quoted(&job.name))?;
            if let Some((_, Some(site), _)) = job.waits_on {
                write!(f, " at {}", place(site))?;
            }
            match &job.waits_for {
                Some(waits_for) => write!(f, " for {waits_for}")?,
                None => write!(f, " for {} {}", next.kind, quoted(&next.name))?,
            }
        }
        Ok(())
    }
}

impl TreeSnapshot {
    /// Jobs that wait for each other in a circle: for locks that others hold, for tasks,
    /// for scopes and for children. Each job stands in one circle at most.
    ///
    /// Of the jobs that read a lock at the same time eight are known.
    pub fn cycles(&self) -> Vec<WaitCycle> {
        if self.nodes().iter().all(|node| node.waits_for.is_none()) {
            return Vec::new();
        }
        let graph = Graph::new(self.nodes());
        let mut found = Vec::new();
        let mut seen: HashSet<usize> = HashSet::new();
        for start in 0..self.nodes().len() {
            graph.search(start, &mut seen, &mut found);
        }
        let job = |at: usize| self.nodes()[at].clone();
        found
            .into_iter()
            .map(|cycle| WaitCycle {
                jobs: cycle.into_iter().map(job).collect(),
            })
            .collect()
    }
}

/// Which job waits for which, by their places in the snapshot.
struct Graph {
    edges: Vec<Vec<usize>>,
}

impl Graph {
    fn new(nodes: &[NodeSnapshot]) -> Graph {
        let places: HashMap<JobId, usize> = nodes
            .iter()
            .enumerate()
            .map(|(n, job)| (job.id, n))
            .collect();
        let mut edges = vec![Vec::new(); nodes.len()];
        for (n, node) in nodes.iter().enumerate() {
            if let Some(waits_for) = &node.waits_for {
                let held_by = waits_for.held_by.iter();
                edges[n].extend(held_by.filter_map(|held| places.get(&held.id)));
            }
            for waiter in &node.waited_for_by {
                if let Some(&waiter) = places.get(&waiter.id)
                    && waits(&nodes[waiter], &[WaitKind::Task, WaitKind::Join])
                {
                    edges[waiter].push(n);
                }
            }
            let Some(&parent) = node.parent.and_then(|parent| places.get(&parent)) else {
                continue;
            };
            let of = match node.kind {
                JobKind::Task => waits(&nodes[parent], &[WaitKind::Children]) && !node.service,
                _ => waits(&nodes[parent], &[WaitKind::Scope]),
            };
            // A task whose body is over waits for its children too.
            if of || nodes[parent].waits_on.is_none() && !nodes[parent].running && !node.service {
                edges[parent].push(n);
            }
        }
        Graph { edges }
    }

    /// Searches for circles from `start` on, among the jobs that were not seen.
    /// Without recursion: the tree may be deep.
    fn search(&self, start: usize, seen: &mut HashSet<usize>, found: &mut Vec<Vec<usize>>) {
        if !seen.insert(start) {
            return;
        }
        // The path to this job, and for each job on it the next edge.
        let mut path = vec![(start, 0)];
        let mut on_path: HashMap<usize, usize> = HashMap::from([(start, 0)]);
        while let Some((at, edge)) = path.last_mut() {
            let Some(&next) = self.edges[*at].get(*edge) else {
                on_path.remove(at);
                path.pop();
                continue;
            };
            *edge += 1;
            if let Some(&from) = on_path.get(&next) {
                found.push(path[from..].iter().map(|(job, _)| *job).collect());
            } else if seen.insert(next) {
                on_path.insert(next, path.len());
                path.push((next, 0));
            }
        }
    }
}

fn waits(node: &NodeSnapshot, kinds: &[WaitKind]) -> bool {
    node.waits_on
        .is_some_and(|(kind, _, _)| kinds.contains(&kind))
}
