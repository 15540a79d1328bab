//! SIGUSR1: the tree of jobs and the findings in it, on standard error, from a thread of its
//! own. It reads, polls nothing and waits for no worker, so it works when all of them are in
//! polls that do not return.

use std::fmt::{self, Write as _};
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use kinfolk_core::host::say::{Topic, flush, say};
use kinfolk_core::{Tree, TreeSnapshot, WeakTree};
use kinfolk_see::{Examine, Rules};

use crate::builder::{Builder, Watching};
use kinfolk_signals::Wire;

/// What ends the thread.
const STOP: u8 = 0;

/// What a signal puts in.
const DUMP: u8 = 1;

/// How long lies between the two looks of one dump, by which a task that spins is known.
const BETWEEN: Duration = Duration::from_millis(100);

/// A snapshot of more jobs is not kept until the next dump.
const MOST_KEPT: usize = 100_000;

/// How many bytes are handed over at a time to be written.
const PIECE: usize = 16 * 1024;

/// How long a dump waits for one piece to be written, before it gives up.
const PATIENT: Duration = Duration::from_secs(2);

impl Builder {
    /// Whether the runtime writes its tree and what deserves a look in it to standard error
    /// when the process receives SIGUSR1 (`kill -USR1`), from [`build`](Builder::build) to
    /// its end. `false` by default.
    ///
    /// The dump comes from a thread of its own, which looks at the jobs without polling
    /// them and takes no lock for longer than it looks at one job: the dump comes also when
    /// every worker is in a poll that does not return. It shows the tree as its
    /// [snapshot](kinfolk_core::Tree::snapshot) prints, what the default rules for findings
    /// find, and from the second dump on what has grown since the last one. A signal that
    /// comes while a dump is written asks for one more, and no number of them for more than
    /// that. [`quiet`](Builder::quiet) does not concern it. A sink that keeps the latest
    /// events, such as the flight recorder, writes them to its file then.
    ///
    /// Several runtimes that were built so answer one signal each. Once a runtime was built
    /// so, SIGUSR1 no longer ends the process, even after the runtime has ended.
    pub fn dump_on_usr1(mut self, dump: bool) -> Self {
        self.watch =
            dump.then(|| -> Watching { Box::new(|handle| DumpOnSignal::start(handle.tree())) });
        self
    }
}

/// The signal is heard while this lives.
struct DumpOnSignal {
    wire: Wire,
}

impl DumpOnSignal {
    fn start(tree: &Tree) -> io::Result<Box<dyn std::any::Any>> {
        let asked = Arc::new(AtomicBool::new(false));
        let heard = {
            let asked = asked.clone();
            // One byte at a time is on its way.
            move |_| (!asked.swap(true, SeqCst)).then_some(DUMP)
        };
        // SAFETY: the handler uses an atomic only.
        let (wire, read) = unsafe { Wire::new(&[libc::SIGUSR1], heard) }?;
        let mut dumper = Dumper {
            tree: tree.downgrade(),
            read,
            asked,
            last: None,
        };
        thread::Builder::new()
            .name("kinfolk-dumps".into())
            .spawn(move || dumper.run())?;
        Ok(Box::new(DumpOnSignal { wire }))
    }
}

impl Drop for DumpOnSignal {
    fn drop(&mut self) {
        self.wire.cut();
        // Its thread is not waited for: it may be waiting for standard error.
        let _ = self.wire.send(STOP);
    }
}

struct Dumper {
    /// The thread keeps no tree alive while it waits.
    tree: WeakTree,
    read: UnixStream,
    asked: Arc<AtomicBool>,
    /// What the last dump saw.
    last: Option<TreeSnapshot>,
}

impl Dumper {
    fn run(&mut self) {
        let mut byte = [STOP];
        loop {
            match self.read.read(&mut byte) {
                Ok(1) if byte[0] == DUMP => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                _ => return,
            }
            // What comes from now on asks for one more.
            self.asked.store(false, SeqCst);
            let Some(tree) = self.tree.upgrade() else {
                return;
            };
            self.dump(&tree);
        }
    }

    fn dump(&mut self, tree: &Tree) {
        let first = tree.snapshot();
        thread::sleep(BETWEEN);
        let now = tree.snapshot();
        let findings = Rules::default().check(&now, Some(&first));
        drop(first);
        let mut out = DumpPieces {
            text: "kinfolk: SIGUSR1\n".to_string(),
            failed: false,
        };
        // Where standard error is not read any more, the rest is not made either.
        let _ = writeln!(out, "{now}{findings}");
        if let Some(last) = self.last.take() {
            let _ = writeln!(out, "since the last dump, {}", now.diff(&last));
        }
        out.put();
        if let Some(done) = tree.tell_of_trouble("SIGUSR1") {
            say(Topic::Seldom, format_args!("kinfolk: {done}"));
        }
        self.last = (now.len() <= MOST_KEPT).then_some(now);
    }
}

/// Hands a long text over in pieces of whole lines, each when the one before is written.
struct DumpPieces {
    text: String,
    failed: bool,
}

impl DumpPieces {
    fn put(&mut self) {
        let piece = std::mem::take(&mut self.text);
        if self.failed || piece.is_empty() {
            return;
        }
        say(
            Topic::Seldom,
            format_args!("{}", piece.trim_end_matches('\n')),
        );
        self.failed = !flush(PATIENT);
    }
}

impl fmt::Write for DumpPieces {
    fn write_str(&mut self, words: &str) -> fmt::Result {
        self.text.push_str(words);
        if self.text.len() >= PIECE && words.ends_with('\n') {
            self.put();
        }
        match self.failed {
            true => Err(fmt::Error),
            false => Ok(()),
        }
    }
}
