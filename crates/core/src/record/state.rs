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
//! 1, 2, 4, 5: [`State::end`], once, by whoever saw the last of body and
//! children go. 3: [`State::mark`], by `cancel` or by a walk from above.
//! New (never polled), Completing (the body is over, children live) and
//! Waiting (parked) are views of Active; they are no states of their own.

use std::fmt;

use crate::base::sync::{AtomicU64, Ordering::*};

/// Tasks: queued, or being polled, or the body is over. Nobody may push the
/// task while it is set. Never cleared after the last turn.
pub(crate) const BUSY: u64 = 1 << 0;
/// Tasks: woken while BUSY. A turn clears it at its start and goes round again
/// if it is set at its end.
pub(crate) const NOTIFIED: u64 = 1 << 1;
/// The mark: this job has been cancelled.
pub(crate) const CANCELLED: u64 = 1 << 3;
/// The cancel entered the tree here; the reason is in this job's cold part.
pub(crate) const ENTRY: u64 = 1 << 4;
/// An ignore guard is held: the mark has no effect yet and the walk waits.
pub(crate) const GUARD: u64 = 1 << 5;
/// This scope is a shield: walks pass it by. Set before it is attached.
pub(crate) const SHIELD: u64 = 1 << 6;
/// This task is a service: walks pass it by, its parent's end marks it.
pub(crate) const SERVICE: u64 = 1 << 7;
/// A child or a lease was attached once. Childless jobs are cancelled and
/// ended without a look at their list.
pub(crate) const HAS_KIDS: u64 = 1 << 8;
/// Hooks or leaves under foreign wakers were published once.
pub(crate) const HAS_NODES: u64 = 1 << 9;
/// Observers registered for the end once.
pub(crate) const HAS_JOINERS: u64 = 1 << 10;
/// A point inside this job has said that it is cancelled; bits 32 to 60 say
/// when.
pub(crate) const TOLD: u64 = 1 << 11;
/// The next turn drops the future if it finds it idle.
pub(crate) const FORCE: u64 = 1 << 12;
/// Terminal. With neither FAILED nor STOPPED: completed.
pub(crate) const ENDED: u64 = 1 << 13;
/// Ended, failed.
pub(crate) const FAILED: u64 = 1 << 14;
/// Ended, cancelled.
pub(crate) const STOPPED: u64 = 1 << 15;
/// The join slot is filled and belongs to the ender.
pub(crate) const WAITER: u64 = 1 << 16;
/// The owning handle lives.
pub(crate) const HANDLE: u64 = 1 << 17;
/// Somebody reads `parent` from outside, under this job's lock.
pub(crate) const HOLD: u64 = 1 << 18;
/// Created lazy and not yet started: BUSY, but in no queue.
pub(crate) const LAZY: u64 = 1 << 19;
/// Polled at least once even if cancelled before.
pub(crate) const ATOMIC: u64 = 1 << 20;
/// Failures of child tasks touch nobody.
pub(crate) const SUPERVISOR: u64 = 1 << 21;
/// Failed under a supervisor, and the handle owes the report.
pub(crate) const UNREPORTED: u64 = 1 << 22;
/// A task: an interrupt has not been delivered. An inline scope: its task may
/// have one, ask it. Clear in a shield and in what is below it.
pub(crate) const INTERRUPTED: u64 = 1 << 23;
/// The body is over (tasks) or the poller is gone (scopes dropped half-way, or
/// left open by the body around them).
pub(crate) const BODY_DONE: u64 = 1 << 24;
/// `close` was called: no new children.
pub(crate) const SHUT: u64 = 1 << 25;
/// The cell holds a value that somebody must take or drop.
pub(crate) const OUTPUT: u64 = 1 << 26;
/// An inline scope: it has, or an inline scope around it in the same task has, a
/// deadline, or a shield's budget, that would be told to a point here. Only a
/// hint, *look at the clock*; never cleared. Clear in a shield without a budget,
/// and in tasks, which their parent's timer marks. Among the low bits, where a
/// point tests it together with the others.
pub(crate) const DEADLINE: u64 = 1 << 27;
/// A child was cut short by a cancellation from above this job.
pub(crate) const CUT_ABOVE: u64 = 1 << 28;
/// A child was cut short by this job's own deadline.
pub(crate) const CUT_OWN: u64 = 1 << 29;
// Bit 30 is free, and so is bit 2 in the word of a task.
/// Counts among the children its parent waits for (guarded by the parent's
/// lock): all but services and unstarted lazy tasks.
pub(crate) const COUNTED: u64 = 1 << 31;

