//! Ctrl-C and SIGTERM: the first asks everything to stop, the second drops
//! what is parked, the third ends the process.
//!
//! The handler itself only counts and writes one byte to a pipe; a thread
//! reads it and does the rest.

use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::thread::JoinHandle;

use signal_hook_registry::SigId;

use crate::runtime::Handle;

/// What ends the reader.
const STOP: u8 = 0;

/// Signals are heard while this lives.
pub(crate) struct Signals {
    ids: Vec<SigId>,
    stop: UnixStream,
    reader: Option<JoinHandle<()>>,
    first: Arc<AtomicI32>,
}

impl Signals {
    /// Begins to listen.
    pub(crate) fn listen(handle: Handle) -> io::Result<Signals> {
        let (write, mut read) = UnixStream::pair()?;
        write.set_nonblocking(true)?;
        let count = Arc::new(AtomicU32::new(0));
        let first = Arc::new(AtomicI32::new(0));
        let stop = write.try_clone()?;
        let reader = std::thread::Builder::new()
            .name("kinfolk-signals".into())
            .spawn(move || {
                let mut byte = [STOP];
                while read.read_exact(&mut byte).is_ok() && byte[0] != STOP {
                    match byte[0] {
                        1 => {
                            eprintln!("kinfolk: stopping; once more to drop what does not stop");
                            handle.request_shutdown();
                        }
                        _ => {
                            eprintln!("kinfolk: dropping what is left; once more to abort");
                            handle.tree().force();
                        }
                    }
                }
            })?;
        let mut signals = Signals {
            ids: Vec::new(),
            stop,
            reader: Some(reader),
            first: first.clone(),
        };
        for signal in [libc::SIGINT, libc::SIGTERM] {
            let (count, first) = (count.clone(), first.clone());
            let write = write.try_clone()?;
            let heard = move || {
                let times = count.fetch_add(1, Ordering::SeqCst) + 1;
                let _ = first.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst);
                if times > 2 {
                    // SAFETY: abort may be called in a signal handler.
                    unsafe { libc::abort() };
                }
                let byte = times as u8;
                // SAFETY: write may be called in a signal handler; the fd and
                // the byte are alive. A full pipe is no loss: it is being read.
                unsafe { libc::write(write.as_raw_fd(), (&raw const byte).cast(), 1) };
            };
            // SAFETY: the handler uses atomics, write and abort only.
            signals
                .ids
                .push(unsafe { signal_hook_registry::register(signal, heard) }?);
        }
        Ok(signals)
    }

    /// The first signal that came, if one did.
    pub(crate) fn first(&self) -> Option<i32> {
        Some(self.first.load(Ordering::SeqCst)).filter(|signal| *signal != 0)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for id in self.ids.drain(..) {
            signal_hook_registry::unregister(id);
        }
        if self.stop.write_all(&[STOP]).is_ok()
            && let Some(reader) = self.reader.take()
        {
            let _ = reader.join();
        }
    }
}
