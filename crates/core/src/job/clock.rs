//! What time does to an inline scope: its deadline fires, a shield's budget is
//! spent. Looked at in the scope's own poll, and nowhere else.

use std::task::Waker;
use std::time::Instant;

use super::header::Header;
use super::state;
use super::waymark;
use crate::cancel::reason::ReasonKind;
use crate::cancel::walk::{self, Why};
use crate::time::alarm::{self, Alarm};
use crate::tree::Shared;

/// Fires what is due: the deadline, or a shield's budget. Says when to look
/// again.
pub(crate) fn check_clock(tree: &Shared, h: &Header) -> Option<Instant> {
    let (deadline, budget, held_since) = h
        .if_cold(|cold, _| (cold.deadline, cold.budget, cold.held_since))
        .unwrap_or_default();
    let st = h.state.load();
    if st.has(state::CANCELLED) {
        return None;
    }
    let mut next = None;
    if let Some(at) = deadline {
        let now = tree.host.now();
        if at <= now {
            fire_deadlines(h, now);
            return None;
        }
        next = Some(at);
    }
    if let Some(budget) = budget
        && st.has(state::HELD)
    {
        let now = tree.host.now();
        let since = held_since.unwrap_or_else(|| {
            let since = enclosing_hold(h).unwrap_or(now);
            h.with_cold(|cold, _| cold.held_since = Some(since));
            since
        });
        match since.checked_add(budget) {
            Some(at) if at <= now => {
                walk::lift(tree, h);
                return None;
            }
            Some(at) => next = Some(next.map_or(at, |next| at.min(next))),
            None => {}
        }
    }
    next
}

/// Since when an enclosing shield holds the cancel back: nested budgets count
/// once.
fn enclosing_hold(h: &Header) -> Option<Instant> {
    // SAFETY: inside a job that has not ended (H3).
    let mut at = unsafe { h.parent() };
    while let Some(job) = at {
        // Only a shield holds one back.
        // SAFETY: as above.
        let shield = unsafe { waymark::barrier(job) }?;
        if shield.state.load().has(state::HELD)
            && let Some(since) = shield.if_cold(|cold, _| cold.held_since).flatten()
        {
            return Some(since);
        }
        // SAFETY: as above.
        at = unsafe { shield.parent() };
    }
    None
}

/// The deadline of `h` has passed. Every enclosing one that is due fires with
/// it, outermost first, so that nested equal deadlines report at the outermost.
fn fire_deadlines(h: &Header, now: Instant) {
    let mut due = vec![h];
    let mut inner = h;
    while !inner.state.load().has(state::SHIELD) {
        // SAFETY: inside a job that has not ended (H3).
        let Some(job) = (unsafe { inner.parent() }) else {
            break;
        };
        let at = job.if_cold(|cold, _| cold.deadline).flatten();
        if at.is_some_and(|at| at <= now) {
            due.push(job);
        }
        inner = job;
    }
    for job in due.into_iter().rev() {
        // SAFETY: inside a job that has not ended (H3).
        if unsafe { will_be_marked(job) } {
            // By the deadline further out, here or on another thread.
            continue;
        }
        let mut why = Why::new(ReasonKind::Deadline, job.site());
        why.text = job.if_cold(|cold, _| cold.deadline_text.clone()).flatten();
        walk::cancel(job, why);
    }
}

/// True if a cancel that has taken effect above `h` is on its way to it.
///
/// # Safety
/// `h` is linked.
unsafe fn will_be_marked(h: &Header) -> bool {
    let mut at = h;
    loop {
        let st = at.state.load();
        if st.effective() {
            return true;
        }
        // Walks pass over services.
        if st.has(state::SHIELD | state::GUARD | state::SERVICE) {
            return false;
        }
        // SAFETY: linked (H3).
        match unsafe { at.parent() } {
            Some(parent) => at = parent,
            None => return false,
        }
    }
}

/// Sets the one timer of the scope to `at`, for this waker.
pub(crate) fn set_alarm(tree: &Shared, h: &Header, at: Option<Instant>, waker: &Waker) {
    let old = h.if_cold(|cold, _| match (&cold.alarm, at) {
        (Some(alarm), Some(at)) if alarm.serves(at, waker) => None,
        _ => Some(cold.alarm.take()),
    });
    let Some(Some(old)) = old else {
        return;
    };
    if let Some(old) = old {
        alarm::clear(tree, old.key());
    }
    if let Some(at) = at {
        let alarm = Alarm::set(tree, at, waker);
        h.with_cold(|cold, _| cold.alarm = Some(alarm));
    }
}

/// The scope needs no timer any more.
pub(crate) fn clear_alarm(tree: &Shared, h: &Header) {
    if let Some(alarm) = h.if_cold(|cold, _| cold.alarm.take()).flatten() {
        alarm::clear(tree, alarm.key());
    }
}
