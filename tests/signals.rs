//! shutdown-2: signals, sent to a process of its own (`bin/signalled.rs`), and how it
//! ends. What
//! breaks a whole process is tried on it too: a standard error that cannot be
//! written, a driver that cannot go on.

use std::fs::File;
use std::io::{BufRead, BufReader, PipeReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use kinfolk_testkit::guarded;

/// Longer than two signals must lie apart to count as two.
const APART: Duration = Duration::from_millis(250);

/// A process. Dropped before its end, it is killed.
struct Process {
    child: Child,
    /// Open until it is dropped.
    input: Option<ChildStdin>,
    out: BufReader<std::process::ChildStdout>,
    err: BufReader<std::process::ChildStderr>,
}

impl Process {
    fn start(part: &str) -> Process {
        let mut child = Command::new(env!("CARGO_BIN_EXE_signalled"))
            .arg(part)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let out = BufReader::new(child.stdout.take().unwrap());
        let err = BufReader::new(child.stderr.take().unwrap());
        Process {
            child,
            input,
            out,
            err,
        }
    }

    fn until(reader: &mut impl BufRead, word: &str) {
        let mut line = String::new();
        while !line.contains(word) {
            line.clear();
            assert_ne!(reader.read_line(&mut line).unwrap(), 0, "no {word:?}");
        }
    }

    /// Started, and at its first line.
    fn ready(part: &str) -> Process {
        let mut process = Process::start(part);
        Process::until(&mut process.out, "ready");
        process
    }

    fn send(&self, signal: libc::c_int) {
        // SAFETY: no pointers; the process was not waited for, so it is ours.
        let sent = unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
        assert_eq!(sent, 0);
    }

    /// Sends several at once: it has them all before it runs on.
    fn send_at_once(&self, signals: &[libc::c_int]) {
        self.send(libc::SIGSTOP);
        for signal in signals {
            self.send(*signal);
        }
        self.send(libc::SIGCONT);
    }

    /// Its exit code or the signal that ended it, and what it said on the way.
    fn end(mut self) -> (Option<i32>, Option<i32>, String) {
        let status = wait_in_time(&mut self.child);
        let mut said = String::new();
        self.out.read_to_string(&mut said).unwrap();
        self.err.read_to_string(&mut said).unwrap();
        let status = status.unwrap_or_else(|| panic!("it did not end in time: {said}"));
        (status.code(), status.signal(), said)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a part came to that gets one signal once it is ready.
fn after(part: &str, signal: libc::c_int) -> (Option<i32>, String) {
    let process = Process::ready(part);
    process.send(signal);
    let (ended, _, said) = process.end();
    (ended, said)
}

#[test]
fn shutdown_2_the_first_signal_cancels() {
    guarded("first", |_| {
        for (signal, code, words) in [
            (libc::SIGINT, 130, "shutting down \"SIGINT (Ctrl-C)\" at"),
            (libc::SIGTERM, 0, "shutting down \"SIGTERM\" at"),
        ] {
            let (ended, said) = after("hears", signal);
            assert_eq!(ended, Some(code), "{said}");
            assert!(said.contains("cleaned up"), "{said}");
            assert!(said.contains(words), "{said}");
            assert!(said.contains("bin/signalled.rs"), "{said}");
            assert!(!said.contains("Error"), "{said}");
        }
    });
}

/// shutdown-2: the exit code says how main has ended, and whether all else ended by itself.
#[test]
fn shutdown_2_the_exit_code_says_how_main_ended() {
    guarded("codes", |_| {
        for (part, signal, code) in [
            ("hears, hand-built", libc::SIGTERM, 0),
            ("hears, hand-built", libc::SIGINT, 130),
            ("hears, by signal", libc::SIGTERM, 143),
            ("content", libc::SIGTERM, 0),
            ("content", libc::SIGINT, 0),
            ("lifted", libc::SIGTERM, 0),
        ] {
            let (ended, said) = after(part, signal);
            assert_eq!(ended, Some(code), "{part}: {said}");
            assert!(!said.contains("Error"), "{part}: {said}");
        }
        let (ended, said) = after("fails when told", libc::SIGTERM);
        assert_eq!(ended, Some(1), "{said}");
        assert!(said.contains("Error: lost"), "{said}");
    });
}

/// shutdown-2: a signal that comes before main has begun ends it as any other does.
#[test]
fn shutdown_2_a_signal_before_main_is_no_failure() {
    guarded("before main", |_| {
        for (signal, code) in [(libc::SIGTERM, 0), (libc::SIGINT, 130)] {
            let mut process = Process::ready("late main");
            process.send(signal);
            Process::until(&mut process.err, "stopping");
            drop(process.input.take());
            let (ended, _, said) = process.end();
            assert_eq!(ended, Some(code), "{said}");
            assert!(!said.contains("Error"), "{said}");
        }
    });
}

/// shutdown-2: from the first signal on it goes by itself: after a second it is said who
/// is still there, at the end what is left is named, and the process ends.
#[test]
fn shutdown_2_the_first_signal_ends_what_does_not_hear_it() {
    guarded("deaf", |_| {
        for (part, signal, code, words) in [
            (
                "deaf, soon",
                libc::SIGTERM,
                143,
                "still there: task \"main\"",
            ),
            ("all deaf", libc::SIGINT, 130, "still there: task \"main\""),
            ("reads", libc::SIGINT, 130, "still there: task \"main\""),
            (
                "leaves one behind",
                libc::SIGTERM,
                143,
                "dropped: task \"task@signalled.rs:",
            ),
            (
                "leaves a loop behind",
                libc::SIGTERM,
                143,
                "still there: task \"task@signalled.rs:",
            ),
            ("hook", libc::SIGTERM, 143, "stopping"),
        ] {
            let (ended, said) = after(part, signal);
            assert_eq!(ended, Some(code), "{part}: {said}");
            assert!(said.contains(words), "{part}: {said}");
            if part != "hook" && part != "leaves one behind" {
                assert!(said.contains("stuck: "), "{part}: {said}");
            }
        }
    });
}

/// shutdown-2: a call that does not return is named with what it is.
#[test]
fn shutdown_2_a_blocking_call_that_does_not_return_is_named_and_left() {
    guarded("reads", |_| {
        let process = Process::ready("reads");
        process.send(libc::SIGINT);
        let (ended, _, said) = process.end();
        assert_eq!(ended, Some(130), "{said}");
        assert!(said.contains("blocking call"), "{said}");
    });
}

/// cancel-3: a loop that logs its Cancelled and goes on is named once, takes no processor,
/// and does not keep a program from its end.
#[test]
fn cancel_3_a_loop_that_swallows_ends_with_its_program() {
    guarded("swallows", |_| {
        let (ended, said) = after("swallows", libc::SIGTERM);
        assert_eq!(ended, Some(143), "{said}");
        let named = said.matches("root/main, from ").count();
        assert_eq!(named, 1, "{said}");
        assert!(said.contains("bin/signalled.rs"), "{said}");
        assert!(
            said.contains("goes on though its points have told it"),
            "{said}"
        );
    });
}

#[test]
fn shutdown_2_the_second_signal_forces() {
    guarded("second", |_| {
        for part in ["shielded", "deaf"] {
            let mut process = Process::ready(part);
            process.send(libc::SIGINT);
            Process::until(&mut process.err, "stopping");
            std::thread::sleep(APART);
            process.send(libc::SIGINT);
            let (ended, _, said) = process.end();
            assert_eq!(ended, Some(130), "{part}: {said}");
        }
    });
}

/// shutdown-2: a shell and a parent that both pass a Ctrl-C on send one.
#[test]
fn shutdown_2_signals_close_together_count_as_one() {
    guarded("together", |_| {
        let mut process = Process::ready("slow");
        process.send_at_once(&[libc::SIGINT, libc::SIGTERM]);
        Process::until(&mut process.out, "told");
        drop(process.input.take());
        let (ended, _, said) = process.end();
        assert!(matches!(ended, Some(0 | 130)), "{ended:?}: {said}");
        assert!(!said.contains("dropp"), "{said}");
    });
}

#[test]
fn shutdown_2_the_third_signal_aborts() {
    guarded("third", |_| {
        let mut process = Process::ready("slow");
        process.send(libc::SIGINT);
        Process::until(&mut process.err, "stopping");
        std::thread::sleep(APART);
        process.send(libc::SIGTERM);
        Process::until(&mut process.err, "dropping");
        std::thread::sleep(APART);
        process.send(libc::SIGINT);
        let (_, signal, said) = process.end();
        assert_eq!(signal, Some(libc::SIGABRT), "aborted: {said}");
    });
}

#[test]
fn shutdown_2_quiet_says_nothing() {
    guarded("quiet", |_| {
        let mut process = Process::ready("shielded, quiet");
        process.send(libc::SIGINT);
        Process::until(&mut process.out, "cancelled");
        std::thread::sleep(APART);
        process.send(libc::SIGINT);
        let (ended, _, said) = process.end();
        assert_eq!(ended, Some(130), "{said}");
        let own = said
            .lines()
            .filter(|line| !line.starts_with("kinfolk: dropped"));
        assert_eq!(own.collect::<String>(), "", "{said}");
    });
}

#[test]
fn shutdown_2_can_be_turned_off() {
    guarded("turned off", |_| {
        let mut process = Process::start("left alone");
        Process::until(&mut process.out, "ready");
        process.send(libc::SIGTERM);
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
        assert!(said.contains("in root/main"), "{said}");
        let (ended, _, said) = Process::start("works").end();
        assert_eq!((ended, said.as_str()), (Some(0), ""));
    });
}

/// How a standard error cannot be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Broken {
    /// No process reads it any more.
    Closed,
    /// It holds all that it can, and no process reads it.
    Full,
    /// The disk below it is full.
    NoSpace,
}

const BROKEN: [Broken; 3] = [Broken::Closed, Broken::Full, Broken::NoSpace];

/// A process whose standard error cannot be written. Dropped, it is killed.
struct Mute {
    child: Child,
    out: BufReader<ChildStdout>,
    /// What keeps a full pipe open.
    _reader: Option<PipeReader>,
}

impl Mute {
    fn start(part: &str, broken: Broken) -> Mute {
        let (err, reader) = match broken {
            Broken::NoSpace => {
                let full = File::options().write(true).open("/dev/full");
                (Stdio::from(full.expect("/dev/full")), None)
            }
            Broken::Closed => {
                let (reader, writer) = std::io::pipe().expect("a pipe");
                drop(reader);
                (Stdio::from(writer), None)
            }
            Broken::Full => {
                let (reader, mut writer) = std::io::pipe().expect("a pipe");
                // SAFETY: no pointers.
                let room = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_GETPIPE_SZ) };
                let room = usize::try_from(room).expect("a pipe has a size");
                writer.write_all(&vec![b'.'; room]).expect("room");
                (Stdio::from(writer), Some(reader))
            }
        };
        let mut child = Command::new(env!("CARGO_BIN_EXE_signalled"))
            .arg(part)
            .stdout(Stdio::piped())
            .stderr(err)
            .spawn()
            .expect("a process");
        let out = BufReader::new(child.stdout.take().expect("it is piped"));
        Mute {
            child,
            out,
            _reader: reader,
        }
    }

    fn send(&self, signal: libc::c_int) {
        // SAFETY: no pointers; the process was not waited for, so it is ours.
        let sent = unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
        assert_eq!(sent, 0);
    }

    /// How it ended, if it did in time.
    fn end(&mut self) -> Option<ExitStatus> {
        wait_in_time(&mut self.child)
    }
}

