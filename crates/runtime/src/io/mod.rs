//! I/O with cancellation points.
//!
//! An operation owns what the system works on, buffer and file, until the system
//! has let go; see `README.md` beside this file.

#[cfg(all(test, target_os = "linux", not(loom)))]
mod alike;
mod arrivals;
mod buf;
mod choice;
mod counts;
mod desk;
pub mod driver;
mod fd;
mod flight;
mod hub;
mod limit;
mod next;
mod op;
pub(crate) mod ops;
mod pipe;
mod pipe_ends;
mod pool;
mod readiness;
mod region;
mod registered;
mod request;
mod series;
mod station;
mod status;
mod system;
mod uring;
mod watched;

pub(crate) use arrivals::Arrival;
pub use buf::{Aligned, IoBuf, IoBufMut, Slice};
pub use choice::IoDriver;
pub(crate) use fd::Fd;
pub(crate) use flight::{Operation, Start, failure};
pub(crate) use hub::Step;
pub use hub::{Hub, IN_FLIGHT, MakeDrivers, SocketOption, System};
pub use limit::at_most;
pub(crate) use next::{Next, What};
pub use op::told;
pub(crate) use op::{Op, cancelled};
pub use pipe::{PipeReader, PipeWriter, pipe};
pub use pool::{Chunk, Pool, Shelf};
pub(crate) use readiness::IoCall;
pub use registered::{RegisteredBuf, RegisteredBufs, Take, registered};
pub use request::{Place, Request, StatBuf};
pub use station::{Entered, Station};
pub(crate) use status::start;
pub use status::{IoOp, reap_all, reap_next};
pub(crate) use system::{Real, give_away, lend};
pub use watched::{Interest, Readiness, Watched};

/// A trip to the driver and back.
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
