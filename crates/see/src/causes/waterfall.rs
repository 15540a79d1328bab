//! What became of a cancel that stops many jobs: when each was asked, told and ended, and the
//! chain of jobs that took the time.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::panic::Location;

use kinfolk_core::host::say::escaped;
use kinfolk_core::{JobId, JobState};

use crate::causes::book::CauseEntry;
use crate::causes::trace::{Held, end_in_words};
use crate::record::{AtPlace, JobLabel, Lasted};

/// A cancel and every job below the one where it entered, in the order of the tree: when each
/// was asked to stop, when it was told, when it ended. Times are nanoseconds since the tree
/// began.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownWaterfall {
    /// When the cancel was asked for.
    pub asked: u64,
    /// When the job where it entered had ended; none if it goes on.
    pub ended: Option<u64>,
    /// The jobs, each before its children, in the order in which they were made; first the one
    /// where the cancel entered. Those that had ended before it are not among them.
    pub rows: Vec<WaterfallRow>,
    /// The rows that took the time, from the first to the one that was waited for last.
    pub critical: Vec<usize>,
}

/// One job of a [`ShutdownWaterfall`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaterfallRow {
    /// The job.
    pub job: JobLabel,
    /// How far below the job where the cancel entered.
    pub depth: usize,
    /// When the cancel took effect at it; none if it did not come as far: shields and services
    /// are passed by.
    pub asked: Option<u64>,
    /// When its body was told, and at which point.
    pub told: Option<(u64, Option<&'static Location<'static>>)>,
    /// What held the cancel back.
    pub held: Option<Held>,
    /// When and how it ended; none if it goes on.
    pub ended: Option<(u64, JobState)>,
    /// True if its future was dropped before it was done.
    pub dropped: bool,
    /// On the critical path: how long the end of its parent was due to this job and to none of
    /// its children.
    pub own_time: u64,
}

impl ShutdownWaterfall {
    pub(crate) fn of(entry: JobId, all: &HashMap<JobId, CauseEntry>) -> Option<ShutdownWaterfall> {
        let asked = all.get(&entry)?.request.as_ref()?.at;
        let mut children: HashMap<JobId, Vec<JobId>> = HashMap::new();
        for (id, job) in all {
            if let Some(parent) = job.parent {
                children.entry(parent).or_default().push(*id);
            }
        }
        for below in children.values_mut() {
            below.sort_by_key(|id| (all[id].born, *id));
        }
        let mut rows = Vec::new();
        let mut parents = Vec::new();
        let mut seen = HashSet::new();
        let mut todo = vec![(entry, None, 0)];
        while let Some((id, parent, depth)) = todo.pop() {
            let job = &all[&id];
            let is_over = job.ended.is_some_and(|(at, _)| at < asked);
            if is_over || !seen.insert(id) {
                continue;
            }
            let here = rows.len();
            rows.push(row(id, job, depth));
            parents.push(parent);
            let below = children.get(&id).into_iter().flatten().rev();
            todo.extend(below.map(|child| (*child, Some(here), depth + 1)));
        }
        let critical = critical_path(&mut rows, &parents, asked);
        Some(ShutdownWaterfall {
            asked,
            ended: rows[0].ended.map(|(at, _)| at),
            rows,
            critical,
        })
    }

    /// How long it took, or has taken as far as is known.
    pub fn took(&self) -> u64 {
        let latest = |row: &WaterfallRow| {
            let told = row.told.map(|(at, _)| at);
            row.ended.map(|(at, _)| at).max(told).max(row.asked)
        };
        let until = self
            .ended
            .or_else(|| self.rows.iter().filter_map(latest).max());
        until.unwrap_or(self.asked).saturating_sub(self.asked)
    }

    /// The row that took the most time by itself; none if nothing goes on or took time.
    pub fn slowest(&self) -> Option<&WaterfallRow> {
        let rows = self.critical.iter().map(|row| &self.rows[*row]);
        rows.max_by_key(|row| row.own_time)
    }
}

fn row(id: JobId, job: &CauseEntry, depth: usize) -> WaterfallRow {
    let request = job.request.as_ref().map(|request| request.at);
    let came = job.came.map(|(at, _)| at);
    WaterfallRow {
        job: job.label(id),
        depth,
        asked: match (request, came) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        },
        told: job.told,
        held: job.hold(),
        ended: job.ended,
        dropped: job.dropped,
        own_time: 0,
    }
}

