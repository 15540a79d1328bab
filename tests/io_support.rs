//! What the suites of files, processes and signals have in common.
#![allow(dead_code, reason = "not every suite uses all of it")]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kinfolk_core::{Error, IntoOutcome, Result, Tree, WaitKind, yield_now};
use kinfolk_runtime::Runtime;
use kinfolk_runtime::io::IoDriver;
use kinfolk_testkit::guarded;

/// A scratch directory, removed at the end.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new() -> Scratch {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("kinfolk-scratch-{}-{n}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir).expect("a scratch directory");
        Scratch(dir)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What a body gets: the tree it runs in and a directory for its files.
pub struct Stage {
    pub tree: Tree,
    pub scratch: Scratch,
}

impl Stage {
    pub fn path(&self, name: &str) -> PathBuf {
        self.scratch.path(name)
    }

    /// Waits until the job of this name waits for i/o.
    pub async fn until_io(&self, name: &str) -> Result<()> {
        loop {
            let snapshot = self.tree.snapshot();
            let waits = snapshot.nodes().iter().any(|node| {
                node.name == name && node.waits_on.is_some_and(|(kind, ..)| kind == WaitKind::Io)
            });
            if waits {
                return Ok(());
            }
            yield_now().await?;
        }
    }
}

/// With no workers and with two; nothing is left behind.
pub fn on_each<F, B>(name: &'static str, body: F)
where
    F: Fn(Stage) -> B + Send + 'static,
    B: Future<Output = std::result::Result<(), Error>>,
    std::result::Result<(), Error>: IntoOutcome<Value = ()>,
{
    guarded(name, move |watched| {
        for workers in [0, 2] {
            let rt = Runtime::builder()
                .workers(workers)
                .build()
                .expect("a runtime");
            watched.watch(rt.tree());
            let stage = Stage {
                tree: rt.tree().clone(),
                scratch: Scratch::new(),
            };
            if let Err(error) = rt.block_on(body(stage)) {
                panic!("{name} with {workers} workers: {error:?}");
            }
            let report = rt.shutdown(Duration::from_secs(1)).expect("a report");
            assert!(report.is_clean(), "{report}");
        }
    });
}

/// Each driver and what it is called; one of them if `KINFOLK_IO` names it.
pub fn drivers() -> Vec<(IoDriver, &'static str)> {
    let ring = (IoDriver::Ring, "io_uring");
    let readiness = (IoDriver::Readiness, "readiness");
    match std::env::var("KINFOLK_IO").as_deref() {
        Ok("uring") => vec![ring],
        Ok("epoll") => vec![readiness],
        _ => vec![ring, readiness],
    }
}

/// On each driver, with no workers, one and two; nothing is left behind.
pub fn on_each_driver<F>(name: &'static str, body: F)
where
    F: Fn(&Runtime) -> std::result::Result<(), Error> + Send + 'static,
{
    guarded(name, move |watched| {
        for (driver, called) in drivers() {
            for workers in 0..3 {
                let rt = Runtime::builder().workers(workers).io(driver).build();
                let rt = rt.expect("a runtime");
                watched.watch(rt.tree());
                if let Err(error) = body(&rt) {
                    panic!("{name} on {called} with {workers} workers: {error:?}");
                }
                assert_eq!(rt.handle().io_driver(), Some(called), "{name}");
                let report = rt.shutdown(Duration::from_secs(1)).expect("a report");
                assert!(report.is_clean(), "{report}");
            }
        }
    });
}

/// How often this process has the file at `path` open.
pub fn times_open(path: &Path) -> usize {
    let open = std::fs::read_dir("/proc/self/fd").expect("our files");
    open.filter(|entry| {
        let entry = entry.as_ref().expect("an entry").path();
        std::fs::read_link(entry).is_ok_and(|target| target == path)
    })
    .count()
}
