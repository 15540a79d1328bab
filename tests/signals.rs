//! shutdown-2: signals, sent to a process of its own, and how it ends, on the native
//! runtime (`bin/signalled.rs`) and on tokio (`bin/signalled_tokio.rs`). What breaks a whole process is tried on it too: a standard error that cannot be
//! written, a driver that cannot go on.

use std::fs::File;
use std::io::{BufRead, BufReader, PipeReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use kinfolk_testkit::guarded;

/// Longer than two signals must lie apart to count as two.
const APART: Duration = Duration::from_millis(250);

/// The native runtime.
const NATIVE: &str = env!("CARGO_BIN_EXE_signalled");

/// Tokio.
const TOKIO: &str = env!("CARGO_BIN_EXE_signalled_tokio");

/// Runs it for each host, side by side: each has its own process.
fn on_every_host(name: &'static str, test: fn(&'static str)) {
    guarded(name, move |_| {
        std::thread::scope(|scope| {
            for host in [NATIVE, TOKIO] {
                scope.spawn(move || test(host));
            }
        });
    });
}

/// A process. Dropped before its end, it is killed.
struct Process {
    child: Child,
    /// Open until it is dropped.
    input: Option<ChildStdin>,
    out: BufReader<std::process::ChildStdout>,
    err: BufReader<std::process::ChildStderr>,
}

impl Process {
    fn start(host: &str, part: &str) -> Process {
        Process::start_with(host, &[part])
    }

