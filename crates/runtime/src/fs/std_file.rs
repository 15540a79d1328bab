//! Files that come from elsewhere, or go there.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::File;
use crate::io::{Fd, give_away, lend};

impl File {
    /// A file of std's, for the job that is polled here.
    ///
    /// # Errors
    /// Outside every job, and in a simulation.
    pub fn from_std(file: std::fs::File) -> io::Result<File> {
        OwnedFd::from(file).try_into()
    }

    /// A file for std, if no operation that nobody waits for still uses it.
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
