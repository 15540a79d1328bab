//! A process for `tests/signals.rs`, which sends it signals, breaks its standard
//! error or its driver: its argument says how it behaves. What runs on every host is in `parts.rs`.

use std::fs::File;
use std::io::{self, Read};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kinfolk_core::{Error, Event, Sink, park, spawn};
use kinfolk_runtime::Runtime;
use kinfolk_runtime::io::driver::{Answer, Driver, Notifier, OpId, WaitMode};
use kinfolk_runtime::io::{IoDriver, Request, nop, pipe};
use kinfolk_see::Recorder;

/// What the parts of every host run on.
mod host {
    pub use kinfolk_runtime::{
        Builder, main_options, run_main, run_main_with, run_main_without_signals,
    };
}

#[path = "parts.rs"]
mod parts;

use host::run_main_with;
use parts::{soon, spin};

/// A driver that cannot go on once it is told so.
struct Breaks {
    driver: Box<dyn Driver>,
    broken: Arc<AtomicBool>,
    panics: bool,
}

// SAFETY: it passes everything on, until it does nothing at all.
unsafe impl Driver for Breaks {
    unsafe fn submit(&mut self, id: OpId, request: &Request) {
        // SAFETY: as promised to us.
        unsafe { self.driver.submit(id, request) };
    }

    fn cancel(&mut self, id: OpId) {
        self.driver.cancel(id);
    }

    fn poll(&mut self, wait: WaitMode, answers: &mut Vec<Answer>) -> io::Result<()> {
        if self.broken.load(Ordering::SeqCst) {
            assert!(!self.panics, "a bug of the driver");
            return Err(io::Error::other("the kernel has lost it"));
        }
        // Often, so that it is noticed.
        let wait = match wait {
            WaitMode::Forever => WaitMode::AtMost(Duration::from_millis(1)),
            wait => wait,
        };
        self.driver.poll(wait, answers)
    }

    fn notifier(&self) -> Arc<dyn Notifier> {
        self.driver.notifier()
    }

    fn wants_nonblocking(&self) -> bool {
        self.driver.wants_nonblocking()
    }

    fn name(&self) -> &'static str {
        self.driver.name()
    }
}

/// A runtime whose driver breaks while a read is under way.
fn breaks(workers: usize, panics: bool) -> ExitCode {
    let broken = Arc::new(AtomicBool::new(false));
    let seen = broken.clone();
    let rt = Runtime::builder()
        .workers(workers)
        .wrap_io(move |driver| {
            let broken = seen.clone();
            Box::new(Breaks {
                driver,
                broken,
                panics,
            })
        })
        .build()
        .expect("a runtime");
    let read = rt.block_on(async {
        let (reader, _writer) = pipe()?;
        let read = spawn(async move { reader.read(vec![0; 8]).await.0 });
        nop().await?;
        broken.store(true, Ordering::SeqCst);
        read.await
    });
    println!("it went on: {read:?}");
    ExitCode::SUCCESS
}

/// No file can be opened when the driver is made; later some can.
fn no_files() -> ExitCode {
    for driver in [IoDriver::Best, IoDriver::Ring, IoDriver::Readiness] {
        let rt = Runtime::builder().workers(1).io(driver).build();
        let rt = rt.expect("a runtime");
        let mut open = Vec::new();
        while let Ok(file) = File::open("/dev/null") {
            open.push(file);
        }
        let refused = rt.block_on(nop()).expect_err("no file for a driver");
        assert_eq!(rt.handle().io_driver(), None);
        println!("{driver:?}: {refused}");
        drop(open);
        let works = rt.block_on(nop());
        println!("{driver:?}: {works:?}");
    }
    ExitCode::SUCCESS
}

/// A flight recorder with a folder.
fn recorder() -> Arc<Recorder> {
    let folder = std::env::args().nth(2).expect("a folder");
    Recorder::builder().dir(folder).build()
}

/// A sink that does not come back when it is told of trouble.
struct Hangs;

impl Sink for Hangs {
    fn event(&self, _: &Event) {}

    fn trouble(&self, _: &str) -> Option<String> {
        loop {
            std::thread::park();
        }
    }
}

