//! A recording as text: why its jobs were cancelled, and its events, a line each.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Write};

use kinfolk_core::host::say::{grouped, quoted};
use kinfolk_core::{Event, EventKind, JobId, Lane};

use crate::causes::end_in_words;
use crate::record::{AtPlace, JobLabel, Lasted};
use crate::recorder::code::RecordedEvent;
use crate::recorder::recording::Recording;

/// How many cancelled jobs are told of.
const MOST_TRACES: usize = 50;

/// How many events are told, the latest ones.
const MOST_LINES: usize = 5_000;

impl Recording {
    /// Writes it as text: why the first fifty jobs were cancelled that were, then the last
    /// five thousand events, a line each. Names are escaped.
    ///
    /// # Errors
    /// If `out` cannot be written.
    pub fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let labels = self.labels();
        let first = self.events.first().map_or(0, |first| first.event.at);
        let last = self.events.last().map_or(0, |last| last.event.at);
        writeln!(
            out,
            "{} events in {}, {} more are lost",
            grouped(self.events.len()),
            Lasted::nanos(last - first),
            grouped(usize::try_from(self.lost).unwrap_or(usize::MAX))
        )?;
        self.write_cancels(out)?;
        writeln!(out, "\nevents\n")?;
        let left_out = self.events.len().saturating_sub(MOST_LINES);
        if left_out > 0 {
            writeln!(out, "{} before these", grouped(left_out))?;
        }
        for recorded in &self.events[left_out..] {
            writeln!(out, "{}", EventLine(recorded, &labels))?;
        }
        Ok(())
    }

    /// Each job that a cancel came to, in that order, and why.
    fn write_cancels(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut cancelled: Vec<JobId> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for RecordedEvent { event, .. } in &self.events {
            let is_cancel = matches!(
                event.kind,
                EventKind::CancelRequest { .. } | EventKind::CancelHop { .. }
            );
            if is_cancel && seen.insert(event.job) {
                cancelled.push(event.job);
            }
        }
        if cancelled.is_empty() {
            return Ok(());
        }
        writeln!(out, "\ncancelled jobs\n")?;
        let causes = self.causes();
        for job in cancelled.iter().take(MOST_TRACES) {
            if let Some(trace) = causes.why_cancelled(*job) {
                writeln!(out, "{trace}")?;
            }
        }
        match cancelled.len().saturating_sub(MOST_TRACES) {
            0 => Ok(()),
            more => writeln!(out, "and {} more", grouped(more)),
        }
    }

    /// The names of the jobs of which it has the beginning.
    fn labels(&self) -> HashMap<JobId, JobLabel> {
        let made = self.events.iter().filter_map(|recorded| {
            let EventKind::Create { kind, site, .. } = recorded.event.kind else {
                return None;
            };
            let id = recorded.event.job;
            let name = match &recorded.text {
                Some(text) => text.clone(),
                None => kind.name_at(site),
            };
            let label = JobLabel {
                id,
                name,
                kind: Some(kind),
                site: Some(site),
            };
            Some((id, label))
        });
        made.collect()
    }
}

/// One event in a line.
struct EventLine<'a>(&'a RecordedEvent, &'a HashMap<JobId, JobLabel>);

impl EventLine<'_> {
    fn job(&self, id: JobId) -> JobLabel {
        let known = self.1.get(&id).cloned();
        known.unwrap_or_else(|| JobLabel::unknown(id))
    }

    fn head(&self, f: &mut fmt::Formatter<'_>, event: &Event) -> fmt::Result {
        const SECOND: u64 = 1_000_000_000;
        let (seconds, nanos) = (event.at / SECOND, event.at % SECOND);
        let thread = match event.worker {
            Some(worker) => format!("worker {worker}"),
            None => format!("thread {}", event.thread),
        };
        let job = self.job(event.job);
        write!(f, "{seconds:>4}.{nanos:09}  {thread:<10} {job} ")
    }
}

impl fmt::Display for EventLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RecordedEvent { event, text } = self.0;
        let text = text.as_deref();
        self.head(f, event)?;
        match event.kind {
            EventKind::Create { site, lane, .. } => {
                write!(f, "is made at {}", AtPlace(site))?;
                match lane {
                    Lane::Pool => Ok(()),
                    lane => write!(f, ", lane {lane}"),
                }
            }
            EventKind::Attach { parent } => write!(f, "is a child of {}", self.job(parent)),
            EventKind::State { to } if to.is_terminal() => {
                write!(f, "has ended: {}", end_in_words(to))
            }
            EventKind::State { to } => write!(f, "is {}", format!("{to:?}").to_lowercase()),
            EventKind::CancelRequest { reason, site, by } => {
                write!(f, "is cancelled: {reason}")?;
                if let Some(text) = text {
                    write!(f, " {}", quoted(text))?;
                }
                write!(f, ", asked for at {}", AtPlace(site))?;
                match by {
                    Some(by) => write!(f, " by {}", self.job(by)),
                    None => Ok(()),
                }
            }
            EventKind::WaitRegister => f.write_str("has one more that waits for its end"),
            EventKind::WaitWake => f.write_str("wakes one that waits for its end"),
            EventKind::ShieldLifted { site } => {
                write!(f, "lets the cancel in, entered at {}", AtPlace(site))
            }
            EventKind::Finalize { .. } => f.write_str("leaves the tree"),
            EventKind::CancelHop { from } => {
                write!(f, "is cancelled, below {}", self.job(from))
            }
            EventKind::CancelHeld { from } => {
                write!(f, "holds back the cancel of {}", self.job(from))
            }
            EventKind::Told { site } => {
                f.write_str("is told to stop")?;
                at_site(f, site)
            }
            EventKind::GuardEntered { site } => {
                write!(f, "ignores cancellation from {} on", AtPlace(site))
            }
            EventKind::GuardLeft => f.write_str("has one guard less"),
            EventKind::Dropped => f.write_str("is dropped before it is done"),
            EventKind::WaitBegin { kind, site } => {
                match text {
                    Some(text) => write!(f, "waits on {}", quoted(text))?,
                    None => write!(f, "waits on {kind}")?,
                }
                at_site(f, site)
            }
            EventKind::WaitEnd => f.write_str("waits no longer"),
            EventKind::Scheduled { by: None } => f.write_str("is queued"),
            EventKind::Scheduled { by: Some(by) } => match by == event.job {
                true => f.write_str("is queued by itself"),
                false => write!(f, "is queued by {}", self.job(by)),
            },
            EventKind::PollBegin => f.write_str("has a turn"),
            EventKind::PollEnd => f.write_str("has had its turn"),
            other => write!(f, "{other:?}"),
        }
    }
}

fn at_site(
    f: &mut fmt::Formatter<'_>,
    site: Option<&'static std::panic::Location<'static>>,
) -> fmt::Result {
    match site {
        Some(site) => write!(f, " at {}", AtPlace(site)),
        None => Ok(()),
    }
}
