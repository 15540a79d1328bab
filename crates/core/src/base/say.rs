//! What the library itself says, on standard error; with the feature `tracing` and a
//! subscriber that is set for all threads, there instead. One thread writes it, so that a
//! standard error that cannot be written (its reader is gone, its pipe or its disk is
//! full) makes no other thread wait or panic. Standard error is shared with other
//! processes, so it is never made non-blocking.
//!
//! The two files beside this one have one shape: one knows `tracing`, the other does not.
//!
//! ```text
//! say ──▶ a queue, bounded by lines and bytes ──▶ the thread ──▶ standard error
//!   └──▶ too many of one topic in a second: counted    └──▶ what fits nowhere: counted
//! ```
//!
//! The thread is started by the first line and ends when it has had nothing to do for
//! a while. It keeps no process alive: [`flush`] is called where a program ends, and
//! waits for a moment.
//!
//! Not covered: the panic hook of std, which writes to standard error on the thread
//! that panics. A program that must not wait for that sets a hook of its own.

#[cfg(feature = "tracing")]
mod with_tracing;
#[cfg(not(feature = "tracing"))]
mod without_tracing;

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Write as _};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::base::error::Error;
use crate::base::escape::{escaped_path, message};
use crate::base::sync::SPEAKS;
use crate::base::unwind::{caught, discard};

#[cfg(feature = "tracing")]
use with_tracing::write;
#[cfg(not(feature = "tracing"))]
use without_tracing::write;

/// How many lines wait to be written.
const LINES: usize = 1024;

/// How many bytes they have together; a longer line is cut.
const BYTES: usize = 256 * 1024;

/// How many lines of one topic are said in one second.
const OF_A_TOPIC: u32 = 10;

/// How long a topic that has had its lines is only counted.
const WINDOW: Duration = Duration::from_secs(1);

/// How long the thread waits for another line.
const IDLE: Duration = Duration::from_secs(1);

/// How long the end of a program waits until all is said.
pub const MOMENT: Duration = Duration::from_millis(100);

/// What a line is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Topic {
    /// A failure that no handle took.
    Failure,
    /// A job whose future was dropped before it was done.
    Forced,
    /// A thread that could not be started.
    Thread,
    /// A spawn into a scope that had ended.
    Late,
    /// A body that swallows Cancelled.
    Swallows,
    /// The end of a runtime: what was left, or that nothing could wait for it. A
    /// program may have many.
    End,
    /// What a program says once or a few times, as of a signal or of its own end:
    /// every line of it is said.
    Seldom,
}

/// The topics that can come by the thousand.
const OFTEN: usize = 6;

impl Topic {
    fn often(self) -> Option<usize> {
        match self {
            Topic::Failure => Some(0),
            Topic::Forced => Some(1),
            Topic::Thread => Some(2),
            Topic::Late => Some(3),
            Topic::End => Some(4),
            Topic::Swallows => Some(5),
            Topic::Seldom => None,
        }
    }
}

/// What the lines are called that were only counted.
const COUNTED: [&str; OFTEN] = [
    "unhandled failures",
    "jobs dropped because they reached no cancellation point",
    "blocking calls for which no thread could be started",
    "spawns into scopes that had ended",
    "reports of runtimes that have ended",
    "bodies that swallow cancellation",
];

/// How much depends on a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LineWeight {
    /// The program goes on.
    Report,
    /// The program ends with it: a subscriber whose filter leaves it out is passed by.
    LastWords,
}

/// What was said of a topic since its last second began.
struct Window {
    began: Option<Instant>,
    said: u32,
    /// Counted only.
    more: u64,
}

struct State {
    lines: VecDeque<(String, LineWeight)>,
    /// How long they are together.
    bytes: usize,
    windows: [Window; OFTEN],
    /// Lines that were not written: there was no room for them, or writing failed.
    dropped: u64,
    /// The last line could not be written.
    failed: bool,
    /// The thread is at a line that is in the queue no more.
    writing: bool,
    /// There is a thread.
    served: bool,
}

impl State {
    /// True if all is said that can be.
    fn is_quiet(&self) -> bool {
        let counted = self.windows.iter().any(|window| window.more > 0);
        let owes = self.dropped > 0 && !self.failed;
        self.lines.is_empty() && !self.writing && !counted && !owes
    }

    fn push(&mut self, mut line: String, weight: LineWeight) {
        cut(&mut line);
        if self.lines.len() >= LINES || self.bytes + line.len() > BYTES {
            self.dropped += 1;
            return;
        }
        self.bytes += line.len();
        self.lines.push_back((line, weight));
    }

    fn pop(&mut self) -> Option<(String, LineWeight)> {
        let line = self.lines.pop_front()?;
        self.bytes -= line.0.len();
        Some(line)
    }

