//! The ring driver: io_uring, one ring for each station.
//!
//! What is submitted goes into the ring's queue and reaches the kernel with the
//! next turn, all at once. If the queue is full the kernel takes it at once; what
//! it cannot take then waits in `spill`, so that nothing is lost, least of all a
//! cancel.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::ptr::null_mut;
use std::sync::Arc;

use io_uring::types::{CancelBuilder, Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, cqueue, opcode, squeue};

mod known;
#[cfg(all(test, not(loom)))]
mod older;
mod provided;
mod refused;

use self::known::Known;
use self::provided::Provided;
use self::refused::Refusals;
use super::driver::{Alarm, Driver, Landed, OpId, Wait};
use super::pool::Shelf;
use super::region;
use super::request::{Place, Request};

/// How many entries the submission queue has.
const ENTRIES: u32 = 256;

/// How many the completion queue has. What does not fit is kept by the kernel.
const COMPLETIONS: u32 = 4096;

/// Completions of cancels: nobody waits for them.
const CANCEL: u64 = u64::MAX >> 1;

/// The alarm has rung.
const ALARM: u64 = (u64::MAX >> 1) - 1;

/// Completions of cancels of a series, with its number.
const CANCEL_SERIES: u64 = 1 << 31;

/// The first of two that are linked.
const FIRST: u64 = 1 << 63;

/// What the queue had no room for.
enum Spilt {
    One(squeue::Entry),
    Two(Box<[squeue::Entry; 2]>),
}

impl Spilt {
    fn len(&self) -> usize {
        match self {
            Spilt::One(_) => 1,
            Spilt::Two(_) => 2,
        }
    }
}

/// Two that are linked: the second ends after the first.
struct Linked {
    asked: u32,
    first: Option<i32>,
}

impl Linked {
    /// What both of them come to.
    fn answer(self, second: i32) -> i32 {
        let first = self.first.unwrap_or(-libc::ECANCELED);
        let short = first >= 0 && (first as u32) < self.asked;
        if first < 0 || second >= 0 {
            return first;
        }
        // Short, and so the kernel has cut the link; or the second has failed.
        match short && second == -libc::ECANCELED {
            true => first,
            false => second,
        }
    }
}

/// How often a socket may be reported in vain.
const VAIN: u32 = 8;

/// One that receives into the buffers of a shelf.
struct Receives {
    fd: RawFd,
    shelf: Arc<Shelf>,
    /// How often it was said that there is something to receive, and nothing was.
    vain: u32,
    /// It was asked to end.
    asked: bool,
}

fn user_data(id: OpId) -> u64 {
    (u64::from(id.generation) << 32) | u64::from(id.index)
}

fn op_id(user_data: u64) -> OpId {
    OpId {
        index: user_data as u32,
        generation: (user_data >> 32) as u32,
    }
}

/// Counts the rings of the alarm; the driver reads it with its ring.
struct Bell(File);

impl Alarm for Bell {
    fn ring(&self) {
        // It fails only if it has been rung 2^64 times without an answer.
        let _ = (&self.0).write(&1_u64.to_ne_bytes());
    }
}

/// The ring driver.
pub(crate) struct Uring {
    ring: IoUring,
    /// The ring belongs to the thread that turns it first.
    enabled: bool,
    /// The kernel runs what is over when it is asked to, and says so.
    deferred: bool,
    spill: VecDeque<Spilt>,
    /// The kernel has not taken what was handed over last.
    refused: bool,
    /// For want of memory.
    refusals: Refusals,
    linked: HashMap<OpId, Linked>,
    /// Those that answer many times; of one that receives, what it needs when
    /// there is no buffer.
    series: HashMap<OpId, Option<Receives>>,
    /// After the ring, which may have registered them.
    known: Known,
    /// What the kernel may fill by itself.
    provided: Vec<Provided>,
    /// Where it cannot, or has no buffer: those that wait for something to receive.
    polled: HashMap<OpId, Receives>,
    bell: Arc<Bell>,
    /// Where the count of the alarm goes; boxed, because the kernel writes it.
    rung: Box<[u8; 8]>,
    listening: bool,
}

impl Uring {
    /// Rings for so many stations, or why there are none.
    pub(crate) fn make(stations: usize) -> io::Result<Vec<Box<dyn Driver>>> {
        Uring::new()?.try_out()?;
        (0..stations)
            .map(|_| Ok(Box::new(Uring::new()?) as Box<dyn Driver>))
            .collect()
    }

