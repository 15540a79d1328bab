//! The verdict: what the call of a scope, timeout or shield returns. It is
//! decided here, once, when the body and every child are over. The tables are in
//! `docs/semantics.md`.

use crate::base::error::{Cancelled, Error, Result};
use crate::base::reason::{Reason, ReasonKind};
use crate::base::unwind::discard;
use crate::engine::context;
use crate::engine::end;
use crate::engine::interrupts;
use crate::engine::names;
use crate::engine::on_its_way::OnItsWay;
use crate::engine::tree::Shared;
use crate::engine::walk;
use crate::points::point;
use crate::record::failures::Failures;
use crate::record::header::{Header, JobRef};
use crate::record::state;

/// How the body ended, for the verdict.
pub(crate) enum Got<T> {
    Value(T),
    /// It returned the cancellation that had reached the job, or was dropped
    /// idle.
    Cancelled,
    /// It returned an interrupt of its task, which is put back if the call
    /// returns something else. In a box, since this is rare.
    Interrupted(Box<OnItsWay>),
    /// Its failure is recorded in the scope's job.
    Failed,
}

impl<T> Got<T> {
    fn body(&self) -> Body {
        match self {
            Got::Value(_) => Body::Value,
            Got::Cancelled => Body::Cancelled,
            Got::Interrupted(_) => Body::Interrupted,
            Got::Failed => Body::Failed,
        }
    }
}

/// [`Got`] without its contents: the row of the table.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Body {
    Value,
    Cancelled,
    Interrupted,
    Failed,
}

/// What has failed in the scope, the body included.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Failed {
    Nothing,
    /// A failure that takes precedence over TimedOut.
    First,
    /// Failures of children after the scope's own deadline had fired. TimedOut takes
    /// precedence over them, but no other cancellation does.
    Late,
}

/// The facts on which the answer depends, read once: the columns of the table.
struct VerdictFacts {
    failed: Failed,
    /// The job that polls the scope; none outside every job.
    poller: Option<JobRef>,
    /// The poller is the job that the scope belongs to.
    at_home: bool,
    /// The poller is cancelled, and no shield keeps that cancel from the scope.
    enclosing: bool,
    /// An interrupt may be pending for the poller, and then replaces the scope's own
    /// cancellation.
    interrupted: bool,
    /// Why the scope is cancelled, if the cancel entered there.
    own: Option<Reason>,
    /// That reason is the scope's own deadline.
    deadline: bool,
    /// The scope was left open by the body around it.
    left_open: bool,
    /// A child was cut short by a cancellation from above.
    cut_above: bool,
    /// A child was cut short by the scope's own deadline, or failed after it.
    cut_own: bool,
}

impl VerdictFacts {
    fn of(h: &Header, failures: &Failures) -> VerdictFacts {
        let st = h.state.load();
        let own = st.has(state::ORIGIN).then(|| h.reason()).flatten();
        let kind = own.as_ref().map(Reason::kind);
        let deadline = kind == Some(ReasonKind::Deadline);
        let failed = match (failures.is_empty(), failures.dominates()) {
            (true, _) => Failed::Nothing,
            (_, false) if deadline => Failed::Late,
            _ => Failed::First,
        };
        // Only the job that polls the scope is told here, and only if it is cancelled
        // itself: it may be another job than the one to which the scope belongs.
        let poller = context::current();
        let at_home = poller.as_ref().is_some_and(|poller| h.is_child_of(poller));
        let polled = poller.as_ref().map(|poller| poller.state.load());
        // A branch that has lost takes no interrupt: its answer reaches no call, and the
        // interrupt would be lost.
        let hears = !h.was_spawned() && kind != Some(ReasonKind::RaceLost);
        VerdictFacts {
            failed,
            at_home,
            enclosing: polled.is_some_and(state::Snapshot::effective)
                && (!h.is_shield() || st.has(state::CANCELLED)),
            interrupted: hears && polled.is_some_and(|st| st.has(state::INTERRUPTED)),
            poller,
            own,
            deadline,
            // No other cancel of a scope has that reason.
            left_open: kind == Some(ReasonKind::ScopeEnded),
            cut_above: st.has(state::CUT_ABOVE),
            cut_own: deadline && (st.has(state::CUT_OWN) || failed == Failed::Late),
        }
    }

    /// True if the call would return something else than the scope's own
    /// cancellation.
    fn is_told_otherwise(&self, body: Body) -> bool {
        let pending = || self.poller.as_deref().is_some_and(interrupts::pending);
        self.enclosing || body == Body::Interrupted || self.interrupted && pending()
    }
}

/// What the caller gets.
enum ScopeAnswer {
    /// The value of the body.
    Value,
    /// What has failed.
    Failed,
    /// The cancellation of the poller.
    Above,
    /// The interrupt that the body has returned.
    Interrupt,
    /// The scope's own cancellation: a pending interrupt, or TimedOut, or Stopped.
    Own,
    /// The cancellation of a scope that was left open: as if the scope had been given up
    /// before this poll.
    LeftOpen,
    /// Stopped, by a cancellation from above that has not reached the poller.
    StoppedFromAbove,
    /// A cancellation from further up than the poller: a shield let it through when its
    /// budget was spent, or the body returned one from there.
    FurtherUp,
}

