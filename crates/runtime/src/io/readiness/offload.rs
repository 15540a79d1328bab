//! Calls that must block, on the runtime's threads for that, and the way back.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::calls;
use super::poller::Poller;
use crate::blocking::BlockingPool;
use crate::io::driver::{Answer, OpId};
use crate::io::request::Request;

/// Where the answers of offloaded calls wait for the thread that owns the driver.
pub(super) struct OffloadResults {
    answers: Mutex<Vec<Answer>>,
    /// There are some, to be seen without the lock.
    any: AtomicBool,
    poller: Arc<Poller>,
}

impl OffloadResults {
    pub(super) fn new(poller: Arc<Poller>) -> OffloadResults {
        OffloadResults {
            answers: Mutex::default(),
            any: AtomicBool::new(false),
            poller,
        }
    }

    fn bring(&self, id: OpId, result: i32) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.push(Answer::last(id, result));
        self.any.store(true, Ordering::Release);
        drop(answers);
        // It fails only if the poller is broken, and then its wait fails too.
        let _ = self.poller.notify();
    }

    /// What has come back since.
    pub(super) fn take(&self) -> Vec<Answer> {
        // What comes after this look rings, and so is seen with the next turn.
        if !self.any.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        self.any.store(false, Ordering::Release);
        std::mem::take(&mut answers)
    }
}

/// Not begun yet.
const WAITS: u8 = 0;
/// A thread has begun it, or nobody ever will: its end comes back.
const BEGUN: u8 = 1;
/// Cancelled before it began: it never does.
const CANCELLED: u8 = 2;

/// A call that must block.
pub(super) struct OffloadedCall {
    state: AtomicU8,
    id: OpId,
    request: Request,
    back: Arc<OffloadResults>,
}

impl OffloadedCall {
    /// # Safety
    /// The memory that the request points to is valid, and no other code uses it, until the
    /// call has returned or was cancelled.
    pub(super) unsafe fn new(
        id: OpId,
        request: Request,
        back: Arc<OffloadResults>,
    ) -> Arc<OffloadedCall> {
        Arc::new(OffloadedCall {
            state: AtomicU8::new(WAITS),
            id,
            request,
            back,
        })
    }

    fn leaves(&self, to: u8) -> bool {
        let (done, failed) = (Ordering::AcqRel, Ordering::Relaxed);
        self.state.compare_exchange(WAITS, to, done, failed).is_ok()
    }

    /// True if it never begins; otherwise its end comes back.
    pub(super) fn cancel(&self) -> bool {
        self.leaves(CANCELLED)
    }
}

/// A call as the threads get it. Dropped before it began, it has failed.
pub(crate) struct IoCall(Arc<OffloadedCall>);

impl IoCall {
    pub(super) fn new(call: Arc<OffloadedCall>) -> IoCall {
        IoCall(call)
    }

    /// Makes the call on a thread of this pool, unless it was cancelled.
    pub(crate) fn run(self, pool: &Arc<BlockingPool>) {
        let call = &*self.0;
        if call.leaves(BEGUN) {
            // SAFETY: it has neither come back nor was it cancelled; here and
            // below. Noticed by
            // `a_call_aside_is_cancelled_before_it_begins_and_not_after`.
            let long = unsafe { calls::may_last(&call.request) };
            // SAFETY: as above.
            let make = || unsafe { call.request.call() };
            let result = match long {
                true => pool.aside(make),
                false => make(),
            };
            call.back.bring(call.id, result);
        }
    }
}

impl Drop for IoCall {
    fn drop(&mut self) {
        let call = &*self.0;
        if call.leaves(BEGUN) {
            // No thread could be started. A file must be closed nevertheless.
            let result = match &call.request {
                // SAFETY: as in `run`.
                close @ Request::Close(..) => unsafe { close.call() },
                _ => -libc::EAGAIN,
            };
            call.back.bring(call.id, result);
        }
    }
}
