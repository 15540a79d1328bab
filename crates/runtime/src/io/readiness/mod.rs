//! The readiness driver: for systems without io_uring, on the crate `polling`,
//! one poller for each station.
//!
//! Sockets and pipes do not block. A call is tried at once; if the system says
//! that it would have to wait, its file is armed, and when that is reported the
//! call is tried again. Files are always ready and block all the same: their
//! calls are made on the runtime's threads for that.
//!
//! - **W1** A file that is armed has somebody who waits for it. It is disarmed
//!   before the last of them lands, hence before its number can be closed and
//!   used again.
//! - **W2** A report is a hint: whoever waits for that number tries again. One
//!   that is meant for another file does no harm.
//! - **W3** Who waits is in one row of one watch, or in `later`, or is called
//!   aside; and leaves it when its end goes into `done`.
//! - **W4** A direction that is reported again and again, and nobody can go on,
//!   rests for a moment: it is not armed, and tried when the moment is over.

mod aside;
mod calls;
#[cfg(all(test, not(loom)))]
mod tests;
mod watch;

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use polling::{Event, Events, Poller};

pub(crate) use aside::IoCall;
use aside::{Back, Call};
use watch::{Interest, Side, Watch};

use super::driver::{Alarm, Driver, Landed, OpId, Wait};
use super::request::{Place, Request};
use crate::blocking::Blocking;

/// How soon that is tried again of which the system reports nothing.
const MOMENT: Duration = Duration::from_millis(1);

/// What is under way.
enum What {
    /// Its file is armed.
    Waits(Waits),
    /// It is tried again in a moment.
    Later(Request),
    /// A thread makes the call.
    Aside(Arc<Call>),
}

#[derive(Clone, Copy)]
struct Waits {
    fd: RawFd,
    side: Side,
    interest: Interest,
    request: Request,
    /// A connection that was begun.
    begun: bool,
}

/// What is under way, by number.
#[derive(Default)]
struct Ops(Vec<Option<(u32, What)>>);

impl Ops {
    fn get(&self, id: OpId) -> Option<&What> {
        match self.0.get(id.index as usize) {
            Some(Some((generation, what))) if *generation == id.generation => Some(what),
            _ => None,
        }
    }

    fn insert(&mut self, id: OpId, what: What) {
        let index = id.index as usize;
        if self.0.len() <= index {
            self.0.resize_with(index + 1, || None);
        }
        self.0[index] = Some((id.generation, what));
    }

    fn remove(&mut self, id: OpId) -> Option<What> {
        self.get(id)?;
        let (_, what) = self.0[id.index as usize].take()?;
        Some(what)
    }

    /// True if it waits for its file.
    fn waits(&self, id: OpId) -> bool {
        matches!(self.get(id), Some(What::Waits(_)))
    }
}

/// How an attempt went.
enum Tried {
    Over(i32),
    /// So many bytes came into this buffer of a shelf.
    Filled(i32, u16),
    /// Its file is not ready.
    NotYet,
    /// Connecting goes on by itself.
    Begun,
    /// It cannot go on, and the system will not report when it can.
    Later,
}

/// How a request is carried out.
enum Plan {
    /// It never waits.
    Now,
    /// When its file is ready.
    Ready(RawFd, Side, Interest),
    /// By a thread that may block.
    Aside,
}

