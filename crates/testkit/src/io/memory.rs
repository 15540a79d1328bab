//! The only module that follows the pointers of a request.
//!
//! **P1** The pointers lead into the in-flight record of an operation, which does not
//! move and belongs to the operation alone from submission until its end was
//! collected. The kernel calls functions of this module between the two, and at no
//! other time.

use std::ffi::CStr;
use std::sync::Arc;

use kinfolk_runtime::io::request::{
    AcceptArgs, ConnectArgs, ReadArgs, ReadVectoredArgs, RecvArgs, RecvMsgArgs, SendArgs,
    SendMsgArgs, WriteArgs, WriteThenSyncArgs, WriteVectoredArgs,
};
use kinfolk_runtime::io::{BufferGroup, Request, StatBuf};
use socket2::SockAddr;

use super::addr::Addr;
use super::linux;

/// A piece of memory: where it begins, and how long it is.
type RequestPiece = (*mut u8, usize);

/// The pieces of memory that a request reads or writes. Nearly always there is one, which is
/// stored here without a `Vec`: an operation reads the pieces three times.
pub(crate) enum Pieces {
    One(RequestPiece),
    Many(Vec<RequestPiece>),
}

// SAFETY: plain data; P1 binds the code that follows the pointers.
unsafe impl Send for Pieces {}

impl Pieces {
    pub(crate) fn of(request: &Request) -> Pieces {
        let parts = |parts: *const libc::iovec, count: usize| {
            let parts = match count {
                0 => &[],
                // SAFETY: P1.
                _ => unsafe { std::slice::from_raw_parts(parts, count) },
            };
            let pieces = parts.iter();
            let pieces = pieces.map(|part| (part.iov_base.cast::<u8>(), part.iov_len));
            Pieces::Many(pieces.collect())
        };
        match *request {
            Request::Read(ReadArgs { buf, len, .. }) | Request::Recv(RecvArgs { buf, len, .. }) => {
                Pieces::One((buf, len as usize))
            }
            Request::Write(WriteArgs { buf, len, .. })
            | Request::WriteThenSync(WriteThenSyncArgs { buf, len, .. })
            | Request::Send(SendArgs { buf, len, .. }) => {
                Pieces::One((buf.cast_mut(), len as usize))
            }
            Request::ReadVectored(ReadVectoredArgs {
                parts: p, count, ..
            })
            | Request::WriteVectored(WriteVectoredArgs {
                parts: p, count, ..
            }) => parts(p, count as usize),
            Request::RecvMsg(RecvMsgArgs { msg, .. }) => {
                // SAFETY: P1.
                let msg = unsafe { &*msg };
                parts(msg.msg_iov, linux::part_count(msg))
            }
            Request::SendMsg(SendMsgArgs { msg, .. }) => {
                // SAFETY: P1.
                let msg = unsafe { &*msg };
                parts(msg.msg_iov, linux::part_count(msg))
            }
            _ => Pieces::Many(Vec::new()),
        }
    }

    fn all(&self) -> &[RequestPiece] {
        match self {
            Pieces::One(piece) => std::slice::from_ref(piece),
            Pieces::Many(pieces) => pieces,
        }
    }

    /// The memory of a buffer of a group, which the caller has taken.
    pub(crate) fn of_buffer(group: &BufferGroup, number: u16) -> Pieces {
        Pieces::One((group.buffer_ptr(number), group.size() as usize))
    }

    pub(crate) fn len(&self) -> usize {
        self.all().iter().map(|(_, len)| len).sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The pieces of at least one byte, as ranges of addresses.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (usize, usize)> {
        let filled = self.all().iter().filter(|(_, len)| *len > 0);
        filled.map(|(at, len)| (at.addr(), at.addr() + len))
    }

    /// Copies `bytes` into the pieces; there is room for all of them.
    pub(crate) fn fill(&self, mut bytes: &[u8]) {
        for (at, len) in self.all() {
            let (now, later) = bytes.split_at(bytes.len().min(*len));
            // SAFETY: P1, and `now` is no longer than the piece.
            unsafe { std::ptr::copy_nonoverlapping(now.as_ptr(), *at, now.len()) };
            bytes = later;
        }
        assert!(bytes.is_empty(), "more bytes than room");
    }

    /// The first `most` bytes in the pieces.
    pub(crate) fn bytes(&self, most: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(most.min(self.len()));
        for (at, len) in self.all() {
            let now = (*len).min(most - bytes.len());
            if now > 0 {
                // SAFETY: P1.
                bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(*at, now) });
            }
        }
        bytes
    }
}

