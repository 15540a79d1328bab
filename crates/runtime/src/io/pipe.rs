//! Pipes.

use std::fmt;
use std::io;

use super::ops::{Read, Write};
use super::{Fd, IoBuf, IoBufMut, IoHandle, IoOp, Offset, Op, start};

/// Makes a pipe: bytes that are written to one end are read from the other.
///
/// # Errors
/// Those of the system, and outside any job.
pub fn pipe() -> io::Result<(PipeReader, PipeWriter)> {
    let handle = IoHandle::current()?;
    let (reader, writer) = handle.system().pipe(handle.nonblocking()?)?;
    let reader = PipeReader {
        fd: Fd::new(reader, handle.clone()),
    };
    let writer = PipeWriter {
        fd: Fd::new(writer, handle),
    };
    Ok((reader, writer))
}

/// The end of a pipe that is read from; made by [`pipe`].
pub struct PipeReader {
    pub(super) fd: Fd,
}

impl PipeReader {
    /// Reads into `buf`, up to its capacity. Returns how many bytes were read: 0 once the other
    /// end is closed and the pipe is empty.
    ///
    /// # Cancellation
    /// A *point*. The buffer comes back either way; bytes that were not read stay in the pipe.
    #[track_caller]
    pub fn read<B: IoBufMut>(
        &self,
        buf: B,
    ) -> impl Future<Output = (io::Result<usize>, B)> + Send + use<B> {
        self.read_op(buf)
    }

    #[track_caller]
    pub(super) fn read_op<B: IoBufMut>(&self, buf: B) -> Op<Read<B>> {
        Op::new(None, Read::new(self.fd.clone(), buf, Offset::Current))
    }

    /// Begins [`read`](PipeReader::read) without waiting for it.
    #[track_caller]
    pub fn start_read<B: IoBufMut>(&self, buf: B) -> IoOp<(io::Result<usize>, B)> {
        let read = Read::new(self.fd.clone(), buf, Offset::Current);
        start(self.fd.handle(), read)
    }
}

impl fmt::Debug for PipeReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PipeReader({:?})", self.fd)
    }
}

/// The end of a pipe that is written to; made by [`pipe`].
pub struct PipeWriter {
    pub(super) fd: Fd,
}

impl PipeWriter {
    /// Writes the bytes of `buf`. Returns how many were written.
    ///
    /// # Cancellation
    /// A *point*. The buffer comes back either way.
    #[track_caller]
    pub fn write<B: IoBuf>(
        &self,
        buf: B,
    ) -> impl Future<Output = (io::Result<usize>, B)> + Send + use<B> {
        self.write_op(buf)
    }

    #[track_caller]
    pub(super) fn write_op<B: IoBuf>(&self, buf: B) -> Op<Write<B>> {
        Op::new(None, Write::new(self.fd.clone(), buf, Offset::Current))
    }

    /// Begins [`write`](PipeWriter::write) without waiting for it.
    #[track_caller]
    pub fn start_write<B: IoBuf>(&self, buf: B) -> IoOp<(io::Result<usize>, B)> {
        let write = Write::new(self.fd.clone(), buf, Offset::Current);
        start(self.fd.handle(), write)
    }
}

impl fmt::Debug for PipeWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PipeWriter({:?})", self.fd)
    }
}
