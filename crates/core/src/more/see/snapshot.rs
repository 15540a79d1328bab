//! The tree as plain data, taken by reading: nothing is polled, nothing is
//! stopped. Flat, in the order in which it prints, so that a tree a million
//! deep is copied, printed and dropped without recursion.

use std::collections::{HashMap, HashSet};
use std::fmt::{self, Write as _};

use crate::base::id::JobId;
use crate::base::lane::Lane;
use crate::base::observe::node::NodeSnapshot;
use crate::engine::children::older_children;
use crate::engine::look::{TaskLook, look_at, task_of};
use crate::engine::poll_record;
use crate::engine::tree::{Shared, Tree};
use crate::more::see::cycles;
use crate::record::header::JobRef;

/// The living jobs of one root. Each is consistent in itself; a listed child
/// was its parent's at some instant of the call; no job that lived through the
/// call is missing. Exact when nothing moves meanwhile.
#[derive(Clone, Debug, Default)]
pub struct TreeSnapshot {
    nodes: Vec<NodeSnapshot>,
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

    /// The first job of that name.
    pub fn find(&self, name: &str) -> Option<&NodeSnapshot> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// The children of a job.
    pub fn children(&self, id: JobId) -> impl Iterator<Item = &NodeSnapshot> {
        self.nodes
            .iter()
            .filter(move |node| node.parent == Some(id))
    }

    /// Of each job whether it is the last of its siblings. Found from behind in
    /// one pass: to look ahead from each would take the square of a deep tree.
    fn lasts(&self) -> Vec<bool> {
        let mut lasts = vec![false; self.nodes.len()];
        // By depth: a later sibling has been passed.
        let mut passed: Vec<bool> = Vec::new();
        for (node, last) in self.nodes.iter().zip(&mut lasts).rev() {
            // What is deeper belongs to jobs before this one.
            passed.truncate(node.depth + 1);
            passed.resize(node.depth + 1, false);
            *last = !std::mem::replace(&mut passed[node.depth], true);
        }
        lasts
    }

    /// Returns the tree as JSON: a list of objects, each with its parent's number.
    pub fn to_json(&self) -> String {
        let mut out = String::from("[");
        for (n, node) in self.nodes.iter().enumerate() {
            if n > 0 {
                out.push(',');
            }
            node.write_json(&mut out);
        }
        out.push(']');
        out
    }
}

impl NodeSnapshot {
    /// Returns how many waits for its end are outside any job.
    pub fn waiters_outside(&self) -> usize {
        self.waiters - self.waited_for_by.len()
    }

    /// The jobs that wait for it, in words; nothing if none does.
    fn write_waiters(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = ", waited for by ";
        for waiter in &self.waited_for_by {
            write!(f, "{before}{waiter}")?;
            before = ", ";
        }
        match self.waiters_outside() {
            0 => Ok(()),
            n => write!(f, "{before}{n} outside"),
        }
    }

    fn write_json(&self, out: &mut String) {
        let _ = write!(out, "{{\"id\":{}", self.id.number());
        if let Some(parent) = self.parent {
            let _ = write!(out, ",\"parent\":{}", parent.number());
        }
        out.push_str(",\"name\":");
        json_string(out, &self.name);
        let _ = write!(
            out,
            ",\"kind\":\"{}\",\"state\":\"{:?}\",\"file\":",
            self.kind, self.state
        );
        json_string(out, self.site.file());
        let _ = write!(
            out,
            ",\"line\":{},\"age_ms\":{},\"polls\":{},\"waiters\":{}",
            self.site.line(),
            self.age.as_millis(),
            self.polls,
            self.waiters
        );
        out.push_str(",\"waited_for_by\":[");
        for (n, waiter) in self.waited_for_by.iter().enumerate() {
            if n > 0 {
                out.push(',');
            }
            let _ = write!(out, "{{\"id\":{}", waiter.id.number());
            if let Some(name) = &waiter.name {
                out.push_str(",\"name\":");
                json_string(out, name);
            }
            out.push('}');
        }
        out.push(']');
        if let Some((kind, site, since)) = &self.waits_on {
            let _ = write!(
                out,
                ",\"waits_on\":\"{kind}\",\"waits_ms\":{}",
                since.as_millis()
            );
            if let Some(site) = site {
                out.push_str(",\"waits_file\":");
                json_string(out, site.file());
                let _ = write!(out, ",\"waits_line\":{}", site.line());
            }
        }
        if let Some(waits_for) = &self.waits_for {
            out.push_str(",\"waits_for\":");
            json_string(out, &waits_for.to_string());
        }
        if let Some(lasted) = self.polled_for {
            let _ = write!(out, ",\"polled_ms\":{}", lasted.as_millis());
        }
        if let Some(left) = self.deadline_in {
            let _ = write!(out, ",\"deadline_in_ms\":{}", left.as_millis());
        }
        if let Some(told) = self.told_since {
            let _ = write!(out, ",\"told_ms\":{}", told.as_millis());
        }
        if let Some(reason) = &self.reason {
            out.push_str(",\"reason\":");
            json_string(out, reason);
        }
        let _ = write!(
            out,
            ",\"running\":{},\"shielded\":{},\"lane\":\"{}\"}}",
            self.running, self.shielded, self.lane
        );
    }
}

