//! Findings: what in a tree deserves a look, by rules over one snapshot or two.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::panic::Location;
use std::time::Duration;

use kinfolk_core::host::say::{brief, grouped, quoted};
use kinfolk_core::{
    JobId, JobKind, JobState, NodeSnapshot, StillThere, StuckJob, TreeSnapshot, WaitKind,
};

use crate::diff::TreeDiff;

/// What a finding is about: one rule each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum FindingRule {
    /// A task was told to stop and has not ended. Limit: for how long; ten seconds. A task
    /// within the time of its clean-up is not meant.
    ToldAndStillThere,
    /// A poll has not returned and keeps its thread. Limit: for how long; 100 ms. A recording
    /// also knows polls that have returned.
    LongPoll,
    /// A body ignores the `Cancelled`s that its points return. A recording counts them, and
    /// says at which points. Count, of a recording: how many; a hundred.
    SwallowedCancel,
    /// A task wakes itself again and again and waits for nothing. From two snapshots. Count:
    /// how many polls lie between them; 10,000. In a recording: that many turns in a row for
    /// which it asked itself, and which took less than ten microseconds on average.
    Spinning,
    /// A task is queued and has never been polled. Limit: for how long; one second. A recording
    /// also knows tasks that were polled so late, and which turn was in the way.
    NeverPolled,
    /// Jobs of one sort become more, and none of them ends. From two snapshots. Count: how
    /// many have come; 100.
    OnlyGrows,
    /// A shield without a budget, or a guard, holds a cancel back. Limit: for how long; ten
    /// seconds.
    ShieldOverBudget,
    /// A cancelled task awaits a future that is not a cancellation point. Limit: for how
    /// long after the cancel; one second, the default of
    /// [`Patience::unaware`](kinfolk_core::Patience).
    DeafAwait,
    /// Jobs wait for each other in a circle.
    WaitCycle,
    /// Less than a tenth of the time until a deadline is left, and the job is not over.
    /// Limit: how much at the most is left; one second.
    DeadlineNear,
    /// The deadline of a job has passed. From a recording, which says what has used the time.
    /// Limit: how long its time was at least; none.
    DeadlineMissed,
}

impl FindingRule {
    /// All rules.
    pub const ALL: [FindingRule; 11] = [
        FindingRule::ToldAndStillThere,
        FindingRule::LongPoll,
        FindingRule::SwallowedCancel,
        FindingRule::Spinning,
        FindingRule::NeverPolled,
        FindingRule::OnlyGrows,
        FindingRule::ShieldOverBudget,
        FindingRule::DeafAwait,
        FindingRule::WaitCycle,
        FindingRule::DeadlineNear,
        FindingRule::DeadlineMissed,
    ];

    /// Returns the name that stands behind a finding.
    pub fn word(self) -> &'static str {
        match self {
            FindingRule::ToldAndStillThere => "told-and-still-there",
            FindingRule::LongPoll => "long-poll",
            FindingRule::SwallowedCancel => "swallowed-cancel",
            FindingRule::Spinning => "spinning",
            FindingRule::NeverPolled => "never-polled",
            FindingRule::OnlyGrows => "only-grows",
            FindingRule::ShieldOverBudget => "shield-over-budget",
            FindingRule::DeafAwait => "deaf-await",
            FindingRule::WaitCycle => "wait-cycle",
            FindingRule::DeadlineNear => "deadline-near",
            FindingRule::DeadlineMissed => "deadline-missed",
        }
    }

    fn place(self) -> usize {
        self as usize
    }

    fn default_setting(self) -> RuleSetting {
        let (level, millis, count) = match self {
            FindingRule::WaitCycle => (FindingLevel::Error, 0, 0),
            FindingRule::SwallowedCancel => (FindingLevel::Error, 0, 100),
            FindingRule::ToldAndStillThere | FindingRule::ShieldOverBudget => {
                (FindingLevel::Warning, 10_000, 0)
            }
            FindingRule::LongPoll => (FindingLevel::Warning, 100, 0),
            FindingRule::Spinning => (FindingLevel::Warning, 0, 10_000),
            FindingRule::NeverPolled | FindingRule::DeafAwait => (FindingLevel::Warning, 1_000, 0),
            FindingRule::OnlyGrows => (FindingLevel::Warning, 0, 100),
            FindingRule::DeadlineNear => (FindingLevel::Hint, 1_000, 0),
            FindingRule::DeadlineMissed => (FindingLevel::Hint, 0, 0),
        };
        RuleSetting {
            level: Some(level),
            limit: Duration::from_millis(millis),
            count,
        }
    }
}

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum FindingLevel {
    /// It may be meant.
    Hint,
    /// It is seldom meant.
    Warning,
    /// It is a mistake in the program.
    Error,
}

