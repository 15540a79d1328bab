//! Which operations wait for which file, and what for.
//!
//! Files are known by their number, and a number may be another file's
//! tomorrow. So a report of the system is taken for a hint and nothing more:
//! the operations that wait for that number try again. What must not happen is that the
//! driver takes a file for armed which is not; hence a file without a waiting operation is
//! never left armed (W1 in [`super`]).

use std::collections::VecDeque;
use std::time::Duration;

use super::poller::PollEvent;
use crate::io::driver::OpId;

/// In which direction an operation waits. Those of one direction are served in
/// the order they came; those that only want to know are served all at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    Read,
    Write,
    Poll,
}

/// What the system is to report of a file, in bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct EventMask(u8);

impl EventMask {
    pub(super) const NONE: EventMask = EventMask(0);
    pub(super) const READ: EventMask = EventMask(1);
    pub(super) const WRITE: EventMask = EventMask(2);
    pub(super) const URGENT: EventMask = EventMask(4);
    /// Errors and hang-ups, which are always reported of a file that is armed.
    pub(super) const ERRORS: EventMask = EventMask(8);
    const BITS: usize = 4;

    /// What `poll` wants to know.
    pub(super) fn of_poll(events: u32) -> EventMask {
        let has = |bit: libc::c_short| events & bit as u32 != 0;
        let mut bits = EventMask::ERRORS.0;
        if has(libc::POLLOUT) {
            bits |= EventMask::WRITE.0;
        }
        if has(libc::POLLPRI) {
            bits |= EventMask::URGENT.0;
        }
        // All that is left comes with something to read.
        if events & !((libc::POLLOUT | libc::POLLPRI) as u32) != 0 {
            bits |= EventMask::READ.0;
        }
        EventMask(bits)
    }

    fn without(self, other: EventMask) -> EventMask {
        EventMask(self.0 & !other.0)
    }

    fn bits(self) -> impl Iterator<Item = usize> {
        (0..EventMask::BITS).filter(move |bit| self.0 & (1 << bit) != 0)
    }

    pub(super) fn covers(self, other: EventMask) -> bool {
        self.0 & other.0 == other.0
    }

    pub(super) fn event(self, key: usize) -> PollEvent {
        let read = self.covers(EventMask::READ);
        let mut event = PollEvent::new(key, read, self.covers(EventMask::WRITE));
        event.set_priority(self.covers(EventMask::URGENT));
        event
    }
}

/// The operations that wait in one direction, in the order they came. One that was taken
/// out leaves its number behind, which means no operation.
#[derive(Debug, Default)]
pub(super) struct WaitQueue {
    ids: VecDeque<OpId>,
    living: usize,
}

impl WaitQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.living == 0
    }

    fn push(&mut self, id: OpId) {
        self.ids.push_back(id);
        self.living += 1;
    }

    /// One that is in here is gone. `lives` says of the others whether they are.
    fn gone(&mut self, lives: impl Fn(OpId) -> bool) {
        self.living -= 1;
        if self.living == 0 {
            self.ids.clear();
        } else if self.ids.len() > 2 * self.living + 16 {
            // Each number that is looked at now has cost one removal before.
            self.ids.retain(|id| lives(*id));
        }
    }

    /// The first operation that waits.
    pub(super) fn first(&mut self, lives: impl Fn(OpId) -> bool) -> Option<OpId> {
        while let Some(id) = self.ids.front() {
            if lives(*id) {
                return Some(*id);
            }
            self.ids.pop_front();
        }
        None
    }

    /// All operations that wait.
    pub(super) fn all(&self, lives: impl Fn(OpId) -> bool) -> Vec<OpId> {
        self.ids.iter().copied().filter(|id| lives(*id)).collect()
    }
}

/// The operations that wait for one file.
#[derive(Debug, Default)]
pub(super) struct FileWatch {
    rows: [WaitQueue; 3],
    /// How many want each bit of an interest.
    wants: [usize; EventMask::BITS],
    /// What the system is to report, once.
    pub(super) armed: EventMask,
    /// The system may know this number from before.
    pub(super) known: bool,
    /// How often in a row each direction was reported in vain.
    vain: [u32; 2],
    /// What is not asked for now, because it is reported in vain.
    rests: EventMask,
}

/// So often in a row a report may be in vain: others may have been quicker.
const IN_VAIN: u32 = 8;

/// The shortest and the longest rest of a direction that is reported in vain.
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(10);

impl FileWatch {
    pub(super) fn row(&mut self, side: Side) -> &mut WaitQueue {
        &mut self.rows[side as usize]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.iter().all(WaitQueue::is_empty)
    }

