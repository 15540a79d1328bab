//! The readiness driver: for systems without io_uring, with one poller for each thread, which
//! is epoll on Linux and that of the crate `polling` elsewhere.
//!
//! Sockets and pipes do not block. A call is tried at once; if the system says
//! that it would have to wait, its file is armed, and when that is reported the
//! call is tried again. Files are always reported as ready, and their calls block: those are made
//! on threads that the runtime has for that.
//!
//! The rules W1 to W4 are in `README.md` of the i/o layer.

pub(in crate::io) mod calls;
mod offload;
#[cfg_attr(target_os = "linux", path = "epoll.rs")]
#[cfg_attr(not(target_os = "linux"), path = "polling.rs")]
mod poller;
#[cfg(all(test, not(loom)))]
mod tests;
mod watch;

use crate::io::request::{ConnectArgs, RecvManyArgs};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) use offload::IoCall;
use offload::{OffloadResults, OffloadedCall};
use poller::{Events, PollEvent, Poller};
use watch::{EventMask, FileWatch, Side};

use super::driver::{Answer, Driver, Notifier, OpId, WaitMode};
use super::ops::Fallback;
use super::request::Request;
use crate::blocking::BlockingPool;

/// Retry interval for requests that the poller cannot report on.
const MOMENT: Duration = Duration::from_millis(1);

/// What is under way.
enum PendingOp {
    /// Its file is armed.
    Waits(WaitingOp),
    /// It is tried again in a moment.
    Later(Request),
    /// A thread makes the call.
    Offload(Arc<OffloadedCall>),
}

#[derive(Clone, Copy)]
struct WaitingOp {
    fd: RawFd,
    side: Side,
    interest: EventMask,
    request: Request,
    /// A connection that was begun.
    begun: bool,
}

/// What is under way, by number.
#[derive(Default)]
struct Ops(Vec<Option<(u32, PendingOp)>>);

impl Ops {
    fn get(&self, id: OpId) -> Option<&PendingOp> {
        match self.0.get(id.index as usize) {
            Some(Some((generation, what))) if *generation == id.generation => Some(what),
            _ => None,
        }
    }

    fn insert(&mut self, id: OpId, what: PendingOp) {
        let index = id.index as usize;
        if self.0.len() <= index {
            self.0.resize_with(index + 1, || None);
        }
        self.0[index] = Some((id.generation, what));
    }

    fn remove(&mut self, id: OpId) -> Option<PendingOp> {
        self.get(id)?;
        let (_, what) = self.0[id.index as usize].take()?;
        Some(what)
    }

    /// True if it waits for its file.
    fn waits(&self, id: OpId) -> bool {
        matches!(self.get(id), Some(PendingOp::Waits(_)))
    }
}

/// How an attempt went.
enum Attempt {
    Over(i32),
    /// So many bytes came into this buffer of a group.
    Filled(i32, u16),
    /// Its file is not ready.
    NotYet,
    /// Connecting goes on by itself.
    Begun,
    /// It cannot go on, and the system will not report when it can.
    Later,
}

/// Tries a call.
///
/// # Safety
/// The memory that the request points to is valid, and no other code uses it.
unsafe fn attempt(request: &Request, begun: bool) -> Attempt {
    if let Request::Connect(ConnectArgs { fd, .. }) = *request
        && begun
    {
        // SAFETY: as the caller says.
        let went = unsafe { calls::connected(fd, request) };
        return went.map_or(Attempt::NotYet, Attempt::Over);
    }
    if let Request::RecvMany(RecvManyArgs { fd, group }) = *request {
        // SAFETY: as the caller says.
        return match unsafe { &*group }.recv(fd) {
            (bytes, Some(buffer)) => Attempt::Filled(bytes, buffer),
            (result, None) if result == -libc::EAGAIN => Attempt::NotYet,
            (result, None) => Attempt::Over(result),
        };
    }
    // SAFETY: as the caller says.
    let result = unsafe { request.call() };
    match (request, -result) {
        (Request::Connect(..), libc::EINPROGRESS | libc::EINTR | libc::EALREADY) => Attempt::Begun,
        // The backlog of a Unix socket is full.
        (Request::Connect(..), libc::EAGAIN) => Attempt::Later,
        (_, libc::EAGAIN) => Attempt::NotYet,
        _ => Attempt::Over(result),
    }
}

struct PollerNotifier(Arc<Poller>);

impl Notifier for PollerNotifier {
    fn notify(&self) {
        // As in `OffloadResults`.
        let _ = self.0.notify();
    }
}

