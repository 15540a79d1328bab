//! [`copy()`] and [`copy_bidirectional()`]: bytes from one stream to another.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use kinfolk_core::host::Contained;
use kinfolk_core::kit::Point;

use super::{IoBuf, ReadStream, StreamEnd, StreamRead, StreamWrite, WriteStream, cancelled, told};

/// How much is read at once.
const SIZE: usize = 32 * 1024;

/// Copies bytes from one stream to another until the first one ends; how many. It does not
/// end the other one.
///
/// Pass references to keep the streams. The future keeps its progress: await it by reference
/// to ask it afterwards, or to go on.
///
/// ```
/// # mod kinfolk { pub use kinfolk_core::*; pub use kinfolk_runtime::{io, net}; }
/// use kinfolk::{cleanup, io, net::TcpStream};
///
/// /// Passes an upload on. Stopped, it passes on what it has read, and says how much that was.
/// async fn upload(from: &TcpStream, to: &TcpStream) -> kinfolk::Result<u64> {
///     let mut copy = io::copy(from, to);
///     match (&mut copy).await {
///         Err(error) if io::told(&error).is_some() => {
///             cleanup(copy.flush()).await?;
///             eprintln!("stopped after {} bytes", copy.written());
///             Err(error.into())
///         }
///         copied => Ok(copied?),
///     }
/// }
/// ```
///
/// # Cancellation
/// A *point*. Told, [`Copy::written`] bytes have arrived at the other stream, and the bytes
/// that were read and not written are in the future: [`Copy::flush`] writes them. Awaited
/// again, in a clean-up for example, it goes on. Dropped with such bytes, it loses them.
///
/// # Errors
/// Those of both streams.
#[track_caller]
pub fn copy<R: ReadStream, W: WriteStream>(from: R, to: W) -> Copy<R, W> {
    Copy {
        from: Contained::new(from),
        to: Contained::new(to),
        flow: Flow::new(),
    }
}

/// The future of [`copy()`].
#[must_use = "futures do nothing unless awaited"]
pub struct Copy<R, W> {
    from: Contained<R>,
    to: Contained<W>,
    flow: Flow,
}

impl<R: ReadStream, W: WriteStream> Copy<R, W> {
    /// Returns how many bytes have been written so far.
    pub fn written(&self) -> u64 {
        self.flow.written
    }

    /// Returns how many bytes have been read so far.
    pub fn read(&self) -> u64 {
        self.flow.read
    }

    /// Writes what was read and is not written yet, and reads no more.
    ///
    /// # Cancellation
    /// A *point*. Told, what is left stays in the future.
    ///
    /// # Errors
    /// Those of the stream that is written to.
    pub async fn flush(&mut self) -> io::Result<()> {
        std::future::poll_fn(|cx| self.flow.poll_flush(&*self.to, cx)).await
    }
}

// Nothing in it is pinned.
impl<R, W> Unpin for Copy<R, W> {}

impl<R: ReadStream, W: WriteStream> Future for Copy<R, W> {
    type Output = io::Result<u64>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<u64>> {
        let this = self.get_mut();
        ready!(this.flow.poll(&*this.from, &*this.to, cx, End::Leave))?;
        Poll::Ready(Ok(this.flow.written))
    }
}

impl<R, W> fmt::Debug for Copy<R, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Copy({:?})", self.flow)
    }
}

/// Copies bytes between two streams in both directions, until both have ended: how many bytes
/// went from `a` to `b`, and how many from `b` to `a`.
///
/// When one side ends its direction, the other side is told so by
/// [`end`](WriteStream::end) (a half-close), and the opposite direction goes on.
///
/// ```
/// # mod kinfolk { pub use kinfolk_core::*; pub use kinfolk_runtime::{io, net}; }
/// use kinfolk::{io, net::TcpStream};
///
/// async fn proxy(client: TcpStream) -> kinfolk::Result<()> {
///     let server = TcpStream::connect("127.0.0.1:8080").await?;
///     let mut copy = io::copy_bidirectional(&client, &server);
///     let copied = (&mut copy).await;
///     let (up, down) = copy.written(); // also if it was told or has failed
///     eprintln!("{up} bytes up, {down} bytes down");
///     copied?;
///     Ok(())
/// }
/// ```
///
/// # Cancellation
/// A *point*. Told, it ends the operations of both directions, waits for that, and keeps what
/// was read and not written: awaited again, in a clean-up for example, it goes on;
/// [`CopyBidirectional::flush`] only writes what was read.
///
/// # Errors
/// Those of both streams. The first one ends both directions.
#[track_caller]
pub fn copy_bidirectional<A, B>(a: A, b: B) -> CopyBidirectional<A, B>
where
    A: ReadStream + WriteStream,
    B: ReadStream + WriteStream,
{
    CopyBidirectional {
        a: Contained::new(a),
        b: Contained::new(b),
        there: Flow::new(),
        back: Flow::new(),
        failed: None,
    }
}

