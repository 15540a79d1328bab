//! Findings over the events of a recording: what a look at one moment misses, since it is over
//! by then.

use std::collections::HashMap;
use std::panic::Location;
use std::time::Duration;

use kinfolk_core::host::say::{brief, grouped};
use kinfolk_core::{
    Event, EventKind, JobId, JobKind, JobState, ReasonKind, TreeSnapshot, WaitKind,
};

use crate::causes::end_in_words;
use crate::findings::{Finding, FindingRule, Findings, Rules};
use crate::record::{AtPlace, JobLabel};
use crate::recorder::{RecordedEvent, Recording};

/// Turns of a task that spins are shorter than this on average, in nanoseconds: one that works
/// and yields takes longer.
const IDLE_TURN: u64 = 10_000;

/// How many points of a job that swallows its cancel are named.
const MOST_POINTS: usize = 3;

impl Recording {
    /// Returns what the default [`Rules`] find in its events; see [`Rules::check_recording`].
    pub fn findings(&self) -> Findings {
        Rules::default().check_recording(self, None)
    }
}

impl Rules {
    /// Applies the rules to the events of a recording. [`FindingRule::LongPoll`],
    /// [`FindingRule::Spinning`], [`FindingRule::SwallowedCancel`], [`FindingRule::NeverPolled`]
    /// and [`FindingRule::DeadlineMissed`] are asked: what they find may be over by now. With a
    /// snapshot of the same tree, taken after the recording, [`FindingRule::DeadlineNear`] is
    /// asked too, and its findings say what has used the time. The snapshot also has the names
    /// of jobs that live and whose beginning is older than the recording; without it, and of
    /// jobs that have ended since, a finding has their number. Jobs of one name and one spawn
    /// site share a finding. The gravest findings come first.
    ///
    /// A recording of [`Interests::WAITS`](kinfolk_core::Interests::WAITS) knows for what the
    /// jobs have waited; without those it knows only how long they were polled and queued.
    pub fn check_recording(&self, recording: &Recording, now: Option<&TreeSnapshot>) -> Findings {
        let book = EventBook::read(recording, now);
        let mut all = Vec::new();
        for found in [
            book.long_polls(self),
            book.spinning(self),
            book.swallowed(self),
            book.never_polled(self),
            book.missed(self),
        ] {
            all.extend(found);
        }
        if let Some(now) = now {
            for mut finding in self.deadlines_near(now) {
                let used = book.used_below(finding.job, 0, book.end);
                finding.facts.extend(used);
                all.push(finding);
            }
        }
        all.sort_by_key(|finding| (std::cmp::Reverse(finding.level), finding.rule));
        Findings::of_all(all)
    }
}

/// A span of time of one task: queued, or in a turn.
#[derive(Clone, Copy)]
struct TaskSpan {
    job: JobId,
    from: u64,
    to: u64,
    worker: Option<u32>,
}

impl TaskSpan {
    fn lasted(&self) -> u64 {
        self.to.saturating_sub(self.from)
    }

    /// How long both went on at once.
    fn shares(&self, other: &TaskSpan) -> u64 {
        let (from, to) = (self.from.max(other.from), self.to.min(other.to));
        to.saturating_sub(from)
    }
}

/// A wait of a job that is over, or went on to the end.
struct WaitSpan {
    span: TaskSpan,
    kind: WaitKind,
    what: Option<String>,
    site: Option<&'static Location<'static>>,
}

/// What the events say of one job.
#[derive(Default)]
struct EventLife {
    label: Option<JobLabel>,
    parent: Option<JobId>,
    born: Option<u64>,
    /// Its first turn came; or its end, without one.
    has_begun: bool,
    queued: Option<u64>,
    /// It asked for that turn itself.
    by_itself: bool,
    turn: Option<(u64, Option<u32>)>,
    /// Turns in a row that it asked for, and how long they took.
    streak: usize,
    streak_took: u64,
    longest_streak: (usize, u64),
    told: Vec<(Option<&'static Location<'static>>, usize)>,
    cancelled: Option<(u64, ReasonKind)>,
    deadline: Option<u64>,
    ended: Option<JobState>,
}

