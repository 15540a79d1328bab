//! What a driver is asked to do: plain data, as a kernel wants it.
//!
//! Pointers in it lead into the in_flight of the operation, which lies still and
//! is kept until the operation is over.

use std::os::fd::RawFd;
use std::sync::Arc;

use super::buffer_pool::BufferGroup;

pub use crate::linux::StatBuf;

/// Where a read or write takes offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offset {
    /// At an offset.
    At(u64),
    /// Where the file or stream stands.
    Current,
}

/// What a driver is asked to do.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Request {
    /// Nothing, and say so.
    Nop,
    /// Bytes from `fd` into `buf`.
    Read {
        /// The file.
        fd: RawFd,
        /// Where the bytes go.
        buf: *mut u8,
        /// How many there is room for.
        len: u32,
        /// Where they are.
        offset: Offset,
    },
    /// Bytes from `buf` to `fd`.
    Write {
        /// The file.
        fd: RawFd,
        /// Where the bytes are.
        buf: *const u8,
        /// How many.
        len: u32,
        /// Where they go.
        offset: Offset,
    },
    /// What was written reaches the disk.
    Sync {
        /// The file.
        fd: RawFd,
        /// The bytes and their length only, not the times.
        data_only: bool,
    },
    /// Opens a file.
    Open {
        /// The path, with its closing zero.
        path: *const libc::c_char,
        /// As for `open`.
        flags: i32,
        /// As for `open`.
        mode: u32,
    },
    /// As [`Read`](Request::Read), into several buffers.
    ReadVectored {
        /// The file.
        fd: RawFd,
        /// Where the bytes go.
        parts: *const libc::iovec,
        /// How many parts.
        count: u32,
        /// Where they are.
        offset: Offset,
    },
    /// As [`Write`](Request::Write), from several buffers.
    WriteVectored {
        /// The file.
        fd: RawFd,
        /// Where the bytes are.
        parts: *const libc::iovec,
        /// How many parts.
        count: u32,
        /// Where they go.
        offset: Offset,
    },
    /// Bytes to `fd`, and then to the disk: the second only if all of them were
    /// written. The answer is how many were; fewer than asked for means that
    /// they are not on the disk yet.
    WriteThenSync {
        /// The file.
        fd: RawFd,
        /// Where the bytes are.
        buf: *const u8,
        /// How many.
        len: u32,
        /// Where they go.
        offset: Offset,
    },
    /// A part of what was written begins its way to the disk.
    SyncRange {
        /// The file.
        fd: RawFd,
        /// Where the part begins.
        at: u64,
        /// How long it is.
        len: u32,
        /// As for `sync_file_range`.
        flags: u32,
    },
    /// Room for a part of a file.
    Allocate {
        /// The file.
        fd: RawFd,
        /// As for `fallocate`.
        mode: i32,
        /// Where the part begins.
        at: u64,
        /// How long it is.
        len: u64,
    },
    /// Asks about a file.
    Stat {
        /// The file itself if the path is empty; `AT_FDCWD` for a path.
        fd: RawFd,
        /// The path, with its closing zero.
        path: *const libc::c_char,
        /// As for `statx`.
        flags: i32,
        /// Where the answer goes.
        out: *mut StatBuf,
    },
    /// Gives a file another name.
    Rename {
        /// The path it has.
        from: *const libc::c_char,
        /// The path it gets.
        to: *const libc::c_char,
    },
    /// Takes a name away from a file, or removes an empty directory.
    Unlink {
        /// The path.
        path: *const libc::c_char,
        /// It is a directory.
        dir: bool,
    },
    /// Makes a directory.
    MakeDir {
        /// The path.
        path: *const libc::c_char,
        /// Who may do what with it.
        mode: u32,
    },
    /// Waits for a connection; the answer is its file.
    Accept {
        /// The socket that listens.
        fd: RawFd,
        /// Where the address of the other side goes.
        addr: *mut libc::sockaddr_storage,
        /// How much room there is, and how long it is.
        len: *mut libc::socklen_t,
    },
    /// A series: waits for connections, one after the other; each answer is the
    /// file of one.
    AcceptMany {
        /// The socket that listens.
        fd: RawFd,
    },
    /// Connects a socket.
    Connect {
        /// The socket.
        fd: RawFd,
        /// To whom.
        addr: *const libc::sockaddr_storage,
        /// How long that is.
        len: libc::socklen_t,
    },
    /// Bytes from a socket.
    Recv {
        /// The socket.
        fd: RawFd,
        /// Where the bytes go.
        buf: *mut u8,
        /// How many there is room for.
        len: u32,
        /// As for `recv`.
        flags: i32,
    },
    /// A series: bytes from a socket, in buffers of a group; 0 bytes are the end.
    /// `ENOBUFS` if there is no buffer left.
    RecvMany {
        /// The socket.
        fd: RawFd,
        /// Where the buffers are.
        group: *const Arc<BufferGroup>,
    },
    /// Bytes to a socket.
    Send {
        /// The socket.
        fd: RawFd,
        /// Where the bytes are.
        buf: *const u8,
        /// How many.
        len: u32,
        /// As for `send`.
        flags: i32,
    },
    /// A message from a socket.
    RecvMsg {
        /// The socket.
        fd: RawFd,
        /// As for `recvmsg`.
        msg: *mut libc::msghdr,
        /// As for `recvmsg`.
        flags: i32,
    },
    /// A message to a socket.
    SendMsg {
        /// The socket.
        fd: RawFd,
        /// As for `sendmsg`.
        msg: *const libc::msghdr,
        /// As for `sendmsg`.
        flags: i32,
    },
    /// Ends one direction of a socket, or both.
    Shutdown {
        /// The socket.
        fd: RawFd,
        /// As for `shutdown`.
        how: i32,
    },
    /// Waits until a file can be read or written; the answer says which.
    Poll {
        /// The file.
        fd: RawFd,
        /// As for `poll`.
        events: u32,
    },
    /// Closes a file; whoever asks has given it up.
    Close {
        /// The file.
        fd: RawFd,
    },
}

