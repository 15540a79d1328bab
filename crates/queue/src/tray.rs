//! A worker's tray: everything that it has queued, as its owner and as the other
//! workers use it.
//!
//! Three queues stand behind each other. The *slot* has the turn that was woken
//! last. The *ring* has the others. The *backlog* has what the ring has no room for;
//! while there is something in it, whatever goes behind the others goes there. So
//! ring and backlog are one queue to their owner: first in, first out.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use kinfolk_core::host::{Turn, TurnRow};

use crate::injector::Injector;
use crate::ring::{CacheLine, Item, Ring, STEAL_BATCH};
use crate::slot::{SeenItem, TurnSlot};

/// How many turns the slot may have in a row before the others have one.
const STREAK: u32 = 8;

/// So many in a ring are more than one worker can do soon.
pub(crate) const LONG: usize = 256;

/// Woken together up to this many go behind the others at the tray where they were
/// woken; more go to the injector.
pub const FEW: usize = 32;

/// What the owner of a tray is to do after it has queued something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Then {
    /// Nothing.
    Nothing,
    /// There is more than it can do soon: another worker that sleeps may help.
    WantsHelp,
}

impl Then {
    pub(crate) fn wants_help_if(wants: bool) -> Then {
        match wants {
            true => Then::WantsHelp,
            false => Then::Nothing,
        }
    }

    /// True if it is to ask for help.
    #[inline]
    pub fn wants_help(self) -> bool {
        self == Then::WantsHelp
    }
}

/// How many turns in a row the owner of a tray has taken from its slot.
#[derive(Debug, Default)]
pub struct Streak(Cell<u32>);

/// What a thief saw at a tray.
#[derive(Clone, Copy)]
pub(crate) struct Sight {
    pub(crate) head: u64,
    pub(crate) tail: u64,
    pub(crate) next: SeenItem,
    pub(crate) turns: u32,
}

impl Sight {
    /// Nothing lay in the ring or in the slot.
    pub(crate) fn is_empty(&self) -> bool {
        self.head == self.tail && self.next.is_none()
    }

    /// Some of what was there at `before` is there still.
    pub(crate) fn has_some_of(&self, before: &Sight) -> bool {
        self.head < before.tail || self.holds_next_of(before)
    }

    /// The slot still has what it had, and the owner is in the same turn.
    pub(crate) fn holds_next_of(&self, before: &Sight) -> bool {
        !self.next.is_none() && self.next == before.next && self.turns == before.turns
    }
}

/// What a worker has queued. Others may take from it.
pub struct Tray {
    ring: Ring,
    /// What the ring has no room for: behind it, and first in, first out. Only the
    /// owner puts something in.
    backlog: CacheLine<Injector>,
    /// What the last turn woke: it goes first, so that awaiting a child is a
    /// hand-over. Others may take it if the turn lasts.
    next: TurnSlot,
    /// Turns begun. Written by the owner only.
    turns: AtomicU32,
    in_turn: AtomicBool,
}

impl Default for Tray {
    fn default() -> Self {
        Tray::new()
    }
}

impl std::fmt::Debug for Tray {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (queued, in_turn) = self.load();
        f.debug_struct("Tray")
            .field("queued", &queued)
            .field("in_turn", &in_turn)
            .finish_non_exhaustive()
    }
}

/// What everybody may do.
impl Tray {
    /// An empty tray.
    pub fn new() -> Tray {
        Tray {
            ring: Ring::new(),
            backlog: CacheLine(Injector::in_rows_of(STEAL_BATCH)),
            next: TurnSlot::new(),
            turns: AtomicU32::new(0),
            in_turn: AtomicBool::new(false),
        }
    }

    /// How many turns are queued here, and whether the owner is in one.
    #[inline]
    pub fn load(&self) -> (usize, bool) {
        let (head, tail) = self.ring.span();
        let next = usize::from(!self.next.look().is_none());
        (
            (tail - head) as usize + self.backlog.0.len() + next,
            self.in_turn.load(Ordering::Relaxed),
        )
    }

    /// How many turns the owner has begun, modulo 2^32.
    #[inline]
    pub fn turns(&self) -> u32 {
        self.turns.load(Ordering::Relaxed)
    }

    /// True if the owner is in a turn.
    #[inline]
    pub fn is_in_turn(&self) -> bool {
        self.in_turn.load(Ordering::Relaxed)
    }

    pub(crate) fn has_backlog(&self) -> bool {
        !self.backlog.0.is_empty()
    }

    pub(crate) fn look(&self) -> Sight {
        let (head, tail) = self.ring.span();
        Sight {
            head,
            tail,
            next: self.next.look(),
            turns: self.turns(),
        }
    }

