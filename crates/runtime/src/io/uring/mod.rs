//! The ring driver: io_uring, one ring for each thread.
//!
//! What is submitted goes into the ring's queue and reaches the kernel with the
//! next turn, all at once. If the queue is full the kernel takes it at once; what
//! it cannot take then waits in `spill`, so that nothing is lost, least of all a
//! cancel.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr::null_mut;
use std::sync::Arc;

use io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, cqueue, opcode};

mod provided;
mod registered;
mod series;
#[cfg(all(test, not(loom)))]
mod series_tests;
mod setup;
mod submit;
#[cfg(all(test, not(loom)))]
mod tests;

use self::provided::Provided;
use self::registered::RegisteredRegions;
use self::series::Receives;
use self::setup::{Kernel, probe, ring};
use self::submit::{Linked, Spilt};
use crate::io::driver::{Answer, Driver, Notifier, OpId, WaitMode};
use crate::io::request::{AcceptManyArgs, NopArgs, RecvManyArgs, Request, SendArgs};

/// Completions of cancels: no operation waits for them.
const CANCEL: u64 = u64::MAX >> 1;

/// The thread was notified.
const NOTIFY: u64 = (u64::MAX >> 1) - 1;

/// Completions of cancels of a series, with its number.
const CANCEL_SERIES: u64 = 1 << 31;

/// The first of two that are linked.
const FIRST: u64 = 1 << 63;

fn user_data(id: OpId) -> u64 {
    (u64::from(id.generation) << 32) | u64::from(id.index)
}

fn op_id(user_data: u64) -> OpId {
    OpId {
        index: user_data as u32,
        generation: (user_data >> 32) as u32,
    }
}

/// An eventfd that other threads write to; the driver reads it through its ring.
struct EventFd(File);

/// How long we wait where the kernel is too short of memory to do so, in milliseconds.
const PAUSE: libc::c_int = 1;

impl Notifier for EventFd {
    fn notify(&self) {
        // It fails only if its count would overflow.
        let _ = (&self.0).write(&1_u64.to_ne_bytes());
    }
}

/// The ring driver.
pub(crate) struct UringDriver {
    ring: IoUring,
    /// The ring belongs to the thread that turns it first.
    enabled: bool,
    /// The kernel runs what is over when it is asked to, and says so.
    deferred: bool,
    spill: VecDeque<Spilt>,
    /// The kernel has not taken what was handed over last.
    refused: bool,
    /// It had no memory for that, or for the wait.
    short: bool,
    linked: HashMap<OpId, Linked>,
    /// Those that answer many times; of one that receives, what it needs when
    /// there is no buffer.
    series: HashMap<OpId, Option<Receives>>,
    /// After the ring, which may have registered them.
    registered: RegisteredRegions,
    /// What the kernel may fill by itself.
    provided: Vec<Provided>,
    /// Where it cannot, or has no buffer: those that wait for something to receive.
    polled: HashMap<OpId, Receives>,
    event_fd: Arc<EventFd>,
    /// Where the kernel writes the count of the eventfd; boxed, so that it does not move.
    notified: Box<[u8; 8]>,
    listening: bool,
}

impl UringDriver {
    /// Rings for so many threads, or why there are none.
    pub(crate) fn make(threads: usize) -> io::Result<Vec<Box<dyn Driver>>> {
        UringDriver::new()?.try_out()?;
        (0..threads)
            .map(|_| Ok(Box::new(UringDriver::new()?) as Box<dyn Driver>))
            .collect()
    }

    fn new() -> io::Result<UringDriver> {
        UringDriver::of(Kernel::New)
            .or_else(|_| UringDriver::of(Kernel::Fair))
            .or_else(|_| UringDriver::of(Kernel::Old))
    }

