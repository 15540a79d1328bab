//! A thread that waits for the end of a process, where the system has no file that
//! tells it.

use std::io;
use std::mem::{MaybeUninit, take};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kinfolk_core::kit::{Completer, completion};

use super::io_error;

/// Whether the process has ended, and who waits for that.
#[derive(Default)]
struct State {
    ended: bool,
    waiting: Vec<Completer<()>>,
}

/// Waits for the end of a process.
#[derive(Default)]
pub(super) struct ExitWaiter(Mutex<State>);

impl ExitWaiter {
    /// Waits for this process of ours. The process is not reaped.
    ///
    /// # Errors
    /// If the system starts no more threads.
    pub(super) fn start(id: u32) -> io::Result<Arc<ExitWaiter>> {
        let waiter = Arc::new(ExitWaiter::default());
        let thread = std::thread::Builder::new().name("kinfolk-waiter".into());
        let own = waiter.clone();
        thread.spawn(move || {
            wait_for(id);
            own.end();
        })?;
        Ok(waiter)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self) {
        let mut state = self.state();
        state.ended = true;
        let waiting = take(&mut state.waiting);
        drop(state);
        for waits in waiting {
            waits.complete(());
        }
    }

    /// Waits until the process has ended. A point.
    #[track_caller]
    pub(super) fn ended(&self) -> impl Future<Output = io::Result<()>> + Send + use<> {
        let (wait, waits) = completion();
        let mut state = self.state();
        if state.ended {
            drop(state);
            waits.complete(());
        } else {
            state.waiting.push(waits);
        }
        async move { wait.await.map_err(io_error) }
    }
}

/// Returns when the process has ended, or is no child of ours (any more).
fn wait_for(id: u32) {
    loop {
        let mut how = MaybeUninit::<libc::siginfo_t>::uninit();
        let options = libc::WEXITED | libc::WNOWAIT;
        // SAFETY: room for the answer, which is not looked at.
        let failed =
            unsafe { libc::waitid(libc::P_PID, id as libc::id_t, how.as_mut_ptr(), options) };
        if failed == 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return;
        }
    }
}
