//! Turns: the right to poll a task, one poll of it, and the steps that follow.

use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};

use crate::base::error::Error;
use crate::base::observe::{EventKind, Interests};
use crate::base::priority::Priority;
use crate::base::reason::ReasonKind;
use crate::base::unwind::{caught, contained};
use crate::engine::context;
use crate::engine::end::{self, BodyEnd};
use crate::engine::guard;
use crate::engine::interrupts;
use crate::engine::rows::{MarkedRows, Turn, TurnRow};
use crate::engine::tree::{ForcedDrop, Shared};
use crate::engine::untaken;
use crate::engine::waker;
use crate::engine::walk::{self, Why};
use crate::record::cell::{self, PolledBody};
use crate::record::header::Header;
use crate::record::state::{self, ParkAnswer, Remains, Snapshot};

impl Turn {
    /// Polls the task once. If the task was woken meanwhile, the answer is its
    /// next turn, which the host queues behind the others.
    ///
    /// # Panics
    /// If the lane of the task has one thread, and this is another.
    #[inline]
    #[must_use = "a task that is not run never ends"]
    pub fn run(self) -> Option<Turn> {
        if !self.may_run_here() {
            wrong_thread(&self);
        }
        // SAFETY: a turn owns its task: BUSY, linked, alive.
        let h = unsafe { &*self.take() };
        if h.is_timed() {
            // SAFETY: its turn was ours.
            return unsafe { run_timed(h) };
        }
        // SAFETY: as above.
        unsafe { run_one(h) }
    }

    #[inline]
    fn may_run_here(&self) -> bool {
        !self.header().lane_mark().has_home() || self.is_home()
    }

    fn is_home(&self) -> bool {
        // SAFETY: a turn owns its task, which has not ended, or holds its root open.
        unsafe { self.header().tree() }.turns_here(self.lane())
    }

    /// A waker of the task, for hosts of tests that make spurious wake-ups.
    pub fn waker(&self) -> Waker {
        Waker::clone(&waker::borrowed(self.header()))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.may_run_here() {
            // The future may not be touched on this thread. It is leaked, and
            // its job stays in the tree: an end is never faked.
            return;
        }
        let _lane = context::on_lane(self.header().lane_mark());
        let h = self.header();
        // SAFETY: a turn owns its task. The tree is read before the task ends.
        let timed = h.is_timed().then(|| unsafe { h.tree() }.handle());
        // SAFETY: the turn is ours.
        unsafe { abandon(h) };
        if let Some(tree) = timed {
            tree.shared().timed_turn_over();
        }
    }
}

#[cold]
fn wrong_thread(turn: &Turn) -> ! {
    panic!(
        "a turn of the lane {} was to be taken on another thread: {turn:?}",
        turn.lane()
    )
}

/// Gives a task one turn, on its lane.
///
/// # Safety
/// The caller owns this turn (H5).
unsafe fn run_one(h: &Header) -> Option<Turn> {
    let _lane = context::on_lane(h.lane_mark());
    // SAFETY: passed on.
    if unsafe { take_turn(h) } != Poll::Ready(ParkAnswer::Again) {
        return None;
    }
    // SAFETY: BUSY was kept, so it has not ended, and the next turn is ours.
    // Noticed by `yield_while_woken_and_cancelled`.
    Some(unsafe { Turn::new(h) })
}

/// Gives a turn to a task of a factory timer, whose turns are counted.
///
/// # Safety
/// As for [`run_one`].
#[cold]
unsafe fn run_timed(h: &Header) -> Option<Turn> {
    // SAFETY: the turn is the caller's. The handle is taken first: the task may
    // end in the turn.
    let tree = unsafe { h.tree() }.handle();
    // SAFETY: passed on.
    let again = unsafe { run_one(h) };
    if again.is_none() {
        tree.shared().timed_turn_over();
    }
    again
}

/// Hands a claimed task to its host.
///
/// # Safety
/// The caller owns the task's next push (H5), and does not touch the task after
/// it.
pub(crate) unsafe fn push_claimed(h: &Header) {
    // SAFETY: passed on; claimed, so it has not ended.
    unsafe {
        let tree = h.tree();
        let _held = tree.held();
        push_claimed_below(tree, h);
    }
}

