//! The operations of one thread, and the driver that carries them out. The thread itself
//! reaches them directly; other threads leave messages in its mailbox.

mod table;
#[cfg(all(test, not(loom)))]
mod tests;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kinfolk_core::host::contained;
use kinfolk_core::host::say::{Topic, abort, say};

use self::table::{RowState, Table};
use crate::io::counts::Counts;
use crate::io::driver::{Answer, Driver, OpId, WaitMode};
use crate::io::handle::IoHandle;
use crate::io::in_flight::{GONE, InFlight};
use crate::io::mailbox::{Mailbox, Message};
use crate::io::request::Request;

/// How many may be answered at once before something is handed over.
const IN_A_ROW: u32 = 32;

/// How many visits while there is other work until what was submitted is handed
/// over.
const VISITS: u32 = 4;

/// And how long at most, if turns are long.
const SOON: Duration = Duration::from_micros(100);

/// How long a thread that closes waits for the system to let go.
const CLOSING: Duration = Duration::from_secs(5);

/// What the driver has, and the system perhaps not yet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Unsent {
    Nothing,
    /// Only what waits for others as a rule.
    Patient,
    /// Some of it may be over as soon as the system has it.
    Urgent,
    /// A cancel, which a task waits for.
    Cancel,
}

impl Unsent {
    fn of(request: &Request) -> Unsent {
        match request.may_be_over_at_once() {
            true => Unsent::Urgent,
            false => Unsent::Patient,
        }
    }
}

struct Inner {
    /// None until the first operation.
    driver: Option<Box<dyn Driver>>,
    table: Table,
    /// In the order they came; some may be gone again.
    waiting: VecDeque<(OpId, Request)>,
    /// How many of these are not gone.
    queued: usize,
    /// How many places are taken.
    taken: usize,
    unsent: Unsent,
    visits: u32,
    /// When something was handed over last, or the first busy visit; none before that one.
    handed_over: Option<Instant>,
    /// What the driver brought last was one answer alone.
    alone: bool,
    /// How many were answered at once since something was handed over.
    in_a_row: u32,
    answers: Vec<Answer>,
    /// Over or answered, and not yet told.
    over: Vec<(Arc<dyn InFlight>, Answer)>,
    messages: Vec<Message>,
    /// To be dropped outside: what they carry is the user's.
    done_with: Vec<Arc<dyn InFlight>>,
}

/// The operations of one thread.
pub struct ThreadIo {
    handle: Arc<IoHandle>,
    n: usize,
    inner: RefCell<Inner>,
    closed: Cell<bool>,
}

thread_local! {
    static CURRENT: Cell<*const ThreadIo> = const { Cell::new(ptr::null()) };
}

/// Puts back what was there before.
pub struct ThreadIoGuard(*const ThreadIo);

impl Drop for ThreadIoGuard {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

/// Calls `f` with the thread of this thread, if it belongs to `handle`.
pub(crate) fn here<R>(handle: &Arc<IoHandle>, f: impl FnOnce(&ThreadIo) -> R) -> Option<R> {
    // SAFETY: set by `enter` on this thread, whose guard lives further down our
    // stack, as does the thread.
    let thread = unsafe { CURRENT.get().as_ref() }?;
    Arc::ptr_eq(&thread.handle, handle).then(|| f(thread))
}

/// As [`here`], with a value for `f`, which comes back if there is no such thread.
#[inline]
pub(crate) fn here_with<V, R>(
    handle: &Arc<IoHandle>,
    value: V,
    f: impl FnOnce(&ThreadIo, V) -> R,
) -> Result<R, V> {
    // SAFETY: as above.
    match unsafe { CURRENT.get().as_ref() } {
        Some(thread) if Arc::ptr_eq(&thread.handle, handle) => Ok(f(thread, value)),
        _ => Err(value),
    }
}

impl ThreadIo {
    /// The thread number `n` of `handle`. It belongs to the thread that enters it.
    pub fn new(handle: Arc<IoHandle>, n: usize) -> ThreadIo {
        ThreadIo {
            handle,
            n,
            inner: RefCell::new(Inner {
                driver: None,
                table: Table::default(),
                waiting: VecDeque::new(),
                queued: 0,
                taken: 0,
                unsent: Unsent::Nothing,
                visits: 0,
                handed_over: None,
                alone: true,
                in_a_row: 0,
                answers: Vec::new(),
                over: Vec::new(),
                messages: Vec::new(),
                done_with: Vec::new(),
            }),
            closed: Cell::new(false),
        }
    }