/// The readiness driver.
pub(crate) struct ReadinessDriver {
    poller: Arc<Poller>,
    events: Events,
    /// Those of `events` while they are gone through.
    reports: Vec<PollEvent>,
    blocking: Arc<BlockingPool>,
    back: Arc<OffloadResults>,
    ops: Ops,
    watches: HashMap<RawFd, FileWatch>,
    /// How many of them are armed.
    armed: usize,
    /// Some may be gone again.
    later: Vec<OpId>,
    /// Files of which a direction rests, and until when. Some may be gone, or be
    /// others: then it does no harm.
    resting: Vec<(Instant, RawFd)>,
    /// Over, and not collected yet.
    done: Vec<Answer>,
}

impl ReadinessDriver {
    /// Drivers for so many threads, or why there are none.
    pub(crate) fn make(
        threads: usize,
        blocking: &Arc<BlockingPool>,
    ) -> io::Result<Vec<Box<dyn Driver>>> {
        (0..threads)
            .map(|_| Ok(Box::new(ReadinessDriver::new(blocking.clone())?) as Box<dyn Driver>))
            .collect()
    }

    fn new(blocking: Arc<BlockingPool>) -> io::Result<ReadinessDriver> {
        let poller = Arc::new(Poller::new()?);
        Ok(ReadinessDriver {
            back: Arc::new(OffloadResults::new(poller.clone())),
            poller,
            events: Events::new(),
            reports: Vec::new(),
            blocking,
            ops: Ops::default(),
            watches: HashMap::new(),
            armed: 0,
            later: Vec::new(),
            resting: Vec::new(),
            done: Vec::new(),
        })
    }

    fn over(&mut self, id: OpId, result: i32) {
        self.done.push(Answer::last(id, result));
    }

    fn filled(&mut self, id: OpId, bytes: i32, buffer: u16) {
        self.done.push(Answer {
            buffer: Some(buffer),
            ..Answer::last(id, bytes)
        });
    }

    fn offload(&mut self, id: OpId, request: Request) {
        // SAFETY: `submit`'s promise: it was not collected, and will not be
        // until the call has come back or was cancelled.
        let call = unsafe { OffloadedCall::new(id, request, self.back.clone()) };
        self.ops.insert(id, PendingOp::Offload(call.clone()));
        self.blocking.run_io(IoCall::new(call));
    }

    fn wait_for(&mut self, id: OpId, waits: WaitingOp) {
        let watch = self.watches.entry(waits.fd).or_default();
        watch.push(waits.side, waits.interest, id);
        self.ops.insert(id, PendingOp::Waits(waits));
        self.arm(waits.fd);
    }

    /// Takes out an operation that waits for its file.
    fn leave(&mut self, id: OpId, waits: WaitingOp) {
        self.ops.remove(id);
        if let Some(watch) = self.watches.get_mut(&waits.fd) {
            watch.gone(waits.side, waits.interest, |id| self.ops.waits(id));
        }
    }

    fn set_armed(&mut self, fd: RawFd, armed: EventMask) {
        if let Some(watch) = self.watches.get_mut(&fd) {
            let before = std::mem::replace(&mut watch.armed, armed);
            self.armed -= usize::from(before != EventMask::NONE);
            self.armed += usize::from(armed != EventMask::NONE);
        }
    }

