//! A series: an operation that is begun once and answers many times.
//!
//! ```text
//! begun ──▶ under way ──1──▶ under way ──1──▶ … ──2──▶ over
//!                                1: an answer, and more will come
//!                                2: the last: an answer, an error, or `ECANCELED`
//! ```
//!
//! What it brings goes to the [`Arrivals`](super::arrivals::Arrivals) of its
//! socket, whoever waits there or does not. A driver may end it after any
//! answer, and one that knows no such thing after the first; whoever wants more
//! begins another.

use std::sync::Arc;

use super::arrivals::Arrival;
use super::driver::Landed;
use super::fd::Fd;
use super::flight::{GONE, Landing, Ticket};
use super::request::Request;

/// After so many connections that nobody has taken no more are asked for.
pub(crate) const CONNECTIONS: usize = 64;

/// What a series brings.
#[derive(Clone)]
pub(crate) enum What {
    Connections,
}

impl What {
    /// When so much lies there that nobody has taken, no more is asked for.
    pub(crate) fn most(&self) -> usize {
        match self {
            What::Connections => CONNECTIONS,
        }
    }
}

/// The flight of a series. It lies in its station's table until its last answer.
pub(crate) struct Series {
    ticket: Ticket,
    fd: Fd,
    what: What,
}

impl Series {
    pub(crate) fn new(fd: Fd, what: What) -> Arc<Series> {
        let ticket = Ticket::default();
        Arc::new(Series { ticket, fd, what })
    }

    pub(crate) fn request(&self) -> Request {
        let fd = self.fd.raw();
        match &self.what {
            What::Connections => Request::AcceptMany { fd },
        }
    }

    /// Asks for its end.
    pub(crate) fn end(self: Arc<Series>) {
        let hub = self.fd.hub().clone();
        hub.cancel(self);
    }

    fn came(self: Arc<Series>, result: i32, more: bool) {
        let arrival = self.arrival(result);
        if self.fd.arrivals().arrived(arrival, self.what.most(), more) {
            self.end();
        }
    }

    /// What an answer means; nothing if it only says that the series is over.
    fn arrival(&self, result: i32) -> Option<Arrival> {
        match result {
            GONE => Some(Arrival::Failed(GONE)),
            ended if ended == -libc::ECANCELED || ended == -libc::EINTR => None,
            failed if failed < 0 => Some(Arrival::Failed(failed)),
            answer => match &self.what {
                What::Connections => {
                    let hub = self.fd.hub().clone();
                    Some(Arrival::Connection(Fd::new(answer, hub)))
                }
            },
        }
    }
}

impl Landing for Series {
    fn land(self: Arc<Self>, result: i32) {
        self.came(result, false);
    }

    fn answered(self: Arc<Self>, landed: Landed) {
        self.came(landed.result, landed.more);
    }

    fn ticket(&self) -> &Ticket {
        &self.ticket
    }
}
