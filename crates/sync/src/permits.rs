//! Permits, counted, and those who wait for them: what semaphores and locks are made
//! of. A lock is one permit; a read-write lock has many, and its writer takes them all.
//!
//! One word has the free permits and two bits: LINE while anyone waits, CLOSED. While
//! nobody waits, taking and giving back is one step on that word. While somebody does,
//! the word changes only under the lock of the line: a newcomer goes to the end of it,
//! and permits that come back are handed over to the first, if there are enough for it.
//! So no waiter is overtaken, and what is handed over is never free in between.
//!
//! LINE is set exactly while the line is not empty; both change under its lock. While LINE is
//! set only the code that holds the lock writes the word, so that it needs no atomic step for
//! that: a load, and a store.

use std::borrow::Cow;
use std::panic::Location;
use std::sync::OnceLock;
use std::task::{Context, Poll, Waker};

use kinfolk_core::kit::{self, Holder, Listed, Point, Resource, ResourceLook};
use kinfolk_core::{Cancelled, WaitKind};

use crate::line::{Line, Waiter, WaiterStage, Wakes, let_go};
use crate::sync::{AtomicUsize, Lock, LockGuard, Ordering, SEEN, const_fn};

const LINE: usize = 1;
const CLOSED: usize = 1 << 1;
const ONE: usize = 1 << 2;

/// How many permits there may be.
pub(crate) const MOST: usize = usize::MAX >> 3;

/// The word with `n` more free permits. If there would be too many: a panic if `all` are
/// to be in it, else as many as there is room for.
#[inline]
fn with_more(word: usize, n: usize, all: bool) -> usize {
    let room = MOST - word / ONE;
    assert!(!all || n <= room, "too many permits");
    word + n.min(room) * ONE
}

/// Why no permits were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotNow {
    /// There are too few, or others wait for them.
    TooFew,
    /// There will be none.
    Closed,
}

/// Why a wait has ended without permits.
#[derive(Debug)]
pub enum NotAcquired {
    /// There will be none.
    Closed,
    /// The job that waits was told to stop.
    Cancelled(Cancelled),
}

/// Evidence that so many permits were taken, and where they were waited for. Made by
/// [`Acquiring::poll`] alone: whatever has one may make a guard.
#[derive(Debug)]
pub struct PermitsTaken {
    need: usize,
    site: &'static Location<'static>,
}

impl PermitsTaken {
    pub(crate) fn need(&self) -> usize {
        self.need
    }

    pub(crate) fn site(&self) -> &'static Location<'static> {
        self.site
    }
}

pub struct Permits {
    word: AtomicUsize,
    /// Made when a task waits for the first time. In a place of its own: what is
    /// listed for snapshots must not move, and a lock may.
    waiters: OnceLock<Box<Waiters>>,
    /// The holder, of locks.
    pub(crate) holder: Holder,
    kind: &'static str,
    site: &'static Location<'static>,
}

/// How many of those that hold a lock together are known to snapshots.
const KNOWN: usize = 8;

/// The jobs that hold a lock together: its readers. Each has a place of its own, so that all
/// of them are seen, in whatever order they come and go.
struct ReaderPlaces {
    /// A bit for each place that is taken.
    taken: AtomicUsize,
    holders: [Holder; KNOWN],
}

/// The place of one that holds a lock together with others: none outside every job, and if
/// there were too many.
#[derive(Debug)]
pub(crate) struct ReaderPlace(Option<u8>);

impl ReaderPlaces {
    fn new() -> ReaderPlaces {
        ReaderPlaces {
            taken: AtomicUsize::new(0),
            holders: [const { Holder::new() }; KNOWN],
        }
    }

    fn take(&self, site: &'static Location<'static>) -> ReaderPlace {
        let mut taken = self.taken.load(Ordering::Relaxed);
        loop {
            let place = taken.trailing_ones();
            let Some(holder) = self.holders.get(place as usize) else {
                return ReaderPlace(None);
            };
            // Acquire pairs with the Release of `give_back`: the one before has left its place.
            let before = self.taken.fetch_or(1 << place, Ordering::Acquire);
            if before & (1 << place) == 0 {
                holder.take(site);
                return ReaderPlace(Some(place as u8));
            }
            taken = before;
        }
    }

    fn give_back(&self, place: u8) {
        self.holders[usize::from(place)].let_go();
        self.taken.fetch_and(!(1 << place), Ordering::Release);
    }
}