/// The group of a request.
pub(crate) fn group(group: *const Arc<BufferGroup>) -> Arc<BufferGroup> {
    // SAFETY: P1.
    unsafe { &*group }.clone()
}

/// A path of a request.
pub(crate) fn path(path: *const libc::c_char) -> Vec<u8> {
    // SAFETY: P1; it ends with a zero.
    unsafe { CStr::from_ptr(path) }.to_bytes().to_vec()
}

/// The facts about a file that a request asks for.
pub(crate) struct FileFacts {
    pub(crate) mode: u32,
    pub(crate) links: u32,
    pub(crate) number: u64,
    pub(crate) size: u64,
    pub(crate) changed: std::time::Duration,
}

/// Writes the facts about a file to the request.
pub(crate) fn answer_stat(out: *mut StatBuf, about: &FileFacts) {
    // SAFETY: P1.
    unsafe { out.write(linux::stat(about)) };
}

/// An address of a request.
fn addr(at: *const libc::sockaddr_storage, len: libc::socklen_t) -> Option<Addr> {
    let len = (len as usize).min(size_of::<libc::sockaddr_storage>());
    // SAFETY: P1; no more bytes are copied than an address holds.
    let made = unsafe {
        SockAddr::try_init(|storage, size| {
            std::ptr::copy_nonoverlapping(at.cast::<u8>(), storage.cast::<u8>(), len);
            *size = len as libc::socklen_t;
            Ok(())
        })
    };
    Addr::from_system(&made.ok()?.1)
}

/// The address of a connect, or of a message.
pub(crate) fn target(request: &Request) -> Option<Addr> {
    match *request {
        Request::Connect(ConnectArgs { addr: at, len, .. }) => addr(at, len),
        Request::SendMsg(SendMsgArgs { msg, .. }) => {
            // SAFETY: P1.
            let msg = unsafe { &*msg };
            match msg.msg_name.is_null() || msg.msg_namelen == 0 {
                true => None,
                false => addr(msg.msg_name.cast(), msg.msg_namelen),
            }
        }
        _ => None,
    }
}

/// Writes the sender of a connection or a message to the request.
pub(crate) fn answer_source(request: &Request, from: &Addr) {
    let put = |at: *mut u8, room: usize| -> libc::socklen_t {
        let from = from.to_system();
        let len = (from.len() as usize).min(room);
        // SAFETY: P1; no more bytes are copied than there is room for, and than
        // the address has.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr().cast::<u8>(), at, len) };
        from.len()
    };
    match *request {
        Request::Accept(AcceptArgs { addr, len, .. }) if !addr.is_null() && !len.is_null() => {
            // SAFETY: P1.
            unsafe { *len = put(addr.cast(), *len as usize) };
        }
        Request::RecvMsg(RecvMsgArgs { msg, .. }) => {
            // SAFETY: P1.
            let msg = unsafe { &mut *msg };
            if !msg.msg_name.is_null() {
                msg.msg_namelen = put(msg.msg_name.cast(), msg.msg_namelen as usize);
            }
        }
        _ => {}
    }
}

/// Writes to the request whether a message was cut.
pub(crate) fn answer_message(request: &Request, cut: bool) {
    if let Request::RecvMsg(RecvMsgArgs { msg, .. }) = *request {
        // SAFETY: P1.
        let msg = unsafe { &mut *msg };
        msg.msg_controllen = 0;
        msg.msg_flags = if cut { libc::MSG_TRUNC } else { 0 };
    }
}