#[derive(Default)]
struct EventBook {
    lives: HashMap<JobId, EventLife>,
    /// The jobs in the order in which they were met.
    order: Vec<JobId>,
    turns: Vec<TaskSpan>,
    queues: Vec<TaskSpan>,
    /// From being queued to the first turn.
    first_queues: Vec<TaskSpan>,
    waits: Vec<WaitSpan>,
    /// The wait of each task that goes on.
    open_waits: HashMap<JobId, WaitSpan>,
    end: u64,
}

impl EventBook {
    fn read(recording: &Recording, now: Option<&TreeSnapshot>) -> EventBook {
        let mut book = EventBook::default();
        // Of those whose beginning is in the recording, it says the same.
        for node in now.map_or(&[][..], TreeSnapshot::nodes) {
            let life = book.life(node.id);
            life.parent = node.parent;
            life.label = Some(JobLabel {
                id: node.id,
                name: node.name.to_string(),
                kind: Some(node.kind),
                site: Some(node.site),
            });
        }
        for RecordedEvent { event, text } in &recording.events {
            book.end = book.end.max(event.at);
            book.take_in(event, text.as_deref());
        }
        book.close();
        book
    }

    fn life(&mut self, job: JobId) -> &mut EventLife {
        self.lives.entry(job).or_insert_with(|| {
            self.order.push(job);
            EventLife::default()
        })
    }

    fn take_in(&mut self, event: &Event, text: Option<&str>) {
        let (job, at) = (event.job, event.at);
        match event.kind {
            EventKind::Create { kind, site, .. } => {
                let name = text.map_or_else(|| kind.name_at(site), String::from);
                let life = self.life(job);
                life.born = Some(at);
                life.label = Some(JobLabel {
                    id: job,
                    name,
                    kind: Some(kind),
                    site: Some(site),
                });
            }
            EventKind::Attach { parent } => self.life(job).parent = Some(parent),
            EventKind::Scheduled { by } => {
                let by_itself = by.is_some_and(|by| self.task_of(by) == job);
                let life = self.life(job);
                life.queued.get_or_insert(at);
                life.by_itself = by_itself;
            }
            EventKind::PollBegin => self.turn_begins(event),
            EventKind::PollEnd => self.turn_ends(job, at),
            EventKind::WaitBegin { kind, site } => {
                let span = TaskSpan {
                    job,
                    from: at,
                    to: at,
                    worker: None,
                };
                let what = text.map(String::from);
                let wait = WaitSpan {
                    span,
                    kind,
                    what,
                    site,
                };
                self.open_waits.insert(self.task_of(job), wait);
            }
            EventKind::WaitEnd => self.wait_ends(job, at),
            EventKind::Told { site } => {
                let told = &mut self.life(job).told;
                match told.iter_mut().find(|(known, _)| *known == site) {
                    Some((_, times)) => *times += 1,
                    None => told.push((site, 1)),
                }
            }
            EventKind::CancelRequest { reason, .. } => {
                let life = self.life(job);
                life.cancelled.get_or_insert((at, reason));
                if reason == ReasonKind::Deadline {
                    life.deadline.get_or_insert(at);
                }
            }
            EventKind::State { to } if to.is_terminal() => {
                self.wait_ends(job, at);
                self.life(job).ended = Some(to);
            }
            _ => {}
        }
    }

    fn turn_begins(&mut self, event: &Event) {
        let (job, at, worker) = (event.job, event.at, event.worker);
        let life = self.life(job);
        life.turn = Some((at, worker));
        // It may have had turns before the recording began.
        let is_first = !std::mem::replace(&mut life.has_begun, true) && life.born.is_some();
        if !life.by_itself {
            (life.streak, life.streak_took) = (0, 0);
        }
        if let Some(from) = life.queued.take() {
            let span = TaskSpan {
                job,
                from,
                to: at,
                worker,
            };
            self.queues.push(span);
            if is_first {
                self.first_queues.push(span);
            }
        }
    }

    fn turn_ends(&mut self, job: JobId, at: u64) {
        let life = self.life(job);
        let Some((from, worker)) = life.turn.take() else {
            return;
        };
        life.streak += 1;
        life.streak_took += at.saturating_sub(from);
        if life.streak > life.longest_streak.0 {
            life.longest_streak = (life.streak, life.streak_took);
        }
        self.turns.push(TaskSpan {
            job,
            from,
            to: at,
            worker,
        });
    }