impl fmt::Display for FindingLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FindingLevel::Hint => "hint",
            FindingLevel::Warning => "warning",
            FindingLevel::Error => "error",
        })
    }
}

#[derive(Clone, Copy, Debug)]
struct RuleSetting {
    /// None: the rule is off.
    level: Option<FindingLevel>,
    limit: Duration,
    count: usize,
}

/// The rules with their levels and limits, and the jobs that are spared.
///
/// ```
/// use std::time::Duration;
/// use kinfolk_see::{FindingLevel, FindingRule, Rules};
///
/// let rules = Rules::default()
///     .limit(FindingRule::LongPoll, Duration::from_millis(10))
///     .level(FindingRule::DeadlineNear, FindingLevel::Warning)
///     .off(FindingRule::NeverPolled)
///     .allow(FindingRule::OnlyGrows, "session *")
///     .allow(FindingRule::LongPoll, "compile.rs:40");
/// # drop(rules);
/// ```
#[derive(Clone, Debug)]
pub struct Rules {
    settings: [RuleSetting; FindingRule::ALL.len()],
    allowed: Vec<(FindingRule, String)>,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            settings: FindingRule::ALL.map(FindingRule::default_setting),
            allowed: Vec::new(),
        }
    }
}

impl Rules {
    /// Sets the level of what a rule finds.
    pub fn level(mut self, rule: FindingRule, level: FindingLevel) -> Rules {
        self.settings[rule.place()].level = Some(level);
        self
    }

    /// Switches a rule off.
    pub fn off(mut self, rule: FindingRule) -> Rules {
        self.settings[rule.place()].level = None;
        self
    }

    /// Sets the time of a rule that has one; see [`FindingRule`].
    pub fn limit(mut self, rule: FindingRule, limit: Duration) -> Rules {
        self.settings[rule.place()].limit = limit;
        self
    }

    /// Sets the count of a rule that has one; see [`FindingRule`].
    pub fn count(mut self, rule: FindingRule, count: usize) -> Rules {
        self.settings[rule.place()].count = count;
        self
    }

    /// Spares jobs from a rule: those of that name, those whose name begins like that if a
    /// star follows, and those that were spawned at that place, such as `conn.rs:88`.
    pub fn allow(mut self, rule: FindingRule, jobs: impl Into<String>) -> Rules {
        self.allowed.push((rule, jobs.into()));
        self
    }

    /// Applies the rules to a snapshot, and to an earlier one where there is one: then
    /// [`FindingRule::OnlyGrows`] and [`FindingRule::Spinning`] are asked too. The gravest findings come
    /// first.
    pub fn check(&self, now: &TreeSnapshot, earlier: Option<&TreeSnapshot>) -> Findings {
        let mut found = FoundSoFar {
            rules: self,
            found: Vec::new(),
        };
        found.stuck(now);
        found.each(now);
        found.cycles(now);
        found.deadlines(now);
        if let Some(earlier) = earlier {
            found.spinning(now, earlier);
            found.growing(now, earlier);
        }
        let mut all = found.found;
        all.sort_by_key(|finding| (std::cmp::Reverse(finding.level), finding.rule));
        Findings { all }
    }

    pub(crate) fn limit_of(&self, rule: FindingRule) -> Duration {
        self.of(rule).limit
    }