    /// From here to the drop of the answer, operations that are begun on this
    /// thread are this thread's.
    ///
    /// # Safety
    /// The `ThreadIo` outlives the returned guard, and is entered on one thread at a time.
    pub unsafe fn enter(&self) -> ThreadIoGuard {
        ThreadIoGuard(CURRENT.replace(ptr::from_ref(self)))
    }

    pub(crate) fn mailbox(&self) -> &Mailbox {
        self.handle.mailbox(self.n)
    }

    pub(crate) fn n(&self) -> usize {
        self.n
    }

    /// How many operations are under way here.
    pub fn len(&self) -> usize {
        self.inner.borrow().table.len
    }

    /// True if none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn submit(&self, in_flight: Arc<dyn InFlight>, request: &Request) {
        if self.closed.get() {
            self.handle.complete(in_flight, GONE);
            return;
        }
        let mut inner = self.inner.borrow_mut();
        inner.accept(&self.handle, self.n, in_flight, request);
    }

    /// The answer to `request`, if the driver can give it here and now. It counts
    /// as begun and over.
    ///
    /// Only for one that would go to the system alone: together with others it
    /// costs less there than a call of its own.
    ///
    /// # Safety
    /// The memory that the request points to does not move, and no other code uses it,
    /// until this returns.
    pub(crate) unsafe fn at_once(&self, request: &Request) -> Option<i32> {
        if self.closed.get() {
            return None;
        }
        let mut inner = self.inner.borrow_mut();
        if !inner.alone || inner.unsent >= Unsent::Urgent {
            return None;
        }
        // A task that is always answered never waits: other tasks, timers and a clock
        // that jumps when all wait must have their turn.
        if inner.in_a_row >= IN_A_ROW {
            return None;
        }
        inner.in_a_row += 1;
        // SAFETY: as the caller says.
        let result = unsafe { inner.driver.as_mut()?.at_once(request) }?;
        let counts = self.mailbox().counts();
        counts.submitted();
        counts.completed(result);
        Some(result)
    }

    pub(crate) fn cancel(&self, in_flight: &dyn InFlight) {
        let mut inner = self.inner.borrow_mut();
        if in_flight.id_cell().id().is_none() {
            // It lies at our own mailbox.
            inner.read_messages(&self.handle, self.n);
        }
        if let Some(id) = in_flight.id_cell().id() {
            inner.cancel(id, self.mailbox().counts());
        }
        let done_with = std::mem::take(&mut inner.done_with);
        drop(inner);
        drop(done_with);
    }

    /// Hands over what was submitted, waits if told to, and wakes those whose
    /// operations are over; how many.
    ///
    /// While it waits others can only leave word at the mailbox.
    pub fn poll(&self, wait: WaitMode) -> usize {
        let mut turned = None;
        let panicked = contained(|| turned = Some(self.try_poll(wait)));
        match turned {
            Some(Ok(count)) if !panicked => count,
            // What it has begun would never be over, and its jobs would wait for
            // ever. A process that is gone can be started again.
            Some(Err(error)) => self.driver_is_lost(format_args!("{error}")),
            _ => self.driver_is_lost(format_args!("it panicked")),
        }
    }

    fn driver_is_lost(&self, why: fmt::Arguments<'_>) -> ! {
        abort(format_args!(
            "kinfolk: the {} driver of thread {} cannot go on: {why}; the process is aborted",
            self.handle.driver_name().unwrap_or("i/o"),
            self.n
        ))
    }

    fn try_poll(&self, wait: WaitMode) -> io::Result<usize> {
        let mut inner = self.inner.borrow_mut();
        inner.read_messages(&self.handle, self.n);
        let wait = match inner.over.is_empty() || wait == WaitMode::Peek {
            true => wait,
            false => WaitMode::No,
        };
        let counts = self.mailbox().counts();
        inner.drive(counts, wait)?;
        if inner.has_nothing_to_tell() {
            return Ok(0);
        }
        let mut answers = std::mem::take(&mut inner.answers);
        let over = std::mem::take(&mut inner.over);
        let done_with = std::mem::take(&mut inner.done_with);
        drop(inner);
        // Whoever is dropped may wake somebody too.
        let count = over.len() + answers.len() + done_with.len();
        drop(done_with);
        for (in_flight, answer) in over {
            self.handle.answered(in_flight, answer);
        }
        // Each is told as soon as it is out of the table, and outside the borrow:
        // whoever is woken may be the user's.
        for answer in answers.drain(..) {
            let in_flight = self.inner.borrow_mut().arrived(&answer, counts);
            if let Some(in_flight) = in_flight {
                self.handle.answered(in_flight, answer);
            }
        }
        let mut inner = self.inner.borrow_mut();
        inner.let_in(&self.handle);
        counts.in_driver(inner.in_driver());
        if inner.answers.is_empty() {
            // The empty row is used again.
            inner.answers = answers;
        }
        Ok(count)
    }

