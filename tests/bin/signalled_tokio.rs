//! A process for `tests/signals.rs`, on tokio: its argument says how it behaves, and whether
//! tokio has one thread. What runs on every host is in `parts.rs`.

use std::process::ExitCode;

use kinfolk_core::park;
use kinfolk_see::Recorder;
use kinfolk_tokio::Root;

/// What the parts of every host run on.
mod host {
    pub use kinfolk_tokio::{
        MainOptions as Builder, main_options, run_main, run_main_with, run_main_without_signals,
    };
}

#[path = "parts.rs"]
mod parts;

fn main() -> ExitCode {
    let part = std::env::args().nth(1).expect("a part");
    match part.as_str() {
        "hears, hand-built" => hand_built(parts::hears()),
        "hears, one thread" => host::run_main_with(host::main_options().workers(0), parts::hears()),
        "deaf, one thread" => host::run_main_with(parts::soon().workers(0), async {
            println!("ready");
            parts::spin();
        }),
        // Its flight recorder writes to the folder that the second argument names.
        "recorded" => recorded(parts::hears()),
        "recorded, stuck" => recorded(async {
            println!("ready");
            parts::spin();
            Ok(())
        }),
        // Runs `main` by a way of its own, and never waits for the end of the root.
        "no main" => no_main(),
        "panics" => {
            host::run_main(async { assert!(std::env::args().count() == 0, "out of cheese") })
        }
        part => parts::run(part).unwrap_or_else(|| panic!("no part {part:?}")),
    }
}

/// A root that the program has built, on a tokio runtime of its own.
#[tokio::main]
async fn hand_built(
    main: impl Future<Output = Result<(), kinfolk_core::Error>> + Send + 'static,
) -> ExitCode {
    let root = Root::builder().signals(true).build();
    root.run_main(main).await
}

/// The same, with a flight recorder.
#[tokio::main]
async fn recorded(
    main: impl Future<Output = Result<(), kinfolk_core::Error>> + Send + 'static,
) -> ExitCode {
    let folder = std::env::args().nth(2).expect("a folder");
    let recorder = Recorder::builder().dir(folder).build();
    let grace = std::time::Duration::from_millis(200);
    let root = Root::builder().signals(true).grace(grace).sink(recorder);
    root.build().run_main(main).await
}

/// The root hears signals, and the program does not wait for it.
#[tokio::main]
async fn no_main() -> ExitCode {
    let grace = std::time::Duration::from_millis(200);
    let root = Root::builder().signals(true).grace(grace).build_current();
    let root = root.expect("the first");
    let _job = root.scope().launch(async { drop(park().await) });
    println!("ready");
    std::future::pending().await
}
