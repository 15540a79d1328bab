//! Which thread polls a task, as data. The types that a spawn takes are in
//! [`surface::lane`](crate::surface::lane).

use std::fmt;

use crate::base::priority::Priority;

/// Where a task is polled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
#[non_exhaustive]
pub enum Lane {
    /// By whichever worker has time.
    #[default]
    Pool,
    /// By the one thread that owns the runtime.
    Main,
    /// By the worker of that number.
    Pinned(u16),
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lane::Pool => f.write_str("pool"),
            Lane::Main => f.write_str("main"),
            Lane::Pinned(n) => write!(f, "pinned {n}"),
        }
    }
}

/// How many workers have a lane of their own, at most: a header has one byte for it.
pub(crate) const MOST_PINNED: u16 = 252;

/// A [`Lane`] as headers have it: one byte, which is 0 for most turns there are. Of the pool
/// it says the [`Priority`] too, so that one comparison tells those turns from all others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LaneMark(u8);

impl LaneMark {
    /// The pool, with the normal priority.
    pub(crate) const POOL: LaneMark = LaneMark(0);
    /// The pool, with the others.
    const HIGH: LaneMark = LaneMark(1);
    const LOW: LaneMark = LaneMark(2);
    const MAIN: LaneMark = LaneMark(3);
    /// Of worker 0; the others follow.
    const FIRST_PINNED: u8 = 4;

    /// That of a lane that is there: of a worker below [`MOST_PINNED`]. With the normal
    /// priority.
    #[inline]
    pub(crate) const fn of(lane: Lane) -> LaneMark {
        match lane {
            Lane::Pool => LaneMark::POOL,
            Lane::Main => LaneMark::MAIN,
            Lane::Pinned(n) => LaneMark(LaneMark::FIRST_PINNED + n as u8),
        }
    }

    /// The same with a priority, which is seen where the lane is the pool.
    #[inline]
    pub(crate) const fn with(lane: Lane, priority: PriorityMark) -> LaneMark {
        match lane {
            Lane::Pool => LaneMark(priority.0),
            _ => LaneMark::of(lane),
        }
    }

    /// The priority, where the lane is the pool.
    #[inline]
    pub(crate) const fn pool_priority(self) -> Option<Priority> {
        match self {
            LaneMark::POOL => Some(Priority::Normal),
            LaneMark::HIGH => Some(Priority::High),
            LaneMark::LOW => Some(Priority::Low),
            _ => None,
        }
    }

    #[inline]
    pub(crate) const fn lane(self) -> Lane {
        match self {
            LaneMark::POOL | LaneMark::HIGH | LaneMark::LOW => Lane::Pool,
            LaneMark::MAIN => Lane::Main,
            LaneMark(n) => Lane::Pinned((n - LaneMark::FIRST_PINNED) as u16),
        }
    }

    /// True if one thread alone turns it.
    #[inline]
    pub(crate) fn has_home(self) -> bool {
        self.0 >= LaneMark::MAIN.0
    }

    /// True if it is the pool, and the priority is not the normal one.
    #[inline]
    pub(crate) fn is_preferred(self) -> bool {
        // One step for both.
        self.0.wrapping_sub(LaneMark::HIGH.0) <= LaneMark::LOW.0 - LaneMark::HIGH.0
    }

    /// True if both are of one lane, whatever the priority.
    #[inline]
    pub(crate) fn is_lane_of(self, other: LaneMark) -> bool {
        self == other || !(self.has_home() || other.has_home())
    }
}

/// A [`Priority`] as headers have it: two bits, which are 0 for the normal one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PriorityMark(u8);

impl PriorityMark {
    #[inline]
    pub(crate) const fn of(priority: Priority) -> PriorityMark {
        PriorityMark(match priority {
            Priority::Normal => LaneMark::POOL.0,
            Priority::High => LaneMark::HIGH.0,
            Priority::Low => LaneMark::LOW.0,
        })
    }

    #[inline]
    pub(crate) const fn priority(self) -> Priority {
        match LaneMark(self.0) {
            LaneMark::HIGH => Priority::High,
            LaneMark::LOW => Priority::Low,
            _ => Priority::Normal,
        }
    }

    /// Of the two lowest bits.
    #[inline]
    pub(crate) const fn from_bits(bits: u32) -> PriorityMark {
        PriorityMark((bits & 3) as u8)
    }

    #[inline]
    pub(crate) const fn bits(self) -> u32 {
        self.0 as u32
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// The mark of the pool says the priority, that of another lane does not; the lane comes
    /// back whatever the priority was.
    #[test]
    fn a_mark_says_the_lane_and_of_the_pool_the_priority() {
        let lanes = [
            Lane::Pool,
            Lane::Main,
            Lane::Pinned(0),
            Lane::Pinned(MOST_PINNED - 1),
        ];
        for lane in lanes {
            for priority in [Priority::Low, Priority::Normal, Priority::High] {
                let kept = PriorityMark::of(priority);
                assert_eq!(
                    PriorityMark::from_bits(kept.bits() | 4).priority(),
                    priority
                );
                let mark = LaneMark::with(lane, kept);
                assert_eq!(mark.lane(), lane);
                assert_eq!(mark.has_home(), lane != Lane::Pool);
                let pool = (lane == Lane::Pool).then_some(priority);
                assert_eq!(mark.pool_priority(), pool);
                assert_eq!(
                    mark.is_preferred(),
                    pool.is_some_and(|one| one != Priority::Normal)
                );
                for other in lanes {
                    assert_eq!(mark.is_lane_of(LaneMark::of(other)), lane == other);
                }
            }
        }
    }
}
