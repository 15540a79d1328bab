//! How a job ends: the body ends, the last child ends, the outcome is decided
//! once, the job leaves the tree, and then its parent may end. A chain of any
//! length is a loop, never a recursion.
//!
//! The race of the last child with the body is decided by one integer under the job's
//! lock, in which the body is counted: `last_child_vs_body_end`. [`give_up`] gives up
//! every share, and its answer, [`Last`], says what the caller must do next.

use std::task::Waker;

use crate::base::error::{Cancelled, Error};
use crate::base::kind::JobKind;
use crate::base::observe::{Count, EventKind, JobState};
use crate::base::reason::{Reason, ReasonKind};
use crate::base::unwind::wake;
use crate::engine::alarm;
use crate::engine::context;
use crate::engine::deadline;
use crate::engine::interrupts;
use crate::engine::left_open;
use crate::engine::names;
use crate::engine::tree::Shared;
use crate::engine::turn;
use crate::engine::waker::{self, TakenWaker};
use crate::engine::walk::{self, Why};
use crate::record::cell;
use crate::record::cold;
use crate::record::failures::{Failure, Failures};
use crate::record::header::{Header, JobRef, LockedJob, NO_SHARES};
use crate::record::state::{self, CutBy, Remains};
use crate::record::works;

/// How a body ended that returned no value.
pub(crate) enum BodyEnd {
    /// With an error, or a panic.
    Failed(Error),
    /// It was never polled.
    Unpolled,
    /// Its future was dropped after a poll and before it completed.
    Forced,
}

/// What a job loses in [`give_up`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GivenUp {
    /// A share that holds the job open: the body's, a child's, a lease's, a
    /// blocking call's.
    Counted,
    /// The place of a service, or of a task that was not started.
    Loose,
}

/// What still holds a job open after a share was given up.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Left {
    /// Other shares are left.
    Open,
    /// Only services and unstarted tasks are left: cancel them.
    Loose,
    /// Nothing is left: end the job.
    Nothing,
}

/// What the thread that gave a share up must do, outside the lock.
#[must_use]
pub(crate) enum Last {
    /// Wake the scope's poller, which ends the scope.
    Wake(TakenWaker),
    /// Cancel the services and unstarted tasks.
    Stop(JobRef),
    /// End the job: the thread with this answer is its ender.
    End(*const Header),
}

impl Last {
    /// Does it. The job, and each ancestor for which it was the last, ends in
    /// this call.
    pub(crate) fn settle(self) {
        if let Some(job) = self.settle_below() {
            // SAFETY: this thread is its ender, so it is linked. Noticed by
            // `last_child_vs_body_end`.
            end_chain(unsafe { &*job });
        }
    }

    /// Does it. The job ends in a turn made for it, not in this call.
    pub(crate) fn settle_later(self) {
        if let Some(job) = self.settle_below() {
            // SAFETY: this thread is its ender. Noticed by
            // `lease_drop_vs_body_end`.
            unsafe { end_later(&*job) };
        }
    }

    /// Does it, except for the end of a job: if the answer has a job, the caller ends
    /// it.
    #[inline]
    fn settle_below(self) -> Option<*const Header> {
        match self {
            Last::Wake(poller) => poller.wake(),
            Last::Stop(job) => stop_loose(&job),
            Last::End(job) => return Some(job),
        }
        None
    }
}

/// What an error that a body returned says about its job.
pub(crate) enum Reached {
    /// It is no cancellation, or the cancellation of another job: the job has
    /// failed.
    No,
    /// It is the cancellation that marked the job.
    Mark,
    /// It is an interrupt of the task.
    Interrupt(Cancelled),
}

/// Whether `error` is the cancellation that reached `h`: its origin is the
/// job's own, or one further up the chain of origins; or it is an interrupt of
/// the task. A task, local or not, that the cancellation reached is marked.
///
/// # Safety
/// The caller is inside `h`, or its ender before unlinking.
pub(crate) unsafe fn reached(h: &Header, error: &Error) -> Reached {
    let Some(told) = error.cancelled() else {
        return Reached::No;
    };
    if interrupts::is_of_task(h, told) {
        return Reached::Interrupt(told.clone());
    }
    let wanted = told.origin();
    // SAFETY: linked by the caller's promise; origins are ancestors (H3).
    let mut at = unsafe { marked_in_body(h).and_then(|marked| marked.origin()) };
    while let Some(origin) = at {
        if origin.id == wanted {
            return Reached::Mark;
        }
        // SAFETY: as above.
        at = unsafe { origin.parent().and_then(|parent| parent.origin()) };
    }
    Reached::No
}

