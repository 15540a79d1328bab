//! [`RootBuilder`]: the options of a root.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use kinfolk_core::{
    Clock, Error, FailureHook, ForcedHook, Patience, Result, Sink, Tree, TreeOptions,
};
use kinfolk_signals::{MainSignals, Manner};
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::bare_spawns::{BareSpawnHook, BareSpawnSink};
use crate::host::TokioHost;
use crate::keeper;
use crate::local_lane::LocalDriver;
use crate::machine::{Has, Machine, real_grace};
use crate::root::{Root, Roots};

/// A root with options; see [`Root::builder`].
#[must_use = "call `build`"]
pub struct RootBuilder {
    options: TreeOptions,
    /// Tokio's, if there is none.
    clock: Option<Arc<dyn Clock>>,
    has: Has,
    manner: Manner,
    on_bare_spawn: Option<BareSpawnHook>,
    /// The line that asked for signals.
    listen: Option<&'static Location<'static>>,
}

impl RootBuilder {
    pub(crate) fn new() -> RootBuilder {
        RootBuilder {
            options: TreeOptions::default(),
            clock: None,
            has: Has::default(),
            manner: Manner::default(),
            on_bare_spawn: None,
            listen: None,
        }
    }

    /// Sets whether the root handles Ctrl-C and SIGTERM, from [`build`](RootBuilder::build) to the
    /// end of its shutdown. `false` by default; `#[kinfolk::main(tokio)]` says `true`.
    ///
    /// The first signal shuts the root down, as [`Root::shutdown`] does: every job is
    /// cancelled, with a reason that names the signal and the line of this call; after a second
    /// a report on standard error names the jobs that have not ended; after the
    /// [`grace`](RootBuilder::grace) shields are lifted, and a second later the parked jobs are
    /// dropped. If the root has not ended a second after that (a poll or a blocking call does
    /// not return, or the program never awaits [`Root::run_main`] or a shutdown to its end), a
    /// report names the jobs that are left, and the process exits with 128 plus the number of
    /// the signal. A second signal goes to the last step at once, a third aborts the process. A
    /// signal within 200 ms of the last one that counted does not count.
    ///
    /// `tokio::signal` receives the same signals as well. On systems other than Unix this option
    /// has no effect.
    #[track_caller]
    pub fn signals(mut self, hear: bool) -> Self {
        let site = Location::caller();
        self.listen = hear.then_some(site);
        self
    }