/// So that the compiler does not know.
fn false_now() -> bool {
    std::env::args().count() == 0
}

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("hears, hand-built") => {
            let rt = Runtime::builder().workers(1).signals(true).build();
            rt.expect("a runtime").run_main(parts::hears())
        }
        // Begins with main when its input is closed.
        Some("late main") => {
            let rt = Runtime::builder().workers(1).signals(true).build();
            println!("ready");
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            rt.expect("a runtime").run_main(async {
                park().await?;
                Ok::<(), Error>(())
            })
        }
        // Every worker and the main thread are in polls that do not return; a name would
        // clear the screen.
        Some("all deaf, dumps") => {
            let options = soon().workers(2).signals(false).dump_on_usr1(true);
            run_main_with(options, async {
                let (sender, begun) = std::sync::mpsc::channel();
                for _ in 0..2 {
                    let sender = sender.clone();
                    let s = kinfolk_core::Scope::current().expect("a scope");
                    s.task("stuck \u{1b}[2J").launch(async move {
                        let _ = sender.send(());
                        spin();
                    });
                }
                for _ in 0..2 {
                    let _ = begun.recv();
                }
                println!("ready");
                spin();
            })
        }
        // Goes on, and has one more child for each line; the one from the first with
        // thousands of others, each of a name of its own.
        Some(part @ ("dumps" | "dumps many")) => {
            let rt = Runtime::builder().workers(1).dump_on_usr1(true).build();
            let rt = rt.expect("a runtime");
            let many = if part == "dumps" { 0 } else { 5_000 };
            let jobs = (0..many).map(|n| rt.scope().task(format!("job {n}")).launch(park()));
            let _jobs: Vec<_> = jobs.collect();
            println!("ready");
            let mut line = String::new();
            while io::stdin().read_line(&mut line).is_ok_and(|read| read > 0) {
                rt.scope().task("more").launch(park());
                println!("more");
            }
            ExitCode::SUCCESS
        }
        // Their flight recorder writes to the folder that the second argument names.
        Some("recorded") => run_main_with(parts::soon().sink(recorder()), parts::hears()),
        Some("recorded, stuck") => run_main_with(parts::soon().sink(recorder()), async {
            println!("ready");
            parts::spin();
        }),
        Some("recorded, dumps") => {
            let options = parts::soon().sink(recorder()).dump_on_usr1(true);
            run_main_with(options, parts::hears())
        }
        Some("recorded, unclean") => {
            let rt = Runtime::builder()
                .workers(1)
                .grace(Duration::from_millis(10));
            let rt = rt.sink(recorder()).build().expect("a runtime");
            let (sender, begun) = std::sync::mpsc::channel();
            let deaf = async move {
                let _ = sender.send(());
                std::future::pending::<()>().await;
            };
            rt.scope().task("main").launch(kinfolk_core::shield(deaf));
            begun.recv().expect("it has begun");
            ExitCode::SUCCESS
        }
        Some("recorded, hangs") => {
            run_main_with(parts::soon().sink(Arc::new(Hangs)), parts::hears())
        }
        // Its tasks panic, and its panic hook says nothing.
        Some("tasks_panic") => {
            std::panic::set_hook(Box::new(|_| {}));
            let rt = Runtime::builder().workers(1).build().expect("a runtime");
            let bug = || async { assert!(false_now(), "{}", "words ".repeat(10_000)) };
            let jobs: Vec<_> = (0..100).map(|_| rt.scope().launch(bug())).collect();
            let served = rt.block_on(async {
                for job in jobs {
                    assert!(job.join().await?.is_failed());
                }
                Ok::<_, Error>(())
            });
            served.expect("all have ended");
            ExitCode::SUCCESS
        }
        // Thousands fail, and no code takes their failures.
        Some("floods") => {
            let rt = Runtime::builder().workers(1).build().expect("a runtime");
            let fails = || async { Err::<(), _>(Error::msg("reset")) };
            let jobs: Vec<_> = (0..5_000).map(|_| rt.scope().launch(fails())).collect();
            let served = rt.block_on(async {
                for job in jobs {
                    let _ = job.join().await?;
                }
                println!("served");
                Ok::<_, Error>(())
            });
            served.expect("all have ended");
            ExitCode::SUCCESS
        }
        Some("breaks") => breaks(2, false),
        Some("breaks alone") => breaks(0, false),
        Some("panics") => breaks(2, true),
        Some("no files") => no_files(),
        Some(part) => parts::run(part).unwrap_or_else(|| panic!("no part {part:?}")),
        None => panic!("which part?"),
    }
}
