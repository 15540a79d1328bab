//! Conversion from and to `std::fs::File`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::File;
use crate::io::{Fd, give_away, lend};

impl File {
    /// Converts a file of std's, for use in the current job.
    ///
    /// # Errors
    /// Outside any job, and in a simulation.
    pub fn from_std(file: std::fs::File) -> io::Result<File> {
        OwnedFd::from(file).try_into()
    }

    /// Returns a file of std's, unless an abandoned operation still uses it.
    ///
    /// # Errors
    /// The file, if one does; and in a simulation.
    pub fn into_std(self) -> Result<std::fs::File, File> {
        match give_away(self.fd) {
            Ok(fd) => Ok(fd.into()),
            Err(fd) => Err(File::new(fd)),
        }
    }
}

impl TryFrom<OwnedFd> for File {
    type Error = io::Error;

    /// As [`File::from_std`].
    fn try_from(file: OwnedFd) -> io::Result<File> {
        Ok(File::new(Fd::adopt(file)?))
    }
}

impl AsFd for File {
    /// # Panics
    /// In a simulation, whose files have no descriptor.
    fn as_fd(&self) -> BorrowedFd<'_> {
        lend(&self.fd)
    }
}