impl Request {
    /// True if it may be over as soon as the system has it, so that it should
    /// have it soon. What waits for another side, as a rule, is not.
    pub(crate) fn may_be_over_at_once(&self) -> bool {
        match self {
            Request::Read { offset, .. } | Request::ReadVectored { offset, .. } => {
                matches!(offset, Offset::At(_))
            }
            Request::Accept { .. }
            | Request::AcceptMany { .. }
            | Request::Connect { .. }
            | Request::Recv { .. }
            | Request::RecvMany { .. }
            | Request::RecvMsg { .. }
            | Request::Poll { .. } => false,
            _ => true,
        }
    }

    /// True if a driver may try it by a single call, which succeeds as a rule: what
    /// is sent mostly finds room.
    pub(crate) fn may_go_at_once(&self) -> bool {
        matches!(self, Request::Send { .. })
    }

    /// True if it takes one of the places of its thread. What waits for another side
    /// would keep a offset that the other side may need. An open may, of a FIFO.
    pub(crate) fn counts_toward_limit(&self) -> bool {
        self.ends_by_itself() && !matches!(self, Request::Open { .. })
    }

    /// True if it ends by itself, whatever others do: with virtual time the clock
    /// waits for it. What waits for another side, a reader of a pipe, say, would
    /// stop the clock that the other side waits for.
    pub(crate) fn ends_by_itself(&self) -> bool {
        match self {
            Request::Read { offset, .. }
            | Request::Write { offset, .. }
            | Request::ReadVectored { offset, .. }
            | Request::WriteVectored { offset, .. } => matches!(offset, Offset::At(_)),
            Request::Accept { .. }
            | Request::AcceptMany { .. }
            | Request::Connect { .. }
            | Request::Recv { .. }
            | Request::RecvMany { .. }
            | Request::RecvMsg { .. }
            | Request::Send { .. }
            | Request::SendMsg { .. }
            | Request::Poll { .. } => false,
            _ => true,
        }
    }
}

// SAFETY: plain data. Who follows the pointers is bound by the rule above.
unsafe impl Send for Request {}
// SAFETY: as above.
unsafe impl Sync for Request {}
