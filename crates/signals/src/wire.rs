//! From a signal handler to a thread that can act on the signal.
//!
//! In a handler next to nothing is allowed: what is heard there is put into
//! atomics, and a byte into a pair of sockets, whose other end is waited for.

use std::fmt;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use signal_hook_registry::SigId;

/// Signals come in at one end while this lives.
pub struct Wire {
    ids: Vec<SigId>,
    write: Arc<UnixStream>,
}

impl Wire {
    /// Hears these signals; the answer of `heard` comes out of the other end. It
    /// sees to it that there are never more than fit.
    ///
    /// # Safety
    /// `heard` is async-signal-safe: it is called in a signal handler.
    ///
    /// # Errors
    /// If a signal cannot be caught; those of the system.
    pub unsafe fn new<F>(signals: &[i32], heard: F) -> io::Result<(Wire, UnixStream)>
    where
        F: Fn(i32) -> Option<u8> + Clone + Send + Sync + 'static,
    {
        let (write, read) = UnixStream::pair()?;
        write.set_nonblocking(true)?;
        let mut wire = Wire {
            ids: Vec::new(),
            write: Arc::new(write),
        };
        for &signal in signals {
            if signal_hook_registry::FORBIDDEN.contains(&signal) {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!("signal {signal} cannot be caught"),
                ));
            }
            let (write, heard) = (wire.write.clone(), heard.clone());
            let handler = move || {
                if let Some(byte) = heard(signal) {
                    // Without a SIGPIPE, should nobody be at the other end.
                    // SAFETY: send may be called in a signal handler; the file
                    // and the byte are alive.
                    unsafe {
                        let byte = (&raw const byte).cast();
                        libc::send(write.as_raw_fd(), byte, 1, libc::MSG_NOSIGNAL);
                    }
                }
            };
            // SAFETY: it calls `heard`, which the caller answers for, and write.
            let id = unsafe { signal_hook_registry::register(signal, handler) }?;
            wire.ids.push(id);
        }
        Ok((wire, read))
    }

    /// Puts a byte in, as a signal would.
    ///
    /// # Errors
    /// Those of the system.
    pub fn send(&self, byte: u8) -> io::Result<()> {
        io::Write::write_all(&mut &*self.write, &[byte])
    }

    /// Hears nothing more.
    pub fn cut(&mut self) {
        for id in self.ids.drain(..) {
            signal_hook_registry::unregister(id);
        }
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wire({} signals)", self.ids.len())
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.cut();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;

    /// A program that has made SIGPIPE deadly again does not die of it.
    #[test]
    fn a_signal_that_finds_nobody_at_the_other_end_does_no_harm() {
        static PIPES: AtomicUsize = AtomicUsize::new(0);
        static HEARD: AtomicUsize = AtomicUsize::new(0);
        let count = || {
            PIPES.fetch_add(1, SeqCst);
        };
        // SAFETY: it touches one atomic.
        let counts = unsafe { signal_hook_registry::register(libc::SIGPIPE, count) };
        let heard = |_| {
            HEARD.fetch_add(1, SeqCst);
            Some(1)
        };
        // SAFETY: as above.
        let (wire, read) = unsafe { Wire::new(&[libc::SIGURG], heard) }.expect("a wire");
        drop(read);
        // SAFETY: there is a handler for it, which is called before this returns.
        unsafe { libc::raise(libc::SIGURG) };
        assert_eq!(HEARD.load(SeqCst), 1);
        assert_eq!(PIPES.load(SeqCst), 0, "SIGPIPE");
        drop(wire);
        signal_hook_registry::unregister(counts.expect("a handler"));
    }
}