/// The future was dropped before it was done: forced.
pub(crate) const FORCED: u64 = 1 << 61;
/// A shield that holds a cancel back.
pub(crate) const HELD: u64 = 1 << 62;
/// Shutdown's last step has come to it. The next turn of a task drops the future,
/// idle or not; no task is attached below the job, and what else is has it too.
pub(crate) const MUST: u64 = 1 << 63;

/// Scopes: the body is over, and its share of the count is given up. In the
/// place of BUSY: what only tasks have is free in the word of a scope.
pub(crate) const LEFT: u64 = BUSY;
/// Scopes: polled or dropped by another job than the one it belongs to, or
/// given up by the end of that job's body. In the place of NOTIFIED.
pub(crate) const AWAY: u64 = NOTIFIED;
/// Scopes: the body of the job it belongs to is gone while the scope is AWAY;
/// whoever has it there gives it up. Tasks have no bit in this place.
pub(crate) const OWED: u64 = 1 << 2;

/// What is kept of the time at which a job was told.
const TOLD_AT: u32 = u32::MAX >> 3;

/// By how much one thread's time may be ahead of another's, in milliseconds:
/// one has looked at the clock later, or at a finer one.
const LEAD: u32 = 60_000;

/// The milliseconds from `at` to `now`, as a tree counts them: round and round.
/// None of them if `at` is a little later.
pub(crate) fn millis_between(at: u32, now: u32) -> u32 {
    let millis = now.wrapping_sub(at);
    if millis > u32::MAX - LEAD { 0 } else { millis }
}

/// One look at the state word, with questions to ask it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Snapshot(pub(crate) u64);

impl Snapshot {
    pub(crate) fn has(self, bits: u64) -> bool {
        self.0 & bits != 0
    }

    /// Cancelled, and no guard holds it back: a point fails here.
    pub(crate) fn effective(self) -> bool {
        self.0 & (CANCELLED | GUARD) == CANCELLED
    }

    /// A point here has something to look into: a mark, perhaps held back, an
    /// interrupt, perhaps of somebody else, or a deadline, perhaps not yet due.
    pub(crate) fn must_look(self) -> bool {
        self.has(CANCELLED | INTERRUPTED | DEADLINE)
    }

    /// Never had a child, a lease, a hook or a foreign leaf, holds no guard,
    /// and has heard every interrupt.
    pub(crate) fn is_alone(self) -> bool {
        !self.has(HAS_KIDS | HAS_NODES | GUARD | INTERRUPTED)
    }

    pub(crate) fn ended(self) -> bool {
        self.has(ENDED)
    }

    /// Completed, and the value is there: asked before it is taken.
    #[inline]
    pub(crate) fn has_completed_value(self) -> bool {
        self.0 & (ENDED | FAILED | STOPPED | OUTPUT) == ENDED | OUTPUT
    }

    /// For how many milliseconds it has been told, by the clock of its tree, if
    /// that was at most six days before `now`. None at all if whoever told it
    /// has seen a later time than whoever asks.
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
    /// It was marked or over before.
    No,
    /// Marked behind a guard: nobody walks; the guard's exit will.
    Held,
    /// Marked; it was parked, and the caller now owns its next push.
    Claimed,
    /// Marked; it is running, queued or a scope.
    Noted,
}

/// What a [`State::claim`] did.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Claim {
    /// The caller must push it.
    Push,
    /// Somebody else has it or it is over; it will hear of the wake.
    Leave,
}

