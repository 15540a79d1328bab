//! [`Driver`]: what carries out operations for one thread.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::request::Request;

/// Which operation, of those of one driver. No two that live at the same time
/// share one, and one that is used again has another generation.
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

/// An operation is over, or, if it is a series, has answered.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// Which.
    pub id: OpId,
    /// As kernels answer: what was done, or the negative error number.
    pub result: i32,
    /// It is a series and goes on: another answer will come.
    pub more: bool,
    /// The buffer of the request's group that was filled, if it has one.
    pub buffer: Option<u16>,
}

impl Answer {
    /// It is over.
    pub fn last(id: OpId, result: i32) -> Answer {
        Answer {
            id,
            result,
            more: false,
            buffer: None,
        }
    }
}

/// How long a driver may wait for the first operation to be over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitMode {
    /// It only collects what is over already. What was submitted may stay here,
    /// and the system need not be asked.
    Peek,
    /// Not at all; but what was submitted is handed over.
    No,
    /// So long at most.
    AtMost(Duration),
    /// Until one is, or the notifier rings.
    Forever,
}

/// Ends the wait of a driver, from any thread.
pub trait Notifier: Send + Sync {
    /// The driver's wait returns, this one or the next.
    fn notify(&self);
}

/// What carries out operations for one thread.
///
/// It owns nothing but the traffic with the system: who waits, and the memory
/// that requests lead to, is kept by the thread it works for.
///
/// # Safety
/// The end of every submission is collected once, and from then on the driver does not touch
/// what the request leads to. Of bytes it says no more than were asked for, and
/// those it says were read it has written; a file it says was opened is open.
/// A buffer of a group that it names it has taken from there, and from then on it
/// is whose answer that is.
pub unsafe trait Driver: Send {
    /// Begins `request`. Its end will be collected with this `id`, once,
    /// whatever happens: if it cannot be begun, that is its end. Only a series
    /// ([`Request::AcceptMany`], [`Request::RecvMany`]) may give answers before its end.
    ///
    /// # Safety
    /// What the request leads to stays where it is, and nobody else uses it,
    /// until that end was collected.
    unsafe fn submit(&mut self, id: OpId, request: &Request);

    /// Carries out `request` here and now, if that is one call and there is nothing
    /// to wait for; the answer. None if it has to be [submitted](Driver::submit),
    /// and nothing has happened.
    ///
    /// # Safety
    /// As for [`submit`](Driver::submit), until it returns.
    unsafe fn at_once(&mut self, request: &Request) -> Option<i32> {
        let _ = request;
        None
    }

    /// Asks for the operation to be ended early. It ends by itself, with its
    /// result or with `ECANCELED`. It may be over already, or somebody else's
    /// by now: then nothing happens.
    fn cancel(&mut self, id: OpId);

    /// Hands over what was submitted, waits if told to, and collects what is
    /// over. [Peeking](WaitMode::Peek) it may leave out the first.
    ///
    /// # Errors
    /// Only if the driver cannot go on: its process is aborted then. What is wrong
    /// with one operation is the answer of that one.
    fn poll(&mut self, wait: WaitMode, answers: &mut Vec<Answer>) -> io::Result<()>;

    /// What ends its wait.
    fn notifier(&self) -> Arc<dyn Notifier>;

    /// True if sockets and pipes must not block.
    fn wants_nonblocking(&self) -> bool;

    /// What it is called.
    fn name(&self) -> &'static str;
}
