//! The state word of a job. Every race between two actors on one job is
//! decided by one atomic step on this word; lists and counts are under the
//! job's byte lock (see [`crate::record::header`]).
//!
//! ```text
//!            1                    2
//!  Active ───────► Completed   Active ───────► Failed
//!    │ 3
//!    ▼        4                   5
//!  Cancelling ───► Cancelled   Cancelling ───► Failed
//! ```
//!
//! 1, 2, 4, 5: [`State::end`], once, by the thread that gave up the last share
//! of body and children. 3: [`State::mark`], by `cancel` or by a walk from
//! above. New (never polled), Completing (the body is over, children live) and
//! Waiting (parked) are views of Active; they are no states of their own.

use std::fmt;

use crate::base::sync::{AtomicU64, Locked, Ordering::*};

// Three bits have one meaning in the word of a task and another in that of a scope,
// which is polled differently. The header says of which kind a job is.

/// A task is queued, or being polled, or its body is over: no wake may push it.
///
/// Set by: birth, [`State::claim`], [`State::mark`] and [`State::leave_guard`] of a parked
/// task, [`State::end`]. Cleared by: [`State::park`]; never after the last turn.
pub(crate) const BUSY: u64 = 1 << 0;
/// A task was woken while BUSY.
///
/// Set by: [`State::claim`], [`State::mark`], [`State::leave_guard`]. Cleared by:
/// [`State::begin_turn`]; a turn that finds it set at its end is followed by
/// another.
pub(crate) const NOTIFIED: u64 = 1 << 1;
/// A task was created lazy and has not been started: BUSY, but in no queue.
///
/// Set by: birth. Cleared by: [`State::start_lazy`], or by the mark. Needs: BUSY.
pub(crate) const LAZY: u64 = 1 << 2;

/// The body of a scope is over, and its share is given up. The same bit as BUSY.
///
/// Set by: [`State::leave_body`], [`State::end`]. Never cleared.
pub(crate) const LEFT: u64 = BUSY;
/// A scope is polled or dropped by another job than the one it belongs to, or was
/// given up by the end of that job's body. The same bit as NOTIFIED.
///
/// Set by: [`State::go_away`], [`State::leave_behind`]. Cleared by: [`State::come_back`].
pub(crate) const AWAY: u64 = NOTIFIED;
/// The body of the job that a scope belongs to has ended while the scope is AWAY:
/// the job that polls or drops it there gives it up. The same bit as LAZY.
///
/// Set by: [`State::leave_behind`]. Never cleared. Needs: AWAY.
pub(crate) const OWED: u64 = LAZY;

/// The mark: this job has been cancelled.
///
/// Set by: [`State::mark`], [`State::born_cancelled`]. Never cleared.
pub(crate) const CANCELLED: u64 = 1 << 3;
/// The cancel entered the tree here; the reason is in this job's cold part.
///
/// Set by: [`State::mark`]. Never cleared. Needs: CANCELLED.
pub(crate) const ORIGIN: u64 = 1 << 4;
/// An ignore guard is held: the mark has no effect yet and the walk waits.
///
/// Set by: [`State::enter_guard`]. Cleared by: [`State::leave_guard`]. Excludes: TOLD.
pub(crate) const GUARD: u64 = 1 << 5;
/// Shutdown's last step has reached the job. The next turn of a task drops the
/// future, idle or not; no task is attached below the job, and every other child
/// has the bit too.
///
/// Set by: [`State::drop_now`]. Never cleared.
pub(crate) const DROP_NOW: u64 = 1 << 6;
/// A shield holds a cancel back.
///
/// Set by: [`State::defer_cancel`]. Never cleared. Excludes what only tasks have: HANDLE,
/// WAITER, OUTPUT.
pub(crate) const CANCEL_DEFERRED: u64 = 1 << 7;
/// A child or a lease has taken a share once. Jobs without this bit are
/// cancelled and ended without a look at their list.
///
/// Set by: [`State::will_share`]. Never cleared.
pub(crate) const HAS_SHARES: u64 = 1 << 8;
/// Hooks or leaves under foreign wakers were published once.
///
/// Set by: [`State::publish_nodes`]. Never cleared.
pub(crate) const HAS_NODES: u64 = 1 << 9;
/// A joiner registered for the end once.
///
/// Set by: [`State::publish_joiner`]. Never cleared.
pub(crate) const HAS_JOINERS: u64 = 1 << 10;
/// A point inside this job has returned Cancelled; bits 32 to 60 say when.
///
/// Set by: [`State::tell`]. Never cleared. Needs: CANCELLED. Excludes: GUARD.
pub(crate) const TOLD: u64 = 1 << 11;
/// Patience has run out: the next turn drops the future if it finds it idle.
///
/// Set by: [`State::drop_if_idle`]. Cleared by: [`State::spare`].
pub(crate) const DROP_IF_IDLE: u64 = 1 << 12;
/// Terminal. With neither ENDED_FAILED nor ENDED_CANCELLED: completed.
///
/// Set by: [`State::end`], [`State::end_alone`]. Never cleared. Needs: BODY_DONE, BUSY.
pub(crate) const ENDED: u64 = 1 << 13;
/// Ended, failed.
///
/// Set by: [`State::end`]. Never cleared. Needs: ENDED. Excludes: ENDED_CANCELLED.
pub(crate) const ENDED_FAILED: u64 = 1 << 14;
/// Ended, cancelled.
///
/// Set by: [`State::end`], [`State::end_alone`]. Never cleared. Needs: ENDED, CANCELLED.
/// Excludes: ENDED_FAILED.
pub(crate) const ENDED_CANCELLED: u64 = 1 << 15;
/// The join slot is filled and belongs to the ender.
///
/// Set by: [`State::set_waiter`]. Cleared by: [`State::take_waiter`]. Only tasks.
pub(crate) const WAITER: u64 = 1 << 16;
/// The owning handle lives.
///
/// Set by: birth. Cleared by: [`State::drop_handle`], [`State::outcome_taken`]. Only
/// tasks.
pub(crate) const HANDLE: u64 = 1 << 17;
/// `parent` is being read from outside, under this job's lock.
///
/// Set and cleared by: [`State::read_parent`].
pub(crate) const PARENT_BEING_READ: u64 = 1 << 18;
/// The future was dropped before it completed.
///
/// Set by: [`State::was_dropped`], [`State::body_over`]. Never cleared. Excludes: OUTPUT.
pub(crate) const WAS_DROPPED: u64 = 1 << 19;
// Bits 20 and 21 are free.
/// Failed under a supervisor, and the handle must report the failure.
///
/// Set by: [`State::end`]. Cleared by: [`State::take_report`]. Needs: ENDED_FAILED.
pub(crate) const UNREPORTED: u64 = 1 << 22;
/// A task: an interrupt has not been delivered. An inline scope: its task may
/// have one, and points must look there. Clear in a shield and in the scopes
/// inside it.
///
/// Set by: [`State::interrupt`], [`State::hint_interrupt`]. Cleared by:
/// [`State::interrupt_taken`].
pub(crate) const INTERRUPTED: u64 = 1 << 23;
/// The body is over (tasks) or the poller is gone (scopes dropped half-way, or
/// left open by the body around them).
///
/// Set by: [`State::body_over`], [`State::end`], [`State::end_alone`]. Never cleared.
pub(crate) const BODY_DONE: u64 = 1 << 24;
/// Closed by the program, or by the failure of the body: no new children.
///
/// Set by: [`State::close`]. Never cleared.
pub(crate) const NO_NEW_CHILDREN: u64 = 1 << 25;
/// The cell holds a value that must be taken or dropped.
///
/// Set by: [`State::body_over`], [`State::end_alone`]. Cleared by:
/// [`State::outcome_taken`], [`State::output_dropped`]. Only tasks. Excludes: WAS_DROPPED.
pub(crate) const OUTPUT: u64 = 1 << 26;
/// An inline scope: it has, or an inline scope around it in the same task has, a
/// deadline, or a shield's budget, that would be told to a point here. The bit is
/// only a hint to read the clock. Clear in a shield without a budget, and in tasks,
/// which their parent's timer marks.
///
/// Set by: [`State::watch_clock`]. Never cleared. Excludes what only tasks have.
pub(crate) const DEADLINE: u64 = 1 << 27;
/// A child was cut short by a cancellation from above this job.
///
/// Set by: [`State::child_cut_short`]. Never cleared.
pub(crate) const CUT_ABOVE: u64 = 1 << 28;
/// A child was cut short by this job's own deadline.
///
/// Set by: [`State::child_cut_short`]. Never cleared. Needs: ORIGIN.
pub(crate) const CUT_OWN: u64 = 1 << 29;
// Bit 30 is free.
/// Counts among the children for which the parent waits: all but services and
/// unstarted lazy tasks. Guarded by the parent's lock.
///
/// Set by: birth, [`State::count`]. Never cleared.
pub(crate) const COUNTED: u64 = 1 << 31;
// Bits 61, 62 and 63 are free.

