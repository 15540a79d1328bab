//! The causal trace: for each cancel where it was asked for, each hop on its way down, the
//! point at which each body was told, and when each job ended. A [`Causes`] is a sink that
//! keeps this for living jobs, and for a bounded number of jobs that have ended.
//!
//! Events of one job may come from several threads at once, and in an order that is not that
//! of their times: a walk may mark a child before its attacher has told of its birth. So each
//! event fills in its own field of the job's entry, and nothing is concluded before it is asked
//! for.

use std::collections::{HashMap, VecDeque};
use std::panic::Location;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kinfolk_core::{Event, EventKind, Interests, JobId, JobKind, JobState, ReasonKind, Sink};

use crate::causes::trace::{CancelEntry, CancelTrace, Held, TracedHop, TracedJob};
use crate::causes::waterfall::ShutdownWaterfall;
use crate::record::JobLabel;

/// How many locks the entries are spread over, so that workers seldom meet at one.
const SHARDS: usize = 32;

/// How many jobs that have ended are kept.
const KEPT: usize = 10_000;

/// How many living jobs are known at the most.
const MOST_LIVING: usize = 1_000_000;

/// The longest way up that is looked at.
const DEEPEST: usize = 10_000;

/// Says why a job was cancelled, also when it has ended a moment ago. A sink: give it to a
/// runtime, and ask it later.
///
/// ```
/// # use kinfolk_core as kinfolk;
/// use std::sync::Arc;
/// use kinfolk_runtime::Runtime;
/// use kinfolk_see::Causes;
///
/// let causes = Causes::new();
/// let rt = Runtime::builder().sink(causes.clone()).build().unwrap();
/// let id = rt.block_on(async {
///     let task = kinfolk::spawn(kinfolk::park());
///     task.cancel("no longer needed");
///     Ok::<_, kinfolk::Error>(task.id())
/// });
/// println!("{}", causes.why_cancelled(id.unwrap()).unwrap());
/// ```
///
/// It knows one tree: give each runtime its own. Living jobs take some 300 bytes each; those
/// that ended and were cancelled, and what a stopping job waited for, are kept up to
/// [a number](Causes::keeping), the oldest forgotten first.
#[derive(Debug)]
pub struct Causes {
    shards: [Mutex<CauseShard>; SHARDS],
    /// Ended jobs, the oldest first.
    ended: Mutex<VecDeque<JobId>>,
    most_ended: usize,
    living: AtomicUsize,
    /// Living jobs that a cancel has come to: while there are some, what ends is kept.
    stopping: AtomicUsize,
    /// How many cancels have entered the tree: what was found out about the jobs above one
    /// holds until the next.
    entered: AtomicU64,
    /// Jobs that were not taken in, since too many lived.
    left_out: AtomicU64,
    /// Ended jobs that were forgotten.
    forgotten: AtomicU64,
}

type CauseShard = HashMap<JobId, CauseEntry>;

/// What is known of one job.
#[derive(Clone, Debug, Default)]
pub(crate) struct CauseEntry {
    pub(crate) parent: Option<JobId>,
    pub(crate) made: Option<(JobKind, &'static Location<'static>)>,
    pub(crate) name: Option<Box<str>>,
    pub(crate) born: Option<u64>,
    pub(crate) request: Option<AskedCancel>,
    /// When a cancel came from the parent, and took effect.
    pub(crate) came: Option<(u64, JobId)>,
    /// When a cancel came and was held back.
    pub(crate) held: Option<u64>,
    /// When a shield let it in.
    pub(crate) lifted: Option<u64>,
    /// The first guard of those that are there, and how many.
    guards: u32,
    pub(crate) guard: Option<(&'static Location<'static>, u64, Option<u64>)>,
    pub(crate) told: Option<(u64, Option<&'static Location<'static>>)>,
    pub(crate) times_told: u32,
    pub(crate) ended: Option<(u64, JobState)>,
    pub(crate) dropped: bool,
    /// It counts as stopping.
    stops: bool,
    /// When so many cancels had entered the tree, none had come to a job above this one.
    free_at: Option<u64>,
    over: bool,
}

/// A cancel that entered the tree.
#[derive(Clone, Debug)]
pub(crate) struct AskedCancel {
    pub(crate) at: u64,
    pub(crate) reason: ReasonKind,
    pub(crate) site: &'static Location<'static>,
    /// As it was then: it may end and be forgotten first.
    pub(crate) by: Option<JobLabel>,
    pub(crate) text: Option<Box<str>>,
}

impl CauseEntry {
    pub(crate) fn label(&self, id: JobId) -> JobLabel {
        let Some((kind, site)) = self.made else {
            return JobLabel::unknown(id);
        };
        let name = match &self.name {
            Some(name) => name.to_string(),
            None => kind.name_at(site),
        };
        JobLabel {
            id,
            name,
            kind: Some(kind),
            site: Some(site),
        }
    }

