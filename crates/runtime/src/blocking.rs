//! Threads for code that must block: started when needed, as many as allowed,
//! gone again when they have had nothing to do for a while.

use std::cell::Cell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kinfolk_core::host::say::{Topic, say};
use kinfolk_core::host::{BlockingCall, contained};

use crate::io::IoCall;
use crate::machine::Machine;

/// How long an idle thread waits for another call.
const PATIENCE: Duration = Duration::from_secs(10);

/// With virtual time the clock waits for what is in flight. Dropped when the
/// call has returned, or when it never will be made.
pub(crate) struct CallInFlight {
    machine: Arc<Machine>,
    threads: For,
}

impl CallInFlight {
    pub(crate) fn new(machine: Arc<Machine>, threads: For) -> CallInFlight {
        machine.busy.add(1);
        CallInFlight { machine, threads }
    }

    /// Makes it, on this thread. The clock does not wait for one of a user's that waits
    /// itself.
    fn run(&self, call: BlockingCall) {
        if !self.machine.busy.counts() || self.threads != For::Users {
            return call.run();
        }
        let watched = self.machine.calls.begin(self.machine.clone());
        call.run_asking(watched.asks());
    }
}

impl Drop for CallInFlight {
    fn drop(&mut self) {
        self.machine.rested();
    }
}

/// What a thread is wanted for.
enum PoolCall {
    Job(BlockingCall, CallInFlight),
    Io(IoCall),
}

impl PoolCall {
    fn run(self, pool: &Arc<BlockingPool>) {
        match self {
            PoolCall::Job(call, flight) => {
                flight.run(call);
                drop(flight);
            }
            PoolCall::Io(call) => call.run(pool),
        }
    }
}

#[derive(Default)]
struct Queue {
    calls: VecDeque<PoolCall>,
    threads: usize,
    /// Those of them in a call that may last for ever.
    aside: usize,
    idle: usize,
    /// Calls that idle threads have been woken for and not yet taken.
    promised: usize,
    stopping: bool,
}

impl Queue {
    /// How many threads count.
    fn counted(&self) -> usize {
        self.threads - self.aside
    }
}

/// A blocking pool of a runtime: that of its jobs, that of its drivers, or that of its
/// look-ups.
pub(crate) struct BlockingPool {
    queue: Mutex<Queue>,
    came: Condvar,
    left: Condvar,
    most: usize,
    name: String,
}

impl BlockingPool {
    pub(crate) fn new(most: usize, name: String) -> BlockingPool {
        BlockingPool {
            queue: Mutex::default(),
            came: Condvar::new(),
            left: Condvar::new(),
            most,
            name,
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `call` on a thread, now or when one is free.
    pub(crate) fn run(self: &Arc<Self>, call: BlockingCall, flight: CallInFlight) {
        self.push(PoolCall::Job(call, flight));
    }

    /// The same for a call of a driver.
    pub(crate) fn run_io(self: &Arc<Self>, call: IoCall) {
        self.push(PoolCall::Io(call));
    }

    fn push(self: &Arc<Self>, call: PoolCall) {
        let starts = {
            let mut queue = self.queue();
            if queue.stopping {
                drop(queue);
                drop(call);
                return;
            }
            queue.calls.push_back(call);
            if queue.idle > queue.promised {
                queue.promised += 1;
                self.came.notify_one();
                false
            } else {
                self.wants_thread(&mut queue)
            }
        };
        if starts {
            self.start_thread();
        }
    }

    /// True if there may be one more thread, which is counted already.
    #[must_use]
    fn wants_thread(&self, queue: &mut Queue) -> bool {
        let more = queue.counted() < self.most;
        queue.threads += usize::from(more);
        more
    }

    fn start_thread(self: &Arc<Self>) {
        let pool = self.clone();
        let started = std::thread::Builder::new()
            .name(self.name.clone())
            .spawn(move || {
                // Whoever starts a thread gives it its own.
                crate::linux::usual_timers();
                pool.serve();
            });
        if let Err(error) = started {
            self.no_thread(&error);
        }
    }

    /// On one of its threads: does what may last for ever. Meanwhile the thread
    /// does not count, so that others are not kept waiting.
    pub(crate) fn aside<R>(self: &Arc<Self>, f: impl FnOnce() -> R) -> R {
        let mut queue = self.queue();
        queue.aside += 1;
        let unserved = queue.calls.len() > queue.promised;
        let starts = unserved && !queue.stopping && self.wants_thread(&mut queue);
        drop(queue);
        if starts {
            self.start_thread();
        }
        // Also if it unwinds.
        struct ThreadBack<'a>(&'a BlockingPool);
        impl Drop for ThreadBack<'_> {
            fn drop(&mut self) {
                self.0.queue().aside -= 1;
            }
        }
        let _back = ThreadBack(self);
        f()
    }

