//! [`Reader`] and [`Writer`]: tokio's streams with waits that are points and keep their
//! progress. For protocols whose parts are of known length.

use std::fmt;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use kinfolk_core::Result;
use kinfolk_core::host::say::{Topic, say};
use kinfolk_core::kit::Point;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How much memory a read takes ahead of the bytes.
const CHUNK: usize = 64 * 1024;

/// Reads whole parts from a stream of tokio's, and keeps what it has of a part when the
/// wait for the rest is told or dropped.
///
/// ```
/// use kinfolk_core::Result;
/// use kinfolk_tokio::io::Reader;
/// use tokio::net::TcpStream;
///
/// /// A message is its length in two bytes, and so many more.
/// async fn message(stream: &mut Reader<TcpStream>) -> Result<Vec<u8>> {
///     let length = stream.read_exact(2).await?;
///     stream.read_exact(length[0] as usize * 256 + length[1] as usize).await
/// }
/// ```
///
/// It reads no further than the part that is asked for. As an [`AsyncRead`] it gives what it
/// has kept, then what the stream has.
pub struct Reader<S> {
    stream: S,
    /// What was read and not given out: its first `filled` bytes.
    buf: Vec<u8>,
    filled: usize,
}

impl<S> Reader<S> {
    /// One that has read nothing.
    pub fn new(stream: S) -> Reader<S> {
        Reader {
            stream,
            buf: Vec::new(),
            filled: 0,
        }
    }

    /// What was read and not given out.
    pub fn kept(&self) -> &[u8] {
        &self.buf[..self.filled]
    }

    /// The stream. What is [kept](Reader::kept) was read before what it gives.
    pub fn get_ref(&self) -> &S {
        &self.stream
    }

    /// The stream, and what was read and not given out.
    pub fn into_parts(mut self) -> (S, Vec<u8>) {
        self.buf.truncate(self.filled);
        (self.stream, self.buf)
    }

    /// The first `len` of what was read.
    fn give(&mut self, len: usize) -> Vec<u8> {
        self.buf.truncate(self.filled);
        let rest = self.buf.split_off(len);
        self.filled = rest.len();
        std::mem::replace(&mut self.buf, rest)
    }
}

impl<S: AsyncRead + Unpin> Reader<S> {
    /// Reads the next `len` bytes. An error of kind `UnexpectedEof` if the stream ends
    /// before; what came is [kept](Reader::kept).
    ///
    /// # Cancellation
    /// A *point*. Told or dropped half-way, it has taken nothing: the bytes that came are
    /// kept, and the next call goes on from there.
    #[track_caller]
    pub fn read_exact(&mut self, len: usize) -> ReadExact<'_, S> {
        ReadExact {
            reader: self,
            len,
            point: Point::new(),
        }
    }

    /// Reads until there are `len` bytes.
    fn poll_fill(&mut self, cx: &mut Context<'_>, len: usize) -> Poll<io::Result<()>> {
        while self.filled < len {
            // The length may be a peer's word: memory is taken as bytes come.
            let end = len.min(self.filled + CHUNK);
            if self.buf.len() < end {
                self.buf.resize(end, 0);
            }
            let mut free = ReadBuf::new(&mut self.buf[self.filled..end]);
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut free))?;
            let came = free.filled().len();
            if came == 0 {
                let (has, of) = (self.filled, len);
                let text = format!("the stream ended after {has} of {of} bytes");
                return Poll::Ready(Err(io::Error::new(ErrorKind::UnexpectedEof, text)));
            }
            self.filled += came;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S> fmt::Debug for Reader<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut reader = f.debug_struct("Reader");
        reader.field("kept", &self.filled).finish_non_exhaustive()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Reader<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.filled == 0 {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        let len = buf.remaining().min(self.filled);
        buf.put_slice(&self.give(len));
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Reader<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// The future of [`Reader::read_exact`].
#[must_use = "futures do nothing unless awaited"]
pub struct ReadExact<'a, S> {
    reader: &'a mut Reader<S>,
    len: usize,
    point: Point,
}

impl<S: AsyncRead + Unpin> Future for ReadExact<'_, S> {
    type Output = Result<Vec<u8>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        ready!(this.point.poll_enter(cx))?;
        let Poll::Ready(filled) = this.reader.poll_fill(cx, this.len) else {
            this.point.pending(cx);
            return Poll::Pending;
        };
        this.point.done();
        filled?;
        Poll::Ready(Ok(this.reader.give(this.len)))
    }
}

impl<S> fmt::Debug for ReadExact<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReadExact({} of {})", self.reader.filled, self.len)
    }
}

