//! The tree as plain data, taken by reading: nothing is polled, nothing is
//! stopped. Flat, in the order in which it prints, so that a tree a million
//! deep is copied, printed and dropped without recursion.

use std::collections::{HashMap, HashSet};
use std::fmt::{self, Write as _};
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::base::id::JobId;
use crate::base::kind::JobKind;
use crate::base::lane::Lane;
use crate::base::observe::JobState;
use crate::base::wait_kind::WaitKind;
use crate::engine::names;
use crate::engine::patience;
use crate::engine::poll_record;
use crate::engine::tree::Shared;
use crate::more::see::cycles::{self, WaitsFor};
use crate::points::point::SWALLOWS;
use crate::record::cell;
use crate::record::header::{Header, JobRef, Site};
use crate::record::state;
use crate::surface::handle;

/// One job, as it was when it was looked at.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeSnapshot {
    /// Its identity.
    pub id: JobId,
    /// Its parent's identity; none for the root.
    pub parent: Option<JobId>,
    /// How far below the root it stands.
    pub depth: usize,
    /// Its name.
    pub name: String,
    /// What sort of job it is.
    pub kind: JobKind,
    /// Its state.
    pub state: JobState,
    /// Where it was spawned or opened.
    pub site: &'static Location<'static>,
    /// How long ago.
    pub age: Duration,
    /// How often it was polled.
    pub polls: u32,
    /// The task it is part of: itself, if it is one; none for the root.
    pub task: Option<PartOf>,
    /// True if it is queued or being polled.
    pub running: bool,
    /// For how long its task has been polled without a pause, if it is being
    /// polled. A worker of the native runtime looks at the clock every sixteen
    /// turns, so that some of those before this one may be counted too; but none
    /// that began before the last snapshot.
    pub polled_for: Option<Duration>,
    /// True if it is a service: cancelled when its parent's body and ordinary
    /// children are over.
    pub service: bool,
    /// What it waits on, where that wait was made, and for how long; none if
    /// it runs, has not been polled, or its body is over.
    pub waits_on: Option<(WaitKind, Option<&'static Location<'static>>, Duration)>,
    /// The lock or the channel that it waits for, if it is one of those that can be
    /// seen: those of `kinfolk::sync` can.
    pub waits_for: Option<WaitsFor>,
    /// How many waits for its end are registered: the owner's that awaits its
    /// `Task`, and every `join`.
    pub waiters: usize,
    /// The jobs those waits are in, the owner first. The rest is
    /// [outside](NodeSnapshot::waiters_outside). That a parent waits for its
    /// children, and a task for its scopes, is in the tree and not in here.
    pub waited_for_by: Vec<Waiter>,
    /// How long until its own deadline; zero if it has passed.
    pub deadline_in: Option<Duration>,
    /// How long ago the cancel that marked it was asked for.
    pub cancelled_since: Option<Duration>,
    /// How long ago a point told it.
    pub told_since: Option<Duration>,
    /// Why it was cancelled, in words.
    pub reason: Option<String>,
    /// How many leases hold it open.
    pub leases: u32,
    /// True if a shield or a guard holds a cancel back here.
    pub shielded: bool,
    /// Where that was entered.
    pub shielded_at: Option<&'static Location<'static>>,
    /// Where it is polled.
    pub lane: Lane,
    /// True if its body has swallowed a thousand Cancelleds.
    pub swallows_cancellation: bool,
}

/// The task that a job is part of.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartOf {
    /// Its identity.
    pub id: JobId,
    /// Its name.
    pub name: Arc<str>,
    /// Where it was spawned.
    pub site: &'static Location<'static>,
    /// How long ago a point told it, in whatever scope of it.
    pub told_since: Option<Duration>,
}

/// A job that waits for the end of another.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiter {
    /// Its identity.
    pub id: JobId,
    /// Its name; none if it is not in the same snapshot: it is another root's,
    /// it came or went while the snapshot was taken, or one job was looked at
    /// by itself.
    pub name: Option<String>,
}