/// What a turn that ended Pending has to do.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Park {
    /// It is parked; do not touch it again.
    Parked,
    /// It was woken meanwhile: give it another turn.
    Again,
}

pub(crate) struct State(AtomicU64);

impl State {
    pub(crate) fn new(bits: u64) -> Self {
        State(AtomicU64::new(bits))
    }

    pub(crate) fn load(&self) -> Snapshot {
        Snapshot(self.0.load(Acquire))
    }

    /// For the fast path of points: pairs with nothing by itself. Whoever
    /// acts on a mark seen here loads again.
    pub(crate) fn peek(&self) -> Snapshot {
        Snapshot(self.0.load(Relaxed))
    }

    /// Sets bits that never race with a decision; gives the word before.
    pub(crate) fn add(&self, bits: u64) -> Snapshot {
        Snapshot(self.0.fetch_or(bits, AcqRel))
    }

    pub(crate) fn remove(&self, bits: u64) -> Snapshot {
        Snapshot(self.0.fetch_and(!bits, AcqRel))
    }

    /// The one compare-and-exchange loop: `f` gives the next word and an
    /// answer, or only an answer.
    #[inline]
    fn update<R>(&self, mut f: impl FnMut(Snapshot) -> (Option<u64>, R)) -> R {
        let mut now = self.0.load(Acquire);
        loop {
            let (next, answer) = f(Snapshot(now));
            let Some(next) = next else { return answer };
            match self.0.compare_exchange_weak(now, next, AcqRel, Acquire) {
                Ok(_) => return answer,
                Err(seen) => now = seen,
            }
        }
    }

    /// Arrow 3. Sets the mark and `bits`, and claims a parked task in the same
    /// step.
    pub(crate) fn mark(&self, bits: u64, task: bool) -> Marked {
        self.update(|st| {
            if st.has(CANCELLED | ENDED) {
                return (None, Marked::No);
            }
            let next = st.0 | CANCELLED | bits;
            if st.has(GUARD) {
                (Some(next), Marked::Held)
            } else {
                let (next, how) = Self::rouse(next, task);
                (Some(next), how)
            }
        })
    }

    /// The bits of waking a job whose mark takes effect now.
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

    /// A wake: who gets [`Claim::Push`] owns the task until it has pushed it.
    pub(crate) fn claim(&self) -> Claim {
        self.update(|st| {
            if st.has(BUSY) {
                if st.has(BODY_DONE) {
                    return (None, Claim::Leave);
                }
                // Written even if it is set already: what the waker did before
                // must be seen by the turn that clears it.
                (Some(st.0 | NOTIFIED), Claim::Leave)
            } else {
                (Some(st.0 | BUSY), Claim::Push)
            }
        })
    }

    /// Starts a lazy task: true for the one call that must push it.
    pub(crate) fn start_lazy(&self) -> bool {
        self.update(|st| {
            if st.has(LAZY) {
                (Some(st.0 & !LAZY), true)
            } else {
                (None, false)
            }
        })
    }

    /// The end of a turn that found the body Pending.
    pub(crate) fn park(&self) -> Park {
        self.update(|st| {
            if st.has(NOTIFIED) {
                (None, Park::Again)
            } else {
                (Some(st.0 & !BUSY), Park::Parked)
            }
        })
    }

    /// The future of a scope is about to be polled or dropped where the job it
    /// belongs to is not the current one. False if it has been left behind: then
    /// nothing of the job may be touched but its own cell.
    pub(crate) fn go_away(&self) -> bool {
        self.update(|st| {
            if st.has(BODY_DONE | AWAY) {
                (None, false)
            } else {
                (Some(st.0 | AWAY), true)
            }
        })
    }

    /// The end of such a poll. False if the body that the scope belongs to is
    /// gone meanwhile: it stays AWAY, and the caller gives it up.
    pub(crate) fn come_back(&self) -> bool {
        self.update(|st| {
            if st.has(OWED) {
                (None, false)
            } else {
                (Some(st.0 & !AWAY), true)
            }
        })
    }

