//! The turns of a simulation that are ready, by lane. The seed draws one by its number.

use std::collections::VecDeque;

use kinfolk_core::host::{Lane, Turn};

/// A turn of the main lane.
enum MainTurn {
    Alone(Turn),
    /// A timer woke it: whichever of these is drawn, the first in `by_timer` is taken.
    /// One thread turns that lane, in the order of deadlines (time-6).
    ByTimer,
}

/// The ready turns. Those of the pool have the numbers from 0 on, those of the main lane
/// follow.
#[derive(Default)]
pub(crate) struct ReadyTurns {
    pool: Vec<Turn>,
    main: Vec<MainTurn>,
    /// The turns of those that are `MainTurn::ByTimer`, in the order of their timers.
    by_timer: VecDeque<Turn>,
}

impl ReadyTurns {
    /// A turn is ready; whether a timer woke it.
    pub(crate) fn push(&mut self, turn: Turn, by_timer: bool) {
        match turn.lane() {
            Lane::Main if by_timer => {
                self.by_timer.push_back(turn);
                self.main.push(MainTurn::ByTimer);
            }
            Lane::Main => self.main.push(MainTurn::Alone(turn)),
            _ => self.pool.push(turn),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.pool.len() + self.main.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The numbers of the turns of one lane.
    pub(crate) fn of(&self, lane: Lane) -> std::ops::Range<usize> {
        match lane {
            Lane::Main => self.pool.len()..self.len(),
            _ => 0..self.pool.len(),
        }
    }

    /// The turn that is taken if `at` is drawn.
    pub(crate) fn get(&self, at: usize) -> &Turn {
        match at.checked_sub(self.pool.len()) {
            None => &self.pool[at],
            Some(at) => match &self.main[at] {
                MainTurn::Alone(turn) => turn,
                MainTurn::ByTimer => &self.by_timer[0],
            },
        }
    }

    /// Takes out the turn that was drawn.
    pub(crate) fn take(&mut self, at: usize) -> Turn {
        match at.checked_sub(self.pool.len()) {
            None => self.pool.swap_remove(at),
            Some(at) => match self.main.swap_remove(at) {
                MainTurn::Alone(turn) => turn,
                MainTurn::ByTimer => match self.by_timer.pop_front() {
                    Some(turn) => turn,
                    None => unreachable!("each of those that a timer woke has a turn"),
                },
            },
        }
    }
}
