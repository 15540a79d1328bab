//! [`Command`]: how a process is started.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output};
use std::sync::Arc;
use std::time::Duration;

use kinfolk_core::{Error, Scope, all, scope};

use super::child::{Child, Pipes};
use super::io_error;
use super::reaper::reap_when_ended;
use super::record::ProcessRecord;
use crate::io::{IoHandle, PipeReader};
use crate::linux;

/// The default grace: the time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(5);

/// Where an input of a process comes from, or an output goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Stdio {
    /// Inherited from this process.
    Inherit,
    /// `/dev/null`: the input is empty, the output is discarded.
    Null,
    /// A pipe to the [`Child`].
    Piped,
}

impl Stdio {
    fn to_std(self) -> std::process::Stdio {
        match self {
            Stdio::Inherit => std::process::Stdio::inherit(),
            Stdio::Null => std::process::Stdio::null(),
            Stdio::Piped => std::process::Stdio::piped(),
        }
    }
}

/// How a process is started: `Command::new("grep").arg("-c").arg("fn")`. It can be
/// started any number of times.
#[derive(Clone, Debug)]
#[must_use = "nothing is started until `spawn`, `status` or `output` is awaited"]
pub struct Command {
    program: OsString,
    args: Vec<OsString>,
    clear: bool,
    env: Vec<(OsString, Option<OsString>)>,
    dir: Option<PathBuf>,
    stdin: Option<Stdio>,
    stdout: Option<Stdio>,
    stderr: Option<Stdio>,
    group: bool,
    grace: Duration,
}

impl Command {
    /// Begins a command: `program` is a path, or a name that is searched in `PATH`.
    pub fn new(program: impl AsRef<OsStr>) -> Command {
        Command {
            program: program.as_ref().into(),
            args: Vec::new(),
            clear: false,
            env: Vec::new(),
            dir: None,
            stdin: None,
            stdout: None,
            stderr: None,
            group: false,
            grace: GRACE,
        }
    }

