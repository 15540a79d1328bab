//! The hosts that the cases run on. Another driver is another function here and
//! another line in `main.rs`.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kinfolk_core::{Outcome, Result};
use kinfolk_runtime::Runtime;
use kinfolk_runtime::io::IoDriver;
use kinfolk_testkit::harness::{expect_completed, seeds};
use kinfolk_testkit::io::{Audit, FaultPlan, Quarantine, SimIo};
use kinfolk_testkit::{Sim, guarded};

use super::lab::IoLab;

pub type Case = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// Few enough to be reached.
const LIMIT: usize = 8;

fn fault_plan(rough: bool) -> fn() -> SimIo {
    if rough { SimIo::rough } else { SimIo::new }
}

fn expect(name: &str, seed: u64, outcome: Outcome<()>) {
    expect_completed(name, seed, outcome);
}

fn on_sim(name: &'static str, rough: bool, case: fn(IoLab) -> Case) {
    let plan = fault_plan(rough);
    guarded(name, move |watched| {
        for seed in 0..seeds() {
            let mut sim = Sim::builder(seed)
                .on_forced(|_| {})
                .io(plan().in_flight(LIMIT))
                .build();
            watched.watch(sim.tree());
            let quarantine = Quarantine::new();
            let lab = IoLab {
                tree: sim.tree().clone(),
                audit: sim.io_audit(),
                quarantine: quarantine.clone(),
                limit: LIMIT,
                dir: "/tmp".into(),
                kernel: Some(sim.io()),
                fault_plan: None,
                rough,
                alone: true,
            };
            let outcome = sim.outcome(case(lab));
            expect(name, seed, outcome);
            let audit = sim.io_audit();
            sim.finish();
            expect_clean(name, seed, &audit, &quarantine);
        }
    });
}

/// The simulation in fair fault_plan.
pub fn sim(name: &'static str, case: fn(IoLab) -> Case) {
    on_sim(name, false, case);
}

/// The simulation with everything that is no error.
pub fn rough_sim(name: &'static str, case: fn(IoLab) -> Case) {
    on_sim(name, true, case);
}

#[track_caller]
fn expect_clean(name: &str, seed: u64, audit: &Audit, quarantine: &Quarantine) {
    eprintln!("{name} (seed {seed}): {audit:?}");
    audit.check();
    assert_eq!(quarantine.living(), 0, "{name} (seed {seed}) lost a buffer");
    quarantine.check();
}

/// A scratch directory, removed at the end.
struct Scratch(std::path::PathBuf);

impl Scratch {
    fn new() -> Scratch {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = format!("kinfolk-io-suite-{}-{n}", std::process::id());
        let dir = std::env::temp_dir().join(dir);
        std::fs::create_dir_all(&dir).expect("a scratch directory");
        Scratch(dir)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn on_native(
    name: &'static str,
    driver: IoDriver,
    workers: usize,
    rough: bool,
    case: fn(IoLab) -> Case,
) {
    guarded(name, move |watched| {
        for run in 0..(seeds() / 10).max(1) {
            let (audit, quarantine) = (Audit::new(), Quarantine::new());
            let fault_plan = FaultPlan::new(fault_plan(rough)(), run);
            let (seen, exposed) = (audit.clone(), fault_plan.clone());
            let rt = Runtime::builder()
                .workers(workers)
                .io(driver)
                .io_in_flight(LIMIT)
                .wrap_io(move |driver| seen.watch(exposed.wrap(driver)))
                .on_forced(Box::new(|_| {}))
                .build()
                .expect("a runtime");
            watched.watch(rt.tree());
            let scratch = Scratch::new();
            let lab = IoLab {
                tree: rt.tree().clone(),
                audit: audit.clone(),
                quarantine: quarantine.clone(),
                limit: LIMIT,
                dir: scratch.0.clone(),
                kernel: None,
                fault_plan: Some(fault_plan),
                rough,
                alone: workers == 0,
            };
            let main = rt.scope().task("main").spawn(case(lab));
            let outcome = rt
                .wait_for(main.outcome())
                .and_then(|outcome| Ok(outcome?))
                .expect("main is awaited outside any job");
            expect(name, run, outcome);
            let report = rt.shutdown(Duration::from_secs(5)).expect("a report");
            assert!(report.stragglers.is_empty(), "{report}");
            expect_clean(name, run, &audit, &quarantine);
        }
    });
}

/// The native runtime with its ring driver, its main thread alone.
pub fn ring_alone(name: &'static str, case: fn(IoLab) -> Case) {
    on_native(name, IoDriver::Ring, 0, false, case);
}

/// The same with two workers.
pub fn ring_two(name: &'static str, case: fn(IoLab) -> Case) {
    on_native(name, IoDriver::Ring, 2, false, case);
}

/// With two workers, and everything that is no error.
pub fn rough_ring_two(name: &'static str, case: fn(IoLab) -> Case) {
    on_native(name, IoDriver::Ring, 2, true, case);
}

/// The native runtime with its readiness driver, its main thread alone.
pub fn readiness_alone(name: &'static str, case: fn(IoLab) -> Case) {
    on_native(name, IoDriver::Readiness, 0, false, case);
}

/// The same with two workers.
pub fn readiness_two(name: &'static str, case: fn(IoLab) -> Case) {
    on_native(name, IoDriver::Readiness, 2, false, case);
}

/// With two workers, and everything that is no error.
pub fn rough_readiness_two(name: &'static str, case: fn(IoLab) -> Case) {
    on_native(name, IoDriver::Readiness, 2, true, case);
}
