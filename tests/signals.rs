//! shutdown-2: signals, sent to a process of its own (`bin/signalled.rs`).

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};

use kinfolk_testkit::guarded;

struct Process {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
    err: BufReader<std::process::ChildStderr>,
}

impl Process {
    fn start(part: &str) -> Process {
        let mut child = Command::new(env!("CARGO_BIN_EXE_signalled"))
            .arg(part)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let err = BufReader::new(child.stderr.take().unwrap());
        Process { child, out, err }
    }

    fn until(reader: &mut impl BufRead, word: &str) {
        let mut line = String::new();
        while !line.contains(word) {
            line.clear();
            assert_ne!(reader.read_line(&mut line).unwrap(), 0, "no {word:?}");
        }
    }

    fn send(&self, signal: &str) {
        let sent = Command::new("kill")
            .args([format!("-{signal}"), self.child.id().to_string()])
            .status()
            .unwrap();
        assert!(sent.success());
    }

    /// Its exit code or the signal that ended it, and what it said on the way.
    fn end(mut self) -> (Option<i32>, Option<i32>, String) {
        let status = self.child.wait().unwrap();
        let mut said = String::new();
        self.out.read_to_string(&mut said).unwrap();
        self.err.read_to_string(&mut said).unwrap();
        (status.code(), status.signal(), said)
    }
}

#[test]
fn shutdown_2_the_first_signal_cancels() {
    guarded("first", |_| {
        for (signal, code, words) in [
            ("INT", 130, "shutting down \"SIGINT (Ctrl-C)\" at"),
            ("TERM", 143, "shutting down \"SIGTERM\" at"),
        ] {
            let mut process = Process::start("hears");
            Process::until(&mut process.out, "ready");
            process.send(signal);
            let (ended, _, said) = process.end();
            assert_eq!(ended, Some(code), "{said}");
            assert!(said.contains("cleaned up"), "{said}");
            assert!(said.contains(words), "{said}");
            assert!(said.contains("bin/signalled.rs"), "{said}");
        }
    });
}

#[test]
fn shutdown_2_the_second_signal_forces() {
    guarded("second", |_| {
        let mut process = Process::start("shielded");
        Process::until(&mut process.out, "ready");
        process.send("INT");
        Process::until(&mut process.err, "stopping");
        process.send("INT");
        let (ended, _, said) = process.end();
        assert_eq!(ended, Some(130), "{said}");
    });
}

#[test]
fn shutdown_2_the_third_signal_aborts() {
    guarded("third", |_| {
        let mut process = Process::start("deaf");
        Process::until(&mut process.out, "ready");
        process.send("INT");
        Process::until(&mut process.err, "stopping");
        process.send("TERM");
        Process::until(&mut process.err, "dropping");
        process.send("INT");
        let (_, signal, said) = process.end();
        assert_eq!(signal, Some(6), "aborted: {said}");
    });
}

#[test]
fn shutdown_2_can_be_turned_off() {
    guarded("turned off", |_| {
        let mut process = Process::start("left alone");
        Process::until(&mut process.out, "ready");
        process.send("TERM");
        let (_, signal, said) = process.end();
        assert_eq!(signal, Some(15), "ended by the system: {said}");
    });
}

#[test]
fn main_gives_its_exit_code() {
    guarded("exit codes", |_| {
        let (ended, _, said) = Process::start("fails").end();
        assert_eq!(ended, Some(1));
        assert!(said.contains("Error: lost"), "{said}");
        let (ended, _, said) = Process::start("works").end();
        assert_eq!((ended, said.as_str()), (Some(0), ""));
    });
}
