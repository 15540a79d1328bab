//! What the call of a scope, timeout or shield returns. Decided here, once, when
//! the body and every child are over. The tables are in `docs/semantics.md`.

use crate::base::error::{Cancelled, Error, Result};
use crate::base::reason::ReasonKind;
use crate::base::unwind::discard;
use crate::engine::context;
use crate::engine::end;
use crate::engine::interrupts;
use crate::engine::names;
use crate::engine::on_its_way::OnItsWay;
use crate::engine::tree::Shared;
use crate::engine::walk;
use crate::points::point;
use crate::record::header::{Header, JobRef};
use crate::record::state;

/// How the body ended, for the verdict.
pub(crate) enum Got<T> {
    Value(T),
    /// It returned the cancellation that had reached it, or was dropped idle.
    Cancelled,
    /// It returned an interrupt of its task, which is put back if something else
    /// is the answer. In a box, since it is rare.
    Interrupted(Box<OnItsWay>),
    /// Its failure is recorded at the node.
    Failed,
}

/// What the caller of a scope, timeout or shield gets.
///
/// 1. A failure, the body's own or a child's, dominates. A child's failure
///    after the scope's own deadline had fired does not: it goes along with
///    TimedOut.
/// 2. The body returned its cancellation: an enclosing one wins and goes on as
///    Cancelled, and so does an interrupt, returned or not yet delivered; the
///    scope's own ends here, as TimedOut or Stopped. An interrupt that was
///    returned and is not the answer is put back.
/// 3. The body returned a value: it is kept, unless a child was cut short by
///    an enclosing cancellation or by the scope's own deadline.
///
/// # Safety
/// `h` is linked.
pub(crate) unsafe fn verdict<T>(tree: &Shared, h: &Header, got: Got<T>) -> Result<T> {
    let st = h.state.load();
    let own = st.has(state::ORIGIN);
    let own_reason = if own { h.reason() } else { None };
    let is_own = |kind| (own_reason.as_ref()).is_some_and(|reason| reason.kind() == kind);
    let deadline = is_own(ReasonKind::Deadline);
    // Every child is gone and the body is over: nothing is added any more.
    let failures = end::take_failures(h).unwrap_or_default();
    // Failures too late for TimedOut to give way to them, but not for Cancelled.
    let late_failures = deadline && !failures.dominates() && !failures.is_empty();
    // Whoever polls the scope is told, and only if it is cancelled itself: a
    // scope may be polled by another job than the one it belongs to.
    let poller = context::current();
    // SAFETY: linked.
    let at_home = match (&poller, unsafe { h.parent() }) {
        (Some(poller), Some(parent)) => std::ptr::eq(poller.as_ptr(), parent),
        _ => false,
    };
    let enclosing = poller.as_ref().filter(|poller| {
        poller.state.load().effective() && (!h.is_shield() || st.has(state::CANCELLED))
    });
    let told_above = |poller: &JobRef| {
        // SAFETY: the poller is being polled.
        Error::from(Cancelled::new(unsafe { point::reason_inside(poller) }))
    };
    // Asked only where the scope's own cancellation would be the answer. Not by
    // a branch that has lost: nobody hears its answer, so that an interrupt it
    // took would be lost.
    let hears = !h.was_spawned() && !is_own(ReasonKind::RaceLost);
    let interrupted = poller
        .as_ref()
        .filter(|poller| hears && poller.state.load().has(state::INTERRUPTED));
    let interrupt = || interrupted.and_then(|poller| interrupts::take(poller));
    let stopped = |reason| {
        // SAFETY: linked.
        Error::stopped(reason).at(unsafe { names::victim(h) }, None)
    };
    let timed_out = || {
        let reason = own_reason
            .clone()
            .unwrap_or_else(|| unreachable!("timed out without a reason: {st:?}"));
        let limit = h.if_cold(|cold, _| cold.limit).flatten();
        // SAFETY: linked.
        let victim = unsafe { names::victim(h) };
        Error::timed_out(limit, reason, tree.host.virtual_time()).at(victim, None)
    };
    let own_cut = deadline && (st.has(state::CUT_OWN) || late_failures);
    let returned = matches!(got, Got::Interrupted(_));
    let cut = matches!(got, Got::Cancelled) || returned || st.has(state::CUT_ABOVE) || own_cut;
    let late_dominates = late_failures
        && cut
        && (enclosing.is_some() || returned || interrupted.is_some_and(|p| interrupts::pending(p)));
    if !failures.is_empty() && (!late_failures || late_dominates) {
        discard(got);
        return Err(failures
            .decide()
            .unwrap_or_else(|| unreachable!("not empty")));
    }
    match got {
        Got::Value(value) => {
            let error = match enclosing {
                Some(poller) if cut => told_above(poller),
                None if st.has(state::CUT_ABOVE) && !at_home => match h.reason() {
                    Some(reason) => stopped(reason),
                    None => return Ok(value),
                },
                _ if own_cut => match interrupt() {
                    Some(told) => told.into(),
                    None => failures.beside(timed_out()),
                },
                _ => return Ok(value),
            };
            discard(value);
            Err(error)
        }
        Got::Failed => unreachable!("a failed body without a failure: {st:?}"),
        // Polled elsewhere, it is for that poller, which is another's: the poller
        // hears that it was stopped.
        Got::Interrupted(told) => Err(match enclosing {
            Some(poller) if at_home => told_above(poller),
            Some(poller) => {
                told.arrive();
                told_above(poller)
            }
            None if at_home => told.arrive().into(),
            None => stopped(told.arrive().reason().clone()),
        }),
        Got::Cancelled => Err(match (enclosing, own_reason.clone()) {
            (Some(poller), _) => told_above(poller),
            (None, Some(reason)) => match interrupt() {
                Some(told) => told.into(),
                None if deadline => failures.beside(timed_out()),
                None => stopped(reason),
            },
            (None, None) => {
                // The cancel comes from further up: a shield let it through
                // when its budget was spent, or the body brought it in.
                // SAFETY: linked.
                let told = unsafe {
                    match h.origin() {
                        Some(_) => h,
                        None => walk::first_cancelled_above(h).unwrap_or(h),
                    }
                };
                // SAFETY: an ancestor of what is being polled, or it.
                let reason = unsafe { point::reason_inside(told) };
                if at_home {
                    Error::from(Cancelled::new(reason))
                } else {
                    stopped(reason)
                }
            }
        }),
    }
}
