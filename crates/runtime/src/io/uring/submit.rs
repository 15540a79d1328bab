//! Entries on their way into the submission queue: what has no room waits in `spill`, in
//! order, and two that are linked go together.

use io_uring::types::Fd;
use io_uring::{opcode, squeue};

use super::{FIRST, UringDriver, user_data};
use crate::io::driver::OpId;
use crate::io::region;
use crate::io::request::{Offset, ReadArgs, Request, WriteArgs, WriteThenSyncArgs};
use crate::linux::ring::{Sqe, sqe_offset};

/// What the queue had no room for.
pub(super) enum Spilt {
    One(squeue::Entry),
    Two(Box<[squeue::Entry; 2]>),
}

impl Spilt {
    pub(super) fn len(&self) -> usize {
        match self {
            Spilt::One(_) => 1,
            Spilt::Two(_) => 2,
        }
    }
}

/// Two that are linked: the second ends after the first.
pub(super) struct Linked {
    pub(super) asked: u32,
    pub(super) first: Option<i32>,
}

impl Linked {
    /// What both of them come to.
    pub(super) fn answer(self, second: i32) -> i32 {
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

impl UringDriver {
    #[inline]
    pub(super) fn push(&mut self, entry: squeue::Entry) {
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
    pub(super) fn push_linked(&mut self, first: squeue::Entry, second: squeue::Entry) {
        self.spill.push_back(Spilt::Two(Box::new([first, second])));
        self.pour();
    }

    pub(super) fn try_push(&mut self, entries: &[squeue::Entry]) -> bool {
        // SAFETY: what an entry leads to is kept by the thread until its end
        // was collected; the notifier's by us.
        unsafe { self.ring.submission().push_multiple(entries).is_ok() }
    }

    pub(super) fn room(&mut self) -> usize {
        let queue = self.ring.submission();
        queue.capacity() - queue.len()
    }

    /// Moves what is spilt into the queue, as far as the kernel takes it.
    pub(super) fn pour(&mut self) {
        while let Some(entry) = self.spill.front() {
            let together = entry.len();
            if self.room() < together {
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

    /// In which slot of the ring these bytes lie, if they are registered.
    pub(super) fn slot(&mut self, ptr: *const u8, len: u32, offset: Offset) -> Option<u16> {
        // Elsewhere it saves nothing.
        if !matches!(offset, Offset::At(_)) || region::version() == 0 {
            return None;
        }
        self.enable().ok()?;
        self.registered.slot(&self.ring.submitter(), ptr, len)
    }

    /// As [`Request::sqe`], but it says so where the buffer is registered.
    pub(super) fn entry(&mut self, request: &Request) -> squeue::Entry {
        match request {
            Request::Read(args) => self.read(args),
            Request::Write(args) => self.write(args),
            _ => request.sqe(),
        }
    }

    pub(super) fn read(&mut self, args: &ReadArgs) -> squeue::Entry {
        match self.slot(args.buf, args.len, args.offset) {
            Some(slot) => opcode::ReadFixed::new(Fd(args.fd), args.buf, args.len, slot)
                .offset(sqe_offset(args.offset))
                .build(),
            None => args.sqe(),
        }
    }

    pub(super) fn write(&mut self, args: &WriteArgs) -> squeue::Entry {
        match self.slot(args.buf, args.len, args.offset) {
            Some(slot) => opcode::WriteFixed::new(Fd(args.fd), args.buf, args.len, slot)
                .offset(sqe_offset(args.offset))
                .build(),
            None => args.sqe(),
        }
    }

    /// Two entries that are linked.
    pub(super) fn write_then_sync(&mut self, id: OpId, args: &WriteThenSyncArgs) {
        let write = self.write(&args.write()).flags(squeue::Flags::IO_LINK);
        let linked = Linked {
            asked: args.len,
            first: None,
        };
        self.linked.insert(id, linked);
        self.push_linked(
            write.user_data(user_data(id) | FIRST),
            args.sqe().user_data(user_data(id)),
        );
    }
}