    fn new() -> io::Result<Uring> {
        Uring::of(Kernel::New)
            .or_else(|_| Uring::of(Kernel::Fair))
            .or_else(|_| Uring::of(Kernel::Old))
    }

    fn of(kernel: Kernel) -> io::Result<Uring> {
        let ring = ring(kernel)?;
        if !ring.params().is_feature_nodrop() || !ring.params().is_feature_ext_arg() {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this kernel's io_uring loses completions or cannot wait with a limit",
            ));
        }
        probe(&ring)?;
        // SAFETY: no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a fresh descriptor of our own.
        let bell = Arc::new(Bell(unsafe { File::from_raw_fd(fd) }));
        Ok(Uring {
            ring,
            enabled: false,
            deferred: kernel != Kernel::Old,
            spill: VecDeque::new(),
            refused: false,
            refusals: Refusals::default(),
            linked: HashMap::new(),
            series: HashMap::new(),
            known: Known::default(),
            provided: Vec::new(),
            polled: HashMap::new(),
            bell,
            rung: Box::new([0; 8]),
            listening: false,
        })
    }

    /// There and back: a system may make rings and forbid to enter them.
    fn try_out(mut self) -> io::Result<()> {
        let id = OpId {
            index: 0,
            generation: 0,
        };
        let mut landed = Vec::new();
        // SAFETY: it leads nowhere.
        unsafe { self.submit(id, &Request::Nop) };
        self.turn(Wait::No, &mut landed)?;
        match landed.first() {
            Some(Landed { result: 0, .. }) => Ok(()),
            _ => Err(io::Error::other("this kernel's io_uring does nothing")),
        }
    }

    /// A kernel that defers what is over until it is asked knows series too:
    /// they came with an earlier one.
    fn has_series(&self) -> bool {
        self.deferred
    }

    #[inline]
    fn push(&mut self, entry: squeue::Entry) {
        // SAFETY: as in `try_push`.
        let pushed =
            self.spill.is_empty() && unsafe { self.ring.submission().push(&entry).is_ok() };
        if !pushed {
            self.spill.push_back(Spilt::One(entry));
            self.pour();
        }
    }

    /// Both in one go: an entry links to the one behind it in the queue, and only
    /// to one that reaches the kernel together with it.
    fn push_linked(&mut self, first: squeue::Entry, second: squeue::Entry) {
        self.spill.push_back(Spilt::Two(Box::new([first, second])));
        self.pour();
    }

    fn try_push(&mut self, entries: &[squeue::Entry]) -> bool {
        // SAFETY: what an entry leads to is kept by the station until its end
        // was collected; the alarm's by us.
        unsafe { self.ring.submission().push_multiple(entries).is_ok() }
    }

    fn room(&mut self) -> usize {
        let queue = self.ring.submission();
        queue.capacity() - queue.len()
    }

    /// Moves what is spilt into the queue, as far as the kernel takes it.
    fn pour(&mut self) {
        while let Some(entry) = self.spill.front() {
            let together = entry.len();
            if self.room() < together {
                if self.refusals.rest() {
                    return;
                }
                let taken = self.enable().and_then(|()| self.ring.submit());
                // The kernel is short of memory, or of room for completions:
                // with the next turn, after some were collected.
                if taken.is_err() || self.room() < together {
                    return;
                }
            }
            let pushed = match self.spill.pop_front() {
                Some(Spilt::One(entry)) => self.try_push(&[entry]),
                Some(Spilt::Two(linked)) => self.try_push(&*linked),
                None => true,
            };
            debug_assert!(pushed, "there was room");
        }
    }

    fn enable(&mut self) -> io::Result<()> {
        if !self.enabled {
            self.ring.submitter().register_enable_rings()?;
            self.enabled = true;
        }
        Ok(())
    }

    /// In which slot of the ring these bytes lie, if they are registered.
    fn slot(&mut self, ptr: *const u8, len: u32, place: Place) -> Option<u16> {
        // Elsewhere it saves nothing.
        if !matches!(place, Place::At(_)) || region::version() == 0 {
            return None;
        }
        self.enable().ok()?;
        self.known.slot(&self.ring.submitter(), ptr, len)
    }

    /// As [`entry`], but it says so where the buffer is registered.
    fn entry(&mut self, request: &Request) -> squeue::Entry {
        match *request {
            Request::Read {
                fd,
                buf,
                len,
                place,
            } => match self.slot(buf, len, place) {
                Some(slot) => opcode::ReadFixed::new(Fd(fd), buf, len, slot)
                    .offset(offset(place))
                    .build(),
                None => entry(request),
            },
            Request::Write {
                fd,
                buf,
                len,
                place,
            } => match self.slot(buf, len, place) {
                Some(slot) => opcode::WriteFixed::new(Fd(fd), buf, len, slot)
                    .offset(offset(place))
                    .build(),
                None => entry(request),
            },
            _ => entry(request),
        }
    }

    fn listen(&mut self) {
        if !self.listening {
            self.listening = true;
            let fd = Fd(self.bell.0.as_raw_fd());
            let entry = opcode::Read::new(fd, self.rung.as_mut_ptr(), 8).build();
            self.push(entry.user_data(ALARM));
        }
    }

    /// Into the kernel and out again.
    fn enter(&mut self, wait: Wait) -> io::Result<()> {
        let (unsent, work) = {
            let queue = self.ring.submission();
            (queue.len() as u32, queue.taskrun() || queue.cq_overflow())
        };
        let entered = match wait {
            Wait::Peek if !work => return Ok(()),
            Wait::No if unsent == 0 && !work && self.deferred => return Ok(()),
            Wait::Peek | Wait::No => {
                // SAFETY: no argument.
                unsafe {
                    let flags = EnterFlags::GETEVENTS.bits();
                    self.ring
                        .submitter()
                        .enter::<libc::sigset_t>(unsent, 0, flags, None)
                }
            }
            Wait::ForGood => self.ring.submitter().submit_and_wait(1),
            Wait::AtMost(most) => {
                // More than the kernel can count it takes for nothing at all.
                let time = Timespec::from(most.min(LONG));
                let args = SubmitArgs::new().timespec(&time);
                self.ring.submitter().submit_with_args(1, &args)
            }
        };
        self.refused = entered.is_err();
        self.refusals.answered(&entered);
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

    /// True if nothing is over, as far as the kernel has said without being asked.
    fn has_nothing(&mut self) -> bool {
        let queue = self.ring.submission();
        let said = queue.taskrun() || queue.cq_overflow();
        drop(queue);
        !said && self.ring.completion().is_empty()
    }

    /// The number of the buffers of a shelf, which the kernel is told of.
    fn provide(&mut self, shelf: &Arc<Shelf>) -> io::Result<u16> {
        let known = self.provided.iter_mut().find(|known| known.is_of(shelf));
        if let Some(known) = known {
            known.stock();
            return Ok(known.group);
        }
        self.enable()?;
        let submitter = self.ring.submitter();
        let group = provided::free_group(&self.provided);
        let mut new = Provided::register(&submitter, shelf.clone(), group)?;
        new.stock();
        self.provided.push(new);
        Ok(group)
    }

    /// Hands what is free over to the kernel, and takes back what belongs to no
    /// pool, chunk or operation any more.
    fn stock(&mut self) {
        let mut forgotten = false;
        for provided in &mut self.provided {
            provided.stock();
            forgotten |= provided.is_forgotten();
        }
        if forgotten {
            let submitter = self.ring.submitter();
            for gone in self.provided.extract_if(.., |known| known.is_forgotten()) {
                provided::unregister(&submitter, gone);
            }
        }
    }

    /// Begins to receive into the buffers of a shelf.
    fn recv_many(&mut self, id: OpId, fd: RawFd, shelf: &Arc<Shelf>) {
        let receives = Receives {
            fd,
            shelf: shelf.clone(),
            vain: 0,
            asked: false,
        };
        match self.has_series().then(|| self.provide(shelf)) {
            Some(Ok(group)) => self.fill(id, receives, group),
            _ => self.poll_input(id, receives),
        }
    }

    /// The kernel receives, and takes the buffers.
    fn fill(&mut self, id: OpId, receives: Receives, group: u16) {
        let entry = opcode::RecvMulti::new(Fd(receives.fd), group).build();
        self.series.insert(id, Some(receives));
        self.push(entry.user_data(user_data(id)));
    }

    /// It waits for something to receive.
    fn poll_input(&mut self, id: OpId, receives: Receives) {
        let entry = opcode::PollAdd::new(Fd(receives.fd), libc::POLLIN as u32).build();
        self.polled.insert(id, receives);
        self.push(entry.user_data(user_data(id)));
    }

    /// There is something to receive, or so it was said.
    fn receive(&mut self, id: OpId, result: i32) -> Option<Landed> {
        let receives = self.polled.remove(&id)?;
        if result < 0 {
            return Some(Landed::over(id, result));
        }
        // The kernel may have the buffers: those that it refused then it may have
        // taken since.
        let mut known = self.provided.iter();
        match known.find(|known| known.is_of(&receives.shelf)) {
            Some(known) if !receives.asked => {
                let group = known.group;
                self.fill(id, receives, group);
                None
            }
            _ => self.receive_now(id, receives),
        }
    }

    /// Receives what is there, if there is a buffer on the shelf. If nothing is
    /// there it needs none, and waits.
    fn receive_now(&mut self, id: OpId, mut receives: Receives) -> Option<Landed> {
        let (mut result, buffer) = receives.shelf.recv(receives.fd);
        if matches!(-result, libc::EAGAIN | libc::ENOBUFS) && receives.asked {
            result = -libc::ECANCELED;
        }
        if result == -libc::EAGAIN && receives.vain < VAIN {
            receives.vain += 1;
            self.poll_input(id, receives);
            return None;
        }
        if result == -libc::EAGAIN {
            // Something is there that cannot be seen: it waits as those do that lack
            // a buffer, or the two of us would go round for ever.
            result = -libc::ENOBUFS;
        }
        Some(Landed {
            buffer,
            ..Landed::over(id, result)
        })
    }

    /// One that is just being carried on is not found by a cancel, and goes on:
    /// it is asked again.
    fn cancel_series(&mut self, id: OpId) {
        let which = CancelBuilder::user_data(user_data(id));
        let entry = opcode::AsyncCancel2::new(which).build();
        self.push(entry.user_data(user_data(id) | CANCEL_SERIES));
    }

    fn collect(&mut self, landed: &mut Vec<Landed>) {
        if self.ring.completion().is_empty() {
            return;
        }
        let (mut missed, mut polled, mut empty) = (Vec::new(), Vec::new(), Vec::new());
        for entry in self.ring.completion() {
            match entry.user_data() {
                CANCEL => {}
                ALARM => self.listening = false,
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
                    landed.push(Landed {
                        id,
                        result,
                        more,
                        buffer: cqueue::buffer_select(entry.flags()),
                    });
                }
            }
        }
        for (id, receives) in empty {
            landed.extend(self.receive_now(id, receives));
        }
        for (id, result) in polled {
            landed.extend(self.receive(id, result));
        }
        for id in missed {
            if self.series.contains_key(&id) {
                self.cancel_series(id);
            }
        }
    }
}

