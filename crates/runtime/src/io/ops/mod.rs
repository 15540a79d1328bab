//! The operations, one file each: its arguments as plain data, its class, its
//! submission queue entry, its system call for drivers without a ring, and the
//! [`Operation`](crate::io::Operation) that owns the buffer and makes the result.
//!
//! `README.md` of the i/o layer says how to add one.

use std::ffi::CString;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::request::Offset;
use crate::io::readiness::calls;
use crate::linux::on_ring;

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

/// Whether an operation ends by itself, or waits for another side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    /// Ends by itself, whatever others do. It counts toward the limit of operations
    /// in flight, and a virtual clock waits for it.
    Bounded,
    /// As `Bounded`, except that it does not count toward the limit, since it may
    /// wait for another side after all: the open of a FIFO.
    MayBlock,
    /// Waits for another side to make room, which mostly is there. Handed over to the
    /// system soon, because it may be complete as soon as the system has it.
    Output,
    /// Waits for another side to send or to connect. There is no hurry.
    Input,
}

impl Class {
    /// A file at an offset is always ready; a stream is of class `stream`.
    fn at(offset: Offset, stream: Class) -> Class {
        match offset {
            Offset::At(_) => Class::Bounded,
            Offset::Current => stream,
        }
    }
}

/// How a driver that has no ring carries out a request with [`RequestArgs::call`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fallback {
    /// The call never waits: it is made at once.
    Now,
    /// The call is made when the file is readable; `EAGAIN` means not yet.
    Readable(RawFd),
    /// The call is made when the file is writable; `EAGAIN` means not yet.
    Writable(RawFd),
    /// The call is made when one of these events of `poll` is reported.
    Polled(RawFd, u32),
    /// The call may block: a thread of the blocking pool makes it.
    Offload,
}

impl Fallback {
    /// A read of a stream that does not block waits until that is readable. Other reads
    /// are offloaded.
    fn read(fd: RawFd, offset: Offset) -> Fallback {
        match offset == Offset::Current && calls::never_blocks(fd) {
            true => Fallback::Readable(fd),
            false => Fallback::Offload,
        }
    }

    /// As [`read`](Fallback::read), for writes.
    fn write(fd: RawFd, offset: Offset) -> Fallback {
        match offset == Offset::Current && calls::never_blocks(fd) {
            true => Fallback::Writable(fd),
            false => Fallback::Offload,
        }
    }
}

/// The arguments of one kind of request, and what every driver must know of it.
pub(crate) trait RequestArgs: Copy {
    /// Whether it ends by itself.
    fn class(&self) -> Class;

    /// The open file that it works on, if it names one.
    fn fd(&self) -> Option<RawFd>;

    /// How a driver without a ring carries it out.
    fn fallback(&self) -> Fallback;

    /// Makes the system call. The answer is as kernels give it: what was done, or the
    /// negative error number. Sockets answer `EAGAIN` instead of waiting, and so do other
    /// files that are in non-blocking mode.
    ///
    /// # Safety
    /// All pointers are valid, and no other code uses the memory behind them until the
    /// call returns.
    unsafe fn call(&self) -> i32;
}

/// Defines [`Request`], and passes each question on to the arguments of the request.
macro_rules! requests {
    ($($(#[$doc:meta])* $name:ident($file:ident::$args:ident),)*) => {
        $(pub use $file::$args;)*

        /// What a driver is asked to do.
        #[derive(Clone, Copy, Debug)]
        #[non_exhaustive]
        pub enum Request {
            $($(#[$doc])* $name($args),)*
        }

        impl Request {
            /// Whether it ends by itself.
            #[inline]
            pub(crate) fn class(&self) -> Class {
                match self {
                    $(Request::$name(args) => args.class(),)*
                }
            }

            /// The open file that it works on, if it names one.
            pub fn fd(&self) -> Option<RawFd> {
                match self {
                    $(Request::$name(args) => args.fd(),)*
                }
            }

            /// How a driver without a ring carries it out.
            pub(crate) fn fallback(&self) -> Fallback {
                match self {
                    $(Request::$name(args) => args.fallback(),)*
                }
            }

            /// Makes the system call; see [`RequestArgs::call`].
            ///
            /// # Safety
            /// As there.
            pub(crate) unsafe fn call(&self) -> i32 {
                match self {
                    // SAFETY: as the caller says.
                    $(Request::$name(args) => unsafe { args.call() },)*
                }
            }
        }

        on_ring! {
            impl Request {
                /// The operations of io_uring that requests use.
                pub(crate) const CODES: &[u8] = &[$(<$args as Sqe>::CODE),*];

                /// Its submission queue entry.
                #[inline]
                pub(crate) fn sqe(&self) -> Entry {
                    match self {
                        $(Request::$name(args) => args.sqe(),)*
                    }
                }
            }
        }
    };
}

requests! {
    /// Nothing, and say so.
    Nop(nop::NopArgs),
    /// Bytes from `fd` into `buf`.
    Read(read::ReadArgs),
    /// Bytes from `buf` to `fd`.
    Write(write::WriteArgs),
    /// What was written reaches the disk.
    Sync(sync::SyncArgs),
    /// Opens a file.
    Open(open::OpenArgs),
    /// As [`Read`](Request::Read), into several buffers.
    ReadVectored(vectored::ReadVectoredArgs),
    /// As [`Write`](Request::Write), from several buffers.
    WriteVectored(vectored::WriteVectoredArgs),
    /// Bytes to `fd`, and then to the disk: the second only if all of them were
    /// written. The answer is how many were; fewer than asked for means that
    /// they are not on the disk yet.
    WriteThenSync(write_then_sync::WriteThenSyncArgs),
    /// A part of what was written begins its way to the disk.
    SyncRange(sync_range::SyncRangeArgs),
    /// Room for a part of a file.
    Allocate(allocate::AllocateArgs),
    /// Asks about a file.
    Stat(stat::StatArgs),
    /// Gives a file another name.
    Rename(rename::RenameArgs),
    /// Takes a name away from a file, or removes an empty directory.
    Unlink(unlink::UnlinkArgs),
    /// Makes a directory.
    MakeDir(make_dir::MakeDirArgs),
    /// Waits for a connection; the answer is its file.
    Accept(accept::AcceptArgs),
    /// A series: waits for connections, one after the other; each answer is the
    /// file of one.
    AcceptMany(accept::AcceptManyArgs),
    /// Connects a socket.
    Connect(connect::ConnectArgs),
    /// Bytes from a socket.
    Recv(recv::RecvArgs),
    /// A series: bytes from a socket, in buffers of a group; 0 bytes are the end.
    /// `ENOBUFS` if there is no buffer left.
    RecvMany(recv::RecvManyArgs),
    /// Bytes to a socket.
    Send(send::SendArgs),
    /// A message from a socket.
    RecvMsg(recv_from::RecvMsgArgs),
    /// A message to a socket.
    SendMsg(send_to::SendMsgArgs),
    /// Ends one direction of a socket, or both.
    Shutdown(shutdown::ShutdownArgs),
    /// Waits until a file can be read or written; the answer says which.
    Poll(poll::PollArgs),
    /// Closes a file; the caller has given it up.
    Close(close::CloseArgs),
}