/// The part that is kept of the time at which a job was told: bits 32 to 60.
const TOLD_AT: u32 = u32::MAX >> 3;

/// The bits that only tasks have.
const OF_TASKS: u64 = HANDLE | WAITER | OUTPUT;

/// Whose word it is, where that matters: three bits mean one thing in the word of a task
/// and another in that of any other job. The word does not say which; each step that
/// changes these bits is for one of the two kinds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WordOf {
    Task,
    /// Of a scope or the root.
    Scope,
    /// A step for both kinds, which changes none of the three in a way that a rule forbids.
    Either,
}

impl WordOf {
    fn task(task: bool) -> WordOf {
        if task { WordOf::Task } else { WordOf::Scope }
    }
}

/// What a bit needs beside it, and what it excludes.
struct Rule {
    of: WordOf,
    bit: u64,
    needs: u64,
    excludes: u64,
}

const fn rule(bit: u64, needs: u64, excludes: u64) -> Rule {
    Rule {
        of: WordOf::Either,
        bit,
        needs,
        excludes,
    }
}

/// A rule for the words of jobs of this kind alone.
const fn rule_of(of: WordOf, bit: u64, needs: u64) -> Rule {
    Rule {
        of,
        bit,
        needs,
        excludes: 0,
    }
}

/// Every word keeps these rules from its birth on, and so does every step; debug
/// builds check it.
const RULES: [Rule; 15] = [
    rule_of(WordOf::Task, LAZY, BUSY),
    rule_of(WordOf::Scope, OWED, AWAY),
    rule(ORIGIN, CANCELLED, 0),
    rule(TOLD, CANCELLED, GUARD),
    rule(ENDED, BODY_DONE | BUSY, 0),
    rule(ENDED_FAILED, ENDED, ENDED_CANCELLED),
    rule(ENDED_CANCELLED, ENDED | CANCELLED, ENDED_FAILED),
    rule(UNREPORTED, ENDED_FAILED, 0),
    rule(CUT_OWN, ORIGIN, 0),
    rule(WAS_DROPPED, 0, OUTPUT),
    rule(CANCEL_DEFERRED, 0, OF_TASKS),
    rule(DEADLINE, 0, OF_TASKS),
    rule(HANDLE, 0, CANCEL_DEFERRED | DEADLINE),
    rule(WAITER, 0, CANCEL_DEFERRED | DEADLINE),
    rule(OUTPUT, 0, CANCEL_DEFERRED | DEADLINE | WAS_DROPPED),
];

/// The first rule that a step has broken. Only rules whose bits it has changed are
/// checked: what was wrong before is reported of the step that made it so.
fn broken(of: WordOf, before: u64, after: u64) -> Option<&'static Rule> {
    let changed = before ^ after;
    let rules = RULES.iter();
    let mut rules = rules.filter(|rule| rule.of == WordOf::Either || rule.of == of);
    rules.find(|rule| {
        let touched = changed & (rule.bit | rule.needs | rule.excludes) != 0;
        let kept = after & rule.needs == rule.needs && after & rule.excludes == 0;
        touched && after & rule.bit != 0 && !kept
    })
}

/// Checks the rules after a step on the word; after its birth, with `before`
/// zero.
#[inline]
fn check(of: WordOf, before: u64, after: u64) {
    if cfg!(debug_assertions)
        && let Some(rule) = broken(of, before, after)
    {
        panic!(
            "{:?} became {:?}: {:?} needs {:?} and excludes {:?}",
            Snapshot(before),
            Snapshot(after),
            Snapshot(rule.bit),
            Snapshot(rule.needs),
            Snapshot(rule.excludes),
        );
    }
}

/// By how much one thread's time may be ahead of another's, in milliseconds:
/// one has read the clock later, or a finer one.
const LEAD: u32 = 60_000;

/// The milliseconds from `at` to `now` on a tree's clock, which wraps around.
/// Zero if `at` is a little later.
pub(crate) fn millis_between(at: u32, now: u32) -> u32 {
    let millis = now.wrapping_sub(at);
    if millis > u32::MAX - LEAD { 0 } else { millis }
}

/// The word at one moment, with methods that read it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Snapshot(pub(crate) u64);

impl Snapshot {
    pub(crate) fn has(self, bits: u64) -> bool {
        self.0 & bits != 0
    }

