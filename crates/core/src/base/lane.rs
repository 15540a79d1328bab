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
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Lane::Pool => "pool",
            Lane::Main => "main",
        })
    }
}
