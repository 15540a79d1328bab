//! Runs a client of others as a job and cancels the job after each poll of the client in
//! turn: on tokio with one thread, on tokio with workers, and on the native runtime through
//! `within`. What the other side saw is for the tests to check.

use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll};
use std::time::Duration;

use kinfolk::see::CountersSnapshot;
use kinfolk::testkit::{GuardedRun, Sim, guarded};
use kinfolk::tokio::{Root, within};
use kinfolk::{Job, OrCancel, Outcome, Patience, Result, Scope, cleanup, current_job};
use tokio::runtime::{Builder, Handle, Runtime};

/// More polls than any of the clients takes.
const MOST_POLLS: usize = 500;

/// The hosts on which a client's job runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// A current-thread tokio runtime.
    OneThread,
    /// A tokio runtime with two workers.
    Workers,
    /// The native runtime. A tokio runtime with one worker serves the client.
    Native,
}

/// How the client is awaited in its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// By itself: no point hears the cancel, and the job is dropped without patience.
    Bare,
    /// With `or_cancel`: the client is dropped when the job is told.
    OrCancel,
    /// In `cleanup`: the cancel waits until the client is done.
    Cleanup,
}

/// How a run ended.
#[derive(Debug, PartialEq, Eq)]
pub struct Ran<T> {
    /// After which poll of the client the job was to be cancelled; 0: before the first.
    pub at: usize,
    /// How often the client was polled.
    pub polls: usize,
    /// Whether the job was cancelled.
    pub cancelled: bool,
    /// What the client returned, if it came so far.
    pub value: Option<T>,
}

/// A host, and the tokio runtime that the client needs.
pub struct Place {
    on: On,
    tokio: Runtime,
    root: Option<Root>,
    native: Option<kinfolk::Runtime>,
}

impl Place {
    fn new(on: On) -> Place {
        let mut builder = match on {
            On::OneThread => Builder::new_current_thread(),
            On::Workers | On::Native => Builder::new_multi_thread(),
        };
        if on != On::OneThread {
            builder.worker_threads(if on == On::Workers { 2 } else { 1 });
        }
        let tokio = builder.enable_all().build().expect("a tokio runtime");
        let (mut root, mut native) = (None, None);
        match on {
            // What is cancelled is dropped on purpose, and says nothing.
            On::OneThread | On::Workers => {
                let _context = tokio.enter();
                root = Some(Root::builder().on_forced(Box::new(|_| {})).build());
            }
            On::Native => {
                let builder = kinfolk::Runtime::builder().workers(1);
                let runtime = builder.on_forced(Box::new(|_| {})).build();
                native = Some(runtime.expect("a native runtime"));
            }
        }
        Place {
            on,
            tokio,
            root,
            native,
        }
    }

    /// Where it is.
    pub fn on(&self) -> On {
        self.on
    }

    fn watch(&self, watched: &GuardedRun) {
        match (&self.root, &self.native) {
            (Some(root), _) => watched.watch(root.tree()),
            (_, Some(native)) => watched.watch(native.tree()),
            _ => unreachable!("one of them is there"),
        }
    }

    fn scope(&self) -> Scope {
        match (&self.root, &self.native) {
            (Some(root), _) => root.scope(),
            (_, Some(native)) => native.scope(),
            _ => unreachable!("one of them is there"),
        }
    }

    fn counters(&self) -> CountersSnapshot {
        match (&self.root, &self.native) {
            (Some(root), _) => root.counters(),
            (_, Some(native)) => native.counters(),
            _ => unreachable!("one of them is there"),
        }
    }

    /// Runs a future of tokio's, outside any job.
    pub fn tokio<F: Future>(&self, future: F) -> F::Output {
        self.tokio.block_on(future)
    }

    /// Runs `future` as a job of this host; tokio's context is there.
    pub fn launch(&self, future: impl Future<Output = Result<()>> + Send + 'static) -> Job {
        let handle = self.tokio.handle().clone();
        let spawner = self.scope().task("server");
        spawner.launch(async move { within(&handle, future).await })
    }

    /// Lets tokio go on until `done` says so. The guard ends a wait that does not end.
    pub fn until(&self, mut done: impl FnMut() -> bool) {
        self.tokio(async {
            while !done() {
                tokio::task::yield_now().await;
            }
        });
    }

    /// Runs `client` in a job that is cancelled after poll `at` of it.
    pub fn run<T: Debug + Send + 'static>(
        &self,
        awaited: Awaited,
        at: usize,
        client: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Ran<T> {
        let polls = Arc::new(AtomicUsize::new(0));
        let counted = polls.clone();
        let handle = (self.on == On::Native).then(|| self.tokio.handle().clone());
        let patience = Patience {
            unaware: match awaited {
                Awaited::Bare => Duration::ZERO,
                Awaited::OrCancel | Awaited::Cleanup => Duration::MAX,
            },
            ..Patience::default()
        };
        let spawner = self.scope().task("client").patience(patience);
        let task = spawner.spawn(body(awaited, at, counted, handle, client));
        let outcome = match &self.native {
            Some(native) => native.wait_for(task.outcome()).expect("outside any job"),
            None => self.tokio(task.outcome()),
        };
        let (cancelled, value) = match outcome.expect("outside any job") {
            Outcome::Completed(value) => (false, Some(value)),
            Outcome::Cancelled { late, .. } => (true, late),
            other => panic!("{:?}, {awaited:?}, after poll {at}: {other:?}", self.on),
        };
        self.rests();
        Ran {
            at,
            polls: polls.load(SeqCst),
            cancelled,
            value,
        }
    }

