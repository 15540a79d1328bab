//! What a case of the i/o suite gets.

use std::path::PathBuf;

use kinfolk_core::{Error, Scope, Tree, WaitKind, yield_now};
use kinfolk_testkit::io::{Audit, Fault, FaultPlan, OpKind, Quarantine, SimKernel};

/// What a case of the i/o suite gets, the same on every driver.
#[derive(Clone)]
pub struct IoLab {
    pub tree: Tree,
    /// What goes to the driver, and comes back.
    pub audit: Audit,
    /// Makes the buffers.
    pub quarantine: Quarantine,
    /// How many operations that end by themselves a thread gives to its driver at
    /// once.
    pub limit: usize,
    pub dir: PathBuf,
    pub kernel: Option<SimKernel>,
    pub fault_plan: Option<FaultPlan>,
    /// Operations may be interrupted, late and short.
    pub rough: bool,
    /// There is one thread.
    pub alone: bool,
}

impl IoLab {
    /// A path for a file of this case.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// A scope that spawns below the root.
    pub fn root(&self) -> Scope {
        self.tree.root_scope()
    }

    /// How many operations are with the driver.
    pub fn under_way(&self) -> u64 {
        let completed = self.audit.completed();
        self.audit.submitted() - completed
    }

    /// Waits until so many jobs wait for i/o.
    pub async fn until_waiting(&self, jobs: usize) -> Result<(), Error> {
        loop {
            let snapshot = self.tree.snapshot();
            let waits = |kind| matches!(kind, Some((WaitKind::Io, _, _)));
            let nodes = snapshot.nodes().iter();
            if nodes.filter(|node| waits(node.waits_on)).count() >= jobs {
                return Ok(());
            }
            yield_now().await?;
        }
    }

    /// Waits until every buffer has been given back.
    pub async fn until_no_buffers(&self) -> Result<(), Error> {
        while self.quarantine.living() > 0 {
            kinfolk_core::sleep(std::time::Duration::from_micros(50)).await?;
        }
        Ok(())
    }

    /// Waits until the driver has so many operations.
    pub async fn until_under_way(&self, operations: u64) -> Result<(), Error> {
        while self.under_way() != operations {
            // Time passes, where it is virtual, only if everybody waits.
            kinfolk_core::sleep(std::time::Duration::from_micros(50)).await?;
        }
        Ok(())
    }

    /// This happens to the next operation of that kind.
    pub fn fault(&self, kind: OpKind, fault: Fault) {
        match (&self.kernel, &self.fault_plan) {
            (Some(kernel), _) => kernel.fault(kind, fault),
            (_, Some(fault_plan)) => fault_plan.fault(kind, fault),
            (None, None) => unreachable!("every host has one of them"),
        }
    }

    /// This happens to each of the next `count` operations of that kind.
    pub fn faults(&self, kind: OpKind, count: usize, fault: Fault) {
        match (&self.kernel, &self.fault_plan) {
            (Some(kernel), _) => kernel.faults(kind, count as u64, fault),
            (_, Some(fault_plan)) => fault_plan.faults(kind, count as u64, fault),
            (None, None) => unreachable!("every host has one of them"),
        }
    }

    /// Nothing is open, where the host can say so.
    #[track_caller]
    pub fn assert_none_open(&self) {
        if let Some(kernel) = &self.kernel {
            assert_eq!(kernel.open_files(), [""; 0]);
        }
    }
}
