//! [`Child`]: a child process.

use std::fmt;
use std::io;
use std::process::ExitStatus;
use std::sync::Arc;

use kinfolk_core::Task;

use super::io_error;
use super::record::ProcessRecord;
use crate::io::{PipeReader, PipeWriter};

/// The pipes to a process.
pub(super) struct Pipes {
    pub(super) stdin: Option<PipeWriter>,
    pub(super) stdout: Option<PipeReader>,
    pub(super) stderr: Option<PipeReader>,
}

/// A child process, started with [`Command::spawn`](super::Command::spawn).
///
/// Dropping it before the process has ended stops the process: SIGTERM, and after the grace
/// SIGKILL. The drop does not wait; the job that started the process does, before it ends.
/// See [when a process is stopped](super).
#[must_use = "dropping it stops the process"]
pub struct Child {
    /// Standard input, if that is [`Piped`](super::Stdio::Piped). Take and drop it to close
    /// it.
    pub stdin: Option<PipeWriter>,
    /// Standard output, if that is piped.
    pub stdout: Option<PipeReader>,
    /// Standard error, if that is piped.
    pub stderr: Option<PipeReader>,
    process: Arc<ProcessRecord>,
    reaper: Task<()>,
}

impl Child {
    pub(super) fn new(process: Arc<ProcessRecord>, pipes: Pipes, reaper: Task<()>) -> Child {
        Child {
            stdin: pipes.stdin,
            stdout: pipes.stdout,
            stderr: pipes.stderr,
            process,
            reaper,
        }
    }

    /// Returns the process id. After the process has ended the system may reuse it.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Waits for the process to end and returns its exit status; may be called any number of
    /// times. Standard input is closed first, so that the process does not wait for more. If
    /// outputs are piped and not read, the process may block once a pipe is full.
    ///
    /// # Cancellation
    /// A *point*. If it returns `Cancelled`, the process goes on, until the `Child` is dropped
    /// or the job that started it is over. So a [`timeout`](kinfolk_core::timeout) around the
    /// wait can be followed by [`stop`](Child::stop) or another wait.
    ///
    /// # Errors
    /// If other code has waited for the process, or waiting is impossible.
    #[track_caller]
    pub fn wait(&mut self) -> impl Future<Output = io::Result<ExitStatus>> + Send + use<> {
        self.stdin = None;
        let ended = self.reaper.join();
        let process = self.process.clone();
        async move {
            // How the reaper ended does not matter: it never fails.
            let _outcome = ended.await.map_err(|told| io_error(told.into()))?;
            let status = process.status();
            status.unwrap_or_else(|| {
                Err(io::Error::other(
                    "the runtime no longer waits for this process",
                ))
            })
        }
    }

    /// Returns the exit status, if the process has ended.
    ///
    /// # Errors
    /// As [`wait`](Child::wait).
    pub fn try_wait(&self) -> io::Result<Option<ExitStatus>> {
        self.process.status().transpose()
    }

    /// Stops the process, with SIGTERM and after the grace SIGKILL, and waits for its end.
    ///
    /// # Cancellation
    /// A *point*. If it returns `Cancelled`, the process is still being stopped, and the job
    /// that started it waits for that.
    ///
    /// # Errors
    /// As [`wait`](Child::wait).
    #[track_caller]
    pub fn stop(&mut self) -> impl Future<Output = io::Result<ExitStatus>> + Send + use<> {
        self.reaper.cancel("the process is being stopped");
        self.wait()
    }

    /// Kills the process at once, with SIGKILL, and its process group if it has one of its own.
    /// [`wait`](Child::wait) returns when it has ended. Does nothing if it has ended already.
    ///
    /// # Errors
    /// Those of the system.
    pub fn kill(&self) -> io::Result<()> {
        self.signal(libc::SIGKILL)
    }

    /// Sends a signal to the process, and to its process group if it has one of its own. Does
    /// nothing if it has ended already.
    ///
    /// # Errors
    /// Those of the system.
    pub fn signal(&self, signal: i32) -> io::Result<()> {
        self.process.signal(signal)
    }
}

impl fmt::Debug for Child {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Child({})", self.id())
    }
}