    /// Sets how long a shutdown waits before it lifts shields: after the first
    /// [signal](RootBuilder::signals), in [`Root::run_main`] and in [`Root::shutdown`]. A
    /// second later it drops the parked jobs. Ten seconds by default.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.manner.grace = grace;
        self
    }

    /// Sets whether the root keeps silent about [signals](RootBuilder::signals) and about the
    /// jobs that delayed its shutdown. The error of [`Root::run_main`] is still printed, and so
    /// is what the hooks for failures and forced drops print.
    pub fn quiet(mut self, quiet: bool) -> Self {
        self.manner.quiet = quiet;
        self
    }

    /// Sets whether [`Root::run_main`] returns the exit code 128 plus the number of the signal
    /// after every signal, however main has ended. `false` by default.
    pub fn exit_by_signal(mut self, always: bool) -> Self {
        self.manner.exit_by_signal = always;
        self
    }

    /// Sets the sink for events.
    pub fn sink(mut self, sink: Arc<dyn Sink>) -> Self {
        self.options.sink = Some(sink);
        self
    }

    /// Sets the hook that receives every failure that no caller takes.
    pub fn on_failure(mut self, hook: FailureHook) -> Self {
        self.options.failure_hook = Some(hook);
        self
    }

    /// Sets the hook that receives every job whose future is dropped before it is done.
    pub fn on_forced(mut self, hook: ForcedHook) -> Self {
        self.options.forced_hook = Some(hook);
        self
    }

    /// Sets the hook that is told of tokio tasks that a job starts by `tokio::spawn`: no scope
    /// waits for them, and no cancel reaches them. For tests: on a current-thread runtime, where
    /// only the job can have started what is new after its turn. On other runtimes it is never
    /// called. What is [adopted](crate::AdoptExt::adopt) in the same turn is not reported; what a
    /// library starts for itself is.
    ///
    /// ```
    /// # mod kinfolk { pub use kinfolk_core::*; pub mod tokio { pub use kinfolk_tokio::*; } }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> kinfolk::Result<()> {
    /// let root = kinfolk::tokio::Root::builder()
    ///     .on_bare_spawn(Box::new(|found| println!("{found}")))
    ///     .build();
    /// root.run(async {
    ///     drop(tokio::spawn(async {})); // reported
    /// })
    /// .await?;
    /// # root.shutdown().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_bare_spawn(mut self, hook: BareSpawnHook) -> Self {
        self.on_bare_spawn = Some(hook);
        self
    }

    /// Sets how long a cancelled job may stay idle before it is dropped.
    pub fn patience(mut self, patience: Patience) -> Self {
        self.options.patience = patience;
        self
    }

    /// Sets the clock. The default is tokio's: the system's, unless a test has paused
    /// it; then timers of the tree wait as tokio's own do.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Says that tokio's clock is paused, as with `#[tokio::test(start_paused = true)]`: open
    /// [`kit::Work`](kinfolk_core::kit::Work) and what has
    /// [held the clock](kinfolk_core::kit::hold_clock) keep it from jumping then, by a blocking
    /// call of tokio's that lasts as long. Blocking calls of jobs do without it. On a
    /// current-thread runtime, the only one whose clock can be paused.
    pub fn paused_clock(mut self) -> Self {
        self.has.paused_clock = true;
        self
    }

    /// Makes the thread of the current `LocalSet` or `LocalRuntime` the main lane of the root,
    /// so that jobs may be futures that are not `Send`: [`Root::run_local`],
    /// [`Main::here`](kinfolk_core::Main::here). They run while the set is polled. Jobs of the
    /// pool, which is what a spawn makes unless it says a lane, run as on every root. When the
    /// set is dropped before the root was shut down, every job of the root ends, as it does
    /// when the tokio runtime is.
    pub fn local(mut self) -> Self {
        self.has.main_lane = true;
        self
    }

    /// A root of its own on the current tokio runtime.
    ///
    /// # Panics
    /// Outside a tokio runtime, if its timer is not enabled, if
    /// [signals](RootBuilder::signals) cannot be caught, or outside every `LocalSet` for a
    /// [local](RootBuilder::local) root.
    #[track_caller]
    pub fn build(mut self) -> Root {
        let tokio = Handle::try_current().unwrap_or_else(|_| {
            panic!(
                "a Kinfolk root on tokio was made outside a tokio runtime: \
                 call it inside #[tokio::main] or Runtime::block_on"
            )
        });
        // Panics if there are no timers: the tasks of the root would when they need one.
        drop(tokio::time::sleep(Duration::ZERO));
        if self.has.main_lane {
            // Panics outside a set, and then nothing of the root was made.
            drop(tokio::task::spawn_local(async {}));
        }
        if tokio.runtime_flavor() == RuntimeFlavor::CurrentThread
            && let Some(hook) = self.on_bare_spawn
        {
            let sink = BareSpawnSink::new(tokio.clone(), hook, self.options.sink.take());
            self.options.sink = Some(Arc::new(sink));
        }
        let machine = Arc::new(Machine::new(tokio, self.clock, self.has));
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
        if self.has.main_lane {
            drop(tokio::task::spawn_local(LocalDriver::new(machine.clone())));
        }
        let root = Root::new(tree, machine, self.manner);
        if let Some(site) = self.listen {
            root.hear(listen(&root, site, self.manner));
        }
        root
    }
}

impl RootBuilder {
    /// As [`build`](RootBuilder::build), and makes it the root that [`Root::current`] and
    /// [`run`](crate::run) use on this tokio runtime. It lives as long as the runtime then.
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
        let has_one = || {
            Err(Error::msg(
                "this tokio runtime has a current Kinfolk root already: build it before the \
                 first use of `Root::current` and `kinfolk_tokio::run`",
            ))
        };
        let current = Roots::lock().get(id);
        if current.is_some() {
            return has_one();
        }
        // Built outside the lock: its sink or its clock may have asked for the current root
        // meanwhile, or another thread, and that one counts.
        let root = self.build();
        let first = Roots::lock().insert_first(id, &root);
        if first.is_some() {
            return has_one();
        }
        Ok(root)
    }
}

impl fmt::Debug for RootBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RootBuilder")
    }
}

/// Begins to hear signals for `root`.
fn listen(root: &Root, site: &'static Location<'static>, manner: Manner) -> MainSignals {
    let tree = root.tree().clone();
    let machine = root.machine().clone();
    let real_grace = Box::new(move |grace| Some(real_grace(&machine, grace)));
    let heard = MainSignals::listen(tree, site, manner.grace, manner.quiet, real_grace);
    heard.unwrap_or_else(|error| panic!("cannot install handlers for SIGINT and SIGTERM: {error}"))
}