    /// Has the system report what those who wait for a file want to know.
    fn arm(&mut self, fd: RawFd) {
        let Some(watch) = self.watches.get_mut(&fd) else {
            return;
        };
        let wanted = watch.wanted();
        if wanted == EventMask::NONE {
            // All of it rests.
            return;
        }
        if watch.armed != EventMask::NONE && watch.armed.covers(wanted) {
            return;
        }
        let event = wanted.event(fd as usize);
        // SAFETY: an operation waits for it, and keeps it open.
        let source = unsafe { BorrowedFd::borrow_raw(fd) };
        // SAFETY: it is disarmed before it can be closed (W1), which the tests ask after
        // each; noticed by `a_number_that_is_used_again_is_not_confused`. Closed, the
        // system forgets it; where it does not, it reports nothing of what is
        // not armed.
        let add = || unsafe { self.poller.add(fd, event) };
        // What we know of a number may be of another file: then the other way.
        let armed = match watch.known {
            true => match self.poller.modify(source, event) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => add(),
                armed => armed,
            },
            false => match add() {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    self.poller.modify(source, event)
                }
                armed => armed,
            },
        };
        match armed {
            Ok(()) => {
                watch.known = true;
                self.set_armed(fd, wanted);
            }
            Err(error) => self.refused(fd, &error),
        }
    }

    /// The system reports nothing of this file. It is one that is always ready,
    /// and may block; or something is wrong.
    fn refused(&mut self, fd: RawFd, error: &io::Error) {
        let errno = error.raw_os_error().unwrap_or(libc::EIO);
        let Some(watch) = self.watches.get(&fd) else {
            return;
        };
        for id in watch.all(|id| self.ops.waits(id)) {
            let Some(PendingOp::Waits(waits)) = self.ops.get(id) else {
                continue;
            };
            let waits = *waits;
            self.leave(id, waits);
            match errno {
                libc::EPERM => self.offload(id, waits.request),
                _ => self.over(id, -errno),
            }
        }
        self.forget(fd);
    }

    /// No operation waits for this file any more: it is disarmed (W1).
    fn forget(&mut self, fd: RawFd) {
        let armed = |watch: &FileWatch| watch.armed != EventMask::NONE;
        if self.watches.get(&fd).is_some_and(armed) {
            // SAFETY: the operations that waited are not complete, and keep it open.
            let source = unsafe { BorrowedFd::borrow_raw(fd) };
            // If it fails it is not armed.
            let _ = self.poller.delete(source);
            self.set_armed(fd, EventMask::NONE);
        }
        self.watches.remove(&fd);
    }

    /// Something was reported of a file.
    fn reported(&mut self, fd: RawFd, readable: bool, writable: bool) {
        // Each report is the last until it is armed again.
        self.set_armed(fd, EventMask::NONE);
        let read = readable && self.serve(fd, Side::Read);
        let write = writable && self.serve(fd, Side::Write);
        let polls = self.serve_polls(fd);
        // Another process may have been quicker: that was not in vain.
        let gone = |events: libc::c_short| calls::poll(fd, events as u32) == 0;
        if let Some(watch) = self.watches.get_mut(&fd) {
            let read = readable.then(|| {
                let went_on = read || polls || gone(libc::POLLIN | libc::POLLPRI);
                watch.reported(Side::Read, went_on)
            });
            let write = writable.then(|| {
                let went_on = write || polls || gone(libc::POLLOUT);
                watch.reported(Side::Write, went_on)
            });
            if let Some(rest) = read.flatten().into_iter().chain(write.flatten()).min() {
                self.resting.push((Instant::now() + rest, fd));
            }
        }
        // A file nobody waits for any more stays known, so that arming it again
        // is one call.
        if self.watches.get(&fd).is_some_and(|watch| !watch.is_empty()) {
            self.arm(fd);
        }
    }

    /// Those whose files have rested try again, and their files are armed.
    fn try_rested(&mut self) {
        if self.resting.is_empty() {
            return;
        }
        let now = Instant::now();
        let rested = self.resting.extract_if(.., |(until, _)| *until <= now);
        for (_, fd) in rested.collect::<Vec<_>>() {
            let read = self.serve(fd, Side::Read);
            let write = self.serve(fd, Side::Write);
            let polls = self.serve_polls(fd);
            let Some(watch) = self.watches.get_mut(&fd) else {
                continue;
            };
            watch.rested(read || polls, write || polls);
            match self.watches.get(&fd).is_some_and(FileWatch::is_empty) {
                true => self.forget(fd),
                false => self.arm(fd),
            }
        }
    }

    /// Tries the calls of one direction, in order, as long as they go on. True if
    /// one did.
    fn serve(&mut self, fd: RawFd, side: Side) -> bool {
        let mut went_on = false;
        while let Some(watch) = self.watches.get_mut(&fd)
            && let Some(id) = watch.row(side).first(|id| self.ops.waits(id))
            && self.try_again(id)
        {
            went_on = true;
        }
        went_on
    }

    fn serve_polls(&mut self, fd: RawFd) -> bool {
        let Some(watch) = self.watches.get_mut(&fd) else {
            return false;
        };
        let mut went_on = false;
        for id in watch.row(Side::Poll).all(|id| self.ops.waits(id)) {
            went_on |= self.try_again(id);
        }
        went_on
    }

    /// Tries the call of an operation that waits for its file; true if it is over.
    fn try_again(&mut self, id: OpId) -> bool {
        let Some(PendingOp::Waits(waits)) = self.ops.get(id) else {
            return false;
        };
        let waits = *waits;
        // SAFETY: as in `submit`.
        match unsafe { attempt(&waits.request, waits.begun) } {
            Attempt::Over(result) => {
                self.leave(id, waits);
                self.over(id, result);
                true
            }
            Attempt::Filled(bytes, buffer) => {
                self.leave(id, waits);
                self.filled(id, bytes, buffer);
                true
            }
            Attempt::Begun => {
                let begun = true;
                self.ops
                    .insert(id, PendingOp::Waits(WaitingOp { begun, ..waits }));
                false
            }
            Attempt::NotYet => false,
            Attempt::Later => {
                self.leave(id, waits);
                self.later(id, waits.request);
                true
            }
        }
    }

    fn later(&mut self, id: OpId, request: Request) {
        self.ops.insert(id, PendingOp::Later(request));
        self.later.push(id);
    }

    /// Tries what could not go on a moment ago.
    fn try_later(&mut self) {
        for id in std::mem::take(&mut self.later) {
            if let Some(PendingOp::Later(request)) = self.ops.get(id) {
                let request = *request;
                self.ops.remove(id);
                // SAFETY: as in `submit`.
                unsafe { self.submit(id, &request) };
            }
        }
    }

    /// How long until the driver retries a request that the poller cannot report on.
    fn next_try(&self) -> Option<Duration> {
        let later = (!self.later.is_empty()).then_some(MOMENT);
        let rested = self.resting.iter().map(|(until, _)| *until).min();
        let rested = rested.map(|until| until.saturating_duration_since(Instant::now()));
        later.into_iter().chain(rested).min()
    }

    /// Asks the system what is ready.
    fn look(&mut self, wait: WaitMode) -> io::Result<()> {
        let most = match wait {
            WaitMode::Peek => return Ok(()),
            WaitMode::No if self.armed == 0 => return Ok(()),
            // One question that copies no report.
            WaitMode::No if calls::poll(self.poller.as_raw_fd(), libc::POLLIN as u32) == 0 => {
                return Ok(());
            }
            WaitMode::No => Some(Duration::ZERO),
            WaitMode::AtMost(most) => Some(most),
            WaitMode::Forever => None,
        };
        let most = most.into_iter().chain(self.next_try()).min();
        self.events.clear();
        match self.poller.wait(&mut self.events, most) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        let mut reports = std::mem::take(&mut self.reports);
        reports.extend(self.events.iter());
        for report in reports.drain(..) {
            self.reported(report.key as RawFd, report.readable, report.writable);
        }
        self.reports = reports;
        Ok(())
    }

    fn collect(&mut self, answers: &mut Vec<Answer>) {
        for back in self.back.take() {
            let call = self.ops.remove(back.id);
            debug_assert!(matches!(call, Some(PendingOp::Offload(_))), "{back:?}");
            answers.push(back);
        }
        answers.append(&mut self.done);
    }
}

