//! A process for `tests/signals.rs`, which sends it signals, breaks its standard
//! error or its driver: its argument says how it behaves.

use std::fs::File;
use std::io::{self, Read};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kinfolk_core::{Error, blocking, cleanup, detach, on_cancel, park, shield, sleep, spawn};
use kinfolk_runtime::io::driver::{Answer, Driver, Notifier, OpId, WaitMode};
use kinfolk_runtime::io::{IoDriver, Request, nop, pipe};
use kinfolk_runtime::{
    Builder, Runtime, main_options, run_main, run_main_with, run_main_without_signals,
};

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

/// Says that it is there, waits until it is told, cleans up and says why it was told.
async fn hears() -> Result<(), Error> {
    println!("ready");
    let told = park().await;
    cleanup(async {
        sleep(Duration::from_millis(1)).await?;
        println!("cleaned up");
        if let Err(told) = &told {
            println!("{}", told.reason());
        }
        Ok::<_, Error>(())
    })
    .await?;
    told?;
    Ok(())
}

/// Never comes to a point, and never returns.
fn spin() {
    while !false_now() {
        std::thread::yield_now();
    }
}

/// Says so as soon as the cancel has come to the calling job, whatever that is in.
fn say_when_cancelled() {
    on_cancel(|_| println!("cancelled")).keep();
}

/// Options whose grace is soon over.
fn soon() -> Builder {
    main_options().grace(Duration::from_millis(200))
}

/// So that the compiler does not know.
fn false_now() -> bool {
    std::env::args().count() == 0
}

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        // Hears it, cleans up, stops.
        Some("hears") => run_main(hears()),
        Some("hears, by signal") => run_main_with(main_options().exit_by_signal(true), hears()),
        Some("hears, hand-built") => {
            let rt = Runtime::builder().workers(1).signals(true).build();
            rt.expect("a runtime").run_main(hears())
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
        // Says what was done, and is content.
        Some("content") => run_main(async {
            println!("ready");
            let _ = park().await;
        }),
        // Cannot do what it must when it is told.
        Some("fails when told") => run_main(async {
            println!("ready");
            let told = park().await;
            told.map_err(|_| Error::msg("lost"))
        }),
        // Goes on after it is told until its input is closed.
        Some("slow") => run_main(async {
            println!("ready");
            let told = park().await;
            println!("told");
            cleanup(blocking(|_| io::stdin().read_line(&mut String::new()))).await??;
            told?;
            Ok::<_, Error>(())
        }),
        // Protected, and never done: only force ends it.
        Some("shielded") => run_main(async {
            say_when_cancelled();
            println!("ready");
            shield(std::future::pending::<()>()).await
        }),
        Some("shielded, quiet") => run_main_with(main_options().quiet(true), async {
            say_when_cancelled();
            println!("ready");
            shield(std::future::pending::<()>()).await
        }),
        // Protected until the grace is over, and hears it then.
        Some("lifted") => run_main_with(soon(), async {
            println!("ready");
            shield(park()).await.map(drop)
        }),
        // Never comes to a point.
        Some("deaf") => run_main(async {
            println!("ready");
            spin();
        }),
        Some("deaf, soon") => run_main_with(soon(), async {
            println!("ready");
            spin();
        }),
        // All workers and the main thread.
        Some("all deaf") => run_main_with(soon().workers(2), async {
            let busy = || spawn(async { spin() });
            let (_one, _two) = (busy(), busy());
            println!("ready");
            spin();
        }),
        // Main hears it, and what it leaves behind does not.
        Some("leaves one behind") => run_main_with(soon().workers(2), async {
            detach(shield(std::future::pending::<()>()));
            println!("ready");
            let _ = park().await;
        }),
        Some("leaves a loop behind") => run_main_with(soon().workers(2), async {
            let (sender, begun) = std::sync::mpsc::channel();
            detach(async move {
                let _ = sender.send(());
                spin();
            });
            blocking(move |_| begun.recv()).await??;
            println!("ready");
            let _ = park().await;
            Ok::<_, Error>(())
        }),
        // A call that does not return: its input stays open.
        Some("reads") => run_main_with(soon(), async {
            let read = |_| {
                println!("ready");
                io::stdin().read_line(&mut String::new())
            };
            blocking(read).await??;
            Ok::<_, Error>(())
        }),
        // A hook of the cancel that does not return.
        Some("hook") => run_main_with(soon(), async {
            on_cancel(|_| spin()).keep();
            println!("ready");
            shield(std::future::pending::<()>()).await
        }),
        // Logs its Cancelled and goes on.
        Some("swallows") => run_main_with(soon(), async {
            println!("ready");
            while !false_now() {
                let _ = sleep(Duration::from_secs(3600)).await;
            }
        }),
        Some("left alone") => run_main_without_signals(async {
            println!("ready");
            let _ = park().await;
        }),
        // Thousands fail, and no code takes their failures.
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
        Some("fails") => run_main(async { Err::<(), _>(Error::msg("lost")) }),
        Some("works") => run_main(async {}),
        other => panic!("no part {other:?}"),
    }
}