fn plan(request: &Request) -> Plan {
    use Request::*;
    let read = |fd| Plan::Ready(fd, Side::Read, Interest::READ);
    let write = |fd| Plan::Ready(fd, Side::Write, Interest::WRITE);
    match *request {
        Nop | Shutdown { .. } => Plan::Now,
        Accept { fd, .. }
        | AcceptMany { fd }
        | Recv { fd, .. }
        | RecvMany { fd, .. }
        | RecvMsg { fd, .. } => read(fd),
        Connect { fd, .. } | Send { fd, .. } | SendMsg { fd, .. } => write(fd),
        Poll { fd, events } => Plan::Ready(fd, Side::Poll, Interest::of_poll(events)),
        Read { fd, place, .. } | ReadVectored { fd, place, .. }
            if place == Place::Here && calls::never_blocks(fd) =>
        {
            read(fd)
        }
        Write { fd, place, .. } | WriteVectored { fd, place, .. }
            if place == Place::Here && calls::never_blocks(fd) =>
        {
            write(fd)
        }
        Read { .. }
        | ReadVectored { .. }
        | Write { .. }
        | WriteVectored { .. }
        | WriteThenSync { .. }
        | Sync { .. }
        | SyncRange { .. }
        | Open { .. }
        | Allocate { .. }
        | Stat { .. }
        | Rename { .. }
        | Unlink { .. }
        | MakeDir { .. }
        | Close { .. } => Plan::Aside,
    }
}

/// Tries a call.
///
/// # Safety
/// What the request leads to is there, and nobody else uses it.
unsafe fn attempt(request: &Request, begun: bool) -> Tried {
    if let Request::Connect { fd, .. } = *request
        && begun
    {
        // SAFETY: as the caller says.
        let went = unsafe { calls::connected(fd, request) };
        return went.map_or(Tried::NotYet, Tried::Over);
    }
    if let Request::RecvMany { fd, shelf } = *request {
        // SAFETY: as the caller says.
        return match unsafe { &*shelf }.recv(fd) {
            (bytes, Some(buffer)) => Tried::Filled(bytes, buffer),
            (result, None) if result == -libc::EAGAIN => Tried::NotYet,
            (result, None) => Tried::Over(result),
        };
    }
    // SAFETY: as the caller says.
    let result = unsafe { calls::call(request) };
    match (request, -result) {
        (Request::Connect { .. }, libc::EINPROGRESS | libc::EINTR | libc::EALREADY) => Tried::Begun,
        // Whoever listens on a Unix socket has no room.
        (Request::Connect { .. }, libc::EAGAIN) => Tried::Later,
        (_, libc::EAGAIN) => Tried::NotYet,
        _ => Tried::Over(result),
    }
}

struct Bell(Arc<Poller>);

impl Alarm for Bell {
    fn ring(&self) {
        // As in `Back`.
        let _ = self.0.notify();
    }
}

/// The readiness driver.
pub(crate) struct Readiness {
    poller: Arc<Poller>,
    events: Events,
    /// Those of `events` while they are gone through.
    reports: Vec<Event>,
    blocking: Arc<Blocking>,
    back: Arc<Back>,
    ops: Ops,
    watches: HashMap<RawFd, Watch>,
    /// How many of them are armed.
    armed: usize,
    /// Some may be gone again.
    later: Vec<OpId>,
    /// Files of which a direction rests, and until when. Some may be gone, or be
    /// others: then it does no harm.
    resting: Vec<(Instant, RawFd)>,
    /// Over, and not collected yet.
    done: Vec<Landed>,
}

impl Readiness {
    /// Drivers for so many stations, or why there are none.
    pub(crate) fn make(
        stations: usize,
        blocking: &Arc<Blocking>,
    ) -> io::Result<Vec<Box<dyn Driver>>> {
        (0..stations)
            .map(|_| Ok(Box::new(Readiness::new(blocking.clone())?) as Box<dyn Driver>))
            .collect()
    }

