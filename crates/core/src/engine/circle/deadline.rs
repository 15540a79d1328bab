//! Deadlines of inline scopes, and budgets of shields. Three places read the
//! clock, and the first that finds one due fires it: the scope's own poll, the
//! points inside it that are polled in the same task (they have
//! [`DEADLINE`](state::DEADLINE)), and its timer, on whichever thread keeps time.
//! See "Deadlines" in `CANCELLING.md`.

use std::iter::successors;
use std::time::Instant;

use crate::base::reason::ReasonKind;
use crate::engine::alarm;
use crate::engine::children::children;
use crate::engine::pin;
use crate::engine::tree::Shared;
use crate::engine::waker;
use crate::engine::walk::{self, Why};
use crate::engine::waymark;
use crate::record::alarm::Alarm;
use crate::record::cold::Cold;
use crate::record::header::{Header, JobRef, LockedJob};
use crate::record::state::{self, Snapshot};

/// When the deadline passes, and when the budget is spent.
#[derive(Clone, Copy, Default)]
struct Due {
    deadline: Option<Instant>,
    budget: Option<Instant>,
}

impl Due {
    fn of(cold: &Cold, st: Snapshot) -> Due {
        if st.has(state::CANCELLED | state::ENDED) {
            return Due::default();
        }
        let budget = match (cold.budget, cold.held_since) {
            (Some(budget), Some(since)) if st.has(state::CANCEL_DEFERRED) => {
                since.checked_add(budget)
            }
            _ => None,
        };
        Due {
            deadline: cold.deadline,
            budget,
        }
    }

    fn first(self) -> Option<Instant> {
        match (self.deadline, self.budget) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }
}

fn has_passed(at: Option<Instant>, now: Instant) -> bool {
    at.is_some_and(|at| at <= now)
}

/// A shield with a budget holds a cancel back, and the start of that is not
/// stored yet.
fn is_new_hold(cold: &Cold, st: Snapshot) -> bool {
    cold.budget.is_some()
        && cold.held_since.is_none()
        && st.has(state::CANCEL_DEFERRED)
        && !st.has(state::CANCELLED | state::ENDED)
}

// ------------------------------------------------------------- three look

/// The poll of `h` fires what is due at `h`.
pub(crate) fn check(tree: &Shared, h: &Header) {
    let mut now = None;
    // SAFETY: being polled, so linked.
    unsafe { look_at(tree, h, &mut now) };
}

/// A point inside `h`, which is being polled, fires what is due at `h` and at
/// the scopes around it in the same task. The clock is read once, and not at
/// all if no deadline is left.
#[cold]
pub(crate) fn look(h: &Header) {
    let mut now = None;
    // A deadline that fires outside a shield begins the shield's hold, and a
    // budget of zero is then spent at once.
    if look_up(h, &mut now) {
        look_up(h, &mut now);
    }
}

/// True if a deadline or a budget was due.
fn look_up(h: &Header, now: &mut Option<Instant>) -> bool {
    // SAFETY: being polled, so not ended.
    let tree = unsafe { h.tree() };
    let mut fired = false;
    let mut at = Some(h);
    while let Some(job) = at
        && job.state.load().has(state::DEADLINE)
    {
        // SAFETY: inside a job that has not ended (H3).
        let seen = unsafe { look_at(tree, job, now) };
        fired |= seen.fired;
        if seen.hides_others {
            break;
        }
        // SAFETY: as above.
        at = unsafe { job.parent() };
    }
    fired
}

/// The result of a look at one scope.
#[derive(Clone, Copy, Default)]
struct Seen {
    /// A deadline or a budget was due.
    fired: bool,
    /// The scope is a shield without a budget: cancels from further out are not
    /// told inside.
    hides_others: bool,
}

