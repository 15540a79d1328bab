//! What has grown between two snapshots, and which job keeps it.

use std::collections::HashMap;
use std::fmt;
use std::panic::Location;
use std::time::Duration;

use kinfolk_core::host::say::{brief, grouped, quoted};
use kinfolk_core::{JobId, JobKind, NodeSnapshot, TreeSnapshot};

/// How many steps of a path are kept, counted from the jobs that have grown.
const LONGEST_PATH: usize = 16;

/// What has grown from one snapshot of a tree to a later one; see
/// [`Examine::diff`](crate::Examine::diff).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct TreeDiff {
    /// How long after the earlier snapshot the later one was taken.
    pub elapsed: Duration,
    /// How many jobs there were, and how many there are.
    pub jobs: (usize, usize),
    /// The groups of jobs that have grown, the greatest growth first.
    pub grown: Vec<JobGrowth>,
}

/// Jobs of one name and one spawn site, below parents of one path, of which there are more
/// than before.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct JobGrowth {
    /// What sort of jobs they are.
    pub kind: JobKind,
    /// Their name.
    pub name: String,
    /// Where they were spawned.
    pub site: &'static Location<'static>,
    /// How many there were.
    pub before: usize,
    /// How many there are.
    pub now: usize,
    /// How many of those before are still there.
    pub stayed: usize,
    /// How many jobs stand below them.
    pub below: usize,
    /// The job below which most of them stand: they cannot end later than it does. None if
    /// it is the root that has grown.
    pub keeper: Option<GrowthKeeper>,
    /// The names from the root to them; of a longer path the last sixteen.
    pub path: Vec<String>,
}

/// The job that keeps jobs open which have become more.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GrowthKeeper {
    /// Its identity.
    pub id: JobId,
    /// What sort of job it is.
    pub kind: JobKind,
    /// Its name.
    pub name: String,
    /// Where it was spawned or opened.
    pub site: &'static Location<'static>,
    /// How many of them stand below it.
    pub holds: usize,
}

impl JobGrowth {
    /// Returns how many more there are.
    pub fn by(&self) -> usize {
        self.now - self.before
    }
}

impl TreeDiff {
    /// Returns by how many jobs a minute a group has grown; none if no time has passed.
    pub fn per_minute(&self, growth: &JobGrowth) -> Option<f64> {
        let seconds = self.elapsed.as_secs_f64();
        (seconds > 0.0).then(|| growth.by() as f64 * 60.0 / seconds)
    }

    pub(crate) fn new(now: &TreeSnapshot, earlier: &TreeSnapshot) -> TreeDiff {
        let mut groups = JobGroups::default();
        let before = groups.place(earlier);
        let after = groups.place(now);
        let counts = groups.count(&before, &after, earlier, now);
        let mut grown: Vec<JobGrowth> = Vec::new();
        let mut reported: HashMap<usize, usize> = HashMap::new();
        for (group, count) in counts.iter().enumerate() {
            if count.now <= count.before {
                continue;
            }
            // What has grown because there are more parents is told with the parents.
            let follows = groups.all[group].parent.is_some_and(|parent| {
                let above = &counts[parent];
                let grew = above.now > above.before;
                let no_faster = (count.now as u128) * (above.before as u128)
                    <= (count.before as u128) * (above.now as u128);
                grew && (no_faster || above.before == 0)
            });
            if follows {
                continue;
            }
            let key = &groups.all[group];
            reported.insert(group, grown.len());
            grown.push(JobGrowth {
                kind: key.kind,
                name: key.name.to_string(),
                site: key.site,
                before: count.before,
                now: count.now,
                stayed: count.stayed,
                below: 0,
                keeper: None,
                path: groups.path(group),
            });
        }
        keepers(now, &after, &reported, &mut grown);
        for (at, group) in after.iter().enumerate() {
            if let Some(&place) = reported.get(group) {
                grown[place].below += now.subtree_at(at).len() - 1;
            }
        }
        grown.sort_by_key(|growth| std::cmp::Reverse(growth.by()));
        TreeDiff {
            elapsed: now.taken().saturating_sub(earlier.taken()),
            jobs: (earlier.len(), now.len()),
            grown,
        }
    }
}