    /// The system starts no more threads. The call waits for one of ours; if
    /// there is none but those aside, which may never come back, nothing would
    /// ever run it.
    fn no_thread(&self, error: &std::io::Error) {
        let mut queue = self.queue();
        queue.threads -= 1;
        if queue.counted() > 0 {
            return;
        }
        let calls = std::mem::take(&mut queue.calls);
        drop(queue);
        say(
            Topic::Thread,
            format_args!("kinfolk: no thread for a blocking call could be started: {error}"),
        );
        drop(calls);
    }

    fn serve(self: &Arc<Self>) {
        let mut queue = self.queue();
        loop {
            if let Some(call) = queue.calls.pop_front() {
                drop(queue);
                // What it calls and drops of the user's is contained; were
                // something of ours to unwind, the thread goes on.
                contained(|| call.run(self));
                queue = self.queue();
                // It was aside, and another has its place.
                if queue.counted() > self.most {
                    break;
                }
                continue;
            }
            if queue.stopping {
                break;
            }
            queue.idle += 1;
            let (back, waited) = match self.came.wait_timeout(queue, PATIENCE) {
                Ok(answer) => answer,
                Err(poisoned) => poisoned.into_inner(),
            };
            queue = back;
            queue.idle -= 1;
            queue.promised = queue.promised.saturating_sub(1);
            if waited.timed_out() && queue.calls.is_empty() {
                break;
            }
        }
        queue.threads -= 1;
        drop(queue);
        self.left.notify_all();
    }

    /// Takes no more calls, drops those that have not begun, and waits for the
    /// threads to leave. Those that are still in a call then are left behind.
    pub(crate) fn stop(&self, wait: Duration) {
        let mut queue = self.queue();
        queue.stopping = true;
        let calls = std::mem::take(&mut queue.calls);
        drop(queue);
        drop(calls);
        self.came.notify_all();
        let queue = self.queue();
        let _ = self
            .left
            .wait_timeout_while(queue, wait, |queue| queue.threads > 0);
    }

    /// How many calls wait for a thread.
    pub(crate) fn len(&self) -> usize {
        self.queue().calls.len()
    }
}

/// Which threads a blocking call is for. Calls of the runtime's own have others than
/// those of users, which may take all of theirs for as long as they like.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum For {
    /// Calls of users.
    Users,
    /// Short calls on files, beside those of drivers.
    Files,
    /// Names that are looked up: they take their time, and files do not wait for them.
    Names,
}

std::thread_local! {
    static FOR: Cell<For> = const { Cell::new(For::Users) };
}

/// Which threads a blocking call is for that begins here and now.
pub(crate) fn wanted() -> For {
    FOR.try_with(Cell::get).unwrap_or(For::Users)
}

/// Says for the time of a poll which threads are wanted. A blocking call knows its host
/// alone, which asks here.
struct Wanted(For);

impl Wanted {
    fn set(threads: For) -> Wanted {
        Wanted(FOR.try_with(|now| now.replace(threads)).unwrap_or(threads))
    }
}

impl Drop for Wanted {
    fn drop(&mut self) {
        let _ = FOR.try_with(|now| now.set(self.0));
    }
}

/// `call`, on those threads.
pub(crate) async fn on_threads<F: Future>(threads: For, call: F) -> F::Output {
    let mut call = pin!(call);
    poll_fn(|cx| {
        let _wanted = Wanted::set(threads);
        call.as_mut().poll(cx)
    })
    .await
}
