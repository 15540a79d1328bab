//! [`Driver`]: submits operations to the system and collects their answers, for one thread.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::request::Request;

/// The number of an operation with its driver. No two operations in flight have the same
/// index, and an index that is used again has another generation.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct OpId {
    /// The place in the table.
    pub index: u32,
    /// How often that place was used before.
    pub generation: u32,
}

impl fmt::Debug for OpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.index, self.generation)
    }
}

/// The system's answer to an operation. A series has several, every other operation one.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// Which operation.
    pub id: OpId,
    /// As kernels answer: a count or a descriptor, or the negative error number.
    pub result: i32,
    /// The operation is a series and goes on: another answer will come.
    pub more: bool,
    /// The buffer of the request's group that was filled, if the request has a group.
    pub buffer: Option<u16>,
}

impl Answer {
    /// The last answer: the operation is complete.
    pub fn last(id: OpId, result: i32) -> Answer {
        Answer {
            id,
            result,
            more: false,
            buffer: None,
        }
    }
}

/// How long a poll of a driver may wait for the first answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitMode {
    /// Only collects answers that are there. Submissions may stay queued, and no system
    /// call is needed.
    Peek,
    /// Does not wait, but hands queued submissions to the system.
    No,
    /// Waits for at most this long.
    AtMost(Duration),
    /// Waits for an answer or a [`Notifier::notify`].
    Forever,
}

/// Ends the wait of a driver, from any thread.
pub trait Notifier: Send + Sync {
    /// The current wait of the driver returns, or, if there is none, the next.
    fn notify(&self);
}

/// Submits operations to the system and collects their answers, for one thread.
///
/// A driver owns nothing else: the memory that requests point to, and the waiting tasks, are
/// kept by the [`ThreadIo`](super::ThreadIo) it works for.
///
/// # Safety
/// - Every submission gets exactly one last [`Answer`]. From then on the driver does not touch
///   the memory that the request points to.
/// - A reported byte count does not exceed the requested length; for reads, that many bytes of
///   the buffer are initialised.
/// - A returned descriptor is open and owned by the receiver of the answer.
/// - A buffer that an answer names was taken from the group of the request, and is owned by
///   the receiver of the answer.
pub unsafe trait Driver: Send {
    /// Begins `request`. Its last answer carries this `id` and comes exactly once, also if
    /// the request cannot be begun: then the answer is the error. Only a series
    /// ([`Request::AcceptMany`], [`Request::RecvMany`]) has answers before the last.
    ///
    /// # Safety
    /// The memory that the request points to does not move, and no other code uses it, until
    /// the last answer was collected.
    unsafe fn submit(&mut self, id: OpId, request: &Request);

    /// Carries out `request` by one system call that does not wait, and returns the answer.
    /// `None` means that nothing has happened, and that the request has to be
    /// [submitted](Driver::submit).
    ///
    /// # Safety
    /// As for [`submit`](Driver::submit), until it returns.
    unsafe fn at_once(&mut self, request: &Request) -> Option<i32> {
        let _ = request;
        None
    }

    /// Asks the system to end the operation early. Its last answer comes as usual, with the
    /// result or with `ECANCELED`. A number whose operation is complete is ignored.
    fn cancel(&mut self, id: OpId);

    /// Hands queued submissions to the system, waits as `wait` says, and collects answers. With
    /// [`WaitMode::Peek`] the submissions may stay queued.
    ///
    /// # Errors
    /// Only if the driver cannot go on: then the process is aborted. An error of one operation
    /// is the answer of that operation.
    fn poll(&mut self, wait: WaitMode, answers: &mut Vec<Answer>) -> io::Result<()>;

    /// Ends the driver's wait from other threads.
    fn notifier(&self) -> Arc<dyn Notifier>;

    /// True if sockets and pipes must be in non-blocking mode.
    fn wants_nonblocking(&self) -> bool;

    /// The name of the driver, for reports.
    fn name(&self) -> &'static str;
}