    fn of(kernel: Kernel) -> io::Result<UringDriver> {
        let ring = ring(kernel)?;
        if !ring.params().is_feature_nodrop() || !ring.params().is_feature_ext_arg() {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this kernel's io_uring may drop completions, or cannot wait with a timeout",
            ));
        }
        probe(&ring)?;
        // SAFETY: no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a fresh descriptor of our own.
        let event_fd = Arc::new(EventFd(unsafe { File::from_raw_fd(fd) }));
        Ok(UringDriver {
            ring,
            enabled: false,
            deferred: kernel != Kernel::Old,
            spill: VecDeque::new(),
            refused: false,
            short: false,
            linked: HashMap::new(),
            series: HashMap::new(),
            registered: RegisteredRegions::default(),
            provided: Vec::new(),
            polled: HashMap::new(),
            event_fd,
            notified: Box::new([0; 8]),
            listening: false,
        })
    }

    /// There and back: a system may make rings and forbid to enter them.
    fn try_out(mut self) -> io::Result<()> {
        let id = OpId {
            index: 0,
            generation: 0,
        };
        let mut answers = Vec::new();
        // SAFETY: it leads nowhere.
        unsafe { self.submit(id, &Request::Nop(NopArgs)) };
        self.poll(WaitMode::No, &mut answers)?;
        match answers.first() {
            Some(Answer { result: 0, .. }) => Ok(()),
            _ => Err(io::Error::other(
                "this kernel's io_uring does not complete operations",
            )),
        }
    }

    /// A kernel that defers what is over until it is asked knows series too:
    /// they came with an earlier one.
    fn has_series(&self) -> bool {
        self.deferred
    }

    fn enable(&mut self) -> io::Result<()> {
        if !self.enabled {
            self.ring.submitter().register_enable_rings()?;
            self.enabled = true;
        }
        Ok(())
    }

    fn listen(&mut self) {
        if !self.listening {
            self.listening = true;
            let fd = Fd(self.event_fd.0.as_raw_fd());
            let entry = opcode::Read::new(fd, self.notified.as_mut_ptr(), 8).build();
            self.push(entry.user_data(NOTIFY));
        }
    }

    /// Into the kernel and out again.
    fn enter(&mut self, wait: WaitMode) -> io::Result<()> {
        let (unsent, work) = {
            let queue = self.ring.submission();
            (queue.len() as u32, queue.taskrun() || queue.cq_overflow())
        };
        let entered = match wait {
            WaitMode::Peek if !work => return Ok(()),
            WaitMode::No if unsent == 0 && !work && self.deferred => return Ok(()),
            WaitMode::Peek | WaitMode::No => {
                // SAFETY: no argument.
                unsafe {
                    let flags = EnterFlags::GETEVENTS.bits();
                    self.ring
                        .submitter()
                        .enter::<libc::sigset_t>(unsent, 0, flags, None)
                }
            }
            WaitMode::Forever => self.ring.submitter().submit_and_wait(1),
            WaitMode::AtMost(most) => {
                // More than the kernel can count it takes for nothing at all.
                let time = Timespec::from(most.min(LONG));
                let args = SubmitArgs::new().timespec(&time);
                self.ring.submitter().submit_with_args(1, &args)
            }
        };
        self.refused = entered.is_err();
        self.short = entered
            .as_ref()
            .is_err_and(|error| matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOMEM)));
        match entered {
            Ok(_) => Ok(()),
            // Time is up; a signal; the completion queue is full and is emptied
            // now; memory is short. In each case it is tried again.
            Err(error) => match error.raw_os_error() {
                Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN | libc::ENOMEM) => {
                    Ok(())
                }
                _ => Err(error),
            },
        }
    }

    /// The kernel is short of memory and does not wait for us: we wait a moment ourselves,
    /// so that it is not asked again and again. A notification ends that.
    #[cold]
    fn pause(&self) {
        let mut ring_out = libc::pollfd {
            fd: self.event_fd.0.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one entry, which lives here.
        unsafe { libc::poll(&raw mut ring_out, 1, PAUSE) };
    }

    /// True if nothing is over, as far as the kernel has said without being asked.
    fn has_nothing(&mut self) -> bool {
        let queue = self.ring.submission();
        let said = queue.taskrun() || queue.cq_overflow();
        drop(queue);
        !said && self.ring.completion().is_empty()
    }

    fn collect(&mut self, answers: &mut Vec<Answer>) {
        if self.ring.completion().is_empty() {
            return;
        }
        let (mut missed, mut polled, mut empty) = (Vec::new(), Vec::new(), Vec::new());
        for entry in self.ring.completion() {
            match entry.user_data() {
                CANCEL => {}
                NOTIFY => self.listening = false,
                first if first & FIRST != 0 => {
                    if let Some(linked) = self.linked.get_mut(&op_id(first & !FIRST)) {
                        linked.first = Some(entry.result());
                    }
                }
                number if number & CANCEL_SERIES != 0 => {
                    if entry.result() < 0 {
                        missed.push(op_id(number & !CANCEL_SERIES));
                    }
                }
                user_data => {
                    let id = op_id(user_data);
                    if !self.polled.is_empty() && self.polled.contains_key(&id) {
                        polled.push((id, entry.result()));
                        continue;
                    }
                    let more = cqueue::more(entry.flags());
                    if !more
                        && !self.series.is_empty()
                        && let Some(Some(receives)) = self.series.remove(&id)
                        && entry.result() == -libc::ENOBUFS
                    {
                        // It wants a buffer before it looks whether it needs one.
                        empty.push((id, receives));
                        continue;
                    }
                    // Mostly there is none, and looking for it costs.
                    let linked = match self.linked.is_empty() {
                        true => None,
                        false => self.linked.remove(&id),
                    };
                    let result = match linked {
                        Some(linked) => linked.answer(entry.result()),
                        None => entry.result(),
                    };
                    answers.push(Answer {
                        id,
                        result,
                        more,
                        buffer: cqueue::buffer_select(entry.flags()),
                    });
                }
            }
        }
        for (id, receives) in empty {
            answers.extend(self.receive_now(id, receives));
        }
        for (id, result) in polled {
            answers.extend(self.receive(id, result));
        }
        for id in missed {
            if self.series.contains_key(&id) {
                self.cancel_series(id);
            }
        }
    }
}

