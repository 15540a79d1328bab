//! Reads one job without changing it: for snapshots, and for the reports of forced drops.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::base::id::JobId;
use crate::base::observe::JobState;
use crate::base::observe::node::{NodeSnapshot, PartOf, WaitingJob};
use crate::base::wait_kind::WaitKind;
use crate::engine::children::since_turn;
use crate::engine::names;
use crate::engine::poll_record;
use crate::engine::tree::{ForcedDrop, Shared};
use crate::record::cell;
use crate::record::header::{Header, JobRef, Site};
use crate::record::state;

/// A snapshot of one job alone.
pub(crate) fn one(tree: &Shared, h: &Header) -> NodeSnapshot {
    let parent = h.parent_from_outside();
    let mut task = task_of(tree, h);
    let mut above = parent.clone();
    while let (None, Some(job)) = (&task, above) {
        task = task_of(tree, &job);
        above = job.parent_from_outside();
    }
    // It is read inside its last turn, so it always seems to run.
    let task = task.map(|task| TaskLook {
        running: false,
        polled_for: None,
        ..task
    });
    let parent = parent.map(|parent| parent.id);
    look_at(tree, h, parent, h.depth() as usize, task.as_ref())
}

/// The innermost scope that is open in the body of `h`, the newest if there are
/// several; none if no scope is open.
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

/// What a snapshot of a job takes from the task that it is part of.
#[derive(Clone)]
pub(crate) struct TaskLook {
    part_of: PartOf,
    /// Queued or being polled.
    running: bool,
    polled_for: Option<Duration>,
}

/// If `h` is a task: its identity, and what it does.
pub(crate) fn task_of(tree: &Shared, h: &Header) -> Option<TaskLook> {
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

// Long because it fills each field of a node, from one load of its word.
pub(crate) fn look_at(
    tree: &Shared,
    h: &Header,
    parent: Option<JobId>,
    depth: usize,
    task: Option<&TaskLook>,
) -> NodeSnapshot {
    // Everything that the word says is taken from this one load.
    let st = h.state.load();
    let running = task.is_some_and(|task| task.running) && !st.has(state::BODY_DONE);
    let polls = h.polls.load(Relaxed);
    let polled_for = task.and_then(|task| task.polled_for).filter(|_| running);
    let pending = h.waits.load(Relaxed) > 0 || !h.no_wait_of_ours();
    let has_waited = polls > 0 && !st.has(state::BODY_DONE);
    let queued_after = (has_waited && running && polled_for.is_none()).then(|| match pending {
        true => WaitKind::from_bits(h.wait_kind.load(Relaxed)),
        false => WaitKind::Foreign,
    });
    let waits_on = (has_waited && !running).then(|| {
        if pending {
            let kind = WaitKind::from_bits(h.wait_kind.load(Relaxed));
            let site = Site(h.wait_site.load(Relaxed));
            (kind, Some(site.location()), since_turn(tree, h))
        } else {
            (WaitKind::Foreign, None, since_turn(tree, h))
        }
    });
    let now = tree.host.now();
    let reason = st.has(state::CANCELLED).then(|| h.reason()).flatten();
    let owner = (h.is_task() && st.has(state::WAITER)).then(|| cell::waiting_job(h));
    let mut waiting: Vec<Option<JobId>> = owner.into_iter().collect();
    let (mut guarded_at, mut leases, mut budget_left) = (None, 0, None);
    let deadline = h
        .if_cold(|cold, _| {
            waiting.extend(cold.joiners.iter().map(|joiner| joiner.job));
            (guarded_at, leases) = (cold.guarded_at, cold.leases);
            budget_left = cold.budget.map(|budget| match cold.held_since {
                Some(since) => budget.saturating_sub(now.saturating_duration_since(since)),
                None => budget,
            });
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
        state: state_from(h, st, polls),
        site: h.site(),
        age: since(tree, h.born),
        polls,
        task: task.map(|task| task.part_of.clone()),
        running,
        polled_for,
        service: h.is_service(),
        waits_on,
        queued_after,
        waits_for: None,
        waiters: waiting.len(),
        waited_for_by: waiting
            .into_iter()
            .flatten()
            .map(|id| WaitingJob { id, name: None })
            .collect(),
        deadline_in: deadline.map(|at| at.saturating_duration_since(now)),
        told_since: told_since(tree, st),
        cancelled_since: reason
            .as_ref()
            .map(|reason| now.saturating_duration_since(reason.data().at)),
        reason: reason.map(|reason| reason.to_string()),
        lane: h.lane(),
        priority: h.priority(),
        leases,
        shielded: by_shield || by_guard,
        budget_left,
        shielded_at: match by_shield {
            true => Some(h.site()),
            false => guarded_at.filter(|_| by_guard),
        },
        swallows_cancellation: h.swallows(),
    }
}

/// The state of a job now.
pub(crate) fn state_of(h: &Header) -> JobState {
    state_from(h, h.state.load(), h.polls.load(Relaxed))
}

fn state_from(h: &Header, st: state::Snapshot, polls: u32) -> JobState {
    if st.ended() {
        if st.has(state::ENDED_FAILED) {
            JobState::Failed
        } else if st.has(state::ENDED_CANCELLED) {
            JobState::Cancelled
        } else {
            JobState::Completed
        }
    } else if st.has(state::CANCELLED) {
        JobState::Cancelling
    } else if h.is_body_over(st) {
        JobState::Completing
    } else if h.was_spawned() && polls == 0 {
        JobState::New
    } else {
        JobState::Active
    }
}

impl ForcedDrop {
    /// Reads `h` inside its last turn, before the drop.
    pub(crate) fn look_at(tree: &Shared, h: &Header) -> ForcedDrop {
        ForcedDrop {
            job: one(tree, h),
            place: innermost_scope(h).map(|place| one(tree, &place)),
        }
    }
}