/// The job whose mark explains a cancellation that the body of `h` returns:
/// `h`, or, if `h` is an unmarked scope, the nearest cancelled job among those
/// polled in the same body. A shield is not marked, and neither are the scopes
/// inside it; but their code is part of a body that may have been told. A
/// spawned job has a body of its own: no cancel has reached it that has not
/// marked it.
///
/// # Safety
/// `h` is linked.
unsafe fn marked_in_body(h: &Header) -> Option<&Header> {
    if h.state.load().has(state::CANCELLED) {
        return Some(h);
    }
    let mut at = h;
    while !at.was_spawned() {
        // SAFETY: ancestors of a linked job are linked (H3).
        at = unsafe { at.parent() }?;
        if at.state.load().effective() {
            return Some(at);
        }
    }
    None
}

/// The body of a task ended without a value, and its future is dropped.
pub(crate) fn body_over(h: &Header, how: BodyEnd) {
    let remains = match how {
        BodyEnd::Unpolled => Remains::Nothing,
        BodyEnd::Forced => Remains::HalfWay,
        BodyEnd::Failed(error) => {
            if !is_cancelled_by(h, &error) {
                record_own(h, &error);
                fail_children(h);
                let _before = h.state.body_over(Remains::Nothing);
                return body_gone_guarded(h);
            }
            Remains::Nothing
        }
    };
    // Without the mark it would end completed, and its handle would take a
    // value that does not exist (C2).
    let st = h.state.load();
    assert!(
        st.has(state::CANCELLED),
        "job {} is over without a value, and is not cancelled: {st:?}",
        h.id
    );
    body_returned(h, remains);
}

/// The body of a task ended without a failure, and its future is dropped;
/// `remains` says what is left of the body.
pub(crate) fn body_returned(h: &Header, remains: Remains) {
    let st = h.state.load();
    if st.is_alone() {
        // One load of the word shows both alone and cancelled: a job that
        // attaches later is refused, so no child inherits the origin any more.
        // A mark that comes after this load is not kept here, and then
        // `end_alone` refuses.
        // SAFETY: still linked.
        let kept = st.has(state::CANCELLED) && unsafe { h.keep_reason_of_mark(st) };
        if let Some(st) = h.state.end_alone(remains, kept) {
            // Nothing has failed: no child, and not the body.
            // SAFETY: this thread ended it, and it is still linked. Noticed by
            // `body_end_vs_attach_then_cancel_from_above`.
            if let Some(next) = unsafe { ended(h, st) } {
                // SAFETY: it was the last of its parent. Noticed by
                // `last_child_vs_body_end`.
                end_chain(unsafe { &*next });
            }
            return;
        }
    }
    body_left_others(h, remains);
}

/// The same for a job that has had children, hooks, guards or interrupts.
#[inline(never)]
fn body_left_others(h: &Header, remains: Remains) {
    // An interrupt after this step is refused.
    let st = h.state.body_over(remains);
    assert!(!st.ended(), "job {} ended twice: {st:?}", h.id);
    if st.has(state::INTERRUPTED) {
        interrupts::undelivered(h);
    }
    body_gone_guarded(h);
}

/// True if the error that a task's body returned means that the task is
/// cancelled. A task whose body returned an interrupt is marked here.
#[cold]
fn is_cancelled_by(h: &Header, error: &Error) -> bool {
    // SAFETY: its body is just over, so it is linked.
    match unsafe { reached(h, error) } {
        Reached::No => return false,
        Reached::Mark => {}
        Reached::Interrupt(told) => interrupts::leaves_body(h, &told),
    }
    true
}

fn body_gone_guarded(h: &Header) {
    crate::engine::guard::lapse(h);
    left_open::close_all(h);
    body_gone(h);
}