/// # Safety
/// `h` is linked.
unsafe fn look_at(tree: &Shared, h: &Header, now: &mut Option<Instant>) -> Seen {
    let seen = h.if_cold(|cold, st| {
        let hides_others = h.is_shield() && cold.budget.is_none();
        let first = Due::of(cold, st).first();
        (first, is_new_hold(cold, st), hides_others)
    });
    let Some((first, new_hold, hides_others)) = seen else {
        return Seen::default();
    };
    let mut fired = false;
    if first.is_some() || new_hold {
        let now = *now.get_or_insert_with(|| tree.host.now());
        if new_hold {
            // SAFETY: linked, by the caller's promise.
            note_hold(h, unsafe { enclosing_hold(h) }.unwrap_or(now));
        }
        if new_hold || has_passed(first, now) {
            fired = fire_own(tree, h, now);
        }
    }
    Seen {
        fired,
        hides_others,
    }
}

/// The timer of `h` has fired, on any thread. It may be late: then its deadline
/// was moved, or has fired already, or the scope has ended.
pub(crate) fn timer_rang(h: &Header) {
    if let Some(tree) = pin::tree_of(h) {
        fire_own(&tree, h, tree.host.now());
        arm(&tree, h);
    }
}

/// The deadline of scope `h` is read, on any thread: fires it if it is due.
pub(crate) fn fire_if_due(h: &Header) {
    if let Some(tree) = pin::tree_of(h) {
        fire_own(&tree, h, tree.host.now());
    }
}

/// Fires the deadline or lifts the shield, if it is due; true if it was.
fn fire_own(tree: &Shared, h: &Header, now: Instant) -> bool {
    let due = h.if_cold(|cold, st| Due::of(cold, st)).unwrap_or_default();
    if has_passed(due.deadline, now) {
        fire_deadlines(h, now);
    } else if has_passed(due.budget, now) {
        walk::lift(tree, h);
    } else {
        return false;
    }
    true
}

/// The deadline of `h` has passed. Every enclosing deadline that is due fires
/// with it, outermost first, so that nested equal deadlines report at the
/// outermost. This also holds if two threads do this: both begin there, and
/// neither goes on before that scope is marked. Modelled in
/// `nested_deadlines_on_two_threads`.
fn fire_deadlines(h: &Header, now: Instant) {
    let mut due = vec![JobRef::from_header(h)];
    let mut inner = JobRef::from_header(h);
    while !inner.is_shield() {
        let Some(job) = inner.parent_from_outside() else {
            break;
        };
        let at = job.if_cold(|cold, _| cold.deadline).flatten();
        if has_passed(at, now) {
            due.push(job.clone());
        }
        inner = job;
    }
    for job in due.into_iter().rev() {
        if will_be_marked(&job) {
            // By an outer deadline, on this thread or another.
            continue;
        }
        let mut why = Why::new(ReasonKind::Deadline, job.site());
        why.text = job.if_cold(|cold, _| cold.deadline_text.clone()).flatten();
        why.due = Some(now);
        walk::cancel(&job, why);
    }
}

/// True if a cancel that has taken effect above `h` will reach it.
fn will_be_marked(h: &Header) -> bool {
    let mut at = JobRef::from_header(h);
    loop {
        let st = at.state.load();
        if st.effective() {
            return true;
        }
        // Walks pass by services.
        if at.is_barrier() || st.has(state::GUARD) {
            return false;
        }
        match at.parent_from_outside() {
            Some(parent) => at = parent,
            None => return false,
        }
    }
}

// ------------------------------------------------------------ shields' budgets

/// A walk has reached the shield `h`, which holds the cancel back: its budget
/// counts from now on. The timer is set again: an earlier one may have fired
/// without effect while an enclosing shield held the cancel back.
#[cold]
pub(crate) fn begin_hold(tree: &Shared, h: &Header) {
    let Some(Some(stale)) = h.if_cold(|cold, _| cold.budget.map(|_| cold.alarm.take())) else {
        return;
    };
    if let Some(stale) = stale {
        alarm::clear(tree, stale.key());
    }
    note_hold(h, hold_above(h).unwrap_or_else(|| tree.host.now()));
    arm(tree, h);
}

fn note_hold(h: &Header, since: Instant) {
    h.with_cold(|cold, _| _ = cold.held_since.get_or_insert(since));
}

fn held_since(shield: &Header) -> Option<Instant> {
    let held = shield.state.load().has(state::CANCEL_DEFERRED);
    held.then(|| shield.if_cold(|cold, _| cold.held_since).flatten())?
}