fn json_string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c if (c as u32) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Beyond this depth the picture is no longer indented.
const DEEPEST_INDENT: usize = 40;

impl fmt::Display for TreeSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lasts = self.lasts();
        // Which ancestors have a later sibling, so that a line goes on there.
        let mut more: Vec<bool> = Vec::new();
        for (node, &last) in self.nodes.iter().zip(&lasts) {
            more.truncate(node.depth);
            more.push(!last);
            for line in more.iter().take(node.depth.min(DEEPEST_INDENT)).skip(1) {
                f.write_str(if *line { "│   " } else { "    " })?;
            }
            if node.depth > 0 {
                f.write_str(if last { "└── " } else { "├── " })?;
            }
            writeln!(f, "{node}")?;
        }
        for cycle in self.cycles() {
            writeln!(f, "{cycle}")?;
        }
        Ok(())
    }
}

impl fmt::Display for NodeSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} \"{}\" {:?}", self.kind, self.name, self.state)?;
        if self.running && self.polls > 0 {
            f.write_str(", running")?;
        }
        if self.lane != Lane::Pool {
            write!(f, ", on {}", self.lane)?;
        }
        if self.shielded {
            f.write_str(", shielded")?;
        }
        if let Some((kind, site, since)) = &self.waits_on {
            write!(f, ", waits on {kind}")?;
            if let Some(site) = site {
                write!(f, " at {}:{}", site.file(), site.line())?;
            }
            write!(f, " for {since:?}")?;
        }
        if let Some(waits_for) = &self.waits_for {
            write!(f, ", waits for {waits_for}")?;
        }
        self.write_waiters(f)?;
        if let Some(left) = self.deadline_in {
            write!(f, ", deadline in {left:?}")?;
        }
        if let Some(told) = self.told_since {
            write!(f, ", told {told:?} ago")?;
        }
        if let Some(reason) = &self.reason {
            write!(f, ", {reason}")?;
        }
        if self.swallows_cancellation {
            f.write_str(", swallows cancellation")?;
        }
        Ok(())
    }
}

impl Tree {
    /// The tree as plain data, with so many jobs at the most.
    pub(crate) fn look_at_some(&self, most: usize) -> TreeSnapshot {
        take_some(self.shared(), most)
    }

    /// The tree as plain data.
    pub fn snapshot(&self) -> TreeSnapshot {
        take(self.shared())
    }
}

pub(crate) fn take(tree: &Shared) -> TreeSnapshot {
    take_some(tree, usize::MAX)
}

/// As [`take`], with so many jobs at the most.
///
/// Jobs that are made meanwhile are left out, with what is below them: else a tree that
/// grows faster than it is looked at would be looked at for ever.
pub(crate) fn take_some(tree: &Shared, most: usize) -> TreeSnapshot {
    let before = tree.counters.numbered();
    let mut nodes = Vec::new();
    let mut todo = vec![(JobRef::from_header(tree.root()), None, 0usize)];
    poll_record::look();
    // The task each level belongs to.
    let mut tasks: Vec<Option<TaskLook>> = Vec::new();
    while let Some((job, parent, depth)) = todo.pop() {
        if job.state.load().ended() {
            continue;
        }
        if nodes.len() == most {
            break;
        }
        // The newest is first in the list, so the oldest is popped first.
        older_children(tree, &job, before, &mut |child| {
            todo.push((child, Some(job.id), depth + 1));
        });
        let above = depth.checked_sub(1).and_then(|up| tasks[up].clone());
        let task = task_of(tree, &job).or(above);
        nodes.push(look_at(tree, &job, parent, depth, task.as_ref()));
        tasks.truncate(depth);
        tasks.push(task);
    }
    name_waiters(&mut nodes);
    cycles::name_resources(&mut nodes);
    TreeSnapshot { nodes }
}

/// Finds the names of the waiting jobs among the jobs themselves.
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
