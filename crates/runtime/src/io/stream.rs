//! Streams of bytes whose operations own their buffers, whatever they lead to: what
//! [`BufReader`](super::BufReader), [`BufWriter`](super::BufWriter) and
//! [`copy`](super::copy()) read from and write to.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use kinfolk_core::host::Contained;

use super::ops::{Read, Recv, Send as SendBytes, ShutdownSocket, Write};
use super::{Op, PipeReader, PipeWriter, Slice};

/// A stream that bytes can be read from: a socket, a pipe, a file from some offset on,
/// standard input, or a type of your own.
///
/// A type of your own implements it with [`StreamRead::new`]:
///
/// ```
/// # mod kinfolk { pub use kinfolk_core::*; pub use kinfolk_runtime::{io, net}; }
/// use kinfolk::io::{BufReader, ReadStream, StreamRead};
///
/// /// Answers each read with the same line.
/// struct Yes;
///
/// impl ReadStream for Yes {
///     fn read_into(&self, mut buf: Vec<u8>) -> StreamRead {
///         buf.extend_from_slice(b"yes\n");
///         StreamRead::new(async move { (Ok(4), buf) })
///     }
/// }
///
/// # kinfolk_runtime::Runtime::new()?.block_on(async {
/// let mut lines = BufReader::new(Yes).lines();
/// assert_eq!(lines.next().await.transpose()?.as_deref(), Some("yes"));
/// # Ok::<_, kinfolk::Error>(())
/// # })?;
/// # Ok::<_, kinfolk::Error>(())
/// ```
pub trait ReadStream {
    /// Reads into `buf`, which is empty, up to its capacity. The future owns the buffer and
    /// returns it with the number of bytes; 0 is the end of the stream.
    ///
    /// At most one such future is polled at a time. It should be a cancellation point; told,
    /// it must not have taken bytes from the stream.
    fn read_into(&self, buf: Vec<u8>) -> StreamRead;
}

/// A stream that bytes can be written to; see [`ReadStream`].
pub trait WriteStream {
    /// Writes from `buf`. The future owns the buffer and returns it with the number of bytes
    /// that were written, which may be fewer than there are.
    ///
    /// At most one such future is polled at a time. It should be a cancellation point; told,
    /// it must not have written anything.
    fn write_from(&self, buf: Slice<Vec<u8>>) -> StreamWrite;

    /// Ends this direction of the stream: the other side reads to the end. A stream that
    /// cannot do that does nothing; the write end of a pipe, for one, ends when it is dropped.
    fn end(&self) -> StreamEnd;
}

/// The future of a [`ReadStream::read_into`].
#[must_use = "futures do nothing unless awaited"]
pub struct StreamRead(AnyRead);

/// The future of a [`WriteStream::write_from`].
#[must_use = "futures do nothing unless awaited"]
pub struct StreamWrite(AnyWrite);

/// The future of a [`WriteStream::end`].
#[must_use = "futures do nothing unless awaited"]
pub struct StreamEnd(Ending);

/// What a read returns.
type WasRead = (io::Result<usize>, Vec<u8>);

/// What a write returns.
type WasWritten = (io::Result<usize>, Slice<Vec<u8>>);

/// Contained: a copy has two streams, and operations of both.
type BoxedOp<T> = Contained<Pin<Box<dyn Future<Output = T> + Send>>>;

#[allow(
    clippy::large_enum_variant,
    reason = "the large ones are the usual ones"
)]
enum AnyRead {
    Recv(Op<Recv<Vec<u8>>>),
    Read(Op<Read<Vec<u8>>>),
    Other(BoxedOp<WasRead>),
}

#[allow(
    clippy::large_enum_variant,
    reason = "the large ones are the usual ones"
)]
enum AnyWrite {
    Send(Op<SendBytes<Slice<Vec<u8>>>>),
    Write(Op<Write<Slice<Vec<u8>>>>),
    Other(BoxedOp<WasWritten>),
}

#[allow(
    clippy::large_enum_variant,
    reason = "the large ones are the usual ones"
)]
enum Ending {
    Shutdown(Op<ShutdownSocket>),
    Other(BoxedOp<io::Result<()>>),
    Nothing,
}

impl StreamRead {
    /// Makes the read of a stream of your own.
    pub fn new(
        read: impl Future<Output = (io::Result<usize>, Vec<u8>)> + Send + 'static,
    ) -> StreamRead {
        StreamRead(AnyRead::Other(Contained::new(Box::pin(read))))
    }

    pub(crate) fn recv(op: Op<Recv<Vec<u8>>>) -> StreamRead {
        StreamRead(AnyRead::Recv(op))
    }

    pub(crate) fn read(op: Op<Read<Vec<u8>>>) -> StreamRead {
        StreamRead(AnyRead::Read(op))
    }

    /// The wait for it is over, and its result is kept; see [`Op::ask_to_end`].
    pub(super) fn ask_to_end(&mut self) {
        match &mut self.0 {
            AnyRead::Recv(op) => op.ask_to_end(),
            AnyRead::Read(op) => op.ask_to_end(),
            AnyRead::Other(_) => {}
        }
    }