/// The body of `h` failed: its children are cancelled, and it takes no more
/// children.
pub(crate) fn fail_children(h: &Header) {
    // A child that attaches before this step shows in the word; one that
    // attaches after it is refused.
    if h.state.close().has(state::HAS_SHARES) {
        let mut why = Why::new(ReasonKind::BodyFailed, h.site());
        why.culprit = Some((h.id, names::name_of(h)));
        walk::cancel(h, why);
    }
}

/// Records the body's own failure, which is not a cancellation.
pub(crate) fn record_own(h: &Header, error: &Error) {
    let error = if error.is_cancelled() {
        error.as_failure()
    } else {
        error.clone()
    };
    let error = if error.has_victim() {
        error
    } else {
        // A shield, and a job spawned in it, is not marked: the cancel is
        // further up.
        let during = h.reason().or_else(|| {
            // SAFETY: the body is ending, so the job is linked.
            unsafe { walk::first_cancelled_above(h) }.and_then(Header::reason)
        });
        // SAFETY: as above.
        error.at(unsafe { names::victim(h) }, during)
    };
    let failure = Failure::new(error);
    drop(h.with_cold(|cold, _| cold.failures.record(failure, false)));
}

/// Gives up the body's share of the count. May end the job and ancestors.
pub(crate) fn body_gone(h: &Header) {
    let (last, stops) = {
        let mut locked = h.lock();
        let stops = works::take_stops(&mut locked);
        (give_up(&mut locked, GivenUp::Counted), stops)
    };
    if let Some(last) = last {
        last.settle();
    }
    stops.call();
}

/// Gives one share of a job up, under its lock. No other function does that. None if other
/// shares hold the job open.
#[inline]
pub(crate) fn give_up(locked: &mut LockedJob<'_>, share: GivenUp) -> Option<Last> {
    match release(locked, share) {
        Left::Open => None,
        left => Some(last_of(locked, left)),
    }
}

/// Gives the share of the body up for the poller of a scope, which checks
/// itself whether to [end](leave_if_nothing_left) the scope.
pub(crate) fn give_up_in_poll(locked: &mut LockedJob<'_>) -> Option<Last> {
    let left = release(locked, GivenUp::Counted);
    (left == Left::Loose).then(|| last_of(locked, left))
}

/// What the caller must do if the share was given up before, by a scope whose future
/// is dropped when its body is over.
pub(crate) fn given_up_before(locked: &mut LockedJob<'_>) -> Option<Last> {
    is_nothing_left(locked).then(|| last_of(locked, Left::Nothing))
}

/// Removes one share from the counts.
fn release(locked: &mut LockedJob<'_>, share: GivenUp) -> Left {
    let mut shares = locked.shares();
    let mut loose = locked.loose();
    match share {
        GivenUp::Counted => {
            assert!(
                shares != 0 && shares != NO_SHARES,
                "job {} was left too often",
                locked.job().id
            );
            shares -= 1;
            if shares == 0 {
                shares = NO_SHARES;
            }
            locked.set_shares(shares);
        }
        GivenUp::Loose => {
            assert!(loose != 0, "job {} was left too often", locked.job().id);
            loose -= 1;
            if let Some(cold) = locked.cold() {
                cold.loose = loose;
            }
        }
    }
    match (shares, loose) {
        (NO_SHARES, 0) => Left::Nothing,
        (NO_SHARES, _) if share == GivenUp::Counted => Left::Loose,
        _ => Left::Open,
    }
}

/// Under this lock the last share was given up, or the last counted one.
#[inline(never)]
fn last_of(locked: &LockedJob<'_>, left: Left) -> Last {
    let h = locked.job();
    if left == Left::Loose {
        // A service that ends by itself meanwhile may end and free the job.
        return Last::Stop(JobRef::from_header(h));
    }
    // Decided under the lock under which the job was closed: its poller, if it
    // has one, cannot leave before the unlock.
    let inline = !matches!(h.kind(), JobKind::Task | JobKind::Root);
    if inline && !h.state.load().has(state::BODY_DONE) {
        // SAFETY: a scope; linked, since its poller cannot end it before our lock.
        Last::Wake(unsafe { TakenWaker::new(waker::take_poller(locked)) })
    } else {
        Last::End(h)
    }
}

fn is_nothing_left(locked: &mut LockedJob<'_>) -> bool {
    locked.shares() == NO_SHARES && locked.loose() == 0
}