    /// Waits until only the root is left, and every wait and timer is given up.
    pub fn rests(&self) {
        self.until(|| {
            let counters = self.counters();
            counters.living() == 1
                && counters.waiters_pending() == 0
                && counters.timers_pending() == 0
        });
    }

    /// Shuts down: nothing is left, neither jobs nor tasks of tokio's.
    fn end(mut self, watched: &GuardedRun) {
        let report = match (self.root.take(), self.native.take()) {
            (Some(root), _) => self.tokio(root.shutdown()),
            (_, Some(native)) => native.shutdown(Duration::from_secs(10)),
            _ => unreachable!("one of them is there"),
        };
        let report = report.expect("outside any job");
        assert!(report.is_clean(), "{:?}: {report}", self.on);
        // The guard has the tree, and with it the tasks that serve it.
        watched.watch(Sim::seeded(0).tree());
        self.until(|| self.tokio.metrics().num_alive_tasks() == 0);
    }
}

/// The job: the client, awaited as it is to be.
async fn body<T>(
    awaited: Awaited,
    at: usize,
    polls: Arc<AtomicUsize>,
    tokio: Option<Handle>,
    client: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    let job = current_job().expect("it is one");
    if at == 0 {
        job.cancel("before the first poll");
    }
    let client: Pin<Box<dyn Future<Output = Result<T>> + Send>> = match tokio {
        Some(handle) => Box::pin(async move { within(&handle, client).await }),
        None => Box::pin(client),
    };
    let cancels = move || {
        job.cancel("after this poll");
    };
    let client = AtPoll::new(at, polls, cancels, client);
    match awaited {
        Awaited::Bare => client.await,
        Awaited::OrCancel => client.or_cancel().await?,
        Awaited::Cleanup => cleanup(client).await,
    }
}

/// Counts the polls of a future, and calls something after one of them, unless the future
/// is ready with it.
pub struct AtPoll<F> {
    at: usize,
    polls: Arc<AtomicUsize>,
    call: Option<Box<dyn FnOnce() + Send>>,
    future: Pin<Box<F>>,
}

impl<F> AtPoll<F> {
    /// Calls `call` after poll `at` of `future`.
    pub fn new(
        at: usize,
        polls: Arc<AtomicUsize>,
        call: impl FnOnce() + Send + 'static,
        future: F,
    ) -> AtPoll<F> {
        AtPoll {
            at,
            polls,
            call: Some(Box::new(call)),
            future: Box::pin(future),
        }
    }
}

impl<F: Future> Future for AtPoll<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let polled = self.future.as_mut().poll(cx);
        let polls = self.polls.fetch_add(1, SeqCst) + 1;
        if polls == self.at
            && polled.is_pending()
            && let Some(call) = self.call.take()
        {
            call();
        }
        polled
    }
}

/// Runs `test` on `on` under a real-time guard, at the end of which nothing may be left.
pub fn at(on: On, test: impl FnOnce(&Place) + Send + 'static) {
    guarded("a client", move |watched| {
        let place = Place::new(on);
        place.watch(&watched);
        test(&place);
        place.end(&watched);
    });
}

/// Counts the polls of `client`, then runs it again and again, cancelled before its first
/// poll, after its first, its second and so on, until a run ends before it is cancelled.
/// `check` sees each run. Returns how many were cancelled.
pub fn after_each_poll<T, F>(
    place: &Place,
    awaited: Awaited,
    mut client: impl FnMut() -> F,
    mut check: impl FnMut(Ran<T>),
) -> usize
where
    T: Debug + Send + 'static,
    F: Future<Output = Result<T>> + Send + 'static,
{
    let alone = place.run(awaited, usize::MAX, client());
    assert!(!alone.cancelled && alone.value.is_some());
    // Else there is nothing between its polls.
    assert!(alone.polls > 1, "{} polls", alone.polls);
    let polls = alone.polls;
    check(alone);
    let mut cancelled = 0;
    for at in 0..MOST_POLLS {
        let ran = place.run(awaited, at, client());
        let whole = !ran.cancelled;
        match awaited {
            // It may be polled once more before it is idle.
            Awaited::Bare => {}
            Awaited::OrCancel => assert!(ran.polls <= at, "polled on: {ran:?}"),
            Awaited::Cleanup => assert!(ran.value.is_some(), "cut short: {ran:?}"),
        }
        cancelled += usize::from(ran.cancelled);
        check(ran);
        // How many there are depends on what wakes come together.
        if whole && at >= polls {
            return cancelled;
        }
    }
    panic!("more than {MOST_POLLS} polls, and {polls} at first");
}