    fn new(blocking: Arc<Blocking>) -> io::Result<Readiness> {
        let poller = Arc::new(Poller::new()?);
        Ok(Readiness {
            back: Arc::new(Back::new(poller.clone())),
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
        self.done.push(Landed::over(id, result));
    }

    fn filled(&mut self, id: OpId, bytes: i32, buffer: u16) {
        self.done.push(Landed {
            buffer: Some(buffer),
            ..Landed::over(id, bytes)
        });
    }

    fn aside(&mut self, id: OpId, request: Request) {
        // SAFETY: `submit`'s promise: it was not collected, and will not be
        // until the call has come back or was cancelled.
        let call = unsafe { Call::new(id, request, self.back.clone()) };
        self.ops.insert(id, What::Aside(call.clone()));
        self.blocking.run_io(IoCall::new(call));
    }

    fn wait_for(&mut self, id: OpId, waits: Waits) {
        let watch = self.watches.entry(waits.fd).or_default();
        watch.push(waits.side, waits.interest, id);
        self.ops.insert(id, What::Waits(waits));
        self.arm(waits.fd);
    }

    /// Takes out one who waits for its file.
    fn leave(&mut self, id: OpId, waits: Waits) {
        self.ops.remove(id);
        if let Some(watch) = self.watches.get_mut(&waits.fd) {
            watch.gone(waits.side, waits.interest, |id| self.ops.waits(id));
        }
    }

    fn set_armed(&mut self, fd: RawFd, armed: Interest) {
        if let Some(watch) = self.watches.get_mut(&fd) {
            let before = std::mem::replace(&mut watch.armed, armed);
            self.armed -= usize::from(before != Interest::NONE);
            self.armed += usize::from(armed != Interest::NONE);
        }
    }

    /// Has the system report what those who wait for a file want to know.
    fn arm(&mut self, fd: RawFd) {
        let Some(watch) = self.watches.get_mut(&fd) else {
            return;
        };
        let wanted = watch.wanted();
        if wanted == Interest::NONE {
            // All of it rests.
            return;
        }
        if watch.armed != Interest::NONE && watch.armed.covers(wanted) {
            return;
        }
        let event = wanted.event(fd as usize);
        // SAFETY: somebody waits for it, and keeps it open.
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
            let Some(What::Waits(waits)) = self.ops.get(id) else {
                continue;
            };
            let waits = *waits;
            self.leave(id, waits);
            match errno {
                libc::EPERM => self.aside(id, waits.request),
                _ => self.over(id, -errno),
            }
        }
        self.forget(fd);
    }

    /// Nobody waits for this file any more: it is disarmed (W1).
    fn forget(&mut self, fd: RawFd) {
        let armed = |watch: &Watch| watch.armed != Interest::NONE;
        if self.watches.get(&fd).is_some_and(armed) {
            // SAFETY: those who waited have not landed, and keep it open.
            let source = unsafe { BorrowedFd::borrow_raw(fd) };
            // If it fails it is not armed.
            let _ = self.poller.delete(source);
            self.set_armed(fd, Interest::NONE);
        }
        self.watches.remove(&fd);
    }

    /// Something was reported of a file.
    fn reported(&mut self, fd: RawFd, readable: bool, writable: bool) {
        // Each report is the last until it is armed again.
        self.set_armed(fd, Interest::NONE);
        let read = readable && self.serve(fd, Side::Read);
        let write = writable && self.serve(fd, Side::Write);
        let polls = self.serve_polls(fd);
        // Somebody else may have been quicker: that was not in vain.
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
            match self.watches.get(&fd).is_some_and(Watch::is_empty) {
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

    /// Tries the call of one who waits for its file; true if it is over.
    fn try_again(&mut self, id: OpId) -> bool {
        let Some(What::Waits(waits)) = self.ops.get(id) else {
            return false;
        };
        let waits = *waits;
        // SAFETY: as in `submit`.
        match unsafe { attempt(&waits.request, waits.begun) } {
            Tried::Over(result) => {
                self.leave(id, waits);
                self.over(id, result);
                true
            }
            Tried::Filled(bytes, buffer) => {
                self.leave(id, waits);
                self.filled(id, bytes, buffer);
                true
            }
            Tried::Begun => {
                let begun = true;
                self.ops.insert(id, What::Waits(Waits { begun, ..waits }));
                false
            }
            Tried::NotYet => false,
            Tried::Later => {
                self.leave(id, waits);
                self.later(id, waits.request);
                true
            }
        }
    }

    fn later(&mut self, id: OpId, request: Request) {
        self.ops.insert(id, What::Later(request));
        self.later.push(id);
    }

    /// Tries what could not go on a moment ago.
    fn try_later(&mut self) {
        for id in std::mem::take(&mut self.later) {
            if let Some(What::Later(request)) = self.ops.get(id) {
                let request = *request;
                self.ops.remove(id);
                // SAFETY: as in `submit`.
                unsafe { self.submit(id, &request) };
            }
        }
    }

    /// How long until something is to be tried of which nothing is reported.
    fn next_try(&self) -> Option<Duration> {
        let later = (!self.later.is_empty()).then_some(MOMENT);
        let rested = self.resting.iter().map(|(until, _)| *until).min();
        let rested = rested.map(|until| until.saturating_duration_since(Instant::now()));
        later.into_iter().chain(rested).min()
    }

    /// Asks the system what is ready.
    fn look(&mut self, wait: Wait) -> io::Result<()> {
        let most = match wait {
            Wait::Peek => return Ok(()),
            Wait::No if self.armed == 0 => return Ok(()),
            // One question instead of the poller's five.
            Wait::No if calls::poll(self.poller.as_raw_fd(), libc::POLLIN as u32) == 0 => {
                return Ok(());
            }
            Wait::No => Some(Duration::ZERO),
            Wait::AtMost(most) => Some(most),
            Wait::ForGood => None,
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

    fn collect(&mut self, landed: &mut Vec<Landed>) {
        for back in self.back.take() {
            let call = self.ops.remove(back.id);
            debug_assert!(matches!(call, Some(What::Aside(_))), "{back:?}");
            landed.push(back);
        }
        landed.append(&mut self.done);
    }
}

// SAFETY: each submission is collected once, after the last touch of its memory,
// with no more than was asked for.
unsafe impl Driver for Readiness {
    unsafe fn submit(&mut self, id: OpId, request: &Request) {
        let (fd, side, interest) = match plan(request) {
            Plan::Now => {
                // SAFETY: as the caller says.
                let result = unsafe { calls::call(request) };
                return self.over(id, result);
            }
            Plan::Aside => return self.aside(id, *request),
            Plan::Ready(fd, side, interest) => (fd, side, interest),
        };
        let waits = |begun| Waits {
            fd,
            side,
            interest,
            request: *request,
            begun,
        };
        // Behind those who wait already, unless order means nothing.
        if side != Side::Poll
            && let Some(watch) = self.watches.get_mut(&fd)
            && !watch.row(side).is_empty()
        {
            return self.wait_for(id, waits(false));
        }
        // SAFETY: as the caller says.
        match unsafe { attempt(request, false) } {
            Tried::Over(result) => self.over(id, result),
            Tried::Filled(bytes, buffer) => self.filled(id, bytes, buffer),
            Tried::NotYet => self.wait_for(id, waits(false)),
            Tried::Begun => self.wait_for(id, waits(true)),
            Tried::Later => self.later(id, *request),
        }
    }

    fn cancel(&mut self, id: OpId) {
        match self.ops.get(id) {
            None => return,
            Some(What::Later(_)) => {
                self.ops.remove(id);
            }
            Some(What::Aside(call)) => {
                if !call.cancel() {
                    // It comes to its own end.
                    return;
                }
                self.ops.remove(id);
            }
            Some(What::Waits(waits)) => {
                let waits = *waits;
                self.leave(id, waits);
                if self.watches.get(&waits.fd).is_some_and(Watch::is_empty) {
                    self.forget(waits.fd);
                }
            }
        }
        self.over(id, -libc::ECANCELED);
    }

    fn turn(&mut self, wait: Wait, landed: &mut Vec<Landed>) -> io::Result<()> {
        self.try_later();
        self.try_rested();
        self.collect(landed);
        let wait = match landed.is_empty() || wait == Wait::Peek {
            true => wait,
            false => Wait::No,
        };
        self.look(wait)?;
        self.collect(landed);
        Ok(())
    }

    fn alarm(&self) -> Arc<dyn Alarm> {
        Arc::new(Bell(self.poller.clone()))
    }

    fn wants_nonblocking(&self) -> bool {
        true
    }

    fn name(&self) -> &'static str {
        "readiness"
    }
}