impl fmt::Display for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "\"{name}\""),
            None => self.id.fmt(f),
        }
    }
}

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

    /// The tree as JSON: a list of objects, each with its parent's number.
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
    /// How many wait for its end from outside every job.
    pub fn waiters_outside(&self) -> usize {
        self.waiters - self.waited_for_by.len()
    }

    /// Who waits for it, in words; nothing if nobody does.
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
        if self.lane == Lane::Main {
            f.write_str(", on main")?;
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
        patience::older_children(tree, &job, before, &mut |child| {
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

/// Finds the names of those who wait among the jobs themselves.
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

/// One job, by itself.
pub(crate) fn one(tree: &Shared, h: &Header) -> NodeSnapshot {
    let parent = h.parent_from_outside();
    let mut task = task_of(tree, h);
    let mut above = parent.clone();
    while let (None, Some(job)) = (&task, above) {
        task = task_of(tree, &job);
        above = job.parent_from_outside();
    }
    // It is looked at from inside its last turn: that it runs says nothing.
    let task = task.map(|task| TaskLook {
        running: false,
        polled_for: None,
        ..task
    });
    let parent = parent.map(|parent| parent.id);
    look_at(tree, h, parent, h.depth() as usize, task.as_ref())
}

/// The innermost scope that is open in the body of `h`, the newest where there
/// are several; none if there is none.
pub(crate) fn innermost_scope(h: &Header) -> Option<JobRef> {
    let mut found = None;
    let mut next = open_scope(h);
    while let Some(scope) = next {
        next = open_scope(&scope);
        found = Some(scope);
    }
    found
}

fn open_scope(h: &Header) -> Option<JobRef> {
    let _locked = h.lock();
    // SAFETY: H1 and H2, under the lock.
    let mut child = unsafe { h.first.get().as_ref() };
    while let Some(c) = child {
        if !c.is_task() && !c.state.load().has(state::BODY_DONE) {
            return Some(JobRef::from_header(c));
        }
        // SAFETY: as above.
        child = unsafe { c.next.get().as_ref() };
    }
    None
}

/// What a job has from the task it is part of.
#[derive(Clone)]
struct TaskLook {
    part_of: PartOf,
    /// Queued or being polled.
    running: bool,
    polled_for: Option<Duration>,
}

/// If `h` is a task: who it is, and what it does.
fn task_of(tree: &Shared, h: &Header) -> Option<TaskLook> {
    let st = h.state.load();
    let running = st.has(state::BUSY) && !st.has(state::BODY_DONE | state::LAZY);
    h.is_task().then(|| TaskLook {
        part_of: PartOf {
            id: h.id,
            name: names::name_of(h).into(),
            site: h.site(),
            told_since: told_since(tree, st),
        },
        running,
        polled_for: match running {
            true => poll_record::polled_since(h).map(|at| since(tree, at)),
            false => None,
        },
    })
}

fn since(tree: &Shared, at: u32) -> Duration {
    let millis = state::millis_between(at, tree.millis_now());
    Duration::from_millis(u64::from(millis))
}

fn told_since(tree: &Shared, st: state::Snapshot) -> Option<Duration> {
    let millis = st.told_for(tree.millis_now())?;
    Some(Duration::from_millis(u64::from(millis)))
}

fn look_at(
    tree: &Shared,
    h: &Header,
    parent: Option<JobId>,
    depth: usize,
    task: Option<&TaskLook>,
) -> NodeSnapshot {
    let running = task.is_some_and(|task| task.running) && !h.state.load().has(state::BODY_DONE);
    let st = h.state.load();
    let polls = h.polls.load(Relaxed);
    let waits_on = (polls > 0 && !running && !st.has(state::BODY_DONE)).then(|| {
        let pending = h.waits.load(Relaxed) > 0 || !h.no_wait_of_ours();
        if pending {
            let kind = WaitKind::from_bits(h.wait_kind.load(Relaxed));
            let site = Site(h.wait_site.load(Relaxed));
            (kind, Some(site.location()), patience::since_turn(tree, h))
        } else {
            (WaitKind::Foreign, None, patience::since_turn(tree, h))
        }
    });
    let now = tree.host.now();
    let reason = h.reason();
    let owner = (h.is_task() && st.has(state::WAITER)).then(|| cell::waiting_job(h));
    let mut waiting: Vec<Option<JobId>> = owner.into_iter().collect();
    let (mut guarded_at, mut leases) = (None, 0);
    let deadline = h
        .if_cold(|cold, _| {
            waiting.extend(cold.joiners.iter().map(|joiner| joiner.job));
            (guarded_at, leases) = (cold.guarded_at, cold.leases);
            cold.deadline
        })
        .flatten();
    let by_shield = st.has(state::CANCEL_DEFERRED) && !st.has(state::CANCELLED);
    let by_guard = st.has(state::CANCELLED) && st.has(state::GUARD);
    NodeSnapshot {
        id: h.id,
        parent,
        depth,
        name: names::name_of(h),
        kind: h.kind(),
        state: handle::state_of(h),
        site: h.site(),
        age: since(tree, h.born),
        polls,
        task: task.map(|task| task.part_of.clone()),
        running,
        polled_for: task.and_then(|task| task.polled_for).filter(|_| running),
        service: h.is_service(),
        waits_on,
        waits_for: None,
        waiters: waiting.len(),
        waited_for_by: waiting
            .into_iter()
            .flatten()
            .map(|id| Waiter { id, name: None })
            .collect(),
        deadline_in: deadline.map(|at| at.saturating_duration_since(now)),
        told_since: told_since(tree, st),
        cancelled_since: reason
            .as_ref()
            .map(|reason| now.saturating_duration_since(reason.data().at)),
        reason: reason.map(|reason| reason.to_string()),
        lane: h.lane(),
        leases,
        shielded: by_shield || by_guard,
        shielded_at: match by_shield {
            true => Some(h.site()),
            false => guarded_at.filter(|_| by_guard),
        },
        swallows_cancellation: h.times_told() >= SWALLOWS,
    }
}
