//! The i/o of a simulation on the side of its host: the handle that the host
//! returns, and the thread i/o that its loop polls. `no_io.rs` replaces this file
//! if there is no i/o.

use std::any::Any;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use kinfolk_core::{IntoOutcome, IoGauges};
use kinfolk_runtime::io::driver::{Driver, WaitMode};
use kinfolk_runtime::io::{IoHandle, ThreadIo, ThreadIoGuard};

use super::audit::Audit;
use super::driver::SimDriver;
use super::kernel::SimKernel;
use super::options::SimIo;
use crate::clock::VirtualClock;
use crate::everywhere::{CancelEverywhere, Everywhere, everywhere};
use crate::sim::{Sim, SimBuilder};

/// The kernel of a simulation.
pub(crate) type TestKernel = SimKernel;

/// The options of a simulation's i/o.
pub(crate) type IoOptions = SimIo;

/// Faults that every program must cope with.
pub(crate) fn rough() -> IoOptions {
    SimIo::rough()
}

/// The handle that the host returns.
pub(crate) struct SimIoHandle(Arc<IoHandle>);

impl SimIoHandle {
    pub(crate) fn as_any(&self) -> Option<&(dyn Any + Send + Sync)> {
        Some(&self.0)
    }

    pub(crate) fn gauges(&self) -> Option<IoGauges> {
        Some(self.0.gauges())
    }
}

/// The part that the loop polls.
pub(crate) struct IoSide {
    // Before the kernel: its drop waits for the operations under way there.
    thread_io: Box<ThreadIo>,
    kernel: SimKernel,
    audit: Audit,
}

/// Makes both parts.
pub(crate) fn make(options: IoOptions, seed: u64, clock: &VirtualClock) -> (SimIoHandle, IoSide) {
    let most = options.in_flight;
    let kernel = SimKernel::new(options, seed, clock.clone());
    let audit = Audit::new();
    let (inner, seen) = (kernel.clone(), audit.clone());
    let handle = IoHandle::new(
        1,
        Box::new(move |threads| {
            let one = || -> Box<dyn Driver> { seen.watch(Box::new(SimDriver(inner.clone()))) };
            Ok((0..threads).map(|_| one()).collect())
        }),
        Box::new(kernel.clone()),
        most,
        // The loop polls its thread i/o whenever that may have something to do.
        Box::new(|_| {}),
    );
    let side = IoSide {
        thread_io: Box::new(ThreadIo::new(handle.clone(), 0)),
        kernel,
        audit,
    };
    (SimIoHandle(handle), side)
}

impl IoSide {
    /// From here on, operations begun on this thread belong to the simulation.
    pub(crate) fn enter(&self) -> Inside<'_> {
        Inside {
            // SAFETY: the answer borrows this value, which outlives it; and the
            // value is on one thread at a time, because a thread_io is.
            _entered: unsafe { self.thread_io.enter() },
            _side: self,
        }
    }

    /// True if the thread i/o may have something to do.
    pub(crate) fn is_busy(&self) -> bool {
        self.thread_io.is_busy()
    }

    /// Completes the operations whose time has come; returns how many.
    pub(crate) fn turn(&self) -> usize {
        match self.has_something() {
            true => self.thread_io.poll(WaitMode::No),
            false => 0,
        }
    }

    /// False if a turn would be in vain, as many are while operations are late.
    fn has_something(&self) -> bool {
        self.thread_io.has_word() || self.kernel.is_due()
    }

    /// When the next operation completes.
    pub(crate) fn next_at(&self) -> Option<Duration> {
        self.kernel.next_at()
    }

    /// Ends the operations under way, and checks that nothing is left behind.
    #[track_caller]
    pub(crate) fn finish(&self, seed: u64) {
        self.thread_io.close();
        self.audit.check();
        self.kernel.check();
        let open = self.kernel.open_files();
        assert!(
            open.is_empty(),
            "seed {seed}: {} files are left open: {}",
            open.len(),
            open.join(", ")
        );
        let never = self.kernel.never_came();
        assert!(
            never.is_empty(),
            "seed {seed}: faults that the test asked for did not happen, because there were too \
             few operations: {}",
            never.join("; ")
        );
    }

    /// The simulated kernel.
    pub(crate) fn kernel(&self) -> TestKernel {
        self.kernel.clone()
    }
}

impl CancelEverywhere {
    /// Like [`run_then`](CancelEverywhere::run_then), and `check` gets the simulated kernel
    /// of the run: its files, and what a power cut would leave of them.
    ///
    /// ```
    /// use kinfolk_runtime::fs;
    /// use kinfolk_testkit::CancelEverywhere;
    ///
    /// CancelEverywhere::new().run_then_with_io(
    ///     || async {
    ///         fs::write("/new", "whole").await.0?;
    ///         fs::rename("/new", "/state").await
    ///     },
    ///     // Stopped at any point: not there, or whole.
    ///     |kernel| assert!(kernel.get("/state").is_none_or(|state| state == b"whole")),
    /// );
    /// ```
    ///
    /// # Panics
    /// As [`cancel_everywhere`](crate::cancel_everywhere), and if `check` does.
    #[track_caller]
    pub fn run_then_with_io<F, B>(
        self,
        scenario: F,
        check: impl FnMut(&SimKernel) + Send + 'static,
    ) -> Everywhere
    where
        F: Fn() -> B + Send + 'static,
        B: Future<Output: IntoOutcome<Value: Send>> + Send + 'static,
    {
        everywhere(self, scenario, check, Location::caller())
    }
}

/// Evidence that the thread_io was entered.
pub(crate) struct Inside<'a> {
    _entered: ThreadIoGuard,
    _side: &'a IoSide,
}

impl SimBuilder {
    /// Sets the options of the simulated kernel: its faults and their rates.
    /// Without this there are none.
    pub fn io(mut self, options: SimIo) -> Self {
        self.io = options;
        self
    }
}

impl Sim {
    /// The simulated kernel: its files, the open ones, the faults to come.
    pub fn io(&self) -> SimKernel {
        self.io.kernel.clone()
    }

    /// Counts the operations between the simulation and its kernel.
    pub fn io_audit(&self) -> Audit {
        self.io.audit.clone()
    }
}

#[cfg(test)]
mod tests {
    use kinfolk_runtime::io::System;

    use super::*;

    /// The end of a simulation asks its kernel what was done wrong.
    #[test]
    #[should_panic(expected = "the simulated kernel was misused")]
    fn the_end_of_a_simulation_names_misuse() {
        let sim = Sim::seeded(1);
        sim.io().close(3);
        sim.finish();
    }

    /// A visit while nothing is over and no message lies there does not reach the driver, and
    /// one that has something to do does.
    #[test]
    fn a_visit_in_vain_leaves_the_driver_alone() {
        let mut sim = Sim::builder(1).io(SimIo::rough()).build();
        let never = sim.root().spawn(async {
            let (reader, _writer) = kinfolk_runtime::io::pipe()?;
            reader.read(vec![0; 8]).await.0?;
            Ok::<_, kinfolk_core::Error>(())
        });
        sim.settle();
        assert!(sim.io.is_busy() && !sim.io.has_something());
        assert_eq!(sim.io.turn(), 0);
        drop(never);
    }
}