/// Finds of each group the parent that holds most of it.
fn keepers(
    now: &TreeSnapshot,
    groups: &[usize],
    reported: &HashMap<usize, usize>,
    grown: &mut [JobGrowth],
) {
    for (parent, node) in now.nodes().iter().enumerate() {
        let mut held: HashMap<usize, usize> = HashMap::new();
        for child in now.children_at(parent) {
            if let Some(&place) = reported.get(&groups[child]) {
                *held.entry(place).or_default() += 1;
            }
        }
        for (place, holds) in held {
            let most = grown[place]
                .keeper
                .as_ref()
                .map_or(0, |keeper| keeper.holds);
            if holds > most {
                grown[place].keeper = Some(GrowthKeeper {
                    id: node.id,
                    kind: node.kind,
                    name: node.name.clone(),
                    site: node.site,
                    holds,
                });
            }
        }
    }
}

/// Jobs that have one path of names and spawn sites.
struct JobGroup<'a> {
    parent: Option<usize>,
    kind: JobKind,
    name: &'a str,
    site: &'static Location<'static>,
}

/// By what jobs are told apart: the group of the parent, and what they are called.
type GroupKey<'a> = (Option<usize>, JobKind, &'a str, &'static Location<'static>);

#[derive(Default)]
struct JobGroups<'a> {
    all: Vec<JobGroup<'a>>,
    known: HashMap<GroupKey<'a>, usize>,
}

#[derive(Clone, Copy, Default)]
struct GroupCount {
    before: usize,
    now: usize,
    stayed: usize,
}

impl<'a> JobGroups<'a> {
    /// The group of each job of a snapshot.
    fn place(&mut self, tree: &'a TreeSnapshot) -> Vec<usize> {
        // The groups of the ancestors, the root first.
        let mut above: Vec<usize> = Vec::new();
        let group = |node: &'a NodeSnapshot| {
            above.truncate(node.depth);
            let parent = above.last().copied();
            let key = (parent, node.kind, node.name.as_str(), node.site);
            let group = *self.known.entry(key).or_insert_with(|| {
                self.all.push(JobGroup {
                    parent,
                    kind: node.kind,
                    name: &node.name,
                    site: node.site,
                });
                self.all.len() - 1
            });
            above.push(group);
            group
        };
        tree.nodes().iter().map(group).collect()
    }

    fn count(
        &self,
        before: &[usize],
        after: &[usize],
        earlier: &TreeSnapshot,
        now: &TreeSnapshot,
    ) -> Vec<GroupCount> {
        let mut counts = vec![GroupCount::default(); self.all.len()];
        for (group, node) in before.iter().zip(earlier.nodes()) {
            counts[*group].before += 1;
            counts[*group].stayed += usize::from(now.get(node.id).is_some());
        }
        for group in after {
            counts[*group].now += 1;
        }
        counts
    }

    fn path(&self, group: usize) -> Vec<String> {
        let up = std::iter::successors(Some(group), |group| self.all[*group].parent);
        let names = up.map(|group| self.all[group].name.to_string());
        let mut path: Vec<String> = names.take(LONGEST_PATH).collect();
        path.reverse();
        path
    }
}

impl fmt::Display for TreeDiff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (before, now) = self.jobs;
        let (before, now) = (grouped(before), grouped(now));
        let elapsed = brief(self.elapsed);
        write!(f, "in {elapsed}: {before} jobs before, {now} now")?;
        if self.grown.is_empty() {
            return f.write_str("; nothing has grown");
        }
        for growth in &self.grown {
            let (file, line) = (growth.site.file(), growth.site.line());
            write!(
                f,
                "\n+{}: {} {}, spawned at {file}:{line}",
                grouped(growth.by()),
                growth.kind,
                quoted(&growth.name),
            )?;
            write!(
                f,
                "\n   = {} before, {} now",
                grouped(growth.before),
                grouped(growth.now)
            )?;
            if let Some(rate) = self.per_minute(growth) {
                write!(f, ", {rate:.1} more a minute")?;
            }
            match growth.before - growth.stayed {
                _ if growth.before == 0 => {}
                0 => f.write_str("; none of those before has ended")?,
                gone => write!(f, "; of those before {} have ended", grouped(gone))?,
            }
            if let Some(keeper) = &growth.keeper {
                let (file, line) = (keeper.site.file(), keeper.site.line());
                write!(
                    f,
                    "\n   = kept open below {} {} {}, of {file}:{line}",
                    keeper.kind,
                    quoted(&keeper.name),
                    keeper.id,
                )?;
                if keeper.holds < growth.now {
                    write!(f, ", which holds {} of them", grouped(keeper.holds))?;
                }
            }
            if growth.below > 0 {
                write!(f, "\n   = with {} jobs below them", grouped(growth.below))?;
            }
            f.write_str("\n   = path: ")?;
            for (n, name) in growth.path.iter().enumerate() {
                let between = if n == 0 { "" } else { " > " };
                write!(f, "{between}{}", quoted(name))?;
            }
        }
        Ok(())
    }
}
