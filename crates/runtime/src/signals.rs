//! Ctrl-C and SIGTERM: the first asks everything to stop, the second drops
//! what is parked, the third ends the process.
//!
//! The handler itself only counts and writes one byte to a pipe; a thread
//! reads it and does the rest.

use std::io::{self, Read};
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::thread::JoinHandle;

use kinfolk_core::ReasonKind;
use kinfolk_core::host::say::{Topic, say};

use crate::runtime::Handle;
use crate::signal::Wire;

/// What ends the reader.
const STOP: u8 = 0;

/// Signals are heard while this lives.
pub(crate) struct MainSignals {
    wire: Wire,
    reader: Option<JoinHandle<()>>,
    first: Arc<AtomicI32>,
}

impl MainSignals {
    /// Begins to listen. `site` stands for the signals in the reason of a cancel:
    /// where main is.
    pub(crate) fn listen(
        handle: Handle,
        site: &'static Location<'static>,
    ) -> io::Result<MainSignals> {
        let count = Arc::new(AtomicU32::new(0));
        let first = Arc::new(AtomicI32::new(0));
        let heard = {
            let first = first.clone();
            move |signal| {
                let times = count.fetch_add(1, Ordering::SeqCst) + 1;
                let _ = first.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst);
                if times > 2 {
                    // SAFETY: abort may be called in a signal handler.
                    unsafe { libc::abort() };
                }
                Some(times as u8)
            }
        };
        // SAFETY: the handler uses atomics and abort only.
        let (wire, mut read) = unsafe { Wire::new(&[libc::SIGINT, libc::SIGTERM], heard) }?;
        let came = first.clone();
        let reader = std::thread::Builder::new()
            .name("kinfolk-signals".into())
            .spawn(move || {
                let mut byte = [STOP];
                while read.read_exact(&mut byte).is_ok() && byte[0] != STOP {
                    // It acts first: what is said may be heard late, or never.
                    let said = match byte[0] {
                        1 => {
                            let name = name(came.load(Ordering::SeqCst));
                            let tree = handle.tree();
                            tree.request_shutdown_for(ReasonKind::Shutdown, name, site);
                            "stopping; once more to drop what does not stop"
                        }
                        _ => {
                            handle.tree().force();
                            "dropping what is left; once more to abort"
                        }
                    };
                    say(Topic::Seldom, format_args!("kinfolk: {said}"));
                }
            })?;
        Ok(MainSignals {
            wire,
            reader: Some(reader),
            first,
        })
    }

    /// The first signal that came, if one did.
    pub(crate) fn first(&self) -> Option<i32> {
        Some(self.first.load(Ordering::SeqCst)).filter(|signal| *signal != 0)
    }
}

/// What a reason calls it.
fn name(signal: i32) -> &'static str {
    match signal {
        libc::SIGINT => "SIGINT (Ctrl-C)",
        _ => "SIGTERM",
    }
}

impl Drop for MainSignals {
    fn drop(&mut self) {
        self.wire.cut();
        if self.wire.send(STOP).is_ok()
            && let Some(reader) = self.reader.take()
        {
            let _ = reader.join();
        }
    }
}
