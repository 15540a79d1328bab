//! A series: an operation that is begun once and answers many times.
//!
//! ```text
//! begun ──▶ under way ──1──▶ under way ──1──▶ … ──2──▶ over
//!                                1: an answer, and more will come
//!                                2: the last: an answer, an error, or `ECANCELED`
//! ```
//!
//! What it brings goes to the [`SeriesQueue`](self::queue::SeriesQueue) of its
//! socket, whoever waits there or does not. A driver may end it after any
//! answer, and one that knows no such thing after the first; whoever wants more
//! begins another.

pub(super) mod queue;
pub(super) mod stream;

use crate::io::request::{AcceptManyArgs, RecvManyArgs};
use std::sync::Arc;

use self::queue::SeriesItem;
use crate::io::buffer_pool::{BufferGroup, Chunk, Returned};
use crate::io::driver::Answer;
use crate::io::fd::Fd;
use crate::io::in_flight::{GONE, InFlight, OpIdCell};
use crate::io::request::Request;

/// After so many connections that were not taken, no more are asked for.
const CONNECTIONS: usize = 64;

/// After so many chunks that were not taken, no more are asked for.
const CHUNKS: usize = 16;

/// What a series brings.
pub(crate) enum Brings {
    Connections,
    /// In buffers of this group, and what had come back to their pool before it
    /// was begun.
    Bytes(Arc<BufferGroup>, Returned),
}

/// The in_flight of a series. It lies in its thread's table until its last answer.
pub(crate) struct Series {
    id_cell: OpIdCell,
    fd: Fd,
    brings: Brings,
}

impl Series {
    pub(crate) fn new(fd: Fd, brings: Brings) -> Arc<Series> {
        let id_cell = OpIdCell::default();
        Arc::new(Series {
            id_cell,
            fd,
            brings,
        })
    }

    /// What the system is asked. It leads to this series, which stays where it
    /// is.
    pub(crate) fn request(&self) -> Request {
        let fd = self.fd.raw();
        match &self.brings {
            Brings::Connections => Request::AcceptMany(AcceptManyArgs { fd }),
            Brings::Bytes(group, _) => Request::RecvMany(RecvManyArgs {
                fd,
                group: &raw const *group,
            }),
        }
    }

    /// When so much lies there untaken, no more is asked for.
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
        let handle = self.fd.handle().clone();
        handle.cancel(self);
    }

    /// What an answer means; nothing if it only says that the series is over.
    fn item(&self, result: i32, buffer: Option<u16>) -> Option<SeriesItem> {
        // Whatever the answer is, the buffer is ours now.
        let chunk = match (&self.brings, buffer) {
            (Brings::Bytes(group, _), Some(number)) => {
                let len = u32::try_from(result).unwrap_or(0);
                // SAFETY: the driver says that it was filled so far, and is done
                // with it.
                Some(unsafe { Chunk::from_pool(group.clone(), number, len) })
            }
            _ => None,
        };
        match (result, &self.brings) {
            (GONE, _) => Some(SeriesItem::Failed {
                result: GONE,
                once: false,
            }),
            (ended, _) if ended == -libc::ECANCELED || ended == -libc::EINTR => None,
            (none, Brings::Bytes(_, before)) if none == -libc::ENOBUFS => {
                Some(SeriesItem::NoBuffer(before.clone()))
            }
            // The error of a connection is told once.
            (result, brings) if result < 0 => Some(SeriesItem::Failed {
                result,
                once: matches!(brings, Brings::Bytes(..)),
            }),
            (answer, Brings::Connections) => {
                let handle = self.fd.handle().clone();
                Some(SeriesItem::Connection(Fd::new(answer, handle)))
            }
            (0, Brings::Bytes(..)) => Some(SeriesItem::End),
            (_, Brings::Bytes(..)) => chunk.map(SeriesItem::Bytes),
        }
    }

    fn came(self: Arc<Series>, result: i32, buffer: Option<u16>, more: bool) {
        let item = self.item(result, buffer);
        if self.fd.series_queue().arrived(item, self.most(), more) {
            self.end();
        }
    }
}

impl InFlight for Series {
    fn complete(self: Arc<Self>, result: i32) {
        self.came(result, None, false);
    }

    fn answered(self: Arc<Self>, answer: Answer) {
        self.came(answer.result, answer.buffer, answer.more);
    }

    fn id_cell(&self) -> &OpIdCell {
        &self.id_cell
    }
}