    /// A visit while there is other work: wakes those whose operations are over,
    /// and hands over what was submitted only now and then, so that many go
    /// together; how many.
    pub fn poll_busy(&self) -> usize {
        let hand_over = {
            let mut inner = self.inner.borrow_mut();
            inner.visits = inner.visits.wrapping_add(1);
            let is_late = match inner.handed_over {
                Some(at) => at.elapsed() > SOON,
                None => {
                    inner.handed_over = Some(Instant::now());
                    false
                }
            };
            inner.visits.is_multiple_of(VISITS) || inner.unsent == Unsent::Cancel || is_late
        };
        match hand_over {
            true => self.poll(WaitMode::No),
            false => self.poll(WaitMode::Peek),
        }
    }

    /// A visit when there is nothing else to do: hands over what may be over at
    /// once, and wakes those whose operations are; how many. If none is, the
    /// thread may [wait](ThreadIo::park), and that hands over the rest.
    pub fn poll_idle(&self) -> usize {
        let unsent = self.inner.borrow().unsent;
        // With virtual time nothing may stay behind: the clock would jump over
        // what has arrived already.
        let urgent = unsent >= Unsent::Urgent || self.handle.counts_for_clock();
        match urgent && unsent != Unsent::Nothing {
            true => self.poll(WaitMode::No),
            false => self.poll(WaitMode::Peek),
        }
    }

    /// True if something may not have reached the system yet.
    pub fn has_unsent(&self) -> bool {
        self.inner.borrow().unsent != Unsent::Nothing
    }

    /// True if the driver has something to do, or something is left to tell.
    pub fn is_busy(&self) -> bool {
        let inner = self.inner.borrow();
        inner.table.len > 0 || !inner.over.is_empty() || self.mailbox().has_messages()
    }

    /// True if a visit may have something to do beside what the driver brings: messages to
    /// read, or something to tell.
    pub fn has_word(&self) -> bool {
        !self.inner.borrow().over.is_empty() || self.mailbox().has_messages()
    }

    /// Waits in the driver until something is over or the mailbox rings; at most
    /// so long; how many were over. Only if [busy](ThreadIo::is_busy).
    pub fn park(&self, most: Option<Duration>) -> usize {
        let wait = match most {
            Some(most) => WaitMode::AtMost(most),
            None => WaitMode::Forever,
        };
        // Without a driver there is no notifier yet either.
        if self.inner.borrow().driver.is_none() || !self.mailbox().prepare_wait() {
            return self.poll(WaitMode::No);
        }
        let completed = self.poll(wait);
        self.mailbox().end_wait();
        completed
    }

    /// Ends what is under way, and takes nothing more. Waits until the system
    /// has let go of it; where it does not, what it works on is leaked rather
    /// than freed under its hands.
    pub fn close(&self) {
        self.closed.set(true);
        for message in self.mailbox().close() {
            self.handle.refuse(message);
        }
        {
            let mut inner = self.inner.borrow_mut();
            for id in inner.table.ids() {
                inner.cancel(id, self.mailbox().counts());
            }
        }
        if self.is_empty() && self.inner.borrow().over.is_empty() {
            return;
        }
        let until = Instant::now() + CLOSING;
        while !self.is_empty() || !self.inner.borrow().over.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.try_poll(WaitMode::AtMost(left)).is_err() {
                let inner = &mut *self.inner.borrow_mut();
                say(
                    Topic::End,
                    format_args!(
                        "kinfolk: {} i/o operations did not end within {CLOSING:?}: \
                         their buffers are leaked",
                        inner.table.len
                    ),
                );
                std::mem::forget(std::mem::take(&mut inner.table));
                std::mem::forget(inner.driver.take());
                return;
            }
        }
    }
}

impl Drop for ThreadIo {
    fn drop(&mut self) {
        if !self.closed.get() {
            self.close();
        }
    }
}

impl Inner {
    fn accept(
        &mut self,
        handle: &IoHandle,
        n: usize,
        in_flight: Arc<dyn InFlight>,
        request: &Request,
    ) {
        if self.driver.is_none() {
            match handle.take_driver(n) {
                Ok(driver) => self.driver = Some(driver),
                Err(error) => {
                    let errno = error.raw_os_error().unwrap_or(libc::ENOSYS);
                    let nowhere = OpId {
                        index: u32::MAX,
                        generation: 0,
                    };
                    self.over.push((in_flight, Answer::last(nowhere, -errno)));
                    return;
                }
            }
        }
        let counted = request.counts_toward_limit();
        let room = !counted || (self.taken < handle.most_in_flight() && self.waiting.is_empty());
        let at = match room {
            true => RowState::InDriver { asked: false },
            false => RowState::Queued,
        };
        let id = self.table.insert(n, at, counted, in_flight);
        handle.mailbox(n).counts().submitted();
        if !room {
            self.queued += 1;
            self.waiting.push_back((id, *request));
        } else if let Some(driver) = &mut self.driver {
            self.taken += usize::from(counted);
            self.unsent = self.unsent.max(Unsent::of(request));
            // SAFETY: the in_flight that the request leads to is in the table, and
            // stays there until the driver has said that it is over. Noticed by
            // `io_3_a_station_that_closes_ends_what_is_under_way`.
            unsafe { driver.submit(id, request) };
        }
    }

