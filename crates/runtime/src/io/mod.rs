//! I/O with cancellation points.
//!
//! An operation owns its buffer and its file until the system has completed it; see
//! `README.md` beside this file.

mod buf;
mod buf_reader;
mod buf_writer;
mod buffer_pool;
mod choice;
mod copy;
mod counts;
pub mod driver;
#[cfg(all(test, target_os = "linux", not(loom)))]
mod drivers_agree;
mod fd;
mod handle;
pub(crate) mod host_names;
mod in_flight;
mod limit;
mod mailbox;
mod op;
pub(crate) mod ops;
mod pipe;
mod pipe_ends;
mod readiness;
mod region;
mod registered;
pub mod request;
mod series;
mod status;
mod stdin;
mod stream;
mod system;
mod thread_io;
#[cfg(target_os = "linux")]
mod uring;
#[cfg(not(target_os = "linux"))]
#[path = "uring/absent.rs"]
mod uring;
mod watched;

pub use buf::{Aligned, IoBuf, IoBufMut, Slice};
pub use buf_reader::{BufReader, Lines};
pub use buf_writer::BufWriter;
pub use buffer_pool::{BufferGroup, BufferPool, Chunk};
pub use choice::IoDriver;
pub use copy::{Copy, CopyBidirectional, copy, copy_bidirectional};
pub(crate) use fd::Fd;
pub(crate) use handle::ClockEvent;
pub use handle::{IN_FLIGHT, IoHandle, MakeDrivers, SocketOption, System};
pub(crate) use in_flight::{Operation, Start, failure};
pub use limit::at_most;
pub use op::told;
pub(crate) use op::{Op, cancelled};
pub use pipe::{PipeReader, PipeWriter, pipe};
pub(crate) use readiness::IoCall;
pub use registered::{RegisteredBuf, RegisteredBufs, Take, registered};
pub use request::{Offset, Request, StatBuf};
pub(crate) use series::queue::SeriesItem;
pub(crate) use series::stream::{SeriesKind, SeriesStream};
pub(crate) use status::start;
pub use status::{IoOp, reap_all, reap_next};
pub use stdin::{Input, Stdin, StdinLines, stdin};
pub use stream::{ReadStream, StreamEnd, StreamRead, StreamWrite, WriteStream};
pub(crate) use system::{Real, give_away, lend};
pub use thread_io::{ThreadIo, ThreadIoGuard};
pub use watched::{Interest, Readiness, Watched};

/// An operation that does nothing: one round trip to the driver.
///
/// # Cancellation
/// A *point*.
///
/// # Errors
/// Where there is no driver.
#[track_caller]
pub fn nop() -> impl Future<Output = std::io::Result<()>> + Send {
    Op::new(None, ops::Nop)
}