/// True if nothing holds the scope open any more. Its poller calls this, then
/// ends the scope, and needs no wake-up. The kept waker is taken under the same
/// lock: it may be bare, and no other thread may find it once the scope is not
/// linked.
pub(crate) fn leave_if_nothing_left(h: &Header) -> bool {
    let waker = {
        let mut locked = h.lock();
        if !is_nothing_left(&mut locked) {
            return false;
        }
        // SAFETY: a scope.
        unsafe { waker::take_poller(&locked) }
    };
    waker::let_go(waker);
    true
}

/// The body and every ordinary child have ended: services and lazy tasks that
/// were never started are cancelled, all at once.
pub(crate) fn stop_loose(h: &Header) {
    let mut loose = Vec::new();
    {
        let _locked = h.lock();
        // SAFETY: H1 and H2, under the lock.
        let mut next = unsafe { h.first.get().as_ref() };
        while let Some(child) = next {
            if !child.state.load().has(state::COUNTED) {
                loose.push(JobRef::from_header(child));
            }
            // SAFETY: as above.
            next = unsafe { child.next.get().as_ref() };
        }
    }
    for child in loose {
        walk::cancel(&child, Why::new(ReasonKind::ScopeEnded, child.site()));
    }
}

/// Ends `h` and every ancestor for which it was the last. A job of another lane
/// is ended there, by a turn made for it: its output and its hooks may not be
/// touched on this thread.
pub(crate) fn end_chain(h: &Header) {
    let here = context::lane();
    let mut next = Some(std::ptr::from_ref(h));
    while let Some(h) = next {
        // SAFETY: this thread is its ender, so it is linked. Noticed by
        // `last_child_vs_body_end`.
        let job = unsafe { &*h };
        // A lane with one thread counts as the current one only on the thread
        // of its own tree.
        let elsewhere = !here.is_lane_of(job.lane_mark())
            // SAFETY: not ended.
            || (here.has_home() && !unsafe { job.tree() }.turns_here(job.lane()));
        if elsewhere && job.kind() != JobKind::Root {
            // SAFETY: its end is ours.
            return unsafe { end_later(job) };
        }
        // SAFETY: this thread is the ender of each, and each is linked until it
        // is unlinked here.
        next = unsafe { end_one(&*h, None) };
    }
}

/// Leaves the end of `h` to a turn made for it, on its lane.
///
/// # Safety
/// The caller is the one ender: it saw [`Last::End`]. It does not touch
/// the job after this.
pub(crate) unsafe fn end_later(h: &Header) {
    // SAFETY: closed, so it is linked; the body is over, so no other thread
    // pushes it. Noticed by `lease_drop_vs_body_end`.
    unsafe {
        let tree = h.tree();
        let _held = tree.held();
        turn::start_turn(tree, h);
    }
}

/// A scope's poller ends its own scope; its failures have been taken out.
pub(crate) fn end_scope(h: &Header, failed: bool) {
    // SAFETY: the poller found nothing left, so it is the one ender. Noticed by
    // `last_child_vs_scope_exit`.
    if let Some(next) = unsafe { end_one(h, Some(failed)) } {
        // SAFETY: the scope was the last of its parent.
        end_chain(unsafe { &*next });
    }
}

/// Ends one job; the answer is the parent, if that ends next.
///
/// # Safety
/// The caller is the one ender: it saw [`Last::End`].
unsafe fn end_one(h: &Header, scope_failed: Option<bool>) -> Option<*const Header> {
    crate::engine::hook::run_end_hooks(h);
    if scope_failed.is_none() && !h.is_task() && h.has_cold() {
        // A scope that was dropped after a poll; everything below it has ended.
        let _none = context::leave();
        cold::clear_local(h);
    }

    // 1. The failure, before the end is visible to any other thread.
    let mut unheard = None;
    let failed = match scope_failed {
        Some(failed) => failed,
        None => match take_failures(h).and_then(Failures::decide) {
            // SAFETY: passed on.
            Some(error) => unsafe {
                unheard = note_failure(h, error);
                true
            },
            None => false,
        },
    };
    // SAFETY: still linked.
    let mut kept = unsafe { h.keep_reason() };

    // 2. The end, visible from here on.
    let owed = unheard.is_some();
    let st = loop {
        match h.state.end(failed, owed, kept) {
            Some(st) => break st,
            // A walk from above has marked the job in between.
            // SAFETY: still linked.
            None => kept = unsafe { h.keep_reason() },
        }
    };
    if let Some(error) = unheard
        && !st.has(state::HANDLE)
    {
        // SAFETY: linked until we unlink it.
        unsafe { h.tree() }.report_failure(&error);
        drop(h.if_cold(|cold, _| cold.reporter.take()));
    }
    // SAFETY: passed on.
    unsafe { ended(h, st) }
}

