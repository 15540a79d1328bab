//! Scopes that are left open: the body that opened a scope has ended, and the
//! future of the scope still lives somewhere else. It may never be polled
//! again, so the job around the scope cannot wait for it: the scope is
//! cancelled and given up at once, as if its future had been dropped. The
//! future learns of that when it is polled or dropped, and touches nothing but
//! its own cell.
//!
//! One step on the word of the scope decides which thread gives it up: the end
//! of the body around it ([`State::leave_behind`]), or the thread that polls or
//! drops the future elsewhere at that moment ([`State::come_back`]). Modelled
//! in `scope_left_open_vs_poll_elsewhere`.
//!
//! A poll inside the job that the scope belongs to takes no step: the body of
//! that job does this poll, so it has not ended.
//!
//! [`State::leave_behind`]: crate::record::state::State::leave_behind
//! [`State::come_back`]: crate::record::state::State::come_back

use crate::base::error::{Cancelled, Error, ErrorKind};
use crate::base::kind::JobKind;
use crate::base::reason::ReasonKind;
use crate::engine::context;
use crate::engine::deadline;
use crate::engine::end::{self, GivenUp};
use crate::engine::guard;
use crate::engine::hook;
use crate::engine::names;
use crate::engine::tree::{ForcedDrop, Shared};
use crate::engine::waker::{self, TakenWaker};
use crate::engine::walk::{self, Why};
use crate::record::header::{Header, JobRef};
use crate::record::state::{self, Remains};
use crate::record::works;

/// The caller holds the future of an open scope, to poll or to drop it.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScopeHold {
    /// Inside the job to which the scope belongs.
    AtHome,
    /// Elsewhere: marked AWAY until [`let_go`].
    Away,
}

/// The future of the scope `h` is about to be polled or dropped. None if the
/// scope has been left behind: it may have ended, and its tree may be gone.
#[inline]
pub(crate) fn hold(h: &Header) -> Option<ScopeHold> {
    // The parent pointer of a scope that is left behind may be dangling; it is compared
    // only, and the word is checked too. A hosted future belongs to its executor, wherever
    // that polls it, and the body around it may be over.
    let at_home = context::with(|cx| cx.current().is_some_and(|job| h.is_child_of(job)));
    if !at_home || h.is_hosted() {
        return h.state.go_away().then_some(ScopeHold::Away);
    }
    let left = h.state.load().has(state::BODY_DONE | state::AWAY);
    (!left).then_some(ScopeHold::AtHome)
}

/// The poll is over and the scope is not. False if the body around it has ended
/// meanwhile: then the caller drops the scope's body and [gives the scope
/// up](give_up).
#[inline]
pub(crate) fn let_go(h: &Header, held: ScopeHold) -> bool {
    held == ScopeHold::AtHome || h.state.come_back()
}

/// Releases a scope if the poll that [holds](hold) it unwinds: the body around it
/// may have ended, and no other code would ever give the scope up.
pub(crate) struct Unwinds<'a>(&'a Header, ScopeHold);

impl<'a> Unwinds<'a> {
    #[inline]
    pub(crate) fn new(scope: &'a Header, held: ScopeHold) -> Unwinds<'a> {
        Unwinds(scope, held)
    }

    /// The poll did not unwind, and handles the scope itself.
    #[inline]
    pub(crate) fn not(self) {
        std::mem::forget(self);
    }
}

impl Drop for Unwinds<'_> {
    #[cold]
    fn drop(&mut self) {
        let Unwinds(scope, held) = *self;
        if !let_go(scope, held) {
            give_up(scope, !scope.state.load().has(state::LEFT));
        }
    }
}

/// The body of `h` has ended; its share is not given up yet. The scopes that
/// the body has left open are given up.
#[inline]
pub(crate) fn close_all(h: &Header) {
    if h.has_opened_scopes() {
        close_below(h, false);
    }
}

/// The caller holds the future of `scope`, AWAY, and has dropped its body; the
/// body around it has ended.
#[cold]
pub(crate) fn give_up(scope: &Header, in_body: bool) {
    // SAFETY: not given up yet, so linked.
    if let Some(around) = unsafe { scope.parent() } {
        match scope.is_hosted() {
            true => note_forced(scope),
            false => report(around, scope),
        }
    }
    close_below(scope, true);
    abandon(scope, in_body, ReasonKind::ScopeEnded);
}

/// Shutdown drops every job by force, and `hosted` is a future that another executor owns:
/// it cannot be dropped from here, so it is given up. The future learns of that at its next
/// poll.
#[cold]
pub(crate) fn force_hosted(tree: &Shared, hosted: &Header) {
    // This step comes before the cancel, as in `close_below`.
    let left = hosted.state.leave_behind();
    guard::lapse(hosted);
    walk::cancel(hosted, Why::new(tree.why_forced(), hosted.site()));
    if let Some(before) = left {
        note_forced(hosted);
        close_below(hosted, true);
        abandon(hosted, !before.has(state::LEFT), ReasonKind::ScopeEnded);
    }
}

