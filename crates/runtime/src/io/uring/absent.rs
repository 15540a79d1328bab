//! Stands in for the ring driver on systems without io_uring.

use std::io;

use crate::io::driver::Driver;

/// The ring driver, of which there is none.
pub(crate) enum UringDriver {}

impl UringDriver {
    /// # Errors
    /// Always.
    pub(crate) fn make(_threads: usize) -> io::Result<Vec<Box<dyn Driver>>> {
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "this system has no io_uring",
        ))
    }
}