    /// What held a cancel back here: from when to when, and where that was entered.
    pub(crate) fn hold(&self) -> Option<Held> {
        if let Some(since) = self.held {
            return Some(Held {
                since,
                until: self.lifted,
                site: self.made.map(|(_, site)| site),
            });
        }
        let (site, entered, left) = self.guard?;
        let asked = self.request.as_ref().map(|request| request.at);
        let since = entered.max(asked.or(self.came.map(|(at, _)| at))?);
        (left.is_none_or(|left| left >= since)).then_some(Held {
            since,
            until: left,
            site: Some(site),
        })
    }

    fn takes_in(&mut self, event: &Event, text: Option<&str>, asker: Option<JobLabel>) {
        let at = event.at;
        match event.kind {
            EventKind::Create { kind, site, .. } => {
                self.made = Some((kind, site));
                self.name = text.map(Box::from);
                self.born = Some(at);
            }
            EventKind::Attach { parent } => self.parent = Some(parent),
            EventKind::CancelRequest { reason, site, .. } => {
                // The words of an explicit cancel that came after a deadline's are no request.
                self.request.get_or_insert_with(|| AskedCancel {
                    at,
                    reason,
                    site,
                    by: asker,
                    text: text.map(Box::from),
                });
            }
            EventKind::CancelHop { from } => {
                self.came.get_or_insert((at, from));
                self.parent.get_or_insert(from);
            }
            EventKind::CancelHeld { from } => {
                self.held.get_or_insert(at);
                self.parent.get_or_insert(from);
            }
            EventKind::ShieldLifted { .. } => self.lifted = Some(at),
            EventKind::Told { site } => {
                self.told.get_or_insert((at, site));
                self.times_told = self.times_told.saturating_add(1);
            }
            EventKind::GuardEntered { site } => {
                if self.guards == 0 {
                    self.guard = Some((site, at, None));
                }
                self.guards += 1;
            }
            EventKind::GuardLeft => {
                self.guards = self.guards.saturating_sub(1);
                if let (0, Some((_, _, left))) = (self.guards, &mut self.guard) {
                    *left = Some(at);
                }
            }
            EventKind::Dropped => self.dropped = true,
            EventKind::State { to } if to.is_terminal() => self.ended = Some((at, to)),
            _ => {}
        }
    }

    fn was_stopped(&self) -> bool {
        self.request.is_some() || self.came.is_some() || self.held.is_some()
    }
}

impl Causes {
    /// Keeps the last 10,000 jobs that ended and were cancelled.
    pub fn new() -> Arc<Causes> {
        Causes::keeping(KEPT)
    }

    /// Keeps the last `jobs` that ended and were cancelled.
    pub fn keeping(jobs: usize) -> Arc<Causes> {
        Arc::new(Causes {
            shards: std::array::from_fn(|_| Mutex::default()),
            ended: Mutex::default(),
            most_ended: jobs,
            living: AtomicUsize::new(0),
            stopping: AtomicUsize::new(0),
            entered: AtomicU64::new(0),
            left_out: AtomicU64::new(0),
            forgotten: AtomicU64::new(0),
        })
    }

    /// Returns why the job was cancelled: where that was asked for and by which job, each hop
    /// from there, what held it back, where its body was told, and how it ended. None if it
    /// was not cancelled, or has been [forgotten](Causes::forgotten).
    pub fn why_cancelled(&self, job: JobId) -> Option<CancelTrace> {
        let mut way = Vec::new();
        let mut at = job;
        let request = loop {
            let entry = self.entry(at)?;
            if way.len() == DEEPEST {
                return None;
            }
            let (request, came) = (entry.request.clone(), entry.came);
            way.push((at, entry));
            // The cancel that came first is the one that counts.
            match (request, came) {
                (Some(request), None) => break request,
                (Some(request), Some((came, _))) if request.at <= came => break request,
                (_, Some((_, from))) => at = from,
                (None, None) => return None,
            }
        };
        way.reverse();
        let (entered, origin) = way.first()?;
        let entry = CancelEntry {
            job: origin.label(*entered),
            at: request.at,
            reason: request.reason,
            text: request.text.as_deref().map(String::from),
            site: request.site,
            by: request.by.clone(),
        };
        let hops = way.windows(2).filter_map(|pair| {
            let [(from, _), (to, entry)] = pair else {
                return None;
            };
            Some(TracedHop {
                from: *from,
                to: entry.label(*to),
                at: entry.came?.0,
                held: entry.hold(),
            })
        });
        let hops = hops.collect();
        let (id, last) = way.last()?;
        Some(CancelTrace {
            entry,
            hops,
            job: traced(*id, last),
        })
    }

    /// The latest cancel of the whole tree, as a shutdown makes it: for each job that was there
    /// when it was asked for or came later, when it was told and when it ended, and what the
    /// shutdown waited for longest. None if the root was not cancelled.
    pub fn shutdown(&self) -> Option<ShutdownWaterfall> {
        let root = self.root()?;
        self.waterfall(root)
    }