/// Writes whole parts to a stream of tokio's, and keeps what is not written yet when the
/// wait for it is told or dropped.
///
/// ```
/// use kinfolk_core::{Result, cleanup};
/// use kinfolk_tokio::io::Writer;
/// use tokio::net::TcpStream;
///
/// async fn answer(stream: &mut Writer<TcpStream>, text: &[u8]) -> Result<()> {
///     let written = stream.write_all(text).await; // told: it has taken none of `text`
///     cleanup(stream.flush()).await?; // the rest of what it took before
///     written
/// }
/// ```
///
/// As an [`AsyncWrite`] it writes what it has kept first.
pub struct Writer<S> {
    stream: S,
    /// What was taken; `written` bytes of it are in the stream.
    buf: Vec<u8>,
    written: usize,
    failed: bool,
}

impl<S> Writer<S> {
    /// One that has taken nothing.
    pub fn new(stream: S) -> Writer<S> {
        Writer {
            stream,
            buf: Vec::new(),
            written: 0,
            failed: false,
        }
    }

    /// What was taken and is not in the stream yet.
    pub fn unwritten(&self) -> &[u8] {
        &self.buf[self.written..]
    }

    /// The stream. What is [unwritten](Writer::unwritten) comes before what is written to it.
    pub fn get_ref(&self) -> &S {
        &self.stream
    }
}

impl<S: AsyncWrite + Unpin> Writer<S> {
    /// Takes `bytes`, all of them or none, as soon as what was taken before is in the
    /// stream, and writes as much of them as the stream takes at once. What is left is
    /// written by the next call, or by [`flush`](Writer::flush).
    ///
    /// # Cancellation
    /// A *point*. Told or dropped half-way, it has taken none of `bytes`.
    #[track_caller]
    pub fn write_all<'a>(&'a mut self, bytes: &'a [u8]) -> WriteAll<'a, S> {
        WriteAll {
            writer: self,
            bytes,
            point: Point::new(),
        }
    }

    /// Writes what was taken, and flushes the stream.
    ///
    /// # Cancellation
    /// A *point*. Told or dropped half-way, it keeps what is
    /// [unwritten](Writer::unwritten): another flush, in a
    /// [`cleanup`](kinfolk_core::cleanup), goes on.
    #[track_caller]
    pub fn flush(&mut self) -> Flush<'_, S> {
        Flush {
            writer: self,
            point: Point::new(),
        }
    }

    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.buf.len() {
            let rest = &self.buf[self.written..];
            let written = match ready!(Pin::new(&mut self.stream).poll_write(cx, rest)) {
                Ok(0) => Err(io::Error::from(ErrorKind::WriteZero)),
                Ok(written) => Ok(written.min(rest.len())),
                Err(error) => Err(error),
            };
            self.failed = written.is_err();
            self.written += written?;
        }
        self.buf.clear();
        self.written = 0;
        Poll::Ready(Ok(()))
    }
}

impl<S> Drop for Writer<S> {
    fn drop(&mut self) {
        let unwritten = self.unwritten().len();
        if unwritten > 0 && !self.failed && !std::thread::panicking() {
            say(
                Topic::Failure,
                format_args!(
                    "kinfolk: a Writer was dropped with {unwritten} unwritten bytes\n= help: call \
                     `flush().await`, or `cleanup(writer.flush()).await` in a job that was told"
                ),
            );
        }
    }
}

impl<S> fmt::Debug for Writer<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut writer = f.debug_struct("Writer");
        writer.field("unwritten", &self.unwritten().len());
        writer.finish_non_exhaustive()
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Writer<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_drain(cx))?;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx))?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Writer<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

/// The future of [`Writer::write_all`].
#[must_use = "futures do nothing unless awaited"]
pub struct WriteAll<'a, S> {
    writer: &'a mut Writer<S>,
    bytes: &'a [u8],
    point: Point,
}

impl<S: AsyncWrite + Unpin> Future for WriteAll<'_, S> {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        ready!(this.point.poll_enter(cx))?;
        let Poll::Ready(drained) = this.writer.poll_drain(cx) else {
            this.point.pending(cx);
            return Poll::Pending;
        };
        this.point.done();
        drained?;
        this.writer.buf.extend_from_slice(this.bytes);
        match this.writer.poll_drain(cx) {
            // It is the writer's from here on. An error of it is that of this call.
            Poll::Ready(Err(error)) => Poll::Ready(Err(error.into())),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(())),
        }
    }
}

impl<S> fmt::Debug for WriteAll<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WriteAll({} bytes)", self.bytes.len())
    }
}

/// The future of [`Writer::flush`].
#[must_use = "futures do nothing unless awaited"]
pub struct Flush<'a, S> {
    writer: &'a mut Writer<S>,
    point: Point,
}

impl<S: AsyncWrite + Unpin> Future for Flush<'_, S> {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        ready!(this.point.poll_enter(cx))?;
        let Poll::Ready(flushed) = Pin::new(&mut *this.writer).poll_flush(cx) else {
            this.point.pending(cx);
            return Poll::Pending;
        };
        this.point.done();
        Poll::Ready(Ok(flushed?))
    }
}

impl<S> fmt::Debug for Flush<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Flush({} bytes)", self.writer.unwritten().len())
    }
}
