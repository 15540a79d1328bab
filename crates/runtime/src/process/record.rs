//! A process of ours: signals to it, and its end.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::waiter::ExitWaiter;
use crate::io::ops::Poll;
use crate::io::{IoHandle, Op};
use crate::linux;

/// How far it has come.
enum ProcessStage {
    /// Not reaped: its number is its own, whether it runs or not.
    Ours(Child),
    Reaped(ExitStatus),
    /// Other code has reaped it, or reaping is impossible: the number of the error.
    Lost(Option<i32>),
}

/// How we learn of its end.
enum ExitWatch {
    /// A file that can be read then, and that signals go through.
    File(Arc<OwnedFd>),
    /// The system has no such files, or does not let us have them: a thread waits.
    Thread(Arc<ExitWaiter>),
}

impl ExitWatch {
    fn of(id: u32) -> io::Result<ExitWatch> {
        use io::ErrorKind::{PermissionDenied, Unsupported};
        match linux::pidfd_open(id) {
            Ok(pidfd) => Ok(ExitWatch::File(Arc::new(pidfd))),
            // The second is what a sandbox says.
            Err(error) if matches!(error.kind(), Unsupported | PermissionDenied) => {
                Ok(ExitWatch::Thread(ExitWaiter::start(id)?))
            }
            Err(error) => Err(error),
        }
    }
}

/// A process of ours.
pub(super) struct ProcessRecord {
    id: u32,
    /// It leads a process group of its own.
    group: bool,
    watch: ExitWatch,
    handle: Arc<IoHandle>,
    stage: Mutex<ProcessStage>,
}

impl ProcessRecord {
    /// Takes over a process that was just started.
    ///
    /// # Errors
    /// If the system has no more files, or threads; the process is killed then.
    pub(super) fn new(
        mut child: Child,
        group: bool,
        handle: Arc<IoHandle>,
    ) -> io::Result<ProcessRecord> {
        let id = child.id();
        let watch = match ExitWatch::of(id) {
            Ok(watch) => watch,
            Err(error) => {
                let _ = child.kill();
                reap_later(child);
                return Err(error);
            }
        };
        Ok(ProcessRecord {
            id,
            group,
            watch,
            handle,
            stage: Mutex::new(ProcessStage::Ours(child)),
        })
    }

    fn stage(&self) -> MutexGuard<'_, ProcessStage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// How it ended; none while it was not reaped.
    pub(super) fn status(&self) -> Option<io::Result<ExitStatus>> {
        match &*self.stage() {
            ProcessStage::Ours(_) => None,
            ProcessStage::Reaped(status) => Some(Ok(*status)),
            ProcessStage::Lost(Some(error)) => Some(Err(io::Error::from_raw_os_error(*error))),
            ProcessStage::Lost(None) => Some(Err(io::Error::other(
                "the process was killed, and its exit status was not collected",
            ))),
        }
    }

    /// Waits until it has ended. A point.
    #[track_caller]
    pub(super) fn ended(&self) -> Pin<Box<dyn Future<Output = io::Result<()>> + Send>> {
        match &self.watch {
            ExitWatch::File(pidfd) => {
                let poll = Poll::new(pidfd.clone(), libc::POLLIN as u32);
                let op = Op::new(Some(self.handle.clone()), poll);
                Box::pin(async move { op.await.map(drop) })
            }
            ExitWatch::Thread(waiter) => Box::pin(waiter.ended()),
        }
    }

    /// Sends a signal to it, and to its group if it has one of its own. Nothing
    /// happens if it was reaped.
    pub(super) fn signal(&self, signal: i32) -> io::Result<()> {
        // Held, so that nobody reaps it meanwhile and the number stays its own.
        let stage = self.stage();
        match *stage {
            ProcessStage::Ours(_) => self.send(signal),
            ProcessStage::Reaped(_) | ProcessStage::Lost(_) => Ok(()),
        }
    }

    /// It has not been reaped.
    fn send(&self, signal: i32) -> io::Result<()> {
        // SAFETY: two numbers.
        let to_group = self.group && unsafe { libc::kill(-(self.id as i32), signal) } == 0;
        // It may have gone to another group, and must not escape.
        if to_group && signal != libc::SIGKILL {
            return Ok(());
        }
        match &self.watch {
            ExitWatch::File(pidfd) => linux::pidfd_send_signal(pidfd.as_fd(), signal),
            // SAFETY: two numbers. It was not reaped by us: the number is its own.
            ExitWatch::Thread(_) => match unsafe { libc::kill(self.id as i32, signal) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            },
        }
    }

    /// It has ended: what is left of its group goes with it, and the system
    /// forgets it.
    pub(super) fn reap(&self) {
        let mut stage = self.stage();
        let ProcessStage::Ours(child) = &mut *stage else {
            return;
        };
        if self.group {
            // While it was not reaped nobody else can have a group of its number.
            let _ = self.send(libc::SIGKILL);
        }
        // It has ended: this does not wait.
        *stage = match child.wait() {
            Ok(status) => ProcessStage::Reaped(status),
            Err(error) => ProcessStage::Lost(error.raw_os_error()),
        };
    }

    /// It cannot be waited for here: it is killed, and reaped elsewhere.
    pub(super) fn give_up(&self) {
        let mut stage = self.stage();
        if let ProcessStage::Ours(_) = *stage {
            let _ = self.send(libc::SIGKILL);
            if let ProcessStage::Ours(child) =
                std::mem::replace(&mut *stage, ProcessStage::Lost(None))
            {
                drop(stage);
                reap_later(child);
            }
        }
    }
}

/// Reaps a process that was killed, on a thread of its own if it takes time.
fn reap_later(mut child: Child) {
    if let Ok(None) = child.try_wait() {
        let reaper = std::thread::Builder::new().name("kinfolk-reaper".into());
        // Without a thread it is left to the end of this process.
        let _ = reaper.spawn(move || child.wait());
    }
}