/// What a ring is made with depends on what the kernel knows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kernel {
    /// Since 6.6: entries are taken in order, without a table that says which.
    New,
    /// Since 6.1: what is over is run when it is asked for, on the one thread.
    Fair,
    Old,
}

fn ring(kernel: Kernel) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder
        .setup_cqsize(COMPLETIONS)
        .setup_r_disabled()
        .setup_submit_all()
        .dontfork();
    if kernel != Kernel::Old {
        builder
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag();
    }
    if kernel == Kernel::New {
        builder.setup_no_sqarray();
    }
    builder.build(ENTRIES)
}

/// Asks the kernel whether it knows what we use.
fn probe(ring: &IoUring) -> io::Result<()> {
    let mut probe = io_uring::Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    let used = [
        opcode::Nop::CODE,
        opcode::Read::CODE,
        opcode::Write::CODE,
        opcode::Fsync::CODE,
        opcode::OpenAt::CODE,
        opcode::Close::CODE,
        opcode::AsyncCancel::CODE,
        opcode::Readv::CODE,
        opcode::Writev::CODE,
        opcode::SyncFileRange::CODE,
        opcode::Fallocate::CODE,
        opcode::Statx::CODE,
        opcode::RenameAt::CODE,
        opcode::UnlinkAt::CODE,
        opcode::MkDirAt::CODE,
        opcode::Accept::CODE,
        opcode::Connect::CODE,
        opcode::Recv::CODE,
        opcode::Send::CODE,
        opcode::RecvMsg::CODE,
        opcode::SendMsg::CODE,
        opcode::Shutdown::CODE,
        opcode::PollAdd::CODE,
    ];
    match used.iter().find(|code| !probe.is_supported(**code)) {
        None => Ok(()),
        Some(code) => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!("this kernel's io_uring lacks operation {code}"),
        )),
    }
}

