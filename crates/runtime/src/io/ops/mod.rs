//! The operations, a file each: what it brings along, what the system is asked,
//! and what is made of the answer.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

mod accept;
mod allocate;
mod close;
mod connect;
mod make_dir;
mod message;
mod nop;
mod open;
mod poll;
mod read;
mod recv;
mod recv_from;
mod rename;
mod send;
mod send_to;
mod send_vectored;
mod shutdown;
mod stat;
mod sync;
mod sync_range;
mod unlink;
mod vectored;
mod write;
mod write_then_sync;

pub(crate) use accept::Accept;
pub(crate) use allocate::Allocate;
pub(crate) use close::Close;
pub(crate) use connect::Connect;
pub(crate) use make_dir::MakeDir;
pub(crate) use nop::Nop;
pub(crate) use open::OpenAt;
pub(crate) use poll::Poll;
pub(crate) use read::Read;
pub(crate) use recv::Recv;
pub(crate) use recv_from::RecvFrom;
pub(crate) use rename::Rename;
pub(crate) use send::Send;
pub(crate) use send_to::SendTo;
pub(crate) use send_vectored::SendVectored;
pub(crate) use shutdown::ShutdownSocket;
pub(crate) use stat::Stat;
pub(crate) use sync::Fsync;
pub(crate) use sync_range::SyncRange;
pub(crate) use unlink::Unlink;
pub(crate) use vectored::{ReadVectored, WriteVectored};
pub(crate) use write::Write;
pub(crate) use write_then_sync::WriteThenSync;

/// A path as the system wants it.
///
/// # Errors
/// If there is a zero in it.
fn c_path(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

/// The most bytes that one operation moves: more than that the kernel does not
/// take either.
const MOST: usize = 0x7fff_f000;

/// How many bytes of `len` one operation is asked to move.
fn length(len: usize) -> u32 {
    len.min(MOST) as u32
}