/// The future of [`copy_bidirectional()`].
#[must_use = "futures do nothing unless awaited"]
pub struct CopyBidirectional<A, B> {
    a: Contained<A>,
    b: Contained<B>,
    there: Flow,
    back: Flow,
    /// Why it ends, while the operations of the other direction do.
    failed: Option<io::Error>,
}

impl<A, B> CopyBidirectional<A, B>
where
    A: ReadStream + WriteStream,
    B: ReadStream + WriteStream,
{
    /// Returns how many bytes have been written so far: from `a` to `b`, and from `b` to `a`.
    pub fn written(&self) -> (u64, u64) {
        (self.there.written, self.back.written)
    }

    /// Returns how many bytes have been read so far: from `a`, and from `b`.
    pub fn read(&self) -> (u64, u64) {
        (self.there.read, self.back.read)
    }

    /// Writes what was read and is not written yet, in both directions, and reads no more.
    ///
    /// # Cancellation
    /// A *point*. Told, what is left stays in the future.
    ///
    /// # Errors
    /// Those of both streams.
    pub async fn flush(&mut self) -> io::Result<()> {
        std::future::poll_fn(|cx| {
            let there = self.there.poll_flush(&*self.b, cx)?;
            let back = self.back.poll_flush(&*self.a, cx)?;
            match (there, back) {
                (Poll::Ready(()), Poll::Ready(())) => Poll::Ready(Ok(())),
                _ => Poll::Pending,
            }
        })
        .await
    }
}

// Nothing in it is pinned.
impl<A, B> Unpin for CopyBidirectional<A, B> {}

impl<A, B> Future for CopyBidirectional<A, B>
where
    A: ReadStream + WriteStream,
    B: ReadStream + WriteStream,
{
    type Output = io::Result<(u64, u64)>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if this.failed.is_none() {
            let there = this.there.poll(&*this.a, &*this.b, cx, End::PassOn);
            let back = this.back.poll(&*this.b, &*this.a, cx, End::PassOn);
            this.failed = match (there, back) {
                (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => {
                    return Poll::Ready(Ok(this.written()));
                }
                // A failure says more than a cancel does.
                (Poll::Ready(Err(there)), Poll::Ready(Err(back))) if told(&there).is_some() => {
                    Some(back)
                }
                (Poll::Ready(Err(error)), _) | (_, Poll::Ready(Err(error))) => Some(error),
                _ => return Poll::Pending,
            };
        }
        let there = this.there.poll_stop(cx);
        let back = this.back.poll_stop(cx);
        ready!(there);
        ready!(back);
        match this.failed.take() {
            Some(error) => Poll::Ready(Err(error)),
            None => unreachable!("it stops because of an error"),
        }
    }
}

impl<A, B> fmt::Debug for CopyBidirectional<A, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CopyBidirectional({:?}, {:?})", self.there, self.back)
    }
}

/// What becomes of the stream that is written to at the end of the one that is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Leave,
    PassOn,
}

#[derive(Default)]
enum FlowOp {
    #[default]
    None,
    Read(StreamRead),
    Write(StreamWrite),
    End(StreamEnd),
    /// The stream has ended, and what was read is written.
    Over,
}

/// Bytes in one direction.
///
/// ```text
/// None ──▶ Read ──bytes──▶ None ──▶ Write ──▶ None …
///           └────end────▶ None ──▶ End ──▶ Over
/// ```
///
/// Between two operations it is a point of its own: the operations of a stream of the
/// program's may be no points, and ready each time.
struct Flow {
    op: FlowOp,
    point: Point,
    /// What was read; the bytes before `done` are written. With the operation while there is
    /// one.
    buf: Vec<u8>,
    done: usize,
    ended: bool,
    read: u64,
    written: u64,
}

impl Flow {
    #[track_caller]
    fn new() -> Flow {
        Flow {
            op: FlowOp::None,
            point: Point::new(),
            buf: Vec::new(),
            done: 0,
            ended: false,
            read: 0,
            written: 0,
        }
    }

