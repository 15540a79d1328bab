//! [`SeriesStream`]: waits for what arrives at a socket next, a point.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use kinfolk_core::kit::Point;
use kinfolk_core::{Cancelled, WaitKind};

use super::queue::{SeriesItem, SeriesQueue, WakerKey};
use super::{Brings, Series};
use crate::io::buffer_pool::{BufferPool, LineNumber, PoolBuf, Returned};
use crate::io::fd::Fd;
use crate::io::op::cancelled;

/// What is waited for.
pub(crate) enum SeriesKind {
    Connections,
    Bytes(BufferPool),
}

/// A cancellation that was told, and is passed on when the series it ends is
/// over.
struct ToldSeries {
    cancelled: Cancelled,
    /// None if there was none.
    series: Option<u64>,
    /// Before it has waited: then what lies there stays there.
    at_entry: bool,
}

/// Takes what arrives at a socket, one after the other.
///
/// # Cancellation
/// A poll is a *point*. Told at entry, nothing is taken. Told while it waits, the
/// series is ended and waited for; if it has brought something meanwhile that is
/// returned, and the next point tells. What was not taken stays with the socket.
/// Dropped, the series ends by itself.
pub(crate) struct SeriesStream {
    fd: Fd,
    what: SeriesKind,
    /// Its last poll has not brought anything.
    waits: bool,
    told: Option<ToldSeries>,
    /// There was no buffer when this had come back, and it waits for one.
    buffer_wait: Option<(Returned, Option<LineNumber>)>,
    key: WakerKey,
    /// Whoever polls is a [`SeriesWait`], which says when it is over.
    waited: bool,
    point: Point,
}

impl SeriesStream {
    #[track_caller]
    pub(crate) fn new(fd: Fd, what: SeriesKind) -> SeriesStream {
        fd.series_queue().add_stream();
        SeriesStream {
            fd,
            what,
            waits: false,
            told: None,
            buffer_wait: None,
            key: WakerKey::default(),
            waited: false,
            point: Point::new(),
        }
    }