/// Offsets as the ring wants them: all ones is where the file stands.
fn offset(place: Place) -> u64 {
    match place {
        // All ones again: out of range, as the kernel says of its neighbour.
        Place::At(u64::MAX) => u64::MAX - 1,
        Place::At(at) => at,
        Place::Here => u64::MAX,
    }
}

#[inline]
fn entry(request: &Request) -> squeue::Entry {
    match *request {
        Request::Nop => opcode::Nop::new().build(),
        Request::Read {
            fd,
            buf,
            len,
            place,
        } => opcode::Read::new(Fd(fd), buf, len)
            .offset(offset(place))
            .build(),
        Request::Write {
            fd,
            buf,
            len,
            place,
        } => opcode::Write::new(Fd(fd), buf, len)
            .offset(offset(place))
            .build(),
        Request::Sync { fd, data_only } => {
            let flags = match data_only {
                true => FsyncFlags::DATASYNC,
                false => FsyncFlags::empty(),
            };
            opcode::Fsync::new(Fd(fd)).flags(flags).build()
        }
        Request::Open { path, flags, mode } => opcode::OpenAt::new(Fd(libc::AT_FDCWD), path)
            .flags(flags)
            .mode(mode)
            .build(),
        Request::Close { fd } => opcode::Close::new(Fd(fd)).build(),
        Request::ReadVectored {
            fd,
            parts,
            count,
            place,
        } => opcode::Readv::new(Fd(fd), parts, count)
            .offset(offset(place))
            .build(),
        Request::WriteVectored {
            fd,
            parts,
            count,
            place,
        } => opcode::Writev::new(Fd(fd), parts, count)
            .offset(offset(place))
            .build(),
        Request::WriteThenSync { fd, .. } => opcode::Fsync::new(Fd(fd))
            .flags(FsyncFlags::DATASYNC)
            .build(),
        Request::SyncRange { fd, at, len, flags } => opcode::SyncFileRange::new(Fd(fd), len)
            .offset(at)
            .flags(flags)
            .build(),
        Request::Allocate { fd, mode, at, len } => opcode::Fallocate::new(Fd(fd), len)
            .offset(at)
            .mode(mode)
            .build(),
        Request::Stat {
            fd,
            path,
            flags,
            out,
        } => opcode::Statx::new(Fd(fd), path, out.cast())
            .flags(flags)
            .mask(libc::STATX_BASIC_STATS | libc::STATX_BTIME)
            .build(),
        Request::Rename { from, to } => {
            opcode::RenameAt::new(Fd(libc::AT_FDCWD), from, Fd(libc::AT_FDCWD), to).build()
        }
        Request::Unlink { path, dir } => opcode::UnlinkAt::new(Fd(libc::AT_FDCWD), path)
            .flags(if dir { libc::AT_REMOVEDIR } else { 0 })
            .build(),
        Request::MakeDir { path, mode } => opcode::MkDirAt::new(Fd(libc::AT_FDCWD), path)
            .mode(mode)
            .build(),
        Request::Accept { fd, addr, len } => opcode::Accept::new(Fd(fd), addr.cast(), len)
            .flags(libc::SOCK_CLOEXEC)
            .build(),
        Request::AcceptMany { fd } => opcode::AcceptMulti::new(Fd(fd))
            .flags(libc::SOCK_CLOEXEC)
            .build(),
        Request::Connect { fd, addr, len } => {
            opcode::Connect::new(Fd(fd), addr.cast(), len).build()
        }
        Request::Recv {
            fd,
            buf,
            len,
            flags,
        } => opcode::Recv::new(Fd(fd), buf, len).flags(flags).build(),
        // By itself: see `recv_many`.
        Request::RecvMany { .. } => opcode::Nop::new().build(),
        Request::Send {
            fd,
            buf,
            len,
            flags,
        } => opcode::Send::new(Fd(fd), buf, len)
            .flags(flags | libc::MSG_NOSIGNAL)
            .build(),
        Request::RecvMsg { fd, msg, flags } => opcode::RecvMsg::new(Fd(fd), msg)
            .flags(flags as u32)
            .build(),
        Request::SendMsg { fd, msg, flags } => opcode::SendMsg::new(Fd(fd), msg)
            .flags((flags | libc::MSG_NOSIGNAL) as u32)
            .build(),
        Request::Shutdown { fd, how } => opcode::Shutdown::new(Fd(fd), how).build(),
        Request::Poll { fd, events } => opcode::PollAdd::new(Fd(fd), events).build(),
    }
}