    fn start_with(host: &str, arguments: &[&str]) -> Process {
        let mut child = Command::new(host)
            .args(arguments)
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

    /// What it says on standard error, up to a line with that word.
    fn said_until(&mut self, word: &str) -> String {
        let mut said = String::new();
        let mut from = 0;
        while !said[from..].contains(word) {
            from = said.len();
            let read = self.err.read_line(&mut said).unwrap();
            assert_ne!(read, 0, "no {word:?} in {said}");
        }
        said
    }

    /// Started, and at its first line.
    fn ready(host: &str, part: &str) -> Process {
        let mut process = Process::start(host, part);
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
fn after(host: &str, part: &str, signal: libc::c_int) -> (Option<i32>, String) {
    let process = Process::ready(host, part);
    process.send(signal);
    let (ended, _, said) = process.end();
    (ended, said)
}

#[test]
fn shutdown_2_the_first_signal_cancels() {
    on_every_host("first", |host| {
        for (signal, code, words) in [
            (libc::SIGINT, 130, "shutting down \"SIGINT (Ctrl-C)\" at"),
            (libc::SIGTERM, 0, "shutting down \"SIGTERM\" at"),
        ] {
            let (ended, said) = after(host, "hears", signal);
            assert_eq!(ended, Some(code), "{said}");
            assert!(said.contains("cleaned up"), "{said}");
            assert!(said.contains(words), "{said}");
            assert!(said.contains("bin/parts.rs"), "{said}");
            assert!(!said.contains("Error"), "{said}");
        }
    });
}

/// shutdown-2: the exit code says how main has ended, and whether all else ended by itself.
#[test]
fn shutdown_2_the_exit_code_says_how_main_ended() {
    on_every_host("codes", |host| {
        for (part, signal, code) in [
            ("hears, hand-built", libc::SIGTERM, 0),
            ("hears, hand-built", libc::SIGINT, 130),
            ("hears, by signal", libc::SIGTERM, 143),
            ("content", libc::SIGTERM, 0),
            ("content", libc::SIGINT, 0),
            ("lifted", libc::SIGTERM, 0),
        ] {
            let (ended, said) = after(host, part, signal);
            assert_eq!(ended, Some(code), "{host}: {part}: {said}");
            assert!(!said.contains("Error"), "{host}: {part}: {said}");
        }
        let (ended, said) = after(host, "fails when told", libc::SIGTERM);
        assert_eq!(ended, Some(1), "{said}");
        assert!(said.contains("Error: lost"), "{said}");
    });
}

/// shutdown-2: a signal that comes before main has begun ends it as any other does.
#[test]
fn shutdown_2_a_signal_before_main_is_no_failure() {
    guarded("before main", |_| {
        for (signal, code) in [(libc::SIGTERM, 0), (libc::SIGINT, 130)] {
            let mut process = Process::ready(NATIVE, "late main");
            process.send(signal);
            Process::until(&mut process.err, "shutting down (Ctrl-C again");
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
    on_every_host("deaf", |host| {
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
                "dropped: task \"task@parts.rs:",
            ),
            (
                "leaves a loop behind",
                libc::SIGTERM,
                143,
                "still there: task \"task@parts.rs:",
            ),
            ("hook", libc::SIGTERM, 143, "shutting down"),
        ] {
            let (ended, said) = after(host, part, signal);
            assert_eq!(ended, Some(code), "{host}: {part}: {said}");
            assert!(said.contains(words), "{host}: {part}: {said}");
            if part != "hook" && part != "leaves one behind" {
                assert!(said.contains("stuck: "), "{host}: {part}: {said}");
            }
        }
    });
}

/// shutdown-2: a call that does not return is named with what it is.
#[test]
fn shutdown_2_a_blocking_call_that_does_not_return_is_named_and_left() {
    on_every_host("reads", |host| {
        let process = Process::ready(host, "reads");
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
    on_every_host("swallows", |host| {
        let (ended, said) = after(host, "swallows", libc::SIGTERM);
        assert_eq!(ended, Some(143), "{said}");
        let named = said.matches("root/main, from ").count();
        assert_eq!(named, 1, "{said}");
        assert!(said.contains("bin/parts.rs"), "{said}");
        assert!(
            said.contains("keeps running although its cancellation points"),
            "{said}"
        );
    });
}

#[test]
fn shutdown_2_the_second_signal_forces() {
    on_every_host("second", |host| {
        for part in ["shielded", "deaf"] {
            let mut process = Process::ready(host, part);
            process.send(libc::SIGINT);
            Process::until(&mut process.err, "shutting down (Ctrl-C again");
            std::thread::sleep(APART);
            process.send(libc::SIGINT);
            let (ended, _, said) = process.end();
            assert_eq!(ended, Some(130), "{host}: {part}: {said}");
        }
    });
}

/// shutdown-2: a shell and a parent that both pass a Ctrl-C on send one.
#[test]
fn shutdown_2_signals_close_together_count_as_one() {
    on_every_host("together", |host| {
        let mut process = Process::ready(host, "slow");
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
    on_every_host("third", |host| {
        let mut process = Process::ready(host, "slow");
        process.send(libc::SIGINT);
        Process::until(&mut process.err, "shutting down (Ctrl-C again");
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
    on_every_host("quiet", |host| {
        let mut process = Process::ready(host, "shielded, quiet");
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
    on_every_host("turned off", |host| {
        let mut process = Process::start(host, "left alone");
        Process::until(&mut process.out, "ready");
        process.send(libc::SIGTERM);
        let (_, signal, said) = process.end();
        assert_eq!(signal, Some(15), "ended by the system: {said}");
    });
}

#[test]
fn main_gives_its_exit_code() {
    on_every_host("exit codes", |host| {
        let (ended, _, said) = Process::start(host, "fails").end();
        assert_eq!(ended, Some(1));
        assert!(said.contains("Error: lost"), "{said}");
        assert!(said.contains("in root/main"), "{said}");
        let (ended, _, said) = Process::start(host, "works").end();
        assert_eq!((ended, said.as_str()), (Some(0), ""));
    });
}

/// shutdown-2: on a tokio runtime with one thread, which the job may never give back; and
/// where the program does not wait for the end of its root.
#[test]
fn shutdown_2_on_tokio_the_process_ends_whatever_its_threads_do() {
    guarded("on tokio", |_| {
        for (part, signal, code, words) in [
            ("hears, one thread", libc::SIGINT, 130, "cleaned up"),
            ("hears, one thread", libc::SIGTERM, 0, "cleaned up"),
            (
                "deaf, one thread",
                libc::SIGTERM,
                143,
                "still there: task \"main\"",
            ),
            ("no main", libc::SIGTERM, 143, "shutting down"),
        ] {
            let (ended, said) = after(TOKIO, part, signal);
            assert_eq!(ended, Some(code), "{part}: {said}");
            assert!(said.contains(words), "{part}: {said}");
        }
    });
}

/// A panic of main goes on in the caller, once the tree has ended.
#[test]
fn outcome_1_a_panic_of_main_on_tokio_goes_on() {
    guarded("panics", |_| {
        let (ended, _, said) = Process::start(TOKIO, "panics").end();
        assert_eq!(ended, Some(101), "{said}");
        assert!(said.contains("out of cheese"), "{said}");
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
    fn start(host: &str, part: &str, broken: Broken) -> Mute {
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
        let mut child = Command::new(host)
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
    on_every_host("mute", |host| {
        for broken in BROKEN {
            for (signal, code) in [(libc::SIGINT, 130), (libc::SIGTERM, 0)] {
                let mut process = Mute::start(host, "hears", broken);
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
    on_every_host("mute and shielded", |host| {
        for broken in BROKEN {
            let mut process = Mute::start(host, "shielded", broken);
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
    on_every_host("mute main", |host| {
        for broken in BROKEN {
            for (part, code) in [("fails", 1), ("works", 0)] {
                let mut process = Mute::start(host, part, broken);
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
            let mut process = Mute::start(NATIVE, "tasks_panic", broken);
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
            let mut process = Mute::start(NATIVE, "floods", broken);
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
        let (ended, _, said) = Process::start(NATIVE, "floods").end();
        assert_eq!(ended, Some(0), "{said}");
        let failed = "unhandled failure of";
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
            let mut process = Process::start(NATIVE, part);
            let status = wait_in_time(&mut process.child);
            let (_, signal, said) = process.end();
            assert_eq!(signal, Some(libc::SIGABRT), "{part}: {status:?}: {said}");
            assert!(said.contains(words), "{part}: {said}");
            assert!(said.contains("driver"), "{part}: {said}");
        }
        for broken in BROKEN {
            let mut process = Mute::start(NATIVE, "breaks", broken);
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
            .arg(NATIVE)
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

/// see-6: SIGUSR1 writes the tree and the findings when every worker and the main thread are
/// in polls that do not return; the names in it do nothing to a terminal.
#[test]
fn see_6_usr1_dumps_the_tree_when_every_worker_is_stuck() {
    guarded("usr1", |_| {
        let mut process = Process::ready(NATIVE, "all deaf, dumps");
        for _ in 0..2 {
            process.send(libc::SIGUSR1);
            let said = process.said_until("rule: long-poll");
            assert!(said.contains("kinfolk: SIGUSR1"), "{said}");
            assert!(said.contains("root \"root\" "), "{said}");
            assert!(said.contains("task \"stuck \\u{1b}[2J\""), "{said}");
            assert!(!said.contains('\u{1b}'), "{said:?}");
            assert!(
                said.contains("warning: task \"main\" has kept its thread for"),
                "{said}"
            );
            // The other findings of this dump.
            for _ in 0..2 {
                process.said_until("rule: long-poll");
            }
        }
    });
}

/// see-6: a dump says what has grown since the last one, and the process goes on; many
/// signals at once do not pile up.
#[test]
fn see_6_usr1_says_what_has_grown_since_the_last_dump() {
    guarded("usr1 again", |_| {
        let mut process = Process::ready(NATIVE, "dumps");
        process.send(libc::SIGUSR1);
        let said = process.said_until("findings: none");
        assert!(!said.contains("since the last dump"), "{said}");
        let mut input = process.input.take().expect("its input");
        for _ in 0..3 {
            writeln!(input, "more").expect("it reads");
            Process::until(&mut process.out, "more");
        }
        process.send(libc::SIGUSR1);
        let said = process.said_until("path:");
        assert!(said.contains("since the last dump, in "), "{said}");
        assert!(said.contains("+3: task \"more\""), "{said}");
        for _ in 0..50 {
            process.send(libc::SIGUSR1);
        }
        process.said_until("nothing has grown");
        drop(input);
        let (code, _, said) = process.end();
        assert_eq!(code, Some(0), "{said}");
        assert!(said.matches("kinfolk: SIGUSR1").count() < 50, "{said}");
    });
}

/// see-6: a dump is written whole, however long it is; one that cannot be written is given
/// up, and neither it nor those that follow hold up the end of the process.
#[test]
fn see_6_a_long_dump_is_whole_and_holds_nothing_up() {
    guarded("long dumps", |_| {
        let mut process = Process::ready(NATIVE, "dumps many");
        process.send(libc::SIGUSR1);
        let said = process.said_until("findings: ");
        let missing = (0..5_000).filter(|n| !said.contains(&format!("\"job {n}\"")));
        assert_eq!(missing.collect::<Vec<_>>(), [0; 0]);
        // Its standard error is not read from now on, and is soon full.
        for _ in 0..3 {
            process.send(libc::SIGUSR1);
        }
        drop(process.input.take());
        let (code, _, said) = process.end();
        assert_eq!(code, Some(0), "{said:.1000}");
    });
}

/// A folder for recordings; removed when this is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let name = format!("kinfolk-{}-{name}", std::process::id());
        Folder(std::env::temp_dir().join(name))
    }

    /// The files in it, whole ones: one that is not finished has another ending.
    fn recordings(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).into_iter().flatten();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        for name in &names {
            assert!(name.ends_with(".pftrace"), "{names:?}");
            let bytes = std::fs::read(self.0.join(name)).unwrap();
            // A packet, and the names of jobs.
            assert_eq!(bytes[0], 0x0a, "{name}");
            assert!(bytes.windows(4).any(|name| name == b"main"), "{name}");
        }
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A part whose flight recorder writes to a folder of its own, ready for signals.
fn recorded(host: &str, part: &str) -> (Process, Folder) {
    let on = if host == NATIVE { "native" } else { "tokio" };
    let folder = Folder::new(&part.replace([',', ' '], "-").replace("recorded", on));
    let path = folder.0.to_str().expect("a plain path").to_string();
    let mut process = Process::start_with(host, &[part, &path]);
    if part != "recorded, unclean" {
        Process::until(&mut process.out, "ready");
    }
    (process, folder)
}

/// see-4: a shutdown by a signal leaves one file, also if it takes no time; the process does
/// not end before the file is whole.
#[test]
fn see_4_a_shutdown_by_a_signal_is_recorded() {
    on_every_host("recorded", |host| {
        let (process, folder) = recorded(host, "recorded");
        process.send(libc::SIGTERM);
        let (code, _, said) = process.end();
        assert_eq!(code, Some(0), "{said}");
        let files = folder.recordings();
        assert_eq!(files.len(), 1, "{said}: {files:?}");
        assert!(
            files[0].ends_with("-1-stopped-by-SIGTERM.pftrace"),
            "{files:?}"
        );
        let words = format!(
            "kinfolk: the flight recorder has written {}",
            folder.0.display()
        );
        assert!(said.contains(&words), "{said}");
    });
}

/// see-4: a shutdown that is stuck leaves its file as soon as that is said, and no second one
/// at its end.
#[test]
fn see_4_a_stuck_shutdown_is_recorded_while_it_is_stuck() {
    on_every_host("recorded, stuck", |host| {
        let (mut process, folder) = recorded(host, "recorded, stuck");
        process.send(libc::SIGINT);
        let said = process.said_until("the flight recorder has written ");
        assert!(said.contains("stuck: "), "{said}");
        assert_eq!(folder.recordings().len(), 1, "{said}");
        let (code, _, said) = process.end();
        assert_eq!(code, Some(130), "{said}");
        let files = folder.recordings();
        assert_eq!(files.len(), 1, "{files:?}");
        assert!(
            files[0].ends_with("-stuck-after-SIGINT--Ctrl-C.pftrace"),
            "{files:?}"
        );
    });
}

/// see-4: SIGUSR1 makes one file, however often it comes; so does a shutdown that drops what
/// does not hear it.
#[test]
fn see_4_a_dump_and_an_unclean_end_are_recorded() {
    guarded("recorded dumps", |_| {
        let (mut process, folder) = recorded(NATIVE, "recorded, dumps");
        for _ in 0..3 {
            process.send(libc::SIGUSR1);
            process.said_until("kinfolk: SIGUSR1");
        }
        process.send(libc::SIGTERM);
        let (code, _, said) = process.end();
        assert_eq!(code, Some(0), "{said}");
        let files = folder.recordings();
        assert_eq!(files.len(), 1, "{files:?}");
        assert!(files[0].ends_with("-1-SIGUSR1.pftrace"), "{files:?}");

        let (process, folder) = recorded(NATIVE, "recorded, unclean");
        let (code, _, said) = process.end();
        assert_eq!(code, Some(0), "{said}");
        let files = folder.recordings();
        assert_eq!(files.len(), 1, "{said}: {files:?}");
        assert!(files[0].ends_with("-unclean-shutdown.pftrace"), "{files:?}");
    });
}

/// see-4: a sink that does not come back when it is told of the end delays the end, and
/// does not prevent it.
#[test]
fn see_4_a_sink_that_hangs_in_its_trouble_does_not_keep_the_process() {
    guarded("a sink that hangs", |_| {
        let (process, _folder) = recorded(NATIVE, "recorded, hangs");
        process.send(libc::SIGTERM);
        let (code, _, said) = process.end();
        assert_eq!(code, Some(0), "{said}");
    });
}
