//! [`VirtualCalls`]: the blocking calls of a host with virtual time that runs them beside its
//! tasks, on other threads, and which of them hold its clock. The native runtime and tokio
//! have one each; in the simulation calls take turns instead.
//!
//! ```text
//!              1                 4
//!   Waits ◀────────── Holds ──────────▶ Asks
//!     │   ──────────▶        5            │
//!     │        2     ◀── end of a call ───┤
//!     └───────────────────────────────────┘ 1, 3
//! ```
//! 1: its thread has been in one wait for another thread for 10 ms of real time.
//! 2: that wait is over: seen when the clock is about to move, or by the thread that looks.
//! 3: the same, of a call that asks.
//! 4: it does nothing but ask whether it is cancelled. The clock moves once for each question,
//! and no more once the answer is yes, asked for or not.
//! 5: however it ends, it holds the clock until its host has taken note.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Acquire};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use crate::base::questions::{Asks, Questions};
use crate::base::thread_activity::{Activity, ThreadFiles};

/// How often calls are looked at.
const LOOK: Duration = Duration::from_millis(1);

/// How long a call has to be in one wait for another thread until the clock may move: threads
/// of its own may work for it.
const QUIET: Duration = Duration::from_millis(10);

/// How long the thread that looks stays when there is no call.
const STAYS: Duration = Duration::from_millis(100);

/// A host whose virtual clock blocking calls hold. For authors of hosts.
pub trait CallHost: Send + Sync {
    /// One more call holds the clock.
    fn hold_for_call(&self);

    /// One less does. The clock may jump, here or on another thread.
    fn release_for_call(&self);

    /// How much holds the clock, calls included.
    fn holds(&self) -> usize;