/// The future of `hosted` is cut off from its job.
fn note_forced(hosted: &Header) {
    // SAFETY: the caller is about to give it up: linked.
    let tree = unsafe { hosted.tree() };
    tree.note_forced(ForcedDrop::look_at(tree, hosted));
    hosted.state.was_dropped();
}

/// Gives up the scopes that are open below `h`, which lives until this returns;
/// its local tasks only if `local`: else the future that polls them still
/// exists. No recursion: such scopes can be nested to any depth.
#[cold]
fn close_below(h: &Header, local: bool) {
    let mut todo = Vec::new();
    list_open(h, local, &mut todo);
    while let Some(scope) = todo.pop() {
        // This step comes before the cancel, which wakes the poller of the
        // scope: that poll finds the scope left behind.
        let left = scope.state.leave_behind();
        walk::cancel(&scope, Why::new(ReasonKind::ScopeEnded, h.site()));
        let Some(before) = left else {
            continue;
        };
        if scope.is_child_of(h) {
            report(h, &scope);
        }
        // From here on the scope refuses local tasks, so the list is complete.
        guard::lapse(&scope);
        list_open(&scope, true, &mut todo);
        abandon(&scope, !before.has(state::LEFT), ReasonKind::ScopeEnded);
    }
}

/// Puts the scopes that are open below `h` on the list.
fn list_open(h: &Header, local: bool, into: &mut Vec<JobRef>) {
    let _locked = h.lock();
    // SAFETY: H1 and H2, under the lock.
    let mut next = unsafe { h.first.get().as_ref() };
    while let Some(child) = next {
        let inline = match child.kind() {
            // A hosted future is waited for, like a task.
            JobKind::Task | JobKind::Root | JobKind::Hosted => false,
            JobKind::LocalTask => local,
            _ => true,
        };
        if inline && !child.state.load().has(state::BODY_DONE) {
            into.push(JobRef::from_header(child));
        }
        // SAFETY: as above.
        next = unsafe { child.next.get().as_ref() };
    }
}

/// The error of a scope that ended with `error` in a poll elsewhere, if the scope was left
/// open in the middle of that poll: it must read as if the scope had been given up. For a
/// body that returned a value the verdict does this.
pub(crate) fn answer(scope: &Header, error: Error) -> Error {
    if error.kind() != ErrorKind::Stopped || !scope.state.load().has(state::ORIGIN) {
        return error;
    }
    // No other cancel of a scope has that reason.
    match scope.reason() {
        Some(reason) if reason.kind() == ReasonKind::ScopeEnded => Cancelled::new(reason).into(),
        _ => error,
    }
}

/// Reports the scope, once, to the failure hook.
fn report(around: &Header, scope: &Header) {
    let (opened, left) = (scope.site(), around.site());
    let text = format!(
        "the {} opened at {}:{} was still open when the body of the {} at {}:{} was over, and is \
         cancelled: its future is kept somewhere else",
        scope.kind(),
        opened.file(),
        opened.line(),
        around.kind(),
        left.file(),
        left.line(),
    );
    // SAFETY: the caller is about to give it up: linked.
    let (tree, victim) = unsafe { (scope.tree(), names::victim(scope)) };
    tree.report_failure(&Error::msg(text).at(victim, None));
}

/// The future was dropped before it completed, or is left behind: the scope
/// lives on as Cancelling until its children have ended, and the enclosing job
/// waits for that. Nothing is left open below it. The caller [holds](hold) it.
pub(crate) fn abandon(h: &Header, in_body: bool, kind: ReasonKind) {
    // SAFETY: its poller has not ended it, so it is linked.
    let tree = unsafe { h.tree() };
    guard::lapse(h);
    deadline::disarm(tree, h);
    walk::cancel(h, Why::new(kind, h.site()));
    if h.kind() == JobKind::Shield {
        // SAFETY: linked.
        unsafe { hook::move_to_parent(h) };
    }
    let mut let_go = None;
    let (last, poller, stops) = {
        let mut locked = h.lock();
        let stops = works::take_stops(&mut locked);
        // Under the lock under which the count falls: either this thread or the
        // last child's ender ends the scope, never both. Modelled in
        // `last_child_vs_scope_drop`.
        let _before = h.state.body_over(Remains::Nothing);
        let last = match in_body {
            true => end::give_up(&mut locked, GivenUp::Counted),
            false => end::given_up_before(&mut locked),
        };
        // SAFETY: a scope.
        let kept = unsafe { waker::take_poller(&locked) };
        let poller = match kind {
            // Its future lives: a poll of it elsewhere learns that it was left
            // behind. An earlier cancel may have used up the waker of this one.
            // SAFETY: linked, and its ender cannot pass the lock held here.
            ReasonKind::ScopeEnded => unsafe { TakenWaker::new(kept) },
            _ => {
                let_go = kept;
                TakenWaker::default()
            }
        };
        (last, poller, stops)
    };
    waker::let_go(let_go);
    if let Some(last) = last {
        last.settle();
    }
    poller.wake();
    stops.call();
}
