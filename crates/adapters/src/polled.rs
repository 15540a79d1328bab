//! [`Polled`]: a stream behind poll-style traits, whose buffers are borrowed for one poll.
//!
//! A borrowed buffer cannot be handed to the kernel, which keeps it longer. So each direction
//! has a buffer of its own, and at most one operation that uses it.
//!
//! ```text
//! read:   empty ──recv──▶ with the system ──complete──▶ full ──taken──▶ empty
//! write:  empty ──accepted──▶ with the system ──complete──▶ empty
//!                                  ▲    └── short ──▶ rest ──┐
//!                                  └───────── polled ─────────┘
//! ```

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker, ready};

use kinfolk_core::kit::Point;
use kinfolk_core::{WaitKind, is_cancelled};
use kinfolk_runtime::net::by_hand::{EndOp, ReceiveOp, SendOp, Streaming, cancelled};

/// How many bytes one read asks for at first, and when little arrives.
const LEAST: usize = 8 * 1024;

/// How many bytes one read asks for, or one write accepts, at most.
const MOST: usize = 64 * 1024;

/// A stream behind poll-style traits: `AsyncRead` and `AsyncWrite` of futures-io
/// (feature `futures-io`) and tokio (`tokio-io`), `Read` and `Write` of hyper
/// (`hyper`).
///
/// **Reading.** Bytes that were read and not taken stay in the wrapper for the next read. A
/// read that is dropped before it is over loses nothing.
///
/// **Writing.** A write copies up to 64 KiB, submits them and returns how many it took; if
/// the kernel has accepted fewer by then, it returns that number, and the caller writes the
/// rest. The next write waits until the bytes are sent, and reports if that failed. A flush
/// does the same; a close or shutdown flushes first. Bytes are usually sent without a flush;
/// to be sure, flush.
///
/// **Dropping** ends the operations in flight. Bytes that were written and not
/// flushed may be lost without an error; flush, close or shut down before.
///
/// One job may read while another writes, for example through two halves. A read also sends
/// bytes that are still unsent, even if the writer has given up its flush.
///
/// # Cancellation
/// Polls are *points*. A `Cancelled` is returned as an `io::Error` of kind `Other`, and
/// nothing is lost by it: after a cancelled read, later bytes can be read; after a cancelled
/// flush, the accepted bytes are kept and still sent, and a flush in
/// [`cleanup`](kinfolk_core::cleanup) waits for that. A cancelled write has accepted nothing.
pub struct Polled<S> {
    stream: S,
    reading: ReadAhead,
    writing: WriteBehind,
}

impl<S: Streaming> Polled<S> {
    /// Wraps a stream.
    pub fn new(stream: S) -> Polled<S> {
        Polled {
            stream,
            reading: ReadAhead::default(),
            writing: WriteBehind::default(),
        }
    }

    /// Returns the stream, for its addresses and settings. Reads and writes made directly on
    /// it bypass the bytes in the wrapper.
    pub fn get_ref(&self) -> &S {
        &self.stream
    }

    /// Gives `take` what was read and not taken yet, `room` bytes at most; how many,
    /// 0 at the end of the stream. Waits for more if there is nothing.
    pub(crate) fn poll_take(
        &mut self,
        cx: &mut Context<'_>,
        room: usize,
        take: impl FnOnce(&[u8]),
    ) -> Poll<io::Result<usize>> {
        if room == 0 {
            return Poll::Ready(Ok(0));
        }
        self.writing.poll_beside(&self.stream, cx);
        let read = ready!(self.reading.poll_fill(&self.stream, cx))?;
        let bytes = read.len().min(room);
        take(&read[..bytes]);
        self.reading.taken += bytes;
        Poll::Ready(Ok(bytes))
    }

    /// Accepts bytes of these parts; how many.
    pub(crate) fn poll_accept<'a>(
        &mut self,
        cx: &mut Context<'_>,
        parts: impl Iterator<Item = &'a [u8]>,
    ) -> Poll<io::Result<usize>> {
        self.writing.poll_accept(&self.stream, cx, parts)
    }

    /// Waits until all that was accepted is sent.
    pub(crate) fn poll_sent(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writing.poll_sent(&self.stream, cx, By::Writer)
    }

    /// As above, and then ends this direction.
    pub(crate) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writing.poll_end(&self.stream, cx)
    }
}

