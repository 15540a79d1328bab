//! From a signal handler to somebody who can do something about it.
//!
//! In a handler next to nothing is allowed: what is heard there is put into
//! atomics, and a byte into a pair of sockets, whose other end is waited for.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use signal_hook_registry::SigId;

/// Signals come in at one end while this lives.
pub(crate) struct Wire {
    ids: Vec<SigId>,
    write: Arc<UnixStream>,
}

impl Wire {
    /// Hears these signals; the answer of `heard` comes out of the other end. It
    /// sees to it that there are never more than fit.
    ///
    /// # Safety
    /// `heard` is called in a signal handler, and does only what may be done
    /// there.
    ///
    /// # Errors
    /// If a signal cannot be heard; those of the system.
    pub(crate) unsafe fn new<F>(signals: &[i32], heard: F) -> io::Result<(Wire, UnixStream)>
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
                    format!("signal {signal} cannot be heard"),
                ));
            }
            let (write, heard) = (wire.write.clone(), heard.clone());
            let handler = move || {
                if let Some(byte) = heard(signal) {
                    // SAFETY: write may be called in a signal handler; the file
                    // and the byte are alive.
                    unsafe { libc::write(write.as_raw_fd(), (&raw const byte).cast(), 1) };
                }
            };
            // SAFETY: it calls `heard`, which the caller answers for, and write.
            let id = unsafe { signal_hook_registry::register(signal, handler) }?;
            wire.ids.push(id);
        }
        Ok((wire, read))
    }

    /// Puts a byte in, as a signal would.
    pub(crate) fn send(&self, byte: u8) -> io::Result<()> {
        io::Write::write_all(&mut &*self.write, &[byte])
    }

    /// Hears nothing more.
    pub(crate) fn cut(&mut self) {
        for id in self.ids.drain(..) {
            signal_hook_registry::unregister(id);
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.cut();
    }
}
