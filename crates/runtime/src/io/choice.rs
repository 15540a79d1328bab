//! Which driver, found out when there is the first operation.

use std::io;

use super::driver::Driver;
use super::uring::Uring;

/// Which driver a runtime carries out its i/o with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum IoDriver {
    /// io_uring where it works.
    #[default]
    Best,
}

impl IoDriver {
    pub(crate) fn make(self, stations: usize) -> io::Result<Vec<Box<dyn Driver>>> {
        match self {
            IoDriver::Best => Uring::make(stations),
        }
    }
}