    /// Cancelled, and no guard is held: a point returns Cancelled.
    pub(crate) fn effective(self) -> bool {
        self.0 & (CANCELLED | GUARD) == CANCELLED
    }

    /// A point here must do more than go on: there is a mark, perhaps held
    /// back, an interrupt, perhaps of another job, or a deadline, perhaps not
    /// yet due.
    pub(crate) fn must_look(self) -> bool {
        self.has(CANCELLED | INTERRUPTED | DEADLINE)
    }

    /// Never had a child, a lease, a hook or a foreign leaf, holds no guard,
    /// and has no undelivered interrupt.
    pub(crate) fn is_alone(self) -> bool {
        !self.has(HAS_SHARES | HAS_NODES | GUARD | INTERRUPTED)
    }

    pub(crate) fn ended(self) -> bool {
        self.has(ENDED)
    }

    /// Completed, and the value is there: read before the value is taken.
    #[inline]
    pub(crate) fn has_completed_value(self) -> bool {
        self.0 & (ENDED | ENDED_FAILED | ENDED_CANCELLED | OUTPUT) == ENDED | OUTPUT
    }

    /// For how many milliseconds the job has been told, by the clock of its
    /// tree, if that was at most six days before `now`. Zero if the thread that
    /// told it has seen a later time than the caller.
    pub(crate) fn told_for(self, now: u32) -> Option<u32> {
        let millis = now.wrapping_sub((self.0 >> 32) as u32) & TOLD_AT;
        let lead = millis > TOLD_AT - LEAD;
        self.has(TOLD).then_some(if lead { 0 } else { millis })
    }
}

/// What a [`State::mark`] did.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Marked {
    /// The job was marked or had ended before.
    No,
    /// Marked behind a guard: the walk waits for the guard's exit.
    Deferred,
    /// Marked; the task was parked, and the caller now owns its next push.
    Claimed,
    /// Marked; the job is running, queued or a scope.
    Noted,
}

/// What a [`State::claim`] did.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Claim {
    /// The caller must push the task.
    Push,
    /// Another thread has the task, which will see the wake-up, or the task is
    /// over.
    Leave,
}

/// What follows a turn that ended Pending.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ParkAnswer {
    /// The task is parked; the caller must not touch it again.
    Parked,
    /// The task was woken meanwhile: it gets another turn.
    Again,
}

/// Where a mark comes from.
#[derive(Clone, Copy)]
#[repr(u64)]
pub(crate) enum MarkFrom {
    /// The cancel enters the tree at this job.
    Here = ORIGIN,
    /// A walk carries it from above.
    Above = 0,
}

/// What a body that is over has left.
#[derive(Clone, Copy)]
#[repr(u64)]
pub(crate) enum Remains {
    /// Nothing: the body has failed, was never polled, or is a scope's.
    Nothing = 0,
    /// Its value.
    Output = OUTPUT,
    /// Nothing: its future was dropped half-way.
    HalfWay = WAS_DROPPED,
}

/// What cut a child short.
#[derive(Clone, Copy)]
#[repr(u64)]
pub(crate) enum CutBy {
    /// A cancellation from above its parent.
    Above = CUT_ABOVE,
    /// The deadline of its parent.
    OwnDeadline = CUT_OWN,
}

/// `parent` is being read from outside, under the lock, until this is dropped.
pub(crate) struct ParentRead<'a> {
    /// The word when the read began.
    pub(crate) seen: Snapshot,
    state: &'a State,
}

impl Drop for ParentRead<'_> {
    fn drop(&mut self) {
        self.state.remove(PARENT_BEING_READ);
    }
}

pub(crate) struct State(AtomicU64);

impl State {
    /// The word of a new job.
    #[inline]
    pub(crate) fn born(bits: u64, task: bool) -> Self {
        check(WordOf::task(task), 0, bits);
        State::new(bits)
    }

    /// A word for which no rule is checked.
    #[inline]
    fn new(bits: u64) -> Self {
        State(AtomicU64::new(bits))
    }

    pub(crate) fn load(&self) -> Snapshot {
        Snapshot(self.0.load(Acquire))
    }

    /// For the fast path of points: this load synchronises with nothing. Code
    /// that acts on a mark seen here loads again.
    pub(crate) fn peek(&self) -> Snapshot {
        Snapshot(self.0.load(Relaxed))
    }

    /// Sets bits, whatever else is set; returns the word before.
    #[inline]
    fn add(&self, bits: u64) -> Snapshot {
        let before = self.0.fetch_or(bits, AcqRel);
        check(WordOf::Either, before, before | bits);
        Snapshot(before)
    }

    /// Clears bits, whatever else is set; returns the word before.
    #[inline]
    fn remove(&self, bits: u64) -> Snapshot {
        let before = self.0.fetch_and(!bits, AcqRel);
        check(WordOf::Either, before, before & !bits);
        Snapshot(before)
    }

    /// The one compare-and-exchange loop: `f` returns the next word and an
    /// answer, or only an answer.
    #[inline]
    fn update<R>(&self, of: WordOf, mut f: impl FnMut(Snapshot) -> (Option<u64>, R)) -> R {
        let mut now = self.0.load(Acquire);
        loop {
            let (next, answer) = f(Snapshot(now));
            let Some(next) = next else { return answer };
            match self.0.compare_exchange_weak(now, next, AcqRel, Acquire) {
                Ok(_) => {
                    check(of, now, next);
                    return answer;
                }
                Err(seen) => now = seen,
            }
        }
    }

    /// Arrow 3. Sets the mark, and claims a parked task in the same step.
    pub(crate) fn mark(&self, entered: MarkFrom, task: bool) -> Marked {
        self.update(WordOf::task(task), |st| {
            if st.has(CANCELLED | ENDED) {
                return (None, Marked::No);
            }
            let next = st.0 | CANCELLED | entered as u64;
            if st.has(GUARD) {
                (Some(next), Marked::Deferred)
            } else {
                let (next, how) = Self::rouse(next, task);
                (Some(next), how)
            }
        })
    }

    /// The bits that wake a job whose mark takes effect now.
    fn rouse(word: u64, task: bool) -> (u64, Marked) {
        if !task {
            (word, Marked::Noted)
        } else if word & LAZY != 0 {
            (word & !LAZY, Marked::Claimed)
        } else if word & BUSY == 0 {
            (word | BUSY, Marked::Claimed)
        } else {
            (word | NOTIFIED, Marked::Noted)
        }
    }