/// Hands a claimed task to its host, for a caller that keeps the tree alive.
///
/// # Safety
/// As for [`push_claimed`]; `tree` is the task's, and lives until this returns.
#[inline]
pub(crate) unsafe fn push_claimed_below(tree: &Shared, h: &Header) {
    if tree.wants(Interests::TURNS) {
        tree.tell_of_wake(h.id);
    }
    // SAFETY: passed on.
    unsafe { start_turn(tree, h) };
}

/// Hands a single turn to the host: the first, one that only ends the job, or that
/// of a task that was woken alone.
///
/// # Safety
/// As for [`push_claimed_below`].
#[inline]
pub(crate) unsafe fn start_turn(tree: &Shared, h: &Header) {
    if h.is_timed() {
        tree.timed_turns(1);
    }
    // SAFETY: the turn is the caller's.
    tree.host.start(unsafe { Turn::new(h) });
}

/// Hands claimed tasks of one tree to their host.
///
/// # Safety
/// As for [`push_claimed`], for each of them.
pub(crate) unsafe fn dispatch(tree: &Shared, marked: MarkedRows) {
    let _held = tree.held();
    for ready in [marked.pool, marked.main] {
        if !ready.is_empty() {
            // SAFETY: passed on.
            unsafe { hand_over(tree, ready) };
        }
    }
    if !marked.others.is_empty() {
        // SAFETY: passed on.
        unsafe { dispatch_others(tree, marked.others) };
    }
}

/// Hands over the turns of the pool in two rows, one of high and one of low priority, and
/// those of pinned lanes one by one.
///
/// # Safety
/// As for [`dispatch`].
#[cold]
unsafe fn dispatch_others(tree: &Shared, mut others: TurnRow) {
    let (mut high, mut low) = (TurnRow::new(), TurnRow::new());
    while let Some(h) = others.pop() {
        // SAFETY: H5, the task is the caller's until the push. Each goes into one
        // row, or to the host.
        unsafe {
            match (*h).lane_mark().pool_priority() {
                Some(Priority::High) => high.push(&*h),
                Some(Priority::Low) => low.push(&*h),
                _ => push_claimed_below(tree, &*h),
            }
        }
    }
    for ready in [high, low] {
        if !ready.is_empty() {
            // SAFETY: passed on.
            unsafe { hand_over(tree, ready) };
        }
    }
}

/// # Safety
/// As for [`dispatch`].
unsafe fn hand_over(tree: &Shared, mut ready: TurnRow) {
    if ready.len() == 1 {
        while let Some(h) = ready.pop() {
            // SAFETY: H5, ours until the push.
            unsafe { push_claimed_below(tree, &*h) };
        }
        return;
    }
    if tree.wants(Interests::TURNS) {
        let mut next = ready.head;
        for n in 0..ready.len() {
            // SAFETY: H5, ours until the push.
            let h = unsafe { &*next };
            tree.tell_of_wake(h.id);
            if n + 1 < ready.len() {
                // SAFETY: as above.
                next = unsafe { h.run.get() };
            }
        }
    }
    if ready.timed > 0 {
        tree.timed_turns(ready.timed);
    }
    tree.host.schedule(ready);
}