    /// Waits once. Given up half-way, it is as if it had not waited.
    pub(crate) fn wait(&mut self) -> SeriesWait<'_> {
        self.waited = true;
        SeriesWait(self)
    }

    /// The wait is over.
    fn give_up(&mut self) {
        if let Some(told) = self.told.take() {
            // No wait acts on it any more: the next point tells it.
            self.point.tell_again(&told.cancelled);
        }
        self.leave();
        self.waited = false;
    }

    /// It waits for nothing any more.
    fn leave(&mut self) {
        self.stop_waiting_for_buffer();
        self.fd.series_queue().leave(&mut self.key);
        self.waits = false;
        self.point.done();
    }

    /// It waits for no buffer any more.
    fn stop_waiting_for_buffer(&mut self) {
        if let (Some((_, Some(who))), SeriesKind::Bytes(pool)) =
            (self.buffer_wait.take(), &self.what)
        {
            pool.let_go(who);
        }
    }

    fn queue(&self) -> &SeriesQueue {
        self.fd.series_queue()
    }

    fn over<T>(&mut self, with: T) -> Poll<T> {
        self.leave();
        Poll::Ready(with)
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<SeriesItem>> {
        loop {
            if let Some(told) = &self.told {
                let (queue, key) = (self.fd.series_queue(), &mut self.key);
                if let Some(series) = told.series
                    && queue.is_under_way(series, key, cx.waker())
                {
                    self.point.pending_as(cx, WaitKind::Io);
                    return Poll::Pending;
                }
                if let Some(done) = self.ended() {
                    return self.over(done);
                }
            }
            // What came while it waited is not taken back for a cancel.
            if self.waits
                && let Some(item) = self.take()
            {
                return self.over(Ok(item));
            }
            if let Err(cancelled) = ready!(self.point.poll_enter(cx)) {
                self.stop_waiting_for_buffer();
                self.told = Some(ToldSeries {
                    cancelled,
                    series: self.queue().end(),
                    at_entry: !self.waits,
                });
                continue;
            }
            let (queue, key) = (self.fd.series_queue(), &mut self.key);
            queue.wake_later(key, cx.waker());
            if let Some(item) = self.take() {
                return self.over(Ok(item));
            }
            if let Poll::Ready(lent) = self.poll_buffer(cx.waker()) {
                if let Some(item) = lent.and_then(|lent| self.receive(lent)) {
                    return self.over(Ok(item));
                }
                if let Err(error) = self.begin() {
                    return self.over(Err(error));
                }
            }
            self.waits = true;
            self.point.pending_as(cx, WaitKind::Io);
            return Poll::Pending;
        }
    }

    /// The series that was asked to end is over.
    fn ended(&mut self) -> Option<io::Result<SeriesItem>> {
        let told = self.told.take()?;
        if !told.at_entry
            && let Some(item) = self.take()
        {
            self.point.tell_again(&told.cancelled);
            return Some(Ok(item));
        }
        // Not if a shield holds it back by now: then it goes on.
        (self.point.still_told(&told.cancelled)).then(|| Err(cancelled(told.cancelled)))
    }

    /// What came first.
    fn take(&mut self) -> Option<SeriesItem> {
        self.fd.series_queue().take(&mut self.key)
    }

    /// Waits until there may be a buffer at the thread of this thread, or until it
    /// is given one.
    fn poll_buffer(&mut self, waker: &Waker) -> Poll<Option<PoolBuf>> {
        let SeriesKind::Bytes(pool) = &self.what else {
            return Poll::Ready(None);
        };
        loop {
            // Whoever stands in line stays there until it is its turn.
            if let Some((before, who)) = &mut self.buffer_wait {
                let lent = ready!(pool.poll_returned(before, who, self.waited, waker));
                if let Some((_, Some(who))) = self.buffer_wait.take() {
                    pool.let_go(who);
                }
                if lent.is_some() {
                    return Poll::Ready(lent);
                }
            }
            match self
                .fd
                .series_queue()
                .lacks(pool, self.fd.handle().choose())
            {
                Some(before) => self.buffer_wait = Some((before, None)),
                None => return Poll::Ready(None),
            }
        }
    }

    /// Receives what it has lacked the buffer for. Nothing if somebody else is
    /// about to, for whom the buffer then is, or there is nothing to receive.
    fn receive(&self, mut lent: PoolBuf) -> Option<SeriesItem> {
        let system = self.fd.handle().system();
        let received = (self.queue()).alone(|| system.recv_now(self.fd.raw(), lent.room()))?;
        match received {
            Ok(0) => Some(SeriesItem::End),
            // No more than a buffer has room for.
            Ok(bytes) => Some(SeriesItem::Bytes(lent.filled(bytes as u32))),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Err(error) => Some(SeriesItem::Failed {
                result: -error.raw_os_error().unwrap_or(libc::EIO),
                once: true,
            }),
        }
    }

    fn begin(&self) -> io::Result<()> {
        let handle = self.fd.handle();
        handle.ready()?;
        let thread = handle.choose();
        let make = || {
            let brings = match &self.what {
                SeriesKind::Connections => Brings::Connections,
                SeriesKind::Bytes(pool) => {
                    // In this order: what comes back later is noticed.
                    let before = pool.returned(thread);
                    Brings::Bytes(pool.group(handle, thread), before)
                }
            };
            Series::new(self.fd.clone(), brings)
        };
        self.queue().begin(make, |series| {
            handle.submit_to(thread, Arc::clone(series) as _, &series.request());
        });
        Ok(())
    }
}

impl Drop for SeriesStream {
    fn drop(&mut self) {
        self.give_up();
        self.queue().remove_stream();
    }
}

/// One wait; made by [`SeriesStream::wait`].
pub(crate) struct SeriesWait<'a>(&'a mut SeriesStream);

impl Future for SeriesWait<'_> {
    type Output = io::Result<SeriesItem>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<SeriesItem>> {
        self.0.poll(cx)
    }
}

impl Drop for SeriesWait<'_> {
    fn drop(&mut self) {
        self.0.give_up();
    }
}