/// Since when an enclosing shield holds the cancel back: with nested shields,
/// all budgets count from the same time.
///
/// # Safety
/// `h` is linked.
unsafe fn enclosing_hold(h: &Header) -> Option<Instant> {
    // SAFETY: ancestors of a linked job are linked (H3).
    let mut at = unsafe { h.parent() };
    while let Some(job) = at {
        // Only a shield holds a cancel back.
        // SAFETY: as above.
        let shield = unsafe { waymark::barrier(job) }?;
        if let Some(since) = held_since(shield) {
            return Some(since);
        }
        // SAFETY: as above.
        at = unsafe { shield.parent() };
    }
    None
}

/// The same for a walker, which is outside the job.
fn hold_above(h: &Header) -> Option<Instant> {
    successors(h.parent_from_outside(), |job| job.parent_from_outside())
        .find_map(|job| held_since(&job))
}

// ------------------------------------------------------------------ the timer

/// Under the lock of `h`: true if it has a deadline or a budget that counts, and
/// no timer.
pub(crate) fn is_unarmed(h: &mut LockedJob<'_>, st: Snapshot) -> bool {
    h.cold()
        .is_some_and(|cold| cold.alarm.is_none() && Due::of(cold, st).first().is_some())
}

/// A child was attached to `h`, which has no timer yet. Before, the points of
/// `h` itself were enough.
#[cold]
pub(crate) fn first_child(h: &Header) {
    if let Some(tree) = pin::tree_of(h) {
        arm(&tree, h);
    }
}

/// The deadline of `h` was moved to `at`, or removed.
pub(crate) fn rescheduled(h: &Header, at: Option<Instant>) {
    if at.is_some() {
        spread(h);
    }
    if let Some(tree) = pin::tree_of(h) {
        arm(&tree, h);
        if has_passed(at, tree.host.now()) {
            // The poll of the scope fires the deadline, if the host keeps no
            // time meanwhile.
            walk::wake_poller(h);
        }
    }
}

/// Points in `h`, and in the scopes inside it that are polled with it, read the
/// clock from now on. A scope that is attached after the bit is set inherits it;
/// one attached before is listed.
fn spread(h: &Header) {
    if h.state.watch_clock() {
        return;
    }
    let mut todo = vec![JobRef::from_header(h)];
    while let Some(job) = todo.pop() {
        children(&job, &mut |child| {
            // A scope with the bit has a deadline of its own, so the scopes
            // inside it have the bit.
            let spared = state::ENDED | state::DEADLINE;
            if !child.is_task() && !child.is_shield() && !child.state.load().has(spared) {
                child.state.watch_clock();
                todo.push(child);
            }
        });
    }
}

/// Sets the one timer of the scope for the earliest of its times. From any
/// thread: the host is called outside the lock, and of two threads the second
/// sets the newer time. Modelled in `timer_vs_reschedule`.
pub(crate) fn arm(tree: &Shared, h: &Header) {
    loop {
        let seen = h.if_cold(|cold, st| {
            let alarm = cold.alarm.as_ref().map(Alarm::key);
            (Due::of(cold, st).first(), alarm)
        });
        let Some((wanted, set)) = seen else {
            return;
        };
        if wanted == set.map(|key| key.at) {
            return;
        }
        let mut new = wanted.map(|at| alarm::set(tree, at, &waker::alarm(h)));
        h.if_cold(|cold, st| {
            // If it has ended, its ender may have cleared the timer already.
            if !st.ended() && cold.alarm.as_ref().map(Alarm::key) == set {
                std::mem::swap(&mut cold.alarm, &mut new);
            }
        });
        if let Some(stale) = new {
            alarm::clear(tree, stale.key());
        }
    }
}

/// Clears the timer of the scope. Its ender calls this last, after ENDED is set:
/// then no thread sets another.
pub(crate) fn disarm(tree: &Shared, h: &Header) {
    if let Some(alarm) = h.if_cold(|cold, _| cold.alarm.take()).flatten() {
        alarm::clear(tree, alarm.key());
    }
}