    /// A wake-up: the thread that gets [`Claim::Push`] owns the task until it
    /// has pushed it.
    pub(crate) fn claim(&self) -> Claim {
        self.update(WordOf::Task, |st| {
            if st.has(BUSY) {
                if st.has(BODY_DONE) {
                    return (None, Claim::Leave);
                }
                // Written even if it is set already: the turn that clears it
                // must see what the waking thread wrote before.
                (Some(st.0 | NOTIFIED), Claim::Leave)
            } else {
                (Some(st.0 | BUSY), Claim::Push)
            }
        })
    }

    /// Starts a lazy task: true for the one call that must push it.
    pub(crate) fn start_lazy(&self) -> bool {
        self.update(WordOf::Task, |st| {
            if st.has(LAZY) {
                (Some(st.0 & !LAZY), true)
            } else {
                (None, false)
            }
        })
    }

    /// The end of a turn that found the body Pending.
    pub(crate) fn park(&self) -> ParkAnswer {
        self.update(WordOf::Task, |st| {
            if st.has(NOTIFIED) {
                (None, ParkAnswer::Again)
            } else {
                (Some(st.0 & !BUSY), ParkAnswer::Parked)
            }
        })
    }

    /// The future of a scope is about to be polled or dropped where the current
    /// job is not the one that the scope belongs to. False if the scope has been
    /// left behind: then only its own cell may be touched.
    pub(crate) fn go_away(&self) -> bool {
        self.update(WordOf::Scope, |st| {
            if st.has(BODY_DONE | AWAY) {
                (None, false)
            } else {
                (Some(st.0 | AWAY), true)
            }
        })
    }

    /// The end of such a poll. False if the body that the scope belongs to has
    /// ended meanwhile: the scope stays AWAY, and the caller gives it up.
    pub(crate) fn come_back(&self) -> bool {
        self.update(WordOf::Scope, |st| {
            if st.has(OWED) {
                (None, false)
            } else {
                (Some(st.0 & !AWAY), true)
            }
        })
    }

    /// The body that an open scope belongs to has ended. Returns the word before
    /// if the caller must give the scope up; none if its future was dropped, or
    /// is polled or dropped at this moment: then the thread that does so gives
    /// it up.
    pub(crate) fn leave_behind(&self) -> Option<Snapshot> {
        self.update(WordOf::Scope, |st| {
            if st.has(BODY_DONE) {
                (None, None)
            } else if st.has(AWAY) {
                (Some(st.0 | OWED), None)
            } else {
                (Some(st.0 | AWAY), Some(st))
            }
        })
    }

    /// Enters an ignore guard; false if the job was cancelled before.
    pub(crate) fn enter_guard(&self) -> bool {
        self.update(WordOf::Either, |st| {
            if st.has(CANCELLED) {
                (None, false)
            } else {
                (Some(st.0 | GUARD), true)
            }
        })
    }

    /// Leaves the outermost guard. A mark that was held back takes effect in
    /// the same step, and the caller walks.
    pub(crate) fn leave_guard(&self, task: bool) -> Marked {
        self.update(WordOf::task(task), |st| {
            if !st.has(GUARD) {
                return (None, Marked::No);
            }
            let open = st.0 & !GUARD;
            if st.has(CANCELLED) && !st.has(ENDED) {
                let (next, how) = Self::rouse(open, task);
                (Some(next), how)
            } else {
                (Some(open), Marked::No)
            }
        })
    }

    /// A point returned Cancelled at `at`; true the first time.
    pub(crate) fn tell(&self, at: u32) -> bool {
        self.update(WordOf::Either, |st| {
            if st.has(TOLD) || !st.effective() {
                (None, false)
            } else {
                (Some(st.0 | TOLD | u64::from(at & TOLD_AT) << 32), true)
            }
        })
    }

    /// Requests one Cancelled; false if the body is over.
    pub(crate) fn interrupt(&self) -> bool {
        self.update(WordOf::Either, |st| {
            if st.has(BODY_DONE | ENDED) {
                (None, false)
            } else {
                (Some(st.0 | INTERRUPTED), true)
            }
        })
    }

    /// Arrows 1, 2, 4 and 5: returns the word as it is from now on. None if a mark
    /// from above has come whose reason has not been kept yet.
    ///
    /// `owes_report`: the handle, if there is one, must report the failure.
    pub(crate) fn end(
        &self,
        failed: bool,
        owes_report: bool,
        reason_kept: bool,
    ) -> Option<Snapshot> {
        let owed = if owes_report { UNREPORTED } else { 0 };
        self.update(WordOf::Either, |st| {
            assert!(!st.ended(), "a job ended twice: {st:?}");
            if !reason_kept && st.has(CANCELLED) && !st.has(ORIGIN) {
                return (None, None);
            }
            let how = if failed {
                ENDED_FAILED
            } else if st.has(CANCELLED) {
                ENDED_CANCELLED
            } else {
                0
            };
            let next = st.0 | ENDED | BUSY | BODY_DONE | how | owed;
            (Some(next), Some(Snapshot(next)))
        })
    }

    /// The same for a job whose body is over and that has never had a child, a
    /// lease, a hook or a foreign leaf, holds no guard and has no undelivered
    /// interrupt: one step, without the lock. None if it has one of these, or
    /// as for [`State::end`]; and if the job has ended, for which
    /// [`State::end`] panics.
    pub(crate) fn end_alone(&self, remains: Remains, reason_kept: bool) -> Option<Snapshot> {
        self.update(WordOf::Either, |st| {
            if !st.is_alone() || st.ended() || !reason_kept && st.has(CANCELLED) && !st.has(ORIGIN)
            {
                return (None, None);
            }
            let how = if st.has(CANCELLED) {
                ENDED_CANCELLED
            } else {
                0
            };
            let next = st.0 | ENDED | BUSY | BODY_DONE | how | remains as u64;
            (Some(next), Some(Snapshot(next)))
        })
    }

    /// A turn begins: it answers every wake-up before it. Returns the word before.
    pub(crate) fn begin_turn(&self) -> Snapshot {
        self.remove(NOTIFIED)
    }

    /// The body is over, and has left this; for a scope: its poller is gone. Returns the
    /// word before.
    pub(crate) fn body_over(&self, remains: Remains) -> Snapshot {
        self.add(BODY_DONE | remains as u64)
    }

    /// A scope's future was dropped before it completed.
    pub(crate) fn was_dropped(&self) {
        self.add(WAS_DROPPED);
    }

    /// The body of a scope gives its share up, under the same lock.
    pub(crate) fn leave_body(&self, _: &Locked<'_>) {
        self.add(LEFT);
    }

    /// The job takes no new children from here on. Returns the word before: a child
    /// that was attached earlier shows in it.
    pub(crate) fn close(&self) -> Snapshot {
        self.add(NO_NEW_CHILDREN)
    }