    pub(super) fn push(&mut self, side: Side, interest: EventMask, id: OpId) {
        self.row(side).push(id);
        for bit in interest.bits() {
            self.wants[bit] += 1;
        }
    }

    pub(super) fn gone(&mut self, side: Side, interest: EventMask, lives: impl Fn(OpId) -> bool) {
        self.row(side).gone(lives);
        for bit in interest.bits() {
            self.wants[bit] -= 1;
        }
    }

    /// All operations that wait, in any direction.
    pub(super) fn all(&self, lives: impl Fn(OpId) -> bool) -> Vec<OpId> {
        self.rows.iter().flat_map(|row| row.all(&lives)).collect()
    }

    /// What those who wait want to be reported, and what does not rest.
    pub(super) fn wanted(&self) -> EventMask {
        let bits = self.wants.iter().enumerate();
        let all = bits.fold(0, |all, (bit, wants)| all | (u8::from(*wants > 0) << bit));
        EventMask(all).without(self.rests)
    }

    /// Something was reported of one direction, and an operation went on or none
    /// did. How long that direction rests, if it was in vain too often.
    pub(super) fn reported(&mut self, side: Side, went_on: bool) -> Option<Duration> {
        let (vain, bits) = match side {
            // The system reports an urgent byte as something to read.
            Side::Read => (
                &mut self.vain[0],
                EventMask(EventMask::READ.0 | EventMask::URGENT.0),
            ),
            _ => (&mut self.vain[1], EventMask::WRITE),
        };
        if went_on {
            *vain = 0;
            return None;
        }
        *vain = vain.saturating_add(1);
        let longer = vain.checked_sub(IN_VAIN)?;
        self.rests.0 |= bits.0;
        Some(LONGEST.min(SHORTEST * (1 << longer.min(4))))
    }

    /// All that rests is asked for again; in which directions a waiter went on.
    pub(super) fn rested(&mut self, read: bool, write: bool) {
        self.rests = EventMask::NONE;
        for (vain, went_on) in self.vain.iter_mut().zip([read, write]) {
            *vain *= u32::from(!went_on);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn id(index: u32) -> OpId {
        OpId {
            index,
            generation: 0,
        }
    }

    #[test]
    fn a_row_is_in_order_and_forgets_who_is_gone() {
        let mut row = WaitQueue::default();
        for n in 0..4 {
            row.push(id(n));
        }
        let lives = |id: OpId| id.index != 0 && id.index != 2;
        row.gone(lives);
        row.gone(lives);
        assert_eq!(row.first(lives), Some(id(1)));
        assert_eq!(row.all(lives), [id(1), id(3)]);
        row.gone(|id| id.index == 3);
        assert_eq!(row.first(|id| id.index == 3), Some(id(3)));
        row.gone(|_| false);
        assert!(row.is_empty());
        assert_eq!(row.first(|_| false), None);
    }

    /// One waits for ever, others come and go: the row does not grow.
    #[test]
    fn numbers_that_mean_nobody_do_not_pile_up() {
        let mut row = WaitQueue::default();
        row.push(id(0));
        for n in 1..10_000 {
            row.push(id(n));
            row.gone(|id| id.index == 0);
            assert!(row.ids.len() <= 19, "{}", row.ids.len());
        }
        assert_eq!(row.first(|id| id.index == 0), Some(id(0)));
    }

    #[test]
    fn a_watch_wants_what_its_own_want() {
        let mut watch = FileWatch::default();
        assert_eq!(watch.wanted(), EventMask::NONE);
        watch.push(Side::Read, EventMask::READ, id(0));
        watch.push(Side::Read, EventMask::READ, id(1));
        watch.push(Side::Write, EventMask::WRITE, id(2));
        let urgent = EventMask::of_poll(libc::POLLPRI as u32);
        watch.push(Side::Poll, urgent, id(3));
        for (side, gone) in [(Side::Read, 0), (Side::Write, 2)] {
            let interest = match side {
                Side::Read => EventMask::READ,
                _ => EventMask::WRITE,
            };
            watch.gone(side, interest, |id| id.index != gone);
        }
        assert!(watch.wanted().covers(EventMask::READ));
        assert!(!watch.wanted().covers(EventMask::WRITE));
        watch.gone(Side::Read, EventMask::READ, |id| id.index == 3);
        assert_eq!(watch.wanted(), urgent);
        assert!(!watch.wanted().covers(EventMask::READ), "it would spin");
        watch.gone(Side::Poll, urgent, |_| false);
        assert!(watch.is_empty());
        assert_eq!(watch.wanted(), EventMask::NONE);
    }
}