/// From the first row down: each time to the child that ended last, as long as that is not
/// before its parent went on by itself. A child that has not ended comes last of all.
fn critical_path(rows: &mut [WaterfallRow], parents: &[Option<usize>], asked: u64) -> Vec<usize> {
    let end = |row: &WaterfallRow| row.ended.map_or(u64::MAX, |(at, _)| at);
    let mut slowest: Vec<Option<usize>> = vec![None; rows.len()];
    for (n, parent) in parents.iter().enumerate() {
        if let Some(parent) = *parent
            && slowest[parent].is_none_or(|before| end(&rows[before]) <= end(&rows[n]))
        {
            slowest[parent] = Some(n);
        }
    }
    let now = rows
        .iter()
        .flat_map(|row| {
            [
                row.asked,
                row.told.map(|(at, _)| at),
                row.ended.map(|(at, _)| at),
            ]
        })
        .flatten()
        .max()
        .unwrap_or(asked);
    let mut path = vec![0];
    let mut at = 0;
    while let Some(next) = slowest[at] {
        let (own, below) = (end(&rows[at]).min(now), end(&rows[next]).min(now));
        if below < asked {
            break;
        }
        rows[at].own_time = own.saturating_sub(below);
        path.push(next);
        at = next;
    }
    rows[at].own_time = end(&rows[at]).min(now).saturating_sub(asked);
    path
}

/// How many columns the bars take.
const COLUMNS: u64 = 40;

/// How many rows are printed: of more it says how many there are.
const MOST_ROWS: usize = 200;

impl fmt::Display for ShutdownWaterfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let took = self.took();
        match self.ended {
            Some(_) => write!(f, "stopped in {}", Lasted::nanos(took))?,
            None => write!(f, "stopping for {} so far", Lasted::nanos(took))?,
        }
        if let Some(slowest) = self.slowest() {
            let name = escaped(&slowest.job.name);
            write!(
                f,
                ": {} of {}: `{name}`",
                Lasted::nanos(slowest.own_time),
                Lasted::nanos(took)
            )?;
            if let Some(site) = slowest.held.and_then(|held| held.site) {
                write!(f, ", shielded at {}", AtPlace(site))?;
            } else if slowest.told.is_none() && slowest.asked.is_some() {
                f.write_str(", never told")?;
            }
        }
        f.write_str("\n")?;
        for (n, row) in self.rows.iter().enumerate().take(MOST_ROWS) {
            let mark = if self.critical.contains(&n) { '*' } else { ' ' };
            writeln!(
                f,
                "{mark} |{}| {}",
                Bar(self, row, took),
                InWords(self, row)
            )?;
        }
        match self.rows.len().saturating_sub(MOST_ROWS) {
            0 => Ok(()),
            more => writeln!(f, "  and {more} more"),
        }
    }
}

/// `·` before the job is asked, `-` while it is asked and not told, `=` while it is told.
struct Bar<'a>(&'a ShutdownWaterfall, &'a WaterfallRow, u64);

impl fmt::Display for Bar<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Bar(all, row, took) = *self;
        let told = row.told.map(|(at, _)| at);
        for column in 0..COLUMNS {
            let at = all.asked + took / COLUMNS * column;
            let is_over = row.ended.is_some_and(|(end, _)| at >= end) && column > 0;
            f.write_str(match row.asked {
                _ if is_over => " ",
                _ if told.is_some_and(|told| at >= told) => "=",
                Some(asked) if at >= asked => "-",
                _ => "·",
            })?;
        }
        Ok(())
    }
}

struct InWords<'a>(&'a ShutdownWaterfall, &'a WaterfallRow);

impl fmt::Display for InWords<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let InWords(all, row) = self;
        let since = |at: u64| Lasted::nanos(at.saturating_sub(all.asked));
        write!(f, "{:width$}{}", "", row.job, width = row.depth.min(20))?;
        if let Some(held) = row.held {
            write!(f, ", held back")?;
            if let Some(until) = held.until {
                write!(f, " until {}", since(until))?;
            }
            if let Some(site) = held.site {
                write!(f, " at {}", AtPlace(site))?;
            }
        }
        if let Some((at, site)) = row.told {
            write!(f, ", told {}", since(at))?;
            if let Some(site) = site {
                write!(f, " at {}", AtPlace(site))?;
            }
        }
        match row.ended {
            Some((at, state)) => write!(f, ", {} {}", end_in_words(state), since(at))?,
            None => f.write_str(", goes on")?,
        }
        if row.dropped {
            f.write_str(", dropped")?;
        }
        Ok(())
    }
}