    /// Adds an argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().into());
        self
    }

    /// Adds arguments.
    pub fn args(mut self, args: impl IntoIterator<Item: AsRef<OsStr>>) -> Self {
        let args = args.into_iter();
        self.args.extend(args.map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets an environment variable; the others are inherited.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        let value = Some(value.as_ref().into());
        self.env.push((name.as_ref().into(), value));
        self
    }

    /// Removes an environment variable.
    pub fn env_remove(mut self, name: impl AsRef<OsStr>) -> Self {
        self.env.push((name.as_ref().into(), None));
        self
    }

    /// Clears the environment, including variables set before.
    pub fn env_clear(mut self) -> Self {
        self.env.clear();
        self.clear = true;
        self
    }

    /// Sets the working directory.
    pub fn dir(mut self, dir: impl AsRef<Path>) -> Self {
        self.dir = Some(dir.as_ref().into());
        self
    }

    /// Sets standard input. The default is inherited; for [`output`](Command::output) it is
    /// `/dev/null`.
    pub fn stdin(mut self, stdin: Stdio) -> Self {
        self.stdin = Some(stdin);
        self
    }

    /// Sets standard output. The default is inherited; for [`output`](Command::output) it is a
    /// pipe.
    pub fn stdout(mut self, stdout: Stdio) -> Self {
        self.stdout = Some(stdout);
        self
    }

    /// Sets standard error, with the same defaults as [`stdout`](Command::stdout).
    pub fn stderr(mut self, stderr: Stdio) -> Self {
        self.stderr = Some(stderr);
        self
    }

    /// Starts the process in a process group of its own: signals go to the whole group, and
    /// processes of the group that are left when it ends are killed. Ctrl-C in the terminal
    /// does not reach the group.
    pub fn own_group(mut self) -> Self {
        self.group = true;
        self
    }

    /// Sets the time between SIGTERM and SIGKILL when the process is stopped, by the clock of
    /// the runtime. The default is 5 s.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    fn to_std(&self) -> std::process::Command {
        let mut std = std::process::Command::new(&self.program);
        std.args(&self.args);
        if self.clear {
            std.env_clear();
        }
        for (name, value) in &self.env {
            match value {
                Some(value) => std.env(name, value),
                None => std.env_remove(name),
            };
        }
        if let Some(dir) = &self.dir {
            std.current_dir(dir);
        }
        let stdio = |stdio: Option<Stdio>| stdio.unwrap_or(Stdio::Inherit).to_std();
        std.stdin(stdio(self.stdin));
        std.stdout(stdio(self.stdout));
        std.stderr(stdio(self.stderr));
        if self.group {
            std.process_group(0);
        }
        std
    }

    /// In the reaper's body.
    fn start(&self) -> io::Result<(Arc<ProcessRecord>, Pipes)> {
        let handle = IoHandle::current()?;
        handle.must_be_real("processes")?;
        let mut child = linux::with_usual_timers(|| self.to_std().spawn())?;
        let (stdin, stdout, stderr) = (
            child.stdin.take().map(OwnedFd::from),
            child.stdout.take().map(OwnedFd::from),
            child.stderr.take().map(OwnedFd::from),
        );
        let process = Arc::new(ProcessRecord::new(child, self.group, handle)?);
        let pipes = || {
            Ok(Pipes {
                stdin: stdin.map(TryInto::try_into).transpose()?,
                stdout: stdout.map(TryInto::try_into).transpose()?,
                stderr: stderr.map(TryInto::try_into).transpose()?,
            })
        };
        let pipes = pipes().inspect_err(|_: &io::Error| process.give_up())?;
        Ok((process, pipes))
    }

    /// Starts the process, which belongs to the current job: see
    /// [when it is stopped](super).
    ///
    /// # Cancellation
    /// A *point*. If the job is told at entry, nothing is started; if it is told later, the
    /// process is stopped.
    ///
    /// # Errors
    /// Those of the system, `NotFound` if there is no such program; outside every
    /// job, and in a simulation.
    #[track_caller]
    pub fn spawn(&self) -> impl Future<Output = io::Result<Child>> + Send + use<> {
        let command = self.clone();
        let name = format!("process {}", self.program.to_string_lossy());
        let start = Scope::current().map(|scope| {
            scope.task(name).start_service(async move |ready| {
                match command.start() {
                    Ok((process, pipes)) => {
                        ready.ready(Ok((process.clone(), pipes)));
                        reap_when_ended(process, command.grace).await;
                    }
                    Err(error) => ready.ready(Err(error)),
                }
                Ok::<_, Error>(())
            })
        });
        async move {
            let Some(start) = start else {
                return Err(io::Error::other(
                    "a process was started outside any job: start it in a task of a runtime",
                ));
            };
            let (started, reaper) = start.await.map_err(io_error)?;
            let (process, pipes) = started?;
            Ok(Child::new(process, pipes, reaper))
        }
    }

    /// Runs the process and returns its exit status.
    ///
    /// # Cancellation
    /// A *point*. If it returns `Cancelled`, the process was stopped and has ended.
    ///
    /// # Errors
    /// Those of [`spawn`](Command::spawn). That the process failed is none: see
    /// [`ExitStatus::success`].
    pub async fn status(&self) -> io::Result<ExitStatus> {
        let run = async |_| Ok(self.spawn_and_wait().await);
        scope(run).await.map_err(io_error)?
    }

    async fn spawn_and_wait(&self) -> io::Result<ExitStatus> {
        self.spawn().await?.wait().await
    }

    /// Runs the process and returns its exit status and its output.
    ///
    /// # Cancellation
    /// A *point*. If it returns `Cancelled`, the process was stopped and has ended;
    /// what it wrote is lost.
    ///
    /// # Errors
    /// As [`status`](Command::status).
    pub async fn output(&self) -> io::Result<Output> {
        let mut command = self.clone();
        command.stdin.get_or_insert(Stdio::Null);
        command.stdout.get_or_insert(Stdio::Piped);
        command.stderr.get_or_insert(Stdio::Piped);
        let run = async |_| Ok(command.spawn_and_read().await);
        scope(run).await.map_err(io_error)?
    }

    async fn spawn_and_read(&self) -> io::Result<Output> {
        let mut child = self.spawn().await?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let ended = child.wait();
        let (stdout, stderr, status) = all((read(stdout), read(stderr), ended))
            .await
            .map_err(io_error)?;
        Ok(Output {
            status,
            stdout,
            stderr,
        })
    }
}

/// All that comes out of a pipe.
async fn read(pipe: Option<PipeReader>) -> io::Result<Vec<u8>> {
    match pipe {
        Some(pipe) => {
            let (read, bytes) = pipe.read_to_end(Vec::new()).await;
            read.map(|_| bytes)
        }
        None => Ok(Vec::new()),
    }
}
