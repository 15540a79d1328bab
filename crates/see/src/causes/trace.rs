//! The answer to why a job was cancelled, as data and as text.

use std::fmt;
use std::panic::Location;

use kinfolk_core::host::say::quoted;
use kinfolk_core::{JobId, JobState, ReasonKind};

use crate::record::{AtPlace, JobLabel, Lasted};

/// Why a job was cancelled: where the cancel was asked for, its way down to the job, and what
/// became of the job. Times are nanoseconds since the tree began. Prints like the message of a
/// compiler.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CancelTrace {
    /// Where the cancel entered the tree.
    pub entry: CancelEntry,
    /// Its way from there, from each job to the next; empty for the job where it entered.
    pub hops: Vec<TracedHop>,
    /// The job that was asked about.
    pub job: TracedJob,
}

/// Where a cancel entered the tree, and who asked for it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CancelEntry {
    /// The job where it entered.
    pub job: JobLabel,
    /// When.
    pub at: u64,
    /// Why.
    pub reason: ReasonKind,
    /// The words given with it.
    pub text: Option<String>,
    /// The place in the code that asked.
    pub site: &'static Location<'static>,
    /// The job that asked; of a failure the one that failed. None if the call was made outside
    /// every job.
    pub by: Option<JobLabel>,
}

/// One step of a cancel from a job to a child of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TracedHop {
    /// The parent.
    pub from: JobId,
    /// The child.
    pub to: JobLabel,
    /// When the cancel took effect there.
    pub at: u64,
    /// What held it back there before.
    pub held: Option<Held>,
}

/// How long a shield or a guard held a cancel back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Held {
    /// Since when.
    pub since: u64,
    /// Until when; none if it still does, or did until its end.
    pub until: Option<u64>,
    /// Where the shield or the guard was entered.
    pub site: Option<&'static Location<'static>>,
}

/// What became of a job that was cancelled.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TracedJob {
    /// The job.
    pub label: JobLabel,
    /// When its body was told first, and the point at which.
    pub told: Option<(u64, Option<&'static Location<'static>>)>,
    /// How often its body was told.
    pub times_told: u32,
    /// When and how it ended.
    pub ended: Option<(u64, JobState)>,
    /// True if its future was dropped before it was done.
    pub dropped: bool,
}

/// A state in which a job ends, in words.
pub(crate) fn end_in_words(state: JobState) -> &'static str {
    match state {
        JobState::Completed => "completed",
        JobState::Failed => "failed",
        JobState::Cancelled => "cancelled",
        _ => "not yet",
    }
}

impl CancelTrace {
    /// One line of the way, with the time since the cancel was asked for.
    fn line(&self, f: &mut fmt::Formatter<'_>, at: u64, words: fmt::Arguments<'_>) -> fmt::Result {
        let since = Lasted::nanos(at.saturating_sub(self.entry.at)).to_string();
        writeln!(f, "   | {:>9}  {words}", format!("+{since}"))
    }
}

impl fmt::Display for CancelTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (entry, job) = (&self.entry, &self.job);
        write!(f, "{} was cancelled: {}", job.label, entry.reason)?;
        if let Some(text) = &entry.text {
            write!(f, " {}", quoted(text))?;
        }
        write!(f, "\n  --> {}", AtPlace(entry.site))?;
        if let Some(by) = &entry.by {
            write!(f, ", by {by}")?;
        }
        writeln!(f, ", {} after the start", Lasted::nanos(entry.at))?;
        writeln!(f, "   |")?;
        self.line(f, entry.at, format_args!("{} is cancelled", entry.job))?;
        for hop in &self.hops {
            if let Some(held) = hop.held {
                write_hold(self, f, &hop.to, held)?;
            }
            self.line(
                f,
                hop.at,
                format_args!("{} is cancelled, below {}", hop.to, hop.from),
            )?;
        }
        match job.told {
            Some((at, Some(site))) => {
                self.line(f, at, format_args!("its body is told at {}", AtPlace(site)))?;
            }
            Some((at, None)) => self.line(f, at, format_args!("its body is told"))?,
            None => {}
        }
        if let Some((at, state)) = job.ended {
            let how = end_in_words(state);
            self.line(f, at, format_args!("it has ended: {how}"))?;
        }
        writeln!(f, "   |")?;
        if job.dropped {
            writeln!(f, "   = its future was dropped: it did not hear its cancel")?;
        } else if job.told.is_none() && job.ended.is_none() {
            writeln!(f, "   = its body has not been told yet")?;
        }
        if job.times_told > 1 {
            writeln!(f, "   = its points said Cancelled {} times", job.times_told)?;
        }
        match job.label.site {
            Some(site) => writeln!(f, "   = it was made at {}", AtPlace(site)),
            None => Ok(()),
        }
    }
}

fn write_hold(
    trace: &CancelTrace,
    f: &mut fmt::Formatter<'_>,
    job: &JobLabel,
    held: Held,
) -> fmt::Result {
    let place = match held.site {
        Some(site) => format!(", entered at {}", AtPlace(site)),
        None => String::new(),
    };
    trace.line(f, held.since, format_args!("{job} holds it back{place}"))
}
