//! Counters, gauges and histograms for the crate `metrics`.

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::panic::Location;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kinfolk_core::{Event, EventKind, Interests, JobId, JobState, Sink, WaitKind};
use metrics::{Counter, Gauge, Histogram};

use crate::record::AtPlace;

/// How many locks the jobs are spread over.
const SHARDS: usize = 32;

/// Counts and measures for the crate `metrics`: install its recorder before the runtime is
/// built. With the feature `metrics`.
///
/// | name | what | labels |
/// |---|---|---|
/// | `kinfolk_jobs_created_total` | counter | `kind` |
/// | `kinfolk_jobs_ended_total` | counter | `state` |
/// | `kinfolk_cancels_total` | counter | `reason` |
/// | `kinfolk_dropped_total` | counter: futures that were dropped by force | |
/// | `kinfolk_jobs_living` | gauge | |
/// | `kinfolk_poll_seconds` | histogram: one turn of a task | `site`: where it was spawned |
/// | `kinfolk_queue_seconds` | histogram: from a wake to the turn | |
/// | `kinfolk_wait_seconds` | histogram: between two turns | `kind`: what for |
/// | `kinfolk_cancel_to_end_seconds` | histogram: from the cancel of a job to its end | `kind` |
///
/// ```
/// use kinfolk_runtime::Runtime;
/// use kinfolk_see::Measures;
///
/// let rt = Runtime::builder().sink(Measures::new()).build().unwrap();
/// # drop(rt);
/// ```
pub struct Measures {
    shards: [Mutex<HashMap<JobId, MeasuredJob>>; SHARDS],
    /// The histogram of each site, by the address of the site.
    sites: Mutex<HashMap<usize, Histogram>>,
    waits: Mutex<HashMap<WaitKind, Histogram>>,
    living: Gauge,
    queue: Histogram,
    dropped: Counter,
}

struct MeasuredJob {
    kind: String,
    polls: Histogram,
    polled: Option<u64>,
    queued: Option<u64>,
    waits: Option<(WaitKind, u64)>,
    cancelled: Option<u64>,
}

std::thread_local! {
    /// The task whose turn on this thread was over last: what it waits for is told next.
    static LAST: Cell<Option<JobId>> = const { Cell::new(None) };
}

fn seconds(from: u64, to: u64) -> f64 {
    to.saturating_sub(from) as f64 / 1e9
}

impl Measures {
    /// Makes the sink: give it to a runtime.
    pub fn new() -> Arc<Measures> {
        Arc::new(Measures {
            shards: std::array::from_fn(|_| Mutex::default()),
            sites: Mutex::default(),
            waits: Mutex::default(),
            living: metrics::gauge!("kinfolk_jobs_living"),
            queue: metrics::histogram!("kinfolk_queue_seconds"),
            dropped: metrics::counter!("kinfolk_dropped_total"),
        })
    }

    fn with<R>(&self, job: JobId, f: impl FnOnce(&mut MeasuredJob) -> R) -> Option<R> {
        self.shard(job).get_mut(&job).map(f)
    }

    fn shard(&self, job: JobId) -> MutexGuard<'_, HashMap<JobId, MeasuredJob>> {
        lock(&self.shards[job.number() as usize % SHARDS])
    }

    fn of_site(&self, site: &'static Location<'static>) -> Histogram {
        let mut sites = lock(&self.sites);
        let known = sites.entry(std::ptr::from_ref(site).addr());
        let new =
            || metrics::histogram!("kinfolk_poll_seconds", "site" => AtPlace(site).to_string());
        known.or_insert_with(new).clone()
    }

    fn of_wait(&self, kind: WaitKind) -> Histogram {
        let mut waits = lock(&self.waits);
        let new = || metrics::histogram!("kinfolk_wait_seconds", "kind" => label(kind));
        waits.entry(kind).or_insert_with(new).clone()
    }

    fn is_cancelled(&self, job: JobId, at: u64) {
        self.with(job, |job| {
            job.cancelled.get_or_insert(at);
        });
    }

    fn has_ended(&self, job: JobId, at: u64, state: JobState) {
        let state = label(state);
        metrics::counter!("kinfolk_jobs_ended_total", "state" => state).increment(1);
        let took = self.with(job, |job| Some((job.cancelled?, job.kind.clone())));
        if let Some((since, kind)) = took.flatten() {
            metrics::histogram!("kinfolk_cancel_to_end_seconds", "kind" => kind)
                .record(seconds(since, at));
        }
    }
}

/// The name of a variant as a label, in lower case with underscores. What is printed of it may
/// change its words, a label does not.
fn label(variant: impl fmt::Debug) -> String {
    let mut label = String::new();
    for c in format!("{variant:?}").chars() {
        if c.is_ascii_uppercase() && !label.is_empty() {
            label.push('_');
        }
        label.push(c.to_ascii_lowercase());
    }
    label
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sink for Measures {
    fn event(&self, event: &Event) {
        let (job, at) = (event.job, event.at);
        match event.kind {
            EventKind::Create { kind, site, .. } => {
                let kind = label(kind);
                metrics::counter!("kinfolk_jobs_created_total", "kind" => kind.clone())
                    .increment(1);
                self.living.increment(1.0);
                let new = MeasuredJob {
                    kind,
                    polls: self.of_site(site),
                    polled: None,
                    queued: None,
                    waits: None,
                    cancelled: None,
                };
                self.shard(job).insert(job, new);
            }
            EventKind::Scheduled { .. } => {
                self.with(job, |job| job.queued = Some(at));
            }
            EventKind::PollBegin => {
                let queued = self.with(job, |job| {
                    job.polled = Some(at);
                    job.queued.take()
                });
                if let Some(queued) = queued.flatten() {
                    self.queue.record(seconds(queued, at));
                }
            }
            EventKind::PollEnd => {
                let _ = LAST.try_with(|last| last.set(Some(job)));
                let polled = self.with(job, |job| Some((job.polls.clone(), job.polled.take()?)));
                if let Some((polls, since)) = polled.flatten() {
                    polls.record(seconds(since, at));
                }
            }
            EventKind::WaitBegin { kind, .. } => {
                let task = LAST.try_with(Cell::get).ok().flatten().unwrap_or(job);
                self.with(task, |task| task.waits = Some((kind, at)));
            }
            EventKind::WaitEnd => {
                if let Some((kind, since)) = self.with(job, |job| job.waits.take()).flatten() {
                    self.of_wait(kind).record(seconds(since, at));
                }
            }
            EventKind::CancelRequest { reason, .. } => {
                metrics::counter!("kinfolk_cancels_total", "reason" => label(reason)).increment(1);
                self.is_cancelled(job, at);
            }
            EventKind::CancelHop { .. } => self.is_cancelled(job, at),
            EventKind::Dropped => self.dropped.increment(1),
            EventKind::State { to } if to.is_terminal() => self.has_ended(job, at, to),
            EventKind::Finalize { .. } => {
                let gone = self.shard(job).remove(&job);
                if gone.is_some() {
                    self.living.decrement(1.0);
                }
            }
            _ => {}
        }
    }

    fn interests(&self) -> Interests {
        Interests::TURNS | Interests::WAITS | Interests::CAUSES
    }
}

impl fmt::Debug for Measures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Measures")
    }
}
