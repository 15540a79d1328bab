//! What the processes of `tests/signals.rs` do on every host; the file that has this as a
//! module says which host that is.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use kinfolk_core::{Error, blocking, cleanup, detach, on_cancel, park, shield, sleep, spawn};

use crate::host::{Builder, main_options, run_main, run_main_with, run_main_without_signals};

/// Says that it is there, waits until it is told, cleans up and says why it was told.
pub async fn hears() -> Result<(), Error> {
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
pub fn spin() {
    while !false_now() {
        std::thread::yield_now();
    }
}

/// Says so as soon as the cancel has come to the calling job, whatever that is in.
fn say_when_cancelled() {
    on_cancel(|_| println!("cancelled")).keep();
}

/// Options whose grace is soon over.
pub fn soon() -> Builder {
    main_options().grace(Duration::from_millis(200))
}

/// So that the compiler does not know.
fn false_now() -> bool {
    std::env::args().count() == 0
}

/// Does that part; none if it is not one of every host.
pub fn run(part: &str) -> Option<ExitCode> {
    Some(match part {
        // Hears it, cleans up, stops.
        "hears" => run_main(hears()),
        "hears, by signal" => run_main_with(main_options().exit_by_signal(true), hears()),
        // Says what was done, and is content.
        "content" => run_main(async {
            println!("ready");
            let _ = park().await;
        }),
        // Cannot do what it must when it is told.
        "fails when told" => run_main(async {
            println!("ready");
            let told = park().await;
            told.map_err(|_| Error::msg("lost"))
        }),
        // Goes on after it is told until its input is closed.
        "slow" => run_main(async {
            println!("ready");
            let told = park().await;
            println!("told");
            cleanup(blocking(|_| io::stdin().read_line(&mut String::new()))).await??;
            told?;
            Ok::<_, Error>(())
        }),
        // Protected, and never done: only force ends it.
        "shielded" => run_main(async {
            say_when_cancelled();
            println!("ready");
            shield(std::future::pending::<()>()).await
        }),
        "shielded, quiet" => run_main_with(main_options().quiet(true), async {
            say_when_cancelled();
            println!("ready");
            shield(std::future::pending::<()>()).await
        }),
        // Protected until the grace is over, and hears it then.
        "lifted" => run_main_with(soon(), async {
            println!("ready");
            shield(park()).await.map(drop)
        }),
        // Never comes to a point.
        "deaf" => run_main(async {
            println!("ready");
            spin();
        }),
        "deaf, soon" => run_main_with(soon(), async {
            println!("ready");
            spin();
        }),
        // All workers and the main thread.
        "all deaf" => run_main_with(soon().workers(2), async {
            let busy = || spawn(async { spin() });
            let (_one, _two) = (busy(), busy());
            println!("ready");
            spin();
        }),
        // Main hears it, and what it leaves behind does not.
        "leaves one behind" => run_main_with(soon().workers(2), async {
            let (sender, begun) = std::sync::mpsc::channel();
            detach(shield(async move {
                let _ = sender.send(());
                std::future::pending::<()>().await;
            }));
            blocking(move |_| begun.recv()).await??;
            println!("ready");
            let _ = park().await;
            Ok::<_, Error>(())
        }),
        "leaves a loop behind" => run_main_with(soon().workers(2), async {
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
        "reads" => run_main_with(soon(), async {
            let read = |_| {
                println!("ready");
                io::stdin().read_line(&mut String::new())
            };
            blocking(read).await??;
            Ok::<_, Error>(())
        }),
        // A hook of the cancel that does not return.
        "hook" => run_main_with(soon(), async {
            on_cancel(|_| spin()).keep();
            println!("ready");
            shield(std::future::pending::<()>()).await
        }),
        // Logs its Cancelled and goes on.
        "swallows" => run_main_with(soon(), async {
            println!("ready");
            while !false_now() {
                let _ = sleep(Duration::from_secs(3600)).await;
            }
        }),
        "left alone" => run_main_without_signals(async {
            println!("ready");
            let _ = park().await;
        }),
        "fails" => run_main(async { Err::<(), _>(Error::msg("lost")) }),
        "works" => run_main(async {}),
        _ => return None,
    })
}
