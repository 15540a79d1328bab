//! A series: an operation that is begun once and answers many times.
//!
//! ```text
//! begun ──▶ under way ──1──▶ under way ──1──▶ … ──2──▶ over
//!                                1: an answer, and more will come
//!                                2: the last: an answer, an error, or `ECANCELED`
//! ```
//!
//! What it brings goes to the [`Arrivals`](self::queue::Arrivals) of its
//! socket, whoever waits there or does not. A driver may end it after any
//! answer, and one that knows no such thing after the first; whoever wants more
//! begins another.

pub(super) mod queue;
pub(super) mod stream;

use std::sync::Arc;

use self::queue::Arrival;
use crate::io::buffer_pool::{Chunk, Returned, Shelf};
use crate::io::driver::Landed;
use crate::io::fd::Fd;
use crate::io::in_flight::{GONE, Landing, Ticket};
use crate::io::request::Request;

/// After so many connections that nobody has taken no more are asked for.
const CONNECTIONS: usize = 64;

/// After so many chunks that nobody has taken no more are asked for.
const CHUNKS: usize = 16;

/// What a series brings.
pub(crate) enum Brings {
    Connections,
    /// In buffers of this shelf, and what had come back to their pool before it
    /// was begun.
    Bytes(Arc<Shelf>, Returned),
}

/// The flight of a series. It lies in its station's table until its last answer.
pub(crate) struct Series {
    ticket: Ticket,
    fd: Fd,
    brings: Brings,
}

impl Series {
    pub(crate) fn new(fd: Fd, brings: Brings) -> Arc<Series> {
        let ticket = Ticket::default();
        Arc::new(Series { ticket, fd, brings })
    }

    /// What the system is asked. It leads to this series, which stays where it
    /// is.
    pub(crate) fn request(&self) -> Request {
        let fd = self.fd.raw();
        match &self.brings {
            Brings::Connections => Request::AcceptMany { fd },
            Brings::Bytes(shelf, _) => Request::RecvMany {
                fd,
                shelf: &raw const *shelf,
            },
        }
    }

    /// When so much lies there that nobody has taken, no more is asked for.
    fn most(&self) -> usize {
        match &self.brings {
            Brings::Connections => CONNECTIONS,
            Brings::Bytes(..) => CHUNKS,
        }
    }

    pub(crate) fn accepts(&self) -> bool {
        matches!(self.brings, Brings::Connections)
    }

    /// Asks for its end.
    pub(crate) fn end(self: Arc<Series>) {
        let hub = self.fd.hub().clone();
        hub.cancel(self);
    }

    /// What an answer means; nothing if it only says that the series is over.
    fn arrival(&self, result: i32, buffer: Option<u16>) -> Option<Arrival> {
        // Whatever the answer is, the buffer is ours now.
        let chunk = match (&self.brings, buffer) {
            (Brings::Bytes(shelf, _), Some(number)) => {
                let len = u32::try_from(result).unwrap_or(0);
                // SAFETY: the driver says that it was filled so far, and is done
                // with it.
                Some(unsafe { Chunk::lent(shelf.clone(), number, len) })
            }
            _ => None,
        };
        match (result, &self.brings) {
            (GONE, _) => Some(Arrival::Failed {
                result: GONE,
                once: false,
            }),
            (ended, _) if ended == -libc::ECANCELED || ended == -libc::EINTR => None,
            (none, Brings::Bytes(_, before)) if none == -libc::ENOBUFS => {
                Some(Arrival::NoBuffer(before.clone()))
            }
            // The error of a connection is told once.
            (result, brings) if result < 0 => Some(Arrival::Failed {
                result,
                once: matches!(brings, Brings::Bytes(..)),
            }),
            (answer, Brings::Connections) => {
                let hub = self.fd.hub().clone();
                Some(Arrival::Connection(Fd::new(answer, hub)))
            }
            (0, Brings::Bytes(..)) => Some(Arrival::End),
            (_, Brings::Bytes(..)) => chunk.map(Arrival::Bytes),
        }
    }

    fn came(self: Arc<Series>, result: i32, buffer: Option<u16>, more: bool) {
        let arrival = self.arrival(result, buffer);
        if self.fd.arrivals().arrived(arrival, self.most(), more) {
            self.end();
        }
    }
}

impl Landing for Series {
    fn land(self: Arc<Self>, result: i32) {
        self.came(result, None, false);
    }

    fn answered(self: Arc<Self>, landed: Landed) {
        self.came(landed.result, landed.buffer, landed.more);
    }

    fn ticket(&self) -> &Ticket {
        &self.ticket
    }
}