/// Polls a task once. `TurnRow(Parked)`: the caller does not touch the task again.
/// `TurnRow(Again)`: the caller pushes it. `Pending`: the body is over, and the
/// caller does not touch the task again.
///
/// Long because it is one turn from its claim to its park, in the order of its steps.
///
/// # Safety
/// The caller owns this turn (H5).
#[inline(always)]
unsafe fn take_turn(h: &Header) -> Poll<ParkAnswer> {
    // SAFETY: a task with a turn has not ended, or its root is held open.
    let tree = unsafe { h.tree() };
    let mut st = h.state.load();
    if st.has(state::BODY_DONE) {
        // The last lease closed the job and left its end to a turn.
        // SAFETY: passed on.
        unsafe { end_or_drop_output(h, st) };
        return Poll::Pending;
    }
    if st.has(state::NOTIFIED) {
        st = h.state.begin_turn();
    }
    let millis = tree.millis_of_poll(st, false);
    let entered = context::begin_turn(h, waker::vtable(), millis, tree.budget);
    if st.has(state::DROP_NOW)
        || (st.must_look() && h.polls.load(Relaxed) == 0 && never_starts(h, st))
    {
        // SAFETY: this turn is ours.
        let over = unsafe { drop_instead(tree, h) };
        drop(entered);
        end::body_over(h, over);
        return Poll::Pending;
    }
    h.begin_poll(st, millis);
    let shows_turns = tree.wants(Interests::TURNS.and(Interests::WAITS));
    if shows_turns {
        tree.tell_of_turn(h, h.polls.load(Relaxed) == 1);
    }
    let own = waker::borrowed(h);
    let mut cx = Context::from_waker(&own);
    let mut error = None;
    // SAFETY: C1, this turn is ours.
    let polled = caught(|| unsafe { (h.vtable.poll)(h, &mut cx, &mut error) });
    if shows_turns {
        let waits = matches!(polled, Ok(PolledBody::Pending)) && !context::goes_round();
        tree.tell_of_turns_end(h, waits);
    }
    let over = match polled {
        Ok(PolledBody::Value) => {
            // The error is empty: skipping its drop saves a check.
            std::mem::forget(error);
            drop(entered);
            if h.lane_mark().has_home() && cell::output_needs_drop(h) {
                // SAFETY: its body has just ended, so the task has not.
                unsafe { untaken::keep_home(h) };
            }
            end::body_returned(h, Remains::Output);
            return Poll::Pending;
        }
        Ok(PolledBody::Pending) => {
            std::mem::forget(error);
            // SAFETY: this turn is ours.
            if !unsafe { drop_if_idle(tree, h) } {
                let again = context::goes_round();
                drop(entered);
                // BUSY stays set: the task already owns its next turn.
                let park = if again {
                    ParkAnswer::Again
                } else {
                    h.state.park()
                };
                // A parked task may have ended by now, and the tree with it.
                if park == ParkAnswer::Again && tree.wants(Interests::TURNS) {
                    let by = again.then_some(h.id);
                    tree.emit(h.id, EventKind::Scheduled { by });
                }
                return Poll::Ready(park);
            }
            // SAFETY: this turn is ours.
            unsafe { drop_half_way(tree, h) }
        }
        Ok(PolledBody::Failed) => BodyEnd::Failed(
            error.unwrap_or_else(|| unreachable!("job {} failed without an error", h.id)),
        ),
        Err(payload) => {
            // SAFETY: C1; a future that panicked is dropped, never polled again.
            contained(|| unsafe { (h.vtable.drop_future)(h) });
            BodyEnd::Failed(Error::panicked(payload))
        }
    };
    drop(entered);
    end::body_over(h, over);
    Poll::Pending
}

/// A turn of a job whose body is over: made to end the job, or, if it has
/// ended, to drop the output that its handle did not take.
///
/// # Safety
/// The caller owns this turn (H5), and does not touch the job after it.
#[cold]
#[inline(never)]
unsafe fn end_or_drop_output(h: &Header, st: Snapshot) {
    if st.ended() {
        // SAFETY: passed on.
        unsafe { untaken::drop_at_home(h) };
    } else {
        end::end_chain(h);
    }
}

/// Drops the future in a turn that does not poll it: because the task never
/// starts, or because it is dropped by force.
///
/// # Safety
/// The caller owns this turn (H5), and has not polled the future in it.
#[cold]
unsafe fn drop_instead(tree: &Shared, h: &Header) -> BodyEnd {
    mark_if_forced(tree, h);
    if h.polls.load(Relaxed) > 0 {
        // SAFETY: passed on.
        return unsafe { drop_half_way(tree, h) };
    }
    // SAFETY: C1, this turn is the caller's.
    match caught(|| context::half_way(|| unsafe { (h.vtable.drop_future)(h) })) {
        Ok(()) => BodyEnd::Unpolled,
        Err(payload) => BodyEnd::Failed(Error::panicked(payload)),
    }
}

/// Drops a future that was polled and has not completed.
///
/// # Safety
/// The caller owns this turn (H5).
#[cold]
unsafe fn drop_half_way(tree: &Shared, h: &Header) -> BodyEnd {
    mark_if_forced(tree, h);
    let seen = ForcedDrop::look_at(tree, h);
    // SAFETY: C1, this turn is the caller's.
    match caught(|| context::half_way(|| unsafe { (h.vtable.drop_future)(h) })) {
        Ok(()) => {
            tree.note_forced(seen);
            BodyEnd::Forced
        }
        Err(payload) => BodyEnd::Failed(Error::panicked(payload)),
    }
}