    /// A point, before the next operation.
    fn poll_enter(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.point.poll_enter(cx)).map_err(cancelled)?;
        self.point.done();
        Poll::Ready(Ok(()))
    }

    fn poll(
        &mut self,
        from: &impl ReadStream,
        to: &impl WriteStream,
        cx: &mut Context<'_>,
        end: End,
    ) -> Poll<io::Result<()>> {
        loop {
            // Out of its place while it is polled: one that panics is not polled again.
            match std::mem::take(&mut self.op) {
                FlowOp::Over => {
                    self.op = FlowOp::Over;
                    return Poll::Ready(Ok(()));
                }
                FlowOp::None => {
                    ready!(self.poll_enter(cx))?;
                    self.op = self.next(from, to, end);
                }
                FlowOp::Read(mut op) => match Pin::new(&mut op).poll(cx) {
                    Poll::Ready(answer) => self.was_read(answer)?,
                    Poll::Pending => {
                        self.op = FlowOp::Read(op);
                        return Poll::Pending;
                    }
                },
                FlowOp::Write(mut op) => match Pin::new(&mut op).poll(cx) {
                    Poll::Ready(answer) => self.was_written(answer)?,
                    Poll::Pending => {
                        self.op = FlowOp::Write(op);
                        return Poll::Pending;
                    }
                },
                FlowOp::End(mut op) => match Pin::new(&mut op).poll(cx) {
                    Poll::Ready(ended) => {
                        ended?;
                        self.op = FlowOp::Over;
                    }
                    Poll::Pending => {
                        self.op = FlowOp::End(op);
                        return Poll::Pending;
                    }
                },
            }
        }
    }

    /// What comes next, when there is no operation.
    fn next(&mut self, from: &impl ReadStream, to: &impl WriteStream, end: End) -> FlowOp {
        if self.done < self.buf.len() {
            return self.write_rest(to);
        }
        if !self.ended {
            let mut buf = std::mem::take(&mut self.buf);
            buf.clear();
            buf.reserve_exact(SIZE);
            return FlowOp::Read(from.read_into(buf));
        }
        match end {
            End::Leave => FlowOp::Over,
            End::PassOn => FlowOp::End(to.end()),
        }
    }

    fn write_rest(&mut self, to: &impl WriteStream) -> FlowOp {
        let rest = std::mem::take(&mut self.buf).slice(self.done..);
        FlowOp::Write(to.write_from(rest))
    }

    fn was_read(&mut self, (read, buf): (io::Result<usize>, Vec<u8>)) -> io::Result<()> {
        (self.buf, self.done) = (buf, 0);
        if let Err(error) = read {
            self.buf.clear();
            return Err(error);
        }
        self.read += self.buf.len() as u64;
        self.ended = self.buf.is_empty();
        Ok(())
    }

    fn was_written(
        &mut self,
        (written, rest): (io::Result<usize>, super::Slice<Vec<u8>>),
    ) -> io::Result<()> {
        self.buf = rest.into_inner();
        let bytes = written?.min(self.buf.len() - self.done);
        if bytes == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.done += bytes;
        self.written += bytes as u64;
        Ok(())
    }

    /// Writes what was read; what a read in flight brings too, once it is over.
    fn poll_flush(&mut self, to: &impl WriteStream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            if let FlowOp::Read(_) = self.op {
                ready!(self.poll_stop(cx));
                if let FlowOp::Read(_) = self.op {
                    // Ended before it had read anything.
                    return Poll::Ready(Ok(()));
                }
                continue;
            }
            match std::mem::take(&mut self.op) {
                FlowOp::None if self.done < self.buf.len() => {
                    ready!(self.poll_enter(cx))?;
                    self.op = self.write_rest(to);
                }
                FlowOp::Write(mut op) => match Pin::new(&mut op).poll(cx) {
                    Poll::Ready(answer) => self.was_written(answer)?,
                    Poll::Pending => {
                        self.op = FlowOp::Write(op);
                        return Poll::Pending;
                    }
                },
                other => {
                    self.op = other;
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }

    /// Ends the operation in flight early, and waits for that. What it has done counts.
    fn poll_stop(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.op {
            FlowOp::Read(op) => {
                if let Some(answer) = ready!(op.poll_stop(cx)) {
                    self.op = FlowOp::None;
                    // An error comes again with the next operation.
                    let _ = self.was_read(answer);
                }
            }
            FlowOp::Write(op) => {
                if let Some(answer) = ready!(op.poll_stop(cx)) {
                    self.op = FlowOp::None;
                    let _ = self.was_written(answer);
                }
            }
            FlowOp::None | FlowOp::End(_) | FlowOp::Over => {}
        }
        Poll::Ready(())
    }
}

impl fmt::Debug for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} read, {} written", self.read, self.written)
    }
}
