//! The choices of a simulation beside the next task: which points yield, and on some
//! seeds another way to draw than with equal chances.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::Waker;

use kinfolk_core::{JobId, PointHeld};

use crate::rng::Rng;

/// One point in so many yields, on three seeds of eight. Each yield costs a turn: on
/// every seed they would cost more than they would find.
const YIELDS: u64 = 4;

/// With priorities, a task loses its own less often than this.
const CHANGES: usize = 3;

/// How many turns in a row a task may have before it loses its priority: a task
/// that waits for another in a loop would starve that other.
const IN_A_ROW: u32 = 64;

/// Of more ready tasks than this, as many are considered.
const LOOKED_AT: usize = 64;

/// How many tasks may wait for a spurious wake-up.
const NUDGES: usize = 8;

/// One turn in so many is followed by a spurious wake-up later on, if tasks wait
/// for one.
const NUDGED: usize = 8;

/// The place of a seed among eight, for one feature of a simulation. Of the eight seeds from
/// a multiple of eight on each has another place. From the second eight on the places begin
/// elsewhere for each feature, so that any two features also meet, and rough i/o, which odd
/// seeds have, meets them all.
fn one_of_eight(seed: u64, feature: u64) -> u64 {
    let eight = seed / 8;
    let shift = match eight {
        0 => 0,
        _ => Rng::new(eight ^ feature).next_u64(),
    };
    (seed % 8).wrapping_add(shift) % 8
}

/// Decides for each point of a simulation that would go on whether it yields.
#[derive(Clone)]
pub(crate) struct Yields(Arc<Drawn>);

struct Drawn {
    rng: AtomicU64,
    yields: AtomicU64,
}

impl Yields {
    /// None on the other five of eight seeds.
    pub(crate) fn of(seed: u64) -> Option<Yields> {
        matches!(one_of_eight(seed, 0x0079_6965_6c64), 1 | 3 | 7).then(|| Yields::seeded(seed))
    }

    fn seeded(seed: u64) -> Yields {
        Yields(Arc::new(Drawn {
            // Another sequence of numbers than that of the turns.
            rng: AtomicU64::new(seed ^ 0x706f_696e_7473),
            yields: AtomicU64::new(0),
        }))
    }

    /// Called at a point, on the one thread of the simulation.
    pub(crate) fn point(&self) -> PointHeld {
        let drawn = &*self.0;
        let mut rng = Rng::new(drawn.rng.load(Relaxed));
        let held = rng.next_u64().is_multiple_of(YIELDS);
        drawn.rng.store(rng.state(), Relaxed);
        if !held {
            return PointHeld::No;
        }
        drawn.yields.store(drawn.yields.load(Relaxed) + 1, Relaxed);
        PointHeld::Yes
    }

    /// How many points have yielded.
    pub(crate) fn count(&self) -> u64 {
        self.0.yields.load(Relaxed)
    }
}

/// How a simulation draws.
pub(crate) enum Schedule {
    /// Each ready task has the same chance.
    Even,
    /// The same, with spurious wake-ups now and then.
    Nudges(Nudges),
    /// The ready task with the highest priority runs. At a few turns the running task
    /// loses its own. Bugs that need a task to be delayed for long while others go on
    /// are found soon this way (Burckhardt et al., "A Randomized Scheduler with
    /// Probabilistic Guarantees of Finding Bugs", 2010).
    Priorities(Priorities),
    /// Each has the same chance, but one task at a time is slow: it must wait for
    /// many turns of others.
    Slow(Slow),
}

#[derive(Default)]
pub(crate) struct Nudges(Vec<Waker>);

pub(crate) struct Priorities {
    salt: u64,
    /// The turns at which a task loses its priority.
    changes: Vec<u64>,
    /// Tasks that have lost theirs, the latest at the end: it has the lowest
    /// priority.
    lowered: Vec<JobId>,
    /// The task that had the last turns, and how many.
    last: Option<(JobId, u32)>,
}

pub(crate) struct Slow {
    /// When the next task is chosen, or the chosen one is released.
    until: u64,
    task: Option<JobId>,
}

/// A number of about any size up to 2^`most`.
fn of_any_size(rng: &mut Rng, most: usize) -> u64 {
    let size = 1_u64 << rng.below(most);
    size + rng.next_u64() % size
}

impl Schedule {
    /// The schedule of a seed, by its number: eight seeds from a multiple of eight on have
    /// some of each kind.
    pub(crate) fn of(seed: u64) -> Schedule {
        let mut rng = Rng::new(seed ^ 0x7363_6865_6475_6c65);
        match one_of_eight(seed, 0x0064_7261_7773) {
            2 | 7 => Schedule::Priorities(Priorities {
                salt: rng.next_u64(),
                changes: (0..rng.below(CHANGES))
                    .map(|_| of_any_size(&mut rng, 10))
                    .collect(),
                lowered: Vec::new(),
                last: None,
            }),
            4 => Schedule::Slow(Slow {
                until: of_any_size(&mut rng, 5),
                task: None,
            }),
            6 => Schedule::Nudges(Nudges::default()),
            _ => Schedule::Even,
        }
    }