    fn wait_ends(&mut self, task: JobId, at: u64) {
        if let Some(mut wait) = self.open_waits.remove(&task) {
            wait.span.to = at;
            self.waits.push(wait);
        }
    }

    /// What goes on is taken to have lasted to the end of the recording.
    fn close(&mut self) {
        let end = self.end;
        let waiting: Vec<JobId> = self.open_waits.keys().copied().collect();
        waiting
            .into_iter()
            .for_each(|task| self.wait_ends(task, end));
        for job in self.order.clone() {
            self.turn_ends(job, end);
            let life = self.life(job);
            let begun = life.has_begun || life.born.is_none();
            let (queued, over) = (life.queued.take(), life.ended);
            let Some(from) = queued.filter(|_| over.is_none()) else {
                continue;
            };
            let (to, worker) = (end, None);
            let span = TaskSpan {
                job,
                from,
                to,
                worker,
            };
            self.queues.push(span);
            if !begun {
                self.first_queues.push(span);
            }
        }
    }

    fn kind(&self, job: JobId) -> Option<JobKind> {
        self.lives.get(&job)?.label.as_ref()?.kind
    }

    fn parent(&self, job: JobId) -> Option<JobId> {
        self.lives.get(&job)?.parent
    }

    /// The task in whose turns the job is polled.
    fn task_of(&self, job: JobId) -> JobId {
        let mut at = job;
        while let Some(JobKind::Scope | JobKind::Timeout | JobKind::Shield | JobKind::Branch) =
            self.kind(at)
        {
            match self.parent(at) {
                Some(parent) => at = parent,
                None => break,
            }
        }
        at
    }

    fn is_below(&self, job: JobId, above: JobId) -> bool {
        let mut at = Some(job);
        // A chain as long as there are jobs goes in a circle.
        for _ in 0..=self.order.len() {
            match at {
                Some(job) if job == above => return true,
                Some(job) => at = self.parent(job),
                None => return false,
            }
        }
        false
    }

    fn label(&self, job: JobId) -> JobLabel {
        let known = self.lives.get(&job).and_then(|life| life.label.clone());
        known.unwrap_or_else(|| JobLabel::unknown(job))
    }

    /// One finding for the jobs of each name and spawn site: about the first of them, and how
    /// many there are.
    fn grouped(&self, jobs: impl Iterator<Item = JobId>) -> Vec<(JobId, usize)> {
        let mut groups: Vec<(JobId, usize)> = Vec::new();
        let mut known: HashMap<(String, Option<&'static Location<'static>>), usize> =
            HashMap::new();
        for job in jobs {
            let place = *known.entry(self.name_and_site(job)).or_insert_with(|| {
                groups.push((job, 0));
                groups.len() - 1
            });
            groups[place].1 += 1;
        }
        groups
    }

    /// The name of a job and where it was made; of one whose beginning is older than the
    /// recording its number.
    fn name_and_site(&self, job: JobId) -> (String, Option<&'static Location<'static>>) {
        let label = self.label(job);
        match label.kind {
            Some(_) => (label.name, label.site),
            None => (job.to_string(), None),
        }
    }

    /// A finding, if the rule is on and does not spare the job.
    fn finding(
        &self,
        rules: &Rules,
        rule: FindingRule,
        job: JobId,
        what: String,
        facts: Vec<String>,
        help: &'static str,
    ) -> Option<Finding> {
        let (name, site) = self.name_and_site(job);
        let level = rules.level_for(rule, &name, site)?;
        Some(Finding {
            rule,
            level,
            job,
            kind: self.kind(job),
            name,
            site,
            what,
            facts,
            help,
        })
    }

    // ------------------------------------------------------------- rules

    fn long_polls(&self, rules: &Rules) -> Vec<Finding> {
        let limit = nanos(rules.limit_of(FindingRule::LongPoll));
        let mut long: Vec<TaskSpan> = self.turns.clone();
        long.retain(|turn| turn.lasted() >= limit);
        long.sort_by_key(|turn| std::cmp::Reverse(turn.lasted()));
        let groups = self.grouped(long.iter().map(|turn| turn.job));
        let found = groups.into_iter().filter_map(|(job, many)| {
            let longest = long.iter().find(|turn| turn.job == job)?;
            let thread = match longest.worker {
                Some(worker) => format!("worker {worker}"),
                None => "its thread".to_string(),
            };
            let since = Duration::from_nanos(longest.from);
            let mut facts = vec![format!("from {} after the start on", brief(since))];
            facts.extend(self.kept_waiting(longest));
            if many > 1 {
                facts.push(format!("{} such turns in all", grouped(many)));
            }
            self.finding(
                rules,
                FindingRule::LongPoll,
                job,
                format!("kept {thread} for {}", brief_of(longest.lasted())),
                facts,
                "move blocking work to `blocking`, and put `checkpoint().await?` into long loops",
            )
        });
        found.collect()
    }