/// The table.
fn decide(body: Body, facts: &VerdictFacts) -> ScopeAnswer {
    let returned = matches!(body, Body::Cancelled | Body::Interrupted);
    let cut = returned || facts.cut_above || facts.cut_own;
    match body {
        _ if facts.failed == Failed::First => ScopeAnswer::Failed,
        _ if facts.failed == Failed::Late && cut && facts.is_told_otherwise(body) => {
            ScopeAnswer::Failed
        }
        Body::Value if !cut && facts.left_open => ScopeAnswer::LeftOpen,
        Body::Value if !cut => ScopeAnswer::Value,
        Body::Value | Body::Cancelled | Body::Interrupted if facts.enclosing => ScopeAnswer::Above,
        Body::Value if facts.cut_above && !facts.at_home => ScopeAnswer::StoppedFromAbove,
        Body::Value if facts.cut_own => ScopeAnswer::Own,
        Body::Value if facts.left_open => ScopeAnswer::LeftOpen,
        Body::Value => ScopeAnswer::Value,
        Body::Interrupted => ScopeAnswer::Interrupt,
        Body::Cancelled if facts.own.is_some() => ScopeAnswer::Own,
        Body::Cancelled => ScopeAnswer::FurtherUp,
        Body::Failed => unreachable!("a failed body without a failure"),
    }
}

/// What the caller of a scope, timeout or shield gets.
///
/// 1. A failure, the body's own or a child's, dominates. A child's failure
///    after the scope's own deadline had fired does not: it is kept beside
///    TimedOut.
/// 2. The body returned its cancellation. An enclosing cancellation wins and is
///    returned as Cancelled, and so is an interrupt, returned or not yet
///    delivered; the scope's own ends here, as TimedOut or Stopped. An
///    interrupt that was returned and is not the answer is put back.
/// 3. The body returned a value: it is kept, unless a child was cut short by
///    an enclosing cancellation or by the scope's own deadline, or the scope was left
///    open in the middle of this poll.
///
/// # Safety
/// `h` is linked.
pub(crate) unsafe fn verdict<T>(tree: &Shared, h: &Header, got: Got<T>) -> Result<T> {
    // Every child has ended and the body is over: no failure is added any more.
    let failures = end::take_failures(h).unwrap_or_default();
    let rare = state::ORIGIN | state::CUT_ABOVE;
    if matches!(got, Got::Value(_)) && failures.is_empty() && !h.state.load().has(rare) {
        // The usual case: no child was cut short, so the other facts do not
        // matter.
        return value(got);
    }
    let facts = VerdictFacts::of(h, &failures);
    let stopped = |reason| {
        // SAFETY: linked.
        Error::stopped(reason).at(unsafe { names::victim(h) }, None)
    };
    let error = match decide(got.body(), &facts) {
        ScopeAnswer::Failed => failures
            .decide()
            .unwrap_or_else(|| unreachable!("not empty")),
        ScopeAnswer::Above => {
            let poller = facts.poller.as_ref();
            let poller = poller.unwrap_or_else(|| unreachable!("nothing encloses it"));
            // SAFETY: the poller is being polled.
            let told = Error::from(Cancelled::new(unsafe { point::reason_inside(poller) }));
            if let Got::Interrupted(_) = got
                && !facts.at_home
            {
                // Polled elsewhere, the interrupt is not the poller's own.
                drop(arrived(got));
                return Err(told);
            }
            told
        }
        ScopeAnswer::Interrupt => {
            let told = arrived(got);
            // For a poller elsewhere it is no interrupt of its own: the call says that the
            // scope was stopped.
            return Err(match facts.at_home {
                true => told.into(),
                false => stopped(told.reason().clone()),
            });
        }
        ScopeAnswer::Own => match (take_interrupt(&facts), facts.own) {
            (Some(told), _) => told.into(),
            (None, Some(reason)) if facts.deadline => {
                // SAFETY: linked.
                failures.beside(unsafe { timed_out(tree, h, reason) })
            }
            (None, Some(reason)) => stopped(reason),
            (None, None) => unreachable!("its own, and not cancelled here"),
        },
        ScopeAnswer::LeftOpen => match facts.own {
            Some(reason) => Cancelled::new(reason).into(),
            None => unreachable!("left open without a reason"),
        },
        ScopeAnswer::StoppedFromAbove => match h.reason() {
            Some(reason) => stopped(reason),
            None => return value(got),
        },
        ScopeAnswer::FurtherUp => {
            // SAFETY: linked.
            let reason = unsafe { reason_further_up(h) };
            match facts.at_home {
                true => Cancelled::new(reason).into(),
                false => stopped(reason),
            }
        }
        ScopeAnswer::Value => return value(got),
    };
    discard(got);
    Err(error)
}

fn value<T>(got: Got<T>) -> Result<T> {
    match got {
        Got::Value(value) => Ok(value),
        _ => unreachable!("a value is the answer, and there is none"),
    }
}

/// The interrupt that the body has returned, and which the call returns or replaces.
fn arrived<T>(got: Got<T>) -> Cancelled {
    match got {
        Got::Interrupted(told) => told.arrive(),
        _ => unreachable!("the body has returned none"),
    }
}

fn take_interrupt(facts: &VerdictFacts) -> Option<Cancelled> {
    let poller = facts.poller.as_ref().filter(|_| facts.interrupted)?;
    interrupts::take(poller)
}

/// # Safety
/// `h` is linked.
unsafe fn timed_out(tree: &Shared, h: &Header, reason: Reason) -> Error {
    let limit = h.if_cold(|cold, _| cold.limit).flatten();
    // SAFETY: passed on.
    let victim = unsafe { names::victim(h) };
    Error::timed_out(limit, reason, tree.host.virtual_time()).at(victim, None)
}

/// # Safety
/// `h` is linked.
unsafe fn reason_further_up(h: &Header) -> Reason {
    // SAFETY: linked; it is being polled, or an ancestor of that job is.
    unsafe {
        let told = match h.origin() {
            Some(_) => h,
            None => walk::first_cancelled_above(h).unwrap_or(h),
        };
        point::reason_inside(told)
    }
}
