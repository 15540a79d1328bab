//! [`BufWriter`]: small writes together.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use kinfolk_core::host::say::{Topic, say};
use kinfolk_core::kit::Point;

use super::{IoBuf, StreamEnd, StreamWrite, WriteStream, cancelled};

/// How much is collected unless the program says otherwise.
const SIZE: usize = 8 * 1024;

/// Collects small writes and writes them to a stream together.
///
/// The stream is a socket, a pipe, a file from some offset on, or a type of your own that
/// implements [`WriteStream`]; also a reference to one. Nothing is written by itself:
/// [`flush`](BufWriter::flush) at the end.
///
/// ```
/// # mod kinfolk { pub use kinfolk_core::*; pub use kinfolk_runtime::{io, net}; }
/// use kinfolk::{cleanup, io::{self, BufWriter}, net::TcpStream};
///
/// /// Sends numbers until it is told to stop; those that it has taken are sent.
/// async fn count(stream: TcpStream) -> kinfolk::Result<()> {
///     let mut out = BufWriter::new(stream);
///     let mut number = 0_u64;
///     let told = loop {
///         match out.write_all(format!("{number}\n")).await {
///             Ok(()) => number += 1,
///             Err(error) => break error,
///         }
///     };
///     if io::told(&told).is_some() {
///         cleanup(out.shutdown()).await?;
///     }
///     Err(told.into())
/// }
/// ```
///
/// # Cancellation
/// Each method that waits is a *point*. Told, a write has taken none of its bytes; a flush has
/// written [`written`](BufWriter::written) bytes since the writer was made, and the
/// [`unwritten`](BufWriter::unwritten) ones stay in the writer, for a flush in
/// [`cleanup`](kinfolk_core::cleanup). The same holds for a wait that is dropped half-way;
/// then the bytes of one operation may be counted late, at the next call.
///
/// Dropped with unwritten bytes, the writer says so on standard error, unless its stream has
/// failed before.
pub struct BufWriter<S: WriteStream> {
    stream: S,
    /// What was taken; the bytes before `sent` are written. With the operation while there
    /// is one.
    buf: Vec<u8>,
    sent: usize,
    size: usize,
    /// A write that is in flight, or was when the wait for it was dropped.
    write: Option<StreamWrite>,
    end: Option<StreamEnd>,
    unwritten: usize,
    written: u64,
    failed: bool,
}

impl<S: WriteStream> BufWriter<S> {
    /// Collects up to 8 KiB for `stream`.
    pub fn new(stream: S) -> BufWriter<S> {
        BufWriter::with_capacity(SIZE, stream)
    }

    /// Collects up to `size` bytes.
    pub fn with_capacity(size: usize, stream: S) -> BufWriter<S> {
        BufWriter {
            stream,
            buf: Vec::new(),
            sent: 0,
            size,
            write: None,
            end: None,
            unwritten: 0,
            written: 0,
            failed: false,
        }
    }

    /// Returns the stream, for its addresses, and to read from.
    pub fn get_ref(&self) -> &S {
        &self.stream
    }