    /// A child or a lease is about to take a share, under the lock. Returns the word
    /// before.
    pub(crate) fn will_share(&self, _: &Locked<'_>) -> Snapshot {
        self.add(HAS_SHARES)
    }

    /// A hook or a leaf was listed. Returns the word before: an earlier cancel shows in
    /// it, and a later one sees the bit.
    pub(crate) fn publish_nodes(&self) -> Snapshot {
        self.add(HAS_NODES)
    }

    /// A joiner is about to be listed. Returns the word before.
    pub(crate) fn publish_joiner(&self) -> Snapshot {
        self.add(HAS_JOINERS)
    }

    /// The patience with the job has run out.
    pub(crate) fn drop_if_idle(&self) {
        self.add(DROP_IF_IDLE);
    }

    /// The job has progressed, or was told: its next foreign await is another
    /// one.
    pub(crate) fn spare(&self) {
        self.remove(DROP_IF_IDLE);
    }

    /// Shutdown's last step has reached the job, or the job in which it is
    /// born.
    pub(crate) fn drop_now(&self) {
        self.add(DROP_NOW);
    }

    /// This shield holds back the cancel that a walk carries, or that is held back around
    /// it.
    pub(crate) fn defer_cancel(&self) {
        self.add(CANCEL_DEFERRED);
    }

    /// The child of a cancelled job is cancelled from birth. Its origin is stored
    /// already.
    pub(crate) fn born_cancelled(&self) {
        self.add(CANCELLED);
    }

    /// Points read the clock from here on. True if they did already.
    pub(crate) fn watch_clock(&self) -> bool {
        self.add(DEADLINE).has(DEADLINE)
    }

    /// A scope: its task may have an interrupt.
    pub(crate) fn hint_interrupt(&self) {
        self.add(INTERRUPTED);
    }

    /// A point took the interrupt, or it was withdrawn; for a scope: a point is about
    /// to look at its task.
    pub(crate) fn interrupt_taken(&self) {
        self.remove(INTERRUPTED);
    }

    /// A lazy child has started: its parent waits for it. Under the parent's lock.
    pub(crate) fn count(&self, _: &Locked<'_>) {
        self.add(COUNTED);
    }

    /// A child was cut short. Under the lock, so that two children do not do
    /// this at once.
    pub(crate) fn child_cut_short(&self, by: CutBy, _: &Locked<'_>) {
        self.add(by as u64);
    }

