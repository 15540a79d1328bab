//! The thread that hears Ctrl-C and SIGTERM, and from the first on keeps the time of the
//! shutdown: the second goes to the last step at once, the third ends the process.
//!
//! ```text
//! first signal      the root is cancelled
//!   + 1 s           who is still there, and why, is said, and the sink is told
//!   + grace         shields and guards are lifted, leases revoked
//!   + grace + 1 s   what is parked is dropped          ◀── second signal
//!   + 1 s           main has not returned: the report, and the process ends
//! third signal      abort
//! ```
//!
//! The handler itself only counts and writes one byte to a pipe; a thread reads it and
//! keeps the time. That thread waits for no other: whatever calls code of the user's (the
//! hooks of a cancel, wakers, a clock of the user's) is done by a thread of its own for
//! each step, so that one that does not come back holds up no later step.

use std::fmt;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kinfolk_core::host::say::{MOMENT, Topic, flush, say};
use kinfolk_core::host::{RealGrace, ShutdownSteps};
use kinfolk_core::{FORCE, ReasonKind, ShutdownReport, Tree};

use crate::GraceInRealTime;
use crate::wire::Wire;

/// What ends the reader.
const STOP: u8 = 0;

/// The byte of the first signal.
const FIRST: u8 = 1;

/// A signal that comes sooner after the last one that counted does not count: a shell and
/// a parent process may both pass one Ctrl-C on.
const APART: u64 = 200;

/// When it is said who is still there.
const STUCK: Duration = Duration::from_secs(1);

/// How long after the drop of what is parked main has to return.
const LAST: Duration = Duration::from_secs(1);

/// How long after that a host that has begun to shut down has until it must have ended.
const HOME: Duration = Duration::from_secs(2);

/// How long the end of the process waits for a sink that keeps a record.
const MOST_TOLD: Duration = Duration::from_secs(2);

/// The longest wait of the reader at a time.
const LONGEST: Duration = Duration::from_secs(3600);

/// Hears Ctrl-C and SIGTERM for a tree, and shuts it down from the first on. Signals are
/// heard while this lives.
///
/// From the first signal on everything is cancelled; after a second standard error names
/// what is still there; at the grace shields are lifted, and a second later what is parked
/// is dropped. If the host has not come to its end a second after that, a report names what
/// is left, and the process ends with 128 and the number of the signal. A second signal goes
/// to the last step at once, a third aborts the process. A signal within 200 ms of the last
/// one that counted does not count.
pub struct MainSignals {
    wire: Wire,
    reader: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
}

/// What the handler, the reader and the main thread know of each other.
struct Shared {
    tree: Tree,
    real_grace: GraceInRealTime,
    grace: Duration,
    quiet: bool,
    site: &'static Location<'static>,
    /// How many signals have counted.
    count: AtomicU32,
    /// When the last of them came, in milliseconds; zero if none did.
    last: AtomicU64,
    /// The number of the first.
    first: AtomicI32,
    /// The host shuts down, or is dropped.
    ends: AtomicBool,
    /// The sink is told of the shutdown.
    tells: AtomicBool,
    /// It was.
    told: Mutex<bool>,
    heard: Condvar,
    times: Mutex<Times>,
}

/// What has happened when.
#[derive(Default)]
struct Times {
    /// The first signal came.
    began: Option<Instant>,
    /// What is parked was dropped.
    forced: Option<Instant>,
    /// What gives the host its grace in real time.
    real: Option<RealGrace>,
}

/// Milliseconds of a clock that never goes back, never zero. For signal handlers.
fn millis() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: clock_gettime may be called in a signal handler, and writes to `now`.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    (now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000).max(1)
}

impl Shared {
    /// In the handler: which signal this is, if it counts.
    fn hear(&self, signal: i32) -> Option<u8> {
        let (last, now) = (self.last.load(SeqCst), millis());
        if last != 0 && now.saturating_sub(last) < APART {
            return None;
        }
        // Another thread may be in the handler too: then that signal came at once.
        self.last.compare_exchange(last, now, SeqCst, SeqCst).ok()?;
        let times = self.count.fetch_add(1, SeqCst) + 1;
        let _ = self.first.compare_exchange(0, signal, SeqCst, SeqCst);
        if times > 2 {
            // SAFETY: abort may be called in a signal handler.
            unsafe { libc::abort() };
        }
        Some(times as u8)
    }

