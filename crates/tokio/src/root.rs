//! The root of a tree on tokio: made on first use, one per tokio runtime, or built with
//! options (`builder.rs`).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kinfolk_core::host::say::{Topic, say};
use kinfolk_core::{
    CountersSnapshot, Error, FORCE, Gauges, Inline, IntoOutcome, Just, ReasonKind, Result, Scope,
    ShutdownReport, TimerToken, Tree, TreeSnapshot, kit,
};
use kinfolk_signals::{MainEnded, MainSignals, Manner};
use tokio::runtime::{Handle, Id};

use crate::builder::RootBuilder;
use crate::machine::{Machine, real_grace};

/// The roots made on first use, by tokio runtime. An entry whose keeper has
/// been dropped belongs to a runtime that is gone.
static ROOTS: Mutex<Option<HashMap<Id, Root>>> = Mutex::new(None);

/// The list of them, locked. A root is built outside the lock: its sink and its clock are code
/// of the program's, and may ask for the current root.
pub(crate) struct Roots {
    // Dropped before those that are over: their trees go outside the lock.
    list: MutexGuard<'static, Option<HashMap<Id, Root>>>,
    _over: Vec<Root>,
}

impl Roots {
    pub(crate) fn lock() -> Roots {
        let mut list = ROOTS.lock().unwrap_or_else(PoisonError::into_inner);
        let mut over = Vec::new();
        // The same number may come again for another runtime.
        list.get_or_insert_default().retain(|_, root| {
            let is_over = root.is_over();
            if is_over {
                over.push(root.clone());
            }
            !is_over
        });
        Roots { list, _over: over }
    }

    pub(crate) fn get(&self, id: Id) -> Option<Root> {
        self.list.as_ref()?.get(&id).cloned()
    }

    /// Inserts the current root of a tokio runtime that has none, or returns the one it has.
    pub(crate) fn insert_first(&mut self, id: Id, root: &Root) -> Option<Root> {
        match self.list.get_or_insert_default().entry(id) {
            Entry::Occupied(first) => Some(first.get().clone()),
            Entry::Vacant(place) => {
                place.insert(root.clone());
                None
            }
        }
    }
}

/// The root of a job tree on a tokio runtime.
///
/// Dropping the last clone of it cancels everything below it and waits for
/// nothing. [`shutdown`](Root::shutdown) waits. The root of
/// [`Root::current`] lives as long as its tokio runtime.
#[derive(Clone)]
pub struct Root(Arc<Inner>);

struct Inner {
    tree: Tree,
    machine: Arc<Machine>,
    manner: Manner,
    /// Until its end.
    hears: Mutex<Option<MainSignals>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.tree.request_shutdown(ReasonKind::Shutdown);
    }
}

impl Root {
    /// A root with options.
    pub fn builder() -> RootBuilder {
        RootBuilder::new()
    }

    /// The root of the current tokio runtime, made on first use.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[track_caller]
    pub fn current() -> Root {
        let id = Handle::try_current().map(|handle| handle.id());
        let Ok(id) = id else {
            return Root::builder().build();
        };
        let current = Roots::lock().get(id);
        if let Some(root) = current {
            return root;
        }
        // Built outside the lock; another thread may be first, whose root then counts.
        let root = Root::builder().build();
        let first = Roots::lock().insert_first(id, &root);
        first.unwrap_or(root)
    }

    fn is_over(&self) -> bool {
        self.0.machine.burial.is_gone() || self.0.tree.root_job().is_ended()
    }

    /// The tree.
    pub fn tree(&self) -> &Tree {
        &self.0.tree
    }

    /// A scope that spawns below the root.
    pub fn scope(&self) -> Scope {
        self.0.tree.root_scope()
    }

    /// The living jobs.
    pub fn snapshot(&self) -> TreeSnapshot {
        self.0.tree.snapshot()
    }

    /// The counters.
    pub fn counters(&self) -> CountersSnapshot {
        self.0.tree.counters()
    }

    /// Runs `future` as a task below the root and awaits it. Dropping the
    /// returned future cancels the task.
    ///
    /// # Cancellation
    /// *Not a point*; as awaiting a [`Task`](kinfolk_core::Task).
    pub async fn run<F>(&self, future: F) -> Result<<F::Output as IntoOutcome>::Value>
    where
        F: Future<Output: IntoOutcome<Value: Send>> + Send + 'static,
    {
        self.scope().task("main").spawn(future).await
    }