// SAFETY: the end of each submission is collected once, after the last touch of
// its memory, with no more than was asked for.
unsafe impl Driver for Uring {
    unsafe fn submit(&mut self, id: OpId, request: &Request) {
        if let Request::WriteThenSync {
            fd,
            buf,
            len,
            place,
        } = *request
        {
            let write = self.entry(&Request::Write {
                fd,
                buf,
                len,
                place,
            });
            let write = write.flags(squeue::Flags::IO_LINK);
            self.linked.insert(
                id,
                Linked {
                    asked: len,
                    first: None,
                },
            );
            self.push_linked(
                write.user_data(user_data(id) | FIRST),
                entry(request).user_data(user_data(id)),
            );
            return;
        }
        let entry = match *request {
            Request::RecvMany { fd, shelf } => {
                // SAFETY: as the caller says.
                return self.recv_many(id, fd, unsafe { &*shelf });
            }
            Request::AcceptMany { fd } if !self.has_series() => {
                opcode::Accept::new(Fd(fd), null_mut(), null_mut())
                    .flags(libc::SOCK_CLOEXEC)
                    .build()
            }
            Request::AcceptMany { .. } => {
                self.series.insert(id, None);
                self.entry(request)
            }
            _ => self.entry(request),
        };
        self.push(entry.user_data(user_data(id)));
    }