    /// True if another line of that topic may be said now; otherwise it is counted.
    fn admits(&mut self, topic: Topic, now: Instant) -> bool {
        let Some(n) = topic.often() else {
            return true;
        };
        self.close(n, |began| now.duration_since(began) >= WINDOW);
        let window = &mut self.windows[n];
        window.began.get_or_insert(now);
        let admits = window.said < OF_A_TOPIC;
        window.said += u32::from(admits);
        window.more += u64::from(!admits);
        admits
    }

    /// Ends the window of a topic, if `over` says so of its beginning: how many were
    /// only counted is said.
    fn close(&mut self, n: usize, over: impl Fn(Instant) -> bool) {
        let window = &mut self.windows[n];
        if !window.began.is_some_and(over) {
            return;
        }
        let more = std::mem::take(&mut window.more);
        (window.began, window.said) = (None, 0);
        if more > 0 {
            let what = COUNTED[n];
            // Room or not: it is one line in a second.
            let line = format!("kinfolk: … and {more} more {what}, in the last second\n");
            self.bytes += line.len();
            self.lines.push_back((line, LineWeight::Report));
        }
    }

    /// When the first window that has something to say is over.
    fn next_close(&self) -> Option<Instant> {
        let telling = self.windows.iter().filter(|window| window.more > 0);
        telling
            .filter_map(|window| Some(window.began? + WINDOW))
            .min()
    }
}

/// Makes a line no longer than the whole queue may be.
fn cut(line: &mut String) {
    const CUT: &str = " … (cut)\n";
    if line.len() <= BYTES {
        return;
    }
    let mut end = BYTES - CUT.len();
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    line.truncate(end);
    line.push_str(CUT);
}

/// The words and the end of their line, with nothing in them that a terminal would obey.
/// The words of a user's error may panic.
fn line(words: fmt::Arguments<'_>) -> String {
    caught(|| message(format!("{words}\n"))).unwrap_or_else(|payload| {
        discard(payload);
        "kinfolk: a message could not be written: its `Display` panicked\n".into()
    })
}

struct Speaker<W> {
    state: Mutex<State>,
    /// There is something to do for the thread.
    came: Condvar,
    /// The thread has nothing to do.
    quiet: Condvar,
    write: W,
}

impl<W: Fn(&[u8], LineWeight) -> io::Result<()> + Send + Sync + 'static> Speaker<W> {
    const fn new(write: W) -> Speaker<W> {
        Speaker {
            state: Mutex::new(State {
                lines: VecDeque::new(),
                bytes: 0,
                windows: [const {
                    Window {
                        began: None,
                        said: 0,
                        more: 0,
                    }
                }; OFTEN],
                dropped: 0,
                failed: false,
                writing: false,
                served: false,
            }),
            came: Condvar::new(),
            quiet: Condvar::new(),
            write,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// There is something to do: the thread is told, or started.
    fn rouse(&'static self, state: &mut State) {
        if !state.served {
            let started = std::thread::Builder::new()
                .name("kinfolk-says".into())
                .stack_size(128 * 1024)
                .spawn(|| self.serve());
            // If there is none, the next line tries again.
            state.served = started.is_ok();
        }
        self.came.notify_one();
    }

    fn say(&'static self, topic: Topic, words: fmt::Arguments<'_>) {
        self.say_as(topic, LineWeight::Report, words);
    }

    fn say_as(&'static self, topic: Topic, weight: LineWeight, words: fmt::Arguments<'_>) {
        {
            let mut state = self.state();
            if !state.admits(topic, Instant::now()) {
                return self.rouse(&mut state);
            }
        }
        // Outside the lock, and only if it is said: it is code of others.
        let line = line(words);
        let mut state = self.state();
        state.push(line, weight);
        self.rouse(&mut state);
    }

    /// Before all others, room or not.
    fn say_first(&'static self, line: String) {
        let mut state = self.state();
        state.bytes += line.len();
        state.lines.push_front((line, LineWeight::LastWords));
        self.rouse(&mut state);
    }

    /// Waits until all is said, for so long at most. True if it is.
    fn flush(&'static self, most: Duration) -> bool {
        let mut state = self.state();
        for n in 0..OFTEN {
            let counted = state.windows[n].more > 0;
            state.close(n, |_| counted);
        }
        if state.is_quiet() {
            return true;
        }
        self.rouse(&mut state);
        let waited = self
            .quiet
            .wait_timeout_while(state, most, |state| !state.is_quiet());
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.is_quiet()
    }

    /// The life of the thread.
    fn serve(&self) {
        let mut state = self.state();
        loop {
            let now = Instant::now();
            for n in 0..OFTEN {
                let counted = state.windows[n].more > 0;
                state.close(n, |began| counted && now.duration_since(began) >= WINDOW);
            }
            let owes = state.dropped > 0 && !state.failed;
            let next = match state.pop() {
                // What was dropped came after all that had room.
                None if owes => {
                    let dropped = std::mem::take(&mut state.dropped);
                    let line = format!(
                        "kinfolk: {dropped} lines were lost: standard error could not be written\n"
                    );
                    Some((line, LineWeight::Report))
                }
                next => next,
            };
            if let Some((line, weight)) = next {
                state.writing = true;
                drop(state);
                let failed = (self.write)(line.as_bytes(), weight).is_err();
                state = self.state();
                state.writing = false;
                state.failed = failed;
                state.dropped += u64::from(failed);
                continue;
            }
            self.quiet.notify_all();
            let wait = match state.next_close() {
                Some(at) => at.saturating_duration_since(now),
                None => IDLE,
            };
            let waited = self.came.wait_timeout(state, wait);
            let (back, timed_out) = waited.unwrap_or_else(PoisonError::into_inner);
            state = back;
            let counted = state.next_close().is_some();
            if timed_out.timed_out() && state.lines.is_empty() && !counted {
                state.served = false;
                return;
            }
        }
    }
}

/// The one place of the library that writes to standard error.
fn to_stderr(bytes: &[u8]) -> io::Result<()> {
    io::stderr().write_all(bytes)
}

type Out = fn(&[u8], LineWeight) -> io::Result<()>;

static SPEAKER: Speaker<Out> = Speaker::new(write);

/// Says a line on standard error. Never waits for it to be written, and never panics:
/// what there is no room for is dropped, and what comes too often is only counted.
pub fn say(topic: Topic, words: fmt::Arguments<'_>) {
    if SPEAKS {
        SPEAKER.say(topic, words);
    }
}

/// Says the error with which a program ends, and the names of the jobs from the root to the
/// one that it came up in. With the feature `tracing` it is an event of the level `ERROR`, and
/// standard error has it if the subscriber's filter leaves that out.
pub fn say_error(error: &Error) {
    if !SPEAKS {
        return;
    }
    let last = |words: fmt::Arguments<'_>| {
        SPEAKER.say_as(Topic::Seldom, LineWeight::LastWords, words);
    };
    match error.path() {
        [] => last(format_args!("Error: {error}")),
        path => last(format_args!("Error: {error}\n  in {}", escaped_path(path))),
    }
}