    /// Runs `future`, which need not be `Send`, as a task of the main lane and awaits it: on the
    /// thread of the `LocalSet` that a [local](RootBuilder::local) root was built in. Dropping
    /// the returned future cancels the task.
    ///
    /// ```
    /// # mod kinfolk { pub use kinfolk_core::*; pub mod tokio { pub use kinfolk_tokio::*; } }
    /// use std::rc::Rc;
    ///
    /// use kinfolk::{Error, Main, scope};
    /// use kinfolk::tokio::Root;
    ///
    /// # fn main() -> kinfolk::Result<()> {
    /// let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    /// let set = tokio::task::LocalSet::new();
    /// set.block_on(&runtime, async {
    ///     let root = Root::builder().local().build();
    ///     let sum = root.run_local(async {
    ///         let here = Main::here().ok_or_else(|| Error::msg("on the main lane"))?;
    ///         let half = Rc::new(21);
    ///         scope(async |s| {
    ///             let theirs = half.clone();
    ///             let other = s.task("half").on(here).spawn(async move { *theirs });
    ///             Ok(*half + other.await?)
    ///         })
    ///         .await
    ///     });
    ///     assert_eq!(sum.await?, 42);
    ///     root.shutdown().await?;
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// That of the task; on a root that is not local, and on another thread.
    ///
    /// # Cancellation
    /// *Not a point*; as awaiting a [`Task`](kinfolk_core::Task).
    pub async fn run_local<F>(&self, future: F) -> Result<<F::Output as IntoOutcome>::Value>
    where
        F: Future<Output: IntoOutcome> + 'static,
    {
        let here = self.0.machine.main.as_ref().and(self.tree().on_main());
        let Some(here) = here else {
            return Err(Error::msg(
                "run_local needs a root that was built with `local`, and the thread of its \
                 LocalSet",
            ));
        };
        self.scope().task("main").on(here).spawn(future).await
    }

    /// Makes a job below the root of a future that the caller polls: in a tokio task, in a
    /// handler, in `block_on`; see [`Scope::host`].
    ///
    /// # Cancellation
    /// As [`Scope::host`].
    #[track_caller]
    pub fn enter<F>(&self, future: F) -> Inline<Just<F>>
    where
        F: Future<Output: IntoOutcome>,
    {
        self.scope().host(future)
    }

    /// Runs what `factory` makes once, after `wait`, below the root; see [`Scope::delay`].
    #[track_caller]
    pub fn delay<F, R>(&self, wait: Duration, factory: F) -> TimerToken
    where
        F: FnOnce() -> R + Send + 'static,
        R: Future<Output: IntoOutcome<Value: Send>> + Send + 'static,
    {
        self.scope().delay(wait, factory)
    }

    /// Runs what `factory` makes at once and then every `period`, below the root; see
    /// [`Scope::interval`].
    ///
    /// # Errors
    /// If the period is zero.
    #[track_caller]
    pub fn interval<F, R>(&self, period: Duration, factory: F) -> Result<TimerToken>
    where
        F: FnMut() -> R + Send + 'static,
        R: Future<Output: IntoOutcome<Value: Send>> + Send + 'static,
    {
        self.scope().interval(period, factory)
    }

    /// How much there is to do: jobs alive, turns that wait, the next timer, the length of
    /// each queue.
    pub fn gauges(&self) -> Gauges {
        self.0.tree.gauges()
    }

    /// Cancels everything without waiting. For jobs; others await
    /// [`shutdown`](Root::shutdown).
    #[track_caller]
    pub fn request_shutdown(&self) -> bool {
        self.0.tree.request_shutdown(ReasonKind::Shutdown)
    }

    /// Shuts the tree down with the [`grace`](RootBuilder::grace) of the root, ten seconds
    /// unless it was built with another; see [`shutdown_in`](Root::shutdown_in).
    ///
    /// # Cancellation
    /// *Not a point.*
    pub async fn shutdown(&self) -> Result<ShutdownReport> {
        self.shutdown_in(self.0.manner.grace).await
    }

    /// Cancels everything and waits; at `grace` lifts shields and guards and
    /// revokes leases; a second later drops every parked future. The report
    /// names the tasks that did not end. An error inside a job. After a
    /// [signal](RootBuilder::signals) it goes on where that shutdown is.
    ///
    /// It ends in real time, whatever the clock of the root does, while every worker of
    /// tokio's is in a long poll, and also if the tokio runtime is gone: from the grace
    /// on, a thread of its own keeps time. A root with a clock of the program's goes by
    /// real time from the beginning of its shutdown on.
    ///
    /// # Cancellation
    /// *Not a point.*
    pub async fn shutdown_in(&self, grace: Duration) -> Result<ShutdownReport> {
        if kit::current_id().is_some() {
            // It is an error there, and nothing begins.
            return self.0.tree.shutdown(grace, FORCE).await;
        }
        self.end(grace).await.0
    }