/// A job ends failed: its parent records the failure. The answer is the error
/// if no parent takes it, so that it must be reported.
///
/// # Safety
/// As for [`end_one`].
#[cold]
unsafe fn note_failure(h: &Header, error: Error) -> Option<Error> {
    let (before, attempt) =
        h.with_cold(|cold, _| (cold.outcome.replace(error.clone()), cold.attempt));
    drop(before);
    // SAFETY: linked until we unlink it.
    match unsafe { h.parent() } {
        // The failure of a hosted future goes to its caller, like that of a scope; that of an
        // attempt belongs to its handle.
        Some(parent)
            if h.was_spawned() && !h.is_hosted() && !attempt && !parent.is_supervisor() =>
        {
            child_failed(parent, h, &error);
            None
        }
        Some(_) => {
            // SAFETY: as above.
            let tree = unsafe { h.tree() };
            h.with_cold(|cold, _| cold.reporter = Some(tree.handle().as_reporter()));
            Some(error)
        }
        // The root is a supervisor and has no body that could fail.
        None => None,
    }
}

/// A local task is about to end without a value: its parent learns of a
/// failure, and whether the task was cut short.
///
/// # Safety
/// As for [`end_one`].
#[cold]
pub(crate) unsafe fn local_task_over(h: &Header, failed: bool, error: &Error) {
    if failed {
        // SAFETY: passed on. Its scope is no supervisor, so an error comes back for an
        // attempt alone, and that error goes to the code that polls the attempt and to
        // its handle.
        drop(unsafe { note_failure(h, error.clone()) });
        return;
    }
    // SAFETY: linked until we unlink it.
    if let Some(parent) = unsafe { h.parent() } {
        note_cut_short(&mut parent.lock(), h);
    }
}

/// The rest of the end, after ENDED was set; `st` is the word since then. The
/// answer is the parent, if that ends next.
///
/// # Safety
/// The caller set ENDED, and the job is still linked.
#[inline]
unsafe fn ended(h: &Header, st: state::Snapshot) -> Option<*const Header> {
    let rare = state::PARENT_BEING_READ
        | state::HAS_NODES
        | state::HAS_JOINERS
        | state::ORIGIN
        | state::DEADLINE;
    // SAFETY: passed on; linked until we unlink it.
    unsafe {
        let tree = h.tree();
        if tree.has_sink() {
            ended_told(tree, h, st, rare)
        } else if st.has(rare) {
            ended_among_others::<false>(tree, h, st)
        } else {
            leave_tree::<false>(tree, h, st)
        }
    }
}

/// The same for a tree with a sink, which learns whose end causes the wake-ups.
///
/// # Safety
/// As for [`ended`].
#[cold]
unsafe fn ended_told(
    tree: &Shared,
    h: &Header,
    st: state::Snapshot,
    rare: u64,
) -> Option<*const Header> {
    let _ending = context::ends(h.id);
    // SAFETY: passed on.
    unsafe {
        match st.has(rare) {
            true => ended_among_others::<true>(tree, h, st),
            false => leave_tree::<true>(tree, h, st),
        }
    }
}

/// The same for a job that has readers, hooks or joiners.
///
/// # Safety
/// As for [`ended`].
#[cold]
unsafe fn ended_among_others<const TOLD: bool>(
    tree: &Shared,
    h: &Header,
    st: state::Snapshot,
) -> Option<*const Header> {
    let joiners = tidy_up(tree, h, st);
    // SAFETY: passed on.
    let next = unsafe { leave_tree::<TOLD>(tree, h, st) };
    for waker in joiners {
        wake(waker);
    }
    next
}