    /// See [`Op::poll_stop`]. The read of another's stream is left as it is.
    pub(super) fn poll_stop(&mut self, cx: &mut Context<'_>) -> Poll<Option<WasRead>> {
        match &mut self.0 {
            AnyRead::Recv(op) => op.poll_stop(cx),
            AnyRead::Read(op) => op.poll_stop(cx),
            AnyRead::Other(_) => Poll::Ready(None),
        }
    }
}

impl StreamWrite {
    /// Makes the write of a stream of your own.
    pub fn new(
        write: impl Future<Output = (io::Result<usize>, Slice<Vec<u8>>)> + Send + 'static,
    ) -> StreamWrite {
        StreamWrite(AnyWrite::Other(Contained::new(Box::pin(write))))
    }

    pub(crate) fn send(op: Op<SendBytes<Slice<Vec<u8>>>>) -> StreamWrite {
        StreamWrite(AnyWrite::Send(op))
    }

    pub(crate) fn write(op: Op<Write<Slice<Vec<u8>>>>) -> StreamWrite {
        StreamWrite(AnyWrite::Write(op))
    }

    /// As for [`StreamRead`].
    pub(super) fn ask_to_end(&mut self) {
        match &mut self.0 {
            AnyWrite::Send(op) => op.ask_to_end(),
            AnyWrite::Write(op) => op.ask_to_end(),
            AnyWrite::Other(_) => {}
        }
    }

    /// As for [`StreamRead`].
    pub(super) fn poll_stop(&mut self, cx: &mut Context<'_>) -> Poll<Option<WasWritten>> {
        match &mut self.0 {
            AnyWrite::Send(op) => op.poll_stop(cx),
            AnyWrite::Write(op) => op.poll_stop(cx),
            AnyWrite::Other(_) => Poll::Ready(None),
        }
    }
}

impl StreamEnd {
    /// Makes the end of a direction of a stream of your own.
    pub fn new(end: impl Future<Output = io::Result<()>> + Send + 'static) -> StreamEnd {
        StreamEnd(Ending::Other(Contained::new(Box::pin(end))))
    }

    /// Makes an end that does nothing, for a stream whose directions do not end one by one.
    pub fn nothing() -> StreamEnd {
        StreamEnd(Ending::Nothing)
    }

    pub(crate) fn shutdown(op: Op<ShutdownSocket>) -> StreamEnd {
        StreamEnd(Ending::Shutdown(op))
    }
}

impl Future for StreamRead {
    type Output = (io::Result<usize>, Vec<u8>);

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.get_mut().0 {
            AnyRead::Recv(op) => Pin::new(op).poll(cx),
            AnyRead::Read(op) => Pin::new(op).poll(cx),
            AnyRead::Other(read) => read.as_mut().poll(cx),
        }
    }
}

impl Future for StreamWrite {
    type Output = (io::Result<usize>, Slice<Vec<u8>>);

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.get_mut().0 {
            AnyWrite::Send(op) => Pin::new(op).poll(cx),
            AnyWrite::Write(op) => Pin::new(op).poll(cx),
            AnyWrite::Other(write) => write.as_mut().poll(cx),
        }
    }
}

impl Future for StreamEnd {
    type Output = io::Result<()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.get_mut().0 {
            Ending::Shutdown(op) => Pin::new(op).poll(cx),
            Ending::Other(end) => end.as_mut().poll(cx),
            Ending::Nothing => Poll::Ready(Ok(())),
        }
    }
}

/// Whatever leads to a stream is one.
macro_rules! leads_to {
    ($($name:ty),* $(,)?) => {$(
        impl<S: ReadStream + ?Sized> ReadStream for $name {
            #[track_caller]
            fn read_into(&self, buf: Vec<u8>) -> StreamRead {
                (**self).read_into(buf)
            }
        }

        impl<S: WriteStream + ?Sized> WriteStream for $name {
            #[track_caller]
            fn write_from(&self, buf: Slice<Vec<u8>>) -> StreamWrite {
                (**self).write_from(buf)
            }

            #[track_caller]
            fn end(&self) -> StreamEnd {
                (**self).end()
            }
        }
    )*};
}

leads_to!(&S, Arc<S>, Box<S>);

impl ReadStream for PipeReader {
    #[track_caller]
    fn read_into(&self, buf: Vec<u8>) -> StreamRead {
        StreamRead::read(self.read_op(buf))
    }
}

impl WriteStream for PipeWriter {
    #[track_caller]
    fn write_from(&self, buf: Slice<Vec<u8>>) -> StreamWrite {
        StreamWrite::write(self.write_op(buf))
    }

    fn end(&self) -> StreamEnd {
        StreamEnd::nothing()
    }
}

macro_rules! debug {
    ($($name:ident),*) => {$(
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    )*};
}

debug!(StreamRead, StreamWrite, StreamEnd);