    /// Runs `future` as the main job, then shuts the root down. What goes wrong is said on
    /// standard error: the error of main with the names of the jobs from the root to the one
    /// that failed, and what was in the way of the shutdown. The answer is for the `main` of
    /// the program to return.
    ///
    /// | main | exit code |
    /// |---|---|
    /// | returned a value | 0 |
    /// | failed | 1 |
    /// | returned the `Cancelled` of a [signal](RootBuilder::signals) | 0 for SIGTERM, 130 for SIGINT: a shell that runs it in a loop must see its Ctrl-C |
    /// | did not fail, and after a signal some job was dropped or left | 128 and the number of the signal |
    ///
    /// ```
    /// # mod kinfolk { pub mod tokio { pub use kinfolk_tokio::*; } }
    /// use std::process::ExitCode;
    ///
    /// #[tokio::main]
    /// async fn main() -> ExitCode {
    ///     let root = kinfolk::tokio::Root::builder().signals(true).build_current();
    ///     let root = root.expect("the first root of this runtime");
    ///     root.run_main(async { println!("served") }).await
    /// }
    /// ```
    ///
    /// After it returns, drop the tokio runtime with `shutdown_timeout` or
    /// `shutdown_background` if a blocking call may have been left: a plain drop waits for
    /// the call.
    ///
    /// # Panics
    /// If main panicked, or if it is awaited inside a job.
    ///
    /// # Cancellation
    /// *Not a point.* Dropping the returned future cancels main.
    pub async fn run_main<F>(&self, future: F) -> ExitCode
    where
        F: Future<Output: IntoOutcome<Value: Send>> + Send + 'static,
    {
        assert!(
            kit::current_id().is_none(),
            "run_main was awaited inside a job, which it would wait for: await it outside any job"
        );
        let outcome = self.scope().task("main").spawn(future).outcome().await;
        let ended = match outcome {
            Ok(outcome) => MainEnded::of(outcome, self.first_signal().is_some()),
            Err(told) => MainEnded::Failed(told.into()),
        };
        let (report, signal) = self.end(self.0.manner.grace).await;
        ended.exit_code(report, signal, self.0.manner)
    }
}

impl Root {
    /// Shuts it down with that grace, or with what a signal has left of it; the signal too.
    /// From then on it hears none.
    async fn end(&self, grace: Duration) -> (Result<ShutdownReport>, Option<i32>) {
        let left = self.hears().as_ref().and_then(MainSignals::ends);
        let (left, force) = left.unwrap_or((grace, FORCE));
        let grace = left.min(grace);
        let _real = real_grace(&self.0.machine, grace);
        let report = self.0.tree.shutdown(grace, force).await;
        if report.as_ref().is_ok_and(|report| !report.is_clean())
            && let Some(done) = self.0.tree.tell_of_trouble("unclean shutdown")
            && !self.0.manner.quiet
        {
            say(Topic::End, format_args!("kinfolk: {done}"));
        }
        // Outside the lock: its thread is waited for.
        let heard = self.hears().take();
        (report, heard.as_ref().and_then(MainSignals::first))
    }

    /// The first signal that it has heard.
    fn first_signal(&self) -> Option<i32> {
        self.hears().as_ref()?.first()
    }

    /// A root that was just made.
    pub(crate) fn new(tree: Tree, machine: Arc<Machine>, manner: Manner) -> Root {
        Root(Arc::new(Inner {
            tree,
            machine,
            manner,
            hears: Mutex::default(),
        }))
    }

    pub(crate) fn machine(&self) -> &Arc<Machine> {
        &self.0.machine
    }

    /// From now on these hear signals for it.
    pub(crate) fn hear(&self, signals: MainSignals) {
        *self.hears() = Some(signals);
    }

    fn hears(&self) -> MutexGuard<'_, Option<MainSignals>> {
        self.0.hears.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Root")
            .field("living", &self.counters().living())
            .finish_non_exhaustive()
    }
}

/// Runs `future` as a job on the current tokio runtime; see [`Root::run`].
///
/// # Cancellation
/// *Not a point*; as awaiting a [`Task`](kinfolk_core::Task).
pub async fn run<F>(future: F) -> Result<<F::Output as IntoOutcome>::Value, Error>
where
    F: Future<Output: IntoOutcome<Value: Send>> + Send + 'static,
{
    Root::current().run(future).await
}