/// Takes the job out of the tree and wakes its waiter.
///
/// # Safety
/// As for [`ended`].
unsafe fn leave_tree<const TOLD: bool>(
    tree: &Shared,
    h: &Header,
    st: state::Snapshot,
) -> Option<*const Header> {
    // SAFETY: linked until we unlink it.
    let parent = unsafe { h.parent() };
    if st.has(state::OUTPUT) && !st.has(state::HANDLE) && cell::output_needs_drop(h) {
        let _none = context::leave();
        // SAFETY: C2, OUTPUT and no HANDLE: the output is the ender's. Noticed by
        // `handle_drop_vs_end`.
        unsafe { cell::drop_output(h) };
    }

    // 3. Count the end and tell the sink, while the tree certainly exists.
    let counts = tree.counters.here();
    if !st.has(state::ENDED_FAILED | state::ENDED_CANCELLED) {
        counts.add(Count::Completed);
    } else if st.has(state::ENDED_FAILED) {
        counts.add(Count::Failed);
    } else {
        counts.add(Count::Cancelled);
    }
    if st.has(state::WAITER) {
        counts.add(Count::WaiterWoken);
    }
    if TOLD {
        tell_of_end(tree, h, st);
    }

    let mut waiter = None;
    if st.has(state::WAITER) {
        // SAFETY: H4, WAITER: the slot is the ender's. Still linked. Noticed by
        // `waiter_add_vs_end`.
        match unsafe { TakenWaker::new(cell::slot(h).and_then(|slot| slot.take())) } {
            TakenWaker::Nobody => {}
            // Pushed here: while this job is linked the tree exists, so the
            // host needs no holding. The task may run at once; it finds the
            // outcome.
            // SAFETY: claimed by us.
            TakenWaker::Claimed(task) => unsafe { turn::push_claimed_below(tree, &*task) },
            TakenWaker::Owned(waker) => waiter = Some(waker),
        }
    }

    // 4. Leave the tree.
    let Some(parent) = parent else {
        // The root: the tree may be freed with its last handle.
        let retired = tree.retire();
        wake_waiter(waiter);
        // SAFETY: the tree's reference, given back once.
        unsafe { Header::release(h) };
        drop(retired);
        return None;
    };
    let last = {
        let mut locked = parent.lock();
        // SAFETY: linked, below this parent.
        unsafe { locked.unlink(h) };
        if st.has(state::ENDED_CANCELLED) && !st.has(state::OUTPUT) && h.is_task() {
            note_cut_short(&mut locked, h);
        }
        let share = match h.state.peek().has(state::COUNTED) {
            true => GivenUp::Counted,
            false => GivenUp::Loose,
        };
        give_up(&mut locked, share)
    };
    // SAFETY: the tree's reference, given back once (H6): ENDED is set once.
    // Noticed by `an_end_is_one_step_and_waits_for_the_reason`.
    unsafe { Header::release(h) };
    wake_waiter(waiter);
    last?.settle_below()
}

fn wake_waiter(waiter: Option<Waker>) {
    if let Some(waker) = waiter {
        wake(waker);
    }
}

/// Clears what most jobs do not have. The answer is the wakers of the joiners.
fn tidy_up(tree: &Shared, h: &Header, st: state::Snapshot) -> Vec<Waker> {
    if st.has(state::PARENT_BEING_READ) {
        // Another thread reads the parent under this job's lock.
        drop(h.lock());
    }
    // A hook that was published since then would be left behind.
    crate::engine::hook::run_end_hooks(h);
    if st.has(state::HAS_NODES) {
        crate::engine::hook::run_after_end(h);
    }
    let joiners = if st.has(state::HAS_JOINERS) {
        take_joiners(h)
    } else {
        Vec::new()
    };
    for _ in &joiners {
        tree.counters.add(Count::WaiterWoken);
        tree.emit(h.id, EventKind::WaitWake);
    }
    if st.has(state::ORIGIN) {
        tree.sweeper.forget(tree, h);
    }
    if st.has(state::DEADLINE) {
        deadline::disarm(tree, h);
    }
    if st.has(state::HAS_NODES) {
        // The timer of its brake is cleared too.
        let brake = h.if_cold(|cold, _| cold.brake.take()).flatten();
        if let Some(set) = brake.and_then(|brake| brake.into_alarm()) {
            alarm::clear(tree, set.key());
        }
    }
    joiners
}

