//! [`Signals`]: waiting for signals.

use std::fmt;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kinfolk_core::checkpoint;
use kinfolk_signals::Wire;

use crate::io::{Interest, IoHandle, Watched};

/// How many signals there are.
const MOST: i32 = 64;

/// The bit of a signal.
fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// Listens to some signals; made by [`Signals::new`].
///
/// Signals that come between two calls of [`recv`](Signals::recv) are kept. A signal that
/// comes several times before it is taken is taken once, as in the system itself.
pub struct Signals {
    /// Those that have come and were not taken.
    pending: Arc<AtomicU64>,
    /// Before its other end: what comes while this is dropped still finds that.
    _wire: Wire,
    /// Can be read when there may be one.
    bell: Watched<UnixStream>,
}

impl Signals {
    /// Listens to these signals, from now on.
    ///
    /// # Errors
    /// `InvalidInput` for a number that is not a signal, or a signal that cannot be caught,
    /// such as SIGKILL; errors of the system; outside any job, and in a simulation.
    pub fn new(signals: impl IntoIterator<Item = i32>) -> io::Result<Signals> {
        IoHandle::current()?.must_be_real("signals")?;
        let signals: Vec<i32> = signals.into_iter().collect();
        if let Some(wrong) = signals.iter().find(|n| !(1..=MOST).contains(*n)) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{wrong} is not a signal number"),
            ));
        }
        let pending = Arc::new(AtomicU64::new(0));
        let heard = {
            let pending = pending.clone();
            move |signal| {
                // Before the byte: who sees that sees this. One that is pending
                // has its byte, or somebody who is about to look.
                let before = pending.fetch_or(bit(signal), Ordering::SeqCst);
                (before & bit(signal) == 0).then_some(1)
            }
        };
        // SAFETY: it touches one atomic.
        let (wire, read) = unsafe { Wire::new(&signals, heard) }?;
        read.set_nonblocking(true)?;
        Ok(Signals {
            pending,
            _wire: wire,
            bell: Watched::new(read)?,
        })
    }

    /// Waits for the next signal and returns its number. If several have come, the lowest
    /// number comes first.
    ///
    /// # Cancellation
    /// A *point*. If it returns `Cancelled`, no signal was taken; a drop loses none.
    ///
    /// # Errors
    /// Those of the system.
    pub async fn recv(&mut self) -> io::Result<i32> {
        checkpoint().await.map_err(io::Error::other)?;
        loop {
            // First the bytes, then the bits: what comes in between is seen at
            // once, and its byte rings for nothing later.
            self.empty()?;
            if let Some(signal) = self.take() {
                return Ok(signal);
            }
            self.bell.ready(Interest::READABLE).await?;
        }
    }

    fn empty(&self) -> io::Result<()> {
        let mut bytes = [0; 64];
        loop {
            match (&*self.bell).read(&mut bytes) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn take(&self) -> Option<i32> {
        let pending = self.pending.load(Ordering::SeqCst);
        let lowest = pending.trailing_zeros() as i32 + 1;
        (pending != 0).then(|| {
            self.pending.fetch_and(!bit(lowest), Ordering::SeqCst);
            lowest
        })
    }
}

impl fmt::Debug for Signals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pending = self.pending.load(Ordering::Relaxed);
        write!(f, "Signals({} pending)", pending.count_ones())
    }
}

/// Waits for Ctrl-C (SIGINT). It listens from the call on, not from the first poll.
///
/// # Cancellation
/// A *point*.
///
/// # Errors
/// As [`Signals::new`].
pub fn ctrl_c() -> impl Future<Output = io::Result<()>> + Send {
    let signals = Signals::new([libc::SIGINT]);
    async move { signals?.recv().await.map(drop) }
}