    pub(crate) fn count_of(&self, rule: FindingRule) -> usize {
        self.of(rule).count
    }

    /// The level of what the rule finds of such a job; none if it is off, or spares the job.
    pub(crate) fn level_for(
        &self,
        rule: FindingRule,
        name: &str,
        site: Option<&Location<'_>>,
    ) -> Option<FindingLevel> {
        let level = self.of(rule).level?;
        (!self.allows(rule, name, site)).then_some(level)
    }

    /// The jobs whose deadline is near, without the others.
    pub(crate) fn deadlines_near(&self, now: &TreeSnapshot) -> Vec<Finding> {
        let mut found = FoundSoFar {
            rules: self,
            found: Vec::new(),
        };
        found.deadlines(now);
        found.found
    }

    fn of(&self, rule: FindingRule) -> RuleSetting {
        self.settings[rule.place()]
    }

    fn allows(&self, rule: FindingRule, name: &str, site: Option<&Location<'_>>) -> bool {
        let mut allowed = self.allowed.iter().filter(|(of, _)| *of == rule);
        allowed.any(|(_, jobs)| {
            let begins = jobs
                .strip_suffix('*')
                .is_some_and(|begin| name.starts_with(begin));
            let stands_at = |site: &Location<'_>| {
                let (file, line) = jobs.rsplit_once(':')?;
                let front = site.file().strip_suffix(file)?;
                let is_file = front.is_empty() || front.ends_with(['/', '\\']);
                Some(is_file && line.parse() == Ok(site.line()))
            };
            let stands = site.and_then(stands_at).unwrap_or(false);
            name == jobs || begins || stands
        })
    }
}

/// What the rules have found in a tree.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    all: Vec<Finding>,
}

impl Findings {
    /// Those, in that order.
    pub(crate) fn of_all(all: Vec<Finding>) -> Findings {
        Findings { all }
    }

    /// The findings, the gravest first.
    pub fn all(&self) -> &[Finding] {
        &self.all
    }

    /// Returns true if nothing was found.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns the findings of one rule.
    pub fn of(&self, rule: FindingRule) -> impl Iterator<Item = &Finding> {
        self.all.iter().filter(move |finding| finding.rule == rule)
    }
}

/// One thing that a rule has found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Finding {
    /// The rule.
    pub rule: FindingRule,
    /// How much it matters.
    pub level: FindingLevel,
    /// The task or the job that it is about.
    pub job: JobId,
    /// What sort of job it is; none if its beginning is older than the recording.
    pub kind: Option<JobKind>,
    /// Its name; its number if its beginning is older than the recording.
    pub name: String,
    /// Where it was spawned or opened; none if its beginning is older than the recording.
    pub site: Option<&'static Location<'static>>,
    /// What was found, in words that follow the name.
    pub what: String,
    /// More that is known, a line each.
    pub facts: Vec<String>,
    /// What to do about it.
    pub help: &'static str,
}

/// How many findings of one rule are printed.
const MOST_PRINTED: usize = 20;

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.all.len() {
            0 => return f.write_str("findings: none"),
            1 => f.write_str("1 finding")?,
            n => write!(f, "{} findings", grouped(n))?,
        }
        let mut printed: HashMap<FindingRule, usize> = HashMap::new();
        for finding in &self.all {
            let count = printed.entry(finding.rule).or_default();
            *count += 1;
            if *count <= MOST_PRINTED {
                write!(f, "\n{finding}")?;
            }
        }
        for rule in FindingRule::ALL {
            let more = printed
                .get(&rule)
                .map_or(0, |n| n.saturating_sub(MOST_PRINTED));
            if more > 0 {
                write!(f, "\n… and {} more of {}", grouped(more), rule.word())?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.level)?;
        match self.kind {
            Some(kind) => write!(f, "{kind} {}", quoted(&self.name))?,
            None => write!(f, "job {}", quoted(&self.name))?,
        }
        write!(f, " {}\n  --> ", self.what)?;
        match self.site {
            Some(site) => write!(f, "spawned at {}", Place(site))?,
            None => f.write_str("made before the recording begins")?,
        }
        for fact in &self.facts {
            write!(f, "\n   = {fact}")?;
        }
        write!(
            f,
            "\n   = help: {}\n   = rule: {}",
            self.help,
            self.rule.word()
        )
    }
}

