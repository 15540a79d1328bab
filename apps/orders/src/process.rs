//! This program, started again: a server or the clients as a process of its own, which ends
//! with its handle.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::bank::Bank;
use crate::tally::Counts;
use crate::{BoxError, Kind, Limits};

/// A folder that is removed at its end.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str, kind: Kind) -> Result<Folder, BoxError> {
        let name = format!("orders-{}-{}-{name}", std::process::id(), kind as u8);
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path)?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// This program again, with these arguments.
pub(crate) struct Process {
    pub(crate) child: Child,
    /// Its end is the end of the process.
    pub(crate) tell: ChildStdin,
    pub(crate) says: Lines<BufReader<ChildStdout>>,
    /// What it says on standard error.
    complains: ChildStderr,
}

impl Process {
    pub(crate) fn start(exe: &Path, args: &[&str]) -> Result<Process, BoxError> {
        let mut child = Command::new(exe)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let tell = child.stdin.take().ok_or("standard input")?;
        let says = BufReader::new(child.stdout.take().ok_or("standard output")?).lines();
        let complains = child.stderr.take().ok_or("standard error")?;
        Ok(Process {
            child,
            tell,
            says,
            complains,
        })
    }
}

/// One of the three servers.
pub(crate) struct ServerProcess {
    pub(crate) at: SocketAddr,
    child: Child,
    _open: ChildStdin,
    says: Lines<BufReader<ChildStdout>>,
    complaints: JoinHandle<String>,
}

impl ServerProcess {
    pub(crate) async fn start(
        exe: &Path,
        kind: Kind,
        folder: &Folder,
        bank: &Bank,
        limits: Limits,
    ) -> Result<ServerProcess, BoxError> {
        let args = [
            "server",
            kind.name(),
            folder.0.to_str().ok_or("a folder with a plain name")?,
            &bank.at().to_string(),
            &limits.bank.as_millis().to_string(),
            &limits.grace.as_millis().to_string(),
            &limits.undo.as_millis().to_string(),
        ];
        let Process {
            child,
            tell,
            mut says,
            mut complains,
        } = Process::start(exe, &args)?;
        let complaints = tokio::spawn(async move {
            let mut all = Vec::new();
            let _ = complains.read_to_end(&mut all).await;
            String::from_utf8_lossy(&all).into_owned()
        });
        let at = says.next_line().await?.ok_or("where the server listens")?;
        Ok(ServerProcess {
            at: at.parse()?,
            child,
            _open: tell,
            says,
            complaints,
        })
    }

    /// Sends SIGTERM.
    pub(crate) async fn terminate(&self) -> Result<(), BoxError> {
        let id = self.child.id().ok_or("the server has ended by itself")?;
        let mut kill = Command::new("kill");
        let sent = kill.args(["-TERM", &id.to_string()]).status().await?;
        match sent.success() {
            true => Ok(()),
            false => Err("SIGTERM could not be sent".into()),
        }
    }

    /// True if it ends by itself within this time.
    pub(crate) async fn ends_within(&mut self, time: Duration) -> bool {
        timeout(time, self.child.wait()).await.is_ok()
    }

    pub(crate) async fn kill(&mut self) -> Result<(), BoxError> {
        Ok(self.child.kill().await?)
    }

    /// Of a server that has ended: what it has counted, if it came to say so, and what it has
    /// said on standard error.
    pub(crate) async fn last_words(mut self) -> Result<(Counts, String), BoxError> {
        let counts = self.says.next_line().await?.unwrap_or_default();
        let counts = Counts::read(&counts).unwrap_or_default();
        Ok((counts, self.complaints.await?))
    }
}
