//! What the two sides of a channel share, and the three things that happen to it: a
//! value is offered, a value is taken, a side closes.
//!
//! The buffer has two ends, each under a lock of its own: senders put values in at the back,
//! receivers take them out at the front, and as long as that is all, neither side meets the
//! other one. Everything else happens under both locks, the front's taken first: [`BothEnds`]. When
//! they are let go, each end is told whether its side may go on alone ([`Back::alone`],
//! [`Front::alone`]). So whatever waits, and what is done for it, is seen as if there were one
//! lock, and a hand-over and a cancel exclude each other.
//!
//! Behind both locks stand two lines. A waiting sender has its value with it
//! in its future, beside its waiter: an [`Offer`]. Room that becomes free is given to the
//! first of them at once, by moving its value into the buffer; so no newcomer takes it.
//!
//! A receiver that is woken gets no value, but the right to one: `promised` counts those
//! rights, and a new receiver takes only what was not promised. It takes the value
//! itself, when it is polled. If it is told or dropped first, the right passes on to the
//! next in line, and the value has not moved: it cannot be lost, and keeps its place.
//!
//! In a rendezvous a promise can be broken: the sender whose value it was for may be told
//! before the receiver is polled. That one then goes back to the front of the line.
//!
//! Invariants, whenever both locks are free:
//! - receivers wait only if every value is promised;
//! - senders wait only if the buffer is full, or in a rendezvous;
//! - a closed channel has no waiting sender, and a closed and empty one no waiting
//!   receiver;
//! - the back is alone only if no receiver waits, no hook is set and the channel is open and no
//!   rendezvous: a value that comes is promised to no receiver;
//! - the front is alone only if nothing is promised and no sender waits: a value that goes
//!   makes room that no sender waits for.
//!
//! A receiver that found nothing at the front alone looks again under both locks before it
//! stands in line, and so does a sender that found no room: what came meanwhile is seen then,
//! and what comes later finds the end not alone.

use std::borrow::Cow;
use std::panic::Location;
use std::sync::Arc;
use std::task::{Wake, Waker};

use kinfolk_core::host::Contained;
use kinfolk_core::kit::{Resource, ResourceLook};

use super::buffer::{Buffer, Cursor, ValueBlock};
use crate::line::{Line, Waiter, WaiterStage, Wakes, let_go, wake_one};
use crate::seen::SeenAs;
use crate::sync::{AtomicUsize, Lock, LockGuard, Ordering, Plain};

/// A value that waits to be sent, in the future that sends it.
#[repr(C)]
pub(super) struct Offer<T> {
    /// First: the line knows the waiter, and the channel what stands around it.
    pub(super) waiter: Waiter,
    /// By rule L2 of the line, like the links of the waiter.
    pub(super) value: Plain<Option<Contained<T>>>,
}

// SAFETY: by rule L2 one thread at a time touches the value, which is sent then.
unsafe impl<T: Send> Send for Offer<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Offer<T> {}

/// Where values are put in.
struct Back<T> {
    cursor: Cursor<T>,
    /// A value may be put in, if there is room, without a look at the other side.
    alone: bool,
}

/// Where values are taken out; and what is touched under both locks alone.
struct Front<T> {
    cursor: Cursor<T>,
    /// A value may be taken, if there is one, without a look at the other side.
    alone: bool,
    /// Written under both locks, and read under this one.
    closed: bool,
    senders: Line,
    receivers: Line,
    /// How many receivers were woken, and have neither taken a value nor left.
    promised: usize,
    /// Called when there is something to receive and no receiver waits.
    on_ready: Option<Waker>,
}

/// An end of the buffer, apart from the other one in memory: a thread that uses it does not
/// take the cache line of the other end away from another thread.
#[repr(align(128))]
struct BufferEnd<S> {
    lock: Lock<S>,
    /// How many values have passed it, for the other end.
    passed: AtomicUsize,
}

impl<S> BufferEnd<S> {
    fn new(state: S) -> BufferEnd<S> {
        BufferEnd {
            lock: Lock::new(state),
            passed: AtomicUsize::new(0),
        }
    }
}

/// The program's hook, as a waker: it is called as wakers are woken, so that a panic in it
/// ends there and hooks that set each other off do not grow the stack.
struct OnReady<F>(Contained<F>);

impl<F: Fn() + Send + Sync + 'static> Wake for OnReady<F> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        (*self.0)();
    }
}