/// A place in the code.
struct Place(&'static Location<'static>);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.0.file(), self.0.line())
    }
}

struct FoundSoFar<'a> {
    rules: &'a Rules,
    found: Vec<Finding>,
}

/// The task that a job is part of.
fn task_of(node: &NodeSnapshot) -> JobId {
    node.task.as_ref().map_or(node.id, |task| task.id)
}

/// Where a job waits, in words; none if it does not.
fn wait(node: &NodeSnapshot) -> Option<String> {
    let (kind, site, since) = node.waits_on?;
    let at = site.map_or(String::new(), |site| format!(" at {}", Place(site)));
    Some(format!("waits on {kind}{at} for {}", brief(since)))
}

/// The scope in which a task is, if it is in one.
fn inside(node: &NodeSnapshot) -> Option<String> {
    let is_scope = task_of(node) != node.id;
    is_scope.then(|| {
        let site = Place(node.site);
        format!("in {} {}, opened at {site}", node.kind, quoted(&node.name))
    })
}

impl FoundSoFar<'_> {
    /// Adds a finding about a task, or about a job that is part of none.
    fn add(
        &mut self,
        rule: FindingRule,
        node: &NodeSnapshot,
        what: String,
        facts: impl IntoIterator<Item = Option<String>>,
        help: &'static str,
    ) {
        let Some(level) = self.rules.of(rule).level else {
            return;
        };
        let task = node.task.as_ref();
        let name = task.map_or(&*node.name, |task| &task.name);
        let site = task.map_or(node.site, |task| task.site);
        let allows = |name: &str, site| self.rules.allows(rule, name, Some(site));
        if allows(name, site) || allows(&node.name, node.site) {
            return;
        }
        let kind = task.map_or(node.kind, |_| JobKind::Task);
        self.found.push(Finding {
            rule,
            level,
            job: task_of(node),
            kind: Some(kind),
            name: name.to_string(),
            site: Some(site),
            what,
            facts: facts.into_iter().flatten().collect(),
            help,
        });
    }

    /// The rules on jobs that are cancelled and have not ended.
    fn stuck(&mut self, now: &TreeSnapshot) {
        let cleans_up: HashSet<JobId> = now
            .nodes()
            .iter()
            .filter(|node| node.budget_left.is_some_and(|left| !left.is_zero()))
            .map(task_of)
            .collect();
        for StuckJob {
            job, since, why, ..
        } in now.stuck(Duration::ZERO).jobs
        {
            let task = job.task.as_ref();
            let told = task.and_then(|task| task.told_since).max(job.told_since);
            let after = |rule: FindingRule, time: Duration| time >= self.rules.of(rule).limit;
            let facts = |why: Option<String>| {
                let reason = job
                    .reason
                    .as_ref()
                    .map(|reason| format!("cancelled: {reason}"));
                [inside(&job), wait(&job), why, reason]
            };
            match why {
                StillThere::Shielded(at) => {
                    let budget = now.get(job.id).and_then(|node| node.budget_left);
                    let within = budget.is_some_and(|left| !left.is_zero());
                    if !within && after(FindingRule::ShieldOverBudget, since) {
                        let at = at.map(|at| format!("the shield was entered at {}", Place(at)));
                        self.add(
                            FindingRule::ShieldOverBudget,
                            &job,
                            format!("is shielded from a cancel of {} ago", brief(since)),
                            facts(at),
                            "bound the shield with `shield_for`, or hold the guard for less long",
                        );
                    }
                }
                StillThere::ForeignAwait if told.is_none() => {
                    if after(FindingRule::DeafAwait, since) {
                        self.add(
                            FindingRule::DeafAwait,
                            &job,
                            format!("does not hear its cancel of {} ago", brief(since)),
                            facts(None),
                            "make the await a cancellation point, with `.or_cancel()`",
                        );
                    }
                }
                // Told of what it waits for, in a poll, or found by itself.
                StillThere::WaitsFor { first: Some(_), .. }
                | StillThere::NoPoint
                | StillThere::SwallowsCancellation => {}
                _ => {
                    let Some(told) = told else { continue };
                    if after(FindingRule::ToldAndStillThere, told)
                        && !cleans_up.contains(&task_of(&job))
                    {
                        self.add(
                            FindingRule::ToldAndStillThere,
                            &job,
                            format!("was told to stop {} ago and is still there", brief(told)),
                            facts(Some(why.to_string())),
                            "return soon after `Cancelled`, or bound what is left with `cleanup`",
                        );
                    }
                }
            }
        }
    }

    /// The rules on one job at a time.
    fn each(&mut self, now: &TreeSnapshot) {
        for node in now.nodes() {
            let is_task = task_of(node) == node.id;
            if node.swallows_cancellation {
                let since = node.cancelled_since.unwrap_or_default();
                let reason = node.reason.as_ref();
                self.add(
                    FindingRule::SwallowedCancel,
                    node,
                    format!("swallows its cancellation of {} ago", brief(since)),
                    [
                        inside(node),
                        Some("it has ignored a hundred `Cancelled`s".into()),
                        wait(node),
                        reason.map(|reason| format!("cancelled: {reason}")),
                    ],
                    "return the `Cancelled` that the points return",
                );
            }
            let limit = self.rules.of(FindingRule::LongPoll).limit;
            if let Some(lasted) = node.polled_for.filter(|lasted| is_task && *lasted >= limit) {
                self.add(
                    FindingRule::LongPoll,
                    node,
                    format!("has kept its thread for {}", brief(lasted)),
                    [None],
                    "move blocking work to `blocking`, and put `checkpoint().await?` into long \
                     loops",
                );
            }
            let limit = self.rules.of(FindingRule::NeverPolled).limit;
            let waits = is_task && node.running && node.polls == 0 && node.polled_for.is_none();
            if waits && node.state == JobState::New && node.age >= limit {
                self.add(
                    FindingRule::NeverPolled,
                    node,
                    format!(
                        "was spawned {} ago and has never been polled",
                        brief(node.age)
                    ),
                    [Some(format!("it is queued on the {} lane", node.lane))],
                    "run its lane, and look for a task that keeps the threads of that lane",
                );
            }
        }
    }

    fn cycles(&mut self, now: &TreeSnapshot) {
        for cycle in now.cycles() {
            let Some(first) = cycle.jobs.first() else {
                continue;
            };
            let what = match cycle.jobs.len() {
                1 => "waits for itself".to_string(),
                n => format!("waits in a circle of {n} jobs"),
            };
            let words = cycle.to_string();
            let places = words
                .lines()
                .skip(1)
                .map(|line| Some(line.trim().to_string()));
            self.add(
                FindingRule::WaitCycle,
                first,
                what,
                places,
                "take locks in one order everywhere, and hold none while waiting for a job that \
                 needs it",
            );
        }
    }

    fn deadlines(&mut self, now: &TreeSnapshot) {
        let limit = self.rules.of(FindingRule::DeadlineNear).limit;
        // Once for all, and only if a deadline is near: in a deep tree many jobs share one.
        let mut users = None;
        for (at, node) in now.nodes().iter().enumerate() {
            let Some(left) = node.deadline_in else {
                continue;
            };
            let total = node.age.saturating_add(left);
            let is_near = left <= limit && left.saturating_mul(10) < total && !left.is_zero();
            if !is_near || node.cancelled_since.is_some() {
                continue;
            }
            let users = users.get_or_insert_with(|| users_of_time(now));
            let facts = users[at].map(|(used, below)| {
                let below = &now.nodes()[below];
                let (kind, whose) = (below.kind, quoted(&below.name));
                let what = wait(below).unwrap_or_else(|| "is polled".into());
                format!(
                    "{} of {}: {kind} {whose}, {what}",
                    brief(used),
                    brief(node.age)
                )
            });
            let own = inside(node).filter(|_| node.kind != JobKind::Task);
            self.add(
                FindingRule::DeadlineNear,
                node,
                format!(
                    "has {} of {} left until its deadline",
                    brief(left),
                    brief(total)
                ),
                [own, facts],
                "give it more time, or shorten what has used it",
            );
        }
    }

    fn spinning(&mut self, now: &TreeSnapshot, earlier: &TreeSnapshot) {
        let count = self.rules.of(FindingRule::Spinning).count;
        let spins = |node: &NodeSnapshot| node.queued_after == Some(WaitKind::Foreign);
        for (at, node) in now.nodes().iter().enumerate() {
            // What spins is the innermost scope that is open in the task.
            let mut below = now.children_at(at).map(|at| &now.nodes()[at]);
            let is_inside = below.any(|below| task_of(below) == task_of(node));
            if !spins(node) || is_inside {
                continue;
            }
            let Some(before) = earlier.get(node.id).filter(|before| spins(before)) else {
                continue;
            };
            let polls = node.polls.wrapping_sub(before.polls) as usize;
            if polls >= count {
                let elapsed = now.taken().saturating_sub(earlier.taken());
                self.add(
                    FindingRule::Spinning,
                    node,
                    format!("was polled {} times in {}", grouped(polls), brief(elapsed)),
                    [
                        inside(node),
                        Some("it wakes itself, and waits for nothing".into()),
                    ],
                    "wait for what the loop looks for, or sleep between the looks",
                );
            }
        }
    }

    fn growing(&mut self, now: &TreeSnapshot, earlier: &TreeSnapshot) {
        let count = self.rules.of(FindingRule::OnlyGrows).count;
        let diff = TreeDiff::new(now, earlier);
        for growth in &diff.grown {
            let only = growth.before > 0 && growth.stayed == growth.before;
            if !only || growth.by() < count {
                continue;
            }
            let Some(keeper) = &growth.keeper else {
                continue;
            };
            let (Some(level), false) = (
                self.rules.of(FindingRule::OnlyGrows).level,
                self.rules
                    .allows(FindingRule::OnlyGrows, &growth.name, Some(growth.site)),
            ) else {
                continue;
            };
            let rate = diff.per_minute(growth);
            let rate = rate.map(|rate| format!("{rate:.1} more a minute"));
            let (kind, whose, site) = (keeper.kind, quoted(&keeper.name), Place(keeper.site));
            let kept = format!("kept open below {kind} {whose} {}, of {site}", keeper.id);
            self.found.push(Finding {
                rule: FindingRule::OnlyGrows,
                level,
                job: keeper.id,
                kind: Some(growth.kind),
                name: growth.name.clone(),
                site: Some(growth.site),
                what: format!(
                    "only becomes more: {} before, {} now, and none has ended",
                    grouped(growth.before),
                    grouped(growth.now)
                ),
                facts: rate.into_iter().chain([kept]).collect(),
                help: "bound how many there may be, with a `TaskSet` or a semaphore, and look \
                       for what they wait for",
            });
        }
    }
}

/// How long a job has spent in what it does now, if that is not to wait for other jobs.
/// For each job the one in its subtree that has used the most time: how much, and its place.
/// Of equal ones the deepest, then the last.
fn users_of_time(now: &TreeSnapshot) -> Vec<Option<(Duration, usize)>> {
    let mut users = vec![None; now.nodes().len()];
    for (at, node) in now.nodes().iter().enumerate().rev() {
        let own = used(node).map(|used| (used, at));
        let below = now.children_at(at).filter_map(|child| users[child]);
        let all = own.into_iter().chain(below);
        users[at] = all.max_by_key(|(used, at)| (*used, now.nodes()[*at].depth));
    }
    users
}

fn used(node: &NodeSnapshot) -> Option<Duration> {
    match node.waits_on {
        Some((WaitKind::Scope | WaitKind::Children | WaitKind::Task | WaitKind::Join, _, _)) => {
            None
        }
        Some((_, _, since)) => Some(since),
        None => node.polled_for,
    }
}