    /// Whether it asks [`VirtualCalls::let_clock_move`] each time before its clock moves. If it
    /// cannot, a call that does nothing but ask does not hold the clock any more.
    fn is_asked(&self) -> bool {
        true
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallHold {
    Holds,
    /// Its thread waits for another, in this sleep.
    Waits(Activity),
    /// It does nothing but ask; whether it has since the clock last moved.
    Asks(bool),
}

struct WatchedCall {
    number: u64,
    host: Arc<dyn CallHost>,
    /// On which thread it is. Other threads may ask for it too.
    thread: ThreadId,
    files: ThreadFiles,
    hold: CallHold,
    /// What its thread was seen to do, and since when.
    seen: (Activity, Instant),
    questions: Questions,
    /// Where the answer to its last question stands, which may have become a yes since.
    answer: Option<Arc<AtomicBool>>,
}

impl WatchedCall {
    /// The answer is yes by now: when it asks again it has work to do.
    fn is_told(&self) -> bool {
        self.answer
            .as_ref()
            .is_some_and(|answer| answer.load(Acquire))
    }

    /// It holds the clock, if it did not.
    fn goes_on(&mut self) {
        if self.hold != CallHold::Holds {
            self.hold = CallHold::Holds;
            self.host.hold_for_call();
        }
        self.seen = (Activity::Runs, Instant::now());
    }

    /// The thread that looks, looks. True if the call held the clock and lets go of it.
    fn look(&mut self) -> bool {
        let now = self.files.look();
        if let CallHold::Waits(seen) = self.hold {
            if now != seen {
                self.goes_on();
            }
            return false;
        }
        if !matches!(now, Activity::Waits(_)) || now != self.seen.0 {
            self.seen = (now, Instant::now());
            return false;
        }
        if self.seen.1.elapsed() < QUIET {
            return false;
        }
        // One that asked lets go once more: the clock may have waited for its question.
        self.goes_on();
        self.hold = CallHold::Waits(now);
        true
    }
}

#[derive(Default)]
struct CallList {
    calls: Vec<WatchedCall>,
    next: u64,
    /// There is a thread that looks at them.
    watched: bool,
}

#[derive(Default)]
struct Inner {
    list: Mutex<CallList>,
    came: Condvar,
}

impl Inner {
    fn list(&self) -> MutexGuard<'_, CallList> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The life of the thread that looks.
    fn watch(&self) {
        loop {
            let list = self.list();
            let waited = self
                .came
                .wait_timeout_while(list, STAYS, |list| list.calls.is_empty());
            let mut list = waited.unwrap_or_else(PoisonError::into_inner).0;
            if list.calls.is_empty() {
                list.watched = false;
                return;
            }
            let quiet = list.calls.iter_mut().filter_map(|call| {
                let lets_go = call.look();
                lets_go.then(|| call.host.clone())
            });
            let quiet: Vec<_> = quiet.collect();
            drop(list);
            // Outside the lock: the clock may jump, and asks us first.
            for host in quiet {
                host.release_for_call();
            }
            std::thread::sleep(LOOK);
        }
    }

    /// The call of this number asks whether it is cancelled, and will be told `answer`.
    fn ask(&self, number: u64, answer: &Arc<AtomicBool>) {
        let mut list = self.list();
        let here = std::thread::current().id();
        let own = |call: &&mut WatchedCall| call.number == number && call.thread == here;
        let Some(call) = list.calls.iter_mut().find(own) else {
            return;
        };
        let told = answer.load(Acquire);
        if matches!(call.hold, CallHold::Asks(_)) && !call.host.is_asked() && !told {
            return;
        }
        call.goes_on();
        call.answer.get_or_insert_with(|| answer.clone());
        let (host, only_asks) = (call.host.clone(), call.questions.asks());
        let holding = |call: &&WatchedCall| call.hold == CallHold::Holds;
        let holding = list.calls.iter().filter(holding).count();
        // A question counts while nothing but calls holds the clock: a turn that goes on now
        // may be the one that cancels the call, and one that is over may have been.
        let counts = host.holds() <= holding;
        let told = answer.load(Acquire);
        let Some(call) = list.calls.iter_mut().find(own) else {
            return;
        };
        if told || !only_asks {
            // One that was told has work to do: it returns.
            return match counts {
                true => call.questions.counts(),
                false => call.questions.begin_anew(),
            };
        }
        // Held and let go: the clock looks whether it may move.
        call.hold = CallHold::Asks(counts);
        drop(list);
        host.release_for_call();
    }
}

/// The blocking calls of a host with virtual time that runs them on threads, beside its tasks,
/// and which of them hold its clock. One that waits for another thread does not, nor one that
/// does nothing but ask whether it is cancelled. For authors of hosts.
#[derive(Clone, Default)]
pub struct VirtualCalls(Arc<Inner>);

impl VirtualCalls {
    /// None is under way.
    pub fn new() -> VirtualCalls {
        VirtualCalls::default()
    }

    /// A call begins, on this thread; its host counts it as one that holds the clock. That
    /// is so again once the answer is dropped.
    pub fn begin(&self, host: Arc<dyn CallHost>) -> VirtualCall {
        let mut list = self.0.list();
        list.next += 1;
        let number = list.next;
        list.calls.push(WatchedCall {
            number,
            host,
            thread: std::thread::current().id(),
            files: ThreadFiles::here(),
            hold: CallHold::Holds,
            seen: (Activity::Runs, Instant::now()),
            questions: Questions::default(),
            answer: None,
        });
        let starts = !std::mem::replace(&mut list.watched, true);
        drop(list);
        self.0.came.notify_one();
        if starts {
            let inner = self.0.clone();
            let started = std::thread::Builder::new()
                .name("kinfolk-calls".into())
                .spawn(move || inner.watch());
            // Without it calls hold the clock until they have returned.
            self.0.list().watched = started.is_ok();
        }
        VirtualCall {
            calls: self.clone(),
            number,
        }
    }

    /// Asked when nothing else holds the clock, by the one thread that is about to move it:
    /// false if a call goes on, which holds it from here on. A host whose clock moves by
    /// itself asks after each turn.
    pub fn let_clock_move(&self) -> bool {
        let mut list = self.0.list();
        let mut moves = true;
        for call in &mut list.calls {
            moves &= match call.hold {
                CallHold::Holds => false,
                CallHold::Waits(seen) if call.files.look() == seen => true,
                CallHold::Waits(_) => {
                    call.goes_on();
                    false
                }
                CallHold::Asks(_) if call.is_told() => {
                    call.goes_on();
                    false
                }
                CallHold::Asks(asked) => asked,
            };
        }
        for call in &mut list.calls {
            if moves && call.hold == CallHold::Asks(true) {
                call.hold = CallHold::Asks(false);
            }
        }
        moves
    }
}

impl fmt::Debug for VirtualCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VirtualCalls({})", self.0.list().calls.len())
    }
}

/// A blocking call that goes on, on the thread that has this.
#[must_use = "dropping it says that the call is over"]
pub struct VirtualCall {
    calls: VirtualCalls,
    number: u64,
}