    unsafe fn at_once(&mut self, request: &Request) -> Option<i32> {
        let Request::Send {
            fd,
            buf,
            len,
            flags,
        } = *request
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

    fn turn(&mut self, wait: Wait, landed: &mut Vec<Landed>) -> io::Result<()> {
        if wait == Wait::Peek && self.has_nothing() {
            return Ok(());
        }
        if self.rests(wait, landed) {
            return Ok(());
        }
        self.enable()?;
        self.known.refresh(&self.ring.submitter());
        self.pour();
        self.stock();
        let listened = self.listening;
        self.collect(landed);
        // The alarm may have rung for this very wait.
        let rung = listened && !self.listening;
        if !matches!(wait, Wait::Peek | Wait::No) {
            self.listen();
        }
        let wait = match landed.is_empty() && self.spill.is_empty() && !rung {
            true => wait,
            false if wait == Wait::Peek => wait,
            false => Wait::No,
        };
        self.enter(wait)?;
        self.collect(landed);
        self.give_up_refused(landed);
        Ok(())
    }

    fn alarm(&self) -> Arc<dyn Alarm> {
        self.bell.clone()
    }

    fn wants_nonblocking(&self) -> bool {
        // Of a file that does not block the ring says so, and does not wait.
        false
    }

    fn name(&self) -> &'static str {
        "io_uring"
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        // The kernel may write the count of the alarm until it has let go.
        if self.listening {
            self.bell.ring();
            let mut landed = Vec::new();
            for _ in 0..100 {
                if !self.listening || self.enter(Wait::AtMost(MOMENT)).is_err() {
                    break;
                }
                self.collect(&mut landed);
            }
            if self.listening {
                std::mem::forget(std::mem::take(&mut self.rung));
            }
        }
    }
}

/// The longest single wait.
const LONG: std::time::Duration = std::time::Duration::from_secs(86_400);

