//! [`Child`]: a process that was started.

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

/// A process that was started with [`Command::spawn`](super::Command::spawn).
///
/// Dropped before the process has ended, the process is stopped: SIGTERM, and
/// after the grace SIGKILL. The drop does not wait; the job that started the
/// process does, before it ends. See [who stops a process, and when](super).
#[must_use = "dropping it stops the process"]
pub struct Child {
    /// Its input, if that is [`Piped`](super::Stdio::Piped). Take it to close it.
    pub stdin: Option<PipeWriter>,
    /// Its output, if that is piped.
    pub stdout: Option<PipeReader>,
    /// Its words on errors, if they are piped.
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

    /// Its number. After it has ended the system may give it to another.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Waits for its end; how it ended, as often as it is asked. Its input is
    /// closed first, so that it does not wait for us. Outputs that are piped and
    /// not read it may wait for, once the pipe is full.
    ///
    /// # Cancellation
    /// A *point*. Told, the process goes on: until the child is dropped, or the
    /// job that started it is over. So a [`timeout`](kinfolk_core::timeout) around
    /// it can be followed by [`stop`](Child::stop) or another wait.
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
            status.unwrap_or_else(|| Err(io::Error::other("the process has no reaper")))
        }
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// As [`wait`](Child::wait).
    pub fn try_wait(&self) -> io::Result<Option<ExitStatus>> {
        self.process.status().transpose()
    }

    /// Stops it: SIGTERM, and after the grace SIGKILL; and waits for its end.
    ///
    /// # Cancellation
    /// A *point*. Told, it is being stopped all the same, and the job that started
    /// it waits for that.
    ///
    /// # Errors
    /// As [`wait`](Child::wait).
    #[track_caller]
    pub fn stop(&mut self) -> impl Future<Output = io::Result<ExitStatus>> + Send + use<> {
        self.reaper.cancel("the process is to be stopped");
        self.wait()
    }

    /// Kills it at once, with SIGKILL, and its group if it has one of its own.
    /// [`wait`](Child::wait) says when that has happened. One that has ended is
    /// left alone.
    ///
    /// # Errors
    /// Those of the system.
    pub fn kill(&self) -> io::Result<()> {
        self.signal(libc::SIGKILL)
    }

    /// Sends it a signal, and to its group if it has one of its own. One that has
    /// ended is left alone.
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
