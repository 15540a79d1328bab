//! The operations, a file each: what it brings along, what the system is asked,
//! and what is made of the answer.

mod accept;
mod close;
mod connect;
mod message;
mod nop;
mod open;
mod read;
mod recv;
mod recv_from;
mod send;
mod send_to;
mod send_vectored;
mod shutdown;
mod sync;
mod write;

pub(crate) use accept::Accept;
pub(crate) use close::Close;
pub(crate) use connect::Connect;
pub(crate) use nop::Nop;
pub(crate) use open::Open;
pub(crate) use read::Read;
pub(crate) use recv::Recv;
pub(crate) use recv_from::RecvFrom;
pub(crate) use send::Send;
pub(crate) use send_to::SendTo;
pub(crate) use send_vectored::SendVectored;
pub(crate) use shutdown::Shutdown;
pub(crate) use sync::Sync;
pub(crate) use write::Write;

/// The most bytes that one operation moves: more than that the kernel does not
/// take either.
const MOST: usize = 0x7fff_f000;

/// How many bytes of `len` one operation is asked to move.
fn length(len: usize) -> u32 {
    len.min(MOST) as u32
}