/// How long a ring that closes waits at a time.
const MOMENT: std::time::Duration = std::time::Duration::from_millis(10);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn number(index: u32) -> OpId {
        OpId {
            index,
            generation: 0,
        }
    }

    /// A peek does not go into the kernel for what was submitted, but for what
    /// the kernel says is over.
    #[test]
    fn a_peek_collects_and_hands_nothing_over() {
        for kernel in [Kernel::New, Kernel::Fair, Kernel::Old] {
            // This kernel may be older than that.
            if let Ok(ring) = Uring::of(kernel) {
                peek(ring);
            }
        }
    }

    fn peek(mut ring: Uring) {
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        let mut buf = [0; 8];
        let read = Request::Read {
            fd: reader.as_raw_fd(),
            buf: buf.as_mut_ptr(),
            len: 8,
            place: Place::Here,
        };
        let mut landed = Vec::new();
        // SAFETY: the buffer outlives it: it is over at the end.
        unsafe { ring.submit(number(1), &read) };
        ring.turn(Wait::No, &mut landed).expect("a turn");
        writer.write_all(b"over").expect("room");
        ring.turn(Wait::Peek, &mut landed).expect("a turn");
        assert_eq!(landed.len(), 1, "the kernel has said so");
        assert_eq!((landed[0].id, landed[0].result), (number(1), 4));
        landed.clear();
        // SAFETY: it leads nowhere.
        unsafe { ring.submit(number(2), &Request::Nop) };
        ring.turn(Wait::Peek, &mut landed).expect("a turn");
        assert!(landed.is_empty(), "it was handed over");
        ring.turn(Wait::No, &mut landed).expect("a turn");
        assert_eq!(landed.last().map(|over| over.id), Some(number(2)));
    }

    /// More is over than there is room for in the completion queue: the kernel
    /// keeps the rest, and all of it comes.
    #[test]
    fn io_3_what_the_completion_queue_has_no_room_for_comes_later() {
        // One whose kernel does not wait for us before it completes.
        let Ok(mut ring) = Uring::of(Kernel::Old) else {
            return;
        };
        let room = ring.ring.params().cq_entries();
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let poll = Request::Poll {
            fd: reader.as_raw_fd(),
            events: libc::POLLIN as u32,
        };
        let mut landed = Vec::new();
        for index in 0..4 * room {
            // SAFETY: it leads to no memory.
            unsafe { ring.submit(number(index), &poll) };
        }
        ring.turn(Wait::No, &mut landed).expect("a turn");
        assert!(landed.is_empty(), "nobody has written");
        // All of them at once.
        drop(writer);
        assert!(ring.ring.submission().cq_overflow(), "there was room");
        let mut turns = 0;
        while landed.len() < 4 * room as usize {
            let most = std::time::Duration::from_secs(5);
            ring.turn(Wait::AtMost(most), &mut landed).expect("a turn");
            turns += 1;
            assert!(turns < 1000, "{} of {} came", landed.len(), 4 * room);
        }
        let mut ids: Vec<u32> = landed.iter().map(|over| over.id.index).collect();
        ids.sort_unstable();
        assert!(ids.into_iter().eq(0..4 * room), "each of them once");
    }

    /// One that waits for others, and nops until the submission queue is full: none
    /// of these has reached the kernel. How many nops they are.
    fn fill_queue(ring: &mut Uring, fd: RawFd) -> usize {
        let poll = Request::Poll {
            fd,
            events: libc::POLLIN as u32,
        };
        // SAFETY: here and below, it leads to no memory.
        unsafe { ring.submit(number(0), &poll) };
        let mut landed = Vec::new();
        ring.turn(Wait::No, &mut landed).expect("a turn");
        assert!(landed.is_empty(), "nobody has written");
        let room = ring.room();
        for index in 1..=room {
            // SAFETY: as above.
            unsafe { ring.submit(number(index as u32), &Request::Nop) };
        }
        assert_eq!((ring.room(), ring.spill.len()), (0, 0));
        room
    }

    /// All of them are over, each once, and the one that waited was cancelled.
    fn cancelled(mut ring: Uring, nops: usize) {
        let mut landed = Vec::new();
        let mut turns = 0;
        while landed.len() < nops + 1 {
            let most = std::time::Duration::from_secs(1);
            ring.turn(Wait::AtMost(most), &mut landed).expect("a turn");
            turns += 1;
            assert!(turns < 20, "{} of {} came", landed.len(), nops + 1);
        }
        landed.sort_unstable_by_key(|over| over.id.index);
        let ids = landed.iter().map(|over| over.id.index as usize);
        assert!(ids.eq(0..=nops), "each of them once");
        assert_eq!(landed[0].result, -libc::ECANCELED);
    }

    /// The submission queue has no room for a cancel: it reaches the kernel all
    /// the same.
    #[test]
    fn io_3_a_cancel_finds_the_submission_queue_full() {
        for kernel in [Kernel::New, Kernel::Fair, Kernel::Old] {
            let Ok(mut ring) = Uring::of(kernel) else {
                continue;
            };
            let (reader, _writer) = std::io::pipe().expect("a pipe");
            let nops = fill_queue(&mut ring, reader.as_raw_fd());
            ring.cancel(number(0));
            cancelled(ring, nops);
        }
    }

    /// And the kernel takes nothing at that moment: the cancel is kept, and goes
    /// with the next turn.
    #[test]
    fn io_3_a_cancel_waits_until_the_kernel_takes_it() {
        // The kernel takes nothing from a thread that the ring does not belong to.
        let Ok(mut ring) = Uring::of(Kernel::New) else {
            return;
        };
        let (reader, _writer) = std::io::pipe().expect("a pipe");
        let nops = fill_queue(&mut ring, reader.as_raw_fd());
        std::thread::scope(|threads| {
            threads.spawn(|| {
                ring.cancel(number(0));
                assert_eq!(ring.spill.len(), 1, "the kernel has taken it");
            });
        });
        cancelled(ring, nops);
    }

    /// A region is registered part by part, as they are used; and one that was
    /// refused, because there was no room, when there is some.
    #[test]
    fn parts_are_registered_and_tried_again() {
        let page = region::PAGE;
        let Ok(mut ring) = Uring::new() else { return };
        let listed = region::Listed::in_parts(70 * page, page, page);
        let start = listed.region().start().as_ptr().cast_const();
        let at = |ring: &mut Uring, n: usize| {
            ring.slot(start.wrapping_add(n * page), page as u32, Place::At(0))
        };
        assert_ne!(at(&mut ring, 0), None);
        assert_ne!(at(&mut ring, 1), at(&mut ring, 0), "one of its own");
        assert_eq!(listed.region().rings(), 1);
        let across = ring.slot(start.wrapping_add(10), page as u32, Place::At(0));
        assert_eq!(across, None, "it lies in two");
        // Another one takes a slot of the 64.
        let other = region::Listed::zeroed(page, page);
        let place = other.region().start().as_ptr();
        assert_ne!(ring.slot(place, 1, Place::At(0)), None);
        let registered = (0..70).filter(|n| at(&mut ring, *n).is_some());
        assert_eq!(registered.count(), 63);
        assert_eq!(at(&mut ring, 69), None, "there is no slot");
        drop(other);
        assert_ne!(at(&mut ring, 69), None, "there is one now");
        let region = listed.region();
        assert_eq!(region.rings(), 1);
        drop(ring);
        assert_eq!(region.rings(), 0);
    }

    /// The kernel works on the pages that it was shown. So what a ring has
    /// registered stays where it is until the ring has taken it back.
    #[test]
    fn a_ring_keeps_what_it_has_registered() {
        for kernel in [Kernel::New, Kernel::Fair, Kernel::Old] {
            if let Ok(ring) = Uring::of(kernel) {
                register(ring);
            }
        }
    }

    fn register(mut ring: Uring) {
        let pool = crate::io::registered(2, region::PAGE);
        let buf = pool.try_take().expect("one of two");
        let (_, listed) = region::listed();
        let mine = listed.iter().find(|other| other.holds(buf.as_ptr(), 1));
        let memory = Arc::downgrade(mine.expect("it is on the list"));
        drop(listed);
        let page = region::PAGE as u32;
        let at = |ring: &mut Uring, ptr, len| ring.slot(ptr, len, Place::At(0));
        let Some(slot) = at(&mut ring, buf.as_ptr(), page) else {
            panic!("this kernel registers nothing");
        };
        assert_eq!(pool.rings(), 1);
        let within = buf.as_ptr().wrapping_add(100);
        assert_eq!(at(&mut ring, within, 10), Some(slot));
        assert_eq!(ring.slot(within, 10, Place::Here), None);
        let other = [0_u8; 10];
        assert_eq!(at(&mut ring, other.as_ptr(), 10), None);
        drop(pool);
        ring.turn(Wait::No, &mut Vec::new()).expect("a turn");
        assert!(at(&mut ring, within, 10).is_some(), "a buffer is out");
        drop(buf);
        assert!(memory.upgrade().is_some(), "the ring still knows it");
        ring.turn(Wait::No, &mut Vec::new()).expect("a turn");
        assert!(memory.upgrade().is_none(), "nobody knows it");
        // The slot is free again.
        let pool = crate::io::registered(2, region::PAGE);
        let buf = pool.try_take().expect("one of two");
        assert_eq!(at(&mut ring, buf.as_ptr(), page), Some(slot));
        drop(ring);
        assert_eq!(pool.rings(), 0);
    }
}