#[cold]
fn tell_of_end(tree: &Shared, h: &Header, st: state::Snapshot) {
    if st.has(state::WAITER) {
        tree.emit(h.id, EventKind::WaitWake);
    }
    let to = if st.has(state::ENDED_FAILED) {
        JobState::Failed
    } else if st.has(state::ENDED_CANCELLED) {
        JobState::Cancelled
    } else {
        JobState::Completed
    };
    tree.emit(h.id, EventKind::State { to });
    let cancelled = st.has(state::CANCELLED | state::CANCEL_DEFERRED);
    tree.emit(h.id, EventKind::Finalize { cancelled });
}

fn take_joiners(h: &Header) -> Vec<Waker> {
    let mut all = Vec::new();
    h.if_cold(|cold, _| {
        while let Some(joiner) = cold.joiners.pop() {
            all.push(joiner.waker.into_inner());
        }
    });
    all
}

/// A child task failed and its parent is fail-fast: the failure is recorded,
/// and the siblings and the parent's body are cancelled.
fn child_failed(parent: &Header, child: &Header, error: &Error) {
    let recorded = Failure::new(error.clone());
    let gone = parent.with_cold(|cold, st| {
        let after_deadline = st.has(state::ORIGIN) && cold.entered_by_deadline();
        cold.failures.record(recorded, after_deadline)
    });
    drop(gone);
    let mut why = Why::new(ReasonKind::ChildFailed, child.site());
    why.culprit = Some((child.id, names::name_of(child)));
    walk::cancel(parent, why);
}

/// Takes out the recorded failures, to be read without the lock; none if
/// nothing failed. For the ender: every failure was recorded before.
pub(crate) fn take_failures(h: &Header) -> Option<Failures> {
    if !h.has_cold() {
        return None;
    }
    h.if_cold(|cold, _| std::mem::take(&mut cold.failures))
}

/// Under the parent's lock, for a spawned child that was cancelled and has no
/// value: notes whether a cancellation that did not enter at the child itself
/// cut it short.
fn note_cut_short(parent: &mut LockedJob<'_>, child: &Header) {
    if child.is_service() || child.state.load().has(state::ORIGIN) {
        return;
    }
    let above = parent.job().state.load();
    let by = if !above.has(state::ORIGIN) {
        CutBy::Above
    } else if parent.cold().is_some_and(|cold| cold.entered_by_deadline()) {
        CutBy::OwnDeadline
    } else {
        return;
    };
    if !above.has(by as u64) {
        parent.job().state.child_cut_short(by, parent.evidence());
    }
}

/// The decided outcome of an ended job.
pub(crate) fn decided(h: &Header) -> (JobState, Option<Error>, Option<Reason>) {
    let st = h.state.load();
    assert!(st.ended(), "job {} has not ended: {st:?}", h.id);
    if st.has(state::ENDED_FAILED) {
        let error = h.if_cold(|cold, _| cold.outcome.clone()).flatten();
        (JobState::Failed, error, None)
    } else if st.has(state::ENDED_CANCELLED) {
        (JobState::Cancelled, None, h.reason())
    } else {
        (JobState::Completed, None, None)
    }
}

/// Hands a failure that its handle was to take to the failure hook.
#[track_caller]
pub(crate) fn report_owed(h: &Header) {
    if h.state.take_report() {
        report_untaken(h);
    }
}

/// Hands the failure of a job that has ended to the failure hook, unless that was done
/// before, the failure was [forgotten](forget_report), or it belongs to the parent.
#[track_caller]
pub(crate) fn report_untaken(h: &Header) {
    let owed = h.if_cold(|cold, _| (cold.outcome.clone(), cold.reporter.take()));
    if let Some((Some(error), Some(reporter))) = owed {
        reporter.report(&error);
    }
}

/// The handle took the outcome: no failure is left to report.
pub(crate) fn outcome_taken(h: &Header) {
    if h.state.peek().has(state::UNREPORTED) && h.state.take_report() {
        forget_report(h);
    }
}

/// The failure was delivered and is not reported.
pub(crate) fn forget_report(h: &Header) {
    drop(h.if_cold(|cold, _| cold.reporter.take()));
}