/// What the traits for writing have in common; `$end` is what they call the end of
/// this direction, `$more` what not all of them have.
macro_rules! writes {
    ($write:path, $end:ident $(, $($more:tt)*)?) => {
        impl<S: Streaming + Unpin> $write for Polled<S> {
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &[u8],
            ) -> Poll<io::Result<usize>> {
                self.get_mut().poll_accept(cx, [buf].into_iter())
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                let parts = bufs.iter().map(|buf| &**buf);
                self.get_mut().poll_accept(cx, parts)
            }

            fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.get_mut().poll_sent(cx)
            }

            fn $end(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.get_mut().poll_end(cx)
            }

            $($($more)*)?
        }
    };
}

pub(crate) use writes;

impl<S: Streaming> From<S> for Polled<S> {
    fn from(stream: S) -> Polled<S> {
        Polled::new(stream)
    }
}

impl<S: fmt::Debug> fmt::Debug for Polled<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Polled").field(&self.stream).finish()
    }
}

struct ReadAhead {
    /// The bytes that were read; with the system while there is an operation.
    buf: Vec<u8>,
    /// How much of it was taken.
    taken: usize,
    /// How many bytes the next read asks for.
    size: usize,
    op: Option<ReceiveOp>,
}

impl Default for ReadAhead {
    fn default() -> ReadAhead {
        ReadAhead {
            buf: Vec::new(),
            taken: 0,
            size: LEAST,
            op: None,
        }
    }
}

impl ReadAhead {
    fn poll_fill(
        &mut self,
        stream: &impl Streaming,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<&[u8]>> {
        if self.taken == self.buf.len() {
            ready!(self.poll_more(stream, cx))?;
        }
        Poll::Ready(Ok(&self.buf[self.taken..]))
    }

    fn poll_more(&mut self, stream: &impl Streaming, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.op.is_none() {
            let mut buf = std::mem::take(&mut self.buf);
            self.taken = 0;
            buf.clear();
            if buf.capacity() != self.size {
                buf = Vec::with_capacity(self.size);
            }
            self.op = Some(stream.receive(buf));
        }
        let Some(op) = &mut self.op else {
            unreachable!("made above");
        };
        let (read, buf) = ready!(Pin::new(op).poll(cx));
        self.op = None;
        self.buf = buf;
        let read = read?;
        if read == self.buf.capacity() {
            self.size = (self.size * 2).min(MOST);
        } else if read < self.size / 4 {
            self.size = (self.size / 2).max(LEAST);
        }
        Poll::Ready(Ok(()))
    }
}

/// Which side polls a send.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    /// The task that waits for it.
    Writer,
    /// The task that reads: the peer may answer only what has been sent, and the writer may
    /// have given up.
    Reader,
}

/// The wakers of the end of a send: of both sides, since neither knows whether the other still
/// waits. Each is woken once for each time it asked.
#[derive(Default)]
struct Ears(Mutex<[Option<Waker>; 2]>);

impl Ears {
    fn listen(&self, by: By, waker: &Waker) {
        // Cloned and dropped outside the lock.
        let new = waker.clone();
        let mut both = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let old = both[by as usize].replace(new);
        drop(both);
        kinfolk_core::host::discard(old);
    }
}

impl Wake for Ears {
    fn wake(self: Arc<Self>) {
        let mut both = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (writer, reader) = (both[0].take(), both[1].take());
        drop(both);
        // They may be one.
        let reader = reader.filter(|reader| {
            let same = writer
                .as_ref()
                .is_some_and(|writer| writer.will_wake(reader));
            !same
        });
        for waker in [writer, reader].into_iter().flatten() {
            kinfolk_core::host::wake(waker);
        }
    }
}

#[derive(Default)]
struct WriteBehind {
    /// The accepted bytes; with the system while there is an operation.
    buf: Vec<u8>,
    /// How much of it was sent.
    sent: usize,
    op: Option<SendOp>,
    ending: Option<EndOp>,
    /// Asked before bytes are accepted.
    entry: Point,
    /// Asked while what was accepted is sent.
    flush: Point,
    /// A failure that was not returned yet.
    failed: Option<io::Error>,
    ears: Arc<Ears>,
}

