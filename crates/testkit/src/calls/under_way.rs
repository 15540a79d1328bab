//! The blocking calls of one simulation that have begun and have not returned.

use std::panic::Location;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kinfolk_core::host::say::{Topic, say};
use kinfolk_core::host::{Activity, BlockingCall, ContainedPanics};

use super::baton::{At, Baton};
use super::crew::{self, Thread};

/// How often a running call is looked at.
const LOOK: Duration = Duration::from_millis(1);

/// For so many looks in a row a call must be in the same sleep before it counts as
/// waiting for another thread.
const SURE: u32 = 3;

/// For so many looks a call may sleep for another cause before the simulation goes on
/// beside it.
const ASLEEP: u32 = 100;

/// How long a call may run before the simulation goes on beside it.
const RUNS: Duration = Duration::from_secs(1);

/// How long a call must wait for another thread before the clock may move: threads
/// that the call has started may work for it.
const QUIET: Duration = Duration::from_millis(10);

/// How long the clock waits for a call that is not seen to wait.
const PATIENCE: Duration = Duration::from_secs(2);

/// A call that the simulation does not wait for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beside {
    /// The call waits for another thread.
    Waits,
    /// The call sleeps for another cause, or has been running for long.
    Unseen,
}

struct Call {
    site: &'static Location<'static>,
    thread: Thread,
    baton: Arc<Baton>,
    /// The count of events in the simulation when the call last asked; see
    /// [`UnderWay::fresh`].
    asked_at: u64,
    beside: Beside,
    /// Since when the simulation has not waited for the call.
    since: Instant,
}

/// Where those calls were made that a simulation has not waited for although they did
/// not wait for another thread: the seed does not decide what they do.
#[derive(Clone, Default)]
pub(crate) struct Unseen(Arc<Mutex<Vec<&'static Location<'static>>>>);

impl Unseen {
    fn note(&self, site: &'static Location<'static>) {
        let mut sites = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !sites.contains(&site) {
            sites.push(site);
        }
    }

    /// In words; none if there are no such calls.
    pub(crate) fn sites(&self) -> Option<String> {
        let sites = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let words = sites
            .iter()
            .map(|at| format!("{}:{}", at.file(), at.line()));
        (!sites.is_empty()).then(|| words.collect::<Vec<_>>().join(", "))
    }
}

/// The blocking calls of one simulation that have begun and have not returned.
#[derive(Default)]
pub(crate) struct UnderWay {
    /// Calls that have asked whether they are cancelled, and wait for the
    /// simulation.
    asked: Vec<Call>,
    /// Calls for which the simulation does not wait.
    beside: Vec<Call>,
    unseen: Unseen,
}

impl UnderWay {
    /// True if every call that has begun has returned.
    pub(crate) fn is_empty(&self) -> bool {
        self.asked.is_empty() && self.beside.is_empty()
    }

    pub(crate) fn unseen(&self) -> Unseen {
        self.unseen.clone()
    }

    /// How many calls have asked before the latest event: a call that asks again and again
    /// goes on only after an event, so that the clock can move. `happened` counts events.
    pub(crate) fn fresh(&self, happened: u64) -> usize {
        let fresh = self.asked.iter().filter(|call| call.asked_at != happened);
        fresh.count()
    }

    /// Begins `call` and waits for it. When the call asks, `idle` says whether the
    /// simulation has nothing else to do.
    pub(crate) fn begin(
        &mut self,
        call: BlockingCall,
        idle: impl Fn() -> bool + Send + Sync + 'static,
        happened: u64,
    ) {
        let site = call.site();
        let thread = match Thread::take() {
            Ok(thread) => thread,
            Err(error) => {
                say(
                    Topic::Thread,
                    format_args!("kinfolk: no thread for a blocking call: {error}"),
                );
                // The waiter learns that the call was never made.
                return drop(call);
            }
        };
        let baton = Arc::new(Baton::new(crew::here()));
        let (asks, own) = (baton.clone(), baton.clone());
        let panics = ContainedPanics::here();
        thread.run(move || {
            // A panic that is contained there belongs to the test too.
            let _collected = panics.map(ContainedPanics::collect_here);
            own.begins();
            // Also if code of this crate unwinds: the simulation waits for
            // this.
            let _over = Over(&own);
            call.run_asking(Arc::new(move |_| asks.ask(&idle)));
        });
        let call = Call {
            site,
            thread,
            baton,
            asked_at: 0,
            beside: Beside::Unseen,
            since: Instant::now(),
        };
        self.watch(call, happened);
    }