pub(super) struct Shared<T> {
    front: BufferEnd<Front<T>>,
    back: BufferEnd<Back<T>>,
    buffer: Buffer<T>,
    pub(super) senders: AtomicUsize,
    pub(super) receivers: AtomicUsize,
    seen: SeenAs,
}

/// Why a value was not taken in.
pub(super) enum NoRoom<T> {
    Full(Contained<T>),
    Closed(Contained<T>),
}

/// What a receiver finds.
pub(super) enum Found<T> {
    Value(Contained<T>),
    /// Nothing, and nothing to come.
    Closed,
    /// Nothing yet.
    Nothing,
}

/// A block that is not needed any more: it is freed outside the locks.
type GoneBlock<T> = Option<Box<ValueBlock<T>>>;

/// Both locks, held.
struct BothEnds<'a, T> {
    shared: &'a Shared<T>,
    front: LockGuard<'a, Front<T>>,
    back: LockGuard<'a, Back<T>>,
}

impl<T> Drop for BothEnds<'_, T> {
    fn drop(&mut self) {
        self.back.alone = self.front.receivers.is_empty()
            && !self.front.closed
            && self.front.on_ready.is_none()
            && self.capacity() != Some(0);
        self.front.alone = self.front.promised == 0 && self.front.senders.is_empty();
    }
}

impl<T> BothEnds<'_, T> {
    fn capacity(&self) -> Option<usize> {
        self.shared.buffer.capacity()
    }

    /// How many values are in the buffer.
    fn len(&self) -> usize {
        self.back.cursor.ahead_of(&self.front.cursor)
    }

    /// How many values there are to receive: in a rendezvous those that senders have
    /// with them too.
    fn there(&self) -> usize {
        match self.capacity() {
            Some(0) => self.len() + self.front.senders.len(),
            _ => self.len(),
        }
    }

    fn has_room(&self) -> bool {
        self.capacity().is_none_or(|capacity| self.len() < capacity)
    }

    /// Puts a value in. There is room, or it is left in a rendezvous; and the block that it
    /// [needs](Buffer::needs_block).
    fn put(&mut self, value: Contained<T>, block: &mut GoneBlock<T>) {
        let Shared { buffer, back, .. } = self.shared;
        // SAFETY: B1, they are locked, and parts of one channel.
        unsafe { buffer.put(&mut self.back.cursor, value, block, &back.passed) }
    }

    /// The first value of the buffer.
    fn pop(&mut self, gone: &mut GoneBlock<T>) -> Option<Contained<T>> {
        if self.len() == 0 {
            return None;
        }
        let Shared { buffer, front, .. } = self.shared;
        // SAFETY: B1, they are locked, and parts of one channel.
        Some(unsafe { buffer.take(&mut self.front.cursor, gone, &front.passed) })
    }

    /// Promises what is there to those who wait for it. One at a time: each value that
    /// comes, and each right that comes back, is one.
    fn promise(&mut self) -> Option<Waker> {
        if self.there() <= self.front.promised {
            return None;
        }
        let waker = self.front.receivers.first()?.settle(WaiterStage::Granted);
        self.front.promised += 1;
        waker
    }

    /// Takes the first value, and lets the first sender in. The caller has a right to it.
    fn take(&mut self, gone: &mut GoneBlock<T>) -> (Option<Contained<T>>, Option<Waker>) {
        match self.pop(gone) {
            Some(value) if self.has_room() => {
                let next = self.next_offer();
                let waker = next.and_then(|(value, waker)| {
                    // A bounded channel: it needs no block.
                    self.put(value, &mut None);
                    waker
                });
                (Some(value), waker)
            }
            Some(value) => (Some(value), None),
            None => self
                .next_offer()
                .map_or((None, None), |(value, waker)| (Some(value), waker)),
        }
    }

    /// The value of the first sender in line, which has sent it then.
    fn next_offer(&mut self) -> Option<(Contained<T>, Option<Waker>)> {
        let first = self.front.senders.first()?;
        let offer = first.as_ptr().cast::<Offer<T>>();
        // SAFETY: whoever stands in the line of senders is the waiter of an offer, which
        // begins with it; L1: it is there.
        let value = unsafe { &(*offer).value };
        // SAFETY: L2, under the lock.
        let value = unsafe { value.with_mut(Option::take) }?;
        Some((value, first.settle(WaiterStage::Granted)))
    }

    /// The hook, if what has just come is the first value that was not promised.
    fn ready(&self) -> Option<Waker> {
        if self.front.on_ready.is_none() || self.there() != self.front.promised + 1 {
            return None;
        }
        self.front.on_ready.clone()
    }
}

