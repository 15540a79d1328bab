//! Series on a ring: buffers that the kernel fills, and what is done where there is no
//! buffer, or where the kernel knows no series.

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use io_uring::opcode;
use io_uring::types::{CancelBuilder, Fd};

use super::provided::{self, Provided};
use super::{CANCEL_SERIES, UringDriver, user_data};
use crate::io::buffer_pool::BufferGroup;
use crate::io::driver::{Answer, OpId};

/// How often a socket may be reported in vain.
const VAIN: u32 = 8;

/// One that receives into the buffers of a group.
pub(super) struct Receives {
    pub(super) fd: RawFd,
    pub(super) group: Arc<BufferGroup>,
    /// How often it was said that there is something to receive, and nothing was.
    pub(super) vain: u32,
    /// It was asked to end.
    pub(super) asked: bool,
}

impl UringDriver {
    /// The number of the buffers of a group, which the kernel is told of.
    pub(super) fn provide(&mut self, group: &Arc<BufferGroup>) -> io::Result<u16> {
        let known = self.provided.iter_mut().find(|known| known.is_of(group));
        if let Some(known) = known {
            known.stock();
            return Ok(known.bgid);
        }
        self.enable()?;
        let submitter = self.ring.submitter();
        let bgid = provided::free_bgid(&self.provided);
        let mut new = Provided::register(&submitter, group.clone(), bgid)?;
        new.stock();
        self.provided.push(new);
        Ok(bgid)
    }

    /// Hands what is free over to the kernel, and takes back what belongs to no
    /// pool, chunk or operation any more.
    pub(super) fn stock(&mut self) {
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

    /// Begins to receive into the buffers of a group.
    pub(super) fn recv_many(&mut self, id: OpId, fd: RawFd, group: &Arc<BufferGroup>) {
        let receives = Receives {
            fd,
            group: group.clone(),
            vain: 0,
            asked: false,
        };
        match self.has_series().then(|| self.provide(group)) {
            Some(Ok(bgid)) => self.fill(id, receives, bgid),
            _ => self.poll_input(id, receives),
        }
    }

    /// The kernel receives, and takes the buffers.
    pub(super) fn fill(&mut self, id: OpId, receives: Receives, bgid: u16) {
        let entry = opcode::RecvMulti::new(Fd(receives.fd), bgid).build();
        self.series.insert(id, Some(receives));
        self.push(entry.user_data(user_data(id)));
    }

    /// It waits for something to receive.
    pub(super) fn poll_input(&mut self, id: OpId, receives: Receives) {
        let entry = opcode::PollAdd::new(Fd(receives.fd), libc::POLLIN as u32).build();
        self.polled.insert(id, receives);
        self.push(entry.user_data(user_data(id)));
    }

    /// There is something to receive, or so it was said.
    pub(super) fn receive(&mut self, id: OpId, result: i32) -> Option<Answer> {
        let receives = self.polled.remove(&id)?;
        if result < 0 {
            return Some(Answer::last(id, result));
        }
        // The kernel may have the buffers: those that it refused then it may have
        // taken since.
        let mut known = self.provided.iter();
        match known.find(|known| known.is_of(&receives.group)) {
            Some(known) if !receives.asked => {
                let bgid = known.bgid;
                self.fill(id, receives, bgid);
                None
            }
            _ => self.receive_now(id, receives),
        }
    }

    /// Receives what is there, if there is a buffer on the group. If nothing is
    /// there it needs none, and waits.
    pub(super) fn receive_now(&mut self, id: OpId, mut receives: Receives) -> Option<Answer> {
        let (mut result, buffer) = receives.group.recv(receives.fd);
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
        Some(Answer {
            buffer,
            ..Answer::last(id, result)
        })
    }

    /// One that is just being carried on is not found by a cancel, and goes on:
    /// it is asked again.
    pub(super) fn cancel_series(&mut self, id: OpId) {
        let which = CancelBuilder::user_data(user_data(id));
        let entry = opcode::AsyncCancel2::new(which).build();
        self.push(entry.user_data(user_data(id) | CANCEL_SERIES));
    }
}