/// The future of `h` is about to be dropped: a task that is dropped by force is
/// marked first.
fn mark_if_forced(tree: &Shared, h: &Header) {
    let st = h.state.load();
    if st.has(state::DROP_NOW) && !st.effective() {
        mark_forced(tree, h);
    }
}

/// Marks a task that is dropped by force: it ends cancelled, even if a shield, a
/// guard or being a service has protected it. A turn may run before `force_all`
/// has reached its task, and then marks the task itself.
pub(crate) fn mark_forced(tree: &Shared, job: &Header) {
    guard::lapse(job);
    walk::cancel(job, Why::new(tree.why_forced(), job.site()));
}

/// The first turn of a task that was cancelled or interrupted before it.
#[cold]
fn never_starts(h: &Header, st: Snapshot) -> bool {
    !h.is_atomic() && (st.effective() || interrupts::never_starts(h))
}

/// A poll left the body pending. True if the body must be dropped now: its
/// patience has run out, and it is still idle. If it is idle and patience has
/// not run out, a later look is scheduled.
///
/// # Safety
/// The caller polls `h`.
#[inline(always)]
unsafe fn drop_if_idle(tree: &Shared, h: &Header) -> bool {
    let st = h.state.load();
    st.has(state::DROP_NOW | state::CANCELLED | state::DROP_IF_IDLE)
        // SAFETY: passed on.
        && (st.has(state::DROP_NOW) || unsafe { drop_cancelled_if_idle(tree, h, st) })
}

/// The same check for a job that is cancelled and not dropped by force: a scope
/// is dropped with its task.
///
/// # Safety
/// The caller polls `h`.
#[inline(never)]
pub(crate) unsafe fn drop_cancelled_if_idle(tree: &Shared, h: &Header, st: Snapshot) -> bool {
    if !st.effective() || !h.no_wait_of_ours() {
        if st.has(state::DROP_IF_IDLE) {
            // The body has progressed: its next foreign await is another one.
            h.state.spare();
        }
        return false;
    }
    // SAFETY: passed on.
    st.has(state::DROP_IF_IDLE) || unsafe { tree.sweeper.found_idle(tree, h) }
}