    /// The same for a cancel that entered the tree at `job`.
    pub fn waterfall(&self, job: JobId) -> Option<ShutdownWaterfall> {
        let mut all = HashMap::new();
        for shard in &self.shards {
            let shard = lock(shard);
            all.extend(shard.iter().map(|(id, entry)| (*id, entry.clone())));
        }
        ShutdownWaterfall::of(job, &all)
    }

    /// How many jobs are not in here although they were cancelled or waited for: they had ended
    /// and gave way to later ones, or a million others lived.
    pub fn forgotten(&self) -> u64 {
        self.forgotten.load(Relaxed) + self.left_out.load(Relaxed)
    }

    fn root(&self) -> Option<JobId> {
        self.shards.iter().find_map(|shard| {
            let shard = lock(shard);
            let mut roots = shard
                .iter()
                .filter(|(_, entry)| entry.made.is_some_and(|(kind, _)| kind == JobKind::Root));
            roots.next().map(|(id, _)| *id)
        })
    }

    fn label(&self, job: JobId) -> JobLabel {
        match self.entry(job) {
            Some(entry) => entry.label(job),
            None => JobLabel::unknown(job),
        }
    }

    fn entry(&self, job: JobId) -> Option<CauseEntry> {
        self.shard(job).get(&job).cloned()
    }

    fn shard(&self, job: JobId) -> MutexGuard<'_, CauseShard> {
        lock(&self.shards[job.number() as usize % SHARDS])
    }

    fn take_in(&self, event: &Event, text: Option<&str>) {
        let job = event.job;
        let (over, cancelled) = match event.kind {
            EventKind::Finalize { cancelled } => (true, cancelled),
            _ => (false, false),
        };
        // Looked up before the lock: another shard is asked for it.
        let waited_for = over && self.stopping.load(Relaxed) > 0 && self.is_below_a_stop(job);
        let asker = match event.kind {
            EventKind::CancelRequest { by: Some(by), .. } => Some(self.label(by)),
            _ => None,
        };
        let mut shard = self.shard(job);
        if over {
            let Some(entry) = shard.get_mut(&job) else {
                return;
            };
            entry.over = true;
            self.living.fetch_sub(1, Relaxed);
            if std::mem::take(&mut entry.stops) {
                self.stopping.fetch_sub(1, Relaxed);
            }
            // The thread that cancelled it may not have told us yet.
            let keeps = waited_for || cancelled || entry.was_stopped();
            if !keeps {
                shard.remove(&job);
            }
            drop(shard);
            if keeps {
                self.keep(job);
            }
            return;
        }
        let entry = match shard.get_mut(&job) {
            Some(entry) => entry,
            // It has ended, or was left out. A walk that comes before the birth is told is
            // told with the birth once more.
            None if !matches!(event.kind, EventKind::Create { .. }) => return,
            None if self.living.load(Relaxed) >= MOST_LIVING => {
                self.left_out.fetch_add(1, Relaxed);
                return;
            }
            None => {
                self.living.fetch_add(1, Relaxed);
                shard.entry(job).or_default()
            }
        };
        entry.takes_in(event, text, asker);
        if matches!(event.kind, EventKind::CancelRequest { .. }) {
            // Under the lock of its entry: a climb that has not seen the request has an older
            // number.
            self.entered.fetch_add(1, Relaxed);
        }
        if !entry.stops && !entry.over && entry.was_stopped() {
            entry.stops = true;
            self.stopping.fetch_add(1, Relaxed);
        }
    }

    /// True if a cancel has come to a job above `job`: that one waits for it. The jobs of a
    /// way up without a cancel are marked, so that the next climb through one of them ends
    /// there.
    fn is_below_a_stop(&self, job: JobId) -> bool {
        let entered = self.entered.load(Relaxed);
        let mut way = Vec::new();
        let mut at = job;
        while way.len() < DEEPEST {
            let shard = self.shard(at);
            let Some(entry) = shard.get(&at) else { break };
            if entry.was_stopped() {
                return true;
            }
            if entry.free_at == Some(entered) {
                break;
            }
            way.push(at);
            let Some(parent) = entry.parent else { break };
            at = parent;
        }
        for job in way {
            if let Some(entry) = self.shard(job).get_mut(&job) {
                entry.free_at = Some(entered);
            }
        }
        false
    }

    /// One more has ended and is kept; the oldest gives way.
    fn keep(&self, job: JobId) {
        let gone = {
            let mut ended = lock(&self.ended);
            ended.push_back(job);
            (ended.len() > self.most_ended).then(|| ended.pop_front())
        };
        if let Some(Some(gone)) = gone {
            self.shard(gone).remove(&gone);
            self.forgotten.fetch_add(1, Relaxed);
        }
    }
}

fn traced(id: JobId, entry: &CauseEntry) -> TracedJob {
    TracedJob {
        label: entry.label(id),
        told: entry.told,
        times_told: entry.times_told,
        ended: entry.ended,
        dropped: entry.dropped,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sink for Causes {
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
