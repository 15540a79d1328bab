//! [`Next`]: waits for what arrives at a socket next, a point.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use kinfolk_core::kit::Point;
use kinfolk_core::{Cancelled, WaitKind};

use super::queue::{Arrival, Arrivals, Place};
use super::{Brings, Series};
use crate::io::buffer_pool::{Lent, Pool, Returned, Waiter};
use crate::io::fd::Fd;
use crate::io::op::cancelled;

/// What is waited for.
pub(crate) enum What {
    Connections,
    Bytes(Pool),
}

/// A cancellation that was told, and is passed on when the series it ends is
/// over.
struct Told {
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
pub(crate) struct Next {
    fd: Fd,
    what: What,
    /// Its last poll has not brought anything.
    waits: bool,
    told: Option<Told>,
    /// There was no buffer when this had come back, and it waits for one.
    hungry: Option<(Returned, Option<Waiter>)>,
    place: Place,
    /// Whoever polls is a [`Wait`], which says when it is over.
    waited: bool,
    point: Point,
}

impl Next {
    #[track_caller]
    pub(crate) fn new(fd: Fd, what: What) -> Next {
        fd.arrivals().add_stream();
        Next {
            fd,
            what,
            waits: false,
            told: None,
            hungry: None,
            place: Place::default(),
            waited: false,
            point: Point::new(),
        }
    }

    /// Waits once. Given up half-way, it is as if it had not waited.
    pub(crate) fn wait(&mut self) -> Wait<'_> {
        self.waited = true;
        Wait(self)
    }

    /// Nobody waits any more.
    fn give_up(&mut self) {
        if let Some(told) = self.told.take() {
            // Nobody acts on it any more: the next point tells it.
            self.point.tell_again(&told.cancelled);
        }
        self.leave();
        self.waited = false;
    }

    /// It waits for nothing any more.
    fn leave(&mut self) {
        self.eats();
        self.fd.arrivals().leave(&mut self.place);
        self.waits = false;
        self.point.done();
    }

    /// It waits for no buffer any more.
    fn eats(&mut self) {
        if let (Some((_, Some(who))), What::Bytes(pool)) = (self.hungry.take(), &self.what) {
            pool.let_go(who);
        }
    }

    fn arrivals(&self) -> &Arrivals {
        self.fd.arrivals()
    }

    fn over<T>(&mut self, with: T) -> Poll<T> {
        self.leave();
        Poll::Ready(with)
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Arrival>> {
        loop {
            if let Some(told) = &self.told {
                let (arrivals, place) = (self.fd.arrivals(), &mut self.place);
                if let Some(series) = told.series
                    && arrivals.is_under_way(series, place, cx.waker())
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
                && let Some(arrival) = self.take()
            {
                return self.over(Ok(arrival));
            }
            if let Err(cancelled) = ready!(self.point.poll_enter(cx)) {
                self.eats();
                self.told = Some(Told {
                    cancelled,
                    series: self.arrivals().end(),
                    at_entry: !self.waits,
                });
                continue;
            }
            let (arrivals, place) = (self.fd.arrivals(), &mut self.place);
            arrivals.wake_later(place, cx.waker());
            if let Some(arrival) = self.take() {
                return self.over(Ok(arrival));
            }
            if let Poll::Ready(lent) = self.poll_buffer(cx.waker()) {
                if let Some(arrival) = lent.and_then(|lent| self.receive(lent)) {
                    return self.over(Ok(arrival));
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

    /// The series that was ended on somebody's word is over.
    fn ended(&mut self) -> Option<io::Result<Arrival>> {
        let told = self.told.take()?;
        if !told.at_entry
            && let Some(arrival) = self.take()
        {
            self.point.tell_again(&told.cancelled);
            return Some(Ok(arrival));
        }
        // Not if a shield holds it back by now: then it goes on.
        (self.point.still_told(&told.cancelled)).then(|| Err(cancelled(told.cancelled)))
    }

    /// What came first.
    fn take(&mut self) -> Option<Arrival> {
        self.fd.arrivals().take(&mut self.place)
    }

    /// Waits until there may be a buffer at the station of this thread, or until it
    /// is given one.
    fn poll_buffer(&mut self, waker: &Waker) -> Poll<Option<Lent>> {
        let What::Bytes(pool) = &self.what else {
            return Poll::Ready(None);
        };
        loop {
            // Whoever stands in line stays there until it is its turn.
            if let Some((before, who)) = &mut self.hungry {
                let lent = ready!(pool.poll_returned(before, who, self.waited, waker));
                if let Some((_, Some(who))) = self.hungry.take() {
                    pool.let_go(who);
                }
                if lent.is_some() {
                    return Poll::Ready(lent);
                }
            }
            match self.fd.arrivals().lacks(pool, self.fd.hub().choose()) {
                Some(before) => self.hungry = Some((before, None)),
                None => return Poll::Ready(None),
            }
        }
    }

    /// Receives what it has lacked the buffer for. Nothing if somebody else is
    /// about to, for whom the buffer then is, or there is nothing to receive.
    fn receive(&self, mut lent: Lent) -> Option<Arrival> {
        let system = self.fd.hub().system();
        let received = (self.arrivals()).alone(|| system.recv_now(self.fd.raw(), lent.room()))?;
        match received {
            Ok(0) => Some(Arrival::End),
            // No more than a buffer has room for.
            Ok(bytes) => Some(Arrival::Bytes(lent.filled(bytes as u32))),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Err(error) => Some(Arrival::Failed {
                result: -error.raw_os_error().unwrap_or(libc::EIO),
                once: true,
            }),
        }
    }

    fn begin(&self) -> io::Result<()> {
        let hub = self.fd.hub();
        hub.ready()?;
        let station = hub.choose();
        let make = || {
            let brings = match &self.what {
                What::Connections => Brings::Connections,
                What::Bytes(pool) => {
                    // In this order: what comes back later is noticed.
                    let before = pool.returned(station);
                    Brings::Bytes(pool.shelf(hub, station), before)
                }
            };
            Series::new(self.fd.clone(), brings)
        };
        self.arrivals().begin(make, |series| {
            hub.submit_to(station, Arc::clone(series) as _, &series.request());
        });
        Ok(())
    }
}

impl Drop for Next {
    fn drop(&mut self) {
        self.give_up();
        self.arrivals().remove_stream();
    }
}

/// One wait; made by [`Next::wait`].
pub(crate) struct Wait<'a>(&'a mut Next);

impl Future for Wait<'_> {
    type Output = io::Result<Arrival>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<Arrival>> {
        self.0.poll(cx)
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.0.give_up();
    }
}
