//! Pipes to their end, and pipes that come from elsewhere.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::Location;

use super::{Fd, IoBuf, PipeReader, PipeWriter, lend};

/// How much room there is at least for the next read.
const ROOM: usize = 32 * 1024;

impl PipeReader {
    /// Reads until the other end is closed, behind what is in `buf`; how many
    /// bytes.
    ///
    /// # Cancellation
    /// A *point*. What was read until then is in the buffer.
    ///
    /// # Errors
    /// Those of the system.
    #[track_caller]
    pub fn read_to_end(
        &self,
        buf: Vec<u8>,
    ) -> impl Future<Output = (io::Result<usize>, Vec<u8>)> + Send {
        self.read_to_end_for(Location::caller(), buf)
    }

    /// As above; snapshots and reports name `site`.
    async fn read_to_end_for(
        &self,
        site: &'static Location<'static>,
        buf: Vec<u8>,
    ) -> (io::Result<usize>, Vec<u8>) {
        let (mut buf, mut done) = (buf, 0);
        loop {
            if buf.capacity() - buf.len() < ROOM {
                buf.reserve(ROOM);
            }
            let filled = buf.len();
            let (read, part) = self.read_op(buf.slice(filled..)).at(site).await;
            buf = part.into_inner();
            match read {
                Ok(0) => return (Ok(done), buf),
                Ok(bytes) => done += bytes,
                Err(error) => return (Err(error), buf),
            }
        }
    }
}

impl PipeWriter {
    /// Writes all of `buf`.
    ///
    /// # Cancellation
    /// A *point*. Told half-way, part of it was written.
    ///
    /// # Errors
    /// `BrokenPipe` if the other end is closed, as long as the program ignores
    /// SIGPIPE, which Rust programs do.
    #[track_caller]
    pub fn write_all<B: IoBuf>(&self, buf: B) -> impl Future<Output = (io::Result<()>, B)> + Send {
        self.write_all_for(Location::caller(), buf)
    }

    /// As above; snapshots and reports name `site`.
    async fn write_all_for<B: IoBuf>(
        &self,
        site: &'static Location<'static>,
        buf: B,
    ) -> (io::Result<()>, B) {
        let (mut buf, mut done) = (buf, 0);
        while done < buf.filled() {
            let (written, part) = self.write_op(buf.slice(done..)).at(site).await;
            buf = part.into_inner();
            match written {
                Ok(0) => return (Err(io::ErrorKind::WriteZero.into()), buf),
                Ok(bytes) => done += bytes,
                Err(error) => return (Err(error), buf),
            }
        }
        (Ok(()), buf)
    }
}

impl TryFrom<OwnedFd> for PipeReader {
    type Error = io::Error;

    /// For the job that is polled here; fails outside any job, and in a
    /// simulation.
    fn try_from(end: OwnedFd) -> io::Result<PipeReader> {
        Ok(PipeReader {
            fd: Fd::adopt(end)?,
        })
    }
}

impl TryFrom<OwnedFd> for PipeWriter {
    type Error = io::Error;

    /// As for [`PipeReader`].
    fn try_from(end: OwnedFd) -> io::Result<PipeWriter> {
        Ok(PipeWriter {
            fd: Fd::adopt(end)?,
        })
    }
}

impl AsFd for PipeReader {
    /// # Panics
    /// In a simulation, whose pipes have no descriptor.
    fn as_fd(&self) -> BorrowedFd<'_> {
        lend(&self.fd)
    }
}

impl AsFd for PipeWriter {
    /// # Panics
    /// As for [`PipeReader`].
    fn as_fd(&self) -> BorrowedFd<'_> {
        lend(&self.fd)
    }
}
