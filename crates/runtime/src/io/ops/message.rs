//! What messages to and from a socket lead to, besides the bytes.

use std::mem::MaybeUninit;
use std::ptr;

use socket2::{SockAddr, SockAddrStorage};

/// The header of a message and the list of its parts. It lies in the operation,
/// and its pointers lead there; they are set when the operation lies still.
pub(super) struct MsgHeader {
    msg: libc::msghdr,
    parts: Vec<libc::iovec>,
}

// SAFETY: the pointers lead into the operation that it is a part of, and only
// the system follows them.
unsafe impl Send for MsgHeader {}

impl MsgHeader {
    pub(super) fn new() -> MsgHeader {
        MsgHeader {
            // SAFETY: all zeros is a header without anything.
            msg: unsafe { MaybeUninit::zeroed().assume_init() },
            parts: Vec::new(),
        }
    }

    /// The bytes are here, in this order.
    pub(super) fn set_parts(&mut self, parts: impl Iterator<Item = (*mut u8, usize)>) {
        self.parts.clear();
        self.parts.extend(parts.map(|(base, len)| libc::iovec {
            iov_base: base.cast(),
            iov_len: len,
        }));
        self.msg.msg_iov = self.parts.as_mut_ptr();
        // Whose type differs from system to system.
        self.msg.msg_iovlen = self.parts.len() as _;
    }

    /// The address of the other side goes here.
    pub(super) fn set_room_for_addr(&mut self, addr: &mut SockAddrStorage) {
        self.msg.msg_namelen = addr.size_of();
        self.msg.msg_name = ptr::from_mut(addr).cast();
    }

    /// The address of the other side is this.
    pub(super) fn set_addr(&mut self, addr: &SockAddr) {
        self.msg.msg_namelen = addr.len();
        self.msg.msg_name = addr.as_ptr().cast_mut().cast();
    }

    /// How long the address is that the system has put there.
    pub(super) fn addr_len(&self) -> libc::socklen_t {
        self.msg.msg_namelen
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut libc::msghdr {
        &raw mut self.msg
    }
}
