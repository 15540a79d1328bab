//! The turns of a simulation that are ready, by lane. The seed draws one by its number.

use std::collections::VecDeque;

use kinfolk_core::host::{Lane, Turn};

/// A turn that may be drawn.
enum ReadyTurn {
    Alone(Turn),
    /// A timer woke its task, and one thread turns its lane: whichever of these is
    /// drawn, the first of that lane in `by_timer` is taken, in the order of deadlines
    /// (time-6).
    ByTimer(Lane),
}

/// The ready turns. The turns that workers take, of the pool and of pinned lanes, have
/// the numbers from 0 on, those of the main lane follow.
#[derive(Default)]
pub(crate) struct ReadyTurns {
    workers: Vec<ReadyTurn>,
    main: Vec<ReadyTurn>,
    /// The turns of those that are `ReadyTurn::ByTimer`, in the order of their timers.
    by_timer: Vec<(Lane, VecDeque<Turn>)>,
}

impl ReadyTurns {
    /// Adds a ready turn; `by_timer` says whether a timer woke its task.
    pub(crate) fn push(&mut self, turn: Turn, by_timer: bool) {
        let lane = turn.lane();
        let ready = match lane {
            Lane::Pool => ReadyTurn::Alone(turn),
            _ if !by_timer => ReadyTurn::Alone(turn),
            _ => {
                self.of_timers(lane).push_back(turn);
                ReadyTurn::ByTimer(lane)
            }
        };
        match lane {
            Lane::Main => self.main.push(ready),
            _ => self.workers.push(ready),
        }
    }

    fn of_timers(&mut self, lane: Lane) -> &mut VecDeque<Turn> {
        let at = match self.by_timer.iter().position(|(of, _)| *of == lane) {
            Some(at) => at,
            None => {
                self.by_timer.push((lane, VecDeque::new()));
                self.by_timer.len() - 1
            }
        };
        &mut self.by_timer[at].1
    }

    pub(crate) fn len(&self) -> usize {
        self.workers.len() + self.main.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The numbers of the turns of the main lane, or of the turns that workers
    /// take.
    pub(crate) fn of(&self, lane: Lane) -> std::ops::Range<usize> {
        match lane {
            Lane::Main => self.workers.len()..self.len(),
            _ => 0..self.workers.len(),
        }
    }

    /// The turn that is taken if `at` is drawn.
    pub(crate) fn get(&self, at: usize) -> &Turn {
        let ready = match at.checked_sub(self.workers.len()) {
            None => &self.workers[at],
            Some(at) => &self.main[at],
        };
        match ready {
            ReadyTurn::Alone(turn) => turn,
            ReadyTurn::ByTimer(lane) => {
                let of_lane = self.by_timer.iter().find(|(of, _)| of == lane);
                match of_lane.and_then(|(_, turns)| turns.front()) {
                    Some(turn) => turn,
                    None => unreachable!("each of those that a timer woke has a turn"),
                }
            }
        }
    }

    /// Takes out the turn that was drawn.
    pub(crate) fn take(&mut self, at: usize) -> Turn {
        let ready = match at.checked_sub(self.workers.len()) {
            None => self.workers.swap_remove(at),
            Some(at) => self.main.swap_remove(at),
        };
        match ready {
            ReadyTurn::Alone(turn) => turn,
            ReadyTurn::ByTimer(lane) => match self.of_timers(lane).pop_front() {
                Some(turn) => turn,
                None => unreachable!("each of those that a timer woke has a turn"),
            },
        }
    }
}
