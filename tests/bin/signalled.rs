//! A process for `tests/signals.rs` to send signals to: its argument says how
//! it behaves.

use std::process::ExitCode;
use std::time::Duration;

use kinfolk_core::{Error, cleanup, park, shield, sleep};
use kinfolk_runtime::{run_main, run_main_without_signals};

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        // Hears it, cleans up, stops.
        Some("hears") => run_main(async {
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
            Ok::<_, Error>(())
        }),
        // Protected, and never done: only force ends it.
        Some("shielded") => run_main(async {
            println!("ready");
            shield(std::future::pending::<()>()).await
        }),
        // Never comes to a point: only an abort ends it.
        Some("deaf") => run_main(async {
            println!("ready");
            loop {
                std::thread::yield_now();
                if std::env::args().count() > 9 {
                    break;
                }
            }
        }),
        Some("left alone") => run_main_without_signals(async {
            println!("ready");
            let _ = park().await;
        }),
        Some("fails") => run_main(async { Err::<(), _>(Error::msg("lost")) }),
        Some("works") => run_main(async {}),
        other => panic!("no part {other:?}"),
    }
}