    /// Which tasks were queued while a turn went on.
    fn kept_waiting(&self, turn: &TaskSpan) -> Option<String> {
        let waited = self
            .queues
            .iter()
            .filter(|queue| queue.job != turn.job && queue.shares(turn) > 0);
        let (mut many, mut longest) = (0, 0);
        let mut whose = None;
        for queue in waited {
            many += 1;
            if queue.shares(turn) > longest {
                longest = queue.shares(turn);
                whose = Some(queue.job);
            }
        }
        let whose = self.label(whose?);
        Some(format!(
            "{} queued meanwhile, {whose} for {}",
            match many {
                1 => "1 task was".to_string(),
                many => format!("{} tasks were", grouped(many)),
            },
            brief_of(longest)
        ))
    }

    fn spinning(&self, rules: &Rules) -> Vec<Finding> {
        let count = rules.count_of(FindingRule::Spinning).max(1);
        let spins = |job: &JobId| {
            let (turns, took) = self.lives[job].longest_streak;
            turns >= count && took / (turns as u64) < IDLE_TURN
        };
        let jobs = self.order.iter().copied().filter(|job| spins(job));
        let found = self.grouped(jobs).into_iter().filter_map(|(job, many)| {
            let (turns, took) = self.lives[&job].longest_streak;
            let mut facts = vec![
                "it asked for each of these turns itself".to_string(),
                format!("a turn took {} on average", brief_of(took / turns as u64)),
            ];
            facts.extend((many > 1).then(|| format!("{} such tasks in all", grouped(many))));
            self.finding(
                rules,
                FindingRule::Spinning,
                job,
                format!(
                    "had {} turns in a row and did next to nothing",
                    grouped(turns)
                ),
                facts,
                "wait for what the loop looks for, or sleep between the looks",
            )
        });
        found.collect()
    }

    fn swallowed(&self, rules: &Rules) -> Vec<Finding> {
        let count = rules.count_of(FindingRule::SwallowedCancel).max(1);
        let times = |job: &JobId| self.lives[job].told.iter().map(|(_, times)| times).sum();
        let swallows = |job: &JobId| -> bool {
            let told: usize = times(job);
            told >= count
        };
        let jobs = self.order.iter().copied().filter(|job| swallows(job));
        let found = self.grouped(jobs).into_iter().filter_map(|(job, many)| {
            let life = &self.lives[&job];
            let mut points = life.told.clone();
            points.sort_by_key(|(_, times)| std::cmp::Reverse(*times));
            let named = points.iter().take(MOST_POINTS).map(|(site, times)| {
                let place = site.map_or("a point".to_string(), |site| AtPlace(site).to_string());
                format!("{} at {place}", grouped(*times))
            });
            let mut facts = vec![format!("told: {}", named.collect::<Vec<_>>().join(", "))];
            facts.extend(
                life.ended
                    .map(|state| format!("it has ended: {}", end_in_words(state))),
            );
            facts.extend((many > 1).then(|| format!("{} such jobs in all", grouped(many))));
            self.finding(
                rules,
                FindingRule::SwallowedCancel,
                job,
                format!("went on after {} `Cancelled`s", grouped(times(&job))),
                facts,
                "return the `Cancelled` that the points return",
            )
        });
        found.collect()
    }