impl WriteBehind {
    fn poll_sent(
        &mut self,
        stream: &impl Streaming,
        cx: &mut Context<'_>,
        by: By,
    ) -> Poll<io::Result<()>> {
        if let Some(error) = self.failed.take() {
            return Poll::Ready(Err(error));
        }
        loop {
            let op = match &mut self.op {
                Some(op) => op,
                None if self.sent < self.buf.len() => {
                    if by == By::Writer {
                        ready!(self.flush.poll_enter(cx)).map_err(cancelled)?;
                    }
                    let buf = std::mem::take(&mut self.buf);
                    self.op.insert(stream.send_from(buf, self.sent))
                }
                None => {
                    self.buf.clear();
                    self.sent = 0;
                    self.flush.done();
                    return Poll::Ready(Ok(()));
                }
            };
            self.ears.listen(by, cx.waker());
            let ears = Waker::from(self.ears.clone());
            if let Poll::Ready((sent, buf)) = op.poll_waking(cx, &ears) {
                self.send_done(sent, buf)?;
                continue;
            }
            if by == By::Writer {
                // The send goes on when the writer is told: the accepted bytes are ours, and
                // the reader may wait for the answer to them.
                ready!(self.flush.poll_enter(cx)).map_err(cancelled)?;
                self.flush.pending_as(cx, WaitKind::Io);
            }
            return Poll::Pending;
        }
    }

    /// An operation is over.
    fn send_done(&mut self, sent: io::Result<usize>, buf: Vec<u8>) -> io::Result<()> {
        self.op = None;
        self.buf = buf;
        let sent = match sent {
            Ok(0) => Err(io::ErrorKind::WriteZero.into()),
            other => other,
        };
        match sent {
            Ok(bytes) => {
                self.sent += bytes;
                Ok(())
            }
            Err(error) => {
                self.buf.clear();
                self.sent = 0;
                Err(error)
            }
        }
    }

    fn poll_accept<'a>(
        &mut self,
        stream: &impl Streaming,
        cx: &mut Context<'_>,
        parts: impl Iterator<Item = &'a [u8]>,
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_sent(stream, cx, By::Writer))?;
        for part in parts {
            let room = MOST - self.buf.len();
            self.buf.extend_from_slice(&part[..part.len().min(room)]);
        }
        let accepted = self.buf.len();
        if accepted == 0 {
            return Poll::Ready(Ok(0));
        }
        let asked = self.entry.poll_enter(cx);
        if !matches!(asked, Poll::Ready(Ok(()))) {
            self.buf.clear();
        }
        ready!(asked).map_err(cancelled)?;
        self.entry.done();
        let all = std::mem::take(&mut self.buf);
        let op = self.op.insert(stream.send_from(all, 0));
        self.ears.listen(By::Writer, cx.waker());
        let ears = Waker::from(self.ears.clone());
        match op.poll_waking(cx, &ears) {
            Poll::Pending => Poll::Ready(Ok(accepted)),
            Poll::Ready((sent, buf)) => {
                let done = self.send_done(sent, buf);
                let sent = std::mem::take(&mut self.sent);
                self.buf.clear();
                // What was not sent is not accepted.
                Poll::Ready(done.map(|()| sent))
            }
        }
    }

    fn poll_end(&mut self, stream: &impl Streaming, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_sent(stream, cx, By::Writer))?;
        let ending = self.ending.get_or_insert_with(|| stream.end_sending());
        let ended = ready!(Pin::new(ending).poll(cx));
        self.ending = None;
        Poll::Ready(match ended {
            // The other side was faster.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            ended => ended,
        })
    }

    /// A read takes care of what is not sent yet.
    fn poll_beside(&mut self, stream: &impl Streaming, cx: &mut Context<'_>) {
        let rests = self.op.is_none() && self.sent == self.buf.len();
        // Also if nothing is being written: what is may be left to us later.
        self.ears.listen(By::Reader, cx.waker());
        // Told, the reader is told by its own wait, and what is under way goes on.
        if rests || self.failed.is_some() || is_cancelled() {
            return;
        }
        if let Poll::Ready(Err(error)) = self.poll_sent(stream, cx, By::Reader) {
            // The writer was woken by the end of its operation, and hears it.
            self.failed = Some(error);
        }
    }
}