struct Waiters {
    line: Lock<Line>,
    kind: &'static str,
    site: &'static Location<'static>,
    name: Option<Cow<'static, str>>,
    /// What snapshots see of the holder.
    holder: Holder,
    readers: ReaderPlaces,
    listed: OnceLock<Listed>,
}

impl Waiters {
    /// What it is, without who holds it and who waits.
    fn label(&self) -> ResourceLook {
        let mut look = ResourceLook::new(self.kind, self.site);
        look.name = self.name.as_ref().map(|name| name.to_string());
        look
    }
}

// SAFETY: it takes the lock; the rest is atomic or never changes.
unsafe impl Resource for Waiters {
    fn look(&self) -> ResourceLook {
        let mut look = self.label();
        look.holders.extend(self.holder.job());
        look.holders
            .extend(self.readers.holders.iter().filter_map(Holder::job));
        self.line.lock().jobs(&mut look.waiters);
        look
    }
}

impl Drop for Waiters {
    fn drop(&mut self) {
        // Before anything of it goes: a snapshot may look at it until then.
        self.listed.take();
    }
}

/// What came of standing in line.
enum Queued {
    Taken,
    Closed,
    Listed,
}

impl Permits {
    const_fn! {
        pub(crate) const fn new(permits: usize, kind: &'static str, site: &'static Location<'static>) -> Permits {
            assert!(permits <= MOST, "too many permits");
            Permits {
                word: AtomicUsize::new(permits * ONE),
                waiters: OnceLock::new(),
                holder: Holder::new(),
                kind,
                site,
            }
        }
    }

    /// Gives it a name, before anybody waits.
    pub(crate) fn set_name(&mut self, name: Cow<'static, str>) {
        self.waiters = OnceLock::from(Box::new(self.new_waiters(Some(name))));
    }

    fn new_waiters(&self, name: Option<Cow<'static, str>>) -> Waiters {
        let holder = Holder::new();
        holder.show(&self.holder);
        Waiters {
            line: Lock::new(Line::new()),
            kind: self.kind,
            site: self.site,
            name,
            holder,
            readers: ReaderPlaces::new(),
            listed: OnceLock::new(),
        }
    }

    fn waiters(&self) -> &Waiters {
        self.waiters
            .get_or_init(|| Box::new(self.new_waiters(None)))
    }

    /// A wait begins.
    fn list(waiters: &Waiters) {
        if SEEN && waiters.listed.get().is_none() {
            waiters.listed.get_or_init(|| {
                // SAFETY: it is in a box of its own, and the first thing that its
                // destructor does is to take itself off the list.
                unsafe { Listed::new(waiters) }
            });
        }
    }

    /// The code that is polled here holds it, as its one holder, taken at `site`.
    #[inline]
    pub(crate) fn held(&self, site: &'static Location<'static>) {
        self.holder.take(site);
        if let Some(waiters) = self.waiters.get() {
            waiters.holder.show(&self.holder);
        }
    }

    /// It is let go by the destructor of a guard.
    #[inline]
    pub(crate) fn unheld(&self) {
        self.holder.let_go();
        if let Some(waiters) = self.waiters.get() {
            waiters.holder.show(&self.holder);
        }
    }

    /// The code that is polled here holds it together with others, since `site`.
    pub(crate) fn shared(&self, site: &'static Location<'static>) -> ReaderPlace {
        if !SEEN || kit::current_id().is_none() {
            return ReaderPlace(None);
        }
        self.waiters().readers.take(site)
    }

    /// One of those that hold it together lets go.
    pub(crate) fn unshared(&self, place: &ReaderPlace) {
        if let ReaderPlace(Some(place)) = place {
            self.waiters().readers.give_back(*place);
        }
    }

    pub(crate) fn available(&self) -> usize {
        self.word.load(Ordering::Acquire) / ONE
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.word.load(Ordering::Acquire) & CLOSED != 0
    }