    /// The body that an open scope belongs to is gone. The word before, if it is
    /// the caller who gives the scope up; none if its future was dropped, or is
    /// polled or dropped at this moment: whoever does that gives it up.
    pub(crate) fn leave_behind(&self) -> Option<Snapshot> {
        self.update(|st| {
            if st.has(BODY_DONE) {
                (None, None)
            } else if st.has(AWAY) {
                (Some(st.0 | OWED), None)
            } else {
                (Some(st.0 | AWAY), Some(st))
            }
        })
    }

    /// Enters an ignore guard; false if cancelled before.
    pub(crate) fn enter_guard(&self) -> bool {
        self.update(|st| {
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
        self.update(|st| {
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

    /// Told at `at`; true the first time.
    pub(crate) fn tell(&self, at: u32) -> bool {
        self.update(|st| {
            if st.has(TOLD) || !st.effective() {
                (None, false)
            } else {
                (Some(st.0 | TOLD | u64::from(at & TOLD_AT) << 32), true)
            }
        })
    }

    /// Asks for one Cancelled; false if the body is over.
    pub(crate) fn interrupt(&self) -> bool {
        self.update(|st| {
            if st.has(BODY_DONE | ENDED) {
                (None, false)
            } else {
                (Some(st.0 | INTERRUPTED), true)
            }
        })
    }

    /// Arrows 1, 2, 4 and 5: gives the word as it is from now on. None if a
    /// mark from above has come whose reason has not been kept yet.
    pub(crate) fn end(&self, failed: bool, extra: u64, reason_kept: bool) -> Option<Snapshot> {
        self.update(|st| {
            assert!(!st.ended(), "a job ended twice: {st:?}");
            if !reason_kept && st.has(CANCELLED) && !st.has(ENTRY) {
                return (None, None);
            }
            let how = if failed {
                FAILED
            } else if st.has(CANCELLED) {
                STOPPED
            } else {
                0
            };
            let next = st.0 | ENDED | BUSY | BODY_DONE | how | extra;
            (Some(next), Some(Snapshot(next)))
        })
    }

    /// The same for a body that is over and has never had a child, a lease, a
    /// hook or a foreign leaf, holds no guard and owes no interrupt: one step,
    /// without the lock.
    /// None if it has, or as for [`State::end`]; and if it has ended, which the
    /// long way does not forgive.
    pub(crate) fn end_alone(&self, bits: u64, reason_kept: bool) -> Option<Snapshot> {
        self.update(|st| {
            if !st.is_alone() || st.ended() || !reason_kept && st.has(CANCELLED) && !st.has(ENTRY) {
                return (None, None);
            }
            let how = if st.has(CANCELLED) { STOPPED } else { 0 };
            let next = st.0 | ENDED | BUSY | BODY_DONE | how | bits;
            (Some(next), Some(Snapshot(next)))
        })
    }

    /// Gives up the owning handle. The word before: if it shows ENDED, the
    /// output is the caller's.
    pub(crate) fn drop_handle(&self) -> Snapshot {
        self.remove(HANDLE)
    }

    /// Removes the join slot's owner bit; the word before.
    pub(crate) fn take_waiter(&self) -> Snapshot {
        self.update(|st| {
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
            "owed",
            "cancelled",
            "entry",
            "guard",
            "shield",
            "service",
            "has-kids",
            "has-nodes",
            "has-joiners",
            "told",
            "force",
            "ended",
            "failed",
            "stopped",
            "waiter",
            "handle",
            "hold",
            "lazy",
            "atomic",
            "supervisor",
            "unreported",
            "interrupted",
            "body-done",
            "shut",
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
        for (bit, name) in [(FORCED, "forced"), (HELD, "held"), (MUST, "must")] {
            if self.has(bit) {
                let between = if first { "" } else { " | " };
                first = false;
                write!(f, "{between}{name}")?;
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
        let st = Snapshot(BUSY | CANCELLED | ENTRY);
        assert_eq!(format!("{st:?}"), "busy | cancelled | entry");
        assert_eq!(format!("{:?}", Snapshot(0)), "active");
        let st = Snapshot(SHIELD | HELD | MUST);
        assert_eq!(format!("{st:?}"), "shield | held | must");
        assert_eq!(format!("{:?}", Snapshot(HELD)), "held");
        assert_eq!(
            format!("{:?}", Snapshot(DEADLINE | HELD)),
            "deadline | held"
        );
        assert_eq!(format!("{:?}", Snapshot(COUNTED)), "counted");
    }

    /// The place that no bit has.
    const FREE: u64 = 1 << 30;

    /// Bits that no step of the word looks at.
    const NOISE: u64 = SHIELD | SERVICE | HAS_JOINERS | FORCE | HOLD | ATOMIC | FREE | MUST;

    /// Takes a step from `from`, with and without other bits around, and says
    /// what it answered, which bits it set and which it cleared.
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

    /// What [`step`] says of a step that sets and clears these.
    fn did<R>(answer: R, set: u64, cleared: u64) -> (R, Snapshot, Snapshot) {
        (answer, Snapshot(set), Snapshot(cleared))
    }

    #[test]
    fn every_bit_has_a_place_of_its_own() {
        let bits = [
            BUSY,
            NOTIFIED,
            OWED,
            CANCELLED,
            ENTRY,
            GUARD,
            SHIELD,
            SERVICE,
            HAS_KIDS,
            HAS_NODES,
            HAS_JOINERS,
            TOLD,
            FORCE,
            ENDED,
            FAILED,
            STOPPED,
            WAITER,
            HANDLE,
            HOLD,
            LAZY,
            ATOMIC,
            SUPERVISOR,
            UNREPORTED,
            INTERRUPTED,
            BODY_DONE,
            SHUT,
            OUTPUT,
            FORCED,
            CUT_ABOVE,
            CUT_OWN,
            FREE,
            COUNTED,
            u64::from(TOLD_AT) << 32,
            DEADLINE,
            HELD,
            MUST,
        ];
        assert_eq!(bits.iter().fold(0, |all, bit| all | bit), u64::MAX);
        assert_eq!(bits.iter().map(|bit| bit.count_ones()).sum::<u32>(), 64);
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
            for company in [HAS_KIDS, HAS_NODES, GUARD, INTERRUPTED] {
                assert!(!ask(company, Snapshot::is_alone));
            }
            assert!(!ask(BODY_DONE, Snapshot::ended));
            assert!(ask(ENDED, Snapshot::ended));
            assert!(ask(ENDED | OUTPUT, Snapshot::has_completed_value));
            for not in [
                ENDED,
                OUTPUT,
                ENDED | OUTPUT | STOPPED,
                ENDED | OUTPUT | FAILED,
            ] {
                assert!(!ask(not, Snapshot::has_completed_value));
            }
        }
    }

    #[test]
    fn bits_are_added_and_removed_and_the_word_before_is_told() {
        let state = State::new(BUSY | GUARD);
        assert_eq!(state.add(GUARD | HOLD), Snapshot(BUSY | GUARD));
        assert_eq!(state.peek(), Snapshot(BUSY | GUARD | HOLD));
        assert_eq!(state.remove(HOLD | LAZY), Snapshot(BUSY | GUARD | HOLD));
        assert_eq!(state.load(), Snapshot(BUSY | GUARD));
    }

    #[test]
    fn a_mark_wakes_once_and_leaves_what_is_over() {
        use Marked::*;
        let task = |from| step(from, |state| state.mark(ENTRY, true));
        assert_eq!(task(CANCELLED), did(No, 0, 0));
        assert_eq!(task(ENDED), did(No, 0, 0));
        assert_eq!(task(GUARD), did(Held, CANCELLED | ENTRY, 0));
        assert_eq!(task(GUARD | BUSY), did(Held, CANCELLED | ENTRY, 0));
        assert_eq!(task(0), did(Claimed, CANCELLED | ENTRY | BUSY, 0));
        assert_eq!(task(BUSY), did(Noted, CANCELLED | ENTRY | NOTIFIED, 0));
        assert_eq!(task(BUSY | NOTIFIED), did(Noted, CANCELLED | ENTRY, 0));
        assert_eq!(task(BUSY | LAZY), did(Claimed, CANCELLED | ENTRY, LAZY));
        let scope = |from| step(from, |state| state.mark(0, false));
        assert_eq!(scope(0), did(Noted, CANCELLED, 0));
        assert_eq!(scope(GUARD), did(Held, CANCELLED, 0));
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
        assert_eq!(park(BUSY), did(Park::Parked, 0, BUSY));
        assert_eq!(park(BUSY | NOTIFIED), did(Park::Again, 0, 0));
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

    /// Every way into the end, by both doors. A mark that entered elsewhere
    /// has its reason elsewhere, and that must have been kept.
    #[test]
    fn an_end_is_one_step_and_waits_for_the_reason() {
        const END: u64 = ENDED | BUSY | BODY_DONE;
        let over = |from: u64, set: u64| {
            let (_, set, cleared) = did((), set & !from, 0);
            (Some(()), set, cleared)
        };
        for from in [0, BUSY, BUSY | BODY_DONE, OUTPUT] {
            for kept in [false, true] {
                for (mark, how) in [(0, 0), (CANCELLED | ENTRY, STOPPED), (CANCELLED, STOPPED)] {
                    let from = from | mark;
                    let alone = step(from, |state| {
                        let after = state.end_alone(OUTPUT, kept)?;
                        assert_eq!(after, state.load());
                        Some(())
                    });
                    let [ended, failed] = [false, true].map(|failed| {
                        step(from, |state| {
                            let after = state.end(failed, OUTPUT, kept)?;
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
                        assert_eq!(ended, over(from, END | OUTPUT | how));
                        assert_eq!(failed, over(from, END | OUTPUT | FAILED));
                    }
                }
            }
        }
        for company in [HAS_KIDS, HAS_NODES, GUARD, INTERRUPTED, ENDED] {
            let alone = step(company, |state| state.end_alone(0, true));
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

    /// No edge but the five of the diagram.
    #[test]
    fn tree_2_only_the_listed_edges_are_reachable() {
        for failed in [false, true] {
            for marked in [false, true] {
                let state = State::new(BUSY);
                if marked {
                    assert_eq!(state.mark(ENTRY, true), Marked::Noted);
                }
                let end = state.end(failed, 0, true).expect("nothing to keep");
                assert!(end.ended());
                assert_eq!(end.has(FAILED), failed);
                assert_eq!(end.has(STOPPED), marked && !failed);
                // Terminal is final.
                assert_eq!(state.mark(ENTRY, true), Marked::No);
                assert!(matches!(state.claim(), Claim::Leave));
                assert_eq!(state.load().has(CANCELLED), marked);
            }
        }
    }

    #[test]
    fn a_parked_task_is_claimed_by_the_mark() {
        let state = State::new(0);
        assert_eq!(state.mark(0, true), Marked::Claimed);
        assert!(matches!(state.claim(), Claim::Leave), "{:?}", state.load());
        assert_eq!(state.mark(0, true), Marked::No);
    }

    /// The word has room for six days; a tree lives longer.
    #[test]
    fn when_it_was_told_does_not_depend_on_the_age_of_the_tree() {
        for at in [0, 7, TOLD_AT - 1, TOLD_AT, TOLD_AT + 1, u32::MAX - 9] {
            let state = State::new(CANCELLED | ENTRY);
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
            // No longer taken for one that is ahead.
            let now = at.wrapping_sub(LEAD + 1);
            assert_eq!(millis_between(at, now), u32::MAX - LEAD);
            assert!(!state.load().has(FORCED | HELD | MUST));
        }
    }

    #[test]
    fn a_guard_holds_the_mark_back_until_it_is_left() {
        let state = State::new(0);
        assert!(state.enter_guard());
        assert_eq!(state.mark(ENTRY, true), Marked::Held);
        assert!(!state.load().effective());
        assert_eq!(state.leave_guard(true), Marked::Claimed);
        assert!(state.load().effective());
        assert!(!state.enter_guard());
    }
}