    fn never_polled(&self, rules: &Rules) -> Vec<Finding> {
        let limit = nanos(rules.limit_of(FindingRule::NeverPolled));
        let mut late: Vec<&TaskSpan> = self.first_queues.iter().collect();
        late.retain(|queue| queue.lasted() >= limit);
        late.sort_by_key(|queue| std::cmp::Reverse(queue.lasted()));
        let groups = self.grouped(late.iter().map(|queue| queue.job));
        let found = groups.into_iter().filter_map(|(job, many)| {
            let queue = late.iter().find(|queue| queue.job == job)?;
            let what = match self.lives[&job].has_begun {
                true => format!(
                    "had its first turn {} after it was queued",
                    brief_of(queue.lasted())
                ),
                false => format!(
                    "was queued for {} and had no turn",
                    brief_of(queue.lasted())
                ),
            };
            let busy = self.turns.iter().max_by_key(|turn| turn.shares(queue));
            let busy = busy.filter(|turn| turn.shares(queue) > 0).map(|turn| {
                let whose = self.label(turn.job);
                format!(
                    "{whose} had a turn for {} of that",
                    brief_of(turn.shares(queue))
                )
            });
            let mut facts: Vec<String> = busy.into_iter().collect();
            facts.extend((many > 1).then(|| format!("{} such tasks in all", grouped(many))));
            self.finding(
                rules,
                FindingRule::NeverPolled,
                job,
                what,
                facts,
                "run its lane, and look for a task that keeps the threads of that lane",
            )
        });
        found.collect()
    }

    fn missed(&self, rules: &Rules) -> Vec<Finding> {
        let limit = nanos(rules.limit_of(FindingRule::DeadlineMissed));
        let had = |job: &JobId| {
            let life = &self.lives[job];
            let (born, missed) = (life.born?, life.deadline?);
            let had = missed.saturating_sub(born);
            (had >= limit).then_some((born, missed, had))
        };
        let jobs = self.order.iter().copied().filter(|job| had(job).is_some());
        let found = self.grouped(jobs).into_iter().filter_map(|(job, many)| {
            let (born, missed, had) = had(&job)?;
            let mut facts: Vec<String> = self.used_below(job, born, missed).into_iter().collect();
            facts.extend((many > 1).then(|| format!("{} such jobs in all", grouped(many))));
            self.finding(
                rules,
                FindingRule::DeadlineMissed,
                job,
                format!("had {}, and its deadline has passed", brief_of(had)),
                facts,
                "give it more time, or shorten what has used it",
            )
        });
        found.collect()
    }

    /// What has used the most time in a job and below it between two moments: a wait at one
    /// place that is not for other jobs, the turns of a task, or its time in a queue.
    fn used_below(&self, job: JobId, from: u64, to: u64) -> Option<String> {
        let born = self.lives.get(&job)?.born?;
        let whole = TaskSpan {
            job,
            from: from.max(born),
            to,
            worker: None,
        };
        let own_task = self.task_of(job);
        let counts = |one: JobId| one == own_task || self.is_below(one, job);
        let mut used: HashMap<(JobId, String), u64> = HashMap::new();
        for wait in self.waits.iter().filter(|wait| counts(wait.span.job)) {
            if let WaitKind::Scope | WaitKind::Children | WaitKind::Task | WaitKind::Join =
                wait.kind
            {
                continue;
            }
            let kind = wait.what.as_deref().map(kinfolk_core::host::say::quoted);
            let mut words = match kind {
                Some(what) => format!("waited on {what}"),
                None => format!("waited on {}", wait.kind),
            };
            if let Some(site) = wait.site {
                words.push_str(&format!(" at {}", AtPlace(site)));
            }
            *used.entry((wait.span.job, words)).or_default() += wait.span.shares(&whole);
        }
        for (spans, words) in [(&self.turns, "was polled"), (&self.queues, "was queued")] {
            for span in spans.iter().filter(|span| counts(span.job)) {
                let key = (span.job, words.to_string());
                *used.entry(key).or_default() += span.shares(&whole);
            }
        }
        let most = used
            .into_iter()
            .max_by(|(one, a), (other, b)| a.cmp(b).then_with(|| one.cmp(other)));
        let ((user, words), took) = most.filter(|(_, took)| *took > 0)?;
        Some(format!(
            "{} of {}: {} {words}",
            brief_of(took),
            brief_of(whole.lasted()),
            self.label(user)
        ))
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn brief_of(nanos: u64) -> String {
    match nanos {
        // Of no time too: turns of a simulation take none.
        0..1_000_000 => crate::record::Lasted::nanos(nanos).to_string(),
        _ => brief(Duration::from_nanos(nanos)).to_string(),
    }
}
