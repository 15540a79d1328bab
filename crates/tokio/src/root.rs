//! The root of a tree on tokio: made on first use, one per tokio runtime.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kinfolk_core::host::RealGrace;
use kinfolk_core::{
    Clock, CountersSnapshot, Error, FORCE, FailureHook, ForcedHook, GRACE, Gauges, Inline,
    IntoOutcome, Just, Patience, ReasonKind, Result, Scope, ShutdownReport, Sink, TimerToken, Tree,
    TreeOptions, TreeSnapshot, kit,
};
use tokio::runtime::{Handle, Id};

use crate::host::TokioHost;
use crate::keeper;
use crate::machine::Machine;

/// The roots made on first use, by tokio runtime. An entry whose keeper has
/// been dropped belongs to a runtime that is gone.
static ROOTS: Mutex<Option<HashMap<Id, Root>>> = Mutex::new(None);

/// The list of them, locked.
struct Roots {
    // Dropped before those that are over: their trees go outside the lock.
    list: MutexGuard<'static, Option<HashMap<Id, Root>>>,
    _over: Vec<Root>,
}

impl Roots {
    fn lock() -> Roots {
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

    fn get(&self, id: Id) -> Option<Root> {
        self.list.as_ref()?.get(&id).cloned()
    }

    fn insert(&mut self, id: Id, root: Root) {
        self.list.get_or_insert_default().insert(id, root);
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
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.tree.request_shutdown(ReasonKind::Shutdown);
    }
}

/// A root with options.
#[must_use = "call `build`"]
pub struct RootBuilder {
    options: TreeOptions,
    /// Tokio's, if there is none.
    clock: Option<Arc<dyn Clock>>,
}

impl RootBuilder {
    /// Where events go.
    pub fn sink(mut self, sink: Arc<dyn Sink>) -> Self {
        self.options.sink = Some(sink);
        self
    }

    /// Sets the hook that receives every failure that no caller takes.
    pub fn on_failure(mut self, hook: FailureHook) -> Self {
        self.options.failure_hook = Some(hook);
        self
    }

    /// Gets every job whose future is dropped before it is done.
    pub fn on_forced(mut self, hook: ForcedHook) -> Self {
        self.options.forced_hook = Some(hook);
        self
    }

    /// How long a cancelled job may stay idle.
    pub fn patience(mut self, patience: Patience) -> Self {
        self.options.patience = patience;
        self
    }

    /// The clock. By default it is tokio's: the system's, unless a test has paused
    /// it; then timers of the tree wait as tokio's own do.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// A root of its own on the current tokio runtime.
    ///
    /// # Panics
    /// Outside a tokio runtime, or if its timer is not enabled.
    #[track_caller]
    pub fn build(self) -> Root {
        let tokio = Handle::try_current().unwrap_or_else(|_| {
            panic!(
                "a Kinfolk root on tokio was made outside a tokio runtime: \
                 call it inside #[tokio::main] or Runtime::block_on"
            )
        });
        // Panics if there are no timers: the tasks of the root would when they need one.
        drop(tokio::time::sleep(Duration::ZERO));
        let machine = Arc::new(Machine::new(tokio, self.clock));
        let changed = Arc::downgrade(&machine.changed);
        machine.clock.on_change(Box::new(move || {
            let changed = changed.upgrade();
            if let Some(changed) = &changed {
                changed.notify_one();
            }
            changed.is_some()
        }));
        let tree = Tree::new(Box::new(TokioHost(machine.clone())), self.options);
        machine.serves(tree.downgrade());
        drop(machine.tokio.spawn(keeper::keep(Arc::downgrade(&machine))));
        Root(Arc::new(Inner { tree, machine }))
    }
}

impl RootBuilder {
    /// As [`build`](RootBuilder::build), and makes it the root that [`Root::current`] and
    /// [`run`] use on this tokio runtime. It lives as long as the runtime then.
    ///
    /// # Errors
    /// If the tokio runtime has a current root already.
    ///
    /// # Panics
    /// As [`build`](RootBuilder::build).
    #[track_caller]
    pub fn build_current(self) -> Result<Root> {
        let id = Handle::try_current().ok().map(|handle| handle.id());
        let Some(id) = id else {
            // It panics, and says why.
            return Ok(self.build());
        };
        let mut roots = Roots::lock();
        if roots.get(id).is_some() {
            return Err(Error::msg(
                "this tokio runtime has a current Kinfolk root already: build it before the \
                 first use of `Root::current` and `kinfolk_tokio::run`",
            ));
        }
        let root = self.build();
        roots.insert(id, root.clone());
        Ok(root)
    }
}

impl fmt::Debug for RootBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RootBuilder")
    }
}

impl Root {
    /// A root with options.
    pub fn builder() -> RootBuilder {
        RootBuilder {
            options: TreeOptions::default(),
            clock: None,
        }
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
        let mut roots = Roots::lock();
        if let Some(root) = roots.get(id) {
            return root;
        }
        let root = Root::builder().build();
        roots.insert(id, root.clone());
        root
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

    /// Shuts the tree down with ten seconds of grace; see
    /// [`shutdown_in`](Root::shutdown_in).
    ///
    /// # Cancellation
    /// *Not a point.*
    pub async fn shutdown(&self) -> Result<ShutdownReport> {
        self.shutdown_in(GRACE).await
    }

    /// Cancels everything and waits; at `grace` lifts shields and guards and
    /// revokes leases; a second later drops every parked future. The report
    /// names the tasks that did not end. An error inside a job.
    ///
    /// It ends in real time, whatever the clock of the root does, while every worker of
    /// tokio's is in a long poll, and also if the tokio runtime is gone: from the grace
    /// on, a thread of its own keeps time. A root with a clock of the program's goes by
    /// real time from the beginning of its shutdown on.
    ///
    /// # Cancellation
    /// *Not a point.*
    pub async fn shutdown_in(&self, grace: Duration) -> Result<ShutdownReport> {
        // Inside a job it is an error, and nothing begins.
        let _real = kit::current_id().is_none().then(|| self.real_grace(grace));
        self.0.tree.shutdown(grace, FORCE).await
    }
}

impl Root {
    /// From here on a shutdown goes by real time, or from its grace on if the clock is
    /// tokio's, which a test may have paused, or virtual.
    fn real_grace(&self, grace: Duration) -> RealGrace {
        let machine = self.0.machine.clone();
        if !machine.clock.is_virtual() && !machine.is_tokios {
            // A clock that is paused meanwhile, or stands still, holds up nothing.
            machine.clock.run();
            machine.changed.notify_one();
        }
        let began = machine.clock.now();
        RealGrace::begin(grace, move || machine.fire_anyway(began, grace))
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
