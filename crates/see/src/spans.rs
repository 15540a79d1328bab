//! A span of `tracing` for each job, inside that of its parent, and its events as events.

use std::collections::HashMap;
use std::fmt;
use std::panic::Location;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kinfolk_core::host::say::escaped;
use kinfolk_core::{Event, EventKind, Interests, JobId, JobKind, Sink};
use tracing::Span;

use crate::record::AtPlace;

/// How many locks the spans are spread over.
const SHARDS: usize = 32;

/// Makes a span of `tracing` for each job, inside the span of its parent, with the fields
/// `name`, `id`, `kind` and `site`, and tells what happens to the job as events in it. All are
/// of the target `kinfolk::job`: spans, births and ends at the level `DEBUG`, cancels at `INFO`,
/// futures that are dropped by force at `WARN`. With the feature `tracing`.
///
/// The subscriber runs on the worker on which something happens, and that worker waits for it.
///
/// ```
/// use kinfolk_runtime::Runtime;
/// use kinfolk_see::JobSpans;
///
/// let rt = Runtime::builder().sink(JobSpans::new()).build().unwrap();
/// # drop(rt);
/// ```
///
/// Events that a job makes itself are not in its span: that would cost each turn. For those
/// the feature `tracing` of core carries the span of the spawner.
pub struct JobSpans {
    shards: [Mutex<SpanShard>; SHARDS],
}

type SpanShard = HashMap<JobId, JobSpan>;

/// A job between its birth and its end.
struct JobSpan {
    kind: JobKind,
    site: &'static Location<'static>,
    name: String,
    /// None until its parent is known.
    span: Option<Span>,
}

impl JobSpans {
    /// Makes the sink: give it to a runtime.
    pub fn new() -> Arc<JobSpans> {
        Arc::new(JobSpans {
            shards: std::array::from_fn(|_| Mutex::default()),
        })
    }

    fn shard(&self, job: JobId) -> MutexGuard<'_, SpanShard> {
        let shard = &self.shards[job.number() as usize % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn span(&self, job: JobId) -> Option<Span> {
        self.shard(job).get(&job)?.span.clone()
    }

    /// The span of a job whose parent is known. It is made outside the locks: that calls the
    /// subscriber.
    fn open(&self, job: JobId, parent: Option<JobId>) {
        let above = parent.and_then(|parent| self.span(parent));
        let (kind, site, name) = match self.shard(job).get(&job) {
            Some(known) => (known.kind, known.site, known.name.clone()),
            None => return,
        };
        let span = tracing::debug_span!(
            target: "kinfolk::job",
            parent: above.as_ref().and_then(Span::id),
            "job",
            name = %name,
            id = %job,
            kind = %kind,
            site = %AtPlace(site),
        );
        tracing::debug!(target: "kinfolk::job", parent: &span, "created");
        let before = match self.shard(job).get_mut(&job) {
            Some(known) => known.span.replace(span),
            None => Some(span),
        };
        drop(before);
    }

    fn take_in(&self, event: &Event, text: Option<&str>) {
        let job = event.job;
        match event.kind {
            EventKind::Create { kind, site, .. } => {
                let name = match text {
                    Some(text) => escaped(text).to_string(),
                    None => kind.name_at(site),
                };
                let new = JobSpan {
                    kind,
                    site,
                    name,
                    span: None,
                };
                self.shard(job).insert(job, new);
                if kind == JobKind::Root {
                    self.open(job, None);
                }
            }
            EventKind::Attach { parent } => self.open(job, Some(parent)),
            EventKind::Finalize { .. } => {
                // The span closes outside the lock.
                let gone = self.shard(job).remove(&job);
                drop(gone);
            }
            other => self.tell(job, other, text),
        }
    }

    fn tell(&self, job: JobId, kind: EventKind, text: Option<&str>) {
        let Some(span) = self.span(job) else { return };
        match kind {
            EventKind::CancelRequest { reason, site, by } => {
                let words = escaped(text.unwrap_or_default());
                tracing::info!(
                    target: "kinfolk::job", parent: &span, %reason, site = %AtPlace(site),
                    by = by.map(tracing::field::display), words = %words, "cancelled"
                );
            }
            EventKind::CancelHop { from } => {
                tracing::debug!(target: "kinfolk::job", parent: &span, %from, "cancelled from above");
            }
            EventKind::CancelHeld { .. } => {
                tracing::info!(target: "kinfolk::job", parent: &span, "holds a cancel back");
            }
            EventKind::ShieldLifted { .. } => {
                tracing::info!(target: "kinfolk::job", parent: &span, "lets the cancel in");
            }
            EventKind::Told { site } => {
                let site = site.map(|site| tracing::field::display(AtPlace(site)));
                tracing::debug!(target: "kinfolk::job", parent: &span, site, "told");
            }
            EventKind::Dropped => {
                tracing::warn!(target: "kinfolk::job", parent: &span, "dropped by force");
            }
            EventKind::State { to } if to.is_terminal() => {
                tracing::debug!(target: "kinfolk::job", parent: &span, state = ?to, "ended");
            }
            _ => {}
        }
    }
}

impl Sink for JobSpans {
    fn event(&self, event: &Event) {
        self.take_in(event, None);
    }

    fn event_with(&self, event: &Event, text: &str) {
        self.take_in(event, Some(text));
    }

    fn interests(&self) -> Interests {
        Interests::CAUSES | Interests::TEXTS
    }
}

impl fmt::Debug for JobSpans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobSpans")
    }
}