impl VirtualCall {
    /// What the call is run with, in `BlockingCall::run_asking`.
    pub fn asks(&self) -> Asks {
        let (calls, number) = (self.calls.clone(), self.number);
        Arc::new(move |answer| calls.0.ask(number, answer))
    }
}

impl Drop for VirtualCall {
    /// It holds the clock until its host has counted its end.
    fn drop(&mut self) {
        let mut list = self.calls.0.list();
        let at = list
            .calls
            .iter()
            .position(|call| call.number == self.number);
        let over = at.map(|at| list.calls.swap_remove(at));
        let over = over.map(|mut call| {
            call.goes_on();
            call
        });
        drop(list);
        // Outside the lock: its host may be the last of it.
        drop(over);
    }
}

impl fmt::Debug for VirtualCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("VirtualCall")
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::sync::mpsc::{Sender, channel};

    /// Counts what holds its clock, and says when a call lets go of it.
    struct Counting {
        holds: AtomicUsize,
        released: Mutex<Sender<Instant>>,
    }

    impl CallHost for Counting {
        fn hold_for_call(&self) {
            self.holds.fetch_add(1, SeqCst);
        }

        fn release_for_call(&self) {
            self.holds.fetch_sub(1, SeqCst);
            let _ = self.released.lock().unwrap().send(Instant::now());
        }

        fn holds(&self) -> usize {
            self.holds.load(SeqCst)
        }
    }

    /// A call that has begun holds the clock.
    fn counting() -> (Arc<Counting>, std::sync::mpsc::Receiver<Instant>) {
        let (says, released) = channel();
        let host = Counting {
            holds: AtomicUsize::new(1),
            released: Mutex::new(says),
        };
        (Arc::new(host), released)
    }

    /// The thread of a call waits: it lets go of the clock, and not before ten milliseconds.
    #[test]
    fn a_wait_is_quiet_before_the_clock_moves() {
        let calls = VirtualCalls::new();
        let (host, released) = counting();
        let (go_on, waits) = channel::<()>();
        let began = Instant::now();
        std::thread::scope(|s| {
            let (calls_there, host_there) = (calls.clone(), host.clone());
            s.spawn(move || {
                let call = calls_there.begin(host_there);
                assert!(waits.recv().is_err());
                drop(call);
            });
            assert!(released.recv().unwrap() - began >= QUIET);
            assert_eq!(host.holds(), 0);
            assert!(calls.let_clock_move(), "it waits still");
            drop(go_on);
        });
        assert_eq!(host.holds(), 1, "until its host has counted its end");
    }

    /// A question lets the clock move once, if nothing else held the clock when it was asked
    /// and the answer was no.
    #[test]
    fn the_clock_moves_once_for_each_question() {
        let calls = VirtualCalls::new();
        let (host, _released) = counting();
        let call = calls.begin(host.clone());
        let (asks, told) = (call.asks(), Arc::new(AtomicBool::new(false)));
        assert!(!calls.let_clock_move(), "it goes on");
        while host.holds() > 0 {
            asks(&told);
        }
        assert!(calls.let_clock_move());
        assert!(!calls.let_clock_move(), "it has not asked since");
        asks(&told);
        assert!(calls.let_clock_move());
        // Something else goes on, and may be what cancels it.
        host.hold_for_call();
        asks(&told);
        host.release_for_call();
        assert!(!calls.let_clock_move(), "it asked while something went on");
        told.store(true, SeqCst);
        asks(&told);
        assert_eq!(host.holds(), 1, "it was told, and has work to do");
        drop(call);
    }

    /// What cancels a call that asks makes its last answer stale: the clock stays.
    #[test]
    fn the_clock_stays_for_a_call_that_was_told_after_it_asked() {
        let calls = VirtualCalls::new();
        let (host, _released) = counting();
        let call = calls.begin(host.clone());
        let (asks, told) = (call.asks(), Arc::new(AtomicBool::new(false)));
        while host.holds() > 0 {
            asks(&told);
        }
        // A turn that has begun and ended since.
        told.store(true, SeqCst);
        assert!(!calls.let_clock_move(), "it has not heard yet");
        assert_eq!(host.holds(), 1, "until it has heard and returned");
        asks(&told);
        assert_eq!(host.holds(), 1);
        drop(call);
    }
}