    /// A thread outside the job reads `parent` and what it leads to: until the
    /// answer is dropped, the ender waits for the lock before it unlinks the job.
    pub(crate) fn read_parent<'a>(&'a self, _: &'a Locked<'_>) -> ParentRead<'a> {
        ParentRead {
            seen: self.add(PARENT_BEING_READ),
            state: self,
        }
    }

    /// Takes the duty to report: true for the one call that must report.
    pub(crate) fn take_report(&self) -> bool {
        self.remove(UNREPORTED).has(UNREPORTED)
    }

    /// The handle has taken the outcome, and the output with it.
    pub(crate) fn outcome_taken(&self) {
        self.remove(HANDLE | OUTPUT);
    }

    /// The caller drops the output, which the handle has left.
    pub(crate) fn output_dropped(&self) {
        self.remove(OUTPUT);
    }

    /// The join slot has been filled, and belongs to the ender from here on. Returns the
    /// word before: if it shows ENDED, no ender will read the slot.
    pub(crate) fn set_waiter(&self) -> Snapshot {
        self.add(WAITER)
    }

    /// Gives up the owning handle. Returns the word before: if it shows ENDED,
    /// the output is the caller's.
    pub(crate) fn drop_handle(&self) -> Snapshot {
        self.remove(HANDLE)
    }

    /// Takes the join slot back from the ender; returns the word before.
    pub(crate) fn take_waiter(&self) -> Snapshot {
        self.update(WordOf::Task, |st| {
            if st.ended() {
                (None, st)
            } else {
                (Some(st.0 & !WAITER), st)
            }
        })
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 32] = [
            "busy",
            "notified",
            "lazy",
            "cancelled",
            "origin",
            "guard",
            "drop-now",
            "cancel-deferred",
            "has-shares",
            "has-nodes",
            "has-joiners",
            "told",
            "drop-if-idle",
            "ended",
            "ended-failed",
            "ended-cancelled",
            "waiter",
            "handle",
            "parent-being-read",
            "was-dropped",
            "free",
            "free",
            "unreported",
            "interrupted",
            "body-done",
            "no-new-children",
            "output",
            "deadline",
            "cut-above",
            "cut-own",
            "free",
            "counted",
        ];
        let mut first = true;
        for (bit, name) in NAMES.iter().enumerate() {
            if self.0 & 1 << bit != 0 {
                if !first {
                    f.write_str(" | ")?;
                }
                first = false;
                f.write_str(name)?;
            }
        }
        if first {
            f.write_str("active")?;
        }
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn words_are_printed_not_numbers() {
        let st = Snapshot(BUSY | CANCELLED | ORIGIN);
        assert_eq!(format!("{st:?}"), "busy | cancelled | origin");
        assert_eq!(format!("{:?}", Snapshot(0)), "active");
        let st = Snapshot(GUARD | CANCEL_DEFERRED | DROP_NOW);
        assert_eq!(format!("{st:?}"), "guard | drop-now | cancel-deferred");
        assert_eq!(format!("{:?}", Snapshot(COUNTED)), "counted");
    }

    /// The unused bits.
    const FREE: u64 = 1 << 20 | 1 << 21 | 1 << 30 | 1 << 61 | 1 << 62 | 1 << 63;

    /// Bits that no step on the word reads.
    const NOISE: u64 = HAS_JOINERS | DROP_IF_IDLE | PARENT_BEING_READ | FREE | DROP_NOW;

    /// Takes a step from `from`, with and without other bits set, and returns
    /// its answer, the bits that it set and those that it cleared.
    fn step<R: PartialEq + fmt::Debug>(
        from: u64,
        step: impl Fn(&State) -> R,
    ) -> (R, Snapshot, Snapshot) {
        let [one, two] = [0, NOISE].map(|noise| {
            let before = from | noise;
            let state = State::new(before);
            let answer = step(&state);
            let after = state.load().0;
            (answer, Snapshot(after & !before), Snapshot(before & !after))
        });
        assert_eq!(one, two, "from {:?}", Snapshot(from));
        one
    }

    /// The result of [`step`] for a step that sets and clears these bits.
    fn did<R>(answer: R, set: u64, cleared: u64) -> (R, Snapshot, Snapshot) {
        (answer, Snapshot(set), Snapshot(cleared))
    }

    #[test]
    fn every_bit_has_a_place_of_its_own() {
        let bits = [
            BUSY,
            NOTIFIED,
            LAZY,
            CANCELLED,
            ORIGIN,
            GUARD,
            DROP_NOW,
            CANCEL_DEFERRED,
            HAS_SHARES,
            HAS_NODES,
            HAS_JOINERS,
            TOLD,
            DROP_IF_IDLE,
            ENDED,
            ENDED_FAILED,
            ENDED_CANCELLED,
            WAITER,
            HANDLE,
            PARENT_BEING_READ,
            WAS_DROPPED,
            UNREPORTED,
            INTERRUPTED,
            BODY_DONE,
            NO_NEW_CHILDREN,
            OUTPUT,
            DEADLINE,
            CUT_ABOVE,
            CUT_OWN,
            FREE,
            COUNTED,
            u64::from(TOLD_AT) << 32,
        ];
        assert_eq!(bits.iter().fold(0, |all, bit| all | bit), u64::MAX);
        assert_eq!(bits.iter().map(|bit| bit.count_ones()).sum::<u32>(), 64);
        assert_eq!(FREE.count_ones(), 6);
    }

    #[test]
    fn a_snapshot_answers_from_its_bits() {
        assert!(Snapshot(BUSY | GUARD).has(GUARD | LAZY));
        assert!(Snapshot(GUARD).has(GUARD));
        assert!(!Snapshot(BUSY | GUARD).has(LAZY | ENDED));
        for noise in [0, NOISE] {
            let ask = |bits, question: fn(Snapshot) -> bool| question(Snapshot(bits | noise));
            assert!(!ask(0, Snapshot::effective));
            assert!(ask(CANCELLED, Snapshot::effective));
            assert!(!ask(GUARD, Snapshot::effective));
            assert!(!ask(CANCELLED | GUARD, Snapshot::effective));
            assert!(!ask(GUARD, Snapshot::must_look));
            assert!(ask(CANCELLED | GUARD, Snapshot::must_look));
            assert!(ask(INTERRUPTED, Snapshot::must_look));
            assert!(ask(DEADLINE, Snapshot::must_look));
            assert!(ask(CANCELLED | BUSY | DEADLINE, Snapshot::is_alone));
            for company in [HAS_SHARES, HAS_NODES, GUARD, INTERRUPTED] {
                assert!(!ask(company, Snapshot::is_alone));
            }
            assert!(!ask(BODY_DONE, Snapshot::ended));
            assert!(ask(ENDED, Snapshot::ended));
            assert!(ask(ENDED | OUTPUT, Snapshot::has_completed_value));
            for not in [
                ENDED,
                OUTPUT,
                ENDED | OUTPUT | ENDED_CANCELLED,
                ENDED | OUTPUT | ENDED_FAILED,
            ] {
                assert!(!ask(not, Snapshot::has_completed_value));
            }
        }
    }

    #[test]
    fn bits_are_added_and_removed_and_the_word_before_is_told() {
        let state = State::new(BUSY | GUARD);
        assert_eq!(state.add(GUARD | DROP_NOW), Snapshot(BUSY | GUARD));
        assert_eq!(state.peek(), Snapshot(BUSY | GUARD | DROP_NOW));
        let before = Snapshot(BUSY | GUARD | DROP_NOW);
        assert_eq!(state.remove(DROP_NOW | LAZY), before);
        assert_eq!(state.load(), Snapshot(BUSY | GUARD));
    }

    #[test]
    fn a_mark_wakes_once_and_leaves_what_is_over() {
        use Marked::*;
        let task = |from| step(from, |state| state.mark(MarkFrom::Here, true));
        assert_eq!(task(CANCELLED), did(No, 0, 0));
        assert_eq!(task(ENDED), did(No, 0, 0));
        assert_eq!(task(GUARD), did(Deferred, CANCELLED | ORIGIN, 0));
        assert_eq!(task(GUARD | BUSY), did(Deferred, CANCELLED | ORIGIN, 0));
        assert_eq!(task(0), did(Claimed, CANCELLED | ORIGIN | BUSY, 0));
        assert_eq!(task(BUSY), did(Noted, CANCELLED | ORIGIN | NOTIFIED, 0));
        assert_eq!(task(BUSY | NOTIFIED), did(Noted, CANCELLED | ORIGIN, 0));
        assert_eq!(task(BUSY | LAZY), did(Claimed, CANCELLED | ORIGIN, LAZY));
        let scope = |from| step(from, |state| state.mark(MarkFrom::Above, false));
        assert_eq!(scope(0), did(Noted, CANCELLED, 0));
        assert_eq!(scope(GUARD), did(Deferred, CANCELLED, 0));
    }

    #[test]
    fn a_wake_is_pushed_noted_or_stale() {
        let claim = |from| step(from, State::claim);
        assert_eq!(claim(0), did(Claim::Push, BUSY, 0));
        assert_eq!(claim(BUSY), did(Claim::Leave, NOTIFIED, 0));
        assert_eq!(claim(BUSY | NOTIFIED), did(Claim::Leave, 0, 0));
        assert_eq!(claim(BUSY | BODY_DONE), did(Claim::Leave, 0, 0));
        let start = |from| step(from, State::start_lazy);
        assert_eq!(start(BUSY | LAZY), did(true, 0, LAZY));
        assert_eq!(start(BUSY), did(false, 0, 0));
        let park = |from| step(from, State::park);
        assert_eq!(park(BUSY), did(ParkAnswer::Parked, 0, BUSY));
        assert_eq!(park(BUSY | NOTIFIED), did(ParkAnswer::Again, 0, 0));
    }

    #[test]
    fn a_scope_is_given_up_by_one() {
        let go = |from| step(from, State::go_away);
        assert_eq!(go(LEFT), did(true, AWAY, 0));
        assert_eq!(go(AWAY), did(false, 0, 0));
        assert_eq!(go(BODY_DONE), did(false, 0, 0));
        let back = |from| step(from, State::come_back);
        assert_eq!(back(AWAY | LEFT), did(true, 0, AWAY));
        assert_eq!(back(AWAY | OWED), did(false, 0, 0));
        let leave = |from| step(from, |state| state.leave_behind().map(|st| st.has(LEFT)));
        assert_eq!(leave(0), did(Some(false), AWAY, 0));
        assert_eq!(leave(LEFT), did(Some(true), AWAY, 0));
        assert_eq!(leave(AWAY), did(None, OWED, 0));
        assert_eq!(leave(BODY_DONE), did(None, 0, 0));
        assert_eq!(leave(BODY_DONE | AWAY), did(None, 0, 0));
    }

    #[test]
    fn leaving_a_guard_wakes_as_the_mark_would_have() {
        use Marked::*;
        let enter = |from| step(from, State::enter_guard);
        assert_eq!(enter(0), did(true, GUARD, 0));
        assert_eq!(enter(GUARD), did(true, 0, 0));
        assert_eq!(enter(CANCELLED), did(false, 0, 0));
        let leave = |from| step(from, |state| state.leave_guard(true));
        assert_eq!(leave(BUSY), did(No, 0, 0));
        assert_eq!(leave(CANCELLED), did(No, 0, 0));
        assert_eq!(leave(GUARD), did(No, 0, GUARD));
        assert_eq!(leave(GUARD | ENDED), did(No, 0, GUARD));
        assert_eq!(leave(GUARD | CANCELLED | ENDED), did(No, 0, GUARD));
        assert_eq!(leave(GUARD | CANCELLED), did(Claimed, BUSY, GUARD));
        assert_eq!(leave(GUARD | CANCELLED | BUSY), did(Noted, NOTIFIED, GUARD));
    }

    #[test]
    fn a_job_is_told_once_and_only_of_a_mark_in_effect() {
        let tell = |from| step(from, |state| state.tell(5));
        assert_eq!(tell(0), did(false, 0, 0));
        assert_eq!(tell(CANCELLED | GUARD), did(false, 0, 0));
        assert_eq!(tell(CANCELLED), did(true, TOLD | 5 << 32, 0));
        assert_eq!(tell(CANCELLED | TOLD), did(false, 0, 0));
        assert_eq!(Snapshot(TOLD).told_for(0), Some(0));
    }

    #[test]
    fn an_interrupt_comes_before_the_end_of_the_body_or_not_at_all() {
        let interrupt = |from| step(from, State::interrupt);
        assert_eq!(interrupt(BUSY), did(true, INTERRUPTED, 0));
        assert_eq!(interrupt(INTERRUPTED), did(true, 0, 0));
        assert_eq!(interrupt(BODY_DONE), did(false, 0, 0));
        assert_eq!(interrupt(ENDED), did(false, 0, 0));
    }

    /// Every way to the end, by both functions. A mark that entered elsewhere
    /// has its reason elsewhere, and that reason must have been kept.
    #[test]
    fn an_end_is_one_step_and_waits_for_the_reason() {
        const END: u64 = ENDED | BUSY | BODY_DONE;
        let over = |from: u64, set: u64| {
            let (_, set, cleared) = did((), set & !from, 0);
            (Some(()), set, cleared)
        };
        for from in [0, BUSY, BUSY | BODY_DONE, OUTPUT] {
            for kept in [false, true] {
                for (mark, how) in [
                    (0, 0),
                    (CANCELLED | ORIGIN, ENDED_CANCELLED),
                    (CANCELLED, ENDED_CANCELLED),
                ] {
                    let from = from | mark;
                    let alone = step(from, |state| {
                        let after = state.end_alone(Remains::Output, kept)?;
                        assert_eq!(after, state.load());
                        Some(())
                    });
                    let [ended, failed] = [false, true].map(|failed| {
                        step(from, |state| {
                            let after = state.end(failed, false, kept)?;
                            assert_eq!(after, state.load());
                            Some(())
                        })
                    });
                    if mark == CANCELLED && !kept {
                        assert_eq!(alone, did(None, 0, 0));
                        assert_eq!(ended, did(None, 0, 0));
                        assert_eq!(failed, did(None, 0, 0));
                    } else {
                        assert_eq!(alone, over(from, END | OUTPUT | how));
                        assert_eq!(ended, over(from, END | how));
                        assert_eq!(failed, over(from, END | ENDED_FAILED));
                    }
                }
            }
        }
        for company in [HAS_SHARES, HAS_NODES, GUARD, INTERRUPTED, ENDED] {
            let alone = step(company, |state| state.end_alone(Remains::Nothing, true));
            assert_eq!(alone, did(None, 0, 0));
        }
    }

    #[test]
    fn the_handle_and_its_waiter_leave_by_the_word() {
        let before = |from| {
            let state = State::new(from);
            (state.take_waiter(), state.load())
        };
        let waits = HANDLE | WAITER;
        assert_eq!(before(waits), (Snapshot(waits), Snapshot(HANDLE)));
        assert_eq!(before(HANDLE), (Snapshot(HANDLE), Snapshot(HANDLE)));
        let ended = Snapshot(waits | ENDED);
        assert_eq!(before(ended.0), (ended, ended));
        let state = State::new(ended.0);
        assert_eq!(state.drop_handle(), ended);
        assert_eq!(state.load(), Snapshot(WAITER | ENDED));
    }

    /// The bits that each unconditional step sets and clears.
    #[test]
    fn a_named_step_changes_its_own_bits() {
        let lock = crate::base::sync::ByteLock::new();
        let locked = lock.lock();
        let locked = &locked;
        let tasks = BUSY | HANDLE | CANCELLED | ORIGIN;
        /// The word before, the step, the bits that it sets, the bits that it
        /// clears.
        type Step<'a> = (u64, &'a dyn Fn(&State), u64, u64);
        let steps: [Step<'_>; 24] = [
            (tasks | NOTIFIED, &|st| _ = st.begin_turn(), 0, NOTIFIED),
            (
                tasks,
                &|st| _ = st.body_over(Remains::Nothing),
                BODY_DONE,
                0,
            ),
            (
                tasks,
                &|st| _ = st.body_over(Remains::Output),
                BODY_DONE | OUTPUT,
                0,
            ),
            (
                tasks,
                &|st| _ = st.body_over(Remains::HalfWay),
                BODY_DONE | WAS_DROPPED,
                0,
            ),
            (0, &State::was_dropped, WAS_DROPPED, 0),
            (0, &|st| st.leave_body(locked), LEFT, 0),
            (tasks, &|st| _ = st.close(), NO_NEW_CHILDREN, 0),
            (tasks, &|st| _ = st.will_share(locked), HAS_SHARES, 0),
            (tasks, &|st| _ = st.publish_nodes(), HAS_NODES, 0),
            (tasks, &|st| _ = st.publish_joiner(), HAS_JOINERS, 0),
            (tasks, &State::drop_if_idle, DROP_IF_IDLE, 0),
            (tasks | DROP_IF_IDLE, &State::spare, 0, DROP_IF_IDLE),
            (tasks, &State::drop_now, DROP_NOW, 0),
            (0, &State::defer_cancel, CANCEL_DEFERRED, 0),
            (BUSY, &State::born_cancelled, CANCELLED, 0),
            (0, &|st| assert!(!st.watch_clock()), DEADLINE, 0),
            (0, &State::hint_interrupt, INTERRUPTED, 0),
            (tasks | INTERRUPTED, &State::interrupt_taken, 0, INTERRUPTED),
            (tasks, &|st| st.count(locked), COUNTED, 0),
            (
                tasks,
                &|st| st.child_cut_short(CutBy::OwnDeadline, locked),
                CUT_OWN,
                0,
            ),
            (tasks | OUTPUT, &State::outcome_taken, 0, HANDLE | OUTPUT),
            (tasks | OUTPUT, &State::output_dropped, 0, OUTPUT),
            (tasks, &|st| _ = st.set_waiter(), WAITER, 0),
            (UNREPORTED, &|st| assert!(st.take_report()), 0, UNREPORTED),
        ];
        for (from, step, set, cleared) in steps {
            let state = State::new(from);
            step(&state);
            let after = state.load().0;
            assert_eq!(
                (after & !from, from & !after),
                (set, cleared),
                "{:?}",
                Snapshot(set)
            );
        }
        let state = State::new(tasks);
        let read = state.read_parent(locked);
        assert_eq!(read.seen, Snapshot(tasks));
        assert_eq!(state.load(), Snapshot(tasks | PARENT_BEING_READ));
        drop(read);
        assert_eq!(state.load(), Snapshot(tasks));
    }

    /// For each rule: a word that keeps it, and steps that break it, by a missing bit
    /// and by an excluded one.
    #[test]
    fn a_step_that_breaks_a_rule_is_heard() {
        for rule in &RULES {
            let kept = with_needs(rule.of, rule.bit);
            assert!(broken(rule.of, 0, kept).is_none());
            for missing in bits_of(rule.needs) {
                assert!(broken(rule.of, 0, kept & !missing).is_some());
            }
            for excluded in bits_of(rule.excludes) {
                assert!(broken(rule.of, 0, kept | excluded).is_some());
            }
        }
        // A step that has not touched the bit breaks no rule.
        assert!(broken(WordOf::Either, ORIGIN, ORIGIN | BUSY).is_none());
        let heard = |step: fn()| crate::base::unwind::caught(step).is_err();
        assert_eq!(
            heard(|| State::new(OUTPUT).was_dropped()),
            cfg!(debug_assertions)
        );
        // The bits with two meanings, in steps that know whose word it is.
        assert!(broken(WordOf::Task, 0, LAZY | NOTIFIED).is_some());
        assert!(broken(WordOf::Scope, 0, LAZY | NOTIFIED).is_none());
        assert!(broken(WordOf::Scope, 0, OWED | LEFT).is_some());
        assert!(broken(WordOf::Task, 0, OWED | LEFT).is_none());
        assert_eq!(
            heard(|| _ = State::new(LAZY | BUSY).park()),
            cfg!(debug_assertions)
        );
        // And at birth.
        let born = |bits: u64, task| {
            crate::base::unwind::caught(move || _ = State::born(bits, task)).is_err()
        };
        assert_eq!(born(LAZY, true), cfg!(debug_assertions));
        assert_eq!(born(OWED, false), cfg!(debug_assertions));
        assert_eq!(born(TOLD, false), cfg!(debug_assertions));
        assert!(!born(LAZY | BUSY | HANDLE, true));
        assert!(!born(CANCELLED | TOLD | COUNTED, false));
    }

    /// These bits, those that they need, those that these need, and so on.
    fn with_needs(of: WordOf, bits: u64) -> u64 {
        let more = RULES
            .iter()
            .filter(|rule| rule.of == WordOf::Either || rule.of == of)
            .filter(|rule| bits & rule.bit != 0)
            .fold(bits, |all, rule| all | rule.needs);
        if more == bits {
            bits
        } else {
            with_needs(of, more)
        }
    }

    fn bits_of(bits: u64) -> impl Iterator<Item = u64> {
        (0..64)
            .map(|bit| 1 << bit)
            .filter(move |bit| bits & bit != 0)
    }

    /// No edge but the five of the diagram.
    #[test]
    fn tree_2_only_the_listed_edges_are_reachable() {
        for failed in [false, true] {
            for marked in [false, true] {
                let state = State::new(BUSY);
                if marked {
                    assert_eq!(state.mark(MarkFrom::Here, true), Marked::Noted);
                }
                let end = state.end(failed, false, true).expect("nothing to keep");
                assert!(end.ended());
                assert_eq!(end.has(ENDED_FAILED), failed);
                assert_eq!(end.has(ENDED_CANCELLED), marked && !failed);
                // Terminal is final.
                assert_eq!(state.mark(MarkFrom::Here, true), Marked::No);
                assert!(matches!(state.claim(), Claim::Leave));
                assert_eq!(state.load().has(CANCELLED), marked);
            }
        }
    }

    #[test]
    fn a_parked_task_is_claimed_by_the_mark() {
        let state = State::new(0);
        assert_eq!(state.mark(MarkFrom::Above, true), Marked::Claimed);
        assert!(matches!(state.claim(), Claim::Leave), "{:?}", state.load());
        assert_eq!(state.mark(MarkFrom::Above, true), Marked::No);
    }

    /// The bits count to six days; a tree lives longer.
    #[test]
    fn when_it_was_told_does_not_depend_on_the_age_of_the_tree() {
        for at in [0, 7, TOLD_AT - 1, TOLD_AT, TOLD_AT + 1, u32::MAX - 9] {
            let state = State::new(CANCELLED | ORIGIN);
            assert_eq!(state.load().told_for(at), None);
            assert!(state.tell(at));
            for later in [0, 1, 9, 70_000, 100_000, TOLD_AT - LEAD] {
                let now = at.wrapping_add(later);
                assert_eq!(state.load().told_for(now), Some(later));
                assert_eq!(millis_between(at, now), later);
            }
            for ahead in [1, 4, LEAD] {
                let now = at.wrapping_sub(ahead);
                assert_eq!(state.load().told_for(now), Some(0));
                assert_eq!(millis_between(at, now), 0);
            }
            // This is too far back to count as ahead.
            let now = at.wrapping_sub(LEAD + 1);
            assert_eq!(millis_between(at, now), u32::MAX - LEAD);
            assert!(!state.load().has(FREE));
        }
    }

    #[test]
    fn a_guard_holds_the_mark_back_until_it_is_left() {
        let state = State::new(0);
        assert!(state.enter_guard());
        assert_eq!(state.mark(MarkFrom::Here, true), Marked::Deferred);
        assert!(!state.load().effective());
        assert_eq!(state.leave_guard(true), Marked::Claimed);
        assert!(state.load().effective());
        assert!(!state.enter_guard());
    }
}