/// Waits until all that was said is written, for so long at most: for the end of a
/// program. True if it is. Does nothing if nothing was said.
pub fn flush(most: Duration) -> bool {
    !SPEAKS || SPEAKER.flush(most)
}

/// Says a line before all others and ends the process. If it cannot be written within
/// a moment the process ends without it.
pub fn abort(words: fmt::Arguments<'_>) -> ! {
    let line = line(words);
    match SPEAKS {
        true => {
            SPEAKER.say_first(line);
            SPEAKER.flush(MOMENT);
        }
        // A model has no thread that may not wait.
        false => drop(write(line.as_bytes(), LineWeight::LastWords)),
    }
    std::process::abort();
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, channel};

    type Write = Box<dyn Fn(&[u8], LineWeight) -> io::Result<()> + Send + Sync>;

    /// A speaker, and what it has written, line by line.
    fn speaker() -> (&'static Speaker<Write>, Receiver<String>) {
        let (written, lines) = channel();
        let written = Mutex::new(written);
        let write: Write = Box::new(move |bytes, _| {
            let line = String::from_utf8_lossy(bytes).into_owned();
            let _ = written.lock().expect("no panic").send(line);
            Ok(())
        });
        (Box::leak(Box::new(Speaker::new(write))), lines)
    }

    /// One whose writes wait until the answer's lock is given back.
    fn stuck() -> (&'static Speaker<Write>, Arc<Mutex<()>>) {
        let gate = Arc::new(Mutex::new(()));
        let own = gate.clone();
        let write: Write = Box::new(move |_, _| {
            drop(own.lock());
            Ok(())
        });
        (Box::leak(Box::new(Speaker::new(write))), gate)
    }

    const LONG: Duration = Duration::from_secs(30);

    #[test]
    fn see_7_lines_come_whole_and_in_order() {
        let (speaker, lines) = speaker();
        for n in 0..100 {
            speaker.say(Topic::Seldom, format_args!("line {n}"));
        }
        assert!(speaker.flush(LONG));
        let seen: Vec<String> = lines.try_iter().collect();
        let wanted: Vec<String> = (0..100).map(|n| format!("line {n}\n")).collect();
        assert_eq!(seen, wanted);
    }

    #[test]
    fn see_7_what_comes_too_often_is_counted() {
        let (speaker, lines) = speaker();
        let now = Instant::now();
        let mut admitted = 0;
        for _ in 0..5_000 {
            admitted += u32::from(speaker.state().admits(Topic::Failure, now));
        }
        assert_eq!(admitted, OF_A_TOPIC);
        assert!(speaker.state().admits(Topic::Forced, now), "another topic");
        // The next second says how many they were, and has its own.
        assert!(speaker.state().admits(Topic::Failure, now + WINDOW));
        assert!(speaker.flush(LONG));
        let seen: Vec<String> = lines.try_iter().collect();
        assert_eq!(seen.len(), 1, "{seen:?}");
        assert!(
            seen[0].contains("and 4990 more unhandled failures"),
            "{seen:?}"
        );
    }

    /// The last of a flood are counted though no line follows them.
    #[test]
    fn see_7_the_end_of_a_flood_is_counted_by_the_thread() {
        let (speaker, lines) = speaker();
        for n in 0..=OF_A_TOPIC {
            speaker.say(Topic::Forced, format_args!("job {n}"));
        }
        let next = || lines.recv_timeout(LONG).expect("a line");
        for n in 0..OF_A_TOPIC {
            assert_eq!(next(), format!("job {n}\n"));
        }
        assert!(next().contains("and 1 more jobs dropped"));
    }

    #[test]
    fn see_7_what_there_is_no_room_for_is_dropped_and_counted() {
        let (speaker, gate) = stuck();
        let held = gate.lock().expect("no panic");
        speaker.say(Topic::Seldom, format_args!("it is stuck at this one"));
        while !speaker.state().writing {
            std::thread::yield_now();
        }
        let long = "x".repeat(BYTES / 4);
        for _ in 0..10 {
            speaker.say(Topic::Seldom, format_args!("{long}"));
        }
        let state = speaker.state();
        assert_eq!((state.lines.len(), state.dropped), (3, 7), "a newline each");
        drop(state);
        for n in 0..2 * LINES {
            speaker.say(Topic::Seldom, format_args!("{n}"));
        }
        assert_eq!(speaker.state().lines.len(), LINES);
        assert!(speaker.state().bytes <= BYTES);
        assert!(!speaker.flush(Duration::ZERO), "it is stuck");
        drop(held);
        assert!(speaker.flush(LONG));
        let state = speaker.state();
        assert_eq!((state.lines.len(), state.bytes, state.dropped), (0, 0, 0));
    }

    /// Writing fails, and works again: then it is said how much is missing.
    #[test]
    fn see_7_what_could_not_be_written_is_counted() {
        let (written, lines) = channel();
        let written = Mutex::new((written, 5_u32));
        let write: Write = Box::new(move |bytes, _| {
            let mut written = written.lock().expect("no panic");
            if written.1 > 0 {
                written.1 -= 1;
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            let _ = written.0.send(String::from_utf8_lossy(bytes).into_owned());
            Ok(())
        });
        let speaker = Box::leak(Box::new(Speaker::new(write)));
        for n in 0..6 {
            speaker.say(Topic::Seldom, format_args!("line {n}"));
        }
        assert!(speaker.flush(LONG));
        let seen: Vec<String> = lines.try_iter().collect();
        assert_eq!(seen.len(), 2, "{seen:?}");
        assert_eq!(seen[0], "line 5\n");
        assert!(seen[1].contains("5 lines were lost"), "{seen:?}");
    }

    #[test]
    fn see_7_words_that_panic_are_replaced() {
        struct Panics;
        impl fmt::Display for Panics {
            fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
                std::panic::resume_unwind(Box::new("no words"))
            }
        }
        let (speaker, lines) = speaker();
        speaker.say(Topic::Seldom, format_args!("{Panics}"));
        assert!(speaker.flush(LONG));
        assert!(
            lines
                .try_recv()
                .expect("a line")
                .contains("`Display` panicked")
        );
    }

    #[test]
    fn see_7_a_line_is_no_longer_than_the_queue() {
        let mut line = "ä".repeat(BYTES);
        cut(&mut line);
        assert!(line.len() <= BYTES && line.len() > BYTES - 16);
        assert!(line.ends_with("(cut)\n"), "{}", &line[line.len() - 20..]);
    }

    /// What must be said goes before what waits.
    #[test]
    fn see_7_last_words_go_first() {
        let (speaker, gate) = stuck();
        let held = gate.lock().expect("no panic");
        for n in 0..2 * LINES {
            speaker.say(Topic::Seldom, format_args!("{n}"));
        }
        speaker.say_first("last words".into());
        let state = speaker.state();
        let first = state.lines.front().expect("a line");
        assert_eq!((&*first.0, first.1), ("last words", LineWeight::LastWords));
        drop(state);
        drop(held);
        assert!(speaker.flush(LONG));
    }
}