    /// A call that has asked goes on: the `nth` of the [fresh](UnderWay::fresh)
    /// ones.
    pub(crate) fn go_on(&mut self, nth: usize, happened: u64) {
        let asked = self.asked.iter().enumerate();
        let mut fresh = asked.filter(|(_, call)| call.asked_at != happened);
        let Some((at, _)) = fresh.nth(nth) else {
            return;
        };
        let call = self.asked.swap_remove(at);
        call.baton.pass();
        self.watch(call, happened);
    }

    /// Waits for a running call, until it has returned, has asked, or waits itself.
    fn watch(&mut self, mut call: Call, happened: u64) {
        let began = Instant::now();
        let (mut asleep, mut waits) = (0, 0);
        let mut before = Activity::Runs;
        loop {
            match call.baton.wait(LOOK) {
                At::Over => return call.thread.give_back(),
                At::Asked => {
                    call.asked_at = happened;
                    return self.asked.push(call);
                }
                At::Goes => {}
            }
            let seen = call.thread.look();
            match seen {
                Activity::Waits(_) if seen == before => waits += 1,
                _ => waits = 0,
            }
            before = seen;
            asleep += u32::from(seen == Activity::Sleeps);
            call.beside = match seen {
                _ if waits + 1 >= SURE => Beside::Waits,
                _ if asleep >= ASLEEP || began.elapsed() >= RUNS => {
                    self.unseen.note(call.site);
                    Beside::Unseen
                }
                _ => continue,
            };
            call.since = Instant::now();
            return self.beside.push(call);
        }
    }

    /// Looks at the calls beside the simulation and at those that have asked, and waits for
    /// those that run; true if there are any.
    pub(crate) fn look(&mut self, happened: u64) -> bool {
        let mut any = false;
        let has_taken = |call: &mut Call| call.baton.at() != At::Asked;
        let taken: Vec<_> = self.asked.extract_if(.., has_taken).collect();
        for call in taken {
            any = true;
            self.unseen.note(call.site);
            self.watch(call, happened);
        }
        let mut at = 0;
        while let Some(call) = self.beside.get(at) {
            let goes_on = match call.beside {
                _ if call.baton.at() != At::Goes => true,
                Beside::Waits => !call.thread.waits(),
                Beside::Unseen => call.thread.waits(),
            };
            if goes_on {
                any = true;
                let call = self.beside.remove(at);
                let beside = self.beside.len();
                self.watch(call, happened);
                // The call waits again: it was put behind the others, and was
                // looked at.
                if self.beside.len() > beside {
                    let call = self.beside.pop();
                    self.beside.splice(at..at, call);
                    at += 1;
                }
            } else {
                at += 1;
            }
        }
        any
    }

    /// True if the clock must wait for one of them.
    pub(crate) fn hold_clock(&self) -> bool {
        self.beside.iter().any(|call| {
            let waits = match call.beside {
                Beside::Waits => QUIET,
                Beside::Unseen => PATIENCE,
            };
            call.since.elapsed() < waits
        })
    }

    /// True if all of them wait for another thread, or ask whether they are
    /// cancelled.
    pub(crate) fn all_wait(&self) -> bool {
        let mut beside = self.beside.iter();
        beside.all(|call| call.beside == Beside::Waits)
    }

    /// The activity of each call, in words.
    pub(crate) fn describe(&self) -> String {
        let asked = self.asked.iter().map(|call| {
            let what = "asks whether it is cancelled, and is not";
            (call.site, what)
        });
        let beside = self.beside.iter().map(|call| {
            let what = match call.beside {
                Beside::Waits => "waits for another thread or a task",
                Beside::Unseen => "sleeps, computes or waits for the system",
            };
            (call.site, what)
        });
        let words = asked.chain(beside).map(|(site, what)| {
            format!(
                "the blocking call at {}:{} {what}",
                site.file(),
                site.line()
            )
        });
        words.collect::<Vec<_>>().join("; ")
    }
}

impl Drop for UnderWay {
    /// The calls that are left go on without the simulation, and their threads end
    /// after them.
    fn drop(&mut self) {
        for call in self.asked.iter().chain(&self.beside) {
            call.baton.let_go();
        }
    }
}

/// The call has returned.
struct Over<'a>(&'a Baton);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.over();
    }
}