    /// Returns how many bytes the stream has taken since the writer was made.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Returns how many bytes were taken and are not known to be written.
    pub fn unwritten(&self) -> usize {
        self.unwritten
    }

    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.buf.capacity()
    }

    /// Takes all of `bytes`. If there is no room for them beside those that were taken
    /// before, these are written first.
    ///
    /// # Cancellation
    /// A *point*. If it returns `Cancelled`, it has taken none of `bytes`.
    ///
    /// # Errors
    /// Those of the stream; then it has taken none of `bytes` either.
    #[track_caller]
    pub fn write_all<B: AsRef<[u8]> + Send>(
        &mut self,
        bytes: B,
    ) -> impl Future<Output = io::Result<()>> + Send + use<'_, S, B>
    where
        S: Send,
    {
        self.step(move |writer, cx| {
            let bytes = bytes.as_ref();
            let full = writer.unwritten > 0 && writer.unwritten + bytes.len() > writer.size;
            // What the operation of a dropped wait has cannot be added to.
            if full || writer.write.is_some() {
                ready!(writer.poll_flush(cx))?;
            }
            writer.buf.extend_from_slice(bytes);
            writer.unwritten += bytes.len();
            Poll::Ready(Ok(()))
        })
    }

    /// Writes everything that was taken.
    ///
    /// # Cancellation
    /// A *point*. Told, [`written`](BufWriter::written) says how much was written, and the
    /// rest stays in the writer.
    ///
    /// # Errors
    /// Those of the stream; `WriteZero` if it takes no more. The rest stays in the writer.
    #[track_caller]
    pub fn flush(&mut self) -> impl Future<Output = io::Result<()>> + Send + use<'_, S>
    where
        S: Send,
    {
        self.step(BufWriter::poll_flush)
    }

    /// Writes everything that was taken, and ends this direction of the stream.
    ///
    /// # Cancellation
    /// A *point*. If it returns `Cancelled`, it may have written a part, as
    /// [`flush`](BufWriter::flush); called again it goes on from there.
    ///
    /// # Errors
    /// Those of the stream.
    #[track_caller]
    pub fn shutdown(&mut self) -> impl Future<Output = io::Result<()>> + Send + use<'_, S>
    where
        S: Send,
    {
        self.step(|writer, cx| {
            ready!(writer.poll_flush(cx))?;
            let mut end = match writer.end.take() {
                Some(end) => end,
                None => writer.stream.end(),
            };
            let ended = Pin::new(&mut end).poll(cx);
            if ended.is_pending() {
                writer.end = Some(end);
            }
            ended
        })
    }

    #[track_caller]
    fn step<F>(&mut self, step: F) -> WriterStep<'_, S, F>
    where
        F: FnMut(&mut BufWriter<S>, &mut Context<'_>) -> Poll<io::Result<()>>,
    {
        WriterStep {
            writer: self,
            step,
            entered: false,
            point: Point::new(),
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut write = match self.write.take() {
                Some(write) => write,
                None if self.sent < self.buf.len() => {
                    let rest = std::mem::take(&mut self.buf).slice(self.sent..);
                    self.stream.write_from(rest)
                }
                None => {
                    self.buf.clear();
                    if self.buf.capacity() / 4 > self.size {
                        // It has held a long write: its memory goes back.
                        self.buf = Vec::new();
                    }
                    self.sent = 0;
                    return Poll::Ready(Ok(()));
                }
            };
            let Poll::Ready((written, rest)) = Pin::new(&mut write).poll(cx) else {
                self.write = Some(write);
                return Poll::Pending;
            };
            self.buf = rest.into_inner();
            match written {
                Ok(0) => {
                    self.failed = true;
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                Ok(bytes) => {
                    let bytes = bytes.min(self.unwritten);
                    self.sent += bytes;
                    self.unwritten -= bytes;
                    self.written += bytes as u64;
                }
                Err(error) => {
                    self.failed |= super::told(&error).is_none();
                    return Poll::Ready(Err(error));
                }
            }
        }
    }
}

impl<S: WriteStream> Drop for BufWriter<S> {
    fn drop(&mut self) {
        if self.unwritten > 0 && !self.failed && !std::thread::panicking() {
            say(
                Topic::Failure,
                format_args!(
                    "kinfolk: a BufWriter was dropped with {} unwritten bytes\n= help: call \
                     `flush().await`, or `cleanup(writer.flush()).await` in a job that was told",
                    self.unwritten
                ),
            );
        }
    }
}

impl<S: WriteStream + fmt::Debug> fmt::Debug for BufWriter<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufWriter")
            .field("stream", &self.stream)
            .field("written", &self.written)
            .field("unwritten", &self.unwritten)
            .finish()
    }
}

/// One call of the writer's.
struct WriterStep<'a, S: WriteStream, F> {
    writer: &'a mut BufWriter<S>,
    step: F,
    entered: bool,
    point: Point,
}

// Nothing in it is pinned.
impl<S: WriteStream, F> Unpin for WriterStep<'_, S, F> {}

impl<S, F> Future for WriterStep<'_, S, F>
where
    S: WriteStream,
    F: FnMut(&mut BufWriter<S>, &mut Context<'_>) -> Poll<io::Result<()>>,
{
    type Output = io::Result<()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.entered {
            ready!(this.point.poll_enter(cx)).map_err(cancelled)?;
            this.point.done();
            this.entered = true;
        }
        (this.step)(this.writer, cx)
    }
}

impl<S: WriteStream, F> Drop for WriterStep<'_, S, F> {
    fn drop(&mut self) {
        // The writer keeps the operation, and the next call counts what it has written.
        if let Some(write) = &mut self.writer.write {
            write.ask_to_end();
        }
    }
}