    fn cancel(&mut self, id: OpId, counts: &Counts) {
        let Some(at) = self.table.get_mut(id) else {
            return;
        };
        match at {
            RowState::Queued => {
                // Its number stays in the queue, and means no operation.
                if let Some((in_flight, _)) = self.table.remove(id) {
                    let answer = Answer::last(id, -libc::ECANCELED);
                    counts.completed(answer.result);
                    self.over.push((in_flight, answer));
                    self.queued -= 1;
                }
                // Unless such numbers pile up: each one looked at now was one
                // cancel.
                if self.waiting.len() > 2 * self.queued + 16 {
                    self.waiting
                        .retain(|(id, _)| self.table.get_mut(*id).is_some());
                }
            }
            RowState::InDriver { asked } => {
                if !std::mem::replace(asked, true)
                    && let Some(driver) = &mut self.driver
                {
                    self.unsent = Unsent::Cancel;
                    driver.cancel(id);
                }
            }
        }
    }

    fn read_messages(&mut self, handle: &IoHandle, n: usize) {
        let mut messages = std::mem::take(&mut self.messages);
        handle.mailbox(n).read(&mut messages);
        for message in messages.drain(..) {
            match message {
                Message::Submit(in_flight, request) => self.accept(handle, n, in_flight, &request),
                Message::Cancel(in_flight) => {
                    if let Some(id) = in_flight.id_cell().id() {
                        self.cancel(id, handle.mailbox(n).counts());
                    }
                    self.done_with.push(in_flight);
                }
            }
        }
        self.messages = messages;
    }

    /// How many the driver has.
    fn in_driver(&self) -> usize {
        self.table.len - self.queued
    }

    /// Turns the driver; what is over then lies in `answers`.
    fn drive(&mut self, counts: &Counts, wait: WaitMode) -> io::Result<()> {
        let in_driver = self.in_driver();
        let Some(driver) = &mut self.driver else {
            return Ok(());
        };
        if wait != WaitMode::Peek {
            self.unsent = Unsent::Nothing;
            self.in_a_row = 0;
            // Read by a busy visit alone: a simulation makes none, and it would ask the
            // system for the time at each turn.
            if let Some(at) = &mut self.handed_over {
                *at = Instant::now();
            }
        }
        // Before: it may sleep in there.
        counts.in_driver(in_driver);
        let turned = driver.poll(wait, &mut self.answers);
        if !self.answers.is_empty() {
            self.alone = self.answers.len() == 1;
        }
        turned
    }

    /// True if a turn has brought nothing, and no operation waits for room.
    fn has_nothing_to_tell(&self) -> bool {
        self.answers.is_empty()
            && self.over.is_empty()
            && self.done_with.is_empty()
            && self.waiting.is_empty()
    }

    /// The driver has brought this: whose it is.
    fn arrived(&mut self, answer: &Answer, counts: &Counts) -> Option<Arc<dyn InFlight>> {
        let id = answer.id;
        if answer.more {
            let in_flight = self.table.in_flight(id).cloned();
            debug_assert!(in_flight.is_some(), "operation {id:?} was over before");
            return in_flight;
        }
        let removed = self.table.remove(id);
        debug_assert!(removed.is_some(), "operation {id:?} was over before");
        let (in_flight, counted) = removed?;
        self.taken -= usize::from(counted);
        counts.completed(answer.result);
        Some(in_flight)
    }

    /// There may be room for those who wait.
    fn let_in(&mut self, handle: &IoHandle) {
        while self.taken < handle.most_in_flight()
            && let Some((id, request)) = self.waiting.pop_front()
        {
            // Cancelled meanwhile: its number means no operation.
            let Some(at) = self.table.get_mut(id) else {
                continue;
            };
            *at = RowState::InDriver { asked: false };
            self.queued -= 1;
            self.taken += 1;
            self.unsent = self.unsent.max(Unsent::of(&request));
            if let Some(driver) = &mut self.driver {
                // SAFETY: as in `accept`.
                unsafe { driver.submit(id, &request) };
            }
        }
    }
}