// SAFETY: the end of each submission is collected once, after the last touch of
// its memory, with no more than was asked for.
unsafe impl Driver for UringDriver {
    unsafe fn submit(&mut self, id: OpId, request: &Request) {
        if let Request::WriteThenSync(args) = request {
            return self.write_then_sync(id, args);
        }
        let entry = match *request {
            Request::RecvMany(RecvManyArgs { fd, group }) => {
                // SAFETY: as the caller says.
                return self.recv_many(id, fd, unsafe { &*group });
            }
            Request::AcceptMany(AcceptManyArgs { fd }) if !self.has_series() => {
                opcode::Accept::new(Fd(fd), null_mut(), null_mut())
                    .flags(libc::SOCK_CLOEXEC)
                    .build()
            }
            Request::AcceptMany(..) => {
                self.series.insert(id, None);
                self.entry(request)
            }
            _ => self.entry(request),
        };
        self.push(entry.user_data(user_data(id)));
    }

    unsafe fn at_once(&mut self, request: &Request) -> Option<i32> {
        let Request::Send(SendArgs {
            fd,
            buf,
            len,
            flags,
        }) = *request
        else {
            return None;
        };
        // What lies here comes first.
        if self.refused || !self.spill.is_empty() {
            return None;
        }
        // One call costs less than an entry, a visit, and a turn of the job.
        let flags = flags | libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        // SAFETY: as the caller says.
        let sent = unsafe { libc::send(fd, buf.cast(), len as usize, flags) };
        if sent >= 0 {
            // No more than was asked for, which fits.
            return Some(sent as i32);
        }
        match io::Error::last_os_error().raw_os_error() {
            // No room: the kernel waits for it.
            None | Some(libc::EAGAIN | libc::EINTR) => None,
            Some(errno) => Some(-errno),
        }
    }

    fn cancel(&mut self, id: OpId) {
        if let Some(series) = self.series.get_mut(&id) {
            if let Some(receives) = series {
                receives.asked = true;
            }
            return self.cancel_series(id);
        }
        if let Some(polled) = self.polled.get_mut(&id) {
            polled.asked = true;
        }
        let first = self
            .linked
            .contains_key(&id)
            .then_some(user_data(id) | FIRST);
        for number in first.into_iter().chain([user_data(id)]) {
            // By its number: by its file the kernel would look at all of them.
            let which = CancelBuilder::user_data(number);
            let entry = opcode::AsyncCancel2::new(which).build();
            self.push(entry.user_data(CANCEL));
        }
    }

    fn poll(&mut self, wait: WaitMode, answers: &mut Vec<Answer>) -> io::Result<()> {
        if wait == WaitMode::Peek && self.has_nothing() {
            return Ok(());
        }
        self.enable()?;
        self.registered.refresh(&self.ring.submitter());
        self.pour();
        self.stock();
        let listened = self.listening;
        let mut waits = !matches!(wait, WaitMode::Peek | WaitMode::No);
        self.collect(answers);
        // The notification may have been for this very wait.
        let notified = listened && !self.listening;
        if !matches!(wait, WaitMode::Peek | WaitMode::No) {
            self.listen();
        }
        let wait = match answers.is_empty() && self.spill.is_empty() && !notified {
            true => wait,
            false if wait == WaitMode::Peek => wait,
            false => WaitMode::No,
        };
        waits &= answers.is_empty() && !notified;
        self.enter(wait)?;
        self.collect(answers);
        if self.short && waits && answers.is_empty() {
            self.pause();
        }
        Ok(())
    }

    fn notifier(&self) -> Arc<dyn Notifier> {
        self.event_fd.clone()
    }

    fn wants_nonblocking(&self) -> bool {
        // Of a file that does not block the ring says so, and does not wait.
        false
    }

    fn name(&self) -> &'static str {
        "io_uring"
    }
}

impl Drop for UringDriver {
    fn drop(&mut self) {
        // The kernel may write the count of the notifier until it has let go.
        if self.listening {
            self.event_fd.notify();
            let mut answers = Vec::new();
            for _ in 0..100 {
                if !self.listening || self.enter(WaitMode::AtMost(MOMENT)).is_err() {
                    break;
                }
                self.collect(&mut answers);
            }
            if self.listening {
                std::mem::forget(std::mem::take(&mut self.notified));
            }
        }
    }
}

/// The longest single wait.
const LONG: std::time::Duration = std::time::Duration::from_secs(86_400);

/// How long a ring that closes waits at a time.
const MOMENT: std::time::Duration = std::time::Duration::from_millis(10);