/// The host dropped the turn: the future is dropped and the job ends.
///
/// # Safety
/// The caller owns the task's turn and will not run it.
unsafe fn abandon(h: &Header) {
    let st = h.state.load();
    if st.has(state::BODY_DONE) {
        // SAFETY: passed on.
        return unsafe { end_or_drop_output(h, st) };
    }
    let site = std::panic::Location::caller();
    walk::cancel(h, Why::new(ReasonKind::HostGone, site));
    let own = waker::borrowed(h);
    // SAFETY: not ended: its turn is ours.
    let tree = unsafe { h.tree() };
    tree.note_forced(ForcedDrop::look_at(tree, h));
    let over = {
        let _entered = context::enter(h, &own);
        // SAFETY: C1, this turn is ours.
        match caught(|| context::half_way(|| unsafe { (h.vtable.drop_future)(h) })) {
            Ok(()) => BodyEnd::Unpolled,
            Err(payload) => BodyEnd::Failed(Error::panicked(payload)),
        }
    };
    end::body_over(h, over);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::lane::Lane;
    use crate::engine::host::{BlockingCall, Host, TimerKey, TimerQueue};
    use crate::engine::rows::PART;
    use crate::engine::tree::{Tree, TreeOptions};
    use std::fmt;
    use std::sync::{Arc, Mutex};
    use std::time::Instant;

    /// Keeps the rows as it gets them.
    #[derive(Clone, Default)]
    struct Rows(Arc<Mutex<Vec<TurnRow>>>);

    impl Rows {
        fn take(&self) -> Vec<TurnRow> {
            std::mem::take(&mut self.0.lock().expect("not poisoned"))
        }

        fn run(&self) {
            loop {
                let rows = self.take();
                if rows.is_empty() {
                    return;
                }
                for turn in rows.into_iter().flatten() {
                    assert!(turn.run().is_none());
                }
            }
        }
    }

    impl Host for Rows {
        fn start(&self, turn: Turn) {
            let mut row = TurnRow::new();
            row.push_back(turn);
            self.schedule(row);
        }

        fn schedule(&self, ready: TurnRow) {
            self.0.lock().expect("not poisoned").push(ready);
        }

        fn now(&self) -> Instant {
            Instant::now()
        }

        fn set_timer(&self, at: Instant, waker: Waker) -> TimerKey {
            TimerQueue::new().insert(at, waker)
        }

        fn clear_timer(&self, _: TimerKey) -> Option<Waker> {
            None
        }

        fn run_blocking(&self, call: BlockingCall) {
            drop(call);
        }
    }

    /// The error of a body whose sources can be looked at once.
    #[derive(Debug, Default)]
    struct Wicked(std::sync::atomic::AtomicBool);

    impl fmt::Display for Wicked {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("wicked")
        }
    }

    impl std::error::Error for Wicked {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            if self.0.swap(true, Relaxed) {
                std::panic::resume_unwind(Box::new("no source"));
            }
            None
        }
    }

    /// Whether or not a panic comes out of a turn, the depth of `spawn_now` is
    /// what it was.
    #[test]
    fn handle_3_a_turn_that_unwinds_leaves_no_depth() {
        let host = Rows::default();
        let options = TreeOptions {
            failure_hook: None,
            ..TreeOptions::default()
        };
        let tree = Tree::new(Box::new(host.clone()), options);
        // The root is a supervisor: tasks that fail affect no other.
        let s = tree.root_scope();
        let seen = Arc::new(Mutex::new(false));
        let job = tree.root_scope().launch(async move {
            for _ in 0..20 {
                let failing = s.task("fails");
                let _ =
                    caught(|| drop(failing.spawn_now(async { Err::<(), _>(Wicked::default()) })));
            }
            let ran = seen.clone();
            let now = s.task("now").spawn_now(async move {
                *ran.lock().expect("not poisoned") = true;
            });
            assert!(*seen.lock().expect("not poisoned"), "it was queued");
            drop(now);
        });
        host.run();
        assert_eq!(job.state(), crate::JobState::Completed);
    }

    /// A tree of parked tasks, cancelled: the row that the cancel woke.
    fn cancelled(tasks: usize) -> (Tree, Rows, TurnRow) {
        let host = Rows::default();
        let tree = Tree::new(Box::new(host.clone()), TreeOptions::default());
        for _ in 0..tasks {
            tree.root_scope().launch(async { crate::park().await });
        }
        host.run();
        tree.request_shutdown(ReasonKind::Shutdown);
        let mut rows = host.take();
        assert_eq!(rows.len(), 1);
        (tree, host, rows.remove(0))
    }

    fn run_and_end(tree: Tree, host: &Rows, rows: impl IntoIterator<Item = TurnRow>) {
        host.0.lock().expect("not poisoned").extend(rows);
        host.run();
        assert!(tree.root_job().is_ended(), "{}", tree.snapshot());
    }

    #[test]
    fn what_one_cancel_woke_comes_out_in_parts() {
        let (tree, host, mut row) = cancelled(2 * PART + 22);
        assert!(row.is_in_parts());
        let parts = [1, 10, 10].map(|most| row.split_front(most));
        assert_eq!(parts.each_ref().map(TurnRow::len), [PART, PART, 22]);
        assert!(row.is_empty());
        // A part has forgotten where it ends; it can still grow.
        let [mut first, second, third] = parts;
        assert!(!first.is_in_parts());
        first.append(second);
        assert_eq!(first.len(), 2 * PART);
        run_and_end(tree, &host, [first, third]);
    }

    #[test]
    fn a_row_that_was_changed_is_not_in_parts() {
        let (tree, host, mut row) = cancelled(3 * PART);
        let part = row.split_front(1);
        assert!(row.is_in_parts(), "the rest still is");
        let one = row.next().expect("one");
        assert!(one.is_for(one.lane()) && !one.is_for(Lane::Main) && !one.is_for(Lane::Pinned(0)));
        assert!(!row.is_in_parts());
        let ten = row.split_front(10);
        assert_eq!((ten.len(), row.len()), (10, 2 * PART - 11));
        row.push_back(one);
        row.append(part);
        assert_eq!(row.len(), 3 * PART - 10);
        run_and_end(tree, &host, [ten, row]);
    }
}
