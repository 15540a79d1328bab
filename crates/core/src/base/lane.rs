//! Which thread polls a task, as data. The types that a spawn takes are in
//! [`surface::lane`](crate::surface::lane).

use std::fmt;

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

/// A [`Lane`] as headers have it: one byte, which is 0 for most turns there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LaneMark(u8);

impl LaneMark {
    /// The pool.
    pub(crate) const POOL: LaneMark = LaneMark(0);
    const MAIN: LaneMark = LaneMark(1);
    /// Of worker 0; the others follow. Between the main lane and this two values are free.
    const FIRST_PINNED: u8 = 4;

    /// That of a lane that is there: of a worker below [`MOST_PINNED`].
    #[inline]
    pub(crate) const fn of(lane: Lane) -> LaneMark {
        match lane {
            Lane::Pool => LaneMark::POOL,
            Lane::Main => LaneMark::MAIN,
            Lane::Pinned(n) => LaneMark(LaneMark::FIRST_PINNED + n as u8),
        }
    }

    #[inline]
    pub(crate) const fn lane(self) -> Lane {
        match self {
            LaneMark::POOL => Lane::Pool,
            LaneMark::MAIN => Lane::Main,
            LaneMark(n) => Lane::Pinned((n - LaneMark::FIRST_PINNED) as u16),
        }
    }

    /// True if one thread alone turns it.
    #[inline]
    pub(crate) fn has_home(self) -> bool {
        self != LaneMark::POOL
    }
}