    fn times(&self) -> MutexGuard<'_, Times> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, words: std::fmt::Arguments<'_>) {
        if !self.quiet {
            say(Topic::Seldom, format_args!("kinfolk: {words}"));
        }
    }

    /// The first step: the cancel.
    fn cancel(self: &Arc<Self>) {
        let this = self.clone();
        aside(move || {
            let name = name(this.first.load(SeqCst));
            let tree = &this.tree;
            tree.request_shutdown_for(ReasonKind::Shutdown, name, this.site);
            // A clock of the user's may not come back: last.
            let real = (this.real_grace)(this.grace);
            this.times().real = real;
        });
    }

    /// Says who is still there, if any job is; and then the sink is told.
    fn say_stuck(self: &Arc<Self>) {
        let this = self.clone();
        aside(move || {
            let stuck = this.tree.snapshot().stuck(STUCK);
            if !stuck.is_empty() {
                this.say(format_args!("{stuck}"));
                this.tell_of_trouble("stuck after");
            }
        });
    }

    /// Tells the sink of the shutdown, once: it may keep a record of how that went.
    fn tell_of_trouble(&self, how: &str) {
        if self.tells.swap(true, SeqCst) {
            return;
        }
        let signal = name(self.first.load(SeqCst));
        if let Some(done) = self.tree.tell_of_trouble(&format!("{how} {signal}")) {
            self.say(format_args!("{done}"));
            // The process may be over as soon as this is done.
            flush(MOMENT);
        }
        *self.is_told() = true;
        self.heard.notify_all();
    }

    /// The same before the process may end, and waits for it a moment: a sink of the user's
    /// may not come back.
    fn tell_of_the_end(self: &Arc<Self>) {
        if !self.tells.load(SeqCst) {
            let this = self.clone();
            aside(move || this.tell_of_trouble("stopped by"));
        }
        let told = self.is_told();
        let waited = self
            .heard
            .wait_timeout_while(told, MOST_TOLD, |told| !*told);
        drop(waited);
    }

    fn is_told(&self) -> MutexGuard<'_, bool> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lift(&self) {
        let tree = self.tree.clone();
        aside(move || tree.lift());
    }

    fn force(&self) {
        let tree = self.tree.clone();
        aside(move || tree.force());
    }

    /// The process ends here: main does not return.
    fn exit(self: &Arc<Self>, report: &ShutdownReport) -> ! {
        self.say(format_args!("{report}"));
        self.tell_of_the_end();
        flush(MOMENT);
        // Neither destructors nor what the program has registered for its exit: they may
        // wait for a thread that does not return.
        // SAFETY: it takes no pointers, and returns no more.
        unsafe { libc::_exit(128 + self.first.load(SeqCst)) }
    }
}

/// Runs `f` on a thread of its own; here, if the system starts none.
fn aside(f: impl FnOnce() + Send + 'static) {
    let kept = Arc::new(Mutex::new(Some(f)));
    let take = |kept: &Mutex<Option<_>>| kept.lock().unwrap_or_else(PoisonError::into_inner).take();
    let its = kept.clone();
    let started = std::thread::Builder::new()
        .name("kinfolk-stops".into())
        .spawn(move || {
            if let Some(f) = take(&its) {
                f();
            }
        });
    if started.is_err()
        && let Some(f) = take(&kept)
    {
        f();
    }
}

/// What a reason calls it.
fn name(signal: i32) -> &'static str {
    match signal {
        libc::SIGINT => "SIGINT (Ctrl-C)",
        _ => "SIGTERM",
    }
}

/// The thread that keeps the time.
struct SignalReader {
    read: UnixStream,
    shared: Arc<Shared>,
}

/// What the reader has found in the pipe.
enum SignalByte {
    /// The runtime is over.
    Stop,
    Signal(u8),
    /// The wait is over.
    Nothing,
}