    /// Takes `need` permits if they are free and no task waits.
    #[inline]
    pub(crate) fn try_acquire(&self, need: usize) -> Result<(), NotNow> {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if word & CLOSED != 0 {
                return Err(NotNow::Closed);
            }
            if word & LINE != 0 || word / ONE < need {
                return Err(NotNow::TooFew);
            }
            // Acquire pairs with the Release of whoever gave them back.
            let next = word - need * ONE;
            match self
                .word
                .compare_exchange_weak(word, next, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => return Ok(()),
                Err(now) => word = now,
            }
        }
    }

    /// Adds `n` permits.
    ///
    /// # Panics
    /// If there would be more than [`MOST`]: nothing has changed then.
    pub(crate) fn add(&self, n: usize) {
        self.more(n, true);
    }

    /// Gives `n` permits back. Called by destructors, and never panics: beyond [`MOST`],
    /// which they can come to if others were added meanwhile, they are let go.
    #[inline]
    pub(crate) fn release(&self, n: usize) {
        self.more(n, false);
    }

    #[inline]
    fn more(&self, n: usize, all: bool) {
        loop {
            let mut word = self.word.load(Ordering::Relaxed);
            while word & LINE == 0 {
                let next = with_more(word, n, all);
                match self.word.compare_exchange_weak(
                    word,
                    next,
                    Ordering::Release,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => return,
                    Err(now) => word = now,
                }
            }
            if self.hand_over(n, all) {
                return;
            }
        }
    }

    /// `n` more are free: those in line who have enough now get theirs. False if the line has
    /// become empty meanwhile; nothing has changed then.
    #[cold]
    fn hand_over(&self, n: usize, all: bool) -> bool {
        let line = self.waiters().line.lock();
        // Acquire: from those who gave permits back, on to those who get them.
        let word = self.word.load(Ordering::Acquire);
        if word & LINE == 0 {
            return false;
        }
        let word = with_more(word, n, all);
        self.word.store(word, Ordering::Release);
        self.serve(line);
        true
    }

    /// Hands permits over to the first in line, as long as there are enough, and unlocks.
    fn serve<'a>(&'a self, mut line: LockGuard<'a, Line>) {
        let mut wakes = Wakes::new();
        loop {
            // As in `hand_over`.
            let mut word = self.word.load(Ordering::Acquire);
            while !wakes.is_full()
                && let Some(first) = line.first()
                && word / ONE >= first.need()
            {
                word -= first.need() * ONE;
                if first.is_last() {
                    word &= !LINE;
                }
                // Before it is settled, so that it finds no more than what is left. Without
                // LINE other threads write the word from here on.
                self.word.store(word, Ordering::Release);
                wakes.push(first.settle(WaiterStage::Granted));
            }
            let more = wakes.is_full();
            drop(line);
            wakes.wake_all();
            if !more {
                return;
            }
            line = self.waiters().line.lock();
        }
    }

    /// Takes permits if there are enough after all; else stands in line.
    ///
    /// # Safety
    /// L1 for the waiter: the code that gives it up calls [`Permits::leave`].
    #[cold]
    unsafe fn stand_in_line(&self, waiter: &Waiter, waker: Waker, need: usize) -> Queued {
        let waiters = self.waiters();
        Permits::list(waiters);
        let mut line = waiters.line.lock();
        let mut word = self.word.load(Ordering::Relaxed);
        let queued = loop {
            let (next, queued) = if word & CLOSED != 0 {
                break Queued::Closed;
            } else if word & LINE != 0 {
                break Queued::Listed;
            } else if word / ONE >= need {
                (word - need * ONE, Queued::Taken)
            } else {
                // From here on code that gives permits back comes to the lock.
                (word | LINE, Queued::Listed)
            };
            match self
                .word
                .compare_exchange(word, next, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => break queued,
                Err(now) => word = now,
            }
        };
        if let Queued::Listed = queued {
            // SAFETY: passed on.
            unsafe { line.push_back(waiter, waker, need) };
            return queued;
        }
        drop(line);
        let_go(Some(waker));
        queued
    }

    /// A waiter is told, or goes: what had become of it. Behind it stand some who may have
    /// enough.
    #[cold]
    fn leave(&self, waiter: &Waiter) -> WaiterStage {
        let mut line = self.waiters().line.lock();
        let (was, unused) = line.leave(waiter);
        match was {
            WaiterStage::Listed if line.is_empty() => {
                self.word.fetch_and(!LINE, Ordering::Release);
                drop(line);
            }
            WaiterStage::Listed => self.serve(line),
            _ => drop(line),
        }
        let_go(unused);
        was
    }

    /// No permits any more: the waiters are refused, and each later caller.
    pub(crate) fn close(&self) {
        let waiters = self.waiters();
        let mut wakes = Wakes::new();
        let mut line = waiters.line.lock();
        self.word.fetch_or(CLOSED, Ordering::Release);
        loop {
            while !wakes.is_full()
                && let Some(first) = line.first()
            {
                wakes.push(first.settle(WaiterStage::Refused));
            }
            if line.is_empty() {
                break;
            }
            drop(line);
            wakes.wake_all();
            line = waiters.line.lock();
        }
        self.word.fetch_and(!LINE, Ordering::Release);
        drop(line);
    }
}