    /// Which of `len` ready tasks has turn `turn`, given the one that was drawn.
    pub(crate) fn pick(
        &mut self,
        rng: &mut Rng,
        turn: u64,
        drawn: usize,
        len: usize,
        job: impl Fn(usize) -> JobId,
    ) -> usize {
        match self {
            Schedule::Even | Schedule::Nudges(_) => drawn,
            Schedule::Priorities(priorities) => {
                let at = (drawn..len)
                    .chain(0..drawn)
                    .take(if len > 1 { LOOKED_AT } else { 0 })
                    .max_by_key(|at| priorities.of(job(*at)))
                    .unwrap_or(drawn);
                priorities.turned(turn, job(at));
                at
            }
            Schedule::Slow(slow) => {
                slow.go_on(rng, turn, job(drawn));
                match slow.task == Some(job(drawn)) {
                    true => (drawn + 1) % len,
                    false => drawn,
                }
            }
        }
    }

    /// A task has had a turn: it may get a spurious wake-up later.
    pub(crate) fn turned(&mut self, rng: &mut Rng, waker: impl FnOnce() -> Waker) {
        if let Schedule::Nudges(Nudges(kept)) = self
            && rng.below(NUDGED) == 0
        {
            if kept.len() == NUDGES {
                kept.swap_remove(rng.below(NUDGES));
            }
            kept.push(waker());
        }
    }

    /// The waker for a spurious wake-up now, if there is one.
    pub(crate) fn nudge(&mut self, rng: &mut Rng) -> Option<Waker> {
        match self {
            Schedule::Nudges(Nudges(kept)) if !kept.is_empty() && rng.below(NUDGED) == 0 => {
                Some(kept.swap_remove(rng.below(kept.len())))
            }
            _ => None,
        }
    }
}

impl Priorities {
    fn of(&self, job: JobId) -> u64 {
        match self.lowered.iter().rposition(|other| *other == job) {
            // Below all that have their own, and the later the lower.
            Some(at) => (self.lowered.len() - at) as u64,
            None => Rng::new(self.salt ^ job.number()).next_u64() | 1 << 63,
        }
    }

    fn turned(&mut self, turn: u64, job: JobId) {
        let in_a_row = match self.last {
            Some((last, turns)) if last == job => turns + 1,
            _ => 1,
        };
        self.last = Some((job, in_a_row));
        if self.changes.contains(&turn) || in_a_row.is_multiple_of(IN_A_ROW) {
            self.lowered.retain(|other| *other != job);
            self.lowered.push(job);
        }
    }
}

impl Slow {
    fn go_on(&mut self, rng: &mut Rng, turn: u64, drawn: JobId) {
        if turn < self.until {
            return;
        }
        // In turn: a task is chosen for a while, then none.
        self.task = match self.task {
            Some(_) => None,
            None => Some(drawn),
        };
        self.until = turn + of_any_size(rng, 7);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Among few seeds every way to draw meets yields and none, and rough i/o and fair.
    #[test]
    fn test_2_features_of_seeds_meet_each_other() {
        let mut met = BTreeSet::new();
        for seed in 0..64 {
            let draws = match Schedule::of(seed) {
                Schedule::Even => "even",
                Schedule::Nudges(_) => "nudges",
                Schedule::Priorities(_) => "priorities",
                Schedule::Slow(_) => "slow",
            };
            let (yields, rough) = (Yields::of(seed).is_some(), seed % 2 == 1);
            met.insert((draws, "yields", yields));
            met.insert((draws, "rough", rough));
            met.insert(("yields", if yields { "on" } else { "off" }, rough));
        }
        assert_eq!(met.len(), 8 + 8 + 4, "{met:?}");
    }

    /// The eight seeds from a multiple of eight on have some of each.
    #[test]
    fn test_2_few_seeds_have_some_of_each() {
        for first in (0..800).step_by(8) {
            let seeds = first..first + 8;
            let drawn = |is: fn(&Schedule) -> bool| {
                seeds
                    .clone()
                    .filter(|seed| is(&Schedule::of(*seed)))
                    .count()
            };
            assert_eq!(drawn(|of| matches!(of, Schedule::Priorities(_))), 2);
            assert_eq!(drawn(|of| matches!(of, Schedule::Slow(_))), 1);
            assert_eq!(drawn(|of| matches!(of, Schedule::Nudges(_))), 1);
            let yields = seeds.clone().filter(|seed| Yields::of(*seed).is_some());
            assert_eq!(yields.count(), 3);
        }
    }
}