impl SignalReader {
    /// The next byte, waited for as long at most.
    fn next(&mut self, most: Duration) -> SignalByte {
        let mut byte = [STOP];
        let most = most.clamp(Duration::from_millis(1), LONGEST);
        if self.read.set_read_timeout(Some(most)).is_err() {
            return SignalByte::Stop;
        }
        match self.read.read(&mut byte) {
            Ok(1) if byte[0] != STOP => SignalByte::Signal(byte[0]),
            Ok(_) => SignalByte::Stop,
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock
                | io::ErrorKind::TimedOut
                | io::ErrorKind::Interrupted => SignalByte::Nothing,
                _ => SignalByte::Stop,
            },
        }
    }

    fn run(mut self) {
        loop {
            match self.next(LONGEST) {
                SignalByte::Stop => return,
                SignalByte::Signal(FIRST) => break,
                SignalByte::Signal(_) | SignalByte::Nothing => {}
            }
        }
        self.shut_down();
    }

    /// From the first signal on.
    fn shut_down(&mut self) {
        let shared = self.shared.clone();
        let began = Instant::now();
        shared.times().began = Some(began);
        // It acts first: what is said may be heard late, or never.
        shared.cancel();
        shared.say(format_args!(
            "shutting down (Ctrl-C again to drop tasks that have not stopped)"
        ));
        let mut steps = ShutdownSteps::new(shared.tree.clone());
        // A little more than a second after the cancel, wherever that is done.
        let mut stuck = Some(STUCK + Duration::from_millis(50));
        let mut lift = Some(shared.grace);
        let last = shared.grace.saturating_add(FORCE);
        let mut forced: Option<Duration> = None;
        loop {
            let now = began.elapsed();
            let is_due = |at: &mut Option<Duration>| at.take_if(|at| *at <= now).is_some();
            if forced.is_none() && is_due(&mut lift) {
                steps.note_late();
                shared.lift();
            }
            if forced.is_none() && last <= now {
                forced = Some(now);
                self.force();
            }
            if forced.is_none() && is_due(&mut stuck) {
                shared.say_stuck();
            }
            let end = forced.map(|at| match shared.ends.load(SeqCst) {
                true => at + LAST + HOME,
                false => at + LAST,
            });
            if end.is_some_and(|end| end <= now) {
                shared.exit(&steps.report(now));
            }
            let next = match end {
                Some(end) => end,
                None => [stuck, lift]
                    .into_iter()
                    .flatten()
                    .fold(last, Duration::min),
            };
            match self.next(next.saturating_sub(began.elapsed())) {
                SignalByte::Stop => return shared.tell_of_the_end(),
                SignalByte::Signal(_) if forced.is_none() => {
                    forced = Some(began.elapsed());
                    self.force();
                    shared.say(format_args!(
                        "dropping tasks that have not stopped (Ctrl-C again to abort)"
                    ));
                }
                SignalByte::Signal(_) | SignalByte::Nothing => {}
            }
        }
    }

    fn force(&self) {
        self.shared.times().forced = Some(Instant::now());
        self.shared.force();
    }
}

impl MainSignals {
    /// Begins to listen for `tree`, whose shutdown has that grace. `site` is the line that
    /// the reason of its cancel names; `real_grace` is called at the first signal, for a
    /// host whose clock may stand still.
    ///
    /// # Errors
    /// If the signals cannot be heard, or the system starts no thread.
    pub fn listen(
        tree: Tree,
        site: &'static Location<'static>,
        grace: Duration,
        quiet: bool,
        real_grace: GraceInRealTime,
    ) -> io::Result<MainSignals> {
        let shared = Arc::new(Shared {
            tree,
            real_grace,
            grace,
            quiet,
            site,
            count: AtomicU32::new(0),
            last: AtomicU64::new(0),
            first: AtomicI32::new(0),
            ends: AtomicBool::new(false),
            tells: AtomicBool::new(false),
            told: Mutex::default(),
            heard: Condvar::new(),
            times: Mutex::default(),
        });
        let heard = {
            let shared = shared.clone();
            move |signal| shared.hear(signal)
        };
        // SAFETY: the handler uses atomics, a clock of the system and abort only.
        let (wire, read) = unsafe { Wire::new(&[libc::SIGINT, libc::SIGTERM], heard) }?;
        let its = shared.clone();
        let reader = std::thread::Builder::new()
            .name("kinfolk-signals".into())
            .spawn(move || SignalReader { read, shared: its }.run())?;
        Ok(MainSignals {
            wire,
            reader: Some(reader),
            shared,
        })
    }

    /// The host comes to its end. If a signal has come: what is left of the grace, and
    /// how long after that what is parked is to be dropped.
    pub fn ends(&self) -> Option<(Duration, Duration)> {
        self.shared.ends.store(true, SeqCst);
        let times = self.shared.times();
        let passed = times.began?.elapsed();
        if times.forced.is_some() {
            return Some((Duration::ZERO, Duration::ZERO));
        }
        let grace = self.shared.grace.saturating_sub(passed);
        let force = self
            .shared
            .grace
            .saturating_add(FORCE)
            .saturating_sub(passed);
        Some((grace, force.min(FORCE)))
    }

    /// The number of the first signal that came, if one did.
    pub fn first(&self) -> Option<i32> {
        Some(self.shared.first.load(SeqCst)).filter(|signal| *signal != 0)
    }
}

impl Drop for MainSignals {
    fn drop(&mut self) {
        self.wire.cut();
        if self.wire.send(STOP).is_ok()
            && let Some(reader) = self.reader.take()
            // What a step calls, if the system starts no thread for it, may drop the host.
            && reader.thread().id() != std::thread::current().id()
        {
            let _ = reader.join();
        }
    }
}

impl fmt::Debug for MainSignals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = self.first();
        f.debug_struct("MainSignals")
            .field("first", &first)
            .finish()
    }
}