/// One wait for permits, inside the future that waits.
pub(crate) struct Acquiring {
    waiter: Waiter,
    point: Point,
    need: usize,
}

impl Acquiring {
    #[track_caller]
    #[inline]
    pub(crate) fn new(need: usize) -> Acquiring {
        Acquiring {
            waiter: Waiter::new(Location::caller()),
            point: Point::new(),
            need,
        }
    }

    fn taken(&self) -> PermitsTaken {
        PermitsTaken {
            need: self.need,
            site: self.waiter.site(),
        }
    }

    /// # Safety
    /// `self` is pinned, always polled with the same `permits`, and
    /// [`abandon`](Acquiring::abandon) is called before it is dropped.
    #[inline]
    pub(crate) unsafe fn poll(
        &mut self,
        permits: &Permits,
        kind: WaitKind,
        cx: &mut Context<'_>,
    ) -> Poll<Result<PermitsTaken, NotAcquired>> {
        if self.waiter.stage() != WaiterStage::Idle {
            // SAFETY: passed on.
            return unsafe { self.poll_in_line(permits, kind, cx) };
        }
        match self.point.poll_enter(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Err(told)) => return Poll::Ready(Err(NotAcquired::Cancelled(told))),
            Poll::Ready(Ok(())) => {}
        }
        match permits.try_acquire(self.need) {
            Ok(()) => Poll::Ready(Ok(self.taken())),
            Err(NotNow::Closed) => Poll::Ready(Err(NotAcquired::Closed)),
            // SAFETY: passed on.
            Err(NotNow::TooFew) => unsafe { self.begin(permits, kind, cx) },
        }
    }

    /// # Safety
    /// As [`poll`](Acquiring::poll).
    #[cold]
    unsafe fn begin(
        &mut self,
        permits: &Permits,
        kind: WaitKind,
        cx: &mut Context<'_>,
    ) -> Poll<Result<PermitsTaken, NotAcquired>> {
        let waker = cx.waker().clone();
        // SAFETY: passed on.
        match unsafe { permits.stand_in_line(&self.waiter, waker, self.need) } {
            Queued::Taken => Poll::Ready(Ok(self.taken())),
            Queued::Closed => Poll::Ready(Err(NotAcquired::Closed)),
            Queued::Listed => {
                self.point
                    .pending_on(cx, kind, || permits.waiters().label());
                Poll::Pending
            }
        }
    }

    /// # Safety
    /// As [`poll`](Acquiring::poll).
    unsafe fn poll_in_line(
        &mut self,
        permits: &Permits,
        kind: WaitKind,
        cx: &mut Context<'_>,
    ) -> Poll<Result<PermitsTaken, NotAcquired>> {
        // What was handed over is returned, and the next point tells.
        let mut stage = self.waiter.stage();
        if stage == WaiterStage::Listed {
            match self.point.poll_enter(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(told)) => {
                    stage = permits.leave(&self.waiter);
                    if stage == WaiterStage::Listed {
                        return Poll::Ready(Err(NotAcquired::Cancelled(told)));
                    }
                    // It came between the two looks.
                    self.point.tell_again(&told);
                }
                Poll::Ready(Ok(())) => {
                    let mut waker = Some(cx.waker().clone());
                    let mut line = permits.waiters().line.lock();
                    stage = self.waiter.stage();
                    if stage == WaiterStage::Listed {
                        line.update(&self.waiter, &mut waker);
                    }
                    drop(line);
                    let_go(waker);
                }
            }
        }
        if stage == WaiterStage::Listed {
            self.point
                .pending_on(cx, kind, || permits.waiters().label());
            return Poll::Pending;
        }
        self.point.done();
        self.waiter.reset();
        Poll::Ready(match stage {
            WaiterStage::Granted => Ok(self.taken()),
            _ => Err(NotAcquired::Closed),
        })
    }

    /// It is not polled any more. What it has got goes back.
    #[inline]
    pub(crate) fn abandon(&mut self, permits: &Permits) {
        if self.waiter.stage() != WaiterStage::Idle {
            self.leave(permits);
        }
    }

    #[cold]
    fn leave(&mut self, permits: &Permits) {
        let stage = permits.leave(&self.waiter);
        self.waiter.reset();
        if stage == WaiterStage::Granted {
            permits.release(self.need);
        }
    }
}
