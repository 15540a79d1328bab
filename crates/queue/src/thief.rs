//! What a worker takes from the trays of others: what has waited there for long, and
//! what is more than their owners can do soon.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use kinfolk_core::host::Turn;

use crate::tray::{LONG, Sight, Tray};

/// What has waited this long at another's tray is stolen.
pub const STALE: Duration = Duration::from_micros(50);

/// How soon the sentinel looks again.
pub const MOMENT: Duration = Duration::from_millis(1);

/// How many more turns than we have are far more.
const FAR_MORE: usize = 64;

/// A worker's memory of the other trays.
#[derive(Default)]
pub struct Thief {
    /// By tray: when something was seen there, and what.
    seen: RefCell<Vec<Option<(Instant, Sight)>>>,
    /// Which load is looked at next, and how many turns each owner had begun when it
    /// was looked at last.
    whose: Cell<usize>,
    begun: RefCell<Vec<u32>>,
}

impl std::fmt::Debug for Thief {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Thief")
    }
}

impl Thief {
    /// One that knows of `trays` trays; it learns of others when it sees them.
    pub fn new(trays: usize) -> Thief {
        Thief {
            seen: RefCell::new(vec![None; trays]),
            whose: Cell::new(0),
            begun: RefCell::new(vec![0; trays]),
        }
    }

    /// Takes what has waited for long at tray `n`, or half of what is there if that is
    /// more than its owner can do soon. True if that was something.
    pub fn steal(
        &self,
        n: usize,
        tray: &Tray,
        now: impl FnOnce() -> Instant,
        mut take: impl FnMut(Turn),
    ) -> bool {
        let found = Cell::new(false);
        let mut take = |turn| {
            found.set(true);
            take(turn);
        };
        let there = tray.load().0;
        if there >= LONG || tray.has_backlog() {
            // However new that is.
            tray.give(there.div_ceil(2), &mut take);
            if found.get() {
                return true;
            }
        }
        let sight = tray.look();
        let Some(before) = self.seen_for_long(n, sight, now) else {
            return false;
        };
        if sight.head < before.tail {
            tray.give_until(before.tail, &mut take);
        }
        if sight.holds_next_of(&before)
            && let Some(turn) = tray.give_next(sight.next)
        {
            take(turn);
        }
        found.get()
    }

    /// What was seen at tray `n` long ago, if some of it is still there; it is
    /// forgotten then. Else `sight` is remembered, if there is nothing older.
    fn seen_for_long(
        &self,
        n: usize,
        sight: Sight,
        now: impl FnOnce() -> Instant,
    ) -> Option<Sight> {
        let mut seen = self.seen.borrow_mut();
        if n >= seen.len() {
            seen.resize(n + 1, None);
        }
        let before = seen[n].filter(|(_, before)| sight.has_some_of(before));
        match before {
            None if sight.is_empty() => {
                seen[n] = None;
                None
            }
            None => {
                seen[n] = Some((now(), sight));
                None
            }
            Some((at, before)) if now() - at >= STALE => {
                seen[n] = None;
                Some(before)
            }
            Some(_) => None,
        }
    }

    /// True if something was seen that is not old enough yet.
    pub fn has_seen(&self) -> bool {
        self.seen.borrow().iter().any(Option::is_some)
    }

    /// Takes half of what another has more than worker `own`, so that tasks have as
    /// many turns with one worker as with another: each of `trays` in its turn. One
    /// that is in the same turn as when it was looked at last does nothing of it:
    /// half of all.
    pub fn even_out<'a>(
        &self,
        own: usize,
        trays: usize,
        tray: impl Fn(usize) -> &'a Tray,
        take: impl FnMut(Turn),
    ) {
        let n = self.whose.get() % trays;
        self.whose.set(n + 1);
        if n == own {
            return;
        }
        let other = tray(n);
        let turns = other.turns();
        let mut begun = self.begun.borrow_mut();
        if n >= begun.len() {
            begun.resize(n + 1, 0);
        }
        let stays = std::mem::replace(&mut begun[n], turns) == turns;
        drop(begun);
        let (have, least) = match stays {
            true => (0, 0),
            false => (tray(own).load().0, FAR_MORE),
        };
        let more = other.load().0.saturating_sub(have);
        if more > least {
            other.give(more.div_ceil(2), take);
        }
    }
}
