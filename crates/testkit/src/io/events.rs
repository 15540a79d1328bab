//! [`SimEvents`]: the future events of a simulated kernel, with their times.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::time::Duration;

use super::op_table::OpNumber;
use super::wires::WireId;

/// An event at an instant; the order within one instant comes from the seed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct SimEvent {
    pub(crate) at: Duration,
    pub(crate) order: u64,
    pub(crate) count: OpNumber,
    pub(crate) what: Happens,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Happens {
    Over,
    CancelIsHeard,
    /// Data on its way along a stream arrives.
    Arrives(WireId),
    /// The message of that number.
    MessageArrives,
}

/// Future events, the first in front.
#[derive(Default)]
pub(crate) struct SimEvents {
    /// The first event in the heap was never called off.
    heap: BinaryHeap<Reverse<SimEvent>>,
    /// Events in the heap that were called off, which is rare.
    called_off: BTreeSet<SimEvent>,
}

impl SimEvents {
    pub(crate) fn push(&mut self, event: SimEvent) {
        self.heap.push(Reverse(event));
    }

    pub(crate) fn first(&self) -> Option<&SimEvent> {
        self.heap.peek().map(|Reverse(event)| event)
    }

    /// Takes the first event out, if its time is not after `now`.
    pub(crate) fn pop_by(&mut self, now: Duration) -> Option<SimEvent> {
        if self.first()?.at > now {
            return None;
        }
        let first = self.heap.pop().map(|Reverse(event)| event);
        self.forget();
        first
    }

    /// An event that was pushed, and not popped, does not happen.
    pub(crate) fn call_off(&mut self, event: SimEvent) {
        self.called_off.insert(event);
        self.forget();
        if self.called_off.len() > 64 + self.heap.len() / 2 {
            // Else a storm of cancels would keep its events until they are due.
            let off = std::mem::take(&mut self.called_off);
            self.heap.retain(|Reverse(event)| !off.contains(event));
        }
    }

    /// Takes out events at the front that were called off.
    fn forget(&mut self) {
        while !self.called_off.is_empty()
            && let Some(Reverse(first)) = self.heap.peek()
            && self.called_off.remove(first)
        {
            self.heap.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(at: u64) -> SimEvent {
        SimEvent {
            at: Duration::from_nanos(at),
            order: at % 7,
            count: at,
            what: Happens::Over,
        }
    }

    /// Events come in order, without those that were called off, and none before its
    /// time.
    #[test]
    fn what_was_called_off_does_not_happen() {
        let mut events = SimEvents::default();
        for at in [5, 1, 4, 2, 3] {
            events.push(event(at));
        }
        events.call_off(event(1));
        events.call_off(event(4));
        assert_eq!(events.first(), Some(&event(2)));
        assert_eq!(events.pop_by(Duration::from_nanos(1)), None);
        let later = Duration::from_nanos(4);
        let mut seen = Vec::new();
        while let Some(event) = events.pop_by(later) {
            seen.push(event.count);
        }
        assert_eq!(seen, [2, 3]);
        assert_eq!(events.first(), Some(&event(5)));
    }

    #[test]
    fn many_that_were_called_off_are_not_kept() {
        let mut events = SimEvents::default();
        (0..1000).for_each(|at| events.push(event(at)));
        (1..1000).for_each(|at| events.call_off(event(at)));
        assert!(events.heap.len() < 300, "{}", events.heap.len());
        assert_eq!(events.pop_by(Duration::MAX), Some(event(0)));
        assert_eq!(events.pop_by(Duration::MAX), None);
    }
}