impl Drop for Mute {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn shutdown_2_signals_are_heard_though_nothing_can_be_said() {
    guarded("mute", |_| {
        for broken in BROKEN {
            for (signal, code) in [(libc::SIGINT, 130), (libc::SIGTERM, 0)] {
                let mut process = Mute::start("hears", broken);
                Process::until(&mut process.out, "ready");
                process.send(signal);
                let status = process.end();
                let code_of = |status: ExitStatus| status.code();
                assert_eq!(
                    status.and_then(code_of),
                    Some(code),
                    "{broken:?}: {status:?}"
                );
            }
        }
    });
}

/// What the first one has to say must not keep the second.
#[test]
fn shutdown_2_the_second_signal_forces_though_nothing_can_be_said() {
    guarded("mute and shielded", |_| {
        for broken in BROKEN {
            let mut process = Mute::start("shielded", broken);
            Process::until(&mut process.out, "ready");
            process.send(libc::SIGINT);
            Process::until(&mut process.out, "cancelled");
            std::thread::sleep(APART);
            process.send(libc::SIGTERM);
            let status = process.end().expect("it ends in time");
            let first = status.code();
            assert!(matches!(first, Some(130 | 143)), "{broken:?}: {status:?}");
        }
    });
}

#[test]
fn see_7_main_ends_though_nothing_can_be_said() {
    guarded("mute main", |_| {
        for broken in BROKEN {
            for (part, code) in [("fails", 1), ("works", 0)] {
                let mut process = Mute::start(part, broken);
                let status = process.end().expect("it ends in time");
                assert_eq!(status.code(), Some(code), "{broken:?}, {part}: {status:?}");
            }
        }
    });
}

/// see-7: the words of a panic are the panic hook's. With one that does not wait for
/// standard error, tasks that panic hold up nothing.
#[test]
fn see_7_tasks_that_panic_under_a_hook_of_the_programs_own_hold_up_nothing() {
    guarded("mute panics", |_| {
        for broken in BROKEN {
            let mut process = Mute::start("tasks_panic", broken);
            let status = process.end();
            let code = status.and_then(|status| status.code());
            assert_eq!(code, Some(0), "{broken:?}: {status:?}");
        }
    });
}

/// Nobody takes 5,000 failures, and their hook cannot say so.
#[test]
fn see_7_failures_that_cannot_be_said_hold_up_nothing() {
    guarded("mute flood", |_| {
        for broken in BROKEN {
            let mut process = Mute::start("floods", broken);
            let status = process.end();
            let code = status.and_then(|status| status.code());
            assert_eq!(code, Some(0), "{broken:?}: {status:?}");
            Process::until(&mut process.out, "served");
        }
    });
}

/// What stands before a word in a line, as a number.
fn number_before(line: &str, word: &str) -> Option<u64> {
    let (before, _) = line.split_once(word)?;
    before
        .split_whitespace()
        .last()?
        .replace(',', "")
        .parse()
        .ok()
}

/// A few of them are said, and how many more there were: each is counted once.
#[test]
fn see_7_a_flood_of_failures_is_cut_short_and_counted() {
    guarded("flood", |_| {
        let (ended, _, said) = Process::start("floods").end();
        assert_eq!(ended, Some(0), "{said}");
        let failed = "nobody took the failure of";
        let lines = said.lines().filter(|line| line.contains(failed)).count() as u64;
        let more = said.lines().filter_map(|line| number_before(line, " more"));
        assert!((1..=1_000).contains(&lines), "{lines} lines");
        assert_eq!(lines + more.sum::<u64>(), 5_000, "{said}");
    });
}

/// It was aborted, and has said why; where no process reads that, too.
#[test]
fn io_4_a_driver_that_cannot_go_on_aborts_with_a_message() {
    guarded("broken driver", |_| {
        for (part, words) in [
            ("breaks", "the kernel has lost it"),
            ("breaks alone", "the kernel has lost it"),
            ("panics", "a bug of the driver"),
        ] {
            let mut process = Process::start(part);
            let status = wait_in_time(&mut process.child);
            let (_, signal, said) = process.end();
            assert_eq!(signal, Some(libc::SIGABRT), "{part}: {status:?}: {said}");
            assert!(said.contains(words), "{part}: {said}");
            assert!(said.contains("driver"), "{part}: {said}");
        }
        for broken in BROKEN {
            let mut process = Mute::start("breaks", broken);
            let status = process.end().expect("it ends in time");
            assert_eq!(
                status.signal(),
                Some(libc::SIGABRT),
                "{broken:?}: {status:?}"
            );
        }
    });
}

/// The descriptors of a driver are not to be had: that is the error of the
/// operation that wanted it, and the next one asks again.
#[test]
fn io_4_a_driver_that_cannot_be_made_is_the_error_of_its_operation() {
    guarded("no files", |_| {
        let ended = Command::new("sh")
            .args(["-c", "ulimit -n 40; exec \"$0\" \"no files\""])
            .arg(env!("CARGO_BIN_EXE_signalled"))
            .output()
            .expect("a process");
        let said = String::from_utf8_lossy(&ended.stdout);
        assert!(ended.status.success(), "{ended:?}");
        for driver in ["Best", "Ring", "Readiness"] {
            assert!(said.contains(&format!("{driver}: Ok(())")), "{said}");
        }
        assert_eq!(said.matches("Too many open files").count(), 3, "{said}");
    });
}

/// How it ended; killed if it did not in time.
fn wait_in_time(child: &mut Child) -> Option<ExitStatus> {
    let until = Instant::now() + Duration::from_secs(15);
    loop {
        if let Some(status) = child.try_wait().expect("a child") {
            return Some(status);
        }
        if Instant::now() > until {
            let _ = child.kill();
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