    /// Gives a thief up to `most` of what has waited longest.
    pub(crate) fn give(&self, most: usize, mut take: impl FnMut(Turn)) {
        let until = self.ring.span().0.saturating_add(2 * most as u64);
        let given = self.ring.steal(until, |item| take(turn(item)));
        let left = most.min(STEAL_BATCH).saturating_sub(given);
        self.backlog.0.take(left).for_each(take);
    }

    /// Gives a thief half of what stands in the ring before `until`.
    pub(crate) fn give_until(&self, until: u64, mut take: impl FnMut(Turn)) {
        self.ring.steal(until, |item| take(turn(item)));
    }

    /// Gives a thief what it saw in the slot, if it is still there.
    pub(crate) fn give_next(&self, seen: SeenItem) -> Option<Turn> {
        self.next.steal(seen).map(turn)
    }
}

/// What its owner does.
impl Tray {
    /// Runs a turn, and shows that it does. The answer is the next turn of the same
    /// task, if it was woken meanwhile.
    #[inline]
    pub fn run(&self, turn: Turn) -> Option<Turn> {
        self.turns
            .store(self.turns().wrapping_add(1), Ordering::Relaxed);
        self.in_turn.store(true, Ordering::Relaxed);
        let again = turn.run();
        self.in_turn.store(false, Ordering::Relaxed);
        again
    }

    /// A turn may have unwound: true if it has, and then it is over.
    pub fn turn_unwound(&self) -> bool {
        self.in_turn.swap(false, Ordering::Relaxed)
    }

    /// The turn that goes next.
    #[inline]
    pub fn pop(&self, streak: &Streak) -> Option<Turn> {
        self.handed_over(streak)
            .or_else(|| self.ring.pop().map(turn))
            .or_else(|| self.refilled())
            .or_else(|| self.take_next())
    }

    /// What the last turn woke, unless that has gone on for long.
    #[inline]
    fn handed_over(&self, streak: &Streak) -> Option<Turn> {
        if streak.0.get() >= STREAK {
            streak.0.set(0);
            return None;
        }
        let next = self.take_next();
        let now = if next.is_some() {
            streak.0.get() + 1
        } else {
            0
        };
        streak.0.set(now);
        next
    }

    /// The ring is empty: what waits behind it comes in.
    #[inline]
    fn refilled(&self) -> Option<Turn> {
        let mut row = self.backlog.0.take(STEAL_BATCH);
        let first = row.next();
        for turn in row {
            // The ring is empty, so these are not too many for it.
            let _ = self.push_or_defer(turn);
        }
        first
    }

    /// Takes out what lies in the slot.
    #[inline]
    pub fn take_next(&self) -> Option<Turn> {
        self.next.take().map(turn)
    }

    /// Puts a turn into the slot; the answer is what lay there before.
    #[inline]
    pub fn put_next(&self, new: Turn) -> Option<Turn> {
        self.next.put(new.into_raw()).map(turn)
    }

    /// Puts a turn behind the others.
    #[inline]
    pub fn put_back(&self, turn: Turn) -> Then {
        match self.backlog.0.len() {
            0 => self.push_or_defer(turn),
            _ => self.defer(turn),
        }
    }

    /// Puts a row into the backlog, if there is one; else gives it back, to be put
    /// back turn by turn.
    #[inline]
    pub fn put_row_behind_backlog(&self, row: TurnRow) -> Result<Then, TurnRow> {
        if self.backlog.0.is_empty() {
            return Err(row);
        }
        let some = !row.is_empty();
        if some {
            self.backlog.0.push(row);
        }
        Ok(Then::wants_help_if(some))
    }

    /// Puts a turn into the ring, or behind it if there is no room.
    #[inline]
    pub fn push_or_defer(&self, new: Turn) -> Then {
        match self.ring.push(new.into_raw()) {
            // Not each time: to wake a worker takes longer than many turns.
            Ok(len) => Then::wants_help_if(len >= LONG && len.is_multiple_of(STEAL_BATCH)),
            Err(item) => self.defer(turn(item)),
        }
    }

    /// There is no room in the ring.
    fn defer(&self, turn: Turn) -> Then {
        let mut row = TurnRow::new();
        row.push_back(turn);
        let before = self.backlog.0.len();
        self.backlog.0.push(row);
        Then::wants_help_if(before.is_multiple_of(STEAL_BATCH))
    }
}

impl Drop for Tray {
    fn drop(&mut self) {
        drop(self.take_next());
        while let Some(item) = self.ring.pop() {
            drop(turn(item));
        }
    }
}

#[inline]
fn turn(item: Item) -> Turn {
    // SAFETY: everything in rings and slots came from `into_raw`, and each
    // comes out once (R2, a swap). Noticed by `steal_vs_pop` and
    // `slot_hands_over_once`.
    unsafe { Turn::from_raw(item) }
}