// SAFETY: each submission is collected once, after the last touch of its memory,
// with no more than was asked for.
unsafe impl Driver for ReadinessDriver {
    unsafe fn submit(&mut self, id: OpId, request: &Request) {
        let (fd, side, interest) = match request.fallback() {
            Fallback::Now => {
                // SAFETY: as the caller says.
                let result = unsafe { request.call() };
                return self.over(id, result);
            }
            Fallback::Offload => return self.offload(id, *request),
            Fallback::Readable(fd) => (fd, Side::Read, EventMask::READ),
            Fallback::Writable(fd) => (fd, Side::Write, EventMask::WRITE),
            Fallback::Polled(fd, events) => (fd, Side::Poll, EventMask::of_poll(events)),
        };
        let waits = |begun| WaitingOp {
            fd,
            side,
            interest,
            request: *request,
            begun,
        };
        // Behind the operations that wait already, unless order means nothing.
        if side != Side::Poll
            && let Some(watch) = self.watches.get_mut(&fd)
            && !watch.row(side).is_empty()
        {
            return self.wait_for(id, waits(false));
        }
        // SAFETY: as the caller says.
        match unsafe { attempt(request, false) } {
            Attempt::Over(result) => self.over(id, result),
            Attempt::Filled(bytes, buffer) => self.filled(id, bytes, buffer),
            Attempt::NotYet => self.wait_for(id, waits(false)),
            Attempt::Begun => self.wait_for(id, waits(true)),
            Attempt::Later => self.later(id, *request),
        }
    }

    fn cancel(&mut self, id: OpId) {
        match self.ops.get(id) {
            None => return,
            Some(PendingOp::Later(_)) => {
                self.ops.remove(id);
            }
            Some(PendingOp::Offload(call)) => {
                if !call.cancel() {
                    // It has begun, and returns by itself.
                    return;
                }
                self.ops.remove(id);
            }
            Some(PendingOp::Waits(waits)) => {
                let waits = *waits;
                self.leave(id, waits);
                if self.watches.get(&waits.fd).is_some_and(FileWatch::is_empty) {
                    self.forget(waits.fd);
                }
            }
        }
        self.over(id, -libc::ECANCELED);
    }

    fn poll(&mut self, wait: WaitMode, answers: &mut Vec<Answer>) -> io::Result<()> {
        self.try_later();
        self.try_rested();
        self.collect(answers);
        let wait = match answers.is_empty() || wait == WaitMode::Peek {
            true => wait,
            false => WaitMode::No,
        };
        self.look(wait)?;
        self.collect(answers);
        Ok(())
    }

    fn notifier(&self) -> Arc<dyn Notifier> {
        Arc::new(PollerNotifier(self.poller.clone()))
    }

    fn wants_nonblocking(&self) -> bool {
        true
    }

    fn name(&self) -> &'static str {
        "readiness"
    }
}