impl<T> Shared<T> {
    #[track_caller]
    pub(super) fn new(capacity: Option<usize>) -> Arc<Shared<T>> {
        let shared = Shared {
            front: BufferEnd::new(Front {
                cursor: Cursor::new(),
                alone: false,
                closed: false,
                senders: Line::new(),
                receivers: Line::new(),
                promised: 0,
                on_ready: None,
            }),
            back: BufferEnd::new(Back {
                cursor: Cursor::new(),
                alone: false,
            }),
            buffer: Buffer::new(capacity),
            senders: AtomicUsize::new(1),
            receivers: AtomicUsize::new(1),
            seen: SeenAs::new("channel", Location::caller()),
        };
        // Each end is told whether it is alone.
        drop(shared.state());
        Arc::new(shared)
    }

    fn state(&self) -> BothEnds<'_, T> {
        let mut both = BothEnds {
            shared: self,
            front: self.front.lock.lock(),
            back: self.back.lock.lock(),
        };
        let BothEnds { front, back, .. } = &mut both;
        Cursor::meet(&mut front.cursor, &mut back.cursor);
        both
    }

    pub(super) fn set_name(&self, name: Cow<'static, str>) {
        self.seen.set_name(name);
    }

    /// A wait begins.
    fn list(&self) {
        // SAFETY: it lives in an `Arc`, and see its destructor.
        unsafe { self.seen.list(self) }
    }

    /// Puts a value into the buffer, if there is room. In a rendezvous it may be left for
    /// a receiver that waits, if the sender cannot.
    #[inline]
    pub(super) fn push(&self, value: Contained<T>, may_leave: bool) -> Result<(), NoRoom<T>> {
        let mut back = self.back.lock.lock();
        let mut block = None;
        if !back.alone || self.buffer.needs_block(&back.cursor, &mut block) {
            drop(back);
            return self.push_slowly(value, may_leave);
        }
        if !self.buffer.has_room(&mut back.cursor, &self.front.passed) {
            drop(back);
            return Err(NoRoom::Full(value));
        }
        // SAFETY: B1, it is locked, and they are parts of one channel; and there is room.
        unsafe {
            self.buffer
                .put(&mut back.cursor, value, &mut block, &self.back.passed);
        }
        drop(back);
        Ok(())
    }

    #[cold]
    fn push_slowly(&self, value: Contained<T>, may_leave: bool) -> Result<(), NoRoom<T>> {
        let mut block = None;
        loop {
            let mut state = self.state();
            if state.front.closed {
                drop(state);
                return Err(NoRoom::Closed(value));
            }
            // For a receiver that waits, and behind no sender that does: what is left is taken
            // before what senders have with them.
            let waits = may_leave
                && state.capacity() == Some(0)
                && state.front.senders.is_empty()
                && !state.front.receivers.is_empty();
            if !state.has_room() && !waits {
                drop(state);
                return Err(NoRoom::Full(value));
            }
            if self.buffer.needs_block(&state.back.cursor, &mut block) {
                drop(state);
                block = Some(ValueBlock::new());
                continue;
            }
            state.put(value, &mut block);
            let waker = state.promise();
            let hook = state.ready();
            drop(state);
            wake_one(waker);
            wake_one(hook);
            return Ok(());
        }
    }

    /// Stands in line with a value, if there is still no room for it. The value is in
    /// the offer, and stays there unless it is sent.
    ///
    /// # Safety
    /// L1 for the waiter of `offer`: the code that gives it up calls
    /// [`take_back`](Shared::take_back).
    pub(super) unsafe fn offer(&self, offer: &Offer<T>, waker: Waker) -> WaiterStage {
        self.list();
        let mut state = self.state();
        let stage = if state.front.closed {
            WaiterStage::Refused
        } else if state.has_room() {
            // SAFETY: not in line: the value is the caller's.
            let value = unsafe { offer.value.with_mut(Option::take) };
            let value = value.unwrap_or_else(|| unreachable!("an offer has its value"));
            // A channel without a limit does not offer: it needs no block.
            state.put(value, &mut None);
            WaiterStage::Granted
        } else {
            // SAFETY: passed on.
            unsafe { state.front.senders.push_back(&offer.waiter, waker, 1) };
            let wake = state.promise();
            let hook = match state.capacity() {
                Some(0) => state.ready(),
                _ => None,
            };
            drop(state);
            wake_one(wake);
            wake_one(hook);
            return WaiterStage::Listed;
        };
        let wake = state.promise();
        let hook = match stage {
            WaiterStage::Granted => state.ready(),
            _ => None,
        };
        drop(state);
        let_go(Some(waker));
        wake_one(wake);
        wake_one(hook);
        stage
    }

    /// A sender in line is polled again.
    pub(super) fn still_offers(&self, offer: &Offer<T>, waker: Waker) -> WaiterStage {
        let mut waker = Some(waker);
        let mut state = self.state();
        let stage = offer.waiter.stage();
        if stage == WaiterStage::Listed {
            state.front.senders.update(&offer.waiter, &mut waker);
        }
        drop(state);
        let_go(waker);
        stage
    }

    /// A sender is told, or goes: what had become of it. If it was `Listed`, its value is
    /// still in the offer.
    pub(super) fn take_back(&self, offer: &Offer<T>) -> WaiterStage {
        let mut state = self.state();
        let (stage, waker) = state.front.senders.leave(&offer.waiter);
        drop(state);
        let_go(waker);
        stage
    }

    /// A value that was not promised.
    #[inline]
    pub(super) fn try_take(&self) -> Found<T> {
        let mut front = self.front.lock.lock();
        if !front.alone {
            drop(front);
            return self.try_take_slowly();
        }
        if !front.cursor.has_value(&self.back.passed) {
            return match front.closed {
                true => Found::Closed,
                false => Found::Nothing,
            };
        }
        let mut gone = None;
        // SAFETY: B1, it is locked, and they are parts of one channel; and there is a value.
        let value = unsafe {
            self.buffer
                .take(&mut front.cursor, &mut gone, &self.front.passed)
        };
        drop(front);
        drop(gone);
        Found::Value(value)
    }

    #[cold]
    fn try_take_slowly(&self) -> Found<T> {
        let state = self.state();
        if state.there() <= state.front.promised {
            return match state.front.closed && state.there() == 0 {
                true => Found::Closed,
                false => Found::Nothing,
            };
        }
        self.take(state)
    }

    /// The value that the receiver of `waiter` was promised. Nothing: the promise was
    /// broken, and it stands at the front of the line.
    ///
    /// # Safety
    /// L1 for `waiter`: the code that gives it up calls [`give_up`](Shared::give_up).
    pub(super) unsafe fn take_promised(
        &self,
        waiter: &Waiter,
        waker: impl FnOnce() -> Waker,
    ) -> Found<T> {
        let mut state = self.state();
        let mut again = None;
        if state.there() == 0 && !state.front.closed {
            drop(state);
            // The waker is cloned outside the lock, and before anything changes: it may be
            // of the user's making, and panic. A value that comes meanwhile is promised.
            again = Some(waker());
            state = self.state();
        }
        let found = if state.there() > 0 {
            state.front.promised -= 1;
            waiter.reset();
            self.take(state)
        } else if state.front.closed {
            state.front.promised -= 1;
            waiter.reset();
            drop(state);
            Found::Closed
        } else {
            let Some(again) = again else {
                unreachable!("it was cloned: a channel that was closed stays closed");
            };
            state.front.promised -= 1;
            // SAFETY: passed on.
            unsafe { state.front.receivers.push_front(waiter, again, 1) };
            return Found::Nothing;
        };
        let_go(again);
        found
    }

    /// Takes the first value out, and does what follows from it.
    fn take(&self, mut state: BothEnds<'_, T>) -> Found<T> {
        let mut gone = None;
        let (value, sent) = state.take(&mut gone);
        // The sender that was let in has brought a value, which may be for another.
        let next = state.promise();
        let drained = state.front.closed && state.there() == 0 && !state.front.receivers.is_empty();
        drop(state);
        wake_one(sent);
        wake_one(next);
        if drained {
            self.refuse_receivers();
        }
        drop(gone);
        match value {
            Some(value) => Found::Value(value),
            None => unreachable!("there was one to take"),
        }
    }

    /// Stands in line for a value, if there is still none.
    ///
    /// # Safety
    /// L1 for `waiter`: the code that gives it up calls [`give_up`](Shared::give_up).
    pub(super) unsafe fn wait(&self, waiter: &Waiter, waker: Waker) -> Found<T> {
        self.list();
        let mut state = self.state();
        let found = if state.there() > state.front.promised {
            self.take(state)
        } else if state.front.closed && state.there() == 0 {
            drop(state);
            Found::Closed
        } else {
            // SAFETY: passed on.
            unsafe { state.front.receivers.push_back(waiter, waker, 1) };
            return Found::Nothing;
        };
        let_go(Some(waker));
        found
    }

    /// A receiver in line is polled again.
    pub(super) fn still_waits(&self, waiter: &Waiter, waker: Waker) -> WaiterStage {
        let mut waker = Some(waker);
        let mut state = self.state();
        let stage = waiter.stage();
        if stage == WaiterStage::Listed {
            state.front.receivers.update(waiter, &mut waker);
        }
        drop(state);
        let_go(waker);
        stage
    }

    /// A receiver is told, or goes. What it was promised passes on.
    pub(super) fn give_up(&self, waiter: &Waiter) {
        let mut state = self.state();
        let (stage, waker) = state.front.receivers.leave(waiter);
        waiter.reset();
        let mut hook = None;
        let mut wake = None;
        if stage == WaiterStage::Granted {
            state.front.promised -= 1;
            wake = state.promise();
            hook = state.ready();
        }
        drop(state);
        let_go(waker);
        wake_one(wake);
        wake_one(hook);
    }

    /// No more values are taken in: senders that wait get theirs back. What is there is
    /// still received. True if this call has closed it.
    pub(super) fn close(&self) -> bool {
        let mut state = self.state();
        let closes = !std::mem::replace(&mut state.front.closed, true);
        let hook = if closes {
            state.front.on_ready.clone()
        } else {
            None
        };
        drop(state);
        self.refuse(|state| Some(&mut state.front.senders));
        self.refuse_receivers();
        wake_one(hook);
        closes
    }

    /// Closed and empty: receivers that wait are told so.
    fn refuse_receivers(&self) {
        self.refuse(|state| match state.there() {
            0 => Some(&mut state.front.receivers),
            _ => None,
        });
    }

    fn refuse(&self, line: impl for<'a> Fn(&'a mut BothEnds<'_, T>) -> Option<&'a mut Line>) {
        let mut wakes = Wakes::new();
        loop {
            let mut state = self.state();
            let Some(line) = line(&mut state) else { return };
            while !wakes.is_full()
                && let Some(first) = line.first()
            {
                wakes.push(first.settle(WaiterStage::Refused));
            }
            let more = !line.is_empty();
            drop(state);
            wakes.wake_all();
            if !more {
                return;
            }
        }
    }

    /// The last receiver is gone: what was not received goes too, one by one.
    pub(super) fn drain(&self) {
        let hook = self.state().front.on_ready.take();
        let_go(hook);
        loop {
            let mut gone = None;
            let value = self.state().pop(&mut gone);
            drop(gone);
            match value {
                Some(value) => drop(value),
                None => return,
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.state().there()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state().front.closed
    }

    pub(super) fn capacity(&self) -> Option<usize> {
        self.buffer.capacity()
    }

    pub(super) fn set_hook(&self, hook: impl Fn() + Send + Sync + 'static) {
        let hook = Some(Waker::from(Arc::new(OnReady(Contained::new(hook)))));
        let mut state = self.state();
        let now = state.there() > state.front.promised || state.front.closed;
        let before = std::mem::replace(&mut state.front.on_ready, hook.clone());
        drop(state);
        let_go(before);
        wake_one(hook.filter(|_| now));
    }

    pub(super) fn sender_gone(&self) {
        // AcqRel: what the others have done is done before it is closed.
        if self.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.close();
        }
    }

    pub(super) fn receiver_gone(&self) {
        if self.receivers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.close();
            self.drain();
        }
    }
}

impl<T> Shared<T> {
    /// What it is, without who waits.
    pub(super) fn label(&self) -> ResourceLook {
        self.seen.look()
    }
}

// SAFETY: it takes the lock, and touches the lines, not the values.
unsafe impl<T> Resource for Shared<T> {
    fn look(&self) -> ResourceLook {
        let mut look = self.seen.look();
        let state = self.state();
        state.front.senders.jobs(&mut look.waiters);
        state.front.receivers.jobs(&mut look.waiters);
        look
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // Before anything of it goes: a snapshot may look at it until then.
        self.seen.unlist();
        // The last receiver has emptied it, and it was closed before that.
        debug_assert_eq!(self.state().len(), 0);
        let Shared { buffer, front, .. } = self;
        // SAFETY: they are parts of one channel.
        unsafe { buffer.free(&mut front.lock.lock().cursor) };
    }
}
