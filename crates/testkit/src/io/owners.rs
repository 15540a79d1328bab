//! The table of open files by number.
//!
//! Numbers begin where no real file's number is and are never used again, so
//! that a use after the end of a file, or a second close, is detected.

use std::os::fd::RawFd;
use std::sync::Arc;

use kinfolk_core::host::say::{Topic, say};

use super::by_number::ByNumber;
use super::disk::Number;
use super::sockets::SocketId;
use super::wires::WireId;

/// The first number: no process has so many files open.
const FIRST: RawFd = 0x4000_0000;

/// An open file.
#[derive(Clone, Debug)]
pub(crate) enum OpenFile {
    File {
        number: Number,
        at: u64,
        flags: i32,
        path: Arc<str>,
        /// The disk had no room for all of the last write.
        full: bool,
    },
    PipeReader(WireId),
    PipeWriter(WireId),
    Socket(SocketId),
}

impl OpenFile {
    fn words(&self) -> String {
        match self {
            OpenFile::File { path, .. } => format!("file {path}"),
            OpenFile::PipeReader(_) => "end of a pipe, to read from".into(),
            OpenFile::PipeWriter(_) => "end of a pipe, to write to".into(),
            OpenFile::Socket(_) => "socket".into(),
        }
    }
}

/// Why a file is not open, if so many were opened so far.
fn why_not(fd: RawFd, made: RawFd) -> &'static str {
    match (FIRST..FIRST + made).contains(&fd) {
        true => "after it was closed",
        false => "which the kernel never opened",
    }
}

struct OwnedFile {
    open: OpenFile,
    /// How many operations under way use it.
    used: u32,
}

/// The table of open files.
#[derive(Default)]
pub(crate) struct Owners {
    open: ByNumber<RawFd, OwnedFile>,
    made: RawFd,
    /// The mistakes of the program.
    wrong: Vec<String>,
}

impl Owners {
    pub(crate) fn add(&mut self, open: OpenFile) -> RawFd {
        let fd = FIRST + self.made;
        self.made += 1;
        self.open.insert(fd, OwnedFile { open, used: 0 });
        fd
    }

    fn complain(&mut self, what: String) {
        say(Topic::Seldom, format_args!("simulated kernel: {what}"));
        self.wrong.push(what);
    }

    pub(crate) fn found_wrong(&mut self, what: String) {
        self.complain(what);
    }

    /// What it is, for a caller that should own it.
    pub(crate) fn get(&mut self, fd: RawFd, what: &str) -> Option<&mut OpenFile> {
        match self.open.get_mut(&fd) {
            Some(owned) => Some(&mut owned.open),
            None => {
                let what = format!("{what} on file {fd} {}", why_not(fd, self.made));
                say(Topic::Seldom, format_args!("simulated kernel: {what}"));
                self.wrong.push(what);
                None
            }
        }
    }

    /// An operation uses the file.
    pub(crate) fn begin_use(&mut self, fd: RawFd) {
        if let Some(owned) = self.open.get_mut(&fd) {
            owned.used += 1;
        }
    }

    /// The operation is over.
    pub(crate) fn end_use(&mut self, fd: RawFd) {
        if let Some(owned) = self.open.get_mut(&fd) {
            owned.used -= 1;
        }
    }

    /// Closed by its owner.
    pub(crate) fn remove(&mut self, fd: RawFd) -> Option<OpenFile> {
        match self.open.remove(&fd) {
            Some(owned) => {
                if owned.used > 0 {
                    let words = owned.open.words();
                    self.complain(format!(
                        "file {fd} ({words}) was closed while {} operations use it",
                        owned.used
                    ));
                }
                Some(owned.open)
            }
            None => {
                let why = why_not(fd, self.made);
                self.complain(format!("close of file {fd} {why}"));
                None
            }
        }
    }

    /// The open files.
    pub(crate) fn list(&self) -> Vec<String> {
        let mut open: Vec<_> = self.open.iter().collect();
        open.sort_unstable_by_key(|(fd, _)| **fd);
        open.into_iter()
            .map(|(fd, owned)| format!("{fd} ({})", owned.open.words()))
            .collect()
    }

    pub(crate) fn wrong(&self) -> &[String] {
        &self.wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_closes_twice_or_comes_late_is_found_out() {
        let mut owners = Owners::default();
        let fd = owners.add(OpenFile::PipeReader(1));
        owners.begin_use(fd);
        owners.end_use(fd);
        assert_eq!(
            owners.list(),
            [format!("{fd} (end of a pipe, to read from)")]
        );
        owners.remove(fd);
        assert!(owners.wrong().is_empty());
        owners.remove(fd);
        owners.get(fd, "a read");
        owners.get(3, "a read");
        let busy = owners.add(OpenFile::PipeReader(2));
        assert_ne!(busy, fd, "numbers are not used again");
        owners.begin_use(busy);
        owners.remove(busy);
        let wrong = owners.wrong().join("\n");
        assert!(wrong.contains(&format!("close of file {fd} after it was closed")));
        assert!(wrong.contains(&format!("a read on file {fd} after it was closed")));
        assert!(wrong.contains("a read on file 3 which the kernel never opened"));
        assert!(wrong.contains("was closed while 1 operations use it"));
    }
}
